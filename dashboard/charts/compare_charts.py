"""Forest plots: intervals one below the other, here the ratios of configurations to one baseline.

As in `charts`: `forest_info` is plain data, `forest` only draws it; no Streamlit, no clock, no file. Search
and Accuracy draw their intervals with the same functions. While a comparison runs, `live_charts` is drawn
instead. A ratio is speed relative to the baseline: further right is faster, on a logarithmic axis whose ticks
give the factor to either side of 1. Names and hover texts give the same factor in words, "1.30× slower".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from core.evidence.comparison import Comparison
from core.evidence.verdict import Grade, Verdict, is_rejected, measured, parts, tick, words
from core.show import comparison_text, interim
from core.show import verdict as verdicts
from core.wire.units import clipped
from dashboard.charts import (
    MUTED,
    PAGE,
    PALETTE,
    TEXT_HOVER,
    band,
    base_figure,
    error_bars,
    lay_out,
    line_at,
    log_ticks,
    plain,
    text_lines,
    transparent,
)

ROW_HEIGHT = (
    52  # pixels: the name of a configuration is above its interval, so that a phone has room for both
)
LABEL_SHIFT = 14  # pixels from an interval up to its name
SLIM_ROW_HEIGHT = 42
LABEL_LIMIT, TITLE_LIMIT = 52, 34  # characters
TITLE_LINE, LINE_PX = 50, 18  # characters that a small screen has room for, and how high a second line is
AXIS_ROOM = 0.08  # share of the axis next to the outermost interval
LINEAR_UP_TO = 4.0  # a wider span of ratios gets the ticks of a logarithmic axis
MAX_TICKS = 8
BASELINE, REJECTED = "BASELINE", "REJECTED"  # besides the verdicts

Looks = Mapping[str, tuple[str, str, str]]  # verdict -> colour, marker, word; not by colour alone
VERDICTS: Looks = {
    Verdict.FASTER: (PALETTE[2], "triangle-right", Verdict.FASTER.word),
    Verdict.SLOWER: (PALETTE[1], "triangle-left", Verdict.SLOWER.word),
    Verdict.EQUIVALENT: (PALETTE[0], "diamond", "equivalent"),
    Verdict.UNDECIDED: (MUTED, "circle-open", Verdict.UNDECIDED.word),
    REJECTED: (MUTED, "x-thin-open", "rejected: no verdict"),
    BASELINE: (MUTED, "line-ns-open", "baseline"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """One value with its 95 % interval; a bound is None where the data do not support one."""

    label: str
    value: float
    low: float | None
    high: float | None
    verdict: str  # a key of the looks it is drawn with, as of VERDICTS
    short: str = ""  # right of its name: the verdict or the value in a few characters
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestInfo:
    """A forest plot of ratios as data, top row first."""

    title: str  # of the axis
    baseline: str
    rows: list[ForestRow]
    axis: tuple[float, float]
    ticks: list[tuple[float, str]]
    margin: float = 0.0  # of equivalence, a share

    @property
    def band(self) -> tuple[float, float]:
        """Ratios between which two configurations are equivalent."""
        return 1 / (1 + self.margin), 1 + self.margin


def forest_info(
    contrasts: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
    *,
    baseline: str,
    margin: float,
    muted: Collection[str] = (),
    per_row: bool | None = None,
    final: bool = True,
) -> ForestInfo:
    """Return the forest of `contrasts` in their order, the baseline last.

    Args:
        contrasts: as stored in a comparison, all against `baseline`; those without a ratio are left out.
        labels: trial -> name.
        baseline: trial that the others are compared with.
        margin: of equivalence, a share.
        muted: candidates with a rejected verdict.
        per_row: whether times per sample are compared; None: if a contrast says so.
        final: False while the comparison runs, when there are no verdicts yet.
    """
    known = [one for one in contrasts if one.get("ratio")]
    rows = [_row(one, labels, rejected=one["candidate"] in muted, final=final) for one in known]
    name = labels.get(baseline, "baseline")
    rows.append(
        ForestRow(
            label=name,
            value=1.0,
            low=None,
            high=None,
            verdict=BASELINE,
            short="baseline",
            hover=plain(name),
        )
    )
    axis = reach(rows, 1 / (1 + 2 * margin), 1 + 2 * margin)
    per_row = any(one.get("per_row") for one in known) if per_row is None else per_row
    return ForestInfo(
        title=_axis_title(name, per_row=per_row),
        baseline=name,
        rows=rows,
        axis=axis,
        ticks=[(one, tick(one)) for one in ratio_ticks(*axis)],
        margin=margin,
    )


def reach(rows: Sequence[ForestRow], low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis of ratios that shows all intervals, and `low` to `high`."""
    drawn = [value for row in rows for value in (row.value, row.low, row.high) if value]
    low, high = min([*drawn, low]), max([*drawn, high])
    room = (high / low) ** AXIS_ROOM
    return low / room, high * room


