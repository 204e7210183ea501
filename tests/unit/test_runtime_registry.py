"""Runtimes of this machine: names, records, the hash of their content, and how their workers start."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from core.process import runtimes
from core.process.job_worker import worker_command, worker_environment
from core.spec import ort_default, spec_from_dict, spec_from_yaml, yaml_from_spec
from core.wire.errors import SpecError, StoreError
from core.wire.runtime import OWN, Runtime, runtime

SHA = "0123456789abcdef" * 4


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    return tmp_path


def environment(home: Path, *packages: str) -> Path:
    """An environment with the file lists of some packages; return its interpreter."""
    folder = home / "outside"
    for one in packages:
        metadata = folder / "lib" / "python3.12" / "site-packages" / f"{one}.dist-info"
        metadata.mkdir(parents=True, exist_ok=True)
        (metadata / "RECORD").write_text(f"{one}/__init__.py,sha256=AAAA,1\n")
    python = folder / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    if not python.exists():
        python.symlink_to(sys.executable)
    return python


def add(home: Path, name: str, python: Path, **other: Any) -> None:
    record = {
        "name": name,
        "sha256": runtimes.content_hash(python),
        "python": str(python),
        "python_version": "3.12.1",
        "packages": [],
        "versions": {},
        "size_bytes": 0,
        "managed": False,
        "created_at": 0.0,
        **other,
    }
    folder = home / "runtimes" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "runtime.json").write_text(json.dumps(record))


@pytest.mark.parametrize("text", ["ort130", "1.30", "a_b-c.d", f"ort130@sha256:{SHA}", OWN])
def test_a_runtime_has_one_spelling(text: str) -> None:
    assert str(runtime(f" {text} ")) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ort",
        "../x",
        "a/b",
        "-a",
        ".a",
        "a" * 41,
        f"a@sha256:{SHA[:-1]}",
        f"a@sha256:{SHA.upper()}",
        "a b",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="runtime"):
        runtime(text)


def test_the_hash_of_the_content_changes_with_any_file_of_any_package(home: Path) -> None:
    python = environment(home, "numpy-2.0", "onnxruntime-1.30")
    before = runtimes.content_hash(python)
    assert runtimes.content_hash(python) == before
    [record] = python.parent.parent.glob("lib/*/site-packages/numpy-2.0.dist-info/RECORD")
    text = record.read_text()
    record.write_text(text.replace("AAAA", "AAAB"))
    assert runtimes.content_hash(python) != before
    record.write_text(text)
    assert runtimes.content_hash(python) == before
    environment(home, "pip-25")
    assert runtimes.content_hash(python) != before


def test_a_new_version_of_python_is_other_content(home: Path) -> None:
    python = environment(home, "numpy-2.0")
    facts = python.parent.parent / "pyvenv.cfg"
    facts.write_text("home = /usr/bin\nversion = 3.12.1\n")
    before = runtimes.content_hash(python)
    facts.write_text("home = /usr/bin\nversion = 3.12.2\n")
    assert runtimes.content_hash(python) != before


def test_a_configuration_is_held_to_the_content_it_was_measured_with(home: Path) -> None:
    python = environment(home, "numpy-2.0")
    add(home, "one", python)
    found = runtimes.pinned("one")
    assert found == str(Runtime("one", runtimes.content_hash(python)))
    assert runtimes.pinned(found) == found
    environment(home, "onnxruntime-1.31")
    assert runtimes.pinned("one") != found
    with pytest.raises(SpecError, match="another one"):
        runtimes.pinned(found)


def test_own_has_neither_a_record_nor_a_hash(home: Path) -> None:
    assert runtimes.pinned(OWN) == OWN
    assert runtimes.names() == [OWN]


def test_an_unknown_runtime_is_refused_with_the_nearest_name(home: Path) -> None:
    add(home, "ort130", environment(home, "numpy-2.0"))
    with pytest.raises(SpecError, match="ort130") as refused:
        runtimes.pinned("ort13")
    assert "runtimes add" in refused.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "bad"}'])
def test_a_damaged_record_is_said_and_hides_no_other_runtime(home: Path, text: str) -> None:
    add(home, "good", environment(home, "numpy-2.0"))
    (home / "runtimes" / "bad").mkdir()
    (home / "runtimes" / "bad" / "runtime.json").write_text(text)
    assert runtimes.names() == [OWN, "good"]
    with pytest.raises(StoreError, match="bad"):
        runtimes.record("bad")


def test_a_lost_interpreter_is_said(home: Path) -> None:
    python = environment(home, "numpy-2.0")
    add(home, "lost", python)
    python.unlink()
    with pytest.raises(SpecError, match="missing"):
        runtimes.pinned("lost")


def test_a_worker_of_another_runtime_sees_no_package_of_this_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment(home, "numpy-2.0")
    add(home, "one", python)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/mine")
    found = worker_environment(runtime="one")
    assert worker_command("one")[0] == str(python)
    assert "VIRTUAL_ENV" not in found
    folders = found["PYTHONPATH"].split(os.pathsep)
    assert all((Path(one) / "core" / "worker").is_dir() for one in folders)
    assert not any((Path(one) / "numpy").exists() for one in folders)


def test_the_default_stays_in_the_runtime_of_onnx_runtime() -> None:
    data = {"model": {"path": "m.onnx"}, "runtime": "ort130"}
    assert ort_default(spec_from_dict(data)).runtime == "ort130"
    assert ort_default(spec_from_dict({**data, "engine": "torch-eager"})).runtime == OWN


def test_a_yaml_file_keeps_the_runtime_with_its_hash() -> None:
    spec = spec_from_dict({"model": {"path": "m.onnx"}, "runtime": f"ort130@sha256:{SHA}"})
    assert spec_from_yaml(yaml_from_spec(spec)) == spec
    assert spec.key() != spec_from_dict({"model": {"path": "m.onnx"}}).key()
