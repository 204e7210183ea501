"""Decides the next step of a search, as a pure function of its state and the remaining time.

The stages are:

1. Screening: one launch of each configuration, in the same rounds, until its share of the time is used or no
   configuration is promising. The strategy chooses the configurations. The rest of the share repeats the
   launches of possible winners, fewer each time.
2. Elimination round of the best, if more than two may be the best. Significantly slower ones are stopped.
3. Confirmation of the best against the ORT default in fresh processes, then of the next best if it fails.

Shares and batch sizes did best on simulated machines (`tests/unit/test_search_simulation.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from core.evidence.comparison import same_request
from core.evidence.effects import Codes, Effects, fit
from core.evidence.evaluations import UNKNOWN_SE, Evaluation, Stage, reference_doubts, weighted
from core.evidence.result_types import Confirmed, SearchCosts
from core.evidence.targets import MEMORY_SPREAD, MEMORY_SPREAD_WITHOUT_ARENA
from core.run.search.failures import ExcludedValues, excluded_values, sound
from core.run.search.time_needed import can_confirm
from core.spec import effective, is_provider_option
from core.spec.metrics import BY_ROUNDS
from core.spec.question import Question
from core.spec.space import MODEL, Choice, Space, reference
from core.spec.targets import TargetSpec

FIXED_S = 1.0  # assumed fixed time of a comparison, without its processes, until measured
FIRST = 2  # configurations of the first screening, which measures the cost of one
EXTRA_PROCESSES = (
    3  # additional processes of a screening: the ORT default, its A/A control and a hidden control
)
MOST_AT_ONCE = 40  # live processes of a screening
MOST_RIVALS = 8
LEAST_ELIMINATION_LAUNCHES = 4
SCREENING_SHARE, ELIMINATION_SHARE = (
    0.5,
    0.2,
)  # of the time for screening, elimination round; the rest confirms
SMALL, SMALL_SHARE = 64, 0.6  # configurations of a space that is screened completely; its screening share
MOST_CONFIRMED = 2  # confirmations that ran: each adds a false-alarm risk
MOST_WITHIN_LIMITS = 4  # same with constraints, which the best may miss; the false-alarm rate is divided
SEVERAL = 4  # launches of two candidates that must fit the time; otherwise one is confirmed alone
LEAST_SHARE = 0.9  # share of the duration of a one-launch confirmation that must remain
DESIGN = 24  # least size of the balanced design; at least the number of non-default values + 4
HALVED = 2  # factor by which the number of repeated configurations shrinks each time
MOST_LAUNCHES, MOST_DOUBTFUL = 4, 12  # launches of a configuration in screening; configurations of a repeat
DOUBT_Z = 1.0  # standard deviations within which two configurations may be equally good
FEW = 2  # at most so many possible winners skip the elimination round, in favour of confirmation launches
FLAT = 0.5  # share of the margin below which the best is not promising
SIMPLIFIED = 2  # best configurations whose simplified versions are compared, too
SIMPLER_BY = 0.5  # largest predicted loss of a simplified configuration, as a share of the margin
LIMIT_SLACK = 1.25  # factor by which a screened value may miss a constraint without exclusion
FUTILE = 12  # evaluations without any success after which screening stops


@dataclass(kw_only=True)
class Clock:
    """Elapsed time of a search, in seconds."""

    before_s: float  # before it was interrupted
    began: float  # monotonic
    given_s: float = 0.0  # time since then in which other jobs had the machine

    @property
    def own_s(self) -> float:
        """Time since it was started or resumed, without the time given to other jobs."""
        return time.monotonic() - self.began - self.given_s

    @property
    def spent_s(self) -> float:
        """Time of the whole search, before and after an interruption."""
        return self.before_s + self.own_s


@dataclass(kw_only=True)
class PlanState:
    """State of a search as the plan reads it. `SearchState` adds what its answer and its display need."""

    question: Question
    space: Space
    clock: Clock
    hints: Sequence[Choice] = ()  # best configurations of earlier searches
    priors: Sequence[tuple[Choice, float, float]] = ()  # from earlier searches: ln(speed-up), standard error
    tried: dict[Choice, Evaluation] = field(default_factory=dict)  # without A/A controls
    rivals: list[Choice] = field(default_factory=list)  # after the elimination round, the best first
    confirmed: dict[Choice, Confirmed] = field(default_factory=dict)  # in the order of their runs
    settled: bool = False  # the confirmed result answers the question
    each_s: float = 0.0  # screening time of one configuration; 0: not known yet
    fixed_s: float = FIXED_S  # fixed time of a comparison, without its configurations
    costs: SearchCosts | None = None  # of a confirmation, from the last screening; None: not known yet

    @cached_property
    def codes(self) -> Codes:
        """The space: one row per configuration, one column per axis."""
        return np.array(self.space.choices, dtype=np.int16)

    @cached_property
    def default(self) -> Choice | None:
        """The ORT default, the reference of every ratio; None: not in the space."""
        default = reference(self.space.base)
        asked = [0 for _ in self.space.axes]
        for i, axis in enumerate(self.space.axes):
            if axis.name == MODEL or is_provider_option(axis.name):
                continue
            if (value := effective(default, axis.name)) not in axis.values:
                return None
            asked[i] = axis.values.index(value)
        choice = self.space.canonical(tuple(asked))
        return choice if same_request(self.space.spec(choice), default) else None

    @property
    def margin(self) -> float:
        """Equivalence margin, relative."""
        return self.space.base.protocol.margin

    @property
    def time_s(self) -> float:
        """Time budget of the whole search in seconds."""
        return self.clock.before_s + self.question.budget_s

    @property
    def left_s(self) -> float:
        """Remaining time in seconds."""
        return self.time_s - self.clock.spent_s

    @property
    def excluded(self) -> list[ExcludedValues]:
        """Values that are not evaluated again, because configurations with them fail."""
        return excluded_values(self.tried, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Next comparison of a search, the best configuration first."""

    stage: Stage
    choices: Sequence[Choice]
    budget_s: float
    why: str  # in words, for the progress display
    ranks: bool = False  # its result ranks the candidates for confirmation


