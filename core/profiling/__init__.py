"""ORT's profile, read as a stream: where one inference spends its time, node by node.

    parse_profile(path)             the file that `end_profiling()` names -> Profile
    by_operator / by_provider       the same times, grouped
    middle_half                     which durations are typical
    cast_facts                      what ORT's inserted Casts cost, and which precision really computed

`trace.py` reads the file, `calltree.py` nests the calls of each run and adds them up. Adding up the `dur` of
all events, as is often done, counts the bodies of If, Loop and Scan twice; the times here are self times.
Why two profiles differ is the parent's question: `passes`, `grouping`, `difference`, `sentence`.

Pure: the standard library and msgspec. Both sides of the worker pipe import this module. Times are seconds
(ORT writes whole microseconds, so each call may be up to 1 µs too short), sizes are bytes.
"""

from __future__ import annotations

import heapq
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from core.errors import WorkerError
from core.profiling.calltree import Call, NodeTotal, Totals, Trace, add_up, nest, node_name
from core.profiling.trace import Event, Lines, Whole, number, shapes

MAX_SPANS = 20_000  # a timeline with more is neither readable nor quick to draw

_MICRO = 1_000_000  # ORT counts microseconds
_LAYOUT_OR_COPY = frozenset({"ReorderInput", "ReorderOutput", "MemcpyToHost", "MemcpyFromHost"})
_INSERTED_CAST = ("InsertedPrecisionFreeCast_", "InsertedCast_")
COMPUTE = frozenset(  # the heavy operators
    {"Attention", "Conv", "ConvTranspose", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "GRU", "Gemm"}
    | {"LSTM", "MatMul", "MultiHeadAttention", "RNN"}
)
_NUMPY_NAMES = {"float": "float32", "double": "float64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Type (numpy's name) and shape of a value that a kernel really got or gave."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTime:
    """One node of the graph that ran; the `_s` times are per run unless said otherwise.

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
    """What a profile says about the runs it kept; plain data, see `to_dict`.

    `self_s + remainder_s` is the mean of `run_s`. With `parallel`, nodes overlap in time and the
    remainder may be negative.
    """

    nodes: tuple[NodeTime, ...]  # longest self time first
    runs: int  # kept
    skipped_runs: int
    run_s: tuple[float, ...]  # duration of each kept `model_run`, in run order
    execute_s: float  # mean time in the graph executor
    self_s: float  # mean over the runs of the self time of all nodes
    remainder_s: float  # mean of what is left of a run: between the nodes and around them
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-able data; `profile_from_dict` is the way back."""
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
    """Say what the Casts that ORT inserted cost, and in which precision the heavy operators computed.

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


def parse_profile(path: Path, *, skip_runs: int = 0, typical: bool = False) -> Profile:
    """Read ORT's profile at `path`, leaving out its first `skip_runs` runs (warm-up).

    One run's events are held at a time, plus 8 bytes per node and kept run for the medians. A file that ends
    mid-way or was truncated by ORT gives the runs that are complete, and says so.

    Args:
        path: the file that `end_profiling()` returned.
        skip_runs: how many runs to leave out from the start, >= 0.
        typical: keep the middle half of the runs by their duration. A stall of the machine falls out with
            its run, and the means still add up, which medians of single nodes do not.

    Raises:
        WorkerError: the file is missing, empty, no ORT profile, or holds no complete run after those skipped;
            or its runs overlap in time, so that a node cannot be told to belong to one.
    """
    if skip_runs < 0:
        raise ValueError(f"skip_runs must be >= 0, but is {skip_runs}")
    trace = Trace(Lines(path))
    try:
        totals = add_up(trace, skip_runs)
    except msgspec.DecodeError:  # not one event per line: some tool has written the file anew
        trace = Trace(Whole(path))
        totals = add_up(trace, skip_runs)
    _check_runs(path, trace, totals, skip_runs)
    if typical:
        chosen = frozenset(middle_half(totals.run_us))
        trace = Trace(trace.source)
        totals = add_up(trace, skip_runs, chosen)
    return _profile(trace, totals, skip_runs)


def _check_runs(path: Path, trace: Trace, totals: Totals, skip_runs: int) -> None:
    if not totals.run_us and skip_runs:
        raise WorkerError(
            f"The profile {path.name} holds no complete run after the first {skip_runs}, which are warm-up.",
            hint=f"Profile more than {skip_runs} runs.",
        )
    if not totals.run_us:
        raise WorkerError(
            f"The profile {path.name} holds no complete run of a model.",
            hint="Run the model before `end_profiling()`; nodes × runs must stay below 1,000,000 events.",
        )
    if trace.ignored_events and not totals.graph.body:
        raise WorkerError(
            f"No node in the profile {path.name} belongs to a run.",
            hint="Give the file as ONNX Runtime wrote it.",
        )


def _profile(trace: Trace, totals: Totals, skip_runs: int) -> Profile:
    runs = len(totals.run_us)
    nodes = list(totals.nodes())
    self_us = sum(sum(node.samples_us) for node in nodes)
    times = [_node_time(node, runs, self_us) for node in nodes]
    middle = totals.run_us.index(statistics.median_low(totals.run_us))
    spans = _spans(trace, totals, middle)
    longest = heapq.nlargest(MAX_SPANS, spans, key=lambda span: span.duration_s)
    loading_us = trace.once_us["model_loading_uri"] + trace.once_us["model_loading_array"]
    return Profile(
        nodes=tuple(sorted(times, key=lambda node: (-node.total_s, node.path, node.node_index))),
        runs=runs,
        skipped_runs=skip_runs,
        run_s=tuple(us / _MICRO for us in totals.run_us),
        execute_s=totals.execute_us / _MICRO / runs,
        self_s=self_us / _MICRO / runs,
        remainder_s=(sum(totals.run_us) - self_us) / _MICRO / runs,
        parallel=totals.parallel,
        model_loading_s=loading_us / _MICRO,
        session_initialization_s=trace.once_us["session_initialization"] / _MICRO,
        truncated=trace.source.cut_off or trace.limit_reached,
        dropped_events=None if trace.source.cut_off else trace.dropped_events,
        events=trace.events,
        ignored_events=trace.ignored_events,
        timeline=tuple(sorted(longest, key=lambda span: (span.start_s, span.depth))),
        timeline_run=middle,
        timeline_omitted=len(spans) - len(longest),
    )


def _node_time(node: NodeTotal, runs: int, all_self_us: float) -> NodeTime:
    total_us = sum(node.samples_us)
    args = node.event.args
    name = node_name(node.event)
    return NodeTime(
        name=name,
        op_type=args.op_name,
        provider=args.provider,
        node_index=number(args.node_index),
        path=node.path,
        inserted=_is_inserted(args.op_name, name),
        calls=node.calls,
        calls_per_run=node.calls / runs,
        self_s=total_us / _MICRO / runs,
        inclusive_s=node.inclusive_us / _MICRO / runs,
        total_s=total_us / _MICRO,
        min_s=min(node.samples_us) / _MICRO,
        median_s=statistics.median(node.samples_us) / _MICRO,
        share=total_us / all_self_us if all_self_us else 0.0,
        inputs=_tensors(args.input_type_shape),
        outputs=_tensors(args.output_type_shape),
        parameter_bytes=number(args.parameter_size),
        activation_bytes=number(args.activation_size),
        output_bytes=number(args.output_size),
    )


def _tensors(raw: msgspec.Raw) -> tuple[Tensor, ...]:
    return tuple(Tensor(dtype=_NUMPY_NAMES.get(dtype, dtype), shape=shape) for dtype, shape in shapes(raw))


def _is_inserted(op_type: str, name: str) -> bool:
    # Other nodes are named after the Cast whose output they took over, so the name alone does not tell.
    return op_type in _LAYOUT_OR_COPY or (op_type == "Cast" and name.startswith(_INSERTED_CAST))


def _spans(trace: Trace, totals: Totals, index: int) -> list[Span]:
    """Read the kept run `index` once more and return its calls as spans."""
    start_us = totals.start_us[index]
    again = Trace(trace.source).runs(totals.offsets[index])
    run = next(run for run in again if run.start_us == start_us)
    spans = []
    waiting: list[tuple[int, Sequence[Call]]] = [(0, nest(run.nodes)[0])]
    while waiting:
        depth, calls = waiting.pop()
        for event, body in calls:
            spans.append(_span(event, depth, start_us))
            if body:
                waiting.append((depth + 1, body))
    return spans


def _span(event: Event, depth: int, start_us: float) -> Span:
    return Span(
        name=node_name(event),
        op_type=event.args.op_name,
        provider=event.args.provider,
        tid=event.tid,
        depth=depth,
        start_s=(event.ts - start_us) / _MICRO,
        duration_s=event.dur / _MICRO,
    )
