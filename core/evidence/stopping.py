"""Interim analyses: ratios during a comparison, and the rule that stops it.

Interim analyses take place at the end of launches, at a divided error rate, so early stopping does not
inflate the false-alarm rate. A comparison that is decided early continues for a few seconds or 40 rounds, so
that it also has a p99; the interval at its end is the one reported.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from core.evidence.ranking import paired_log_ratios, significantly_faster
from core.evidence.record import Key, Settings
from core.evidence.result_types import Outcome
from core.evidence.speedup_interval import (
    ASSUMED_PRIOR,
    Contrast,
    contrast,
    is_futile,
    may_stop,
    predicted_launches,
    sufficient_analysis,
)
from core.evidence.verdict import Verdict

P99_ROUNDS = 40  # enough for a p99
MIN_RIVAL_LAUNCHES = 3  # launches; two may agree by chance
MIN_SHOWN_LAUNCHES = 3  # launches; all processes of fewer launches may be slow for their whole life
P99_MAX_S = 5.0  # maximum additional time for a p99


def contrast_values(found: Contrast | None) -> dict[str, Any]:
    """Return a contrast for display during a comparison; without numbers where there is none yet."""
    if found is None:
        return {"ratio": None, "ratio_low": None, "ratio_high": None, "verdict": Verdict.UNDECIDED.value}
    return dict(found.to_dict())


def _separable(found: Mapping[int, Contrast], settled_ones: set[int]) -> set[int]:
    """Return the settled configurations whose intervals overlap no interval of a remaining one."""
    leaving = set(settled_ones)
    while True:
        staying = [one for index, one in found.items() if index not in leaving]
        held = {index for index in leaving if any(_overlap(found[index], one) for one in staying)}
        if not held:
            return leaving
        leaving -= held


def _overlap(one: Contrast, other: Contrast) -> bool:
    ahead = significantly_faster(one.interval, other.interval) or significantly_faster(
        other.interval, one.interval
    )
    return not ahead


class InterimResult:
    """The medians of all rounds so far, and the contrasts and stopping decisions from them."""

    def __init__(self, settings: Settings) -> None:
        """Start without rounds."""
        self.settings = settings
        self.looks = settings.effort.looks
        self.splits = settings.splits or len(self.looks)
        self.prior = ASSUMED_PRIOR  # until the duration of a run is known
        self.medians: dict[Key, dict[tuple[int, int], float]] = {}  # process -> round -> ln(s per sample)
        self._means: dict[int, dict[tuple[int, int], float]] = {}  # index -> round -> mean over copies

    def add(self, key: Key, launch: int, number: int, seconds_per_row: float) -> None:
        """Add the median of one block."""
        at, index = (launch, number), key[0]
        self.medians.setdefault(key, {})[at] = math.log(seconds_per_row)
        copies = [one[at] for own, one in self.medians.items() if own[0] == index and at in one]
        self._means.setdefault(index, {})[at] = math.fsum(copies) / len(copies)

    def reference(self, live: Collection[int]) -> int | None:
        """Return the reference: the baseline, or the ORT default if the baseline has failed."""
        return next((one for one in (self.settings.baseline, self.settings.anchor) if one in live), None)

    def contrasts(self, active: Sequence[int], live: Collection[int]) -> dict[int, Contrast]:
        """Return the contrasts of the configurations in `active` with the reference.

        If only the ORT default runs, it is compared with its A/A control.
        """
        return {index: self._contrast(one) for index, one in self._log_ratios(active, live).items() if one}

    def interim(
        self, active: Sequence[int], live: Collection[int], *, before: int
    ) -> dict[int, Contrast | None]:
        """Return the contrasts at the last interim analysis, for display during the comparison.

        Only complete launches count. The intervals hold together with 95 % at all interim analyses, so any
        number of displays is valid. None before the first interim analysis, or before the third launch.

        Args:
            active: as for `contrasts`.
            live: as for `contrasts`.
            before: number of the first incomplete launch.
        """
        whole = self._log_ratios(active, live, before=before)
        found: dict[int, Contrast | None] = {}
        for index in self._log_ratios(active, live):
            units = whole.get(index, [])
            last = max((look for look in self.looks if MIN_SHOWN_LAUNCHES <= look <= len(units)), default=0)
            found[index] = self._contrast(units[:last]) if last else None
        return found

    def p50_s(self, index: int) -> float | None:
        """Return the median over the block medians of a configuration so far, in seconds per sample."""
        values = [one for key, rounds in self.medians.items() if key[0] == index for one in rounds.values()]
        return math.exp(statistics.median(values)) if values else None

    def stop(
        self,
        active: Sequence[int],
        live: Collection[int],
        launches: int,
        *,
        rounds: int,
        elapsed_s: float,
        left: int,
    ) -> Outcome | None:
        """Return the reason to stop after `launches` launches; None: continue.

        Args:
            active: configurations that are still measured.
            live: configurations that have not failed.
            launches: completed launches.
            rounds: completed rounds in total.
            elapsed_s: their duration.
            left: launches that the budget still allows.
        """
        if self.settings.effort.rivals:
            return self._stop_among_rivals(active, live, launches, left=left)
        found = list(self.contrasts(active, live).values())
        answered = bool(found) and all(map(self._is_settled, found))
        rich = rounds >= P99_ROUNDS or elapsed_s >= P99_MAX_S
        if launches >= self.looks[-1]:
            return "decided" if answered else "rounds"
        if left <= 0:
            return "decided" if answered else "budget"
        if launches < self.settings.least:
            return None
        if not found:
            return "rounds" if rich and launches >= self.looks[0] else None
        if launches not in self.looks:
            return "decided" if rich and answered and self._was_settled(active, live, launches) else None
        if answered:
            return "decided" if rich else None
        open_ones = [one for one in found if not self._is_settled(one)]
        most = min(left, self.looks[-1] - launches)
        if all(is_futile(one, looks=self.splits, left=most) for one in open_ones):
            return "hopeless"
        return None

    def still_open(
        self, active: Sequence[int], launches: int, rounds: int, live: Collection[int]
    ) -> list[int]:
        """Return which of `active` to keep measuring.

        Decided configurations leave at an interim analysis; references stay.

        If several are ranked, a configuration whose interval overlaps that of a remaining one stays, so both
        are measured equally long while their order is open. Among rivals, those significantly slower than the
        leader are dropped.
        """
        if self.settings.effort.rivals:
            if launches not in self.looks:
                return list(active)
            _, against = self.rivals(active, live)
            return [i for i in active if i not in against or against[i].verdict != Verdict.SLOWER]
        if launches not in self.looks or rounds < P99_ROUNDS:
            return list(active)
        found = self.contrasts(active, live)
        settled_ones = {index for index, one in found.items() if self._is_settled(one)}
        if self.settings.family > 1:
            settled_ones = _separable(found, settled_ones)
        return [i for i in active if i not in settled_ones]

    def rivals(self, active: Sequence[int], live: Collection[int]) -> tuple[int | None, dict[int, Contrast]]:
        """Return the leader and the contrasts of the other rivals with it; they share the error rate.

        The references are not rivals. The leader is None if only references run.
        """
        against = self._log_ratios(active, live)
        references = {self.settings.baseline, self.settings.anchor}
        found = {i: self._contrast(one) for i, one in against.items() if i not in references and any(one)}
        if not found:
            return None, {}
        leader = max(found, key=lambda index: found[index].ratio)
        others = [index for index in found if index != leader]
        looks = self.splits * max(1, len(others))
        pairs = {i: paired_log_ratios(self._mean(i), self._mean(leader)) for i in others}
        return leader, {
            i: contrast(one, looks=looks, margin=self.settings.margin, prior=self.prior)
            for i, one in pairs.items()
            if any(one)
        }

    def _stop_among_rivals(
        self, active: Sequence[int], live: Collection[int], launches: int, *, left: int
    ) -> Outcome | None:
        leader, against = self.rivals(active, live)
        still = [one for one in against.values() if one.verdict != Verdict.SLOWER]
        alike = all(one.verdict == Verdict.EQUIVALENT for one in still)
        if launches in self.looks and launches >= MIN_RIVAL_LAUNCHES and leader is not None and alike:
            return "decided"
        if launches >= self.looks[-1]:
            return "rounds"
        return "budget" if left <= 0 else None

    def predicted(self, active: Sequence[int], live: Collection[int]) -> int:
        """Return the number of launches that the widest contrast is predicted to need."""
        needed = [self.looks[0]]
        for one in self.contrasts(active, live).values():
            if one.standard_error:
                deviation = one.standard_error * math.sqrt(one.generations)
                prior_df = self.prior.df
                precision = self.settings.effort
                target = max(precision.target, precision.of_effect * abs(math.log(one.ratio)))
                needed.append(predicted_launches(deviation, target, looks=self.splits, prior_df=prior_df))
        return sufficient_analysis(max(needed), self.looks) or self.looks[-1]

    def variance_ratio(self, active: Sequence[int], live: Collection[int]) -> float | None:
        """Return the variance of rounds within a launch over that between processes; None: not known yet."""
        ratios = [
            one.sigma**2 / one.sigma_between**2
            for one in self.contrasts(active, live).values()
            if one.sigma and one.sigma_between
        ]
        return statistics.median(ratios) if ratios else None

    def _was_settled(self, active: Sequence[int], live: Collection[int], launches: int) -> bool:
        """Whether all were settled at the last interim analysis, so that it may end before the next."""
        last = max((look for look in self.looks if look <= launches), default=0)
        found = [one[:last] for one in self._log_ratios(active, live).values()]
        return bool(last and found) and all(
            any(one) and self._is_settled(self._contrast(one)) for one in found
        )

    def _log_ratios(
        self, active: Sequence[int], live: Collection[int], *, before: float = math.inf
    ) -> dict[int, list[list[float]]]:
        """Return ln(reference / configuration) of common rounds for each configuration in `active`.

        Only launches with a number below `before` count.
        """
        reference = self.reference(live)
        if reference is None:
            return {}
        references = {self.settings.baseline, self.settings.anchor}
        others = [index for index in active if index not in references]
        if not others:  # the ORT default compared with the baseline
            others = [index for index in active if index != reference]
        if not others:  # the ORT default compared with its A/A control
            return {
                reference: paired_log_ratios(
                    self._of((reference, 1)), self._of((reference, 0)), before=before
                )
            }
        found = {
            index: paired_log_ratios(self._mean(index), self._mean(reference), before=before)
            for index in others
        }
        return {index: one for index, one in found.items() if one}

    def _of(self, key: Key) -> Mapping[tuple[int, int], float]:
        return self.medians.get(key, {})

    def _mean(self, index: int) -> Mapping[tuple[int, int], float]:
        """Return round -> mean over the copies of a configuration."""
        return self._means.get(index, {})

    def _contrast(self, log_ratios: Sequence[Sequence[float]]) -> Contrast:
        return contrast(log_ratios, looks=self.splits, margin=self.settings.margin, prior=self.prior)

    def _is_settled(self, one: Contrast) -> bool:
        precision = self.settings.effort
        return may_stop(one, precision.target, precision.of_effect)
