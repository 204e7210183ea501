"""The process of one question on a host: it runs the command, waits for its end, and keeps the answer.

`python -m core.run.fleet.question FOLDER`. It is a session of its own, so the answer does not depend on Dask:
it is kept even when the host leaves the fleet while the command runs. SIGTERM cancels the command.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import filelock
import psutil

from core.run.fleet import folders
from core.run.fleet.folders import DOCUMENT, LOG, REQUEST, ROWS, STATE
from core.wire import variables
from core.wire.errors import ErrorRecord, TunerError, WorkerError, record_from_error
from core.wire.files import private_opener
from core.wire.plain_data import plain

TERM_GRACE_S = 25.0  # a cancelled command stores what it has; a slow disk takes its time
_RETRY_S, _RETRIES = 5.0, 120  # of writing the end of an answer, on a full disk


class _Command:
    """The command of a question, and the signal that ends it."""

    def __init__(self) -> None:
        self.cancelled = False
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path, command: list[str]) -> dict[str, Any]:
        """Start the command, and return what identifies its process; raises OSError."""
        environment = {**os.environ, variables.PROGRESS: "json"}  # `on_host` has set the path of this package
        with (
            open(folder / DOCUMENT, "wb", opener=private_opener) as document,
            open(folder / LOG, "ab", opener=private_opener) as log,
        ):
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=document,
                stderr=log,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        if self.cancelled:  # before there was a process
            self._terminate()
        started = psutil.Process(self.process.pid).create_time()
        return {"command": self.process.pid, "command_started": started}

    def wait(self) -> int:
        """Return the exit code once the command has ended, with all processes of its group."""
        assert self.process is not None
        code = self.process.wait()
        self.kill()
        return code

    def cancel(self, number: int, frame: FrameType | None) -> None:
        """Ask the command to end and store what it has; kill it if it does not."""
        if not self.cancelled:
            self.cancelled = True
            self._terminate()

    def _terminate(self) -> None:
        if self.process is None:
            return
        with contextlib.suppress(OSError):
            self.process.terminate()
        killer = threading.Timer(TERM_GRACE_S, self.kill)
        killer.daemon = True
        killer.start()

    def kill(self) -> None:
        """Kill all processes of the command's group."""
        if self.process is not None:
            kill_group(self.process.pid)


def kill_group(pid: int) -> None:
    """Kill a command with its children; workers outside of its group end with their parent."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def main(folder: Path) -> None:
    """Answer the question in `folder`, unless another process does or did."""
    with contextlib.suppress(filelock.Timeout), filelock.FileLock(folder / "lock", timeout=0):
        if not (folder / STATE).exists():
            _answer(folder)


def _answer(folder: Path) -> None:
    request: dict[str, Any] = json.loads((folder / REQUEST).read_bytes())
    command = _Command()
    signal.signal(signal.SIGTERM, command.cancel)
    signal.signal(signal.SIGINT, command.cancel)
    state: dict[str, Any] = {
        **{"key": request["key"], "state": "RUNNING", "started_at": time.time(), "pid": os.getpid()},
        **{"started": psutil.Process().create_time(), "command": 0, "command_started": 0.0},
    }
    # a question whose state cannot be written does not run: nobody could end it
    folders.write_json(folder / STATE, state)
    try:
        state |= command.start(folder, request["command"])
    except OSError as error:
        failure = WorkerError(
            f"The command could not be started: {error.strerror or error}.",
            hint="Free memory and disk space on the host, and ask again.",
        )
        _end(folder, {**state, "state": "FAIL", "error": record_from_error(failure)})
        return
    with contextlib.suppress(TunerError):  # a full disk: the end is written when there is space
        folders.write_json(folder / STATE, state)
    # loaded while the command loads its own libraries: neither before it, nor while it measures
    store = import_module("core.store")
    code = command.wait()
    outcome = _outcome(folder, code, cancelled=command.cancelled)
    process = f"{socket.gethostname()}/{state['command']}/{state['command_started']}"
    _end(folder, {**state, **outcome, **_rows(folder, process, store)})


def _outcome(folder: Path, code: int, *, cancelled: bool) -> dict[str, Any]:
    """Return state, exit code and error of the command, as its document says them."""
    document = folders.read_json(folder / DOCUMENT)
    error: ErrorRecord | None = None if document is None else document.get("error")
    if cancelled or (document or {}).get("state") == "CANCELLED":
        state = "CANCELLED"
    elif document is None:
        state, error = "FAIL", _no_document(folder, code)
    else:
        state = "COMPLETE" if error is None else "FAIL"
    return {"state": state, "exit_code": code, "error": error}


def _no_document(folder: Path, code: int) -> ErrorRecord:
    if folders.is_full(folder / DOCUMENT):
        full = "The disk of the host is full, so the answer could not be written."
        return record_from_error(WorkerError(full, hint="Free disk space there, and ask again."))
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    said = last_line(folder / LOG)
    return record_from_error(
        WorkerError(
            f"The command ended with {how} and without a result{f': {said}' if said else ''}.",
            hint="Read its log with `ortune fleet logs RUN HOST`.",
        )
    )


def last_line(path: Path, most: int = 1 << 16) -> str:
    """Return the last line of a text file that is not empty; "" without one."""
    lines = tail(path, most).splitlines()
    return next((one.strip() for one in reversed(lines) if one.strip()), "")


def tail(path: Path, most: int) -> str:
    """Return the last `most` bytes of a text file; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - most, 0))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _rows(folder: Path, process: str, store: Any) -> dict[str, Any]:
    """Write the rows that the command stored, and return their ids."""
    try:
        found = store.Store().rows_of(process)
        (folder / ROWS).write_bytes(found.packed())
        return {"rows": found.ids()}
    except (TunerError, OSError) as error:  # the rows stay in the host's store
        return {"rows": {}, "rows_error": str(error)}


def _end(folder: Path, state: dict[str, Any]) -> None:
    """Write how the question ended, with the hashes of its files; try again while the disk is full."""
    files = {name: _sealed(folder / name) for name in (DOCUMENT, ROWS) if (folder / name).is_file()}
    whole = plain({**state, "finished_at": time.time(), "files": files})
    for _ in range(_RETRIES):
        try:
            return folders.write_json(folder / STATE, whole)
        except TunerError:
            time.sleep(_RETRY_S)


def _sealed(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
