"""The list of earlier results of a page: choosing one takes it up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dashboard.widgets import choice


def offer(
    label: str,
    kept: Mapping[str, str],
    *,
    shown: str | None,
    key: str,
    take_up: Callable[[str], None],
    help: str,
    labelled: bool = True,
) -> None:
    """Draw the list, where it has more than what is shown.

    Args:
        label: of the list.
        kept: id -> what it is called, newest first. The name of an id must never change: by it Streamlit
            finds the chosen one again.
        shown: id of what the page shows; another or None: nothing of the list.
        key: begins the widget's key.
        take_up: shows the chosen one; called before the page is drawn.
        help: what choosing does.
        labelled: the label is seen, too; a screen reader reads it in any case.
    """
    if not set(kept) - {shown}:
        return
    choice.draw(
        label,
        list(kept),
        key=key,
        chosen=shown if shown in kept else None,
        take_up=take_up,
        index=None,
        format_func=lambda one: kept.get(one, str(one)),
        placeholder="Open an earlier one",
        label_visibility="visible" if labelled else "collapsed",
        help=help,
    )
