"""A budget is the wall time of a race, and buys a p50 of a slow model or a refusal: with real workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.evidence.record import Entry, RaceRecord
from core.run.race import blocks, passes, schedule
from core.run.race.schedule import GRACE_S, P50_RUNS
from core.spec.effort import Effort
from core.wire.errors import BudgetError
from tests import tiny_models
from tests.command_line import CommandLine
from tests.real_races import (
    ENDLESS,
    ROWS,
    Field,
    Watch,
    check_record,
    evidence_of,
    nobody_is_left,
    raced,
    run,
    runs_of,
    settings,
    slow_model,
)

RUN_S = 0.05  # of the slow model, on one thread
LONG_S = 0.02  # from here on the rules call a run long in these tests
REFUSED_GRACE_S = 0.25
TOO_LITTLE_S = 0.01
ATTEMPTS = 5  # another program may take the CPU in the middle of one


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.fixture(autouse=True)
def nothing_is_left(watch: Watch) -> Iterator[None]:
    yield
    nobody_is_left(watch.pids)


@pytest.fixture(autouse=True, scope="module")
def seconds_are_short(short_races: None) -> Iterator[None]:
    """A run is called slow early, so that a race of slow models is over in seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "LONG_RUN_S", LONG_S)
        patch.setattr(blocks, "LONG_BLOCK_S", LONG_S)
        patch.setattr(passes, "SLOW_RUN_S", LONG_S)
        patch.setattr(schedule, "GRACE_S", REFUSED_GRACE_S)
        yield


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Field:
    return Field(slow_model(tmp_path_factory.mktemp("budget") / "slow.onnx", RUN_S))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Field:
    return Field(tiny_models.conv(tmp_path_factory.mktemp("budget") / "conv.onnx"))


def duel(slow: Field) -> list[Entry]:
    given = {"batch_size": ROWS, "warmup_runs": None, "intra_op_num_threads": 1}
    return [
        slow.entry(**given),
        slow.entry("basic", **given, graph_optimization_level="ORT_ENABLE_BASIC"),
    ]


def promised_s(budget_s: float) -> float:
    """A budget, and by what it may be overrun: a tenth and a second."""
    return 1.1 * budget_s + GRACE_S


def within(entries: list[Entry], budget_s: float, *, generations: int = 1) -> RaceRecord:
    """A race that kept its budget and had so many generations; on a busy machine, where runs and starts take
    longer, one of a few, each with twice the budget of the last.
    """
    for _ in range(ATTEMPTS):
        asked = settings(effort=ENDLESS, budget_s=budget_s)
        try:
            record = run(entries, asked)
        except BudgetError:  # runs are as long as others let them be
            budget_s *= 2
            continue
        if record.wall_s <= promised_s(budget_s) and len(record.generations) >= generations:
            return record
        budget_s *= 2
    raise AssertionError(
        f"{len(record.generations)} generations took {record.wall_s:.1f} s of {budget_s / 2:g} s"
    )


def p50_of(record: RaceRecord, entries: list[Entry]) -> list[float | None]:
    found = evidence_of(record, settings(effort=ENDLESS), entries)
    results = [found.trial_result(index) for index in range(len(entries))]
    return [None if one is None else one["latency"]["p50_s"] for one in results]


# --- slow models --------------------------------------------------------------------------------------------


def test_a_slow_model_has_a_p50_within_a_small_budget(slow: Field, watch: Watch) -> None:
    entries = duel(slow)
    record = within(entries, 60 * RUN_S)
    check_record(record)
    assert record.outcome == "budget"
    assert [ran.error for ran in record.ran] == [None, None]
    assert min(runs_of(record, index) for index in (0, 1)) >= P50_RUNS
    assert all(one is not None for one in p50_of(record, entries))
    assert all(len(block.latencies_s) == 1 for block in record.blocks), "short blocks, in turns"
    assert all(block.refill_s is None for block in record.blocks), "no run is spent on the caches"
    for ran in record.ran:  # what is found apart is found within the budget too
        assert ran.cost is not None
        assert ran.footprint is not None
        assert ran.output_error is not None
    loaded = [one for one in watch.asked if one.command == "load" and one.key is None]
    begun = 1 + max(one.generation for one in loaded)  # on a busy machine the last has no round
    assert len(loaded) == 3 * begun + 1, "memory of a slow model needs no process of its own"


