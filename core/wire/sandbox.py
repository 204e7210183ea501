"""The rules of a worker's sandbox, as the parent sends them; `core.worker.sandbox` enters it.

A request has its rules under the key `KEY`. Standard library only.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TypedDict, cast

from core.wire.variables import SANDBOX

if sys.version_info >= (3, 11) or TYPE_CHECKING:
    from typing import NotRequired

KEY = "sandbox"  # of a request: the rules
OFF = "off"  # value of the variable
FLAG = "--no-sandbox"  # the option that sets it
NOTE = f"The workers ran without a sandbox, which `{FLAG}` turned off."  # in each measurement
RUNS = f"Workers run without a sandbox, which `{FLAG}` turned off."  # beside what has no notes of its own

FILES = 4096  # open files of one worker
FILE_BYTES = 64 << 30  # largest file that a worker may write: weights of a large model


class Rules(TypedDict):
    """What a worker may do beyond running: everything else is refused by the kernel."""

    restricts_files: bool  # False: a fork server, whose contestants restrict them by a second call
    scratch: str  # its own folder for temporary files, also written; empty: none
    read: list[str]  # files and folders, with all below them, beside the interpreter and its libraries
    write: list[str]  # likewise; also made, changed and removed
    network: bool
    processes: bool  # may start processes and run programs
    attributes: bool  # may change owners, permissions and times of files, and make links: installing programs
    gpu: bool  # may use the device nodes of GPUs
    files: int  # largest number of open files
    file_bytes: int  # largest size of a file that it writes


class Offer(TypedDict):
    """What confines workers on a system."""

    landlock: int  # version of the kernel's interface; 0: none
    seccomp: bool  # whether system calls can be refused
    lacks: list[str]  # what cannot be confined here, in words; empty: nothing
    off: NotRequired[bool]  # True: the operator turned it off; absent: no


def rules(**changed: Any) -> Rules:
    """Return the rules of a worker that may do nothing beyond running, with `changed` fields of them."""
    nothing: Rules = {
        "restricts_files": True,
        "scratch": "",
        "read": [],
        "write": [],
        "network": False,
        "processes": False,
        "attributes": False,
        "gpu": False,
        "files": FILES,
        "file_bytes": FILE_BYTES,
    }
    return cast(Rules, {**nothing, **changed})


def is_off() -> bool:
    """Whether the operator runs workers without a sandbox: $ORTUNE_SANDBOX is off, 0, false or no."""
    return os.environ.get(SANDBOX, "").strip().lower() in (OFF, "0", "false", "no")


def mark() -> dict[str, bool]:
    """Return the key that marks a JSON document where workers run without a sandbox; empty: they do not."""
    return {"no_sandbox": True} if is_off() else {}


def in_words(found: Offer) -> str:
    """Return what confines workers, for a table of facts."""
    if found.get("off"):
        return f"not sandboxed: turned off with `{FLAG}`"
    if not found["landlock"] and not found["seccomp"]:
        return f"not sandboxed: {'; '.join(found['lacks'])}"
    if not found["landlock"]:
        return f"not sandboxed (files are open): {'; '.join(found['lacks'])}"
    parts = [f"Landlock {found['landlock']}", *(["seccomp"] if found["seccomp"] else [])]
    lacking = f"; not confined: {', '.join(found['lacks'])}" if found["lacks"] else ""
    return f"sandboxed by {' and '.join(parts)}{lacking}"
