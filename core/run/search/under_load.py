"""The best configurations of a search under the traffic that its question asks for.

After the confirmation the search runs the winner as a load test in fresh processes. If it does not pass, the
next best configurations follow, and at last ONNX Runtime's default; the first that passes is the answer.
Pure: `candidates` says what to run, `read` reads a load test, `result` gives the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.evidence.load.target_points import points_of, seconds_needed
from core.evidence.measurement import Trial
from core.evidence.result_types import LoadTested, SearchUnderLoad, SpeedUpNumbers
from core.evidence.targets import Measurements, evaluate_target
from core.evidence.verdict import Verdict
from core.run.plan import resolve_batch
from core.run.search import answer as answers
from core.run.search.plan import ranked_candidates
from core.run.search.search_state import SearchState
from core.spec import TrialSpec
from core.spec.load import LoadSpec, LoadTarget
from core.spec.space import DEFAULT_WORDS, Choice
from core.spec.targets import TargetSpec

MOST_TESTED = 3  # configurations of a search that are run under load, besides ONNX Runtime's default


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A configuration to run under load."""

    role: Literal["winner", "survivor", "default"]
    label: str
    spec: TrialSpec
    changes: dict[str, Any]  # against the start
    gain: SpeedUpNumbers | None  # in the objective, of one caller; None: the default


def load_spec(state: SearchState, target: LoadTarget) -> LoadSpec:
    """Return the load test of one configuration; requests have the batch size of the start for all."""
    rows = resolve_batch(state.base.workload, state.prepared.resolved.record.info)
    return LoadSpec(
        rates=(target.rate,),
        limits=(target.limit,),
        duration_s=seconds_needed(target),
        rows={rows: 1.0},
    )


def plan_words(target: LoadTarget) -> str:
    """Return what follows the confirmation, and how long it takes."""
    seconds = seconds_needed(target)
    return (
        f"then, in addition to the budget, load tests of {seconds:,.0f} s each ({target.words}): the best, "
        f"up to {MOST_TESTED - 1} more, and the default, until one passes"
    )


# --- what to run --------------------------------------------------------------------------------------------


def candidates(state: SearchState) -> list[Candidate]:
    """Return what to run under load, the fastest first; empty: nothing was confirmed or keeps the limits.

    The order is that of the confirmed or estimated speed-up. What failed or misses a constraint is left out,
    and so is what is no faster than the default by more than the margin. Without a winner nothing is, so the
    default comes first, and configurations equivalent to it follow. A default that misses a constraint is
    left out, and then slower configurations count, too.
    """
    if state.default_result is None or state.outcome == "NONE_KEEPS_LIMITS":
        return []
    winner = next((choice for choice, one in state.confirmed.items() if one is state.winner), None)
    found = [] if winner is None else [_candidate(state, winner, role="winner")]
    default = Candidate(role="default", label=DEFAULT_WORDS, spec=state.default_spec, changes={}, gain=None)
    is_able = answers.limits_state(state.default_result["limits"]) != "MISSED"
    least = math.log1p(state.margin) * (1 if found else -1) if is_able else -math.inf
    seen = {_key(one) for one in (*found, default)}
    for choice, gain in ranked_candidates(state):
        if gain <= least or len(found) == MOST_TESTED or not _may_be_answer(state, choice, is_able):
            continue
        one = _candidate(state, choice, role="survivor")
        if _key(one) not in seen:
            seen.add(_key(one))
            found.append(one)
    if not is_able:
        return found
    return [*found, default] if winner is not None else [default, *found]


def _key(one: Candidate) -> str:
    """Equal where the load test is: requests have the batch size of the start."""
    workload = one.spec.workload.model_copy(update={"batch_size": None})
    return one.spec.model_copy(update={"workload": workload}).key()


def _may_be_answer(state: SearchState, choice: Choice, is_default_able: bool) -> bool:
    """Whether a confirmation, if there is one, leaves a configuration possible."""
    said = state.confirmed.get(choice)
    if said is None:
        return True
    slower = is_default_able and said["gain"]["verdict"] == Verdict.SLOWER
    return not said["error"] and not slower and answers.limits_state(said["limits"]) != "MISSED"


def _candidate(state: SearchState, choice: Choice, *, role: Literal["winner", "survivor"]) -> Candidate:
    changes = state.plain(choice)
    said = state.confirmed.get(choice)
    gain = None if said is None else said["gain"]
    if gain is None and (estimate := state.reported_speedup(state.tried[choice])) is not None:
        gain = answers.estimate_numbers("+".join(state.question.objective), estimate, state.margin)
    label = state.words(changes)
    return Candidate(role=role, label=label, spec=state.space.spec(choice), changes=changes, gain=gain)


# --- what it says -------------------------------------------------------------------------------------------


def read(one: Candidate, target: LoadTarget, trial: Trial | None, *, error: str = "") -> LoadTested:
    """Return what the load test of a configuration says.

    Args:
        one: the configuration.
        target: rate and limit.
        trial: of the load test; None: it was not started.
        error: why it has no result; empty: it has.
    """
    kept: Any = {} if trial is None else trial.facts
    test = kept.get("load")
    points = [] if test is None or trial is None else list(points_of(test, trial.id, is_it=lambda *_: True))
    evidence = Measurements(batch_size=1, loads=points, load_failure=error)
    found = evaluate_target(TargetSpec(load=target), evidence)
    return {
        "role": one.role,
        "trial": "" if trial is None else trial.id,
        "changes": one.changes,
        "spec": one.spec.to_dict(),
        "gain": one.gain,
        "state": found.state,
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "why": found.why,
    }


def result(
    target: LoadTarget, said: Sequence[tuple[Candidate, LoadTested]], *, seconds: float, open_: str = ""
) -> SearchUnderLoad:
    """Return the answer.

    Args:
        target: rate and limit.
        said: what was run, in order.
        seconds: that it took.
        open_: why fewer were run than planned; empty: all were.
    """
    passed = next((index for index, (_, one) in enumerate(said) if one["state"] == "MET"), None)
    words = _passed_words(target, said, passed) if passed is not None else _none_words(target, said)
    return {
        "target": target.text,
        "tested": [one for _, one in said],
        "passed": passed,
        "seconds": seconds,
        "words": f"{words} {open_}".strip(),
    }


def _passed_words(target: LoadTarget, said: Sequence[tuple[Candidate, LoadTested]], passed: int) -> str:
    one, found = said[passed]
    name = DEFAULT_WORDS if one.role == "default" else f"`{one.label}`"
    if passed == 0:
        return f"{name} passes {target.words}: {found['why']}"
    before = f"{passed} faster one{' does' if passed == 1 else 's do'} not."
    return f"The fastest that passes {target.words} is {name}: {found['why']} {before}"


def _none_words(target: LoadTarget, said: Sequence[tuple[Candidate, LoadTested]]) -> str:
    if not said:
        return f"Not run at {target.words}: the search confirmed no configuration that keeps its constraints."
    missed = sum(one["state"] == "MISSED" for _, one in said)
    if missed == len(said):
        return f"None of {len(said)} tested configurations passes {target.words}."
    return (
        f"None of {len(said)} tested configurations is known to pass {target.words}: {missed} missed it, "
        f"{len(said) - missed} undecided."
    )
