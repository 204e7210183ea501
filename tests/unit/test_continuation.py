"""*Measure longer*: refusals, the remaining significance level, the record of the continued comparison."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from core.evidence import continuation
from core.evidence.comparison import Comparison, Configuration
from core.evidence.measurement import Trial
from core.evidence.record import RawComparison
from core.evidence.result import Evidence
from core.run import job_types
from core.run.comparison import protocol_of
from core.spec.effort import EFFORTS
from core.store import PRUNED
from core.wire.errors import SpecError
from tests import builders, raw_comparisons, simulated_clock
from tests.simulated_clock import Model

QUICK = EFFORTS["quick"]
ALPHA = 0.05


def finished(record: RawComparison, **protocol: Any) -> tuple[Comparison, list[Trial]]:
    """A comparison and its trials as the store returns them."""
    found = raw_comparisons.evidence(record)
    trials = [
        builders.trial(configuration.trial, comparison="c1", result=found.trial_result(index))
        for index, configuration in enumerate(found.configurations)
    ]
    return compared(found.to_dict(), [one.trial for one in found.configurations], **protocol), trials


def compared(result: dict[str, Any] | None, trials: list[str], **protocol: Any) -> Comparison:
    looks = protocol.get("looks", list(QUICK.looks))
    family = protocol.get("family", 1)
    facts = {"precision": "quick", "looks": looks, "runs": None, "margin": 0.02, "seed": 5, "family": family}
    facts["splits"] = continuation.parts(len(looks), family)
    return builders.comparison(
        dict.fromkeys(trials, "candidate"),
        protocol={**facts, "target": QUICK.target, "budget_s": 30, **protocol},
        result=result,
    )


def made(generations: int, **protocol: Any) -> Comparison:
    """A race that has made so many generations; nothing else of it matters."""
    return compared({"generations": [{"generation": n} for n in range(generations)]}, [], **protocol)


# --- what cannot be gone on with --------------------------------------------------------------------------


def test_a_finished_comparison_may_be_measured_longer() -> None:
    comparison, trials = finished(raw_comparisons.record([0.001, 0.002]))
    continuation.ensure_continuable(comparison, trials)


def test_what_cannot_go_on_says_why() -> None:
    comparison, trials = finished(raw_comparisons.record([0.001, 0.002], generations=2, rounds=2))

    def refused(comparison: Comparison, trials: list[Trial]) -> str:
        with pytest.raises(SpecError, match="cannot be measured longer") as caught:
            continuation.ensure_continuable(comparison, trials)
        assert caught.value.hint
        return caught.value.message

    result = dict(comparison.result or {})
    failed = [dataclasses.replace(trials[0], state="FAIL"), trials[1]]
    kept = {name: value for name, value in (trials[1].result or {}).items() if name != "blocks"}
    pruned = [trials[0], dataclasses.replace(trials[1], result={**kept, PRUNED: True})]
    del result["generations"]
    assert "result" in refused(dataclasses.replace(comparison, result=None), trials)
    assert "older" in refused(dataclasses.replace(comparison, result=result), trials)
    assert "fixed number" in refused(compared(comparison.result, [], runs=50), trials)
    assert "failed" in refused(comparison, failed)
    assert "raw measurements" in refused(comparison, pruned)
    assert "raw measurements" in refused(comparison, [dataclasses.replace(trials[0], result=None), trials[1]])


# --- what is left of the five percent ---------------------------------------------------------------------


def spent_by(*protocols: dict[str, Any], ends: tuple[int, ...]) -> float:
    """False-alarm rate of all interim analyses of continued comparisons, by Bonferroni; each end is one."""
    total, before = 0.0, 0
    for protocol, end in zip(protocols, ends, strict=True):
        looks = {look for look in protocol["looks"] if before < look <= end} | {end}
        total += len(looks) * ALPHA / continuation.splits(protocol) * continuation.family(protocol)
        before = end
    return total


def test_the_five_percent_of_a_comparison_are_split_over_its_interim_analyses_and_its_contrasts() -> None:
    assert continuation.parts(8) == 9  # one part is left for going on
    assert continuation.parts(8, family=4) == 36
    assert continuation.parts(0, family=4) == 4  # an exact number of runs: nobody goes on with it
    assert continuation.splits({"looks": [4, 6, 9], "splits": 11.2}) == 11.2
    assert continuation.splits({"looks": [4, 6, 9]}) == 3.0  # of an earlier version
    assert continuation.splits({"looks": []}) == 1.0
    assert continuation.family({}) == 1


def test_a_comparison_asks_for_intervals_that_hold_together_and_the_points_of_a_sweep_for_single_ones() -> (
    None
):
    specs = [builders.spec(session={"intra_op_num_threads": count}) for count in (1, 2, 3)]
    threads = [Configuration(spec=one, label="threads") for one in specs]
    several, one = (job_types.comparison(asked).comparison for asked in (threads, threads[:1]))
    assert several is not None
    assert one is not None
    assert (several.protocol["family"], several.protocol["splits"]) == (3, 27)
    assert (one.protocol["family"], one.protocol["splits"]) == (1, 9)
    baseline = Configuration(spec=specs[1], label="pinned", role="baseline")
    pinned = job_types.tune(specs[0], baseline=baseline).comparison
    assert pinned is not None
    assert len(pinned.contestants) == 3  # the default is shown against the pinned baseline, too
    assert pinned.protocol["family"] == 2
    assert job_types.sweep_protocol(threads)["splits"] == 9
    exact = builders.spec(protocol={"runs": 50}).protocol
    assert protocol_of(exact, family=3)["splits"] == 3
    assert "splits" not in protocol_of(exact, stage="heat")  # a search divides by itself


def test_a_comparison_that_ended_at_an_interim_analysis_is_measured_longer_as_if_it_had_not_ended() -> None:
    """4 and 6 were used: 2 of 9 parts. The other six analyses have a part each, and one is left."""
    protocol = continuation.protocol(made(6), "quick", None)
    assert protocol["looks"] == [4, 6, 9, 14, 21, 32, 48, 72]
    assert protocol["splits"] == pytest.approx(9.0)
    assert protocol["continues"] == "c1"
    assert (protocol["budget_s"], protocol["target"]) == (30, 0.03)


def test_an_end_between_two_interim_analyses_is_one() -> None:
    """4 and 7 were seen, and 9 is still to come: 6 analyses and one part share 7 of 9 parts... less one."""
    protocol = continuation.protocol(made(7), "quick", None)
    assert protocol["splits"] == pytest.approx(9 / (9 - 3) * 7)


def test_another_effort_has_interim_analyses_of_its_own_after_the_existing_launches() -> None:
    """Of quick's 4, 6, 9 three of nine parts are spent: six are left for seven analyses of publish, and 1."""
    protocol = continuation.protocol(made(9), "publish", 99.5)
    assert [look for look in protocol["looks"] if look > 9] == [14, 21, 32, 48, 72, 108, 160]
    assert protocol["splits"] == pytest.approx(9 / 6 * 8)
    assert (protocol["budget_s"], protocol["target"], protocol["precision"]) == (99.5, 0.007, "publish")
    assert protocol["margin"] == 0.02  # the question of the comparison stays


