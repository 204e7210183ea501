"""Requests and open connections of people who are logged in: each ends no later than its session."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from dashboard.server import provider

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dashboard.server.login_sessions import LoginSession
    from dashboard.server.people import Access

CHECK_S = 5.0  # between two looks whether another server with this home has ended a session

Refuse = Callable[["Scope", "Send", int, str], Awaitable[None]]  # answers with a status and a text


class Connections:
    """Serves what the gate has let pass; on the server's event loop."""

    def __init__(self, app: ASGIApp, access: Access, refuse: Refuse) -> None:
        """Serve `app` for the people of `access`."""
        self.app, self.access, self.refuse = app, access, refuse
        self.replaced: deque[str] = deque(maxlen=1000)  # keys of sessions that ended by another login
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        access.sessions.on_end(self._wake)

    async def serve(self, scope: Scope, receive: Receive, send: Send, session: LoginSession) -> None:
        """Serve a request, or a connection that stays open, no longer than its session lasts."""
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        work = asyncio.ensure_future(self.app(scope, receive, send_on))
        watch = asyncio.ensure_future(self._end_of(session.key))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return await work
            work.cancel()
            await asyncio.wait({work})
            await self._say_ended(scope, send, session, begun=begun)
        finally:
            work.cancel()
            watch.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    async def _end_of(self, key: str) -> None:
        """Return as soon as a session has ended, or its person has no access any more."""
        event = asyncio.Event()
        waits = asyncio.get_running_loop(), event
        self._waiting.add(waits)
        try:
            while found := self.access.get(key):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), min(CHECK_S, self.access.sessions.left_s(found[0])))
                event.clear()
        finally:
            self._waiting.discard(waits)

    def _wake(self) -> None:
        """Let all connections look whether their session has ended; called in any thread."""
        for loop, event in list(self._waiting):
            with contextlib.suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(event.set)

    async def _say_ended(self, scope: Scope, send: Send, session: LoginSession, *, begun: bool) -> None:
        """End a connection; a page first goes to the login."""
        if not begun:
            await self.refuse(scope, send, 401, "The session has ended. Log in again.")
        elif scope["type"] == "websocket":
            expired = self.access.sessions.left_s(session) == 0
            stays = expired or session.token or session.key in self.replaced
            place = "" if stays else provider.logout_path()
            await send({"type": "websocket.send", "bytes": _open_in_browser(place)})
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
        else:
            await send({"type": "http.response.body", "body": b""})


def _open_in_browser(place: str) -> bytes:
    """Return the message of Streamlit that makes a page open an address; empty: its own one again."""
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    message = ForwardMsg()
    message.auth_redirect.url = place
    return bytes(message.SerializeToString())
