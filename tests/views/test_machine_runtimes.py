"""Runtimes on the Machine page: the list, the form that adds one, checks and removal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.api import runtimes as api
from core.process import runtimes
from core.run.job import Status
from core.wire.variables import ALLOW_RUNTIMES
from dashboard import state
from tests import other_runtimes, tiny_wheels
from tests.views.page import Jobs, Open, click, followed, keys, lines, place, status, table, texts

ADD, REMOVE, CHECK = "machine.runtimes.add", "machine.runtimes.remove", "machine.runtimes.check"


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_RUNTIMES, "1")


def fill(at: AppTest, name: str, packages: str) -> AppTest:
    at.text_input(key="machine.runtimes.name").set_value(name)
    at.text_area(key="machine.runtimes.packages").set_value(packages)
    return click(at, "machine.runtimes.confirm")


def test_without_a_runtime_the_page_says_what_one_is_for(open_page: Open) -> None:
    at = open_page("machine")
    assert lines(at, "another version of ONNX Runtime")
    assert ADD in keys(at)
    assert CHECK not in keys(at)


def test_adding_and_removing_is_off_unless_the_operator_allows_it(home: Path, open_page: Open) -> None:
    other_runtimes.add(home, "same")
    at = open_page("machine")
    for key in (ADD, REMOVE):
        assert at.button(key=key).disabled
        assert f"{ALLOW_RUNTIMES}=1" in at.button(key=key).help
    assert not at.button(key=CHECK).disabled


def test_a_press_of_a_disabled_button_changes_nothing(
    home: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOW_RUNTIMES, "1")
    other_runtimes.add(home, "same")
    asked = click(open_page("machine"), REMOVE)
    form = click(open_page("machine"), ADD)
    monkeypatch.delenv(ALLOW_RUNTIMES)
    monkeypatch.setattr(state.scheduler(), "submit", lambda job: pytest.fail(job.what))
    for at in (click(asked, "machine.runtimes.removed"), fill(form, "one", "onnxruntime")):
        assert any(f"{ALLOW_RUNTIMES}=1" in one.value.replace("\\", "") for one in at.error)
    assert [one["name"] for one in runtimes.records()] == ["same"]


def test_the_list_shows_the_facts_of_each(home: Path, open_page: Open) -> None:
    record = other_runtimes.add(home, "same")
    at = open_page("machine")
    shown = table(at, "Hash")
    assert shown["Name"].tolist() == ["same"]
    assert shown["Python"].tolist() == [record["python_version"]]
    assert shown["Hash"].tolist() == [record["sha256"][:12]]
    assert place(at, "markdown", "Execution providers") < place(at, "markdown", "Runtimes")


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize(
    ("name", "packages", "says"),
    [
        ("Bad Name", "onnxruntime", "Bad Name"),
        ("own", "onnxruntime", "environment of ORTune itself"),
        ("one", "", "one of these"),
        ("one", "onnxruntime\n-r /etc/passwd", "-r /etc/passwd"),
        ("one", "/etc/x-1.0-py3-none-any.whl", "outside the folders"),
    ],
)
def test_what_cannot_be_added_is_said_in_the_form(
    open_page: Open, monkeypatch: pytest.MonkeyPatch, name: str, packages: str, says: str
) -> None:
    monkeypatch.setattr(state.scheduler(), "submit", lambda job: pytest.fail(job.what))
    at = fill(click(open_page("machine"), ADD), name, packages)
    assert any(says in one.value.replace("\\", "") for one in at.error)
    assert "machine.runtimes.confirm" in keys(at)


@pytest.mark.usefixtures("allowed")
def test_the_form_queues_what_it_names(home: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tiny_wheels.wheel(home / "uploads", "onnxruntime", "1.0", {})
    asked: list[Any] = []
    monkeypatch.setattr(api, "add_runtime_job", lambda name, **how: asked.append((name, how)) or _Job())
    monkeypatch.setattr(state.scheduler(), "submit", lambda job: "job")
    at = fill(click(open_page("machine"), ADD), " ort130 ", f"onnxruntime==1.30.*\n\n {wheel} \n")
    assert not at.exception
    assert asked == [("ort130", {"packages": ["onnxruntime==1.30.*", str(wheel)], "base": ""})]


class _Job:
    kind, what, trials = api.KIND, "add", ()


@pytest.mark.usefixtures("allowed")
def test_a_running_addition_is_shown_to_everyone_and_can_be_cancelled(open_page: Open, jobs: Jobs) -> None:
    cancelled = jobs(status(kind=api.KIND, stage="download", text="Downloading onnxruntime (17 MB)"))
    at = open_page("machine")
    assert at.button(key=ADD).disabled
    assert "17 MB" in str(followed(at, "machine.runtimes.watch"))
    click(at, "machine.runtimes.cancel")
    assert cancelled == ["job"]


@pytest.mark.usefixtures("allowed")
def test_the_end_of_an_addition_is_told_once(
    home: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    record: Any = {**other_runtimes.add(home, "same"), "notes": ["numpy is kept below 2."]}
    ended = Status(
        id="job", kind=api.KIND, state="COMPLETE", what="", result={"record": record, "existed": False}
    )
    monkeypatch.setattr(state.scheduler(), "submit", lambda _: "job")
    monkeypatch.setattr(state.scheduler(), "status", lambda job: ended if job == "job" else None)
    at = fill(click(open_page("machine"), ADD), "ort130", "onnxruntime")
    assert any("is ready" in one.value for one in at.success)
    assert lines(at, "numpy is kept below 2")
    at.run()
    assert not at.success


@pytest.mark.usefixtures("allowed")
def test_a_failed_addition_says_why(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    error: Any = {"type": "SpecError", "message": "No package fits: <b>x</b>", "hint": "Choose another."}
    failed = Status(id="job", kind=api.KIND, state="FAIL", what="", error=error)
    monkeypatch.setattr(state.scheduler(), "submit", lambda _: "job")
    monkeypatch.setattr(state.scheduler(), "status", lambda job: failed if job == "job" else None)
    at = fill(click(open_page("machine"), ADD), "ort130", "onnxruntime")
    assert any("No package fits" in one.value for one in at.error)


def test_a_check_really_runs_and_shows_what_it_found(home: Path, open_page: Open) -> None:
    record = other_runtimes.add(home, "same")
    at = click(open_page("machine"), CHECK)
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    assert not at.error
    assert lines(at, "Runtime `same` works")
    shown = [str(text) for one in at.table for text in one.value.iloc[:, 0]]
    assert any(record["sha256"] in one for one in shown)
    assert any("CPUExecutionProvider" in one for one in shown)


@pytest.mark.usefixtures("allowed")
def test_a_runtime_is_removed_after_a_confirmation(home: Path, open_page: Open) -> None:
    other_runtimes.add(home, "same")
    other_runtimes.add(home, "twin")
    at = open_page("machine")
    at.selectbox(key="machine.runtimes.chosen").set_value("twin").run()
    at = click(at, REMOVE)
    assert [one["name"] for one in runtimes.records()] == ["same", "twin"]
    assert "Its environment is deleted" in texts(at)
    at = click(at, "machine.runtimes.removed")
    assert not at.exception
    assert [one["name"] for one in runtimes.records()] == ["same"]
    at = open_page("machine")
    assert at.selectbox(key="machine.runtimes.chosen").options == ["same"]


def test_a_removed_interpreter_does_not_break_the_page(home: Path, open_page: Open) -> None:
    record = other_runtimes.add(home, "same")
    Path(record["python"]).unlink()
    at = click(open_page("machine"), CHECK)
    told = [one.value for one in at.error]  # it may have ended already
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    assert any("is missing" in one for one in [*told, *(one.value for one in at.error)])