def test_a_comparison_that_has_used_all_interim_analyses_gets_three_more_from_the_part_that_was_left() -> (
    None
):
    protocol = continuation.protocol(made(72), "quick", None)
    assert protocol["looks"] == [*QUICK.looks, 108, 162, 243]
    assert protocol["splits"] == pytest.approx(9 * 4)


@pytest.mark.parametrize("family", [1, 8])
@pytest.mark.parametrize("then", EFFORTS)
@pytest.mark.parametrize("first", EFFORTS)
def test_wherever_a_comparison_ended_all_its_intervals_hold_together_with_95_percent(
    first: str, then: str, family: int
) -> None:
    looks = list(EFFORTS[first].looks)
    for end in range(1, looks[-1] + 1):
        comparison = made(end, looks=looks, family=family)
        protocol = continuation.protocol(comparison, then, None)
        assert protocol["family"] == family
        ahead = [look for look in protocol["looks"] if look > end]
        assert len(ahead) >= 3
        assert ahead == sorted(set(ahead))
        assert spent_by(comparison.protocol, protocol, ends=(end, ahead[-1])) < ALPHA


def test_a_comparison_measured_longer_again_and_again_still_says_95_percent() -> None:
    comparison = made(71)
    protocols, ends = [comparison.protocol], [71]
    for _ in range(6):
        protocols.append(continuation.protocol(comparison, "quick", None))
        ends.append(protocols[-1]["looks"][-1])
        comparison = made(ends[-1], **protocols[-1])
        spent = spent_by(*protocols, ends=tuple(ends))
        assert spent < ALPHA
        assert continuation.remaining_error(comparison) == pytest.approx(ALPHA - spent)


