"""Jobs of workers, done in this process: a start of Python takes longer than most of them."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from core import wire
from core.process import job_worker
from core.process.job_worker import Progress
from core.wire import limits
from core.worker.__main__ import JOBS

HERE = (wire.INSPECT, wire.ACCURACY, wire.TRANSFORM)
_TURN = threading.Lock()


def run(
    job: str,
    payload: Mapping[str, Any],
    *,
    on_progress: Callable[[Progress], None] | None = None,
    **how: Any,
) -> Any:
    """Do what `core.process.job_worker.run_job` has a worker do; what crosses the pipe is JSON here, too.

    Args:
        job: its name.
        payload: what it is given.
        on_progress: told every step.
        how: limits of a worker, which there is none of.

    Raises:
        TunerError: as the job raises it.
    """

    def progress(stage: str, done: int, total: int, text: str = "") -> None:
        if on_progress is not None:
            on_progress(Progress(stage=stage, done=done, total=total, text=text))

    with _TURN, _as_it_was():
        reply = JOBS[job](json.loads(json.dumps(payload)), progress)
    return json.loads(json.dumps(reply))


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """A worker caps its memory, pins itself and turns the collector off; it has a process of its own."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "cap_memory", lambda: None)
        try:
            yield
        finally:
            gc.enable()
            gc.unfreeze()
            if cpus is not None:
                os.sched_setaffinity(0, cpus)


@dataclass
class _Later:
    """A worker that is started where somebody talks with it."""

    command: list[str]
    environment: Mapping[str, str]
    umask: int
    pid: int = 0  # there is nothing to look at yet
    process: subprocess.Popen[bytes] | None = None


@dataclass
class _Here:
    """A conversation with nobody."""

    job: str
    payload: Mapping[str, Any]
    on_progress: Callable[[Progress], None] | None
    on_tick: Callable[[], None] = lambda: None

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def answer(self, cancel: threading.Event | None, timeout_s: float) -> Any:
        return run(self.job, self.payload, on_progress=self.on_progress)


@contextlib.contextmanager
def jobs() -> Iterator[None]:
    """Within it the jobs `HERE` are done in this process, whoever has them done; all others in workers."""
    start, end, conversation = job_worker._start, job_worker._end, job_worker._Conversation

    def talk(job: str, payload: Mapping[str, Any], later: _Later, on_progress: Any) -> Any:
        if job in HERE:
            return _Here(job, payload, on_progress)
        later.process = start(later.command, later.environment, umask=later.umask)
        return conversation(job, payload, later.process, on_progress)

    def leave(later: _Later, *, answered: bool) -> None:
        if later.process is not None:
            end(later.process, answered=answered)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_worker, "_start", _Later)
        patch.setattr(job_worker, "_end", leave)
        patch.setattr(job_worker, "_Conversation", talk)
        yield
