"""The runtimes of this machine: where they are, whether they are unchanged, how their workers start.

A runtime is a folder `NAME` in `$ORTUNE_HOME/runtimes` with `runtime.json`, and with `environment`, a virtual
environment, unless it names an existing interpreter. This module only reads; `run.runtimes` creates them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import cast

import msgspec

from core.wire.errors import SpecError, StoreError, nearest
from core.wire.files import ROOT, home, made_private
from core.wire.runtime import OWN, Runtime, RuntimeRecord, command_to_add, python_of, runtime

RECORD_NAME = "runtime.json"
ENVIRONMENT_NAME = "environment"
# `-P` does not exist before Python 3.11, and `-m` alone would search the user's folder first
_START = "import sys, runpy; del sys.path[0]; runpy.run_module('core.worker', run_name='__main__')"


def folder() -> Path:
    """The folder of all runtimes; it may not exist."""
    return home() / "runtimes"


def records() -> list[RuntimeRecord]:
    """Return the records of all runtimes by name; a folder without a valid record is none."""
    try:
        names = sorted(one.name for one in folder().iterdir() if (one / RECORD_NAME).is_file())
    except OSError:
        return []
    found = []
    for name in names:
        try:
            found.append(record(name))
        except (SpecError, StoreError):
            continue
    return found


def record(name: str, libraries: Mapping[str, str] = MappingProxyType({})) -> RuntimeRecord:
    """Return the record of a runtime.

    Args:
        name: of the runtime.
        libraries: versions that it had elsewhere, for the command that creates it; may be untrusted.

    Raises:
        SpecError: there is no such runtime; the hint is the command that creates it.
        StoreError: its record cannot be read.
    """
    path = folder() / runtime(name).name / RECORD_NAME
    try:
        data = json.loads(path.read_text())
        msgspec.convert(data, RuntimeRecord)
        if data["name"] != path.parent.name:
            raise ValueError(f"it is that of `{data['name']}`")
    except FileNotFoundError:
        known = [one["name"] for one in records()]
        raise SpecError(
            f"There is no runtime `{name}`.{nearest(name, known)}",
            hint=f"Create it with `{command_to_add(name, libraries)}`.",
        ) from None
    except (OSError, ValueError) as error:
        raise StoreError(
            f"The record of the runtime `{name}` cannot be read: {error}.",
            hint=f"Remove it with `ortune runtimes remove {name}`, and add it again.",
        ) from error
    if data["managed"]:  # the folder of all runtimes may have moved
        data["python"] = str(python_of(path.with_name(ENVIRONMENT_NAME)))
    return cast(RuntimeRecord, data)


def pinned(text: str, libraries: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the text of a runtime with the hash of its present content; `OWN` stays as it is.

    Args:
        text: `NAME` or `NAME@sha256:…`.
        libraries: see `record`.

    Raises:
        SpecError: there is no such runtime, or its content is not the recorded one.
        StoreError: it cannot be read.
    """
    asked = runtime(text)
    if asked.name == OWN:
        return OWN
    found = record(asked.name, libraries)
    present = content_hash(Path(found["python"]))
    if asked.sha256 not in ("", present):
        raise SpecError(
            f"The runtime `{asked.name}` is another one: its hash begins with `{present[:12]}`, but the "
            f"configuration asks for `{asked.sha256[:12]}`.",
            hint="Use the runtime of the measurement, or remove `@sha256:…` from its name.",
        )
    return str(Runtime(asked.name, present))


def pinned_if_known(text: str) -> str:
    """Return `pinned`; the text itself where that raises, so that running it tells the error."""
    try:
        return pinned(text)
    except (SpecError, StoreError):
        return text


def content_hash(python: Path) -> str:
    """Return a hash over the version of an environment's Python and the file lists of all its packages.

    A file list (`RECORD`, PEP 376) has the hash of every installed file, so it changes with any of them. Left
    out are start scripts, which hold the path of the environment, compiled files, and what the installer
    notes about itself: the same packages have the same hash on every machine.

    Args:
        python: path of the interpreter in the environment.

    Raises:
        SpecError: there is no such environment.
    """
    digest = hashlib.sha256(_version_line(python))
    for one in _distributions(python):
        digest.update(f"{one.parent.parent.name} {one.name}\0".encode())
        for name, content in (("RECORD", _file_list), ("METADATA", Path.read_bytes)):
            try:
                digest.update(hashlib.sha256(content(one / name)).digest())
            except OSError:  # installed by another tool
                digest.update(b"absent")
    return digest.hexdigest()


