"""Stored results by their ID: `load_result`."""

from __future__ import annotations

from typing import Any

from core.api import arguments
from core.api.explaining import explanation_result
from core.api.judging import Accuracies, accuracy_result
from core.api.load import load_test_result
from core.api.measuring import comparison_result, trial_result
from core.api.results import Result
from core.api.searching import search_result
from core.api.session import Session, clean_up, default_session
from core.api.upgrading import upgrade_result
from core.run.best_point import rank_points
from core.show import documents, frames
from core.show.fleet_text import answer
from core.show.report.subjects import (
    About,
    AboutComparison,
    AboutDifference,
    AboutFleet,
    AboutLoad,
    AboutScorecard,
    AboutSearch,
    AboutSweep,
    AboutTrial,
    AboutUpgrade,
    find,
)
from core.show.sheets import Sheet, scorecards, sweeps
from core.show.sheets.fleet import long_table, run_sheet
from core.spec.effort import DEFAULT_MARGIN
from core.store import Store
from core.wire.errors import StoreError


@arguments.checked()
def load_result(
    ref: arguments.Ref, baseline: arguments.Ref | None = None, *, session: Session | None = None
) -> Result[Any]:
    """Return a stored result.

    Args:
        ref: ID of a trial, load test, comparison, search, upgrade, accuracy or fleet run, or its first 6 or
            more characters; name of a sweep or a scorecard.
        baseline: ID of a trial; then `ref` is the trial that was explained relative to it, as in
            `load_result(candidate, baseline)`.
        session: see `tune`.

    Raises:
        StoreError: no result or several results have that name.
        SpecError: the two trials were not explained yet.
    """
    refs = [arguments.ident("ref", ref)]
    if baseline is not None:
        refs = [arguments.ident("baseline", baseline), *refs]
    session = session or default_session()
    store = session.store
    clean_up(store)
    try:
        about = find(store, refs)
    except StoreError:
        accuracy = _accuracy(store, refs[0]) if len(refs) == 1 else None
        if accuracy is None:
            raise
        return accuracy
    return _result_of(session, about)


def _result_of(session: Session, about: About) -> Result[Any]:
    store = session.store
    match about:
        case AboutLoad():
            return load_test_result(session, about.trial.id)
        case AboutTrial():
            return trial_result(session, about.trial.id)
        case AboutComparison():
            return comparison_result(session, about.comparison.id)
        case AboutSearch():
            return search_result(session, about.record.id)
        case AboutDifference():
            return explanation_result(store, about.pair)
        case AboutSweep():
            return _stored_sweep(store, about)
        case AboutScorecard():
            return _stored_scorecard(store, about)
        case AboutUpgrade():
            return upgrade_result(session, about.record.id)
        case AboutFleet():
            return _stored_fleet(store, about)


def _stored_fleet(store: Store, about: AboutFleet) -> Result[AboutFleet]:
    """Return a stored fleet run; its frame has a row for each host and configuration of the main question."""
    main = about.summary.main
    return Result(
        kind="fleet",
        id=about.summary.run.id,
        read=lambda: about,
        document=lambda one: documents.fleet(one.summary),
        content=lambda one: run_sheet(one.summary.run, found=one.summary),
        says=None if main is None else lambda _: answer(main)[0],
        numbers=None if main is None else lambda _: long_table(main.matrix, main.portability),
        store=store,
        refs=[about.summary.run.id],
    )


def _accuracy(store: Store, ref: str) -> Result[Accuracies] | None:
    try:
        return accuracy_result(Accuracies(found=[store.accuracy(ref)]))
    except StoreError:  # there is none, or several
        return None


def _stored_sweep(store: Store, about: AboutSweep) -> Result[AboutSweep]:
    """Return a stored sweep: the document of its comparison, and the table of its points."""
    ranking = rank_points(
        about.points, line_s=None, margin=about.comparison.protocol.get("margin", DEFAULT_MARGIN)
    )
    return Result(
        kind="sweep",
        id=about.comparison.study,
        read=lambda: about,
        document=lambda one: documents.comparison(store, one.comparison),
        content=lambda one: Sheet(sweeps.sentence(one.points, ranking), [sweeps.points(one.points, ranking)]),
        says=lambda one: sweeps.sentence(one.points, ranking),
        store=store,
        refs=[about.comparison.study],
    )


def _stored_scorecard(store: Store, about: AboutScorecard) -> Result[AboutScorecard]:
    return Result(
        kind="scorecard",
        id=about.name,
        read=lambda: about,
        document=lambda card: {"scorecards": [documents.scorecard(row) for row in card.rows]},
        content=lambda card: Sheet(
            card.name, [part for row in card.rows for part in scorecards.scorecard(row).parts]
        ),
        says=lambda card: scorecards.headline(card.rows),
        numbers=lambda card: frames.targets(card.rows),
        store=store,
        refs=[about.name],
    )
