"""The machine's queue, with real processes that would like to measure at the same time."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from core.errors import Cancelled, StoreError
from core.machine_queue import MachineQueue, is_alive

ROOT = Path(__file__).parents[2]

WORKS = """
import sys, time
from pathlib import Path
from core.machine_queue import MachineQueue

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


def wait_until(condition, what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


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
            worker.communicate(timeout=120)
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
        thread.join(60)
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
        thread.join(60)
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
        pytest.raises(StoreError, match="cannot be used") as caught,
        MachineQueue(tmp_path / "file" / "queue").turn("me", "x"),
    ):
        pytest.fail("it ran")
    assert "ORTUNE_QUEUE" in caught.value.hint


def test_folder_that_is_a_file_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "queue").write_text("")
    with pytest.raises(StoreError, match="cannot be used"), MachineQueue(tmp_path / "queue").turn("me", "x"):
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
    """Who waits must not disturb who measures."""
    folder = tmp_path / "queue"
    with MachineQueue(folder).turn("me", "x"), start(folder, tmp_path / "log", "waits", hold_s=0) as waiter:
        wait_until(lambda: len(MachineQueue(folder).entries()) == 2, "it never queued")
        process = psutil.Process(waiter.pid)
        before, began = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(3)
        used = sum(process.cpu_times()[:2]) - before
        share = used / (time.monotonic() - began)
        waiter.kill()
    assert share < 0.05


def test_zombie_counts_as_gone():
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        started = psutil.Process(child.pid).create_time()
        assert child.stdout is not None
        child.stdout.read()
        wait_until(lambda: not is_alive(child.pid, started), "a zombie is believed to live")
