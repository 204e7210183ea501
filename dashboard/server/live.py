"""The route of live updates: one stream per job, built once for all connected browsers.

A page offers a stream while it is drawn: a name, and a function that builds the present event. A browser
listens by server-sent events, `GET /ortune/live/<name>?key=…`. While there are listeners, one task builds the
event, at most four times a second, and every listener gets the same bytes when they have changed. The first
event after a connection is always the complete present state, so a broken connection loses nothing. `&poll=1`
answers that state once, as JSON, for a browser behind a proxy that buffers events.

The page delivers the key, so only visitors who passed the server's login know it. A result may become private
while it is watched, so each event is sent only to a person who may know of it then.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import urlencode

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from core.wire.errors import TunerError
from dashboard.live_events import ENDED
from dashboard.server import people
from dashboard.server.gate import OTHER_RUN
from dashboard.server.people import LOCAL, Person

if TYPE_CHECKING:
    from starlette.requests import Request

TICK_S = 0.25  # between two events
SLOW_TICK_S = 1.0  # the same for jobs of seconds or minutes: drawing takes CPU time from the measurement
OTHER_PROCESS_TICK_S = 2.0  # between two reads of the store, for jobs of another process
ALIVE_S = 10.0  # between two keep-alive messages
RETRY_MS = 1000  # before a browser reconnects
MOST = 256  # streams at once; the oldest is dropped
PATH = "/ortune/live/{name}"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the second is for nginx

_SECRET = secrets.token_bytes(32)  # of this process
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_log = logging.getLogger(__name__)

Read = TypeVar("Read")
Build = Callable[[], Mapping[str, object]]  # the present event, with "ended" at the end; called in any thread
MayRead = Callable[[Person], bool]  # whether a person may know of what a stream tells; called in any thread


class CachedRead(Generic[Read]):
    """A cached read from the disk for streams that call it often: refreshed every few seconds only."""

    def __init__(self, read: Callable[[], Read], every_s: float) -> None:
        """Read on the first call."""
        self._read, self._every_s = read, every_s
        self._known: tuple[float, Read] | None = None

    def __call__(self) -> Read:
        """Return a value that is at most that old."""
        known, now = self._known, time.monotonic()
        if known is None or now - known[0] > self._every_s:
            known = self._known = now, self._read()
        return known[1]


class Stream:
    """The newest event of one job, as bytes. Thread-safe."""

    def __init__(self, build: Build, every_s: float, may_read: MayRead) -> None:
        """Begin without an event."""
        self.build, self.every_s, self.may_read = build, every_s, may_read
        self.newest = b""
        self.ended = False
        self.listeners = 0
        self._built_at = float("-inf")  # monotonic
        self._lock = threading.Lock()

    def refresh(self, *, at_once: bool = False) -> bytes:
        """Build the event unless that was just done, or always with `at_once`, and return its bytes."""
        with self._lock:
            now = time.monotonic()
            if self.ended or (now - self._built_at < self.every_s / 2 and not at_once):
                return self.newest
            event = self._event()
            self._built_at = now
            self.ended = bool(event.get("ended"))
            self.newest = _as_bytes(event)
            return self.newest

    def for_reader(self, event: bytes, reader: Person) -> bytes:
        """Return an event as a person may read it now: the end, if not or if that cannot be found out."""
        try:
            if reader == LOCAL or (reader.id and self.may_read(reader)):
                return event
        except TunerError:  # the store cannot be read
            pass
        except Exception:  # fails closed
            _log.exception("It cannot be found out who may read what is shown of a running job")
        return _END

    def _event(self) -> Mapping[str, object]:
        """Build the event; after an error, end the stream, so that the page runs and shows the reason."""
        try:
            return self.build()
        except TunerError:  # deleted meanwhile
            return ENDED
        except Exception:  # a bug of ours must cost one view, not the server's loop
            _log.exception("What is shown of a running job cannot be built")
            return ENDED


def _as_bytes(event: Mapping[str, object]) -> bytes:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()


_END = _as_bytes(ENDED)


def _anyone(reader: Person) -> bool:
    return True


class Streams:
    """The streams of this server. Pages offer them from their threads; the server's loop serves them."""

    def __init__(self) -> None:
        """Begin without streams."""
        self._lock = threading.Lock()
        self._streams: OrderedDict[str, Stream] = OrderedDict()
        self._changed: dict[str, asyncio.Event] = {}  # used by the loop only, as the tasks
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False

    def offer(
        self, name: str, build: Build, *, every_s: float = TICK_S, may_read: MayRead = _anyone
    ) -> Stream:
        """Register a stream, and return it with a current event; an existing one keeps its listeners.

        Args:
            name: of the stream; its content is the same for every listener.
            build: builds the present event.
            every_s: seconds between two events; more for data read from the disk.
            may_read: asked before each event that is sent; who may not read gets the end.
        """
        with self._lock:
            stream = self._streams.get(name)
            if stream is None or stream.ended:
                stream = self._streams[name] = Stream(build, every_s, may_read)
            stream.build, stream.every_s, stream.may_read = build, every_s, may_read
            self._streams.move_to_end(name)
            while len(self._streams) > MOST:
                self._streams.popitem(last=False)
        stream.refresh(at_once=True)
        return stream

    def find(self, name: str) -> Stream | None:
        """Return the stream of this name; None: no page has offered one."""
        with self._lock:
            return self._streams.get(name)

    def listeners(self, start: str) -> int:
        """Return the number of browsers that listen to streams with this prefix."""
        with self._lock:
            return sum(one.listeners for name, one in self._streams.items() if name.startswith(start))

    def close(self) -> None:
        """End all connections within a tick; browsers reconnect when there is a server again."""
        self._closing = True

    async def listen(self, name: str, stream: Stream, reader: Person) -> AsyncIterator[bytes]:
        """Yield the frames of one listener: the complete present state, then every change until the end."""
        stream.listeners += 1
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            sent = b""
            while not self._closing:
                changed = self._changed.setdefault(name, asyncio.Event())
                self._keep_ticking(name, stream)
                newest = stream.newest if sent else await asyncio.to_thread(stream.refresh)
                if newest != sent:
                    sent = newest
                    told = await asyncio.to_thread(stream.for_reader, newest, reader)
                    yield b"data: " + told + b"\n\n"
                    if told == _END:
                        return
                if stream.ended:
                    return
                try:
                    await asyncio.wait_for(changed.wait(), ALIVE_S)
                except TimeoutError:
                    yield b"event: alive\ndata:\n\n"
        finally:
            stream.listeners -= 1

    def _keep_ticking(self, name: str, stream: Stream) -> None:
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = asyncio.create_task(self._tick(name, stream))

    async def _tick(self, name: str, stream: Stream) -> None:
        """Rebuild the event while there are listeners, and wake them when it has changed."""
        try:
            while stream.listeners and not stream.ended and not self._closing:
                before = stream.newest
                if await asyncio.to_thread(stream.refresh) != before:
                    self._wake(name)
                await asyncio.sleep(stream.every_s)
        finally:
            self._tasks.pop(name, None)
            self._wake(name)

    def _wake(self, name: str) -> None:
        if (changed := self._changed.pop(name, None)) is not None:
            changed.set()


