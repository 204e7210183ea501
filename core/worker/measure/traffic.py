"""Serves a schedule of requests: traffic that does not wait for the server.

The queue is virtual. All arrivals are known before the start; a stream that is free takes the next request in
order and, if it has not arrived yet, sleeps until then. So no thread paces the others, and a request waits
only for the requests before it. The latency of a request is its end minus its scheduled arrival, both in the
record that the parent reads. Nothing but the call runs between start and end; with dynamic batching also
joining the inputs and splitting the outputs, which any server must do.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from core import wire
from core.wire.errors import SpecError, WorkerError
from core.wire.traffic_record import TrafficRecord
from core.worker.measure import timing
from core.worker.measure.inference import Contender, Inference, count_samples, feedable
from core.worker.session import BuiltSession
from core.worker.session.feeds import Array, make_feeds

LONGEST_SLEEP_NS = 50_000_000  # after which a stream looks whether it shall stop
_PR_SET_TIMERSLACK = 29


class Traffic:
    """One prepared schedule; `serve` runs it."""

    def __init__(self, contender: Contender, plan: wire.TrafficPlan) -> None:
        """Make the inputs of every kind of request.

        Raises:
            SpecError: an input does not fit, or dynamic batching cannot join these inputs.
            WorkerError: the record cannot be opened.
        """
        self._plan = plan
        try:
            self._record = TrafficRecord(Path(plan["record"]), plan["requests"])
        except (OSError, ValueError) as error:
            raise WorkerError(
                f"The record of the run cannot be opened: {error}.", hint="Free space and try again."
            ) from error
        self._record.touch()
        self._rows = [feeds["batch_size"] for feeds in plan["kinds"]]
        self._batcher = None
        if plan["batching"] is not None:
            self._batcher = Batcher(contender, plan["kinds"])
        self._calls = [_calls(contender, plan["kinds"]) for _ in range(_copies(contender, plan["streams"]))]
        self._failure: list[BaseException] = []

    def serve(self, begin_ns: int) -> None:
        """Serve the whole schedule, or until the record says stop.

        Args:
            begin_ns: time of the clock `time.monotonic_ns` from which arrivals count.

        Raises:
            TunerError: of the first call that failed.
        """
        queue = _SharedQueue(self._record) if self._plan["shared"] else _Queue()
        work = self._stream
        if self._batcher is not None:
            work = partial(self._batching_stream, _Former(self, queue, begin_ns))
        first = self._plan["first_stream"]
        threads = [
            threading.Thread(target=self._guarded, args=(partial(work, queue), begin_ns, first + number))
            for number in range(self._plan["streams"])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure:
            raise self._failure[0]

    def close(self) -> None:
        """Unmap the record."""
        self._record.close()

    def _guarded(self, work: Callable[[int, int], None], begin_ns: int, stream: int) -> None:
        set_timer_slack()
        try:
            work(begin_ns, stream)
        except BaseException as error:
            self._failure.append(error)
            self._record.stop()

    def _stream(self, queue: _Queue, begin_ns: int, stream: int) -> None:
        record, requests, drop_ns = self._record, self._plan["requests"], self._plan["drop_ns"]
        calls, at_ns, kinds = self._calls[stream % len(self._calls)], self._record.at_ns, self._record.kind
        starts, ends, streams, batches = record.start_ns, record.end_ns, record.stream, record.batch
        until_ns = self._plan["until_ns"] or sys.maxsize
        clock, wait = time.monotonic_ns, self._wait
        take = queue.take
        while (index := take()) < requests:
            due = at_ns[index]
            now = clock() - begin_ns
            if now < due:
                now = wait(due, begin_ns)
            if record.stopped or now > until_ns:
                return
            starts[index] = now or 1  # 0: not started
            if drop_ns and now - due > drop_ns:
                continue
            call = calls[kinds[index]]
            streams[index] = stream
            batches[index] = index
            call()
            ends[index] = clock() - begin_ns

    def _wait(self, due: int, begin_ns: int) -> int:
        """Sleep until `due`, or until the record says stop; return the time from the begin."""
        spin_ns, clock = self._plan["spin_ns"], time.monotonic_ns
        now = clock() - begin_ns
        while (left := due - now - spin_ns) > 0:
            if self._record.stopped:
                return now
            time.sleep(min(left, LONGEST_SLEEP_NS) / 1e9)
            now = clock() - begin_ns
        while now < due:
            now = clock() - begin_ns
        return now

    def _batching_stream(self, former: _Former, _: _Queue, begin_ns: int, stream: int) -> None:
        assert self._batcher is not None
        record, kinds, clock = self._record, self._record.kind, time.monotonic_ns
        alone, until_ns = self._calls[stream % len(self._calls)], self._plan["until_ns"] or sys.maxsize
        while members := former.form():
            now = clock() - begin_ns
            if record.stopped or now > until_ns:
                return
            for index in members:
                record.start_ns[index] = now or 1
                record.stream[index] = stream
                record.batch[index] = members[0]
            if len(members) == 1:
                alone[kinds[members[0]]]()
            else:
                self._batcher.run([kinds[index] for index in members])
            end = clock() - begin_ns
            for index in members:
                record.end_ns[index] = end


class _Queue:
    """The requests that no stream has taken yet; threads of one process share it."""

    def __init__(self) -> None:
        self.take: Callable[[], int] = itertools.count().__next__  # atomic between threads
        self.next = 0  # for batches, which take several at once under the lock
        self._lock = threading.Lock()

    def locked(self) -> contextlib.AbstractContextManager[object]:
        """Hold the queue while a batch is formed."""
        return self._lock


class _SharedQueue(_Queue):
    """The same for processes of one stream each: the number of the next request stands in the record."""

    def __init__(self, record: TrafficRecord) -> None:
        super().__init__()
        self._record = record
        self.take = self._take

    def _take(self) -> int:
        with self._record.locked():
            number = self._record.ticket
            self._record.ticket = number + 1
        return number

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with self._record.locked():
            self.next = self._record.ticket
            try:
                yield
            finally:
                self._record.ticket = self.next


class _Former:
    """Forms batches in the order of the queue: one stream at a time."""

    def __init__(self, traffic: Traffic, queue: _Queue, begin_ns: int) -> None:
        plan = traffic._plan
        assert plan["batching"] is not None
        self._traffic, self._queue, self._begin_ns = traffic, queue, begin_ns
        self._max, self._delay_ns = plan["batching"]["max_batch_size"], plan["batching"]["max_delay_ns"]
        self._preferred = frozenset(plan["batching"]["preferred"])
        self._drop_ns, self._requests = plan["drop_ns"], plan["requests"]

    def form(self) -> list[int]:
        """Wait for the next request, and for others that may join it; an empty list: there are no more."""
        with self._queue.locked():
            first = self._first()
            return [] if first is None else self._join(first)

    def _first(self) -> int | None:
        """The next request that has not timed out, once it has arrived."""
        record, queue = self._traffic._record, self._queue
        while queue.next < self._requests:
            index = queue.next
            queue.next += 1
            due = record.at_ns[index]
            now = self._traffic._wait(due, self._begin_ns)
            if record.stopped:
                return None
            if not (self._drop_ns and now - due > self._drop_ns):
                return index
            record.start_ns[index] = now
        return None

    def _join(self, first: int) -> list[int]:
        traffic, record, queue = self._traffic, self._traffic._record, self._queue
        at_ns, kinds, joins = record.at_ns, record.kind, traffic._batcher
        assert joins is not None
        members, rows = [first], traffic._rows[kinds[first]]
        deadline = at_ns[first] + self._delay_ns
        now = time.monotonic_ns() - self._begin_ns
        while queue.next < self._requests and rows < self._max:
            index = queue.next
            more = traffic._rows[kinds[index]]
            if rows + more > self._max or not joins.fit(kinds[first], kinds[index]):
                break
            if at_ns[index] > now:
                if rows in self._preferred or now >= deadline:
                    break
                now = traffic._wait(min(at_ns[index], deadline), self._begin_ns)
                if record.stopped:
                    break
                continue
            queue.next += 1
            members.append(index)
            rows += more
        return members


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of one kind of request, and what must be equal to join them with others."""

    arrays: dict[str, Array]
    rows: int
    shape: tuple[object, ...]  # sizes of all axes but the batch


