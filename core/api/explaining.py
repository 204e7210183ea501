"""Explains why one result is faster than another: `explain`, and the job that the page Explain queues."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core import wire
from core.api import arguments
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session, result_of
from core.evidence.profile_difference import Difference
from core.evidence.profile_sentence import sentence
from core.process.job_worker import Run
from core.run import job_types
from core.run.explanation import Pair, explain_plan, explained, pair, profile_pair, with_its_baseline
from core.run.explanation import comparison_of_pair as comparison_of_pair
from core.run.explanation import end_to_end_of as end_to_end_of
from core.run.explanation import explained_at as explained_at
from core.run.explanation import explanations as explanations
from core.run.job import Job
from core.run.preparation import inspect_model
from core.show import documents, frames
from core.show.sheets import Line, Sheet, differences
from core.show.table import Table
from core.spec import spec_from_dict
from core.store import Store
from core.wire.errors import ErrorRecord, SpecError

NODE_GROUPS = 15  # rows of the table of nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Two results and where their difference comes from."""

    pair: Pair
    found: Difference | None  # None: they were not profiled
    error: ErrorRecord | None = None  # why they could not be profiled


@arguments.checked()
def explain(
    candidate: arguments.Ref,
    baseline: arguments.Ref | None = None,
    *,
    again: bool = False,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[Explanation]:
    """Return where the difference between two results comes from; profiles both unless that was done before.

    Args:
        candidate: result or ID of the trial to explain, or the first 6 or more characters of the ID.
        baseline: trial to compare it with, as `candidate`. None: the baseline of its comparison.
        again: profile both again.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.

    Raises:
        StoreError: there is no such trial.
        SpecError: the two cannot be explained, for example because one has no latency.
        TunerError: profiling failed or was cancelled.
    """
    judged = arguments.ident("candidate", candidate)
    base = None if baseline is None else arguments.ident("baseline", baseline)
    session = session or default_session()
    store = session.store
    of = with_its_baseline(store, judged) if base is None else pair(store, base, judged)
    result = explanation_result(store, of)
    if again or result.record.found is None:
        job = explain_job(session, of)
        session.last = result
        status = session.run(job, on_progress=on_progress, cancel=cancel)
        result = session.last = explanation_result(store, of, status.error)
        result_of(status)
    session.last = result
    return result


def explain_job(session: Session, of: Pair) -> Job:
    """Return the checked job that profiles two results in turns.

    Raises:
        ModelError: a model is missing.
        SpecError: a model has changed.
    """
    specs = [spec_from_dict(trial.spec) for trial in (of.baseline, of.candidate)]
    for spec in specs:
        inspect_model(spec, session.store, session.inspect)

    def profile(run: Run) -> Mapping[str, Any]:
        plan = explain_plan(session.store, of, fingerprint=session.fingerprint, run=run)
        return profile_pair(plan, run)

    libraries = [name for spec in specs for name in spec.session.libraries]
    return job_types.task(profile, kind=wire.EXPLAIN, what=of.what, libraries=libraries)


def explanation_result(store: Store, of: Pair, error: ErrorRecord | None = None) -> Result[Explanation]:
    """Return the result of an explanation; `error` is why its job failed."""

    def read() -> Explanation:
        return Explanation(pair=of, found=None if error else explained(store, of), error=error)

    return Result(
        kind="explanation",
        id=of.candidate.id,
        read=read,
        document=lambda one: documents.explanation(store, of, one.found, one.error),
        content=lambda one: explanation_sheet(store, one),
        says=_verdict,
        numbers=_numbers,
        store=store,
        refs=[of.baseline.id, of.candidate.id],
    )


def _verdict(one: Explanation) -> str:
    if one.found is not None:
        return sentence(one.found)
    return one.error["message"] if one.error else "The two results were not profiled yet."


def _numbers(one: Explanation) -> Table:
    """Return the parts of both results.

    Raises:
        SpecError: they are not profiled.
    """
    if one.found is None:
        raise SpecError(_verdict(one), hint="Explain them with `again=True`.")
    return frames.differences(one.found)


def explanation_sheet(store: Store, one: Explanation, *, top: int = NODE_GROUPS) -> Sheet:
    """Return sentence, parts and `top` groups of nodes, or that nothing is known."""
    if one.found is None:
        return Sheet(one.pair.what, [Line(_verdict(one), "red" if one.error else None)])
    longer = documents.longer_comparison(store, one.pair, one.found)
    return differences.explained(one.pair, one.found, top=top, comparison=longer)
