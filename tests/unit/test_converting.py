"""What an export refuses before a framework is loaded, and the job of one that it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.run.converting import export
from core.wire.errors import SpecError
from tests.builders import export_plan


def test_a_plan_that_can_be_done_is_a_job(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").touch()
    (tmp_path / "m.keras").touch()
    assert export(export_plan(tmp_path / "m.onnx")).what == "export of squeezenet1_1"
    for name in ("saved", "m.keras"):
        asked = export_plan(tmp_path / "m.onnx", source="tensorflow", name="", path=str(tmp_path / name))
        assert export(asked).what == f"export of {Path(name).stem}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"opset": 26}, "13 to 25, but got 26"),
        ({"opset": 7}, "13 to 25, but got 7"),
        ({"output": "model.pt"}, "`.onnx` file, but got `model.pt`"),
        ({"output": "a_folder.onnx"}, "is a folder"),
        ({"name": "resnet81"}, "Did you mean `resnet18`"),
        ({"source": "pt2", "name": "", "path": "missing.pt2"}, "no model `.*missing.pt2`"),
        ({"source": "tensorflow", "name": "", "path": "missing.keras"}, "no model `.*missing.keras`"),
        ({"source": "tensorflow", "name": "", "path": "a_folder.onnx"}, "or a SavedModel folder"),
        ({"source": "tensorflow", "name": "", "path": "a.bin"}, "not a `.keras` or `.h5` file"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    (tmp_path / "a_folder.onnx").mkdir()
    (tmp_path / "a.bin").touch()
    for name in ("output", "path"):
        if changes.get(name):
            changes = {**changes, name: str(tmp_path / changes[name])}
    with pytest.raises(SpecError, match=words):
        export(export_plan(**{"output": tmp_path / "m.onnx", **changes}))
