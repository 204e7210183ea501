"""What a session of a demonstration opens: a recorded result, and a model with recorded results."""

from __future__ import annotations

import streamlit as st

from dashboard import demo, state
from dashboard.pages import PAGES

OPENED = "opened"  # session key: this session has shown the result on which a demonstration opens


def opening() -> str | None:
    """Return the recorded result on which a demonstration opens, once per session; None: the page decides."""
    if not state.recorded() or st.session_state.get(OPENED):
        return None
    st.session_state[OPENED] = True
    return opening_id() if _no_model_chosen() else None


def _no_model_chosen() -> bool:
    return st.session_state.get(state.MODEL) == st.session_state.get(state.FALLBACK)


def choose_model(page: str) -> None:
    """Open each page of a demonstration on a model with recorded results, until somebody chooses a model.

    Args:
        page: folder of the view of the page.
    """
    if not state.recorded() or not _no_model_chosen():
        return
    state.add_samples()
    seen = _recorded_models(page)
    if seen and st.session_state.get(state.MODEL) not in seen:
        st.session_state[state.MODEL] = st.session_state[state.FALLBACK] = seen[0]


@st.cache_resource(show_spinner=False)
def _recorded_models(page: str) -> list[str]:
    return list(PAGES[page].recorded(state.store()))


@st.cache_resource(show_spinner=False)
def opening_id() -> str | None:
    """Return the id of the clearest speed-up among recorded results; None: there is none."""
    return demo.opening(state.store())
