from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from core import wire
from core.wire.errors import ModelError
from core.worker.measure.inference import prepare
from core.worker.measure.profile_reading import read_profile
from core.worker.measure.profiling import profile
from core.worker.session import build_session
from tests import tiny_models
from tests.builders import feed_plan

CPU = "CPUExecutionProvider"
ORT_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}


def silent(stage: str, done: int, total: int, text: str = "") -> None:
    """No progress wanted."""


def session_plan(**changes: Any) -> Any:
    return {
        **wire.default_session_plan(),
        "attributes": {"intra_op_num_threads": 1},
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
    feeds = feed_plan(*inputs, batch_size=batch, batch_axes=axes) | {
        key: changes.pop(key) for key in ("values", "source", "path", "batch_axes") if key in changes
    }
    return {
        "model_path": str(model),
        "session": session_plan(),
        "feeds": feeds,
        "use_io_binding": False,
        "warmup_runs": 2,
        "runs": 5,
    } | changes


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
    monkeypatch.setattr("core.worker.measure.profiling.MAX_PROFILE_EVENTS", 2_000)
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


@pytest.mark.parametrize("saves", [False, True])
def test_a_graph_is_saved_for_its_constants_unless_the_plan_says_no(tmp_path: Path, saves: bool) -> None:
    plan = profile_plan(tiny_models.external_data(tmp_path / "e.onnx"), tmp_path / "trace.json")
    reply = profile(plan | {"saves_graph": saves}, silent)
    assert bool(reply["profile"].get("constants")) is saves


def test_a_profile_kept_for_another_worker_is_read_there_as_it_would_be_here(tmp_path: Path) -> None:
    model, trace, graph = tiny_models.mlp(tmp_path / "m.onnx"), tmp_path / "trace.json", tmp_path / "g.onnx"
    plan = profile_plan(model, trace, runs=4)
    reply = profile(plan | {"graph_path": str(graph)}, silent)
    assert reply["profile"] == {}
    assert trace.is_file()
    assert graph.is_file()
    read = read_profile({"trace_path": str(trace), "graph_path": str(graph)})["profile"]
    here = profile(plan, silent)["profile"]
    assert read["runs"] == here["runs"] == 4
    assert read["constants"] == here["constants"]
    # two passes of microseconds: which node is slowest may differ
    assert {one["name"] for one in read["nodes"]} == {one["name"] for one in here["nodes"]}


def test_a_profile_without_a_saved_graph_is_read_without_its_constants(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    profile(profile_plan(tiny_models.mlp(tmp_path / "m.onnx"), trace), silent)
    found = read_profile({"trace_path": str(trace), "graph_path": str(tmp_path / "none.onnx")})
    assert not found["profile"].get("constants")
