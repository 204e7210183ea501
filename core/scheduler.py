"""The queue: one measurement at a time on this machine, across sessions, tabs and the command line.

`submit` writes a WAITING row and returns at once; one thread takes the jobs in order, waits for the machine's
turn and does them. Whatever happens to a trial, its row ends as COMPLETE, FAIL or CANCELLED, and the thread
lives on. Pages and commands ask `status`; nobody is called back.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import psutil

from core import machine_queue, wire
from core.errors import Cancelled, ErrorRecord, StoreError, TunerError, WorkerError, record_from_error
from core.machine_queue import MachineQueue
from core.measurement import Trial, TrialKind, TrialState
from core.runner import Progress, run_job
from core.spec import TrialSpec
from core.store import Store
from core.trial_run import perform_trial, resolve_trial

KEPT = 500  # finished jobs whose status is still known; results of trials are in the store anyway
CLOSE_S = 15.0  # a cancelled worker is gone in two seconds; a store on a slow disk may take some more
DAY_S = 86_400.0
TRACE_NAME = "trace.json"

_log = logging.getLogger(__name__)

State = TrialState
FINISHED: tuple[State, ...] = ("COMPLETE", "FAIL", "CANCELLED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a submitted trial or job stands now."""

    id: str
    kind: str  # "measure", "profile", or the name of a job
    state: State
    what: str  # one line for a person
    stage: str = ""  # what is being done: "waiting", a job's name, or the worker's own word
    done: int = 0
    total: int = 0  # 0: unknown
    text: str = ""
    started_at: float | None = None  # seconds since the epoch; None while it waits
    elapsed_s: float = 0.0
    eta_s: float | None = None  # of the present stage
    place: int = 0  # jobs ahead of it on this machine; 0: it runs, or is next
    holder: str = ""  # who has the machine, in words
    result: dict[str, Any] | None = None  # of a job; a trial's is in the store
    error: ErrorRecord | None = None


@dataclass(slots=True, kw_only=True)
class _Job:
    """The scheduler's own notes on one job; read and written under its lock."""

    id: str
    kind: str
    what: str
    work: Callable[[_Job], dict[str, Any] | None]
    trial: Trial | None = None
    cancel: threading.Event = field(default_factory=threading.Event)
    state: State = "WAITING"
    progress: Progress = field(default_factory=lambda: Progress(stage="waiting", done=0, total=0))
    stage_began: float = 0.0  # monotonic
    started_at: float | None = None
    finished_at: float | None = None
    place: int = 0
    holder: str = ""
    result: dict[str, Any] | None = None
    error: ErrorRecord | None = None


