"""Several persons in the queue: fair turns here and across processes, long jobs that pause, machine time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.process import queue_files
from core.process.identity import start_of
from core.process.machine_queue import MachineQueue
from core.run import scheduler as scheduler_module
from core.run.job import Ending, Job, Outcome, Service
from core.run.scheduler import Scheduler
from core.store import Actor, Store
from core.wire.errors import SpecError
from tests.integration.test_machine_queue import ROOT, ticket
from tests.waiting import WAIT_S, wait_until

ANNA, BEN = (Actor(f"{name}@example.org", sees_all=False) for name in ("anna", "ben"))

Make = Callable[..., Scheduler]


@pytest.fixture
def schedulers(tmp_path: Path) -> Iterator[Make]:
    opened: list[Scheduler] = []

    def make(**options: Any) -> Scheduler:
        store, queue = Store(tmp_path / "ortune.db"), MachineQueue(tmp_path / "queue")
        opened.append(Scheduler(store, owner="tester", queue=queue, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


class Log:
    """Jobs that write down when they run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def job(self, name: str, seconds: float = 0.02, **facts: Any) -> Job:
        def work(service: Service) -> Outcome:
            self.ran.append(name)
            service.cancel.wait(seconds)
            return Outcome(whole=Ending(state="COMPLETE", result={}))

        return Job(kind="export", what=name, work=work, **facts)


def held(one: Scheduler) -> tuple[str, threading.Event]:
    """Occupy the machine with a job; return it, and what ends it."""
    begun, go = threading.Event(), threading.Event()

    def work(service: Service) -> Outcome:
        begun.set()
        while not go.wait(0.01) and not service.cancel.is_set():
            pass
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    name = one.submit(Job(kind="export", what="holds", work=work))
    assert begun.wait(WAIT_S)
    return name, go


def test_many_jobs_of_one_person_do_not_block_the_first_job_of_another(schedulers: Make) -> None:
    one, log = schedulers(), Log()
    _, go = held(one)
    hers = [one.submit(log.job(f"anna {number}"), actor=ANNA) for number in range(20)]
    his = one.submit(log.job("ben"), actor=BEN)
    assert [one.status(job).place for job in (hers[0], his, hers[1])] == [1, 2, 3]  # type: ignore[union-attr]
    go.set()
    assert one.join(WAIT_S)
    assert log.ran[:2] == ["anna 0", "ben"]
    assert log.ran[2:] == [f"anna {number}" for number in range(1, 20)]


