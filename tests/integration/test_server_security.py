"""The running server as an attacker sees it: headers, what answers without a login, wrong tokens."""

from __future__ import annotations

import http.client
import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from core.store import audit
from dashboard.server.gate import TOKEN_VARIABLE
from dashboard.server.wrong_tokens import AT_ONCE
from tests.serving import SOCKET, ask, serving
from tests.waiting import wait_until

TOKEN = "a token that visitors share"
STRANGER = {"Host": "evil.example"}

# method, path: one of each kind that the server has
ROUTES = {
    "page": ("GET", "/"),
    "another page": ("GET", "/models"),
    "page that does not exist": ("GET", "/no/such/page"),
    "static file": ("GET", "STATIC"),
    "static file that does not exist": ("GET", "/static/none.js"),
    "media file": ("GET", "/media/none.png"),
    "component": ("GET", "/_stcore/bidi-components/none/index.js"),
    "host configuration": ("GET", "/_stcore/host-config"),
    "metrics": ("GET", "/_stcore/metrics"),
    "upload of Streamlit": ("PUT", "/_stcore/upload_file/x/y"),
    "upload": ("PUT", f"/api/upload/{'0' * 32}/x.onnx"),
    "live stream": ("GET", "/ortune/live/none?key=guess"),
    "redirect": ("GET", "/curves"),
    "login": ("GET", "/_login"),
    "login by another method": ("DELETE", "/_login"),
    "callback of a provider": ("GET", "/oauth2callback?code=x&state=y"),
    "strange method": ("TRACE", "/"),
}
HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Served:
    """A server, and the path of one of its static files."""

    url: str
    home: Path
    static: str

    def ask(self, kind: str, **headers: str) -> http.client.HTTPResponse:
        method, path = ROUTES[kind]
        return ask(self.url, self.static if path == "STATIC" else path, method=method, **headers)


def _static_file(url: str) -> str:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("GET", "/")
    page = connection.getresponse().read().decode()
    connection.close()
    found = re.search(r"static/js/[\w.-]+\.js", page)
    assert found is not None
    return f"/{found[0]}"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without a login."""
    home = tmp_path_factory.mktemp("opened")
    with serving(home) as (url, _):
        yield Served(url, home, _static_file(url))


@pytest.fixture(scope="module")
def closed(opened: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a token."""
    home = tmp_path_factory.mktemp("closed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, TOKEN)
        with serving(home) as (url, _):
            yield Served(url, home, opened.static)


def has_headers(answer: http.client.HTTPResponse) -> bool:
    policy = answer.getheader("Content-Security-Policy") or ""
    kept = all(answer.getheader(name) == value for name, value in HEADERS.items())
    whole = "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
    return kept and whole and "evil.example" not in policy and "unsafe-eval" not in policy


@pytest.mark.parametrize("kind", ROUTES)
def test_every_answer_has_the_security_headers(opened: Served, closed: Served, kind: str) -> None:
    for server in (opened, closed):
        for headers in ({}, STRANGER, {"Origin": "http://evil.example"}, {"Accept": "text/html"}):
            answer = server.ask(kind, **headers)
            assert has_headers(answer), (answer.status, headers, answer.getheaders())
            assert answer.status < 500


@pytest.mark.parametrize("kind", ROUTES)
def test_without_a_login_nothing_answers(closed: Served, kind: str) -> None:
    assert closed.ask(kind).status == 401
    assert closed.ask(kind, Cookie="ortune_login=guess").status == 401
    assert closed.ask(kind, Authorization=f"Bearer {TOKEN}").status == 401
    assert closed.ask(kind, Origin=closed.url).status == 401


@pytest.mark.parametrize("kind", ROUTES)
@pytest.mark.parametrize("headers", [STRANGER, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_another_host_or_page_is_refused(
    opened: Served, closed: Served, kind: str, headers: dict[str, str]
) -> None:
    assert opened.ask(kind, **headers).status == 403
    assert closed.ask(kind, **headers).status == 403


def test_a_socket_opens_for_our_own_page_only(opened: Served, closed: Served) -> None:
    path = "/_stcore/stream"
    assert ask(opened.url, path, **SOCKET, Origin=opened.url).status == 101
    assert ask(opened.url, path, **SOCKET, Origin="http://evil.example").status == 403
    assert ask(opened.url, path, **SOCKET, Origin=opened.url, **STRANGER).status == 403
    assert ask(closed.url, path, **SOCKET, Origin=closed.url).status == 403
    assert ask(closed.url, path, **SOCKET, Origin=closed.url, Cookie="ortune_login=guess").status == 403


def test_only_the_health_of_a_closed_server_is_told(closed: Served) -> None:
    assert ask(closed.url, "/_stcore/health").status == 200


# --- wrong tokens


def log_in(url: str, token: str, *, source: str = "127.0.0.1", **headers: str) -> http.client.HTTPResponse:
    """Send the form of the login from an address of this machine."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=60, source_address=(source, 0))
    sent = {"Origin": url, "Content-Type": "application/x-www-form-urlencoded", **headers}
    connection.request("POST", "/_login", urlencode({"token": token, "next": "/"}), sent)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


@pytest.mark.skipif(sys.platform != "linux", reason="one loopback address")
def test_wrong_tokens_slow_down_their_address_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with serving(tmp_path) as (url, _), ThreadPoolExecutor(40) as threads:
        answers = list(threads.map(lambda number: log_in(url, f"a wrong token {number}"), range(40)))
        statuses = Counter(one.status for one in answers)
        # each later attempt waits twice as long, so even hours would let few more through
        assert AT_ONCE <= statuses[401] <= AT_ONCE + 12
        assert statuses[429] == 40 - statuses[401]
        waits = [int(one.getheader("Retry-After") or 0) for one in answers if one.status == 429]
        assert min(waits) >= 1
        assert all(has_headers(one) for one in answers)

        # the right token from another address, while the first one is refused
        assert log_in(url, TOKEN, source="127.0.0.2").status == 303
        # no connection can choose an address, of this machine neither
        sent = threads.map(
            lambda number: log_in(url, "wrong", **{"X-Forwarded-For": f"198.51.100.{number}"}), range(20)
        )
        assert Counter(one.status for one in sent)[429] >= 20 - AT_ONCE - 12

        def refused() -> list[audit.Entry]:
            return list(audit.entries(tmp_path, action="log-in-refused"))

        wait_until(lambda: len(refused()) >= AT_ONCE)
        assert {one.more["address"] for one in refused()} == {"127.0.0.1"}

    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")  # the operator names the proxy
    with serving(tmp_path) as (url, _):
        for number in range(AT_ONCE + 1):
            log_in(url, f"wrong {number}", **{"X-Forwarded-For": "203.0.113.5"})
        assert log_in(url, TOKEN, **{"X-Forwarded-For": "203.0.113.6"}).status == 303
        answer = log_in(url, TOKEN, source="127.0.0.3", **{"X-Forwarded-For": "203.0.113.5"})
        assert answer.status == 303  # not of the proxy
        wait_until(lambda: "203.0.113.5" in {one.more["address"] for one in refused()})
    assert len(list(audit.entries(tmp_path, action="log-in"))) == 3
    [_, started] = [one for one in audit.entries(tmp_path, action="change") if one.what == "server started"]
    assert started.more["login"] == "required"
    assert audit.check(tmp_path).problems == ()
    log = (tmp_path / "audit" / "audit.jsonl").read_text("ascii")
    assert TOKEN not in log
    assert "a wrong token" not in log