def _axis_title(baseline: str, *, per_row: bool) -> str:
    """Name the compared sides, and the direction of faster."""
    unit = " per sample" if per_row else ""
    return f"← slower · speed{unit} versus {clipped(baseline, TITLE_LIMIT)} · faster →"


def comparison_forest_info(comparison: Comparison) -> ForestInfo | None:
    """Return the forest of a finished comparison, in the order of its ranks; None: it has no contrast."""
    found = comparison_text.against_reference(comparison)
    if not found:
        return None
    return forest_info(
        [found[trial] for trial in comparison_text.order(comparison) if trial in found],
        comparison_text.labels(comparison),
        baseline=comparison_text.reference(comparison),
        margin=margin_of(comparison),
        muted=[trial for trial, one in found.items() if is_rejected(one)],
    )


def trial_forest_info(comparison: Comparison, contrasts: Sequence[Mapping[str, Any]]) -> ForestInfo:
    """Return the forest of one trial against each of its references."""
    named = {one["baseline"]: verdicts.label(comparison, one["baseline"]) for one in contrasts}
    muted = [one["candidate"] for one in contrasts if is_rejected(one)]
    return reference_forest_info(contrasts, named, margin=margin_of(comparison), muted=muted)


def reference_forest_info(
    contrasts: Sequence[Mapping[str, Any]], named: Mapping[str, str], **how: Any
) -> ForestInfo:
    """Return the forest of one trial against one or two references; of two, each names its interval.

    Args:
        contrasts: of the trial, at least one.
        named: names of its references.
        how: options of `forest_info`.
    """
    first, alone = contrasts[0]["baseline"], len(contrasts) == 1
    rows = [
        {**one, "label": "this trial" if alone else f"versus {named.get(one['baseline'], 'the baseline')}"}
        for one in contrasts
    ]
    reference = named.get(first, "the baseline") if alone else "the reference"
    return forest_info(rows, {first: reference}, baseline=first, **how)


def margin_of(comparison: Comparison) -> float:
    """Return the equivalence margin, a share."""
    return float(comparison.protocol.get("margin") or 0.0)


def _row(contrast: Mapping[str, Any], labels: Mapping[str, str], *, rejected: bool, final: bool) -> ForestRow:
    label = contrast.get("label") or labels.get(contrast["candidate"], contrast["candidate"][:8])
    verdict = REJECTED if rejected else contrast.get("verdict") or Verdict.UNDECIDED
    short, rest = _words(contrast, verdict, final=final)
    rounds = f"{contrast['rounds']} rounds" if contrast.get("rounds") else ""
    return ForestRow(
        label=label,
        value=contrast["ratio"],
        low=contrast.get("ratio_low"),
        high=contrast.get("ratio_high"),
        verdict=verdict,
        short=short,
        hover=text_lines(part for part in (label, short, rest, rounds) if part),
    )


