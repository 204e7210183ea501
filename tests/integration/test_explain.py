"""The job `explain` on tiny models: in a worker of its own where that is the point."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from core import wire
from core.evidence.profile_difference import EndToEnd, difference
from core.evidence.verdict import Verdict
from core.process.job_worker import Progress, run_job
from core.run.explanation import profile_pair
from core.wire.errors import Cancelled, ModelError, StoreError
from core.wire.profile_passes import Passes, passes_from_json
from tests import in_process, other_runtimes, tiny_models
from tests.builders import feed_plan, one_input
from tests.other_runtimes import needs_older_onnxruntime

CPU = "CPUExecutionProvider"

no_gpu = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="CUDA may load here")


def contestant(path: Path, level: str, **changes: Any) -> Any:
    """The tiny conv net with a batch of two at one level of optimization."""
    session = {
        **wire.default_session_plan(),
        "attributes": {"graph_optimization_level": level, "intra_op_num_threads": 1},
    }
    return {
        "engine": "onnxruntime",
        "model_path": str(path),
        "torch": None,
        "session": session,
        "feeds": feed_plan(one_input("image", shape=(2, 3, 16, 16))),
        "use_io_binding": False,
        "warmup_runs": None,
        "cpus": [],
        **changes,
    }


def explain(
    path: Path, tmp_path: Path, run: Callable[..., Any] = in_process.run, **how: Any
) -> tuple[Passes, dict[str, Any]]:
    output = tmp_path / "passes.json"
    sides = [contestant(path, level) for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_EXTENDED")]
    reply = run(wire.EXPLAIN, {"sides": sides, "fingerprint": "x", "output": str(output)}, **how)
    assert not list(output.parent.glob("*.part"))
    return passes_from_json(output.read_bytes()), reply


def test_both_sides_are_profiled_in_turns_and_their_nodes_traced(tmp_path: Path) -> None:
    seen: list[Progress] = []
    passes, reply = explain(tiny_models.conv(tmp_path / "m.onnx"), tmp_path, run_job, on_progress=seen.append)
    assert (reply["passes"], passes.fingerprint) == (5, "x")
    for side in passes.sides:
        assert len(side.run_s) == len(side.plain_s) == 5
        assert all(len(node.self_s) == 5 and min(node.self_s) >= 0 for node in side.nodes)
        assert (side.batch_size, side.parallel, side.effective_providers) == (2, False, (CPU,))
        assert side.origins is not None
    assert {node.op_type for node in passes.sides[1].nodes} >= {"FusedConv", "Gemm"}
    assert [one.done for one in seen if one.stage == "profile"] == list(range(10))


def test_what_was_seen_becomes_a_difference_that_adds_up(tmp_path: Path) -> None:
    passes, _ = explain(tiny_models.conv(tmp_path / "m.onnx"), tmp_path)
    end = EndToEnd(
        baseline_s=2e-4,
        candidate_s=1e-4,
        candidate_p50_s=1e-4,
        low_s=None,
        high_s=None,
        verdict=Verdict.FASTER,
        words="2× faster",
        raced=True,
        per_row=False,
    )
    found = difference(passes, end)
    assert sum(row.difference_s for row in found.rows) == pytest.approx(-1e-4)
    fused = {one.model: one for one in found.groups}
    assert fused["conv1", "relu1"].label == "Conv"
    assert not [row for row in found.rows if row.kind == "unmatched"]


def test_nodes_without_names_are_followed_through_fusions(tmp_path: Path) -> None:
    path = tiny_models.conv(tmp_path / "m.onnx")
    before = path.read_bytes()
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, path)
    nameless = path.read_bytes()
    passes, _ = explain(path, tmp_path)
    origins = passes.sides[1].origins or ()
    assert ("Conv_0", "Relu_1") in {one.nodes for one in origins}
    assert path.read_bytes() == nameless != before


def test_a_model_of_one_loop_keeps_its_body_apart(tmp_path: Path) -> None:
    path = tiny_models.loop_model(tmp_path / "m.onnx")
    sides = [contestant(path, level) for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")]
    for side in sides:
        side["feeds"]["inputs"] = [
            {"name": "x", "dtype": "float32", "shape": [2, 8], "low": None, "high": None}
        ]
        side["feeds"]["batch_axes"] = {"x": 0}
    output = tmp_path / "passes.json"
    in_process.run(wire.EXPLAIN, {"sides": sides, "fingerprint": "", "output": str(output)})
    passes = passes_from_json(output.read_bytes())
    inner = [node for node in passes.sides[0].nodes if node.path == ("repeat",)]
    assert {node.name for node in inner} == {"body_matmul", "body_cond"}
    assert {node.calls_per_run for node in inner} == {5}


def test_weights_in_another_file_are_left_where_they_are(tmp_path: Path) -> None:
    path = tiny_models.external_data(tmp_path / "model" / "m.onnx")
    sides = [contestant(path, level) for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")]
    for side in sides:
        side["feeds"]["inputs"] = [
            {"name": "x", "dtype": "float32", "shape": [2, 64], "low": None, "high": None}
        ]
        side["feeds"]["batch_axes"] = {"x": 0}
    output = tmp_path / "passes.json"
    in_process.run(wire.EXPLAIN, {"sides": sides, "fingerprint": "", "output": str(output)})
    passes = passes_from_json(output.read_bytes())
    assert [[one.nodes for one in side.origins or ()] for side in passes.sides] == [[("fc",)], [("fc",)]]
    assert sorted(one.name for one in path.parent.iterdir()) == ["m.onnx", "weights.bin"]


@no_gpu
def test_a_side_that_falls_back_says_so_and_is_traced_all_the_same(tmp_path: Path) -> None:
    path = tiny_models.conv(tmp_path / "m.onnx")
    asked = contestant(path, "ORT_ENABLE_EXTENDED")
    asked["session"]["providers"].insert(0, {"name": "CUDAExecutionProvider", "options": {}})
    asked["session"]["allow_fallback"] = True
    output = tmp_path / "passes.json"
    sides = [contestant(path, "ORT_DISABLE_ALL"), asked]
    run_job(wire.EXPLAIN, {"sides": sides, "fingerprint": "", "output": str(output)})
    side = passes_from_json(output.read_bytes()).sides[1]
    assert (side.fallback, side.effective_providers) == (True, (CPU,))
    assert side.fallback_reason
    assert ("conv1", "relu1") in {one.nodes for one in side.origins or ()}


def test_a_side_that_cannot_run_is_the_error_and_nothing_is_written(tmp_path: Path) -> None:
    path = tiny_models.conv(tmp_path / "m.onnx")
    sides = [contestant(path, "ORT_ENABLE_ALL"), contestant(tmp_path / "gone.onnx", "ORT_ENABLE_ALL")]
    output = tmp_path / "passes.json"
    with pytest.raises(ModelError):
        in_process.run(wire.EXPLAIN, {"sides": sides, "fingerprint": "", "output": str(output)})
    assert not output.exists()


def test_a_result_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    path = tiny_models.mlp(tmp_path / "m.onnx")
    sides = [contestant(path, "ORT_ENABLE_ALL"), contestant(path, "ORT_ENABLE_ALL")]
    for side in sides:
        side["feeds"]["inputs"] = [
            {"name": "x", "dtype": "float32", "shape": [2, 16], "low": None, "high": None}
        ]
        side["feeds"]["batch_axes"] = {"x": 0}
    output = tmp_path / "no folder" / "passes.json"
    with pytest.raises(StoreError, match="kept"):
        in_process.run(wire.EXPLAIN, {"sides": sides, "fingerprint": "", "output": str(output)})


def test_it_can_be_cancelled(tmp_path: Path) -> None:
    cancel = threading.Event()
    with pytest.raises(Cancelled):
        explain(
            tiny_models.conv(tmp_path / "m.onnx"),
            tmp_path,
            run_job,
            on_progress=lambda one: cancel.set() if one.stage == "profile" else None,
            cancel=cancel,
        )
    assert not (tmp_path / "passes.json").exists()


# --- other runtimes


def test_each_side_is_profiled_in_its_own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    other_runtimes.add(tmp_path / "home", "same")
    path = tiny_models.conv(tmp_path / "m.onnx")
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, path)
    plan: Any = {
        "sides": [
            contestant(path, "ORT_DISABLE_ALL"),
            contestant(path, "ORT_ENABLE_EXTENDED", runtime="same"),
        ],
        "fingerprint": "x",
        "output": str(tmp_path / "passes.json"),
    }
    started: list[tuple[str, str]] = []

    def run(job: Any, payload: Any, **how: Any) -> Any:
        started.append((str(job), how.get("runtime", "own")))
        return run_job(job, payload, **how)

    profile_pair(plan, run)
    passes = passes_from_json((tmp_path / "passes.json").read_bytes())
    made = [runtime for job, runtime in started if job == "profiled_pass"]
    assert made == ["own", "same"] + ["own", "same", "same", "own"] * 2 + ["own", "same"]
    assert {runtime for job, runtime in started if job != "profiled_pass"} == {"own"}
    assert [len(side.run_s) for side in passes.sides] == [5, 5]
    assert ("Conv_0", "Relu_1") in {one.nodes for one in passes.sides[1].origins or ()}
    assert "FusedConv" in {node.op_type for node in passes.sides[1].nodes}


@needs_older_onnxruntime
def test_the_passes_of_an_older_version_are_matched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    other_runtimes.add(tmp_path / "home", "older", older=True)
    path = tiny_models.conv(tmp_path / "m.onnx")
    older = contestant(path, "ORT_ENABLE_EXTENDED", runtime="older")
    sides = [older, contestant(path, "ORT_ENABLE_EXTENDED")]
    output = tmp_path / "passes.json"
    profile_pair({"sides": sides, "fingerprint": "x", "output": str(output)}, run_job)
    one, other = passes_from_json(output.read_bytes()).sides
    assert {node.op_type for node in one.nodes} & {node.op_type for node in other.nodes} >= {"FusedConv"}
    assert one.origins is not None
    assert one.batch_size == other.batch_size == 2
