"""Requests that a session remembers; links to results that are not there."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.run import job_types
from core.run.job import Status
from core.spec import spec_from_dict
from core.store import ModelRecord
from dashboard import messages, state
from tests.views import sample_results
from tests.views.conftest import TIMEOUT_S
from tests.views.page import Open

PRESSES = """
import streamlit as st
from dashboard import messages, session_jobs, state

st.session_state["ids"] = [session_jobs.submit(one) for one in st.session_state["jobs"]]
"""


@pytest.mark.parametrize(("stage", "started"), [("RUNNING", 2), ("WAITING", 2), ("COMPLETE", 3)])
def test_a_press_that_is_handed_over_twice_starts_one_job(
    monkeypatch: pytest.MonkeyPatch, stage: Any, started: int
) -> None:
    service = state.scheduler()
    monkeypatch.setattr(service, "submit", lambda job: job.id)
    monkeypatch.setattr(
        service, "status", lambda job: Status(id=job, kind="peaks", state=stage, what="peaks of the machine")
    )
    one, other = (
        spec_from_dict({"model": {"path": "m.onnx"}, "workload": {"batch_size": size}}) for size in (1, 2)
    )
    jobs = [job_types.profile(asked) for asked in (one, one, other)]
    at = AppTest.from_string(PRESSES, default_timeout=TIMEOUT_S)
    at.session_state["jobs"] = jobs
    at.run()
    assert not at.exception
    ids = at.session_state["ids"]
    assert len(set(ids)) == started
    assert (ids[0] == ids[1]) is (stage != "COMPLETE")


def test_jobs_that_do_not_say_all_that_is_asked_are_all_started(monkeypatch: pytest.MonkeyPatch) -> None:
    service = state.scheduler()
    monkeypatch.setattr(service, "submit", lambda job: job.id)
    active = Status(id="job", kind="peaks", state="RUNNING", what="peaks of this machine")
    monkeypatch.setattr(service, "status", lambda job: active)
    at = AppTest.from_string(PRESSES, default_timeout=TIMEOUT_S)
    at.session_state["jobs"] = [job_types.peaks(1), job_types.peaks(2)]
    at.run()
    assert len(set(at.session_state["ids"])) == 2


@pytest.mark.parametrize(
    ("page", "name"),
    [
        *((page, state.TRIAL_PARAM) for page in ("tune", "history", "profile", "graph", "scorecard")),
        ("compare", "comparison"),
        ("search", "study"),
        ("explain", "b"),
        ("accuracy", "accuracy"),
    ],
)
def test_a_link_to_a_result_that_is_not_here_says_so(
    open_page: Open, mlp: ModelRecord, page: str, name: str
) -> None:
    sample_results.put_run(state.store(), mlp, fingerprint="f")
    [said] = open_page(page, model=mlp, **{name: "ffffffffffff"}).error
    assert said.proto.title == messages.TITLES["MissingError"]
    assert "ffffffffffff" in said.value
