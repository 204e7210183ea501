"""One session: a store, the queue of this process, and who listens to the progress.

A session starts no process and no thread until it inspects a new model or runs a job. Importing ORTune
disables ONNX Runtime's telemetry in the importing process. Pages and commands take `Status`, `Job` and what
else they name of the queue from here, because they may not import `run` and `process`.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from core.evidence.measurement import Trial
from core.process import runtimes as runtimes
from core.process.job_worker import Run as Run
from core.process.job_worker import refuse_worker as refuse_worker
from core.process.job_worker import run_job as run_job
from core.process.machine_queue import PRIVATE_JOB as PRIVATE_JOB
from core.process.machine_queue import Entry as Entry
from core.process.machine_queue import MachineQueue as MachineQueue
from core.run.job import FINISHED as FINISHED
from core.run.job import WAITING_IDLE as WAITING_IDLE
from core.run.job import Job as Job
from core.run.job import Status as Status
from core.run.job_log import clean_up as clean_up
from core.run.job_log import remove_remains as remove_remains
from core.run.scheduler import Scheduler as Scheduler
from core.spec import TrialSpec
from core.spec.validation import shown
from core.store import Store
from core.store.sharing import os_user
from core.wire.errors import SpecError, WorkerError, error_from_record

if TYPE_CHECKING:
    from core.api.results import Result

POLL_S = 0.1  # between two reports of progress; the end of a job ends the wait
CANCEL_S = 20.0  # a cancelled job ends within two seconds; a store on a slow disk may take longer

OnProgress = Callable[[Status], None]
OnNote = Callable[[str], None]


class Session:
    """The store and the job queue of a script or a command; use it as a context, or `close` it.

    A closed session runs nothing more; its results can still be read.
    """

    def __init__(
        self,
        store: Store | Path | str | None = None,
        *,
        owner: str | None = None,
        on_progress: OnProgress | None = None,
        on_note: OnNote | None = None,
        scheduler: Scheduler | None = None,
        inspect: Run = run_job,
        admit: Callable[[TrialSpec], None] = lambda spec: None,
    ) -> None:
        """Open the store.

        Args:
            store: a store, or the path of one; None: that of the dashboard and the command line.
            owner: text that names this process to others on the machine; None: user and host.
            on_progress: called about ten times a second with the status of the job that runs.
            on_note: called with lines of text: assumed sizes, the expected duration, the achieved precision.
            scheduler: for servers: the queue of `store` that the server has already.
            inspect: for servers: starts the workers that inspect new models before a job; a server must not
                wait, so it passes `refuse_worker`.
            admit: for servers: raises a `TunerError` for a configuration that may not run there.

        Raises:
            StoreError: the store cannot be used.
        """
        if not isinstance(store, Store | str | os.PathLike | None):
            raise SpecError(
                f"`store` takes a path, but got {shown(store)}.", hint="Give the path of a store."
            )
        self.store = store if isinstance(store, Store) else Store(None if store is None else Path(store))
        self.last: Result[Any] | None = None  # started here last, also if it was interrupted
        self._owner = owner or f"Python of {user_on_host()}"
        self._on_progress = on_progress
        self._on_note = on_note
        self.inspect = inspect
        self.admit = admit
        self._scheduler = scheduler
        self._shared = scheduler is not None
        self.closed = False
        self._lock = threading.Lock()

    @property
    def scheduler(self) -> Scheduler:
        """The queue of this process, started at the first use.

        Raises:
            SpecError: the session is closed.
        """
        with self._lock:
            if self.closed:
                raise SpecError("This session is closed.", hint="Open another.")
            if self._scheduler is None:
                self._scheduler = Scheduler(self.store, owner=self._owner)
            return self._scheduler

    @property
    def fingerprint(self) -> str:
        """Of this machine and its libraries; starts a worker the first time."""
        return self.scheduler.environment()["fingerprint"]

    def note(self, text: str) -> None:
        """Pass on a line of text for the user."""
        if self._on_note is not None:
            self._on_note(text)

    def run(
        self, job: Job, *, on_progress: OnProgress | None = None, cancel: threading.Event | None = None
    ) -> Status:
        """Queue a job, wait for its end, and return how it ended.

        An exception, such as Ctrl-C, or `cancel` cancels the job; the store keeps what was measured.

        Args:
            job: from one of the functions `NAME_job`.
            on_progress: instead of the session's.
            cancel: set it, from another thread, to cancel the job.

        Raises:
            SpecError: the session is closed.
            StoreError: the job's rows cannot be stored.
            TunerError: the job may not run here.
        """
        scheduler, report = self.scheduler, on_progress or self._on_progress
        submitted = scheduler.submit(job)
        try:
            while (status := _status(scheduler, submitted)).state not in FINISHED:
                if cancel is not None and cancel.is_set():
                    scheduler.cancel(submitted)
                if report is not None:
                    report(status)
                scheduler.await_end(submitted, POLL_S)
        except BaseException:
            scheduler.cancel(submitted)
            until = time.monotonic() + CANCEL_S
            while _status(scheduler, submitted).state not in FINISHED and time.monotonic() < until:
                scheduler.await_end(submitted, POLL_S)
            raise
        return status

    def close(self) -> None:
        """Cancel all jobs of this session's own queue; no process of it is left, and it runs no more jobs."""
        if self._shared:
            return
        with self._lock:
            self.closed = True
            scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            scheduler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _status(scheduler: Scheduler, submitted: str) -> Status:
    status = scheduler.status(submitted)
    assert status is not None, submitted
    return status


_default: list[Session] = []


def default_session() -> Session:
    """Return the session of this process for calls that name none; opened at the first use."""
    if not _default or _default[0].closed:
        _default[:] = [Session()]
    return _default[0]


def user_on_host() -> str:
    """Return user and host as text."""
    return f"{os_user()} on {socket.gethostname()}"


def result_of(status: Status) -> dict[str, object]:
    """Return the result of a job without rows in the store.

    Raises:
        TunerError: the job failed or was cancelled.
    """
    if status.error is not None:
        raise error_from_record(status.error)
    if status.result is None:
        raise WorkerError("The job gave no result.")
    return status.result


def ended_trial(store: Store, trial_id: str, status: Status | None) -> Trial:
    """Return a trial as the store has it, or with the end of its job where the store could not save that.

    Args:
        store: holds it.
        trial_id: its ID.
        status: how its job ended; None: it has not, or that is not known.
    """
    trial = store.trial(trial_id)
    if status is None or trial.state == status.state:
        return trial
    return replace(trial, state=status.state, error=status.error)
