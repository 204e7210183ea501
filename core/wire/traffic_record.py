"""The record of a run under traffic: a mapped file that workers write while the parent reads it.

The parent writes the schedule; workers write when each request was started and finished. So the parent shows
the course without asking a worker, which must do nothing but serve, and what was measured outlives a worker
that crashes. All numbers are 64-bit integers; times are nanoseconds from the start of the run. Standard
library only.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

if sys.platform != "win32":
    import fcntl

COLUMNS = ("at_ns", "kind", "start_ns", "end_ns", "stream", "batch")
_HEADER = 8
_STOP, _TICKET = range(2)
_BYTES = 8


class TrafficRecord:
    """One mapped record. Columns are writable views with one entry per request."""

    def __init__(self, path: Path, requests: int) -> None:
        """Map the file at `path`, which `create` has written, for `requests` requests.

        Raises:
            OSError: it cannot be opened.
            ValueError: it has another size.
        """
        self.requests = requests
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(self._file, size_of(requests))
        except BaseException:
            os.close(self._file)
            self._file = -1
            raise
        self._all = memoryview(self._map).cast("q")
        self._header = self._all[:_HEADER]
        columns = [
            self._all[_HEADER + index * requests : _HEADER + (index + 1) * requests]
            for index in range(len(COLUMNS))
        ]
        self.at_ns, self.kind, self.start_ns, self.end_ns, self.stream, self.batch = columns

    def close(self) -> None:
        """Unmap the file; views of its columns must not be used any more."""
        if self._file < 0:
            return
        for view in (self.at_ns, self.kind, self.start_ns, self.end_ns, self.stream, self.batch):
            view.release()
        self._header.release()
        self._all.release()
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self._file)
        self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()

    @property
    def stopped(self) -> bool:
        """Whether workers shall start no further request."""
        return bool(self._header[_STOP])

    def stop(self) -> None:
        """Let workers start no further request."""
        self._header[_STOP] = 1

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the record, which excludes other processes, but no threads of this one."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @property
    def ticket(self) -> int:
        """The next request to serve, where several processes share the record; they lock the file."""
        return self._header[_TICKET]

    @ticket.setter
    def ticket(self, number: int) -> None:
        self._header[_TICKET] = number

    def touch(self) -> None:
        """Map every page now, so that no request waits for it."""
        for start in range(0, len(self._all), mmap.PAGESIZE // _BYTES):
            self._all[start] = self._all[start]


def size_of(requests: int) -> int:
    """Return the bytes of a record."""
    return _BYTES * (_HEADER + len(COLUMNS) * requests)


def create(path: Path, at_ns: array[int], kind: Sequence[int]) -> TrafficRecord:
    """Write a new record with its schedule, and map it.

    Args:
        path: of the new file.
        at_ns: scheduled arrivals, in order.
        kind: of each request.

    Raises:
        OSError: it cannot be written, for example because the disk is full.
    """
    requests = len(at_ns)
    with path.open("w+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size_of(requests))  # else a full disk kills the writer later
        else:
            file.truncate(size_of(requests))
    record = TrafficRecord(path, requests)
    record.at_ns[:] = memoryview(at_ns).cast("B").cast("q")
    record.kind[:] = memoryview(array("q", kind))
    return record


def folder(requests: int, otherwise: Path) -> Path:
    """Return where to keep a record: in memory where that is possible, so that no disk delays a request."""
    memory = Path("/dev/shm")  # noqa: S108 - the record itself has a random name
    try:
        free = os.statvfs(memory)
        if free.f_bavail * free.f_frsize > 2 * size_of(requests) and os.access(memory, os.W_OK):
            return memory
    except OSError:
        pass
    return otherwise
