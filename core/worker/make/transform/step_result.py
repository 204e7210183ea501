"""The result of one step of a chain: `StepResult`. Worker side, pure.

A step is a function `apply(plan, draft, progress)`. It reads the model at the plan's `path`, writes the new
one to `draft` (a file in an empty folder, external data next to it) and returns notes and checks for the
reader. It raises `SpecError` for an option that does not fit this model, and `ModelError` if the tool cannot
handle the model. It neither checks the draft's validity nor compares its outputs:
`core.worker.make.transform` does both for every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.wire import Progress, StepCheck, TransformPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Result of a step, for `wire.TransformReply`, whose fields of the same names explain these."""

    tool: str  # name of the distribution that did the work ("onnxslim", "onnxruntime"), or of a part of it
    checks: list[StepCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    hardware_bound: str = ""
    files: list[str] = field(default_factory=list)  # names of files next to the draft that belong to it
    calibrated: str = ""  # hashes of its calibration rows


Step = Callable[[TransformPlan, Path, Progress], StepResult]


def option(options: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return an option's value; `default` if the plan does not have it."""
    value = options.get(name)
    return default if value is None else value
