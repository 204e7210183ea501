"""The gate of the server: Host, Origin, headers, the shared token; and when one is required."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import streamlit as st
import typer
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from core.store import audit
from core.wire import variables
from core.wire.errors import SpecError
from core.wire.variables import PEOPLE, USERS
from dashboard import __main__ as server
from dashboard.server import gate, login, people, people_file, provider
from dashboard.server.login_sessions import COOKIE, LoginSessions
from dashboard.server.people import Access
from dashboard.server.people_file import Role, Rules, Token, without_file

HOST = "127.0.0.1:8501"
TOKEN = "correct horse battery"
HOSTS = gate.own_hosts("127.0.0.1")


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """The server behind the gate: says 200 to everybody."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"inside"})


class Answer:
    """What came back: of a WebSocket the status is 101 when it was opened."""

    def __init__(self, sent: list[Message]) -> None:
        self.sent = sent
        first = sent[0]
        kinds = {"websocket.accept": 101, "websocket.close": 403}
        self.status = kinds.get(first["type"]) or first["status"]
        self.headers = {k.decode().lower(): v.decode() for k, v in first.get("headers", [])}
        self.text = b"".join(one.get("body", b"") for one in sent[1:]).decode()


def ask(
    *,
    app: ASGIApp = app,
    access: Access | None = None,
    served: gate.Gate | None = None,
    base: str = "",
    query: bytes = b"a=1",
    token: str = "",
    kind: str = "http",
    method: str = "GET",
    path: str = "/",
    body: bytes = b"",
    headers: list[tuple[str, str]] | None = None,
    **more: str,
) -> Answer:
    """Send one request through a gate; a Host of our own unless `headers` says otherwise."""
    named = headers if headers is not None else [("host", HOST)]
    raw = [(k.encode(), v.encode("latin-1")) for k, v in [*named, *more.items()]]
    scope = {"type": kind, "method": method, "path": path, "query_string": query, "headers": raw}
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    server = served or gate.Gate(app, hosts=HOSTS, access=access or access_by(token), base=base)
    asyncio.run(server(scope, receive, send))
    return Answer(sent)


HOME: list[Path] = []  # of this test


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HOME[:] = [tmp_path]
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))


def access_by(token: str) -> Access | None:
    """Who has access to a server with this shared token; each call is a server that has just been started."""
    if not token:
        return None
    return Access(lambda: without_file("", token), LoginSessions(HOME[0]), {})


# --- Host and Origin


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("host", [HOST, "localhost:8501", "LOCALHOST", "localhost.:9000", "[::1]:8501"])
def test_our_own_names_may_ask(kind: str, host: str) -> None:
    assert ask(kind=kind, headers=[("host", host)]).status in (200, 101)
    assert ask(kind=kind, headers=[("host", host)], origin=f"http://{host}").status in (200, 101)


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "hosts",
    [
        *([], ["evil.example"], ["evil.example:8501"], ["127.0.0.1.evil.example"], ["user@127.0.0.1"], [""]),
        *(["127.0.0.1:8501/x"], ["[::1"], ["127.0.0.1:port"], [HOST, HOST], [HOST, "evil.example"], ["\xff"]),
    ],
)
def test_other_names_are_refused(kind: str, hosts: list[str]) -> None:
    assert ask(kind=kind, headers=[("host", one) for one in hosts]).status == 403


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "origin",
    [
        *(
            "http://evil.example",
            "http://127.0.0.1:8502",
            "http://127.0.0.1",
            "http://localhost:8501",
            "null",
            "",
        ),
        *(
            "http://[",
            "http://[::1",
            "http://127.0.0.1:99999999",
            "://",
            "127.0.0.1:8501",
            "\xff\xfe",
            "http://",
        ),
        *("http://127.0.0.1:8501/", "http://127.0.0.1:8501@evil.example", "ftp://127.0.0.1:8501"),
    ],
)
def test_other_pages_broken_origins_and_other_ports_are_refused(kind: str, origin: str) -> None:
    assert ask(kind=kind, origin=origin).status == 403


def test_an_origin_counts_in_any_case_of_its_name() -> None:
    """uvicorn passes the headers of a WebSocket in the case in which the browser sent them."""
    named = [("Host", HOST), ("Origin", "http://evil.example")]
    assert ask(kind="websocket", headers=named).status == 403


