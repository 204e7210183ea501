"""Exports of the command line: the YAML file reads back exactly, and the Python script runs here.

The script runs in a process of its own on a real model. Its inputs from files must be byte for byte those of
the measuring worker, random ones of the same type, shape and range, and its outputs equal to those of the
worker's own session on the same inputs.
"""

from __future__ import annotations

import ast
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core import wire
from core.evidence.measurement import Trial
from core.run.plan import feed_plan, session_plan
from core.show.export import export_python, export_yaml
from core.spec import TrialSpec, spec_from_dict, spec_from_yaml
from core.spec.steps import Step
from core.wire.errors import SpecError
from core.worker.make.transform import transform
from core.worker.models import inspect_model
from core.worker.session import build_session
from core.worker.session.feeds import Feeds, make_feeds
from tests import builders, tiny_models
from tests.scripts import execute

ENVIRONMENT = {"fingerprint": "f" * 16, "os": "Linux", "cpu": {"model": "a CPU"}, "providers": ["not kept"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A trial as the scheduler would have stored it, with the inputs and outputs of its worker."""

    trial: Trial
    info: wire.ModelInfo
    feeds: Feeds
    session: Any


def trial_of(spec: TrialSpec, result: dict[str, Any] | None = None, **changes: Any) -> Trial:
    facts: dict[str, Any] = {"model_name": "tiny", "model_sha256": "0" * 64, "finished_at": 1_700_000_000.0}
    facts |= {"state": "COMPLETE" if result else "FAIL", "result": result}
    return builders.trial("0123456789abcdef", spec, **(facts | changes))


def measured(path: Path, **parts: dict[str, Any]) -> Measured:
    """Do what the worker does, in this process: same session, same feeds, one run."""
    model = {**parts.pop("model", {}), "path": str(path)}
    info = inspect_model(str(path))
    spec = spec_from_dict({"model": {**model, "sha256": info["sha256"]}, **parts})
    run_path, run_info = str(path), info
    if spec.model.precision == "fp16":
        run_path = str(path.with_suffix(".fp16.onnx"))
        step = Step("fp16", {"keep_io_types": spec.model.keep_io_types})
        plan: wire.TransformPlan = {
            "path": str(path),
            "output": run_path,
            "step": step.kind,
            "options": dict(step.options),
            "reference": str(path),
            "feeds": [feed_plan(spec.workload, info)],
            "calibration": None,
        }
        transform(plan, lambda *_: None)
        run_info = inspect_model(run_path)
    built = build_session(run_path, session_plan(spec.session))
    feeds = make_feeds(feed_plan(spec.workload, run_info), built.session.get_inputs())
    result = {
        "inputs": [
            {"name": name, "dtype": feeds.dtypes[name], "shape": list(array.shape)}
            for name, array in feeds.arrays.items()
        ],
        "outputs": [],
        "effective_providers": built.effective,
        "fallback": built.fallback,
        "environment": ENVIRONMENT,
        "latency": {"p50_s": 0.001, "p50_s_low": 0.0009, "p50_s_high": 0.0011, "needs_runs": {"p99_s": 368}},
        "latencies_s": [0.001] * 100,
        "throughput_per_s": 1000.0,
    }
    trial = trial_of(spec, result, model_sha256=info["content_sha256"])
    return Measured(trial=trial, info=run_info, feeds=feeds, session=built.session)


DUMP = """
np.savez("fed.npz", **{f"fed{i}": array for i, array in enumerate(feeds.values())})
np.savez("got.npz", **{f"got{i}": array for i, array in enumerate(outputs)})
print("thread pools", options.intra_op_num_threads, sorted(session.get_providers()))
"""


def run_and_compare(one: Measured, folder: Path, *, drawn: bool = False, fresh: bool = False) -> str:
    """Execute the script and compare inputs and outputs; return the script.

    Args:
        one: the trial.
        folder: to run it in.
        drawn: the inputs are random: in the range of the worker's, but different.
        fresh: as for `execute`.
    """
    script = export_python(one.trial, one.info)
    done = execute(script + DUMP, folder, fresh=fresh)
    assert done.returncode == 0, done.stderr
    fed: dict[str, Any] = {}
    with np.load(folder / "fed.npz") as kept:
        for i, (name, array) in enumerate(one.feeds.arrays.items()):
            fed[name] = kept[f"fed{i}"]
            assert (fed[name].dtype, fed[name].shape) == (array.dtype, array.shape), name
            assert drawn or fed[name].tobytes() == array.tobytes(), name
    with np.load(folder / "got.npz") as got:
        expected = one.session.run(None, fed)
        assert len(got.files) == len(expected) > 0
        for i, value in enumerate(expected):
            np.testing.assert_array_equal(got[f"got{i}"], value)
    return script


def drawn_by(one: Measured, folder: Path, *, fresh: bool = False) -> dict[str, Any]:
    """What the script of `one` draws."""
    run_and_compare(one, folder, drawn=True, fresh=fresh)
    with np.load(folder / "fed.npz") as kept:
        return {name: kept[f"fed{i}"] for i, name in enumerate(one.feeds.arrays)}


# --- the YAML file ----------------------------------------------------------------------------------------


def test_the_yaml_reads_back_as_the_trials_spec_and_says_what_was_measured_where(tmp_path: Path) -> None:
    one = measured(tiny_models.mlp(tmp_path / "m.onnx"), workload={"batch_size": 3}, protocol={"runs": 7})
    text = export_yaml(one.trial)
    assert spec_from_yaml(text).to_dict() == one.trial.spec
    data = yaml.safe_load(text)
    assert data["model"]["sha256"] == one.info["sha256"]
    assert data["measured"]["trial"] == one.trial.id
    assert data["measured"]["state"] == "COMPLETE"
    assert data["measured"]["at"] == "2023-11-14T22:13:20+00:00"
    assert data["measured"]["latency"]["p50_s_low"] == 0.0009
    assert data["measured"]["latency"]["needs_runs"] == {"p99_s": 368}
    assert data["measured"]["fallback"] is False
    assert "latencies_s" not in data["measured"]
    assert data["environment"]["fingerprint"] == "f" * 16
    assert data["environment"]["effective_providers"] == ["CPUExecutionProvider"]
    assert "providers" not in data["environment"]


def test_a_fallback_is_marked_at_the_top_of_the_yaml(tmp_path: Path) -> None:
    one = measured(tiny_models.mlp(tmp_path / "m.onnx"))
    assert one.trial.result is not None
    fell = replace(one.trial, result={**one.trial.result, "fallback": True})
    assert "# FALLBACK" in export_yaml(fell).splitlines()[1]
    assert "FALLBACK" not in export_yaml(one.trial)


def test_a_failed_trial_can_be_taken_away_as_yaml_too() -> None:
    error = {"type": "ModelError", "message": "It is broken.", "hint": "Mend it."}
    spec = spec_from_dict({"model": {"path": "m.onnx"}})
    text = export_yaml(trial_of(spec, error=error))
    assert spec_from_yaml(text) == spec
    assert yaml.safe_load(text)["measured"]["error"] == error


# --- the script, executed ---------------------------------------------------------------------------------


def test_a_default_trial_is_reproduced(tmp_path: Path) -> None:
    one = measured(tiny_models.mlp(tmp_path / "m.onnx"))
    values = drawn_by(one, tmp_path, fresh=True)["x"]
    assert 0 <= values.min() < values.max() < 1
    assert (drawn_by(one, tmp_path)["x"] == values).all()  # the trial's seed


@pytest.mark.parametrize("bound", [False, True])
def test_every_kind_of_session_setting_is_reproduced(tmp_path: Path, bound: bool) -> None:
    one = measured(
        tiny_models.conv(tmp_path / "m.onnx"),
        session={
            "providers": [{"name": "CPUExecutionProvider"}],
            "graph_optimization_level": "ORT_ENABLE_EXTENDED",
            "execution_mode": "ORT_PARALLEL",
            "intra_op_num_threads": 3,
            "inter_op_num_threads": 2,
            "enable_cpu_mem_arena": False,
            "enable_mem_pattern": False,
            "enable_mem_reuse": False,
            "execution_order": "PRIORITY_BASED",
            "use_deterministic_compute": True,
            "free_dimension_overrides": {"batch": 5},
            "run_config_entries": {"disable_synchronize_execution_providers": "0"},
            "disabled_optimizers": ["ConvActivationFusion", "ConstantFolding"],
            "session_config_entries": {
                "session.intra_op.allow_spinning": "0",
                "session.disable_prepacking": "1",
            },
        },
        workload={"batch_size": 5, "use_io_binding": bound, "seed": 11},
    )
    script = run_and_compare(one, tmp_path, drawn=True)
    assert "options.intra_op_num_threads = 3" in script
    assert "default_rng(11)" in script
    assert "disabled_optimizers=['ConvActivationFusion', 'ConstantFolding']" in script
    assert ("run_with_iobinding" in script) is bound


def test_every_numeric_type_is_drawn_from_the_workers_range(tmp_path: Path) -> None:
    one = measured(tiny_models.every_dtype(tmp_path / "m.onnx"), workload={"batch_size": 30})
    for name, values in drawn_by(one, tmp_path).items():
        own = one.feeds.arrays[name]
        if values.dtype in (np.int8, np.uint8):
            assert int(values.max()) - int(values.min()) > 200
        else:
            assert {0, 1} >= {int(value) for value in (values.min(), values.max(), own.min(), own.max())}


def test_integers_keep_to_the_range_of_the_table_they_index(tmp_path: Path) -> None:
    one = measured(
        tiny_models.tokens(tmp_path / "m.onnx"), workload={"batch_size": 2, "dims": dims_of_tokens(tmp_path)}
    )
    run_and_compare(one, tmp_path, drawn=True)  # an index outside of its table ends the run


def dims_of_tokens(folder: Path) -> dict[str, int]:
    info = inspect_model(str(tiny_models.tokens(folder / "probe.onnx")))
    return {name: 7 for name in info["free_dims"] if name != info["batch_dim"]}


def test_without_the_models_facts_the_feeds_are_still_values_that_any_model_takes(tmp_path: Path) -> None:
    one = measured(
        tiny_models.tokens(tmp_path / "m.onnx"), workload={"batch_size": 2, "dims": dims_of_tokens(tmp_path)}
    )
    done = execute(export_python(one.trial), tmp_path)
    assert done.returncode == 0, done.stderr


def test_fixed_values_are_broadcast_to_the_inputs_shape(tmp_path: Path) -> None:
    one = measured(
        tiny_models.mlp(tmp_path / "m.onnx"), workload={"batch_size": 2, "feed_values": {"x": 0.25}}
    )
    run_and_compare(one, tmp_path)


def test_ranges_that_were_asked_for_are_kept(tmp_path: Path) -> None:
    values = {"input_ids": "random:3..6", "attention_mask": "random:1..1"}
    workload = {"batch_size": 2, "dims": dims_of_tokens(tmp_path), "feed_values": values}
    one = measured(tiny_models.tokens(tmp_path / "m.onnx"), workload=workload)
    assert set(np.unique(one.feeds.arrays["input_ids"])) <= {3, 4, 5, 6}
    assert (one.feeds.arrays["attention_mask"] == 1).all()
    drawn = drawn_by(one, tmp_path)
    assert set(np.unique(drawn["input_ids"])) <= {3, 4, 5, 6}
    assert (drawn["attention_mask"] == 1).all()
    floats = {"batch_size": 30, "feed_values": {"x": "random:-2..2.5"}}
    values = drawn_by(measured(tiny_models.mlp(tmp_path / "f.onnx"), workload=floats), tmp_path)["x"]
    assert -2 <= values.min() < -1
    assert 2 < values.max() <= 2.5


def test_an_npz_is_read_as_the_worker_reads_it(tmp_path: Path) -> None:
    rows = np.random.default_rng(3).standard_normal((9, 16)).astype(np.float32)
    np.savez(tmp_path / "feeds.npz", x=rows)
    one = measured(
        tiny_models.mlp(tmp_path / "m.onnx"),
        workload={"batch_size": 4, "feeds": str(tmp_path / "feeds.npz")},
    )
    assert one.feeds.arrays["x"].tobytes() == rows[:4].tobytes()
    run_and_compare(one, tmp_path)


def test_an_npz_of_byte_images_is_read_as_the_worker_reads_it(tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "feeds.npz", test_images=images, test_labels=np.arange(6))
    one = measured(
        tiny_models.conv(tmp_path / "m.onnx"),
        workload={
            "batch_size": 4,
            "feeds": str(tmp_path / "feeds.npz"),
            "image_mean": [0.1, 0.2, 0.3],
            "image_std": [0.5, 0.6, 0.7],
        },
    )
    run_and_compare(one, tmp_path)


@pytest.mark.parametrize("statistics", [{}, {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7]}])
def test_a_folder_of_images_is_read_as_the_worker_reads_it(
    tmp_path: Path, statistics: dict[str, Any]
) -> None:
    from PIL import Image

    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 256, (20 + i, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    one = measured(
        tiny_models.conv(tmp_path / "m.onnx"), workload={"batch_size": 2, "feeds": str(folder), **statistics}
    )
    run_and_compare(one, tmp_path)


def test_byte_images_stay_bytes(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.full((9, 9, 3), 77, np.uint8)).save(tmp_path / "photo.png")
    one = measured(
        tiny_models.image_uint8_nhwc(tmp_path / "m.onnx"), workload={"feeds": str(tmp_path / "photo.png")}
    )
    run_and_compare(one, tmp_path)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("bound", [True, False])
def test_the_fp16_copy_is_made_as_the_worker_makes_it(tmp_path: Path, keep: bool, bound: bool) -> None:
    one = measured(
        tiny_models.conv(tmp_path / "m.onnx"),
        model={"precision": "fp16", "keep_io_types": keep},
        workload={"batch_size": 2, "use_io_binding": bound},
    )
    (fed,) = one.feeds.arrays.values()
    assert fed.dtype == (np.float32 if keep else np.float16)
    script = run_and_compare(one, tmp_path, drawn=True)
    assert f"keep_io_types={keep}" in script


@pytest.mark.parametrize("bound", [True, False])
def test_bfloat16_travels_as_ort_values(tmp_path: Path, bound: bool) -> None:
    one = measured(
        tiny_models.identity(tmp_path / "m.onnx", "bfloat16"),
        workload={"batch_size": 2, "use_io_binding": bound},
    )
    done = execute(export_python(one.trial, one.info), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "y [2, 4]"


def test_the_script_switches_telemetry_off_before_the_import(tmp_path: Path) -> None:
    script = export_python(measured(tiny_models.mlp(tmp_path / "m.onnx")).trial)
    assert script.index("ORT_DISABLE_TELEMETRY") < script.index("import onnxruntime")


def test_a_provider_that_does_not_load_stops_the_script(tmp_path: Path) -> None:
    one = measured(tiny_models.mlp(tmp_path / "m.onnx"))
    chain = [{"name": "CUDAExecutionProvider", "options": {"device_id": "0"}}]
    spec = {**one.trial.spec, "session": {"providers": chain}}
    done = execute(export_python(replace(one.trial, spec=spec)), tmp_path)
    if cuda_loads():
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1
        assert "CUDAExecutionProvider" in done.stderr
        assert "y [" not in done.stdout


def cuda_loads() -> bool:
    """Whether this machine has a usable GPU: `nvidia-smi` knows without loading anything here."""
    try:
        return subprocess.run(["nvidia-smi"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("name", ["CUDAExecutionProvider", "OpenVINOExecutionProvider"])
@pytest.mark.parametrize("bound", [True, False])
def test_an_allowed_fallback_runs_and_says_so(tmp_path: Path, name: str, bound: bool) -> None:
    if name == "CUDAExecutionProvider" and cuda_loads():
        pytest.skip("CUDA loads here, so there is no fallback to see")
    one = measured(tiny_models.mlp(tmp_path / "m.onnx"))
    session = {"providers": [{"name": name}, {"name": "CPUExecutionProvider"}], "allow_fallback": True}
    spec = {**one.trial.spec, "session": session, "workload": {"use_io_binding": bound}}
    done = execute(export_python(replace(one.trial, spec=spec)), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "FALLBACK:" in done.stderr
    assert name in done.stderr
    assert done.stdout.startswith("y [")


def test_another_model_at_the_same_path_stops_the_script(tmp_path: Path) -> None:
    one = measured(tiny_models.mlp(tmp_path / "m.onnx"))
    tiny_models.mlp(tmp_path / "m.onnx", hidden=8)
    done = execute(export_python(one.trial), tmp_path)
    assert done.returncode == 1
    assert "measured" in done.stderr


def test_tensorrt_booleans_are_written_as_its_parser_reads_them() -> None:
    chain = [{"name": "TensorrtExecutionProvider", "options": {"trt_fp16_enable": "1"}}]
    spec = spec_from_dict({"model": {"path": "m.onnx"}, "session": {"providers": chain}})
    script = export_python(trial_of(spec, {"inputs": [{"name": "x", "dtype": "float32", "shape": [1]}]}))
    assert "('TensorrtExecutionProvider', {'trt_fp16_enable': 'True'})" in script
    assert "ort.preload_dlls()" in script


# --- nothing of a configuration becomes code --------------------------------------------------------------

LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_text_is_a_constant_of_the_script(text: str) -> None:
    spec = spec_from_dict({"model": {"path": f"{text}m"}, "workload": {"feeds": f"{text}.npz"}})
    script = export_python(trial_of(spec, {"inputs": [{"name": text, "dtype": "float32", "shape": [1]}]}))
    constants = [n.value for n in ast.walk(ast.parse(script)) if isinstance(n, ast.Constant)]
    assert {text, f"{text}m", f"{text}.npz"} <= {c for c in constants if isinstance(c, str)}


# --- what is not known ------------------------------------------------------------------------------------


def test_a_trial_without_a_result_needs_the_models_facts(tmp_path: Path) -> None:
    path = tiny_models.mlp(tmp_path / "m.onnx")
    spec = spec_from_dict({"model": {"path": str(path)}, "workload": {"batch_size": 2}})
    with pytest.raises(SpecError, match="FAIL"):
        export_python(trial_of(spec))
    done = execute(export_python(trial_of(spec), inspect_model(str(path))), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("y [2, ")


def test_the_verdict_goes_along_in_the_yaml(tmp_path: Path) -> None:
    one = measured(tiny_models.mlp(tmp_path / "m.onnx"))
    contrast = {"candidate": "0123456789abcdef", "ratio": 1.2, "ratio_low": 1.1, "verdict": "FASTER"}
    result = {**(one.trial.result or {}), "contrasts": [contrast], "grade": "A", "blocks": [{"round": 0}]}
    facts = yaml.safe_load(export_yaml(replace(one.trial, result=result)))["measured"]
    assert (facts["contrasts"], facts["grade"]) == ([contrast], "A")
    assert "blocks" not in facts  # raw data stay in the store


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no such call")
def test_the_script_keeps_to_the_cpus_of_the_trial(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    one = measured(tiny_models.mlp(tmp_path / "m.onnx"), protocol={"cpus": str(cpu)})
    done = execute(export_python(one.trial) + "\nprint(os.sched_getaffinity(0))\n", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{{{cpu}}}" in done.stdout


def test_what_ran_in_pytorch_has_no_session_to_write_a_script_of() -> None:
    one = trial_of(spec_from_dict({"model": {"path": "m.onnx"}, "engine": "torch-eager"}), {"inputs": []})
    with pytest.raises(SpecError, match="`torch-eager`") as caught:
        export_python(one)
    assert "YAML" in caught.value.hint
    assert spec_from_yaml(export_yaml(one)).engine == "torch-eager"


# --- outputs that differ ----------------------------------------------------------------------------------


def breached(**changes: Any) -> Trial:
    result = {
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1]}],
        "guard": {"breach": True, "why": "largest error 0.5 of the largest magnitude"},
    }
    return trial_of(spec_from_dict({"model": {"path": "m.onnx"}}), result | changes)


@pytest.mark.parametrize("emit", [export_yaml, export_python])
@pytest.mark.parametrize("reason", ["", " \t\n", "0.5", "…!"])
def test_outputs_that_differ_are_not_written_without_words(emit: Any, reason: str) -> None:
    with pytest.raises(SpecError, match=r"0123456789abcdef.* 0\.5") as caught:
        emit(breached(), accepted_breach=reason)
    assert "--accept-breach" in caught.value.hint


def test_the_words_stand_on_top_of_both_files_and_among_what_was_measured() -> None:
    words = "the clinic's own data"
    text, script = (emit(breached(), accepted_breach=words) for emit in (export_yaml, export_python))
    for one in (text, script):
        head = one.splitlines()[:4]
        assert "# OUTPUTS DIFFER: 'largest error 0.5 of the largest magnitude'" in head
        assert f"# accepted_breach: {words!r}" in head
    facts = yaml.safe_load(text)["measured"]
    assert (facts["accepted_breach"], facts["guard"]["breach"]) == (words, True)


@pytest.mark.parametrize(
    "guard", [{"breach": False, "why": "fine"}, {"breach": None, "why": "nobody looked"}, None]
)
def test_nothing_is_accepted_where_nothing_is_known_to_differ(guard: Any) -> None:
    text = export_yaml(breached(guard=guard), accepted_breach="because")
    assert "accepted_breach" not in text
    assert "OUTPUTS DIFFER" not in text


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters() | st.sampled_from(LINE_ENDS), min_size=1, max_size=40))
@example(LINE_ENDS)
def test_any_words_are_a_comment(words: str) -> None:
    said = f"because {words}"
    assert spec_from_yaml(export_yaml(breached(), accepted_breach=said)).model.path == "m.onnx"
    compile(export_python(breached(), accepted_breach=said), "script.py", "exec")


def test_model_without_inputs_gets_a_script_that_runs(tmp_path: Path) -> None:
    from onnx import helper

    node = helper.make_node("Constant", [], ["y"], value_floats=[1.0, 2.0])
    path = tiny_models.save(tmp_path / "m.onnx", [node], [], [tiny_models.value("y", [2])])
    one = measured(path)
    for info in (one.info, None):
        done = execute(export_python(one.trial, info), tmp_path)
        assert (done.returncode, done.stdout) == (0, "y [2]\n"), done.stderr


def test_outputs_that_prove_nothing_are_told_on_top_of_both_files() -> None:
    judged = {"breach": None, "why": "nothing could be compared of `y`"}
    one = breached(guard=judged, output_error={"max_rel": 0.0})
    for text in (export_yaml(one), export_python(one)):
        assert judged["why"] in text
