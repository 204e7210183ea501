from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from core.benchmark import measure, profile
from core.benchmark.inference import prepare
from core.benchmark.timing import clock_share_ns, cpu_s_per_run, time_runs
from core.errors import ModelError, SpecError, WorkerError
from core.session import build_session
from tests import tiny_models

CPU = "CPUExecutionProvider"
ORT_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}


def silent(stage: str, done: int, total: int, text: str = "") -> None:
    """No progress wanted."""


def session_plan(**changes: Any) -> Any:
    return {
        "attributes": {"intra_op_num_threads": 1},
        "config_entries": {},
        "providers": [{"name": CPU, "options": {}}],
        "disabled_optimizers": [],
        "allow_fallback": False,
    } | changes


def make_plan(model: Path, *, batch: int = 2, sizes: dict[str, int] | None = None, **changes: Any) -> Any:
    """A plan for `model`: its dimension `batch` gets `batch` rows, every other free one 3."""
    inputs, axes = [], {}
    for one in ort.InferenceSession(str(model), providers=[CPU]).get_inputs():
        known = {"batch": batch, **(sizes or {})}
        shape = [size if isinstance(size, int) else known.get(str(size), 3) for size in one.shape]
        dtype = ORT_TYPES.get(one.type, one.type.removeprefix("tensor(").removesuffix(")"))
        inputs.append({"name": one.name, "dtype": dtype, "shape": shape, "low": None, "high": None})
        if "batch" in one.shape:
            axes[one.name] = one.shape.index("batch")
    feeds = {
        "inputs": inputs,
        "source": "random",
        "path": None,
        "seed": 0,
        "values": {},
        "image_mean": [],
        "image_std": [],
        "batch_size": batch,
        "batch_axes": axes,
    } | {key: changes.pop(key) for key in ("values", "source", "path", "batch_axes") if key in changes}
    return {
        "model_path": str(model),
        "session": session_plan(),
        "feeds": feeds,
        "use_io_binding": False,
        "warmup_runs": 2,
        "runs": 5,
    } | changes


# -- measure -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [False, True])
def test_every_latency_is_kept_in_run_order_and_the_batch_is_counted(tmp_path: Path, bound: bool) -> None:
    plan = make_plan(tiny_models.mlp(tmp_path / "m.onnx"), batch=7, use_io_binding=bound, runs=20)
    reply = measure(plan, silent)
    assert len(reply["warmup_latencies_ns"]) == 2
    assert len(reply["latencies_ns"]) == 20
    assert min(reply["latencies_ns"]) > 0
    assert reply["first_run_s"] == reply["warmup_latencies_ns"][0] / 1e9
    assert reply["timed_wall_s"] >= sum(reply["latencies_ns"]) / 1e9
    assert reply["cpu_s_per_run"] > 0
    assert reply["batch_size"] == 7
    assert reply["inputs"] == [{"name": "x", "dtype": "float32", "shape": [7, 16]}]
    assert reply["outputs"] == [{"name": "y", "dtype": "float32", "shape": [7, 4]}]
    assert reply["requested_providers"] == reply["effective_providers"] == [CPU]
    assert not reply["fallback"]
    assert reply["gpu_memory_bytes"] is None
    assert reply["libraries"]["onnxruntime"] == ort.__version__
    assert 0 < reply["session_creation_s"] < 60


def test_without_warm_up_the_first_timed_run_is_the_first_run_and_a_note_says_so(tmp_path: Path) -> None:
    reply = measure(make_plan(tiny_models.mlp(tmp_path / "m.onnx"), warmup_runs=0, runs=3), silent)
    assert reply["warmup_latencies_ns"] == []
    assert len(reply["latencies_ns"]) == 3
    assert reply["first_run_s"] == reply["latencies_ns"][0] / 1e9
    assert any("no warm-up" in note for note in reply["notes"])


def test_a_single_run_is_possible(tmp_path: Path) -> None:
    for warmups in (0, 1):
        reply = measure(make_plan(tiny_models.mul(tmp_path / "m.onnx"), warmup_runs=warmups, runs=1), silent)
        assert len(reply["latencies_ns"]) == 1


def test_short_runs_say_that_the_call_is_part_of_them(tmp_path: Path) -> None:
    reply = measure(make_plan(tiny_models.mul(tmp_path / "m.onnx"), runs=200), silent)
    assert any("call from Python" in note for note in reply["notes"])


