"""Real streams: threads of one session and processes with their CPUs, their outputs, and their ends."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil
import pytest
from onnx import helper

from core import wire
from core.evidence.record import RawComparison
from core.evidence.speedup_interval import contrast
from core.process.contestant_workers import Worker, Workers
from core.spec.effort import Effort
from core.wire.errors import Cancelled, SpecError, TunerError, WorkerError
from core.worker.measure import contestant as module
from core.worker.measure import output_comparison
from tests import tiny_models
from tests.integration.test_contestant import contestant_plan
from tests.real_comparisons import (
    Asked,
    Field,
    Watch,
    check_record,
    evidence_of,
    nobody_is_left,
    run,
    settings,
)
from tests.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="affinity and process groups of Linux")

TYPES = ["threads", "processes"]
BLOCK = {"block_ns": 2_000_000, "min_runs": 3, "max_runs": 1000, "refill": True}
two_cpus = pytest.mark.skipif(
    len(getattr(os, "sched_getaffinity", lambda _: [0])(0)) < 2, reason="each process needs a CPU"
)


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(threading.Event()) as found:
        yield found
    nobody_is_left(found.pids)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def start(workers: Workers, model: Path, count: int, kind: str, **changes: Any) -> tuple[Worker, Any]:
    worker = workers.start(f"{count} {kind}")
    plan = contestant_plan(model, **changes) | {"streams": count, "stream_type": kind, "layout_seed": 3}
    return worker, worker.ask(wire.LOAD, plan, timeout_s=WAIT_S)


def group(worker: Worker) -> list[psutil.Process]:
    """The living processes of a configuration, the first stream first."""
    found = []
    for one in psutil.process_iter():
        try:
            if os.getpgid(one.pid) == worker.pid and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
        except (ProcessLookupError, psutil.Error):
            continue
    return sorted(found, key=lambda one: one.pid != worker.pid)


def counted_block(worker: Worker, *, refill: bool) -> Any:
    """A block that counts: on a busy machine streams may run one after the other, without a window."""
    replies: list[Any] = []

    def counts() -> bool:
        worker.freeze()
        replies.append(worker.ask(wire.BLOCK, BLOCK | {"refill": refill}, timeout_s=WAIT_S))
        return sum(replies[-1]["stream_completed"]) > 0

    wait_until(counts, "no block had a window in which all streams ran")
    return replies[-1]


@two_cpus
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_every_stream_runs_in_the_common_window(
    tmp_path: Path, workers: Workers, kind: str, bound: bool
) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    worker, load = start(workers, model, 2, kind, batch=4, use_io_binding=bound)
    assert load["batch_size"] == 4
    assert load["stream_threads"] == ([1, 1] if kind == "processes" and len(load["affinity"]) == 2 else [])
    warm = worker.ask(wire.WARM, {"known_ns": None, "cap_s": 1.0}, timeout_s=WAIT_S)
    assert warm["median_ns"] > 0
    for refill in (True, False):
        reply = counted_block(worker, refill=refill)
        assert len(reply["stream_runs"]) == len(reply["stream_completed"]) == 2
        assert sum(reply["stream_runs"]) == len(reply["latencies_ns"])
        assert min(reply["stream_runs"]) >= 3
        pairs = zip(reply["stream_completed"], reply["stream_runs"], strict=True)
        assert all(0 <= inside <= runs for inside, runs in pairs)
        assert sum(reply["stream_completed"]) > 0
        assert reply["window_s"] > 0
        assert len(reply["stream_refills_ns"]) == 2 * refill
        assert (reply["refill_ns"] is not None) is refill
        assert reply["counters"]["cpu_s"] > 0
    cost = worker.ask(wire.COST, {"seconds": 0.01, "window_s": 0.01}, timeout_s=WAIT_S)
    assert cost["cpu_s_per_run"] > 0
    assert worker.ask(wire.FOOTPRINT, {"runs": 2}, timeout_s=WAIT_S)["run_peak_rss_bytes"] >= 0


@two_cpus
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_streams_give_the_outputs_of_one_caller(
    tmp_path: Path, workers: Workers, kind: str, bound: bool
) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    alone = workers.start("alone")
    alone.ask(wire.LOAD, contestant_plan(model, batch=4), timeout_s=WAIT_S)
    several, _ = start(workers, model, 2, kind, batch=4, use_io_binding=bound)
    for worker, name in ((alone, "alone.npz"), (several, "several.npz")):
        worker.ask(wire.SAVE_OUTPUTS, {"path": str(tmp_path / name)}, timeout_s=WAIT_S)
    one, other = (output_comparison.load(str(tmp_path / name)) for name in ("alone.npz", "several.npz"))
    assert one.keys() == other.keys() == {"y"}
    np.testing.assert_array_equal(one["y"], other["y"])
    error = alone.ask(wire.COMPARE_OUTPUTS, {"path": str(tmp_path / "several.npz")}, timeout_s=WAIT_S)
    assert error["max_abs"] == 0
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == ["alone.npz", "several.npz"]


def random_numbers(path: Path) -> Path:
    """x times random numbers, which differ from run to run."""
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"], "random"),
        helper.make_node("Mul", ["x", "r"], ["y"], "mul"),
    ]
    ends = [tiny_models.value("x", [4, 3])], [tiny_models.value("y", [4, 3])]
    return tiny_models.save(path, nodes, *ends, [])


def test_the_outputs_of_a_stream_that_differs_are_the_ones_that_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contestant = module.Contestant()
    monkeypatch.setattr(module.limits, "cap_memory", lambda *_: None)
    contestant.load(contestant_plan(random_numbers(tmp_path / "m.onnx")) | {"streams": 2})
    seen: list[Any] = []

    def one_after_another(calls: Sequence[Any]) -> list[Any]:
        seen.extend(call() for call in calls)
        return seen

    monkeypatch.setattr(module, "call_together", one_after_another)
    contestant.save_outputs(path=str(tmp_path / "out.npz"))
    saved = output_comparison.load(str(tmp_path / "out.npz"))["y"]
    gc.enable()
    gc.unfreeze()
    assert not np.array_equal(seen[0][0], seen[1][0])
    np.testing.assert_array_equal(saved, seen[1][0])


@two_cpus
def test_processes_have_disjoint_cpus_one_group_and_no_end_of_their_own(
    tmp_path: Path, workers: Workers
) -> None:
    worker, load = start(workers, tiny_models.mlp(tmp_path / "m.onnx"), 2, "processes")
    processes = group(worker)
    assert [one.pid for one in processes] == [worker.pid, processes[-1].pid]
    assert len(processes) == 2
    shares = [os.sched_getaffinity(one.pid) for one in processes]
    assert not shares[0] & shares[1]
    assert sorted(shares[0] | shares[1]) == load["affinity"]
    assert worker.freeze()
    assert processes[0].status() == psutil.STATUS_STOPPED
    worker.kill()
    assert group(worker) == []
    assert not psutil.pid_exists(processes[1].pid)  # reaped, not a zombie


@two_cpus
def test_a_stream_that_dies_fails_its_configuration_with_its_number(tmp_path: Path, workers: Workers) -> None:
    worker, _ = start(workers, tiny_models.mlp(tmp_path / "m.onnx"), 2, "processes")
    _, sibling = group(worker)
    sibling.send_signal(signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"stream 2 was ended by signal SIGKILL") as caught:
        worker.ask(wire.BLOCK, BLOCK, timeout_s=WAIT_S)
    assert "threads" in caught.value.hint


@two_cpus
def test_a_stream_that_dies_within_a_block_is_noticed(tmp_path: Path, workers: Workers) -> None:
    worker, _ = start(workers, tiny_models.mlp(tmp_path / "m.onnx"), 2, "processes")
    _, sibling = group(worker)
    kill = threading.Timer(0.2, sibling.send_signal, [signal.SIGKILL])

    def run_blocks() -> None:
        while True:  # the signal may be late
            worker.ask(wire.BLOCK, BLOCK | {"block_ns": 600_000_000}, timeout_s=WAIT_S)

    kill.start()
    with pytest.raises(WorkerError, match="stream 2 was ended by signal SIGKILL"):
        run_blocks()
    kill.join()


@two_cpus
def test_the_other_streams_die_with_the_first(tmp_path: Path, workers: Workers) -> None:
    worker, _ = start(workers, tiny_models.mlp(tmp_path / "m.onnx"), 2, "processes")
    first, sibling = group(worker)
    first.send_signal(signal.SIGKILL)
    with pytest.raises(TunerError, match="SIGKILL"):
        worker.ask(wire.BLOCK, BLOCK, timeout_s=WAIT_S)
    assert not psutil.pid_exists(sibling.pid)


@two_cpus
def test_a_stream_that_cannot_load_fails_all(tmp_path: Path, workers: Workers) -> None:
    worker = workers.start("two")
    plan = contestant_plan(tiny_models.mlp(tmp_path / "m.onnx"))
    plan |= {"streams": 2, "stream_type": "processes", "model_path": str(tmp_path / "gone.onnx")}
    with pytest.raises(TunerError, match=r"gone\.onnx"):
        worker.ask(wire.LOAD, plan, timeout_s=WAIT_S)
    # The other stream ends its own command before it goes.
    wait_until(lambda: len(group(worker)) == 1, "the other stream is still there")


def test_more_processes_than_cpus_are_refused(tmp_path: Path, workers: Workers) -> None:
    with pytest.raises(SpecError, match="257 streams"):
        start(workers, tiny_models.mlp(tmp_path / "m.onnx"), 257, "processes")


@two_cpus
def test_a_comparison_of_streams_ends_with_throughput_and_nobody_left(tmp_path: Path, watch: Watch) -> None:
    field = Field(tiny_models.conv(tmp_path / "conv.onnx"))
    entries = [
        field.entry(),
        field.entry("threads", streams=2),
        field.entry("processes", streams=2, stream_type="processes"),
    ]
    asked = settings(effort=Effort(name="quick", target=1e-9, budget_s=600, looks=(2,)), budget_s=60.0)
    live: list[dict[str, Any]] = []
    record = run(entries, asked, on_live=live.append)
    check_record(record)
    assert [one.error for one in record.ran] == [None] * 3
    assert record.by_throughput
    evidence = evidence_of(record, asked, entries)
    results = [evidence.trial_result(index) for index in range(3)]
    for index, kind in ((1, "threads"), (2, "processes")):
        result = results[index]
        assert result is not None
        assert (result["streams"]["count"], result["streams"]["type"]) == (2, kind)
        assert 0 < result["streams"]["fairness"] <= 1
        assert result["guard"]["breach"] is False
        own = [one for one in record.blocks if one.contestant == index]
        assert result["runs"] == sum(sum(one.stream_runs) for one in own)
        assert result["runs"] == sum(len(one.latencies_s) for one in own)
        ratios = [one for one in evidence.contrasts if one["candidate"] == str(index)]
        assert [one["statistic"] for one in ratios] == ["throughput"]
        assert ratios[0]["ratio"] == pytest.approx(_ratio(record, index), rel=1e-6)
    assert {one["statistic"] for one in live} <= {"throughput"}
    nobody_is_left(watch.pids)


@two_cpus
def test_a_configuration_whose_stream_dies_fails_and_the_others_continue(
    tmp_path: Path, watch: Watch
) -> None:
    def kill_a_stream(asked: Asked) -> None:
        if asked.command == wire.BLOCK and asked.key == (1, 0):
            for one in group(asked.worker)[1:]:
                one.send_signal(signal.SIGKILL)

    watch.before = kill_a_stream
    field = Field(tiny_models.conv(tmp_path / "conv.onnx"))
    entries = [field.entry(), field.entry("two", streams=2, stream_type="processes"), field.entry("other")]
    record = run(entries, settings(budget_s=30.0))
    first, failed, other = (one.error for one in record.ran)
    assert (first, other) == (None, None)
    assert isinstance(failed, WorkerError)
    assert "stream 2" in failed.message
    assert {block.contestant for block in record.blocks} == {0, 2}
    nobody_is_left(watch.pids)


@two_cpus
def test_cancel_in_the_middle_leaves_no_stream(tmp_path: Path, watch: Watch) -> None:
    cancel = threading.Event()
    blocks: list[str] = []

    def cancel_later(asked: Asked) -> None:
        blocks.append(asked.command)
        if blocks.count(wire.BLOCK) == 5:
            cancel.set()

    watch.before = cancel_later
    field = Field(tiny_models.conv(tmp_path / "conv.onnx"))
    entries = [field.entry(), field.entry("two", streams=2, stream_type="processes")]
    try:
        record = run(entries, settings(budget_s=30.0), cancel=cancel)
        assert record.outcome == "cancelled"
    except Cancelled:
        pass
    nobody_is_left(watch.pids)


def _ratio(record: RawComparison, index: int) -> float:
    """Throughput of a configuration over that of the default, from the blocks alone."""
    logs: dict[tuple[int, int], dict[int, list[float]]] = {}
    for one in record.blocks:
        assert one.window_s is not None
        runs = math.fsum(one.stream_completed) or len(one.latencies_s)
        by_index = logs.setdefault((one.generation, one.round), {})
        by_index.setdefault(one.contestant, []).append(math.log(one.window_s / runs))
    by_launch: dict[int, list[float]] = {}
    for (launch, _), own in logs.items():
        by_launch.setdefault(launch, []).append(fmean(own[0]) - fmean(own[index]))
    return contrast(list(by_launch.values()), looks=1, margin=0.02).ratio
