"""Nest the calls of each profiled run, and add up the time of every graph node while events are streamed.

ORT writes events in order of their *end*: the nodes of a run come before the `model_run` that encloses them,
the body of an If, Loop or Scan before the node that holds it. So only the events of one run are in memory at
a time, and a stack is enough to nest them without sorting.

Pure. Times here are ORT's microseconds, truncated to integers; `profile_parser` converts them to seconds.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from core.wire.errors import WorkerError
from core.worker.measure.trace import Event, Source, number

_HOLDS_BODY = frozenset({"If", "Loop", "Scan"})
_NAME_SUFFIX = "_kernel_time"
_FENCES = ("_fence_before", "_fence_after")  # before 1.22 each call has these two more

Call = tuple[Event, "Sequence[Call]"]  # a call of a node, and the calls in its body


class Run(NamedTuple):
    """One `model_run` event and the node events before it."""

    start_us: float
    duration_us: float
    execute_us: float  # time in the graph executor
    nodes: list[Event]  # by their end
    offset: int  # of the batch that contains the first of `nodes`


class Trace:
    """The runs of a profile; reading them also counts the file's other events."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.events = 0
        self.ignored_events = 0  # node events outside any complete run
        self.limit_reached = False
        self.dropped_events = 0
        self.once_us: Counter[str] = Counter()  # time of the session outside runs, by event name

    def runs(self, start: int = 0) -> Iterator[Run]:
        """Yield the complete runs from offset `start`, in order."""
        nodes: list[Event] = []
        offset = 0
        execute_us = 0.0
        for batch_offset, events in self.source.batches(start):
            self.events += len(events)
            for event in events:
                if event.cat == "Node":
                    if event.name.endswith(_FENCES):
                        continue
                    if not nodes:
                        offset = batch_offset
                    nodes.append(event)
                elif event.name == "SequentialExecutor::Execute":
                    execute_us = max(
                        execute_us, event.dur
                    )  # bodies write one too; the graph's is the longest
                elif event.name == "model_run":
                    yield self._run(event, execute_us, nodes, offset if nodes else batch_offset)
                    nodes, execute_us = [], 0.0
                else:
                    self._other(event)
        self.ignored_events += len(nodes)

    def _run(self, event: Event, execute_us: float, nodes: list[Event], offset: int) -> Run:
        end_us = event.ts + event.dur + 1  # + 1: ORT truncates to whole µs
        inside = [node for node in nodes if event.ts <= node.ts <= end_us]
        self.ignored_events += len(nodes) - len(inside)
        return Run(event.ts, event.dur, execute_us, inside, offset)

    def _other(self, event: Event) -> None:
        if event.name == "profile_truncated":
            self.limit_reached = True
            self.dropped_events += max(0, number(event.args.dropped_event_count))
        elif event.cat == "Session":
            self.once_us[event.name] += int(event.dur)


def node_name(event: Event) -> str:
    """Return the name of the node that `event` is a call of."""
    return event.name.removesuffix(_NAME_SUFFIX)


class NodeTotal:
    """Totals of one graph node, or of the graph itself at the top."""

    def __init__(self, event: Event, path: tuple[str, ...], body_path: tuple[str, ...]) -> None:
        self.event = event  # the longest call so far
        self.path = path
        self.body_path = body_path
        self.body: dict[tuple[int | str, str, str], NodeTotal] = {}
        self.calls = 0
        self.inclusive_us = 0.0
        self.run = -1  # the run of samples_us[-1]
        self.samples_us = array("d")  # self time, one value per run in which the node ran

    def child(self, event: Event) -> NodeTotal:
        """Return the child node in this body that `event` is a call of."""
        key = (event.args.node_index, event.name, event.args.op_name)
        node = self.body.get(key)
        if node is None:
            inner = (*self.body_path, node_name(event))
            node = self.body[key] = NodeTotal(event.detached(), self.body_path, inner)
        return node

    def add_call(self, event: Event, own_us: float, run: int) -> None:
        """Add one call of this node, with `own_us` outside its body."""
        self.calls += 1
        self.inclusive_us += event.dur
        if run == self.run:
            self.samples_us[-1] += own_us
        else:
            self.run = run
            self.samples_us.append(own_us)
        if event.dur > self.event.dur:
            self.event = event.detached()


class Totals:
    """The graph's nodes with their totals, and the kept runs."""

    def __init__(self) -> None:
        self.graph = NodeTotal(Event(), (), ())
        self.start_us = array("d")
        self.run_us = array("d")
        self.offsets = array("q")  # file positions to read the runs again
        self.execute_us = 0.0
        self.parallel = False  # nodes of one run ran on more than one thread

    def add_run(self, run: Run) -> None:
        """Add one run."""
        calls, threads = nest(run.nodes)
        self.start_us.append(run.start_us)
        self.run_us.append(run.duration_us)
        self.offsets.append(run.offset)
        self.execute_us += run.execute_us
        self.parallel |= threads > 1
        self._add_calls(calls, len(self.run_us))

    def _add_calls(self, calls: Sequence[Call], run: int) -> None:
        waiting = [(self.graph, calls)]
        while waiting:
            parent, calls = waiting.pop()
            for event, body in calls:
                node = parent.child(event)
                own_us = event.dur
                if body:
                    # truncation to whole µs can make a body longer than its node
                    own_us = max(0.0, own_us - sum(inner.dur for inner, _ in body))
                    waiting.append((node, body))
                node.add_call(event, own_us, run)

    def nodes(self) -> Iterator[NodeTotal]:
        """Yield every node, including those in bodies."""
        waiting = [self.graph]
        while waiting:
            inner = waiting.pop().body.values()
            waiting.extend(inner)
            yield from inner


def nest(nodes: list[Event]) -> tuple[list[Call], int]:
    """Return the calls in the main graph, each with the calls in its body, and the number of threads.

    On one thread events come in order of their end. So the body of `event` is every call that started after
    it and is not inside another call yet.
    """
    threads: dict[int, list[Call]] = {}
    for event in nodes:
        calls = threads.get(event.tid)
        if calls is None:
            calls = threads[event.tid] = []
        if calls and calls[-1][0].ts >= event.ts:
            calls.append((event, _take_body(calls, event)))
        else:
            calls.append((event, ()))
    return [call for calls in threads.values() for call in calls], len(threads)


def _take_body(calls: list[Call], event: Event) -> list[Call]:
    """Remove from the end of `calls` those inside `event`, and return them.

    A call of 0 µs that starts with `event` is before it or inside it; only the operator tells which.
    """
    holds_body = event.args.op_name in _HOLDS_BODY
    first = len(calls)
    while first:
        inner = calls[first - 1][0]
        if inner.ts < event.ts or (inner.ts == event.ts and not inner.dur and not holds_body):
            break
        first -= 1
    body = calls[first:]
    del calls[first:]
    return body


def add_up(trace: Trace, skip_runs: int, chosen: Container[int] | None = None) -> Totals:
    """Add up the runs of `trace` after the first `skip_runs`; of those only the indices in `chosen`, from 0.

    Raises:
        WorkerError: two runs overlap in time, so nodes cannot be assigned to a run.
    """
    totals = Totals()
    last_end_us = float("-inf")
    for index, run in enumerate(trace.runs()):
        if run.start_us < last_end_us:
            raise WorkerError(
                "The profile holds runs that overlap in time, so nodes cannot be assigned to runs.",
                hint="Profile with one stream at a time.",
            )
        last_end_us = run.start_us + run.duration_us
        if index >= skip_runs and (chosen is None or index - skip_runs in chosen):
            totals.add_run(run)
    return totals
