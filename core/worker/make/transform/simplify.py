"""The step `simplify`: fold constants and remove redundant nodes with onnxslim. Worker side."""

from __future__ import annotations

from pathlib import Path

import onnxslim

from core.wire import Progress, TransformPlan
from core.wire.errors import ModelError
from core.worker.make.transform.model_io import TOOL_ERRORS, load_whole, write_whole
from core.worker.make.transform.step_result import StepResult
from core.worker.session.ort_errors import first_line


def apply(plan: TransformPlan, draft: Path, progress: Progress) -> StepResult:
    """Write the simplified model; see `step_result`. The step has no options."""
    source = Path(plan["path"])
    model = load_whole(source)
    try:
        slimmed = onnxslim.slim(model)
    except TOOL_ERRORS as error:
        raise ModelError(
            f"onnxslim cannot simplify `{source.name}`: {first_line(error)}",
            hint="Leave this step out of the chain.",
        ) from None
    slimmed.ir_version = model.ir_version  # onnxslim writes the newest version, which ORT may not load
    write_whole(slimmed, draft)
    return StepResult(tool="onnxslim")
