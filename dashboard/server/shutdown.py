"""Shuts the server down on SIGTERM as on Ctrl-C.

uvicorn answers a signal by closing its connections, however long those take, and then raises it again: at
SIGTERM the process would end before the running comparison was cancelled and stored. This module closes our
services as soon as the signal comes, and an open connection does not delay the end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from types import FrameType
from typing import Any

from core.process.interrupt import SIGNALS

PATIENCE_S = 3.0  # for open connections, after our services are closed; Docker kills after ten seconds
LAST_S = 3.0  # then for the server and for pages that still run


class SignalHandling:
    """Handles the signals of one server, and ends it."""

    def __init__(self, close: Callable[[], None]) -> None:
        """Set `close`, which ends all services of the server; called once, in a thread of its own."""
        self._close = close
        self._number = 0  # of the first signal
        self._servers_own: dict[int, Any] = {}
        self._asked = threading.Event()
        self._closed = threading.Event()
        for number in SIGNALS:
            signal.signal(number, self._around_serving)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """Install the handlers while the server serves; they call those that uvicorn has installed before."""
        self._servers_own = {number: signal.getsignal(number) for number in SIGNALS}
        # started now: a handler may interrupt a thread that is being started, and would wait for its lock
        threading.Thread(target=self._end, name="ortune-ending", daemon=True).start()
        for number in SIGNALS:
            signal.signal(number, self._while_serving)
        yield

    def finish(self) -> None:
        """End the process after serving, with 128 + the signal's number, if a signal ended the server."""
        if self._number:
            self._closed.wait()
            sys.exit(128 + self._number)

    def _around_serving(self, number: int, frame: FrameType | None) -> None:
        if not self._asked.is_set():  # before serving: nothing has begun. Afterwards: it is raised again
            os._exit(128 + number)

    def _while_serving(self, number: int, frame: FrameType | None) -> None:
        self._number = self._number or number
        if self._asked.is_set():  # the second does not wait; uvicorn would log a traceback
            logging.getLogger("uvicorn.error").disabled = True
        self._asked.set()
        self._servers_own[number](number, frame)

    def _end(self) -> None:
        self._asked.wait()
        try:
            self._close()
        finally:
            self._closed.set()
            pause = threading.Event()
            pause.wait(PATIENCE_S)
            self._while_serving(signal.SIGINT, None)  # as a second Ctrl-C
            pause.wait(LAST_S)
            os._exit(128 + self._number)
