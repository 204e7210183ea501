"""Runtimes beside ORTune's own: add, list, check and remove environments with other library versions."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from core.api import arguments
from core.api.results import Result
from core.api.session import Job, OnProgress, Session, default_session, result_of
from core.process import runtimes as registry
from core.run.runtimes import creation, removal
from core.run.runtimes.checking import RuntimeCheck as RuntimeCheck
from core.run.runtimes.checking import check_job as check_runtime_job
from core.run.runtimes.checking import engines as engines
from core.run.runtimes.creation import KIND as KIND
from core.run.runtimes.interpreters import Base as Base
from core.run.runtimes.interpreters import bases as bases
from core.show.sheets import Sheet
from core.show.sheets import runtimes as sheets
from core.show.words import counted
from core.store import audit
from core.wire.runtime import RuntimeRecord


@dataclass(frozen=True, slots=True)
class Added:
    """A runtime that was added, or that existed already with the same content."""

    record: RuntimeRecord
    existed: bool


def add_runtime_job(
    name: str, *, packages: Sequence[str] = (), lock: str = "", python: str = "", base: str = ""
) -> Job:
    """Return the checked job that adds a runtime; its result has the `record`, and `existed`.

    Args:
        name: see `add_runtime`.
        packages: see `add_runtime`.
        lock: see `add_runtime`.
        python: see `add_runtime`.
        base: see `add_runtime`.

    Raises:
        SpecError: an argument is invalid, or the name is taken by a runtime with other content.
        StoreError: the name is taken by something unreadable.
    """
    return creation.add_job(creation.checked(name, packages=packages, lock=lock, python=python, base=base))


@arguments.checked(packages=arguments.texts, lock=arguments.path, python=arguments.path, base=arguments.path)
def add_runtime(
    name: str,
    packages: str | Sequence[str] = (),
    *,
    lock: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] | None = None,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[Added]:
    """Add a runtime: an environment whose libraries run configurations that name it.

    Give one of `packages`, `lock` and `python`. A new environment gets wheels only, is checked, and appears
    complete or not at all.

    Args:
        name: up to 40 lower-case letters, digits, `.`, `-` and `_`.
        packages: requirements such as `onnxruntime==1.30.*`, and paths of wheels.
        lock: the `requirements.lock` of a runtime: the same files are installed, checked by their hashes.
        python: interpreter of an existing environment; nothing is installed or deleted there.
        base: interpreter that the new environment is made with. None: ORTune's own.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.

    Raises:
        SpecError: an argument is invalid, the name is taken, or no package fits.
        StoreError: the folder of runtimes cannot be written.
        TunerError: the package index cannot be reached, or the job was cancelled; nothing stays.
    """
    session = session or default_session()
    job = add_runtime_job(
        name,
        packages=arguments.listed("packages", packages),
        lock=os.fspath(lock or ""),
        python=os.fspath(python or ""),
        base=os.fspath(base or ""),
    )
    data: Any = result_of(session.run(job, on_progress=on_progress, cancel=cancel))
    found = Added(record=data["record"], existed=bool(data["existed"]))
    result = session.last = Result(
        kind="runtime",
        id=name,
        read=lambda: found,
        document=lambda one: {"runtime": one.record, "existed": one.existed},
        content=lambda one: sheets.added(one.record, existed=one.existed),
        numbers=lambda one: sheets.listed([one.record]),
    )
    return result


def runtimes() -> Result[list[RuntimeRecord]]:
    """Return the runtimes of this machine besides ORTune's own, by name."""
    return Result(
        kind="runtimes",
        id="",
        read=registry.records,
        document=lambda records: {"runtimes": records},
        content=sheets.runtimes,
        says=lambda records: counted(len(records), "runtime"),
    )


@arguments.checked()
def check_runtime(
    name: str,
    *,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[RuntimeCheck]:
    """Check a runtime: versions, providers, known settings, changes since it was added, and one run.

    Args:
        name: of the runtime.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.

    Raises:
        SpecError: there is no such runtime, or its interpreter is missing.
        StoreError: its record cannot be read.
        TunerError: no worker starts in it, or the job was cancelled.
    """
    session = session or default_session()
    status = session.run(check_runtime_job(name), on_progress=on_progress, cancel=cancel)
    found = cast(RuntimeCheck, result_of(status))
    result = session.last = Result(
        kind="runtime-check",
        id=name,
        read=lambda: found,
        document=lambda one: cast(Mapping[str, Any], one),
        content=sheets.check,
    )
    return result


def is_sound(check: RuntimeCheck) -> bool:
    """Whether a check found nothing wrong: the content is unchanged, and every engine ran a model."""
    return not check["changed"] and bool(check["runs"]) and not any(check["runs"].values())


@arguments.checked()
def remove_runtime(name: str) -> Result[str]:
    """Remove a runtime and, if ORTune created it, its environment; results keep naming it.

    Args:
        name: of the runtime.

    Raises:
        SpecError: there is no such runtime, or a worker runs in it.
        StoreError: it cannot be deleted.
    """
    removal.remove(name)
    audit.record("delete", f"runtime `{name}`")
    return Result(
        kind="removed-runtime",
        id=name,
        read=lambda: name,
        document=lambda one: {"removed": one},
        content=lambda one: Sheet(f"The runtime `{one}` is removed.", []),
    )


def removal_in_words(name: str) -> str:
    """Return what the removal of a runtime deletes, in words.

    Raises:
        SpecError: there is no such runtime.
    """
    return removal.in_words(name)
