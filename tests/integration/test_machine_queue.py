"""The machine's queue, with real processes that request a measurement at the same time."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from core.process import machine_queue
from core.process.identity import is_alive, is_stopped
from core.process.machine_queue import MachineQueue
from core.wire.errors import Cancelled, StoreError
from tests.waiting import WAIT_S, wait_until

ROOT = Path(__file__).parents[2]

WORKS = """
import sys, time
from pathlib import Path
from core.process.machine_queue import MachineQueue

folder, log, name, turns, hold_s = sys.argv[1:]
for number in range(int(turns)):
    with MachineQueue(Path(folder)).turn(name, f"job {number}"):
        began = time.monotonic()
        print("in", flush=True)
        time.sleep(float(hold_s))
        with open(log, "a") as file:
            file.write(f"{name} {began} {time.monotonic()}\\n")
"""


def start(folder: Path, log: Path, name: str, *, turns: int = 1, hold_s: float = 0.05):
    return subprocess.Popen(
        [sys.executable, "-c", WORKS, str(folder), str(log), name, str(turns), str(hold_s)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def intervals(log: Path) -> list[tuple[float, float]]:
    rows = [line.split() for line in log.read_text().splitlines()]
    return sorted((float(began), float(ended)) for _, began, ended in rows)


def assert_none_overlap(log: Path) -> None:
    found = intervals(log)
    for (_, ended), (began, _) in itertools.pairwise(found):
        assert ended <= began


def ticket(folder: Path, name: str, **changes: object) -> Path:
    """Write a ticket as another process would; by default it is ours, and alive."""
    data = {
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "owner": "someone",
        "what": "measure x",
        "since": time.time(),
        "running": False,
    }
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**data, **changes}))
    return path


def test_four_processes_never_hold_the_machine_at_once(tmp_path):
    folder, log = tmp_path / "queue", tmp_path / "log"
    workers = [start(folder, log, f"p{i}", turns=3) for i in range(4)]
    for worker in workers:
        with worker:
            worker.communicate(timeout=WAIT_S)
        assert worker.returncode == 0
    assert len(intervals(log)) == 12
    assert_none_overlap(log)
    assert list(folder.glob("*.json")) == []


def test_threads_of_one_process_take_turns_too(tmp_path):
    queue, inside, most = MachineQueue(tmp_path / "queue"), [], []

    def work(name: str) -> None:
        with queue.turn("me", name):
            inside.append(name)
            most.append(len(inside))
            time.sleep(0.02)
            inside.remove(name)

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert most == [1] * 6


def test_first_come_is_first_served(tmp_path):
    queue, order, threads = MachineQueue(tmp_path / "queue"), [], []

    def work(name: str) -> None:
        with queue.turn("me", name):
            order.append(name)

    with queue.turn("me", "the first"):
        for name in ("a", "b", "c"):
            thread = threading.Thread(target=work, args=(name,))
            thread.start()
            threads.append(thread)
            wait_until(lambda name=name: any(e.what == name for e in queue.entries()), "no ticket")
        assert [(e.what, e.running) for e in queue.entries()] == [
            ("the first", True),
            ("a", False),
            ("b", False),
            ("c", False),
        ]
    for thread in threads:
        thread.join(WAIT_S)
    assert order == ["a", "b", "c"]


def test_who_waits_is_told_its_place_and_who_runs(tmp_path):
    queue, told, cancel = MachineQueue(tmp_path / "queue"), [], threading.Event()

    def on_wait(place: int, holder: str) -> None:
        told.append((place, holder))
        cancel.set()

    with (
        queue.turn("anna", "measure resnet18"),
        pytest.raises(Cancelled),
        queue.turn("ben", "measure mul", cancel, on_wait),
    ):
        pytest.fail("two at once")
    assert told == [(1, "anna: measure resnet18")]
    assert queue.entries() == []


def test_cancel_set_before_waiting_takes_no_turn(tmp_path):
    cancel = threading.Event()
    cancel.set()
    queue = MachineQueue(tmp_path / "queue")
    with pytest.raises(Cancelled), queue.turn("me", "x", cancel):
        pytest.fail("it ran")
    assert queue.entries() == []


def test_killed_holder_frees_the_machine(tmp_path):
    folder = tmp_path / "queue"
    with start(folder, tmp_path / "log", "doomed", hold_s=600) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        holder.kill()
    queue = MachineQueue(folder)
    with queue.turn("me", "after it"):
        assert [entry.owner for entry in queue.entries()] == ["me"]


def test_lock_alone_keeps_a_second_one_out_when_tickets_vanish(tmp_path):
    folder, cancel, told = tmp_path / "queue", threading.Event(), []
    queue = MachineQueue(folder)
    with queue.turn("me", "x"):
        for path in folder.glob("*.json"):
            path.unlink()  # a cleaner of temporary files

        def on_wait(place: int, holder: str) -> None:
            told.append(place)
            cancel.set()

        with pytest.raises(Cancelled), queue.turn("you", "y", cancel, on_wait):
            pytest.fail("two at once")
    assert told == [1]


def test_ticket_that_vanishes_while_waiting_is_written_again(tmp_path):
    folder, cancel, seen = tmp_path / "queue", threading.Event(), []
    queue = MachineQueue(folder)

    def on_wait(place: int, holder: str) -> None:
        waiting = [entry for entry in queue.entries() if not entry.running]
        seen.append(len(waiting))
        if len(seen) == 1:
            (folder / waiting[0].ticket).unlink()
        else:
            cancel.set()

    with queue.turn("me", "x"), pytest.raises(Cancelled), queue.turn("you", "y", cancel, on_wait):
        pytest.fail("two at once")
    assert seen == [1, 1]


def test_a_place_that_is_left_while_another_thread_waits_with_it_is_not_written_again(tmp_path):
    queue = MachineQueue(tmp_path / "queue")
    with queue.turn("me", "x"):
        place = queue.enter("you", "y")
        assert queue.take([place], lambda *_: queue.leave(place)) is None
        assert [entry.what for entry in queue.entries()] == ["x"]


def test_a_place_that_is_left_while_it_gets_the_machine_leaves_it_free(tmp_path, monkeypatch):
    queue, lock = MachineQueue(tmp_path / "queue"), machine_queue._try_lock
    place, got = queue.enter("me", "x"), []

    def leave_at_once(one):
        got.append(one)
        assert lock(one)
        queue.leave(place)
        return True

    monkeypatch.setattr(machine_queue, "_try_lock", leave_at_once)
    assert queue.take([place]) is None
    assert [one.is_locked for one in got] == [False]
    assert queue.entries() == []


def test_a_ticket_that_cannot_be_written_leaves_the_machine_free_and_keeps_the_place(tmp_path, monkeypatch):
    queue, write = MachineQueue(tmp_path / "queue"), machine_queue.write
    place = queue.enter("me", "x")

    def fail(path, content):
        raise StoreError("The disk is full.", hint="Free space.")

    monkeypatch.setattr(machine_queue, "write", fail)
    with pytest.raises(StoreError, match="full"):
        queue.take([place])
    monkeypatch.setattr(machine_queue, "write", write)
    assert [entry.running for entry in queue.entries()] == [False]
    assert queue.take([place]) is place
    queue.leave(place)


def test_a_stopped_process_lets_others_pass_and_keeps_its_place(tmp_path):
    folder, log = tmp_path / "queue", tmp_path / "log"
    queue = MachineQueue(folder)
    held = queue.enter("me", "x")
    assert queue.take([held]) is held
    with start(folder, log, "stopped") as waiter:
        wait_until(lambda: len(queue.entries()) == 2, "it never queued")
        waiter.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(waiter.pid), "it was not stopped")
        queue.leave(held)
        try:
            assert turn_at_once(folder) == ["me", "stopped"]
        finally:
            waiter.send_signal(signal.SIGCONT)
        waiter.communicate(timeout=WAIT_S)
    assert waiter.returncode == 0
    assert len(intervals(log)) == 1


def test_ticket_of_a_dead_process_is_removed(tmp_path):
    folder = tmp_path / "queue"
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    stale = ticket(folder, "00000000000000000001-dead", pid=dead.pid, running=True)
    with MachineQueue(folder).turn("me", "x"):
        assert not stale.exists()


def test_reused_process_id_does_not_keep_a_dead_ticket_alive(tmp_path):
    folder = tmp_path / "queue"
    stale = ticket(folder, "00000000000000000001-reused", started=psutil.Process().create_time() - 3600)
    with MachineQueue(folder).turn("me", "x"):
        assert not stale.exists()


def test_living_older_ticket_is_waited_for(tmp_path):
    folder, cancel, told = tmp_path / "queue", threading.Event(), []
    ticket(folder, "00000000000000000001-alive")

    def on_wait(place: int, holder: str) -> None:
        told.append((place, holder))
        cancel.set()

    with pytest.raises(Cancelled), MachineQueue(folder).turn("me", "x", cancel, on_wait):
        pytest.fail("it jumped the queue")
    assert told == [(1, "")]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"pid": "x"}', b'{"pid": 1e400}', b"[" * 9000],
)
def test_foreign_files_in_the_folder_do_not_matter_and_stay(tmp_path, content):
    folder = tmp_path / "queue"
    folder.mkdir()
    foreign = folder / "00000000000000000000-foreign.json"
    foreign.write_bytes(content)
    (folder / "00000000000000000000-folder.json").mkdir()
    queue = MachineQueue(folder)
    with queue.turn("me", "x"):
        assert [entry.owner for entry in queue.entries()] == ["me"]
    assert foreign.read_bytes() == content


def test_folder_is_open_to_every_user_but_sticky(tmp_path):
    folder = tmp_path / "deep" / "queue"
    with MachineQueue(folder).turn("me", "x"):
        assert folder.stat().st_mode & 0o7777 == 0o1777
        assert (folder / "machine.lock").stat().st_mode & 0o666 == 0o666
        (own,) = folder.glob("*.json")
        assert own.stat().st_mode & 0o777 == 0o644


def test_folder_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match="used") as caught,
        MachineQueue(tmp_path / "file" / "queue").turn("me", "x"),
    ):
        pytest.fail("it ran")
    assert "ORTUNE_QUEUE" in caught.value.hint


def test_folder_that_is_a_file_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "queue").write_text("")
    with pytest.raises(StoreError, match="used"), MachineQueue(tmp_path / "queue").turn("me", "x"):
        pytest.fail("it ran")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_folder_without_write_permission_is_an_error_with_a_remedy(tmp_path):
    folder = tmp_path / "queue"
    folder.mkdir(mode=0o555)
    with pytest.raises(StoreError, match="Permission denied"), MachineQueue(folder).turn("me", "x"):
        pytest.fail("it ran")


def test_error_inside_the_turn_gives_it_back(tmp_path):
    queue = MachineQueue(tmp_path / "queue")
    with pytest.raises(ZeroDivisionError), queue.turn("me", "x"):
        raise ZeroDivisionError
    with queue.turn("me", "y"):
        assert [entry.what for entry in queue.entries()] == ["y"]


def test_folder_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "named"))
    assert MachineQueue().folder == tmp_path / "named"
    monkeypatch.delenv("ORTUNE_QUEUE")
    assert MachineQueue().folder.name == "ortune-queue"


def test_entries_of_a_folder_that_does_not_exist_are_none(tmp_path):
    assert MachineQueue(tmp_path / "queue").entries() == []


def test_waiting_costs_next_to_no_processor_time(tmp_path):
    """A waiting process must not disturb a measuring one."""
    folder = tmp_path / "queue"
    with MachineQueue(folder).turn("me", "x"), start(folder, tmp_path / "log", "waits", hold_s=0) as waiter:
        wait_until(lambda: len(MachineQueue(folder).entries()) == 2, "it never queued")
        process = psutil.Process(waiter.pid)
        before, began = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(1.5)
        used = sum(process.cpu_times()[:2]) - before
        share = used / (time.monotonic() - began)
        waiter.kill()
    assert share < 0.05


def test_a_clock_that_is_set_back_does_not_lengthen_the_predicted_wait(tmp_path, monkeypatch):
    queue = MachineQueue(tmp_path)
    first, second = (queue.enter("me", what, predicted_s=60.0) for what in ("first", "second"))
    assert queue.take([first]) is first
    assert queue.entries()[1].starts_in_s == pytest.approx(60.0, abs=59.0)
    back = SimpleNamespace(time=lambda: time.time() - 3600.0, monotonic=time.monotonic)
    monkeypatch.setattr(machine_queue, "time", back)
    assert queue.entries()[1].starts_in_s <= 60.0
    for place in (first, second):
        queue.leave(place)


def test_zombie_counts_as_gone():
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        started = psutil.Process(child.pid).create_time()
        assert child.stdout is not None
        child.stdout.read()
        wait_until(lambda: not is_alive(child.pid, started), "a zombie is believed to live")


# --- a folder in which everybody may write ------------------------------------------------------------------


def turn_at_once(folder: Path) -> list[str]:
    """Take a turn that must not wait for anybody, and return who was seen meanwhile."""
    cancel = threading.Event()
    timer = threading.Timer(WAIT_S, cancel.set)
    timer.start()
    try:
        with MachineQueue(folder).turn("me", "x", cancel):
            return [entry.owner for entry in MachineQueue(folder).entries()]
    finally:
        timer.cancel()


@pytest.mark.parametrize("pid", [-1, 0, -(2**40), 2**31, 2**63, 2**200, 1e300, True, None, "1", [1]])
def test_a_process_id_that_cannot_be_is_nobody(tmp_path, pid):
    folder = tmp_path / "queue"
    ticket(folder, "00000000000000000001-odd", pid=pid, started=0)
    assert turn_at_once(folder) == ["me"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300, 1e300, -5])
@pytest.mark.parametrize("name", ["since", "started"])
def test_a_time_that_cannot_be_is_not_shown(tmp_path, name, value):
    folder = tmp_path / "queue"
    ticket(folder, "00000000000000000001-odd", **{name: value})
    for entry in MachineQueue(folder).entries():
        assert 0 <= entry.since <= time.time()


def test_every_user_reaches_a_new_folder_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        with MachineQueue(tmp_path / "srv" / "queue").turn("me", "a job"):
            lock = tmp_path / "srv" / "queue" / "machine.lock"
            assert lock.stat().st_mode & 0o777 == 0o666
            tickets = list((tmp_path / "srv" / "queue").glob("*.json"))
            assert [one.stat().st_mode & 0o777 for one in tickets] == [0o644]
    finally:
        os.umask(before)
    assert (tmp_path / "srv").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "srv" / "queue").stat().st_mode & 0o7777 == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a link to another user")
def test_a_link_of_another_user_is_no_folder_of_the_queue(tmp_path):
    (tmp_path / "mine").mkdir()
    link = tmp_path / "queue"
    link.symlink_to(tmp_path / "mine")
    with MachineQueue(link).turn("me", "a job"):
        pass  # the user's own link
    os.lchown(link, 12345, 12345)
    with (
        pytest.raises(StoreError, match="a link that another user made"),
        MachineQueue(link).turn("me", "a job"),
    ):
        pass
    assert not list((tmp_path / "mine").glob("*.json"))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["the first", "ours"])
def test_a_ticket_for_a_process_of_somebody_else_is_not_believed(tmp_path, pid):
    folder = tmp_path / "queue"
    false = ticket(folder, "00000000000000000001-pid", pid=pid, started=psutil.Process(pid).create_time())
    os.chown(false, 12345, 12345)
    assert turn_at_once(folder) == ["me"]


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user")
def test_a_ticket_of_another_user_for_a_process_of_his_is_believed(tmp_path):
    folder, cancel, told = tmp_path / "queue", threading.Event(), []
    with subprocess.Popen(["sleep", "600"], user=12345, group=12345) as his:
        true = ticket(
            folder, "00000000000000000001-his", pid=his.pid, started=psutil.Process(his.pid).create_time()
        )
        os.chown(true, 12345, 12345)

        def on_wait(place: int, holder: str) -> None:
            told.append(place)
            cancel.set()

        with pytest.raises(Cancelled), MachineQueue(folder).turn("me", "x", cancel, on_wait):
            pytest.fail("it jumped the queue")
        his.kill()
    assert told == [1]


def test_a_fifo_holds_nobody(tmp_path):
    folder = tmp_path / "queue"
    folder.mkdir()
    os.mkfifo(folder / "00000000000000000000-fifo.json")
    assert turn_at_once(folder) == ["me"]


def test_a_link_is_not_followed(tmp_path):
    folder = tmp_path / "queue"
    true = ticket(tmp_path / "elsewhere", "ticket")
    folder.mkdir()
    (folder / "00000000000000000000-link.json").symlink_to(true)
    assert turn_at_once(folder) == ["me"]
    assert true.exists()


def test_nothing_is_written_along_a_link(tmp_path):
    """Who sees a ticket knows its name, and could lay a link where it is written anew."""
    folder, precious = tmp_path / "queue", tmp_path / "precious"
    precious.write_text("kept")
    queue = MachineQueue(folder)
    cancel = threading.Event()

    def on_wait(place: int, holder: str) -> None:
        (waiting,) = (entry for entry in queue.entries() if not entry.running)
        own = folder / waiting.ticket
        own.with_suffix(".new").symlink_to(precious)
        own.unlink()  # so that it is written again
        cancel_later = threading.Timer(0.5, cancel.set)
        cancel_later.start()
        queue_told.append(place)

    queue_told: list[int] = []
    with (
        queue.turn("anna", "first"),
        pytest.raises(Cancelled),
        queue.turn("ben", "second", cancel, lambda *told: on_wait(*told) if not queue_told else None),
    ):
        pytest.fail("two at once")
    assert precious.read_text() == "kept"


def test_what_others_say_cannot_steer_a_terminal(tmp_path):
    folder = tmp_path / "queue"
    ticket(folder, "00000000000000000001-loud", owner="\x1b]0;owned\x07A\nb\ud800", what="\x1b[2J" * 200)
    (entry,) = MachineQueue(folder).entries()
    assert entry.owner == "\\x1b]0;owned\\x07A\\nb\\ud800"
    assert entry.text.isprintable()
    assert len(entry.what) <= 200
    entry.text.encode()
