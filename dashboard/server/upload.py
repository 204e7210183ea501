"""Uploads from the browser to the server's disk: the HTTP route that streams files, and the widget.

Streamlit's own uploader keeps a file in memory twice; a model of some GB would take the server down. Here the
browser PUTs each file, the route writes it as it arrives, and memory use stays constant. The route is outside
of Streamlit's protections, so it has its own: a token of this process, the same origin, a size limit, checked
names, and a temporary name until the file is complete. Disk space is reserved before a byte is written, for
all concurrent uploads together, and checked again with every chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import hmac
import os
import re
import secrets
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import streamlit as st
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from core.store import home
from core.wire import variables
from core.wire.errors import SpecError, TunerError, record_from_error
from core.wire.files import made_private, private_opener
from dashboard import messages, state, url_state
from dashboard.format import size as size_text
from dashboard.server import people, quotas
from dashboard.server.audited import record_upload
from dashboard.server.gate import OTHER_RUN, same_origin

TOKEN = secrets.token_urlsafe(32)  # of this process; a page that we did not serve cannot know it
TOKEN_HEADER = "X-ORTune-Token"  # noqa: S105 - the name of a header
DEFAULT_LIMIT_BYTES = 8 << 30
LIMIT_VARIABLE = variables.MAX_UPLOAD_BYTES
QUOTA_VARIABLE = variables.MAX_WAITING_BYTES
QUOTA_FILES = 4  # of the largest size may wait to be processed
MOST_FILES = 1000  # of any size
KEEP_FREE_BYTES = 256 << 20  # a full disk would also stop the store
IDLE_S = 60.0  # a sender that is silent for so long has disconnected
STALE_S = 24 * 3600.0  # a batch that nobody has processed within a day is removed
CLEAN_EVERY_S = 3600.0
_CLOCK = time.time() - time.monotonic()  # a clock set forward later does not make a batch older
PATH = "/api/upload/{batch}/{name:path}"

_BATCH = re.compile(r"[0-9a-f]{32}")
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')
MAX_NAME_BYTES = 200


def limit_bytes() -> int:
    """Return the largest file size for uploads, $ORTUNE_MAX_UPLOAD_BYTES or 8 GiB."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    return int(text) if text.isdigit() else DEFAULT_LIMIT_BYTES


def folder() -> Path:
    """Return the folder where uploads wait for the library."""
    return home() / "uploads"


def checked_name(name: str) -> str:
    """Return `name` if it is a valid file name here.

    An invalid name is refused, not repaired: a model finds its external data by the exact name.

    Raises:
        SpecError: a path, a hidden file, a control character, or too long.
    """
    if not name or name.startswith(".") or _FORBIDDEN.search(name) or len(name.encode()) > MAX_NAME_BYTES:
        raise SpecError(
            f"`{name[:60]!a}` cannot be the name of an uploaded file.",
            hint='Rename it: no slashes, no leading dot, none of : * ? " < > |, at most 200 bytes.',
        )
    return name


async def put(request: Request) -> Response:
    """Store one file of a batch: `PUT /api/upload/<batch>/<name>`."""
    if refusal := _refusal(request):
        return refusal
    batch = request.path_params["batch"]
    try:
        name = checked_name(unquote(request.path_params["name"]))
    except TunerError as error:
        return _answer(400, f"{error.message} {error.hint}")
    target = folder() / batch / name
    part = target.with_name(f".{uuid.uuid4().hex}.part")
    declared = int(request.headers["content-length"])
    person = _limited_person(request.scope)
    try:
        with _room.reserved(part, declared, person):
            made_private(target.parent)
            _name_person(batch, person)
            await _stream(request, part, declared)
            part.replace(target)
    except _RefusedError as refused:
        return _answer(refused.status, str(refused))
    except TimeoutError:
        return _answer(408, f"No data came for {IDLE_S:g} s.")
    except ClientDisconnect:
        return _answer(400, _BROKEN_OFF)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return _answer(507, _DISK_FULL) if full else _answer(500, f"Cannot write: {error}.")
    finally:
        part.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds files, except where this one was refused
            target.parent.rmdir()
    record_upload(request.scope, name, declared)
    return JSONResponse({"name": name, "size_bytes": declared})


def _refusal(request: Request) -> Response | None:
    token = request.headers.get(TOKEN_HEADER, "")
    if not hmac.compare_digest(token.encode(), TOKEN.encode()):
        return _answer(403, OTHER_RUN)
    if not same_origin(request.headers.get("origin"), request.headers.get("host")):
        return _answer(403, "Uploads come from ORTune's own pages only.")
    if not _BATCH.fullmatch(request.path_params["batch"]):
        return _answer(400, _NO_BATCH)
    declared = request.headers.get("content-length", "")
    if not (declared.isascii() and declared.isdigit()) or "transfer-encoding" in request.headers:
        return _answer(411, "The upload does not say how large it is.")
    if len(declared) > 18 or int(declared) > limit_bytes():
        return _answer(413, f"The file is larger than {limit_bytes():,} bytes.")
    return None


