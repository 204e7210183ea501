"""The client's record of its fleet runs: `fleet/runs/ID` with the run, its questions and the documents.

A run is written after every change, so that it can be continued when its client was killed.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import psutil

from core.evidence.fleet.fleet_types import Answer, FleetRun
from core.process.machine_queue import is_alive
from core.run.fleet import folders
from core.run.fleet.requests import PreparedQuestion
from core.wire.errors import MissingError, SpecError, StoreError
from core.wire.files import made_private
from core.wire.plain_data import plain

MIN_PREFIX = 4
_RUN, _QUESTIONS, _DOCUMENTS, _LOCK = "run.json", "questions.json", "documents", "lock"


def runs() -> list[FleetRun]:
    """Return all runs, newest first, without the documents of their answers."""
    try:
        names = [one.name for one in folders.runs().iterdir()]
    except OSError:
        return []
    found = [run for name in names if (run := _read(folders.runs() / name)) is not None]
    return sorted(found, key=lambda one: one.created_at, reverse=True)


def find(ref: str) -> str:
    """Return the ID of a run from its ID or its first characters.

    Raises:
        MissingError: there is none.
        StoreError: there are several.
    """
    names = [one.id for one in runs()]
    found = [one for one in names if one == ref] or [
        one for one in names if len(ref) >= MIN_PREFIX and one.startswith(ref)
    ]
    if not found:
        raise MissingError(
            f"There is no fleet run `{ref[:80]}` here.", hint="`ortune fleet runs` lists what there is."
        )
    if len(found) > 1:
        raise StoreError(
            f"More than one fleet run begins with `{ref[:80]}`.", hint="Give more characters of the ID."
        )
    return found[0]


def load(ref: str) -> FleetRun:
    """Return a run with the documents of its answers.

    Raises:
        MissingError: there is none.
        StoreError: it cannot be read.
    """
    folder = folders.runs() / find(ref)
    found = _read(folder)
    if found is None:
        raise StoreError(f"The fleet run in `{folder}` cannot be read.", hint="Start it again.")
    answers = [replace(one, document=_document(folder, one)) for one in found.answers]
    return replace(found, answers=answers)


def light(run_id: str) -> FleetRun | None:
    """Return a run without documents by its whole ID; None: it cannot be read."""
    return _read(folders.runs() / run_id)


def _document(folder: Path, answer: Answer) -> dict[str, Any] | None:
    return folders.read_json(folder / _DOCUMENTS / f"{answer.key}.json")


def _read(folder: Path) -> FleetRun | None:
    data = folders.read_json(folder / _RUN)
    if data is None:
        return None
    process = data.pop("process", None)
    try:
        found = FleetRun.from_dict(data)
    except ValueError:
        return None
    if found.state == "RUNNING" and not _is_running(process):
        return replace(found, state="INCOMPLETE")  # its client was killed; `resume` continues it
    return found


def _is_running(process: Any) -> bool:
    match process:
        case [str(node), int(pid), float(started)]:
            return node == socket.gethostname() and is_alive(pid, started)
    return False


class RunFolder:
    """One run on disk, for the process that collects its answers."""

    def __init__(self, run_id: str) -> None:
        self.path = folders.runs() / run_id
        self._process = [socket.gethostname(), os.getpid(), psutil.Process().create_time()]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run, so that no other process collects its answers meanwhile.

        Raises:
            SpecError: another process holds it.
        """
        try:
            made_private(self.path)
            lock = filelock.FileLock(self.path / _LOCK, timeout=0, mode=0o600)
            lock.acquire()
        except filelock.Timeout:
            raise SpecError(
                f"Another process collects the answers of the fleet run `{self.path.name}` now.",
                hint="Wait until it has ended; `ortune fleet show RUN` shows the state.",
            ) from None
        except OSError as error:
            raise folders.unwritable(self.path, error) from error
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                lock.release()

    def save(self, run: FleetRun) -> None:
        """Write a run; documents are kept in files of their own, by `save_document`."""
        light = replace(run, answers=[replace(one, document=None) for one in run.answers])
        folders.write_json(self.path / _RUN, {**light.to_dict(), "process": self._process})

    def save_document(self, answer: Answer) -> None:
        """Write the document of an answer."""
        if answer.document is not None:
            folders.write_json(self.path / _DOCUMENTS / f"{answer.key}.json", answer.document)

    def save_questions(self, questions: Sequence[PreparedQuestion]) -> None:
        """Write the questions with their files' names and hashes."""
        folders.write_json(self.path / _QUESTIONS, {"questions": [plain(one) for one in questions]})

    def questions(self) -> list[PreparedQuestion]:
        """Return the questions.

        Raises:
            StoreError: they cannot be read.
        """
        data = folders.read_json(self.path / _QUESTIONS) or {}
        try:
            return [PreparedQuestion.from_dict(one) for one in data["questions"]]
        except (KeyError, ValueError) as error:
            raise StoreError(
                f"The questions in `{self.path}` cannot be read: {error}.", hint="Start the run again."
            ) from error
