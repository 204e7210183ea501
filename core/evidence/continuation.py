"""Measuring longer: how a finished comparison is continued, and the error rate that is left.

A continued comparison adds launches to the existing ones and computes its result from all of them. With 95 %
probability, all intervals of a comparison hold together: those of all contrasts reported together, at all
interim analyses, and at all interim analyses of its continuations. A comparison therefore never spends all of
the remaining 5 %: of n planned interim analyses each gets one part of n + 1. The last part remains for
continuations, which divide it in the same way (a geometric series). Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.record import Block, Key, Launch, ProcessResult, RawComparison
from core.evidence.statistics import CONFIDENCE
from core.spec.effort import EFFORTS
from core.wire.errors import SpecError

MIN_FURTHER_ANALYSES = 3  # minimum number of interim analyses after the existing launches
GROWTH = 1.5  # of the number of launches, from one interim analysis to the next
MIN_ERROR = 1e-9  # remaining error rate; a smaller one is rounding


def ensure_continuable(comparison: Comparison, trials: Sequence[Trial]) -> None:
    """Refuse a comparison that cannot be continued.

    Raises:
        SpecError: the comparison has no result, comes from an older version, had a fixed number of runs, has
            used its error rate, has failed configurations, or its raw measurements are gone.
    """
    reason = ""
    if not comparison.result:
        reason = "has no result"
    elif not comparison.result.get("generations"):
        reason = "was measured by an older version, with one process per configuration"
    elif comparison.protocol.get("runs"):
        reason = "was measured with a fixed number of runs"
    elif remaining_error(comparison) <= MIN_ERROR:
        reason = "has used all interim analyses that its 95 % intervals allow"
    elif any(trial.state != "COMPLETE" for trial in trials):
        reason = "has configurations that failed"
    elif any("blocks" not in trial.facts for trial in trials):
        reason = "has no raw measurements any more"
    if reason:
        raise SpecError(
            f"Comparison {comparison.id} {reason}, so it cannot be measured longer.",
            hint="Start a new comparison.",
        )


def protocol(comparison: Comparison, precision: str, budget_s: float | None) -> dict[str, Any]:
    """Return the protocol of a continuation, with its own budget and further interim analyses.

    Args:
        comparison: the finished comparison.
        precision: name of the effort of the continuation.
        budget_s: seconds; None: the budget of the effort.
    """
    asked = EFFORTS[precision]
    made = len(comparison.facts["generations"])
    looks = list(asked.looks)
    while sum(look > made for look in looks) < MIN_FURTHER_ANALYSES:
        looks.append(round(GROWTH * max(looks[-1], made)))
    share = remaining_error(comparison) / parts(sum(look > made for look in looks))
    return {
        **comparison.protocol,
        "precision": precision,
        "target": asked.target,
        "budget_s": asked.budget_s if budget_s is None else budget_s,
        "looks": looks,
        "splits": (1 - CONFIDENCE) / share,
        "spent": (1 - CONFIDENCE) / family(comparison.protocol) - remaining_error(comparison),
        "made": made,
        "least": min(look for look in looks if look > made),  # minimum number of launches
        "continues": comparison.id,
    }


def parts(looks: int, family: int = 1) -> int:
    """Return the divisor of the 5 % error rate for an interval of a new comparison.

    Args:
        looks: number of interim analyses; one more part is left for continuations. 0: a fixed number of runs,
            which cannot be continued.
        family: number of contrasts reported together, all of which hold together with 95 %.
    """
    return (looks + 1 if looks else 1) * family


def family(protocol: Mapping[str, Any]) -> int:
    """Return the number of contrasts of a comparison that hold together with 95 %; 1: each holds alone."""
    return int(protocol.get("family") or 1)


def splits(protocol: Mapping[str, Any]) -> float:
    """Return the divisor of the 5 % of a comparison; old records use their number of interim analyses."""
    return float(protocol.get("splits") or max(1, len(protocol.get("looks") or [])))


def remaining_error(comparison: Comparison) -> float:
    """Return the error rate left to each contrast after all interim analyses of this and earlier comparisons.

    The end of the comparison counts as an interim analysis.
    """
    protocol, made = comparison.protocol, len(comparison.facts.get("generations") or ())
    looks = {look for look in protocol.get("looks") or () if protocol.get("made", 0) < look <= made}
    spent = protocol.get("spent", 0.0) + len(looks | {made}) * (1 - CONFIDENCE) / splits(protocol)
    return float((1 - CONFIDENCE) / family(protocol) - spent)


def raw_comparison(comparison: Comparison, trials: Sequence[Trial]) -> RawComparison:
    """Return the raw record of a comparison.

    Args:
        comparison: a comparison that passed `ensure_continuable`.
        trials: trials of all its configurations, in their order, with their latencies.
    """
    result = comparison.facts
    ids = [trial.id for trial in trials]
    record = RawComparison(ran=[_ran(trial) for trial in trials])
    record.blocks = sorted(
        (block for index, trial in enumerate(trials) for block in _blocks(index, trial)),
        key=lambda block: (block.round, block.position),
    )
    record.orders = [[ids.index(one) for one in order] for order in result["orders"]]
    record.generations = [_launch(one, ids) for one in result["generations"]]
    return record


def _ran(trial: Trial) -> ProcessResult:
    load: Any = {"batch_size": trial.facts["batch_size"]}  # the only key that a comparison reads
    return ProcessResult(load=load)


def _blocks(index: int, trial: Trial) -> list[Block]:
    result = trial.facts
    blocks, latencies = result["blocks"], result["latencies_s"]
    ends = itertools.accumulate(one["runs"] for one in blocks)
    return [
        Block(
            contestant=index,
            copy=one["copy"],
            generation=one["generation"],
            round=one["round"],
            position=one["position"],
            at_s=one["at_s"],
            refill_s=one["refill_s"],
            latencies_s=latencies[end - one["runs"] : end],
            counters=one["counters"],
            window_s=one.get("window_s"),
            stream_runs=tuple(one.get("stream_runs", ())),
            stream_completed=tuple(one.get("stream_completed", ())),
            stream_refills_s=tuple(one.get("stream_refills_s", ())),
        )
        for one, end in zip(blocks, ends, strict=True)
    ]


def _launch(one: Mapping[str, Any], ids: Sequence[str]) -> Launch:
    def key(process: str) -> Key:
        trial, _, copy = process.partition("/")
        return ids.index(trial), int(copy or 0)

    return Launch(
        number=one["generation"],
        order=[key(process) for process in one["order"]],
        layouts={key(process): layout for process, layout in one["layouts"].items()},
        start_s=one["start_s"],
        rounds=one["rounds"],
    )
