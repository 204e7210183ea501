"""Hostile uploads to a real server: refused with a status, nothing kept, the server lives."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import socket
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests import tiny_models
from tests.e2e.conftest import PATIENCE_MS, opened, upload
from tests.serving import serving
from tests.waiting import WAIT_S, wait_until

NAMES = (
    "../x.onnx",
    "..%2f..%2fx.onnx",
    "%2e%2e/x.onnx",
    "/etc/passwd",
    ".hidden",
    "a%00b.onnx",
    "a%0ab.onnx",
    "con:x",
    "x" * 300,
    "a\\b.onnx",
    "%3Cscript%3E",
    "",
    ".",
    "%7e/x",
)
"""What cannot be the name of a file here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A dashboard, its port, and the token that its pages carry."""

    home: Path
    port: int
    token: str

    def headers(self, **changes: str) -> dict[str, str]:
        own = {"X-ORTune-Token": self.token, "Origin": f"http://127.0.0.1:{self.port}"}
        return {**own, **{name.replace("_", "-"): value for name, value in changes.items()}}

    def put(self, name: str, body: bytes = b"x" * 100, batch: str | None = None, **headers: str) -> int:
        """Upload; the status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        path = f"/api/upload/{uuid.uuid4().hex if batch is None else batch}/{name}"
        connection.putrequest("PUT", path, skip_host="Host" in headers, skip_accept_encoding=True)
        for key, value in {"Content-Length": str(len(body)), **self.headers(**headers)}.items():
            if value:
                connection.putheader(key, value)
        connection.endheaders()
        with contextlib.suppress(OSError):  # refused before it was read
            connection.send(body)
        status = connection.getresponse().status
        connection.close()
        return status

    def lives(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/_stcore/health", timeout=WAIT_S) as answer:
            return bool(answer.read() == b"ok")

    def parts(self) -> list[Path]:
        """Files that an upload left half-done."""
        return list((self.home / "uploads").rglob("*.part")) if (self.home / "uploads").exists() else []


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    with serving(home) as (url, process):
        yield Server(home=home, port=int(url.rsplit(":", 1)[1]), token=_token(browser, url, home))
        assert process.poll() is None


def _token(browser: Browser, url: str, folder: Path) -> str:
    """What a page of the server sends with an upload: seen in a browser that uploads a file."""
    path, seen = tiny_models.mul(folder / "honest.onnx"), []
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("request", lambda request: seen.append(request.headers.get("x-ortune-token")))
    page.goto(f"{url}/models")
    opened(page)
    upload(page, path)
    page.close()
    return str(next(filter(None, seen)))


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    yield
    assert server.lives()
    wait_until(lambda: not server.parts(), "An upload left something half-done.")


def test_an_honest_upload_is_taken(server: Server) -> None:
    batch = uuid.uuid4().hex
    assert server.put("model.onnx", batch=batch) == 200
    assert (server.home / "uploads" / batch / "model.onnx").read_bytes() == b"x" * 100


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_a_name(server: Server, name: str) -> None:
    assert server.put(name) in (400, 404, 405, 414)


@pytest.mark.parametrize("batch", ["", "0" * 31, "0" * 33, "../" * 4, "z" * 32, "0" * 31 + "%2f"])
def test_what_cannot_be_a_batch(server: Server, batch: str) -> None:
    assert server.put("m.onnx", batch=batch) in (400, 404, 405)


@pytest.mark.parametrize(
    "headers",
    [
        {"X_ORTune_Token": ""},
        {"X_ORTune_Token": "x"},
        {"X_ORTune_Token": "\u00e9" * 43},
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[bad"},
        {"Origin": "http://127.0.0.1:notaport"},
        {"Origin": "https://localhost"},
    ],
    ids=repr,
)
def test_who_is_not_our_page(server: Server, headers: dict[str, str]) -> None:
    assert server.put("m.onnx", **headers) == 403


@pytest.mark.parametrize(
    ("declared", "statuses"),
    [
        ("", (400, 411)),
        ("-1", (400, 411)),
        ("1e9", (400, 411)),
        ("0x10", (400, 411)),
        (str(1 << 60), (413, 507)),
        ("9" * 400, (400, 411, 413, 507)),
    ],
)
def test_what_it_says_of_its_size(server: Server, declared: str, statuses: tuple[int, ...]) -> None:
    assert server.put("m.onnx", b"", Content_Length=declared) in statuses


def raw(server: Server, head: str, body: bytes, wait_s: float = 0.0) -> bytes:
    """Send bytes as they are; the first line of the answer, empty where the server hung up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as link:
        own = "".join(f"{key}: {value}\r\n" for key, value in server.headers().items())
        address = f"PUT /api/upload/{uuid.uuid4().hex}/m.onnx HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        link.sendall(f"{address}{own}{head}\r\n".encode() + body)
        time.sleep(wait_s)
        link.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            return link.recv(4096).split(b"\r\n")[0]
    return b""


def test_chunks_without_a_length_are_refused(server: Server) -> None:
    answer = raw(server, "Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n")
    assert re.search(rb" (400|411) ", answer)


def test_chunks_beside_a_length_are_refused(server: Server) -> None:
    answer = raw(server, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n")
    assert re.search(rb" (400|411) ", answer)


def test_fewer_bytes_than_declared_are_not_kept(server: Server) -> None:
    raw(server, "Content-Length: 1000\r\n", b"x" * 10)


@pytest.mark.parametrize("number", range(20))
def test_a_line_that_breaks_anywhere(server: Server, number: int) -> None:
    with contextlib.suppress(OSError):
        raw(server, "Content-Length: 100000\r\n", b"x" * (5000 * number), wait_s=0.01 * number)


def test_many_at_once_never_fill_the_disk(server: Server) -> None:
    """Each declares nearly all that is free: together they must not be let in."""
    free = shutil.disk_usage(server.home).free
    share = str(int((free - (300 << 20)) * 0.6))
    held: list[socket.socket] = []
    answers: list[bytes] = []

    def hold() -> None:
        link = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S)
        held.append(link)
        own = "".join(f"{key}: {value}\r\n" for key, value in server.headers(Content_Length=share).items())
        address = f"PUT /api/upload/{uuid.uuid4().hex}/m.onnx HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        link.sendall(f"{address}{own}\r\n".encode() + b"x" * 1000)
        with contextlib.suppress(OSError):
            answers.append(link.recv(4096).split(b"\r\n")[0])

    def refused() -> list[bytes]:
        return [answer for answer in answers if re.search(rb" (413|429|507) ", answer)]

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(refused()) >= 3)  # who is let in is not answered
    finally:
        for link in held:
            with contextlib.suppress(OSError):  # the server has closed it
                link.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for link in held:
            link.close()
    assert len(refused()) >= 3, answers


@pytest.mark.parametrize("number", range(30))
def test_forty_small_ones_at_once(server: Server, number: int) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda i=i: found.append(server.put(f"m{number}-{i}.onnx"))) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) <= {200, 429}
    assert 200 in found
