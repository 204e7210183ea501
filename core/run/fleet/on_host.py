"""The requests that a host serves. Dask calls these functions there by their names, with plain data.

They return within seconds: a question runs in a process of its own (`question`). Every function is a
coroutine whose work runs in a thread, so that the host still replies to Dask meanwhile. An expected error is
returned as data, because an exception would be logged on the host with a traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from core import __version__, wire
from core.process import runtimes
from core.process.job_worker import run_job, worker_environment
from core.process.machine_queue import MachineQueue, is_alive
from core.run.fleet import folders, parcels
from core.run.fleet.folders import DOCUMENT, LOG, REQUEST, ROWS, STATE
from core.run.fleet.parcels import Parcel
from core.run.fleet.question import kill_group, last_line, tail
from core.wire.errors import (
    Cancelled,
    SpecError,
    TunerError,
    WorkerError,
    record_from_error,
    record_from_exception,
)
from core.wire.files import ROOT, made_private, written_whole
from core.wire.limits import parse_cpu_time
from core.wire.sandbox import FLAG as NO_SANDBOX

PIECE_BYTES = parcels.PIECE_BYTES
LOG_BYTES = 1 << 18
START_S = 30.0  # a question that has no state after this time was not started
_ATTEND_S = 2.0  # between two looks of the task that keeps a host busy
KEPT_S = 30 * 86_400.0  # how long a host keeps the files of an answer; its store keeps the rows
_LOAD_S = 0.5  # how long the background load is watched
TEXTS = "texts"  # folder of the small files of a request
FILE, TEXT = "ortune-file:", "ortune-text:"  # begin of an argument that stands for a file of the request


class Description(TypedDict):
    """What the operator of a host says about it."""

    labels: dict[str, str]
    price_per_hour: float | None


PROGRAM = (sys.executable, "-P", "-m", "core")  # that answers questions
DESCRIPTION: Description = {"labels": {}, "price_per_hour": None}  # of this process, set by `host`
_FACTS = threading.Lock()
_variables_restored = threading.Event()


class Request(TypedDict):
    """One question for one host."""

    key: str
    arguments: list[str]  # the command line; files in it as `FILE` + hash and `TEXT` + name
    texts: dict[str, str]  # name -> content of small files, in which files are written likewise
    parcels: dict[str, Parcel]  # hash -> files that the host has received
    near: dict[str, str]  # hash -> path of its first file on the client


async def _served(work: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Run `work` in a thread; return its value, or its error as data."""
    _restore_variables()
    try:
        return {"value": await asyncio.to_thread(work, *arguments)}
    except Exception as error:  # an edge: the client raises it again
        return {"error": record_from_exception(error)}


def _restore_variables() -> None:
    """Remove the variables that Dask's nanny sets for its workers: they would change what is measured."""
    if _variables_restored.is_set():
        return
    _variables_restored.set()
    with contextlib.suppress(ImportError):
        from dask import config

        for name, value in (config.get("distributed.nanny.pre-spawn-environ", {}) or {}).items():
            if os.environ.get(name) == str(value):
                del os.environ[name]


# --- facts --------------------------------------------------------------------------------------------------


async def facts() -> dict[str, Any]:
    """Return the fields of a `HostRecord` except its name."""
    return await _served(_facts)


def _facts() -> dict[str, Any]:
    with _FACTS:
        environment = _environment()
    return {
        **DESCRIPTION,
        **{"fingerprint": environment["fingerprint"], "environment": environment},
        **{"ortune": __version__, "code": code_hash(), "runtimes": runtimes.records()},
        **{"busy": [one.text for one in MachineQueue().entries()], "background_load": _background_load()},
    }


@cache
def _environment() -> wire.Environment:
    """The facts of this machine; a worker reads them once, so that later requests disturb no measurement."""
    return run_job(wire.ENVIRONMENT, {})


