"""Charts of a difference: the steps from one result to the other, and both side by side.

As in `charts`: `*_info` is plain data, the figure only draws it; no Streamlit, no clock, no file. Seconds
come in, milliseconds are drawn. Savings and costs differ in colour and in sign.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.evidence.profile_difference import Difference, DifferenceRow, RowKind
from core.show.sheets.differences import label, nodes
from dashboard.charts import (
    BAR_WIDTH,
    HOVER_TEXT,
    MUTED,
    PALETTE,
    base_figure,
    lay_out,
    minus,
    name_rows,
    number,
    pattern,
    text_lines,
)

MAX_STEPS = 14  # rows of nodes; the smallest others are summed
ROW_PX = 28
TICKS = 5  # maximum of the axis of times
CHARACTER_PX = 7  # width of a digit next to the plot
LABEL_LIMIT = 28  # characters of a line of a label
LEAST_SHARE = 0.005  # below, a number would add nothing
SAVES, COSTS, SUM = "takes less", "takes more", "the whole difference"
COLORS = {SAVES: PALETTE[0], COSTS: PALETTE[1], SUM: MUTED}
BASELINE, CANDIDATE = "baseline", "candidate"
_PATTERNS: dict[RowKind, str] = {"inserted": "/", "outside": ".", "unseen": "x", "unmatched": "-"}
SIDES_TITLE = "Time of both results by part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: from `start_ms` by `ms`, which is negative where the candidate takes less time."""

    label: str
    kind: RowKind | None  # None: the total
    start_ms: float
    ms: float
    half_ms: float | None  # half the 95 % interval
    share: float | None  # of the total difference
    baseline_ms: float
    candidate_ms: float
    nodes: str  # "18 → 16"; empty where there are none

    @property
    def series(self) -> str:
        """Return its legend entry."""
        return SUM if self.kind is None else SAVES if self.ms < 0 else COSTS


def steps_info(difference: Difference, *, limit: int = MAX_STEPS) -> list[Step]:
    """Return the parts of a difference as steps from zero to the total, which comes last."""
    steps: list[Step] = []
    at_ms = 0.0
    for row in shortened(difference.rows, limit):
        steps.append(_step(row, at_ms, difference.share(row)))
        at_ms += row.difference_s * 1e3
    end = difference.end
    whole = Step(
        label=SUM,
        kind=None,
        start_ms=0.0,
        ms=end.difference_s * 1e3,
        half_ms=None,
        share=1.0 if end.difference_s else None,
        baseline_ms=end.baseline_s * 1e3,
        candidate_ms=end.candidate_s * 1e3,
        nodes="",
    )
    return [*steps, whole]


def shortened(rows: Sequence[DifferenceRow], limit: int) -> list[DifferenceRow]:
    """Return the rows with all but the `limit` largest nodes summed; rows that are no nodes stay last."""
    nodes = [row for row in rows if row.kind not in ("outside", "unseen")]
    rest = nodes[limit:]
    if len(rest) < 2:
        return list(rows)
    together = DifferenceRow(
        label=f"{len(rest)} other parts",
        kind="operator",
        baseline_s=math.fsum(row.baseline_s for row in rest),
        candidate_s=math.fsum(row.candidate_s for row in rest),
        half_width_s=None,
        baseline_nodes=sum(row.baseline_nodes for row in rest),
        candidate_nodes=sum(row.candidate_nodes for row in rest),
    )
    return [*nodes[:limit], together, *(row for row in rows if row.kind in ("outside", "unseen"))]


def _wrapped(text: str) -> str:
    """Break a label into lines: an axis cuts labels wider than its room."""
    return text_lines(textwrap.wrap(text, LABEL_LIMIT))


def _step(row: DifferenceRow, start_ms: float, share: float | None) -> Step:
    return Step(
        label=label(row),
        kind=row.kind,
        start_ms=start_ms,
        ms=row.difference_s * 1e3,
        half_ms=None if row.half_width_s is None else row.half_width_s * 1e3,
        share=share,
        baseline_ms=row.baseline_s * 1e3,
        candidate_ms=row.candidate_s * 1e3,
        nodes=nodes(row),
    )


