"""The queue: one measurement at a time on this machine, across sessions, tabs and the command line.

`submit` writes WAITING rows, takes a ticket of the machine's queue and returns at once. One thread waits
until it is the turn of one of its jobs, and starts the thread of that job. A job whose turn is too long, or
that wants to, gives the machine to those who wait, and continues in a later turn. A comparison is one job,
with any number of trials. Every trial's row ends as COMPLETE, FAIL or CANCELLED, and the queue continues.
Pages and commands poll `status`; there are no callbacks. `job` defines a job, `job_types` its types, and
`job_log` records them.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from core import wire
from core.evidence.measurement import Trial
from core.process import runtimes, scratch
from core.process.contestant_workers import SharedForkServer
from core.process.job_worker import Progress, Run, run_job
from core.process.machine_queue import (
    FIRST_POLLS_S,
    LATER_POLLS_AFTER_S,
    LATER_POLLS_S,
    PRIVATE_JOB,
    Entry,
    MachineQueue,
)
from core.run.durations import Durations
from core.run.idle_wait import wait_until_quiet
from core.run.job import FINISHED, WAITING_IDLE, Ending, Job, Outcome, Queued, Service, Status
from core.run.job_log import JobLog, clean_up, this_process
from core.spec import TrialSpec
from core.store import Actor, Store, audit
from core.store.recorded import refuse_measuring
from core.wire import Reply
from core.wire.errors import Cancelled, SpecError, StoreError, TunerError, WorkerError, unexpected_words
from core.wire.runtime import OWN

KEPT = 500  # finished jobs whose status is kept; results of trials are in the store
MOST_TURN_S = 900.0  # a job that can pause does so, if another person waits after that time
STANDING_S = 0.2  # how long the order of the queue is taken as unchanged
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
        check_start: Callable[[Actor, float], None] = lambda actor, running_s: None,
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
                baseline, a continued comparison) were admitted when they were stored, but for their native
                libraries: these need an admin in every job.
            check_start: raises a `TunerError` if a person may use the machine no more, who has it for so many
                seconds in a turn that runs; see `check_start`.
        """
        self.store = store
        self._admit, self._check_start = admit, check_start
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
        self._waiting: list[Queued] = []  # jobs that have not begun
        self._paused: list[Queued] = []  # jobs that gave the machine away and wait for it
        self._entries: tuple[float, list[Entry]] | None = None  # the machine's queue, and when it was read
        self._durations = Durations(store)
        self._current: Queued | None = None
        self._closing = False
        self._environments: dict[str, wire.Environment] = {}  # by runtime
        self._describing = threading.Lock()
        clean_up(store)
        self._working: set[threading.Thread] = set()  # of the jobs that have begun
        self._thread = threading.Thread(target=self._loop, name="ortune-scheduler", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def submit(self, job: Job, *, actor: Actor | None = None) -> str:
        """Queue a job and return at once the id for `status`: its trial's, else its own.

        Args:
            job: see `job_types`; its rows are stored before this returns. The result of a job without rows
                is in `status`.
            actor: who starts it: its rows and its machine time are this person's, and it reads what this
                person may read. None: the person of the store.

        Raises:
            StoreError: its rows cannot be stored, so it is not queued.
            TunerError: a spec that may not be submitted here, or native libraries of a person who is no
                admin.
        """
        self._refuse_when_closed()
        store = self.store
        if actor is not None:
            self.check_start(actor)
            store = store.for_person(actor.person, sees_all=actor.sees_all)
        entry = self._store_and_register(job, threading.Event(), store)
        entry.person = "" if actor is None else actor.person
        entry.private = self._is_private(entry)
        with contextlib.suppress(StoreError):  # the job fails with it when it is to run
            self._enter(entry)
        with self._changed:
            if self._closing:
                self._leave(entry)
            self._refuse_when_closed()
            self._waiting.append(entry)
            self._entries = None
            self._changed.notify_all()
        if (action := _RECORDED.get(job.kind, "measure")) is not None:
            ids = [one.id for one in job.trials] or [job.id]
            audit.record(action, job.what, folder=self.store.folder, kind=job.kind, ids=ids)
        return job.follow or job.id

    def check_start(self, actor: Actor) -> None:
        """Refuse a person who may use the machine no more; asked at submission and at each turn of a job.

        Raises:
            TunerError: with the reason.
        """
        with self._changed:
            current = self._current
            place = None if current is None or current.store.actor.person != actor.person else current.place
            running_s = 0.0 if place is None or place.lock is None else time.monotonic() - place.taken
        self._check_start(actor, running_s)

    def _enter(self, entry: Queued, *, gives_way: bool = False) -> None:
        predicted_s = None if gives_way else self._durations.predicted_s(entry.job, self._fingerprint)
        entry.place = self.queue.enter(
            self.owner,
            entry.job.what,
            person=entry.person,
            predicted_s=predicted_s,
            gives_way=gives_way,
            private=entry.private,
        )

    def _is_private(self, entry: Queued) -> bool:
        """Whether a job has private rows or models, or the name of a private model in its text."""
        job, others = entry.job, self.store.for_person("", sees_all=False)
        with contextlib.suppress(StoreError):
            if others.hidden([*entry.ids, *job.models]):
                return True
            names = self.store.private_model_names()
            return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", job.what) for name in names)
        return True

    @property
    def _fingerprint(self) -> str:
        """Of this machine; empty: not known yet."""
        known = self._environments.get(OWN)
        return "" if known is None else known["fingerprint"]

    def _store_and_register(self, job: Job, cancel: threading.Event, store: Store) -> Queued:
        """Store the rows of a job, and register it for `status`."""
        refuse_measuring(store.folder)
        for spec in job.specs:
            self._admit(spec)
        _check_libraries(job, store.actor)
        trials = [self._with_owner(one, store) for one in job.trials]
        comparison = job.comparison
        if comparison is not None:
            comparison = replace(
                comparison, owner=self.owner, model_name=job.model_name or trials[0].model_name
            )
            store.create_comparison(comparison, trials, process=self._process)
        else:
            for one in trials:
                store.create_trial(one, process=self._process, models=job.models)
        if job.study is not None:
            record = replace(job.study, owner=self.owner)
            store.put_study(record, process=self._process, models=job.models)
        stored = {one.id: one for one in trials}
        entry = Queued(
            job=job, store=store, trials=stored, comparison=comparison, cancel=cancel, who=audit.person()
        )
        with self._changed:
            self._jobs[job.id] = entry
            self._job_of |= dict.fromkeys(entry.trials, job.id)
        return entry

    def _with_owner(self, trial: Trial, store: Store) -> Trial:
        """The trial with its owner, and its model's name in the library."""
        sha256 = trial.spec["model"].get("sha256")
        known = store.model(sha256) if sha256 else None
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
            self._entries = None
            self._changed.notify_all()
        if not again:
            audit.record("change", f"cancelled: {entry.job.what}", folder=self.store.folder, ids=[job_id])
        if queued:
            self._abandon(entry, _cancelled())

    def status(self, job_id: str) -> Status | None:
        """Return the status of a trial, comparison or job; None when it is unknown here or forgotten."""
        with self._changed:
            entry = self._job(job_id)
            return None if entry is None else self._status(entry, job_id)

    def await_end(self, job_id: str, timeout: float) -> bool:
        """Wait until a job has ended, at most `timeout` seconds; False: it has not, or is unknown here.

        Not by the condition of all jobs: a signal may raise an exception in the thread that waits.
        """
        with self._changed:
            entry = self._job(job_id)
        return entry is not None and entry.ended.wait(timeout)

    def person_of(self, job_id: str) -> str | None:
        """Return who started a job, empty for the owner of this process; None: it is unknown here."""
        with self._changed:
            entry = self._job(job_id)
            return None if entry is None else entry.person

    def is_hidden(self, ids: Iterable[str], actor: Actor) -> bool:
        """Whether a person may not know of a job, because it, its result or a model is private to another.

        Args:
            ids: of jobs; also of results and models.
            actor: the person.
        """
        if actor.sees_all:
            return False
        with self._changed:
            jobs = {one: self._job(one) for one in ids}
        refs = [one for one, entry in jobs.items() if entry is None]
        for entry in jobs.values():
            if entry is not None and entry.person != actor.person:
                if entry.private:
                    return True
                refs += [*entry.ids, *entry.job.models]
        return bool(refs and self.store.for_person(actor.person, sees_all=False).hidden(refs))

    def line(self, actor: Actor) -> list[Entry]:
        """Return the machine's queue for a person, who reads own private jobs of this process in full."""
        with self._changed:
            entries = self._order()
            known = {one.place.name: one for one in self._unfinished() if one.place is not None}
        others = {name: one for name, one in known.items() if one.person != actor.person}
        if actor.sees_all:
            hidden: set[str] = set()
        else:  # also what was made private after it was queued
            hidden = self.store.for_person(actor.person, sees_all=False).hidden(
                [name for one in others.values() for name in one.ids]
            )
        return [
            one
            if (job := known.get(one.ticket)) is None
            else replace(one, what=PRIVATE_JOB, private=True)
            if one.ticket in others and not actor.sees_all and (one.private or hidden & set(job.ids))
            else replace(one, what=job.job.what, private=False)
            for one in entries
        ]

    def active(self) -> list[Status]:
        """Return the jobs that run or wait here, in order."""
        with self._changed:
            found = [self._status(entry, entry.job.id) for entry in self._unfinished()]
        return sorted(found, key=lambda one: one.place)

    def _unfinished(self) -> list[Queued]:
        return [*([self._current] if self._current else []), *self._paused, *self._waiting]

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no job runs or waits here, at most `timeout` seconds; False: it timed out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished(), timeout)

    def close(self) -> None:
        """Cancel all jobs and end the thread; no process is left when this returns."""
        atexit.unregister(self.close)
        with self._changed:
            self._closing = True
            for entry in self._unfinished():
                entry.cancel.set()
            self._changed.notify_all()
        if threading.current_thread() not in (self._thread, *self._working):
            until = time.monotonic() + CLOSE_S
            for one in (self._thread, *self._working):
                one.join(max(0.0, until - time.monotonic()))
        scratch.remove_abandoned()  # a lack of descriptors kept some from being removed

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
                self._changed.wait_for(lambda: self._waiting or self._paused or self._closing)
                if self._closing:
                    waiting, self._waiting = self._waiting, []
                    break
            if (entry := self._next()) is None:
                continue
            with self._changed:  # it starts, or finds that it is no longer paused
                self._changed.notify_all()
                if not entry.begun:
                    entry.begun = True
                    thread = threading.Thread(
                        target=self._perform, args=(entry,), name="ortune-job", daemon=True
                    )
                    self._working.add(thread)
                    thread.start()
                self._changed.wait_for(lambda entry=entry: self._current is not entry)  # type: ignore[misc]
        for entry in waiting:
            self._abandon(entry, _cancelled())

    def _next(self) -> Queued | None:
        """Wait until the machine is free for one of the jobs here, and take it; None: none waits any more."""
        began = time.monotonic()
        while True:
            with self._changed:
                candidates = [*self._paused, *self._waiting]
                if self._closing or not candidates:
                    return None
            taken = self._take(candidates)
            with self._changed:
                if taken is None:
                    late = time.monotonic() - began > LATER_POLLS_AFTER_S
                    self._changed.wait(LATER_POLLS_S if late else FIRST_POLLS_S)
                    continue
                line = self._paused if taken in self._paused else self._waiting
                if taken in line:
                    line.remove(taken)
                    self._current = taken
                    self._entries = None
                    return taken
            self._leave(taken)  # cancelled meanwhile

    def _take(self, candidates: list[Queued]) -> Queued | None:
        """Take the machine for the job whose turn it is; None: it is not free."""
        for entry in candidates:
            try:
                with self._changed:  # one that was cancelled meanwhile must not enter again
                    if entry.place is None and entry in (*self._paused, *self._waiting):
                        self._enter(entry)
            except StoreError as error:
                self._drop(entry, error)
                return None
        places = {place: entry for entry in candidates if (place := entry.place) is not None}
        try:
            taken = self.queue.take(list(places))
        except StoreError as error:
            self._drop(candidates[0], error)
            return None
        return None if taken is None else places[taken]

    def _drop(self, entry: Queued, error: StoreError) -> None:
        """Fail a job that cannot be queued; one that is paused finds its cancellation."""
        with self._changed:
            if entry in self._paused:
                entry.cancel.set()
            if entry not in self._waiting:
                return
            self._waiting.remove(entry)
        self._abandon(entry, error)

    def _abandon(self, entry: Queued, error: TunerError) -> None:
        """Record the end of a job that never had the machine."""
        self._leave(entry)
        self._job_log.finish(entry, self._failed(entry, error))
        entry.ended.set()

    def _perform(self, entry: Queued) -> None:
        """Run one job and record its end; the thread of the job."""
        try:
            with audit.acting(entry.who), entry.turn:
                ending = self._run_work(entry, partial(self._hold, entry))
            if ending.state == "COMPLETE":
                self._durations.note(entry.job, time.monotonic() - entry.began)
            self._job_log.finish(entry, ending)
        finally:
            with self._changed:
                if self._current is entry:
                    self._current = None
                self._drop_finished()
                self._working.discard(threading.current_thread())
                self._changed.notify_all()
        entry.ended.set()

    def _hold(self, entry: Queued) -> None:
        """Let the turn of a job hold the machine, which was taken for it, and a fork server.

        Raises:
            Cancelled: the job was cancelled meanwhile.
            TunerError: its person has used up the machine by now, perhaps with earlier turns of this job.
        """
        entry.turn.callback(self._leave, entry)
        entry.turn_began = time.monotonic()
        if entry.cancel.is_set():
            raise _cancelled()
        if entry.person:
            self.check_start(entry.store.actor)
        entry.turn.enter_context(self._fork_server)

    def _leave(self, entry: Queued) -> None:
        """Give up the place of a job in the queue, and record the time that it had the machine."""
        with self._changed:
            place, entry.place = entry.place, None
            self._entries = None
        if place is None:
            return
        self.queue.leave(place)
        if place.ticket.running:
            seconds = time.monotonic() - place.taken
            began = time.time() - seconds
            with contextlib.suppress(StoreError):
                self.store.add_machine_time(entry.store.actor.person, began=began, seconds=seconds)

    def _run_work(self, entry: Queued, take_turn: Callable[[], None]) -> Ending:
        """Run the work of a job, and record how it ended."""
        job = entry.job
        try:
            take_turn()
            self._wait_quiet(entry)
            self._job_log.begin(entry)
            return self._job_log.end(entry, job.work(self._service(entry)))
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

    def _run_nested(self, outer: Queued, job: Job) -> Ending:
        """Run a job within the turn of another, which shares its cancellation and shows its progress."""
        entry = self._store_and_register(job, outer.cancel, outer.store)
        entry.outer = outer
        ending = self._run_work(entry, lambda: None)
        self._job_log.finish(entry, ending)
        entry.ended.set()
        return ending

    def _pause(self, entry: Queued) -> float:
        """Give way if the turn is too long, and another person or process waits."""
        outer = _outermost(entry)
        if time.monotonic() - outer.turn_began < MOST_TURN_S:
            return 0.0
        own = os.getpid(), outer.person
        if all((one.pid, one.person) == own for one in self.queue.entries() if not one.running):
            return 0.0
        return self._give_way(entry)

    def _give_way(self, entry: Queued) -> float:
        """Let all jobs run that wait now, here and in other processes, then take the machine back.

        Raises:
            Cancelled: the job was cancelled meanwhile.
            TunerError: its person may use the machine no more, or the queue cannot be used any more.
        """
        if all(one.running for one in self.queue.entries()):
            return 0.0
        outer, began = _outermost(entry), time.monotonic()
        try:
            self._take_later(outer)
        except TunerError:
            if outer is not entry:  # the job around it must not continue without the machine
                outer.cancel.set()
            raise
        return time.monotonic() - began

    def _take_later(self, entry: Queued) -> None:
        """Give the machine up, and wait for a later turn."""
        entry.turn.close()
        self._job_log.set_progress(entry, Progress(stage="waits for other jobs", done=0, total=0))
        self._enter(entry, gives_way=True)
        with self._changed:
            self._paused.append(entry)
            self._current = None
            self._entries = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: entry not in self._paused or entry.cancel.is_set())
            is_back = entry not in self._paused
            if not is_back:
                self._paused.remove(entry)
        if not is_back:
            self._leave(entry)
            raise _cancelled()
        self._hold(entry)
        self._job_log.record_turn(entry, Progress(stage="start", done=0, total=0))

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

    def _service(self, entry: Queued) -> Service:
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
            store=entry.store,
            run=run,
            environment=partial(self._describe, run),
            cancel=entry.cancel,
            on_progress=on_progress,
            on_live=on_live,
            on_resolved=partial(self._job_log.resolved, entry),
            perform=partial(self._run_nested, entry),
            give_way=partial(self._give_way, entry),
            pause=partial(self._pause, entry),
            fork_server=self._fork_server,
        )

    def _drop_finished(self) -> None:
        """Drop the oldest finished jobs, to bound the memory of a server that runs for months."""
        finished = [entry.job.id for entry in self._jobs.values() if entry.state in FINISHED]
        for job_id in finished[:-KEPT]:
            for trial_id in self._jobs.pop(job_id).trials:
                del self._job_of[trial_id]

    def _status(self, entry: Queued, asked: str) -> Status:
        """The status with the place in the machine's queue; called under the lock."""
        held = entry.place
        if entry.state != "WAITING" or held is None:
            return entry.status(asked)
        order = self._order()
        place = next((number for number, one in enumerate(order) if one.ticket == held.name), None)
        if place is None:  # a cleaner of temporary files removed the ticket
            return entry.status(asked)
        holder = next((one.text for one in order[:place] if one.running), "")
        starts_in_s = order[place].starts_in_s if place else None
        return entry.status(asked, place=place, holder=holder, starts_in_s=starts_in_s)

    def _order(self) -> list[Entry]:
        """The machine's queue, read anew after a moment or a change here; called under the lock."""
        if self._entries is None or time.monotonic() - self._entries[0] > STANDING_S:
            found = self.queue.entries()
            self._entries = time.monotonic(), found
        return self._entries[1]


def _check_libraries(job: Job, actor: Actor) -> None:
    """Refuse native libraries that a job loads for a person who is no admin, whoever stored its specs."""
    if job.native_libraries and not actor.sees_all:
        name = job.native_libraries[0].partition("@")[0]
        raise SpecError(
            f"The native library `{name[:80]}` needs the role admin.",
            hint="Use a configuration without libraries, or ask an admin of this server.",
        )


def _outermost(entry: Queued) -> Queued:
    """The job that has the turn."""
    return entry if entry.outer is None else _outermost(entry.outer)


def _cancelled() -> Cancelled:
    return Cancelled("The job was cancelled before it started.", hint="Start it again to get its result.")
