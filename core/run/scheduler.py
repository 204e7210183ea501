"""The queue: one measurement at a time on this machine, across sessions, tabs and the command line.

`submit` writes WAITING rows and returns at once. One thread takes the jobs in order, waits for the machine's
turn and runs them. A comparison is one job, with any number of trials. Every trial's row ends as COMPLETE,
FAIL or CANCELLED, and the thread continues. Pages and commands poll `status`; there are no callbacks. `job`
defines a job, `job_types` its types, and `job_log` records them.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from core import wire
from core.evidence.measurement import Trial
from core.process import runtimes
from core.process.contestant_workers import SharedForkServer
from core.process.job_worker import Progress, Run, run_job
from core.process.machine_queue import MachineQueue
from core.run.idle_wait import wait_until_quiet
from core.run.job import FINISHED, WAITING_IDLE, Ending, Job, Outcome, Queued, Service, Status
from core.run.job_log import JobLog, clean_up, this_process
from core.spec import TrialSpec
from core.store import Store, audit
from core.store.recorded import refuse_measuring
from core.wire import Reply
from core.wire.errors import Cancelled, TunerError, WorkerError, unexpected_words
from core.wire.runtime import OWN

KEPT = 500  # finished jobs whose status is kept; results of trials are in the store
CLOSE_S = 15.0  # a cancelled worker ends within two seconds; a store on a slow disk may take longer

# What the audit log calls the jobs of a kind that do not measure; None: it does not name them.
_RECORDED: dict[str, audit.Action | None] = {
    **dict.fromkeys(("transform", "export", "runtime"), "create"),
    "bundle": "export",
    **dict.fromkeys(("graph", "inspect"), None),
}
_log = logging.getLogger(__name__)


class Scheduler:
    """One thread that runs one job at a time, first in, first out; `close` it at the end."""

    def __init__(
        self,
        store: Store,
        *,
        owner: str,
        run: Run = run_job,
        queue: MachineQueue | None = None,
        wait_quiet_s: float = 0.0,
        admit: Callable[[TrialSpec], None] = lambda spec: None,
    ) -> None:
        """Start the thread, and clean up rows that ended processes left in the store.

        Args:
            store: keeps the trials.
            owner: text that names this process to others on the machine.
            run: starts a worker; tests pass another.
            queue: of the machine; None: the one shared by all of ORTune.
            wait_quiet_s: longest wait of comparisons and profiles for an idle machine; a job's own value
                applies where it is longer.
            admit: raises a `TunerError` for a spec that may not be submitted here. Specs of stored trials (a
                baseline, a continued comparison) were admitted when they were stored.
        """
        self.store = store
        self._admit = admit
        self.owner = owner
        self.queue = queue or MachineQueue()
        self._run = run
        self._fork_server = SharedForkServer()  # for the comparisons of one turn
        self._wait_quiet_s = wait_quiet_s
        self._process = this_process()
        self._changed = threading.Condition()
        self._job_log = JobLog(store, self._changed)
        self._jobs: dict[str, Queued] = {}
        self._job_of: dict[str, str] = {}  # trial -> its job
        self._waiting: deque[Queued] = deque()
        self._current: Queued | None = None
        self._closing = False
        self._environments: dict[str, wire.Environment] = {}  # by runtime
        self._describing = threading.Lock()
        clean_up(store)
        self._thread = threading.Thread(target=self._loop, name="ortune-scheduler", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def submit(self, job: Job) -> str:
        """Queue a job and return at once the id for `status`: its trial's, else its own.

        Args:
            job: see `job_types`; its rows are stored before this returns. The result of a job without rows
                is in `status`.

        Raises:
            StoreError: its rows cannot be stored, so it is not queued.
            TunerError: a spec that may not be submitted here.
        """
        self._refuse_when_closed()
        entry = self._store_and_register(job, threading.Event())
        with self._changed:
            self._refuse_when_closed()
            self._waiting.append(entry)
            self._changed.notify_all()
        if (action := _RECORDED.get(job.kind, "measure")) is not None:
            ids = [one.id for one in job.trials] or [job.id]
            audit.record(action, job.what, folder=self.store.folder, kind=job.kind, ids=ids)
        return job.follow or job.id

    def _store_and_register(self, job: Job, cancel: threading.Event) -> Queued:
        """Store the rows of a job, and register it for `status`."""
        refuse_measuring(self.store.folder)
        for spec in job.specs:
            self._admit(spec)
        trials = [self._with_owner(one) for one in job.trials]
        comparison = job.comparison
        if comparison is not None:
            comparison = replace(
                comparison, owner=self.owner, model_name=job.model_name or trials[0].model_name
            )
            self.store.create_comparison(comparison, trials, process=self._process)
        else:
            for one in trials:
                self.store.create_trial(one, process=self._process)
        if job.study is not None:
            self.store.put_study(replace(job.study, owner=self.owner), process=self._process)
        stored = {one.id: one for one in trials}
        entry = Queued(job=job, trials=stored, comparison=comparison, cancel=cancel, who=audit.person())
        with self._changed:
            self._jobs[job.id] = entry
            self._job_of |= dict.fromkeys(entry.trials, job.id)
        return entry

    def _with_owner(self, trial: Trial) -> Trial:
        """The trial with its owner, and its model's name in the library."""
        sha256 = trial.spec["model"].get("sha256")
        known = self.store.model(sha256) if sha256 else None
        return replace(trial, owner=self.owner, model_name=trial.model_name if known is None else known.name)

    def cancel(self, job_id: str) -> None:
        """Stop a waiting or running job; unknown and finished jobs are ignored.

        A trial is stopped with its whole comparison.
        """
        with self._changed:
            entry = self._job(job_id)
            if entry is None or entry.state in FINISHED:
                return
            again = entry.cancel.is_set()
            entry.cancel.set()
            queued = entry in self._waiting
            if queued:
                self._waiting.remove(entry)
        if not again:
            audit.record("change", f"cancelled: {entry.job.what}", folder=self.store.folder, ids=[job_id])
        if queued:
            self._job_log.finish(entry, self._failed(entry, _cancelled()))

    def status(self, job_id: str) -> Status | None:
        """Return the status of a trial, comparison or job; None when it is unknown here or forgotten."""
        with self._changed:
            entry = self._job(job_id)
            return None if entry is None else self._status(entry, job_id)

    def active(self) -> list[Status]:
        """Return the jobs that run or wait here, in order."""
        with self._changed:
            entries = [*([self._current] if self._current else []), *self._waiting]
            return [self._status(entry, entry.job.id) for entry in entries]

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no job runs or waits here, at most `timeout` seconds; False: it timed out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._current and not self._waiting, timeout)

    def close(self) -> None:
        """Cancel all jobs and end the thread; no process is left when this returns."""
        atexit.unregister(self.close)
        with self._changed:
            self._closing = True
            for entry in [*([self._current] if self._current else []), *self._waiting]:
                entry.cancel.set()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    def environment(self, refresh: bool = False, runtime: str = OWN) -> wire.Environment:
        """Describe this machine and the libraries of a runtime; a worker reads it once.

        Raises:
            SpecError: there is no such runtime.
            WorkerError: the worker crashed or hung.
        """
        return self._describe(self._run, refresh=refresh, runtime=runtime)

    # --- the thread -------------------------------------------------------------------------------------

    def _refuse_when_closed(self) -> None:
        if self._closing:
            raise WorkerError("The queue of this process is closed.", hint="Start ORTune again.")

    def _job(self, job_id: str) -> Queued | None:
        return self._jobs.get(self._job_of.get(job_id, job_id))

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
                    self._drop_finished()
                    self._changed.notify_all()

    def _perform(self, entry: Queued) -> None:
        """Run one job and record its end."""
        with audit.acting(entry.who), contextlib.ExitStack() as turn:
            ending = self._run_work(entry, turn, partial(self._take_turn, entry, turn))
        self._job_log.finish(entry, ending)

    def _take_turn(self, entry: Queued, turn: contextlib.ExitStack) -> None:
        on_wait = partial(self._on_wait, entry)
        turn.enter_context(self.queue.turn(self.owner, entry.job.what, entry.cancel, on_wait))
        turn.enter_context(self._fork_server)

    def _run_work(self, entry: Queued, turn: contextlib.ExitStack, take_turn: Callable[[], None]) -> Ending:
        """Run the work of a job, and record how it ended."""
        job = entry.job
        try:
            take_turn()
            self._wait_quiet(entry)
            self._job_log.begin(entry)
            return self._job_log.end(entry, job.work(self._service(entry, turn)))
        except TunerError as error:
            return self._failed(entry, error)
        except Exception as error:  # a bug must fail one job, not the queue
            _log.exception("%s failed unexpectedly", job.what)
            unexpected = WorkerError(
                unexpected_words(error), hint="Report this with the log of the dashboard."
            )
            return self._failed(entry, unexpected)

    def _failed(self, entry: Queued, error: TunerError) -> Ending:
        """Record the failure of a job and of its trials that have not ended."""
        ending = Ending(state="CANCELLED" if isinstance(error, Cancelled) else "FAIL", error=error)
        return self._job_log.end(entry, Outcome(whole=ending))

    def _run_nested(self, outer: Queued, turn: contextlib.ExitStack, job: Job) -> Ending:
        """Run a job within the turn of another, which shares its cancellation and shows its progress."""
        entry = self._store_and_register(job, outer.cancel)
        entry.outer = outer
        ending = self._run_work(entry, turn, lambda: None)
        self._job_log.finish(entry, ending)
        return ending

    def _give_way(self, outer: Queued, turn: contextlib.ExitStack) -> float:
        """Let all jobs run that wait now, here and in other processes, then take the machine back."""
        with self._changed:
            ours = list(self._waiting)
            self._waiting.clear()
        others = [one for one in self.queue.entries() if not one.running]
        if not ours and not others:
            return 0.0
        began = time.monotonic()
        turn.close()
        self._job_log.set_progress(outer, Progress(stage="waits for other jobs", done=0, total=0))
        for entry in ours:
            with self._changed:
                self._current = entry
            try:
                self._perform(entry)
            finally:
                with self._changed:
                    self._current = outer
        self._take_turn(outer, turn)
        self._job_log.record_turn(outer, Progress(stage="start", done=0, total=0))
        return time.monotonic() - began

    def _on_wait(self, entry: Queued, place: int, holder: str) -> None:
        with self._changed:
            entry.place, entry.holder = place, holder

    def _wait_quiet(self, entry: Queued) -> None:
        """Wait for an idle machine before the job begins, so that its duration excludes the wait."""
        if entry.job.wait_quiet_s is None:
            return
        wait_s = max(entry.job.wait_quiet_s, self._wait_quiet_s)
        if wait_s <= 0:
            return

        def on_wait(words: str) -> None:
            self._job_log.record_turn(entry, Progress(stage=WAITING_IDLE, done=0, total=0, text=words))

        waited = wait_until_quiet(wait_s, entry.cancel, on_wait)
        entry.notes.append(waited.note)

    def _describe(self, run: Run, *, refresh: bool = False, runtime: str = OWN) -> wire.Environment:
        pinned = runtimes.pinned(runtime)
        with self._describing:
            if pinned not in self._environments or refresh:
                other = {} if pinned == OWN else {"runtime": pinned}
                self._environments[pinned] = run(wire.ENVIRONMENT, {}, **other)
            return self._environments[pinned]

    def _service(self, entry: Queued, turn: contextlib.ExitStack) -> Service:
        def on_progress(progress: Progress) -> None:
            self._job_log.set_progress(entry, progress)
            if entry.outer is not None:
                self._job_log.set_progress(entry.outer, replace(progress, text=""))  # it belongs to `entry`

        def run(job: wire.Request[Reply], payload: Mapping[str, Any], **options: Any) -> Reply:
            on_progress(Progress(stage=job, done=0, total=0))
            return self._run(job, payload, on_progress=on_progress, cancel=entry.cancel, **options)

        def on_live(live: dict[str, Any]) -> None:
            with self._changed:
                entry.live = live

        return Service(
            store=self.store,
            run=run,
            environment=partial(self._describe, run),
            cancel=entry.cancel,
            on_progress=on_progress,
            on_live=on_live,
            on_resolved=partial(self._job_log.resolved, entry),
            perform=partial(self._run_nested, entry, turn),
            give_way=partial(self._give_way, entry, turn),
            fork_server=self._fork_server,
        )

    def _drop_finished(self) -> None:
        """Drop the oldest finished jobs, to bound the memory of a server that runs for months."""
        finished = [entry.job.id for entry in self._jobs.values() if entry.state in FINISHED]
        for job_id in finished[:-KEPT]:
            for trial_id in self._jobs.pop(job_id).trials:
                del self._job_of[trial_id]

    def _status(self, entry: Queued, asked: str) -> Status:
        return entry.status(asked, place=self._place(entry), holder=self._holder(entry))

    def _place(self, entry: Queued) -> int:
        """Number of jobs ahead: in this scheduler, and those that its first job waits for."""
        if entry.state != "WAITING" or entry is self._current:
            return entry.place
        own = self._waiting.index(entry) if entry in self._waiting else 0
        ahead = 0 if self._current is None else 1 + self._current.place
        return own + ahead

    def _holder(self, entry: Queued) -> str:
        current = self._current
        if entry.state != "WAITING" or current is None or entry is current:
            return entry.holder
        return current.holder or f"{self.owner}: {current.job.what}"


def _cancelled() -> Cancelled:
    return Cancelled("The job was cancelled before it started.", hint="Start it again to get its result.")
