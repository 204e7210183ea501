"""The Models page: library, inspection, upload, the server's folder, export, deletion."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core import wire
from core.process import scratch
from core.process.job_worker import run_job
from core.run.job import Status
from core.wire.catalog import RANDOM_WEIGHTS_NOTE
from core.wire.errors import ModelError
from dashboard import fields, folders, state
from dashboard.server import upload
from dashboard.views.models import exporting
from dashboard.widgets import feeding
from tests import tiny_models
from tests.reading import numbers, tells
from tests.views import sample_results, test_people
from tests.views.page import Add, Open, choice, facts, followed, icons, keys, lines, texts
from tests.views.test_people import ANNA, BEN, Log

log_in = test_people.log_in
NOTE = "No download here."


def library(at: AppTest) -> Any:
    return at.dataframe[0].value


def sent(files: Mapping[str, bytes], batch: str = "a" * 32) -> list[Path]:
    """Files as the upload route stores them."""
    place = upload.folder() / batch
    place.mkdir(parents=True)
    for name, data in files.items():
        (place / name).write_bytes(data)
    return upload.claim_files(batch, list(files))


def after_upload(at: AppTest, files: list[Path]) -> AppTest:
    at.session_state["models.upload.pending"] = [str(file) for file in files]
    at.run()
    assert not at.exception
    return at


# --- the library ------------------------------------------------------------------------------------------


def test_the_samples_are_in_the_library_and_the_current_model_is_inspected(open_page: Open) -> None:
    at = open_page().switch_page("views/models/page.py").run()
    assert {"digits_cnn", "tiny_transformer"} <= set(library(at)["Name"])
    assert ":green-badge[:material/check:" in texts(at)
    tensors = next(one.value for one in at.dataframe if "Shape" in one.value)
    assert tensors["Name"][0] == "image"
    assert "batch" in tensors["Shape"][0]


def test_an_empty_library_says_what_to_do(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "sample_models", lambda: [])
    at = open_page("models")
    assert "deployed_code" in icons(at)


def test_model_says_that_its_run_was_not_checked_and_a_button_has_it_loaded(
    open_page: Open, add_model: Add
) -> None:
    at = open_page("models", model=add_model(tiny_models.mlp))
    before = set(texts(at).splitlines())
    at.button(key="models.load").click().run()
    assert not at.exception
    after = set(texts(at).splitlines())
    assert any("CPU" in line for line in after - before)
    assert before - after  # that it was not checked


def test_model_that_cannot_be_fed_says_so(open_page: Open, add_model: Add) -> None:
    at = open_page("models", model=add_model(tiny_models.sequence_input))
    assert "seq(tensor(float))" in at.warning[0].value


def test_model_that_does_not_load_says_why(open_page: Open, add_model: Add) -> None:
    at = open_page("models", model=add_model(tiny_models.unknown_operator))
    at.button(key="models.load").click().run()
    assert not at.exception
    assert len(at.error) == 1
    assert at.button(key="models.load")


def test_every_free_dimension_and_operator_is_shown(open_page: Open, add_model: Add) -> None:
    record = add_model(tiny_models.unnamed_dims)
    at = open_page("models", model=record)
    assert ", ".join(record.info["free_dims"]) in facts(at).values()
    operators = next(one.value for one in at.dataframe if "Operator" in one.value)
    assert dict(zip(operators["Operator"], operators["Nodes"], strict=True)) == record.info["op_counts"]
    assert facts(at)["Sha256"] == record.sha256
    assert "IR 10" in facts(at)["Opset"]


def test_a_model_with_external_data_names_its_files(open_page: Open, tmp_path: Path) -> None:
    path = tiny_models.external_data(tmp_path / "big.onnx")
    files = sent({"big.onnx": path.read_bytes(), "weights.bin": (tmp_path / "weights.bin").read_bytes()})
    at = after_upload(open_page("models"), files)
    assert "weights.bin" in str(at.table[0].value)
    assert not at.error


def test_use_in_tune_opens_tune_with_that_model(open_page: Open, add_model: Add) -> None:
    mlp, conv = add_model(tiny_models.mlp), add_model(tiny_models.conv)
    at = open_page("models", model=mlp)
    row = library(at)["Name"].tolist().index("conv")
    key = next(found[0] for one in at.dataframe if (found := re.search(r"models\.table\..*", one.proto.id)))
    at.session_state[key] = {"selection": {"rows": [row], "columns": [], "cells": []}}
    at.run()
    at.button(key="models.use").click().run()
    assert at.title[0].value == "Tune"
    assert at.session_state[state.MODEL] == conv.content_sha256


def test_deleting_a_model_asks_first_and_keeps_its_trials(open_page: Open, add_model: Add) -> None:
    mlp = add_model(tiny_models.mlp)
    trial = sample_results.put_measured(state.store(), mlp, sample_results.spec_for(mlp), fingerprint="f")
    at = open_page("models", model=mlp)
    at.button(key="models.delete").click().run()
    assert "models.confirm" in keys(at)
    assert state.store().model(mlp.content_sha256) is not None

    def script(sha: str) -> None:
        from dashboard import state
        from dashboard.views.models.removal import remove

        record = state.store().model(sha)
        assert record is not None
        remove(record)

    assert not AppTest.from_function(script, args=(mlp.content_sha256,), default_timeout=60).run().exception
    assert state.store().model(mlp.content_sha256) is None
    assert not Path(mlp.path).exists()
    assert state.store().trial(trial.id)


# --- upload -----------------------------------------------------------------------------------------------


def test_an_uploaded_model_is_in_the_library_and_open(open_page: Open, tmp_path: Path) -> None:
    data = tiny_models.mlp(tmp_path / "x.onnx").read_bytes()
    at = after_upload(open_page("models"), sent({"my model.onnx": data}))
    record = state.store().model("my model")
    assert record is not None
    assert record.source == "upload"
    assert Path(record.path).read_bytes() == data
    assert at.session_state["models.detail"] == record.content_sha256
    assert not list(upload.folder().iterdir())


def test_a_duplicate_is_recognised_by_its_content_and_said(open_page: Open, add_model: Add) -> None:
    known = add_model(tiny_models.mlp)
    at = open_page("models", model=known)
    before = len(state.store().models())
    after_upload(at, sent({"again.onnx": Path(known.path).read_bytes()}))
    assert tells(at.toast[0].value, known.name)
    assert len(state.store().models()) == before
    assert state.store().model("again") is None


@pytest.mark.parametrize(
    "make",
    [
        tiny_models.not_onnx,
        tiny_models.truncated,
        tiny_models.newer_opset,
        tiny_models.newer_ir,
        tiny_models.external_data_outside,
    ],
)
def test_a_file_that_is_no_usable_model_is_a_red_box_and_leaves_nothing(
    open_page: Open, tmp_path: Path, make: Callable[..., Path]
) -> None:
    at = open_page("models")
    before = {one.content_sha256 for one in state.store().models()}
    after_upload(at, sent({"bad.onnx": make(tmp_path / "bad.onnx").read_bytes()}))
    assert len(at.error) == 1
    assert len(at.tabs[1].error) == 1  # under the upload, not at the top of the page
    assert tells(at.error[0].value, "**")  # what to do
    assert {one.content_sha256 for one in state.store().models()} == before
    assert not list(upload.folder().iterdir())


def test_a_message_does_not_close_the_tab_that_it_is_about(open_page: Open) -> None:
    at = open_page("models")
    at.button(key="models.path_add").click().run()
    assert not at.exception
    assert len(at.tabs[2].error) == 1
    assert "models.ways" in at.session_state  # a widget: the browser keeps what is open
    at.run()
    assert not at.error  # once


def test_missing_external_data_is_said(open_page: Open, tmp_path: Path) -> None:
    path = tiny_models.external_data(tmp_path / "big.onnx")
    at = after_upload(open_page("models"), sent({"big.onnx": path.read_bytes()}))
    assert "weights.bin" in texts(at)
    assert len(at.error) == 1


def test_uploaded_feeds_are_kept_and_chosen(
    add_model: Add, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: dict[str, Any] = {}
    monkeypatch.setattr(feeding.st, "session_state", chosen)
    feeding.feeds_uploaded(sent({"a.npz": b"1"}))
    assert Path(chosen[fields.FEEDS_PATH]).read_bytes() == b"1"
    feeding.feeds_uploaded(sent({"a.png": b"1", "b.png": b"2"}, batch="b" * 32))
    assert sorted(one.name for one in Path(chosen[fields.FEEDS_PATH]).iterdir()) == ["a.png", "b.png"]
    upload.remove_stale(now=1e12)
    assert Path(chosen[fields.FEEDS_PATH]).is_dir()


# --- the server's folder ----------------------------------------------------------------------------------


def test_without_a_configured_folder_the_page_says_how_to_get_one(open_page: Open) -> None:
    assert lines(open_page("models"), "--models")


def test_a_model_of_the_configured_folder_can_be_added(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "models"
    (root / "sub").mkdir(parents=True)
    path = tiny_models.mlp(root / "sub" / "mine.onnx")
    monkeypatch.setenv("ORTUNE_MODELS", str(root))
    at = open_page("models")
    assert at.selectbox(key="models.folder").options == [str(path)]
    at.button(key="models.folder_add").click().run()
    record = state.store().model("mine")
    assert record is not None
    assert (record.source, record.path) == ("folder", str(path))


def test_a_typed_path_is_added_when_it_lies_inside(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "models"
    root.mkdir()
    monkeypatch.setenv("ORTUNE_MODELS", str(root))
    path = tiny_models.mlp(root / "typed.onnx")
    at = open_page("models")
    at.text_input(key="models.path").set_value(str(path)).run()
    at.button(key="models.path_add").click().run()
    assert state.store().model("typed") is not None


@pytest.mark.parametrize(
    "typed", ["", "/etc/passwd", "~/x.onnx", "../../etc/passwd", "/nowhere", "a\0b", "x" * 5000]
)
def test_other_paths_of_the_server_are_refused(open_page: Open, typed: str) -> None:
    with pytest.raises(ModelError):
        folders.allowed_path(typed, state.store())


def test_a_link_out_of_the_folder_is_followed_before_it_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "models"
    root.mkdir()
    (root / "link.onnx").symlink_to("/etc/hostname")
    monkeypatch.setenv("ORTUNE_MODELS", str(root))
    with pytest.raises(ModelError, match="outside"):
        folders.allowed_path(str(root / "link.onnx"), state.store())


def test_a_refused_path_is_a_red_box(open_page: Open) -> None:
    at = open_page("models")
    at.text_input(key="models.path").set_value("/etc/passwd").run()
    at.button(key="models.path_add").click().run()
    assert tells(at.error[0].value, "/etc/passwd")
    assert not at.exception


# --- export -----------------------------------------------------------------------------------------------


Work = Callable[[Any], Mapping[str, Any]]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """The work of the exports that the page submits, while nothing is done."""
    asked: list[Work] = []

    def submit(work: Work, **_: Any) -> str:
        asked.append(work)
        return f"job{len(asked)}"

    sample_results.queue(monkeypatch, "task", submit)
    return asked


def stand(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    facts: dict[str, Any] = {"id": "job1", "kind": "export", "state": "RUNNING", "what": "export of resnet18"}
    monkeypatch.setattr(state.scheduler(), "status", lambda _: Status(**(facts | changes)))


def convert(work: Work, **changes: Any) -> tuple[wire.ExportPlan, Mapping[str, Any]]:
    """Do the work of an export with a worker that writes a tiny model; returns its plan and the result."""
    plans: list[wire.ExportPlan] = []

    def run(job: Any, payload: Any, **how: Any) -> Any:
        if job != wire.EXPORT:
            return run_job(job, payload, **how)
        plans.append(payload)
        return reply(tiny_models.mlp(Path(payload["output"])), **changes)

    result = work(run)
    return plans[0], result


def reply(path: Path, **changes: Any) -> dict[str, Any]:
    return {
        "path": str(path),
        "sha256": "",
        "size_bytes": 5000,
        "nodes": 4,
        "op_counts": {"Gemm": 2},
        "parameters": 676,
        "opset": 20,
        "ir_version": 10,
        "weights": "random",
        "notes": [NOTE],
        "seconds": 2.5,
        "differences": [
            {"batch": 1, "max_abs": 1e-7, "max_rel": 2e-7},
            {"batch": 3, "max_abs": 3e-7, "max_rel": 4e-7},
        ],
    } | changes


def test_the_form_asks_for_what_it_shows(
    open_page: Open, jobs: list[Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page("models")
    at.selectbox(key="export.form.name").set_value("mobilenet_v2")
    at.selectbox(key="export.form.opset").set_value(18)
    at.toggle(key="export.form.dynamic").set_value(False)
    at.toggle(key="export.form.pretrained").set_value(False).run()
    stand(monkeypatch, done=2, total=4, stage="export", elapsed_s=3.0)
    at.button(key="export.form.start").click().run()
    [work] = jobs
    plan, _ = convert(work)
    assert (plan["source"], plan["name"], plan["opset"]) == ("torchvision", "mobilenet_v2", 18)
    assert (plan["dynamic_batch"], plan["pretrained"]) == (False, False)
    assert Path(plan["output"]).name == "mobilenet_v2.onnx"
    assert at.button(key="export.form.start").disabled
    assert followed(at, "export.watch")["share"] == 0.5


def test_a_running_export_can_be_cancelled(
    open_page: Open, jobs: list[Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[str] = []
    monkeypatch.setattr(state.scheduler(), "cancel", cancelled.append)
    at = open_page("models")
    stand(monkeypatch)
    at.button(key="export.form.start").click().run()
    at.button(key="export.cancel").click().run()
    assert cancelled == ["job1"]
    stand(monkeypatch, state="CANCELLED")
    at.run()
    assert not followed(at, "export.watch")
    assert not at.error


def test_a_finished_export_is_in_the_library_with_its_card(
    open_page: Open, jobs: list[Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page("models")
    stand(monkeypatch)
    at.button(key="export.form.start").click().run()
    plan, result = convert(jobs[0])
    stand(monkeypatch, state="COMPLETE", result=result)
    at.run()
    assert not at.exception
    record = state.store().model("resnet18")
    assert record is not None
    assert record.source == "export"
    assert Path(record.path).is_file()
    assert record.details["path"] == record.path
    assert not Path(plan["output"]).parent.exists()
    assert RANDOM_WEIGHTS_NOTE in texts(at).lower()
    differences = next(one.value for one in at.dataframe if "Compared at" in one.value)
    compared = differences[differences.columns[0]].tolist()
    assert [numbers(one) for one in compared] == [[1], [3]]
    assert differences.iloc[1, 1] == "3e-07"
    assert lines(at, NOTE)


def test_the_session_that_asked_is_told_after_a_reload_and_no_other_one(
    open_page: Open, jobs: list[Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page("models")
    stand(monkeypatch)
    at.button(key="export.form.start").click().run()
    reloaded, other = (open_page("models", **query) for query in ({"form": at.query_params["form"]}, {}))
    assert followed(reloaded, "export.watch")
    assert not followed(other, "export.watch")
    stand(monkeypatch, state="COMPLETE", result=convert(jobs[0])[1])
    assert not other.run().toast
    assert "resnet18" in library(other)["Name"].tolist()
    assert tells(reloaded.run().toast[0].value, "resnet18")
    assert not reloaded.run().toast  # once


def test_the_end_of_an_export_reaches_the_person_who_asked_alone(
    open_page: Open, add_model: Add, log_in: Log
) -> None:
    log_in(ANNA)
    hers = add_model(name="resnet18")
    state.store().share([hers.content_sha256], private=True)  # so a job with its name is private, too
    at = open_page("models")

    def run(job: Any, payload: Any, **how: Any) -> Any:
        if job == wire.EXPORT:
            return reply(tiny_models.conv(Path(payload["output"])))
        return run_job(job, payload, **how)

    state._scheduler()._run = run
    with state.queue().turn("a test", "holds the machine"):
        at.selectbox(key="export.form.name").set_value("resnet18").run()
        at.button(key="export.form.start").click().run()
        log_in(BEN)
        his = open_page("models", form=at.query_params["form"])
        assert not followed(his, "export.watch")
    assert state._scheduler().join(60)
    assert not his.run().toast
    log_in(ANNA)
    assert tells(at.run().toast[0].value, "resnet18")
    [record] = [one for one in state.store().models() if one.source == "export"]
    assert state.store().visibility([record.content_sha256])[record.content_sha256].person == ANNA.id


def test_a_failed_export_says_why(open_page: Open, jobs: list[Work], monkeypatch: pytest.MonkeyPatch) -> None:
    at = open_page("models")
    stand(monkeypatch)
    at.button(key="export.form.start").click().run()
    stand(
        monkeypatch,
        state="FAIL",
        error={"type": "ModelError", "message": "Opset 13 is too old.", "hint": "Choose 18 or newer."},
    )
    at.run()
    assert tells(at.error[0].value, "Opset 13", "18")
    assert not at.button(key="export.form.start").disabled


def test_a_pt2_file_is_called_code_and_must_be_reachable(open_page: Open, jobs: list[Work]) -> None:
    at = open_page("models")
    at.get_by_key("export.form.source").set_value(exporting.PT2).run()
    assert any(tells(one.value, "`.pt2`", "PyTorch") for one in at.warning)
    at.text_input(key=exporting.PT2_PATH).set_value("/etc/passwd").run()
    at.button(key="export.form.start").click().run()
    assert len(at.error) == 1
    assert jobs == []


def test_a_sample_that_is_not_made_yet_can_be_made(
    open_page: Open, jobs: list[Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page("models")
    stand(monkeypatch)
    at.button(key="sample.resnet18").click().run()
    plan, result = convert(jobs[0])
    path = Path(plan["output"])
    assert plan["name"] == "resnet18"
    stand(monkeypatch, state="COMPLETE", result=result)
    at.run()
    record = state.store().model("resnet18")
    assert record is not None
    assert record.path == str(path)
    assert path.is_file()


def test_a_real_export_ends_in_the_library(open_page: Open, home: Path) -> None:
    at = open_page("models")
    at.selectbox(key="export.form.name").set_value("squeezenet1_1")
    at.toggle(key="export.form.pretrained").set_value(False).run()
    at.button(key="export.form.start").click().run()
    assert followed(at, "export.watch")
    assert state.scheduler().join(280)
    at.run()
    assert not at.exception
    assert not at.error, [one.value for one in at.error]
    record = state.store().model("squeezenet1_1")
    assert record is not None
    assert record.info["batch_dim"] is not None
    assert RANDOM_WEIGHTS_NOTE in record.note.lower()
    differences = next(one.value for one in at.dataframe if "Compared at" in one.value)
    assert len(differences) == 2
    assert float(differences.iloc[0, 1]) < 1e-3
    assert not [one for one in (home / "models").iterdir() if one.name.startswith(scratch.INCOMING)]
    at.button(key="models.use").click().run()
    assert choice(at, "model.picked").value == record.content_sha256
