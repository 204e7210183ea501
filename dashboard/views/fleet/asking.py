"""The form that asks a fleet about the current model."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from core.api.fleet import Asked
from core.spec.presets import PRESETS
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import messages, state
from dashboard.fleet_client import scheduler_address
from dashboard.format import plain

COMMAND, BUDGET, HOSTS, PORTABILITY, CANDIDATES = (
    f"fleet.ask.{name}" for name in ("command", "budget", "hosts", "portability", "presets")
)
SEARCH, COMPARE = "Search", "Compare presets"
BUDGETS = {"30 s": 30, "1 min": 60, "2 min": 120, "5 min": 300, "10 min": 600}
MOST_PRESETS = 7  # of one comparison


def draw(record: ModelRecord | None, shown: Callable[[str], None]) -> None:
    """Draw the popover with the form.

    Args:
        record: the current model; None: there is none.
        shown: called with the ID of a started run.
    """
    with st.popover("Ask hosts", icon=":material/play_arrow:", key="fleet.ask", disabled=record is None):
        if record is None:
            return
        address = scheduler_address()
        st.caption(f"Hosts: {plain(address)}" if address else "This machine is the only host.")
        command = st.segmented_control("Question", [SEARCH, COMPARE], default=SEARCH, key=COMMAND)
        st.select_slider("Time budget", list(BUDGETS), value="1 min", key=BUDGET)
        if command == COMPARE:
            names = [name for name in PRESETS if name != "default"]
            st.multiselect(
                "Presets",
                names,
                default=names[:2],
                key=CANDIDATES,
                max_selections=MOST_PRESETS,
                format_func=lambda name: PRESETS[name][0],
            )
        else:
            st.toggle(
                "Compare all winners",
                key=PORTABILITY,
                help="After the searches, compares all winners on every host, for one configuration for all.",
            )
        st.text_input("Hosts", value="all", key=HOSTS, help="`all`, names, or labels such as `cpu=epyc`.")
        st.button(
            "Ask",
            key="fleet.ask.start",
            type="primary",
            on_click=_start,
            args=(record.path, shown),
            **state.unless_closed("Every host answers with its own measurements.", role="admin"),
        )


def question(model: str) -> Asked:
    """Return the question of the form about a model."""
    budget = f"--budget={BUDGETS[st.session_state[BUDGET]]}"
    if st.session_state[COMMAND] != COMPARE:
        return Asked(command="search", model=model, arguments=[budget])
    chosen = [f"--candidate=preset:{name}" for name in st.session_state.get(CANDIDATES) or []]
    return Asked(command="compare", model=model, arguments=[*chosen, budget])


def _start(model: str, shown: Callable[[str], None]) -> None:
    try:
        state.refuse_if_closed("admin")
        run = state.fleet_client().start(
            state.session(),
            question(model),
            on=st.session_state.get(HOSTS) or "all",
            portability=bool(st.session_state.get(PORTABILITY)) and st.session_state[COMMAND] != COMPARE,
        )
        shown(run)
    except TunerError as error:
        messages.keep_error(error)
