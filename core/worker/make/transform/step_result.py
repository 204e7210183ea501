"""What one step of a chain hands back: `Applied`. Worker side, pure.

A step is a function `apply(step, source, draft, options, feeds, calibration, progress) -> Applied`: it reads
the model in `source`, writes the new one to `draft` (a file in an empty folder; external data goes beside it)
and says what a reader of the result must know. It neither proves the draft valid nor compares its outputs:
`core.worker.make.transform` does both for every step alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from core.wire import DatasetPlan, FeedPlan, Progress, StepCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a step did, for `wire.TransformReply`, whose fields of the same names explain these."""

    tool: str  # name of the distribution that did the work ("onnxslim", "onnxruntime"), or of a part of it
    checks: list[StepCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    hardware_bound: str = ""
    files: list[str] = field(default_factory=list)  # names beside the draft that belong to it
    calibrated: str = ""  # hashes of the rows that it was calibrated on


class Step(Protocol):
    """The shape of every step's function."""

    def __call__(
        self,
        step: str,
        source: Path,
        draft: Path,
        options: Mapping[str, Any],
        feeds: Sequence[FeedPlan],
        calibration: DatasetPlan | None,
        progress: Progress,
    ) -> Applied:
        """Write what `step` makes of `source` to `draft`.

        Raises:
            SpecError: an option does not fit this model.
            ModelError: the tool cannot treat the model.
        """


def option(options: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return an option's value; `default` where the plan leaves it out."""
    value = options.get(name)
    return default if value is None else value
