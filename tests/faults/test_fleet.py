"""What goes wrong in a fleet of several machines, which are network namespaces of this one.

After every fault: no answer is lost, nothing is measured twice without saying so, no process stays on a host.
The questions are made up, because the faults concern what is around a measurement.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.api import fleet
from core.api.session import Session
from core.evidence.fleet.fleet_types import FleetRun
from core.run.fleet import folders
from core.wire.files import ROOT
from tests import tiny_models
from tests.fleets import FleetProcesses
from tests.waiting import WAIT_S, wait_until

pytest.importorskip("distributed")
pytest.importorskip("cryptography")
_CAN = sys.platform == "linux" and os.geteuid() == 0 and shutil.which("ip") is not None
pytestmark = pytest.mark.skipif(not _CAN, reason="network namespaces need root and `ip`")

SECONDS = 5.0  # a question
LONG_S = 20.0  # one that a fault must meet on every host, however long the slowest takes to begin
PATIENCE_S = 120.0


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


class Network(FleetProcesses):
    """A fleet whose scheduler and hosts each have a network of their own, connected by a bridge."""

    def __init__(self, folder: Path, hosts: list[str]) -> None:
        self.mark = secrets.token_hex(2)
        self.subnet = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(250)}"
        super().__init__(folder, hosts, at=f"{self.subnet}.2")
        self.bridge = f"ob{self.mark}"
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.subnet}.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for number, name in enumerate(["scheduler", *hosts], start=2):
            self._join(name, number)

    def _join(self, name: str, number: int) -> None:
        space, outer, inner = f"on{self.mark}{number}", f"oo{self.mark}{number}", f"oi{self.mark}{number}"
        ip("netns", "add", space)
        ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
        ip("link", "set", outer, "master", self.bridge, "up")
        ip("-n", space, "addr", "add", f"{self.subnet}.{number}/24", "dev", inner)
        ip("-n", space, "link", "set", inner, "up")
        ip("-n", space, "link", "set", "lo", "up")
        self.inside[name] = ["ip", "netns", "exec", space]

    def cut(self, name: str, *, connect: bool = False) -> None:
        """Interrupt the network of a machine, or connect it again."""
        number = ["scheduler", *self.hosts].index(name) + 2
        ip("link", "set", f"oo{self.mark}{number}", "up" if connect else "down")

    def close(self) -> None:
        super().close()
        for number in range(2, len(self.inside) + 2):
            ip("netns", "del", f"on{self.mark}{number}", check=False)
        ip("link", "del", self.bridge, check=False)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A scheduler and five hosts, of which `a` and `b` are started."""
    found = Network(tmp_path_factory.mktemp("network"), list("abcde"))
    try:
        found.start_scheduler()
        for name in ("a", "b"):
            found.start_host(name)
        yield found
    finally:
        found.close()
    assert found.left_over() == []


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "client"))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    with Session() as session:
        yield session


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.mul(tmp_path / "m.onnx")


Fault = Callable[[Network], None]


def at(of: FleetProcesses) -> dict[str, Any]:
    return {"scheduler": of.address, "certs": of.certs / "client", "patience_s": PATIENCE_S}


def question(model: Path, seconds: float = SECONDS) -> fleet.Asked:
    return fleet.Asked(command="compare", model=str(model), arguments=["--budget", f"{seconds}s"])


def asked_during(
    fault: Fault, network: Network, client: Session, model: Path, *, seconds: float = SECONDS
) -> FleetRun:
    """Ask, and let the fault happen in a thread of its own once every host measures."""
    names = ("a", "b")
    before = {one: len(network.measured(one)) for one in names}
    happened: list[threading.Thread] = []

    def watch(run: FleetRun) -> None:
        if not happened and all(len(network.measured(one)) > before[one] for one in names):
            happened.append(threading.Thread(target=fault, args=(network,)))
            happened[0].start()

    asked = question(model, seconds)
    run = fleet.ask([asked], on=",".join(names), session=client, on_change=watch, **at(network))
    assert happened
    happened[0].join(WAIT_S)
    for one in names:
        times = len(network.measured(one)) - before[one]
        attempts = [answer.attempt for answer in run.answers if answer.host == one]
        assert [times] == attempts, "measured more often than the run says"
    return run


def no_command_is_left(network: Network) -> None:
    """Nothing but the processes of the fleet itself works in its folder."""

    def others() -> list[str]:
        return [one for one in network.working() if "on_host.PROGRAM" not in one]

    wait_until(lambda: not others(), "A process is left on a host.")


# --- faults -------------------------------------------------------------------------------------------------


def short_cut(network: Network) -> None:
    network.cut("b")
    time.sleep(8)
    network.cut("b", connect=True)


def cut_for_a_minute(network: Network) -> None:
    network.cut("b")
    time.sleep(60)
    network.cut("b", connect=True)


def cut_scheduler(network: Network) -> None:
    network.cut("scheduler")
    time.sleep(10)
    network.cut("scheduler", connect=True)


def killed_host(network: Network) -> None:
    network.end("b", signal.SIGKILL)
    time.sleep(1)
    network.start_host("b", wait=False)


def hanging_host(network: Network) -> None:
    network.processes["b"].send_signal(signal.SIGSTOP)
    time.sleep(12)
    network.processes["b"].send_signal(signal.SIGCONT)


def killed_scheduler(network: Network) -> None:
    network.end("scheduler", signal.SIGKILL)
    time.sleep(1)
    network.start_scheduler()


def killed_both(network: Network) -> None:
    for name in ("scheduler", "b"):
        network.end(name, signal.SIGKILL)
    network.start_scheduler()
    network.start_host("b", wait=False)


