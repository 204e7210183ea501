"""The running server without a browser: how it starts, whom it refuses, and what every answer says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import typer

from core.wire.files import ROOT
from dashboard import __main__ as dashboard
from dashboard.server.gate import TOKEN_VARIABLE
from tests.serving import LOG, SOCKET, ask, serving

BATCH = "0" * 32


@dataclass(frozen=True)
class Served:
    url: str
    home: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`python -m dashboard`, for all tests here: none gets anything stored, and it says its address alone."""
    home = tmp_path_factory.mktemp("served")
    left = home / ".left.json.0a1b2c3d.part"  # by a killed process, long ago
    left.touch()
    os.utime(left, (0, 0))
    with serving(home) as (url, _):
        yield Served(url, home)
        assert not left.exists()
    assert (home / LOG).read_text() == f"ORTune: {url}\n"


def test_the_server_opens_its_page_and_its_socket(server: Served) -> None:
    assert ask(server.url).status == 200
    assert ask(server.url, "/_stcore/stream", **SOCKET, Origin=server.url).status == 101


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://127.0.0.1:1"}, {"Origin": "http://["}]
)
@pytest.mark.parametrize(("path", "more"), [("/", {}), ("/_stcore/stream", SOCKET), ("/_stcore/health", {})])
def test_strangers_are_refused_on_every_route(
    server: Served, path: str, more: dict[str, str], headers: dict[str, str]
) -> None:
    assert ask(server.url, path, **more, **headers).status == 403


@pytest.mark.parametrize(("old", "path"), [("curves", "sweep"), ("why", "explain")])
def test_an_old_path_leads_to_its_page_with_its_query(server: Served, old: str, path: str) -> None:
    answer = ask(server.url, f"/{old}?model=m")
    assert (answer.status, answer.getheader("Location")) == (307, f"/{path}?model=m")
    assert ask(server.url, f"/{path}?model=m").status == 200


def test_no_page_may_frame_ours(server: Served) -> None:
    answer = ask(server.url)
    assert answer.getheader("X-Frame-Options") == "DENY"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert "frame-ancestors 'none'" in (answer.getheader("Content-Security-Policy") or "")


@pytest.mark.parametrize("headers", [{}, {"X_ORTune_Token": "guess"}, {"Origin": "http://evil.example"}])
def test_strangers_cannot_upload(server: Served, headers: dict[str, str]) -> None:
    path = f"/api/upload/{BATCH}/x.onnx"
    assert ask(server.url, path, method="PUT", Content_Length="0", **headers).status == 403
    assert not (server.home / "uploads" / BATCH).exists()


def test_without_the_token_nobody_gets_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a token that visitors share")
    with serving(tmp_path) as (url, _):
        assert ask(url, "/_stcore/stream", **SOCKET, Origin=url).status == 403
        assert ask(url).status == 401


# --- what cannot be served


def test_a_port_in_use_is_one_line_and_the_usage_code(server: Served, tmp_path: Path) -> None:
    port = str(urlsplit(server.url).port)
    command = [sys.executable, "-m", "dashboard", "--port", port, "--home", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"ortune: Port {port} is in use on 127.0.0.1.")


@pytest.mark.parametrize(
    ("option", "value"),
    [("address", "203.0.113.7"), ("address", "no such name"), ("models", Path("/nowhere"))],
)
def test_what_cannot_be_served_is_one_line_that_names_it(
    option: str, value: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTUNE_MODELS", "")  # it is set anew
    monkeypatch.setattr(dashboard, "serve", lambda *where, **how: pytest.fail("it was served"))
    with pytest.raises(typer.Exit) as ended:
        dashboard.main(**{option: value})
    assert ended.value.exit_code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(value) in line
