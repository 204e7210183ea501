"""Real comparisons of tiny models, and their observed processes, requests and leftovers."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import psutil
import pytest
from onnx import helper

from core import wire
from core.evidence.comparison import Contestant
from core.evidence.record import Entry, Key, RawComparison, Reference, Settings
from core.evidence.result import Evidence, MeasuredConfiguration
from core.process.contestant_workers import Worker, Workers
from core.process.job_worker import run_job
from core.run.launches import run_launches
from core.run.launches.processes import LaunchProcesses
from core.run.plan import feed_plan, reference_plan, session_plan
from core.spec import WorkloadSpec, session_from_dict
from core.spec.effort import Effort
from tests import simulated_clock, tiny_models
from tests.waiting import WAIT_S

SHORT = Effort(name="quick", target=0.5, budget_s=60, looks=(2, 3))  # two or three launches
ENDLESS = Effort(name="quick", target=1e-9, budget_s=600, looks=(100_000,))
ROWS, WIDTH = 64, 512  # of the slow model
PROBES = 30  # runs that tell how large it must be


class Field:
    """A model on disk, and configurations that measure it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.info = run_job(wire.INSPECT, {"path": str(path)})

    def entry(
        self,
        label: str = "default",
        *,
        batch_size: int = 1,
        shapes: bool = False,
        path: Path | None = None,
        fresh_process: bool = False,
        warmup_runs: int | None = 20,
        streams: int = 1,
        stream_type: wire.StreamType = "threads",
        **session: Any,
    ) -> Entry:
        """A configuration; `path` is another file of the same model. None warm-up runs: until steady."""
        feeds = feed_plan(WorkloadSpec(batch_size=batch_size), self.info)
        plan: wire.ContestantPlan = {
            "engine": "onnxruntime",
            "model_path": str(path or self.path),
            "torch": None,
            "session": session_plan(session_from_dict(session)),
            "feeds": feeds,
            "use_io_binding": False,
            "warmup_runs": warmup_runs,
            "cpus": [],
        }
        if streams > 1:
            plan["streams"], plan["stream_type"] = streams, stream_type
        other = (feed_plan(WorkloadSpec(batch_size=7), self.info),) if shapes else ()
        known = reference_plan(str(self.path), self.info, feeds, cpus="")
        return Entry(
            label=label,
            plan=plan,
            shapes=other,
            fresh_process=fresh_process,
            reference=Reference(model="conv", sha256="ab", plan=known),
        )

    def pair(self, **session: Any) -> list[Entry]:
        """The default and a candidate."""
        return [self.entry(), self.entry("candidate", **(session or {"intra_op_num_threads": 1}))]


def settings(**changes: Any) -> Settings:
    given = {
        "effort": SHORT,
        "budget_s": 60.0,
        "margin": 0.02,
        "seed": 1,
        "timeout_s": 60.0,
        "baseline": 0,
        "anchor": 0,
    }
    return Settings(**(given | changes))


def run(entries: list[Entry], asked: Settings | None = None, **given: Any) -> RawComparison:
    given = {
        "cancel": threading.Event(),
        "on_progress": lambda progress: None,
        "on_live": lambda live: None,
    } | given
    return run_launches(entries, asked or settings(), **given)


def evidence_of(record: RawComparison, asked: Settings, entries: list[Entry]) -> Evidence:
    """The result of a record; the trial of entry 0 is "0"."""
    roles: dict[int, Any] = {asked.anchor: "anchor", asked.baseline: "baseline"}
    return Evidence(
        record=record,
        configurations=[
            MeasuredConfiguration(
                contestant=Contestant(trial=str(i), label=one.label, role=roles.get(i, "candidate")),
                precision="fp32",
                feeds=one.plan["feeds"],
            )
            for i, one in enumerate(entries)
        ],
        looks=len(asked.effort.looks),
        margin=asked.margin,
        baseline=asked.baseline,
        anchor=asked.anchor,
        environment=None,
    )


# --- what is known of a record ------------------------------------------------------------------------------


def measured_launches(record: RawComparison, index: int, copy: int | None = None) -> list[int]:
    """Generations in which a contestant, or one of its copies, has a block that counts."""
    return sorted(
        {
            block.generation
            for block in record.blocks
            if block.contestant == index and copy in (None, block.copy)
        }
    )


def runs_of(record: RawComparison, index: int) -> int:
    """Timed runs of a configuration; with those of its A/A control unless an exact number was requested."""
    own = (one for one in record.blocks if one.contestant == index)
    return sum(len(one.latencies_s) for one in own if not one.copy or record.runs is None)


def round_keys(record: RawComparison) -> dict[int, list[Key]]:
    """Round -> the processes that ran in it."""
    found: dict[int, list[Key]] = {}
    for block in record.blocks:
        found.setdefault(block.round, []).append((block.contestant, block.copy))
    return found


