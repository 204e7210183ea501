"""CPU use of other processes between two invented snapshots, and the idle check: no clock, no sleeping."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.evidence.background_load import FOREIGN_CPUS, PRESSURE_SHARE, STEAL_SHARE
from core.evidence.other_processes import (
    KERNEL,
    OTHERS,
    OUTSIDE,
    PAGE,
    SERVER,
    OtherProcesses,
    Process,
    Snapshot,
    between,
    cores_text,
)
from core.evidence.result_types import Program
from core.process import cpu_use
from core.process.cpu_use import parse_process, program, snapshot, viewers
from core.run.idle_wait import (
    IDLE_WINDOWS,
    WINDOW_S,
    WaitResult,
    activity_between,
    usable_cpus,
    wait_until_quiet,
)
from core.wire import limits
from core.wire.errors import Cancelled
from core.wire.limits import CpuTime
from tests.reading import numbers, tells

SERVER_PID = 100


def process(pid: int, cpu_s: float, name: str = "", **changes: Any) -> Process:
    values = {"began": float(pid), "parent": 1, "group": pid, "reaped_s": 0.0, **changes}
    return Process(pid=pid, cpu_s=cpu_s, name=name or f"program {pid}", **values)


def look(at_s: float, *processes: Process, busy_s: float | None = None, **changes: Any) -> Snapshot:
    """A machine of two CPUs; unless told otherwise, its processes explain all that it did."""
    known_s = sum(one.cpu_s + one.reaped_s for one in processes)
    used_s = known_s if busy_s is None else busy_s
    steal_s = changes.pop("steal_s", 0.0)
    cpus = changes.pop("cpus", 2)
    machine = CpuTime(cpus=cpus, busy_s=used_s, steal_s=steal_s, idle_s=cpus * at_s - used_s - steal_s)
    values = {"usable": machine, "pressure_s": None, "whole": True, "server": SERVER_PID, **changes}
    return Snapshot(at_s=at_s, processes=processes, machine=machine, **values)


def cores(found: OtherProcesses) -> dict[str, float]:
    return {one["name"]: pytest.approx(one["cores"]) for one in found.programs}


# -- between two snapshots ---------------------------------------------------------------------------------


def test_processes_of_one_program_are_one_entry_and_the_largest_comes_first() -> None:
    before = look(10.0, process(5, 1.0, "chromium"), process(6, 2.0, "chromium"), process(7, 3.0, "yes"))
    after = look(20.0, process(5, 9.0, "chromium"), process(6, 6.0, "chromium"), process(7, 6.0, "yes"))
    found = between(before, after, own=())
    assert cores(found) == {"chromium": 1.2, "yes": 0.3}
    assert [one["name"] for one in found.programs] == ["chromium", "yes"]
    assert found.cores == pytest.approx(1.5)
    assert found.unnamed_cores == 0
    assert found.seconds == 10.0


def test_workers_their_children_and_their_process_groups_are_no_background_load() -> None:
    later = [
        process(5, 4.0),  # a worker
        process(6, 4.0, parent=5),
        process(7, 4.0, parent=6),
        process(8, 4.0, group=5),
        process(9, 2.0, "yes"),
    ]
    found = between(look(0.0), look(10.0, *later), own=[5])
    assert cores(found) == {"yes": 0.2}
    assert found.cores == pytest.approx(0.2)


def test_a_worker_that_ended_takes_its_children_along() -> None:
    """Its child was given to process 1 meanwhile: the earlier snapshot knows its parent."""
    before = look(0.0, process(5, 1.0), process(6, 1.0, parent=5))
    after = look(10.0, process(6, 9.0, parent=1), busy_s=12.0)
    assert between(before, after, own=[5]).programs == ()


def test_a_process_that_began_in_between_counts_from_zero() -> None:
    again = process(5, 2.0, "yes", began=99.0)  # the same pid, another process
    found = between(look(0.0, process(5, 50.0, "old")), look(10.0, again, busy_s=52.0), own=())
    assert cores(found) == {"yes": 0.2}


def test_what_ended_is_the_programs_that_waited_for_it_without_what_it_had_used_before() -> None:
    before = look(
        0.0,
        process(5, 1.0, "make", reaped_s=30.0),
        process(6, 2.0, "sh", parent=5, reaped_s=4.0),
        process(7, 3.0, "cc1plus", parent=6),
    )
    # both have ended: 2 + 4 + 3 s had been used before, 8 s are new
    after = look(10.0, process(5, 1.0, "make", reaped_s=30.0 + 9.0 + 8.0))
    found = between(before, after, own=())
    assert cores(found) == {"make": 0.8}
    assert found.unnamed_cores == 0


def test_what_nobody_waited_for_is_the_rest() -> None:
    before = look(0.0, process(5, 3.0, "gone"), process(1, 0.0, "init"), busy_s=3.0)
    after = look(10.0, process(1, 0.0, "init", reaped_s=9.0), busy_s=9.0)
    found = between(before, after, own=())
    assert found.programs == ()  # process 1 inherits orphans: they are not its program
    assert found.unnamed_cores == pytest.approx(0.6)
    assert numbers(found.words()) == [0.6]


def test_contestants_that_ended_are_not_taken_for_other_processes() -> None:
    """The fork server waits for each; when it has ended too, the observing process has waited for it."""
    server = process(5, 1.0, reaped_s=0.0, parent=SERVER_PID)
    before = look(0.0, process(SERVER_PID, 1.0), server, process(6, 2.0, parent=5))
    forked = look(10.0, process(SERVER_PID, 1.0), replace(server, reaped_s=12.0))
    ended = look(10.0, process(SERVER_PID, 1.0, reaped_s=13.0))
    for after in (forked, ended):
        found = between(before, after, own=[5, 6])
        assert (found.programs, found.cores) == ((), 0.0)


def test_the_observing_process_is_another_process_without_its_workers() -> None:
    before = look(0.0, process(SERVER_PID, 1.0, "python"), process(5, 1.0, "python"))
    after = look(10.0, process(SERVER_PID, 4.0, "python", reaped_s=5.0), process(5, 2.0, "python"))
    assert cores(between(before, after, own=())) == {SERVER: 0.3, "python": 0.1}
    assert between(before, after, own=[SERVER_PID]).words().startswith("python ")


def test_the_page_is_told_apart_server_and_the_whole_browser_that_shows_it() -> None:
    browser = [process(5, 0.0, "chromium"), process(6, 0.0, "chromium", parent=5)]
    before = look(0.0, process(SERVER_PID, 0.0, "python"), process(4, 0.0, "bash"), *browser)
    after = look(
        10.0,
        process(SERVER_PID, 1.0, "python"),
        process(4, 1.0, "bash"),
        process(5, 1.0, "chromium", parent=4),
        process(6, 1.0, "chromium", parent=5),  # keeps the connection
        process(7, 2.0, "chromium", parent=5),  # draws
        process(8, 4.0, "chromium"),  # another browser of the same make
        viewers=frozenset({6}),
    )
    found = between(before, after, own=())
    assert found.page_cores == pytest.approx(0.5)
    assert found.cores == pytest.approx(1.0)
    assert PAGE in found.words()
    assert numbers(found.words())[-2:] == [1.0, 0.5]
    assert numbers(found.words(0.6))[-2:] == [0.6, 0.3]  # the same share of what is known better
    unseen = between(before, replace(after, viewers=frozenset()), own=())
    assert unseen.page_cores == 0.0  # a command line has none, whatever it used itself
    assert PAGE not in unseen.words()


def test_who_is_connected_to_this_process_is_found_by_its_connection() -> None:
    connect = "import socket, sys; held = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); input()"
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert viewers() == frozenset()
        port = str(server.getsockname()[1])
        with subprocess.Popen([sys.executable, "-c", connect, port], stdin=subprocess.PIPE) as other:
            with server.accept()[0]:
                assert viewers() == snapshot().viewers == {other.pid}
            other.communicate()


def test_the_rest_is_what_the_machine_did_beyond_all_that_is_known() -> None:
    before, after = look(0.0, process(5, 0.0)), look(10.0, process(5, 6.0, "yes"), busy_s=14.0)
    found = between(before, after, own=())
    assert found.cores == pytest.approx(1.4)
    assert found.unnamed_cores == pytest.approx(0.8)
    own = between(before, after, own=[5])
    assert own.cores == pytest.approx(0.8)


def test_a_rest_within_the_steps_of_the_counters_is_none() -> None:
    after = look(2.0, process(5, 2.0, "yes"), busy_s=2.01)
    assert between(look(0.0), after, own=()).unnamed_cores == 0
    less = look(2.0, process(5, 2.0, "yes"), busy_s=1.9)
    assert between(look(0.0), less, own=()).unnamed_cores == 0


def test_a_machine_that_does_not_tell_leaves_what_the_processes_used() -> None:
    before = replace(look(0.0), machine=None)
    after = replace(look(10.0, process(5, 5.0, "yes")), machine=None)
    assert tells(between(before, after, own=()).words(), "yes", " 0.5 ")


# -- words -------------------------------------------------------------------------------------------------


def some(*used: tuple[str, float], unnamed_cores: float = 0.0, unnamed: str = OTHERS) -> OtherProcesses:
    return OtherProcesses(
        seconds=10.0,
        cores=sum(cpus for _, cpus in used) + unnamed_cores,
        programs=tuple(Program(name=name, cores=cpus) for name, cpus in used),
        unnamed_cores=unnamed_cores,
        unnamed=unnamed,
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (some(("chromium", 1.2)), "chromium used 1.2 cores"),
        (some(("chromium", 1.0), ("yes", 0.5)), "chromium and yes used 1.5 cores"),
        (some(("chromium", 1.0), ("a", 0.4), ("b", 0.2)), "chromium and 2 others used 1.6 cores"),
        (some(("chromium", 1.2), ("sshd", 0.05)), "chromium used 1.2 cores"),
        (some(unnamed_cores=0.8), "others used 0.8 cores"),
        (some(("a", 0.7), unnamed_cores=0.8), "a and others used 1.5 cores"),
        (some(("a", 0.7), ("b", 0.7), ("c", 0.7), unnamed_cores=0.8), "a and others used 2.9 cores"),
        (some(unnamed_cores=0.8, unnamed=OUTSIDE), "programs outside this container used 0.8 cores"),
        (
            some(("a", 0.7), unnamed_cores=0.8, unnamed=OUTSIDE),
            "a and programs outside this container used 1.5 cores",
        ),
        (
            some(("a", 0.7), ("b", 0.4), ("c", 0.4), unnamed_cores=0.5, unnamed=OUTSIDE),
            "a, 2 others and programs outside this container used 2.0 cores",
        ),
        (some(*((f"p{n}", 0.04) for n in range(25))), "others used 1.0 cores"),
        (some(), "others used 0.0 cores"),
    ],
)
def test_words_name_the_largest_and_count_those_that_matter(found: OtherProcesses, words: str) -> None:
    assert found.words() == words


def test_words_of_now_agree_with_their_number() -> None:
    assert tells(some(("yes", 1.0)).words(verb="use"), "yes", " 1.0 ")
    assert tells(some(("yes", 1.0), ("a", 1.0)).words(verb="use"), "yes", " a ", " 2.0 ")
    assert numbers(some(unnamed_cores=0.3).words(verb="use")) == [0.3]


def test_words_take_the_cores_that_are_known_better() -> None:
    assert some(("yes", 1.0)).words(1.64) == "yes used 1.6 cores"


def test_cores_keep_a_digit_that_says_something() -> None:
    assert [cores_text(n) for n in (2.0, 0.1, 0.06, 0.0)] == [
        "2.0 cores",
        "0.1 cores",
        "0.06 cores",
        "0.0 cores",
    ]


def test_plain_data_holds_the_programs_that_matter_and_the_rest_last() -> None:
    found = some(("chromium", 1.2), ("sshd", 0.01), unnamed_cores=0.4, unnamed=OUTSIDE)
    assert found.to_dict() == {
        "cores": pytest.approx(1.61),
        "programs": [{"name": "chromium", "cores": 1.2}, {"name": OUTSIDE, "cores": 0.4}],
    }


# -- texts of the kernel -----------------------------------------------------------------------------------


def line(name: str, flags: int = 0) -> str:
    fields = ["S", 3, 4, 5, 0, -1, flags, 0, 0, 0, 0, 150, 50, 30, 20, 20, 0, 1, 0, 9000, *[0] * 30]
    return f"17 ({name}) {' '.join(map(str, fields))}"


@pytest.mark.parametrize("name", ["yes", "Web Content", "a) S 1 (b", "(sd-pam)"])
def test_a_process_is_read_whatever_it_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_use, "TICKS_PER_S", 100)
    assert parse_process(line(name)) == Process(
        pid=17, began=90.0, name=name, parent=3, group=4, cpu_s=2.0, reaped_s=0.5
    )


def test_threads_of_the_kernel_are_one_program() -> None:
    found = parse_process(line("kworker/0:1-events", flags=0x04208060))
    assert found is not None
    assert found.name == KERNEL


def test_a_name_cannot_draw_on_the_screen() -> None:
    found = parse_process(line("\x1b[31mred\u202e\n"))
    assert found is not None
    assert found.name == "?[31mred??"


@pytest.mark.parametrize("text", ["", "17 (yes) S 1 2", "no process", "17 (yes) " + "x " * 40])
def test_what_is_no_line_of_a_process_is_left_out(text: str) -> None:
    assert parse_process(text) is None


@pytest.mark.parametrize(
    ("command", "arguments", "name"),
    [
        ("yes", "/usr/bin/yes\0", "yes"),
        ("chrome-headless", "/opt/x/chrome-headless-shell\0--no-sandbox\0", "chrome-headless-shell"),
        ("chrome-headless", "/opt/x/chrome-headless-shell --type=renderer --a=/b/c", "chrome-headless-shell"),
        ("chrome-headless", "", "chrome-headless"),
        ("gnome-terminal-", "/usr/libexec/gnome-terminal-server\0", "gnome-terminal-server"),
        ("Isolated Web Co", "/usr/lib/firefox/firefox\0-contentproc\0/x/y\0", "firefox"),
        ("Web Content", "", "Web Content"),
        ("node-MainThread", "node\0/srv/app.js\0", "node"),
    ],
)
def test_a_program_has_its_whole_name(command: str, arguments: str, name: str) -> None:
    assert program(command, arguments) == name


def test_this_machine_can_be_read() -> None:
    for found in (snapshot(), cpu_use._by_psutil()):
        own = next(one for one in found.processes if one.pid == found.server)
        assert own.cpu_s > 0
        assert found.usable is not None
        assert found.usable.busy_s >= own.cpu_s


# -- the idle check ----------------------------------------------------------------------------------------


def window(used: float, *, seconds: float = 10.0, **changes: Any) -> tuple[Snapshot, Snapshot]:
    cpus = changes.get("cpus", 2)
    return look(0.0, cpus=cpus, pressure_s=0.0), look(
        seconds, process(5, used * seconds, "yes"), **{"pressure_s": 0.0, **changes}
    )


def test_background_load_beyond_the_limit_of_a_block_disturbs() -> None:
    assert activity_between(*window(0.9 * FOREIGN_CPUS), needed_cpus=2).quiet
    found = activity_between(*window(1.1 * FOREIGN_CPUS), needed_cpus=2)
    assert found.crowded
    assert found.words() != found.words(verb="used")
    assert found.words(verb="used") == "yes used 0.1 cores"


def test_other_processes_that_leave_a_cpu_idle_take_nothing() -> None:
    """A container with a quota of two CPUs, on a host of 64 on which others are busy."""
    assert activity_between(*window(30.0, cpus=64, pressure_s=9.0), needed_cpus=2).quiet
    assert activity_between(*window(30.0, cpus=64), needed_cpus=64).crowded
    assert activity_between(*window(61.5, cpus=64), needed_cpus=2).crowded


def test_steal_beyond_the_limit_disturbs() -> None:
    assert activity_between(*window(0.0, steal_s=0.5 * STEAL_SHARE * 10), needed_cpus=2).quiet
    found = activity_between(*window(0.0, steal_s=4 * STEAL_SHARE * 10), needed_cpus=2)
    assert not found.quiet
    assert tells(found.words(), "4%")


def test_pressure_beyond_the_limit_disturbs() -> None:
    assert activity_between(*window(0.0, pressure_s=9 * PRESSURE_SHARE), needed_cpus=2).quiet
    found = activity_between(*window(0.0, pressure_s=20 * PRESSURE_SHARE), needed_cpus=2)
    assert not found.quiet
    assert tells(found.words(verb="used"), "20%")


def test_counters_that_are_missing_or_stand_still_do_not_tell() -> None:
    before, after = window(1.0)
    assert activity_between(before, replace(after, usable=None), needed_cpus=2).load is None
    assert activity_between(before, replace(after, usable=before.usable), needed_cpus=2).load is None


def test_a_comparison_needs_the_cpus_that_the_container_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "allowed_cpus", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(limits, "cpu_quota", lambda: None)
    assert usable_cpus() == 4
    monkeypatch.setattr(limits, "cpu_quota", lambda: 1.5)
    assert usable_cpus() == 1.5


# -- waiting -----------------------------------------------------------------------------------------------


class NoPause(threading.Event):
    """An event whose waits take no time; it remembers how long they would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.paused_s = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.paused_s += timeout or 0.0
        return self.is_set()


