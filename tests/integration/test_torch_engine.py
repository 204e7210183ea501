"""PyTorch as an engine of a comparison: the exported program, on the inputs of the file, without network."""

from __future__ import annotations

import shutil
import socket
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from core import wire
from core.process.contestant_workers import Workers
from core.run.plan import contestant_plan, feed_plan, session_plan, shape_feeds, torch_source
from core.spec import TrialSpec, spec_from_dict
from core.store import ModelRecord
from core.wire.catalog import PT2_SHA256_KEY, SEED_KEY, SOURCE_KEY
from core.wire.errors import ModelError, ProviderError, SpecError
from core.worker.measure import output_comparison
from core.worker.models import inspect_model
from core.worker.session.feeds import make_feeds
from tests.builders import export_plan
from tests.waiting import WAIT_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch and torchvision warn about their own internals when imported
    import torch

    from core.worker.make.export import export
    from core.worker.session import torch_engine
    from core.worker.session.torch_programs import classifiers

pytestmark = pytest.mark.filterwarnings("ignore:::torch")
SIZE = 64


def silent(stage: str, done: int, total: int, text: str = "") -> None:
    """A listener that does not care."""


def exported(output: Path, **changes: Any) -> ModelRecord:
    """Export a model, and return the library's record of it."""
    plan = export_plan(output, **{"seed": 3, "image_size": SIZE, **changes})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reply = export(plan, silent)
    info = inspect_model(reply["path"])
    return ModelRecord(
        content_sha256=info["content_sha256"],
        sha256=info["sha256"],
        name=output.stem,
        path=reply["path"],
        source="export",
        info=info,
        created_at=time.time(),
        details=dict(reply),
    )


def plan_of(record: ModelRecord, engine: str, **parts: Any) -> wire.ContestantPlan:
    spec = spec_from_dict({"model": {"path": record.path}, "engine": engine, **parts})
    return contestant_plan(
        spec,
        path=record.path,
        session=session_plan(spec.session),
        feeds=feed_plan(spec.workload, record.info),
        torch=torch_source(record),
    )


def by_onnx_runtime(plan: wire.ContestantPlan) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(plan["model_path"], providers=["CPUExecutionProvider"])
    feeds = make_feeds(plan["feeds"], session.get_inputs()).arrays
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def assert_agree(contender: torch_engine.TorchInference, expected: dict[str, np.ndarray]) -> None:
    got = contender.arrays(contender.call())
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_allclose(got[name], array, rtol=1e-3, atol=1e-4 * np.abs(array).max())


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> ModelRecord:
    return exported(tmp_path_factory.mktemp("classifier") / "squeezenet.onnx")


class TwoInputs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(20, 8)

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        vectors = self.table(ids)
        return {"mean": torch.nn.functional.gelu(vectors.mean(dim=1)) * scale, "all": vectors}


def save_pt2(path: Path) -> Path:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", max=64)
    sample = (torch.randint(0, 20, (4, 6)), torch.rand(4, 1))
    program = torch.export.export(TwoInputs().eval(), sample, dynamic_shapes=({0: batch}, {0: batch}))
    torch.export.save(program, path)
    return path


@pytest.fixture(scope="module")
def from_pt2(tmp_path_factory: pytest.TempPathFactory) -> ModelRecord:
    folder = tmp_path_factory.mktemp("pt2")
    return exported(folder / "two.onnx", source="pt2", name="", path=str(save_pt2(folder / "two.pt2")))


# --- where the program comes from -------------------------------------------------------------------------


def test_an_export_says_where_its_program_comes_from(classifier: ModelRecord, from_pt2: ModelRecord) -> None:
    assert classifier.info["metadata"][SOURCE_KEY] == "torchvision squeezenet1_1"
    assert classifier.info["metadata"][SEED_KEY] == "3"
    assert torch_source(classifier) == {
        "source": "torchvision",
        "name": "squeezenet1_1",
        "path": "",
        "sha256": "",
        "weights": "random",
        "seed": 3,
        "biases": True,
        "image_size": SIZE,
        "outputs": ["output"],
    }
    source = torch_source(from_pt2)
    assert source is not None
    assert (source["source"], source["weights"], len(source["outputs"])) == ("pt2", "file", 2)
    assert source["path"] == from_pt2.details["pt2"]
    assert source["sha256"] == from_pt2.info["metadata"][PT2_SHA256_KEY]


# --- eager ------------------------------------------------------------------------------------------------


