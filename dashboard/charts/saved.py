"""A figure's data as a CSV table: a row for each point, the axis titles as the header. Pure functions."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import plotly.graph_objects as go

from core.show.table import Column, Value, csv_text, tabulate
from dashboard.charts import TRUE_Y

_BREAK, _TAG = re.compile(r"<br\s*/?>"), re.compile(r"<[^>]*>")
_BROKEN = re.compile(r",<br\s*/?>")  # line break of `series_name`
_ROUGH = ("low", "high")
Point = dict[str, Value]


def csv_of(figure: go.Figure) -> str:
    """Return the points of a figure as CSV: series, both coordinates with their bounds, value and text.

    An empty column is left out. A coordinate on an axis of names is the name.
    """
    points = [point for trace in figure.data for point in _points(trace)]
    heads = {"series": "series", "x": _title(figure.layout.xaxis, "x"), "y": _title(figure.layout.yaxis, "y")}
    for axis in ("x", "y"):
        heads |= {f"{axis}_{end}": f"{heads[axis]}, {end}" for end in _ROUGH}
    heads |= {"start": "start", "value": "value", "text": "text"}
    known = [name for name in heads if any(point.get(name) not in (None, "") for point in points)]
    return csv_text(
        tabulate(points, *((Column(heads[name], "number", key=heads[name]), _cell(name)) for name in known))
    )


def _cell(name: str) -> Any:
    return lambda point: point.get(name)


def _points(trace: Any) -> Iterator[Point]:
    """Return the points of one series; a gap in a line is not a point."""
    name = _words(trace.name) if trace.name else ""
    if trace.type == "heatmap":
        yield from _tiles(trace, name)
        return
    if trace.type == "treemap":
        for parent, label, value in zip(trace.parents, trace.labels, trace.values, strict=True):
            yield {"series": _words(parent), "text": _words(label), "value": value}
        return
    told = trace.text if isinstance(trace.text, tuple | list) else ()
    x, y = _listed(trace.x), _listed(trace.customdata if trace.meta == TRUE_Y else trace.y)
    starts = _listed(getattr(trace, "base", None))  # of bars that do not begin at zero
    bounds = {axis: _bounds(getattr(trace, f"error_{axis}", None), axis) for axis in ("x", "y")}
    for number, (left, right, text) in enumerate(zip_longest(x, y, told)):
        if left is None or right is None:
            continue
        point: Point = {"series": name, "x": left, "y": right, "text": _words(text)}
        if number < len(starts):
            point["start"] = starts[number]
        for axis, place in (("x", left), ("y", right)):
            point |= _around(bounds[axis], number, place, axis)
        yield point


def _tiles(trace: Any, name: str) -> Iterator[Point]:
    x, y = _listed(trace.x), _listed(trace.y)
    texts = trace.text if trace.text is not None else []
    for row, (place, values) in enumerate(zip(y, trace.z, strict=False)):
        for column, value in enumerate(values):
            if value is not None:
                text = texts[row][column] if row < len(texts) and column < len(texts[row]) else ""
                yield {"series": name, "x": x[column], "y": place, "value": value, "text": _words(text)}


def _bounds(error: Any, axis: str) -> Mapping[str, list[Any]]:
    """Return the error bars of a series: their extents below and above."""
    if error is None or error.array is None:
        return {}
    up = _listed(error.array)
    return {"high": up, "low": up if error.arrayminus is None else _listed(error.arrayminus)}


def _around(bars: Mapping[str, list[Any]], number: int, place: Any, axis: str) -> Point:
    signs = {"low": -1, "high": 1}
    return {
        f"{axis}_{end}": place + signs[end] * reach[number]
        for end, reach in bars.items()
        if number < len(reach) and reach[number] is not None
    }


def _listed(values: Any) -> list[Any]:
    if values is None or not hasattr(values, "__iter__"):
        return []
    plain = [one.item() if hasattr(one, "item") else one for one in values]
    return [None if isinstance(one, float) and math.isnan(one) else one for one in plain]  # a gap in a line


def _title(axis: Any, name: str) -> str:
    return _words(axis.title.text) or name


def _words(text: Any) -> str:
    """Return a text of a plot as one line without its markup."""
    lines = _BREAK.sub("; ", _BROKEN.sub(", ", str(text or "")))
    return html.unescape(_TAG.sub("", lines)).strip()
