"""Login with an OpenID provider, by the routes of Streamlit's own login, if its secrets have `[auth]`.

Streamlit talks to the provider and keeps the claims in a signed cookie of its own. The gate reads that cookie
once, when Streamlit sets it, and then begins a session of ours. Streamlit's cookie alone gives no access.
Streamlit reads its configuration when it is imported, so only the functions import it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.wire.errors import SpecError

if TYPE_CHECKING:
    from starlette.types import Message, Send

CALLBACK = "/oauth2callback"
_ROUTES = ("/auth/login", "/auth/logout", CALLBACK)
ONLY = "default"  # how Streamlit calls a provider without a name

# Called with claims; returns a header to add, or None after it has answered itself.
Finish = Callable[[Mapping[str, Any]], Awaitable[tuple[bytes, bytes] | None]]


def is_configured() -> bool:
    """Whether the operator has set up a provider.

    Raises:
        SpecError: there are secrets, but they cannot be read.
    """
    import streamlit as st
    from streamlit import config

    if st.secrets.load_if_toml_exists():
        return "auth" in st.secrets
    if there := [one for one in config.get_option("secrets.files") if Path(one).exists()]:
        raise SpecError(
            f"The secrets in `{there[0]}` cannot be read, so it is unknown whether there is a login.",
            hint="Correct this TOML file, or remove it.",
        )
    return False


def providers() -> Mapping[str, str]:
    """Return the label of each configured provider by its name; empty: there is none."""
    import streamlit as st

    if not is_configured():
        return {}
    kept = ("client_kwargs",)
    named = [
        name for name, part in st.secrets["auth"].items() if isinstance(part, Mapping) and name not in kept
    ]
    return {name: f"Log in with {name}" for name in named} or {ONLY: "Log in"}


def is_encrypted() -> bool:
    """Whether browsers reach this server by HTTPS, as its redirect address says."""
    return redirect_address().startswith("https:")


def redirect_address() -> str:
    """Return the address to which providers send a browser back."""
    import streamlit as st

    return str(st.secrets["auth"].get("redirect_uri", ""))


def routes() -> tuple[str, ...]:
    """Return the paths that a browser asks for before it has a session."""
    from streamlit import config
    from streamlit.url_util import make_url_path

    return tuple(make_url_path(config.get_option("server.baseUrlPath"), one) for one in _ROUTES)


def login_path(name: str) -> str:
    """Return the path that leads to a provider; it is valid for two minutes."""
    from streamlit.user_info import generate_login_redirect_url

    return generate_login_redirect_url(name)


def logout_path() -> str:
    """Return the path that removes Streamlit's cookies and leads to the provider's own log-out."""
    return routes()[1]


def finishing_login(path: str, send: Send, finish: Finish) -> Send:
    """Return a `send` that begins our session when Streamlit's callback route has authenticated a person."""
    if not path.endswith(CALLBACK):
        return send
    refused = False

    async def send_on(message: Message) -> None:
        nonlocal refused
        if message["type"] == "http.response.start" and (claims := _claims(message.get("headers", []))):
            header = await finish(claims)
            refused = header is None
            message = {**message, "headers": [*message["headers"], *([header] if header else [])]}
        if not refused:
            await send(message)

    return send_on


def _claims(headers: list[tuple[bytes, bytes]]) -> Mapping[str, Any]:
    """Return the claims in the cookies that Streamlit sets; empty: it authenticated nobody."""
    from streamlit.auth_util import get_cookie_with_chunks
    from streamlit.web.server.server_util import get_cookie_secret
    from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
    from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

    cookies: SimpleCookie = SimpleCookie()
    for name, value in headers:
        if name.lower() == b"set-cookie":
            try:
                cookies.load(value.decode("latin-1"))
            except CookieError:
                continue

    def single(name: str) -> bytes | None:
        value = cookies[name].value if name in cookies else ""
        return decode_signed_value(get_cookie_secret(), name, value.encode("latin-1")) if value else None

    body = get_cookie_with_chunks(single, USER_COOKIE_NAME)
    try:
        found = json.loads(body) if body else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("is_logged_in") else {}
