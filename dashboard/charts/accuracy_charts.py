"""Charts of accuracy: confusion matrix, correct answers over the threshold, differences of two models.

As in `charts`: `*_info` turns numbers into plain data, the figure only draws it; no Streamlit, no file.
Shares arrive as 0 to 1 and are drawn in percent, differences in percentage points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from core.show.table import Column, Table, tabulate
from core.wire.units import ci, clipped
from dashboard.charts import (
    HEIGHT,
    MUTED,
    PALETTE,
    base_figure,
    minus,
    plain,
    style,
    text_lines,
    transparent,
)
from dashboard.charts.compare_charts import ForestRow, Looks, add_rows

MOST_CLASSES = 24  # rows of a confusion matrix; beyond it the classes with the fewest errors share one row
WITH_NUMBERS = 14  # classes up to which the counts fit into their cells
CELL, FRAME = 34, 130  # pixels
LIGHTEST, DARKEST = "#EDF4FA", PALETTE[0]  # one hue, opaque, as the numbers contrast with it
MAX_POINTS = 600  # of a curve: more are not visible
ROW_HEIGHT = 52
NAME_LIMIT = 24  # characters of a class

VERDICTS: Looks = {  # on non-inferiority
    "NOT_WORSE": (PALETTE[2], "diamond", "not worse"),
    "WORSE": (PALETTE[1], "triangle-left", "worse"),
    "UNDECIDED": (MUTED, "circle-open", "undecided"),
}


# --- confusion matrix ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """A confusion matrix to draw: a row for each true class, a column for each predicted class."""

    names: list[str]
    counts: list[list[int]]
    shares: list[list[float | None]]  # of the samples of that class; None: it has none
    merged: int  # classes that the last row and column combine; 0: each has its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One class that was mistaken for another."""

    truth: str
    said: str
    rows: int
    share: float  # of the samples of `truth`


def confusion_info(
    matrix: Sequence[Sequence[int]],
    names: Sequence[str],
    rows: Sequence[int],
    *,
    most: int = MOST_CLASSES,
) -> Confusion:
    """Return the matrix to draw; beyond `most` classes, those with the fewest errors are combined.

    Args:
        matrix: rows by true class, columns by predicted class.
        names: of the classes.
        rows: samples of each class; more than its line's sum if some have no answer.
        most: classes with a row of their own.
    """
    counts, totals = np.asarray(matrix, np.int64), np.asarray(rows, np.int64)
    shown, merged = list(names), 0
    if len(names) > most:
        wrong = counts.sum(axis=0) + counts.sum(axis=1) - 2 * counts.diagonal()
        kept = np.sort(np.argsort(-wrong, kind="stable")[:most])
        merged = len(names) - most
        group = np.full(len(names), most)
        group[kept] = np.arange(most)
        joined = np.zeros((most + 1, most + 1), np.int64)
        np.add.at(joined, (group[:, None], group[None, :]), counts)
        totals = np.bincount(group, weights=totals, minlength=most + 1).astype(np.int64)
        counts = joined
        shown = [names[k] for k in kept] + [f"{merged} other classes"]
    return Confusion(
        names=shown,
        counts=counts.tolist(),
        shares=[
            [int(count) / int(total) if total else None for count in line]
            for line, total in zip(counts, totals, strict=True)
        ],
        merged=merged,
    )


def confusion_table(info: Confusion) -> Table:
    """Return a row for each pair of classes with counts, with their share of the true class."""
    found = [
        (row, column)
        for row, counts in enumerate(info.counts)
        for column, count in enumerate(counts)
        if count
    ]
    return tabulate(
        found,
        (Column("true class", key="true_class"), lambda one: info.names[one[0]]),
        (Column("predicted class", key="predicted_class"), lambda one: info.names[one[1]]),
        (Column("samples", "count", key="rows"), lambda one: info.counts[one[0]][one[1]]),
        (Column("share", "share", key="share"), lambda one: info.shares[one[0]][one[1]]),
    )


