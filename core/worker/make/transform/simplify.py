"""The step `simplify`: fold constants and remove redundant nodes with onnxslim. Worker side."""

from __future__ import annotations

from pathlib import Path

import onnxslim

from core.wire import Progress, TransformPlan
from core.worker.make.transform.model_io import load_whole, refusal, write_whole
from core.worker.make.transform.step_result import StepResult


def apply(plan: TransformPlan, draft: Path, progress: Progress) -> StepResult:
    """Write the simplified model; see `step_result`. The step has no options."""
    source = Path(plan["path"])
    model = load_whole(source)
    with refusal(f"onnxslim cannot simplify `{source.name}`", "Leave this step out of the chain."):
        slimmed = onnxslim.slim(model)
    slimmed.ir_version = model.ir_version  # onnxslim writes the newest version, which ORT may not load
    write_whole(slimmed, draft)
    return StepResult(tool="onnxslim")
