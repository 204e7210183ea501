"""All evaluations of a search as parallel coordinates: a line per configuration through its settings.

As in `charts`: `parallel_info` is plain data, `parallel` only draws it; no Streamlit, no clock, no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.evidence.evaluations import Evaluation
from core.evidence.result_types import EffectRecord
from core.show.table import Column, Table, tabulate
from core.spec.settings import SETTINGS, value_words
from core.spec.space import changes_words
from dashboard.charts import MUTED, PALETTE, text_lines
from dashboard.charts.parallel_charts import Line, add_lines, along, beside, figure_of
from dashboard.charts.search_charts import LEAST_SHOWN, speedup_ticks, tick, times

MOST_AXES = 7
LINES = 400  # configurations that remain distinct
_DEFAULTS = {one.name: one.default for one in SETTINGS}  # empty for everything else


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One axis of parallel coordinates: a setting with its values, from left to right."""

    name: str
    values: list[str]
    at: list[int]  # index of the value of each configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Configurations as lines through the settings with the largest effects on speed-up, best first."""

    dimensions: list[Dimension]
    gains: list[float]
    labels: list[str]
    axis: tuple[float, float]  # of speed-ups
    hidden: int  # settings that vary, but are not drawn


def parallel_info(
    tried: Sequence[Evaluation],
    ratio_of: Callable[[Evaluation], float | None],
    effects: Sequence[EffectRecord],
    *,
    most: int = MOST_AXES,
) -> Parallel:
    """Return the evaluations with a speed-up, the best `LINES` of them.

    Args:
        tried: evaluations without controls, as differences from the default.
        ratio_of: returns the reported speed-up of a configuration, a ratio.
        effects: of the settings, the strongest first: they select the drawn ones.
        most: maximum number of settings.
    """
    found = [(one, ratio) for one in tried if (ratio := ratio_of(one)) is not None and not one.failed]
    found.sort(key=lambda pair: -pair[1])
    found = found[:LINES]
    matter = dict.fromkeys(one["setting"] for one in effects)
    told = dict.fromkeys(name for one, _ in found for name in one.changes)
    names = [*(name for name in matter if name in told), *(name for name in told if name not in matter)]
    every = [_dimension(name, [one for one, _ in found]) for name in names]
    varied = [one for one in every if len(one.values) > 1]
    gains = [ratio for _, ratio in found]
    low, high = max(LEAST_SHOWN, min(gains, default=1.0)), max(gains, default=1.0)
    return Parallel(
        dimensions=varied[:most],
        gains=gains,
        labels=[changes_words(one.changes) for one, _ in found],
        axis=(min(low, high / 1.05), high * 1.01),
        hidden=max(0, len(varied) - most),
    )


def _dimension(name: str, tried: Sequence[Evaluation]) -> Dimension:
    default = _DEFAULTS.get(name)
    own = [value_words(one.changes.get(name, default)) for one in tried]
    values = sorted(set(own), key=lambda text: (text.isdigit(), int(text) if text.isdigit() else 0, text))
    return Dimension(
        name=name.removeprefix("session."), values=values, at=[values.index(text) for text in own]
    )


def parallel_alt(info: Parallel) -> str:
    """Describe the plot of all configurations by setting."""
    return f"{len(info.gains)} configurations as lines through their settings to their improvement"


def parallel(info: Parallel) -> go.Figure:
    """Draw one line for each configuration down through its settings to its speed-up."""
    count = len(info.gains)
    marks = [(_gain_along(ratio, info.axis), tick(ratio)) for ratio in speedup_ticks(*info.axis)]
    figure = figure_of([(one.name, one.values) for one in info.dimensions], "gain", marks)
    best, upper = max(1, count // 10), max(2, count // 2)
    for name, color, width, chosen in (
        ("lower half", MUTED, 0.7, range(upper, count)),
        ("upper half", PALETTE[0], 1.2, range(best, upper)),
        ("best tenth", PALETTE[1], 2.5, range(min(best, count))),
    ):
        lines = [_line(info, index) for index in chosen]
        add_lines(figure, lines, name=name, mode="lines", line={"color": color, "width": width})
    return figure


def _line(info: Parallel, index: int) -> Line:
    """Return a configuration as a line; of those with one value, better ones lie further right."""
    aside = beside(index, len(info.gains))
    places = [along(one.at[index], len(one.values)) + aside for one in info.dimensions]
    return Line(
        places=[*places, _gain_along(info.gains[index], info.axis)],
        hover=text_lines((times(info.gains[index]), *info.labels[index].split(", "))),
    )


def parallel_table(info: Parallel) -> Table:
    """Return the data of the lines: a row for each configuration, the best first."""

    def value(one: Dimension) -> Callable[[int], str]:
        return lambda index: one.values[one.at[index]]

    return tabulate(
        range(len(info.gains)),
        (Column("configuration", key="configuration"), info.labels.__getitem__),
        *((Column(one.name, key=one.name), value(one)) for one in info.dimensions),
        (Column("improvement", "number", key="gain"), info.gains.__getitem__),
    )


def _gain_along(gain: float, axis: tuple[float, float]) -> float:
    low, high = axis
    return max(0.0, math.log(gain / low) / math.log(high / low))
