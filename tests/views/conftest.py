"""The pages run in this process by AppTest, on a home of their own, with real workers."""

from __future__ import annotations

import contextlib
import copy
import functools
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.testing.v1 import AppTest, app_test, local_script_runner
from streamlit.util import calc_hash

from core import wire
from core.process.job_worker import run_job
from core.run.job import Status
from core.store import ModelRecord, Store
from core.store.library import import_file, import_files, inspect_cached, sample_models
from core.wire.runtime import OWN
from core.wire.variables import ALLOW_EXPERT, OPEN_FOLDERS
from dashboard import session_jobs, state
from tests import tiny_models
from tests.views import sample_results

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"
TIMEOUT_S = 60.0  # a page that inspects a model or the machine starts a process


@pytest.fixture(scope="session")
def machine() -> wire.Environment:
    """This machine, inspected once."""
    return run_job(wire.ENVIRONMENT, {})


@pytest.fixture(scope="session")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without a model, which knows what is in the samples."""
    path = tmp_path_factory.mktemp("new") / "ortune.db"
    for sample in sample_models():
        if sample.exists:
            inspect_cached(Store(path), Path(sample.path))
    return path


@pytest.fixture(scope="session", autouse=True)
def quick() -> Iterator[None]:
    """Without what costs most and shows nothing: a search for components in every installed package whenever
    a page is opened, a walk through all of memory, waiting for the disk, and compiling a page for each run.
    """
    with pytest.MonkeyPatch.context() as patch:
        scan, connect = manifest_scanner.scan_component_manifests, sqlite3.connect

        def connect_quickly(*args: Any, **how: Any) -> sqlite3.Connection:
            db = connect(*args, **how)
            with contextlib.suppress(sqlite3.Error):  # a file that cannot be read, which its reader will say
                db.execute("PRAGMA synchronous = OFF")
            return db

        scripts = ScriptCache()
        patch.setattr(manifest_scanner, "scan_component_manifests", functools.cache(scan))
        for module in (app_test, local_script_runner):
            patch.setattr(module, "ScriptCache", lambda: scripts)
        patch.setattr(state, "freeze_imports", lambda: True)
        patch.setattr(sqlite3, "connect", connect_quickly)
        yield


@pytest.fixture(autouse=True)
def home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: wire.Environment, new_store: Path
) -> Iterator[Path]:
    """A home folder, a queue and services of this test alone; nothing runs on afterwards."""
    path = tmp_path / "home"
    path.mkdir()
    shutil.copyfile(new_store, path / new_store.name)
    monkeypatch.setenv("ORTUNE_HOME", str(path))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    monkeypatch.delenv("ORTUNE_MODELS", raising=False)
    monkeypatch.delenv(ALLOW_EXPERT, raising=False)
    monkeypatch.setenv(OPEN_FOLDERS, "")  # the dashboard sets it; it must not outlast the test
    # No process has the trials that tests invent: a page that checks every few seconds would end them.
    monkeypatch.setattr(state, "settled", lambda store: None)
    st.cache_resource.clear()
    state.scheduler()._environments[OWN] = machine
    yield path
    state.close()
    st.cache_resource.clear()


_known: dict[bytes, dict[str, Any]] = {}


def inspect_once(job: str, payload: dict[str, Any], **how: Any) -> dict[str, Any]:
    """Called like `run_job`, for a file without external data: the same content is inspected once."""
    content = Path(payload["path"]).read_bytes()
    if content not in _known:
        _known[content] = run_job(job, payload, **how)
    return copy.deepcopy(_known[content])


@pytest.fixture
def add_model(tmp_path: Path) -> Callable[..., ModelRecord]:
    """Put a tiny model into the library."""

    def add(make: Callable[..., Path] = tiny_models.mlp, name: str = "") -> ModelRecord:
        path = make(tmp_path / f"{name or make.__name__}.onnx")
        return import_files(state.store(), [path], name=name or make.__name__, run=inspect_once)[0]

    return add


@pytest.fixture
def add_variant(tmp_path: Path) -> Callable[..., ModelRecord]:
    """Put another tiny model into the library that is said to be an INT8 variant of `root`."""

    def add(root: ModelRecord, name: str, *, steps: Any = (), **size: int) -> ModelRecord:
        facts = {
            "root": root.content_sha256,
            "root_name": root.name,
            "parent": root.content_sha256,
            "parent_name": root.name,
            "steps": list(steps),
            "precision": "int8",
        }
        path = tiny_models.mlp(tmp_path / f"{name}.onnx", **size)
        return import_file(
            state.store(), path, name=name, source="variant", details={"variant": facts}, run=inspect_once
        )

    return add


@pytest.fixture
def mlp(add_model: Callable[..., ModelRecord]) -> ModelRecord:
    return add_model(tiny_models.mlp)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Pretend that jobs of this server have these states; returns those that are cancelled."""

    def stand(*known: Status) -> list[str]:
        cancelled: list[str] = []
        service = state.scheduler()
        monkeypatch.setattr(service, "status", {one.id: one for one in known}.get)
        monkeypatch.setattr(service, "active", lambda: [one for one in known if session_jobs.is_active(one)])
        monkeypatch.setattr(service, "cancel", cancelled.append)
        return cancelled

    return stand


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Requests of pages to measure or to compare, as keywords; nothing is run."""
    asked: list[dict[str, Any]] = []

    def submit(name: str, wanted: Any, **how: Any) -> str:
        asked.append({name: wanted, **how})
        return f"job-{len(asked)}"

    sample_results.queue(monkeypatch, "tune", functools.partial(submit, "spec"))
    sample_results.queue(monkeypatch, "comparison", functools.partial(submit, "contestants"))
    return asked


@pytest.fixture
def open_page() -> Callable[..., AppTest]:
    """Open a page of the app, by the name of its file, with an optional model and query."""

    def open_it(name: str = "tune", *, model: ModelRecord | None = None, **query: str) -> AppTest:
        at = AppTest.from_file(str(APP), default_timeout=TIMEOUT_S)
        if model is not None:
            at.session_state[state.MODEL] = model.content_sha256
        for key, value in query.items():
            at.query_params[key] = value
        if name != "tune":
            at._page_hash = calc_hash(name)  # as the address of the page has it
        at.run()
        assert not at.exception, [e.value for e in at.exception]
        return at

    return open_it
