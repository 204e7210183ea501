"""The route of live updates for browsers, behind the real gate: events, the end, and refused requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from core.wire.errors import StoreError
from dashboard.server import live, people, people_file
from dashboard.server.gate import Gate
from dashboard.server.login_sessions import COOKIE, LoginSessions
from dashboard.server.people import Access, Person
from dashboard.server.people_file import Rules, Token
from tests.serving import ask, free_port
from tests.waiting import WAIT_S, wait_until


@contextlib.contextmanager
def served(access: Access | None = None) -> Iterator[str]:
    """Serve the route alone, behind the gate."""
    port = free_port()
    gate = Middleware(Gate, hosts={"127.0.0.1"}, access=access)
    app = Starlette(routes=live.routes(), middleware=[gate])
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        live.STREAMS.close()
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> live.Streams:
    """The streams of this test alone."""
    own = live.Streams()
    monkeypatch.setattr(live, "STREAMS", own)
    return own


@pytest.fixture
def url() -> Iterator[str]:
    with served() as address:
        yield address


class Job:
    """Something that is watched: what is shown of it, and how often that was built."""

    def __init__(self) -> None:
        self.event: dict[str, Any] = {"ended": False, "text": "begins"}
        self.built = 0

    def __call__(self) -> dict[str, Any]:
        self.built += 1
        return dict(self.event)


class Listener:
    """A browser that listens."""

    def __init__(self, url: str, name: str, **headers: str) -> None:
        self.line = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_S)
        self.line.request("GET", live.address(name), headers={"Accept": "text/event-stream", **headers})
        self.answer = self.line.getresponse()

    def frame(self) -> str:
        """The next frame, without what only keeps the connection."""
        lines: list[str] = []
        while True:
            line = self.answer.readline().decode()
            if line.strip():
                lines.append(line)
            elif lines and not lines[0].startswith(("event: alive", "retry")):
                return "".join(lines)
            elif not line:
                return ""
            else:
                lines = []

    def event(self) -> dict[str, Any]:
        frame = self.frame()
        assert frame.startswith("data: ")
        return dict(json.loads(frame.removeprefix("data: ")))

    def close(self) -> None:
        self.answer.close()
        self.line.close()


Listen = Callable[..., Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Listen to a stream; the connections are closed afterwards."""
    listeners: list[Listener] = []

    def connect(url: str, name: str, **headers: str) -> Listener:
        listeners.append(Listener(url, name, **headers))
        return listeners[-1]

    yield connect
    for one in listeners:
        one.close()


def test_two_who_look_on_get_the_same_bytes_which_are_built_once(
    url: str, listen: Listen, streams: live.Streams
) -> None:
    job = Job()
    streams.offer("job", job)
    one, other = listen(url, "job"), listen(url, "job")
    assert one.answer.getheader("Content-Type", "").startswith("text/event-stream")
    assert one.answer.getheader("Cache-Control") == "no-store"
    assert one.frame() == other.frame()
    wait_until(lambda: streams.listeners("job") == 2)
    began, built = time.monotonic(), job.built
    for text in ("1.31× faster", "1.32× faster"):
        job.event = {"ended": False, "text": text}
        frames = one.frame(), other.frame()
        assert frames[0] == frames[1]
        assert text in frames[0]
    time.sleep(4 * live.TICK_S)
    also = job.built - built  # read before the clock: a busy machine may pause in between
    assert also <= 2 + (time.monotonic() - began) / live.TICK_S, "as many as one alone would cost"


def test_who_comes_late_gets_the_whole_state_and_the_end_closes(
    url: str, listen: Listen, streams: live.Streams
) -> None:
    job = Job()
    streams.offer("job", job)
    first = listen(url, "job")
    assert first.event()["text"] == "begins"
    job.event["text"] = "goes on"
    assert first.event()["text"] == "goes on"
    late = listen(url, "job")
    assert late.event()["text"] == "goes on"
    job.event["ended"] = True
    for one in (first, late):
        assert one.event()["ended"]
        assert one.frame() == ""
    assert listen(url, "job").event()["ended"], "who comes back afterwards hears of the end"


def test_nothing_is_built_while_nobody_listens(url: str, listen: Listen, streams: live.Streams) -> None:
    job = Job()
    streams.offer("job", job)
    listener = listen(url, "job")
    listener.event()
    listener.close()
    wait_until(lambda: job.event.update(text=str(time.monotonic())) or not streams.listeners("job"))
    wait_until(lambda: not streams._tasks)  # the last event may be built just now
    built = job.built
    time.sleep(4 * live.TICK_S)
    assert job.built == built


def test_what_has_not_changed_is_not_sent_again_but_the_connection_is_kept(
    url: str, listen: Listen, streams: live.Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ALIVE_S", 0.2)
    streams.offer("job", Job())
    listener = listen(url, "job")
    listener.event()
    assert listener.answer.readline() == b"event: alive\n"


def test_a_browser_that_cannot_listen_asks(url: str, streams: live.Streams) -> None:
    job = Job()
    streams.offer("job", job)
    job.event["text"] = "goes on"
    time.sleep(live.TICK_S)
    for _ in range(2):
        answer = ask(url, f"{live.address('job')}&poll=1")
        assert answer.status == 200
        assert answer.getheader("Content-Type") == "application/json"
    line = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_S)
    line.request("GET", f"{live.address('job')}&poll=1")
    assert json.loads(line.getresponse().read()) == job.event
    line.close()


