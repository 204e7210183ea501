"""The step `metadata`: write author, version and notes into the model file. Worker side."""

from __future__ import annotations

from pathlib import Path

import onnx.helper

from core.wire import Progress, TransformPlan
from core.wire.errors import SpecError
from core.worker.make.transform.model_io import load_whole, write_whole
from core.worker.make.transform.step_result import StepResult

KEYS = ("author", "version", "notes")  # of metadata_props; other keys are kept
_LARGEST_VERSION = 2**63 - 1


def apply(plan: TransformPlan, draft: Path, progress: Progress) -> StepResult:
    """Write the model with the metadata in the plan's options; see `step_result`.

    Options: `author`, `version`, `notes`, text; an empty one keeps the present value. A version that is a
    whole number also becomes the model's `model_version`, and notes its `doc_string`, where other tools show
    them.
    """
    given = {key: str(plan["options"].get(key) or "").strip() for key in KEYS}
    written = {key: text for key, text in given.items() if text}
    if not written:
        raise SpecError("There is no metadata to write.", hint="Give an author, a version or notes.")
    model = load_whole(Path(plan["path"]))
    kept = {one.key: one.value for one in model.metadata_props}
    onnx.helper.set_model_props(model, {**kept, **written})
    if given["version"].isdecimal() and int(given["version"]) <= _LARGEST_VERSION:
        model.model_version = int(given["version"])
    if given["notes"]:
        model.doc_string = given["notes"]
    write_whole(model, draft)
    return StepResult(tool="onnx", facts={"metadata": written})
