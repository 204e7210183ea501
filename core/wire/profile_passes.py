"""The file of the job `explain`, typed: two configurations in all their profiled passes.

Pure; the parent reads with it what the worker wrote (`wire.Passes`). Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from core.wire.errors import WorkerError

VERSION = 1  # of the job's file

Key = tuple[str, ...]  # names of the nodes that enclose a node, outermost first, and its own


@dataclass(frozen=True, slots=True, kw_only=True)
class RanNode:
    """A node of an executed graph; see `wire.PassNode`."""

    path: tuple[str, ...]
    name: str
    op_type: str
    provider: str
    inserted: bool
    nodes: int
    calls_per_run: float
    self_s: tuple[float, ...]

    @property
    def key(self) -> Key:
        """The identity of the node in its model."""
        return (*self.path, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNode:
    """A node as the model's author wrote it."""

    path: tuple[str, ...]
    name: str
    op_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """An executed node, and the model's nodes at the same path that it replaces."""

    path: tuple[str, ...]
    name: str
    nodes: tuple[str, ...]
    inserted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One configuration in all its passes; see `wire.PassSide`."""

    requested_providers: tuple[str, ...]
    effective_providers: tuple[str, ...]
    fallback: bool
    fallback_reason: str
    batch_size: int
    parallel: bool
    runs: int
    run_s: tuple[float, ...]
    plain_s: tuple[float, ...]
    nodes: tuple[RanNode, ...]
    model: tuple[ModelNode, ...]
    origins: tuple[Origin, ...] | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Both sides, the baseline first; machine and time (seconds since the epoch)."""

    version: int
    sides: tuple[Side, Side]
    fingerprint: str
    created_at: float


def passes_from_dict(data: Mapping[str, Any]) -> Passes:
    """Read the file of the job `explain`.

    Raises:
        WorkerError: another version, or another kind of file.
    """
    try:
        passes = msgspec.convert(data, Passes)
    except msgspec.ValidationError as error:
        raise WorkerError(f"These are no passes that ORTune wrote: {error}.", hint=_AGAIN) from None
    if passes.version != VERSION:
        raise WorkerError(
            f"These passes have version {passes.version}, but this ORTune reads version {VERSION}.",
            hint=_AGAIN,
        )
    return passes


_AGAIN = "Explain the two results again."
