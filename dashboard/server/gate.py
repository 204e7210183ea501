"""The gate in front of the server: which hosts, pages and people may send requests, and what a page may do.

Streamlit accepts any Host, any port of localhost as origin, and asks a web service for this machine's
external address before it refuses another. The gate checks every request first. A Host that is not
ours could be a name that resolves to this machine (DNS rebinding), and an Origin that is not exactly that
Host is another page.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import html
import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

import psutil

from core.wire import variables
from core.wire.errors import TunerError
from dashboard.server import provider
from dashboard.server.audited import UPLOADS, record_saved_file, record_wrong_token, recording_upload
from dashboard.server.connections import Connections
from dashboard.server.login_sessions import COOKIE, PERSON, cookie_in
from dashboard.server.wrong_tokens import WrongTokens, retry_after

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dashboard.server.login_sessions import LoginSession
    from dashboard.server.people import Access, Person

TOKEN_VARIABLE = variables.TOKEN
MIN_TOKEN = 16  # characters: too long to guess through the network
LOGIN = "_login"
HEALTH = "/_stcore/health"  # says "ok" and nothing else; container engines poll it without a login
WRONG_TOKEN_S = 1.0  # delay before the next attempt
MAX_FORM_BYTES = 4096

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_ROOT_COOKIE = re.compile(rb"; *path=/(?=;|$)", re.IGNORECASE)
_ORIGIN = re.compile(rf"(?P<scheme>https?)://{_HOST.pattern}")
_PORTS = {"http": 80, "https": 443}
_SENDING = ("POST", "PUT", "PATCH", "DELETE")  # uploads: viewers send nothing by HTTP
OTHER_RUN = "Reload the page: it belongs to another run of the server."  # for a wrong key or token


# --- allowed hosts and origins ------------------------------------------------------------------------------


def is_loopback(address: str) -> bool:
    """Whether `address`, a name or a number, reaches this machine alone."""
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(address, None)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)


def own_hosts(address: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the names by which browsers may call this server.

    Args:
        address: to listen on; a wildcard means every address of this machine.
        more: names that the operator adds, such as that of a proxy.
    """
    names = ["localhost", "127.0.0.1", "::1", *more]
    if address in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        names.append(socket.gethostname())
        addresses = (one for card in psutil.net_if_addrs().values() for one in card)
        names += [one.address for one in addresses if one.family in (socket.AF_INET, socket.AF_INET6)]
    else:
        names.append(address)
    return frozenset(_bracketed(name.partition("%")[0]).lower().rstrip(".") for name in names)


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def host_name(host: str) -> str | None:
    """Return the name in a `Host` header, in lower case and without the port; None: the header is invalid."""
    match = _HOST.fullmatch(host)
    return match["name"].lower().rstrip(".") if match else None


def same_origin(origin: str | None, host: str | None) -> bool:
    """Whether a request with this `Origin` header comes from a page of ours; `host` is the `Host` header."""
    page, asked = _ORIGIN.fullmatch(origin or ""), _HOST.fullmatch(host or "")
    if page is None or asked is None:
        return False
    default = _PORTS[page["scheme"]]
    return (page["name"].lower(), int(page["port"] or default)) == (
        asked["name"].lower(),
        int(asked["port"] or default),
    )


# --- page policy --------------------------------------------------------------------------------------------


def _inline_hashes() -> list[str]:
    """Return the hashes of the scripts inside Streamlit's own page, the only inline scripts that may run."""
    import streamlit

    page = Path(streamlit.__file__).with_name("static") / "index.html"
    try:
        scripts = re.findall(r"<script>(.*?)</script>", page.read_text(encoding="utf-8"), re.DOTALL)
    except OSError:
        return []
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]


