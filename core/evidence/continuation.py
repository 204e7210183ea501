"""Measuring longer: how a finished comparison is continued, and the error rate that is left.

More generations join those that there are, and the answer is that of all of them. In 95 % no interval of a
comparison misses: of none of the contrasts that are told together, at none of its looks, and at no look of
what goes on from it. So it never spends all that is left of the 5 %: of n looks to come each gets
one part of n + 1, and the last part is left for going on, again and again (a geometric series). Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.record import Block, Generation, Key, RaceRecord, Ran
from core.evidence.statistics import CONFIDENCE
from core.spec.effort import EFFORTS
from core.wire.errors import SpecError

MORE_LOOKS = 3  # at least, behind the generations that there are
GROWTH = 1.5  # from one look to the next
LEAST_LEFT = 1e-9  # of the 5 %: less is rounding


def check(race: Comparison, trials: Sequence[Trial]) -> None:
    """Refuse what cannot be gone on with.

    Raises:
        SpecError: the race has no result, is of an older version, had an exact number of runs, has spent its
            looks, or its raw samples are gone.
    """
    reason = ""
    if not race.result:
        reason = "has no result"
    elif not race.result.get("generations"):
        reason = "was measured by an older version, with one process per configuration"
    elif race.protocol.get("runs"):
        reason = "was measured with a fixed number of runs"
    elif left(race) <= LEAST_LEFT:
        reason = "has used all interim analyses that its 95 % intervals allow"
    elif any(trial.state != "COMPLETE" for trial in trials):
        reason = "has configurations that failed"
    elif any("blocks" not in trial.facts for trial in trials):
        reason = "has no raw measurements any more"
    if reason:
        raise SpecError(
            f"Comparison {race.id} {reason}, so it cannot be measured longer.", hint="Start a new comparison."
        )


def protocol(race: Comparison, precision: str, budget_s: float | None) -> dict[str, Any]:
    """Return how a race goes on: its protocol, with a budget of its own and looks behind what there is.

    Args:
        race: the finished one.
        precision: name, of the race that goes on.
        budget_s: seconds; None: that of the effort.
    """
    asked = EFFORTS[precision]
    made = len(race.facts["generations"])
    looks = list(asked.looks)
    while sum(look > made for look in looks) < MORE_LOOKS:
        looks.append(round(GROWTH * max(looks[-1], made)))
    share = left(race) / parts(sum(look > made for look in looks))
    return {
        **race.protocol,
        "precision": precision,
        "target": asked.target,
        "budget_s": asked.budget_s if budget_s is None else budget_s,
        "looks": looks,
        "splits": (1 - CONFIDENCE) / share,
        "spent": (1 - CONFIDENCE) / family(race.protocol) - left(race),
        "made": made,
        "least": min(look for look in looks if look > made),  # whoever asks for more gets more
        "continues": race.id,
    }


def parts(looks: int, family: int = 1) -> int:
    """Return by what the 5 % of an interval of a new comparison are divided.

    Args:
        looks: how often it may look at its numbers; one part more is left for going on with it. 0: an exact
            number of runs, which cannot be gone on with.
        family: how many contrasts are told together, all of which hold with 95 %.
    """
    return (looks + 1 if looks else 1) * family


def family(protocol: Mapping[str, Any]) -> int:
    """Return how many contrasts of a race hold together with 95 %; 1: each alone."""
    return int(protocol.get("family") or 1)


def splits(protocol: Mapping[str, Any]) -> float:
    """Return by what the 5 % of an interval of a race are divided; before there was `parts`, by its looks."""
    return float(protocol.get("splits") or max(1, len(protocol.get("looks") or [])))


def left(race: Comparison) -> float:
    """Return what each contrast may still err by, all looks of the race and of those before it taken off.

    Its end counts as a look, wherever it came.
    """
    protocol, made = race.protocol, len(race.facts.get("generations") or ())
    looks = {look for look in protocol.get("looks") or () if protocol.get("made", 0) < look <= made}
    spent = protocol.get("spent", 0.0) + len(looks | {made}) * (1 - CONFIDENCE) / splits(protocol)
    return float((1 - CONFIDENCE) / family(protocol) - spent)


def record_of(race: Comparison, trials: Sequence[Trial]) -> RaceRecord:
    """Return the raw record of a race.

    Args:
        race: that `check` let pass.
        trials: of all its contestants, in their order, with their samples.
    """
    result = race.facts
    ids = [trial.id for trial in trials]
    record = RaceRecord(ran=[_ran(trial) for trial in trials])
    record.blocks = sorted(
        (block for index, trial in enumerate(trials) for block in _blocks(index, trial)),
        key=lambda block: (block.round, block.position),
    )
    record.orders = [[ids.index(one) for one in order] for order in result["orders"]]
    record.generations = [_generation(one, ids) for one in result["generations"]]
    return record


def _ran(trial: Trial) -> Ran:
    load: Any = {"batch_size": trial.facts["batch_size"]}  # all that a race takes from it
    return Ran(load=load)


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
        )
        for one, end in zip(blocks, ends, strict=True)
    ]


def _generation(one: Mapping[str, Any], ids: Sequence[str]) -> Generation:
    def key(process: str) -> Key:
        trial, _, copy = process.partition("/")
        return ids.index(trial), int(copy or 0)

    return Generation(
        number=one["generation"],
        order=[key(process) for process in one["order"]],
        layouts={key(process): layout for process, layout in one["layouts"].items()},
        start_s=one["start_s"],
        rounds=one["rounds"],
    )
