"""The step `simplify`: fold constants and remove redundant nodes with onnxslim. Worker side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxslim

from core.wire import DatasetPlan, FeedPlan, Progress
from core.wire.errors import ModelError
from core.worker.make.transform.model_io import TOOL_ERRORS, load_whole, write_whole
from core.worker.make.transform.step_result import StepResult
from core.worker.models.checking import first_line


def apply(
    step: str,
    source: Path,
    draft: Path,
    options: Mapping[str, Any],
    feeds: Sequence[FeedPlan],
    calibration: DatasetPlan | None,
    progress: Progress,
) -> StepResult:
    """Write the simplified model; see `step_result.Step`. The step has no options."""
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
