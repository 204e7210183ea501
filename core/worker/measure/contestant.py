"""A contestant: one configuration of a comparison in its own process, which obeys commands of the parent.

It loads numpy, onnxruntime and the standard library; only another engine loads its own. The parent decides
when it runs and freezes it in between, so nothing here runs without a command: no thread, no garbage
collection, no timer. Commands and replies are those of `wire`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.random

from core import wire
from core.wire import engines, limits
from core.wire.channel import Command, obey
from core.wire.errors import SpecError, WorkerError
from core.wire.sandbox import Rules
from core.worker import sandbox
from core.worker.measure import footprint, output_comparison, timing, warmup
from core.worker.measure.counters import Meter
from core.worker.measure.inference import Contender, count_samples, translate_errors
from core.worker.measure.memory_layout import DEFAULT_LAYOUT, MemoryLayout, at_depth, draw
from core.worker.measure.stream_processes import (
    CPU_TIME,
    MEMORY,
    RUN,
    Meeting,
    Order,
    Part,
    Processes,
    Siblings,
    add_counters,
)
from core.worker.measure.streams import (
    StreamBlock,
    Streams,
    Threads,
    call_together,
    common_window,
    completed,
)
from core.worker.measure.traffic import Traffic
from core.worker.session import CPU, CUDA_PROVIDERS
from core.worker.session.feeds import Array


def serve(descriptor: int, after_load: Callable[[], object] = lambda: None) -> None:
    """Execute the commands from an inherited stream socket until it ends.

    Args:
        descriptor: the socket.
        after_load: called when the process has entered the sandbox of its configuration, after which it may
            have several threads.
    """
    _serve(Contestant(sandbox.enter_required, after_load), descriptor)


def _serve(contestant: Contestant, descriptor: int) -> None:
    with (
        contextlib.suppress(OSError),  # the parent has exited
        socket.socket(fileno=descriptor) as channel,
        channel.makefile("rb") as requests,
    ):
        for request in requests:
            contestant.obey(request, channel.sendall)


class Contestant:
    """One configuration, from `load` to the end of its process."""

    def __init__(
        self,
        enter: Callable[[Rules | None], None] = lambda rules: None,
        after_load: Callable[[], object] = lambda: None,
    ) -> None:
        """Load nothing yet; `enter` confines this process by the rules of its configuration."""
        self._enter, self._after_load = enter, after_load
        self._loaded: _Loaded | None = None
        self._siblings: Siblings | None = None  # the other streams that are processes
        self._shared_bytes = 0  # `footprint.shared_bytes` before the model was loaded
        self._traffic: Traffic | None = None
        self._reference: dict[str, Array] | None = None  # outputs of one run, to compare others with
        self._commands: dict[str, Command] = {name: partial(self._do, do) for name, do in _COMMANDS.items()}

    def obey(self, request: bytes, send: Callable[[bytes], object]) -> None:
        """Execute one command line and send the reply, like `wire.channel.obey`."""
        obey(request, self._commands, send, who="contestant")

    def _do(self, do: _Do, arguments: Any, _: wire.Progress) -> Mapping[str, Any]:
        return do(self, arguments)

    @translate_errors()
    def load(self, plan: wire.LoadPlan) -> wire.LoadReply:
        """Build the session of `plan` in the memory layout that the plan draws, and make its first run.

        With several streams of the type `processes`, each process does so at the same time.

        Raises:
            SpecError: a setting, input or CPU is invalid, or the inputs do not have the batch's samples.
            ProviderError: a provider did not load.
            ModelError: ONNX Runtime refuses the model, or its run fails.
            WorkerError: not enough memory; or this contestant has loaded a session already.
        """
        if self._loaded is not None or self._siblings is not None:
            raise WorkerError(
                "This worker has loaded its configuration already.",
                hint="Start another worker for another configuration.",
            )
        pin(plan["cpus"])
        if _stream_processes(plan) > 1:
            return self._load_processes(plan)
        if _on_cpu_only(plan):
            limits.cap_memory()  # a runaway allocation becomes an error; GPU drivers need address space
        return self._load(plan)

    def _load_processes(self, plan: wire.LoadPlan) -> wire.LoadReply:
        """Fork the other streams, and load one session in each process."""
        parts = _parts(plan)
        siblings = self._siblings = Siblings(len(parts), _serve_stream)
        try:
            limits.cap_memory(len(parts))
            replies = siblings.ask(wire.LOAD, parts[1:])
            pin(parts[0]["cpus"])
            own = self._load(parts[0])
            loads: list[wire.LoadReply] = [own, *replies()]
            memory = [self._memory(), *siblings.ask_all(MEMORY, {})()]
        except BaseException:
            siblings.end()
            raise
        loaded = self._need()
        loaded.streams = Processes(loaded.contender.call, loaded.layout, loaded.meter, siblings)
        loaded.exact_memory = all(one["exact_memory"] for one in loads)
        peaks = [one["load_peak_rss_bytes"] for one in loads]
        reply = own.copy()
        reply["session_creation_s"] = max(one["session_creation_s"] for one in loads)
        reply["first_run_ns"] = max(one["first_run_ns"] for one in loads)
        reply["affinity"] = sorted(cpu for one in loads for cpu in one["affinity"])
        reply["baseline_rss_bytes"] += sum(one["private_bytes"] for one in memory[1:])
        shared = [one["shared_bytes"] for one in memory]
        reply["load_peak_rss_bytes"] = footprint.group_peak_bytes(peaks, shared)
        reply["exact_memory"] = loaded.exact_memory
        reply["stream_threads"] = [_threads(one) for one in parts]
        return reply

    def _load(self, plan: wire.LoadPlan) -> wire.LoadReply:
        """Load one session in this process."""
        rules = plan.get("sandbox")
        self._enter(rules)
        self._after_load()
        with sandbox.refusals(rules):
            return self._load_confined(plan)

    def _load_confined(self, plan: wire.LoadPlan) -> wire.LoadReply:
        again, seed = plan.get("again", False), plan.get("layout_seed")
        prepare = _engine(plan, again=again)
        layout = DEFAULT_LAYOUT if seed is None else draw(seed, buffers=engines.can(plan["engine"], "place"))
        exact = footprint.reset_peak()
        baseline = footprint.peak_rss_bytes()
        if self._siblings is not None or _is_part(plan):
            self._shared_bytes = footprint.shared_bytes()
        contender = prepare(plan, layout)
        first_run_ns, described = _first_run(contender)
        peak = footprint.peak_rss_bytes()
        rows = count_samples(contender, plan["feeds"])
        gc.collect()
        gc.freeze()
        gc.disable()  # for good: it must never run inside the timed loop
        gpu = _gpu(plan, contender)
        self._loaded = _Loaded(
            plan=plan,
            contender=contender,
            first_run_ns=first_run_ns,
            baseline_rss_bytes=baseline,
            exact_memory=exact,
            gpu=gpu,
            meter=Meter(gpu=gpu),  # its threads exist now
            layout=layout,
            contenders=[contender, *_other_callers(plan, contender)],
        )
        self._loaded.start_threads()
        precision = contender.built.precision
        return {
            **contender.built.providers(),
            **({"precision": precision} if precision else {}),  # type: ignore[typeddict-item]
            "batch_size": rows,
            "inputs": contender.inputs,
            "outputs": described,
            "session_creation_s": contender.built.creation_s,
            "first_run_ns": first_run_ns,
            "affinity": limits.allowed_cpus(),
            "baseline_rss_bytes": baseline,
            "load_peak_rss_bytes": max(0, peak - baseline),
            "exact_memory": exact,
            "clock_ns": 0.0 if again else timing.clock_share_ns(),
            "notes": [*contender.notes, *_row_notes(plan)],
            "libraries": contender.libraries,
            "layout": layout.facts(),
            "stream_threads": [],
        }

    @translate_errors()
    def warm(self, *, known_ns: int | None = None, cap_s: float | None = None) -> wire.WarmReply:
        """Run until the latency is steady, or as often as the plan says.

        With several streams all of them run, and the latencies are those of the first.

        Args:
            known_ns: typical warm latency of this configuration's earlier processes; None: there are none.
            cap_s: longest warm-up; None: 10 s, 60 s on an accelerator.
        """
        loaded = self._need()
        each, runs = loaded.time_each, loaded.plan["warmup_runs"]
        if runs is None:
            on_cpu = loaded.contender.built.on_cpu
            usual_ns = warmup.CAP_NS if on_cpu else warmup.ACCELERATOR_CAP_NS
            cap_ns = usual_ns if cap_s is None else min(usual_ns, int(cap_s * 1e9))
            latencies = warmup.run_until_steady(each, cap_ns=cap_ns, known_ns=known_ns)
        else:
            latencies = each(runs) if runs else []
        back = known_ns is not None and warmup.matches_known_latency(latencies, known_ns)
        return {
            "latencies_ns": latencies,
            "steady": back or warmup.is_steady(latencies),
            "median_ns": warmup.expected_ns(latencies, loaded.first_run_ns),
        }

    @translate_errors()
    def block(self, *, block_ns: int, min_runs: int, max_runs: int, refill: bool = True) -> wire.BlockReply:
        """Run one block: back-to-back inferences for `block_ns`, at least `min_runs`, at most `max_runs`.

        Args:
            block_ns: minimum duration.
            min_runs: minimum number of runs.
            max_runs: maximum number of runs.
            refill: make one uncounted run first, which refills the caches.

        With several streams each runs until every one has done the minimum, so `max_runs` does not apply.

        Raises:
            WorkerError: the clock went backwards, or the process of a stream has died.
        """
        loaded = self._need()
        gc.collect()
        started_s = time.monotonic()
        if loaded.streams is not None:
            found = loaded.streams.run(block_ns=block_ns, min_runs=min_runs, refill=refill)
            return _block_reply(found, started_s)
        loaded.meter.start()
        block = at_depth(
            loaded.layout.stack_frames,
            lambda: timing.time_block(
                loaded.contender.call, block_ns=block_ns, min_runs=min_runs, max_runs=max_runs, refill=refill
            ),
        )
        return {
            "refill_ns": block.refill_ns,
            "latencies_ns": block.latencies_ns,
            "started_s": started_s,
            "counters": loaded.meter.stop(),
            "window_s": block.window_ns / 1e9,
        }

    @translate_errors()
    def cost(self, *, seconds: float, window_s: float) -> wire.CostReply:
        """Measure CPU time per run over `window_s`, and idle CPU time in the `seconds` after a run."""
        loaded = self._need()
        if loaded.streams is None:
            cpu_s_per_run = timing.cpu_s(loaded.contender.call, window_s)
        else:
            found = loaded.streams.run(block_ns=int(window_s * 1e9), min_runs=1, refill=False)
            cpu_s_per_run = found.counters["cpu_s"] / sum(len(one.starts_ns) for one in found.streams)
        loaded.time_each(1)
        cpu, wall = self._cpu_s(), time.perf_counter()
        time.sleep(seconds)
        return {
            "cpu_s_per_run": cpu_s_per_run,
            "idle_cpu_s": self._cpu_s() - cpu,
            "idle_wall_s": time.perf_counter() - wall,
        }

    def _cpu_s(self) -> float:
        """CPU time of all processes of this configuration so far."""
        others = [] if self._siblings is None else self._siblings.ask_all(CPU_TIME, {})()
        return time.process_time() + sum(float(one["cpu_s"]) for one in others)

    def _memory(self) -> dict[str, int]:
        """Growth of the pages shared with other processes, and the private pages before the model."""
        grown = footprint.shared_bytes() - self._shared_bytes
        private = self._need().baseline_rss_bytes - self._shared_bytes
        return {"shared_bytes": grown, "private_bytes": max(0, private)}

    @translate_errors()
    def footprint(self, *, runs: int) -> wire.FootprintReply:
        """Measure peak memory of `runs` runs, for a contestant that has only executed `load`.

        0 runs: the peak of all runs since `load`.
        """
        loaded, siblings = self._need(), self._siblings
        own = self._reset_peak(runs=runs)
        exact = own["exact"]
        if siblings is not None:
            exact = exact and all(one["exact"] for one in siblings.ask_all(_RESET_PEAK, {"runs": runs})())
        if runs and loaded.streams is not None:
            loaded.streams.run(block_ns=0, min_runs=runs, refill=False)
        elif runs:
            loaded.time_each(runs)
        peak = self._peak()
        if siblings is not None:
            peaks = [peak, *(one["peak_bytes"] for one in siblings.ask_all(_PEAK, {})())]
            shared = [one["shared_bytes"] for one in (self._memory(), *siblings.ask_all(MEMORY, {})())]
            peak = footprint.group_peak_bytes(peaks, shared)
        gpu_bytes, gpu_note = (None, "") if loaded.gpu is None else footprint.gpu_memory_bytes()
        return {
            "run_peak_rss_bytes": peak,
            "gpu_memory_bytes": gpu_bytes,
            "notes": _memory_notes(loaded.plan, exact=exact and loaded.exact_memory, gpu_note=gpu_note),
        }

    def _reset_peak(self, *, runs: int) -> dict[str, bool]:
        return {"exact": footprint.reset_peak() if runs else True}

    def _peak(self) -> int:
        """Peak memory of this process above its baseline."""
        return max(0, footprint.peak_rss_bytes() - self._need().baseline_rss_bytes)

    @translate_errors()
    def new_shapes(self, *, feeds: list[wire.FeedPlan]) -> wire.NewShapesReply:
        """Run the warm session with new input shapes; time the first and second run of each.

        Raises:
            TunerError: as for `load`; a shape that fails ends the command, not the contestant.
        """
        return {"shapes": [_new_shape(self._need().contender, plan) for plan in feeds]}

    @translate_errors()
    def prepare_traffic(self, plan: wire.TrafficPlan) -> wire.EmptyReply:
        """Make the inputs of every kind of request of a schedule, for `traffic`.

        Streams that are processes share the record; each serves what no other has taken.

        Raises:
            TunerError: an input does not fit, or the record cannot be opened.
        """
        if self._traffic is not None:
            self._traffic.close()
        if self._siblings is not None:
            plans: list[wire.TrafficPlan] = [
                {**plan, "streams": 1, "first_stream": number, "shared": True}
                for number in range(self._siblings.count)
            ]
            plan, replies = plans[0], self._siblings.ask(wire.PREPARE_TRAFFIC, plans[1:])
            replies()
        self._traffic = Traffic(self._need().contender, plan)
        return {}

    @translate_errors()
    def traffic(self, *, begin_ns: int) -> wire.TrafficReply:
        """Serve the prepared schedule, whose arrivals count from `begin_ns`.

        Raises:
            TunerError: nothing is prepared, or a call failed.
        """
        traffic, meter = self._traffic, self._need().meter
        if traffic is None:
            raise WorkerError("No traffic is prepared.", hint="Send `prepare_traffic` first.")
        siblings = self._siblings
        replies = None if siblings is None else siblings.ask_all(wire.TRAFFIC, {"begin_ns": begin_ns})
        meter.start()
        traffic.serve(begin_ns)
        counters, memory = meter.stop(), footprint.private_bytes()
        if replies is not None:
            others = replies()
            counters = add_counters([counters, *(one["counters"] for one in others)])
            each = [memory, *(one["memory_bytes"] for one in others)]
            memory = None if None in each else sum(one or 0 for one in each)
        return {"counters": counters, "memory_bytes": memory}

    @translate_errors()
    def save_outputs(self, *, path: str) -> wire.EmptyReply:
        """Write the outputs of one run to `path`, for `compare_outputs` of another contestant.

        Several streams run at the same time, and the outputs of the first that differs are written.
        """
        contenders = self._need().contenders
        calls = [one.call for one in contenders]
        results = call_together(calls) if len(calls) > 1 else [calls[0]()]
        found = [one.arrays(result) for one, result in zip(contenders, results, strict=True)]
        if self._siblings is not None:
            found += self._outputs_of_siblings(self._siblings, path)
        differing = (one for one in found[1:] if not _same_arrays(one, found[0]))
        output_comparison.save(path, next(differing, found[0]))
        return {}

    def _outputs_of_siblings(self, siblings: Siblings, path: str) -> list[dict[str, Array]]:
        paths = [f"{path}.{number}.npz" for number in range(1, siblings.count)]
        try:
            siblings.ask(wire.SAVE_OUTPUTS, [{"path": one} for one in paths])()
            return [output_comparison.load(one) for one in paths]
        finally:
            for one in paths:
                Path(one).unlink(missing_ok=True)

    @translate_errors()
    def compare_outputs(self, *, path: str) -> wire.OutputError:
        """Return the error of the outputs in `path` against one run here, which is the reference."""
        contender = self._need().contender
        if self._reference is None:
            self._reference = contender.arrays(contender.call())
        return output_comparison.compare(self._reference, output_comparison.load(path))

    def _need(self) -> _Loaded:
        if self._loaded is None:
            raise WorkerError("This worker has loaded no configuration.", hint="Send `load` first.")
        return self._loaded


class _Stream(Contestant):
    """One of several streams that are processes, except the first; it obeys the first."""

    def __init__(self, index: int, meeting: Meeting) -> None:
        super().__init__(sandbox.enter_required)
        self._index, self._meeting = index, meeting
        own: dict[str, _Do] = {
            wire.LOAD: lambda _, plan: self.load(plan),
            RUN: lambda _, arguments: self.run(**arguments),
            CPU_TIME: lambda _, __: {"cpu_s": self._cpu_s()},
            MEMORY: lambda _, __: self._memory(),
            _RESET_PEAK: lambda _, arguments: self._reset_peak(**arguments),
            _PEAK: lambda _, __: {"peak_bytes": self._peak()},
        }
        self._commands |= {name: partial(self._do, do) for name, do in own.items()}

    @translate_errors()
    def load(self, plan: wire.LoadPlan) -> wire.LoadReply:
        """Build this stream's session; see `Contestant.load`."""
        pin(plan["cpus"])
        limits.cap_memory(self._meeting.count)
        return self._load(plan)

    @translate_errors()
    def run(self, *, turn: int, block_ns: int, min_runs: int, refill: bool) -> dict[str, Any]:
        """Run this stream's part of a block; see `stream_processes.Part`."""
        gc.collect()
        loaded = self._need()
        part = Part(loaded.contender.call, loaded.meter, loaded.layout, self._meeting, self._index)
        found, counters = part.run(Order(turn=turn, block_ns=block_ns, min_runs=min_runs, refill=refill))
        return {
            "refill_ns": found.refill_ns,
            "starts_ns": found.starts_ns,
            "ends_ns": found.ends_ns,
            "counters": counters,
        }