def confusion(info: Confusion) -> go.Figure:
    """Draw the matrix; a darker cell holds more samples of its class, an empty one none."""
    size = FRAME + CELL * len(info.names)
    figure = base_figure(x_title="Predicted class", y_title="True class", height=max(HEIGHT, size))
    ticks = list(range(len(info.names)))
    labels = [plain(clipped(name, NAME_LIMIT)) for name in info.names]
    numbers = [[f"{count:,}" if count else "" for count in row] for row in info.counts]
    figure.add_heatmap(
        z=[[math.sqrt(share) if share else None for share in row] for row in info.shares],  # errors are rare
        x=ticks,
        y=ticks,
        zmin=0,
        zmax=1,
        colorscale=[[0, LIGHTEST], [1, DARKEST]],
        showscale=False,
        xgap=1,
        ygap=1,
        text=numbers,
        texttemplate="%{text}" if len(info.names) <= WITH_NUMBERS + 1 else None,
        customdata=_hovers(info),
        hovertemplate="%{customdata}<extra></extra>",
    )
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(tickvals=ticks, ticktext=labels, showgrid=False)
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(showlegend=False, margin={"t": 12})
    return figure


def _hovers(info: Confusion) -> list[list[str]]:
    return [
        [
            _hover(truth, said, count, share)
            for said, count, share in zip(info.names, row, shares, strict=True)
        ]
        for truth, row, shares in zip(info.names, info.counts, info.shares, strict=True)
    ]


def _hover(truth: str, said: str, rows: int, share: float | None) -> str:
    what = "correct" if truth == said else f"predicted as {plain(said)}"
    known = "" if share is None else f", {share:.2%} of its samples"
    return f"{plain(truth)} {what}<br>{rows:,} samples{known}"


def confused_pairs(
    matrix: Sequence[Sequence[int]], names: Sequence[str], rows: Sequence[int], limit: int = 20
) -> list[Pair]:
    """Return the most frequent confusions, most samples first; see `confusion_info`."""
    counts = np.array(matrix, np.int64)
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:limit]
    return [
        Pair(truth=names[i], said=names[j], rows=int(counts[i, j]), share=int(counts[i, j]) / rows[i])
        for i, j in zip(*np.unravel_index(order, counts.shape), strict=True)
        if counts[i, j]
    ]


# --- threshold ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Roc:
    """One model's ROC curve, and the position of the threshold on it."""

    name: str  # with the area under the curve, if known
    false_alarms: list[float]  # 1 - specificity
    sensitivity: list[float]
    point: tuple[float, float] | None
    hover: str


def tradeoff(
    thresholds: Sequence[float],
    sensitivity: Sequence[float],
    specificity: Sequence[float],
    *,
    threshold: float,
) -> go.Figure:
    """Draw both shares of correct answers over the threshold, which is a line; NaN is a gap."""
    figure = base_figure(x_title="Threshold on the probability", y_title="Share of correct samples")
    for index, (name, values) in enumerate((("sensitivity", sensitivity), ("specificity", specificity))):
        look = style(index)
        figure.add_scatter(
            x=list(thresholds),
            y=[None if math.isnan(one) else one for one in values],
            name=name,
            mode="lines",
            line={"color": look["color"], "dash": look["dash"], "width": 2.5},
            hovertemplate=f"{name} %{{y:.2%}}<br>at %{{x:.3f}}<extra></extra>",
        )
    figure.add_vline(
        x=threshold,
        line={"color": MUTED, "width": 2, "dash": "dot"},
        annotation_text=f"threshold {threshold:g}",
        annotation_position="bottom left" if threshold > 0.5 else "bottom right",
    )
    figure.update_xaxes(range=[-0.01, 1.01])
    figure.update_yaxes(range=[0, 1.03], tickformat=".0%")
    return figure


def roc_info(
    name: str,
    points: tuple[Sequence[float], Sequence[float]],
    *,
    area: float | None,
    threshold: float,
    at: tuple[float | None, float | None],
) -> Roc:
    """Return a ROC curve to draw, with as many points as can be seen.

    Args:
        name: of the model.
        points: false alarms and sensitivity, both rising.
        area: under the curve; None: not known.
        threshold: the present one.
        at: sensitivity and specificity there; None: no sample defines it.
    """
    kept = _visible([*zip(*points, strict=True)])
    found, spared = at
    known = "" if area is None else f" · area {area:.4f}"
    if found is None or spared is None:
        point, hover = None, ""
    else:
        point = (1 - spared, found)
        hover = f"at threshold {threshold:g}<br>sensitivity {found:.2%}, specificity {spared:.2%}"
    return Roc(
        name=f"{name}{known}",
        false_alarms=[float(points[0][k]) for k in kept],
        sensitivity=[float(points[1][k]) for k in kept],
        point=point,
        hover=hover,
    )


