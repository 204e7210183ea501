"""Share results with the team, or make them private; nothing is drawn on a server without login."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.store import Visibility
from core.wire.errors import TunerError
from dashboard import messages, state


def button(ids: Sequence[str], *, key: str) -> None:
    """Draw the button that shares results or makes them private, for their person and for admins.

    Args:
        ids: of trials, comparisons, searches, accuracies or models.
        key: of the button.
    """
    actor = state.present_actor()
    if actor is None or not ids:
        return
    known = state.store().visibility(ids)
    found = [known.get(one, Visibility()) for one in ids]
    private = all(one.private for one in found)
    others = not actor.sees_all and any(one.person != actor.person for one in found)
    about = "Shows it to the team." if private else "Hides it from all but you and the admins."
    st.button(
        "Share" if private else "Make private",
        key=key,
        icon=":material/group:" if private else ":material/lock:",
        on_click=_share,
        args=(list(ids), not private),
        **state.unless_closed(
            "Only its person and admins change who sees a result."
            if others
            else f"{about} Its comparison or search goes with it.",
            off=others,
        ),
    )


def _share(ids: Sequence[str], private: bool) -> None:
    try:
        state.store().share(ids, private=private)
    except TunerError as error:
        messages.keep_error(error)
