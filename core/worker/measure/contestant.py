"""A contestant: one configuration of a comparison in its own process, which obeys commands of the parent.

It loads numpy, onnxruntime and the standard library; only a PyTorch engine loads torch. The parent decides
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy.random  # noqa: F401 - numpy loads it at its first use, which must not count as the model's

from core import wire
from core.wire import engines, limits
from core.wire.channel import Command, obey
from core.wire.errors import SpecError, WorkerError
from core.worker.measure import footprint, output_comparison, timing, warmup
from core.worker.measure.counters import Meter
from core.worker.measure.inference import Contender, count_samples, translate_errors
from core.worker.measure.memory_layout import DEFAULT_LAYOUT, MemoryLayout, at_depth, draw
from core.worker.measure.traffic import Traffic, private_bytes
from core.worker.session import CPU, CUDA_PROVIDERS
from core.worker.session.feeds import Array


def serve(descriptor: int) -> None:
    """Execute the commands from an inherited stream socket until it ends."""
    contestant = Contestant()
    with (
        contextlib.suppress(OSError),  # the parent has exited
        socket.socket(fileno=descriptor) as channel,
        channel.makefile("rb") as requests,
    ):
        for request in requests:
            contestant.obey(request, channel.sendall)


class Contestant:
    """One configuration, from `load` to the end of its process."""

    def __init__(self) -> None:
        self._loaded: _Loaded | None = None
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

        Raises:
            SpecError: a setting, input or CPU is invalid, or the inputs do not have the batch's samples.
            ProviderError: a provider did not load.
            ModelError: ONNX Runtime refuses the model, or its run fails.
            WorkerError: not enough memory; or this contestant has loaded a session already.
        """
        if self._loaded is not None:
            raise WorkerError(
                "This worker has loaded its configuration already.",
                hint="Start another worker for another configuration.",
            )
        pin(plan["cpus"])
        if _on_cpu_only(plan):
            limits.cap_memory()  # a runaway allocation becomes an error; GPU drivers need address space
        again, seed = plan.get("again", False), plan.get("layout_seed")
        prepare = _engine(plan, again=again)
        layout = DEFAULT_LAYOUT if seed is None else draw(seed, buffers=engines.can(plan["engine"], "place"))
        exact = footprint.reset_peak()
        baseline = footprint.peak_rss_bytes()
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
        )
        return {
            **contender.built.providers(),
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
        }

    @translate_errors()
    def warm(self, *, known_ns: int | None = None, cap_s: float | None = None) -> wire.WarmReply:
        """Run until the latency is steady, or as often as the plan says.

        Args:
            known_ns: typical warm latency of this configuration's earlier processes; None: there are none.
            cap_s: longest warm-up; None: 10 s, 60 s on an accelerator.
        """
        loaded = self._need()
        call, runs = loaded.contender.call, loaded.plan["warmup_runs"]
        if runs is None:
            usual_ns = warmup.CAP_NS if _on_cpu_first(loaded) else warmup.ACCELERATOR_CAP_NS
            cap_ns = usual_ns if cap_s is None else min(usual_ns, int(cap_s * 1e9))
            latencies = warmup.run_until_steady(
                lambda count: timing.time_each(call, count), cap_ns=cap_ns, known_ns=known_ns
            )
        else:
            latencies = timing.time_each(call, runs) if runs else []
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

        Raises:
            WorkerError: the clock went backwards.
        """
        loaded = self._need()
        gc.collect()
        started_s = time.monotonic()
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
        }

    @translate_errors()
    def cost(self, *, seconds: float, window_s: float) -> wire.CostReply:
        """Measure CPU time per run over `window_s`, and idle CPU time in the `seconds` after a run."""
        call = self._need().contender.call
        cpu_s_per_run = timing.cpu_s(call, window_s)
        call()
        cpu, wall = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        return {
            "cpu_s_per_run": cpu_s_per_run,
            "idle_cpu_s": time.process_time() - cpu,
            "idle_wall_s": time.perf_counter() - wall,
        }

    @translate_errors()
    def footprint(self, *, runs: int) -> wire.FootprintReply:
        """Measure peak memory of `runs` runs, for a contestant that has only executed `load`.

        0 runs: the peak of all runs since `load`.
        """
        loaded = self._need()
        exact = footprint.reset_peak() if runs else True
        for _ in range(runs):
            loaded.contender.call()
        peak = footprint.peak_rss_bytes()
        gpu_bytes, gpu_note = (None, "") if loaded.gpu is None else footprint.gpu_memory_bytes()
        return {
            "run_peak_rss_bytes": max(0, peak - loaded.baseline_rss_bytes),
            "gpu_memory_bytes": gpu_bytes,
            "notes": _memory_notes(loaded.plan, exact=exact and loaded.exact_memory, gpu_note=gpu_note),
        }

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

        Raises:
            TunerError: an input does not fit, or the record cannot be opened.
        """
        if self._traffic is not None:
            self._traffic.close()
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
        meter.start()
        traffic.serve(begin_ns)
        return {"counters": meter.stop(), "memory_bytes": private_bytes()}

    @translate_errors()
    def save_outputs(self, *, path: str) -> wire.EmptyReply:
        """Write the outputs of one run to `path`, for `compare_outputs` of another contestant."""
        contender = self._need().contender
        output_comparison.save(path, contender.arrays(contender.call()))
        return {}

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


@dataclass(frozen=True, slots=True, kw_only=True)
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


def _on_cpu_only(plan: wire.ContestantPlan) -> bool:
    return engines.can(plan["engine"], "cap") and all(
        one["name"] == CPU for one in plan["session"]["providers"]
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


def _on_cpu_first(loaded: _Loaded) -> bool:
    """Whether the first provider is the CPU; an engine without providers, named by itself, runs there."""
    return loaded.contender.built.effective[0] in (CPU, loaded.plan["engine"])


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
