"""What earlier races of a machine showed of the spread between processes, for a race that sees few of them.

Partial pooling: a race of many generations believes what it sees, one of few leans on what its forerunners
saw at such latencies. Reads the store; `spread` is pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core import wire
from core.contrast import ASSUMED, Prior
from core.store import Store

SELF_TESTS = 100  # the newest: libraries and neighbours change
LEAST_TESTS = 5  # below, what is assumed is no worse
LEAST_GENERATIONS = 4  # of a test that is believed
NEAR = 8.0  # times as long or as short a run: a process of 40 µs differs by more than one of 10 ms
LEAST_SIGMA = 0.001  # no machine is so even that two processes agree to a thousandth by more than luck
MOST_DF = 4.0  # earlier races were of other models: they count as much as five generations, never more


def prior_of(store: Store, machine: wire.Environment | None) -> Callable[[float], Prior]:
    """Return what tells the spread between processes on a machine, given the seconds of a run.

    Raises:
        StoreError: the store cannot be read.
    """
    self_tests = [] if machine is None else store.self_tests(machine["fingerprint"], limit=SELF_TESTS)
    return lambda run_s: spread(self_tests, run_s)


def spread(self_tests: Sequence[Mapping[str, Any]], run_s: float) -> Prior:
    """Return the root mean square of the spreads that A/A tests showed, weighted by their generations.

    Tests of runs more than eight times as long or as short are left out, and those of versions that knew one
    pair of processes only. `ASSUMED` where fewer than five are left.

    Args:
        self_tests: as the store returns them.
        run_s: seconds of a run.
    """
    seen = [
        (int(one["generations"]) - 1, float(one["sigma_between"]) ** 2)
        for one in self_tests
        if one.get("sigma_between") is not None
        and (one.get("generations") or 0) >= LEAST_GENERATIONS
        and one.get("run_s")
        and 1 / NEAR <= one["run_s"] / run_s <= NEAR
    ]
    if len(seen) < LEAST_TESTS:
        return ASSUMED
    weight = sum(df for df, _ in seen)
    variance = math.fsum(df * square for df, square in seen) / weight
    return Prior(sigma_between=max(math.sqrt(variance), LEAST_SIGMA), df=MOST_DF, source="history")
