"""File systems of the tests' own, for disks that are full or cannot be written."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until


@contextlib.contextmanager
def small_disk(options: str = "size=2m") -> Iterator[Path]:
    """A folder that is a file system of its own; skips the test where that takes rights one has not.

    It lies outside of pytest's folders: what a killed test left mounted there would end every later run.
    """
    folder = Path(tempfile.mkdtemp(prefix="small-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        gc.collect()  # a store that nobody has any more may still have its file open
        unmount = ["umount", str(folder)]
        wait_until(lambda: subprocess.run(unmount, capture_output=True, check=False).returncode == 0)
        folder.rmdir()


def fill(folder: Path) -> Path:
    """Fill the file system of a folder to its last byte, and return the file that does."""
    path = folder / "filler"
    for size in (1 << 20, 4096, 1):
        with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(size)):
                pass
    return path
