"""The file of the job `explain`, typed: two configurations in all their profiled passes.

Pure; the worker writes `Passes` as JSON, and the parent reads them. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from core.wire.errors import WorkerError

VERSION = 1  # of the job's file
PASSES = 5  # per side: the fewest that show scatter after the best and worst are dropped

Key = tuple[str, ...]  # names of the nodes that enclose a node, outermost first, and its own


@dataclass(frozen=True, slots=True, kw_only=True)
class RanNode:
    """A node of an executed graph. Nodes that only copy or reorder have varying names: they are merged."""

    path: tuple[str, ...]  # names of the nodes whose bodies enclose it, outermost first
    name: str
    op_type: str
    provider: str
    inserted: bool  # by ONNX Runtime
    nodes: int
    calls_per_run: float
    self_s: tuple[float, ...]  # per run, of each pass: mean over typical runs, without the node's own body

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
    """A node of an optimized graph, and the nodes of the model that it replaces."""

    path: tuple[str, ...]
    name: str
    nodes: tuple[str, ...]  # names at the same path; empty: none, or unknown
    inserted: bool  # it only moves or converts a tensor, and the model has no such node


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One configuration in all its passes."""

    requested_providers: tuple[str, ...]
    effective_providers: tuple[str, ...]
    fallback: bool
    fallback_reason: str
    batch_size: int  # of the inputs
    parallel: bool  # nodes of one run overlapped on several threads
    runs: int  # of each pass, with the profiler and again without
    run_s: tuple[float, ...]  # of each pass: mean typical run with the profiler on
    plain_s: tuple[float, ...]  # the same session after the profiler was turned off
    nodes: tuple[RanNode, ...]
    model: tuple[ModelNode, ...]
    origins: tuple[Origin, ...] | None  # None: ONNX Runtime could not save the optimized graph
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Both sides, the baseline first; machine and time (seconds since the epoch)."""

    version: int
    sides: tuple[Side, Side]
    fingerprint: str
    created_at: float


def turns(sides: int) -> Iterator[int]:
    """Yield the index of every side once per round, each round in reverse order of the one before."""
    for number in range(PASSES):
        yield from range(sides) if number % 2 == 0 else reversed(range(sides))


def passes_from_json(data: bytes) -> Passes:
    """Read the file of the job `explain`.

    Raises:
        WorkerError: another version, or another kind of file.
    """
    try:
        passes = msgspec.json.decode(data, type=Passes)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WorkerError(f"These are no passes that ORTune wrote: {error}.", hint=_AGAIN) from None
    if passes.version != VERSION:
        raise WorkerError(
            f"These passes have version {passes.version}, but this ORTune reads version {VERSION}.",
            hint=_AGAIN,
        )
    return passes


_AGAIN = "Explain the two results again."
