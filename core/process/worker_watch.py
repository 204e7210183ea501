"""What a running worker holds of the machine: its parent looks, and ends a worker that holds too much.

The limits of the kernel bound one file and the memory of one process. No limit bounds the number of files,
their sum, or the threads of the superuser. A worker is ended where it holds more than any job needs, and
where the disk is nearly full and the worker holds much of it. A look is cheap while little is held: it reads
a few numbers of the kernel, and counts files once in a while.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.process.worker_output import RESERVE_BYTES, free_bytes
from core.wire.errors import TMPDIR_HINT, WorkerError

FILLING_BYTES = 64 << 20  # who holds more on a disk that is nearly full counts as the one that fills it
MOST_FILES = 100_000  # files and folders of one worker; the largest environments have half as many
RESERVE_FILES = 2_000  # new files that the disk must still be able to hold
FILLING_FILES = 1_000  # like `FILLING_BYTES`
MOST_DEPTH = 200  # of folders in folders
MOST_THREADS = 8_192  # of one process: twice what two thread pools and the streams of a large machine need
MOST_PROCESSES = 2_048  # of a worker that may start some
MOST_LOG_BYTES = 1 << 30  # verbose logs of long runs have a few hundred megabytes
PAUSE_S = 1.0  # between two counts of files or processes
PAUSES_PER_COUNT = 20.0  # a count that takes long is made less often
HOSTILE_HINT = "Do not use this model if you do not trust it: a file or library of it may be hostile."


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a worker holds of one disk."""

    files: int = 0
    bytes: int = 0
    hides: str = ""  # why its files cannot be counted; empty: they can


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """What is free on the disk of a folder."""

    bytes: int
    files: int | None  # None: the file system has no fixed number

    @property
    def is_scarce(self) -> bool:
        """Whether the disk is nearly full."""
        return self.bytes < RESERVE_BYTES or (self.files is not None and self.files < RESERVE_FILES)


def excess(held: Held, free: Free, folder: str) -> str:
    """Return what a worker does that it must not, to follow "because it"; empty: nothing."""
    if held.hides:
        return held.hides
    if held.files > MOST_FILES:
        return f"made more than {MOST_FILES:,} files in `{folder}`"
    if free.bytes < RESERVE_BYTES and held.bytes > FILLING_BYTES:
        return (
            f"fills the disk: its files in `{folder}` hold {held.bytes >> 20:,} MiB, and less than "
            f"{RESERVE_BYTES >> 20:,} MiB are free"
        )
    if free.files is not None and free.files < RESERVE_FILES and held.files > FILLING_FILES:
        return (
            f"fills the disk: `{folder}` has {held.files:,} files of it, and the disk can hold fewer than "
            f"{RESERVE_FILES:,} more"
        )
    return ""


class Watch:
    """Looks at one worker."""

    def __init__(
        self, pid: int, folders: Sequence[str], *, processes: bool = False, log: Callable[[], int] = lambda: 0
    ) -> None:
        """Look at nothing yet.

        Args:
            pid: of the worker, which leads a process group.
            folders: that it writes into, each of which was made for it alone.
            processes: it may start processes, so they are counted too.
            log: returns the size of a file that holds its output, in bytes.
        """
        self._pid = pid
        self._folders = [one for one in folders if one]
        self.processes = processes
        self._log = log
        self._next_count = time.monotonic() + PAUSE_S

    def look(self) -> None:
        """Raise where the worker holds too much.

        Raises:
            WorkerError: the caller ends the worker.
        """
        if too_many := self._threads_or_log():
            raise _ended(too_many, HOSTILE_HINT)
        is_time = time.monotonic() >= self._next_count
        for folder in self._folders:
            with contextlib.suppress(OSError):
                free = free_space(folder)
                if is_time or free.is_scarce:
                    self._check_folder(folder, free)
        if is_time:
            began = time.monotonic()
            if self.processes and len(self._processes_of_it()) > MOST_PROCESSES:
                raise _ended(f"started more than {MOST_PROCESSES:,} processes", HOSTILE_HINT)
            self._wait_for_next_count(began)

    def _processes_of_it(self) -> list[int]:
        """The worker's processes; before its sandbox it could fork by its first thread only."""
        return list(_group(self._pid)) if self.processes else [self._pid, *_children(self._pid)]

    def _threads_or_log(self) -> str:
        if any(_threads(one) > MOST_THREADS for one in (self._pid, *_children(self._pid))):
            return f"started more than {MOST_THREADS:,} threads"
        if self._log() > MOST_LOG_BYTES:
            return f"wrote more than {MOST_LOG_BYTES >> 20:,} MiB to its log"
        return ""

    def _check_folder(self, folder: str, free: Free) -> None:
        began = time.monotonic()
        held = held_in(folder)
        if free.bytes < RESERVE_BYTES:
            removed = removed_in(folder, self._processes_of_it())
            held = replace(held, bytes=held.bytes + removed.bytes, hides=held.hides or removed.hides)
        self._wait_for_next_count(began)
        if reason := excess(held, free, folder):
            raise _ended(reason, TMPDIR_HINT if free.is_scarce else HOSTILE_HINT)

    def _wait_for_next_count(self, began: float) -> None:
        now = time.monotonic()
        self._next_count = max(self._next_count, now + PAUSE_S + PAUSES_PER_COUNT * (now - began))


