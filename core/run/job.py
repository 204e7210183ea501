"""Types of the job queue: the job, the services for its work, its outcome and its status.

No thread, no store. `job_types` has the job types.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core import wire
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial, TrialState
from core.process.contestant_workers import SharedForkServer
from core.process.job_worker import Progress, Run
from core.process.machine_queue import Place
from core.run.preparation import Resolved
from core.spec import TrialSpec
from core.store import Store, StudyRecord
from core.wire.errors import ErrorRecord, TunerError

# One configuration per step: the next may take a hundred times longer.
UNEVEN = ("load", "warm-up", "cost", "outputs", "memory")

WAITING_IDLE = "waiting-quiet"  # stage of a job that has its turn and waits for an idle machine

State = TrialState
FINISHED: tuple[State, ...] = ("COMPLETE", "FAIL", "CANCELLED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Services that the scheduler provides to the work of a job."""

    store: Store  # holds the caches
    run: Run  # starts a worker, called like `run_job`
    environment: Callable[..., wire.Environment]  # of a `runtime`; absent: ORTune's own. Starts a worker once
    cancel: threading.Event
    on_progress: Callable[[Progress], None]
    on_live: Callable[[dict[str, Any]], None]  # called with the value of `Status.live`
    on_resolved: Callable[[str, Resolved], None]  # called with a trial's id and its model
    perform: Callable[[Job], Ending]  # runs another job within this one's turn, with its own rows
    give_way: Callable[[], float]  # lets waiting jobs run first; returns the seconds that took
    # called where a long job can pause: as `give_way`, once its turn is too long and others wait
    pause: Callable[[], float] = lambda: 0.0
    fork_server: SharedForkServer | None = None  # fork server of all comparisons within one turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a job, a comparison or a trial ended. A failed one may have a partial result."""

    state: State
    error: TunerError | None = None
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended: the job with its comparison, if any, and its trials by id.

    A trial that is not listed ends like the job, without a result.
    """

    whole: Ending
    trials: Mapping[str, Ending] = field(default_factory=dict)
    warnings: Sequence[str] = ()  # of the comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request to the queue: the work, and the rows of the store that start and end with it."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    kind: str  # for `Status.kind`
    what: str  # one line of text
    work: Callable[[Service], Outcome]
    specs: Sequence[TrialSpec] = ()  # requested with it, to be admitted
    libraries: Sequence[str] = ()  # native ones that it loads besides those of its specs
    trials: Sequence[Trial] = ()
    comparison: Comparison | None = None
    study: StudyRecord | None = None  # of a search
    model_name: str | None = None  # name of the comparison's model; None: its first model
    follow: str = ""  # id of the trial that represents it; empty: none
    wait_quiet_s: float | None = None  # longest wait for an idle machine; None: no wait
    predicted_s: float | None = None  # duration; None: the scheduler predicts it, where it can

    @property
    def models(self) -> list[str]:
        """Hashes and paths of the models of its configurations."""
        return [ref for one in self.specs for ref in (one.model.sha256, one.model.path) if ref]

    @property
    def native_libraries(self) -> list[str]:
        """All native libraries that its processes load, each with its hash where it is known."""
        return [*self.libraries, *(name for one in self.specs for name in one.session.libraries)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Current state of a submitted trial, comparison or job."""

    id: str  # of the trial, comparison or job
    kind: str  # "measure", "reference", "profile", "comparison", "self-test", or the name of a job
    state: State  # "WAITING", "RUNNING", "COMPLETE", "FAIL" or "CANCELLED"
    what: str  # one line of text
    stage: str = ""  # "waiting", WAITING_IDLE, a job's name, or a step: "load", "warm-up", "rounds", …
    done: int = 0  # units of the stage that are done, for example rounds
    total: int = 0  # units of the stage; 0: unknown
    text: str = ""  # more about the stage
    started_at: float | None = None  # seconds since the epoch; None while it waits
    elapsed_s: float = 0.0  # since it started
    eta_s: float | None = None  # seconds until the present stage ends; None: unknown
    place: int = 0  # jobs ahead of it on this machine; 0: it runs, or is next
    holder: str = ""  # who has the machine, as text
    starts_in_s: float | None = None  # while it waits: predicted, if no other job arrives; None: unknown
    result: dict[str, Any] | None = None  # of a job; a trial's and a comparison's are in the store
    error: ErrorRecord | None = None  # why it failed
    comparison: str = ""  # its own id, or that of the comparison it is part of
    # keys: rounds, predicted_rounds, elapsed_s, contrasts (of trials, so far), and the course of each
    # candidate's contrast: (elapsed_s, ratio, low, high)
    live: dict[str, Any] | None = None  # of a running comparison: its numbers so far


