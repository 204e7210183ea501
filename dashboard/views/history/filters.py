"""Filters and order of the table on the History page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.show.words import STATE_WORDS
from core.store import Order, Query
from dashboard import state
from dashboard.widgets import page_frame, results

ALL = "all"
KIND = "history.kind"
REFERENCE = "reference"
ORDERS: Mapping[Order, str] = {
    "study": "newest first, by study",
    "newest": "newest first",
    "oldest": "oldest first",
    "p50": "p50, fastest first",
    "gain": "speed-up over the baseline",
}


def draw(models: Sequence[str], bar: page_frame.Bar) -> Query:
    """Draw the filters into the bar and return them as a query.

    Args:
        models: names of all models that were measured.
        bar: of the page.
    """
    with bar.model:
        model = st.selectbox(
            "Model",
            [ALL, *models],
            key="history.model",
            persist_state="session",
            format_func=lambda name: "all models" if name == ALL else name,
            help="Only trials of this model.",
        )
    with bar.choice:
        text = st.text_input(
            "Search",
            key="history.search",
            persist_state="session",
            placeholder="Search: id, setting, label, note",
            label_visibility="collapsed",
            help="All words must occur in the trial's id, model, settings, providers, owner, study, error, "
            "labels or note.",
        )
        order = st.selectbox(
            "Order",
            list(ORDERS),
            key="history.order",
            persist_state="session",
            width=190,
            format_func=ORDERS.__getitem__,
            help="Applies to all pages. Rejected results sort last.",
        )
        more = _more_filters()
    return Query(
        model_name=None if model in (ALL, None) else model,
        text=text or "",
        order=order,
        **more,
    )


FILTERS = tuple(f"history.{name}" for name in ("kind", "state", "labels", "starred", "archived", "mine"))


def _more_filters() -> dict[str, Any]:
    """Draw the less common filters in a popover that shows how many are set."""
    used = sum(st.session_state.get(key) not in (None, ALL, False, []) for key in FILTERS)
    with st.popover(
        f"Filters ({used})" if used else "Filters", icon=":material/filter_alt:", key="history.filters"
    ):
        kind = st.selectbox(
            "Kind",
            [ALL, "measure", "load", "profile", REFERENCE],
            key=KIND,
            persist_state="session",
            help="measure: latency results. load: load tests. profile: times of nodes, slower than normal. "
            "reference: measured only for a comparison, hidden under `all`.",
        )
        wanted = st.multiselect(
            "State",
            list(results.STATES),
            key="history.state",
            persist_state="session",
            placeholder="any",
            format_func=STATE_WORDS.__getitem__,
            help="Empty: any state.",
        )
        labels = st.multiselect(
            "Labels",
            state.store().labels(),
            key="history.labels",
            persist_state="session",
            placeholder="any",
            help="Only trials that have all of these labels.",
        )
        starred = st.toggle(
            "Stars only", key="history.starred", persist_state="session", help="Only trials with a star."
        )
        archived = st.toggle(
            "With archived",
            key="history.archived",
            persist_state="session",
            help="Includes archived trials.",
        )
        actor = state.present_actor()
        mine = actor is not None and st.toggle(
            "Mine only", key="history.mine", persist_state="session", help="Only trials that you started."
        )
    return {
        "person": actor.person if actor is not None and mine else None,
        "kind": None if kind in (ALL, None) else kind,
        "states": tuple(wanted),
        "starred": starred,
        "archived": archived,
        "labels": tuple(labels),
    }
