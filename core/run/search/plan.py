"""What a search does next: a pure function of what is known and of the time that is left.

First looks at configurations (one launch of each, in the same rounds) until their share of the time is used
or none promises anything; what is left of that share launches those again that may be the best, each time
fewer; then a heat of the best where more than two are still in doubt, in which whoever is surely slower
leaves; then the best against ONNX Runtime's default in fresh processes, and the next best where it does not
hold.
Which configurations are looked at is the strategy's; the rest is the same for all of them. Shares and batches
are those that did best on invented machines (`tests/unit/test_search_simulation.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.evidence.effects import Codes, Effects, balanced, fit, next_best
from core.evidence.evaluations import FROM_MEDIANS, Look, Stage, Tried, pooled, reference_doubts, weighed
from core.evidence.result_types import SearchCosts
from core.run.search.failures import failing, sound
from core.run.search.time_needed import can_confirm
from core.spec.question import Question
from core.spec.space import MODEL, Choice, Space

FIRST = 2  # configurations of the first look, which shows what a configuration costs
BATCH = 6  # of a later look
BESIDE = 3  # processes of a look beside its configurations: the default, its twin and a hidden one
MOST_AT_ONCE = 40  # live processes of a look
MOST_RIVALS = 8
LEAST_HEAT_GENERATIONS = 4
LOOKS_SHARE, HEAT_SHARE = 0.5, 0.2  # of the time; the rest confirms
SMALL, SMALL_SHARE = 64, 0.6  # configurations of a space that is looked at as a whole, and longer
PROMISING = 0.05  # times the margin: a look at less than that is not worth its time
MOST_CONFIRMED = 2  # that ran: each is another chance to be wrong
MOST_WITHIN_LIMITS = 4  # where the best may break one; then each has half the chance to be wrong
SEVERAL = 4  # generations of two candidates that the time must hold, or one is confirmed alone
LATE = 0.9  # of what a confirmation of one generation takes must be left
DESIGN = 24  # balanced first looks, or as many as the axes have values beyond their first, and 4
SINGLES_SHARE = 0.5  # of a look, that change one value of the start alone
DESIGN_SHARE = 0.5  # of all looks that the time holds, at most
HALVED = 2  # of those that were launched again, so many times fewer are the next time
MOST_LAUNCHES, MOST_DOUBTFUL = 4, 12  # of one configuration in screening; configurations of one more launch
DOUBT_Z = 1.0  # deviations by which two may be off, where it is in doubt which of them is better
FEW = 2  # in doubt: the time of an elimination round is worth more as launches of the confirmation
FLAT = 0.5  # of the margin, below which the best is no promise
SIMPLIFIED = 2  # of the best, whose plainer twins race, too
SIMPLER_BY = 0.5  # of the margin, that a plainer one may be predicted to lose
FUTILE = 12  # configurations that fail, and none that works, after which nothing more is tried
RISKY = ("use_io_binding", MODEL)  # settings that some models fail with


@dataclass(frozen=True, kw_only=True)
class Known:
    """What a search knows, and what is left to it."""

    question: Question
    space: Space
    codes: Codes  # the space's choices
    tried: Mapping[Choice, Tried]  # without controls
    confirmed: Sequence[Choice]  # who raced in fresh processes, in order; once for each of their races
    margin: float
    time_s: float  # for all of it
    spent_s: float
    each_s: float  # of one configuration in a look; 0: not known yet
    fixed_s: float  # of a race, beside its configurations
    rivals: Sequence[Choice] = ()  # what is left of the heat, the best first; empty: there was none
    hints: Sequence[Choice] = ()  # what earlier studies found best
    priors: Sequence[tuple[Choice, float, float]] = ()  # earlier: ln(gain) and how little it is believed
    infeasible: Callable[[Tried], bool] = field(default=lambda one: False)  # surely breaks a limit
    undecided: Choice | None = None  # confirmed, and what its race said leaves it open
    settled: bool = False  # what was confirmed answers the question
    before_s: float = 0.0  # of the time, that had been spent before this search was resumed
    default: Choice | None = None  # ONNX Runtime's default, where it is of the space: everybody's reference
    costs: SearchCosts | None = None  # of a confirmation, by the last screening; None: not known yet

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.time_s - self.spent_s

    @property
    def own_s(self) -> float:
        """Seconds that this search was given, without those before it was resumed."""
        return self.time_s - self.before_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to race next, the best first."""

    stage: Stage
    choices: Sequence[Choice]
    budget_s: float
    why: str  # in words, for the progress display
    again: bool = False  # it screens the best a second time, in place of an elimination round

    @property
    def ranks(self) -> bool:
        """Whether its result decides which of the best remain."""
        return self.stage == "heat" or self.again


