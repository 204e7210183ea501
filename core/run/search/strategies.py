"""The screening strategies by name: `race` and `random`.

Each is a pure function from the state of a search to the next configurations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from core.evidence.effects import balanced_design, next_batch
from core.run.search.failures import excluded_mask, sound
from core.run.search.plan import (
    DESIGN,
    EXTRA_PROCESSES,
    PlanState,
    Strategy,
    model_of,
    screening_end_s,
    sought,
)
from core.spec.space import MODEL, Choice

BATCH = 6  # configurations of a later screening
PROMISING = 0.05  # smallest expected improvement worth a screening, as a share of the margin
SINGLES_SHARE = 0.5  # share of a screening for configurations that change one value of the start
DESIGN_SHARE = 0.5  # largest share of all affordable screened configurations for the design
RISKY = ("use_io_binding", MODEL)  # settings that some models fail with


def designed(known: PlanState, count: int) -> Sequence[Choice]:
    """Strategy `race`: best of earlier searches, a balanced design, then the model's best predictions."""
    choices, at = known.space.choices, {choice: i for i, choice in enumerate(known.space.choices)}
    reserved = [] if known.default is None else [at[known.default]]
    taken = [at[one] for one in known.tried if one in at]
    taken += [one for one in reserved if one not in taken]
    if hints := [one for one in known.hints if one in at and at[one] not in taken][:count]:
        return hints
    open_ = np.setdiff1d(np.arange(len(known.codes)), taken)
    open_ = open_[~excluded_mask(known.excluded, known.codes[open_])]
    wanted = min(sought(known.space), round(DESIGN_SHARE * _affordable(known, count)))
    if len(open_) <= count:
        return [choices[int(i)] for i in open_]
    if len(taken) < wanted:
        if _holds_another(known, count):
            count = min(count, max(wanted - len(taken), BATCH))
        risky = () if known.tried else _risky(known, open_)
        near = [i for i in risky if np.count_nonzero(known.codes[i]) == 1][:count]
        open_ = np.setdiff1d(open_, risky) if near else open_  # no other one here changes a risky setting
        near = near or _single_changes(known, open_, count)
        taken, open_, count = [*taken, *near], np.setdiff1d(open_, near), count - len(near)
        rows = np.concatenate([np.array(taken, dtype=np.intp), open_])
        seen = range(len(taken))
        chosen = balanced_design(known.codes[rows], count, seed=known.question.seed, taken=seen)
        return [choices[i] for i in (*near, *(int(rows[i]) for i in chosen))]
    model = model_of(known)
    if model is None:
        return ()
    found = next_batch(model, known.codes[open_], min(count, max(BATCH, count // 2)))
    if not found or max(gain for _, gain in found) < PROMISING * known.margin:
        return ()
    return [choices[int(open_[i])] for i, _ in found]


def _risky(known: PlanState, open_: Iterable[int]) -> list[int]:
    """Return the configurations that change a risky setting: the first screening changes it alone."""
    risky = [axis for axis, one in enumerate(known.space.axes) if one.name in RISKY]
    return [i for i in open_ if any(known.codes[i][axis] for axis in risky)]


def _single_changes(known: PlanState, open_: Iterable[int], count: int) -> list[int]:
    """Return single-change configurations for half a screening, if one screening would fit all of them.

    With few values and few evaluations they are more informative than a balanced design. With many values
    they would leave most values untested.
    """
    single = np.count_nonzero(known.codes, axis=1) == 1
    if single.sum() > max(count, BATCH):
        return []
    rng = np.random.default_rng((known.question.seed, len(known.tried)))
    near = rng.permutation([i for i in open_ if single[i]])
    return [int(i) for i in near[: round(SINGLES_SHARE * count)]]


def _later(known: PlanState, count: int) -> float:
    """How many configurations fit into later screenings after one of `count`."""
    later_s = screening_end_s(known) - known.clock.spent_s - known.each_s * count - 2 * known.fixed_s
    return math.floor(later_s / known.each_s) if known.each_s else math.inf


def _holds_another(known: PlanState, count: int) -> bool:
    """Whether a screening of `BATCH` configurations leaves time for another one, which it can guide."""
    return _later(known, min(count, BATCH) + EXTRA_PROCESSES) >= BATCH + EXTRA_PROCESSES


def _affordable(known: PlanState, count: int) -> int:
    """How many configurations fit into all screenings together, with `count` in the next one."""
    later = max(0, min(_later(known, count), 10 * DESIGN))
    return int(min(len(known.codes), len(known.tried) + count + later))


def at_random(known: PlanState, count: int) -> Sequence[Choice]:
    """Strategy `random`: the next configurations of an order that the seed determines."""
    order = np.random.default_rng(known.question.seed).permutation(len(known.space.choices))
    drawn = (known.space.choices[int(i)] for i in order)
    left = [one for one in drawn if one not in known.tried and one != known.default]
    return sound(known.excluded, left)[:count]


BY_NAME: Mapping[str, Strategy] = MappingProxyType({"race": designed, "random": at_random})