_NO_ROOM = "The server's disk has no room for this file. Free some disk there, and upload it again."
_NO_BATCH = "The upload has no valid batch."
_BROKEN_OFF = "The upload was broken off. Upload the file again."
_DISK_FULL = "The server's disk is full. Free some of it, and upload the file again."


class _RefusedError(Exception):
    """A refused upload; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _ReservedSpace:
    """The disk space reserved for incoming files, so that concurrent uploads have room."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._to_come: dict[Path, int] = {}  # file -> bytes

    @contextlib.contextmanager
    def reserved(self, part: Path, size: int, person: str) -> Iterator[None]:
        """Reserve `size` bytes for `part` during the `with`; refused if there is no room.

        Args:
            part: file to write.
            size: in bytes.
            person: who sends it and has a quota; empty: there is none.
        """
        with self._lock:
            to_come = size + sum(self._to_come.values())
            if to_come > _free_bytes() - KEEP_FREE_BYTES:
                raise _RefusedError(507, _NO_ROOM)
            files, waiting = _waiting()
            if files + len(self._to_come) >= MOST_FILES or waiting + to_come > _quota_bytes():
                raise _RefusedError(507, "Too many uploads wait to be read. Try again later.")
            self._check_person(person, size)
            self._to_come[part] = size
        try:
            yield
        finally:
            with self._lock:
                del self._to_come[part]

    def _check_person(self, person: str, size: int) -> None:
        """Refuse a file with which the uploads of its person would exceed the quota."""
        most = people.quotas().upload_bytes if person else None
        if most is None:
            return
        used = sum(left for part, left in self._to_come.items() if _persons.get(part.parent.name) == person)
        used += waiting_of().get(person, 0)
        if used + size > most:
            raise _RefusedError(
                507,
                f"This file has {size_text(size)}, and your other uploads that are not imported yet have "
                f"{size_text(used)}. The limit is {size_text(most)}. Import those first, or ask an admin for "
                "a higher limit.",
            )

    def count_written(self, part: Path, size: int) -> None:
        """Count `size` bytes as written; refused if other files have taken the space meanwhile."""
        with self._lock:
            self._to_come[part] -= size
        if _free_bytes() < KEEP_FREE_BYTES:
            raise _RefusedError(507, _DISK_FULL)

    def uses(self, batch: Path) -> bool:
        """Whether a file of this batch is arriving."""
        with self._lock:
            return any(part.parent == batch for part in self._to_come)


_room = _ReservedSpace()


def _free_bytes() -> int:
    return shutil.disk_usage(_existing(folder())).free


def _quota_bytes() -> int:
    text = os.environ.get(QUOTA_VARIABLE, "")
    return int(text) if text.isdigit() else QUOTA_FILES * limit_bytes()


def _waiting() -> tuple[int, int]:
    """Return the number of files that wait or arrive, and their bytes on the disk."""
    files = size = 0
    for path in folder().rglob("*"):
        with contextlib.suppress(OSError):  # just processed
            if path.is_file():
                files, size = files + 1, size + path.stat().st_size
    return files, size


_persons: dict[str, str] = {}  # batch with a folder -> the person who sent its last file; without admins
MOST_BATCHES = 10_000  # that are known


def _limited_person(scope: Mapping[str, Any]) -> str:
    """Return the id of the person who sends a file; empty for admins, who have no quota."""
    one = people.of_request(scope)
    return "" if one.may_act_as("admin") else one.id


def _name_person(batch: str, person: str) -> None:
    """Remember who sends a file, for the quota."""
    _persons.pop(batch, None)
    if not person:
        return
    while len(_persons) >= MOST_BATCHES:
        _persons.pop(next(iter(_persons)), None)
    _persons[batch] = person


def waiting_of() -> dict[str, int]:
    """Return the bytes of the uploads of each person that are not imported yet."""
    found: dict[str, int] = {}
    for batch, person in list(_persons.items()):
        if not (folder() / batch).is_dir():  # processed
            _persons.pop(batch, None)
        for path in (folder() / batch).glob("*"):
            with contextlib.suppress(OSError):  # just processed
                found[person] = found.get(person, 0) + path.stat().st_size
    return found


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


