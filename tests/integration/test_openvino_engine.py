"""OpenVINO as an engine: the real one, on tiny models, beside ONNX Runtime with the same inputs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

pytest.importorskip("openvino", reason="the extra `openvino` is not installed")

from core import wire
from core.run.accuracy import measure_accuracy, scores_of
from core.run.plan import contestant_plan, feed_plan, session_plan, shape_feeds
from core.run.search.accuracy_limits import output_settings_only
from core.spec import spec_from_dict
from core.store import Store
from core.wire.errors import ModelError, ProviderError, SpecError, TunerError, WorkerError
from core.worker.machine import openvino_devices
from core.worker.measure import contestant as module
from core.worker.measure import output_comparison
from core.worker.measure.contestant import Contestant
from core.worker.models import inspect_model
from core.worker.session import openvino_engine, openvino_model
from core.worker.session.feeds import make_feeds
from tests import in_process, tiny_models
from tests.reading import tells

SAMPLES = Path(__file__).parents[2] / "sample_models"
F32 = {"INFERENCE_PRECISION_HINT": "f32"}
QUICK = {"block_ns": 1, "min_runs": 3, "max_runs": 1000}


@pytest.fixture(autouse=True)
def this_process_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A contestant caps its memory and turns the collector off, in its own process."""
    import gc

    monkeypatch.setattr(module.limits, "cap_memory", lambda *_: None)
    yield
    gc.enable()
    gc.unfreeze()


def plan_of(
    model: Path, *, openvino: dict[str, Any] | None = None, workload: dict[str, Any] | None = None
) -> wire.ContestantPlan:
    info = inspect_model(str(model))
    sizes = {dim: 4 for dim in info["free_dims"] if dim != info["batch_dim"]}
    spec = spec_from_dict(
        {
            "model": {"path": str(model)},
            "engine": "openvino",
            "openvino": F32 if openvino is None else openvino,
            "workload": {"dims": sizes, **(workload or {})},
        }
    )
    feeds = feed_plan(spec.workload, info)
    return contestant_plan(spec, path=str(model), session=session_plan(spec.session), feeds=feeds, torch=None)


def refusal(plan: wire.ContestantPlan) -> TunerError:
    with pytest.raises(TunerError) as caught:
        openvino_engine.contender(plan).call()
    return caught.value


def by_onnx_runtime(plan: wire.ContestantPlan) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(plan["model_path"], providers=["CPUExecutionProvider"])
    arrays = make_feeds(plan["feeds"], session.get_inputs()).arrays
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, arrays), strict=True))


def error_of(plan: wire.ContestantPlan) -> float | None:
    found = openvino_engine.contender(plan)
    return output_comparison.compare(by_onnx_runtime(plan), found.arrays(found.call()))["max_rel"]


# --- outputs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        *(tiny_models.mlp, tiny_models.conv, tiny_models.tokens, tiny_models.decoder, tiny_models.if_model),
        *(tiny_models.scan_model, tiny_models.external_data, tiny_models.every_dtype, tiny_models.sum_free),
    ],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("bind", [False, True], ids=["plain", "bound"])
def test_outputs_have_the_names_and_values_of_onnx_runtime(tmp_path: Path, model: Any, bind: bool) -> None:
    plan = plan_of(model(tmp_path / "m.onnx"), workload={"use_io_binding": bind, "batch_size": None})
    error = error_of(plan)
    assert error is not None
    assert error < 1e-5


@pytest.mark.parametrize("bind", [False, True], ids=["plain", "bound"])
def test_bfloat16_is_read_as_float32(tmp_path: Path, bind: bool) -> None:
    model = tiny_models.identity(tmp_path / "m.onnx", "bfloat16")
    found = openvino_engine.contender(plan_of(model, workload={"use_io_binding": bind}))
    result = found.call()
    assert found.outputs(result) == [{"name": "y", "dtype": "bfloat16", "shape": [1, 4]}]
    array = found.arrays(result)["y"]
    assert array.dtype == np.float32
    assert 0 < array.min() < array.max() < 2


def test_text_is_refused(tmp_path: Path) -> None:
    model = tiny_models.identity(tmp_path / "m.onnx", "string")
    error = refusal(plan_of(model, workload={"feed_values": {"x": ["a", "bc", "", "d"]}}))
    assert isinstance(error, ModelError)
    assert tells(error.message, "`x`", "text")