def test_more_budget_buys_generations(slow: Field) -> None:
    """Of one pair of processes nothing shows what differs between processes."""
    record = within(duel(slow), 80 * RUN_S, generations=2)
    check_record(record)
    assert raced(record, 0) == raced(record, 1)
    assert min(runs_of(record, index) for index in (0, 1)) >= P50_RUNS


def test_many_contestants_share_a_budget(slow: Field) -> None:
    entries = [*duel(slow), *duel(slow)]
    record = within(entries, 80 * RUN_S)
    check_record(record)
    assert min(runs_of(record, index) for index in range(4)) >= P50_RUNS
    assert all(one is not None for one in p50_of(record, entries))


# --- a refusal ----------------------------------------------------------------------------------------------


def test_a_budget_that_cannot_give_a_p50_is_refused_and_says_how_long_it_would_take(slow: Field) -> None:
    with pytest.raises(BudgetError) as caught:
        run(duel(slow), settings(budget_s=TOO_LITTLE_S))
    started, rest = re.search(
        r"A budget of 0\.01 s is too short for a p50 of this model: starting took (\d+\.\d) s, "
        r"6 runs of each and the checks after them would take about (\d+) s\.",
        caught.value.message,
    ).groups()
    assert float(started) + float(rest) > 1.1 * TOO_LITTLE_S + REFUSED_GRACE_S
    assert float(rest) >= 3 * P50_RUNS * RUN_S / 2  # three processes; twice as fast as when it was built
    (enough,) = re.search(r"`--budget (\d+)`", caught.value.hint).groups()
    assert int(enough) >= float(started) + float(rest) - 0.5  # which is said in whole seconds
    record = within(duel(slow), float(enough))  # and it does
    assert min(runs_of(record, index) for index in (0, 1)) >= P50_RUNS


def test_nothing_is_measured_where_it_is_refused(slow: Field, watch: Watch) -> None:
    with pytest.raises(BudgetError):
        run(duel(slow), settings(budget_s=TOO_LITTLE_S))
    assert not any(one.command == "block" for one in watch.asked)
    assert len(watch.processes) == 1
    assert watch.record.blocks == []


def test_an_exact_number_of_runs_has_no_budget(slow: Field) -> None:
    record = run(duel(slow), settings(runs=2, budget_s=TOO_LITTLE_S))
    assert [runs_of(record, index) for index in (0, 1)] == [2, 2]


# --- quick models -------------------------------------------------------------------------------------------


def test_a_quick_model_uses_its_budget_and_no_more(quick: Field) -> None:
    record = within(quick.duel(), 3.0, generations=2)
    check_record(record)
    assert record.outcome == "budget"
    assert min(runs_of(record, index) for index in (0, 1)) >= P50_RUNS


def test_a_race_that_has_its_answer_does_not_use_up_its_budget(quick: Field) -> None:
    """Twins: settled at the first look, with a target that any interval meets."""
    at_once = Effort(name="quick", target=1e9, budget_s=600, looks=(2, 3))
    record = run(quick.duel(), settings(effort=at_once, budget_s=600.0))
    assert len(record.generations) <= 3
    assert record.outcome in ("decided", "rounds")


# --- the command line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("bench", "--intra-op-num-threads", "1"),
        ("bench", "--baseline", "preset:edge"),
        ("compare", "--candidate", "preset:edge"),
    ],
)
def test_on_the_command_line_a_refusal_is_exit_code_3_with_its_words(
    slow: Field, tmp_path: Path, command: tuple[str, ...]
) -> None:
    cli = CommandLine(tmp_path)
    name, *options = command
    given = ("--batch-size", str(6 * ROWS), "--budget", "1s")
    done = cli.run(name, str(slow.path), *options, *given)
    assert done.code == 3, done.err
    assert "is too short for a p50 of this model" in done.err
    assert "would take about" in done.err
    assert re.search(r"--budget \d+", done.err)
    assert "Traceback" not in done.err
    kept = cli.run("history", "--json").document["trials"]
    assert {one["state"] for one in kept} == {"FAIL"}
