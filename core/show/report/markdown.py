"""Writes a report as Markdown for a pull request: a sentence, one table, collapsed details. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from core.show.escapes import code_span, md_plain, unlinked
from core.show.format import when
from core.show.report import File, Report, Section
from core.show.sheets import Fact, Part
from core.show.table import Table, table_texts

_ICONS = {"green": "🟢", "blue": "🔵", "orange": "🟠", "red": "🔴", "gray": "⚪"}


def markdown(report: Report) -> str:
    """Return the report for a comment on a pull request; names of models and files cannot become markup."""
    lines = [
        f"### {md_plain(report.title)}",
        "",
        f"{_ICONS[report.color]} **{md_plain(report.verdict)}**",
    ]
    if report.support:
        lines += ["", md_plain(" · ".join(report.support))]
    if report.recorded:
        lines += ["", "> [!NOTE]", f"> {md_plain(report.recorded)}"]
    if report.rejected:
        lines += ["", "> [!WARNING]", f"> **Rejected: no verdict.** {md_plain(report.rejected)}"]
    shown, folded = _first_table(report.result)
    lines += ["", *shown]
    if report.cost is not None:
        lines += ["", f"**{report.cost.title}**", "", *_parts(report.cost.parts)]
    lines += ["", *_details("All numbers", [line for one in folded for line in _section(one)])]
    lines += [
        "",
        *_details("Machine and method", [x for one in report.method for x in _section(one)]),
    ]
    if report.signature is not None:
        lines += ["", *_details(report.signature.title, _parts(report.signature.parts))]
    if report.caveats:
        lines += ["", *_details("Caveats", [f"- {md_plain(one)}" for one in report.caveats])]
    for file in report.files:
        lines += ["", *_details(f"YAML: {_summary(file.name)}", _yaml(file))]
    at = f", {when(report.measured_at)}" if report.measured_at else ""
    version = md_plain(report.tool_version)
    lines += ["", f"<sub>{report.kind} {code_span(report.id)}{at}, measured by ORTune {version}</sub>", ""]
    return "\n".join(lines)


def _first_table(sections: Sequence[Section]) -> tuple[list[str], list[Section]]:
    """Return the main table as lines, and the sections without it."""
    for number, section in enumerate(sections):
        for part in section.parts:
            if isinstance(part, Table) and part.rows:
                rest = Section(title=section.title, parts=[one for one in section.parts if one is not part])
                others = [*sections[:number], *([rest] if rest.parts else []), *sections[number + 1 :]]
                return list(_table(part)), others
    return [], list(sections)


def _summary(text: str) -> str:
    """Return text for a line of HTML, in which Markdown escapes would be visible."""
    return html.escape(unlinked(text))


def _details(title: str, lines: Sequence[str]) -> list[str]:
    if not any(lines):
        return []
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>"]


def _section(section: Section) -> list[str]:
    return [f"**{md_plain(section.title)}**", "", *_parts(section.parts), ""]


def _parts(parts: Sequence[Part]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Table):
            lines += ["", *_table(part), ""]
        elif isinstance(part, Fact):
            name = f"**{md_plain(part.name)}**: " if part.name else ""
            lines.append(f"- {name}{md_plain(part.text)}")
        else:
            lines += ["", md_plain(part.text), ""]
    return lines


def _table(table: Table) -> Iterator[str]:
    columns, rows = table_texts(table)
    yield _row([md_plain(one) for one in columns])
    yield _row(["---"] * len(columns))
    for row in rows:
        yield _row([md_plain(cell) for cell in row])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _yaml(file: File) -> list[str]:
    if file.missing:
        return [md_plain(file.missing)]
    longest = max((len(run) for run in re.findall(r"`+", file.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}yaml", *file.text.rstrip("\n").split("\n"), fence]
