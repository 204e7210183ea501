"""A question names the runtimes whose ONNX Runtime answers it: in their own processes, in the same rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.process import runtimes
from tests import other_runtimes
from tests.command_line import CommandLine
from tests.other_runtimes import needs_older_onnxruntime


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    """A command line with two runtimes of the installed version."""
    one = CommandLine(tmp_path_factory.mktemp("runtimes"), acquainted)
    for name in ("same", "again"):
        other_runtimes.add(one.home, name)
    return one


def test_a_changed_environment_has_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    record = other_runtimes.add(tmp_path, "same")
    assert runtimes.pinned("same") == f"same@sha256:{record['sha256']}"
    assert other_runtimes.change(tmp_path, "same") != record["sha256"]


@needs_older_onnxruntime
def test_the_older_runtime_is_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    same, older = other_runtimes.add(tmp_path, "same"), other_runtimes.add(tmp_path, "older", older=True)
    assert same["sha256"] != older["sha256"]