def _visible(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of points that lie apart, with the ends and both sides of each large step."""
    if len(points) <= MAX_POINTS:
        return list(range(len(points)))
    step = 4.0 / MAX_POINTS  # both shares run from 0 to 1 once, and a step keeps two points
    kept = [0]
    for index, point in enumerate(points[1:], 1):
        last = points[kept[-1]]
        if point[0] - last[0] + point[1] - last[1] >= step:
            kept += [index - 1, index] if index - 1 > kept[-1] else [index]
    return kept if kept[-1] == len(points) - 1 else [*kept, len(points) - 1]


def roc(lines: Sequence[Roc]) -> go.Figure:
    """Draw the curves; up and to the left is better, the diagonal is chance."""
    figure = base_figure(
        x_title="False alarms (1 − specificity)",
        y_title="Sensitivity",
        height=HEIGHT + 22 * max(0, len(lines) - 2),  # each name is a line of the legend
    )
    figure.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line={"color": MUTED, "width": 1, "dash": "dot"},
        showlegend=False,
        hoverinfo="skip",
    )
    for index, line in enumerate(lines):
        look = style(index)
        figure.add_scatter(
            x=line.false_alarms,
            y=line.sensitivity,
            name=plain(line.name),
            mode="lines",
            legendgroup=str(index),
            line={"color": look["color"], "dash": look["dash"], "width": 2.5},
            hovertemplate=f"{plain(line.name)}<br>sensitivity %{{y:.2%}}<br>"
            "false alarms %{x:.2%}<extra></extra>",
        )
        if line.point is not None:
            figure.add_scatter(
                x=[line.point[0]],
                y=[line.point[1]],
                mode="markers",
                legendgroup=str(index),
                showlegend=False,
                marker={"symbol": look["symbol"], "size": 12, "color": look["color"]},
                hovertemplate=f"{plain(line.name)}<br>{line.hover}<extra></extra>",
            )
    figure.update_xaxes(range=[-0.01, 1.01], tickformat=".0%")
    figure.update_yaxes(range=[-0.01, 1.03], tickformat=".0%")
    return figure


# --- differences of two models on the same data -------------------------------------------------------------


def differences(
    judged: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    reference: str,
    delta: float,
    metric: str = "accuracy",
) -> go.Figure:
    """Draw each difference with its interval; left of the line at −delta a loss is not accepted.

    Args:
        judged: name of each model, and its difference from the reference on the same samples with `low`,
            `high` and `verdict`; shares, negative where it is worse. Top row first.
        reference: name of the model that the others are compared with.
        delta: accepted loss, a share.
        metric: "accuracy", "sensitivity" or "specificity".
    """
    rows = [_difference(name, one) for name, one in judged]
    accepted = -100 * delta
    drawn = [end for row in rows for end in (row.low, row.high) if end is not None]
    low, high = min([*drawn, 1.6 * accepted, 0.0]), max([*drawn, -0.6 * accepted, 0.0])
    room = 0.06 * (high - low or 1.0)
    low, high = low - room, high + room
    figure = base_figure(
        x_title=f"{metric.capitalize()} versus {plain(clipped(reference, NAME_LIMIT))} (percentage points)",
        y_title="",
        height=120 + ROW_HEIGHT * len(rows),
    )
    figure.add_vrect(x0=low, x1=accepted, fillcolor=transparent(MUTED, 0.2), line_width=0, layer="below")
    figure.add_vline(x=0, line={"color": MUTED, "width": 1.5, "dash": "dot"})
    figure.add_vline(
        x=accepted,
        line={"color": PALETTE[1], "width": 1.5},
        annotation_text=f"−{100 * delta:g} accepted",
        annotation_position="bottom left",
    )
    add_rows(figure, rows, VERDICTS)
    figure.update_xaxes(range=[low, high])
    return figure


def _difference(name: str, judged: Mapping[str, Any]) -> ForestRow:
    value, low, high = (100 * judged[key] for key in ("difference", "low", "high"))
    verdict = judged["verdict"]
    points, *ends = (minus(f"{one:+.2f}") for one in (value, low, high))
    told = (name, f"{points} points", ci(*ends), VERDICTS[verdict][2])
    return ForestRow(label=name, value=value, low=low, high=high, verdict=verdict, hover=text_lines(told))
