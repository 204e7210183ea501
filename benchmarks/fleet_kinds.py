"""The measurements of `benchmarks/fleet.py`: each function returns one result of one kind.

The scheduler, the hosts and the client are processes of this machine, connected with certificates. Each has
an ORTune folder and a queue of its own, so that they do not wait for the turn that the benchmark holds.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from onnx import TensorProto, helper

from benchmarks import experiment as lab
from benchmarks.models import DIGITS
from core.evidence.background_load import FOREIGN_CPUS, STEAL_SHARE
from core.evidence.other_processes import between
from core.process.cpu_use import snapshot
from core.spec.effort import EFFORTS
from core.wire.files import ROOT
from tests import tiny_models
from tests.fleets import FleetProcesses, running
from tests.waiting import wait_until

HOST = "a"
STATES = ("idle", "measuring")
SIDES = ("without", "beside")  # an idle scheduler and host
ANSWERED = (0, 3)  # exit codes of a comparison with a verdict, and with an open one
EACH = 50  # simulated hosts in a process
RECEIVERS = 5
LEAD_S = 5.0  # a question has begun to measure by then
_POLL_S = 0.05
_MAIN = "from core.__main__ import main; main()"
# hosts on this machine would read the client's files; those of another machine receive them
_FAR_MAIN = (
    "from core.run.fleet.requests import PreparedQuestion as Q; request = Q.request; "
    "Q.request = lambda self, key: {**request(self, key), 'near': {}}; " + _MAIN
)
_CLUSTER = """
import asyncio, time
began = time.perf_counter()
from core.run.fleet.host import embedded

async def start():
    async with embedded("here"):
        print(time.perf_counter() - began)

asyncio.run(start())
"""


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


# --- what a fleet adds to a question ------------------------------------------------------------------------


class Extra:
    """The same comparison without a fleet, on a running fleet of one host, and on an embedded cluster."""

    def __init__(self, client: Client, runs: int) -> None:
        """Ask each way once, so that the model is known and all files are in memory."""
        self._client = client
        asked = comparison("--runs", str(runs))
        self._ways: list[tuple[str, list[str]]] = [
            ("plain_s", asked),
            ("fleet_s", ["fleet", *asked, *client.connection]),
            ("embedded_s", ["fleet", *asked]),
        ]
        for _, words in self._ways:
            client.run(*words)

    def once(self, number: int) -> dict[str, Any]:
        """Return the seconds of each way, in a rotating order, and those of the embedded cluster's start."""
        around, turn = Surroundings(), number % len(self._ways)
        ways = [*self._ways[turn:], *self._ways[:turn]]
        found = {name: self._client.run(*words).seconds for name, words in ways}
        found["cluster_s"] = self._cluster_s()
        return lab.compact({**found, **around.facts()})  # type: ignore[no-any-return]

    def _cluster_s(self) -> float:
        command = [sys.executable, "-P", "-c", _CLUSTER]
        environment = self._client.fleet.environment("client")
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return float(done.stdout)


# --- CPU time of the processes of a fleet -------------------------------------------------------------------


def idle(client: Client, seconds: float, number: int) -> dict[str, Any]:
    """Return the shares of a core that the processes of a fleet use, in one of the states."""
    state, fleet = STATES[number % 2], client.fleet
    if state == "idle":
        found = _shares(_fleet_pids(fleet), seconds)
    else:
        budget = f"{seconds + LEAD_S:g}s"
        asked = ["fleet", *comparison("--effort", "publish", "--budget", budget), *client.connection]
        process = client.start(*asked)
        try:
            wait_until(lambda: "question" in _fleet_pids(fleet), "The host does not begin the question.")
            time.sleep(LEAD_S)
            found = _shares({**_fleet_pids(fleet), "client": process.pid}, seconds)
        finally:
            process.terminate()
            process.communicate()
    return lab.compact({"state": state, **found})  # type: ignore[no-any-return]


def _fleet_pids(fleet: FleetProcesses) -> dict[str, int]:
    """The scheduler, the host, and the process that waits for the command of a question, if there is one."""
    found = {"scheduler": fleet.processes["scheduler"].pid, "host": fleet.processes[HOST].pid}
    for one in psutil.Process(found["host"]).children():
        try:
            if "core.run.fleet.question" in one.cmdline():
                found["question"] = one.pid
        except psutil.Error:  # it has just ended
            continue
    return found


def _shares(pids: dict[str, int], seconds: float) -> dict[str, Any]:
    """CPU time as a share of a core, until `seconds` have passed or one of the processes has ended."""
    around, began = Surroundings(), time.monotonic()
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    after, took_s = before, 0.0
    while took_s < seconds:
        time.sleep(min(1.0, seconds - took_s))
        try:
            after = {name: cpu_s(pid) for name, pid in pids.items()}
        except psutil.Error:
            break
        took_s = time.monotonic() - began
    if took_s < seconds / 2:
        raise SystemExit(f"The question ended after {took_s:.0f} s of {seconds:g} s: nothing is measured.")
    shares = {name: (after[name] - before[name]) / took_s for name in pids}
    return {"seconds": took_s, "shares": shares, **around.facts()}


# --- comparisons beside an idle host ------------------------------------------------------------------------