class Scheduler:
    """One thread that does one job at a time, first come, first served; `close` it at the end."""

    def __init__(
        self,
        store: Store,
        *,
        owner: str,
        run: Callable[..., dict[str, Any]] = run_job,
        queue: MachineQueue | None = None,
    ) -> None:
        """Start the thread, and settle what processes that are gone have left in the store.

        Args:
            store: keeps the trials.
            owner: who asks, in words, for others on this machine to read.
            run: starts a worker; tests pass another.
            queue: of the machine; None: the one all of ORTune shares.
        """
        self.store = store
        self.owner = owner
        self.queue = queue or MachineQueue()
        self._run = run
        self._process = f"{socket.gethostname()}/{os.getpid()}/{psutil.Process().create_time()}"
        self._changed = threading.Condition()
        self._jobs: dict[str, _Job] = {}
        self._waiting: deque[_Job] = deque()
        self._current: _Job | None = None
        self._closing = False
        self._environment: wire.Environment | None = None
        self._describing = threading.Lock()
        settle(store)
        self._thread = threading.Thread(target=self._loop, name="ortune-scheduler", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # --- asking -----------------------------------------------------------------------------------------

    def submit(
        self, spec: TrialSpec, *, kind: TrialKind = "measure", study: str = "", model_name: str | None = None
    ) -> str:
        """Queue a trial and return its id at once; the model is looked at when it is its turn.

        Raises:
            StoreError: the trial cannot be kept, so it is not run either.
        """
        self._refuse_when_closed()
        trial = Trial(
            id=secrets.token_hex(8),
            kind=kind,
            state="WAITING",
            spec=spec.to_dict(),
            model_name=model_name or Path(spec.model.path).stem,
            model_sha256="",
            key=spec.key(),
            created_at=time.time(),
            study=study,
            owner=self.owner,
        )
        self.store.create_trial(trial, process=self._process)
        what = f"{kind} {trial.model_name}"
        work = partial(self._do_trial, spec, model_name)
        self._add(_Job(id=trial.id, kind=kind, what=what, trial=trial, work=work))
        return trial.id

    def submit_job(
        self, job: wire.JobName, payload: Mapping[str, Any], *, what: str, timeout_s: float = 600.0
    ) -> str:
        """Queue a job that is no trial, such as an export, and return its id; `status` has its result."""

        def work(entry: _Job) -> dict[str, Any]:
            return self._worker(entry)(job, payload, timeout_s=timeout_s)

        entry = _Job(id=secrets.token_hex(8), kind=job, what=what, work=work)
        self._add(entry)
        return entry.id

    def cancel(self, job_id: str) -> None:
        """Stop a job, wherever it stands; unknown and finished ones are nothing to stop."""
        with self._changed:
            entry = self._jobs.get(job_id)
            if entry is None or entry.state in FINISHED:
                return
            entry.cancel.set()
            queued = entry in self._waiting
            if queued:
                self._waiting.remove(entry)
        if queued:
            self._finish(entry, "CANCELLED", record_from_error(_cancelled()))

    def status(self, job_id: str) -> Status | None:
        """Return where a job stands; None when this scheduler does not know it (any more)."""
        with self._changed:
            entry = self._jobs.get(job_id)
            return None if entry is None else self._status(entry)

    def active(self) -> list[Status]:
        """Return the jobs that run or wait here, in order."""
        with self._changed:
            entries = [*([self._current] if self._current else []), *self._waiting]
            return [self._status(entry) for entry in entries]

    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing runs or waits here, at most `timeout` seconds; False: something still does."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._current and not self._waiting, timeout)

    def close(self) -> None:
        """Cancel everything and end the thread; no process is left when this returns."""
        atexit.unregister(self.close)
        with self._changed:
            self._closing = True
            for entry in [*([self._current] if self._current else []), *self._waiting]:
                entry.cancel.set()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    def environment(self, refresh: bool = False) -> wire.Environment:
        """Describe this machine; looked up once, in a worker.

        Raises:
            WorkerError: the worker that looked crashed or hung.
        """
        return self._describe(self._run, refresh=refresh)

    # --- the thread -------------------------------------------------------------------------------------

    def _refuse_when_closed(self) -> None:
        if self._closing:
            raise WorkerError("The queue of this process is closed.", hint="Start ORTune again.")

    def _add(self, entry: _Job) -> None:
        with self._changed:
            self._refuse_when_closed()
            self._jobs[entry.id] = entry
            self._waiting.append(entry)
            self._changed.notify_all()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                entry = self._current = self._waiting.popleft()
            try:
                self._perform(entry)
            finally:
                with self._changed:
                    self._current = None
                    self._forget()
                    self._changed.notify_all()

    def _perform(self, entry: _Job) -> None:
        """Do one job to its end, whatever that is."""
        try:
            on_wait = partial(self._on_wait, entry)
            with self.queue.turn(self.owner, entry.what, entry.cancel, on_wait):
                self._begin(entry)
                result = entry.work(entry)
            self._finish(entry, "COMPLETE", None, result)
        except Cancelled as error:
            self._finish(entry, "CANCELLED", record_from_error(error))
        except TunerError as error:
            self._finish(entry, "FAIL", record_from_error(error))
        except Exception as error:  # a defect of ours must cost one trial, not the queue
            _log.exception("%s failed unexpectedly", entry.what)
            unexpected = WorkerError(
                f"ORTune failed unexpectedly: {type(error).__name__}: {error}",
                hint="Report this with the log of the dashboard.",
            )
            self._finish(entry, "FAIL", record_from_error(unexpected))

    def _on_wait(self, entry: _Job, place: int, holder: str) -> None:
        with self._changed:
            entry.place, entry.holder = place, holder

    def _begin(self, entry: _Job) -> None:
        with self._changed:
            entry.state, entry.place, entry.holder = "RUNNING", 0, ""
            entry.started_at = time.time()
        self._set_progress(entry, Progress(stage="start", done=0, total=0))
        self._change_trial(entry, state="RUNNING", started_at=entry.started_at)

    def _set_progress(self, entry: _Job, progress: Progress) -> None:
        with self._changed:
            if progress.stage != entry.progress.stage:
                entry.stage_began = time.monotonic()
            entry.progress = progress

    def _worker(self, entry: _Job) -> Callable[..., dict[str, Any]]:
        """`run_job` with this job's cancel and progress."""

        def run(job: wire.JobName, payload: Mapping[str, Any], *, timeout_s: float = 600.0) -> dict[str, Any]:
            self._set_progress(entry, Progress(stage=job, done=0, total=0))
            progress = partial(self._set_progress, entry)
            return self._run(job, payload, on_progress=progress, cancel=entry.cancel, timeout_s=timeout_s)

        return run

    def _describe(self, run: Callable[..., dict[str, Any]], *, refresh: bool = False) -> wire.Environment:
        with self._describing:
            if self._environment is None or refresh:
                self._environment = cast(wire.Environment, run("environment", {}))
            return self._environment

    def _do_trial(self, spec: TrialSpec, model_name: str | None, entry: _Job) -> dict[str, Any]:
        assert entry.trial is not None
        run = self._worker(entry)
        resolved = resolve_trial(spec, self.store, run)
        self._change_trial(
            entry,
            spec=resolved.spec.to_dict(),
            key=resolved.spec.key(),
            model_sha256=resolved.record.content_sha256,
            model_name=model_name or resolved.record.name,
        )
        return perform_trial(
            entry.trial.kind,
            resolved,
            self.store,
            run,
            environment=partial(self._describe, run),
            trace=partial(self.store.artifact_path, entry.id, TRACE_NAME),
        )

    # --- endings ----------------------------------------------------------------------------------------

    def _change_trial(self, entry: _Job, **changes: Any) -> None:
        if entry.trial is not None:
            entry.trial = replace(entry.trial, **changes)
            if not self.store.update_trial(entry.id, **changes):
                self.store.delete_trials([entry.id])  # deleted while it ran: nor must its files come back

    def _finish(
        self, entry: _Job, state: State, error: ErrorRecord | None, result: dict[str, Any] | None = None
    ) -> None:
        """Write down how a job ended; a result that the store does not take is kept beside it."""
        finished_at = time.time()
        if entry.trial is not None:
            changes: dict[str, Any] = {"state": state, "error": error, "finished_at": finished_at}
            if result is not None:
                changes |= {"result": result, "fingerprint": result["fingerprint"]}
            try:
                self._change_trial(entry, **changes)
            except StoreError as failure:
                state, error = "FAIL", record_from_error(self._rescued(entry, failure))
            result = None
        with self._changed:
            entry.state, entry.error, entry.result, entry.finished_at = state, error, result, finished_at
            self._changed.notify_all()

    def _rescued(self, entry: _Job, failure: StoreError) -> StoreError:
        """Keep what the store did not take as a file, and say where."""
        assert entry.trial is not None
        if entry.trial.state != "COMPLETE":
            return failure
        try:
            path = self.store.rescue(entry.trial)
        except StoreError as second:
            return StoreError(f"{failure.message} {second.message}", hint=failure.hint)
        move = "" if path.parent == self.store.folder else f", move the file into `{self.store.folder}`"
        return StoreError(
            f"{failure.message} The result was kept as `{path}`.",
            hint=f"Free disk space{move} and start ORTune again: it takes the result back.",
        )

    def _forget(self) -> None:
        """Drop the oldest finished jobs, so that a server that runs for months does not grow."""
        finished = [entry.id for entry in self._jobs.values() if entry.state in FINISHED]
        for job_id in finished[:-KEPT]:
            del self._jobs[job_id]

    def _status(self, entry: _Job) -> Status:
        now = time.time()
        started, progress = entry.started_at, entry.progress
        return Status(
            id=entry.id,
            kind=entry.kind,
            state=entry.state,
            what=entry.what,
            stage=progress.stage,
            done=progress.done,
            total=progress.total,
            text=progress.text,
            started_at=started,
            elapsed_s=(entry.finished_at or now) - started if started else 0.0,
            eta_s=_eta_s(progress, time.monotonic() - entry.stage_began)
            if entry.state == "RUNNING"
            else None,
            place=self._place(entry),
            holder=self._holder(entry),
            result=entry.result,
            error=entry.error,
        )

    def _place(self, entry: _Job) -> int:
        """Jobs ahead: those of this scheduler, and those that the first of them waits for."""
        if entry.state != "WAITING" or entry is self._current:
            return entry.place
        own = self._waiting.index(entry) if entry in self._waiting else 0
        ahead = 0 if self._current is None else 1 + self._current.place
        return own + ahead

    def _holder(self, entry: _Job) -> str:
        current = self._current
        if entry.state != "WAITING" or current is None or entry is current:
            return entry.holder
        return current.holder or f"{self.owner}: {current.what}"


def _eta_s(progress: Progress, in_stage_s: float) -> float | None:
    if progress.done <= 0 or progress.total <= 0:
        return None
    return in_stage_s * max(progress.total - progress.done, 0) / progress.done


def _cancelled() -> Cancelled:
    return Cancelled(
        "The job was cancelled before it began.", hint="Start it again when you want its result."
    )


def settle(store: Store) -> None:
    """Take back rescued results, and fail the trials that processes which are gone have left unfinished."""
    store.adopt_rescued()
    store.interrupt_orphans(_is_alive)


def _is_alive(process: str, created_at: float) -> bool:
    """Whether the process that owns a stored trial still works; `process` as the scheduler writes it.

    A process of another host or container cannot be seen from here: it is believed for a day.
    """
    try:
        host, pid, started = process.rsplit("/", 2)
        if host != socket.gethostname():
            return time.time() - created_at < DAY_S
        return machine_queue.is_alive(int(pid), float(started))
    except ValueError:
        return False
