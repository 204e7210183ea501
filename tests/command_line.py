"""The real command line with its own store and queue, and the processes and files that a command leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from core import cli
from tests.documents import document_name, errors_of
from tests.waiting import WAIT_S

MARK = "ORTUNE_TEST_MARK"
ROUNDS = re.compile(r": rounds [1-9]")  # a line of progress


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

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        """Begin with a copy of `home`; None: with nothing."""
        self.home = folder / "home"
        if home is not None:
            shutil.copytree(home, self.home)
        self.queue = folder / "queue"
        self.python = sys.executable  # of commands in a process of their own
        self.mark = secrets.token_hex(8)
        self.began = time.time() - 2  # what is older is none of ours; start times are rounded
        self.environment = {
            **{name: text for name, text in os.environ.items() if name != "COLUMNS"},  # a pipe tells no width
            "ORTUNE_HOME": str(self.home),
            "ORTUNE_QUEUE": str(self.queue),
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
            MARK: self.mark,
        }

    def live_in(self, home: Path) -> None:
        """Keep everything in another folder from now on."""
        self.home = home
        self.environment["ORTUNE_HOME"] = str(home)

    def start(self, *args: str, cwd: Path | None = None, prefix: Sequence[str] = ()) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*prefix, self.python, "-m", "core", *args],
            env=self.environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, cwd: Path | None = None) -> Done:
        """Run a command in this process: starting Python takes longer than most commands.

        Workers are processes as ever. What a signal, a pipe or a limit does needs `run_alone`.
        """
        had, here = dict(os.environ), Path.cwd()
        _set_environment(self.environment)
        try:
            with _captured() as (out, err):
                os.chdir(cwd or here)
                code = cli.run(args)
        finally:
            os.chdir(here)
            _set_environment(had)
        assert self.left_over() == []
        return _done(args, code, out(), err())

    def run_alone(
        self, *args: str, cwd: Path | None = None, prefix: Sequence[str] = (), timeout_s: float = 240
    ) -> Done:
        """Run a command in a process of its own, behind `prefix` where one is given."""
        process = self.start(*args, cwd=cwd, prefix=prefix)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        assert self.left_over() == []
        return _done(args, process.returncode, out, err)

    def left_over(self) -> list[psutil.Process]:
        """Living processes of this command line, after a moment to end."""
        deadline = time.monotonic() + WAIT_S  # a killed process may be seen for a moment
        while (found := [one for one in psutil.process_iter() if self._is_ours(one)]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.05)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return (
                process.create_time() > self.began
                and process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
                and process.environ().get(MARK) == self.mark
            )
        except psutil.Error:
            return False


def works(process: subprocess.Popen[str]) -> bool:
    """Whether a command has a worker."""
    try:
        return any("core.worker" in one.cmdline() for one in psutil.Process(process.pid).children())
    except psutil.Error:
        return False


def is_comparing(process: subprocess.Popen[str]) -> bool:
    """Whether a command is in the middle of a race: somebody of its family is frozen."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
        return any(one.status() == psutil.STATUS_STOPPED for one in family)
    except psutil.Error:
        return False


def await_rounds(process: subprocess.Popen[str]) -> None:
    """Wait until a command says, as it does every few seconds, that it has measured a round."""
    assert process.stderr is not None
    assert any(ROUNDS.search(line) for line in process.stderr), "it ended without a round"


def _done(args: Sequence[str], code: int, out: str, err: str) -> Done:
    """How it ended; a document that it printed must be what its JSON Schema says, key by key."""
    done = Done(code=code, out=out, err=err)
    if out and "--json" in args:
        wrong = errors_of(document_name(args, done.document), done.document)
        assert not wrong, wrong
    return done


def _set_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # read again: TMPDIR may be another


@contextlib.contextmanager
def _captured() -> Iterator[tuple[Callable[[], str], Callable[[], str]]]:
    """What is written to stdout and stderr, into files as a shell would redirect them."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(2)]
        stack.enter_context(contextlib.redirect_stdout(files[0]))
        stack.enter_context(contextlib.redirect_stderr(files[1]))
        texts: list[str] = []
        yield (lambda: texts[0]), (lambda: texts[1])
        for file in files:
            file.seek(0)
            texts.append(file.read())
