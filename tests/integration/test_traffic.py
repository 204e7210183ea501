"""Serving a schedule: the virtual queue, dynamic batching, and workers that crash, hang or are cancelled."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.evidence.load.load_types import Arrivals, Kind, RawRun
from core.evidence.record import Entry
from core.process.contestant_workers import Workers
from core.run.load import serving
from core.run.load.serving import Schedule, Service, serve
from core.spec.load import BatchingSpec
from core.wire import traffic_record
from core.wire.errors import Cancelled, ModelError, SpecError
from core.wire.traffic_record import TrafficRecord
from core.worker.measure import traffic as module
from core.worker.measure.footprint import private_bytes
from core.worker.measure.inference import contender
from core.worker.measure.traffic import Batcher, Traffic
from tests import tiny_models
from tests.integration.test_benchmark import make_plan

MS = 1_000_000


class _Served:
    """One schedule, served in this process by a model of the tests."""

    def __init__(self, folder: Path, at_ns: Sequence[int], kinds: Sequence[int] | None = None) -> None:
        self.path = folder / "record"
        self.record = traffic_record.create(self.path, array("q", at_ns), kinds or [0] * len(at_ns))

    def run(
        self,
        model: Path,
        *,
        batches: Sequence[int] = (1,),
        call: Callable[[], object] | None = None,
        **changes: Any,
    ) -> TrafficRecord:
        """Serve all; `call` replaces the run of a request."""
        plan = self.plan(model, batches, **changes)
        traffic = Traffic(contender(contestant_plan(model, batches[0], **self.session)), plan)
        if call is not None:
            traffic._calls = [[call] * len(batches)]
        traffic.serve(module.time.monotonic_ns())
        traffic.close()
        return self.record

    session: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def plan(self, model: Path, batches: Sequence[int], **changes: Any) -> Any:
        kinds = [make_plan(model, batch=rows)["feeds"] | {"seed": seed} for seed, rows in enumerate(batches)]
        return {
            "record": str(self.path),
            "requests": self.record.requests,
            "kinds": kinds,
            "streams": 1,
            "first_stream": 0,
            "shared": False,
            "batching": None,
            "drop_ns": 0,
            "until_ns": 0,
            "spin_ns": 0,
        } | changes


def contestant_plan(model: Path, rows: int = 1, **changes: Any) -> Any:
    plan = make_plan(model, batch=rows)
    del plan["runs"]
    return {"engine": "onnxruntime", "torch": None, "cpus": []} | plan | changes


class _Clock:
    """Time that passes only while a stream sleeps, so that no other program delays a request."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """The clock of one stream."""
    one = _Clock()
    monkeypatch.setattr(module, "time", one)
    return one


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.mlp(tmp_path / "m.onnx")


def test_a_request_is_served_after_its_arrival_and_in_order(tmp_path: Path, model: Path) -> None:
    at_ns = [0, 2 * MS, 2 * MS, 30 * MS]
    record = _Served(tmp_path, at_ns).run(model)
    starts, ends = list(record.start_ns), list(record.end_ns)
    assert all(start >= at for start, at in zip(starts, at_ns, strict=True))
    assert all(end >= start for start, end in zip(starts, ends, strict=True))
    assert starts == sorted(starts)
    assert starts[2] >= ends[1]  # one stream: it waits for the request before it
    assert list(record.batch) == [0, 1, 2, 3]


def test_streams_serve_at_the_same_time_each_request_once(tmp_path: Path, model: Path) -> None:
    record = _Served(tmp_path, [0] * 400).run(model, streams=3)
    assert all(record.end_ns)
    assert set(record.stream) <= {0, 1, 2}
    assert sorted(record.batch) == list(range(400))


def test_streams_with_io_binding_have_their_own_buffers(tmp_path: Path, model: Path) -> None:
    served = _Served(tmp_path, [0] * 50)
    traffic = Traffic(
        contender(contestant_plan(model, use_io_binding=True)), served.plan(model, [1], streams=2)
    )
    assert len(traffic._calls) == 2
    traffic.serve(time.monotonic_ns())
    assert all(served.record.end_ns)


def test_a_request_that_waits_too_long_is_dropped(tmp_path: Path, model: Path, clock: _Clock) -> None:
    served = _Served(tmp_path, [200 * MS] * 40)
    record = served.run(model, call=lambda: clock.sleep(0.006), drop_ns=20 * MS)
    assert [bool(end) for end in record.end_ns] == [True] * 4 + [False] * 36  # the fifth waits for 24 ms
    assert all(record.start_ns)  # those that were dropped have the time of that


def test_no_request_starts_after_the_end_of_a_closed_loop(tmp_path: Path, model: Path, clock: _Clock) -> None:
    record = _Served(tmp_path, [0] * 1000).run(model, call=lambda: clock.sleep(0.001), until_ns=200 * MS)
    ends = [end for end in record.end_ns if end]
    assert len(ends) == 201
    assert max(start for start in record.start_ns) == 200 * MS


def test_a_stop_ends_the_run_while_it_waits(tmp_path: Path, model: Path) -> None:
    served = _Served(tmp_path, [0, 3_600_000 * MS])
    served.record.stop()
    began = time.monotonic()
    served.run(model)
    assert time.monotonic() - began < 60
    assert list(served.record.end_ns)[1] == 0


def test_a_failing_call_ends_the_run_with_its_error(tmp_path: Path) -> None:
    failing = tiny_models.fails_from_three_rows(tmp_path / "f.onnx", "memory")
    served = _Served(tmp_path, [0, 0, 0, 0], [0, 0, 1, 0])
    with pytest.raises(Exception, match=r".+"):
        served.run(failing, batches=(1, 4))
    assert served.record.stopped
    assert [bool(end) for end in served.record.end_ns][:2] == [True, True]
    assert not served.record.end_ns[2]


@pytest.mark.parametrize("batched", [False, True])
def test_processes_share_the_queue_of_a_record(tmp_path: Path, model: Path, batched: bool) -> None:
    """Two servers of one record, here threads with their own maps of it, serve each request once."""
    served = _Served(tmp_path, [0] * 300)
    changes = {"shared": True, "batching": batching() if batched else None}
    servers = [
        Traffic(contender(contestant_plan(model)), served.plan(model, [1], first_stream=number, **changes))
        for number in range(2)
    ]
    threads = [threading.Thread(target=one.serve, args=(time.monotonic_ns(),)) for one in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(served.record.end_ns)
    assert set(served.record.stream) <= {0, 1}
    assert list(served.record.batch) == sorted(served.record.batch)
    assert served.record.ticket >= 300


# --- dynamic batching ---------------------------------------------------------------------------------------


def test_batching_keeps_the_answers(model: Path) -> None:
    """Every request gets the outputs that it gets alone, in its order, whatever is joined with it."""
    kinds = [make_plan(model, batch=rows)["feeds"] | {"seed": rows} for rows in (1, 2, 3)]
    one = contender(contestant_plan(model))
    batcher = Batcher(one, kinds)
    order = [2, 0, 1, 0, 2]
    together = batcher.run(order)
    assert len(together) == len(order)
    for kind, outputs in zip(order, together, strict=True):
        alone = one.with_inputs(kinds[kind])
        expected = alone.call()
        assert isinstance(expected, list)
        for got, wanted in zip(outputs, expected, strict=True):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert not np.allclose(together[1][0], together[2][0][:1])  # the kinds have other inputs


def batching(**changes: Any) -> Any:
    return {"max_batch_size": 4, "max_delay_ns": 0, "preferred": []} | changes


def sizes(record: TrafficRecord) -> list[int]:
    """Requests of each call, in order."""
    batches = list(record.batch)
    return [batches.count(one) for one in dict.fromkeys(batches)]


def test_batches_keep_the_order_of_the_queue_and_the_largest_size(tmp_path: Path, model: Path) -> None:
    record = _Served(tmp_path, [0] * 10).run(model, batching=batching())
    assert sizes(record) == [4, 4, 2]
    assert list(record.batch) == sorted(record.batch)


def test_a_batch_waits_for_others_as_long_as_its_delay(tmp_path: Path, model: Path, clock: _Clock) -> None:
    at_ns = [0, 10 * MS, 400 * MS]
    record = _Served(tmp_path, at_ns).run(model, batching=batching(max_delay_ns=100 * MS))
    assert sizes(record) == [2, 1]
    assert record.start_ns[0] == 100 * MS  # the delay counts from the first arrival
    assert record.start_ns[0] == record.start_ns[1]


def test_without_delay_a_lone_request_starts_at_once(tmp_path: Path, model: Path, clock: _Clock) -> None:
    record = _Served(tmp_path, [0, 200 * MS]).run(model, batching=batching())
    assert sizes(record) == [1, 1]
    assert record.start_ns[0] == 1  # 0: not started


def test_a_preferred_size_starts_before_the_delay(tmp_path: Path, model: Path, clock: _Clock) -> None:
    at_ns = [0, 0, 500 * MS]
    record = _Served(tmp_path, at_ns).run(model, batching=batching(max_delay_ns=400 * MS, preferred=[2]))
    assert sizes(record) == [2, 1]
    assert record.start_ns[0] == 1


def test_samples_count_for_the_largest_batch(tmp_path: Path, model: Path) -> None:
    record = _Served(tmp_path, [0] * 4, [1, 0, 1, 1]).run(model, batches=(1, 2), batching=batching())
    assert sizes(record) == [2, 2]  # 2 + 1 samples, then 2 + 2


def test_requests_of_other_shapes_are_not_joined(tmp_path: Path) -> None:
    tokens = tiny_models.tokens(tmp_path / "t.onnx")
    kinds = [make_plan(tokens, batch=1, sizes={"sequence": length})["feeds"] for length in (4, 8)]
    batcher = Batcher(contender(contestant_plan(tokens)), kinds)
    assert batcher.fit(0, 0)
    assert batcher.fit(0, 1) == (kinds[0]["inputs"][0]["shape"] == kinds[1]["inputs"][0]["shape"])


def test_a_model_without_a_batch_dimension_cannot_be_batched(tmp_path: Path) -> None:
    fixed = tiny_models.mul(tmp_path / "s.onnx")
    with pytest.raises(SpecError, match="batch dimension"):
        Batcher(contender(contestant_plan(fixed)), [make_plan(fixed, batch=1)["feeds"]])


def test_private_memory_excludes_pages_of_files(tmp_path: Path) -> None:
    text = "Rss: 900 kB\nPrivate_Clean: 500 kB\nPrivate_Dirty: 20 kB\nPrivate_Hugetlb: 4 kB\n"
    rollup = tmp_path / "smaps_rollup"
    rollup.write_text(text)
    assert private_bytes(rollup) == 24 * 1024
    assert private_bytes(tmp_path / "missing") is None


# --- real processes -----------------------------------------------------------------------------------------


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(threading.Event()) as found:
        yield found


def service(model: Path, **changes: Any) -> Service:
    plan = contestant_plan(model)
    values: dict[str, Any] = {
        "index": 0,
        "entry": Entry(label="own", plan=plan),
        "kinds": [Kind(rows=1)],
        "feeds": [plan["feeds"]],
        "streams": 1,
        "batching": None,
        "timeout_s": None,
        "limit_s": 60.0,  # a busy machine does not saturate it
        "load_timeout_s": 60.0,
    }
    return Service(**(values | changes))


def even(count: int, every_s: float, **changes: Any) -> Schedule:
    arrivals = Arrivals(
        at_ns=array("q", [int(i * every_s * 1e9) for i in range(count)]), kind=array("H", [0] * count)
    )
    values: dict[str, Any] = {
        "arrivals": arrivals,
        "rate": 1 / every_s,
        "turn": 0,
        "warmup_s": 0.0,
        "duration_s": count * every_s,
    }
    return Schedule(**(values | changes))


def nothing(runs: Sequence[RawRun], elapsed_s: float) -> None:
    """No course is wanted."""


def test_two_processes_serve_their_schedules_at_the_same_time(workers: Workers, model: Path) -> None:
    what = [(service(model), even(40, 0.005)), (service(model, index=1), even(20, 0.01))]
    (one, other), providers = serve(workers, what, nothing)
    assert [run.outcome for run in (one, other)] == ["complete", "complete"]
    assert (one.configuration, other.configuration) == (0, 1)
    assert providers == [["CPUExecutionProvider"]] * 2
    assert all(one.end_ns)
    assert all(other.end_ns)
    assert one.memory_bytes
    assert one.counters[0]["cpu_s"] >= 0


@pytest.mark.parametrize("batched", [False, True])
def test_streams_that_are_processes_share_the_queue(workers: Workers, model: Path, batched: bool) -> None:
    plan = contestant_plan(model, streams=2, stream_type="processes")
    plan["session"] = plan["session"] | {"attributes": {}}
    one = service(
        model,
        entry=Entry(label="two", plan=plan),
        streams=2,
        batching=BatchingSpec(max_batch_size=4) if batched else None,
    )
    [run], _ = serve(workers, [(one, even(200, 1e-9 if batched else 0.0005))], nothing)
    assert run.outcome == "complete", run.reason
    assert all(run.end_ns)
    assert set(run.stream) <= {0, 1}
    assert run.memory_bytes
    assert (len(set(run.batch)) == 200) != batched


def test_a_batching_service_forms_batches(workers: Workers, model: Path) -> None:
    batched = service(model, batching=BatchingSpec(max_batch_size=4))
    [run], _ = serve(workers, [(batched, even(8, 1e-9))], nothing)
    assert len(set(run.batch)) < 8


def test_a_saturated_run_ends_early_with_a_word(workers: Workers, tmp_path: Path) -> None:
    slow = tiny_models.steady(tmp_path / "slow.onnx", trips=20_000)
    [run], _ = serve(workers, [(service(slow, limit_s=0.5), even(100_000, 0.0001))], nothing)
    assert run.outcome == "saturated"
    assert run.reason.startswith("Saturated after")
    assert 0 < sum(1 for end in run.end_ns if end) < 100_000


def test_a_worker_that_crashes_keeps_what_was_measured(workers: Workers, model: Path) -> None:
    def kill(runs: Sequence[RawRun], elapsed_s: float) -> None:
        if sum(1 for end in runs[0].end_ns if end) > 5:
            for pid in list(workers._live):
                with contextlib.suppress(ProcessLookupError):  # it is reaped at any moment
                    os.kill(pid, signal.SIGKILL)

    [run], _ = serve(workers, [(service(model), even(2000, 0.01))], kill)
    assert run.outcome == "failed"
    assert "SIGKILL" in run.reason or "signal" in run.reason
    assert 5 < sum(1 for end in run.end_ns if end) < 2000


def test_a_worker_that_hangs_is_ended(workers: Workers, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []

    def stop(runs: Sequence[RawRun], elapsed_s: float) -> None:
        if not stopped and any(runs[0].end_ns):
            stopped.extend(workers._live)
            os.kill(stopped[0], signal.SIGSTOP)
            monkeypatch.setattr(serving, "HANG_S", 1.0)

    [run], _ = serve(workers, [(service(model), even(2000, 0.01))], stop)
    assert stopped
    assert run.outcome == "failed"
    assert "completed no request" in run.reason
    assert any(run.end_ns)


def test_a_cancel_keeps_what_was_measured(workers: Workers, model: Path) -> None:
    def cancel(runs: Sequence[RawRun], elapsed_s: float) -> None:
        if any(runs[0].end_ns):
            workers.cancel.set()

    [run], _ = serve(workers, [(service(model), even(2000, 0.01))], cancel)
    assert run.outcome == "cancelled"
    assert 0 < sum(1 for end in run.end_ns if end) < 2000
    with pytest.raises(Cancelled):
        serve(workers, [(service(model), even(2, 0.01))], nothing)


def test_a_call_that_fails_under_load_is_a_failed_run(workers: Workers, tmp_path: Path) -> None:
    failing = tiny_models.fails_from_three_rows(tmp_path / "f.onnx", "memory")
    feeds = [make_plan(failing, batch=rows)["feeds"] for rows in (1, 4)]
    both = service(failing, kinds=[Kind(rows=1), Kind(rows=4)], feeds=feeds)
    schedule = even(4, 0.001)
    schedule.arrivals.kind[2] = 1
    [run], _ = serve(workers, [(both, schedule)], nothing)
    assert run.outcome == "failed"
    assert run.reason
    assert run.end_ns[0]


def test_a_model_that_cannot_be_loaded_is_an_error(workers: Workers, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        serve(
            workers,
            [(service(tiny_models.mlp(tmp_path / "m.onnx"), entry=_broken(tmp_path)), even(2, 1.0))],
            nothing,
        )


def _broken(folder: Path) -> Entry:
    good = tiny_models.mlp(folder / "good.onnx")
    plan = contestant_plan(good)
    plan["model_path"] = str(tiny_models.not_onnx(folder / "bad.onnx"))
    return Entry(label="broken", plan=plan)


def test_no_record_is_left_behind(workers: Workers, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []  # other processes have records in the same folder
    create = traffic_record.create

    def noted(path: Path, *columns: Any) -> TrafficRecord:
        made.append(path)
        return create(path, *columns)

    monkeypatch.setattr(traffic_record, "create", noted)
    serve(workers, [(service(model), even(4, 0.001))], nothing)
    assert made
    assert not [path for path in made if path.exists()]


@pytest.mark.parametrize(
    ("cpus", "threads", "streams", "spins"),
    [
        ([0, 1], 1, 1, False),
        ([0, 1, 2, 3], 2, 1, True),
        ([0, 1, 2, 3], 4, 1, False),
        ([0, 1, 2, 3], 1, 2, False),
    ],
)
def test_a_stream_spins_only_with_a_cpu_of_its_own(
    model: Path, cpus: list[int], threads: int, streams: int, spins: bool
) -> None:
    plan = contestant_plan(model, cpus=cpus)
    plan["session"] = plan["session"] | {"attributes": {"intra_op_num_threads": threads}}
    assert serving._may_spin(service(model, entry=Entry(label="", plan=plan), streams=streams)) == spins
