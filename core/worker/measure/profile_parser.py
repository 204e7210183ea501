"""Parse ORT's profile as a stream from the file that `end_profiling()` names.

`trace.py` reads the file; `calltree.py` nests the calls of each run and adds them up. Adding up the `dur` of
all events, as is often done, counts the bodies of If, Loop and Scan twice; the times here are self times.
The parent compares profiles: `evidence.profile_difference`.

Pure: the standard library and msgspec.
"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from core.wire.errors import WorkerError
from core.wire.profile import (
    INSERTED_CAST,
    LAYOUT_OR_COPY,
    NodeTime,
    Profile,
    Span,
    Tensor,
    middle_half,
)
from core.worker.measure.calltree import Call, NodeTotal, Totals, Trace, add_up, nest, node_name
from core.worker.measure.trace import Event, Lines, Whole, number, shapes

MAX_SPANS = 20_000  # a timeline with more is unreadable and slow to draw

_MICRO = 1_000_000  # ORT counts microseconds
_NUMPY_NAMES = {"float": "float32", "double": "float64"}


def parse_profile(path: Path, *, skip_runs: int = 0, typical: bool = False) -> Profile:
    """Parse ORT's profile at `path` without its first `skip_runs` runs (warm-up).

    Memory holds one run's events at a time, plus 8 bytes per node and kept run for the medians. A file that
    ends mid-way or was truncated by ORT gives its complete runs and a note.

    Args:
        path: the file that `end_profiling()` returned.
        skip_runs: number of runs to skip at the start, >= 0.
        typical: keep the middle half of the runs by duration. This drops runs with a machine stall, and
            the means still add up, which medians of single nodes do not.

    Raises:
        WorkerError: the file is missing, empty, not an ORT profile, or holds no complete run after those
            skipped; or its runs overlap in time, so that nodes cannot be assigned to a run.
    """
    if skip_runs < 0:
        raise ValueError(f"skip_runs must be >= 0, but is {skip_runs}")
    trace = Trace(Lines(path))
    try:
        totals = add_up(trace, skip_runs)
    except msgspec.DecodeError:  # not one event per line: a tool has rewritten the file
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
    # Other nodes are named after the Cast whose output they replaced, so the name alone does not tell.
    return op_type in LAYOUT_OR_COPY or (op_type == "Cast" and name.startswith(INSERTED_CAST))


def _spans(trace: Trace, totals: Totals, index: int) -> list[Span]:
    """Read the kept run `index` again and return its calls as spans."""
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
