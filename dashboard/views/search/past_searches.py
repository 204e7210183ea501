"""Searches of a model: a list to choose from in the bar, and a closed table of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from core.show.sheets import searches
from core.spec.question import question_from_dict
from core.store import ModelRecord, StudyRecord
from dashboard import format, state
from dashboard.widgets import collapsible, past_results

STUDIES = "search.studies"
MOST, ROWS = 100, 6  # searches in the list; visible rows of the table

Show = Callable[[str], None]  # opens the search of this id


def of_model(model: ModelRecord) -> list[StudyRecord]:
    """Return the searches of a model, newest first."""
    return state.store().studies(model_sha256=model.content_sha256, limit=MOST)


def offer(found: Sequence[StudyRecord], shown: StudyRecord | None, show: Show) -> None:
    """Draw the list of searches, with the shown one selected."""
    if shown is not None and shown.id not in {one.id for one in found}:
        found = [shown, *found]  # of another model, from a link
    past_results.offer(
        "Search shown",
        {one.id: _name(one) for one in found},
        shown=shown.id if shown is not None else None,
        key="search.shown",
        on_select=show,
        alone=True,
    )


def _name(record: StudyRecord) -> str:
    """Return a label that never changes: Streamlit finds the selected option by its label."""
    question = question_from_dict(record.question)
    asked = ", ".join([question.words, *question.limit_words])
    return f"{asked} · {format.when(record.created_at)} · {record.id[:6]}"


def table(found: Sequence[StudyRecord], shown: StudyRecord | None, show: Show) -> None:
    """Draw the other searches with their results in a closed table; selecting a row opens one."""
    others = [one for one in found if shown is None or one.id != shown.id]
    if others:
        label = f"Earlier searches: {len(others)}"
        collapsible.group(label, partial(_table, others, show), key="search.earlier", icon="history")


def _table(others: Sequence[StudyRecord], show: Show) -> None:
    past_results.table(
        searches.studies(others),
        [one.id for one in others],
        key=STUDIES,
        most=ROWS,
        on_select=show,
        alt="Searches of this model with their questions and results, newest first",
    )
    st.caption("Tick a search to open or continue it.")
