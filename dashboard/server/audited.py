"""What the server itself records in the audit log: refused tokens, and files that browsers save."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import partial
from urllib.parse import unquote

from core.store import audit

_ATTACHMENT = re.compile(rb"attachment; *filename(?:=\"(?P<plain>[^\"]*)\"|\*=utf-8''(?P<coded>.*))")


def record_saved_file(headers: Iterable[tuple[bytes, bytes]], who: str) -> None:
    """Record an answer with these headers, if a browser saves it as a file."""
    match = next((_ATTACHMENT.match(value) for name, value in headers if name.lower() == _DISPOSITION), None)
    if match is not None:
        name = unquote((match["plain"] or match["coded"] or b"").decode("latin-1"))
        _later(partial(audit.record, "export", "download", who=who, file=name))


def record_wrong_token(address: str, count: int) -> None:
    """Record `count` wrong tokens, the last of them from this address."""
    _later(partial(audit.record, "log-in-refused", "wrong token", who="", address=address, count=count))


_DISPOSITION = b"content-disposition"


def _later(write: partial[None]) -> None:
    """Write in another thread: a slow disk must not stop the server."""
    asyncio.get_running_loop().run_in_executor(None, write)