def test_two_origins_are_none() -> None:
    own = f"http://{HOST}"
    assert ask(headers=[("host", HOST), ("origin", own), ("origin", "http://evil.example")]).status == 403


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://name", "name:80", True),
        ("https://name", "name", True),
        ("https://name:443", "name", True),
        ("https://name", "name:80", False),
        ("http://NAME", "name", True),
        (None, "name", False),
        ("http://name", None, False),
        ("http://[", "[", False),
    ],
)
def test_an_origin_is_the_host_with_its_port(origin: str | None, host: str | None, same: bool) -> None:
    assert gate.same_origin(origin, host) is same


def test_a_server_on_every_address_knows_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Box")
    assert {"box", "127.0.0.1", "localhost", "[::1]"} <= gate.own_hosts("0.0.0.0")
    assert "box" not in gate.own_hosts("192.0.2.1")
    assert {"192.0.2.1", "tune.example.org"} <= gate.own_hosts("192.0.2.1", ["tune.Example.org"])
    assert "[2001:db8::1]" in gate.own_hosts("2001:db8::1")


# --- headers


def test_every_answer_forbids_frames_and_foreign_content() -> None:
    headers = ask().headers
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-own"] == "1"
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'self'" in policy
    assert f"connect-src 'self' ws://{HOST}" in policy
    scripts = re.search("script-src ([^;]*)", policy)
    assert scripts is not None
    assert "unsafe-inline" not in scripts[1]
    assert "'sha256-" in scripts[1]


# --- no request to the outside


def test_the_external_address_is_never_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamlit import net_util
    from streamlit.web.server import server_util

    asked: list[str] = []
    monkeypatch.setattr(net_util, "_make_blocking_http_get", lambda url, **_: asked.append(url))
    monkeypatch.setattr(net_util, "get_external_ip", net_util.get_external_ip)  # put back afterwards
    gate.block_address_lookup()
    assert not server_util.is_url_from_allowed_origins("http://evil.example")
    assert asked == []


# --- the shared token


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def log_in(given: str, place: str = "/", **headers: str) -> Answer:
    body = urlencode({"token": given, "next": place}).encode()
    headers = {"origin": f"http://{HOST}", **headers}
    return ask(token=TOKEN, method="POST", path="/_login", body=body, **headers)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "WRONG_TOKEN_S", 0.0)


def test_without_the_token_nothing_is_served_but_the_form_and_health() -> None:
    assert ask(token=TOKEN).status == 401
    assert ask(token=TOKEN, kind="websocket").status == 403
    assert ask(token=TOKEN, method="PUT", path="/api/upload/x/y").status == 401
    assert ask(token=TOKEN, path="/_stcore/health").status == 200
    page = ask(token=TOKEN, path="/compare", accept="text/html,*/*")
    assert page.status == 401
    assert 'name="token"' in page.text
    assert 'value="/compare?a=1"' in page.text
    assert page.headers["content-security-policy"]
    assert TOKEN not in page.text


def test_the_token_opens_the_door_and_the_cookie_keeps_it_open() -> None:
    answer = log_in(TOKEN, "/compare?comparison=1")
    assert (answer.status, answer.headers["location"]) == (303, "/compare?comparison=1")
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Secure" not in cookie
    assert ask(token=TOKEN, cookie=f"x=1; {cookie_of(answer)}").status == 200
    assert ask(token=TOKEN, kind="websocket", cookie=cookie_of(answer)).status == 101
    assert ask(token="another token of ours", cookie=cookie_of(answer)).status == 401


@pytest.mark.parametrize("given", ["", "wrong", TOKEN[:-1], TOKEN.upper(), "\u2603"])
def test_a_wrong_token_is_refused(given: str) -> None:
    answer = log_in(given)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers
    assert "token" in answer.text


def test_a_login_comes_from_our_own_form_and_leads_to_our_own_pages() -> None:
    body = urlencode({"token": TOKEN}).encode()
    assert ask(token=TOKEN, method="POST", path="/_login", body=body).status == 401  # no Origin
    assert log_in(TOKEN, origin="http://evil.example").status == 403
    for place in ("//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nSet-Cookie: x", ""):
        assert log_in(TOKEN, place).headers["location"] == "/"
    assert (
        ask(token=TOKEN, method="POST", path="/_login", body=b"x" * 10_000, origin=f"http://{HOST}").status
        == 401
    )
    shown = ask(token=TOKEN, path="/'><script>", accept="text/html").text
    assert "<script>" not in shown


