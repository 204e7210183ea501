"""Upgrades of ONNX Runtime on the Machine page: the form, and a stored result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.evidence.upgrade import Change, RuntimeSide, UpgradeItem, UpgradeRecord
from core.run.upgrade import put
from dashboard import state
from tests import other_runtimes
from tests.views.page import Add, Open, click, keys, lines, table

START = "machine.upgrade.start"


def side(name: str, version: str) -> RuntimeSide:
    return RuntimeSide(
        runtime=name,
        name=name,
        onnxruntime=version,
        python="3.12.1",
        build="",
        package_bytes=50 << 20,
        environment_bytes=None,
    )


def record(**changes: Any) -> UpgradeRecord:
    error: Any = {"type": "ModelError", "message": "`a.onnx` is no ONNX model.", "hint": "Check the file."}
    found = UpgradeRecord(
        version=1,
        id="a" * 16,
        created_at=1_000_000.0,
        config="",
        names=("own", "ort132"),
        models=("a.onnx", "b.onnx"),
        family=2,
        state="CANCELLED",
        before=side("own", "1.26.0"),
        after=side("ort132", "1.32.0"),
        changes=(Change(kind="opset", name="ai.onnx", before="23", after="25"),),
        items=(UpgradeItem(model="a.onnx", error=error),),
    )
    return replace(found, **changes)


def test_without_another_runtime_there_is_no_form(open_page: Open) -> None:
    assert START not in keys(open_page("machine"))


def test_the_form_queues_the_chosen_models_in_both_runtimes(
    home: Path, open_page: Open, add_model: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_runtimes.add(home, "same")
    model = add_model()
    queued: list[Any] = []
    monkeypatch.setattr(state.scheduler(), "submit", lambda job: queued.append(job) or job.id)
    at = open_page("machine")
    at.multiselect(key="machine.upgrade.models").set_value([model.path])
    at = click(at, START)
    assert not at.error
    (job,) = queued
    assert job.kind == "upgrade"
    assert [one.runtime.partition("@")[0] for one in job.specs] == ["own", "same"]
    assert {one.model.path for one in job.specs} == {model.path}
    assert at.selectbox(key="machine.upgrade.chosen").value == job.id
    assert table(at, "Result")["Result"].tolist() == ["not measured"]


def test_a_form_without_a_model_says_so(home: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    other_runtimes.add(home, "same")
    monkeypatch.setattr(state.scheduler(), "submit", lambda job: pytest.fail(job.what))
    at = click(open_page("machine"), START)
    assert "No model is named" in at.error[0].value


def test_a_stored_upgrade_is_shown_with_what_is_wrong(open_page: Open) -> None:
    put(state.store(), record())
    put(state.store(), record(id="b" * 16, created_at=999.0, models=("old.onnx",), items=()))
    at = open_page("machine")
    shown = table(at, "Result")
    assert shown["Model"].tolist() == ["a.onnx", "b.onnx"]  # of the newest
    assert shown["Result"].tolist() == ["cannot be compared", "not measured"]
    assert lines(at, "a.onnx", "is no ONNX model")
    chosen = at.selectbox(key="machine.upgrade.chosen")
    assert ["own → ort132" in one for one in chosen.options] == [True, True]
    assert table(at, "Changed")["Name"].tolist() == ["ai.onnx"]
    assert "machine.upgrade.report" in keys(at)
    chosen.set_value("b" * 16).run()
    assert table(at, "Result")["Model"].tolist() == ["old.onnx"]