def test_a_comparison_of_an_earlier_version_that_kept_nothing_back_cannot_be_measured_longer_for_ever() -> (
    None
):
    """Its analyses had the whole 5 %: some is left if it ended early, none if it used them all."""
    early, late = (made(end, splits=None) for end in (9, 72))
    continuation.ensure_continuable(early, [])
    protocol = continuation.protocol(early, "quick", None)
    assert spent_by(early.protocol, protocol, ends=(9, 72)) < ALPHA
    with pytest.raises(SpecError, match="95 %"):
        continuation.ensure_continuable(late, [])


# --- the record -------------------------------------------------------------------------------------------


def test_the_record_that_comes_back_is_the_one_that_was_left() -> None:
    record = raw_comparisons.record([0.001, 0.002, 0.004], generations=4, rounds=5, rows=[1, 4, 2])
    back = continuation.raw_comparison(*finished(record))
    assert back.blocks == record.blocks
    assert back.orders == record.orders
    assert back.generations == record.generations
    assert [ran.load["batch_size"] for ran in back.ran if ran.load is not None] == [1, 4, 2]


def test_what_follows_from_it_is_the_same() -> None:
    record = raw_comparisons.record([0.001, 0.00103, 0.001], generations=5, between=0.01)
    back = continuation.raw_comparison(*finished(record))
    back.ran = record.ran
    one, other = raw_comparisons.evidence(record), raw_comparisons.evidence(back)
    for name in ("ratio", "ratio_low", "ratio_high", "verdict", "generations", "rounds", "sigma_between"):
        assert [a[name] for a in one.contrasts] == [b[name] for b in other.contrasts]
    assert one.aa == other.aa


def test_blocks_without_a_run_for_the_caches_come_back_as_such() -> None:
    record = raw_comparisons.record([0.2, 0.4], generations=2, rounds=3)
    record.blocks = [dataclasses.replace(one, refill_s=None) for one in record.blocks]
    assert continuation.raw_comparison(*finished(record)).blocks == record.blocks


# --- going on ---------------------------------------------------------------------------------------------

NOISY = [Model(noise=0.05, between=0.01), Model(noise=0.05, between=0.01)]


def test_more_generations_join_those_that_there_are() -> None:
    first = simulated_clock.compare(NOISY, 8.0)
    held = len(first.generations)
    comparison, trials = finished(first)
    again = simulated_clock.compare(
        NOISY, 8.0, earlier=continuation.raw_comparison(comparison, trials), seed=1
    )
    assert again.blocks[: len(first.blocks)] == first.blocks
    assert again.orders[: len(first.orders)] == first.orders
    assert [one.number for one in again.generations] == list(range(len(again.generations)))
    assert len(again.generations) > held
    rounds = [block.round for block in again.blocks]
    assert rounds == sorted(rounds)
    assert len(set(rounds)) == len(again.orders)
    at_s = [block.at_s for block in again.blocks]
    assert at_s == sorted(at_s)
    assert again.wall_s <= 1.1 * 8 + 1  # its budget is its own
    found: Evidence = raw_comparisons.evidence(again)
    assert found.contrasts[0]["generations"] == len(again.generations)
    assert found.contrasts[0]["half_width"] < raw_comparisons.evidence(first).contrasts[0]["half_width"]
    result = found.trial_result(0)
    assert result is not None
    assert result["runs"] == sum(len(one.latencies_s) for one in again.blocks if one.contestant == 0)


def test_a_record_that_was_gone_on_with_can_be_gone_on_with() -> None:
    record = simulated_clock.compare(NOISY, 8.0)
    for seed in (1, 2):
        before = len(record.generations)
        record = simulated_clock.compare(
            NOISY, 8.0, earlier=continuation.raw_comparison(*finished(record)), seed=seed
        )
        assert len(record.generations) > before
    assert continuation.raw_comparison(*finished(record)).blocks == record.blocks
