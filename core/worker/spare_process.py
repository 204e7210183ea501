"""A process that is forked before the sandbox, because a worker in it can start none, for one risky call.

The job `transform` learns with it whether a session with the defaults crashes. The process has the sandbox of
the worker, and ends with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
from collections.abc import Sequence
from typing import NoReturn

from core.wire.sandbox import Rules
from core.worker import lifeline, sandbox


class SpareProcess:
    """A process that waits for the arguments of one call."""

    def __init__(self, rules: Rules | None, module: str, function: str) -> None:
        """Fork it; this process must have a single thread.

        Args:
            rules: of its sandbox; None: it has none.
            module: imported for the call.
            function: its name in the module; it takes texts.
        """
        parent = os.getpid()
        reading, self._writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _wait_and_call(reading, rules, parent, (module, function))
        os.close(reading)

    def crashes(self, arguments: Sequence[str]) -> bool:
        """Make the call, and return whether a signal ended the process."""
        with open(self._writing, "wb", buffering=0) as pipe, contextlib.suppress(BrokenPipeError):  # noqa: PTH123
            pipe.write(json.dumps(list(arguments)).encode() + b"\n")
        _, status = os.waitpid(self._pid, 0)
        return os.WIFSIGNALED(status)


def _wait_and_call(reading: int, rules: Rules | None, parent: int, call: tuple[str, str]) -> NoReturn:
    """Be the spare process, to its end."""
    try:
        faulthandler.disable()
        lifeline.die_with_parent(parent)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        lifeline.close_descriptors(keep=reading)
        if rules is not None:
            sandbox.enter(rules)
        with open(reading, "rb") as pipe:
            asked = pipe.readline()
        if asked:
            getattr(importlib.import_module(call[0]), call[1])(*json.loads(asked))
    finally:
        os._exit(0)  # also after an error: only a crash matters


_prepared: list[SpareProcess] = []


def prepare(rules: Rules | None, module: str, function: str) -> None:
    """Fork the spare process of this worker, where the system can fork; see `SpareProcess`."""
    if hasattr(os, "fork"):
        _prepared.append(SpareProcess(rules, module, function))


def take() -> SpareProcess | None:
    """Return the spare process, which can be used once; None: there is none."""
    return _prepared.pop() if _prepared else None