def test_who_takes_the_machine_is_told_at_once(schedulers: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the order was read just before."""
    monkeypatch.setattr(scheduler_module, "STANDING_S", float("inf"))
    one, log, free = schedulers(), Log(), threading.Event()
    take = one.queue.take
    monkeypatch.setattr(one.queue, "take", lambda places: take(places) if free.is_set() else None)
    begun, go = threading.Event(), threading.Event()

    def work(service: Service) -> Outcome:
        begun.set()
        assert go.wait(WAIT_S)
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    one.submit(Job(kind="export", what="first", work=work))
    behind = one.submit(log.job("second"))
    assert one.status(behind).holder == ""  # type: ignore[union-attr]
    free.set()
    assert begun.wait(WAIT_S)
    status = one.status(behind)
    go.set()
    assert status is not None
    assert (status.place, status.holder) == (1, "tester: first")
    assert one.join(WAIT_S)


def test_two_servers_share_the_machine_between_their_persons(schedulers: Make) -> None:
    first, second, log = schedulers(), schedulers(), Log()
    _, go = held(first)
    for number in range(6):
        first.submit(log.job(f"anna {number}"), actor=ANNA)
    for number in range(6):
        second.submit(log.job(f"ben {number}"), actor=BEN)
    go.set()
    assert first.join(WAIT_S)
    assert second.join(WAIT_S)
    assert log.ran[:2] == ["anna 0", "ben 0"]
    for name in ("anna", "ben"):
        assert [one for one in log.ran if one.startswith(name)] == [f"{name} {number}" for number in range(6)]


def test_a_command_of_another_process_waits_for_one_job_of_a_person_with_fifty(
    schedulers: Make, tmp_path: Path
) -> None:
    one, log = schedulers(), Log()
    _, go = held(one)
    for number in range(50):
        one.submit(log.job(f"anna {number}"), actor=ANNA)
    code = (
        "import sys\nfrom pathlib import Path\nfrom core.process.machine_queue import MachineQueue\n"
        "with MachineQueue(Path(sys.argv[1])).turn('ben', 'his', person='ben'):\n"
        "    print('in', flush=True)\n    sys.stdin.read()\n"  # it has the machine until the test has looked
    )
    command = [sys.executable, "-c", code, str(tmp_path / "queue")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={"PYTHONPATH": str(ROOT)}, text=True, **pipes) as other:
        wait_until(lambda: len(one.queue.entries()) == 52, "the other never waited")
        assert [entry.person for entry in one.queue.entries()][:4] == ["", ANNA.person, "ben", ANNA.person]
        go.set()
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        assert log.ran == ["anna 0"]
    assert one.join(WAIT_S)
    assert len(log.ran) == 50


@pytest.mark.parametrize("waits", ["another person", "the same person"])
def test_a_long_job_pauses_for_others_and_not_for_its_own_person(
    schedulers: Make, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    monkeypatch.setattr(scheduler_module, "MOST_TURN_S", 0.0)
    one, log = schedulers(), Log()
    begun, go, paused = threading.Event(), threading.Event(), []

    def work(service: Service) -> Outcome:
        begun.set()
        assert go.wait(WAIT_S)
        paused.append(service.pause())
        log.ran.append("the long one continues")
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    long = one.submit(Job(kind="search", what="long", work=work), actor=ANNA)
    assert begun.wait(WAIT_S)
    one.submit(log.job("short"), actor=BEN if waits == "another person" else ANNA)
    go.set()
    assert one.join(WAIT_S)
    assert one.status(long).state == "COMPLETE"  # type: ignore[union-attr]
    expected = ["short", "the long one continues"]
    assert log.ran == (expected if waits == "another person" else expected[::-1])
    assert (paused[0] > 0) == (waits == "another person")


def test_a_job_pauses_only_after_its_time(schedulers: Make) -> None:
    one, paused = schedulers(), []
    go = threading.Event()

    def work(service: Service) -> Outcome:
        assert go.wait(WAIT_S)
        paused.append(service.pause())
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    one.submit(Job(kind="search", what="short", work=work), actor=ANNA)
    one.submit(Log().job("other"), actor=BEN)
    go.set()
    assert one.join(WAIT_S)
    assert paused == [0.0]


def test_two_long_jobs_of_one_server_alternate(schedulers: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each continues before the other has ended: a paused job depends on no other job."""
    monkeypatch.setattr(scheduler_module, "MOST_TURN_S", 0.0)
    one, ran = schedulers(), []
    _, go = held(one)

    def job(name: str) -> Job:
        def work(service: Service) -> Outcome:
            for number in range(3):
                ran.append(f"{name} {number}")
                time.sleep(0.02)
                service.pause()
            return Outcome(whole=Ending(state="COMPLETE", result={}))

        return Job(kind="search", what=name, work=work)

    one.submit(job("anna"), actor=ANNA)
    one.submit(job("ben"), actor=BEN)
    go.set()
    assert one.join(WAIT_S)
    assert sorted(ran[:2]) == ["anna 0", "ben 0"]
    assert sorted(ran) == [f"{name} {number}" for name in ("anna", "ben") for number in range(3)]
    assert [name[:4] for name in ran] != ["anna"] * 3 + ["ben "] * 3


def test_a_paused_job_is_cancelled_at_once(schedulers: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "MOST_TURN_S", 0.0)
    one = schedulers()
    begun, go = threading.Event(), threading.Event()

    def work(service: Service) -> Outcome:
        begun.set()
        assert go.wait(WAIT_S)
        service.pause()
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    long = one.submit(Job(kind="search", what="long", work=work), actor=ANNA)
    assert begun.wait(WAIT_S)
    release = threading.Event()

    def hold(service: Service) -> Outcome:
        while not release.wait(0.01) and not service.cancel.is_set():
            pass
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    other = one.submit(Job(kind="export", what="other", work=hold), actor=BEN)
    go.set()
    wait_until(lambda: one.status(other).state == "RUNNING", "the other never ran")  # type: ignore[union-attr]
    one.cancel(long)
    wait_until(lambda: one.status(long).state == "CANCELLED", "it was not cancelled")  # type: ignore[union-attr]
    assert one.status(other).state == "RUNNING"  # type: ignore[union-attr]
    release.set()
    assert one.join(WAIT_S)
    assert one.queue.entries() == []


def test_a_job_cancelled_while_its_place_is_asked_for_does_not_enter_again(
    schedulers: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, asked = schedulers(), threading.Event()
    take = one._take

    def cancel_first(candidates: list[Any]) -> Any:
        one.cancel(job)
        taken = take(candidates)
        asked.set()
        return taken

    with one.queue.turn("another server", "x"):
        job = one.submit(Log().job("cancelled"), actor=ANNA)
        monkeypatch.setattr(one, "_take", cancel_first)
        assert asked.wait(WAIT_S)
        assert [entry.what for entry in one.queue.entries()] == ["x"]


def test_a_job_cancelled_while_it_gets_the_machine_costs_its_person_nothing(
    schedulers: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, log = schedulers(), Log()
    take = one.queue.take

    def cancel_then(places: list[Any]) -> Any:
        taken = take(places)
        with one._changed:  # as `cancel` does before it abandons the job
            one._waiting.clear()
        return taken

    monkeypatch.setattr(one.queue, "take", cancel_then)
    one.submit(log.job("cancelled"), actor=ANNA)
    wait_until(lambda: one.store.machine_time(0.0), "its place was not left")
    assert one.store.machine_time(0.0)[ANNA.person] < WAIT_S  # not since the start of the system
    assert one.queue.entries() == []


def test_the_start_is_predicted_where_all_durations_ahead_are_known(schedulers: Make) -> None:
    one, log = schedulers(), Log()
    _, go = held(one)
    known = one.submit(log.job("known", predicted_s=120.0), actor=ANNA)
    assert one.status(known).starts_in_s is None  # type: ignore[union-attr] # that of the first job is unknown
    go.set()
    assert one.join(WAIT_S)

    begun, go = threading.Event(), threading.Event()

    def work(service: Service) -> Outcome:
        begun.set()
        assert go.wait(WAIT_S)
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    one.submit(Job(kind="export", what="first", work=work, predicted_s=300.0), actor=ANNA)
    assert begun.wait(WAIT_S)
    second = one.submit(log.job("second", predicted_s=60.0), actor=ANNA)
    third = one.submit(log.job("third"), actor=ANNA)
    fourth = one.submit(log.job("fourth"), actor=ANNA)
    found = [one.status(job).starts_in_s for job in (second, third, fourth)]  # type: ignore[union-attr]
    assert found[0] == pytest.approx(300.0, abs=60.0)
    assert found[1] == pytest.approx(found[0] + 60.0, abs=10.0)
    assert found[2] is None
    go.set()
    assert one.join(WAIT_S)


def test_machine_time_is_counted_for_the_person_of_each_job(schedulers: Make) -> None:
    one, log = schedulers(), Log()
    one.submit(log.job("hers", 0.3), actor=ANNA)
    one.submit(log.job("his", 0.0), actor=BEN)
    one.submit(log.job("of the server", 0.0))
    assert one.join(WAIT_S)
    used = one.store.machine_time(0.0)
    assert used[ANNA.person] >= 0.25
    assert used[BEN.person] > 0
    assert used.keys() == {ANNA.person, BEN.person, one.store.actor.person}


def test_a_job_whose_person_used_up_the_machine_meanwhile_fails_with_the_reason(schedulers: Make) -> None:
    used_up: set[str] = set()

    def check(actor: Actor, running_s: float) -> None:
        if actor.person in used_up:
            raise SpecError("The limit is 4 h.", hint="Wait.")

    one, log = schedulers(check_start=check), Log()
    _, go = held(one)
    waiting = one.submit(log.job("waits"), actor=ANNA)
    used_up.add(ANNA.person)
    with pytest.raises(SpecError, match="limit"):
        one.submit(log.job("late"), actor=ANNA)
    one.submit(log.job("his"), actor=BEN)
    go.set()
    assert one.join(WAIT_S)
    status = one.status(waiting)
    assert status is not None
    assert (status.state, log.ran) == ("FAIL", ["his"])
    assert status.error is not None
    assert "4 h" in status.error["message"]


def test_a_job_that_gave_way_continues_only_within_the_limit_of_its_person(schedulers: Make) -> None:
    running, is_limited, log = list[float](), threading.Event(), Log()

    def check(actor: Actor, running_s: float) -> None:
        running.append(running_s)
        if actor == ANNA and is_limited.is_set():
            raise SpecError("The limit is 4 h.", hint="Wait.")

    one = schedulers(check_start=check)
    began, go = threading.Event(), threading.Event()

    def work(service: Service) -> Outcome:
        began.set()
        assert go.wait(WAIT_S)
        service.give_way()
        log.ran.append("continues")
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    long = one.submit(Job(kind="search", what="long", work=work), actor=ANNA)
    assert began.wait(WAIT_S)
    one.submit(log.job("his"), actor=BEN)
    assert running[-1] == 0.0
    is_limited.set()
    time.sleep(0.02)
    with pytest.raises(SpecError, match="limit"):
        one.submit(log.job("hers"), actor=ANNA)
    assert running[-1] >= 0.02  # the turn that runs counts
    go.set()
    assert one.join(WAIT_S)
    status = one.status(long)
    assert status is not None
    assert (status.state, log.ran) == ("FAIL", ["his"])
    assert status.error is not None
    assert "4 h" in status.error["message"]
    assert one.queue.entries() == []


def test_a_job_within_another_that_may_not_continue_ends_the_other_too(schedulers: Make) -> None:
    is_limited, seen = threading.Event(), list[bool]()

    def check(actor: Actor, running_s: float) -> None:
        if actor == ANNA and is_limited.is_set():
            raise SpecError("The limit is 4 h.", hint="Wait.")

    one = schedulers(check_start=check)
    begun, go = threading.Event(), threading.Event()

    def inner(service: Service) -> Outcome:
        begun.set()
        assert go.wait(WAIT_S)
        service.give_way()
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    def outer(service: Service) -> Outcome:
        service.perform(Job(kind="load", what="within", work=inner))
        seen.append(service.cancel.is_set())
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    one.submit(Job(kind="search", what="outer", work=outer), actor=ANNA)
    assert begun.wait(WAIT_S)
    one.submit(Log().job("his"), actor=BEN)
    is_limited.set()
    go.set()
    assert one.join(WAIT_S)
    assert seen == [True]


def test_what_a_job_reads_and_writes_is_what_its_person_may(schedulers: Make) -> None:
    one, seen = schedulers(), []

    def inner(service: Service) -> Outcome:
        seen.append(service.store.actor)
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    def outer(service: Service) -> Outcome:
        service.perform(Job(kind="export", what="within", work=inner))
        return inner(service)

    one.submit(Job(kind="export", what="outer", work=outer), actor=ANNA)
    assert one.join(WAIT_S)
    assert seen == [ANNA, ANNA]


# --- what others write into the folder ----------------------------------------------------------------------


def test_use_in_the_name_of_another_user_counts_for_nobody(tmp_path: Path) -> None:
    queue = MachineQueue(tmp_path / "queue")
    with queue.turn("me", "x"):
        pass
    (own,) = (tmp_path / "queue").glob("used-*")
    false = own.with_name("used-12345")  # the file is ours, and names another
    false.write_bytes(own.read_bytes())
    now = time.time()
    assert {one.user for one in queue._uses(now + 1)} == {own.name.removeprefix("used-")}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[[1]]", b'[["a", "b", "c"]]', b"[" * 9000, b"\xff"]
)
def test_damaged_use_is_no_use(tmp_path: Path, content: bytes) -> None:
    queue = MachineQueue(tmp_path / "queue")
    with queue.turn("me", "x"):
        pass
    (own,) = (tmp_path / "queue").glob("used-*")
    own.write_bytes(content)
    assert list(queue._uses(time.time())) == []
    with queue.turn("me", "y"):
        assert [one.what for one in queue.entries()] == ["y"]


@pytest.mark.parametrize("value", [1e300, -5, float("nan"), "soon", None, [1]])
def test_a_prediction_that_cannot_be_hinders_nobody(tmp_path: Path, value: object) -> None:
    folder = tmp_path / "queue"
    queue = MachineQueue(folder)
    ticket(folder, f"{time.time_ns():020d}-odd", predicted_s=value, person="\x1b[2J" * 200)
    for entry in queue.entries():
        assert entry.starts_in_s in (None, 0.0)
        assert "\x1b" not in entry.text
        assert len(entry.person) <= queue_files.MOST_TEXT


@pytest.mark.parametrize(
    "start", [start_of, lambda pid: psutil.Process(pid).create_time()], ids=["ticks", "clock"]
)
def test_no_ticket_is_older_than_its_process(tmp_path: Path, start: Callable[[int], float]) -> None:
    """A name that begins with zeros gains no place before a process that is older."""
    folder = tmp_path / "queue"
    queue = MachineQueue(folder)
    mine = queue.enter("me", "first")
    time.sleep(1.5)  # the start of a process is known to a second
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as late:
        ticket(folder, "00000000000000000000-forged", pid=late.pid, started=start(late.pid), what="forged")
        found = [one.what for one in queue.entries()]
        late.kill()
    queue.leave(mine)
    assert found == ["first", "forged"]