def check_record(record: RawComparison) -> None:
    """Properties of the record of any comparison, however it ended."""
    generations: dict[int, set[int]] = {}
    for block in record.blocks:
        generations.setdefault(block.round, set()).add(block.generation)
    assert all(len(one) == 1 for one in generations.values()), "a round mixes generations"
    keys = round_keys(record)
    assert all(len(one) == len(set(one)) for one in keys.values()), "a process ran twice in a round"
    assert [sorted(index for index, _ in one) for one in keys.values()] == [
        sorted(order) for order in record.orders
    ]
    assert [block.contestant for block in record.blocks] == [i for order in record.orders for i in order]
    assert sum(one.rounds for one in record.generations) == len(record.orders)
    assert [one.number for one in record.generations] == list(range(len(record.generations)))
    for one in record.generations:
        assert set(one.layouts) == set(one.order)
        assert len(one.order) == len(set(one.order))
        ran = {(b.contestant, b.copy) for b in record.blocks if b.generation == one.number}
        assert ran <= set(one.order), "who was not started has run"
    ends = [(block.at_s, block.at_s + (block.window_s or sum(block.latencies_s))) for block in record.blocks]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends)), "blocks overlap"


# --- what happens meanwhile ---------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Asked:
    """A request that is about to be sent to a worker; `Watch.before` may change how long it is waited for."""

    worker: Worker
    command: str
    arguments: Any
    timeout_s: float
    generation: int
    key: Key | None  # None: it is not warmed up yet, or works besides the comparison


class Watch:
    """Observes every request of the comparisons of a test, and may act before each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Asked] = []
        self.processes: list[dict[Key, int]] = []  # of each launch: process ids
        self.started: list[str] = []  # labels
        self.pids: set[int] = set()
        self.launch_processes: LaunchProcesses | None = None
        self.before: Callable[[Asked], None] = lambda asked: None
        self._spy_on_processes(monkeypatch)
        self._spy_on_workers(monkeypatch)

    def _spy_on_processes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        start, park = LaunchProcesses.start, LaunchProcesses.park

        def begin(launch_processes: LaunchProcesses, *given: Any, **named: Any) -> Any:
            self.launch_processes = launch_processes
            self.processes.append({})
            return start(launch_processes, *given, **named)

        def remember(launch_processes: LaunchProcesses, key: Key) -> None:
            self.processes[-1][key] = launch_processes.live[key].pid
            park(launch_processes, key)

        monkeypatch.setattr(LaunchProcesses, "start", begin)
        monkeypatch.setattr(LaunchProcesses, "park", remember)

    def _spy_on_workers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Real ones, and those of simulated comparisons."""
        for of_workers, of_worker in ((Workers, Worker), (simulated_clock.Workers, simulated_clock.Worker)):
            monkeypatch.setattr(of_workers, "start", self._starting(of_workers.start))
            monkeypatch.setattr(of_worker, "ask", self._asking(of_worker.ask))

    def _starting(self, start: Any) -> Any:
        def begin(workers: Any, label: str, **how: Any) -> Any:
            self.started.append(label)
            self.pids = workers.pids
            return start(workers, label, **how)

        return begin

    def _asking(self, ask: Any) -> Any:
        def tell(worker: Any, command: str, arguments: Any, *, timeout_s: float) -> Any:
            live = self.launch_processes.live if self.launch_processes is not None else {}
            key = next((key for key, one in live.items() if one is worker), None)
            asked = Asked(
                worker=worker,
                command=command,
                arguments=arguments,
                timeout_s=timeout_s,
                generation=len(self.processes) - 1,
                key=key,
            )
            self.asked.append(asked)
            self.before(asked)
            return ask(worker, command, arguments, timeout_s=asked.timeout_s)

        return tell

    @property
    def record(self) -> RawComparison:
        """Of the comparison that runs, or ran last."""
        assert self.launch_processes is not None
        return self.launch_processes.record


def nobody_is_left(pids: set[int]) -> None:
    """Fail if a process of a comparison is still alive, stopped or not.

    It may be a child, a process in a session of theirs, or one that was started.
    """
    deadline = time.monotonic() + WAIT_S  # a killed process may be seen for a moment
    while (left := _left(pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


def _left(pids: set[int]) -> list[str]:
    found = psutil.Process().children(recursive=True)
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            ours = one.pid in pids or os.getsid(one.pid) in pids
            if ours and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    with contextlib.suppress(psutil.Error):
        return sorted({f"{one.pid} {one.status()} {' '.join(one.cmdline())}" for one in found})
    return ["somebody who is about to leave"]


# --- a slow model -------------------------------------------------------------------------------------------


def slow_model(path: Path, run_s: float) -> Path:
    """A chain of MatMuls of which one run of `ROWS` samples takes at least about `run_s` on one thread.

    Never less: the fastest of many runs, undisturbed by other programs, gives the time of a run.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    probed = 40
    session = ort.InferenceSession(str(_chain(path, probed)), options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones((ROWS, WIDTH), np.float32)}
    session.run(None, feeds)
    spent = []
    for _ in range(PROBES):
        began = time.perf_counter()
        session.run(None, feeds)
        spent.append(time.perf_counter() - began)
    return _chain(path, max(2, round(probed * run_s / min(spent))))


def _chain(path: Path, nodes: int) -> Path:
    """x float32 [batch, WIDTH] times the same matrix, `nodes` times."""
    names = ["x", *(f"h{i}" for i in range(1, nodes)), "y"]
    return tiny_models.save(
        path,
        [helper.make_node("MatMul", [a, "w"], [b], b) for a, b in itertools.pairwise(names)],
        [tiny_models.value("x", ["batch", WIDTH])],
        [tiny_models.value("y", ["batch", WIDTH])],
        [tiny_models.weights("w", [WIDTH, WIDTH])],
    )
