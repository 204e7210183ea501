"""Fleets for tests: a scheduler and hosts as processes of this machine, with certificates of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from core.run.fleet import certificates
from core.wire.files import ROOT
from tests.made_up_question import END, NOTES
from tests.serving import free_port
from tests.waiting import WAIT_S, wait_until

MADE_UP = ROOT / "tests" / "made_up_question.py"
_MAIN = "import sys; from core.__main__ import main; main()"
_MADE_UP_MAIN = (
    "import sys; from core.run.fleet import on_host; "
    f"on_host.PROGRAM = (sys.executable, {str(MADE_UP)!r}); from core.__main__ import main; main()"
)


class FleetProcesses:
    """A scheduler and hosts in a folder; every one can be stopped, killed and started again."""

    def __init__(
        self, folder: Path, hosts: Sequence[str], *, at: str = "127.0.0.1", made_up: bool = True
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certs = folder / "certs"
        certificates.init(self.certs, [certificates.machine(one) for one in hosts], [at])
        self.address = f"{at}:{free_port()}"
        self.hosts = list(hosts)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._program = _MADE_UP_MAIN if made_up else _MAIN
        self.inside: dict[str, Sequence[str]] = {}  # name -> beginning of its command line

    def home(self, host: str) -> Path:
        """The folder of a host's ORTune."""
        return self.folder / f"home-{host}"

    def environment(self, host: str) -> dict[str, str]:
        """The environment variables of a host."""
        return {
            **{name: text for name, text in os.environ.items() if not name.startswith("ORTUNE_")},
            **{"ORTUNE_HOME": str(self.home(host)), "ORTUNE_QUEUE": str(self.folder / f"queue-{host}")},
            **{"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"},
        }

    def log(self, name: str) -> str:
        """What the scheduler or a host wrote."""
        return (self.folder / f"{name}.log").read_text()

    def start_scheduler(self, certs: Path | None = None) -> None:
        """Start the scheduler, and wait until it listens."""
        folder = certs or self.certs / "scheduler"
        self._start("scheduler", ["scheduler", "--address", self.address, "--certs", str(folder)])
        wait_until(lambda: "Scheduler: " in self.log("scheduler"), "the scheduler's start")

    def start_host(self, name: str, *options: str, certs: Path | None = None, wait: bool = True) -> None:
        """Start a host, and wait until it is connected."""
        folder = certs or self.certs / "hosts" / name
        fixed = ["host", "--name", name, "--scheduler", self.address, "--certs", str(folder)]
        self._start(name, [*fixed, *options])
        if wait:
            wait_until(lambda: "connected to" in self.log(name), f"the connection of {name}")

    def _start(self, name: str, arguments: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*self.inside.get(name, ()), sys.executable, "-P", "-c", self._program, "fleet", *arguments],
                env=self.environment(name),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self, name: str, number: int = signal.SIGTERM) -> int:
        """Send a signal to a process, and return its exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        return process.wait(WAIT_S)

    def measured(self, host: str) -> list[str]:
        """The keys of the made-up questions that ran on a host, one for each time."""
        path = self.home(host) / NOTES
        return path.read_text().split() if path.exists() else []

    def end_questions(self, host: str) -> None:
        """Let made-up questions of a host end, those asked later too, until `forget_end`."""
        (self.home(host) / END).touch()

    def forget_end(self) -> None:
        """Let made-up questions take their time again."""
        for host in self.hosts:
            (self.home(host) / END).unlink(missing_ok=True)

    def left_over(self) -> list[str]:
        """Command lines of the processes that work in this folder, after a moment to end."""
        deadline = time.monotonic() + WAIT_S
        while (found := self.working()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def working(self) -> list[str]:
        """Command lines of all processes that work in this folder now."""
        found = []
        for one in psutil.process_iter():
            try:
                if one.pid != os.getpid() and str(self.folder) in one.environ().get("ORTUNE_HOME", ""):
                    found.append(" ".join(one.cmdline()))
            except psutil.Error:
                continue
        return found

    def close(self) -> None:
        """End all processes."""
        for name in list(self.processes):
            self.end(name, signal.SIGKILL)


@contextmanager
def running(
    folder: Path, hosts: Mapping[str, Sequence[str]], *, made_up: bool = True
) -> Iterator[FleetProcesses]:
    """Provide a fleet with a scheduler and connected hosts, each with its options."""
    fleet = FleetProcesses(folder, list(hosts), made_up=made_up)
    try:
        fleet.start_scheduler()
        for name, options in hosts.items():
            fleet.start_host(name, *options, wait=False)
        for name in hosts:
            wait_until(lambda name=name: "connected to" in fleet.log(name), f"the connection of {name}")
        yield fleet
    finally:
        fleet.close()