def test_a_stream_that_cannot_be_built_ends(url: str, listen: Listen, streams: live.Streams) -> None:
    def deleted() -> dict[str, Any]:
        raise StoreError("No such trial.")

    def broken() -> dict[str, Any]:
        raise KeyError("a defect")

    for name, build in (("deleted", deleted), ("broken", broken)):
        streams.offer(name, build)
        assert listen(url, name).event() == live.ENDED


def test_the_server_does_not_wait_for_those_who_listen(
    listen: Listen, streams: live.Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ALIVE_S", 10 * WAIT_S)  # no message that keeps the connection wakes it
    streams.offer("job", Job())
    with served() as url:
        listener = listen(url, "job")
        listener.event()


# --- who is refused


@pytest.mark.parametrize("poll", ["", "&poll=1"])
def test_strangers_are_refused(url: str, streams: live.Streams, poll: str) -> None:
    streams.offer("job", Job())
    path = f"{live.address('job')}{poll}"
    assert ask(url, path, Origin="http://evil.example").status == 403
    assert ask(url, path, Host="evil.example").status == 403
    assert ask(url, f"/ortune/live/job?x=1{poll}").status == 403
    assert ask(url, f"/ortune/live/job?key={live.key_of('other')}{poll}").status == 403
    assert ask(url, f"{live.address('never')}{poll}").status == 404
    assert ask(url, path, method="POST").status == 405


def access_by_tokens(home: Path) -> Access:
    """Access by the tokens "ann" and "bob", of a viewer and an engineer."""
    tokens = (
        Token("ann", people_file.hash_of("ann"), "viewer"),
        Token("bob", people_file.hash_of("bob"), "engineer"),
    )
    return Access(lambda: Rules(tokens=tokens), LoginSessions(home), {})


def test_without_the_login_nobody_looks_on(streams: live.Streams, tmp_path: Path) -> None:
    streams.offer("job", Job())
    with served(access_by_tokens(tmp_path)) as url:
        for path in (live.address("job"), f"{live.address('job')}&poll=1"):
            assert ask(url, path).status == 401


def test_a_stream_ends_with_the_session_of_its_listener_and_with_no_other(
    streams: live.Streams, tmp_path: Path
) -> None:
    streams.offer("job", Job())
    access = access_by_tokens(tmp_path)
    cookies = {name: access.log_in_by_token(name) for name in ("ann", "bob")}
    with served(access) as url:
        with contextlib.ExitStack() as stack:
            heard = {}
            for name, cookie in cookies.items():
                asked = urllib.request.Request(
                    url + live.address("job"), headers={"Cookie": f"{COOKIE}={cookie}"}
                )
                heard[name] = stack.enter_context(urllib.request.urlopen(asked, timeout=WAIT_S))
                assert heard[name].readline().startswith(b"retry")
            assert access.sessions.end_all("token:ann") == 1
            heard["ann"].read()  # to the end
            wait_until(lambda: streams.listeners("job") < 2)
            assert streams.listeners("job") == 1
            assert access.sessions.end_all("token:bob") == 1
            heard["bob"].read()
        assert ask(url, live.address("job"), Cookie=f"{COOKIE}={cookies['ann']}").status == 401


class Readers:
    """Who may read of a job."""

    def __init__(self) -> None:
        self.allowed = {"token:ann", "token:bob"}

    def __call__(self, reader: Person) -> bool:
        if "broken" in self.allowed:
            raise KeyError("a defect")
        return reader.id in self.allowed


@pytest.mark.parametrize("now_allowed", [{"token:bob"}, {"broken"}])
def test_who_may_know_of_it_no_longer_gets_the_end_alone(
    streams: live.Streams, tmp_path: Path, listen: Listen, now_allowed: set[str]
) -> None:
    job, readers = Job(), Readers()
    stream = streams.offer("job", job, may_read=readers)
    access = access_by_tokens(tmp_path)
    cookies = {name: f"{COOKIE}={access.log_in_by_token(name)}" for name in ("ann", "bob")}
    with served(access) as url:
        heard = {name: listen(url, "job", Cookie=cookie) for name, cookie in cookies.items()}
        assert all(one.event()["text"] == "begins" for one in heard.values())
        readers.allowed = now_allowed
        job.event = {"ended": False, "text": "private"}
        for name, one in heard.items():
            event = one.event()
            polled = urllib.request.Request(
                f"{url}{live.address('job')}&poll=1", headers={"Cookie": cookies[name]}
            )
            with urllib.request.urlopen(polled, timeout=WAIT_S) as answer:
                assert json.loads(answer.read()) == event
            assert event == (job.event if f"token:{name}" in now_allowed else live.ENDED)
            if event["ended"]:
                assert one.frame() == ""
        assert not stream.ended
    assert stream.for_reader(b"{}", people.NOBODY) != b"{}"


# --- the streams themselves


def test_the_stream_that_was_offered_first_makes_room(
    streams: live.Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST", 2)
    for name in ("a", "b", "a", "c"):
        streams.offer(name, Job())
    assert [streams.find(name) is not None for name in "abc"] == [True, False, True]


def test_a_page_that_is_drawn_again_shows_what_is_now_and_begins_anew_after_an_end(
    streams: live.Streams,
) -> None:
    job = Job()
    stream = streams.offer("job", job)
    job.event["text"] = "goes on"
    assert streams.offer("job", job) is stream
    assert json.loads(stream.newest)["text"] == "goes on"
    job.event["ended"] = True
    stream.refresh(at_once=True)
    job.event["ended"] = False
    assert streams.offer("job", job) is not stream


def test_what_is_read_seldom_is_read_seldom() -> None:
    job = Job()
    seldom = live.CachedRead(job, 60.0)
    assert [seldom() for _ in range(3)] == [job.event] * 3
    assert job.built == 1
