"""A profile as data: the time of one inference per node, and grouped by operator and provider.

    Profile, NodeTime, Span         what `worker.measure.profile_parser` reads from ORT's file
    by_operator / by_provider       the same times, grouped
    middle_half                     the typical durations
    cast_facts                      cost of the Casts that ORT inserted, and precision of the computation

Pure: the standard library and msgspec. Times are seconds (ORT writes whole microseconds, so each call may be
up to 1 µs too short), sizes are bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from core.wire import CUDA_PROVIDERS
from core.wire.errors import WorkerError

COMPUTE = frozenset(  # the heavy operators
    {"Attention", "Conv", "ConvTranspose", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "GRU", "Gemm"}
    | {"LSTM", "MatMul", "MultiHeadAttention", "RNN"}
)
# Operators that only copy or reorder. ONNX Runtime inserts them, and numbers them anew in each session.
LAYOUT_OR_COPY = frozenset({"ReorderInput", "ReorderOutput", "MemcpyToHost", "MemcpyFromHost"})
INSERTED_CAST = ("InsertedPrecisionFreeCast_", "InsertedCast_")  # prefixes of names
# Providers whose profiled times are those of launching kernels: the GPU computes asynchronously.
HOST_TIMED = frozenset(CUDA_PROVIDERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Type (numpy's name) and shape of an input or output of a kernel execution."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTime:
    """One node of the executed graph; the `_s` times are per run unless said otherwise.

    A node whose name, index and operator are equal in both branches of an If counts as one: the profile
    does not say which branch ran.
    """

    name: str
    op_type: str
    provider: str
    node_index: int  # restarts at 0 in the body of an If, Loop or Scan; -1: not given
    path: tuple[str, ...]  # names of the nodes whose bodies enclose this one, outermost first
    inserted: bool  # by ORT: a Cast for precision, a copy between devices, a change of layout
    calls: int  # over all kept runs
    calls_per_run: float
    self_s: float  # mean over all kept runs, without the nodes of its own body
    inclusive_s: float  # the same with them
    total_s: float  # self time over all kept runs
    min_s: float  # self time per run, over the runs in which the node ran
    median_s: float
    share: float  # of the self time of all nodes, 0..1
    inputs: tuple[Tensor, ...]  # of the longest call, as are the sizes
    outputs: tuple[Tensor, ...]
    parameter_bytes: int  # weights that ORT prepacked are not counted, nor among `inputs`
    activation_bytes: int
    output_bytes: int

    @property
    def title(self) -> str:
        """Its name; of a node without one its operator and its index, `(Conv 3)`."""
        return self.name or f"({self.op_type} {self.node_index})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constant tensors of one node of the executed graph; the profile lists only some of them."""

    path: tuple[str, ...]
    name: str
    op_type: str
    tensors: tuple[Tensor, ...]  # weights, prepacked ones included
    window: tuple[int, ...] = ()  # of a pooling: its `kernel_shape`


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One kernel execution in the run that the timeline shows."""

    name: str
    op_type: str
    provider: str
    tid: int
    depth: int  # 0: in the main graph, 1: in a body, 2: in a body's body
    start_s: float  # since the start of the run
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of the kept runs; plain data, see `to_dict`.

    `self_s + remainder_s` is the mean of `run_s`. With `parallel`, nodes overlap in time and the
    remainder may be negative.
    """

    nodes: tuple[NodeTime, ...]  # longest self time first
    runs: int  # kept
    skipped_runs: int
    run_s: tuple[float, ...]  # duration of each kept `model_run`, in run order
    execute_s: float  # mean time in the graph executor
    self_s: float  # mean over the runs of the self time of all nodes
    remainder_s: float  # mean of the rest of a run: between the nodes and around them
    parallel: bool  # the nodes of one run ran on more than one thread
    model_loading_s: float
    session_initialization_s: float
    truncated: bool  # ORT reached its limit of events, or the file ends mid-way; complete runs are kept
    dropped_events: int | None  # None: unknown, the file ends mid-way
    events: int  # read
    ignored_events: int  # node events that belong to no complete run
    timeline: tuple[Span, ...]  # of the run with the median duration, in order of their start
    timeline_run: int  # its index in `run_s`
    timeline_omitted: int  # the shortest spans beyond MAX_SPANS
    constants: tuple[Constants, ...] = ()  # of heavy nodes; empty: the executed graph is unknown

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data; `profile_from_dict` is the inverse."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """All nodes of one operator type; times are means per run."""

    op_type: str
    nodes: int
    inserted_nodes: int
    calls_per_run: float
    self_s: float
    share: float
    providers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTime:
    """All nodes that ran on one provider; times are means per run."""

    provider: str
    nodes: int
    calls_per_run: float
    self_s: float
    share: float


def profile_from_dict(data: dict[str, Any]) -> Profile:
    """Rebuild the profile that `Profile.to_dict` wrote.

    Raises:
        WorkerError: a field is missing or has another type.
    """
    try:
        return msgspec.convert(data, Profile)
    except msgspec.ValidationError as error:
        raise WorkerError(
            f"This is not a profile that ORTune wrote: {error}.", hint="Profile the model again."
        ) from None


def by_operator(profile: Profile) -> list[OperatorTime]:
    """Group the nodes by operator type, longest self time first."""
    groups: dict[str, list[NodeTime]] = defaultdict(list)
    for node in profile.nodes:
        groups[node.op_type].append(node)
    rows = [
        OperatorTime(
            op_type=op_type,
            nodes=len(nodes),
            inserted_nodes=sum(node.inserted for node in nodes),
            calls_per_run=sum(node.calls_per_run for node in nodes),
            self_s=sum(node.self_s for node in nodes),
            share=sum(node.share for node in nodes),
            providers=tuple(sorted({node.provider for node in nodes})),
        )
        for op_type, nodes in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.self_s, row.op_type))


def by_provider(profile: Profile) -> list[ProviderTime]:
    """Group the nodes by the provider that ran them, longest self time first."""
    groups: dict[str, list[NodeTime]] = defaultdict(list)
    for node in profile.nodes:
        groups[node.provider].append(node)
    rows = [
        ProviderTime(
            provider=provider,
            nodes=len(nodes),
            calls_per_run=sum(node.calls_per_run for node in nodes),
            self_s=sum(node.self_s for node in nodes),
            share=sum(node.share for node in nodes),
        )
        for provider, nodes in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.self_s, row.provider))


def cast_facts(profile: Profile) -> dict[str, Any]:
    """Return the cost of the Casts that ORT inserted, and the precision of the heavy operators.

    Returns:
        `casts` and `inserted_casts` (nodes), `inserted_cast_s` (mean per run), `inserted_cast_share` (of all
        self time, 0..1), `float32_ops` and `float16_ops` (heavy operator -> nodes, by the type of the first
        input), and `computes_in_float32`: Casts were inserted and no heavy operator got float16.
    """
    casts = [node for node in profile.nodes if node.op_type == "Cast"]
    inserted = [node for node in casts if node.inserted]
    precision: dict[str, Counter[str]] = defaultdict(Counter)
    for node in profile.nodes:
        if node.op_type in COMPUTE and node.inputs:
            precision[node.inputs[0].dtype][node.op_type] += 1
    return {
        "casts": len(casts),
        "inserted_casts": len(inserted),
        "inserted_cast_s": sum((node.self_s for node in inserted), 0.0),
        "inserted_cast_share": sum((node.share for node in inserted), 0.0),
        "float32_ops": dict(sorted(precision["float32"].items())),
        "float16_ops": dict(sorted(precision["float16"].items())),
        "computes_in_float32": bool(inserted and precision["float32"] and not precision["float16"]),
    }


def middle_half(durations: Sequence[float]) -> list[int]:
    """Return the indices, ascending, of `durations` without the shortest and the longest quarter."""
    order = sorted(range(len(durations)), key=durations.__getitem__)
    cut = len(order) // 4
    return sorted(order[cut : len(order) - cut])
