"""A report as one HTML file: interactive plots, both themes, printable, no external request.

Everything from models, files and people is escaped here: text by `escaped`, data of the figures by `_data`. A
content security policy in the file allows its own two scripts and nothing else, so that a name that escaped
both could neither run code nor send a request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs

from core.evidence.verdict import Color
from core.show.format import when
from core.show.html import escaped, parts, prose
from core.show.report import File, Price, Report, Section
from core.show.report.compose import compose
from core.show.report.subjects import About
from core.store import Store
from dashboard.report.figures import Plot, plots_of

MOST_BYTES = 6_000_000  # of a file that people send to each other
LEFT_OUT = "Left out, because the file would be too large: {}. See the page of the result."
SIGNS: dict[Color, str] = {"green": "▲", "blue": "◆", "orange": "▼", "red": "✕", "gray": "○"}


def html_of(
    about: About,
    store: Store,
    *,
    price: Price | None = None,
    recorded: str = "",
    signature: Section | None = None,
) -> str:
    """Return the HTML file about a result; see `compose` for the arguments.

    Plots that may be left out are omitted, and named, if it would be too large.
    """
    report = compose(about, store, price=price, recorded=recorded, signature=signature)
    plots = plots_of(about)
    text = _written(report, plots)
    spared: list[Plot] = []
    while len(text.encode()) > MOST_BYTES and (spare := _largest(plots, spared)) is not None:
        spared.append(spare)
        text = _written(report, [one for one in plots if one not in spared], spared)
    return text


def _largest(plots: Sequence[Plot], without: Sequence[Plot]) -> Plot | None:
    left = [one for one in plots if one not in without]
    sizes = {index: len(one.figure.to_json()) for index, one in enumerate(left)}
    ordered = sorted(sizes, key=lambda index: (left[index].spare, sizes[index]))
    return left[ordered[-1]] if ordered else None


def _written(report: Report, plots: Sequence[Plot], spared: Sequence[Plot] = ()) -> str:
    here = Path(__file__)
    plotly, script = get_plotlyjs() if plots else "", here.with_name("report.js").read_text("utf-8")
    style = here.with_name("report.css").read_text("utf-8")
    return Template(here.with_name("report.html").read_text("utf-8")).substitute(
        policy=_policy([one for one in (plotly, script) if one], style),
        title=escaped(f"{report.title} · ORTune"),
        style=style,
        body="\n".join(_body(report, plots, spared)),
        data=_data(plots),
        plotly=f"<script>{plotly}</script>" if plotly else "",
        script=script,
    )


def _policy(scripts: Sequence[str], style: str) -> str:
    hashes = " ".join(f"'sha256-{_digest(one)}'" for one in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(plots: Sequence[Plot]) -> str:
    """Return the figures as JSON that cannot end its script element, whatever a name contains."""
    figures = [json.loads(one.figure.to_json()) for one in plots]
    text = json.dumps(figures, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# --- content ------------------------------------------------------------------------------------------------


def _body(report: Report, plots: Sequence[Plot], spared: Sequence[Plot]) -> Iterable[str]:
    if report.recorded:
        yield f'<p class="recorded" role="note">{escaped(report.recorded)}</p>'
    yield f"<h1>{escaped(report.title)}</h1>"
    yield f'<p class="about">{escaped(_about(report))}</p>'
    if report.rejected:
        yield (
            '<section class="box red" role="alert"><h2>✕ Rejected: no '
            f"verdict</h2><p>{prose(report.rejected)}</p></section>"
        )
    yield f'<section class="box {report.color}"><p class="verdict">'
    yield f'<span class="sign" aria-hidden="true">{SIGNS[report.color]}</span> {escaped(report.verdict)}</p>'
    if report.support:
        yield f"<p>{escaped(' · '.join(report.support))}</p>"
    yield "</section>"
    yield from _plots(plots)
    for one in spared:
        yield f"<p>{escaped(LEFT_OUT.format(one.title))}</p>"
    for section in (*report.result, *([report.cost] if report.cost is not None else [])):
        yield from _section(section)
    if report.caveats:
        items = "".join(f"<li>{prose(one)}</li>" for one in report.caveats)
        yield f"<section><h2>Caveats</h2><ul>{items}</ul></section>"
    for section in (*report.method, *([report.signature] if report.signature is not None else [])):
        yield from _section(section)
    if report.files:
        yield "<section><h2>Configuration</h2>"
        for file in report.files:
            yield from _file(file)
        yield "</section>"
    said = f"Measured by ORTune {report.tool_version}. This file works offline."
    yield f"<footer>{escaped(said)}</footer>"


def _about(report: Report) -> str:
    at = f" · {when(report.measured_at)}" if report.measured_at else ""
    return f"{report.kind} {report.id}{at}"


def _plots(plots: Sequence[Plot]) -> Iterable[str]:
    for number, one in enumerate(plots):
        height = int(one.figure.layout.height or 360)
        yield (
            f'<figure><h2>{escaped(one.title)}</h2><div class="plot" id="plot-{number}" role="img" '
            f'aria-label="{escaped(one.alt)}" style="height:{height}px"></div>'
            f"<figcaption>{escaped(one.alt)}.</figcaption></figure>"
        )


def _section(section: Section) -> Iterable[str]:
    yield f"<section><h2>{escaped(section.title)}</h2>"
    yield from parts(section.parts)
    yield "</section>"


def _file(file: File) -> Iterable[str]:
    inside = f"<p>{escaped(file.missing)}</p>" if file.missing else f"<pre>{_lines(file.text)}</pre>"
    yield f"<details><summary>{escaped(file.name)}</summary>{inside}</details>"


def _lines(text: str) -> str:
    return "\n".join(escaped(line) for line in text.rstrip("\n").split("\n"))