def policy(host: str, inline: Iterable[str]) -> str:
    """Return the content security policy of pages under `host`: nothing external, no frame around them."""
    return "; ".join(
        (
            "default-src 'self'",
            # Streamlit loads the scripts of our components from a blob
            f"script-src 'self' blob: {' '.join(inline)}".rstrip(),
            "style-src 'self' 'unsafe-inline'",  # Streamlit and Plotly write styles at run time
            "img-src 'self' data: blob:",  # Plotly saves a figure through both
            "font-src 'self' data:",
            f"connect-src 'self' ws://{host} wss://{host} data: blob:",
            "worker-src 'self' blob:",
            "media-src 'self' data: blob:",
            "frame-src 'self'",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


_HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


# --- the gate -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RequestHeaders:
    """The relevant parts of a request: its headers, each as often as it was sent."""

    headers: Mapping[str, list[str]]

    def one(self, name: str) -> str | None:
        """Return the value of a header that came exactly once."""
        values = self.headers.get(name, [])
        return values[0] if len(values) == 1 else None


def _request_headers(scope: Scope) -> _RequestHeaders:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:  # uvicorn leaves their case on a WebSocket
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return _RequestHeaders(headers)


class Gate:
    """ASGI middleware that passes requests of our own pages and people, and adds the security headers."""

    stands = False  # whether a gate serves this process

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], access: Access | None = None, base: str = ""
    ) -> None:
        """Wrap `app`.

        Args:
            app: the server.
            hosts: from `own_hosts`.
            access: knows who a request comes from; None: no login.
            base: path of the server on its host, without a slash at its end.
        """
        self.app = app
        self.hosts = hosts
        self.access = access
        self.base, self.start_page = base, f"{base}/"
        self.inline = _inline_hashes()
        self.provider_routes = provider.routes() if access is not None and access.providers else ()
        self.wrong_tokens = WrongTokens()
        self.connections = Connections(app, access, _answer) if access is not None else None
        Gate.stands = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request; pass every other one on."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        asked = _request_headers(scope)
        host = asked.one("host") or ""
        is_ours = host_name(host) in self.hosts
        send = self._with_security_headers(send, scope, host if is_ours else "localhost")
        if not is_ours:
            text = "This server is not called by that name. Its operator adds names with --host."
            await _answer(scope, send, 403, text)
            return
        if "origin" in asked.headers and not same_origin(asked.one("origin"), host):
            await _answer(scope, send, 403, "Requests come from ORTune's own pages only.")
            return
        if scope.get("method") in ("POST", "PUT") and scope["path"].startswith(self.base + UPLOADS):
            receive, send = recording_upload(scope, receive, send)
        if self.base and not scope["path"].startswith(self.start_page):
            await self._lead_to_base(scope, send)
        elif self.access is None or scope["path"] == self.base + HEALTH:
            await self.app(scope, receive, send)
        elif scope["path"] in self.provider_routes and scope["type"] == "http":
            send = provider.finishing_login(scope["path"], send, self._finish_login(scope, send, asked))
            await self.app(scope, receive, send)
        elif not _is_login(scope) and (found := self.access.find(cookie_in(asked.headers.get("cookie", [])))):
            await self._serve_person(scope, receive, send, *found)
        else:
            await self._log_in(scope, receive, send, asked)

    async def _lead_to_base(self, scope: Scope, send: Send) -> None:
        """Answer a request outside of the base path; relative links of a page need its slash at the end."""
        if scope["path"] == self.base and scope.get("method") in ("GET", "HEAD"):
            query = scope.get("query_string", b"").decode("latin-1")
            await _redirect(send, f"{self.start_page}?{query}" if query else self.start_page)
        else:
            await _answer(scope, send, 404, f"ORTune is at {self.start_page} of this host.")

    async def _serve_person(
        self, scope: Scope, receive: Receive, send: Send, session: LoginSession, person: Person
    ) -> None:
        """Pass on a request of a person who is logged in."""
        scope[PERSON] = person
        if scope.get("method") in _SENDING and not person.may_act_as("engineer"):
            text = f"Your role is {person.role}. This needs the role engineer."
            await _answer(scope, send, 403, text)
        else:
            assert self.connections is not None
            await self.connections.serve(scope, receive, send, session)

    def _with_security_headers(self, send: Send, scope: Scope, host: str) -> Send:
        """Return a `send` that adds the headers to every answer, and records what a person saves."""
        own = _HEADERS | {"Content-Security-Policy": policy(host, self.inline)}

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] in (200, 206):  # a browser that asks for a range may get all of it
                    record_saved_file(scope, message.get("headers", []))
                there = {name.lower() for name, _ in message.get("headers", [])}
                added = [(k.encode(), v.encode()) for k, v in own.items() if k.lower().encode() not in there]
                kept = [(name, self._below_base(name, value)) for name, value in message.get("headers", [])]
                message = {**message, "headers": [*kept, *added]}
            await send(message)

        return with_headers

    def _below_base(self, name: bytes, value: bytes) -> bytes:
        """Return the value of a header; cookies of Streamlit get our path, so that servers share none."""
        if not self.base or name.lower() != b"set-cookie":
            return value
        return _ROOT_COOKIE.sub(b"; Path=" + self.base.encode(), value)

    # --- the login

    async def _log_in(self, scope: Scope, receive: Receive, send: Send, asked: _RequestHeaders) -> None:
        """Show the login page, check the entered token, or lead to a provider."""
        query = scope.get("query_string", b"").decode("latin-1")
        is_form = _is_login(scope)
        if is_form and scope["method"] == "POST" and "origin" in asked.headers:
            form = parse_qs((await _body(receive)).decode("utf-8", "replace"))
            given, place = form.get("token", [""])[0].strip(), form.get("next", [""])[0]
            await self._check_token(scope, send, asked, given, self._path_on_server(place))
        elif is_form and scope["method"] == "GET" and (name := parse_qs(query).get("provider", [""])[0]):
            known = self.access is not None and name in self.access.providers
            await _redirect(send, provider.login_path(name) if known else self.start_page)
        elif scope["type"] == "http" and "text/html" in (asked.one("accept") or ""):
            place = "" if is_form else scope["path"] + (f"?{query}" if query else "")
            await _answer(scope, send, 401, self._page(self._path_on_server(place), ""), kind="text/html")
        else:
            await _answer(scope, send, 401, "Log in first: open the dashboard in the browser.")

    async def _check_token(
        self, scope: Scope, send: Send, asked: _RequestHeaders, given: str, place: str
    ) -> None:
        assert self.access is not None
        address = (scope.get("client") or ("",))[0]
        if wait_s := self.wrong_tokens.wait_s(address):
            wait = retry_after(wait_s)
            page = self._page(place, f"Too many wrong tokens from this address. Wait {wait} s.")
            await _answer(scope, send, 429, page, kind="text/html", retry_after=wait)
            return
        await asyncio.sleep(self.wrong_tokens.delay_s())
        try:
            cookie = await asyncio.to_thread(self.access.log_in_by_token, given)
        except TunerError as error:
            await _answer(
                scope, send, 507, self._page(place, f"{error.message} {error.hint}"), kind="text/html"
            )
            return
        if cookie is not None:
            self.wrong_tokens.forgive(address)
            await self._end_session_before(asked)
            secure = (asked.one("origin") or "").startswith("https:")
            await _redirect(send, place, self._cookie(cookie, secure=secure))
            return
        self.wrong_tokens.count_wrong()
        if count := self.wrong_tokens.to_log():
            record_wrong_token(address, count)
        await asyncio.sleep(WRONG_TOKEN_S)
        await _answer(scope, send, 401, self._page(place, "That is not the token."), kind="text/html")

    def _finish_login(self, scope: Scope, send: Send, asked: _RequestHeaders) -> provider.Finish:
        """Return what decides on the claims of a person whom a provider has just authenticated."""

        async def finish(claims: Mapping[str, object]) -> tuple[bytes, bytes] | None:
            assert self.access is not None
            try:
                cookie = await asyncio.to_thread(self.access.log_in_by_claims, claims)
            except TunerError as error:
                text = f"{error.message} {error.hint}"
                await _answer(scope, send, 507, self._page(self.start_page, text), kind="text/html")
                return None
            if cookie is None:
                text = "This account may not use this server. Ask its operator."
                await _answer(scope, send, 403, self._page(self.start_page, text), kind="text/html")
                return None
            await self._end_session_before(asked)
            return b"set-cookie", self._cookie(cookie, secure=provider.is_encrypted()).encode()

        return finish

    async def _end_session_before(self, asked: _RequestHeaders) -> None:
        """End the session that this browser had, perhaps of another person."""
        assert self.access is not None
        assert self.connections is not None
        if before := self.access.sessions.find(cookie_in(asked.headers.get("cookie", []))):
            self.connections.replaced.append(before.key)
            with contextlib.suppress(TunerError):  # it has ended, until a restart
                await asyncio.to_thread(self.access.sessions.end, before.key)

    def _cookie(self, value: str, *, secure: bool) -> str:
        assert self.access is not None
        age = int(self.access.sessions.lasts_s)
        flags = "HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")
        return f"{COOKIE}={value}; Path={self.base or '/'}; Max-Age={age}; {flags}"

    def _path_on_server(self, place: str) -> str:
        """Return `place` if it is a path of this server, else its start page."""
        ours = place.startswith(self.start_page) and not place.startswith("//")
        plain = place.isascii() and place.isprintable() and "\\" not in place
        return place if ours and plain else self.start_page

    def _page(self, place: str, problem: str) -> str:
        """Return the login page, with the ways to log in that this server has."""
        assert self.access is not None
        links = "".join(
            f"<p><a href='{LOGIN}?{html.escape(urlencode({'provider': name}), quote=True)}'>"
            f"{html.escape(label)}</a></p>"
            for name, label in self.access.providers.items()
        )
        shown = f"<p role='alert'>{html.escape(problem)}</p>" if problem else ""
        page = Path(__file__).with_name("login.html").read_text("utf-8")
        head, form, foot = page.split("<!-- token -->")
        kept = head + (form if self.access.rules().tokens else "") + foot
        return Template(kept).substitute(
            problem=shown, action=LOGIN, place=html.escape(place, quote=True), providers=links
        )


def _is_login(scope: Scope) -> bool:
    return bool(scope["type"] == "http" and scope["path"].rpartition("/")[2] == LOGIN)


async def _body(receive: Receive) -> bytes:
    body = b""
    while len(body) <= MAX_FORM_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        part: bytes = message.get("body", b"")
        body += part
        if not message.get("more_body"):
            return body
    return b""


async def _redirect(send: Send, place: str, cookie: str = "") -> None:
    headers = [(b"location", place.encode()), (b"content-length", b"0"), (b"cache-control", b"no-store")]
    headers += [(b"set-cookie", cookie.encode())] if cookie else []
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _answer(
    scope: Scope, send: Send, status: int, text: str, *, kind: str = "text/plain", retry_after: str = ""
) -> None:
    """Refuse a request; closing a WebSocket before it is open is a 403 to the browser."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    body = text.encode()
    headers = [
        (b"content-type", f"{kind}; charset=utf-8".encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *([(b"retry-after", retry_after.encode())] if retry_after else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# --- no external request ------------------------------------------------------------------------------------


def block_address_lookup() -> None:
    """Keep Streamlit from requesting the external address of this machine from a web service."""
    from streamlit import net_util

    vars(net_util)["get_external_ip"] = lambda: None
