"""Faults while a server measures: it is stopped, shares its store, or lacks disk, memory or network.

Each fault is shown to bite. Afterwards the page measures, the store is whole, and nothing is left.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import itertools
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import filelock
import psutil
import pytest
from playwright.sync_api import expect

from core.evidence.measurement import Trial
from core.process.machine_queue import LOCK_NAME, MachineQueue
from core.store import Store
from core.wire.errors import INTERRUPTED, TunerError
from tests.e2e.conftest import JOB_MS, recorded_home, result_shown, run_button, set_number, show
from tests.faults.visits import MOST_S, TEST_S, Visit, Visiting, is_stopped
from tests.network_namespace import forwarded, network
from tests.serving import ask, free_port
from tests.small_disks import fill, small_disk
from tests.waiting import wait_until

resource = pytest.importorskip("resource")

pytestmark = pytest.mark.timeout(TEST_S)

STOP_S = 60.0
REFUSED_MEMORY = ("MemoryError", "can't start new thread", "Cannot allocate memory")
FROZEN = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)  # a zombie runs no more either
LONG_S = 40  # of a comparison that still measures after a few clicks on another page


# --- stopped ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped(server: psutil.Process) -> Iterator[None]:
    """Stop a server and its processes as a paused container does: who was stopped before stays so.

    The server stops, continues and starts its workers: it must be stopped first, and continue
    last.
    """
    ours = [server]
    server.send_signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(server))
    for one in server.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it was about to end
            if not is_stopped(one):
                one.send_signal(signal.SIGSTOP)
                ours.append(one)
                wait_until(lambda: one.status() in FROZEN)  # noqa: B023 - called at once
    try:
        yield
    finally:
        for one in reversed(ours):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGCONT)


def latencies_of(store: Store, trial: str) -> list[float]:
    """All latencies that a trial's numbers are computed from."""
    result = store.trial(trial).result
    assert result is not None
    return list(result["latencies_s"])


def test_a_server_that_measures_is_stopped_for_a_minute(visiting: Visiting) -> None:
    with recorded_home() as home, visiting(home) as visit:
        set_number(visit.page, "budget_s", 20)
        trial = visit.start_measuring()
        time.sleep(4)  # into the rounds
        began = time.monotonic()
        with stopped(psutil.Process(visit.server.pid)):
            with pytest.raises(OSError):
                ask(visit.url, timeout_s=2)
            assert [one.running for one in MachineQueue(home / "queue").entries()] == [True]
            with pytest.raises(filelock.Timeout):  # nobody else measures meanwhile
                filelock.FileLock(home / "queue" / LOCK_NAME).acquire(timeout=0)
            time.sleep(max(0.0, STOP_S - (time.monotonic() - began)))
        ended = visit.end(trial)  # on the same page, which was open all the time
        assert (ended.state, ended.error) == ("COMPLETE", None)
        assert ended.started_at is not None
        assert ended.finished_at is not None
        assert STOP_S <= ended.finished_at - ended.started_at < MOST_S  # it had the machine all the time
        for one in visit.store.trials_of(ended.comparison):
            assert max(latencies_of(visit.store, one.id)) < STOP_S / 2
        visit.check_measured()


# --- two servers --------------------------------------------------------------------------------------------


def check_apart(trials: Sequence[Trial]) -> None:
    """No trial began before the one before it had ended."""
    spans = sorted((one.started_at or 0.0, one.finished_at or 0.0) for one in trials)
    for before, after in itertools.pairwise(spans):
        assert before[1] <= after[0], spans


def test_two_servers_measure_and_delete_in_one_store(visiting: Visiting) -> None:
    with recorded_home() as home, visiting(home) as one, visiting(home, log="other.log") as other:
        set_number(one.page, "budget_s", LONG_S)  # it still measures when the other has asked
        trials = [one.start_measuring(), other.start()]
        assert other.store.trial(trials[1]).state == "WAITING"
        ended = [one.end(trials[0]), other.end(trials[1])]
        assert [each.state for each in ended] == ["COMPLETE", "COMPLETE"]
        show(one.page, ended[1])
        show(other.page, ended[0])

        other.reopen()
        set_number(other.page, "budget_s", LONG_S)
        third = other.start_measuring()
        one.delete(trials[1])
        assert other.store.trial(third).state == "RUNNING"
        one.reopen()
        fourth = one.start()
        ended += [other.end(third), one.end(fourth)]
        assert [each.state for each in ended] == ["COMPLETE"] * 4
        other.delete(trials[0])
        for deleted in trials:
            with pytest.raises(TunerError):
                one.store.trial(deleted)
        check_apart(ended)

        other.reopen()
        one.reopen()
        fifth = other.start_measuring()
        sixth = one.start()
        one.kill()
        assert other.end(fifth).state == "COMPLETE"
        other.page.goto(f"{other.url}/history")
        interrupted = other.await_end(sixth)  # within seconds, by the server that is still there
        assert interrupted.state == "FAIL"
        assert interrupted.error is not None
        assert interrupted.error["message"].endswith(INTERRUPTED)
        other.check_measured()


