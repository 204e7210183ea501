"""A runtime: the Python environment whose libraries run a configuration, by its name and its content's hash.

`OWN` is the environment that ORTune itself runs in. Every other runtime has a folder with a record, see
`core.process.runtimes`. A lock file names every package of a runtime with the hashes of its file. Standard
library only; parent and workers share it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if sys.version_info >= (3, 11) or TYPE_CHECKING:
    from typing import NotRequired

from core.wire.errors import ModelError, SpecError

OWN = "own"
OWN_VERSION = "1.31"  # of ORTune's own ONNX Runtime; tests compare these limits with the installed one
OWN_IR_VERSION = 13  # newest that it reads
OWN_OPSET = 26  # newest of ai.onnx that it reads
# One Identity node, float32 [1], opset 13, IR 8: the smallest model that every runtime can load.
IDENTITY_MODEL = bytes.fromhex(
    "080812003a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a020801"
    "620f0a0179120a0a08080112040a02080142040a00100d"
)
_NAME = r"[a-z0-9][a-z0-9._-]{0,39}"
_NAMED = re.compile(rf"(?P<name>{_NAME})(@sha256:(?P<sha256>[0-9a-f]{{64}}))?")


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime of a configuration: its name, and the hash of its content once known."""

    name: str
    sha256: str = ""  # empty: any content

    def __str__(self) -> str:
        """Its text in a configuration."""
        return f"{self.name}@sha256:{self.sha256}" if self.sha256 else self.name


def check_versions(ir_version: int, opset: int) -> None:
    """Refuse a model that is too new for ORTune's own ONNX Runtime.

    Args:
        ir_version: of the model.
        opset: of ai.onnx; 0: it uses none.

    Raises:
        ModelError: one of them is too new.
    """
    if ir_version > OWN_IR_VERSION:
        raise ModelError(
            f"The model has IR version {ir_version}, ONNX Runtime {OWN_VERSION} loads {OWN_IR_VERSION} at "
            "most.",
            hint=f"Choose a newer `runtime`, or save the model with `ir_version` {OWN_IR_VERSION}.",
        )
    if opset > OWN_OPSET:
        raise ModelError(
            f"The model uses ai.onnx opset {opset}, ONNX Runtime {OWN_VERSION} loads {OWN_OPSET} at most.",
            hint=f"Choose a newer `runtime`, or export the model with opset {OWN_OPSET} or older.",
        )


def is_too_new(ir_version: int, opset: int) -> bool:
    """Whether `check_versions` refuses a model."""
    return ir_version > OWN_IR_VERSION or opset > OWN_OPSET


class RuntimeRecord(TypedDict):
    """What ORTune keeps of a runtime, in its `runtime.json`."""

    name: str
    sha256: str  # of its Python version and every installed file list, see `process.runtimes.content_hash`
    python: str  # path of the interpreter
    python_version: str
    packages: list[str]  # as requested, for example "onnxruntime==1.30.*"; empty: an existing environment
    versions: dict[str, str]  # distribution -> version, all that are installed
    size_bytes: int
    managed: bool  # ORTune created the environment and may delete it
    created_at: float  # seconds since the epoch
    base: NotRequired[str]  # interpreter as it was given; empty: ORTune's own made the environment
    installer: NotRequired[str]  # name and version of the program that installed the packages
    lock_sha256: NotRequired[str]  # of its `requirements.lock`; absent: nothing was installed
    providers: NotRequired[list[str]]  # that loaded when it was added
    notes: NotRequired[list[str]]  # what was decided for it, in sentences


def runtime(text: str) -> Runtime:
    """Read `ort130`, or `ort130@sha256:…` with all 64 digits.

    Raises:
        SpecError: the text has another form.
    """
    match = _NAMED.fullmatch(text.strip())
    if match is None:
        raise SpecError(
            "A runtime must be a name of at most 40 lower-case letters, digits, `.`, `-` and `_`, maybe with "
            f"`@sha256:` and 64 digits, but got `{text[:120]}`.",
            hint="Write for example `ort130`; `ortune runtimes list` shows the names.",
        )
    if match["name"] == OWN and match["sha256"]:
        raise SpecError(
            f"`{OWN}` is the environment that ORTune itself runs in, so it has no hash; got `{text[:24]}…`.",
            hint=f"Write `{OWN}`.",
        )
    return Runtime(match["name"], match["sha256"] or "")


