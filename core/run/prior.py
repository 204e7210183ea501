"""The prior for between-launch variance, from earlier comparisons on this machine.

Partial pooling: with many launches a comparison's own variance dominates, with few the variance of earlier
comparisons at similar latencies. Reads the store; `spread` is pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core import wire
from core.evidence.speedup_interval import ASSUMED_PRIOR, Prior
from core.store import Store

SELF_TESTS = 100  # the newest: libraries and background load change
MIN_TESTS = 5  # with fewer, the assumed prior is no worse
MIN_TEST_LAUNCHES = 4  # of a usable test
NEAR = 8.0  # largest ratio of run times: processes differ more with runs of 40 µs than of 10 ms
MIN_SIGMA = 0.001  # lower bound: two processes never agree to a thousandth except by chance
EARLIER = 40  # references that are searched
MAX_DF = 4.0  # earlier comparisons are of other models: they weigh at most as much as five launches


def prior_of(store: Store, machine: wire.Environment | None) -> Callable[[float], Prior]:
    """Return a function from the seconds of a run to the prior of the spread between processes.

    Raises:
        StoreError: the store cannot be read.
    """
    self_tests = [] if machine is None else store.self_tests(machine["fingerprint"], limit=SELF_TESTS)
    return lambda run_s: spread(self_tests, run_s)


def spread(self_tests: Sequence[Mapping[str, Any]], run_s: float) -> Prior:
    """Return the typical spread of A/A tests: the root of the median of their variances.

    Left out are tests with background load, which shows its own variance; tests with runs more than eight
    times as long or as short; and tests of old versions with one pair of processes, or with an assumed
    spread. `ASSUMED_PRIOR` where fewer than five are left.

    Args:
        self_tests: as the store returns them.
        run_s: seconds of a run.
    """
    seen = [
        float(one["excess_between"])
        for one in self_tests
        if one.get("excess_between") is not None
        and not one.get("busy")
        and (one.get("generations") or 0) >= MIN_TEST_LAUNCHES
        and one.get("run_s")
        and 1 / NEAR <= one["run_s"] / run_s <= NEAR
    ]
    if len(seen) < MIN_TESTS:
        return ASSUMED_PRIOR
    variance = max(statistics.median(seen), MIN_SIGMA**2)
    return Prior(sigma_between=math.sqrt(variance), df=MAX_DF, source="history")


def with_lower_bound(
    prior: Callable[[float], Prior], seen: Mapping[str, float] | None
) -> Callable[[float], Prior]:
    """Return `prior` with the spread of a search's A/A controls as lower bound.

    Args:
        prior: from `prior_of`.
        seen: {"sigma_between", "df"} of those controls, from the protocol; None: no controls.
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
    """Return the p50, seconds, of a configuration in the earlier comparisons whose reference it was.

    The comparisons of one search are seconds apart, in one state of the machine, so they count as one.

    Args:
        store: holds the comparisons.
        machine: only its measurements count; None: the result is empty.
        model_sha256: of its model.
        key: of its spec.
        study: of the current comparison, whose comparisons do not count as earlier; empty: none.

    Raises:
        StoreError: the store cannot be read.
    """
    if machine is None:
        return []
    found: dict[str, float] = {}
    for one in store.trials(model_sha256=model_sha256, kind="reference", state="COMPLETE", limit=EARLIER):
        is_same = one.key == key and one.fingerprint == machine["fingerprint"]
        if is_same and one.p50_s is not None and (not study or one.study != study):
            found.setdefault(one.study or one.id, one.p50_s)  # the newest of a search is its confirmation run
    return list(found.values())
