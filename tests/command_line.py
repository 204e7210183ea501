"""The real command line in a process of its own: its own store and queue, and a look at what it leaves."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

MARK = "ORTUNE_TEST_MARK"
LEAVE_S = 5.0  # a killed process may be seen for a moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document of stdout; anything beside it fails."""
        return json.loads(self.out)


class CommandLine:
    """`python -m core` with everything it keeps under one folder."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.queue = folder / "queue"
        self.mark = secrets.token_hex(8)
        self.environment = {
            **os.environ,
            "ORTUNE_HOME": str(self.home),
            "ORTUNE_QUEUE": str(self.queue),
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
            MARK: self.mark,
        }

    def start(self, *args: str, cwd: Path | None = None, prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "core", *args],
            env=self.environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *args: str, cwd: Path | None = None, prefix: Sequence[str] = (), timeout_s: float = 240
    ) -> Done:
        process = self.start(*args, cwd=cwd, prefix=prefix)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        assert self.left_over() == []
        return Done(code=process.returncode, out=out, err=err)

    def left_over(self) -> list[psutil.Process]:
        """Living processes that carry this command line's mark, after a moment to leave."""
        deadline = time.monotonic() + LEAVE_S
        while (found := [one for one in psutil.process_iter() if self._is_ours(one)]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.05)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return (
                process.status() != psutil.STATUS_ZOMBIE
                and process.pid != os.getpid()
                and process.environ().get(MARK) == self.mark
            )
        except psutil.Error:
            return False