Strategy = Callable[[PlanState, int], Sequence[Choice]]  # count -> new configurations to screen; none: stop


def next_step(known: PlanState, strategy: Strategy) -> Step | None:
    """Return the next step; None: no step would change the answer, or the time is over."""
    if is_too_short(known):
        return None
    if known.confirmed or known.rivals or known.settled:
        return _confirm(known)
    return _screen(known, strategy) or _again(known) or _eliminate(known) or _confirm(known)


def is_too_short(known: PlanState) -> bool:
    """Whether nothing was confirmed and the remaining time is too short for a confirmation."""
    if known.costs is None or known.confirmed or known.settled:
        return False
    return not can_confirm(known.costs, known.left_s)


# --- screening ----------------------------------------------------------------------------------------------


def screening_end_s(known: PlanState) -> float:
    """Return when screening ends, in seconds since the search began."""
    return known.clock.before_s + known.question.budget_s * screening_share(known.space)


def screening_share(space: Space) -> float:
    """Return the share of the time for screening."""
    return SMALL_SHARE if len(space.choices) <= SMALL else SCREENING_SHARE


def sought(space: Space) -> int:
    """Return how many configurations are worth screening: all of a small space, else the design's size."""
    levels = sum(len(axis.values) - 1 for axis in space.axes)
    return min(len(space.choices) - 1, max(DESIGN, levels + 4))


def _screen(known: PlanState, strategy: Strategy) -> Step | None:
    left = (
        len(known.codes) - len(known.tried) - (known.default is not None and known.default not in known.tried)
    )
    over = known.tried and known.clock.spent_s >= screening_end_s(known)
    if left <= 0 or over or _is_futile(known):
        return None
    if not known.each_s:
        count = FIRST
    else:
        spare_s = screening_end_s(known) - known.clock.spent_s - known.fixed_s
        count = min(math.floor(spare_s / known.each_s) - EXTRA_PROCESSES, MOST_AT_ONCE)
        if not known.tried:
            count = max(count, FIRST)
        if count < 2:
            return None
    choices = strategy(known, min(count, left))
    if not choices:
        return None
    why = f"screening of {len(choices)}"
    return Step(stage="screen", choices=choices, budget_s=_look_budget_s(known), why=why)


def _look_budget_s(known: PlanState) -> float:
    """Time limit of a screening; its expected duration, a share of the time, is shorter."""
    return max(1.0, known.left_s - known.question.budget_s * ELIMINATION_SHARE)


def _is_futile(known: PlanState) -> bool:
    """Whether all evaluations have failed, so that further ones would fail, too."""
    return len(known.tried) >= FUTILE and all(one.failed for one in known.tried.values())


