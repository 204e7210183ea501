"""A client of a fleet on this machine, its commands, and what the processes use.

The scheduler, the hosts and the client are processes of this machine, connected with certificates. Each has
an ORTune folder and a queue of its own, so that they do not wait for the turn that the benchmark holds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import experiment as lab
from benchmarks.models import DIGITS
from core.evidence.background_load import FOREIGN_CPUS, STEAL_SHARE
from core.evidence.other_processes import between
from core.process.cpu_use import snapshot
from tests.fleets import FleetProcesses, running

HOST = "a"
ANSWERED = (0, 3)  # exit codes of a comparison with a verdict, and with an open one
_POLL_S = 0.05
_MAIN = "from core.__main__ import main; main()"
# hosts on this machine would read the client's files; those of another machine receive them
FAR_MAIN = (
    "from core.run.fleet.requests import PreparedQuestion as Q; request = Q.request; "
    "Q.request = lambda self, key: {**request(self, key), 'near': {}}; " + _MAIN
)


# --- the machine --------------------------------------------------------------------------------------------


class Surroundings:
    """Steal, and the load of programs that do not belong to this script, since it was made."""

    def __init__(self) -> None:
        self._before = snapshot()

    def facts(self) -> dict[str, Any]:
        """Return `steal` (a share), `others` (cores), `quiet` and the time."""
        after, steal = snapshot(), None
        own = [one.pid for one in psutil.Process().children(recursive=True)]
        others = lab.others_of(between(self._before, after, own=own))
        if self._before.machine is not None and after.machine is not None:
            stolen_s = after.machine.steal_s - self._before.machine.steal_s
            busy_s = after.machine.busy_s - self._before.machine.busy_s + stolen_s
            steal = stolen_s / busy_s if busy_s > 0 else 0.0
        quiet = steal is not None and steal < STEAL_SHARE and others <= FOREIGN_CPUS
        return {"steal": steal, "others": others, "quiet": quiet, "at": round(time.time())}


def peak_mib(pid: int) -> float:
    """The largest memory of a process so far, without files that it does not map; 0: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(one.split()[1]) / 1024 for one in lines if one.startswith("VmHWM:")), 0.0)


def cpu_s(pid: int) -> float:
    """CPU time of a process without its children."""
    found = psutil.Process(pid).cpu_times()
    return float(found.user + found.system)


# --- the client ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Command:
    """A command of the client that has ended."""

    seconds: float
    out: str
    peak_mib: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Client:
    """Commands in an ORTune folder of their own, which may use a fleet."""

    fleet: FleetProcesses
    program: str = field(default=_MAIN)

    @property
    def home(self) -> Path:
        """Its ORTune folder."""
        return self.fleet.home("client")

    @property
    def connection(self) -> list[str]:
        """The options that name the scheduler."""
        return ["--scheduler", self.fleet.address, "--certs", str(self.fleet.certs / "client")]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-P", "-c", self.program, *arguments],
            env=self.fleet.environment("client"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, watch: bool = False) -> Command:
        """Run a command; end the script if it fails.

        Args:
            arguments: of the command line.
            watch: also note its CPU time and its peak memory.
        """
        began = time.monotonic()
        process = self.start(*arguments)
        found, done = Command(0.0, ""), threading.Event()
        watcher = threading.Thread(target=self._watch, args=(process.pid, found, done))
        if watch:
            watcher.start()
        found.out, err = process.communicate()
        found.seconds = time.monotonic() - began
        done.set()
        if watch:
            watcher.join()
        if process.returncode not in ANSWERED:
            raise SystemExit(f"`{' '.join(arguments[:3])}` ended with {process.returncode}: {err[-2000:]}")
        return found

    @staticmethod
    def _watch(pid: int, found: Command, done: threading.Event) -> None:
        while not done.wait(_POLL_S):
            try:
                found.peak_mib, found.cpu_s = max(found.peak_mib, peak_mib(pid)), cpu_s(pid)
            except psutil.Error:  # it has just ended
                return

    def newest_run(self) -> dict[str, Any]:
        """The record of its newest fleet run; ends the script if an answer is not complete."""
        files = (self.home / "fleet" / "runs").glob("*/run.json")
        run: dict[str, Any] = max((json.loads(one.read_bytes()) for one in files), key=_created)
        states = {one["host"]: one["state"] for one in run["answers"]}
        if bad := {host: state for host, state in states.items() if state != "COMPLETE"}:
            host = next(iter(bad))
            error = next(one["error"] for one in run["answers"] if one["host"] == host)
            raise SystemExit(f"{len(bad)} of {len(states)} hosts have no answer, {host}: {error}")
        return run


def _created(run: dict[str, Any]) -> float:
    return float(run["created_at"])


def comparison(*more: str) -> list[str]:
    """Return the command line of a comparison of the smallest sample model with itself."""
    return ["compare", str(DIGITS), "--candidate", str(DIGITS), "--quiet", *more]


@contextmanager
def one_host(folder: Path) -> Iterator[FleetProcesses]:
    """Run a scheduler and one host that answers with real questions."""
    with running(folder, {HOST: ()}, made_up=False) as found:
        yield found