_RESET_PEAK, _PEAK = "reset_peak", "peak"  # commands of a stream


def _serve_stream(descriptor: int, index: int, meeting: Meeting) -> None:
    np.random.seed()  # libraries share this state: two processes must not draw the same
    _serve(_Stream(index, meeting), descriptor)


@dataclass(slots=True, kw_only=True)
class _Loaded:
    """The state that `load` creates."""

    plan: wire.ContestantPlan
    contender: Contender
    first_run_ns: int
    baseline_rss_bytes: int
    exact_memory: bool
    gpu: int | None  # CUDA's number of the GPU in use
    meter: Meter
    layout: MemoryLayout
    contenders: Sequence[Contender]  # of each caller in this process
    streams: Streams | None = None  # None: a single caller

    def start_threads(self) -> None:
        """Start the further callers of this process, if any."""
        if len(self.contenders) > 1:
            self.streams = Threads([one.call for one in self.contenders], self.layout, self.meter)

    def time_each(self, runs: int) -> list[int]:
        """Make at least `runs` runs in every stream; return the latencies of the first."""
        if self.streams is None:
            return timing.time_each(self.contender.call, runs)
        found = self.streams.run(block_ns=0, min_runs=runs, refill=False)
        return found.streams[0].latencies_ns


_Do = Callable[[Contestant, Any], Mapping[str, Any]]
_COMMANDS: dict[str, _Do] = {
    wire.LOAD: Contestant.load,
    wire.WARM: lambda contestant, arguments: contestant.warm(**arguments),
    wire.BLOCK: lambda contestant, arguments: contestant.block(**arguments),
    wire.COST: lambda contestant, arguments: contestant.cost(**arguments),
    wire.FOOTPRINT: lambda contestant, arguments: contestant.footprint(**arguments),
    wire.NEW_SHAPES: lambda contestant, arguments: contestant.new_shapes(**arguments),
    wire.PREPARE_TRAFFIC: lambda contestant, arguments: contestant.prepare_traffic(arguments),
    wire.TRAFFIC: lambda contestant, arguments: contestant.traffic(**arguments),
    wire.SAVE_OUTPUTS: lambda contestant, arguments: contestant.save_outputs(**arguments),
    wire.COMPARE_OUTPUTS: lambda contestant, arguments: contestant.compare_outputs(**arguments),
}