def model_of(known: PlanState, *, spread: float = 0.0) -> Effects | None:
    """Return the effects model of all observations; None: no observation has a number.

    Args:
        known: state of the search.
        spread: standard deviation of ln between launches of one configuration, the least error of an
            observation. Reported intervals use it. Selection does not, because the model itself
            down-weights launches that are far too slow.
    """
    rows, gains, errors, comparisons, doubts = [], [], [], [], []
    doubted = reference_doubts(known.tried.values())
    for choice, one in known.tried.items():
        for look in () if one.failed else one.looks:
            gain = weighted(look.gains, known.question.objective)
            if gain is not None:
                least = spread / math.sqrt(look.launches)
                rows.append(choice)
                gains.append(gain[0])
                unknown = gain[1] is None and not spread
                errors.append(UNKNOWN_SE if unknown else max(gain[1] or 0.0, least))
                comparisons.append(look.race)
                doubts.append(doubted.get(look.race, 0.0))
    if not rows:
        return None
    if known.default is not None and known.default not in known.tried:
        rows.append(known.default)
        gains.append(0.0)
        errors.append(0.0)
        comparisons.append("")
        doubts.append(0.0)
    for choice, earlier, doubt in known.priors:
        if choice not in known.tried:
            rows.append(choice)
            gains.append(earlier)
            errors.append(doubt)
            comparisons.append("")
            doubts.append(0.0)
    return fit(np.array(rows, dtype=np.int16), gains, errors, comparisons, doubts)


# --- repeated screening of possible winners -----------------------------------------------------------------


def _again(known: PlanState) -> Step | None:
    """Launch possible winners again, at most half as many each time, until screening ends.

    A process may be slow for its whole lifetime, so one launch cannot distinguish two configurations.
    """
    spare_s = screening_end_s(known) - known.clock.spent_s - known.fixed_s
    held = max(0, math.floor(spare_s / known.each_s) - EXTRA_PROCESSES) if known.each_s else 0
    doubtful, launches = possible_winners(known), _launches_most(known)
    measured = sum(_launches(one) >= launches for one in known.tried.values())
    most = math.ceil(measured / HALVED) if launches > 1 else len(doubtful)
    choices = doubtful[: min(most, held, MOST_DOUBTFUL)]
    if len(choices) < 2 or launches >= MOST_LAUNCHES or _is_flat(known, choices[0]):
        return None
    why = f"more launches of the best {len(choices)}"
    return Step(stage="screen", choices=choices, budget_s=_look_budget_s(known), why=why)


def possible_winners(known: PlanState) -> list[Choice]:
    """Return the configurations that may be the best, the best estimate first."""
    ranked = ranked_candidates(known)
    model = model_of(known)
    if not ranked or model is None:
        return []
    mean, deviation = model.at(np.array([choice for choice, _ in ranked], dtype=np.int16))
    least = float(mean[0] - DOUBT_Z * deviation[0])
    return [c for (c, _), m, d in zip(ranked, mean, deviation, strict=True) if m + DOUBT_Z * d >= least]


def _launches(one: Evaluation) -> int:
    return 0 if one.failed else sum(look.launches for look in one.looks if look.gains)


def _launches_most(known: PlanState) -> int:
    return max(map(_launches, known.tried.values()), default=0)


# --- the elimination round ----------------------------------------------------------------------------------


def ranked_candidates(known: PlanState, *, also_infeasible: bool = False) -> list[tuple[Choice, float]]:
    """Return the possible answers with their predicted ln(speed-up), the best first.

    Args:
        known: state of the search.
        also_infeasible: include configurations that certainly miss a constraint.
    """
    model = model_of(known)
    if model is None:
        return []
    sound = {c: one for c, one in known.tried.items() if not one.failed and one.looks and c != known.default}
    able = [c for c, one in sound.items() if also_infeasible or not surely_misses_limit(known, one)]
    if not able:
        return []
    mean, _ = model.at(np.array(able, dtype=np.int16))
    ranked = sorted(zip(able, mean.tolist(), strict=True), key=lambda one: -one[1])
    return [(choice, gain) for choice, gain in ranked]


def surely_misses_limit(known: PlanState, one: Evaluation) -> bool:
    """Return whether a configuration certainly misses a constraint; rough observations have a tolerance."""
    if known.question.same_latency:
        gain = one.gain("latency_p50")
        if gain is not None and gain[0] + 2 * (gain[1] or 0.03) < -math.log1p(known.margin):
            return True
    return any(_is_surely_beyond(one, target) for target in known.question.limits)


def _is_surely_beyond(one: Evaluation, target: TargetSpec) -> bool:
    """Whether an observation misses a constraint by so much that a longer measurement would miss it, too."""
    if target.about.name == "peak_rss":
        value = one.value("peak_rss")
        kept = one.changes.get("enable_cpu_mem_arena", True)
        spread = MEMORY_SPREAD if kept else MEMORY_SPREAD_WITHOUT_ARENA
        return value is not None and value * (1 - spread) > target.limit
    metric = (
        "latency_p50"
        if target.about.name in BY_ROUNDS and target.about.name != "throughput"
        else target.about.name
    )
    value = one.value(metric)
    if value is None or target.batch_size is not None:
        return False
    if target.about.smaller_is_better:
        return value > LIMIT_SLACK * target.limit
    return value < target.limit / LIMIT_SLACK


