"""The result of one step of a chain: `StepResult`. Worker side, pure.

A step is a function `apply(step, source, draft, options, feeds, calibration, progress) -> Applied`. It reads
the model in `source`, writes the new one to `draft` (a file in an empty folder, external data next to it) and
returns notes and checks for the reader. It neither checks the draft's validity nor compares its outputs:
`core.worker.make.transform` does both for every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from core.wire import DatasetPlan, FeedPlan, Progress, StepCheck


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


class Step(Protocol):
    """The signature of every step's function."""

    def __call__(
        self,
        step: str,
        source: Path,
        draft: Path,
        options: Mapping[str, Any],
        feeds: Sequence[FeedPlan],
        calibration: DatasetPlan | None,
        progress: Progress,
    ) -> StepResult:
        """Write the model that `step` makes of `source` to `draft`.

        Raises:
            SpecError: an option does not fit this model.
            ModelError: the tool cannot handle the model.
        """


def option(options: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return an option's value; `default` if the plan does not have it."""
    value = options.get(name)
    return default if value is None else value
