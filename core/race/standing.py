"""Who stands how to whom while a race runs, and when it may stop: numbers in, answers out.

Looks and split alpha make stopping honest. A race that has its answer early goes on for a few seconds or
40 rounds, because people also want a p99; the interval that counts is the one at the end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from core.contrast import Contrast, contrast, hopeless, predicted_rounds, settled, sufficient_look
from core.race.record import Outcome, SelfTest, Settings

RICH_ROUNDS = 40  # carry a p99
RICH_S = 5.0  # nobody waits longer than this for one


class Standing:
    """The medians of every round so far, and what follows from them."""

    def __init__(self, settings: Settings) -> None:
        """Begin without rounds."""
        self.settings = settings
        self.looks = settings.precision.looks
        self.medians: dict[int, dict[int, float]] = {}  # contestant -> round -> seconds per row

    def add(self, contestant: int, number: int, seconds_per_row: float) -> None:
        """Take the median of one block."""
        self.medians.setdefault(contestant, {})[number] = seconds_per_row

    def reference(self, live: Collection[int]) -> int | None:
        """Who the others are put against: the baseline, or the anchor when the baseline has failed."""
        return next((one for one in (self.settings.baseline, self.settings.anchor) if one in live), None)

    def contrasts(self, racing: Sequence[int], live: Collection[int]) -> dict[int, Contrast]:
        """How the contestants of `racing` stand to the reference."""
        return {index: self._contrast(one) for index, one in self._log_ratios(racing, live).items()}

    def stop(
        self,
        racing: Sequence[int],
        live: Collection[int],
        counted: int,
        *,
        elapsed_s: float,
        budget_s: float,
    ) -> Outcome | None:
        """Say why to stop after `counted` rounds, which took `elapsed_s`; None: go on."""
        log_ratios = self._log_ratios(racing, live)
        per_round_s = elapsed_s / counted if counted else 0.0
        answered = bool(log_ratios) and all(map(self._is_settled, log_ratios.values()))
        if counted >= self.looks[-1]:
            return "decided" if answered else "rounds"
        if counted and elapsed_s + per_round_s > budget_s:
            return "decided" if answered else "budget"
        rich = counted >= RICH_ROUNDS or elapsed_s >= RICH_S
        if rich and not log_ratios:
            return "rounds"
        if counted not in self.looks and not self._was_answered(log_ratios, counted):
            return None
        if answered:
            return "decided" if rich else None
        left = min(int((budget_s - elapsed_s) / per_round_s), self.looks[-1] - counted)
        open_ones = [one for one in log_ratios.values() if not self._is_settled(one)]
        if open_ones and counted in self.looks and all(self._is_hopeless(one, left) for one in open_ones):
            return "hopeless"
        return None

    def still_open(self, racing: Sequence[int], counted: int, live: Collection[int]) -> list[int]:
        """Who goes on after `counted` rounds: at a look, whoever is settled leaves; the references stay."""
        if counted not in self.looks or counted < RICH_ROUNDS:
            return list(racing)
        log_ratios = self._log_ratios(racing, live)
        return [i for i in racing if i not in log_ratios or not self._is_settled(log_ratios[i])]

    def predicted(self, standing: Mapping[int, Contrast], self_tests: Sequence[SelfTest]) -> int:
        """Rounds that the widest contrast will take; from the self-tests where there is none yet."""
        sigmas = [one.sigma for one in standing.values() if one.sigma is not None]
        if not sigmas:
            tests = [contrast(one.log_ratios).sigma for one in self_tests if one.log_ratios]
            sigmas = [sigma for sigma in tests if sigma is not None]
        target = self.settings.precision.target
        needed = max([RICH_ROUNDS, *(predicted_rounds(one, target, looks=len(self.looks)) for one in sigmas)])
        return sufficient_look(needed, self.looks) or self.looks[-1]

    def _was_answered(self, log_ratios: Mapping[int, Sequence[float]], counted: int) -> bool:
        """Whether all were settled at the last look: then the race may end between two looks."""
        last = max((look for look in self.looks if look <= counted), default=0)
        return bool(last and log_ratios) and all(self._is_settled(one[:last]) for one in log_ratios.values())

    def _log_ratios(self, racing: Sequence[int], live: Collection[int]) -> dict[int, list[float]]:
        """Of the contestants in `racing`: ln(reference / contestant) of every round that both ran in."""
        reference = self.reference(live)
        if reference is None:
            return {}
        references = {self.settings.baseline, self.settings.anchor}
        others = [index for index in racing if index not in references]
        if not others:  # the anchor against the baseline
            others = [index for index in racing if index != reference]
        ratios = {index: self._paired(index, reference) for index in others}
        return {index: one for index, one in ratios.items() if one}

    def _paired(self, index: int, reference: int) -> list[float]:
        own, other = self.medians.get(index, {}), self.medians.get(reference, {})
        return [math.log(other[number] / own[number]) for number in own if number in other]

    def _contrast(self, log_ratios: Sequence[float]) -> Contrast:
        return contrast(log_ratios, looks=len(self.looks), margin=self.settings.margin)

    def _is_settled(self, log_ratios: Sequence[float]) -> bool:
        return settled(self._contrast(log_ratios), self.settings.precision.target)

    def _is_hopeless(self, log_ratios: Sequence[float], rounds_left: int) -> bool:
        return hopeless(
            log_ratios, looks=len(self.looks), margin=self.settings.margin, rounds_left=rounds_left
        )
