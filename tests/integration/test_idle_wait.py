"""Background processes by name, and the wait for an idle machine: queue, page and command line.

Other tests may run at the same time, so no test requires an idle machine. Where it must be idle, the system
is read as if only this test's own background process ran.
"""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.cli.output import EXIT_BAD_INPUT
from core.cli.watch import Progress, describe
from core.evidence.comparison import Configuration
from core.evidence.other_processes import LISTED_SHARE, OtherProcesses, Snapshot, between
from core.process.cpu_use import snapshot
from core.process.machine_queue import MachineQueue
from core.run import idle_wait, job_types
from core.run import scheduler as scheduler_module
from core.run.idle_wait import WaitResult, wait_until_quiet
from core.run.job import WAITING_IDLE, Ending, Outcome, Status
from core.run.scheduler import Scheduler
from core.spec import TrialSpec, spec_from_dict
from core.store import Store
from core.wire.errors import Cancelled
from core.wire.limits import CpuTime
from dashboard.widgets.live_text import progress
from tests.command_line import CommandLine
from tests.waiting import WAIT_S, wait_until

NAME = "ortune-burner"
BURN = f"open('/proc/self/comm', 'w').write('{NAME}')\nwhile True: pass"
PARENT = (
    f"open('/proc/self/comm', 'w').write('{NAME}')\n"
    "import subprocess, sys\n"
    "while True: subprocess.run([sys.executable, '-c', 'for _ in range(10**6): pass'])"
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names a process through /proc")


@pytest.fixture
def busy_processes() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str = BURN, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", code], **options))
        pid = started[-1].pid
        wait_until(lambda: psutil.Process(pid).name() == NAME, "the burner never began")
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


def used(before: Snapshot, pid: int, *, own: tuple[int, ...] = ()) -> OtherProcesses:
    """Watch until the process `pid` has used enough to be seen, however busy the machine is."""
    began_s = cpu_s(before, pid)
    wait_until(lambda: cpu_s(snapshot(), pid) > began_s + 0.5, "the burner gets no CPU")
    return between(before, snapshot(), own=own)


def cpu_s(at: Snapshot, pid: int) -> float:
    return sum(one.cpu_s + one.reaped_s for one in at.processes if one.pid == pid)


def cores(found: OtherProcesses) -> float:
    return sum(one["cores"] for one in found.programs if one["name"] == NAME)


# -- who it is ---------------------------------------------------------------------------------------------


def test_a_busy_process_is_named(busy_processes: Any) -> None:
    one, two = busy_processes(), busy_processes()
    before = snapshot()
    found = used(before, one.pid)
    assert cores(found) > 0
    assert sum(program["name"] == NAME for program in found.programs) == 1  # two processes, one program
    known_s = sum(cpu_s(snapshot(), each.pid) - cpu_s(before, each.pid) for each in (one, two))
    assert cores(found) * found.seconds <= known_s + 0.05
    listed = NAME in {program["name"] for program in found.to_dict()["programs"]}
    assert listed == (cores(found) >= LISTED_SHARE * found.cores)  # others may use twenty times as much


def test_a_worker_and_its_group_are_not_named(busy_processes: Any) -> None:
    leader = busy_processes(process_group=0)
    member = busy_processes(process_group=leader.pid)
    assert cores(used(snapshot(), member.pid, own=(leader.pid,))) == 0


def test_short_lived_programs_count_as_the_one_that_waits_for_them(busy_processes: Any) -> None:
    parent = busy_processes(PARENT)
    before = snapshot()
    found = used(before, parent.pid)
    assert cores(found) * found.seconds > 0.4  # it does nothing itself but start them


# -- waiting under real background load --------------------------------------------------------------------


def only(process: subprocess.Popen[bytes]) -> Callable[[], Snapshot]:
    """A snapshot of a machine of two CPUs on which nothing but `process` runs, and never has to wait.

    Its clock is the CPU time of the process as long as that lives: other programs may keep it from running.
    """
    busy_s, ended_s = 0.0, 0.0

    def look() -> Snapshot:
        nonlocal busy_s, ended_s
        was_s = busy_s
        wait_until(lambda: process.poll() is not None or cpu_s(snapshot(), process.pid) > was_s + 0.1)
        real = snapshot()
        found = tuple(one for one in real.processes if one.pid == process.pid)
        busy_s = max(busy_s, sum(one.cpu_s for one in found))  # what has ended keeps what it used
        ended_s += 1.0 * (process.poll() is not None)
        at_s = busy_s + ended_s
        machine = CpuTime(cpus=2, busy_s=busy_s, steal_s=0.0, idle_s=2 * at_s - busy_s)
        return replace(real, at_s=at_s, processes=found, machine=machine, usable=machine, pressure_s=0.0)

    return look


def test_it_waits_for_background_load_that_ends(busy_processes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_wait, "WINDOW_S", 0.5)
    busy_process = busy_processes()
    told: list[str] = []

    def on_wait(words: str) -> None:
        told.append(words)
        if words.startswith(f"{NAME} uses "):
            busy_process.kill()
            busy_process.wait()

    found = wait_until_quiet(WAIT_S, threading.Event(), on_wait, look=only(busy_process), needed_cpus=2)
    assert found.quiet is True
    assert any(words.startswith(f"{NAME} uses ") for words in told)
    assert found.note


def test_it_continues_beside_background_load_that_stays(
    busy_processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_wait, "WINDOW_S", 0.5)
    busy_process = busy_processes()
    found = wait_until_quiet(1.0, threading.Event(), lambda _: None, look=only(busy_process), needed_cpus=2)
    assert found.quiet is False
    assert f"{NAME} used " in found.note
    assert busy_process.poll() is None


def test_a_wait_ends_when_it_is_cancelled() -> None:
    cancel = threading.Event()
    with pytest.raises(Cancelled):
        wait_until_quiet(3600, cancel, lambda _: cancel.set())


# -- in the queue ------------------------------------------------------------------------------------------


class Gate:
    """In place of the wait: it lasts until somebody opens it."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.open = threading.Event()

    def __call__(self, most_s: float, cancel: threading.Event, on_wait: Callable[[str], None]) -> WaitResult:
        self.asked.append(most_s)
        on_wait("yes uses 1.2 cores, 4 s of at most 5 min")
        while not self.open.wait(0.01):
            if cancel.is_set():
                raise Cancelled("stopped")
        return WaitResult(seconds=300.0, quiet=False, words="yes used 1.2 cores")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr(scheduler_module, "wait_until_quiet", made)
    return made


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Comparisons that were performed, in place of races."""
    performed: list[str] = []

    def perform(comparison: Any, specs: Any, service: Any, earlier: Any = None) -> Outcome:
        performed.append(comparison.id)
        result = {"fingerprint": "f", "notes": ["A note of its own."]}
        ends = {one.trial: Ending(state="COMPLETE", result=result) for one in comparison.contestants}
        return Outcome(whole=Ending(state="COMPLETE", result=result), trials=ends)

    monkeypatch.setattr(job_types, "perform_comparison", perform)
    return performed


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scheduler]]:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    opened: list[Scheduler] = []

    def make(**options: Any) -> Scheduler:
        opened.append(Scheduler(Store(), owner="tester", **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def asked() -> TrialSpec:
    return spec_from_dict({"model": {"path": "m.onnx"}})


def waiting(one: Scheduler, job: str) -> Status:
    wait_until(lambda: one.status(job).stage == WAITING_IDLE, "it never waited for quiet")
    return one.status(job)


def test_a_comparison_waits_in_its_turn_and_nobody_measures_meanwhile(
    service: Any, gate: Gate, compared: list[str]
) -> None:
    one = service()
    trial = one.submit(job_types.tune(asked(), wait_quiet_s=300.0))
    behind = one.submit(job_types.tune(asked()))
    status = waiting(one, trial)
    assert (status.state, status.place, status.holder) == ("WAITING", 0, "")
    assert status.text.startswith("yes uses 1.2 cores")
    assert status.started_at is None  # the wait is not its own time, and must not spoil predictions
    assert [entry.running for entry in MachineQueue().entries()] == [True, False]
    assert (one.status(behind).place, one.status(behind).holder) == (1, "tester: measure m")
    assert compared == []
    gate.open.set()
    assert one.join(WAIT_S)
    assert len(compared) == 2
    assert gate.asked == [300.0]  # the other did not ask for it


def test_what_came_of_the_wait_stands_with_the_results(service: Any, gate: Gate, compared: list[str]) -> None:
    gate.open.set()
    one = service()
    job = one.submit(job_types.comparison([Configuration(spec=asked(), label="a")], wait_quiet_s=60.0))
    assert one.join(WAIT_S)
    comparison = one.store.comparison(job)
    note = "The machine was not idle within 5 min: yes used 1.2 cores. The measurement started anyway."
    results = [comparison.result, *(one.store.trial(c.trial).result for c in comparison.contestants)]
    assert [found["notes"] for found in results] == [[note, "A note of its own."]] * len(results)
    assert comparison.started_at is not None


def test_a_comparison_without_a_result_keeps_the_note_too(
    service: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(comparison: Any, specs: Any, service: Any, earlier: Any = None) -> Outcome:
        ending = Ending(state="FAIL", error=Cancelled("nobody"))
        ends = {one.trial: ending for one in comparison.contestants}
        return Outcome(whole=ending, trials=ends, warnings=["`a` could not race"])

    monkeypatch.setattr(job_types, "perform_comparison", lost)
    gate.open.set()
    one = service()
    trial = one.submit(job_types.tune(asked(), wait_quiet_s=60.0))
    assert one.join(WAIT_S)
    ended = one.store.comparison(one.store.trial(trial).comparison)
    assert ended.warnings[0].startswith("The machine was not idle")
    assert ended.warnings[1:] == ["`a` could not race"]


def test_a_wait_can_be_cancelled(service: Any, gate: Gate, compared: list[str]) -> None:
    one = service()
    trial = one.submit(job_types.tune(asked(), wait_quiet_s=300.0))
    behind = one.submit(job_types.tune(asked()))
    waiting(one, trial)
    one.cancel(trial)
    assert one.join(WAIT_S)
    assert one.store.trial(trial).state == "CANCELLED"
    assert one.store.comparison(one.store.trial(trial).comparison).state == "CANCELLED"
    assert one.store.trial(behind).state == "COMPLETE"
    assert len(compared) == 1


def test_a_scheduler_may_make_everything_wait(service: Any, gate: Gate, compared: list[str]) -> None:
    gate.open.set()
    one = service(wait_quiet_s=60.0)
    one.submit(job_types.tune(asked()))
    one.submit(job_types.tune(asked(), wait_quiet_s=90.0))
    one.submit(job_types.worker("inspect", {}, what="no measurement"))
    assert one.join(WAIT_S)
    assert gate.asked == [60.0, 90.0]


# -- in words ----------------------------------------------------------------------------------------------


def status(**changes: Any) -> Status:
    values = {"id": "x", "kind": "comparison", "state": "WAITING", "what": "race of 2", **changes}
    return Status(**values)


QUIET = status(stage=WAITING_IDLE, text="yes uses 1.2 cores, 4 s of at most 5 min")


def test_the_wait_is_told_in_words() -> None:
    waiting = "waiting for an idle machine: yes uses 1.2 cores, 4 s of at most 5 min"
    assert describe(QUIET) == f"race of 2: {waiting}"
    share, text = progress(QUIET, "this race")
    assert share == 0.0
    assert text == "Waiting for an idle machine: yes uses 1.2 cores, 4 s of at most 5 min"


def test_a_log_says_at_once_that_it_waits_and_does_not_repeat_it() -> None:
    stream = io.StringIO()
    progress = Progress(stream, quiet=False)
    progress.show(QUIET)
    progress.show(replace(QUIET, text="yes uses 1.1 cores, 6 s of at most 5 min"))
    assert stream.getvalue().splitlines() == [describe(QUIET)]


# -- on the command line -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("tune", "m.onnx"),
        ("compare", "m.onnx", "--candidate", "preset:default"),
        ("sweep", "m.onnx", "--batch-size", "1,2"),
        ("scorecard", "m.yaml"),
    ],
)
def test_a_bad_duration_is_refused_in_one_clear_line(cli: CommandLine, command: tuple[str, ...]) -> None:
    done = cli.run(*command, "--wait-quiet", "5 parsecs")
    assert done.code == EXIT_BAD_INPUT
    first, *rest = done.err.splitlines()
    bad = "5 parsecs"
    assert "`--wait-quiet`" in first
    assert f"`{bad}`" in first
    assert [line.partition(":")[0] for line in rest] == ["Hint"]


def test_a_measurement_says_how_the_machine_was(cli: CommandLine, mlp: str) -> None:
    done = cli.run("tune", mlp, "--runs", "20", "--wait-quiet", "1s", "--json")
    notes = [note for note in done.document["notes"] if note.startswith("The machine was ")]
    assert len(notes) == 1, done.err
