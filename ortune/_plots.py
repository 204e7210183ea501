"""Plots of results: the first plot of the report. Plotly is imported by the first plot."""

from __future__ import annotations

from typing import Any

from core.api.results import Result, set_plotter
from core.show.report.subjects import find
from core.wire.errors import SpecError

_INSTEAD = "Use `sheet()` or `to_dict()`."


def plot(result: Result[Any]) -> Any:
    """Return the first plot of the result's report, a Plotly figure.

    Raises:
        SpecError: this result has no plot, or Plotly is not installed.
    """
    if result.store is None or not result.refs:
        raise SpecError(f"A result of kind `{result.kind}` has no plot.", hint=_INSTEAD)
    try:
        from dashboard.report.figures import plots_of
    except ModuleNotFoundError as error:
        raise SpecError(f"Plots need the package `{error.name}`.", hint="Install it.") from None
    found = plots_of(find(result.store, result.refs))
    if not found:
        raise SpecError(f"This {result.kind} has no plot.", hint=_INSTEAD)
    return found[0].figure


set_plotter(plot)