class Batcher:
    """Joins the inputs of several requests, runs them in one call, and splits the outputs.

    It calls `session.run`, also where the configuration binds its inputs: joined inputs are new arrays.
    """

    def __init__(self, contender: Contender, kinds: Sequence[wire.FeedPlan]) -> None:
        """Make the inputs of every kind.

        Raises:
            SpecError: not a session of ONNX Runtime, or an input has no batch dimension.
        """
        built = contender.built
        if not isinstance(built, BuiltSession):
            raise SpecError(
                "Dynamic batching joins inputs for a session of ONNX Runtime only.",
                hint="Choose the engine `onnxruntime`, or leave out dynamic batching.",
            )
        if not kinds[0]["batch_axes"]:
            raise SpecError(
                "No input of this model has a batch dimension, so requests cannot be joined.",
                hint="Leave out dynamic batching, or export the model with a dynamic batch.",
            )
        self._built, self._axes = built, kinds[0]["batch_axes"]
        self._dtypes: dict[str, str] = {}
        self._kinds = [self._inputs(plan) for plan in kinds]

    def _inputs(self, plan: wire.FeedPlan) -> _Inputs:
        feeds = make_feeds(plan, self._built.session.get_inputs())
        self._dtypes = dict(feeds.dtypes)
        shape = tuple(
            (name, *(size for axis, size in enumerate(one.shape) if axis != self._axes.get(name)))
            for name, one in sorted(feeds.arrays.items())
        )
        return _Inputs(dict(feeds.arrays), plan["batch_size"], shape)

    def fit(self, one: int, other: int) -> bool:
        """Return whether requests of two kinds can be joined: all sizes but the batch are equal."""
        return one == other or self._kinds[one].shape == self._kinds[other].shape

    def run(self, kinds: Sequence[int]) -> list[list[Array]]:
        """Run requests of these kinds in one call, and return the outputs of each, in their order."""
        found = [self._kinds[kind] for kind in kinds]
        joined = {
            name: feedable(
                np.concatenate([one.arrays[name] for one in found], axis=self._axes[name])
                if name in self._axes
                else array,
                self._dtypes[name],
            )
            for name, array in found[0].arrays.items()
        }
        outputs = self._built.session.run(None, joined, self._built.run_options)
        edges = [0, *itertools.accumulate(one.rows for one in found)]
        return [
            [
                output[start:end] if getattr(output, "shape", ()) and len(output) == edges[-1] else output
                for output in outputs
            ]
            for start, end in itertools.pairwise(edges)
        ]


def _copies(contender: Contender, streams: int) -> int:
    """How many sets of inputs the streams need: a binding holds its outputs, so each has its own."""
    bound = not isinstance(contender, Inference) or contender.binding is not None
    return streams if bound else 1


def _calls(contender: Contender, kinds: Sequence[wire.FeedPlan]) -> list[timing.Call]:
    found = []
    for plan in kinds:
        one = contender.with_inputs(plan)
        count_samples(one, plan)
        found.append(one.call)
    return found


def set_timer_slack() -> None:
    """Let the kernel end this thread's sleeps on time: the default slack is 50 µs."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