def runtime_text(text: str) -> str:
    """Return the text of a runtime in its one spelling; raises like `runtime`."""
    return str(runtime(text))


def command_to_add(name: str, libraries: Mapping[str, str]) -> str:
    """Return the command that creates a runtime with the recorded versions of its libraries."""
    found = [
        f" --package {package}=={version}"
        for package, version in sorted(libraries.items())
        if _OF_A_RUNTIME.fullmatch(package) and _VERSION.fullmatch(version)
    ]
    return f"ortune runtimes add {name}{''.join(found[:4]) or ' --package onnxruntime==VERSION'}"


_OF_A_RUNTIME = re.compile(r"(onnxruntime|openvino)(-[a-z0-9-]{1,40})?")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+_-]{0,40}")


def python_of(environment: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    return environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


# --- packages -----------------------------------------------------------------------------------------------

LOCK_NAME = "requirements.lock"
MOST_LOCK_BYTES = 1 << 20
_PACKAGE_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSIONS = r"(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_REQUIREMENT = re.compile(
    rf"{_PACKAGE_NAME}(\[[A-Za-z0-9._, -]*\])?\s*({_VERSIONS}(\s*,\s*{_VERSIONS})*)?(\s*;[^\n\r]*)?"
)
_WHEEL = re.compile(r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[A-Za-z0-9._+!]+)(-\d\w*)?-[^-]+-[^-]+-[^-]+\.whl")
_LOCKED = re.compile(
    rf"(?P<name>{_PACKAGE_NAME})(\[[A-Za-z0-9._, -]*\])?\s*"
    r"(==\s*(?P<version>[A-Za-z0-9.+!_-]+)|@\s*(?P<url>file://\S+\.whl))"
    r"(\s*;[^\n]*?)?(?P<hashes>(\s+--hash=sha256:[0-9a-f]{64})*)"
)


def is_requirement(text: str) -> bool:
    """Whether `text` is a package, maybe with versions: `onnxruntime==1.30.*`; no option and no URL."""
    return _REQUIREMENT.fullmatch(text) is not None


def wheel_name(path: str) -> str:
    """Return the distribution of a wheel by its file name; empty: it is no name of a wheel."""
    match = _WHEEL.fullmatch(re.split(r"[/\\]", path)[-1])
    return "" if match is None else _normal(match["name"])


def lock_line(name: str, where: str, sha256: str) -> str:
    """Return the line of a lock file.

    Args:
        name: of the package.
        where: `==VERSION`, or the URL of a local wheel.
        sha256: of its file.
    """
    return f"{name}{where if where.startswith('==') else f' @ {where}'} --hash=sha256:{sha256}"


def locked(lock: str) -> dict[str, str]:
    """Return name and version of the packages that a lock file names.

    Raises:
        SpecError: a line names no exact version, or has no hash.
    """
    found = {}
    lines = re.sub(r"\\\r?\n", " ", lock).splitlines()
    for line in filter(None, (re.sub(r"(^|\s)#.*", "", one).strip() for one in lines)):
        match = _LOCKED.fullmatch(line)
        if match is None:
            raise SpecError(
                f"A lock file has lines such as `numpy==2.4.6 --hash=sha256:…`, but got `{line[:120]}`.",
                hint="Use the `requirements.lock` of a runtime.",
            )
        if not match["hashes"]:
            raise SpecError(
                f"`{line[:120]}` has no hash in the lock file.", hint="Add `--hash=sha256:…` with 64 digits."
            )
        from_file = _WHEEL.fullmatch((match["url"] or "").rpartition("/")[2])
        version = match["version"] or (from_file["version"] if from_file else "")
        found[_normal(match["name"])] = version
    if not found:
        raise SpecError("The lock file names no package.", hint="Use the `requirements.lock` of a runtime.")
    return found


def _normal(name: str) -> str:
    """The one spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