def file_lists(python: Path) -> list[Path]:
    """Return the file lists of all packages of an environment; raises like `content_hash`."""
    return [path for one in _distributions(python) if (path := one / "RECORD").is_file()]


_NOT_CONTENT = re.compile(
    rb"\.\./|.*\.pyc,|[^,]*\.dist-info/(INSTALLER|REQUESTED|RECORD|direct_url\.json|uv_\w+\.json),"
)


def _file_list(path: Path) -> bytes:
    """The lines of a file list that are the package's content, in one order."""
    lines = (one.rstrip() for one in path.read_bytes().splitlines())
    return b"\n".join(sorted(one for one in lines if not _NOT_CONTENT.match(one)))


def _version_line(python: Path) -> bytes:
    """The exact version of Python in a virtual environment; empty elsewhere."""
    try:
        lines = (python.parent.parent / "pyvenv.cfg").read_bytes().splitlines()
    except OSError:
        return b""
    line = next((one for one in lines if one.startswith(b"version")), b"")  # uv calls it `version_info`
    return line.partition(b"=")[2].strip()


def _distributions(python: Path) -> list[Path]:
    """The metadata folders of all packages, by name, with that of the Python version in their paths."""
    libraries = python.parent.parent
    folders = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages")
    found = [path for one in folders for path in libraries.glob(f"{one}/*.dist-info")]
    if not python.exists():
        raise SpecError(
            f"The interpreter `{python}` of a runtime is missing.",
            hint="Remove the runtime with `ortune runtimes remove NAME`, and add it again.",
        )
    return sorted(found, key=lambda one: (one.parent.parent.name, one.name))


def versions(one: RuntimeRecord) -> dict[str, str]:
    """Return the version of each package in a runtime: as recorded, else from its metadata folders.

    Raises:
        SpecError: its interpreter is missing.
    """
    if one["versions"]:
        return one["versions"]
    found = (
        path.name.removesuffix(".dist-info").partition("-") for path in _distributions(Path(one["python"]))
    )
    return {name.replace("_", "-").lower(): version for name, _, version in found}


def command(text: str) -> list[str]:
    """Return the command line of a worker in a runtime other than `OWN`; raises like `record`."""
    return start_command(record(runtime(text).name)["python"])


def start_command(python: str) -> list[str]:
    """Return the command line of a worker that runs in the environment of an interpreter."""
    return [python, "-c", _START]


def code_path() -> str:
    """Return the folder from which a foreign interpreter imports `core`, and nothing else of ORTune's.

    Raises:
        StoreError: it cannot be created.
    """
    if ROOT.name not in ("site-packages", "dist-packages"):
        return str(ROOT)
    links = folder() / ".code"  # an installed ORTune has its own numpy and onnxruntime beside it
    try:
        made_private(links)
        if not (links / "core").is_symlink():
            (links / "core").symlink_to(ROOT / "core")
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(
            f"`{links}` cannot be written: {error.strerror or error}.", hint="Check the folder's permissions."
        ) from error
    return str(links)


_OWN_ENVIRONMENT = ("VIRTUAL_ENV", "CONDA_PREFIX")


def without_own_python(names: Sequence[str]) -> list[str]:
    """Return the names of environment variables that also hold for another interpreter."""
    return [one for one in names if not one.startswith("PYTHON") and one not in _OWN_ENVIRONMENT]


def names() -> list[str]:
    """The names that a configuration may use: `OWN`, and every runtime of this machine."""
    return [OWN, *(one["name"] for one in records())]


def removable(path: Path) -> bool:
    """Whether `path` lies in the folder of runtimes, links followed."""
    return os.path.commonpath([path.resolve(), folder().resolve()]) == str(folder().resolve())
