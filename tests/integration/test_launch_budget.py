"""The budget limits the wall time of a comparison: a slow model gets a p50 or is refused, with real workers.

How comparisons divide their budgets is tested on a simulated clock, in the unit tests of the budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.cli.output import EXIT_UNDECIDED
from core.evidence.record import Entry, RawComparison
from core.run.launches import blocks, budget, costs
from core.run.launches.budget import P50_RUNS
from core.spec.effort import Effort
from core.wire.errors import BudgetError
from tests import simulated_clock
from tests.command_line import CommandLine
from tests.real_comparisons import (
    ROWS,
    Field,
    Watch,
    check_record,
    evidence_of,
    measured_launches,
    nobody_is_left,
    run,
    runs_of,
    settings,
    slow_model,
)
from tests.simulated_clock import Model

RUN_S = 0.03  # of the slow model, on one thread, at least
LONG_S = RUN_S / 2.5  # from here on the rules call a run long in these tests
TOO_LITTLE_S = 0.01
TWO = Effort(name="quick", target=1e-9, budget_s=600, looks=(2,))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.fixture(autouse=True)
def nothing_is_left(watch: Watch) -> Iterator[None]:
    yield
    nobody_is_left(watch.pids)


@pytest.fixture(autouse=True, scope="module")
def seconds_are_short(short_comparisons: None) -> Iterator[None]:
    """A run is called slow early, so that a race of slow models is over in seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "LONG_RUN_S", LONG_S)
        patch.setattr(blocks, "LONG_BLOCK_S", LONG_S)
        patch.setattr(costs, "SLOW_RUN_S", LONG_S)
        patch.setattr(budget, "GRACE_S", 0.25)
        yield


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Field:
    return Field(slow_model(tmp_path_factory.mktemp("budget") / "slow.onnx", RUN_S))


def pair(slow: Field) -> list[Entry]:
    given = {"batch_size": ROWS, "warmup_runs": None, "intra_op_num_threads": 1}
    return [
        slow.entry(**given),
        slow.entry("basic", **given, graph_optimization_level="ORT_ENABLE_BASIC"),
    ]


def p50_of(record: RawComparison, entries: list[Entry], asked: Effort) -> list[float | None]:
    found = evidence_of(record, settings(effort=asked), entries)
    results = [found.trial_result(index) for index in range(len(entries))]
    return [None if one is None else one["latency"]["p50_s"] for one in results]


def test_a_slow_model_has_a_p50_of_short_blocks_in_turns(slow: Field, watch: Watch) -> None:
    entries = pair(slow)
    record = run(entries, settings(effort=TWO, budget_s=600.0))
    check_record(record)
    assert [ran.error for ran in record.ran] == [None, None]
    assert measured_launches(record, 0) == measured_launches(record, 1) == [0, 1]
    assert min(runs_of(record, index) for index in (0, 1)) >= P50_RUNS
    assert all(one is not None for one in p50_of(record, entries, TWO))
    assert all(len(block.latencies_s) == 1 for block in record.blocks)
    assert all(block.refill_s is None for block in record.blocks), "no run is spent on the caches"
    for ran in record.ran:
        assert ran.cost is not None
        assert ran.footprint is not None
        assert ran.output_error is not None
    loaded = [one for one in watch.asked if one.command == "load" and one.key is None]
    assert len(loaded) == 3 * 2 + 1, "memory of a slow model needs no process of its own"


def test_nothing_is_measured_where_a_budget_is_refused(slow: Field, watch: Watch) -> None:
    with pytest.raises(BudgetError) as caught:
        run(pair(slow), settings(budget_s=TOO_LITTLE_S))
    assert int(re.findall(r"budget of (\d+) s", caught.value.hint)[0]) > 0
    assert not any(one.command == "block" for one in watch.asked)
    assert len(watch.processes) == 1
    assert watch.record.blocks == []


def test_a_comparison_that_has_its_answer_does_not_use_up_its_budget() -> None:
    """Identical configurations: decided at the first interim analysis; any interval meets the goal."""
    at_once = Effort(name="quick", target=1e9, budget_s=600, looks=(2, 3))
    record = simulated_clock.compare([Model(), Model()], 600.0, effort=at_once)
    assert len(record.generations) <= 3
    assert record.outcome in ("decided", "rounds")


@pytest.mark.parametrize(
    "command",
    [
        ("tune", "--intra-op-num-threads", "1"),
        ("tune", "--baseline", "preset:edge"),
        ("compare", "--candidate", "preset:edge"),
    ],
)
def test_on_the_command_line_a_refusal_is_an_exit_code_and_says_the_budget(
    cli: CommandLine, square: Path, command: tuple[str, ...]
) -> None:
    name, *options = command
    with simulated_clock.machine(lambda label, plan: Model(run_s=1.0)):
        done = cli.run(name, str(square), *options, "--budget", "1s")
    assert done.code == EXIT_UNDECIDED, done.err
    assert re.search(r"budget of \d+ s", done.err)
    kept = cli.run("history", "--json").document["trials"]
    assert {one["state"] for one in kept} == {"FAIL"}