def _ended(reason: str, hint: str) -> WorkerError:
    return WorkerError(f"The worker was ended because it {reason}.", hint=hint)


def free_space(folder: str) -> Free:
    """Return what is free on the disk that holds a folder.

    Raises:
        OSError: there is no such folder.
    """
    found = os.statvfs(folder)
    return Free(bytes=free_bytes(folder), files=found.f_favail if found.f_files else None)


def held_in(folder: str) -> Held:
    """Count the files and folders in a folder, and the bytes that they take on the disk."""
    files = size = 0
    waiting = [(folder, 0)]
    while waiting and files <= MOST_FILES:
        place, depth = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    else:
                        with contextlib.suppress(FileNotFoundError):
                            size += 512 * entry.stat(follow_symlinks=False).st_blocks
                    if files > MOST_FILES:
                        break
        except PermissionError:
            return Held(hides=f"made a folder in `{folder}` that cannot be read")
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                depth = MOST_DEPTH + 1
            # else it was removed or moved meanwhile
        if depth > MOST_DEPTH:
            return Held(hides=f"made folders in `{folder}` that are nested more than {MOST_DEPTH} deep")
    return Held(files=files, bytes=size)


def removed_in(folder: str, pids: Iterable[int]) -> Held:
    """Count the bytes of files that have no name any more, but that processes still have open or mapped.

    Without the superuser's rights, the size of a file that is only mapped cannot be read: two of a worker's
    own count as hidden. One is what a load test shares with its workers.
    """
    found: dict[int, int] = {}
    unseen: set[int] = set()
    with contextlib.suppress(OSError):
        disk = Path(folder).stat().st_dev
        for pid in pids:
            try:
                opened = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
            except PermissionError:
                return Held(hides=f"hides its open files while the disk of `{folder}` is nearly full")
            except OSError:  # it has ended, or there is no /proc
                continue
            for name in opened:
                with contextlib.suppress(OSError):
                    _count_removed(f"/proc/{pid}/fd/{name}", disk, found)
            for number, path, is_own in _mapped_files(pid, disk, os.path.realpath(folder)):
                try:
                    _count_removed(path, disk, found)
                except PermissionError:
                    unseen |= {number} if is_own else set()
                except OSError:  # it is mapped no more
                    continue
    if len(unseen - found.keys()) > 1:
        return Held(hides=f"maps files of `{folder}` without names while the disk is nearly full")
    return Held(bytes=sum(found.values()))


def _count_removed(path: str, disk: int, found: dict[int, int]) -> None:
    facts = Path(path).stat()
    if stat.S_ISREG(facts.st_mode) and facts.st_dev == disk and not facts.st_nlink:
        found[facts.st_ino] = 512 * facts.st_blocks


def _mapped_files(pid: int, disk: int, folder: str) -> Iterator[tuple[int, str, bool]]:
    """The removed files of a disk that a process has mapped: number, link, and whether it was in the folder.

    Only the superuser may follow these links.
    """
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_bytes().splitlines():
            if line.endswith(b" (deleted)"):
                ends, _, _, place, number, path = line.split(maxsplit=5)
                major, minor = (int(one, 16) for one in place.split(b":"))
                if os.makedev(major, minor) == disk:
                    first, last = (int(one, 16) for one in ends.split(b"-"))
                    is_own = path.startswith(os.fsencode(folder) + b"/")
                    yield int(number), f"/proc/{pid}/map_files/{first:x}-{last:x}", is_own


# --- processes ----------------------------------------------------------------------------------------------


def _threads(pid: int) -> int:
    """The number of threads of a process; 0: it is gone, or this system does not tell."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/task").stat().st_nlink - 2  # one for each thread, as for any folder
    return 0


def _children(pid: int) -> list[int]:
    """The processes that the first thread of a process has started."""
    with contextlib.suppress(OSError, ValueError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _group(pid: int) -> Iterator[int]:
    """The processes of the group that a process leads."""
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():  # noqa: PTH208, PTH112
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.getpgid(int(name)) == pid:
                    yield int(name)
