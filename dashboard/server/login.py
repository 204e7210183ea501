"""The login as the pages see it: who may open one, and the line with the present person."""

from __future__ import annotations

import streamlit as st
from streamlit import runtime

from dashboard.format import plain
from dashboard.server import people
from dashboard.server.gate import Gate


def require() -> None:
    """Continue for a visitor with access; end the run of everybody else."""
    if not Gate.stands and type(runtime.get_instance()) is runtime.Runtime:
        # as `streamlit run` starts a server: other pages could send it requests
        st.error("Start it with `python -m dashboard`, which controls access.", title="No access control")
        st.stop()
    people.remember_session()
    if people.person() == people.NOBODY:
        st.error("Reload the page to log in again.", title="Your session has ended")
        st.stop()


def account() -> None:
    """Draw who is logged in, with which role, and the ways to log out; nothing without login."""
    if not people.has_login():
        return
    one = people.person()
    label = f"{plain(one.name)} · {one.role}"
    with st.popover(label, icon=":material/account_circle:", type="tertiary", key="account"):
        st.button("Log out", key="log_out", icon=":material/logout:", on_click=people.log_out)
        st.button(
            "Log out everywhere",
            key="log_out_everywhere",
            icon=":material/devices:",
            on_click=people.log_out_everywhere,
            help="Ends all your sessions in all browsers. All people with the same token are logged out, too."
            if one.id.startswith("token")
            else "Ends all your sessions in all browsers.",
        )
