"""The server below a path of a host, behind a real proxy that ends TLS and forwards nothing else."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from dashboard.server.gate import HEALTH, TOKEN_VARIABLE
from tests.proxying import proxied
from tests.serving import LOG, SOCKET, ask, serving

TOKEN = "a token that visitors share"
BASE, HOST = "/ortune", "tune.example.org"
ORIGIN = f"https://{HOST}"
UPLOAD = f"{BASE}/api/upload/{'0' * 32}/x.onnx"
LIVE = f"{BASE}/ortune/live/none?key=guess"


@dataclass(frozen=True)
class Served:
    proxy: str
    inner: str  # the server itself, with the base path
    home: Path

    def ask(self, path: str, **headers: str) -> http.client.HTTPResponse:
        """Ask through the proxy, as a browser does."""
        return ask(self.proxy, path, **{"Host": HOST, **headers})

    def log_in(self, place: str = f"{BASE}/") -> http.client.HTTPResponse:
        form = urlencode({"token": TOKEN, "next": place})
        named = {"Host": HOST, "Origin": ORIGIN, "Content_Type": "application/x-www-form-urlencoded"}
        return ask(self.proxy, f"{BASE}/_login", method="POST", body=form, **named)

    def cookie(self) -> str:
        return (self.log_in().getheader("Set-Cookie") or "").partition(";")[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, TOKEN)
        with (
            serving(home, "--host", HOST, base=BASE) as (inner, _),
            proxied(home, {BASE: urlsplit(inner).port or 0}) as proxy,
        ):
            yield Served(proxy, inner, home)
    assert "Traceback" not in (home / LOG).read_text()


def test_the_login_leads_to_the_page_and_its_cookie_is_for_the_base_path_and_https(server: Served) -> None:
    assert f"ORTune: {server.inner}\n" in (server.home / LOG).read_text()
    assert server.ask(f"{BASE}/history", Accept="text/html").status == 401
    answer = server.log_in(f"{BASE}/history?trial=1")
    assert (answer.status, answer.getheader("Location")) == (303, f"{BASE}/history?trial=1")
    cookie = answer.getheader("Set-Cookie") or ""
    assert f"; Path={BASE};" in cookie
    assert cookie.endswith("; Secure")
    for place in ("/", "/other/", "/ortune2/", "https://evil.example/ortune/"):
        assert server.log_in(place).getheader("Location") == f"{BASE}/"
    assert server.ask(f"{BASE}/history", Accept="text/html", Cookie=server.cookie()).status == 200


def test_own_routes_and_those_of_streamlit_answer_below_the_base_path(server: Served) -> None:
    kept = {"Host": HOST, "Cookie": server.cookie(), "Origin": ORIGIN}
    assert ask(server.proxy, f"{BASE}/_stcore/stream", **SOCKET, **kept).status == 101
    moved = ask(server.proxy, f"{BASE}/curves?model=m", **kept)
    assert (moved.status, moved.getheader("Location")) == (307, f"{BASE}/sweep?model=m")
    for path, method in ((UPLOAD, "PUT"), (LIVE, "GET")):
        assert ask(server.proxy, path, method=method, **kept).getheader("Content-Type") == "application/json"
        assert ask(server.proxy, path, method=method, **kept).status == 403
        assert ask(server.proxy, path, method=method, Host=HOST).status == 401
    told = ask(server.proxy, f"{BASE}{HEALTH}", **kept)
    assert f"; Path={BASE};" in (told.getheader("Set-Cookie") or "")  # a cookie of Streamlit


def test_without_a_login_only_the_health_is_told(server: Served) -> None:
    assert server.ask(f"{BASE}{HEALTH}").status == 200
    assert server.ask(f"{BASE}/").status == 401
    assert server.ask(f"{BASE}/_stcore/stream", **SOCKET, Origin=ORIGIN).status == 403


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": f"https://{HOST}:8443"}],
)
def test_another_host_or_page_is_refused(server: Served, headers: dict[str, str]) -> None:
    cookie = server.cookie()
    for path in (f"{BASE}/", f"{BASE}{HEALTH}", LIVE, f"{BASE}/auth/login"):
        assert server.ask(path, Cookie=cookie, **headers).status == 403
    stream = f"{BASE}/_stcore/stream"
    assert server.ask(stream, **{**SOCKET, "Cookie": cookie, "Origin": ORIGIN, **headers}).status == 403


def test_nothing_is_served_outside_of_the_base_path(server: Served) -> None:
    assert server.ask("/").getheader("X-Proxy")
    cookie = server.cookie()
    for path in ("/", "/history", "/_login", HEALTH, "/ortune2/", UPLOAD.removeprefix(BASE)):
        assert ask(server.inner, path, Cookie=cookie).status == 404
    answer = ask(server.inner, f"{BASE}?trial=1")
    assert (answer.status, answer.getheader("Location")) == (303, f"{BASE}/?trial=1")