def test_a_model_fixed_to_its_inputs_computes_the_same_and_runs_no_other_size(tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    plan = plan_of(model, openvino={**F32, "reshape": True})
    assert error_of(plan) < 1e-5  # type: ignore[operator]
    found = openvino_engine.contender(plan)
    assert not any("dynamic" in one.lower() for one in found.notes)
    other = plan_of(model, workload={"batch_size": 3})["feeds"]
    with pytest.raises(ModelError) as caught:
        found.with_inputs(other).call()
    assert "openvino.reshape" in caught.value.hint


def test_new_shapes_are_run_unless_the_model_is_fixed_to_its_inputs(tmp_path: Path) -> None:
    info = inspect_model(str(tiny_models.mlp(tmp_path / "m.onnx")))
    own = {"model": {"path": "m.onnx"}, "engine": "openvino", "workload": {"batch_size": 4}}
    assert [one["batch_size"] for one in shape_feeds(spec_from_dict(own), info)] == [1, 8]
    assert shape_feeds(spec_from_dict(own | {"openvino": {"reshape": True}}), info) == []


def test_a_low_precision_is_read_back_and_widens_the_tolerance(tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx", features=64, hidden=64)
    exact = openvino_engine.contender(plan_of(model))
    assert exact.built.precision == ""
    asked = openvino_engine.contender(plan_of(model, openvino={"INFERENCE_PRECISION_HINT": "bf16"}))
    used = str(asked.built.compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    if used == "bf16":  # this CPU has instructions for it
        assert asked.built.precision == "bf16"
        assert any(tells(one, "bf16", "`openvino.INFERENCE_PRECISION_HINT: f32`") for one in asked.notes)
    else:
        assert asked.built.precision == ""
        assert any(tells(one, used, "`INFERENCE_PRECISION_HINT`", "bf16") for one in asked.notes)


# --- what it refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["GPU.7", "AUTO:GPU.7,CPU", "HETERO:GPU.7,CPU", "NONSENSE"])
def test_a_device_that_is_not_there_is_an_error_that_lists_those_that_are(
    tmp_path: Path, device: str
) -> None:
    error = refusal(plan_of(tiny_models.mlp(tmp_path / "m.onnx"), openvino={"device": device}))
    assert isinstance(error, ProviderError)
    missing = "NONSENSE" if device == "NONSENSE" else "GPU.7"
    assert tells(error.message, f"`{missing}`", "CPU")


@pytest.mark.parametrize("device", ["CPU", "AUTO", "HETERO:CPU"])
def test_the_device_that_is_used_is_named(tmp_path: Path, device: str) -> None:
    if "CPU" not in openvino_model.devices():
        pytest.skip("OpenVINO has no CPU plug-in here")
    plan = plan_of(tiny_models.mlp(tmp_path / "m.onnx"), openvino={"device": device})
    built = openvino_engine.contender(plan).built
    assert built.requested == [f"OpenVINO {device}"]
    if device != "AUTO" or list(openvino_model.devices()) == ["CPU"]:
        assert built.effective == ["OpenVINO CPU"]
        assert built.on_cpu


def test_a_device_that_auto_uses_for_the_moment_is_named_with_a_note() -> None:
    compiled: Any = SimpleNamespace(get_property=lambda name: ["(CPU)"])
    used, notes = openvino_model._devices(compiled)
    assert used == ["CPU"]
    assert tells(notes[0], "AUTO", "CPU", "`ENABLE_STARTUP_FALLBACK=NO`")
    assert openvino_model._devices(SimpleNamespace(get_property=lambda name: ["CPU"])) == (["CPU"], [])


def test_a_property_that_openvino_refuses_is_named_with_its_reason(tmp_path: Path) -> None:
    own = {"properties": {"CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE": "7"}}
    error = refusal(plan_of(tiny_models.mlp(tmp_path / "m.onnx"), openvino=own))
    assert isinstance(error, SpecError)
    assert tells(error.message, "`CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE`", "range")
    assert "src/" not in error.message  # no place in OpenVINO's source code


def test_a_changed_property_is_a_note(tmp_path: Path) -> None:
    own = {**F32, "INFERENCE_NUM_THREADS": 1000}
    notes = openvino_engine.contender(plan_of(tiny_models.mlp(tmp_path / "m.onnx"), openvino=own)).notes
    assert any(tells(one, "`INFERENCE_NUM_THREADS`", 1000) for one in notes)


def test_a_model_that_openvino_cannot_read_is_an_error_of_the_model(tmp_path: Path) -> None:
    path = tiny_models.unknown_operator(tmp_path / "m.onnx")
    plan = plan_of(tiny_models.mlp(tmp_path / "other.onnx")) | {"model_path": str(path)}
    error = refusal(plan)  # type: ignore[arg-type]
    assert isinstance(error, ModelError)
    assert tells(error.message, "Frobnicate")


def test_a_model_that_does_not_fit_into_memory_is_no_fault_of_the_model(tmp_path: Path) -> None:
    error = refusal(plan_of(tiny_models.huge_memory(tmp_path / "m.onnx")))
    assert isinstance(error, WorkerError)
    assert tells(error.message, "memory")


def test_a_setting_of_onnx_runtime_is_refused_by_the_worker_too(tmp_path: Path) -> None:
    plan = plan_of(tiny_models.mlp(tmp_path / "m.onnx"))
    plan["session"]["attributes"]["intra_op_num_threads"] = 2
    assert tells(refusal(plan).message, "`openvino`", "`intra_op_num_threads`")


# --- as a contestant ----------------------------------------------------------------------------------------


def test_a_contestant_runs_blocks_streams_and_new_shapes(tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    plan = plan_of(model, workload={"streams": 2, "batch_size": 4}, openvino={**F32, "NUM_STREAMS": 2})
    contestant = Contestant()
    reply = contestant.load({**plan, "layout_seed": 3})
    assert reply["effective_providers"] == ["OpenVINO CPU"]
    assert "precision" not in reply
    assert reply["libraries"].keys() == {"openvino", "numpy"}
    assert reply["layout"]["buffer_offset"] > 0
    assert reply["batch_size"] == 4
    block = contestant.block(**QUICK)
    assert min(block["stream_runs"]) >= 3
    assert len(block["latencies_ns"]) == sum(block["stream_runs"])
    info = inspect_model(str(model))
    others = [
        feed_plan(spec_from_dict({"model": {"path": "m"}, "workload": {"batch_size": rows}}).workload, info)
        for rows in (1, 8)
    ]
    assert [one["batch_size"] for one in contestant.new_shapes(feeds=others)["shapes"]] == [1, 8]
    contestant.save_outputs(path=str(tmp_path / "outputs.npz"))
    assert contestant.compare_outputs(path=str(tmp_path / "outputs.npz"))["max_rel"] == 0


def test_memory_is_capped_on_the_cpu_alone(tmp_path: Path) -> None:
    plan = plan_of(tiny_models.mlp(tmp_path / "m.onnx"))
    assert module._on_cpu_only(plan)
    plan["openvino"]["device"] = "AUTO"
    assert not module._on_cpu_only(plan)


# --- telemetry, and a runtime of its own --------------------------------------------------------------------


def test_the_engine_loads_openvino_without_its_telemetry_and_without_onnxruntime(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'onnxruntime':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from core.worker.measure import contestant\n"
        "from core.worker.session import openvino_engine\n"
        "sent = [name for name in sys.modules if name.startswith('openvino_telemetry.')]\n"
        "print('sent', sent, 'onnxruntime', 'onnxruntime' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path), "PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "sent [] onnxruntime False", done.stderr
    assert list(tmp_path.iterdir()) == []  # no file of a telemetry client


def test_a_session_without_onnxruntime_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.worker import session

    monkeypatch.setattr(session, "ort", None)
    with pytest.raises(SpecError) as caught:
        session.build_session(str(tiny_models.mlp(tmp_path / "m.onnx")), wire.default_session_plan())
    assert tells(caught.value.message, "ONNX Runtime")


def test_the_devices_of_the_machine_are_found_in_a_process_of_their_own() -> None:
    assert openvino_devices.find() == openvino_model.devices()
    assert openvino_devices.find(timeout_s=0.001) == {}


# --- accuracy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reshape", [False, True], ids=["dynamic", "reshaped"])
def test_accuracy_is_measured_with_openvino_and_stored_under_its_settings(
    tmp_path: Path, reshape: bool
) -> None:
    store = Store(tmp_path / "home" / "ortune.db")
    scored = {}
    for engine, own in (("onnxruntime", {}), ("openvino", {**F32, "reshape": reshape})):
        spec = spec_from_dict(
            {
                "model": {"path": str(SAMPLES / "digits_cnn.onnx")},
                "dataset": {"path": str(SAMPLES / "digits_test.npz")},
                "engine": engine,
                "openvino": own,
            }
        )
        found = measure_accuracy(
            store, spec, run=in_process.run, environment=lambda: {"fingerprint": "this machine"}
        )
        scored[engine] = scores_of(found)[0]
        assert found.reply["effective_providers"] == [
            {"onnxruntime": "CPUExecutionProvider", "openvino": "OpenVINO CPU"}[engine]
        ]
    assert len(store.accuracies()) == 2
    assert scored["openvino"] == pytest.approx(scored["onnxruntime"], abs=1e-5)


def test_a_search_scores_settings_that_change_no_output_once() -> None:
    base = {"model": {"path": "m.onnx"}, "engine": "openvino"}
    exact, fast, low = (
        output_settings_only(spec_from_dict({**base, "openvino": own}))
        for own in ({"NUM_STREAMS": 2}, {"PERFORMANCE_HINT": "THROUGHPUT"}, F32)
    )
    assert exact.key() == fast.key()
    assert exact.key() != low.key()