@pytest.mark.parametrize(
    "cookie", ["ortune_login=", "ortune_login=x", "ortune_login=\xff", "=;=;", "a" * 9000]
)
def test_a_forged_cookie_is_none(cookie: str) -> None:
    assert ask(token=TOKEN, cookie=cookie).status == 401


@pytest.mark.parametrize("first", [True, False])
def test_of_two_servers_on_one_host_the_one_on_the_longer_path_reads_its_own_cookie(first: bool) -> None:
    cookies = [cookie_of(log_in(TOKEN)), f"{COOKIE}=of another server"]
    sent = "; ".join(cookies if first else reversed(cookies))
    assert ask(token=TOKEN, cookie=sent).status == (200 if first else 401)


# --- the base path


def test_below_a_base_path_pages_cookies_and_health_have_it_and_nothing_else_is_served() -> None:
    below: dict[str, Any] = {"token": TOKEN, "base": "/a/b"}
    for path in ("/", "/a", "/a/bc", "/compare", gate.HEALTH):
        assert ask(path=path, **below).status == 404
        assert ask(path=path, kind="websocket", **below).status == 403
    assert ask(path=f"/a/b{gate.HEALTH}", **below).status == 200
    led = ask(path="/a/b", **below)
    assert (led.status, led.headers["location"]) == (303, "/a/b/?a=1")
    assert ask(path="/a/b", method="PUT", **below).status == 404
    assert 'value="/a/b/compare?a=1"' in ask(path="/a/b/compare", accept="text/html", **below).text
    assert 'value="/a/b/"' in ask(path="/a/b/_login", accept="text/html", **below).text
    for place in ("/", "/a/bc", "//a/b/", "https://evil.example/a/b/"):
        body = urlencode({"token": TOKEN, "next": place}).encode()
        answer = ask(method="POST", path="/a/b/_login", body=body, origin=f"http://{HOST}", **below)
        assert (answer.status, answer.headers["location"]) == (303, "/a/b/")
        assert "; Path=/a/b;" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("base", "sent", "kept"),
    [
        ("/a", "x=1; Path=/; SameSite=Lax", "x=1; Path=/a; SameSite=Lax"),
        ("/a", "x=1; HttpOnly; path=/", "x=1; HttpOnly; Path=/a"),
        ("/a", "x=1; Path=/a; HttpOnly", "x=1; Path=/a; HttpOnly"),
        ("", "x=1; path=/; HttpOnly", "x=1; path=/; HttpOnly"),
    ],
)
def test_a_cookie_of_streamlit_gets_the_base_path(base: str, sent: str, kept: str) -> None:
    async def setting(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"set-cookie", sent.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    assert ask(app=setting, base=base, path=f"{base}/").headers["set-cookie"] == kept


# --- people


def person(role: Role) -> dict[str, Any]:
    """Arguments of `ask` for a server with a person of this role, and the cookie of this person."""
    access = Access(lambda: Rules(tokens=(Token("ann", "a" * 64, role),)), LoginSessions(HOME[0]), {})
    cookie = access.sessions.begin("token:ann", token="a" * 64)
    return {"access": access, "cookie": f"{COOKIE}={cookie}", "origin": f"http://{HOST}"}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/api/upload/x/y", "/_stcore/upload_file/a/b", "/any"])
def test_a_viewer_sends_nothing_and_an_engineer_does(method: str, path: str) -> None:
    assert ask(method=method, path=path, **person("viewer")).status == 403
    assert ask(path=path, **person("viewer")).status == 200
    assert ask(kind="websocket", path=path, **person("viewer")).status == 101
    assert ask(method=method, path=path, **person("engineer")).status == 200


def recorded(action: audit.Action) -> list[tuple[str, str, dict[str, Any]]]:
    """What the audit log holds once the thread that writes it is done."""
    return [
        (one.who, one.what, {name: one.more[name] for name in ("file", "bytes") if name in one.more})
        for one in audit.entries(HOME[0], action=action)
    ]


@pytest.mark.parametrize("status", [200, 206, 304, 404])
def test_a_saved_file_is_recorded_also_if_a_range_of_it_was_asked_for(status: int) -> None:
    async def media(scope: Scope, receive: Receive, send: Send) -> None:
        named = (b"content-disposition", b'attachment; filename="bundle.zip"')
        await send({"type": "http.response.start", "status": status, "headers": [named]})
        await send({"type": "http.response.body", "body": b"inside"})

    assert ask(app=media, path="/media/x.zip", **person("viewer")).status == status
    line = ("token:ann", "download", {"file": "bundle.zip"})
    assert recorded("export") == ([line] if status in (200, 206) else [])


@pytest.mark.parametrize("base", ["", "/ortune"])
@pytest.mark.parametrize("status", [204, 400])
def test_a_file_of_streamlits_uploader_is_recorded_when_it_has_arrived(status: int, base: str) -> None:
    async def uploader(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    file = 'Content-Disposition: form-data; name="a; filename=b"; filename="modèle%22.zip"'
    body = f"--xyz\r\n{file}\r\nContent-Type: application/zip\r\n\r\n12345\r\n--xyz--\r\n".encode()
    path = f"{base}/_stcore/upload_file/session/file"
    for method in ("PUT", "DELETE"):
        ask(app=uploader, method=method, path=path, base=base, body=body, **person("engineer"))
    line = ("token:ann", 'file `modèle".zip`', {"bytes": 5})
    assert recorded("upload") == ([line] if status == 204 else [])


def test_the_request_knows_its_person() -> None:
    seen: list[object] = []

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(people.of_request(scope))
        await app(scope, receive, send)

    ask(app=look, **person("engineer"))
    assert seen == [people.Person("token:ann", "ann", "engineer")]


def test_an_upload_ends_with_the_session_of_its_sender() -> None:
    known = person("engineer")
    ended: list[str] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await asyncio.to_thread(known["access"].sessions.end_all, "token:ann")
            await asyncio.Event().wait()
        finally:
            ended.append("upload")

    answer = ask(app=slow, method="PUT", path="/api/upload/x/y", **known)
    assert answer.status == 401
    assert ended == ["upload"]


def test_a_page_goes_to_the_login_when_its_session_ends() -> None:
    known = person("viewer")

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        await asyncio.to_thread(known["access"].sessions.end_all, "token:ann")
        await asyncio.Event().wait()

    sent = ask(app=page, kind="websocket", **known).sent
    assert [one["type"] for one in sent] == ["websocket.accept", "websocket.send", "websocket.close"]
    message = ForwardMsg.FromString(sent[1]["bytes"])
    assert message.WhichOneof("type") == "auth_redirect"


@pytest.mark.parametrize(("replaced", "place"), [(False, "/auth/logout"), (True, "")])
def test_a_page_of_a_provider_goes_to_its_log_out_but_not_after_another_login(
    replaced: bool, place: str
) -> None:
    listed = Rules(addresses={"ann@example.org": "engineer"})
    access = Access(lambda: listed, LoginSessions(HOME[0]), {"default": "Log in"})
    before = str(access.log_in_by_claims({"email": "ann@example.org"}))

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        if replaced:
            served.connections.replaced.append(people_file.hash_of(before))  # type: ignore[union-attr]
        await asyncio.to_thread(access.log_in_by_claims, {"email": "ann@example.org"})
        await asyncio.to_thread(access.sessions.end, people_file.hash_of(before))
        await asyncio.Event().wait()

    served = gate.Gate(page, hosts=HOSTS, access=access)
    sent = ask(served=served, kind="websocket", cookie=f"{COOKIE}={before}", origin=f"http://{HOST}").sent
    assert ForwardMsg.FromString(sent[1]["bytes"]).auth_redirect.url == place


def test_an_open_page_ends_with_the_hours_of_its_session() -> None:
    known = person("viewer")

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        known["access"].sessions.lasts_s = 0.5  # it is open, however long that took
        await send({"type": "websocket.accept"})
        await asyncio.Event().wait()

    sent = ask(app=page, kind="websocket", **known).sent
    assert ForwardMsg.FromString(sent[1]["bytes"]).auth_redirect.url == ""  # its own one again
    assert sent[2]["type"] == "websocket.close"


def test_a_login_as_somebody_else_ends_the_session_before() -> None:
    tokens = (
        Token("ann", people_file.hash_of("of ann"), "viewer"),
        Token("bob", people_file.hash_of("of bob"), "admin"),
    )
    access = Access(lambda: Rules(tokens=tokens), LoginSessions(HOME[0]), {})
    body = urlencode({"token": "of bob"}).encode()
    before = str(access.log_in_by_token("of ann"))
    answer = ask(
        access=access,
        method="POST",
        path="/_login",
        body=body,
        origin=f"http://{HOST}",
        cookie=f"{COOKIE}={before}",
    )
    assert answer.status == 303
    assert access.find(before) is None
    found = access.find(cookie_of(answer).partition("=")[2])
    assert found is not None
    assert found[1].id == "token:bob"


def test_only_the_routes_of_a_provider_are_open_and_their_claims_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = Rules(addresses={"ann@example.org": "engineer"})
    access = Access(lambda: listed, LoginSessions(HOME[0]), {"default": "Log in"})
    monkeypatch.setattr(provider, "is_encrypted", lambda: True)
    claims: dict[str, Any] = {}
    monkeypatch.setattr(provider, "_claims", lambda headers: claims)
    paths = ["/api/upload/x/auth/login", "/ortune/live/oauth2callback", "/x/auth/logout", "/auth/login/x"]
    assert [ask(access=access, path=one).status for one in paths] == [401] * 4
    assert ask(access=access, kind="websocket", path="/auth/login").status == 403
    assert ask(access=access, path="/auth/login").status == 200
    callback = ask(access=access, path="/oauth2callback")
    assert (callback.status, callback.headers.get("set-cookie")) == (200, None)
    claims |= {"email": "ann@example.org"}
    callback = ask(access=access, path="/oauth2callback")
    assert callback.status == 200
    assert "Secure" in callback.headers["set-cookie"]
    found = access.find(cookie_of(callback).partition("=")[2])
    assert found is not None
    assert found[1].role == "engineer"
    again = ask(access=access, path="/oauth2callback", cookie=cookie_of(callback))
    assert access.find(cookie_of(callback).partition("=")[2]) is None
    assert access.find(cookie_of(again).partition("=")[2]) is not None
    claims |= {"email": "eve@example.org"}
    refused = ask(access=access, path="/oauth2callback")
    assert (refused.status, refused.headers.get("set-cookie")) == (403, None)
    assert "inside" not in refused.text


def test_the_login_page_shows_the_ways_that_there_are() -> None:
    def shown(access: Access) -> str:
        return ask(access=access, accept="text/html").text

    by_token = shown(Access(lambda: without_file("", TOKEN), LoginSessions(HOME[0]), {}))
    assert 'name="token"' in by_token
    assert "provider=" not in by_token
    providers = {"a<b": "Log in with a<b"}
    by_provider = shown(Access(lambda: without_file("", ""), LoginSessions(HOME[0]), providers))
    assert 'name="token"' not in by_provider
    assert "provider=a%3Cb" in by_provider
    assert "a<b" not in by_provider
    access = Access(lambda: without_file("", ""), LoginSessions(HOME[0]), providers)
    other = ask(access=access, path="/_login", query=b"provider=other")
    assert (other.status, other.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    ("disposition", "file"),
    [
        ('attachment; filename="m.onnx"', "m.onnx"),
        ("attachment; filename*=utf-8''m%C3%B6.yaml", "m\u00f6.yaml"),
        ("inline", None),
        (None, None),
    ],
)
def test_a_saved_file_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disposition: str | None, file: str | None
) -> None:
    monkeypatch.setenv(variables.HOME, str(tmp_path))
    headers = [] if disposition is None else [(b"content-disposition", disposition.encode())]

    async def saving(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x"})

    assert ask(app=saving).status == 200
    recorded = [(one.action, one.who, one.more["file"]) for one in audit.entries(tmp_path)]
    assert recorded == ([] if file is None else [("export", "local", file)])


# --- who must have a login


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run `python -m dashboard` up to the point where it would listen: what it would serve, or why not."""
    served: list[dict[str, Any]] = []
    monkeypatch.setattr(server, "serve", lambda address, port, **how: served.append(how))
    monkeypatch.setattr(server, "_cannot_listen", lambda address, port: "")
    monkeypatch.setattr(os, "chdir", lambda path: None)
    monkeypatch.setattr(provider, "providers", dict)
    for name in (gate.TOKEN_VARIABLE, USERS, PEOPLE):
        monkeypatch.delenv(name, raising=False)

    def run(**options: Any) -> Any:
        served.clear()
        try:
            server.main(**options)
        except typer.Exit as ended:
            if ended.exit_code != 2:
                raise
            return capsys.readouterr().err
        return served[0]

    return run


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_beyond_this_machine_needs_a_login(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    said = start(address=address)
    assert "without a login" in said
    assert "--insecure" in said
    assert start(address=address, insecure=True)["access"] is None
    monkeypatch.setenv(gate.TOKEN_VARIABLE, TOKEN)
    rules = start(address=address)["access"].rules()
    assert rules.token(TOKEN).role == "admin"
    assert rules.token("another") is None
    monkeypatch.setenv(gate.TOKEN_VARIABLE, "short")
    assert "5 characters" in start(address=address)


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_this_machine_alone_needs_none(start: Callable[..., Any], address: str) -> None:
    assert start(address=address)["access"] is None


def test_a_provider_is_a_login_where_its_library_is(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "providers", lambda: {"default": "Log in"})
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    assert "Authlib" in start(address="0.0.0.0")
    monkeypatch.setattr(server, "find_spec", lambda name: object())
    assert start(address="0.0.0.0")["access"].providers == {"default": "Log in"}


def test_a_people_file_needs_a_way_to_log_in_and_no_other_list(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "people.toml"
    file.write_text('[people]\n"ann@example.org" = "admin"\n')
    file.chmod(0o600)
    monkeypatch.setenv(PEOPLE, str(file))
    assert "nobody can log in" in start()
    monkeypatch.setattr(provider, "providers", lambda: {"default": "Log in"})
    monkeypatch.setattr(server, "find_spec", lambda name: object())
    found = start(session_hours=3)["access"]
    assert found.rules().role_of({"email": "ann@example.org"}) == "admin"
    assert found.sessions.lasts_s == 3 * 3600
    monkeypatch.setenv(USERS, "@example.org")
    assert USERS in start()
    monkeypatch.delenv(USERS)
    file.write_text('[people]\n"ann@example.org" = "root"\n')
    assert "line 2" in start()
    monkeypatch.setenv(PEOPLE, str(tmp_path / "missing.toml"))
    assert "missing.toml" in start()


def test_secrets_that_cannot_be_read_are_no_open_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets.toml"
    secrets.write_text("[auth\n")
    monkeypatch.setattr(config, "get_option", lambda name: [str(secrets)])
    monkeypatch.setattr(st.secrets, "load_if_toml_exists", lambda: False)
    with pytest.raises(SpecError, match=re.escape(str(secrets))):
        provider.is_configured()
    secrets.unlink()
    assert not provider.is_configured()


@pytest.mark.parametrize("name", ["http://tune.example.org", "tune.example.org:80", "a/b", "", "a b"])
def test_a_name_that_no_browser_sends_is_refused(start: Callable[..., Any], name: str) -> None:
    assert "host" in start(host=[name])
    assert "tune.example.org" in start(host=["Tune.Example.org"])["hosts"]


@pytest.mark.parametrize("path", ["a b", "https://x/y", "a/../b", "/a//b", "a;b", "/.a", "\u00e4"])
def test_a_base_path_is_a_plain_path(start: Callable[..., Any], path: str) -> None:
    assert "base path" in start(base_path=path)
    for given, base in (("/tune", "/tune"), ("tune/a.b/", "/tune/a.b"), ("/", ""), (None, "")):
        assert start(base_path=given)["base"] == base


def test_a_base_path_of_streamlit_counts_as_well(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "get_option", {"server.baseUrlPath": "tune"}.get)
    assert start()["base"] == "/tune"


def test_a_provider_leads_back_below_the_base_path(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "providers", lambda: {"default": "Log in"})
    monkeypatch.setattr(server, "find_spec", lambda name: object())
    address = "https://tune.example.org/oauth2callback"
    monkeypatch.setattr(provider, "redirect_address", lambda: address)
    assert "`/tune/oauth2callback`" in start(base_path="/tune")
    assert start()["base"] == ""
    address = "https://tune.example.org/tune/oauth2callback"
    assert start(base_path="/tune")["base"] == "/tune"


@pytest.mark.parametrize("stands", [True, False])
def test_a_server_without_the_gate_shows_nothing(monkeypatch: pytest.MonkeyPatch, stands: bool) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    shown: list[str] = []
    served = object.__new__(login.runtime.Runtime)
    with monkeypatch.context() as patch:
        patch.setattr(login.runtime, "get_instance", lambda: served)
        patch.setattr(login.st, "error", lambda text, **_: shown.append(text))
        patch.setattr(login.st, "stop", stop)
        patch.setattr(gate.Gate, "stands", stands)
        with contextlib.nullcontext() if stands else pytest.raises(Stopped):
            login.require()
    assert len(shown) == 1 - stands