# --- disk ---------------------------------------------------------------------------------------------------


def test_the_disk_of_a_server_is_full_for_a_while(visiting: Visiting) -> None:
    with small_disk("size=256m") as disk, recorded_home() as recorded:
        home = shutil.copytree(recorded, disk / "home")
        with visiting(home) as visit:
            trial = visit.start_measuring()
            filler = fill(disk)
            with pytest.raises(OSError, match="No space"):
                (disk / "more").write_bytes(b"x")
            result_shown(visit.page)  # though it is not in the store
            told = visit.page.get_by_text(f"rescued-{trial}.json").first
            expect(told).to_be_visible(timeout=JOB_MS)  # where its result is
            assert visit.store.trial(trial).state == "RUNNING"  # what could not be written
            filler.unlink()
            visit.page.reload()
            assert visit.await_end(trial).state == "COMPLETE"  # the running server has restored it
            assert latencies_of(visit.store, trial)
            visit.check_measured()
        gc.collect()


# --- memory, descriptors ------------------------------------------------------------------------------------


def lowest_free(pid: int) -> int:
    used = {int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in itertools.count() if number not in used)


def await_silence(visit: Visit) -> None:
    """Wait until a server that lacks nothing any more has told all that was refused, and forget it."""

    def is_silent() -> bool:
        assert ask(visit.url).status == 200  # so far it has come
        before = len(visit.said())
        time.sleep(5)
        return len(visit.said()) == before

    wait_until(is_silent, most_s=MOST_S)
    visit.forget_said()


def test_a_server_is_out_of_descriptors(visiting: Visiting) -> None:
    with recorded_home() as home, visiting(home) as visit:
        with contextlib.ExitStack() as lack:

            def refuses() -> bool:
                """Whether it cannot accept a connection; one that it has just closed leaves room."""
                lack.close()
                lack.enter_context(visit.lacking(resource.RLIMIT_NOFILE, lowest_free(visit.server.pid)))
                try:
                    ask(visit.url, timeout_s=3)
                except (OSError, http.client.HTTPException):  # not accepted, or answered in part
                    return True
                return False

            wait_until(refuses, most_s=MOST_S)
            run_button(visit.page).click()
            wait_until(lambda: "Too many open files" in visit.said(), most_s=MOST_S)
            time.sleep(3)
        assert visit.server.poll() is None
        await_silence(visit)
        visit.check_measured()


def test_a_server_is_refused_memory(visiting: Visiting) -> None:
    with recorded_home() as home, visiting(home) as visit:
        # less than it has: every new mapping is refused, also the stack of a thread
        with visit.lacking(resource.RLIMIT_AS, psutil.Process(visit.server.pid).memory_info().vms // 2):
            run_button(visit.page).click()
            for _ in range(3):
                with contextlib.suppress(OSError):
                    ask(visit.url, timeout_s=3)
            wait_until(lambda: any(words in visit.said() for words in REFUSED_MEMORY), most_s=MOST_S)
        assert visit.server.poll() is None
        await_silence(visit)
        visit.check_measured()


# --- network ------------------------------------------------------------------------------------------------


def test_a_server_measures_while_its_network_goes(visiting: Visiting) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        outside = stack.enter_context(network())
        stack.enter_context(forwarded(outside, port))
        home = stack.enter_context(recorded_home())
        with visiting(home, port=port, prefix=outside.prefix) as visit:
            trial = visit.start_measuring()
            outside.cut()
            lookup = "import socket; socket.getaddrinfo('download.pytorch.org', 443)"
            found = subprocess.run(
                [*outside.prefix, sys.executable, "-c", lookup], capture_output=True, check=False
            )
            assert b"gaierror" in found.stderr
            assert visit.end(trial).state == "COMPLETE"
            visit.check_measured()