STREAMS = Streams()


def key_of(name: str) -> str:
    """Return the key that a browser must send for a stream; only a page of this process knows it."""
    return hmac.new(_SECRET, name.encode(), hashlib.sha256).hexdigest()[:32]


def address(name: str) -> str:
    """Return the path of a stream, with its key, below the server's base path."""
    return f"{PATH.replace('{name}', name)}?{urlencode({'key': key_of(name)})}"


async def get(request: Request) -> Response:
    """Answer `GET /ortune/live/<name>?key=…` with a stream, or with one event for `&poll=1`."""
    name = request.path_params["name"]
    given = request.query_params.get("key", "")
    if not hmac.compare_digest(given.encode(), key_of(name).encode()):
        return JSONResponse({"error": OTHER_RUN}, 403)
    stream = STREAMS.find(name) if _NAME.fullmatch(name) else None
    if stream is None:
        return JSONResponse({"error": "There is no such job any more."}, 404)
    reader = people.of_request(request.scope)
    if request.query_params.get("poll"):
        body = await asyncio.to_thread(lambda: stream.for_reader(stream.refresh(), reader))
        return Response(body, media_type="application/json", headers=HEADERS)
    frames = STREAMS.listen(name, stream, reader)
    return StreamingResponse(frames, media_type="text/event-stream", headers=HEADERS)


def routes(base: str = "") -> list[Route]:
    """Return the route of streams on a server with this base path."""
    return [Route(base + PATH, get, methods=["GET"])]
