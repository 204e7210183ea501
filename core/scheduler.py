"""The queue: one measurement at a time on this machine, across sessions, tabs and the command line.

`submit` writes WAITING rows and returns at once; one thread takes the jobs in order, waits for the machine's
turn and does them. A comparison is one job, however many trials it has. Whatever happens to a trial, its row
ends as COMPLETE, FAIL or CANCELLED, and the thread lives on. Pages and commands ask `status`; nobody is
called back.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import psutil

from core import machine_queue, wire
from core.comparison import Comparison, Configuration, Contestant, line_up, same_request
from core.comparison_run import Ending, Outcome, Service, perform_comparison, perform_self_test, protocol_of
from core.errors import (
    Cancelled,
    ErrorRecord,
    StoreError,
    TunerError,
    WorkerError,
    error_from_record,
    record_from_error,
)
from core.machine_queue import MachineQueue
from core.measurement import Trial, TrialKind, TrialState
from core.runner import Progress, run_job
from core.spec import ModelRef, TrialSpec
from core.store import Store
from core.trial_run import Resolved, perform_profile, resolve_trial

KEPT = 500  # finished jobs whose status is still known; results of trials are in the store anyway
CLOSE_S = 15.0  # a cancelled worker is gone in two seconds; a store on a slow disk may take some more
DAY_S = 86_400.0
TRACE_NAME = "trace.json"
UNEVEN = (
    "load",
    "warm-up",
    "cost",
    "memory",
)  # one contestant a step: the next may take a hundred times longer
SELF_TEST_MODEL = "digits_cnn"  # comes with ORTune; runs of half a millisecond show what disturbs

_log = logging.getLogger(__name__)

State = TrialState
FINISHED: tuple[State, ...] = ("COMPLETE", "FAIL", "CANCELLED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a submitted trial, comparison or job stands now."""

    id: str
    kind: str  # "measure", "reference", "profile", "comparison", "self-test", or the name of a job
    state: State
    what: str  # one line for a person
    stage: str = ""  # "waiting", a job's name, or a step of a race: "load", "warm-up", "rounds", …
    done: int = 0
    total: int = 0  # 0: unknown
    text: str = ""
    started_at: float | None = None  # seconds since the epoch; None while it waits
    elapsed_s: float = 0.0
    eta_s: float | None = None  # of the present stage
    place: int = 0  # jobs ahead of it on this machine; 0: it runs, or is next
    holder: str = ""  # who has the machine, in words
    result: dict[str, Any] | None = None  # of a job; a trial's and a comparison's are in the store
    error: ErrorRecord | None = None
    comparison: str = ""  # that it is part of, or that it is
    # of a race, while it runs: rounds, predicted_rounds, elapsed_s, contrasts (of trials, so far)
    live: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """How a job ended."""

    state: State
    error: ErrorRecord | None = None
    result: dict[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class _Job:
    """The scheduler's own notes on one job; read and written under its lock."""

    id: str
    kind: str
    what: str
    work: Callable[[_Job], _End]
    trials: dict[str, Trial] = field(default_factory=dict)  # without results
    comparison: Comparison | None = None
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
    live: dict[str, Any] | None = None


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
        self._job_of: dict[str, str] = {}  # trial -> its job
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
        self,
        spec: TrialSpec,
        *,
        kind: TrialKind = "measure",
        baseline: Configuration | TrialSpec | None = None,
        study: str = "",
        model_name: str | None = None,
    ) -> str:
        """Queue a trial and return its id at once; the model is looked at when it is its turn.

        A measurement is a duel: it races against `baseline`, where there is one, and against ONNX Runtime's
        default. Neither runs twice when it is what `spec` asks for.

        Raises:
            StoreError: the trial cannot be kept, so it is not run either.
        """
        if kind == "profile":
            return self._submit_profile(spec, study=study, model_name=model_name)
        if isinstance(baseline, TrialSpec):
            baseline = Configuration(spec=baseline, label="baseline")
        asked = [Configuration(spec=spec, label="candidate")]
        if baseline is not None and not same_request(baseline.spec, spec):
            asked.append(replace(baseline, role="baseline"))
        what = f"measure {model_name or Path(spec.model.path).stem}"
        job = self._submit_race(asked, what=what, study=study, model_name=model_name)
        return next(trial.id for trial in job.trials.values() if trial.kind == "measure")

    def submit_comparison(
        self,
        asked: Sequence[Configuration],
        *,
        study: str = "",
        model_name: str | None = None,
        what: str = "",
    ) -> str:
        """Queue a race and return the id of the comparison at once; `Store.trials_of` lists its trials.

        Args:
            asked: candidates and at most one baseline; see `comparison.line_up` for who else races.
            study: name under which the candidates belong together.
            model_name: of the first candidate; None: the file's.
            what: one line for those who wait; empty: how many race.

        Raises:
            StoreError: the comparison cannot be kept, so it is not run either.
        """
        name = model_name or Path(asked[0].spec.model.path).stem
        what = what or f"race of {len(asked)} configurations of {name}"
        return self._submit_race(asked, what=what, study=study, model_name=model_name).id

    def submit_self_test(self, spec: TrialSpec | None = None) -> str:
        """Queue a race of a configuration against itself; its job's result is the verdict on this machine.

        Args:
            spec: None: ONNX Runtime's default on a model that comes with ORTune.
        """
        spec = spec or TrialSpec(model=ModelRef(path=SELF_TEST_MODEL))
        entry = _Job(
            id=secrets.token_hex(8),
            kind="self-test",
            what="self-test of this machine",
            work=partial(self._do_self_test, spec),
        )
        self._add(entry)
        return entry.id

    def submit_job(
        self, job: wire.JobName, payload: Mapping[str, Any], *, what: str, timeout_s: float = 600.0
    ) -> str:
        """Queue a job that is no trial, such as an export, and return its id; `status` has its result."""

        def work(entry: _Job) -> _End:
            return _End(state="COMPLETE", result=self._worker(entry)(job, payload, timeout_s=timeout_s))

        entry = _Job(id=secrets.token_hex(8), kind=job, what=what, work=work)
        self._add(entry)
        return entry.id

    def _submit_profile(self, spec: TrialSpec, *, study: str, model_name: str | None) -> str:
        self._refuse_when_closed()
        trial = self._trial(spec, kind="profile", study=study, model_name=model_name)
        self.store.create_trial(trial, process=self._process)
        work = partial(self._do_profile, spec, model_name, trial.id)
        what = f"profile {trial.model_name}"
        self._add(_Job(id=trial.id, kind="profile", what=what, trials={trial.id: trial}, work=work))
        return trial.id

    def _submit_race(
        self, asked: Sequence[Configuration], *, what: str, study: str, model_name: str | None
    ) -> _Job:
        self._refuse_when_closed()
        everybody = line_up(asked)
        race_id = secrets.token_hex(8)
        trials = [
            self._trial(
                one.spec,
                kind="measure" if one.role == "candidate" else "reference",
                study=study,
                model_name=model_name,
                comparison=race_id,
            )
            for one in everybody
        ]
        comparison = Comparison(
            id=race_id,
            state="WAITING",
            model_name=trials[0].model_name,
            model_sha256="",
            contestants=tuple(
                Contestant(trial=trial.id, label=one.label, role=one.role)
                for one, trial in zip(everybody, trials, strict=True)
            ),
            protocol=protocol_of(everybody[0].spec.protocol),
            created_at=time.time(),
            study=study,
            owner=self.owner,
        )
        self.store.create_comparison(comparison, trials, process=self._process)
        specs = {trial.id: one.spec for one, trial in zip(everybody, trials, strict=True)}
        entry = _Job(
            id=race_id,
            kind="comparison",
            what=what,
            trials={trial.id: trial for trial in trials},
            comparison=comparison,
            work=partial(self._do_comparison, specs, model_name),
        )
        self._add(entry)
        return entry

    def _trial(
        self,
        spec: TrialSpec,
        *,
        kind: TrialKind,
        study: str,
        model_name: str | None,
        comparison: str = "",
    ) -> Trial:
        return Trial(
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
            comparison=comparison,
        )

    def cancel(self, job_id: str) -> None:
        """Stop a job, wherever it stands; unknown and finished ones are nothing to stop.

        A trial is stopped with all that race against it.
        """
        with self._changed:
            entry = self._job(job_id)
            if entry is None or entry.state in FINISHED:
                return
            entry.cancel.set()
            queued = entry in self._waiting
            if queued:
                self._waiting.remove(entry)
        if queued:
            self._finish(entry, _End(state="CANCELLED", error=record_from_error(_cancelled())))

    def status(self, job_id: str) -> Status | None:
        """Return where a trial, comparison or job stands; None when it is not known here (any more)."""
        with self._changed:
            entry = self._job(job_id)
            return None if entry is None else self._status(entry, job_id)

    def active(self) -> list[Status]:
        """Return the jobs that run or wait here, in order."""
        with self._changed:
            entries = [*([self._current] if self._current else []), *self._waiting]
            return [self._status(entry, entry.id) for entry in entries]

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
            self._job_of |= dict.fromkeys(entry.trials, entry.id)
            self._waiting.append(entry)
            self._changed.notify_all()

    def _job(self, job_id: str) -> _Job | None:
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
                    self._forget()
                    self._changed.notify_all()

    def _perform(self, entry: _Job) -> None:
        """Do one job to its end, whatever that is."""
        try:
            on_wait = partial(self._on_wait, entry)
            with self.queue.turn(self.owner, entry.what, entry.cancel, on_wait):
                self._begin(entry)
                end = entry.work(entry)
        except TunerError as error:
            state: State = "CANCELLED" if isinstance(error, Cancelled) else "FAIL"
            end = _End(state=state, error=record_from_error(error))
        except Exception as error:  # a defect of ours must cost one job, not the queue
            _log.exception("%s failed unexpectedly", entry.what)
            unexpected = WorkerError(
                f"ORTune failed unexpectedly: {type(error).__name__}: {error}",
                hint="Report this with the log of the dashboard.",
            )
            end = _End(state="FAIL", error=record_from_error(unexpected))
        self._finish(entry, end)

    def _on_wait(self, entry: _Job, place: int, holder: str) -> None:
        with self._changed:
            entry.place, entry.holder = place, holder

    def _begin(self, entry: _Job) -> None:
        with self._changed:
            entry.state, entry.place, entry.holder = "RUNNING", 0, ""
            entry.started_at = time.time()
        self._set_progress(entry, Progress(stage="start", done=0, total=0))
        began: dict[str, Any] = {"state": "RUNNING", "started_at": entry.started_at}
        for trial_id in entry.trials:
            self._change_trial(entry, trial_id, **began)
        self._change_comparison(entry, **began)

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

    def _do_profile(self, spec: TrialSpec, model_name: str | None, trial_id: str, entry: _Job) -> _End:
        run = self._worker(entry)
        resolved = resolve_trial(spec, self.store, run)
        self._resolved(entry, model_name, trial_id, resolved)
        result = perform_profile(
            resolved,
            self.store,
            run,
            environment=partial(self._describe, run),
            trace=partial(self.store.artifact_path, trial_id, TRACE_NAME),
        )
        loss = self._end_trial(entry, trial_id, Ending(state="COMPLETE", result=result))
        return _End(state="COMPLETE" if loss is None else "FAIL", error=loss)

    def _do_comparison(self, specs: Mapping[str, TrialSpec], model_name: str | None, entry: _Job) -> _End:
        assert entry.comparison is not None
        service = self._service(entry, on_resolved=partial(self._resolved, entry, model_name))
        outcome = perform_comparison(entry.comparison, specs, service)
        losses = [self._end_trial(entry, trial_id, one) for trial_id, one in outcome.trials.items()]
        losses.append(self._end_comparison(entry, outcome))
        self._keep_self_tests(entry.id, outcome.comparison.result or {})
        if (loss := next(filter(None, losses), None)) is not None:
            return _End(state="FAIL", error=loss)
        return _End(state=outcome.comparison.state, error=_changes(outcome.comparison)["error"])

    def _keep_self_tests(self, comparison_id: str, result: Mapping[str, Any]) -> None:
        """What every race finds out about this machine; not worth losing a race that is over."""
        with contextlib.suppress(StoreError):
            for test in result.get("self_tests", ()):
                data = {**test, "grade": result["grade"], "comparison": comparison_id}
                self.store.put_self_test(result["fingerprint"], data)

    def _do_self_test(self, spec: TrialSpec, entry: _Job) -> _End:
        result = perform_self_test(spec, self._service(entry, on_resolved=lambda *_: None))
        kept = {name: part for name, part in result.items() if name not in ("environment", "fingerprint")}
        self.store.put_self_test(result["fingerprint"], kept)
        return _End(state="COMPLETE", result=result)

    def _service(self, entry: _Job, *, on_resolved: Callable[[str, Resolved], None]) -> Service:
        run = self._worker(entry)

        def on_live(live: dict[str, Any]) -> None:
            with self._changed:
                entry.live = live

        return Service(
            store=self.store,
            run=run,
            environment=partial(self._describe, run),
            cancel=entry.cancel,
            on_progress=partial(self._set_progress, entry),
            on_live=on_live,
            on_resolved=on_resolved,
        )

    def _resolved(self, entry: _Job, model_name: str | None, trial_id: str, resolved: Resolved) -> None:
        """Write down which model a trial is about."""
        name, sha256 = model_name or resolved.record.name, resolved.record.content_sha256
        spec = resolved.spec
        self._change_trial(
            entry, trial_id, spec=spec.to_dict(), key=spec.key(), model_sha256=sha256, model_name=name
        )
        if entry.comparison is not None and not entry.comparison.model_sha256:
            self._change_comparison(entry, model_sha256=sha256, model_name=name)

    # --- endings ----------------------------------------------------------------------------------------

    def _change_trial(self, entry: _Job, trial_id: str, **changes: Any) -> None:
        trial = replace(entry.trials[trial_id], **changes)
        with self._changed:
            entry.trials[trial_id] = replace(trial, result=None)  # the store has it; a server runs for months
        if not self.store.update_trial(trial_id, **changes):
            self.store.delete_trials([trial_id])  # deleted while it ran: nor must its files come back

    def _change_comparison(self, entry: _Job, **changes: Any) -> None:
        if entry.comparison is None:
            return
        comparison = replace(entry.comparison, **changes)
        with self._changed:
            entry.comparison = replace(comparison, result=None)
        self.store.update_comparison(comparison.id, **changes)

    def _end_trial(self, entry: _Job, trial_id: str, ending: Ending) -> ErrorRecord | None:
        """Write down how a trial ended; return what kept the store from it, its result being rescued."""
        changes = _changes(ending)
        whole = replace(entry.trials[trial_id], **changes)
        try:
            self._change_trial(entry, trial_id, **changes)
        except StoreError as failure:
            loss = record_from_error(self._rescued(whole, failure))
            with self._changed:
                entry.trials[trial_id] = replace(whole, result=None, state="FAIL", error=loss)
            return loss
        return None

    def _end_comparison(self, entry: _Job, outcome: Outcome) -> ErrorRecord | None:
        """Like `_end_trial`."""
        assert entry.comparison is not None
        changes = {**_changes(outcome.comparison), "warnings": outcome.warnings}
        whole = replace(entry.comparison, **changes)
        try:
            self._change_comparison(entry, **changes)
        except StoreError as failure:
            loss = record_from_error(self._rescued(whole, failure))
            with self._changed:
                entry.comparison = replace(whole, result=None, state="FAIL", error=loss)
            return loss
        return None

    def _finish(self, entry: _Job, end: _End) -> None:
        """Write down how a job ended, and with it whatever of it has not ended yet."""
        ending = Ending(
            state=end.state, error=error_from_record(end.error) if end.error is not None else None
        )
        losses = [
            self._end_trial(entry, trial.id, ending)
            for trial in list(entry.trials.values())
            if trial.state not in FINISHED
        ]
        if entry.comparison is not None and entry.comparison.state not in FINISHED:
            losses.append(self._end_comparison(entry, Outcome(comparison=ending, trials={})))
        loss = next(filter(None, losses), None)
        with self._changed:
            entry.state, entry.error = (end.state, end.error) if loss is None else ("FAIL", loss)
            entry.result, entry.finished_at = end.result, time.time()
            self._changed.notify_all()

    def _rescued(self, whole: Trial | Comparison, failure: StoreError) -> StoreError:
        """Keep what the store did not take as a file, and say where."""
        if whole.result is None:
            return failure
        try:
            path = self.store.rescue(whole)
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
            for trial_id in self._jobs.pop(job_id).trials:
                del self._job_of[trial_id]

    def _status(self, entry: _Job, asked: str) -> Status:
        """Of the job, or of one of its trials: a trial has an end of its own, told when its job has ended."""
        now = time.time()
        started, progress = entry.started_at, entry.progress
        trial = entry.trials.get(asked)
        own = trial if trial is not None and entry.state in FINISHED else entry
        return Status(
            id=asked,
            kind=entry.kind if trial is None else trial.kind,
            state=own.state,
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
            error=own.error,
            comparison="" if entry.comparison is None else entry.comparison.id,
            live=entry.live if entry.state == "RUNNING" else None,
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
    if progress.done <= 0 or progress.total <= 0 or progress.stage in UNEVEN:
        return None
    return in_stage_s * max(progress.total - progress.done, 0) / progress.done


def _changes(ending: Ending) -> dict[str, Any]:
    """The fields that an end sets, of a trial or a comparison."""
    changes: dict[str, Any] = {
        "state": ending.state,
        "error": record_from_error(ending.error) if ending.error is not None else None,
        "finished_at": time.time(),
    }
    if ending.result is not None:
        changes |= {"result": ending.result, "fingerprint": ending.result["fingerprint"]}
    return changes


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
