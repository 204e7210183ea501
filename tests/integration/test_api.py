"""The Python API on real models: each function returns what its command prints."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import onnx
import pytest

import ortune
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
from core.wire.files import ROOT
from tests import builders, simulated_clock, tiny_models
from tests.waiting import WAIT_S

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


# --- measuring ----------------------------------------------------------------------------------------------


def test_a_configuration_is_measured_shown_and_loaded_again(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    stages: list[str] = []
    result = ortune.tune(
        model,
        intra_op_num_threads=1,
        graph_optimization_level="ORT_DISABLE_ALL",
        batch_size=2,
        runs=40,
        session=session,
        on_progress=lambda status: stages.append(status.stage),
    )
    document = result.to_dict()
    assert (document["state"], document["trial"], len(document["latencies_s"])) == ("COMPLETE", result.id, 40)
    assert document["spec"]["session"]["intra_op_num_threads"] == 1
    assert document["spec"]["workload"]["batch_size"] == 2
    assert "rounds" in stages
    again = ortune.load_result(result.id[:8], session=session)
    assert again.to_dict() == document
    assert repr(again) == repr(result) == f"<trial {result.id}: {result.verdict}>"
    page = result._repr_html_()
    assert escape(result.sheet().headline) in page
    assert "<table" in page
    assert "<script" not in page
    assert result.plot().data
    listed = ortune.history(search="mlp", session=session)
    assert [one.id for one in listed.record.trials] == [result.id]
    assert list(listed.to_frame()["trial"]) == [result.id]


def test_values_may_be_texts_of_the_command_line(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    typed = {"intra_op_num_threads": 2, "budget_s": 120, "providers": ["CPUExecutionProvider"]}
    texts = {"intra_op_num_threads": "2", "budget_s": "2m", "providers": "cpu"}
    one, other = (ortune.profile(model, session=session, **settings).record for settings in (typed, texts))
    assert one.spec == other.spec


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"intra_op_threads": 1}, "intra_op_num_threads"),
        ({"intra_op_num_threads": -1}, "-1"),
        ({"effort": "fast"}, "fast"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_starts(
    session: Session, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ortune.SpecError, match=message):
        ortune.tune(tiny_models.mlp(tmp_path / "mlp.onnx"), session=session, **settings)
    assert session.last is None


def test_a_model_in_memory_is_kept_once(session: Session, tmp_path: Path) -> None:
    content = tiny_models.mlp(tmp_path / "mlp.onnx").read_bytes()
    proto = onnx.load_from_string(content)
    names = {ortune.inspect(one, session=session).record.model.name for one in (content, proto)}
    assert len(names) == len(session.store.models()) == 1
    with pytest.raises(ortune.ModelError):
        ortune.inspect(b"no model", session=session)


def test_a_crash_raises_and_what_is_stored_is_in_the_session(session: Session, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(tiny_models.mlp(tmp_path / "mlp.onnx").read_bytes()[:-20])
    with pytest.raises(ortune.TunerError):
        ortune.tune(broken, effort="quick", session=session)
    gone = session.last
    assert gone is None or gone.record.state == "FAIL"


def test_a_measurement_is_cancelled_from_another_thread(session: Session, tmp_path: Path) -> None:
    cancel = threading.Event()
    with pytest.raises(ortune.Cancelled):
        ortune.tune(
            tiny_models.mlp(tmp_path / "mlp.onnx"),
            effort="publish",
            session=session,
            on_progress=lambda status: cancel.set() if status.stage == "rounds" else None,
            cancel=cancel,
        )
    assert session.last is not None
    assert session.last.record.state == "CANCELLED"
    assert not session.scheduler.active()


def test_an_interrupt_ends_the_job_and_is_raised(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.api.session.CANCEL_S", WAIT_S)

    def stop(status: ortune.Status) -> None:
        if status.stage == "rounds":
            raise KeyboardInterrupt

    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    with pytest.raises(KeyboardInterrupt):
        ortune.tune(model, effort="publish", session=session, on_progress=stop)
    assert session.last is not None
    assert session.last.record.state == "CANCELLED"


def test_configurations_are_compared_and_measured_longer(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    notes: list[str] = []
    with Session(session.store, on_note=notes.append) as told:
        result = ortune.compare(model, ["preset:edge", "preset:cpu-throughput"], runs=40, session=told)
    comparison = result.record
    labels = {one.label for one in comparison.contestants}
    assert labels == {"preset:default", "preset:edge", "preset:cpu-throughput"}
    assert len(result.table().rows) == len(result.to_frame()) == 3
    assert any("comparing" in one for one in notes)
    with pytest.raises(ortune.SpecError, match="keeps its settings"):
        ortune.measure_longer(result.id, batch_size=2, session=session)
    with pytest.raises(ortune.SpecError, match="1 to 7 candidates"):
        ortune.compare(model, session=session)


def test_points_of_a_sweep_are_measured_and_reused(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    asked = {"vary": {"batch_size": [1, 4]}, "runs": 40, "session": session}
    with simulated_clock.machine():  # what is measured on a busy machine is never reused
        first = ortune.sweep(model, **asked)
    assert [dict(one.values) for one in first.record.rows()] == [{"batch_size": 1}, {"batch_size": 4}]
    assert len(first.to_frame()) == 2
    again = ortune.sweep(model, reuse=True, **asked)
    assert {one.reused for one in again.record.rows()} == {True}
    assert again.record.comparison is None
    stored = ortune.load_result(first.id, session=session)
    assert (stored.kind, len(stored.table().rows)) == ("sweep", 2)
    with pytest.raises(ortune.SpecError, match="nothing to sweep"):
        ortune.sweep(model, session=session)


def test_a_search_shows_its_space_and_finds(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    asked: dict[str, Any] = {"vary": {"graph_optimization_level": ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"]}}
    space = ortune.search(model, dry_run=True, session=session, **asked)
    (levels,) = space.to_dict()["axes"].values()
    assert set(levels) == {"ORT_DISABLE_ALL", "ORT_ENABLE_ALL"}
    assert not session.store.studies()
    with simulated_clock.machine():
        found = ortune.search(model, budget_s=20, session=session, **asked)
    assert found.to_dict()["study"] == found.id
    assert found.table().rows
    assert ortune.load_result(found.id, session=session).to_dict() == found.to_dict()


def test_accuracy_and_targets_are_judged(session: Session) -> None:
    data = {"path": str(ROOT / "sample_models" / "digits_test.npz"), "limit": 60}
    found = ortune.accuracy("digits_cnn", data, session=session)
    assert 0.5 < found.to_dict()["accuracies"][0]["summary"]["accuracy"]["value"] <= 1
    targets = [{"metric": "accuracy", "at_least": "50 %"}]
    config = {"model": {"path": "digits_cnn"}, "dataset": data, "targets": targets}
    card = ortune.scorecard(config, reuse=True, session=session)
    assert card.to_dict()["state"] == "MET"
    with pytest.raises(ortune.SpecError, match="no targets"):
        ortune.scorecard({"model": {"path": "digits_cnn"}}, session=session)


# --- wrong arguments ----------------------------------------------------------------------------------------

M = "digits_cnn"
WRONG_SETTINGS: list[dict[str, Any]] = [
    {"use_io_binding": "maybe"},
    {"session.intra_op.allow_spinning": "maybe"},
    {"intra_op_num_threads": "two"},
    {"intra_op_num_threads": 1.5},
    {"intra_op_num_threads": -1},
    {"graph_optimization_level": 5},
    {"effort": 5},
    {"dims": 8},
    {"dims": {"batch": "x"}},
    {"providers": 5},
    {"providers": [5]},
    {"providers": [("cpu", 5)]},
    {"provider_options": "cuda.x"},
    {"feeds": 5},
    {"feeds": {"image": [1.0]}},
    {"custom_op_libraries": 5},
    {"margin": "x"},
    {"budget_s": "soon"},
    {"config": 7},
    {"config": [1]},
    {"config": {"a": 1}},
    {"config": {"sesion": {}}},
    {"config": {"model": M}},
    {"config": {"session": 5}},
    {"config": {"session": {"providers": "cpu"}}, "providers": "cpu"},
    {"baseline": 3},
    {"baseline": {"a": 1}},
    {"wait_quiet_s": "x"},
    {"wait_quiet_s": -1},
    {"session": "x"},
    {"on_progress": 5},
    {"cancel": True},
    {"model": 5},
    {"model": []},
    {"model": bytearray(b"no model")},
]
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(("tune", () if "model" in one else (M,), one) for one in WRONG_SETTINGS),
    ("compare", (), {"model": [M, 5], "candidates": "preset:edge"}),
    ("compare", (M,), {"candidates": 5}),
    ("compare", (M,), {"candidates": [5]}),
    ("compare", (M,), {"candidates": None}),
    ("compare", (M,), {"candidates": [{"a": 1}]}),
    ("compare", (M, "preset:edge"), {"baseline": 5}),
    ("measure_longer", (), {"comparison": 5}),
    ("sweep", (M,), {"vary": 5}),
    ("sweep", (M,), {"vary": {"batch_size": "x"}}),
    ("sweep", (M,), {"vary": ["batch_size=1", 5]}),
    ("sweep", (M,), {"vary": {"batch_size": [1, "x"]}}),
    ("sweep", (M,), {"vary": {"batch_size": None}}),
    ("sweep", (M,), {"vary": {"graph_optimization_level": ["ORT_ENABLE_ALL", "ALLL"]}}),
    ("sweep", (M, {"batch_size": [1]}), {"limit_s": "5ms"}),
    ("sweep", (M, {"batch_size": [1]}), {"limit_s": -1}),
    ("sweep", (M, {"batch_size": [1]}), {"percentile": 95}),
    ("search", (M,), {"vary": 5}),
    ("search", (M,), {"vary": {"intra_op_num_threads": True}}),
    ("search", (M,), {"vary": {"nope": [1]}}),
    ("search", (M,), {"fix": ["x"]}),
    ("search", (M,), {"fix": {"nope": 1}}),
    ("search", (M,), {"objective": 5}),
    ("search", (M,), {"limits": 5}),
    ("search", (M,), {"without": 5}),
    ("search", (M,), {"data": "nope.npz"}),
    ("search", (M,), {"budget_s": 0}),
    ("search", (M,), {"variants": "all"}),
    ("search", (M,), {"strategy": 5}),
    ("resume", (), {"study": 5}),
    ("resume", ("x",), {"budget_s": -1}),
    ("explain", (), {"candidate": 5}),
    ("explain", ("x",), {"baseline": 5}),
    ("graph", (M,), {"op_types": 5}),
    ("graph", (M,), {"profile": 5}),
    ("node_errors", (), {"variant": 5}),
    ("transform", (M,), {"steps": 5}),
    ("transform", (M,), {"steps": [5]}),
    ("transform", (M,), {"steps": {"kind": "fix_dims", "options": 5}}),
    ("transform", (M, "fp16"), {"calibration": 5}),
    ("transform", (M, "fp16"), {"name": 5}),
    ("accuracy", (), {"models": []}),
    ("accuracy", (M,), {"data": 5}),
    ("accuracy", (M,), {"data": {"path": "x.npz", "preprocessing": 5}}),
    ("accuracy", (M, "x.npz"), {"against": 5}),
    ("accuracy", (M, "x.npz"), {"delta": -1}),
    ("scorecard", (), {"config": 5}),
    ("export", (), {"trial": 5}),
    ("export", ("x",), {"format": 5}),
    ("export", ("x",), {"path": 5}),
    ("verify", (), {"path": 5}),
    ("verify", (), {"path": None}),
    ("verify", ("x.zip",), {"margin": -1}),
    ("verify", ("x.zip",), {"margin": "x"}),
    ("verify", ("x.zip",), {"budget_s": 0}),
    ("history", (), {"limit": -1}),
    ("history", (), {"limit": "x"}),
    ("history", (), {"starred": "maybe"}),
    ("history", (), {"search": 5}),
    ("history", (), {"nope": 1}),
    ("history", (), {"model": 5}),
    ("load_result", (), {"ref": None}),
    ("load_result", ("x",), {"baseline": 5}),
    ("inspect", (), {"model": None}),
    ("convert", (), {"source": 5}),
    ("import_result", (), {"path": 5, "wanted": "profile"}),
    ("peaks", (), {"threads": "x"}),
    ("peaks", (), {"threads": -1}),
]


@pytest.mark.parametrize(("function", "positional", "named"), WRONG)
def test_a_wrong_argument_is_refused_by_its_name(
    session: Session, function: str, positional: tuple[Any, ...], named: dict[str, Any]
) -> None:
    arguments = {"session": session, **named}
    with pytest.raises(ortune.TunerError) as caught:
        getattr(ortune, function)(*positional, **arguments)
    told = f"{caught.value.message} {caught.value.hint}"
    inner = [name for one in named.values() if isinstance(one, dict) for name in one]
    assert any(name in told for name in [*named, *inner]), told
    assert session.last is None
    assert not session.store.comparisons()


@pytest.mark.parametrize("named", [{"models": M, "against": "nope"}, {"models": [M, "nope"]}])
def test_the_accuracy_of_an_unknown_model_is_refused(session: Session, named: dict[str, Any]) -> None:
    with pytest.raises(ortune.ModelError, match="nope"):
        ortune.accuracy(data=ROOT / "sample_models" / "digits_test.npz", session=session, **named)
    assert session.last is None


def test_results_stand_for_their_ids(session: Session, tmp_path: Path) -> None:
    model = inspect(tiny_models.mlp(tmp_path / "mlp.onnx"), session=session)
    result = tune(model, runs=20, session=session)
    assert result.record.model_sha256 == model.id
    assert ortune.load_result(result, session=session).id == result.id
    assert export(result, session=session).record.trial.id == result.id
    assert [
        one.id
        for one in ortune.history(model=model, grade=["A", "B", "C", "D", "F"], session=session).record.trials
    ]
    with pytest.raises(SpecError, match="takes a model"):
        ortune.profile(result, session=session)


# --- scripts and notebooks ----------------------------------------------------------------------------------


def test_the_lines_of_the_readme_run_as_cells_in_a_script_without_a_main_guard(tmp_path: Path) -> None:
    lines = python_of(ROOT / "README.md")
    assert 4 <= len(lines) <= 8
    cells = [*lines, "print(result._repr_html_())"]
    script = tmp_path / "script.py"
    script.write_text(
        f"import code\nshell = code.InteractiveInterpreter()\nlist(map(shell.runsource, {cells!r}))"
    )
    environment = os.environ | {"ORTUNE_HOME": str(tmp_path), "ORTUNE_QUEUE": str(tmp_path / "queue")}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert (done.returncode, "<div><strong>" in done.stdout) == (0, True)


def python_of(path: Path) -> list[str]:
    """The lines of the first Python block of a document."""
    _, _, rest = path.read_text(encoding="utf-8").partition("```python\n")
    block, _, _ = rest.partition("```")
    return [line for line in block.splitlines() if line.strip()]


# --- results as numbers and in one line ---------------------------------------------------------------------

_DATA = {"path": str(ROOT / "sample_models" / "digits_test.npz"), "limit": 60}


def check_numbers(result: ortune.Result[Any], *names: str) -> None:
    """The named columns of the frame hold numbers, and no text of a terminal is in it."""
    frame = result.to_frame()
    assert all(frame[name].dtype.kind in "fi" for name in names), frame.dtypes
    assert not any(sign in frame.to_csv() for sign in ("└", "✓", "±", "MiB"))


def check_line(result: ortune.Result[Any], *words: str) -> None:
    """The result is one line with each word, and names its ID once; it can be hashed."""
    line = repr(result)
    assert "\n" not in line
    assert line == f"<{result.kind}{' ' * bool(result.id)}{result.id}: {result.verdict}>"
    assert not result.id or line.count(result.id) == 1
    assert all(word in line for word in words), line
    assert result in {result}


def test_frames_and_lines_of_measurements(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    with simulated_clock.machine():
        tuned = ortune.tune(model, intra_op_num_threads=1, session=session)
        compared = ortune.compare(model, ["preset:edge"], session=session)
    for result in (tuned, compared, ortune.load_result(tuned.id, session=session)):
        check_numbers(result, "ratio", "ratio_low", "ratio_high", "p50_ms", "p50_ms_high", "p95_ms_low")
        frame = result.to_frame()
        assert frame["fallback"].dtype == bool
        assert set(frame["role"]) == {"baseline", "candidate"}
    verdict = tuned.to_dict()["contrasts"][0]["verdict"]
    assert verdict in list(tuned.to_frame()["verdict"])
    check_line(tuned, "against ORT default")
    check_line(compared)
    profiled = ortune.profile(model, session=session)
    check_numbers(profiled, "self_ms", "share", "calls_per_run", "weights_bytes")
    check_line(profiled, "of the")
    check_numbers(ortune.history(session=session), "p50_ms", "rows_per_s", "batch_size")
    explained = explain(tuned.id, session=session)
    check_numbers(explained, "baseline_ms", "difference_ms", "baseline_nodes")
    check_line(explained)
    again = ortune.load_result(*reversed(explained.refs), session=session)
    assert (again.kind, again.id) == ("explanation", tuned.id)
    exported = export(tuned.id, session=session)
    check_line(exported, "yaml")
    assert "<pre># ORTune" in exported._repr_html_()
    with pytest.raises(SpecError, match="kind `export` has no table") as refused:
        exported.to_frame()
    assert "to_dict" in refused.value.hint


def test_frames_and_lines_of_the_machine(session: Session) -> None:
    check_line(machine(), "logical CPU")
    with simulated_clock.machine():
        noise = self_test(session=session)
    check_line(noise, "Noise check")
    check_numbers(noise, "half_width", "launches", "seconds")
    speed = peaks(session=session)
    check_numbers(speed, "threads", "operations_per_s", "operations_per_s_low", "bytes_per_s_high")
    check_line(speed, "operations per second")


def test_frames_and_lines_of_models_and_searches(session: Session, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "mlp.onnx")
    made = transform(model, "fp16", session=session)
    check_numbers(made, "nodes", "size_bytes", "error_max_rel", "seconds")
    check_numbers(variants(session=session), "size_bytes", "ratio", "ratio_low")
    check_line(variants(session=session), "2 models")
    levels = {"graph_optimization_level": ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"]}
    with simulated_clock.machine():
        found = ortune.search(model, vary=levels, budget_s=20, session=session)
    check_numbers(found, "gain", "gain_low", "p50_ms")
    check_line(found, "ONNX Runtime's default")


def test_accuracies_and_scorecards_are_loaded_again_as_numbers(session: Session) -> None:
    found = ortune.accuracy("digits_cnn", _DATA, session=session)
    check_numbers(found, "samples", "accuracy", "accuracy_low", "accuracy_high")
    check_line(found, "digits_cnn", "95 % CI")
    again = ortune.load_result(found.id[:8], session=session)
    assert (again.kind, again.id, again.verdict) == ("accuracy", found.id, found.verdict)
    half = transform("digits_cnn", "fp16", session=session).record.result.name
    pair = ortune.accuracy(half, _DATA, against="digits_cnn", session=session)
    assert list(pair.to_frame()["model"]) == [half, "digits_cnn"]
    check_numbers(pair, "difference", "difference_low", "agreement")
    targets = [{"metric": "latency_p50", "at_most": "10 s"}]
    with simulated_clock.machine():
        card = ortune.scorecard({"model": {"path": "digits_cnn"}, "targets": targets}, session=session)
    check_numbers(card, "value", "low", "high", "margin")
    assert list(card.to_frame()["unit"]) == ["s"]
    check_line(card, "meets every target")
    stored = ortune.load_result(card.id, session=session)
    assert (stored.kind, list(stored.to_frame()["state"])) == ("scorecard", ["MET"])


def test_a_closed_session_runs_nothing_and_the_default_one_opens_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    monkeypatch.setattr("core.api.session._default", [])
    first = ortune.session()
    assert ortune.session() is first
    first.close()
    with pytest.raises(SpecError, match="This session is closed"):
        tune("digits_cnn", effort="quick", session=first)
    assert ortune.session() is not first
    assert not ortune.history(session=first).record.trials
    ortune.session().close()
