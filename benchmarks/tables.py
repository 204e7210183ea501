"""Write docs/benchmarks.md from the records: `python benchmarks/tables.py [--check]`.

What: one table for each question, one condition per line. `benchmarks/figures.py` computes the figures from
the records in benchmarks/records; figures without raw data come from benchmarks/records/reported.csv. The
text around the tables is benchmarks/page.md. Nothing is measured.

`--check` writes nothing. Exit code 1: the page differs from what would be written.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import (  # noqa: E402 - the script also runs from a checkout that is not installed
    fleet_figures,
    load_bound_figures,
    load_figures,
    load_peer_figures,
    runtime_figures,
    stream_figures,
)
from benchmarks.figures import RECORDED, Row, every_row  # noqa: E402

TEMPLATE = Path(__file__).resolve().parent / "page.md"
PAGE = TEMPLATE.parent.parent / "docs" / "benchmarks.md"
FIRST = ("Measured", "Condition", "n", "Estimate", "95 % interval")
LAST = ("Target", "Met", "Date", "Machine", "Script", "Source", "Note")
RIGHT = ("n", "Estimate")
MISSED = ("no", "undecided", "not measured")

# figures that are in modules of their own
MODULES = (
    load_figures,
    load_bound_figures,
    load_peer_figures,
    stream_figures,
    runtime_figures,
    fleet_figures,
)

# columns that the reported rows of a condition make
LONG: Mapping[str, Sequence[str]] = {
    "precision": ("p50", "file size", "peak memory", "largest output error"),
    "flows": ("time of the page alone", "time to measure"),
}
TABLE = re.compile(r"^<!-- table: (\S+) -->$", re.MULTILINE)
DEVIATIONS, TOTAL = "<!-- deviations -->", "<!-- total -->"


# --- layout -------------------------------------------------------------------------------------------------


def with_unit(value: str, unit: str) -> str:
    """A value and its unit; words have none."""
    if not unit or not re.search(r"\d", value):
        return value
    return f"{value}{unit}" if unit.startswith("×") else f"{value} {unit}"


def joined(rows: Sequence[Row], measures: Sequence[str]) -> list[tuple[Row, dict[str, str]]]:
    """Rows with their further columns; rows of `measures` are columns of the row of the same condition."""
    more = {(row.condition, row.measure): with_unit(row.estimate, row.unit) for row in rows}
    return [
        (row, {**row.more, **{one: more.get((row.condition, one), "") for one in measures}})
        for row in rows
        if row.measure not in measures
    ]


def cells(row: Row) -> tuple[list[str], list[str]]:
    """The standard columns of a row, before and after its own."""
    interval = f"[{row.low}, {row.high}]" if row.low else ""
    script = f"`{row.script}`" if row.script else ""
    first = [row.measure, row.condition, row.n, with_unit(row.estimate, row.unit), interval]
    return first, [row.target, row.met, row.date, row.machine, script, row.source, row.note]


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    ruler = ["--:" if head in RIGHT else "---" for head in heads]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ruler, *lines))


def long_form(rows: Sequence[Row], measures: Sequence[str] = ()) -> str:
    """The table of a question."""
    pairs = joined(rows, measures)
    own = list(dict.fromkeys(name for _, more in pairs for name in more))
    lines = []
    for row, more in pairs:
        first, last = cells(row)
        lines.append([*first, *(more.get(name, "") for name in own), *last])
    return table(
        [*FIRST, *(name if name[1:2].isdigit() else name[:1].upper() + name[1:] for name in own), *LAST],
        lines,
    )


def anchor(heading: str) -> str:
    """The link target that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def headings(template: str) -> dict[str, str]:
    """The heading above each table."""
    found, heading = {}, ""
    for line in template.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif match := TABLE.match(line):
            found[match[1]] = heading
    return found


def deviations(rows: Sequence[Row], names: Mapping[str, str]) -> str:
    """Rows that missed their target, could not be decided, or were not measured."""
    lines = []
    for kind in MISSED:
        for row in rows:
            if row.met == kind:
                heading = names[row.question]
                first, last = cells(row)
                lines.append([*first, *last[:2], f"[{heading}](#{anchor(heading)})", last[-1]])
    return table([*FIRST, "Target", "Met", "Table", "Note"], lines)


def page(rows: Sequence[Row], template: str) -> str:
    """The whole page.

    Raises:
        SystemExit: the template has no table for a row, or a table without rows.
    """
    names = headings(template)
    if strangers := {row.question for row in rows} ^ set(names):
        raise SystemExit(f"{TEMPLATE.name} and the figures disagree on {', '.join(sorted(strangers))}.")
    recorded = sum(row.source == RECORDED for row in rows)
    total = f"{len(rows)} figures: {recorded} from records, {len(rows) - recorded} reported."

    def laid_out(match: re.Match[str]) -> str:
        return long_form([row for row in rows if row.question == match[1]], LONG.get(match[1], ()))

    text = TABLE.sub(laid_out, template)
    return text.replace(DEVIATIONS, deviations(rows, names)).replace(TOTAL, total)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1: the page differs")
    given = parser.parse_args()
    rows = every_row()
    for module in MODULES:
        rows += module.every_row()
    found = page(rows, TEMPLATE.read_text())
    if not given.check:
        PAGE.write_text(found)
        return 0
    if not PAGE.is_file() or PAGE.read_text() != found:
        print(f"{PAGE} is out of date: run python benchmarks/tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
