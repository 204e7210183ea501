"""Share results with the team, or make them private; nothing is drawn on a server without login."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from core.store import Visibility
from core.wire.errors import TunerError
from dashboard import messages, state

WITH_COMPARISON = "Its comparison or search goes with it."


def button(ids: Sequence[str], *, key: str, more: str = WITH_COMPARISON) -> None:
    """Draw the button that shares results or makes them private, for their person and for admins.

    Args:
        ids: of trials, comparisons, searches, accuracies, models or imports.
        key: of the button.
        more: what goes with it, in one sentence; empty: nothing.
    """
    if state.present_actor() is None or not ids:
        return
    known = state.store().visibility(ids)
    private = all(one in known and known[one].private for one in ids)
    about = "Shows it to the team." if private else "Hides it from all but you and the admins."
    st.button(
        "Share" if private else "Make private",
        key=key,
        icon=":material/group:" if private else ":material/lock:",
        on_click=_share,
        args=(list(ids), not private),
        **unless_of_others(ids, f"{about} {more}".rstrip()),
    )


def unless_of_others(ids: Sequence[str], help: str) -> dict[str, Any]:
    """Return arguments of a control that changes results: disabled for those of others; see `unless_closed`.

    Args:
        ids: of the results.
        help: of the enabled control.
    """
    actor = state.present_actor()
    if actor is None or actor.sees_all:
        return state.unless_closed(help)
    known = state.store().visibility(ids)
    others = any(known.get(one, Visibility()).person != actor.person for one in ids)
    return state.unless_closed(_OTHERS if others else help, off=others)


_OTHERS = "Only the person who made a result, and admins, may do this."


def _share(ids: Sequence[str], private: bool) -> None:
    try:
        state.store().share(ids, private=private)
    except TunerError as error:
        messages.keep_error(error)