def steps(info: Sequence[Step], *, unit: str) -> go.Figure:
    """Draw the steps from the baseline (zero) to the candidate; `unit` is "run" or "row"."""
    figure = base_figure(
        x_title=f"Candidate minus baseline (ms per {unit})", y_title="", height=150 + ROW_PX * len(info)
    )
    for series in (SAVES, COSTS, SUM):
        rows = [(index, step) for index, step in enumerate(info) if step.series == series]
        if rows:
            _add_steps(figure, series, rows, unit)
    _add_texts(figure, info)
    lay_out(figure, barmode="overlay")
    _lay_out(figure, [step.label for step in info])
    lay_out(figure, xaxis={"zeroline": True, "zerolinecolor": MUTED, "zerolinewidth": 1})
    return figure


def _lay_out(figure: go.Figure, labels: Sequence[str]) -> None:
    """Give every label a row, the legend the whole width, the time axis few ticks, upright if they fit."""
    name_rows(figure, [_wrapped(one) for one in labels])
    lay_out(
        figure,
        legend={"xref": "container", "traceorder": "normal"},
        xaxis={"nticks": TICKS, "autotickangles": [0, 90]},
    )


def _add_steps(figure: go.Figure, series: str, rows: Sequence[tuple[int, Step]], unit: str) -> None:
    figure.add_bar(
        y=[index for index, _ in rows],
        x=[step.ms for _, step in rows],
        base=[step.start_ms for _, step in rows],
        orientation="h",
        width=BAR_WIDTH,
        name=series,
        marker={
            "color": COLORS[series],
            "pattern": pattern([_PATTERNS.get(step.kind, "") if step.kind else "" for _, step in rows]),
        },
        error_x={
            "type": "data",
            "array": [step.half_ms or 0.0 for _, step in rows],
            "color": MUTED,
            "thickness": 1.2,
            "width": 3,
        },
        hovertext=[_hover(step, unit) for _, step in rows],
        hovertemplate=HOVER_TEXT,
    )


def _add_texts(figure: go.Figure, info: Sequence[Step]) -> None:
    """Write each step's number right of the plot, in a margin as wide as the longest number."""
    texts = [_text(one) for one in info]
    place = {"x": 1, "xref": "x domain", "xanchor": "left", "xshift": 8, "align": "left", "showarrow": False}
    lay_out(
        figure,
        annotations=[{**place, "y": index, "text": text} for index, text in enumerate(texts)],
        margin={"r": 20 + CHARACTER_PX * max(map(len, texts))},
    )


def _text(step: Step) -> str:
    if step.share is None or abs(step.share) < LEAST_SHARE:
        return ""
    return f"{number(step.ms, 3, signed=True)} · {minus(f'{100 * step.share:.0f}')} %"


def _hover(step: Step, unit: str) -> str:
    half = f" ± {number(step.half_ms, 2)} ms" if step.half_ms is not None else ""
    parts = [
        step.label,
        f"{number(step.ms, signed=True)} ms per {unit}{half}",
        f"baseline {number(step.baseline_ms)} ms, candidate {number(step.candidate_ms)} ms",
    ]
    if step.share is not None:
        parts.append(f"{minus(f'{step.share:.1%}')} of the whole difference")
    if step.nodes:
        parts.append(f"nodes {step.nodes}")
    return text_lines(parts)


# --- side by side ---------------------------------------------------------------------------------------


def sides(difference: Difference, *, limit: int = MAX_STEPS) -> go.Figure:
    """Draw the time of both results by part, baseline above candidate."""
    rows = shortened(difference.rows, limit)
    unit = "row" if difference.end.per_row else "run"
    figure = base_figure(x_title=f"Time per {unit} (ms)", y_title="", height=150 + ROW_PX * (len(rows) + 1))
    for index, name in enumerate((BASELINE, CANDIDATE)):
        ms = [1e3 * (row.baseline_s if name == BASELINE else row.candidate_s) for row in rows]
        counts = [row.baseline_nodes if name == BASELINE else row.candidate_nodes for row in rows]
        figure.add_bar(
            y=list(range(len(rows))),
            x=ms,
            orientation="h",
            name=name,
            marker={
                "color": PALETTE[0] if index else MUTED,
                "pattern": pattern("" if index else "\\"),
            },
            hovertext=[
                text_lines((label(row), f"{name}: {number(one)} ms per {unit}", f"{count} nodes"))
                for row, one, count in zip(rows, ms, counts, strict=True)
            ],
            hovertemplate=HOVER_TEXT,
        )
    lay_out(figure, barmode="group", bargap=0.25)
    _lay_out(figure, [label(row) for row in rows])
    return figure