@cache
def code_hash() -> str:
    """Return the hash of all Python files of ORTune's core, in the order of their paths."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "core").rglob("*.py"), key=lambda one: one.relative_to(ROOT).as_posix()):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _background_load() -> float | None:
    """The share of all CPUs in use, for half a second; None: unknown on this system."""
    try:
        before = parse_cpu_time(Path("/proc/stat").read_text())
        time.sleep(_LOAD_S)
        after = parse_cpu_time(Path("/proc/stat").read_text())
    except OSError:
        return None
    if before is None or after is None:
        return None
    busy = after.busy_s + after.steal_s - before.busy_s - before.steal_s
    idle = after.idle_s - before.idle_s
    return round(busy / (busy + idle), 3) if busy + idle > 0 else None


# --- files --------------------------------------------------------------------------------------------------


async def parcel_state(parcel: Parcel, near: str) -> dict[str, Any]:
    """See `parcels.state`."""
    return await _served(parcels.state, parcel, near)


async def receive(parcel: Parcel, path: str, offset: int, data: bytes, sha256: str) -> dict[str, Any]:
    """See `parcels.receive`."""
    return await _served(parcels.receive, parcel, path, offset, data, sha256)


async def complete(parcel: Parcel) -> dict[str, Any]:
    """See `parcels.complete`."""
    return await _served(parcels.complete, parcel)


# --- questions ----------------------------------------------------------------------------------------------


async def start(request: Request) -> dict[str, Any]:
    """Start the process of a question unless it has been started; return its state."""
    return await _served(_start, request)


def _start(request: Request) -> dict[str, Any]:
    folder = folders.answer(request["key"])
    if NO_SANDBOX in request["arguments"]:
        raise SpecError(
            f"`{NO_SANDBOX}` is an option of the host, not of a question.",
            hint=f"Leave it out, or start the host with `ortune fleet host {NO_SANDBOX}`.",
        )
    if not (folder / STATE).exists():
        places = {sha256: _place(request, sha256) for sha256 in request["parcels"]}
        for name, text in request["texts"].items():
            _write_text(folder / TEXTS / name, _with_paths(text, places, folder))
        command = [*PROGRAM, *(_with_paths(one, places, folder) for one in request["arguments"])]
        paths = {sha256: places[sha256] for sha256 in places}
        whole = {"key": request["key"], "command": command, "paths": paths, "asked_at": time.time()}
        folders.write_json(folder / REQUEST, whole)
        _spawn(folder)
    return _state(request["key"])


def _place(request: Request, sha256: str) -> str:
    found = parcels.state(request["parcels"][sha256], request["near"].get(sha256, ""))["path"]
    if not found:
        raise SpecError("A file of this question is missing on the host.", hint="Ask again.")
    return found


def _with_paths(text: str, places: Mapping[str, str], folder: Path) -> str:
    for sha256, path in places.items():
        text = text.replace(f"{FILE}{sha256}", path)
    return text.replace(TEXT, f"{folder / TEXTS}/")


def _write_text(path: Path, text: str) -> None:
    try:
        made_private(path.parent)
        with written_whole(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise folders.unwritable(path, error) from error


def _spawn(folder: Path) -> None:
    """Start the process of a question in a session of its own; a thread reaps it."""
    environment = {**os.environ, "PYTHONPATH": worker_environment().get("PYTHONPATH", str(ROOT))}
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "core.run.fleet.question", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, name="ortune-question", daemon=True).start()


async def states(keys: Sequence[str]) -> dict[str, Any]:
    """Return the states of questions by key; one that this host does not know is missing."""
    return await _served(_states, keys)


def _states(keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {key: _state(key) for key in keys if _is_known(key)}


def _is_known(key: str) -> bool:
    """Whether a question was asked here; a host that was killed before may have a part of its files."""
    folder = folders.answer(key)
    return (folder / REQUEST).exists() or (folder / STATE).exists()


def _state(key: str) -> dict[str, Any]:
    """The state of a question, with its newest progress; a question whose process is gone has failed."""
    folder = folders.answer(key)
    found = folders.read_json(folder / STATE)
    if found is None:
        asked = folders.read_json(folder / REQUEST) or {}
        if time.time() - asked.get("asked_at", time.time()) < START_S:
            return {"key": key, "state": "WAITING"}
        return _lost(folder, {"key": key})
    if found["state"] != "RUNNING":
        return {**found, "paths": (folders.read_json(folder / REQUEST) or {}).get("paths", {})}
    if not is_alive(found["pid"], found["started"]):
        again = folders.read_json(folder / STATE) or found  # it may have ended meanwhile
        return again if again["state"] != "RUNNING" else _lost(folder, again)
    return {**found, "progress": _progress(folder)}


def _lost(folder: Path, found: Mapping[str, Any]) -> dict[str, Any]:
    """End a question whose process was killed, with the command that it left."""
    if found.get("command") and is_alive(found["command"], found["command_started"]):
        kill_group(found["command"])
    why = "its process on the host was killed, or the host restarted"
    if folders.is_full(folder / STATE):
        why = "the disk of the host is full"
    error = WorkerError(
        f"The question was interrupted: {why}.",
        hint="Ask it again with `ortune fleet resume RUN --again`.",
    )
    ended = {**found, "state": "FAIL", "exit_code": None, "finished_at": time.time(), "files": {}}
    ended |= {"error": record_from_error(error), "rows": {}}
    with contextlib.suppress(TunerError):
        folders.write_json(folder / STATE, ended)
    return ended


def _progress(folder: Path) -> dict[str, Any]:
    line = last_line(folder / LOG, 1 << 12)
    with contextlib.suppress(ValueError, TypeError):
        found = json.loads(line)
        return {name: found[name] for name in ("stage", "done", "total", "text") if name in found}
    return {"text": line[:300]}


async def cancel(keys: Sequence[str]) -> dict[str, Any]:
    """End questions with all their processes; they store what they have. Return their states."""
    return await _served(_cancel, keys)


def _cancel(keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    for key in keys:
        folder = folders.answer(key)
        found: dict[str, Any] = _state(key) if _is_known(key) else {"state": "WAITING"}
        if found["state"] == "RUNNING":
            with contextlib.suppress(OSError):
                os.kill(found["pid"], signal.SIGTERM)
        elif found["state"] == "WAITING":  # a later request with this key starts nothing
            stopped = Cancelled("The question was cancelled before it started.", hint="Ask it again.")
            ended: dict[str, Any] = {
                "key": key,
                "state": "CANCELLED",
                "exit_code": None,
                "rows": {},
                "files": {},
            }
            folders.write_json(folder / STATE, {**ended, "error": record_from_error(stopped)})
    return _states(keys)


def running() -> list[str]:
    """Return the keys of all questions that run on this host."""
    try:
        keys = sorted(one.name for one in folders.answers().iterdir() if one.is_dir())
    except OSError:
        return []
    return [key for key in keys if _state(key)["state"] in ("RUNNING", "WAITING")]


def forget_old() -> None:
    """Delete the files of answers that ended long ago."""
    try:
        found = list(folders.answers().iterdir())
    except OSError:
        return
    for folder in found:
        state = folders.read_json(folder / STATE) or {}
        if time.time() - state.get("finished_at", time.time()) > KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)


def end_all(timeout_s: float) -> list[str]:
    """Cancel all questions of this host, wait at most `timeout_s` for their ends, and return their keys."""
    keys, until = running(), time.monotonic() + timeout_s
    _cancel(keys)
    while set(running()) & set(keys) and time.monotonic() < until:
        time.sleep(0.1)
    return keys


async def piece(key: str, name: str, offset: int) -> dict[str, Any]:
    """Return a piece of the document or of the rows of an answer."""
    return await _served(_piece, key, name, offset)


def _piece(key: str, name: str, offset: int) -> bytes:
    if name not in (DOCUMENT, ROWS):
        raise SpecError(f"`{name[:80]}` is no file of an answer.", hint=f"Ask for {DOCUMENT} or {ROWS}.")
    path = folders.answer(key) / name
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES)
    except OSError as error:
        raise SpecError(
            f"`{path}` cannot be read on the host: {error.strerror or error}.", hint="Ask again."
        ) from error


async def log(key: str) -> dict[str, Any]:
    """Return the end of the log of a question; "" if there is none."""
    return await _served(_log, key)


def _log(key: str) -> str:
    return tail(folders.answer(key) / LOG, LOG_BYTES)


def attend(key: str) -> str:
    """Wait until a question has ended, and return its key: the Dask task that keeps the host busy.

    The task only waits. A task that Dask loses or repeats neither ends nor repeats a measurement.
    """
    while _state(key)["state"] in ("RUNNING", "WAITING"):
        time.sleep(_ATTEND_S)
    return key
