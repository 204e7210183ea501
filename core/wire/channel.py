"""The protocol between parent and child processes: one JSON object per line, over a pipe or a socket.

    {"id": 7, "do": NAME, "with": {…}}                       a request
    {"id": 7, "live": {"stage", "done", "total", "text"}}    its progress, any number of times
    {"id": 7, "ok": {…}}                                     its reply,
    {"id": 7, "error": ErrorRecord}                          or this

A child runs one request at a time. The parent may abandon a request and send another; the id tells their
replies apart. A message without an id belongs to the last request, or precedes the first. This module only
converts bytes; its callers move them, and may block, poll or wait. Standard library only.
"""

from __future__ import annotations

import collections
import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from core.wire import Progress
from core.wire.errors import (
    TunerError,
    WorkerError,
    error_from_worker,
    record_from_exception,
    without_controls,
)

MAX_LINE_BYTES = 1 << 30  # a longer line is refused
MOST_CONTAINERS = 4_000_000  # lists and objects of one message: each takes 20 times its text in memory
MOST_VALUES = 32_000_000
_LONGEST_STAGE, _LONGEST_TEXT = 100, 400  # characters of a progress message

Command = Callable[[Any, Progress], Mapping[str, Any]]  # arguments and progress callback -> reply


class BrokenChannel(Exception):
    """The other side wrote an invalid message (`noise`), or it ended (`noise` is None)."""

    def __init__(self, noise: bytes | None = None) -> None:
        self.noise = noise
        super().__init__(noise)


def line(message: Mapping[str, Any]) -> bytes:
    """Return `message` as bytes to send."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class LineSplitter:
    """Splits a stream of bytes into lines."""

    def __init__(self) -> None:
        self.rest = bytearray()  # start of an unfinished line

    def complete_lines(self, data: bytes) -> list[bytes]:
        """Return the lines that the chunk `data` completes, without their line ends.

        Raises:
            Broken: a line has more than `MAX_LINE_BYTES`.
        """
        *ends, rest = data.split(b"\n")
        whole = []
        for end in ends:
            whole.append(bytes(self.rest) + end)
            self.rest.clear()
        self.rest += rest
        if len(self.rest) > MAX_LINE_BYTES:
            raise BrokenChannel(bytes(self.rest[:400]))
        return whole


class RequestChannel:
    """The parent's side: numbers requests, and finds the reply to the last one."""

    def __init__(self) -> None:
        self._request_id = 0  # id of the last request
        self._bytes_left = MAX_LINE_BYTES  # that the other side may still write for it
        self._stores = False  # whether it may reply with an error of the store
        self._pieces = LineSplitter()
        self._lines: collections.deque[bytes] = collections.deque()
        self._ended = False

    def request(self, do: str, arguments: Mapping[str, Any]) -> bytes:
        """Return the bytes of the next request."""
        self._request_id += 1
        self._bytes_left = getattr(do, "most_bytes", MAX_LINE_BYTES)
        self._stores = getattr(do, "stores", False)
        return line({"id": self._request_id, "do": do, "with": arguments})

    def receive_bytes(self, data: bytes) -> None:
        """Add a chunk of any size from the other side; no bytes: it has ended.

        Raises:
            Broken: a line is too long, or there are more bytes than the request allows.
        """
        self._ended = not data
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise BrokenChannel(data[:400])
        self._lines += self._pieces.complete_lines(data)

    def reply(self, progress: Progress = lambda *_: None) -> dict[str, Any] | None:
        """Return the reply to the last request; None: it has not arrived yet.

        Args:
            progress: called with the progress of the request.

        Raises:
            TunerError: the error that the other side replies with, see `error_from_worker`.
            Broken: a line is no message, and the next call skips it; or the other side has ended.
        """
        while self._lines:
            received = self._lines.popleft()
            message = _decoded(received)
            if message.get("id") not in (None, self._request_id):  # of an abandoned request
                continue
            match message:
                case {"ok": dict() as value}:
                    return value
                case {"error": {"type": str(), "message": str(), "hint": str()} as record}:
                    raise error_from_worker(record, stores=self._stores)
                case {
                    "live": {"stage": str(stage), "done": int(done), "total": int(total), "text": str(text)}
                }:
                    texts = (without_controls(stage[:_LONGEST_STAGE]), without_controls(text[:_LONGEST_TEXT]))
                    progress(texts[0], _count(done), _count(total), texts[1])
                case _:
                    raise BrokenChannel(received)
        if self._ended:
            raise BrokenChannel
        return None

    @property
    def unfinished_line(self) -> bytes:
        """The received part of an unfinished line."""
        return bytes(self._pieces.rest)


def obey(
    request: bytes, commands: Mapping[str, Command], send: Callable[[bytes], object], *, who: str
) -> None:
    """Run the request in a line, on the child's side. Exactly one reply is sent, also after an error.

    Args:
        request: the line.
        commands: by name.
        send: called with the bytes of each message.
        who: name of this process, for messages.

    Raises:
        OSError: the parent is gone.
    """
    message = _decoded(request)
    number = message.get("id")

    def progress(stage: str, done: int, total: int, text: str = "") -> None:
        facts = {"stage": stage, "done": done, "total": total, "text": text}
        send(line({"id": number, "live": facts}))

    try:
        command = commands.get(str(message.get("do")))
        if command is None:
            raise WorkerError(
                f"The {who} was sent no request that it knows: {request[:80]!r}.",
                hint="Start it through ORTune's commands.",
            )
        reply = line({"id": number, "ok": command(message.get("with") or {}, progress)})
    except Exception as error:
        if not isinstance(error, TunerError | MemoryError):
            traceback.print_exc()
        reply = line({"id": number, "error": record_from_exception(error)})
    send(reply)


def _count(number: int) -> int:
    """A number of steps that a reader of JSON can hold."""
    return min(max(0, number), 1 << 53)


def _decoded(text: bytes) -> dict[str, Any]:
    """The JSON object in `text`, or an empty one where there is none."""
    if text.count(b"[") + text.count(b"{") > MOST_CONTAINERS or text.count(b",") > MOST_VALUES:
        return {}
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