def joining_host(network: Network) -> None:
    network.start_host("c")
    network.end("c")


FAULTS = (
    *(short_cut, cut_scheduler, killed_host, hanging_host, killed_scheduler, killed_both, joining_host),
    cut_for_a_minute,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.__name__)
def test_no_answer_is_lost_and_none_is_measured_twice(
    network: Network, client: Session, model: Path, fault: Fault
) -> None:
    run = asked_during(fault, network, client, model)
    assert {one.host: (one.state, one.attempt) for one in run.answers} == {
        "a": ("COMPLETE", 1),
        "b": ("COMPLETE", 1),
    }
    no_command_is_left(network)


def test_five_hosts_answer_once_each(network: Network, client: Session, model: Path) -> None:
    others = ("c", "d", "e")
    try:
        for name in others:
            network.start_host(name)
        run = fleet.ask([question(model)], session=client, **at(network))
    finally:
        for name in others:
            network.end(name)
    assert {one.host: (one.state, one.attempt) for one in run.answers} == dict.fromkeys(
        "abcde", ("COMPLETE", 1)
    )
    no_command_is_left(network)


def test_a_host_that_does_not_come_back_is_named_and_collected_later(
    network: Network, client: Session, model: Path
) -> None:
    before = len(network.measured("b"))
    told = threading.Event()

    def cut(run: FleetRun) -> None:
        if not told.is_set() and len(network.measured("b")) > before:
            told.set()
            network.cut("b")

    run = fleet.ask(
        [question(model, LONG_S)],
        session=client,
        on="a,b",
        on_change=cut,
        **{**at(network), "patience_s": 5.0},
    )
    network.cut("b", connect=True)
    assert {one.host: one.state for one in run.answers} == {"a": "COMPLETE", "b": "LOST"}
    assert run.state == "INCOMPLETE"
    run = fleet.resume(run.id, session=client, patience_s=PATIENCE_S)
    assert {one.host: (one.state, one.attempt) for one in run.answers}["b"] == ("COMPLETE", 1)
    assert len(network.measured("b")) == before + 1


def test_a_killed_client_is_resumed(network: Network, client: Session, model: Path) -> None:
    before = {one: len(network.measured(one)) for one in ("a", "b")}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "core", "fleet", "compare", str(model), "--budget", f"{SECONDS:g}s"),
            *("--on", "a,b", "--scheduler", network.address, "--certs", str(network.certs / "client")),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: all(len(network.measured(one)) > before[one] for one in before), "Nothing was asked.")
    process.kill()
    process.wait()
    (run,) = fleet.runs()
    assert run.state == "INCOMPLETE"
    run = fleet.resume(run.id, session=client, patience_s=PATIENCE_S)
    assert (run.state, {one.attempt for one in run.answers}) == ("COMPLETE", {1})
    assert {one: len(network.measured(one)) - before[one] for one in before} == {"a": 1, "b": 1}


def test_two_clients_at_once(network: Network, client: Session, model: Path) -> None:
    before = {one: len(network.measured(one)) for one in ("a", "b")}
    found: list[FleetRun] = []

    def ask() -> None:
        found.append(fleet.ask([question(model, 2.0)], on="a,b", session=client, **at(network)))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(WAIT_S)
    assert [one.state for one in found] == ["COMPLETE", "COMPLETE"]
    assert {one: len(network.measured(one)) - before[one] for one in before} == {"a": 2, "b": 2}


def test_a_killed_question_fails_and_the_next_attempt_says_so(
    network: Network, client: Session, model: Path
) -> None:
    def kill(network: Network) -> None:
        for state in (network.home("b") / "fleet" / "answers").glob("*/state.json"):
            found = folders.read_json(state) or {}
            if found.get("state") == "RUNNING":
                psutil.Process(found["pid"]).kill()

    run = asked_during(kill, network, client, model, seconds=LONG_S)
    assert {one.host: one.state for one in run.answers} == {"a": "COMPLETE", "b": "FAIL"}
    no_command_is_left(network)
    run = fleet.resume(run.id, again=True, session=client, patience_s=PATIENCE_S)
    assert {one.host: (one.state, one.attempt) for one in run.answers} == {
        "a": ("COMPLETE", 1),
        "b": ("COMPLETE", 2),
    }


def test_a_stopped_host_ends_its_question(network: Network, client: Session, model: Path) -> None:
    def stop(network: Network) -> None:
        network.end("b", signal.SIGTERM)
        network.start_host("b", wait=False)

    run = asked_during(stop, network, client, model, seconds=LONG_S)
    assert {one.host: one.state for one in run.answers} == {"a": "COMPLETE", "b": "CANCELLED"}
    no_command_is_left(network)


def test_a_full_disk_is_named(network: Network, client: Session, model: Path) -> None:
    network.end("b")
    home = network.home("b")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(home)], check=True)
    try:
        (home / "filler").write_bytes(bytes(1_800_000))
        network.start_host("b", wait=False)
        run = fleet.ask([question(model)], on="a", session=client, **at(network))
        assert run.state == "COMPLETE"
        wait_until(lambda: "disk" in network.log("b") or "connected" in network.log("b"), "b says nothing.")
        if "connected" in network.log("b"):
            run = fleet.ask([question(model)], on="b", session=client, **at(network))
            (answer,) = run.answers
            assert answer.state == "FAIL"
            assert answer.error is not None
            assert "disk" in answer.error["message"]
    finally:
        network.end("b", signal.SIGKILL)
        subprocess.run(["umount", "-l", str(home)], check=True)
        network.start_host("b")
