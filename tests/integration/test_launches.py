"""Comparisons: the record, frozen processes, the order of blocks, and the end.

Real workers run only where they are needed; the others run by the same rules on a simulated clock.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from core import wire
from core.evidence import stopping
from core.evidence.record import Key, RawComparison
from core.process.contestant_workers import Workers
from core.process.job_worker import Progress
from core.run import launches as launches
from core.run.launches import blocks, processes
from core.spec.effort import Effort
from core.wire.errors import TunerError, WorkerError
from tests import simulated_clock, tiny_models
from tests.real_comparisons import (
    Asked,
    Field,
    Watch,
    check_record,
    evidence_of,
    measured_launches,
    nobody_is_left,
    round_keys,
    run,
    runs_of,
    settings,
)
from tests.simulated_clock import Model


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.fixture(autouse=True)
def nothing_is_left(watch: Watch) -> Iterator[None]:
    """No process of a comparison outlives it, stopped or not."""
    yield
    nobody_is_left(watch.pids)


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Field:
    return Field(tiny_models.conv(tmp_path_factory.mktemp("race") / "conv.onnx"))


@pytest.fixture
def clock() -> Iterator[simulated_clock.Clock]:
    """Comparisons of this test have no processes."""
    with simulated_clock.machine(lost_in_nowhere) as found:
        yield found


def lost_in_nowhere(label: str, plan: Mapping[str, Any]) -> Model:
    return Model(load_error="" if Path(plan["model_path"]).exists() else "No such file.")


@dataclass(frozen=True)
class Told:
    """A finished comparison, and its progress messages."""

    record: RawComparison
    live: list[dict[str, Any]]
    progress: list[Progress]


@pytest.fixture(scope="module")
def told(field: Field) -> Told:
    """The default, another optimization with more shapes, and a larger batch, to the last analysis."""
    entries = [
        field.entry(),
        field.entry("basic", graph_optimization_level="ORT_ENABLE_BASIC", shapes=True),
        field.entry("rows", batch_size=4),
    ]
    never = Effort(name="quick", target=1e-9, budget_s=600, looks=(2,))
    live: list[dict[str, Any]] = []
    progress: list[Progress] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launches, "REPORT_S", 0.0)
        asked = settings(effort=never, budget_s=120.0)
        record = run(entries, asked, on_live=live.append, on_progress=progress.append)
    return Told(record, live, progress)


class TestRecord:
    def test_it_holds_every_block_of_everybody_in_interleaved_rounds(self, told: Told) -> None:
        record = told.record
        check_record(record)
        assert [ran.error for ran in record.ran] == [None] * 3
        assert all(one.rounds > 0 for one in record.generations)
        everybody = [(0, 0), (0, 1), (1, 0), (2, 0)]
        assert all(sorted(keys) == everybody for keys in round_keys(record).values())
        assert [block.position for block in record.blocks] == [0, 1, 2, 3] * len(record.orders)
        assert all(len(block.latencies_s) >= blocks.RUNS_PER_BLOCK for block in record.blocks)
        assert all(block.refill_s is not None and block.refill_s > 0 for block in record.blocks)
        assert record.blocks[0].at_s == 0.0
        assert record.frozen
        assert record.wall_s >= record.blocks[-1].at_s + sum(one.start_s for one in record.generations[:1])

    def test_cost_memory_outputs_and_new_shapes_are_found_apart(self, told: Told) -> None:
        for ran in told.record.ran:
            assert ran.load is not None
            assert ran.warm is not None
            assert ran.cost is not None
            assert ran.footprint is not None
            assert ran.cost["cpu_s_per_run"] > 0
            assert ran.footprint["run_peak_rss_bytes"] >= ran.load_peak_rss_bytes > 0
            assert ran.output_error is not None
            assert ran.output_error["max_rel"] is not None
            assert ran.output_error["max_rel"] < 1e-4
        assert [shape["batch_size"] for shape in told.record.ran[1].shapes] == [7]

    def test_it_ends_at_its_last_interim_analysis(self, told: Told) -> None:
        assert len(told.record.generations) == 2
        assert told.record.outcome in ("rounds", "decided")

    def test_live_reports_tell_rounds_generations_and_intervals(self, told: Told) -> None:
        live, record = told.live, told.record
        assert [one["rounds"] for one in live] == sorted(one["rounds"] for one in live)
        assert {one["generation"] for one in live} == set(range(1, len(record.generations) + 1))
        assert all(one["predicted_rounds"] >= one["rounds"] for one in live)
        assert all(a["elapsed_s"] <= b["elapsed_s"] for a, b in itertools.pairwise(live))
        last = live[-1]
        names = [(one["candidate"], one["baseline"], one["label"]) for one in last["contrasts"]]
        assert names == [(1, 0, "basic"), (2, 0, "rows")]
        assert all(one["ratio"] is None for one in last["contrasts"]), "of two generations no ratio is told"
        assert set(last["p50_s"]) == {0, 1, 2}
        own = sorted(one for b in record.blocks if b.contestant == 2 for one in b.latencies_s)
        assert own[0] <= last["p50_s"][2] <= own[-1], "seconds of a run, not of a row"

    def test_progress_tells_who_is_started_and_later_who_is_started_anew(self, told: Told) -> None:
        loads = [one for one in told.progress if one.stage == "load"]
        assert sorted(one.text for one in loads) == ["basic", "default", "default", "rows"]
        assert [(one.done, one.total) for one in loads] == [(0, 4), (1, 4), (2, 4), (3, 4)]
        anew = {one.text for one in told.progress if one.text.startswith("restarting ")}
        assert anew == {"restarting default", "restarting basic", "restarting rows"}
        rounds = [one for one in told.progress if one.stage == "rounds"]
        assert all(0 <= one.done <= one.total for one in rounds)
        assert [one.done for one in rounds] == sorted(one.done for one in rounds)

    def test_the_order_is_drawn_anew_and_follows_the_seed(
        self, field: Field, clock: simulated_clock.Clock
    ) -> None:
        first, again, other = (run(field.pair(), settings(seed=seed, runs=80)) for seed in (1, 1, 2))
        assert first.orders == again.orders
        assert first.orders != other.orders
        assert len(set(map(tuple, first.orders))) > 1
        for one, two in zip(first.generations, again.generations, strict=True):
            assert (one.order, one.layouts) == (two.order, two.layouts)

    def test_one_configuration_alone_is_compared_with_its_aa_control(
        self, field: Field, clock: simulated_clock.Clock
    ) -> None:
        record = run([field.entry()])
        check_record(record)
        assert set(map(tuple, map(sorted, round_keys(record).values()))) == {((0, 0), (0, 1))}
        assert record.groups == [[0]]
        assert evidence_of(record, settings(), [field.entry()]).aa is not None

    def test_the_baseline_and_the_ort_default_may_be_two(
        self, field: Field, clock: simulated_clock.Clock
    ) -> None:
        three = [field.entry("candidate", intra_op_num_threads=1), field.entry("base"), field.entry("anchor")]
        record = run(three, settings(baseline=1, anchor=2, runs=40))
        check_record(record)
        assert {tuple(sorted(keys)) for keys in round_keys(record).values()} == {
            ((0, 0), (1, 0), (2, 0), (2, 1))
        }
        assert [runs_of(record, index) for index in range(3)] == [40, 40, 40]


@pytest.mark.parametrize(
    ("median_s", "runs", "refill"), [(1e-4, 10, True), (0.02, 5, True), (0.099, 2, True), (0.2, 1, False)]
)
def test_a_block_has_ten_runs_and_fewer_of_long_ones(median_s: float, runs: int, refill: bool) -> None:
    found = blocks.pace(median_s * 1e9)
    assert (found.min_runs, found.refill) == (runs, refill)
    assert found.expected_s >= (runs + refill) * median_s
    assert found.block_ns == (blocks.BLOCK_NS if refill else 0)


class TestExactRuns:
    @pytest.mark.parametrize("runs", [1, 2, 33, 80])
    def test_every_process_has_exactly_so_many_in_blocks_of_one_length(
        self, field: Field, clock: simulated_clock.Clock, runs: int
    ) -> None:
        """A shorter block of the twins would make them slower: its first runs are all that it has."""
        three = [*field.pair(), field.entry("basic", graph_optimization_level="ORT_ENABLE_BASIC")]
        record = run(three, settings(runs=runs, anchor=2))
        check_record(record)
        made: Counter[tuple[int, int]] = Counter()
        lengths: dict[int, set[int]] = defaultdict(set)
        for block in record.blocks:
            made[block.contestant, block.copy] += len(block.latencies_s)
            lengths[block.round].add(len(block.latencies_s))
        assert set(made.values()) == {runs}
        assert set(made) == {(0, 0), (1, 0), (2, 0), (2, 1)}
        assert all(len(one) == 1 for one in lengths.values())
        assert record.outcome == "rounds"

    def test_they_are_spread_over_generations(
        self, field: Field, clock: simulated_clock.Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(launches, "REPORT_S", 0.0)
        monkeypatch.setattr(launches, "EXACT_LAUNCHES", 4)
        told: list[Progress] = []
        record = run(field.pair(), settings(runs=80), on_progress=told.append)
        assert {one.total for one in told if one.stage == "rounds"} == {8}
        assert [one.rounds for one in record.generations] == [2, 2, 2, 2]
        dear = [replace(one, fresh_process=True) for one in field.pair()]
        record = run(dear, settings(runs=80))
        assert [one.rounds for one in record.generations] == [4] * launches.EXACT_LAUNCHES_DEAR
        assert [runs_of(record, index) for index in (0, 1)] == [80, 80]

    def test_a_round_that_does_not_count_is_made_again(
        self, field: Field, clock: simulated_clock.Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asleep = "the machine was suspended"

        def sometimes(block: Any) -> str:
            return asleep if block.round in (2, 5) else ""

        monkeypatch.setattr(launches, "void_reason", sometimes)
        record = run(field.pair(), settings(runs=83))
        check_record(record)
        assert [one.reason for one in record.discarded] == [asleep] * 2
        assert [{block.round for block in one.blocks} for one in record.discarded] == [{2}, {5}]
        assert not {2, 5} & {block.round for block in record.blocks}
        assert len(record.orders) == 8
        assert [runs_of(record, index) for index in (0, 1)] == [83, 83]


class TestReferences:
    def test_each_is_compared_with_what_is_right_by_one_worker_for_all_who_are_fed_the_same(
        self, field: Field, watch: Watch, tmp_path: Path
    ) -> None:
        lost = field.entry("lost")
        assert lost.reference is not None
        lost.reference.plan["model_path"] = "/nowhere.onnx"
        entries = [
            *field.pair(),
            field.entry("more rows", batch_size=3),
            field.entry("another model", path=tiny_models.conv(tmp_path / "other.onnx", seed=9)),
            lost,
            replace(field.entry("none"), reference=None),
        ]
        record = run(entries, settings(runs=20))
        assert watch.started.count("the reference of conv") == 3  # of one sample, of three, and the lost one
        right, also, rows, wrong, unknown, nothing = (ran.output_error for ran in record.ran)
        assert [ran.error for ran in record.ran] == [None] * 6
        for one, fed in ((right, 1), (also, 1), (rows, 3), (wrong, 1)):
            assert one is not None
            assert (one["difference"], one["rows"]) == ("", fed)
        assert right is not None
        assert wrong is not None
        assert right["max_rel"] < 1e-4 < 1e-2 < wrong["max_rel"]
        assert wrong["mean_abs"] > 0
        assert unknown is None
        assert nothing is None
        assert record.ran[4].not_compared in record.ran[4].notes
        assert [bool(ran.not_compared) for ran in record.ran] == [False] * 4 + [True, False]

    def test_a_reference_that_is_killed_costs_a_note_for_each(self, field: Field, watch: Watch) -> None:
        def kill(asked: Asked) -> None:
            if asked.command == "compare_outputs":
                os.kill(asked.worker.pid, signal.SIGKILL)

        watch.before = kill
        record = run([field.entry(), field.entry("same")], settings(runs=20))
        assert all("SIGKILL" in ran.not_compared for ran in record.ran)
        assert all(ran.error is None for ran in record.ran)


class TestStop:
    def test_whoever_is_settled_leaves_and_its_costs_are_known(
        self, field: Field, clock: simulated_clock.Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            stopping.InterimResult,
            "still_open",
            lambda self, active, generations, *_: [one for one in active if one != 2 or generations < 2],
        )
        three = Effort(name="quick", target=1e-9, budget_s=600, looks=(3,))
        entries = [field.entry(), field.entry("same"), field.entry("settled")]
        record = run(entries, settings(effort=three, budget_s=120.0))
        check_record(record)
        assert measured_launches(record, 0) == measured_launches(record, 1) == [0, 1, 2]
        assert measured_launches(record, 2) == [0, 1]
        assert record.ran[2].cost is not None
        assert record.ran[2].output_error is not None


class TestFreezing:
    def test_only_one_worker_ever_runs(self, field: Field, watch: Watch) -> None:
        """While one process measures a block, every other one is stopped."""
        stopped: list[list[bool]] = []

        def look(asked: Asked) -> None:
            if asked.command == "block" and watch.launch_processes is not None:
                others = [one.pid for one in watch.launch_processes.live.values() if one is not asked.worker]
                stopped.append([psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in others])

        watch.before = look
        for _ in range(3):  # on a busy machine a process may not stop in time, which the record says
            stopped.clear()
            record = run([*field.pair(), field.entry("same")], settings(runs=40))
            assert stopped
            assert all(len(others) == 3 for others in stopped)  # two configurations, and the A/A control
            if record.frozen:
                break
        assert record.frozen
        assert all(all(others) for others in stopped)

    def test_a_worker_that_cannot_be_frozen_is_said(
        self, field: Field, clock: simulated_clock.Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(simulated_clock.Worker, "freeze", lambda self: False)
        monkeypatch.setattr(blocks, "SETTLE_S", 0.0)
        record = run([field.entry(), field.entry("same")], settings(runs=20))
        assert not record.frozen
        assert [runs_of(record, index) for index in (0, 1)] == [20, 20]

    def test_a_frozen_worker_can_be_killed(self, field: Field) -> None:
        with Workers(threading.Event()) as workers:
            worker = workers.start("one")
            worker.ask(wire.LOAD, field.entry().plan, timeout_s=60)
            assert worker.freeze()
            worker.kill()
            assert not psutil.pid_exists(worker.pid)


class TestFailures:
    def test_a_configuration_that_cannot_load_is_out_and_the_others_continue(self, field: Field) -> None:
        broken = field.entry("broken", path=Path("/nowhere.onnx"))
        record = run([field.entry(), broken, field.entry("same")], settings(runs=40))
        check_record(record)
        assert isinstance(record.ran[1].error, TunerError)
        assert set(map(tuple, map(sorted, record.orders))) == {(0, 0, 2)}

    def test_where_the_ort_default_cannot_load_the_others_are_compared_without_an_aa_test(
        self, field: Field, clock: simulated_clock.Clock, watch: Watch
    ) -> None:
        broken = field.entry("anchor", path=Path("/nowhere.onnx"))
        entries = [*field.pair(), broken]
        asked = settings(runs=40, baseline=0, anchor=2)
        record = run(entries, asked)
        check_record(record)
        assert set(map(tuple, map(sorted, record.orders))) == {(0, 1)}
        assert watch.started.count("anchor") <= 2, "it is not tried again in every generation"
        found = evidence_of(record, asked, entries)
        assert found.aa is None
        assert found.grade.grade != "F"  # how fine the answer is, is the machine's affair
        assert [(one["candidate"], one["baseline"]) for one in found.contrasts] == [("1", "0")]

    @pytest.mark.parametrize("seed", [1, 2, 3, 4])
    def test_a_failed_configuration_is_not_started_once_more_as_its_aa_control(
        self, field: Field, clock: simulated_clock.Clock, monkeypatch: pytest.MonkeyPatch, seed: int
    ) -> None:
        keys: list[Key] = []
        start = processes.LaunchProcesses._start

        def begin(self: processes.LaunchProcesses, key: Key, *given: Any) -> None:
            keys.append(key)
            start(self, key, *given)

        monkeypatch.setattr(processes.LaunchProcesses, "_start", begin)
        entries = [field.entry("anchor", path=Path("/nowhere.onnx")), field.entry("candidate")]
        record = run(entries, settings(runs=8, seed=seed))
        assert record.ran[0].error is not None
        anchors = [key for key in keys if key[0] == 0]
        assert anchors[-1] == (0, 0), "the twin was started after the anchor had failed"

    def test_where_nobody_can_load_there_is_an_error_for_each(
        self, field: Field, clock: simulated_clock.Clock
    ) -> None:
        nowhere = [field.entry(name, path=Path(f"/{name}.onnx")) for name in ("a", "b")]
        record = run(nowhere, settings(runs=40))
        assert all(isinstance(ran.error, TunerError) for ran in record.ran)
        assert record.blocks == record.orders == []

    @pytest.mark.parametrize("alone", [True, False])
    def test_where_everybody_dies_in_the_first_round_nothing_counts(
        self, field: Field, clock: simulated_clock.Clock, watch: Watch, alone: bool
    ) -> None:
        def kill(asked: Asked) -> None:
            if asked.command == "block":
                raise WorkerError("It was killed.")

        watch.before = kill
        entries = [field.entry()] if alone else field.pair()
        asked = settings(runs=40)
        record = run(entries, asked)
        assert all(ran.error is not None for ran in record.ran)
        assert record.blocks == []
        assert record.orders == [], "a round in which nobody ran is no round"

    def test_a_machine_that_is_always_disturbed_ends_the_comparison(
        self, field: Field, clock: simulated_clock.Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(launches, "void_reason", lambda block: "the machine was suspended")
        monkeypatch.setattr(launches, "DISCARD_PAUSE_S", 0.0)
        record = run([field.entry(), field.entry("same")])
        assert record.outcome == "disturbed"
        assert record.blocks == []
        assert len(record.discarded) == launches.MAX_DISCARDED + 1


class TestMany:
    def test_eight_configurations_are_measured_in_the_same_rounds(
        self, field: Field, clock: simulated_clock.Clock
    ) -> None:
        entries = [field.entry(f"batch {n}", batch_size=n) for n in range(1, 9)]
        record = run(entries, settings(runs=24))
        check_record(record)
        everybody = sorted([(index, 0) for index in range(8)] + [(0, 1)])
        assert all(sorted(keys) == everybody for keys in round_keys(record).values())
        assert [runs_of(record, index) for index in range(8)] == [24] * 8
        assert [ran.error for ran in record.ran] == [None] * 8
        assert len({one.order[0] for one in record.generations}) > 1, "the same one is always first"

    def test_fresh_processes_are_compared_with_forked_ones_and_are_no_background_load(
        self, field: Field, watch: Watch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owned: list[set[int]] = []
        between = launches.between

        def remember(*given: Any, own: set[int], **named: Any) -> Any:
            owned.append(set(own))
            return between(*given, own=own, **named)

        monkeypatch.setattr(launches, "between", remember)
        parents: dict[str, set[int]] = {}

        def look(asked: Asked) -> None:
            if asked.command == "warm":
                label, pid = asked.worker.label, asked.worker.pid
                parents.setdefault(label, set()).add(psutil.Process(pid).ppid())

        watch.before = look
        entries = [field.entry("forked"), field.entry("fresh", fresh_process=True)]
        record = run(entries, settings(runs=40))
        check_record(record)
        assert [ran.error for ran in record.ran] == [None, None]
        assert parents["fresh"] == {os.getpid()}
        (server,) = parents["forked"]
        assert server != os.getpid()
        assert record.other_processes is not None
        (pids,) = owned
        measured = {pid for processes in watch.processes for pid in processes.values()}
        assert measured < pids, "the fork server and the passes after the race belong to it, too"
        fresh = [one[1, 0] for one in watch.processes]
        assert len(set(fresh)) == len(record.generations) == launches.EXACT_LAUNCHES_DEAR


class TestShortMemory:
    def test_more_than_memory_holds_is_compared_in_groups_with_the_ort_default(
        self, field: Field, clock: simulated_clock.Clock
    ) -> None:
        clock.memory_bytes = lambda: 0
        four = [*field.pair(), field.entry("b"), field.entry("c", batch_size=2)]
        record = run(four, settings(runs=24))
        check_record(record)
        assert sorted(record.groups) == [[0, 1], [0, 2], [0, 3]]
        assert {tuple(sorted(order)) for order in record.orders} == {(0, 0, 1), (0, 0, 2), (0, 0, 3)}
        assert all(ran.error is None for ran in record.ran)
        assert [runs_of(record, index) for index in (1, 2, 3)] == [24] * 3
        assert (
            not set(measured_launches(record, 1))
            & set(measured_launches(record, 2))
            & set(measured_launches(record, 3))
        )

    def test_each_group_has_the_generations_that_its_answer_takes(
        self, field: Field, clock: simulated_clock.Clock
    ) -> None:
        """The interim analyses of the group before do not count for these."""
        clock.memory_bytes = lambda: 0
        two = Effort(name="quick", target=1e-9, budget_s=600, looks=(2, 3))
        three = [*field.pair(), field.entry("b")]
        record = run(three, settings(effort=two, budget_s=240.0))
        check_record(record)
        assert sorted(record.groups) == [[0, 1], [0, 2]]
        assert [len(measured_launches(record, index)) for index in (1, 2)] == [3, 3]

    def test_memory_that_is_short_for_a_while_costs_a_configuration_launches_and_nothing_else(
        self, field: Field, clock: simulated_clock.Clock, watch: Watch
    ) -> None:
        clock.memory_bytes = lambda: 0 if 1 <= len(watch.processes) - 1 <= 2 else 1 << 60
        four = Effort(name="quick", target=1e-9, budget_s=600, looks=(4,))
        entries = [*field.pair(), field.entry("b")]
        asked = settings(effort=four, budget_s=240.0)
        record = run(entries, asked)
        check_record(record)
        assert record.groups == [[0, 1, 2]]
        assert measured_launches(record, 0) == [0, 1, 2, 3]
        left = [{0, 1, 2, 3} - set(measured_launches(record, index)) for index in (1, 2)]
        assert left[0] | left[1] == {1, 2}
        assert not left[0] & left[1]
        assert all(ran.error is None for ran in record.ran)
        found = evidence_of(record, asked, entries)
        assert {one["candidate"]: one["generations"] for one in found.contrasts} == {
            str(index): len(measured_launches(record, index)) for index in (1, 2)
        }
