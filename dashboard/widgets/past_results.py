"""The earlier results of a page: a list in its bar, and a table; choosing one shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from core.show.table import Table
from dashboard.widgets import choice, tables


def offer(
    label: str,
    kept: Mapping[str, str],
    *,
    shown: str | None,
    key: str,
    on_select: Callable[[str], None],
    help: str | None = None,
    alone: bool = False,
) -> None:
    """Draw the list, if it has more than the shown result.

    Args:
        label: of the list, for screen readers.
        kept: id -> name, newest first. The name of an id must never change: Streamlit identifies the
            choice by it.
        shown: id of the result on the page; None or not in the list: none of them.
        key: begins the widget's key.
        on_select: shows the chosen result; called before the page is drawn.
        help: effect of a choice.
        alone: draw it with the shown result alone, too, where only the list says which one that is.
    """
    if not set(kept) - (set() if alone else {shown}):
        return
    choice.draw(
        label,
        list(kept),
        key=key,
        chosen=shown if shown in kept else None,
        on_select=on_select,
        format_func=lambda one: kept.get(one, str(one)),
        placeholder="Open an earlier one",
        help=help,
    )


def table(
    found: Table, ids: Sequence[str], *, key: str, most: int, on_select: Callable[[str], None], alt: str
) -> None:
    """Draw earlier results with their numbers; ticking one opens it.

    Args:
        found: a row for each of `ids`.
        ids: of the results, newest first.
        key: begins the widget's key.
        most: rows visible without scrolling.
        on_select: shows the ticked result; called before the page is drawn.
        alt: text for screen readers.
    """
    own = f"{key}.{tables.key_of(ids)}"

    def ticked() -> None:
        rows = st.session_state[own]["selection"]["rows"]
        if rows and rows[0] < len(ids):
            on_select(ids[rows[0]])

    tables.draw(found, key=own, most=most, on_select=ticked, mode="single-row", alt=alt)