def _eliminate(known: PlanState) -> Step | None:
    ranked = ranked_candidates(known)
    if _launches_most(known) > 1:  # repeated launches have excluded the others
        doubtful = possible_winners(known)
        if len(doubtful) <= FEW:
            return None
        ranked = [one for one in ranked if one[0] in doubtful]
    elimination_s = min(known.question.budget_s * ELIMINATION_SHARE, known.left_s - confirm_s(known))
    held = (
        math.floor((elimination_s - known.fixed_s) / (LEAST_ELIMINATION_LAUNCHES * max(known.each_s, 1e-3)))
        - 2
    )
    count = min(MOST_RIVALS, held, len(ranked))
    if count < 2 or _is_flat(known, ranked[0][0]):
        return None
    best = [choice for choice, _ in ranked[:count]]
    plain = [
        one
        for choice in best[:SIMPLIFIED]
        if (one := simplified(known, choice)) not in (choice, known.default)
    ]
    plain = sound(known.excluded, plain)
    choices = list(dict.fromkeys([*best[: max(1, count - len(plain))], *plain, *best]))[:count]
    if not set(known.question.objective) <= set(BY_ROUNDS):  # elimination works on medians alone
        why = f"rescreening of the best {count}"
        return Step(stage="screen", choices=choices, budget_s=elimination_s, why=why, ranks=True)
    why = f"elimination round of the best {count}"
    return Step(stage="heat", choices=choices, budget_s=elimination_s, why=why, ranks=True)


def _is_flat(known: PlanState, best: Choice) -> bool:
    """Whether the best is predicted to be equivalent to the ORT default, so all time goes to confirmation."""
    model = model_of(known)
    if known.default is None or model is None or has_constraints(known.question):
        return False
    mean, deviation = model.at(np.array([best], dtype=np.int16))
    return bool(mean[0] - deviation[0] < FLAT * math.log1p(known.margin))


def has_constraints(question: Question) -> bool:
    """Whether the question has constraints, which the ORT default itself may miss."""
    return bool(question.limits) or question.same_latency or question.accuracy


def error_rate_divisor(question: Question) -> int:
    """Return the divisor of the 5 % false-alarm rate of a confirmation: constraints allow more of them."""
    return MOST_WITHIN_LIMITS // MOST_CONFIRMED if has_constraints(question) else 1


def simplified(known: PlanState, choice: Choice) -> Choice:
    """Revert the changes to which the fitted model of effects gives no benefit."""
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


def confirm_s(known: PlanState) -> float:
    """Return the least time of a confirmation: four launches of two candidates and two ORT defaults."""
    return max(0.2 * known.question.budget_s, known.fixed_s + 4 * 4 * known.each_s)


def _promises(known: PlanState, choice: Choice) -> bool:
    """Whether the estimate of a configuration exceeds the ORT default by more than half the margin."""
    gain = known.tried[choice].speedup(known.question.objective) if choice in known.tried else None
    return gain is not None and gain[0] > math.log1p(known.margin) / 2


def _confirm(known: PlanState) -> Step | None:
    """Confirm the best unconfirmed configuration; with constraints, which it may miss, also the next best."""
    held = [one for one in known.confirmed if one in known.tried and not known.tried[one].failed]
    most = MOST_WITHIN_LIMITS if has_constraints(known.question) else MOST_CONFIRMED
    if len(held) >= most:
        return None
    order = known.rivals or [choice for choice, _ in ranked_candidates(known)]
    if not order and not known.confirmed:  # all miss a constraint: the best of them shows by how much
        order = [choice for choice, _ in ranked_candidates(known, also_infeasible=True)][:1]
    left = [one for one in order if one not in known.confirmed]
    if known.confirmed and not known.question.limits and not known.question.same_latency:
        left = [one for one in left if _promises(known, one)]
    if known.settled or not left or (known.confirmed and known.left_s < confirm_s(known)):
        return None
    left_s = known.left_s - known.fixed_s
    together = has_constraints(known.question) and left_s >= SEVERAL * 4 * known.each_s
    if left_s < 3 * known.each_s * LEAST_SHARE:
        return None  # too short for one process of each
    choices = left[: 2 if together else 1]
    return Step(stage="confirm", choices=choices, budget_s=left_s, why="confirmation in fresh processes")
