"""Fill a record with comparisons of several subjects in several states of the machine, evenly over hours.

The targets are approached in steps. After each step every subject has about the same share of its comparisons
in every state, so a record that is stopped early is balanced. Within a step the order is random. A comparison
that was planned as idle but was not is kept and counts for no state. If the machine is never idle, attempts
end at three times the target.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.journal import Clock, Journal, tell
from benchmarks.states import WORDS, States

STEPS = 20
MOST_TRIES = 3  # times the target: most attempts at idle comparisons
KIND = "duel"
NOT_QUIET = "not quiet"

Cell = tuple[str, str]  # subject and state
Measure = Callable[[str, str, int], dict[str, Any]]  # subject, state, number of the comparison -> its result


class Filling:
    """The comparisons of a record that are still missing."""

    def __init__(self, journal: Journal, targets: Mapping[Cell, int], clock: Clock) -> None:
        """Aim at `targets`: how many comparisons each cell should have."""
        self.journal, self.targets, self.clock = journal, targets, clock
        self.began, self.made = time.monotonic(), 0

    def run(self, measure: Measure, states: States) -> None:
        """Measure what is missing, until `clock` is over."""
        order = list(dict.fromkeys(state for _, state in self.targets))
        while any(self._due(state) for state in order) and not self.clock.is_over():
            for state in random.Random(len(self._rows())).sample(order, len(order)):
                due = self._due(state)
                if due and not self.clock.is_over():
                    self._step(state, due, measure, states)

    def missing(self) -> int:
        """How many comparisons the record still lacks."""
        have = self._have()
        return sum(max(0, target - have[cell]) for cell, target in self.targets.items())

    def _rows(self) -> list[dict[str, Any]]:
        return self.journal.of(KIND)

    def _have(self) -> Counter[Cell]:
        return Counter((row["subject"], row["state"]) for row in self._rows())

    def _due(self, state: str) -> list[str]:
        """Subjects of the next comparisons in a state, as often as this step needs; empty: none missing."""
        have = self._have()
        tries = Counter(row["subject"] for row in self._rows() if row["asked"] == state)
        wanted = {
            subject: target
            for (subject, of), target in self.targets.items()
            if of == state and tries[subject] < MOST_TRIES * target
        }
        for step in range(1, STEPS + 1):
            due = [
                subject
                for subject, target in wanted.items()
                for _ in range(math.ceil(target * step / STEPS) - have[subject, state])
            ]
            if due:
                return due
        return []

    def _step(self, state: str, due: list[str], measure: Measure, states: States) -> None:
        random.Random(len(self._rows())).shuffle(due)
        with states.enter(state) as check:
            for subject in due:
                if self.clock.is_over():
                    return
                found = measure(subject, state, len(self._rows()))
                check()
                real = state if state != "quiet" or found["quiet"] else NOT_QUIET
                self.journal.add({"kind": KIND, "subject": subject, "asked": state, "state": real, **found})
                self._say(subject, real, found)

    def _say(self, subject: str, state: str, found: Mapping[str, Any]) -> None:
        self.made += 1
        each_s = (time.monotonic() - self.began) / self.made
        missing = self.missing()
        tell(
            f"{subject}, {WORDS[state]}: {found['verdict']} in {found['wall_s']:.1f} s; {missing} to go, "
            f"{each_s:.1f} s each, {missing * each_s / 60:.0f} min"
        )