def test_eager_computes_what_the_exported_classifier_computes(classifier: ModelRecord) -> None:
    plan = plan_of(classifier, "torch-eager", workload={"batch_size": 2, "seed": 5})
    contender = torch_engine.contender(plan)
    assert_agree(contender, by_onnx_runtime(plan))
    assert contender.inputs == [{"name": "input", "dtype": "float32", "shape": [2, 3, SIZE, SIZE]}]
    assert contender.outputs(contender.call()) == [{"name": "output", "dtype": "float32", "shape": [2, 1000]}]
    assert contender.built.requested == contender.built.effective == ["torch-eager"]
    assert contender.built.creation_s > 0
    assert contender.libraries["torch"] == torch.__version__
    assert f"default of {torch.get_num_threads()} thread" in contender.notes[0]


def test_eager_takes_other_shapes_without_being_built_again(classifier: ModelRecord) -> None:
    plan = plan_of(classifier, "torch-eager")
    contender = torch_engine.contender(plan)
    spec = spec_from_dict({"model": {"path": classifier.path}})
    (feeds,) = shape_feeds(spec, classifier.info)
    other = contender.with_inputs(feeds)
    assert other.built is contender.built
    assert_agree(other, by_onnx_runtime({**plan, "feeds": feeds}))


def test_no_gradient_is_kept(classifier: ModelRecord) -> None:
    contender = torch_engine.contender(plan_of(classifier, "torch-eager"))
    result: Any = contender.call()
    assert result.is_inference()


def test_eager_computes_what_an_exported_pt2_computes(from_pt2: ModelRecord) -> None:
    plan = plan_of(from_pt2, "torch-eager", workload={"batch_size": 3})
    contender = torch_engine.contender(plan)
    assert_agree(contender, by_onnx_runtime(plan))
    assert [one["dtype"] for one in contender.inputs] == ["int64", "float32"]


def test_a_pt2_without_samples_is_fed_by_position(tmp_path: Path, from_pt2: ModelRecord) -> None:
    program = torch.export.load(from_pt2.details["pt2"])
    program._example_inputs = None
    torch.export.save(program, tmp_path / "bare.pt2")
    plan = plan_of(from_pt2, "torch-eager", workload={"batch_size": 3})
    assert plan["torch"] is not None
    bare = tmp_path / "bare.pt2"
    source: wire.TorchSource = {**plan["torch"], "path": str(bare), "sha256": sha256(bare)}
    assert_agree(torch_engine.contender({**plan, "torch": source}), by_onnx_runtime(plan))


def sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- compiled ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_computes_the_same_and_compiles_in_its_first_run(
    from_pt2: ModelRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = plan_of(from_pt2, "torch-compile", workload={"batch_size": 3})
    output_comparison.save(str(tmp_path / "outputs.npz"), by_onnx_runtime(plan))
    with Workers(threading.Event()) as workers:
        worker = workers.start("torch-compile", fresh_process=True)
        loaded = worker.ask(wire.LOAD, plan, timeout_s=240)
        warm = worker.ask(wire.WARM, {}, timeout_s=WAIT_S)
        error = worker.ask(wire.COMPARE_OUTPUTS, {"path": str(tmp_path / "outputs.npz")}, timeout_s=WAIT_S)
        assert worker.folder is not None
        assert list(worker.folder.glob("ortune-inductor-*/*"))
    assert loaded["effective_providers"] == ["torch-compile"]
    assert "compiled" in loaded["notes"][0]
    assert loaded["first_run_ns"] > 20 * warm["median_ns"]  # the compiler's time is not hidden
    assert (error["difference"], error["top1_agreement"]) == ("", 1.0)
    assert error["max_rel"] < 1e-4


def test_a_missing_compiler_is_said_with_the_way_out(
    from_pt2: ModelRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch._inductor.config

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", (None, str(tmp_path / "g++")))
    contender = torch_engine.contender(plan_of(from_pt2, "torch-compile", workload={"batch_size": 7}))
    with pytest.raises(ProviderError, match=r"`torch\.compile` failed: .*compiler") as caught:
        contender.call()
    assert "torch-eager" in caught.value.hint


# --- what cannot be ---------------------------------------------------------------------------------------


def test_a_pt2_that_has_changed_or_gone_is_refused(tmp_path: Path, from_pt2: ModelRecord) -> None:
    plan = plan_of(from_pt2, "torch-eager")
    assert plan["torch"] is not None
    changed = tmp_path / "two.pt2"
    changed.write_bytes(Path(from_pt2.details["pt2"]).read_bytes() + b" ")
    with pytest.raises(ModelError, match=r"two\.pt2"):
        torch_engine.contender({**plan, "torch": {**plan["torch"], "path": str(changed)}})
    with pytest.raises(ModelError, match=r"none\.pt2"):
        torch_engine.contender({**plan, "torch": {**plan["torch"], "path": str(tmp_path / "none.pt2")}})


def test_trained_weights_that_cannot_be_had_again_are_no_reason_for_others(
    classifier: ModelRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*args: Any) -> None:
        raise OSError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(classifiers, "_reach", refuse)
    plan = plan_of(classifier, "torch-eager")
    assert plan["torch"] is not None
    with pytest.raises(ModelError, match=r"trained weights.*no network"):
        torch_engine.contender({**plan, "torch": {**plan["torch"], "weights": "pretrained"}})


def test_shapes_that_the_program_does_not_take_are_said_in_words(from_pt2: ModelRecord) -> None:
    plan = plan_of(from_pt2, "torch-eager", workload={"batch_size": 65})  # exported for 64 at most
    with pytest.raises(ModelError, match="these inputs"):
        torch_engine.contender(plan).call()


def test_a_program_with_other_inputs_than_the_file_is_refused(from_pt2: ModelRecord) -> None:
    plan = plan_of(from_pt2, "torch-eager")
    feeds: wire.FeedPlan = {**plan["feeds"], "inputs": plan["feeds"]["inputs"][:1]}
    with pytest.raises(ModelError, match=r"2 .*1"):
        torch_engine.contender({**plan, "feeds": feeds})


def test_settings_of_onnx_runtime_are_refused_not_ignored(classifier: ModelRecord) -> None:
    plan = plan_of(classifier, "torch-eager")
    session: wire.SessionPlan = {**plan["session"], "attributes": {"intra_op_num_threads": 1}}
    with pytest.raises(SpecError, match="`intra_op_num_threads`"):
        torch_engine.contender({**plan, "session": session})
    with pytest.raises(SpecError, match="bind"):
        torch_engine.contender({**plan, "use_io_binding": True})


# --- in a comparison --------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(socket, "recv_fds"), reason="workers are forked")
def test_pytorch_and_onnx_runtime_answer_the_same_commands(from_pt2: ModelRecord, tmp_path: Path) -> None:
    file = {"path": str(tmp_path / "outputs.npz")}
    with Workers(threading.Event()) as workers:
        onnxruntime = workers.start("onnxruntime")
        pytorch = workers.start("torch-eager", fresh_process=True)
        onnxruntime.ask(wire.LOAD, plan_of(from_pt2, "onnxruntime"), timeout_s=WAIT_S)
        loaded = pytorch.ask(wire.LOAD, plan_of(from_pt2, "torch-eager"), timeout_s=WAIT_S)
        assert loaded["effective_providers"] == ["torch-eager"]
        assert loaded["baseline_rss_bytes"] > 100 << 20  # torch itself is no part of the model
        assert loaded["load_peak_rss_bytes"] < 100 << 20
        assert pytorch.ask(wire.WARM, {}, timeout_s=WAIT_S)["median_ns"] > 0
        arguments = {"block_ns": 1_000_000, "min_runs": 5, "max_runs": 10}
        assert len(pytorch.ask(wire.BLOCK, arguments, timeout_s=WAIT_S)["latencies_ns"]) >= 5
        onnxruntime.ask(wire.SAVE_OUTPUTS, file, timeout_s=WAIT_S)
        error = pytorch.ask(wire.COMPARE_OUTPUTS, file, timeout_s=WAIT_S)
    assert error["difference"] == ""
    assert error["max_rel"] is not None
    assert error["max_rel"] < 1e-4


def test_a_torch_engine_needs_an_exported_model() -> None:
    spec = TrialSpec.model_validate({"model": {"path": "m.onnx"}, "engine": "torch-eager"})
    empty = {"inputs": [], "outputs": [], "metadata": {}}
    record = ModelRecord(
        content_sha256="",
        sha256="",
        name="m",
        path="m.onnx",
        source="file",
        info=empty,
        created_at=0.0,  # type: ignore[arg-type]
    )
    assert torch_source(record) is None
    with pytest.raises(SpecError, match=r"`m\.onnx`"):
        contestant_plan(
            spec,
            path="m.onnx",
            session=session_plan(spec.session),
            feeds={},  # type: ignore[typeddict-item]
            torch=None,
        )