def side_of(number: int) -> str:
    """Return the side of a comparison: both alternate, and the first of a pair changes."""
    return SIDES[(number + number // 2) % 2]


def aa(folder: Path, budget_s: float, number: int, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compare the smallest sample model with itself, beside an idle scheduler and host or without them."""
    side = side_of(number)
    prior_at = lab.history([one for one in rows if one["side"] == side])
    pair = [lab.contestant(label, DIGITS) for label in ("ORT default", "the same")]

    def compare() -> dict[str, Any]:
        return lab.compare(
            *pair, precision=EFFORTS["publish"], budget_s=budget_s, seed=number, prior_at=prior_at
        )

    if side == "without":
        return {"side": side, **compare()}
    with one_host(folder / f"aa-{number}"):
        return {"side": side, **compare()}


# --- many hosts ---------------------------------------------------------------------------------------------


class SimulatedHosts(FleetProcesses):
    """A scheduler, and processes with many simulated hosts each."""

    def __init__(self, folder: Path, count: int) -> None:
        """Create the certificates; one for each process."""
        self.counts = {f"many-{first}": min(EACH, count - first) for first in range(0, count, EACH)}
        super().__init__(folder, list(self.counts))

    def start_hosts(self, document: Path, seconds: float) -> None:
        """Start all processes, and wait until every host is connected."""
        for name, count in self.counts.items():
            first = name.partition("-")[2]
            arguments = [first, str(count), self.address, str(self.certs / "hosts" / name), str(document)]
            with (self.folder / f"{name}.log").open("wb") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.fleet_hosts", *arguments, str(seconds)],
                    env=self.environment(name),
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        for name, count in self.counts.items():
            wait_until(
                lambda name=name, count=count: self.log(name).count("connected to") >= count,  # type: ignore[misc]
                f"{name} does not connect all hosts.",
            )


def many_hosts(folder: Path, count: int, seconds: float) -> dict[str, Any]:
    """Ask many simulated hosts once, and return what it costs."""
    fleet = SimulatedHosts(folder, count)
    client = Client(fleet)
    document = folder / "document.json"
    document.write_text(client.run(*comparison("--runs", "20", "--json")).out)
    try:
        fleet.start_scheduler()
        fleet.start_hosts(document, seconds)
        scheduler, around = fleet.processes["scheduler"].pid, Surroundings()
        before_s = cpu_s(scheduler)
        asked = client.run("fleet", *comparison("--json"), *client.connection, watch=True)
        used_s, peak = cpu_s(scheduler) - before_s, peak_mib(scheduler)
        facts = around.facts()
    finally:
        fleet.close()
    run = client.newest_run()
    answers = run["answers"]
    row = {
        "hosts": len(answers),
        "question_s": seconds,
        "document_kib": document.stat().st_size / 1024,
        "seconds": asked.seconds,
        "begin_s": max(one["started_at"] for one in answers) - run["created_at"],
        "collect_s": run["finished_at"] - max(one["finished_at"] for one in answers),
        "client_cpu_s": asked.cpu_s,
        "client_peak_mib": asked.peak_mib,
        "scheduler_cpu_s": used_s,
        "scheduler_peak_mib": peak,
        **facts,
    }
    return lab.compact(row)  # type: ignore[no-any-return]


# --- a large model ------------------------------------------------------------------------------------------


def large_model(path: Path, megabytes: int) -> Path:
    """Write a model whose random weights of so many megabytes lie beside it, and return `path`."""
    features, rows = 1000, megabytes * 250  # of 4 bytes
    tensor = TensorProto(name="w", dims=[rows, features], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", str(megabytes * 10**6))):
        tensor.external_data.add(key=key, value=value)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(random.randrange(1 << 32))
    with (path.parent / "weights.bin").open("wb") as file:
        for _ in range(megabytes):
            file.write(drawn.random(250_000, dtype=np.float32).tobytes())
    node = helper.make_node("Gather", ["w", "i"], ["y"], "rows")
    return tiny_models.save(
        path,
        [node],
        [tiny_models.value("i", ["batch"], "int64")],
        [tiny_models.value("y", ["batch", features])],
        [tensor],
    )


def transfer(folder: Path, megabytes: int) -> dict[str, Any]:
    """Ask hosts a made-up question about a large model twice; the first time they receive the model."""
    names = [f"receiver-{number}" for number in range(RECEIVERS)]
    path = large_model(folder / "far" / "large.onnx", megabytes)
    with running(folder, {name: () for name in names}) as fleet:
        client, pids = Client(fleet, _FAR_MAIN), {name: one.pid for name, one in fleet.processes.items()}
        asked = ["fleet", "compare", str(path), "--budget", "0.1s", "--json", *client.connection]
        around, found, written = Surroundings(), [], [_written(pids, names)]
        for _ in range(2):
            found.append(client.run(*asked, watch=True))
            client.newest_run()
            written.append(_written(pids, names))
        facts = around.facts()
        peaks = {name: peak_mib(pid) for name, pid in pids.items()}
    row = {
        "hosts": len(names),
        "megabytes": megabytes,
        "first_s": found[0].seconds,
        "second_s": found[1].seconds,
        "first_megabytes": (written[1] - written[0]) / 1e6,
        "second_megabytes": (written[2] - written[1]) / 1e6,
        "client_peak_mib": max(one.peak_mib for one in found),
        "scheduler_peak_mib": peaks["scheduler"],
        "host_peak_mib": max(peaks[name] for name in names),
        **facts,
    }
    return lab.compact(row)  # type: ignore[no-any-return]


def _written(pids: dict[str, int], names: Sequence[str]) -> int:
    """Bytes that the hosts have written to files."""
    return sum(psutil.Process(pids[name]).io_counters().write_chars for name in names)
