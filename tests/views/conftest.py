"""The pages run in this process by AppTest, on a home of their own, with real workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core import wire
from core.process.runner import run_job
from core.store import ModelRecord
from core.store.library import import_files
from core.wire.doors import EXPERT_VARIABLE, FOLDERS_VARIABLE
from dashboard import state
from tests import tiny_models

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"
TIMEOUT_S = 60.0  # a page that inspects a model or looks at the machine starts a process


@pytest.fixture(scope="session")
def machine() -> wire.Environment:
    """This machine, looked at once."""
    return run_job(wire.ENVIRONMENT, {})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: wire.Environment) -> Iterator[Path]:
    """A home folder, a queue and services of this test alone; nothing runs on afterwards."""
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    monkeypatch.delenv("ORTUNE_MODELS", raising=False)
    monkeypatch.delenv(EXPERT_VARIABLE, raising=False)
    monkeypatch.setenv(FOLDERS_VARIABLE, "")  # the dashboard sets it; it must not outlast the test
    st.cache_resource.clear()
    state.scheduler()._environment = machine
    yield tmp_path / "home"
    state.scheduler().close()
    st.cache_resource.clear()


@pytest.fixture
def add_model(tmp_path: Path) -> Callable[..., ModelRecord]:
    """Put a tiny model into the library."""

    def add(make: Callable[..., Path] = tiny_models.mlp, name: str = "") -> ModelRecord:
        path = make(tmp_path / f"{name or make.__name__}.onnx")
        return import_files(state.store(), [path], name=name or make.__name__)[0]

    return add


@pytest.fixture
def open_page() -> Callable[..., AppTest]:
    """Open a page of the app, by the name of its file, with an optional model and query."""

    def open_it(name: str = "tune", *, model: ModelRecord | None = None, **query: str) -> AppTest:
        at = AppTest.from_file(str(APP), default_timeout=TIMEOUT_S)
        if model is not None:
            at.session_state[state.MODEL] = model.content_sha256
        for key, value in query.items():
            at.query_params[key] = value
        at.run()
        if name != "tune":
            at.switch_page(f"views/{name}/page.py").run()
        assert not at.exception, [e.value for e in at.exception]
        return at

    return open_it
