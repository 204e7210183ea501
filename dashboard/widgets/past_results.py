"""The list of earlier results of a page: choosing one shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dashboard.widgets import choice


def offer(
    label: str,
    kept: Mapping[str, str],
    *,
    shown: str | None,
    key: str,
    on_select: Callable[[str], None],
    help: str,
    labelled: bool = True,
) -> None:
    """Draw the list, if it has more than the shown result.

    Args:
        label: of the list.
        kept: id -> name, newest first. The name of an id must never change: Streamlit identifies the
            choice by it.
        shown: id of the result on the page; None or not in the list: none of them.
        key: begins the widget's key.
        on_select: shows the chosen result; called before the page is drawn.
        help: effect of a choice.
        labelled: whether the label is visible; a screen reader reads it in any case.
    """
    if not set(kept) - {shown}:
        return
    choice.draw(
        label,
        list(kept),
        key=key,
        chosen=shown if shown in kept else None,
        on_select=on_select,
        index=None,
        format_func=lambda one: kept.get(one, str(one)),
        placeholder="Open an earlier one",
        label_visibility="visible" if labelled else "collapsed",
        help=help,
    )