def machine(loads: Sequence[float], pause: NoPause) -> Callable[[], Snapshot]:
    """A machine on which `yes` takes so many cores in each window, and the last of them for ever after."""

    def looks() -> Iterator[Snapshot]:
        used_s = at_s = 0.0
        yield look(0.0, process(5, 0.0, "yes"), pressure_s=0.0)
        for number in range(10_000):
            used_s += loads[min(number, len(loads) - 1)] * (pause.paused_s - at_s)
            at_s = pause.paused_s
            yield look(at_s, process(5, used_s, "yes"), pressure_s=0.0)

    ahead = looks()
    return lambda: next(ahead)


def waited(most_s: float, loads: Sequence[float]) -> tuple[WaitResult, list[str]]:
    pause, told = NoPause(), []  # type: ignore[var-annotated]
    found = wait_until_quiet(most_s, pause, told.append, look=machine(loads, pause), needed_cpus=2)
    return found, told


def test_a_quiet_machine_is_believed_after_two_windows() -> None:
    found, told = waited(300.0, [0.0])
    assert found.quiet is True
    assert found.seconds == pytest.approx(IDLE_WINDOWS * WINDOW_S)
    assert numbers(found.note) == [4]
    assert [numbers(one) for one in told] == [[], [2, 5]]


def test_one_quiet_window_among_busy_ones_is_not_enough() -> None:
    found, told = waited(300.0, [1.2, 0.0, 1.2, 0.0, 0.0])
    assert found.quiet is True
    assert found.seconds == pytest.approx(5 * WINDOW_S)
    assert tells(told[1], "yes")
    assert numbers(told[1]) == [1.2, 2, 5]
    assert numbers(told[3]) == [1.2, 6, 5]