Strategy = Callable[[Known, int], Sequence[Choice]]  # how many -> which untried ones to look at; none: enough


def next_step(known: Known, strategy: Strategy) -> Step | None:
    """Return what to do next; None: nothing more would change the answer, or the time is over."""
    if is_too_short(known):
        return None
    if known.confirmed or known.rivals or known.settled:
        return _confirm(known)
    return _look(known, strategy) or _again(known) or _heat(known) or _confirm(known)


def is_too_short(known: Known) -> bool:
    """Whether nothing was confirmed, and the time that is left holds no confirmation."""
    if known.costs is None or known.confirmed or known.settled:
        return False
    return not can_confirm(known.costs, known.left_s)


# --- first looks --------------------------------------------------------------------------------------------


def looks_end_s(known: Known) -> float:
    """Until when first looks are made, in seconds since the search began."""
    return known.before_s + known.own_s * looks_share(known.space)


def looks_share(space: Space) -> float:
    """Which share of its time a search of a space screens."""
    return SMALL_SHARE if len(space.choices) <= SMALL else LOOKS_SHARE


def sought(space: Space) -> int:
    """How many configurations are worth a look: all of a few, else as many as the design has."""
    levels = sum(len(axis.values) - 1 for axis in space.axes)
    return min(len(space.choices) - 1, max(DESIGN, levels + 4))


def _look(known: Known, strategy: Strategy) -> Step | None:
    left = (
        len(known.codes) - len(known.tried) - (known.default is not None and known.default not in known.tried)
    )
    over = known.tried and known.spent_s >= looks_end_s(known)
    if left <= 0 or over or _is_futile(known):
        return None
    if not known.each_s:
        count = FIRST
    else:
        spare_s = looks_end_s(known) - known.spent_s - known.fixed_s
        count = min(math.floor(spare_s / known.each_s) - BESIDE, MOST_AT_ONCE)
        if not known.tried:
            count = max(count, FIRST)
        if count < 2:
            return None
    choices = strategy(known, min(count, left))
    if not choices:
        return None
    why = f"screening of {len(choices)}"
    return Step(stage="screen", choices=choices, budget_s=_look_budget_s(known), why=why)


def _look_budget_s(known: Known) -> float:
    """Beyond which a look is given up; it is meant to take its share of the time, which is less."""
    return max(1.0, known.left_s - known.own_s * HEAT_SHARE)


def _is_futile(known: Known) -> bool:
    """Whether everything fails: then the next would, too."""
    return len(known.tried) >= FUTILE and all(one.failed for one in known.tried.values())


