"""A clock that a test steps back and forward, for the processes that it starts."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("clock_steps.c")
VARIABLE = "ORTUNE_TEST_CLOCK"  # the file that says by how many seconds the clock is ahead


class SteppedClock:
    """The clock of all processes that have `environment`. Their monotonic clock is the system's.

    The start times that the kernel tells of processes do not step with it, as they would on a real machine.
    """

    def __init__(self, folder: Path) -> None:
        """Compile the library; skips the test where that cannot be done."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if sys.platform != "linux" or compiler is None:
            pytest.skip("a clock that steps needs Linux and a C compiler")
        library, self._file = folder / "clock_steps.so", folder / "ahead"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        self._file.write_bytes(struct.pack("=q", 0))
        self.environment = {"LD_PRELOAD": str(library), VARIABLE: str(self._file)}

    def step(self, ahead_s: int) -> None:
        """Put the clock ahead of the system's clock; negative: behind."""
        with self._file.open("r+b") as file:  # never shorter than it was: it is mapped
            file.write(struct.pack("=q", ahead_s))
