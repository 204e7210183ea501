"""What the server itself records in the audit log: uploads, files that browsers save, wrong tokens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from core.store import audit
from dashboard.server.login_sessions import PERSON

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

UPLOADS = "/_stcore/upload_file/"  # Streamlit's own uploader, for all files except models
_ATTACHMENT = re.compile(rb"attachment; *filename(?:=\"(?P<plain>[^\"]*)\"|\*=utf-8''(?P<coded>.*))")
_PART = re.compile(rb"(?P<boundary>[^\r\n]*)\r\n.*?; filename=\"(?P<name>[^\"\r\n]*)\".*?\r\n\r\n", re.DOTALL)
_MOST_HEAD = 4096  # bytes at the begin of an upload, which name its file


def record_upload(scope: Scope, name: str, size_bytes: int) -> None:
    """Record a file that has arrived."""
    _later(partial(audit.record, "upload", f"file `{name}`", who=_person(scope), bytes=size_bytes))


def recording_upload(scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Return both so that a file that arrives by Streamlit's own uploader is recorded."""
    head, size_bytes = bytearray(), 0

    async def receive_noting() -> Message:
        nonlocal size_bytes
        message = await receive()
        body = message.get("body", b"")
        size_bytes += len(body)
        head.extend(body[: _MOST_HEAD - len(head)])
        return message

    async def send_recording(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 300:
            part = _PART.match(head)
            name = "" if part is None else unquote(part["name"].decode("utf-8", "replace"))
            # besides the file, the form has the head of its part and `\r\n`, boundary, `--\r\n` at its end
            framing = 0 if part is None else part.end() + len(part["boundary"]) + 6
            record_upload(scope, name, max(0, size_bytes - framing))
        await send(message)

    return receive_noting, send_recording


def record_saved_file(scope: Scope, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Record an answer with these headers, if a browser saves it as a file."""
    match = next((_ATTACHMENT.match(value) for name, value in headers if name.lower() == _DISPOSITION), None)
    if match is not None:
        name = unquote((match["plain"] or match["coded"] or b"").decode("latin-1"))
        _later(partial(audit.record, "export", "download", who=_person(scope), file=name))


def record_wrong_token(address: str, count: int) -> None:
    """Record `count` wrong tokens, the last of them from this address."""
    _later(partial(audit.record, "log-in-refused", "wrong token", who="", address=address, count=count))


_DISPOSITION = b"content-disposition"


def _person(scope: Scope) -> str:
    """Return the id of the person of a request, which the gate has found."""
    return str(getattr(scope.get(PERSON), "id", audit.LOCAL))


def _later(write: partial[None]) -> None:
    """Write in another thread: a slow disk must not stop the server."""
    asyncio.get_running_loop().run_in_executor(None, write)
