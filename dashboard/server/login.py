"""Login with an OpenID provider, if Streamlit's secrets have `[auth]`; other visitors see the login only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import streamlit as st
from streamlit import runtime

from core.wire import variables
from dashboard.server.gate import Gate

USERS_VARIABLE = variables.USERS  # e-mail addresses or @domains, comma-separated


def is_configured() -> bool:
    """Whether the operator has set up a provider."""
    return st.secrets.load_if_toml_exists() and "auth" in st.secrets


def _providers() -> dict[str, str]:
    """Return name and label of each configured provider; an empty name: the only one."""
    named = [name for name, part in st.secrets["auth"].items() if isinstance(part, Mapping)]
    return {name: f"Log in with {name}" for name in named} or {"": "Log in"}


def is_welcome(user: Mapping[str, Any], listed: str) -> bool:
    """Whether a person authenticated by the provider may use this server.

    Args:
        user: claims of the provider.
        listed: `$ORTUNE_USERS`; empty: everybody with a login.
    """
    wanted = {one.strip().lower() for one in listed.split(",") if one.strip()}
    if not wanted:
        return True
    email = str(user.get("email") or "").lower()
    if not email or user.get("email_verified") is False:
        return False
    return email in wanted or f"@{email.rpartition('@')[2]}" in wanted


def require() -> None:
    """Continue for a visitor with access; show the login to everybody else, and end the run."""
    if not is_configured():
        _require_gate()
        return
    if not st.user.is_logged_in:
        st.title("ORTune")
        for name, label in _providers().items():
            icon = ":material/login:"
            st.button(label, type="primary", icon=icon, on_click=st.login, args=(name,) if name else ())
        st.stop()
    if not is_welcome(st.user.to_dict(), os.environ.get(USERS_VARIABLE, "")):
        st.title("ORTune")
        st.error("This account may not use this server. Ask its operator.", title="No access")
        log_out()
        st.stop()


def log_out() -> None:
    """Draw the button to log out, for a visitor with a provider's login."""
    if is_configured() and st.user.is_logged_in:
        st.button("Log out", key="log_out", type="tertiary", icon=":material/logout:", on_click=st.logout)


def _require_gate() -> None:
    """Refuse a server without the gate, as `streamlit run` starts one: other pages could send it requests."""
    if Gate.stands or type(runtime.get_instance()) is not runtime.Runtime:
        return
    st.error("Start it with `python -m dashboard`, which controls access.", title="No access control")
    st.stop()
