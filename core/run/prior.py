"""The prior for between-launch variance, from earlier comparisons on this machine.

Partial pooling: a race of many generations believes what it sees, one of few leans on what its forerunners
saw at such latencies. Reads the store; `spread` is pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core import wire
from core.evidence.contrast import ASSUMED, Prior
from core.store import Store

SELF_TESTS = 100  # the newest: libraries and neighbours change
LEAST_TESTS = 5  # below, what is assumed is no worse
LEAST_GENERATIONS = 4  # of a test that is believed
NEAR = 8.0  # times as long or as short a run: a process of 40 µs differs by more than one of 10 ms
LEAST_SIGMA = 0.001  # no machine is so even that two processes agree to a thousandth by more than luck
EARLIER = 40  # references that are looked through
MOST_DF = 4.0  # earlier races were of other models: they count as much as five generations, never more


def prior_of(store: Store, machine: wire.Environment | None) -> Callable[[float], Prior]:
    """Return what tells the spread between processes on a machine, given the seconds of a run.

    Raises:
        StoreError: the store cannot be read.
    """
    self_tests = [] if machine is None else store.self_tests(machine["fingerprint"], limit=SELF_TESTS)
    return lambda run_s: spread(self_tests, run_s)


def spread(self_tests: Sequence[Mapping[str, Any]], run_s: float) -> Prior:
    """Return the spread that A/A tests typically showed: the root of the median of their variances.

    Left out are tests beside a neighbour, which show what it did rather than what processes differ by; tests
    of runs more than eight times as long or as short; and those of versions that knew one pair of processes
    only, or kept the spread that they had assumed. `ASSUMED` where fewer than five are left.

    Args:
        self_tests: as the store returns them.
        run_s: seconds of a run.
    """
    seen = [
        float(one["excess_between"])
        for one in self_tests
        if one.get("excess_between") is not None
        and not one.get("busy")
        and (one.get("generations") or 0) >= LEAST_GENERATIONS
        and one.get("run_s")
        and 1 / NEAR <= one["run_s"] / run_s <= NEAR
    ]
    if len(seen) < LEAST_TESTS:
        return ASSUMED
    variance = max(statistics.median(seen), LEAST_SIGMA**2)
    return Prior(sigma_between=math.sqrt(variance), df=MOST_DF, source="history")


def at_least(prior: Callable[[float], Prior], seen: Mapping[str, float] | None) -> Callable[[float], Prior]:
    """Return what tells the spread between processes, never less than the controls of a search showed.

    Args:
        prior: as of `prior_of`.
        seen: {"sigma_between", "df"} of those controls, as the protocol keeps it; None: there were none.
    """
    if seen is None:
        return prior
    own = Prior(sigma_between=seen["sigma_between"], df=seen["df"], source="search")

    def larger(run_s: float) -> Prior:
        usual = prior(run_s)
        return own if own.sigma_between > usual.sigma_between else usual

    return larger


def usual_s(
    store: Store, machine: wire.Environment | None, *, model_sha256: str, key: str, study: str = ""
) -> Sequence[float]:
    """Return the p50, seconds, of a configuration in earlier races beside which it was the reference.

    The races of one search lie seconds apart, in one state of the machine: they count as one.

    Args:
        store: holds them.
        machine: only what was measured on it counts; None: nothing does.
        model_sha256: of its model.
        key: of its spec.
        study: whose race asks; none of its own races is an earlier one. Empty: it belongs to none.

    Raises:
        StoreError: the store cannot be read.
    """
    if machine is None:
        return []
    found: dict[str, float] = {}
    for one in store.trials(model_sha256=model_sha256, kind="reference", state="COMPLETE", limit=EARLIER):
        is_same = one.key == key and one.fingerprint == machine["fingerprint"]
        if is_same and one.p50_s is not None and (not study or one.study != study):
            found.setdefault(one.study or one.id, one.p50_s)  # of a search the newest, its confirmation
    return list(found.values())
