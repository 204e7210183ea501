"""One step as the job does it, on inputs that fit the model: for the tests of `worker.make.transform`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from core import wire
from core.worker.make.transform import transform
from tests.quantizing import feed_plans, silent

SEEDS = 3
ROWS = 2


def feeds_of(path: Path) -> list[wire.FeedPlan]:
    """Random inputs of `path`, one plan for each seed."""
    return feed_plans(path, seeds=SEEDS, rows=ROWS)


def plan_of(source: Path, step: str, output: Path, **options: Any) -> wire.TransformPlan:
    """A plan with random inputs; the source is the original of the chain."""
    return {
        "path": str(source),
        "output": str(output),
        "step": step,  # type: ignore[typeddict-item]
        "options": options,
        "reference": str(source),
        "feeds": feeds_of(source),
        "calibration": None,
    }


def do(
    source: Path, step: str, *, reference: Path | None = None, name: str = "", **options: Any
) -> tuple[Path, wire.TransformReply]:
    """Do one step into a folder beside `source`; return what it wrote and what it said."""
    folder = source.parent / f"after_{step}"
    folder.mkdir(exist_ok=True)
    output = folder / (name or ("m.ort" if step == "ort_format" else "m.onnx"))
    plan = plan_of(source, step, output, **options)
    if reference is not None:
        plan["reference"] = str(reference)
    return output, transform(plan, silent)


def run(path: Path, **feeds: np.ndarray) -> list[np.ndarray]:
    """What ONNX Runtime computes with its defaults."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    found: list[np.ndarray] = ort.InferenceSession(path, options).run(None, feeds)
    return found
