"""The data that the Sweep page shows, and session keys that several of its modules read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.api.sweeping import Measured, Point
from core.evidence.comparison import Comparison
from core.spec.space import Axis
from dashboard.charts.sweep_charts import EarlierSweep

LIMIT_MS = "sweep.line_ms"  # latency limit in ms; the number field and the slider both set it
POINT = "sweep.point"  # name of the clicked point; not kept over a reload


@dataclass(frozen=True, kw_only=True)
class ShownSweep:
    """A sweep and its results."""

    axes: Sequence[Axis]
    points: Sequence[Point]
    rows: Sequence[Measured]  # each point with its measurements
    comparison: Comparison | None  # of this sweep; None: never measured
    busy: Mapping[str, str]  # id of a comparison -> its background load; empty: none
    margin: float  # equivalence margin, relative
    ghosts: Callable[[], Sequence[EarlierSweep]]  # earlier sweeps over the same settings
