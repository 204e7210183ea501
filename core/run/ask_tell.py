"""The ask-tell loop of sweeps and searches: propose, skip known, measure, report.

A strategy is a pure function from the known trials to the next comparisons; a sweep asks for all points at
once. The store holds everything a study knows, its own trials under its name. `read_progress` replays the
strategy over the stored trials, so another page or process can resume a study. A search measures a
configuration several times and reports only the last measurement; it has its own package (`search/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from core.evidence.comparison import Comparison, Configuration
from core.evidence.measurement import Trial
from core.run.job import FINISHED, Job, Status
from core.spec import TrialSpec
from core.store import Store
from core.wire.errors import StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrial:
    """An evaluated configuration, as the store lists it: without raw latencies."""

    trial: Trial
    comparison: Comparison | None  # that measured it; None: deleted since
    reused: bool  # measured before this study


Known = Mapping[str, KnownTrial]  # by `TrialSpec.key`, in the order of the requests


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """Configurations that one job compares.

    All have one protocol: a comparison has only one, and the key of a trial includes it.
    """

    asked: Sequence[Configuration]
    job: Callable[[Sequence[Configuration]], Job]  # compares those that are not known


Strategy = Callable[[Known], Sequence[ComparisonRequest]]


def fixed_strategy(*requests: ComparisonRequest) -> Strategy:
    """Return a strategy that always asks for the same comparisons."""
    return lambda known: requests


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyState:
    """Progress of a study: its known trials, including running ones, and the comparisons still missing."""

    known: Known
    missing: Sequence[ComparisonRequest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Strategy and name of a study; its results are in the store."""

    name: str  # of its trials in the store; empty: no trials yet
    strategy: Strategy
    # finds an earlier measurement to reuse; see `measured_before`
    earlier: Callable[[TrialSpec], Trial | None] = lambda spec: None

    def read_progress(self, store: Store) -> StudyState:
        """Read the progress of the study from the store; start nothing."""
        own: dict[str, Trial] = {}
        for one in store.trials(study=self.name) if self.name else ():
            own.setdefault(one.key, one)  # the newest

        @cache
        def comparison(comparison_id: str) -> Comparison | None:
            try:
                return store.comparison(comparison_id)
            except StoreError:
                return None

        def find(key: str, spec: TrialSpec) -> KnownTrial | None:
            trial = own.get(key)
            before = self.earlier(spec) if trial is None or trial.state == "CANCELLED" else None
            if (found := before or trial) is None:
                return None
            return KnownTrial(trial=found, comparison=comparison(found.comparison), reused=before is not None)

        known: dict[str, KnownTrial] = {}
        while True:
            requests = self.strategy(known)
            asked = {key: spec for key, spec in _candidates(requests).items() if key not in known}
            new = {key: found for key, spec in asked.items() if (found := find(key, spec)) is not None}
            known |= new
            missing = [left for request in requests if _candidates([left := _without_known(request, known)])]
            if missing or not new or any(one.trial.state not in FINISHED for one in new.values()):
                return StudyState(known=known, missing=missing)

    def advance(self, store: Store, submit: Callable[[Job], str]) -> list[str]:
        """Queue the missing comparisons, and return the ids of their jobs.

        Args:
            store: holds the known trials.
            submit: `Scheduler.submit`, or a function that checks first.

        Raises:
            TunerError: a comparison cannot be queued; those before it are.
        """
        return [submit(request.job(request.asked)) for request in self.read_progress(store).missing]

    def run(
        self,
        store: Store,
        *,
        begin: Callable[[Sequence[ComparisonRequest]], None],
        run: Callable[[Job], Status],
    ) -> StudyState:
        """Measure until the strategy asks for nothing new or a comparison is cancelled.

        Args:
            store: holds the known trials.
            begin: called with the comparisons that run next, once their jobs are checked.
            run: runs a job and waits for its end; an error it raises ends the study, which keeps its trials.
        """
        progress = self.read_progress(store)
        while progress.missing:
            jobs = [request.job(request.asked) for request in progress.missing]
            begin(progress.missing)
            ended = [run(job) for job in jobs]
            before, progress = progress, self.read_progress(store)
            learned = len(progress.known) > len(before.known)  # else the loop would never end
            if not learned or any(one.state == "CANCELLED" for one in ended):
                break
        return progress


def measured_before(
    store: Store, *, fingerprint: str, model_sha256: str
) -> Callable[[TrialSpec], Trial | None]:
    """Return a function for `Study.earlier` that finds a measurement of the same request on this machine.

    Args:
        store: holds the trials.
        fingerprint: of the machine and its libraries.
        model_sha256: content of the model.
    """

    def earlier(spec: TrialSpec) -> Trial | None:
        if not spec.repeatable:
            return None
        return store.find_complete(spec.key(), fingerprint, model_sha256=model_sha256)

    return earlier


def _candidates(requests: Sequence[ComparisonRequest]) -> dict[str, TrialSpec]:
    return {
        one.spec.key(): one.spec for request in requests for one in request.asked if one.role == "candidate"
    }


def _without_known(request: ComparisonRequest, known: Known) -> ComparisonRequest:
    """The comparison without known candidates; the baseline stays, because every comparison needs it."""
    left = [one for one in request.asked if one.role != "candidate" or one.spec.key() not in known]
    return replace(request, asked=left)
