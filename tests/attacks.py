"""Targets of a hostile library: a secret, listeners and a process; and what it reports of its attempts."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from core.worker.sandbox import offer
from tests import libraries

SUCCESS = "0"
REFUSED = {str(one) for one in (errno.EPERM, errno.EACCES, errno.ENOSYS)}
FILTERED = ("others", "kernel")  # attempts that must not fail by themselves
LIBRARY = "libattack.so"
needs_sandbox = pytest.mark.skipif(
    libraries.COMPILER is None
    or platform.machine() != "x86_64"
    or sys.platform != "linux"
    or bool(offer()["lacks"]),
    reason="needs g++ on x86-64, and Linux with Landlock and seccomp",
)


@dataclass(slots=True)
class Target:
    """What no attempt may reach."""

    folder: Path
    secret: Path
    text: str
    decoy: subprocess.Popen[bytes]
    listeners: list[socket.socket]

    def arguments(self, name: str) -> list[str]:
        """The arguments of an attempt."""
        port = str(self.listeners[0].getsockname()[1])
        found = {
            "read": [str(self.secret)],
            "write": [str(self.secret)],
            "network": [port, *(str(self.folder / one) for one in "sd"), f"ortune-{self.text}"],
            "others": [str(self.decoy.pid)],
        }
        return found.get(name, [])

    def model(self, name: str, *more: str) -> Path:
        """A model that makes an attempt."""
        return libraries.attacker(self.folder / f"{name}.onnx", name, *self.arguments(name), *more)

    def check_untouched(self) -> None:
        """Nothing was read, written, reached or ended."""
        assert self.secret.read_text() == self.text
        assert sorted(one.name for one in self.secret.parent.iterdir()) == ["secret"]
        assert self.secret.stat().st_mode & 0o777 == 0o600
        for one in self.listeners:
            with pytest.raises(BlockingIOError):
                one.accept() if one.type == socket.SOCK_STREAM else one.recv(100)
        assert self.decoy.poll() is None
        process = psutil.Process(self.decoy.pid)
        assert process.nice() == psutil.Process().nice()
        assert process.status() != psutil.STATUS_STOPPED
        assert process.cpu_affinity() == sorted(os.sched_getaffinity(0))
        assert "TracerPid:\t0" in Path(f"/proc/{self.decoy.pid}/status").read_text()


@contextlib.contextmanager
def target(folder: Path) -> Iterator[Target]:
    """Yield a secret, listeners and a process that sleeps."""
    private = folder / "private"
    private.mkdir()
    text = secrets.token_hex(8)
    (private / "secret").write_text(text)
    (private / "secret").chmod(0o600)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    decoy = subprocess.Popen(sleep, start_new_session=True)  # so that there is a group to attack
    kinds = [
        (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s")),
        (socket.AF_UNIX, socket.SOCK_DGRAM, str(folder / "d")),
        (socket.AF_UNIX, socket.SOCK_STREAM, f"\0ortune-{text}"),
    ]
    with contextlib.ExitStack() as ends:
        ends.callback(decoy.wait)
        ends.callback(decoy.kill)
        listeners = []
        for family, kind, address in kinds:
            one = ends.enter_context(socket.socket(family, kind))
            one.bind(address)
            if kind == socket.SOCK_STREAM:
                one.listen()
            one.setblocking(False)
            listeners.append(one)
        yield Target(folder, private / "secret", text, decoy, listeners)


def reported(text: str) -> dict[str, str]:
    """What a library reports: attempt -> result, see `attacker.cpp`."""
    found = text.partition("attack: ")[2]
    return dict(re.findall(r"(\w+)=(\S+)", found))


def successes(text: str) -> list[str]:
    """The attempts that succeeded."""
    return [name for name, result in reported(text).items() if SUCCESS in re.split(r"[,:]", result)]


def not_refused(text: str) -> list[str]:
    """The attempts that succeeded, or failed for another reason than that they are not allowed."""
    return [
        f"{name}={result}"
        for name, result in reported(text).items()
        if not REFUSED.issuperset(re.split(r"[,:]", result))
    ]
