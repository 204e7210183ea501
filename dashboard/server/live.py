"""The route by which browsers look on: one stream per job, built once for everybody who looks.

A page offers a stream while it is drawn: a name, and a function that builds what is shown now. A browser
listens by server-sent events, `GET /ortune/live/<name>?key=…`. While somebody listens, one task builds the
event, at most four times a second, and every listener gets the same bytes when they have changed. The first
event after a connection is always the whole present state, so that a broken connection loses nothing.
`&poll=1` answers that state once, as JSON, for a browser behind a proxy that holds events back.

The key comes with the page: whoever may not see the page cannot know it, whichever login guards the server.
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

if TYPE_CHECKING:
    from starlette.requests import Request

TICK_S = 0.25  # between two events
CALM_S = 1.0  # the same of what goes on for seconds and minutes: drawing it takes CPU from what is measured
ELSEWHERE_S = 2.0  # between two looks into the store, at what another process measures
ALIVE_S = 10.0  # a browser is told so often that the connection stands
RETRY_MS = 1000  # after which a browser comes back to a broken connection
MOST = 256  # streams that are offered at once; the one that was offered first goes
PATH = "/ortune/live/{name}"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the second is for nginx

_SECRET = secrets.token_bytes(32)  # of this process
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_log = logging.getLogger(__name__)

Read = TypeVar("Read")
Build = Callable[[], Mapping[str, object]]  # what is shown now, with "ended" at the end; called in any thread


class Seldom(Generic[Read]):
    """What is read from the disk, for streams that ask for it all the time: anew every few seconds only."""

    def __init__(self, read: Callable[[], Read], every_s: float) -> None:
        """Read it when it is asked for first."""
        self._read, self._every_s = read, every_s
        self._known: tuple[float, Read] | None = None

    def __call__(self) -> Read:
        """Return what was read at most so long ago."""
        known, now = self._known, time.monotonic()
        if known is None or now - known[0] > self._every_s:
            known = self._known = now, self._read()
        return known[1]


class Stream:
    """What is shown of one job, as the bytes of its newest event. Safe from any thread."""

    def __init__(self, build: Build, every_s: float) -> None:
        """Begin without an event."""
        self.build, self.every_s = build, every_s
        self.newest = b""
        self.ended = False
        self.listeners = 0
        self._built_at = float("-inf")  # monotonic
        self._lock = threading.Lock()

    def refresh(self, *, at_once: bool = False) -> bytes:
        """Build the event anew unless that was just done, or even so `at_once`, and return its bytes."""
        with self._lock:
            now = time.monotonic()
            if self.ended or (now - self._built_at < self.every_s / 2 and not at_once):
                return self.newest
            event = self._event()
            self._built_at = now
            self.ended = bool(event.get("ended"))
            self.newest = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
            return self.newest

    def _event(self) -> Mapping[str, object]:
        """What is shown now; where nothing can be built any more, the page has to say why."""
        try:
            return self.build()
        except TunerError:  # deleted since
            return ENDED
        except Exception:  # a defect of ours must cost one view, not the loop of the server
            _log.exception("What is shown of a running job cannot be built")
            return ENDED


class Streams:
    """The streams of this server. Pages offer them from their threads, the loop of the server serves them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._streams: OrderedDict[str, Stream] = OrderedDict()
        self._changed: dict[str, asyncio.Event] = {}  # of the loop alone, as the tasks
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False

    def offer(self, name: str, build: Build, *, every_s: float = TICK_S) -> Stream:
        """Make a stream known, and return it with an event of now; one that goes on keeps its listeners.

        Args:
            name: of the stream; what it shows is the same for all who know it.
            build: builds what is shown now.
            every_s: seconds between two events; more for what is read from the disk.
        """
        with self._lock:
            stream = self._streams.get(name)
            if stream is None or stream.ended:
                stream = self._streams[name] = Stream(build, every_s)
            stream.build, stream.every_s = build, every_s
            self._streams.move_to_end(name)
            while len(self._streams) > MOST:
                self._streams.popitem(last=False)
        stream.refresh(at_once=True)
        return stream

    def find(self, name: str) -> Stream | None:
        """Return the stream of this name; None: no page has offered it."""
        with self._lock:
            return self._streams.get(name)

    def listeners(self, start: str) -> int:
        """Return how many browsers listen to the streams whose names begin so."""
        with self._lock:
            return sum(one.listeners for name, one in self._streams.items() if name.startswith(start))

    def close(self) -> None:
        """End all connections within a tick: browsers come back when there is a server again."""
        self._closing = True

    async def listen(self, name: str, stream: Stream) -> AsyncIterator[bytes]:
        """Yield the frames of one listener: the whole present state, then every change, up to the end."""
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
                    yield b"data: " + sent + b"\n\n"
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
        """Build the event again and again while somebody listens, and wake the listeners when it changed."""
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
    """Return what a browser has to show for a stream, which only a page of this process can tell it."""
    return hmac.new(_SECRET, name.encode(), hashlib.sha256).hexdigest()[:32]


def address(name: str) -> str:
    """Return the path of a stream, with its key, under the server's base."""
    return f"{PATH.replace('{name}', name)}?{urlencode({'key': key_of(name)})}"


async def get(request: Request) -> Response:
    """Answer one who wants to look on: `GET /ortune/live/<name>?key=…`, with `&poll=1` just once."""
    name = request.path_params["name"]
    given = request.query_params.get("key", "")
    if not hmac.compare_digest(given.encode(), key_of(name).encode()):
        return JSONResponse({"error": "Reload the page: it belongs to another run of the server."}, 403)
    stream = STREAMS.find(name) if _NAME.fullmatch(name) else None
    if stream is None:
        return JSONResponse({"error": "There is no such job any more."}, 404)
    if request.query_params.get("poll"):
        body = await asyncio.to_thread(stream.refresh)
        return Response(body, media_type="application/json", headers=HEADERS)
    return StreamingResponse(STREAMS.listen(name, stream), media_type="text/event-stream", headers=HEADERS)


ROUTES = [Route(PATH, get, methods=["GET"])]
