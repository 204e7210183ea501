"""The ask-tell loop of sweeps and searches: propose, skip known, measure, report.

What to try next is said by a strategy, a pure function of what is known: a sweep asks for all of its points
at once. All that a study knows stands in the store, what it made itself under its name: `look` follows the
strategy through it from the start, so that another page or process finds a study where it was. A search looks
at a configuration several times and reports the last look alone; it has a room of its own (`search/`).
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
class Found:
    """A configuration that was tried, as the store lists it: without raw samples."""

    trial: Trial
    race: Comparison | None  # that it ran in; None: deleted since
    reused: bool  # measured before this study


Known = Mapping[str, Found]  # by `TrialSpec.key`, in the order in which they were asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Configurations that one job races.

    All on one protocol: a race has but one, and by its key a trial is found again.
    """

    asked: Sequence[Configuration]
    job: Callable[[Sequence[Configuration]], Job]  # that races those of them that are not known


Strategy = Callable[[Known], Sequence[Heat]]


def once(*heats: Heat) -> Strategy:
    """Return the strategy of a study of one generation: it asks for the same, whatever is known."""
    return lambda known: heats


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a study is: what is known, running trials among it, and what the strategy asks for beyond."""

    known: Known
    missing: Sequence[Heat]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Strategy and name of a study; what came of it is in the store."""

    name: str  # of its trials in the store; empty: it has none yet
    strategy: Strategy
    # measured before, and as good as measured now; see `measured_before`
    earlier: Callable[[TrialSpec], Trial | None] = lambda spec: None

    def look(self, store: Store) -> Standing:
        """Read from the store how far the study is; nothing is started."""
        own: dict[str, Trial] = {}
        for one in store.trials(study=self.name) if self.name else ():
            own.setdefault(one.key, one)  # the newest

        @cache
        def race(comparison_id: str) -> Comparison | None:
            try:
                return store.comparison(comparison_id)
            except StoreError:
                return None

        def find(key: str, spec: TrialSpec) -> Found | None:
            trial = own.get(key)
            before = self.earlier(spec) if trial is None or trial.state == "CANCELLED" else None
            if (found := before or trial) is None:
                return None
            return Found(trial=found, race=race(found.comparison), reused=before is not None)

        known: dict[str, Found] = {}
        while True:
            heats = self.strategy(known)
            asked = {key: spec for key, spec in _candidates(heats).items() if key not in known}
            new = {key: found for key, spec in asked.items() if (found := find(key, spec)) is not None}
            known |= new
            missing = [left for heat in heats if _candidates([left := _without(heat, known)])]
            if missing or not new or any(one.trial.state not in FINISHED for one in new.values()):
                return Standing(known=known, missing=missing)

    def advance(self, store: Store, submit: Callable[[Job], str]) -> list[str]:
        """Queue what is asked for and not known, and return by what the jobs are followed.

        Args:
            store: holds what is known.
            submit: `Scheduler.submit`, or what checks before.

        Raises:
            TunerError: a race cannot be queued; those before it are.
        """
        return _queue(self.look(store).missing, submit)

    def run(
        self,
        store: Store,
        submit: Callable[[Job], str],
        *,
        begin: Callable[[Sequence[Heat]], None],
        follow: Callable[[str], Status],
    ) -> Standing:
        """Go through the generations, until the strategy asks for nothing new or a race is cancelled.

        Args:
            store: see `advance`.
            submit: see `advance`.
            begin: told what a generation is going to race.
            follow: waits for the end of a job; what it raises ends the study, which keeps what it has.
        """
        standing = self.look(store)
        while standing.missing:
            begin(standing.missing)
            ended = [follow(job) for job in _queue(standing.missing, submit)]
            before, standing = standing, self.look(store)
            learned = len(standing.known) > len(before.known)  # else it would be asked for for ever
            if not learned or any(one.state == "CANCELLED" for one in ended):
                break
        return standing


def measured_before(
    store: Store, *, fingerprint: str, model_sha256: str
) -> Callable[[TrialSpec], Trial | None]:
    """Return what finds an earlier measurement of the same request on the same machine, for `Study.earlier`.

    Args:
        store: holds it.
        fingerprint: of the machine and its libraries.
        model_sha256: content of the model.
    """

    def earlier(spec: TrialSpec) -> Trial | None:
        if not spec.repeatable:
            return None
        return store.find_complete(spec.key(), fingerprint, model_sha256=model_sha256)

    return earlier


def _queue(heats: Sequence[Heat], submit: Callable[[Job], str]) -> list[str]:
    return [submit(heat.job(heat.asked)) for heat in heats]


def _candidates(heats: Sequence[Heat]) -> dict[str, TrialSpec]:
    return {one.spec.key(): one.spec for heat in heats for one in heat.asked if one.role == "candidate"}


def _without(heat: Heat, known: Known) -> Heat:
    """The heat without candidates that are known; a baseline races whenever anybody does."""
    left = [one for one in heat.asked if one.role != "candidate" or one.spec.key() not in known]
    return replace(heat, asked=left)