def test_progress_names_the_stages_and_ends_at_the_total(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    plan = make_plan(tiny_models.steady(tmp_path / "m.onnx", trips=20_000), runs=30)
    measure(plan, lambda stage, done, total, text="": seen.append((stage, done, total)))
    assert [stage for stage, _, _ in seen] == sorted(
        [stage for stage, _, _ in seen], key=["load", "warm-up", "measure"].index
    )
    assert ("measure", 0, 30) in seen
    assert seen[-1] == ("measure", 30, 30)


@pytest.mark.parametrize(
    "build",
    [
        tiny_models.mlp,
        tiny_models.conv,
        tiny_models.tokens,
        tiny_models.unnamed_dims,
        tiny_models.placeholder_dims,
        tiny_models.scalar,
        tiny_models.every_dtype,
        tiny_models.if_model,
        tiny_models.loop_model,
        tiny_models.scan_model,
        tiny_models.external_data,
        tiny_models.sum_free,
    ],
)
def test_io_binding_and_plain_run_give_equal_outputs(tmp_path: Path, build: Callable[[Path], Path]) -> None:
    plan = make_plan(build(tmp_path / "m.onnx"))
    plain = prepare(build_session(plan["model_path"], plan["session"]), plan)
    bound = prepare(build_session(plan["model_path"], plan["session"]), plan | {"use_io_binding": True})
    expected = plain.call()
    for _ in range(3):  # the binding reuses its buffers from the second run on
        bound.call()
    got = [value.numpy() for value in bound.binding.get_outputs()]
    assert isinstance(expected, list)
    assert len(expected) == len(got) > 0
    for left, right in zip(expected, got, strict=True):
        assert np.array_equal(left, right)
        assert left.dtype == right.dtype
    assert plain.outputs(expected) == bound.outputs(None)
    assert measure(plan, silent)["outputs"] == bound.outputs(None)


@pytest.mark.parametrize("dtype", [name for name in tiny_models.DTYPES if name not in ("string", "bfloat16")])
def test_every_numeric_type_is_fed_and_reported(tmp_path: Path, dtype: str) -> None:
    model = tiny_models.identity(tmp_path / "m.onnx", dtype)
    reply = measure(make_plan(model), silent)
    assert reply["inputs"] == [{"name": "x", "dtype": dtype, "shape": [2, 4]}]
    assert reply["outputs"] == [{"name": "y", "dtype": dtype, "shape": [2, 4]}]


def test_bfloat16_runs_with_io_binding_and_is_refused_clearly_without(tmp_path: Path) -> None:
    plan = make_plan(tiny_models.identity(tmp_path / "m.onnx", "bfloat16"))
    with pytest.raises(SpecError, match=r"cannot return .* bfloat16") as caught:
        measure(plan, silent)
    assert caught.value.hint == "Turn I/O binding on."
    reply = measure(plan | {"use_io_binding": True}, silent)
    assert reply["outputs"] == [{"name": "y", "dtype": "bfloat16", "shape": [2, 4]}]


def test_models_with_text_or_sequences_are_refused_clearly(tmp_path: Path) -> None:
    for model in (
        tiny_models.identity(tmp_path / "text.onnx", "string"),
        tiny_models.sequence_input(tmp_path / "sequence.onnx"),
    ):
        with pytest.raises(ModelError, match="tensors of numbers"):
            measure(make_plan(model), silent)


def test_a_batch_larger_than_the_feeds_is_refused(tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    feeds = tmp_path / "rows.npz"
    np.savez(feeds, x=np.zeros((32, 16), np.float32))
    with pytest.raises(SpecError, match="has 32 rows, the batch is 64"):
        measure(make_plan(model, batch=64, source="npz", path=str(feeds)), silent)
    assert measure(make_plan(model, batch=32, source="npz", path=str(feeds)), silent)["batch_size"] == 32


def test_a_fixed_value_with_other_rows_than_the_batch_is_refused(tmp_path: Path) -> None:
    plan = make_plan(tiny_models.mul_batch(tmp_path / "m.onnx"), batch=2, values={"x": [[1.0] * 6] * 3})
    plan["feeds"]["inputs"][0]["shape"] = [-1, 6]  # the value brings the rows
    with pytest.raises(SpecError, match="3 rows were fed, but the batch is 2"):
        measure(plan, silent)


def test_an_input_of_unknown_rank_takes_its_shape_from_the_value(tmp_path: Path) -> None:
    plan = make_plan(tiny_models.rank_unknown(tmp_path / "m.onnx"), batch=1, values={"x": [[1, -1]]})
    reply = measure(plan, silent)
    assert reply["outputs"][0]["shape"] == [1, 2]
    assert any("each run counts as one row" in note for note in reply["notes"])


def test_an_index_outside_its_table_is_a_clear_error(tmp_path: Path) -> None:
    plan = make_plan(tiny_models.tokens(tmp_path / "m.onnx"), values={"input_ids": 99})
    for bound in (False, True):
        with pytest.raises(SpecError, match="index 99; the model's table allows -50 to 49"):
            measure(plan | {"use_io_binding": bound}, silent)


def test_a_run_that_fails_names_the_node(tmp_path: Path) -> None:
    for bound in (False, True):
        with pytest.raises(ModelError, match=r"failed in the Reshape node `reshape`") as caught:
            measure(make_plan(tiny_models.failing_run(tmp_path / "m.onnx"), use_io_binding=bound), silent)
        assert "onnxruntime_src" not in caught.value.message


def test_more_memory_than_there_is_becomes_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"out of memory when it asked for 512\.0 GiB at once") as caught:
        measure(make_plan(tiny_models.huge_memory(tmp_path / "m.onnx")), silent)
    assert "smaller" in caught.value.hint


def test_peak_memory_grows_with_the_work(tmp_path: Path) -> None:
    model = tiny_models.mul_batch(tmp_path / "m.onnx")
    small = measure(make_plan(model, batch=1), silent)["peak_rss_bytes"]
    rows = 1 << 21  # 48 MiB in, as much out
    large = measure(make_plan(model, batch=rows), silent)["peak_rss_bytes"]
    assert large - small > 40 << 20


def test_a_wrong_feed_shape_is_refused_by_the_model(tmp_path: Path) -> None:
    plan = make_plan(tiny_models.mlp(tmp_path / "m.onnx"))
    plan["feeds"]["inputs"][0]["shape"] = [2, 17]
    with pytest.raises(SpecError, match="Input `x` was fed a wrong shape"):
        measure(plan, silent)


# -- the timed loop ----------------------------------------------------------------------------------------


def test_the_loop_keeps_every_run_and_reports_rarely() -> None:
    reports: list[int] = []
    calls: list[int] = []
    timed = time_runs(lambda: calls.append(1), 1000, expected_ns=1_000_000, report=reports.append)
    assert len(timed.latencies_ns) == 1000
    assert reports[-1] == 1000
    assert len(reports) <= 3
    assert len(calls) == 1000 + len(reports)  # one run before each chunk fills the caches again


def test_slow_runs_and_cold_runs_get_no_extra_run() -> None:
    calls: list[int] = []
    time_runs(lambda: calls.append(1), 5, expected_ns=20_000_000, report=lambda done: None, refill=False)
    assert len(calls) == 5


def test_the_garbage_collector_is_on_again_after_an_error() -> None:
    import gc

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        time_runs(fail, 1, expected_ns=1, report=lambda done: None)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_the_clocks_own_share_is_a_fraction_of_a_microsecond_or_little_more() -> None:
    assert 0 < clock_share_ns() < 100_000


# -- profile -----------------------------------------------------------------------------------------------


def profile_plan(model: Path, trace: Path, **changes: Any) -> Any:
    plan = make_plan(model, **changes)
    del plan["warmup_runs"]
    return plan | {"trace_path": str(trace)}


@pytest.mark.parametrize("bound", [False, True])
def test_a_profile_counts_its_runs_and_leaves_one_trace(tmp_path: Path, bound: bool) -> None:
    trace = tmp_path / "traces" / "trace.json"
    reply = profile(
        profile_plan(tiny_models.mlp(tmp_path / "m.onnx"), trace, runs=6, use_io_binding=bound), silent
    )
    assert reply["profile"]["runs"] == 6
    assert reply["profile"]["skipped_runs"] == 1
    assert len(reply["unprofiled_latencies_ns"]) == 6
    assert reply["assigned_nodes"] == {CPU: 4}
    assert reply["effective_providers"] == [CPU]
    assert reply["batch_size"] == 2
    assert reply["trace_path"] == str(trace)
    assert list(trace.parent.iterdir()) == [trace]
    assert {node["provider"] for node in reply["profile"]["nodes"]} == {CPU}


def test_bodies_of_loops_count_and_the_runs_are_cut_to_what_the_profiler_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.benchmark.MAX_PROFILE_EVENTS", 2_000)
    trace = tmp_path / "trace.json"
    model = tiny_models.loop_model(tmp_path / "m.onnx", trips=50)  # about 150 events a run
    reply = profile(profile_plan(model, trace, runs=100), silent)
    assert 5 <= reply["profile"]["runs"] <= 15
    assert not reply["profile"]["truncated"]
    assert sum(reply["assigned_nodes"].values()) == 3


def test_a_failing_profile_leaves_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    with pytest.raises(ModelError):
        profile(profile_plan(tiny_models.failing_run(tmp_path / "m.onnx"), folder / "t.json"), silent)
    assert not folder.exists() or list(folder.iterdir()) == []


def test_cpu_time_of_a_short_loop_is_read_over_a_longer_window() -> None:
    """One thread cannot use more CPU than the time that passes, however few runs were timed."""
    spent: list[float] = []

    def busy() -> None:
        began = time.perf_counter()
        while time.perf_counter() < began + 0.0005:
            pass
        spent.append(time.perf_counter() - began)

    timed = time_runs(busy, 3, expected_ns=1, report=lambda done: None, refill=False)
    cpu_s = cpu_s_per_run(busy, timed)
    assert len(spent) > 50
    assert 0 < cpu_s <= 1.1 * sum(spent) / len(spent)
