"""Interim analyses: ratios during a comparison, and the rule that stops it.

Looks and split alpha make stopping honest; they come at the end of generations. A race that has its answer
early goes on for a few seconds or 40 rounds, because people also want a p99; the interval that counts is the
one at the end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from core.evidence.contrast import (
    ASSUMED,
    Contrast,
    contrast,
    hopeless,
    predicted_units,
    settled,
    sufficient_look,
)
from core.evidence.ranking import paired, surely_faster
from core.evidence.record import Key, Settings
from core.evidence.result_types import Outcome
from core.evidence.verdict import Verdict

RICH_ROUNDS = 40  # carry a p99
LEAST_OF_RIVALS = 3  # generations: two may agree by luck
SHOWN_FROM = 3  # generations: of fewer, all may have drawn a process that is slow for its whole life
RICH_S = 5.0  # nobody waits longer than this for one


def told(found: Contrast | None) -> dict[str, Any]:
    """What is told of a contrast while a race runs; without numbers where there is none yet."""
    if found is None:
        return {"ratio": None, "ratio_low": None, "ratio_high": None, "verdict": Verdict.UNDECIDED.value}
    return dict(found.to_dict())


def _apart_from_the_rest(found: Mapping[int, Contrast], settled_ones: set[int]) -> set[int]:
    """Those of the settled whose intervals overlap none of those that stay."""
    leaving = set(settled_ones)
    while True:
        staying = [one for index, one in found.items() if index not in leaving]
        held = {index for index in leaving if any(_overlap(found[index], one) for one in staying)}
        if not held:
            return leaving
        leaving -= held


def _overlap(one: Contrast, other: Contrast) -> bool:
    ahead = surely_faster(one.interval, other.interval) or surely_faster(other.interval, one.interval)
    return not ahead


class Standing:
    """The medians of every round so far, and what follows from them."""

    def __init__(self, settings: Settings) -> None:
        """Begin without rounds."""
        self.settings = settings
        self.looks = settings.effort.looks
        self.splits = settings.splits or len(self.looks)
        self.prior = ASSUMED  # until the race knows how long a run is
        self.medians: dict[Key, dict[tuple[int, int], float]] = {}  # process -> round -> ln(s per row)
        self._means: dict[int, dict[tuple[int, int], float]] = {}  # contestant -> round -> over its copies

    def add(self, key: Key, generation: int, number: int, seconds_per_row: float) -> None:
        """Take the median of one block."""
        at, index = (generation, number), key[0]
        self.medians.setdefault(key, {})[at] = math.log(seconds_per_row)
        copies = [one[at] for own, one in self.medians.items() if own[0] == index and at in one]
        self._means.setdefault(index, {})[at] = math.fsum(copies) / len(copies)

    def reference(self, live: Collection[int]) -> int | None:
        """Who the others are put against: the baseline, or the anchor when the baseline has failed."""
        return next((one for one in (self.settings.baseline, self.settings.anchor) if one in live), None)

    def contrasts(self, racing: Sequence[int], live: Collection[int]) -> dict[int, Contrast]:
        """How the contestants of `racing` stand to the reference.

        Where the anchor races alone, it stands against its own twin.
        """
        return {index: self._contrast(one) for index, one in self._log_ratios(racing, live).items() if one}

    def interim(
        self, racing: Sequence[int], live: Collection[int], *, before: int
    ) -> dict[int, Contrast | None]:
        """How the contestants of `racing` stand at their last look: what may be shown while a race runs.

        Only whole generations count. The intervals hold with 95 % at all looks together, so that each holds
        however often somebody looks on; None before the first look, or before the third generation.

        Args:
            racing: as for `contrasts`.
            live: as for `contrasts`.
            before: number of the first generation that is not over.
        """
        whole = self._log_ratios(racing, live, before=before)
        found: dict[int, Contrast | None] = {}
        for index in self._log_ratios(racing, live):
            units = whole.get(index, [])
            last = max((look for look in self.looks if SHOWN_FROM <= look <= len(units)), default=0)
            found[index] = self._contrast(units[:last]) if last else None
        return found

    def p50_s(self, index: int) -> float | None:
        """Median over the medians of all blocks of a contestant so far, in seconds a row."""
        values = [one for key, rounds in self.medians.items() if key[0] == index for one in rounds.values()]
        return math.exp(statistics.median(values)) if values else None

    def stop(
        self,
        racing: Sequence[int],
        live: Collection[int],
        generations: int,
        *,
        rounds: int,
        elapsed_s: float,
        left: int,
    ) -> Outcome | None:
        """Say why to stop after `generations`; None: go on.

        Args:
            racing: who still races.
            live: who has not failed.
            generations: that were made.
            rounds: that were made in all.
            elapsed_s: that they took.
            left: generations that the budget still holds.
        """
        if self.settings.effort.rivals:
            return self._stop_among_rivals(racing, live, generations, left=left)
        found = list(self.contrasts(racing, live).values())
        answered = bool(found) and all(map(self._is_settled, found))
        rich = rounds >= RICH_ROUNDS or elapsed_s >= RICH_S
        if generations >= self.looks[-1]:
            return "decided" if answered else "rounds"
        if left <= 0:
            return "decided" if answered else "budget"
        if generations < self.settings.least:
            return None
        if not found:
            return "rounds" if rich and generations >= self.looks[0] else None
        if generations not in self.looks:
            return "decided" if rich and answered and self._was_answered(racing, live, generations) else None
        if answered:
            return "decided" if rich else None
        open_ones = [one for one in found if not self._is_settled(one)]
        most = min(left, self.looks[-1] - generations)
        if all(hopeless(one, looks=self.splits, left=most) for one in open_ones):
            return "hopeless"
        return None

    def still_open(
        self, racing: Sequence[int], generations: int, rounds: int, live: Collection[int]
    ) -> list[int]:
        """Who goes on after `generations`: at a look, whoever is settled leaves; the references stay.

        Where several are ranked, nobody leaves whose interval overlaps that of one who stays: while their
        order is open, both are measured equally long. Among rivals whoever is surely slower than the leader
        leaves.
        """
        if self.settings.effort.rivals:
            if generations not in self.looks:
                return list(racing)
            _, against = self.rivals(racing, live)
            return [i for i in racing if i not in against or against[i].verdict != Verdict.SLOWER]
        if generations not in self.looks or rounds < RICH_ROUNDS:
            return list(racing)
        found = self.contrasts(racing, live)
        settled_ones = {index for index, one in found.items() if self._is_settled(one)}
        if self.settings.family > 1:
            settled_ones = _apart_from_the_rest(found, settled_ones)
        return [i for i in racing if i not in settled_ones]

    def rivals(self, racing: Sequence[int], live: Collection[int]) -> tuple[int | None, dict[int, Contrast]]:
        """The leader, and how the other rivals stand to it, at a confidence that is split over all of them.

        The references are nobody's rivals. No leader: nobody but them races.
        """
        against = self._log_ratios(racing, live)
        references = {self.settings.baseline, self.settings.anchor}
        found = {i: self._contrast(one) for i, one in against.items() if i not in references and any(one)}
        if not found:
            return None, {}
        leader = max(found, key=lambda index: found[index].ratio)
        others = [index for index in found if index != leader]
        looks = self.splits * max(1, len(others))
        pairs = {i: paired(self._mean(i), self._mean(leader)) for i in others}
        return leader, {
            i: contrast(one, looks=looks, margin=self.settings.margin, prior=self.prior)
            for i, one in pairs.items()
            if any(one)
        }

    def _stop_among_rivals(
        self, racing: Sequence[int], live: Collection[int], generations: int, *, left: int
    ) -> Outcome | None:
        leader, against = self.rivals(racing, live)
        still = [one for one in against.values() if one.verdict != Verdict.SLOWER]
        alike = all(one.verdict == Verdict.EQUIVALENT for one in still)
        if generations in self.looks and generations >= LEAST_OF_RIVALS and leader is not None and alike:
            return "decided"
        if generations >= self.looks[-1]:
            return "rounds"
        return "budget" if left <= 0 else None

    def predicted(self, racing: Sequence[int], live: Collection[int]) -> int:
        """Generations that the widest contrast will take, as it stands."""
        needed = [self.looks[0]]
        for one in self.contrasts(racing, live).values():
            if one.standard_error:
                deviation = one.standard_error * math.sqrt(one.generations)
                prior_df = self.prior.df
                precision = self.settings.effort
                target = max(precision.target, precision.of_effect * abs(math.log(one.ratio)))
                needed.append(predicted_units(deviation, target, looks=self.splits, prior_df=prior_df))
        return sufficient_look(max(needed), self.looks) or self.looks[-1]

    def variance_ratio(self, racing: Sequence[int], live: Collection[int]) -> float | None:
        """Variance of a round within a generation over that between processes; None: not known yet."""
        ratios = [
            one.sigma**2 / one.sigma_between**2
            for one in self.contrasts(racing, live).values()
            if one.sigma and one.sigma_between
        ]
        return statistics.median(ratios) if ratios else None

    def _was_answered(self, racing: Sequence[int], live: Collection[int], generations: int) -> bool:
        """Whether all were settled at the last look: then the race may end between two looks."""
        last = max((look for look in self.looks if look <= generations), default=0)
        found = [one[:last] for one in self._log_ratios(racing, live).values()]
        return bool(last and found) and all(
            any(one) and self._is_settled(self._contrast(one)) for one in found
        )

    def _log_ratios(
        self, racing: Sequence[int], live: Collection[int], *, before: float = math.inf
    ) -> dict[int, list[list[float]]]:
        """Of the contestants in `racing`: ln(reference / contestant) of the rounds that both ran in.

        Only of generations with a number below `before`.
        """
        reference = self.reference(live)
        if reference is None:
            return {}
        references = {self.settings.baseline, self.settings.anchor}
        others = [index for index in racing if index not in references]
        if not others:  # the anchor against the baseline
            others = [index for index in racing if index != reference]
        if not others:  # the anchor against itself
            return {reference: paired(self._of((reference, 1)), self._of((reference, 0)), before=before)}
        found = {index: paired(self._mean(index), self._mean(reference), before=before) for index in others}
        return {index: one for index, one in found.items() if one}

    def _of(self, key: Key) -> Mapping[tuple[int, int], float]:
        return self.medians.get(key, {})

    def _mean(self, index: int) -> Mapping[tuple[int, int], float]:
        """Of each round the mean over the copies of a contestant that ran in it."""
        return self._means.get(index, {})

    def _contrast(self, log_ratios: Sequence[Sequence[float]]) -> Contrast:
        return contrast(log_ratios, looks=self.splits, margin=self.settings.margin, prior=self.prior)

    def _is_settled(self, one: Contrast) -> bool:
        precision = self.settings.effort
        return settled(one, precision.target, precision.of_effect)