def test_it_gives_up_in_time_and_says_who_it_was() -> None:
    found, told = waited(300.0, [1.2])
    assert found.quiet is False
    assert found.seconds == pytest.approx(300.0)
    assert tells(found.note, "yes")
    assert numbers(found.note) == [5, 1.2]
    assert len(told) == 1 + 300 / WINDOW_S


@pytest.mark.parametrize(("most_s", "windows"), [(0.5, 1), (2.0, 1), (3.0, 2), (5.0, 2)])
def test_a_short_wait_is_not_overdrawn(most_s: float, windows: int) -> None:
    busy, told = waited(most_s, [2.0])
    assert busy.quiet is False
    assert busy.seconds == pytest.approx(most_s)
    assert len(told) == 1 + windows
    assert waited(most_s, [0.0])[0].quiet is True


def test_a_wait_that_is_cancelled_ends() -> None:
    pause = NoPause()
    pause.set()
    with pytest.raises(Cancelled):
        wait_until_quiet(300.0, pause, lambda _: None, look=machine([0.0], pause), needed_cpus=2)


def test_a_system_that_does_not_tell_is_not_waited_for() -> None:
    pause = NoPause()
    blind = replace(look(0.0), usable=None)
    found = wait_until_quiet(300.0, pause, lambda _: None, look=lambda: blind, needed_cpus=2)
    assert (found.quiet, found.seconds, pause.paused_s) == (None, 0.0, 0.0)
    assert found.note