def designed(known: Known, count: int) -> Sequence[Choice]:
    """The strategy `race`: hints of earlier studies, a balanced design, then what the model promises."""
    choices, at = known.space.choices, {choice: i for i, choice in enumerate(known.space.choices)}
    reserved = [] if known.default is None else [at[known.default]]
    taken = [at[one] for one in known.tried if one in at]
    taken += [one for one in reserved if one not in taken]
    if hints := [one for one in known.hints if one in at and at[one] not in taken][:count]:
        return hints
    open_ = np.setdiff1d(np.arange(len(known.codes)), taken)
    open_ = open_[~failing(known, known.codes[open_])]
    wanted = min(sought(known.space), round(DESIGN_SHARE * _affordable(known, count)))
    if len(open_) <= count:
        return [choices[int(i)] for i in open_]
    if len(taken) < wanted:
        if _holds_another(known, count):
            count = min(count, max(wanted - len(taken), BATCH))
        risky = () if known.tried else _risky(known, open_)
        near = [i for i in risky if np.count_nonzero(known.codes[i]) == 1][:count]
        open_ = np.setdiff1d(open_, risky) if near else open_  # the others of this look do without
        near = near or _single_changes(known, open_, count)
        taken, open_, count = [*taken, *near], np.setdiff1d(open_, near), count - len(near)
        rows = np.concatenate([np.array(taken, dtype=np.intp), open_])
        seen = range(len(taken))
        chosen = balanced(known.codes[rows], count, seed=known.question.seed, taken=seen)
        return [choices[i] for i in (*near, *(int(rows[i]) for i in chosen))]
    model = model_of(known)
    if model is None:
        return ()
    found = next_best(model, known.codes[open_], min(count, max(BATCH, count // 2)))
    if not found or max(gain for _, gain in found) < PROMISING * known.margin:
        return ()
    return [choices[int(open_[i])] for i, _ in found]


def _risky(known: Known, open_: Iterable[int]) -> list[int]:
    """Return who changes a setting that some models fail with: the first look tries it alone."""
    risky = [axis for axis, one in enumerate(known.space.axes) if one.name in RISKY]
    return [i for i in open_ if any(known.codes[i][axis] for axis in risky)]


def _single_changes(known: Known, open_: Iterable[int], count: int) -> list[int]:
    """Return half a look of those that change one value alone, where a look would hold them all.

    Few looks at few values learn more from them than from a balance of everything; of twenty values they
    would leave most unseen.
    """
    single = np.count_nonzero(known.codes, axis=1) == 1
    if single.sum() > max(count, BATCH):
        return []
    rng = np.random.default_rng((known.question.seed, len(known.tried)))
    near = rng.permutation([i for i in open_ if single[i]])
    return [int(i) for i in near[: round(SINGLES_SHARE * count)]]


def _later(known: Known, count: int) -> float:
    """How many configurations the looks hold that follow one at `count`."""
    later_s = looks_end_s(known) - known.spent_s - known.each_s * count - 2 * known.fixed_s
    return math.floor(later_s / known.each_s) if known.each_s else math.inf


def _holds_another(known: Known, count: int) -> bool:
    """Whether a look at `BATCH` configurations leaves time for another, which it can guide."""
    return _later(known, min(count, BATCH) + BESIDE) >= BATCH + BESIDE


def _affordable(known: Known, count: int) -> int:
    """How many configurations all first looks together hold, with `count` in the next one."""
    later = max(0, min(_later(known, count), 10 * DESIGN))
    return int(min(len(known.codes), len(known.tried) + count + later))


def in_order(known: Known, count: int) -> Sequence[Choice]:
    """The strategy `grid`."""
    left = [one for one in known.space.choices if one not in known.tried and one != known.default]
    return sound(known, left)[:count]


def at_random(known: Known, count: int) -> Sequence[Choice]:
    """The strategy `random`: one order for a seed, of which every look takes the next."""
    order = np.random.default_rng(known.question.seed).permutation(len(known.space.choices))
    drawn = (known.space.choices[int(i)] for i in order)
    return sound(known, [one for one in drawn if one not in known.tried and one != known.default])[:count]


def model_of(known: Known, *, spread: float = 0.0) -> Effects | None:
    """Return the model of what was tried; None: nothing was that has a number.

    Args:
        known: everything.
        spread: what two launches of one configuration differ by, as a standard deviation of ln; where it is
            more than the error of a look, it is the error. What is printed counts it; what chooses does
            not, because the model doubts launches that are far too slow by itself.
    """
    rows, gains, errors, races, doubts = [], [], [], [], []
    doubted = reference_doubts(known.tried.values())
    for choice, one in known.tried.items():
        for look in () if one.failed else one.looks:
            gain = _gain_of_look(look, known.question)
            if gain is not None:
                least = spread / math.sqrt(look.launches)
                rows.append(choice)
                gains.append(gain[0])
                errors.append(None if gain[1] is None and not spread else max(gain[1] or 0.0, least))
                races.append(look.race)
                doubts.append(doubted.get(look.race, 0.0))
    if not rows:
        return None
    if known.default is not None and known.default not in known.tried:
        rows.append(known.default)
        gains.append(0.0)
        errors.append(0.0)
        races.append("")
        doubts.append(0.0)
    for choice, earlier, doubt in known.priors:
        if choice not in known.tried:
            rows.append(choice)
            gains.append(earlier)
            errors.append(doubt)
            races.append("")
            doubts.append(0.0)
    return fit(np.array(rows, dtype=np.int16), gains, errors, races, doubts)


def _gain_of_look(look: Look, question: Question) -> tuple[float, float | None] | None:
    """The same of one look."""
    gains = {name: pooled([look.gains[name]]) for name in question.objective if name in look.gains}
    return weighed(gains, question.objective)


def gain_of(one: Tried, question: Question) -> tuple[float, float | None] | None:
    """Return ln(gain) of the objective by all looks at a configuration."""
    return weighed({name: one.gain(name) for name in question.objective}, question.objective)


# --- more launches of what is in doubt ----------------------------------------------------------------------


def _again(known: Known) -> Step | None:
    """Launch those anew that may be the best, half of them at most each time, until the looks are over.

    Few launches of many first, more of what is in doubt: a launch may be slow for life, and one is not
    enough to tell two configurations apart.
    """
    spare_s = looks_end_s(known) - known.spent_s - known.fixed_s
    held = max(0, math.floor(spare_s / known.each_s) - BESIDE) if known.each_s else 0
    doubtful, launches = in_doubt(known), _launches_most(known)
    raced = sum(_launches(one) >= launches for one in known.tried.values())
    most = math.ceil(raced / HALVED) if launches > 1 else len(doubtful)
    choices = doubtful[: min(most, held, MOST_DOUBTFUL)]
    if len(choices) < 2 or launches >= MOST_LAUNCHES or _is_flat(known, choices[0]):
        return None
    why = f"more launches of the best {len(choices)}"
    return Step(stage="screen", choices=choices, budget_s=_look_budget_s(known), why=why)


def in_doubt(known: Known) -> list[Choice]:
    """Return who may be the best by what is known, the best first."""
    ranked = standing(known)
    model = model_of(known)
    if not ranked or model is None:
        return []
    mean, deviation = model.at(np.array([choice for choice, _ in ranked], dtype=np.int16))
    least = float(mean[0] - DOUBT_Z * deviation[0])
    return [c for (c, _), m, d in zip(ranked, mean, deviation, strict=True) if m + DOUBT_Z * d >= least]


def _launches(one: Tried) -> int:
    return 0 if one.failed else sum(look.launches for look in one.looks if look.gains)


def _launches_most(known: Known) -> int:
    return max(map(_launches, known.tried.values()), default=0)


# --- the heat -----------------------------------------------------------------------------------------------


def standing(known: Known, *, also_infeasible: bool = False) -> list[tuple[Choice, float]]:
    """Return who may be the answer, the best first, by the model drawn to what was measured.

    Args:
        known: everything.
        also_infeasible: those too that surely break a limit by what was seen.
    """
    model = model_of(known)
    if model is None:
        return []
    sound = {c: one for c, one in known.tried.items() if not one.failed and one.looks and c != known.default}
    able = [c for c, one in sound.items() if also_infeasible or not known.infeasible(one)]
    if not able:
        return []
    mean, _ = model.at(np.array(able, dtype=np.int16))
    ranked = sorted(zip(able, mean.tolist(), strict=True), key=lambda one: -one[1])
    return [(choice, gain) for choice, gain in ranked]


def _heat(known: Known) -> Step | None:
    ranked = standing(known)
    if _launches_most(known) > 1:  # launches have told the others apart
        doubtful = in_doubt(known)
        if len(doubtful) <= FEW:
            return None
        ranked = [one for one in ranked if one[0] in doubtful]
    heat_s = min(known.own_s * HEAT_SHARE, known.left_s - confirm_s(known))
    held = math.floor((heat_s - known.fixed_s) / (LEAST_HEAT_GENERATIONS * max(known.each_s, 1e-3))) - 2
    count = min(MOST_RIVALS, held, len(ranked))
    if count < 2 or _is_flat(known, ranked[0][0]):
        return None
    best = [choice for choice, _ in ranked[:count]]
    plain = [
        one
        for choice in best[:SIMPLIFIED]
        if (one := simplified(known, choice)) not in (choice, known.default)
    ]
    plain = sound(known, plain)
    choices = list(dict.fromkeys([*best[: max(1, count - len(plain))], *plain, *best]))[:count]
    if not set(known.question.objective) <= set(FROM_MEDIANS):  # who is slower does not leave: look again
        why = f"rescreening of the best {count}"
        return Step(stage="screen", choices=choices, budget_s=heat_s, why=why, again=True)
    return Step(stage="heat", choices=choices, budget_s=heat_s, why=f"elimination round of the best {count}")


def _is_flat(known: Known, best: Choice) -> bool:
    """Whether the best promises no more than equals differ by: then all time is for saying so."""
    model = model_of(known)
    if known.default is None or model is None or is_bounded(known.question):
        return False
    mean, deviation = model.at(np.array([best], dtype=np.int16))
    return bool(mean[0] - deviation[0] < FLAT * math.log1p(known.margin))


def is_bounded(question: Question) -> bool:
    """Whether there are limits: then the default itself may be no answer."""
    return bool(question.limits) or question.same_latency or question.accuracy


def divided_by(question: Question) -> int:
    """Return by what the 5 % of a confirming race are divided, because so many more may be confirmed."""
    return MOST_WITHIN_LIMITS // MOST_CONFIRMED if is_bounded(question) else 1


def simplified(known: Known, choice: Choice) -> Choice:
    """Return a configuration without the changes that do nothing by the model: the plainer of two equals."""
    model = model_of(known)
    if model is None:
        return choice
    own, least = choice, float(model.at(np.array([choice], dtype=np.int16))[0][0])
    least -= SIMPLER_BY * math.log1p(known.margin)
    while True:
        reverted = (tuple(0 if i == axis else v for i, v in enumerate(own)) for axis in range(len(own)))
        plainer = {known.space.canonical(one) for one in reverted}
        options = [one for one in plainer if one in known.space.known and one != own]
        if not options:
            return own
        means = model.at(np.array(options, dtype=np.int16))[0]
        if float(means.max()) < least:
            return own
        own = options[int(means.argmax())]


# --- the confirmation ---------------------------------------------------------------------------------------


def confirm_s(known: Known) -> float:
    """Return what a confirmation takes at least: four generations of two candidates and two defaults."""
    return max(0.2 * known.own_s, known.fixed_s + 4 * 4 * known.each_s)


def _promises(known: Known, choice: Choice) -> bool:
    """Whether one that was not confirmed yet looks better than the default by half the margin at least."""
    gain = gain_of(known.tried[choice], known.question) if choice in known.tried else None
    return gain is not None and gain[0] > math.log1p(known.margin) / 2


def _is_ahead(known: Known, one: Choice, others: Sequence[Choice]) -> bool:
    """Whether all looks at `one` together promise more than the margin, and than any of the others by it."""
    own = gain_of(known.tried[one], known.question) if one in known.tried else None
    gains = (gain_of(known.tried[other], known.question) for other in others if other in known.tried)
    rest = max((gain[0] for gain in gains if gain is not None), default=0.0)
    return own is not None and own[0] > max(0.0, rest) + math.log1p(known.margin)


def _confirm(known: Known) -> Step | None:
    """The best that was not confirmed yet; where there are limits, which it may break, the next best, too.

    Who was left open and still promises more than the rest is asked once more: one slow process among few is
    enough to leave twice the speed open, and then a smaller gain, however sure, is the worse answer.
    """
    held = [one for one in known.confirmed if one in known.tried and not known.tried[one].failed]
    most = MOST_WITHIN_LIMITS if is_bounded(known.question) else MOST_CONFIRMED
    if len(held) >= most:
        return None
    order = known.rivals or [choice for choice, _ in standing(known)]
    if not order and not known.confirmed:  # none keeps the limits: the best of them shows by how much
        order = [choice for choice, _ in standing(known, also_infeasible=True)][:1]
    left = [one for one in order if one not in known.confirmed]
    if known.confirmed and not known.question.limits and not known.question.same_latency:
        left = [one for one in left if _promises(known, one)]
    if known.undecided is not None and _is_ahead(known, known.undecided, left):
        left = [known.undecided]
    if known.settled or not left or (known.confirmed and known.left_s < confirm_s(known)):
        return None
    left_s = known.left_s - known.fixed_s
    together = is_bounded(known.question) and left_s >= SEVERAL * 4 * known.each_s
    if left_s < 3 * known.each_s * LATE:
        return None  # the time does not hold one process of each
    choices = left[: 2 if together else 1]
    return Step(stage="confirm", choices=choices, budget_s=left_s, why="confirmation in fresh processes")
