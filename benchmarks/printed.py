"""Printed intervals: their kinds, single ones with their true value, and how many contain it.

Pure. An interval is compared with the true value as printed. Several intervals of one measurement that were
shown one after the other count as one, which contains the value only if all of them do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.intervals import share_interval

GOAL = 0.93

KINDS: Mapping[str, str] = {
    "final": "ratio of a finished comparison",
    "interim": "ratio while a comparison runs: all intervals shown",
    "longer": "ratio after *Measure longer*, twice: both intervals",
    "live": "live estimate of a setting: all intervals shown",
    "screen": "speed-up of a configuration after screening",
    "heat": "speed-up of a configuration after the elimination round",
    "best": "best so far of a running search",
    "answer": "speed-up that a search confirmed",
    "effect": "effect of a setting",
    "front": "speed-up of a point of the Pareto front",
    "gain mean": "speed-up in mean latency and in throughput",
    "gain p95": "speed-up in p95",
    "rows": "samples/s of a point of a sweep",
    "mean": "mean latency",
    "p50": "p50 of a result and of a point of a sweep",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "cpu": "CPU time of an inference",
    "memory": "peak memory, with the spread of equal processes",
    "operator": "difference of an operator's time between two results",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The intervals printed of one number, one after the other; none: it was printed without one."""

    kind: str
    truth: float  # above 0, or of a difference
    intervals: tuple[tuple[float, float], ...]

    def holds(self, *, shrink: float = 1.0) -> bool | None:
        """Whether every interval, divided by `shrink`, contains the true value; None: there is none."""
        if not self.intervals:
            return None
        return all(
            low <= self.truth <= high for low, high in (_shrunk(*one, shrink) for one in self.intervals)
        )


def shown(kind: str, truth: float, *bounds: tuple[float | None, float | None]) -> Shown:
    """Return what was printed; an unknown end is unbounded."""
    known = tuple(
        (-math.inf if low is None else low, math.inf if high is None else high)
        for low, high in bounds
        if low is not None or high is not None
    )
    return Shown(kind=kind, truth=truth, intervals=known)


def _shrunk(low: float, high: float, by: float) -> tuple[float, float]:
    if by == 1 or math.isinf(low) or math.isinf(high):
        return low, high
    middle, half = (low + high) / 2, (high - low) / 2 / by
    return middle - half, middle + half


def tally(
    scene: str, found: Iterable[Shown], *, shrink: float = 1.0, used: float = 1.0
) -> list[dict[str, Any]]:
    """Return a row for each kind: how many intervals a scene printed, and how many contain the true value.

    Args:
        scene: its name.
        found: what was printed.
        shrink: divides every interval.
        used: mean uses of every recorded process; "apart" is the number of intervals that share none.
    """
    counts: Counter[tuple[str, bool | None]] = Counter((one.kind, one.holds(shrink=shrink)) for one in found)
    return [
        {
            "kind": kind,
            "scene": scene,
            "n": counts[kind, True] + counts[kind, False],
            "held": counts[kind, True],
            "apart": (counts[kind, True] + counts[kind, False]) / max(1.0, used),
            "without": counts[kind, None],
        }
        for kind in KINDS
        if any(counts[kind, held] for held in (True, False, None))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many intervals of a kind contain the true value."""

    held: int
    n: int
    without: int  # printed without an interval
    apart: float  # intervals that share no recorded process with another

    @property
    def misses(self) -> bool:
        """Whether it misses the goal."""
        return self.n > 0 and self.held < GOAL * self.n

    @property
    def text(self) -> str:
        """The share with its 95 % interval (Clopper and Pearson 1934) and number."""
        if not self.n:
            return "no interval" if self.without else "–"
        apart = max(1, round(self.apart))
        low, high = share_interval(round(self.held / self.n * apart), apart)
        mark = "**" if self.misses else ""
        told = f"{self.n:,}" if apart == self.n else f"{self.n:,} ({apart:,} apart)"
        return f"{mark}{self.held / self.n:.1%}{mark} [{low:.1%}, {high:.1%}], {told}"


def share_of(rows: Sequence[Mapping[str, Any]], kind: str) -> Share:
    """Add up the rows of a kind."""
    own = [row for row in rows if row["kind"] == kind]
    held, n, without = (sum(row[name] for row in own) for name in ("held", "n", "without"))
    apart = math.fsum(row.get("apart", row["n"]) for row in own)
    return Share(held=held, n=n, without=without, apart=apart)
