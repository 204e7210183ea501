"""Add a runtime: a new environment with packages, or an existing one.

Everything happens in a draft folder beside the final name, which is renamed at the end: a failed or cancelled
addition leaves nothing, and a killed one is removed by the next. Downloads stay in the caches of pip and uv.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core import wire
from core.process import runtimes, scratch
from core.process.job_worker import Progress
from core.run.job import Ending, Job, Outcome, Service
from core.wire.errors import HOME_HINT, Cancelled, SpecError, StoreError, TunerError
from core.wire.files import expand_home, made_private, open_regular, written_whole
from core.wire.runtime import (
    LOCK_NAME,
    MOST_LOCK_BYTES,
    OWN,
    RuntimeRecord,
    is_requirement,
    locked,
    runtime,
    wheel_name,
)

KIND = "runtime"  # of the job
DRAFT = ".draft-"
INSTALL_TIMEOUT_S = 3600.0  # builds for GPUs are gigabytes
MOST_PACKAGES = 50
_ZIP = b"PK"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRuntime:
    """A checked request for a runtime; exactly one of `packages`, `lock` and `python` is given."""

    name: str
    packages: tuple[str, ...] = ()  # requirements, and absolute paths of wheels
    lock: str = ""  # text of a lock file
    python: str = ""  # interpreter of an existing environment
    base: str = ""  # interpreter that the new environment is made with; empty: ORTune's own


def checked(
    name: str, *, packages: Sequence[str] = (), lock: str = "", python: str = "", base: str = ""
) -> NewRuntime:
    """Return the request after all checks that need no process.

    Args:
        name: of the new runtime.
        packages: requirements, such as `onnxruntime==1.30.*`, and paths of wheels.
        lock: path of a lock file.
        python: interpreter of an existing environment.
        base: interpreter that the new environment is made with.

    Raises:
        SpecError: the name is invalid or reserved, or an argument is invalid or contradicts another.
    """
    if not name.strip():
        raise SpecError("A runtime needs a name.", hint="Choose one, for example `ort130`.")
    if (asked := runtime(name)).sha256 or asked.name == OWN:
        raise SpecError(
            f"`{name[:120]}` is no name for a new runtime"
            + (f": `{OWN}` is the environment of ORTune itself." if asked.name == OWN else "."),
            hint="Choose another name, for example `ort130`.",
        )
    if sum(map(bool, (packages, lock, python))) != 1:
        raise SpecError(
            "A runtime needs one of these: packages, a lock file, or the interpreter of an environment.",
            hint="Name for example the package `onnxruntime==1.30.*`.",
        )
    if python and base:
        raise SpecError(
            "A base interpreter is for a new environment, but an existing one is named too.",
            hint="Leave one of them out.",
        )
    if len(packages) > MOST_PACKAGES:
        raise SpecError(
            f"At most {MOST_PACKAGES} packages can be named, but got {len(packages)}.",
            hint="Name those that you need; what they need is added.",
        )
    return NewRuntime(
        name=asked.name,
        packages=tuple(map(_package, packages)),
        lock=_lock_text(lock) if lock else "",
        python=_program(python),
        base=_program(base),
    )


def _program(path: str) -> str:
    """A path as the user wrote it, made absolute; links are kept: they tell the environment."""
    return str(expand_home(path).absolute()) if path else ""


def _package(text: str) -> str:
    """Return a requirement as it is, and a wheel with its absolute path."""
    text = text.strip()
    if is_requirement(text) and not text.endswith(".whl"):
        return text
    if not text.endswith(".whl") or "://" in text:
        raise SpecError(
            f"A package must be a name, maybe with versions, or the path of a wheel, but got `{text[:120]}`.",
            hint="Write for example `onnxruntime==1.30.*`, or `dist/onnxruntime-1.30.0-….whl`.",
        )
    path = expand_home(text).absolute()
    if not wheel_name(path.name):
        raise SpecError(
            f"`{path.name[:120]}` is no name of a wheel.",
            hint="Keep the name that it was built with: name-version-python-abi-platform.whl.",
        )
    try:
        with open_regular(path) as file:
            is_archive = file.read(len(_ZIP)) == _ZIP
    except OSError as error:
        raise SpecError(
            f"The wheel `{text[:200]}` cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from None
    if not is_archive:
        raise SpecError(f"`{text[:200]}` is no wheel: it is no ZIP archive.", hint="Build it again.")
    return str(path)


def _lock_text(path: str) -> str:
    try:
        with open_regular(expand_home(path)) as file:
            data = file.read(MOST_LOCK_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise SpecError(
            f"The lock file `{path[:200]}` cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from None
    except UnicodeDecodeError:
        raise SpecError(f"`{path[:200]}` is no lock file: it is no text.", hint="Check the path.") from None
    if len(data) > MOST_LOCK_BYTES:
        raise SpecError(
            f"A lock file has at most {MOST_LOCK_BYTES:,} bytes, but `{path[:200]}` has more.",
            hint="Use the `requirements.lock` of a runtime.",
        )
    locked(text)
    return text


# --- the job ------------------------------------------------------------------------------------------------


def add_job(request: NewRuntime) -> Job:
    """Return the job that adds a runtime; its result has the record (`record`) and `existed`.

    It takes its turn of the machine, because unpacking packages would disturb a measurement.

    Raises:
        SpecError: the name is taken by a runtime with other content.
        StoreError: the name is taken by something unreadable.
    """
    existing(request)
    return Job(
        kind=KIND, what=f"add the runtime {request.name}", work=lambda service: _added(request, service)
    )


def _added(request: NewRuntime, service: Service) -> Outcome:
    found = existing(request)
    record = found or add(request, service)
    result = {"record": record, "existed": found is not None}
    return Outcome(whole=Ending(state="COMPLETE", result=result))


def existing(request: NewRuntime) -> RuntimeRecord | None:
    """Return the record of an equal runtime of the same name; None: the name is free.

    Raises:
        SpecError: the name is taken by a runtime with other content.
        StoreError: the name is taken by something unreadable.
    """
    if not os.path.lexists(runtimes.folder() / request.name):
        return None
    try:
        record = runtimes.record(request.name)
    except SpecError:
        raise StoreError(
            f"The folder of the runtime `{request.name}` has no record.",
            hint=f"Remove it with `ortune runtimes remove {request.name}`.",
        ) from None
    if not _is_equal(request, record):
        has = ", ".join(record["packages"]) or record["python"]
        raise SpecError(
            f"The runtime `{request.name}` exists already, with `{has[:200]}`.",
            hint=f"Choose another name, or remove it with `ortune runtimes remove {request.name}`.",
        )
    return record


def _is_equal(request: NewRuntime, record: RuntimeRecord) -> bool:
    """Whether a request asks for what a record holds, and its content is unchanged."""
    same = record["managed"] is not bool(request.python) and record.get("base", "") == _interpreter(request)
    if request.lock:
        same = same and record.get("lock_sha256") == _sha256(request.lock)
    else:
        same = same and list(request.packages) == record["packages"]
    return same and runtimes.content_hash(Path(record["python"])) == record["sha256"]


def _interpreter(request: NewRuntime) -> str:
    return request.python or request.base


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def add(request: NewRuntime, service: Service) -> RuntimeRecord:
    """Create the environment, check that its engine loads, and return the record that was written last.

    Raises:
        SpecError: the interpreter or the packages cannot be used, or the name was taken meanwhile.
        StoreError: the folder of runtimes cannot be written.
        WorkerError: the package index cannot be reached, or a program failed.
        Cancelled: the job was cancelled; nothing stays.
    """
    parent = runtimes.folder()
    scratch.remove_abandoned(parent, DRAFT)
    with _writing(parent), scratch.folder(parent, DRAFT) as draft:
        environment = draft / runtimes.ENVIRONMENT_NAME
        plan: wire.InstallPlan = {
            "folder": "" if request.python else str(environment),
            "python": _interpreter(request),
            "packages": list(request.packages),
            "lock": request.lock,
        }
        reply = service.run(wire.INSTALL, plan, timeout_s=INSTALL_TIMEOUT_S)
        service.on_progress(
            Progress(stage="check", done=0, total=0, text="loads the engine and its providers")
        )
        facts = _engine(reply, service)
        made = draft / request.name
        made_private(made)
        record = _record(request, reply, facts)
        if not request.python:
            environment.rename(made / runtimes.ENVIRONMENT_NAME)
            _write(made / LOCK_NAME, reply["lock"])
        _write(made / runtimes.RECORD_NAME, json.dumps(record, indent=1))
        if service.cancel.is_set():
            raise Cancelled("The job was cancelled.", hint="Start it again.")
        _publish(made, parent / request.name)
    return runtimes.record(request.name)


def _write(path: Path, text: str) -> None:
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")


def _engine(reply: wire.InstallReply, service: Service) -> wire.Environment:
    """Return what a worker in the new environment finds.

    Raises:
        SpecError: neither ONNX Runtime nor OpenVINO loads there.
    """
    command = runtimes.start_command(reply["python"])
    try:
        facts = service.run(wire.ENVIRONMENT, {}, command=command, runtime="draft")
    except Cancelled:
        raise
    except TunerError as error:
        raise SpecError(
            f"The environment of `{reply['python']}` runs no worker: {error.message}",
            hint="Choose versions that fit each other, such as an older numpy.",
        ) from None
    if not facts["ort_build"] and "openvino" not in reply["versions"]:
        raise SpecError(
            f"A runtime needs ONNX Runtime or OpenVINO, but `{reply['python']}` has neither.",
            hint="Install one of them there, or add a runtime with the package `onnxruntime`.",
        )
    if "numpy" not in reply["versions"]:
        raise SpecError(
            f"A runtime needs numpy, but `{reply['python']}` has none.", hint="Install numpy there."
        )
    return facts


def _record(request: NewRuntime, reply: wire.InstallReply, facts: wire.Environment) -> RuntimeRecord:
    record: RuntimeRecord = {
        "name": request.name,
        "sha256": runtimes.content_hash(Path(reply["python"])),
        "python": reply["python"],
        "python_version": reply["python_version"],
        "packages": list(request.packages),
        "versions": reply["versions"],
        "size_bytes": reply["size_bytes"],
        "managed": not request.python,
        "created_at": time.time(),
        "base": _interpreter(request),
        "providers": [one["name"] for one in facts["providers"] if one["loadable"]],
        "notes": reply["notes"],
    }
    if reply["lock"]:
        record["installer"], record["lock_sha256"] = reply["installer"], _sha256(reply["lock"])
    return record


@contextlib.contextmanager
def _writing(parent: Path) -> Iterator[None]:
    """Say in words why the folder of runtimes cannot be written.

    Raises:
        StoreError: instead of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if full else error.strerror or str(error)
        raise StoreError(f"`{error.filename or parent}` cannot be written: {why}.", hint=HOME_HINT) from error


def _publish(made: Path, final: Path) -> None:
    """Give the complete runtime its name, unless another process was quicker."""
    try:
        if os.path.lexists(final):  # a rename would replace an empty folder
            raise FileExistsError
        made.rename(final)
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
            raise SpecError(
                f"The runtime `{final.name}` was added by another process meanwhile.",
                hint="Use it, or choose another name.",
            ) from None
        raise
