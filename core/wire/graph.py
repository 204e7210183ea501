"""The graph of a model, typed: the file of the job `graph`, and the edges between nodes.

Pure; the worker writes `Graphs` as JSON, and the parent reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from core.wire.errors import WorkerError

VERSION = 1  # of the job's file


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor on an edge, as declared or inferred."""

    name: str
    dtype: str  # numpy's name, or "unknown"
    shape: tuple[int | str, ...] | None  # "?": unknown size; None: unknown rank
    weight_bytes: int | None  # stored in the file; None: computed, or an input


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as it is drawn. Texts are clipped."""

    name: str  # as ONNX Runtime's profile calls it, where the file has no name for it
    op_type: str  # with its domain, unless that is ai.onnx
    scope: tuple[str, ...]  # the enclosing modules, outermost first; empty: unknown
    inputs: tuple[str, ...]  # tensors; empty: an optional input that is left out
    outputs: tuple[str, ...]
    captured: tuple[str, ...]  # tensors of enclosing graphs that its bodies read
    attributes: dict[str, str]
    bodies: tuple[str, ...]  # its bodies: "then_branch", "body"
    does: tuple[str, ...]  # of an optimized graph: names of the model's nodes that it replaces
    inserted: bool  # by ONNX Runtime

    @property
    def fused(self) -> bool:
        """Whether it replaces several nodes of the model."""
        return len(self.does) > 1


@dataclass(frozen=True, kw_only=True)
class Level:
    """The main graph, or the body of one node."""

    path: tuple[str, ...]  # names of the nodes whose bodies enclose it, outermost first
    role: str  # its attribute of the node: "then_branch"; empty: the main graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    tensors: tuple[Tensor, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Tensor]:
        """Its tensors by name, including those of enclosing graphs."""
        return {one.name: one for one in self.tensors}

    @cached_property
    def edges(self) -> list[tuple[int, int, str]]:
        """Index of the source node, index of the target node, tensor; each edge once."""
        producer = {name: index for index, node in enumerate(self.nodes) for name in node.outputs if name}
        found: dict[tuple[int, int, str], None] = {}
        for index, node in enumerate(self.nodes):
            for name in (*node.inputs, *node.captured):
                if name in producer and producer[name] != index:
                    found[producer[name], index, name] = None
        return list(found)

    def weight_bytes(self, node: Node) -> int:
        """Return the bytes of the weights that a node reads."""
        sizes = (self.by_name[name].weight_bytes for name in set(node.inputs) if name in self.by_name)
        return sum(size or 0 for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One graph with all its bodies, the main graph first."""

    levels: tuple[Level, ...]
    notes: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many nodes it has, bodies included."""
        return sum(len(level.nodes) for level in self.levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """A model's own graph, and ONNX Runtime's optimized graph; None: not requested."""

    version: int
    model: Side
    optimized: Side | None
    effective_providers: tuple[str, ...]  # of the session that was built; empty: none
    notes: tuple[str, ...]
    created_at: float  # seconds since the epoch


def graphs_from_json(data: bytes) -> Graphs:
    """Read the file of the job `graph`.

    Raises:
        WorkerError: another version, or another kind of file.
    """
    try:
        graphs = msgspec.json.decode(data, type=Graphs)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WorkerError(f"This is no graph that ORTune wrote: {error}.", hint=_AGAIN) from None
    if graphs.version != VERSION:
        raise WorkerError(
            f"This graph has version {graphs.version}, but this ORTune reads version {VERSION}.", hint=_AGAIN
        )
    return graphs


_AGAIN = "Read the model's graph again."
