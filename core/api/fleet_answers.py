"""Answers of fleet runs, for pages, commands and scripts."""

from __future__ import annotations

from core.api.results import Result
from core.api.session import Session
from core.evidence.fleet.summary import Summary
from core.run.fleet.answers import latest as latest
from core.run.fleet.answers import listed as listed
from core.run.fleet.answers import summary as summary
from core.run.fleet.answers import summary_of as summary_of
from core.show import documents
from core.show.sheets.fleet import run_sheet


def fleet_result(session: Session, ref: str) -> Result[Summary]:
    """Return the result of a fleet run by its ID, also while it runs."""
    store = session.store
    return Result(
        kind="fleet",
        id=ref,
        read=lambda: summary(ref, store),
        document=documents.fleet,
        content=lambda one: run_sheet(one.run, found=one),
        store=store,
        refs=[ref],
    )
