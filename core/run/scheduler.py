"""The queue: one measurement at a time on this machine, across sessions, tabs and the command line.

`submit` writes WAITING rows and returns at once; one thread takes the jobs in order, waits for the machine's
turn and does them. A comparison is one job, however many trials it has. Whatever happens to a trial, its row
ends as COMPLETE, FAIL or CANCELLED, and the thread lives on. Pages and commands ask `status`; nobody is
called back. What a job is stands in `job`, how it is written down in `ledger`.
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from core import wire
from core.evidence import continuation
from core.evidence.comparison import Comparison, Configuration, Contestant, line_up, same_request
from core.evidence.measurement import Trial, TrialKind
from core.evidence.record import RaceRecord
from core.process.machine_queue import MachineQueue
from core.process.runner import Progress, Run, run_job
from core.run.comparison import Ending, Service, perform_comparison, perform_self_test, protocol_of
from core.run.job import FINISHED, WAITING_QUIET, End, Job, State, Status
from core.run.ledger import Ledger, settle
from core.run.quiet_wait import wait_until_quiet
from core.run.trial import Resolved, perform_profile, resolve_trial
from core.spec import ModelRef, TrialSpec, spec_from_dict
from core.store import Store
from core.wire import Reply
from core.wire.errors import Cancelled, StoreError, TunerError, WorkerError, record_from_error

__all__ = ["FINISHED", "Scheduler", "Status"]

KEPT = 500  # finished jobs whose status is still known; results of trials are in the store anyway
CLOSE_S = 15.0  # a cancelled worker is gone in two seconds; a store on a slow disk may take some more
TRACE_NAME = "trace.json"
SELF_TEST_MODEL = "digits_cnn"  # comes with ORTune; runs of half a millisecond show what disturbs

_log = logging.getLogger(__name__)


class Scheduler:
    """One thread that does one job at a time, first come, first served; `close` it at the end."""

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
        """Start the thread, and settle what processes that are gone have left in the store.

        Args:
            store: keeps the trials.
            owner: who asks, in words, for others on this machine to read.
            run: starts a worker; tests pass another.
            queue: of the machine; None: the one all of ORTune shares.
            wait_quiet_s: races and profiles wait at most so long for the machine to be quiet, or as long as
                they ask for themselves where that is longer.
            admit: raises a `TunerError` for a spec that may not be submitted here. What a stored trial asks
                for (a baseline, a race that goes on) was admitted when it was stored.
        """
        self.store = store
        self._admit = admit
        self.owner = owner
        self.queue = queue or MachineQueue()
        self._run = run
        self._wait_quiet_s = wait_quiet_s
        self._process = f"{socket.gethostname()}/{os.getpid()}/{psutil.Process().create_time()}"
        self._changed = threading.Condition()
        self._ledger = Ledger(store, self._changed)
        self._jobs: dict[str, Job] = {}
        self._job_of: dict[str, str] = {}  # trial -> its job
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
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
        wait_quiet_s: float = 0.0,
    ) -> str:
        """Queue a trial and return its id at once; the model is looked at when it is its turn.

        A measurement is a duel: it races against `baseline`, where there is one, and against ONNX Runtime's
        default. Neither runs twice when it is what `spec` asks for.

        Args:
            spec: what to run, and how well to measure.
            kind: "measure" or "profile".
            baseline: see above; a profile has none.
            study: name under which trials belong together.
            model_name: None: the file's.
            wait_quiet_s: when it has its turn, it waits at most so long for the machine to be quiet; the
                notes of its result say what came of it.

        Raises:
            StoreError: the trial cannot be kept, so it is not run either.
        """
        self._admit(spec)
        if kind == "profile":
            return self._submit_profile(spec, study=study, model_name=model_name, wait_quiet_s=wait_quiet_s)
        if isinstance(baseline, TrialSpec):
            baseline = Configuration(spec=baseline, label="baseline")
        asked = [Configuration(spec=spec, label="candidate")]
        if baseline is not None and not same_request(baseline.spec, spec):
            asked.append(replace(baseline, role="baseline"))
        what = f"measure {model_name or Path(spec.model.path).stem}"
        job = self._submit_race(
            asked, what=what, study=study, model_name=model_name, wait_quiet_s=wait_quiet_s
        )
        return next(trial.id for trial in job.trials.values() if trial.kind == "measure")

    def submit_comparison(
        self,
        asked: Sequence[Configuration],
        *,
        study: str = "",
        model_name: str | None = None,
        what: str = "",
        wait_quiet_s: float = 0.0,
        different_models: bool = False,
    ) -> str:
        """Queue a race and return the id of the comparison at once; `Store.trials_of` lists its trials.

        Args:
            asked: candidates and at most one baseline; see `comparison.line_up` for who else races.
            study: name under which the candidates belong together.
            model_name: of the race; None: the first candidate's. A trial is called after the model it ran.
            what: one line for those who wait; empty: how many race.
            wait_quiet_s: when it has its turn, it waits at most so long for the machine to be quiet; the
                notes of its result say what came of it.
            different_models: models that compute something else may race; without it such a race fails.

        Raises:
            StoreError: the comparison cannot be kept, so it is not run either.
        """
        for one in asked:
            self._admit(one.spec)
        name = model_name or Path(asked[0].spec.model.path).stem
        what = what or f"race of {len(asked)} configurations of {name}"
        return self._submit_race(
            asked,
            what=what,
            study=study,
            model_name=model_name,
            wait_quiet_s=wait_quiet_s,
            different_models=different_models,
        ).id

    def submit_continuation(
        self,
        comparison_id: str,
        *,
        precision: str | None = None,
        budget_s: float | None = None,
        wait_quiet_s: float = 0.0,
    ) -> str:
        """Queue more generations of a finished race, and return the id of the comparison that holds all.

        The finished race stays as it is.

        Args:
            comparison_id: of the finished race.
            precision: name; None: as before.
            budget_s: for what is added; None: the precision's.
            wait_quiet_s: see `submit`.

        Raises:
            SpecError: nothing can be added to that race; the message says why.
            StoreError: there is no such race, or the new one cannot be kept.
        """
        race = self.store.comparison(comparison_id)
        trials = [self.store.trial(one.trial) for one in race.contestants]
        continuation.check(race, trials)
        everybody = [
            Configuration(spec=spec_from_dict(trial.spec), label=one.label, role=one.role)
            for one, trial in zip(race.contestants, trials, strict=True)
        ]
        protocol = continuation.protocol(race, precision or race.protocol["precision"], budget_s)
        protocol["seed"] = secrets.randbelow(2**31)
        return self._submit_lined_up(
            everybody,
            protocol,
            earlier=continuation.record_of(race, trials),
            what=f"more generations of a race of {race.model_name}",
            study=race.study,
            model_name=race.model_name,
            wait_quiet_s=wait_quiet_s,
        ).id

    def submit_self_test(self, spec: TrialSpec | None = None) -> str:
        """Queue a race of a configuration against itself; its job's result is the verdict on this machine.

        Args:
            spec: None: ONNX Runtime's default on a model that comes with ORTune.
        """
        spec = spec or TrialSpec(model=ModelRef(path=SELF_TEST_MODEL))
        entry = Job(
            id=secrets.token_hex(8),
            kind="self-test",
            what="self-test of this machine",
            work=partial(self._do_self_test, spec),
        )
        self._add(entry)
        return entry.id

    def submit_job(
        self, job: wire.Request[Any], payload: Mapping[str, Any], *, what: str, timeout_s: float = 600.0
    ) -> str:
        """Queue a job that is no trial, such as an export, and return its id; `status` has its result."""
        return self.submit_task(lambda run: run(job, payload, timeout_s=timeout_s), kind=job, what=what)

    def submit_task(
        self,
        task: Callable[[Run], Mapping[str, Any]],
        *,
        kind: str,
        what: str,
        specs: Sequence[TrialSpec] = (),
    ) -> str:
        """Queue work of several jobs that is no trial, and return its id.

        Args:
            task: told how to start a worker (called like `run_job`, with the progress and cancel of this
                task); what it returns, plain JSON data, is the result in `status`.
            kind: for `Status.kind`.
            what: one line for a person.
            specs: what it runs, to be admitted like trials.
        """
        for one in specs:
            self._admit(one)

        def work(entry: Job) -> End:
            return End(state="COMPLETE", result=dict(task(self._worker(entry))))

        entry = Job(id=secrets.token_hex(8), kind=kind, what=what, work=work)
        self._add(entry)
        return entry.id

    def _submit_profile(
        self, spec: TrialSpec, *, study: str, model_name: str | None, wait_quiet_s: float
    ) -> str:
        self._refuse_when_closed()
        trial = self._trial(spec, kind="profile", study=study, model_name=model_name)
        self.store.create_trial(trial, process=self._process)
        work = partial(self._do_profile, spec, model_name, trial.id)
        entry = Job(
            id=trial.id,
            kind="profile",
            what=f"profile {trial.model_name}",
            trials={trial.id: trial},
            wait_quiet_s=max(wait_quiet_s, self._wait_quiet_s),
            work=work,
        )
        self._add(entry)
        return trial.id

    def _submit_race(
        self,
        asked: Sequence[Configuration],
        *,
        what: str,
        study: str,
        model_name: str | None,
        wait_quiet_s: float,
        different_models: bool = False,
    ) -> Job:
        everybody = line_up(asked)
        return self._submit_lined_up(
            everybody,
            protocol_of(everybody[0].spec.protocol, different_models=different_models),
            earlier=None,
            what=what,
            study=study,
            model_name=model_name,
            wait_quiet_s=wait_quiet_s,
        )

    def _submit_lined_up(
        self,
        everybody: Sequence[Configuration],
        protocol: dict[str, Any],
        *,
        earlier: RaceRecord | None,
        what: str,
        study: str,
        model_name: str | None,
        wait_quiet_s: float,
    ) -> Job:
        self._refuse_when_closed()
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
            model_name=model_name or trials[0].model_name,
            model_sha256="",
            contestants=tuple(
                Contestant(trial=trial.id, label=one.label, role=one.role)
                for one, trial in zip(everybody, trials, strict=True)
            ),
            protocol=protocol,
            created_at=time.time(),
            study=study,
            owner=self.owner,
        )
        self.store.create_comparison(comparison, trials, process=self._process)
        specs = {trial.id: one.spec for one, trial in zip(everybody, trials, strict=True)}
        entry = Job(
            id=race_id,
            kind="comparison",
            what=what,
            trials={trial.id: trial for trial in trials},
            comparison=comparison,
            wait_quiet_s=max(wait_quiet_s, self._wait_quiet_s),
            work=partial(self._do_comparison, specs, model_name, earlier),
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
            model_name=self._model_name(spec, model_name),
            model_sha256="",
            key=spec.key(),
            created_at=time.time(),
            study=study,
            owner=self.owner,
            comparison=comparison,
        )

    def _model_name(self, spec: TrialSpec, given: str | None) -> str:
        """What the model of a trial is called until it has been looked at."""
        known = self.store.model(spec.model.sha256) if spec.model.sha256 else None
        return known.name if known is not None else given or Path(spec.model.path).stem

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
            self._ledger.finish(entry, End(state="CANCELLED", error=record_from_error(_cancelled())))

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

    def _add(self, entry: Job) -> None:
        with self._changed:
            self._refuse_when_closed()
            self._jobs[entry.id] = entry
            self._job_of |= dict.fromkeys(entry.trials, entry.id)
            self._waiting.append(entry)
            self._changed.notify_all()

    def _job(self, job_id: str) -> Job | None:
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

    def _perform(self, entry: Job) -> None:
        """Do one job to its end, whatever that is."""
        try:
            on_wait = partial(self._on_wait, entry)
            with self.queue.turn(self.owner, entry.what, entry.cancel, on_wait):
                self._wait_quiet(entry)
                self._ledger.begin(entry)
                end = entry.work(entry)
        except TunerError as error:
            state: State = "CANCELLED" if isinstance(error, Cancelled) else "FAIL"
            end = End(state=state, error=record_from_error(error))
        except Exception as error:  # a defect of ours must cost one job, not the queue
            _log.exception("%s failed unexpectedly", entry.what)
            unexpected = WorkerError(
                f"ORTune failed unexpectedly: {type(error).__name__}: {error}",
                hint="Report this with the log of the dashboard.",
            )
            end = End(state="FAIL", error=record_from_error(unexpected))
        self._ledger.finish(entry, end)

    def _on_wait(self, entry: Job, place: int, holder: str) -> None:
        with self._changed:
            entry.place, entry.holder = place, holder

    def _wait_quiet(self, entry: Job) -> None:
        """Before the job begins, so that the time counts neither as its own nor for later predictions."""
        if entry.wait_quiet_s <= 0:
            return

        def on_wait(words: str) -> None:
            self._ledger.has_turn(entry, Progress(stage=WAITING_QUIET, done=0, total=0, text=words))

        waited = wait_until_quiet(entry.wait_quiet_s, entry.cancel, on_wait)
        entry.notes.append(waited.note)

    def _worker(self, entry: Job) -> Run:
        """`run_job` with this job's cancel and progress."""

        def run(job: wire.Request[Reply], payload: Mapping[str, Any], *, timeout_s: float = 600.0) -> Reply:
            self._ledger.set_progress(entry, Progress(stage=job, done=0, total=0))
            progress = partial(self._ledger.set_progress, entry)
            return self._run(job, payload, on_progress=progress, cancel=entry.cancel, timeout_s=timeout_s)

        return run

    def _describe(self, run: Run, *, refresh: bool = False) -> wire.Environment:
        with self._describing:
            if self._environment is None or refresh:
                self._environment = run(wire.ENVIRONMENT, {})
            return self._environment

    def _do_profile(self, spec: TrialSpec, model_name: str | None, trial_id: str, entry: Job) -> End:
        run = self._worker(entry)
        resolved = resolve_trial(spec, self.store, run)
        self._ledger.resolved(entry, model_name, trial_id, resolved)
        result = perform_profile(
            resolved,
            self.store,
            run,
            environment=partial(self._describe, run),
            trace=partial(self.store.artifact_path, trial_id, TRACE_NAME),
        )
        loss = self._ledger.end_trial(entry, trial_id, Ending(state="COMPLETE", result=result))
        return End(state="COMPLETE" if loss is None else "FAIL", error=loss)

    def _do_comparison(
        self,
        specs: Mapping[str, TrialSpec],
        model_name: str | None,
        earlier: RaceRecord | None,
        entry: Job,
    ) -> End:
        assert entry.comparison is not None
        service = self._service(entry, on_resolved=partial(self._ledger.resolved, entry, model_name))
        outcome = perform_comparison(entry.comparison, specs, service, earlier)
        losses = [self._ledger.end_trial(entry, trial_id, one) for trial_id, one in outcome.trials.items()]
        losses.append(self._ledger.end_comparison(entry, outcome))
        self._keep_self_tests(entry.id, outcome.comparison.result or {})
        if (loss := next(filter(None, losses), None)) is not None:
            return End(state="FAIL", error=loss)
        error = outcome.comparison.error
        return End(state=outcome.comparison.state, error=None if error is None else record_from_error(error))

    def _keep_self_tests(self, comparison_id: str, result: Mapping[str, Any]) -> None:
        """What every race finds out about this machine; not worth losing a race that is over."""
        with contextlib.suppress(StoreError):
            for test in result.get("self_tests", ()):
                data = {**test, "grade": result["grade"], "busy": result["busy"], "comparison": comparison_id}
                self.store.put_self_test(result["fingerprint"], data)

    def _do_self_test(self, spec: TrialSpec, entry: Job) -> End:
        result = perform_self_test(spec, self._service(entry, on_resolved=lambda *_: None))
        kept = {name: part for name, part in result.items() if name not in ("environment", "fingerprint")}
        self.store.put_self_test(result["fingerprint"], kept)
        return End(state="COMPLETE", result=result)

    def _service(self, entry: Job, *, on_resolved: Callable[[str, Resolved], None]) -> Service:
        run = self._worker(entry)

        def on_live(live: dict[str, Any]) -> None:
            with self._changed:
                entry.live = live

        return Service(
            store=self.store,
            run=run,
            environment=partial(self._describe, run),
            cancel=entry.cancel,
            on_progress=partial(self._ledger.set_progress, entry),
            on_live=on_live,
            on_resolved=on_resolved,
        )

    def _forget(self) -> None:
        """Drop the oldest finished jobs, so that a server that runs for months does not grow."""
        finished = [entry.id for entry in self._jobs.values() if entry.state in FINISHED]
        for job_id in finished[:-KEPT]:
            for trial_id in self._jobs.pop(job_id).trials:
                del self._job_of[trial_id]

    def _status(self, entry: Job, asked: str) -> Status:
        return entry.status(asked, place=self._place(entry), holder=self._holder(entry))

    def _place(self, entry: Job) -> int:
        """Jobs ahead: those of this scheduler, and those that the first of them waits for."""
        if entry.state != "WAITING" or entry is self._current:
            return entry.place
        own = self._waiting.index(entry) if entry in self._waiting else 0
        ahead = 0 if self._current is None else 1 + self._current.place
        return own + ahead

    def _holder(self, entry: Job) -> str:
        current = self._current
        if entry.state != "WAITING" or current is None or entry is current:
            return entry.holder
        return current.holder or f"{self.owner}: {current.what}"


def _cancelled() -> Cancelled:
    return Cancelled(
        "The job was cancelled before it began.", hint="Start it again when you want its result."
    )