# -- load --------------------------------------------------------------------------------------------------


def pin(cpus: list[int]) -> None:
    """Restrict this process, and the threads that it starts from now on, to `cpus`; empty: no change.

    Raises:
        SpecError: not all of them are allowed, or this system has no such call.
    """
    if not cpus:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise SpecError("This system does not let a process choose its CPUs.", hint="Leave `cpus` empty.")
    allowed = os.sched_getaffinity(0)
    refused = sorted(set(cpus) - allowed)
    if refused:
        raise SpecError(
            f"`cpus` names CPU {refused[0]}, which this process may not use; it may use "
            f"{', '.join(map(str, sorted(allowed)))}.",
            hint="Name CPUs of that list.",
        )
    os.sched_setaffinity(0, cpus)


def _stream_processes(plan: wire.ContestantPlan) -> int:
    """Number of processes of a configuration."""
    return plan.get("streams", 1) if plan.get("stream_type") == "processes" else 1


def _is_part(plan: wire.ContestantPlan) -> bool:
    """Whether a plan is that of one stream among several processes; see `_parts`."""
    return plan.get("stream_type") == "processes"


def _parts(plan: wire.LoadPlan) -> list[wire.LoadPlan]:
    """Return the plan of each stream that is a process: its own CPUs, threads and memory layout.

    Raises:
        SpecError: another provider than the CPU's, or fewer CPUs than processes.
    """
    count, allowed, quota = plan.get("streams", 1), limits.allowed_cpus(), limits.cpu_quota()
    if not _on_cpu_only(plan):
        raise SpecError(
            "Streams of the type `processes` need ONNX Runtime's CPU provider alone.",
            hint="Use `stream_type` threads.",
        )
    most = limits.most_processes(allowed, quota)
    if count > most:
        raise limits.too_many_processes(count, most)
    cores = limits.physical_cores()
    found: list[wire.LoadPlan] = []
    for number, share in enumerate(limits.cpu_shares(cores, allowed, count)):
        own = limits.usable_threads(cores, share, None if quota is None else quota / count)
        attributes = plan["session"]["attributes"]
        threads = attributes.get("intra_op_num_threads") or own
        session: wire.SessionPlan = {
            **plan["session"],
            "attributes": {**attributes, "intra_op_num_threads": threads},
        }
        part: wire.LoadPlan = {**plan, "session": session, "cpus": share, "streams": 1}
        if "layout_seed" in plan:
            part["layout_seed"] = plan["layout_seed"] + number
        found.append(part)
    return found


