"""A runtime: the Python environment whose libraries run a configuration, by its name and its content's hash.

`OWN` is the environment that ORTune itself runs in. Every other runtime has a folder with a record, see
`core.process.runtimes`. Standard library only; parent and workers share it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict

from core.wire.errors import SpecError

OWN = "own"
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
