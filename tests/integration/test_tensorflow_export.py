"""Keras and SavedModel through tf2onnx where the extra is installed, and plain words where it is not."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from core import wire
from core.process.job_worker import run_job
from core.wire.errors import ModelError, SpecError
from core.worker.make.export import export
from core.worker.make.export.from_tensorflow import PACKAGES, opened, require_packages
from core.worker.models import inspect_model
from tests.builders import export_plan
from tests.command_line import CommandLine
from tests.quantizing import silent

INSTALLED = all(importlib.util.find_spec(name) for name in PACKAGES)
# Keras converts its own variables in a way that numpy has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
needs_extra = pytest.mark.skipif(not INSTALLED, reason="the extra `tensorflow` is not installed")


def plan(source: Path, output: Path, **changes: Any) -> wire.ExportPlan:
    asked = {"source": "tensorflow", "name": "", "path": str(source), "opset": 18, "pretrained": True}
    return export_plan(output, **(asked | changes))


def test_a_missing_extra_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="not installed: tensorflow, tf2onnx") as caught:
        require_packages()
    assert "pip install '.[tensorflow]'" in caught.value.hint


@pytest.mark.skipif(INSTALLED, reason="the extra `tensorflow` is installed")
def test_without_the_extra_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "m.keras").touch()
    with pytest.raises(SpecError, match="not installed"):
        export(plan(tmp_path / "m.keras", tmp_path / "out.onnx"), silent)
    assert [one.name for one in tmp_path.iterdir()] == ["m.keras"]


@pytest.mark.skipif(INSTALLED, reason="the extra `tensorflow` is installed")
def test_the_command_line_tells_how_to_install_the_extra(tmp_path: Path) -> None:
    (tmp_path / "m.keras").touch()
    done = CommandLine(tmp_path).run("convert", str(tmp_path / "m.keras"), "-o", str(tmp_path / "m.onnx"))
    assert done.code != 0
    assert "pip install '.[tensorflow]'" in done.err
    assert "Traceback" not in done.err


def keras_model() -> Any:
    import keras

    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1), name="image"),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )


@needs_extra
def test_a_keras_file_becomes_a_model_that_agrees(tmp_path: Path) -> None:
    keras_model().save(tmp_path / "m.keras")
    reply = export(plan(tmp_path / "m.keras", tmp_path / "m.onnx"), silent)
    info = inspect_model(str(tmp_path / "m.onnx"))
    assert info["batch_dim"] is not None
    assert info["metadata"]["ortune.source"] == "tensorflow m.keras"
    assert [one["batch"] for one in reply["differences"]] == [1, 2]
    assert all(one["max_rel"] < 1e-4 for one in reply["differences"])


@needs_extra
def test_a_saved_model_becomes_a_model_that_agrees(tmp_path: Path) -> None:
    keras_model().export(str(tmp_path / "saved"), verbose=False)
    reply = export(plan(tmp_path / "saved", tmp_path / "m.onnx", opset=20), silent)
    assert reply["differences"]
    assert all(one["max_rel"] < 1e-4 for one in reply["differences"])
    assert any("newest that tf2onnx writes" in note for note in reply["notes"])


@needs_extra
def test_a_file_that_keras_cannot_load_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.keras").write_bytes(b"no archive")
    with pytest.raises(ModelError, match="Keras cannot load"):
        export(plan(tmp_path / "m.keras", tmp_path / "out" / "m.onnx"), silent)
    assert list((tmp_path / "out").iterdir()) == []


@needs_extra
@pytest.mark.parametrize("kind", ["keras", "saved"])
def test_a_worker_exports_it_in_its_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The home folder is closed, and Keras looks for its settings there."""
    (settings := tmp_path / "home" / ".keras").mkdir(parents=True)
    (settings / "keras.json").write_text("{}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    source = tmp_path / ("m.keras" if kind == "keras" else "saved")
    if kind == "keras":
        keras_model().save(source)
    else:
        keras_model().export(str(source), verbose=False)
    reply = run_job(wire.EXPORT, plan(source, tmp_path / "m.onnx"))
    assert all(one["max_rel"] < 1e-4 for one in reply["differences"])
    assert [one["batch"] for one in reply["differences"]] == [1, 2]
    assert (tmp_path / "m.onnx").is_file()
    assert os.listdir(settings) == ["keras.json"]  # noqa: PTH208 - names


def test_keras_reads_no_settings_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("KERAS_HOME", "/of/the/user")
    (tmp_path / "saved").mkdir()
    opened(plan(tmp_path / "saved", tmp_path / "m.onnx"), tmp_path / "own")
    assert Path(os.environ["KERAS_HOME"]).is_relative_to(tmp_path / "own")