def _words(contrast: Mapping[str, Any], verdict: str, *, final: bool) -> tuple[str, str]:
    """Return the verdict in a few characters, and its justification."""
    if not final:
        ratio, interval = interim.words(contrast)
        return f"{ratio} so far", interval
    if verdict == REJECTED:
        return Grade.F.word, measured(contrast)
    short, interval = parts({**contrast, "verdict": verdict})
    return (Verdict.EQUIVALENT.word, words(contrast)) if verdict == Verdict.EQUIVALENT else (short, interval)


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return ratios by round factors to either side of 1, 1 included, between `low` and `high`."""
    if high / low > LINEAR_UP_TO:
        factors = [tick for tick in log_ticks([1.0, max(high, 1 / low)]) if tick > 1]
    else:
        steps = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
        room = high + 1 / low - 2  # of both sides together
        step = next((one for one in steps if room / one <= MAX_TICKS), 1.0)
        factors = [round(1 + k * step, 6) for k in range(1, math.floor(room / step) + 1)]
    return [
        *(1 / factor for factor in reversed(factors) if 1 / factor >= low * (1 - 1e-9)),
        1.0,
        *(factor for factor in factors if factor <= high * (1 + 1e-9)),
    ]


def forest(info: ForestInfo, *, looks: Looks = VERDICTS, slim: bool = False, least: int = 0) -> go.Figure:
    """Draw ratios with their intervals, each under its name, on a logarithmic axis.

    Args:
        info: data of the plot.
        looks: of the verdicts.
        slim: without the row of the baseline, which is the line at 1×, and without a legend, because each row
            names its verdict.
        least: minimum height in pixels; more rows take more.
    """
    rows = [row for row in info.rows if not (slim and row.verdict == BASELINE)]
    title = _broken(info.title)
    second = LINE_PX * ("<br>" in title)
    height = max(least, 110 + second + ROW_HEIGHT * len(rows))
    figure = base_figure(x_title=title, y_title="", height=height)
    if slim:
        height = 74 + second + SLIM_ROW_HEIGHT * len(rows)
        lay_out(figure, showlegend=False, margin={"t": 0}, height=height)
    equivalent = [band(*info.band, of="x", color=transparent(MUTED, 0.2))] if info.margin else []
    shapes = [*equivalent, line_at(1.0, of="x", color=MUTED, width=1.5, dash="dot")]
    add_rows(figure, rows, looks)
    lay_out(figure, shapes=shapes, xaxis=ratio_scale(info.axis, info.ticks))
    return figure


def ratio_scale(ends: tuple[float, float], ticks: Sequence[tuple[float, str]]) -> dict[str, Any]:
    """Return a logarithmic axis of ratios, for `lay_out`."""
    return {
        "type": "log",
        "range": [math.log10(end) for end in ends],
        "tickvals": [value for value, _ in ticks],
        "ticktext": [text for _, text in ticks],
    }


def _broken(title: str) -> str:
    """Break a long axis title into two lines: the directions, and the compared sides."""
    if len(title) <= TITLE_LINE:
        return plain(title)
    slower, _, rest = title.partition(" · ")
    against, _, faster = rest.rpartition(" · ")
    return f"{slower} · {faster}<br>{plain(against)}"


def add_rows(figure: go.Figure, rows: Sequence[ForestRow], looks: Looks) -> None:
    """Draw intervals with their names above them; one series per verdict, so that the legend explains it."""
    for verdict, (color, marker, word) in looks.items():
        own = [(place, row) for place, row in enumerate(rows) if row.verdict == verdict]
        if own:
            figure.add_scatter(
                x=[row.value for _, row in own],
                y=[place for place, _ in own],
                name=word,
                mode="markers",
                marker={"symbol": marker, "size": 13, "color": color, "line": {"width": 2, "color": color}},
                error_x=error_bars(
                    [(row.value, row.low, row.high) for _, row in own], color, thickness=3, width=7
                ),
                text=[row.hover for _, row in own],
                showlegend=verdict != BASELINE,
                hovertemplate=TEXT_HOVER,
            )
    texts = []
    for place, row in enumerate(rows):
        sides = [(0.0, "left", clipped(row.label, LABEL_LIMIT))]
        sides += [(1.0, "right", row.short)] if row.short else []
        for x, anchor, text in sides:
            texts.append(
                {
                    "x": x,
                    "xref": "x domain",
                    "xanchor": anchor,
                    "y": place,
                    "yshift": LABEL_SHIFT,
                    "yanchor": "bottom",
                    "text": plain(text),
                    "bgcolor": PAGE,  # keeps lines from crossing the text
                    "showarrow": False,
                }
            )
    rows_axis = {"visible": False, "range": [len(rows) - 0.5, -0.7], "fixedrange": True}
    lay_out(figure, annotations=[*figure.layout.annotations, *texts], yaxis=rows_axis)
