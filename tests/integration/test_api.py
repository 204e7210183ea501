"""The Python API on real models: each function returns what its command prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.api.explaining import explain
from core.api.exporting import export, verify
from core.api.graphs import graph, node_errors
from core.api.importing import import_result
from core.api.machine import machine, peaks, self_test
from core.api.measuring import tune
from core.api.models import convert, inspect
from core.api.session import Session
from core.api.variants import transform, variants
from core.store import Store
from core.wire.errors import SpecError, StoreError
from tests import builders, simulated_clock, tiny_models

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    with Session(tmp_path / "ortune.db") as opened:
        yield opened


def measured(store: Store, model: Path, name: str, level: str, p50_s: float) -> str:
    """Store a measurement of a model at an optimization level, and return its ID."""
    spec = builders.spec(
        model={"path": str(model)}, session={"graph_optimization_level": level}, workload={"batch_size": 2}
    )
    result = {"latency": {"p50_s": p50_s}, "latencies_s": [p50_s] * 50, "batch_size": 2, "contrasts": []}
    store.create_trial(builders.trial(name, spec, result=result))
    return name


def test_two_results_are_explained_once(session: Session, tmp_path: Path) -> None:
    model = tiny_models.conv(tmp_path / "conv.onnx")
    slow = measured(session.store, model, "a" * 16, "ORT_DISABLE_ALL", 2e-4)
    fast = measured(session.store, model, "b" * 16, "ORT_ENABLE_EXTENDED", 1e-4)
    with pytest.raises(StoreError):
        explain("c" * 16, slow, session=session)
    result = explain(fast, slow, session=session)
    assert result.record.found is not None
    document = result.to_dict()
    assert (document["state"], document["baseline"], document["candidate"]) == ("COMPLETE", slow, fast)
    assert explain(fast, slow, session=session).to_dict() == document
    assert session.last is not None
    assert session.last.id == fast


def test_a_graph_has_rows_before_and_after_optimization(session: Session, tmp_path: Path) -> None:
    model = tiny_models.conv(tmp_path / "conv.onnx")
    own = graph(model, session=session)
    assert len(own.table().rows) == own.record.count == len(own.to_dict()["nodes"])
    optimized = graph(model, optimized=True, op_types=["reorderoutput"], session=session)
    assert optimized.to_dict()["optimized"]
    assert {one.node.op_type for one in optimized.record.nodes} == {"com.microsoft.nchwc.ReorderOutput"}
    assert optimized.record.count > len(optimized.record.nodes)


def test_errors_of_a_variant_that_is_not_quantized_are_refused(session: Session, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="not a quantization"):
        node_errors(str(tiny_models.mlp(tmp_path / "mlp.onnx")), session=session)


def test_a_model_is_inspected_and_loaded(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    found = inspect(model.read_bytes(), load=True, session=session)
    assert found.to_dict()["suggested"] == found.record.suggested == "--batch-size 1"
    assert "loads it on the CPU" in (found.record.loads or "")
    with pytest.raises(SpecError, match="nothing is loaded"):
        inspect(model, custom_op_libraries=["x"], session=session)


def test_what_is_no_model_is_not_converted(session: Session, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is not a torchvision classifier"):
        convert("no_such_net", output=tmp_path / "x.onnx", session=session)


def test_a_variant_is_created_and_listed(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    made = transform(model, ["simplify", {"kind": "fp16"}], name="half", output=tmp_path, session=session)
    document = made.to_dict()
    assert (document["model"], len(document["steps"]), document["reused"]) == ("half", 2, 0)
    assert Path(document["written"][0]).is_file()
    again = transform(model, ["simplify", "fp16"], session=session)
    assert again.record.reused == 2
    [(members, _)] = variants(model, session=session).record
    assert "half" in [one.name for one in members]
    assert variants(session=session).to_dict()["variants"]
    with pytest.raises(SpecError, match="no step calibrates"):
        transform(model, "fp16", calibration="rows.npz", session=session)


def test_a_result_is_exported_and_verified(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    trial = tune(model, effort="quick", runs=20, session=session).id
    text = export(trial, "python", session=session)
    assert "onnxruntime" in text.to_dict()["text"]
    packed = export(trial, "bundle", tmp_path / "x.zip", session=session)
    assert packed.to_dict()["size_bytes"] == (tmp_path / "x.zip").stat().st_size
    checked = verify(tmp_path / "x.zip", measure=False, session=session)
    assert (checked.record["state"], checked.record["same"]["state"]) == ("NOT_MEASURED", "YES")
    with pytest.raises(SpecError, match="needs a baseline"):
        verify(tmp_path / "x.zip", fail_if_slower=0.1, session=session)
    with pytest.raises(SpecError, match="YAML only"):
        export(trial, "python", whole=True, session=session)


def test_the_machine_its_noise_and_its_peaks(session: Session) -> None:
    facts = machine()
    assert facts.to_dict()["fingerprint"] == facts.id
    with simulated_clock.machine():
        noise = self_test(session=session)
    assert noise.to_dict()["answer"]["grade"] in "ABCDF"
    assert [one["ratio"] for one in session.store.self_tests(noise.id)] == [noise.record["ratio"]]
    speed = peaks(session=session)
    assert speed.to_dict()["peaks"][0]["threads"] == 1
    assert len(speed.table().rows) >= 2


def test_a_profile_from_elsewhere_is_marked(session: Session) -> None:
    result = import_result(DATA / "profile_1.31.1_chain.json", "profile", session=session)
    assert (result.to_dict()["imported"], result.record.kind) == (True, "profile")
    assert result.table().rows
    with pytest.raises(SpecError, match="is a profile"):
        import_result(DATA / "profile_1.31.1_chain.json", "summary", session=session)
