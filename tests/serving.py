"""A server of its own, started as a user starts it, and questions that only speak HTTP with it."""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from core.wire.files import ROOT

START_S = 240.0  # a machine with much else to do
LOG = "server.log"  # in the home of a server: what it said

# Headers that ask for a WebSocket.
SOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
}


@functools.cache
def _ports() -> Iterator[int]:
    """Ports of this process of tests in random order, below those that the system gives to others."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 20_000 + 2_000 * (worker % 6)
    return itertools.cycle(random.SystemRandom().sample(range(first, first + 2_000), 2_000))


def free_port() -> int:
    """A port for a server that starts later: nobody else takes it meanwhile, and it is returned once."""
    for port in itertools.islice(_ports(), 2_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("No port is free.")


@contextlib.contextmanager
def serving(
    home: Path,
    *options: str,
    port: int = 0,
    base: str = "",
    log: Path | None = None,
    prefix: Sequence[str] = (),
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start `python -m dashboard` on a port, by default a free one; yield its address and its process.

    Args:
        home: of the server.
        options: of the command.
        port: 0: a free one.
        base: path of the server, as `--base-path` takes it.
        log: file for what it says; None: `LOG` in its home.
        prefix: command that starts it.
    """
    port = port or free_port()
    options = (*options, *(("--base-path", base) if base else ()))
    environment = {**os.environ, "ORTUNE_HOME": str(home), "ORTUNE_QUEUE": str(home / "queue")}
    log = log or home / LOG
    output = log.open("wb")
    server = subprocess.Popen(
        [*prefix, sys.executable, "-X", "faulthandler", "-m", "dashboard", "--port", str(port), *options],
        cwd=ROOT,
        env=environment,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}{base}"
    try:
        _await(url, server, log)
        yield url, server
    finally:
        end(server)
        output.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started with a session of its own, and its children."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"The server did not start:\n{log.read_text()[-3000:]}")


def _any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def ask(
    url: str,
    path: str = "/",
    *,
    method: str = "GET",
    body: str | None = None,
    timeout_s: float = 60,
    **headers: str,
) -> http.client.HTTPResponse:
    """Send a request to a server, with any headers; `_` in their names means `-`."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=timeout_s)
    if place.scheme == "https":
        connection = http.client.HTTPSConnection(place.netloc, timeout=timeout_s, context=_any_certificate())
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    try:
        connection.request(method, path, body, headers=named)
        answer = connection.getresponse()
        answer.read()
    finally:
        connection.close()
    return answer
