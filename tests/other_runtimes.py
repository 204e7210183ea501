"""Runtimes beside ORTune's own, made without a network: the installed version again, and an older one."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest

from core.process import runtimes
from core.wire.files import ROOT
from core.wire.runtime import RuntimeRecord
from tests.fresh_environment import fresh_environment, onnxruntime_distribution

OTHER_ONNXRUNTIME = "ORTUNE_TEST_ONNXRUNTIME"  # a folder with another version than the installed one


def older_onnxruntime() -> Path | None:
    """The folder with an older ONNX Runtime for this Python; None: there is none."""
    folder = Path(os.environ.get(OTHER_ONNXRUNTIME) or ROOT / ".ci" / "onnxruntime")
    return folder.absolute() if (folder / "onnxruntime").is_dir() else None


needs_older_onnxruntime = pytest.mark.skipif(
    older_onnxruntime() is None,
    reason=f"{OTHER_ONNXRUNTIME} names no folder with another ONNX Runtime",
)


def add(home: Path, name: str, *, older: bool = False) -> RuntimeRecord:
    """Add a runtime to the home of a command line or a store: `NAME`, as `runtimes list` would show it.

    Args:
        home: `$ORTUNE_HOME`.
        name: of the runtime.
        older: it has the ONNX Runtime of `older_onnxruntime`; else the installed one.
    """
    folder = home / "runtimes" / name
    folder.mkdir(parents=True)
    installed = ["numpy"] if older else ["numpy", onnxruntime_distribution()]
    python = fresh_environment(folder / runtimes.ENVIRONMENT_NAME, installed)
    if older:
        source = older_onnxruntime()
        assert source is not None
        for one in source.iterdir():
            if one.name != "bin":
                (_packages(python) / one.name).symlink_to(one)
    record: RuntimeRecord = {
        "name": name,
        "sha256": runtimes.content_hash(python),
        "python": str(python),
        "python_version": platform.python_version(),
        "packages": [],
        "versions": {},
        "size_bytes": 0,
        "managed": True,
        "created_at": 0.0,
    }
    (folder / runtimes.RECORD_NAME).write_text(json.dumps(record))
    return record


def change(home: Path, name: str) -> str:
    """Install another distribution into a runtime, so that its content differs; return the new hash."""
    python = home / "runtimes" / name / runtimes.ENVIRONMENT_NAME / "bin" / "python"
    added = _packages(python) / "another-1.0.dist-info"
    added.mkdir()
    (added / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1.0\n")
    (added / "RECORD").write_text("another-1.0.dist-info/METADATA,,\n")
    return runtimes.content_hash(python)


def _packages(python: Path) -> Path:
    (found,) = python.parent.parent.glob("lib/python*/site-packages")
    return found
