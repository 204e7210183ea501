"""The identity of a process: its id and its start, whatever the clock says."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from core.process.identity import is_alive, start_of
from core.run.job_log import is_owner_alive, this_process


def clock_steps(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Linux computes the time of its own start from the clock, and psutil that of processes from it."""
    before = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: before + seconds)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux computes starts from the clock")
@pytest.mark.parametrize("seconds", [-86_400.0, -3.0, 3.0, 86_400.0])
def test_a_living_process_lives_after_a_step_of_the_clock(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    pid, started, owner, created = os.getpid(), start_of(), this_process(), psutil.Process().create_time()
    clock_steps(monkeypatch, seconds)
    assert psutil.Process().create_time() == pytest.approx(created + seconds)
    assert is_alive(pid, started)
    assert is_owner_alive(owner, created)


def test_the_start_tells_a_process_from_a_later_one_of_the_same_id() -> None:
    started = start_of()
    assert is_alive(os.getpid(), started)
    assert not is_alive(os.getpid(), started - 1)
    assert not is_alive(os.getpid(), float("nan"))
    assert start_of(os.getpid()) == started


def test_starts_of_earlier_versions_are_understood() -> None:
    created = psutil.Process().create_time()
    assert is_alive(os.getpid(), created)
    assert not is_alive(os.getpid(), created - 3600)


def test_an_ended_process_has_no_start() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(psutil.NoSuchProcess):
        start_of(child.pid)
    assert not is_alive(child.pid, start_of())
