"""How parent and children talk: JSON objects, one a line, over a pipe or a socket.

    {"id": 7, "do": NAME, "with": {…}}                       a request
    {"id": 7, "live": {"stage", "done", "total", "text"}}    how far it is, as often as the child likes
    {"id": 7, "ok": {…}}                                     its reply,
    {"id": 7, "error": ErrorRecord}                          or this

A child does one thing at a time. The parent may give a request up and send another: the id keeps the reply
to the first from being taken for that to the second. What has no id is for the last request, or came before
any. Bytes go in and bytes come out: who moves them may block, poll or wait as it must. Standard library only.
"""

from __future__ import annotations

import collections
import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from core.wire import Progress
from core.wire.errors import TunerError, WorkerError, error_from_record, record_from_exception

MAX_LINE_BYTES = 1 << 30  # a line longer than this is a flood

Command = Callable[[Any, Progress], Mapping[str, Any]]  # arguments and who hears of progress -> reply


class Broken(Exception):
    """The other side wrote something that is no message, `noise`, or it ended: None."""

    def __init__(self, noise: bytes | None = None) -> None:
        self.noise = noise
        super().__init__(noise)


def line(message: Mapping[str, Any]) -> bytes:
    """Return `message` as it is sent."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Cuts bytes that come in pieces into lines."""

    def __init__(self) -> None:
        self.rest = bytearray()  # of a line that has not ended

    def cut(self, data: bytes) -> list[bytes]:
        """Return the lines that end in `data`, without their ends.

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
            raise Broken(bytes(self.rest[:400]))
        return whole


class Asking:
    """The parent's end: numbers requests, and knows what is said of the last one."""

    def __init__(self) -> None:
        self._asked = 0  # id of the last request
        self._pieces = Lines()
        self._lines: collections.deque[bytes] = collections.deque()
        self._ended = False

    def request(self, do: str, arguments: Mapping[str, Any]) -> bytes:
        """Return the bytes of the next request."""
        self._asked += 1
        return line({"id": self._asked, "do": do, "with": arguments})

    def hear(self, data: bytes) -> None:
        """Take what the other side wrote, a piece of any size; no bytes: it has ended.

        Raises:
            Broken: a line is too long.
        """
        self._ended = not data
        self._lines += self._pieces.cut(data)

    def reply(self, progress: Progress = lambda *_: None) -> dict[str, Any] | None:
        """Return the reply to the last request, or None where it has not come yet.

        Args:
            progress: told how far the request is.

        Raises:
            TunerError: the error that the other side replies with.
            Broken: a line is no message, and is passed over by the next call; or the other side has ended.
        """
        while self._lines:
            heard = self._lines.popleft()
            message = _decoded(heard)
            if message.get("id") not in (None, self._asked):  # of a request that was given up
                continue
            match message:
                case {"ok": dict() as value}:
                    return value
                case {"error": {"type": str(), "message": str(), "hint": str()} as record}:
                    raise error_from_record(record)
                case {
                    "live": {"stage": str(stage), "done": int(done), "total": int(total), "text": str(text)}
                }:
                    progress(stage, done, total, text)
                case _:
                    raise Broken(heard)
        if self._ended:
            raise Broken
        return None

    @property
    def unfinished(self) -> bytes:
        """What was heard of a line that has not ended."""
        return bytes(self._pieces.rest)


def obey(
    request: bytes, commands: Mapping[str, Command], send: Callable[[bytes], object], *, who: str
) -> None:
    """Do what the line `request` asks: the child's end. Whatever happens, one reply is sent.

    Args:
        request: the line.
        commands: by name.
        send: given the bytes of each message.
        who: obeys, for messages.

    Raises:
        OSError: nobody is left to hear the reply.
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


def _decoded(text: bytes) -> dict[str, Any]:
    """The JSON object in `text`, or an empty one where there is none."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