async def _stream(request: Request, part: Path, declared: int) -> None:
    """Write the incoming bytes, exactly as many as `declared`."""
    stored, chunks = 0, request.stream()
    with open(part, "xb", opener=private_opener) as file:
        while True:
            async with asyncio.timeout(IDLE_S):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            stored += len(chunk)
            if stored > declared:
                raise _RefusedError(413, f"The file is larger than {declared:,} bytes. Upload it again.")
            file.write(chunk)
            file.flush()  # written bytes must take their space on the disk before they are counted
            _room.count_written(part, len(chunk))
    if stored < declared:
        raise _RefusedError(400, _BROKEN_OFF)


def _answer(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)


def routes(base: str = "") -> list[Route]:
    """Return the route of uploads on a server with this base path."""
    return [Route(base + PATH, put, methods=["PUT"])]


def remove_stale(now: float | None = None) -> None:
    """Remove batches that nobody has processed."""
    now = min(time.time(), _CLOCK + time.monotonic()) if now is None else now
    with contextlib.suppress(OSError):
        for batch in folder().iterdir():
            with contextlib.suppress(OSError):
                if now - _last_change(batch) > STALE_S and not _room.uses(batch):
                    _remove(batch)


def _last_change(batch: Path) -> float:
    return max(path.stat().st_mtime for path in (batch, *batch.iterdir()))


def keep_clean() -> None:
    """Remove stale batches now and every hour, while this server runs."""
    remove_stale()

    def clean() -> None:
        pause = threading.Event()
        while not pause.wait(CLEAN_EVERY_S):
            remove_stale()

    threading.Thread(target=clean, name="ortune-uploads", daemon=True).start()


def claim_files(batch: str, names: Sequence[str]) -> list[Path]:
    """Return the files of a finished batch.

    Raises:
        SpecError: this server did not store the batch or a name.
    """
    if not _BATCH.fullmatch(batch):
        raise SpecError(_NO_BATCH, hint="Upload again.")
    files = [folder() / batch / checked_name(name) for name in names]
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise SpecError(
            f"The upload of {', '.join(missing) or 'nothing'} is incomplete.", hint="Upload again."
        )
    return files


def discard(files: Sequence[Path]) -> None:
    """Remove the remaining files of the batches of `files`."""
    for batch in {file.parent for file in files}:
        if batch.parent == folder():
            _remove(batch)


def _remove(batch: Path) -> None:
    _persons.pop(batch.name, None)
    shutil.rmtree(batch, ignore_errors=True)


def keep(files: Sequence[Path], place: Path) -> list[Path]:
    """Move uploaded files into `place/<their content>/`, so that settings may refer to them permanently."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    target = place / digest.hexdigest()[:16]
    made_private(target)
    kept = [file.replace(target / file.name) for file in files]
    discard(files)
    return kept


# --- the widget -------------------------------------------------------------------------------------------

_HTML, _CSS, _JS = (
    Path(__file__).with_name(f"upload.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
)
_component = st.components.v2.component("ortune_upload", html=_HTML, css=_CSS, js=_JS)


def uploader(
    label: str,
    *,
    key: str,
    accept: str,
    hint: str,
    on_upload: Callable[[list[Path]], None],
    multiple: bool = True,
    most_bytes: int | None = None,
) -> None:
    """Draw the upload area; a callback passes the files of each finished batch to `on_upload`.

    A browser sends no file above `most_bytes` or the server's own limit. A `TunerError` of `on_upload` is
    shown below the area.
    """
    most = limit_bytes() if most_bytes is None else min(most_bytes, limit_bytes())
    batch_key = f"{key}.batch"
    st.session_state.setdefault(batch_key, uuid.uuid4().hex)
    wrong = st.session_state.pop(f"{key}.error", None)

    def uploaded() -> None:
        sent: dict[str, Any] | None = st.session_state[key].uploaded
        if not sent:
            return
        st.session_state[batch_key] = uuid.uuid4().hex
        try:
            people.require("engineer")
            if (actor := state.present_actor()) is not None:
                quotas.check_disk(state.store(), actor)
            on_upload(claim_files(str(sent["batch"]), [str(name) for name in sent["names"]]))
        except TunerError as error:
            refuse(key, error)

    _component(
        key=key,
        data={
            "label": label,
            "hint": f"{hint} Up to {size_text(most)} each.",
            "accept": accept,
            "multiple": multiple,
            "batch": st.session_state[batch_key],
            "token": TOKEN,
            "header": TOKEN_HEADER,
            "limit": most,
            "base": url_state.base_path(),
            "wrong": wrong is not None,
        },
        on_uploaded_change=uploaded,
    )
    if wrong is not None:
        messages.report(*wrong)


def refuse(key: str, error: TunerError, title: str = "Upload refused") -> None:
    """Let the upload area `key` show an error when it is drawn next."""
    st.session_state[f"{key}.error"] = record_from_error(error), title
