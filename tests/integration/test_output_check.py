"""The output check in real comparisons: variants against their original, others against themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
import yaml
from onnx import helper, numpy_helper

from core.cli.sheets import lines
from core.evidence.measurement import Trial, model_text
from core.run import job_types
from core.run.scheduler import Scheduler
from core.run.variants import family_configurations
from core.show.export import export_python, export_yaml
from core.show.sheets import Sheet, comparisons, history
from core.show.sheets.trials import measured
from core.spec import spec_from_dict, spec_from_yaml
from core.store import ModelRecord, Store
from core.store.library import import_file
from core.wire.errors import SpecError
from tests import simulated_clock, tiny_models
from tests.command_line import CommandLine
from tests.simulated_clock import Model
from tests.waiting import WAIT_S

pytestmark = pytest.mark.usefixtures("jobs_at_once")

SHORT = {"warmup_runs": 2, "runs": 20}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))


@pytest.fixture
def measure() -> Iterator[Callable[..., Trial]]:
    scheduler = Scheduler(Store(), owner="tester")

    def run(record: ModelRecord, **parts: Any) -> Trial:
        protocol = {**SHORT, **parts.pop("protocol", {})}
        model = {"path": record.path, "sha256": record.sha256, **parts.pop("model", {})}
        trial = scheduler.submit(
            job_types.tune(spec_from_dict({"model": model, "protocol": protocol, **parts}))
        )
        assert scheduler.join(WAIT_S)
        found = Store().trial(trial)
        assert found.state == "COMPLETE", found.error
        return found

    yield run
    scheduler.close()
    assert psutil.Process().children(recursive=True) == []


def add(path: Path, root: ModelRecord | None = None, precision: str = "fp32") -> ModelRecord:
    """Put a model into the library, as a variant of `root` where that is given."""
    details: dict[str, Any] = {}
    if root is not None:
        variant = {"root": root.content_sha256, "root_name": root.name, "precision": precision, "steps": []}
        details = {"variant": {**variant, "parent": root.content_sha256, "parent_name": root.name}}
    return import_file(Store(), path, name=path.stem, source="variant" if root else "upload", details=details)


def test_everybody_of_a_family_is_stored_under_the_model_that_it_ran(
    tmp_path: Path,
) -> None:
    """A comparison of a family was named after its original, and so was every trial of it."""
    root = add(tiny_models.mlp(tmp_path / "root.onnx"))
    lean = add(changed(tmp_path / "lean.onnx", Path(root.path), plant), root, "int8")
    scheduler = Scheduler(Store(), owner="tester")
    base = spec_from_dict({"model": {"path": root.path, "sha256": root.sha256}, "protocol": SHORT})
    try:
        with simulated_clock.machine():
            comparison = scheduler.submit(
                job_types.comparison(family_configurations([root, lean], base), model_name="root")
            )
            waiting = {one.model_name for one in Store().trials_of(comparison)}
            assert scheduler.join(WAIT_S)
    finally:
        scheduler.close()
    trials = {one.model_sha256: one for one in Store().trials_of(comparison)}
    assert waiting == {"root", "lean"}
    assert {sha256: one.model_name for sha256, one in trials.items()} == {
        root.content_sha256: "root",
        lean.content_sha256: "lean",
    }
    assert Store().comparison(comparison).model_name == "root"
    one = Store().trial(trials[lean.content_sha256].id)
    assert model_text(one.result) == "int8, variant of `root`"
    assert one.to_dict()["model"]["precision"] == "int8"
    text = export_yaml(one, accepted_breach="a planted error")
    assert "precision: fp32" not in text
    assert yaml.safe_load(text)["measured"]["model"]["name"] == "lean"
    assert spec_from_yaml(text) == spec_from_dict(one.spec)
    assert "int8, variant of `root`" in "\n".join(lines(measured(one)))
    kept = Store().trial(trials[root.content_sha256].id)
    assert "precision: fp32" in export_yaml(kept)
    assert model_text(kept.result) == ""


def changed(path: Path, source: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    model = onnx.load(source)
    change(model)
    onnx.save(model, path)
    return path


def plant(model: onnx.ModelProto) -> None:
    """One weight of the first layer gets another sign and size."""
    tensor = next(one for one in model.graph.initializer if one.name == "w1")
    array = np.array(numpy_helper.to_array(tensor))
    array.flat[0] = -8.0
    tensor.CopyFrom(numpy_helper.from_array(array, "w1"))


def rename(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.name += "_renamed"


def guard(trial: Trial) -> dict[str, Any]:
    assert trial.result is not None
    found: dict[str, Any] = trial.result["guard"]
    assert trial.result["output_error"] == found["error"]
    return found


@pytest.fixture
def conv(tmp_path: Path) -> ModelRecord:
    return add(tiny_models.conv(tmp_path / "conv.onnx"))


def test_a_planted_wrong_weight_is_caught_wherever_its_numbers_stand(
    tmp_path: Path, conv: ModelRecord, measure: Callable[..., Trial]
) -> None:
    wrong = add(changed(tmp_path / "wrong.onnx", Path(conv.path), plant), conv)
    trial = measure(wrong, session={"intra_op_num_threads": 1})
    found = guard(trial)
    assert found["breach"] is True
    assert found["reference"] == {"model": "conv", "sha256": conv.content_sha256}
    assert found["error"]["max_rel"] > found["tolerance"]["max_rel"] == 1e-3
    assert trial.result["notes"]  # type: ignore[index]
    comparison = Store().comparison(trial.comparison)
    trials = Store().trials_of(comparison.id)
    assert set((comparison.result or {})["breaches"]) == {
        one.id for one in trials
    }  # the default runs the same file
    for sheet in (
        measured(trial),
        comparisons.comparison_sheet(comparison, trials),
        Sheet("", [history.table([trial])]),
    ):
        assert "outputs differ" in "\n".join(lines(sheet)).lower()
    _refused_without_a_reason(trial)
    _refused_on_the_command_line(trial, tmp_path)


def _refused_without_a_reason(trial: Trial) -> None:
    for reason in ("", "  \n", "1.0"):
        for emit in (export_yaml, export_python):
            with pytest.raises(SpecError, match="trial") as caught:
                emit(trial, accepted_breach=reason)
            assert "--accept-breach" in caught.value.hint
    text = export_yaml(trial, accepted_breach="we accept\nthis on our data")
    assert "# accepted_breach: 'we accept this on our data'" in text.splitlines()
    assert yaml.safe_load(text)["measured"]["accepted_breach"] == "we accept this on our data"
    assert spec_from_yaml(text).to_dict() == trial.spec
    script = export_python(trial, accepted_breach="we accept this")
    assert "# accepted_breach: 'we accept this'" in script.splitlines()
    compile(script, "script.py", "exec")


def _refused_on_the_command_line(trial: Trial, tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    refused = cli.run("export", trial.id)
    assert (refused.code, refused.out) == (2, "")
    assert trial.id in refused.err
    assert "--accept-breach" in refused.err
    accepted = cli.run("export", trial.id, "--accept-breach", "a test wants it")
    assert accepted.code == 0
    assert "# accepted_breach: 'a test wants it'" in accepted.out
    assert "OUTPUTS DIFFER" in accepted.out
    assert "outputs differ" in cli.run("history").out


def test_a_variant_that_computes_the_same_and_the_original_itself_agree(
    tmp_path: Path, conv: ModelRecord, measure: Callable[..., Trial]
) -> None:
    same = measure(add(changed(tmp_path / "same.onnx", Path(conv.path), rename), conv))
    assert guard(same)["breach"] is False
    assert guard(same)["reference"]["model"] == "conv"
    own = measure(conv, workload={"batch_size": 12})
    assert guard(own)["breach"] is False
    assert (guard(own)["error"]["top1_agreement"], guard(own)["error"]["rows"]) == (1.0, 12)
    assert guard(own)["reference"]["sha256"] == conv.content_sha256
    assert "accepted_breach" not in export_yaml(own, accepted_breach="for nothing")


def test_the_users_tolerance_decides(
    tmp_path: Path, conv: ModelRecord, measure: Callable[..., Trial]
) -> None:
    wrong = add(changed(tmp_path / "wrong.onnx", Path(conv.path), plant), conv)
    with simulated_clock.machine(lambda label, plan: Model(output_error={"max_rel": 1.0})):
        trial = measure(wrong, protocol={"tolerance": 2.0})
        strict = measure(wrong, protocol={"tolerance": 0.5})
    assert (guard(trial)["breach"], guard(strict)["breach"]) == (False, True)
    assert spec_from_yaml(export_yaml(trial)).protocol.tolerance == 2.0


def test_an_fp16_copy_is_judged_as_one_against_float32(
    conv: ModelRecord, measure: Callable[..., Trial]
) -> None:
    trial = measure(conv, model={"precision": "fp16", "keep_io_types": False})
    assert guard(trial)["precision"] == "fp16"
    assert guard(trial)["breach"] is False
    assert 0 < guard(trial)["error"]["max_rel"] < 2e-2
    assert guard(trial)["reference"]["sha256"] == conv.content_sha256


def shifted_root(path: Path, shift: float) -> Path:
    """y = sqrt(x + shift); x comes from [0, 1)."""
    nodes = [
        helper.make_node("Add", ["x", "s"], ["a"], "add"),
        helper.make_node("Sqrt", ["a"], ["y"], "sqrt"),
    ]
    inputs, outputs = [tiny_models.value("x", ["batch", 4])], [tiny_models.value("y", ["batch", 4])]
    return tiny_models.save(path, nodes, inputs, outputs, [tiny_models.constant("s", np.float32(shift))])


def test_not_a_number_on_one_side_is_a_breach_and_on_both_sides_it_proves_nothing(
    tmp_path: Path, measure: Callable[..., Trial]
) -> None:
    sound = add(shifted_root(tmp_path / "sound.onnx", 1.0))
    broken = measure(add(shifted_root(tmp_path / "broken.onnx", -2.0), sound))
    assert guard(broken)["breach"] is True
    assert " 4 " in guard(broken)["why"]
    assert guard(broken)["error"]["max_rel"] is None
    as_it_was = measure(add(shifted_root(tmp_path / "always.onnx", -3.0)))
    assert guard(as_it_was)["breach"] is None
    assert "(4 values)" in guard(as_it_was)["why"]


def test_an_original_that_is_gone_leaves_it_open(
    tmp_path: Path, conv: ModelRecord, measure: Callable[..., Trial]
) -> None:
    variant = add(changed(tmp_path / "same.onnx", Path(conv.path), rename), conv)
    Path(conv.path).unlink()
    with simulated_clock.machine():
        trial = measure(variant)
    assert guard(trial)["breach"] is None
    assert guard(trial)["reference"] is None
    assert any("`conv`" in note for note in trial.result["notes"])  # type: ignore[index]
    assert "accepted_breach" not in export_yaml(trial)


def test_outputs_without_a_number_are_neither_right_nor_wrong(
    tmp_path: Path, measure: Callable[..., Trial]
) -> None:
    trial = measure(add(shifted_root(tmp_path / "none.onnx", -2.0)), workload={"batch_size": 16})
    assert guard(trial)["breach"] is None
    assert "`y`" in guard(trial)["why"]
    assert "64 values" in guard(trial)["why"]
    assert "inconclusive" in "\n".join(lines(measured(trial)))
    assert "# The output check was inconclusive" in export_yaml(trial)


def test_a_model_that_draws_random_numbers_says_why_its_outputs_differ(
    tmp_path: Path, measure: Callable[..., Trial]
) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["n"], "noise"),
        helper.make_node("Add", ["x", "n"], ["y"], "add"),
    ]
    inputs, outputs = [tiny_models.value("x", ["batch", 4])], [tiny_models.value("y", ["batch", 4])]
    trial = measure(add(tiny_models.save(tmp_path / "noise.onnx", nodes, inputs, outputs)))
    assert guard(trial)["error"]["max_rel"] > 1e-2
    assert guard(trial)["breach"] is None
    assert "RandomNormalLike" in guard(trial)["why"]
    assert trial.result is not None
    assert any("RandomNormalLike" in note for note in trial.result["notes"])


def test_a_fallback_to_the_cpu_is_judged_as_what_ran(
    conv: ModelRecord, measure: Callable[..., Trial]
) -> None:
    session = {"providers": [{"name": "CUDAExecutionProvider"}], "allow_fallback": True}
    trial = measure(conv, session=session)
    assert trial.result is not None
    fell_back = trial.result["effective_providers"] == ["CPUExecutionProvider"]
    assert guard(trial)["precision"] == ("fp32" if fell_back else "tf32")
