"""Loads the subject of a report from the store, by the references of commands and pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.evidence.comparison import Comparison
from core.evidence.fleet.summary import Summary
from core.evidence.load.load_types import LoadResult
from core.evidence.measurement import Trial
from core.evidence.profile_difference import Difference
from core.evidence.upgrade import STUDY, UpgradeRecord, UpgradeRow
from core.run import sweep
from core.run.explanation import Pair, explained, pair
from core.run.fleet.answers import summary as fleet_summary
from core.run.scorecard import ScorecardRow, Subject, rows
from core.run.sweep import Measured
from core.run.upgrade import found_rows, upgrades
from core.show.load_text import load_of
from core.show.verdict import stored_comparison
from core.spec import spec_from_dict
from core.spec.axes import STUDY_PREFIX, axes_of_study
from core.spec.space import Axis
from core.store import ModelRecord, Query, Store, StudyRecord
from core.store.library import resolve_model
from core.wire.errors import SpecError, StoreError, TunerError

CARD = "scorecard #"

_TOKEN = re.compile(r"#?([0-9a-f]{6,})")

_LONGER_ID = "Give more characters of the ID."


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutTrial:
    """A measurement or a profile, with its comparison."""

    trial: Trial
    comparison: Comparison | None
    beside: Sequence[Trial] = ()  # the other trials of the comparison, with raw measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutLoad:
    """A load test that has a result."""

    trial: Trial
    result: LoadResult


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutComparison:
    """A comparison and its trials with raw measurements."""

    comparison: Comparison
    trials: Sequence[Trial]


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutSearch:
    """A search; `trials` are those of its result that are still stored."""

    record: StudyRecord
    trials: Mapping[str, Trial]


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutSweep:
    """A sweep over one or two settings, and the comparison of its points."""

    axes: Sequence[Axis]
    points: Sequence[Measured]
    comparison: Comparison
    trials: Sequence[Trial]


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutScorecard:
    """A scorecard of configurations."""

    name: str  # key in the store
    rows: Sequence[ScorecardRow]
    trials: Sequence[Trial] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutDifference:
    """Why two results differ."""

    pair: Pair
    found: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutUpgrade:
    """Models in two versions of ONNX Runtime; `trials` are those of both runtimes."""

    record: UpgradeRecord
    rows: Sequence[UpgradeRow]
    trials: Sequence[Trial]


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutFleet:
    """A fleet run and what it says."""

    summary: Summary


About = (
    AboutTrial
    | AboutLoad
    | AboutComparison
    | AboutSearch
    | AboutSweep
    | AboutScorecard
    | AboutDifference
    | AboutUpgrade
    | AboutFleet
)


def find(store: Store, refs: Sequence[str]) -> About:
    """Return the result that one or two references name.

    Args:
        store: to search.
        refs: one: a trial, a comparison, a search, an upgrade, a fleet run, or the name of a sweep or of a
            scorecard, with the first 6 or more characters of an ID; two: the baseline and the candidate of an
            explanation.

    Raises:
        SpecError: there is nothing to report yet, or there are too many references.
        StoreError: no result or several results have that name.
    """
    if len(refs) == 2:
        return _why(store, refs[0], refs[1])
    if len(refs) != 1:
        raise SpecError(
            f"A report covers one result, or two trials to explain, but got {len(refs)} IDs.",
            hint="Give one ID, or the IDs of a baseline and a candidate.",
        )
    ref = refs[0].strip()
    found: list[About] = []
    for kind, look in _LOOKS.items():
        try:
            found += look(store, ref)
        except StoreError as error:
            if _is_ambiguous(error):
                raise StoreError(f"More than one {kind} begins with `{ref}`.", hint=_LONGER_ID) from None
            if not _is_unknown(error):
                raise
    if len(found) > 1:
        raise StoreError(
            f"`{ref}` matches the IDs of {len(found)} results of different kinds.",
            hint=_LONGER_ID,
        )
    if not found:
        raise StoreError(
            f"There is no trial, comparison, search, sweep, scorecard, upgrade or fleet run `{ref[:80]}`.",
            hint="Choose an ID that `history` lists, or that of a search.",
        )
    return found[0]


def _is_unknown(error: StoreError) -> bool:
    return error.message.startswith("There is no ")


def _is_ambiguous(error: StoreError) -> bool:
    return error.message.startswith("More than one ")


# --- kinds of results ---------------------------------------------------------------------------------------


def _trials(store: Store, ref: str) -> list[About]:
    return [of_trial(store, store.trial(ref))]


def _comparisons(store: Store, ref: str) -> list[About]:
    return [of_comparison(store, store.comparison(ref))]


def _searches(store: Store, ref: str) -> list[About]:
    return [of_search(store, store.study(ref))]


def _named(store: Store, ref: str) -> list[About]:
    """Return sweeps and scorecards by name or by the characters after `#`."""
    token = _TOKEN.fullmatch(ref)
    names = [
        one for one in store.comparison_studies() if one == ref or (token and one.endswith(f"#{token[1]}"))
    ]
    return [about for name in names if (about := of_study(store, name)) is not None]


def _upgrades(store: Store, ref: str) -> list[About]:
    token = _TOKEN.fullmatch(ref.removeprefix(STUDY))
    found = upgrades(store, token[1]) if token else []
    return [of_upgrade(store, one) for one in found]


def _fleets(store: Store, ref: str) -> list[About]:
    return [AboutFleet(summary=fleet_summary(ref, store))]


_LOOKS: Mapping[str, Callable[[Store, str], list[About]]] = {
    "trial": _trials,
    "comparison": _comparisons,
    "search": _searches,
    "study": _named,
    "upgrade": _upgrades,
    "fleet run": _fleets,
}


def of_trial(store: Store, trial: Trial) -> AboutTrial | AboutLoad:
    """Return a trial with its comparison, if that is still stored; or a load test."""
    if (load := load_of(trial)) is not None:
        return AboutLoad(trial=trial, result=load)
    comparison = stored_comparison(store, trial.comparison)
    others = (
        [one.trial for one in comparison.contestants if one.trial != trial.id]
        if comparison is not None
        else []
    )
    return AboutTrial(trial=trial, comparison=comparison, beside=_with_samples(store, others))


def _with_samples(store: Store, ids: Sequence[str]) -> list[Trial]:
    """Return trials with their raw measurements, without deleted ones."""
    found = []
    for one in ids:
        try:
            found.append(store.trial(one))
        except StoreError:
            continue
    return found


def of_comparison(store: Store, comparison: Comparison) -> AboutComparison | AboutSweep:
    """Return a comparison; for the comparison of a sweep, the sweep.

    Raises:
        SpecError: it has not finished.
    """
    if comparison.state in ("WAITING", "RUNNING"):
        raise SpecError(f"The comparison `{comparison.id[:12]}` has not ended.", hint="Wait until it has.")
    trials = _with_samples(store, [one.trial for one in comparison.contestants])
    axes = axes_of_study(comparison.study)
    if axes and (points := _points(store, axes, comparison, trials)):
        return AboutSweep(axes=axes, points=points, comparison=comparison, trials=trials)
    return AboutComparison(comparison=comparison, trials=trials)


def _points(
    store: Store, axes: Sequence[Axis], comparison: Comparison, trials: Sequence[Trial]
) -> list[Measured]:
    record = store.model(comparison.model_sha256)
    models = sweep.models(store, record) if record is not None else {}
    asked = {one.trial for one in comparison.contestants if one.role == "candidate"}
    rows = [sweep.of_trial(one, axes, models, comparison) for one in trials if one.id in asked]
    return [one for one in rows if one is not None]


def of_search(store: Store, record: StudyRecord) -> AboutSearch:
    """Return a search with the trials of its result.

    Raises:
        SpecError: it has not finished.
    """
    if record.state in ("WAITING", "RUNNING"):
        raise SpecError(f"The search `{record.id[:12]}` has not ended.", hint="Wait until it has.")
    answer = record.answer or {}
    named = [one["trial"] for one in (answer.get("winner"), answer.get("default")) if one]
    return AboutSearch(record=record, trials={one.id: one for one in _with_samples(store, named)})


def of_study(store: Store, name: str) -> About | None:
    """Return the sweep or scorecard of that name; None: there is none, or it is no longer stored."""
    comparisons = store.comparisons(study=name, limit=1)
    if not comparisons:
        return None
    if name.startswith(CARD):
        own = [one for one in store.trials(study=name) if one.spec.get("targets")]
        return of_targets(store, own, name) if own else None
    return of_comparison(store, comparisons[0]) if name.startswith(f"{STUDY_PREFIX} ") else None


def of_targets(store: Store, trials: Sequence[Trial], name: str) -> AboutScorecard | None:
    """Return the scorecard of configurations that were measured for targets, on the machine of the first.

    A target may name a larger batch size, which has its own comparison. The smallest batch size is that of
    the configuration itself. None if the models are no longer in the library.
    """
    subjects, seen = [], set()
    for trial in sorted(trials, key=lambda one: one.spec.get("workload", {}).get("batch_size") or 1):
        record, spec = _model_of(store, trial), spec_from_dict(trial.spec)
        asked = spec.model_copy(update={"workload": spec.workload.model_copy(update={"batch_size": None})})
        if record is None or asked.key() in seen:
            continue
        seen.add(asked.key())
        subjects.append(Subject(label=trial.model_name or record.name, spec=spec, record=record))
    if not subjects:
        return None
    targets, fingerprint = subjects[0].spec.targets, trials[0].fingerprint
    same = [one for one in subjects if one.spec.targets == targets]
    return of_card(store, rows(store, same, targets, fingerprint=fingerprint), name)


def _model_of(store: Store, trial: Trial) -> ModelRecord | None:
    """Return the model of a trial, from the library or its file; None: it is missing or has changed."""
    try:
        record = store.model(trial.model_sha256) or resolve_model(store, str(trial.spec["model"]["path"]))
    except TunerError:
        return None
    return record if record.content_sha256 == trial.model_sha256 else None


def of_card(store: Store, card: Sequence[ScorecardRow], name: str) -> AboutScorecard:
    """Return a scorecard with the newest trials that decide its targets."""
    comparisons = [found[:1] for row in card for found in row.evidence.results.values()]
    ids = dict.fromkeys(str(one["trial"]) for found in comparisons for one in found)
    loads = {trial for row in card for trial in row.trials} - set(ids)
    query = Query(kind="load", ids=sorted(loads), archived=True)
    tested = store.trial_page(query, limit=len(loads))[0] if loads else []
    return AboutScorecard(name=name, rows=card, trials=[*_with_samples(store, list(ids)), *tested])


def of_upgrade(store: Store, record: UpgradeRecord) -> AboutUpgrade:
    """Return an upgrade with what its comparisons show."""
    rows_of = found_rows(store, record)
    both = [one for row in rows_of for one in (row.before, row.after) if one is not None]
    return AboutUpgrade(record=record, rows=rows_of, trials=both)


def _why(store: Store, baseline: str, candidate: str) -> AboutDifference:
    of = pair(store, baseline, candidate)
    found = explained(store, of)
    if found is None:
        raise SpecError(
            "These two trials are not explained yet.",
            hint=f"Explain them first: `ortune explain {of.baseline.id[:12]} {of.candidate.id[:12]}`.",
        )
    return AboutDifference(pair=of, found=found)