@dataclass(slots=True, kw_only=True)
class Queued:
    """The scheduler's record of a job in the queue; read and written under the scheduler's lock."""

    job: Job
    store: Store  # of the person who started it
    trials: dict[str, Trial] = field(default_factory=dict)  # as stored, without results
    comparison: Comparison | None = None
    notes: list[str] = field(default_factory=list)  # for its results
    cancel: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)  # set after its end is recorded
    state: State = "WAITING"
    progress: Progress = field(default_factory=lambda: Progress(stage="waiting", done=0, total=0))
    stage_began: float = 0.0  # monotonic
    started_at: float | None = None
    began: float = 0.0  # monotonic, when it started
    finished_at: float | None = None
    begun: bool = False  # it has a thread of its own
    person: str = ""  # who started it, for the machine's queue; empty: the owner of this process
    private: bool = False  # not for other persons, with its text and its progress
    place: Place | None = None  # in the machine's queue
    turn: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)  # what it holds in its turn
    turn_began: float = 0.0  # monotonic
    result: dict[str, Any] | None = None
    error: ErrorRecord | None = None
    live: dict[str, Any] | None = None
    who: str = ""  # the person who submitted it
    outer: Queued | None = None  # the job within whose turn it runs

    @property
    def ids(self) -> list[str]:
        """The ids of the job and of its rows."""
        study = [] if self.job.study is None else [self.job.study.id]
        return [self.job.id, *self.trials, *study]

    def present(self) -> float:
        """Return the present time; after the start, durations are true also where the clock was set."""
        if self.started_at is None:
            return time.time()
        return self.started_at + time.monotonic() - self.began

    def status(
        self, asked: str, *, place: int = 0, holder: str = "", starts_in_s: float | None = None
    ) -> Status:
        """Return the status of the job, or of a trial of it; a trial has its own end once the job has ended.

        Args:
            asked: id of the job or of a trial of it.
            place: jobs ahead of it on this machine.
            holder: who has the machine, as text.
            starts_in_s: predicted seconds until it starts; None: unknown.
        """
        started, progress, running = self.started_at, self.progress, self.state == "RUNNING"
        trial = self.trials.get(asked)
        own = trial if trial is not None and self.state in FINISHED else self
        return Status(
            id=asked,
            kind=self.job.kind if trial is None else trial.kind,
            state=own.state,
            what=self.job.what,
            stage=progress.stage,
            done=progress.done,
            total=progress.total,
            text=progress.text,
            started_at=started,
            elapsed_s=(self.finished_at or self.present()) - started if started else 0.0,
            eta_s=_eta_s(progress, time.monotonic() - self.stage_began) if running else None,
            place=place,
            holder=holder,
            starts_in_s=starts_in_s,
            result=self.result,
            error=own.error,
            comparison="" if self.comparison is None else self.comparison.id,
            live=self.live if running else None,
        )


def _eta_s(progress: Progress, in_stage_s: float) -> float | None:
    if progress.done <= 0 or progress.total <= 0 or progress.stage in UNEVEN:
        return None
    return in_stage_s * max(progress.total - progress.done, 0) / progress.done
