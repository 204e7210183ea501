"""The server without a browser: how it starts, and what its upload route answers to strangers."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import ROOT


def start(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dashboard", *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_port_in_use_is_one_clear_line(app_url: str, tmp_path: Path) -> None:
    port = str(urlsplit(app_url).port)
    done = start("--port", port, "--home", str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"ortune: Port {port} is in use on 127.0.0.1. Choose another with `--port`, or stop the other server."
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--address", "203.0.113.7"], "Cannot listen on 203.0.113.7:8501"),
        (["--address", "no such name"], "Cannot listen on no such name:8501"),
        (["--models", "/nowhere"], "`--models /nowhere` is not a folder"),
    ],
)
def test_what_cannot_be_served_is_one_clear_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = start(*arguments, "--home", str(tmp_path))
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_server_says_its_address_and_starts_no_telemetry(app_url: str, home: Path) -> None:
    assert f"ORTune: {app_url}" in (home / "server.log").read_text()
    with urllib.request.urlopen(f"{app_url}/", timeout=10) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("headers", [{}, {"X-ORTune-Token": "guess"}, {"Origin": "http://evil.example"}])
def test_strangers_cannot_upload(app_url: str, home: Path, headers: dict[str, str]) -> None:
    url = f"{app_url}/api/upload/{'0' * 32}/x.onnx"
    request = urllib.request.Request(url, data=b"x", method="PUT", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    assert refused.value.code == 403
    refused.value.close()
    assert not (home / "uploads" / ("0" * 32)).exists()
