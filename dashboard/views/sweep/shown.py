"""What the Sweep page shows, and the keys of its session that several of its parts read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.evidence.comparison import Comparison
from core.run.axes import Axis
from core.run.sweep import Measured, Point
from dashboard.charts.sweep_charts import Ghost

LINE = "curves.line_ms"  # the one truth behind the number and the slider
POINT = "curves.point"  # name of the point that was clicked; not kept


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A sweep and what is known of it."""

    axes: Sequence[Axis]
    points: Sequence[Point]
    rows: Sequence[Measured]  # each point with its numbers
    race: Comparison | None  # of this sweep; None: there was none
    busy: Mapping[str, str]  # id of a race -> who else used the machine; empty: nobody
    margin: float  # relative difference that counts as none
    ghosts: Callable[[], Sequence[Ghost]]  # earlier sweeps over the same settings