def _threads(plan: wire.ContestantPlan) -> int:
    return int(plan["session"]["attributes"]["intra_op_num_threads"])


def _other_callers(plan: wire.ContestantPlan, contender: Contender) -> list[Contender]:
    """Return the same session for each further caller, with inputs of its own."""
    if _is_part(plan):
        return []
    return [contender.with_inputs(plan["feeds"]) for _ in range(1, plan.get("streams", 1))]


def _same_arrays(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    """Whether two sets of outputs are equal to the last bit; two NaN are equal."""
    return one.keys() == other.keys() and all(
        np.array_equal(array, other[name], equal_nan=array.dtype.kind in "fc") for name, array in one.items()
    )


def _block_reply(found: StreamBlock, started_s: float) -> wire.BlockReply:
    """Return a block of several streams: every latency, and the runs in the common window."""
    window = common_window(found.streams)
    refills = [one.refill_ns for one in found.streams if one.refill_ns is not None]
    return {
        "refill_ns": refills[0] if refills else None,
        "latencies_ns": [ns for one in found.streams for ns in one.latencies_ns],
        "started_s": started_s,
        "counters": found.counters,
        "window_s": (window[1] - window[0]) / 1e9,
        "stream_runs": [len(one.starts_ns) for one in found.streams],
        "stream_completed": [completed(one, window) for one in found.streams],
        "stream_refills_ns": refills,
    }


_CPU_DEVICE = "CPU"


def _on_cpu_only(plan: wire.ContestantPlan) -> bool:
    device = plan["openvino"]["device"] if "openvino" in plan else _CPU_DEVICE
    return (
        engines.can(plan["engine"], "cap")
        and device == _CPU_DEVICE
        and all(one["name"] == CPU for one in plan["session"]["providers"])
    )


def _engine(
    plan: wire.ContestantPlan, *, again: bool
) -> Callable[[wire.ContestantPlan, MemoryLayout], Contender]:
    """Return the engine's factory; its libraries are loaded now, so that they do not count as the model's."""
    module = importlib.import_module(engines.ENGINES[plan["engine"]].module)  # only of an engine that runs
    if not again and engines.can(plan["engine"], "fork"):  # a forked process inherits few of their pages
        footprint.load_libraries()
    prepare: Callable[[wire.ContestantPlan, MemoryLayout], Contender] = module.contender
    return prepare


def _first_run(contender: Contender) -> tuple[int, list[wire.TensorInfo]]:
    """Time the very first run; its outputs are described and then dropped."""
    results: list[object] = []
    (first_run_ns,) = timing.time_each(lambda: results.append(contender.call()), 1)
    return first_run_ns, contender.outputs(results[0])


def _new_shape(contender: Contender, plan: wire.FeedPlan) -> wire.NewShape:
    with_inputs = contender.with_inputs(plan)
    rows = count_samples(with_inputs, plan)
    first, following = timing.time_each(with_inputs.call, 2)
    return {"batch_size": rows, "first_run_ns": first, "next_run_ns": following}


def _gpu(plan: wire.ContestantPlan, contender: Contender) -> int | None:
    """Return CUDA's number of the GPU in use, or None."""
    chosen = [one for one in plan["session"]["providers"] if one["name"] in CUDA_PROVIDERS]
    used = [one for one in chosen if one["name"] in contender.built.effective]
    return int(used[0]["options"].get("device_id", "0")) if used else None


def _row_notes(plan: wire.ContestantPlan) -> list[str]:
    if plan["feeds"]["batch_axes"]:
        return []
    return ["No input of this model has a batch dimension: each inference counts as one sample."]


def _memory_notes(plan: wire.ContestantPlan, *, exact: bool, gpu_note: str) -> list[str]:
    notes = [gpu_note] if gpu_note else []
    if not exact:
        notes.append("Peak memory may be too high: this system does not let a process reset its peak.")
    if plan["feeds"]["source"] == "images":
        notes.append("Peak memory includes Pillow, which read the images.")
    return notes
