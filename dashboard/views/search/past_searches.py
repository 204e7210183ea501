"""Searches of a model: a list to choose from in the bar, and a closed table of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from core.show.sheets import searches
from core.spec.question import question_from_dict
from core.store import ModelRecord, StudyRecord
from core.wire.errors import TunerError
from dashboard import format, state
from dashboard.widgets import choice, collapsible, tables

STUDIES = "search.studies"
MOST, ROWS = 100, 6  # searches in the list; visible rows of the table

OpenSearch = Callable[[StudyRecord], None]  # shows a search; may raise `TunerError`


def of_model(model: ModelRecord) -> list[StudyRecord]:
    """Return the searches of a model, newest first."""
    return state.store().studies(model_sha256=model.content_sha256, limit=MOST)


def pick(found: Sequence[StudyRecord], shown: StudyRecord | None, open_search: OpenSearch) -> None:
    """Draw the list of searches, with the shown one selected."""
    if shown is not None and shown.id not in {one.id for one in found}:
        found = [shown, *found]  # of another model, from a link
    if not found:
        return
    kept = {one.id: one for one in found}
    choice.draw(
        "Search shown",
        list(kept),
        key="search.shown",
        chosen=shown.id if shown is not None else None,
        on_select=lambda study: _try(open_search, kept[study]),
        format_func=lambda one: _name(kept[one]) if one in kept else str(one),
        placeholder="Open an earlier search",
    )


def _name(record: StudyRecord) -> str:
    """Return a label that never changes: Streamlit finds the selected option by its label."""
    question = question_from_dict(record.question)
    asked = ", ".join([question.words, *question.limit_words])
    return f"{asked} · {format.when(record.created_at)} · {record.id[:6]}"


def table(found: Sequence[StudyRecord], shown: StudyRecord | None, open_search: OpenSearch) -> None:
    """Draw the other searches with their results in a closed table; selecting a row opens one."""
    others = [one for one in found if shown is None or one.id != shown.id]
    if others:
        label = f"Earlier searches: {len(others)}"
        collapsible.group(label, partial(_table, others, open_search), key="search.earlier", icon="history")


def _table(others: Sequence[StudyRecord], open_search: OpenSearch) -> None:
    key = f"{STUDIES}.{others[0].id}.{len(others)}"  # a new key drops the selection

    def reopen() -> None:
        picked = st.session_state[key]["selection"]["rows"]
        if picked and picked[0] < len(others):
            _try(open_search, others[picked[0]])

    tables.draw(
        searches.studies(others),
        key=key,
        most=ROWS,
        on_select=reopen,
        mode="single-row",
        alt="Searches of this model with their questions and results, newest first",
    )
    st.caption("Tick a search to open or continue it.")


def _try(open_search: OpenSearch, record: StudyRecord) -> None:
    try:
        open_search(record)
    except TunerError as error:
        state.keep_error(error)
