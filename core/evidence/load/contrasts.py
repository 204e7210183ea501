"""Compares configurations under the same traffic: one log ratio for each turn, whose processes are fresh.

Runs of one turn have the same arrivals. Latencies of one run are correlated, so a whole run counts once: the
unit is the turn, and the interval holds for new processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from core.evidence.load.load_result import percentile_at
from core.evidence.load.load_types import LoadContrast, RunResult
from core.evidence.speedup_interval import contrast
from core.spec.effort import DEFAULT_MARGIN

MIN_TURNS = 4  # fewer do not show the spread between processes


def load_contrast(
    runs: Sequence[RunResult],
    baseline: Sequence[RunResult],
    p: float,
    *,
    family: int = 1,
    margin: float = DEFAULT_MARGIN,
) -> LoadContrast | None:
    """Compare the percentile `p` of two configurations at one rate; None: too few common turns have it.

    Args:
        runs: of the configuration, one for each turn.
        baseline: of the other.
        p: 0.99 for p99.
        family: contrasts whose intervals hold together.
        margin: relative difference below which two configurations are equivalent.
    """
    own, other = _by_turn(runs, p), _by_turn(baseline, p)
    turns = sorted(own.keys() & other.keys())
    if len(turns) < MIN_TURNS:
        return None
    found = contrast([[math.log(other[turn] / own[turn])] for turn in turns], looks=family, margin=margin)
    return {
        "rate_per_s": runs[0]["rate_per_s"],
        "configuration": runs[0]["configuration"],
        "baseline": baseline[0]["configuration"],
        "p": p,
        "ratio": found.ratio,
        "ratio_low": found.ratio_low,
        "ratio_high": found.ratio_high,
        "verdict": found.verdict.name,
        "turns": len(turns),
    }


def _by_turn(runs: Sequence[RunResult], p: float) -> Mapping[int, float]:
    return {
        run["turn"]: value
        for run in runs
        if (one := percentile_at(run["latency"], p)) is not None and (value := one["value_s"]) > 0
    }
