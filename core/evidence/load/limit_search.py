"""The search for the highest rate within the limits: which rate is tried next, and what the answer is.

Short probes bracket the rate; they only choose. A confirmation in fresh processes, long enough for its
bounds, decides. If it does not pass, the next one is lower. Pure; `run.load.questions` runs the traffic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.evidence.load.load_result import rate_words
from core.evidence.load.load_types import Highest, LoadVerdict, RunOutcome
from core.spec.load import MOST_RATE, LoadLimit

FIRST_SHARE = 0.6  # of the capacity; where most limits lie
LOWEST_SHARE, HIGHEST_SHARE = 0.2, 0.98
LEAST_SHARE = 0.005  # of the capacity; below, a limit counts as out of reach
MOST_PROBES = 6
CLOSE = 1.06  # ratio of the lowest failing and the highest passing probe from which probing ends
PROBE_REQUESTS = 1500
CONFIRM_REQUESTS = 10_000
MOST_CONFIRMATIONS = 4
STEP_DOWN = 0.82  # next rate after a confirmation that did not pass
# Below the limit a run of so many requests passes in most cases only from so far on: simulated M/G/1 queues.
DISTANCES = ((8000, 0.9), (4000, 0.84), (2000, 0.78), (0, 0.7))
PROBE_PART = 0.5  # of the budget, for all probes
FIRST_PART = 0.6  # of the time for confirmations, which is the budget again, for the first of them
LEAST_S = 4.0  # counted seconds of a run: 20 batches of 0.2 s
DEFAULT_BUDGET_S = 120.0
REJECTED = "The runs are no measurement: the harness added too much to the latency. Use an idle machine."


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next run: its rate, its counted seconds, and whether it may confirm."""

    rate: float
    seconds: float
    confirms: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A step with its result."""

    step: Step
    verdict: LoadVerdict
    outcome: RunOutcome
    over: float  # the largest share of bad requests, relative to the share that its limit allows
    rejected: bool = False  # no measurement: the harness added too much

    @property
    def seems_within(self) -> bool:
        """Whether the measured share itself keeps the limit, without an interval."""
        return self.outcome == "complete" and self.over <= 1


@dataclass(slots=True)
class LimitSearch:
    """One search; call `next_step`, run it, and `add` its result, until there is none."""

    capacity: float  # requests/s of a closed loop
    warmup_s: float
    budget_s: float = DEFAULT_BUDGET_S
    tried: list[Tried] = field(default_factory=list)
    spent_s: float = 0.0

    def add(self, tried: Tried) -> None:
        """Record the result of a step."""
        self.tried.append(tried)
        self.spent_s += tried.step.seconds + self.warmup_s

    @property
    def _probes(self) -> list[Tried]:
        return [one for one in self.tried if not one.step.confirms]

    @property
    def _confirmations(self) -> list[Tried]:
        return [one for one in self.tried if one.step.confirms]

    def next_step(self) -> Step | None:
        """Return the next run; None: the answer is known, or the budget is spent."""
        rate = self._next_probe()
        if rate is not None:
            return Step(rate=rate, seconds=self._probe_s(rate), confirms=False)
        rate = self._next_confirmation()
        return None if rate is None else Step(rate=rate, seconds=self._confirm_s(rate), confirms=True)

    # --- probes ---------------------------------------------------------------------------------------------

    def _bracket(self) -> tuple[float | None, float | None]:
        """The highest rate that seems within the limits, below the lowest that does not."""
        over = min((one.step.rate for one in self.tried if not one.seems_within), default=None)
        within = [
            one.step.rate for one in self.tried if one.seems_within and (over is None or one.step.rate < over)
        ]
        return max(within, default=None), over

    def _next_probe(self) -> float | None:
        if self._confirmations:
            return None
        low, high = self._bracket()
        if self._out_of_measure():
            return None
        if not self.tried:
            return self._bounded(FIRST_SHARE * self.capacity)
        if low is None:
            assert high is not None
            lower = math.sqrt(high * LOWEST_SHARE * self.capacity)
            rate = lower if lower < high / CLOSE and len(self._probes) < 3 else high / 3
            far = rate < LEAST_SHARE * self.capacity or len(self._probes) >= 2 * MOST_PROBES
            return None if far else self._bounded(rate)
        top = min(HIGHEST_SHARE * self.capacity, MOST_RATE)
        too_many = len(self._probes) >= MOST_PROBES or self.spent_s > PROBE_PART * self.budget_s
        if too_many or (high or top) / low < CLOSE:
            return None
        return self._bounded(math.sqrt(low * (high or top)))

    def _out_of_measure(self) -> bool:
        """Whether the last two probes show nothing: the harness alone may have broken the limit."""
        return len(self.tried) > 1 and all(one.rejected and not one.seems_within for one in self.tried[-2:])

    def _bounded(self, rate: float) -> float:
        return rounded_rate(min(rate, MOST_RATE))

    def _probe_s(self, rate: float) -> float:
        most = PROBE_PART * self.budget_s / MOST_PROBES - self.warmup_s
        return max(LEAST_S, min(PROBE_REQUESTS / rate, most))

    # --- confirmations --------------------------------------------------------------------------------------

    def _next_confirmation(self) -> float | None:
        done = self._confirmations
        if any(one.verdict == "PASS" for one in done) or len(done) >= MOST_CONFIRMATIONS:
            return None
        if done and self._confirming_s + self.warmup_s + LEAST_S > self.budget_s:
            return None
        if done:
            return rounded_rate(STEP_DOWN * done[-1].step.rate)
        rate = self._bracket()[0]
        if rate is None:
            return None
        requests = rate * self._confirm_s(rate)
        return rounded_rate(rate * next(share for least, share in DISTANCES if requests >= least))

    @property
    def _confirming_s(self) -> float:
        return math.fsum(one.step.seconds + self.warmup_s for one in self._confirmations)

    def _confirm_s(self, rate: float) -> float:
        left = self.budget_s - self._confirming_s
        share = left if self._confirmations else FIRST_PART * left  # the first one may not pass
        return max(LEAST_S, min(CONFIRM_REQUESTS / rate, share - self.warmup_s))

    # --- the answer -----------------------------------------------------------------------------------------

    def answer(self, configuration: int, limits: Sequence[LoadLimit]) -> Highest:
        """Return the highest confirmed and the lowest failed rate, with the answer in a sentence."""
        confirmed = max((one.step.rate for one in self._confirmations if one.verdict == "PASS"), default=None)
        failed = min(
            (one.step.rate for one in self.tried if one.verdict == "FAIL" or one.outcome == "saturated"),
            default=None,
        )
        undecided = [
            one.step.rate
            for one in self._confirmations
            if one.verdict == "UNDECIDED" and (failed is None or one.step.rate < failed)
        ]
        found: Highest = {
            "configuration": configuration,
            "capacity_per_s": self.capacity,
            "confirmed_per_s": confirmed,
            "failed_per_s": failed,
            "undecided_per_s": max(undecided, default=None),
            "words": "",
        }
        last = self._confirmations or self.tried
        if confirmed is None and last and all(one.rejected for one in last):
            within = " and ".join(one.words for one in limits)
            return {**found, "words": f"No rate could be measured within {within}. {REJECTED}"}
        return {**found, "words": _words(found, limits)}


def rounded_rate(rate: float) -> float:
    """Return a rate with three significant digits, as people write it."""
    if rate <= 0:
        return rate
    digits = 2 - math.floor(math.log10(rate))
    return round(rate, digits)


def _words(found: Highest, limits: Sequence[LoadLimit]) -> str:
    within = " and ".join(one.words for one in limits)
    failed, undecided = found["failed_per_s"], found["undecided_per_s"]
    above = "" if failed is None else f", {rate_words(failed)} failed"
    between = "" if undecided is None else f", {rate_words(undecided)} undecided"
    if (rate := found["confirmed_per_s"]) is not None:
        top = "" if above else f", near the capacity of {rate_words(rounded_rate(found['capacity_per_s']))}"
        return f"The highest rate within {within}: {rate_words(rate)} confirmed{between}{above}{top}."
    if undecided is not None:
        return f"No rate was confirmed within {within}{between}{above}."
    return f"No rate is within {within}{above}."


def out_of_reach(
    configuration: int, capacity: float, service_p50_s: float, limits: Sequence[LoadLimit]
) -> Highest | None:
    """Return the answer where a typical call alone takes longer than a limit; None: it does not."""
    broken = [one for one in limits if one.at_most_s is not None and service_p50_s > one.at_most_s]
    if not broken:
        return None
    return {
        "configuration": configuration,
        "capacity_per_s": capacity,
        "confirmed_per_s": None,
        "failed_per_s": None,
        "undecided_per_s": None,
        "words": (
            f"No rate is within {broken[0].words}: half of the calls alone take longer than "
            f"{1e3 * service_p50_s:.4g} ms."
        ),
    }
