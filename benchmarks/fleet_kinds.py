"""The measurements of `benchmarks/fleet.py`: each function returns one result of one kind."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from onnx import TensorProto, helper

from benchmarks import experiment as lab
from benchmarks.fleet_client import (
    FAR_MAIN,
    HOST,
    Client,
    Surroundings,
    comparison,
    cpu_s,
    one_host,
    peak_mib,
)
from benchmarks.models import DIGITS
from core.spec.effort import EFFORTS
from core.wire.files import ROOT
from tests import tiny_models
from tests.fleets import FleetProcesses, running
from tests.waiting import wait_until

STATES = ("idle", "measuring")
SIDES = ("without", "beside")  # an idle scheduler and host
EACH = 50  # simulated hosts in a process
RECEIVERS = 5
LEAD_S = 5.0  # a question has begun to measure by then
_CLUSTER = """
import asyncio, time
began = time.perf_counter()
from core.run.fleet.host import embedded

async def start():
    async with embedded("here"):
        print(time.perf_counter() - began)

asyncio.run(start())
"""


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
        client, pids = Client(fleet, FAR_MAIN), {name: one.pid for name, one in fleet.processes.items()}
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
