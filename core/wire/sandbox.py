"""The rules of a worker's sandbox, as the parent sends them. Data only; `core.worker.sandbox` enters it."""

from __future__ import annotations

from typing import TypedDict

FILES = 4096  # open files of one worker
FILE_BYTES = 64 << 30  # largest file that a worker may write: weights of a large model


class Rules(TypedDict):
    """What a worker may do beyond running: everything else is refused by the kernel."""

    restricts_files: bool  # False: a fork server, whose contestants restrict them by a second call
    read: list[str]  # files and folders, with all below them, beside the interpreter and its libraries
    write: list[str]  # likewise; also made, changed and removed
    network: bool
    processes: bool  # may start processes and run programs
    gpu: bool  # may use the device nodes of GPUs
    files: int  # largest number of open files
    file_bytes: int  # largest size of a file that it writes


class Offer(TypedDict):
    """What a system offers to confine a process."""

    landlock: int  # version of the kernel's interface; 0: none
    seccomp: bool
    lacks: list[str]  # what cannot be confined here, in words; empty: nothing


def rules(
    *,
    read: list[str] | None = None,
    write: list[str] | None = None,
    restricts_files: bool = True,
    network: bool = False,
    processes: bool = False,
    gpu: bool = False,
    file_bytes: int = FILE_BYTES,
) -> Rules:
    """Return the rules of a worker that reads and writes these paths."""
    return {
        "restricts_files": restricts_files,
        "read": read or [],
        "write": write or [],
        "network": network,
        "processes": processes,
        "gpu": gpu,
        "files": FILES,
        "file_bytes": file_bytes,
    }
