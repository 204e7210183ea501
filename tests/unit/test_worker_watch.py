"""What a running worker may hold of the machine: files, space, threads, processes and its log."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.process import worker_watch
from core.process.worker_output import RESERVE_BYTES
from core.process.worker_watch import (
    FILLING_BYTES,
    FILLING_FILES,
    MOST_FILES,
    RESERVE_FILES,
    Free,
    Held,
    Watch,
    excess,
    free_space,
    held_in,
)
from core.wire.errors import WorkerError
from tests.waiting import wait_until

PLENTY = Free(bytes=1 << 40, files=1 << 20)
FULL = Free(bytes=RESERVE_BYTES - 1, files=1 << 20)
NO_NUMBERS = Free(bytes=1 << 40, files=RESERVE_FILES - 1)
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize(
    ("held", "free", "words"),
    [
        (Held(), FULL, ""),
        (Held(files=MOST_FILES, bytes=1 << 40), PLENTY, ""),
        (Held(files=MOST_FILES + 1), PLENTY, "made more than 100,000 files in `/w`"),
        (Held(bytes=FILLING_BYTES), FULL, ""),
        (
            Held(bytes=FILLING_BYTES + (1 << 20)),
            FULL,
            "its files in `/w` hold 65 MiB, and less ",
        ),
        (Held(files=FILLING_FILES), NO_NUMBERS, ""),
        (Held(files=FILLING_FILES + 1), NO_NUMBERS, "`/w` has 1,001 files of it"),
        (Held(files=FILLING_FILES + 1), Free(bytes=1 << 40, files=None), ""),
        (Held(hides="made a folder that cannot be read"), PLENTY, "made a folder that cannot be read"),
    ],
)
def test_who_holds_too_much_is_told(held: Held, free: Free, words: str) -> None:
    found = excess(held, free, "/w")
    assert words in found
    assert bool(found) is bool(words)


def test_files_and_their_space_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("a", "in/b", "in/deep/c"):
        (tmp_path / name).write_bytes(b"x" * 10_000)
    (tmp_path / "link").symlink_to("/usr")
    found = held_in(str(tmp_path))
    assert found.files == 6
    assert 30_000 <= found.bytes < 100_000
    assert found.hides == ""
    assert held_in(str(tmp_path / "nowhere")) == Held()


def test_folders_that_nothing_can_be_counted_in_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_watch, "MOST_DEPTH", 3)
    (tmp_path / "1" / "2" / "3").mkdir(parents=True)
    assert held_in(str(tmp_path)).hides == ""
    (tmp_path / "1" / "2" / "3" / "4").mkdir()
    assert "nested more than 3 deep" in held_in(str(tmp_path)).hides
    monkeypatch.undo()

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        raise PermissionError

    monkeypatch.setattr(os, "scandir", refuse)
    assert "cannot be read" in held_in(str(tmp_path)).hides


def test_paths_longer_than_the_kernel_takes_hide_nothing(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=here)
        inner = os.open("x" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert "nested" in held_in(str(tmp_path)).hides


def test_a_count_ends_where_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_watch, "MOST_FILES", 10)
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert held_in(str(tmp_path)).files == 11


def own(folder: Path, **options: int) -> Watch:
    """A watch over this process."""
    return Watch(os.getpid(), [str(folder), ""], **options)  # type: ignore[arg-type]


@needs_proc
def test_a_process_that_holds_little_may_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_watch, "PAUSE_S", 0.0)
    (tmp_path / "file").write_text("x")
    watch = own(tmp_path)
    watch.processes = True
    for _ in range(3):
        watch.look()


@needs_proc
def test_many_files_are_seen_at_the_next_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_watch, "MOST_FILES", 10)
    monkeypatch.setattr(worker_watch, "PAUSE_S", 3600.0)
    for number in range(11):
        (tmp_path / str(number)).touch()
    own(tmp_path).look()  # it is not time to count
    monkeypatch.setattr(worker_watch, "PAUSE_S", 0.0)
    with pytest.raises(WorkerError, match="made more than 10 files"):
        own(tmp_path).look()


@needs_proc
@pytest.mark.parametrize("how", ["named", "open", "mapped"])
def test_what_fills_a_full_disk_is_seen_with_and_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "mapped" and os.geteuid() != 0:
        pytest.skip("only the superuser sees the size of a mapped file without a name")
    monkeypatch.setattr(worker_watch, "RESERVE_BYTES", 1 << 60)  # no disk has as much
    monkeypatch.setattr(worker_watch, "FILLING_BYTES", 64 << 20)
    own(tmp_path).look()
    with (tmp_path / "large").open("w+b") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.posix_fallocate(file.fileno(), 0, 100 << 20)
        mapped = mmap.mmap(file.fileno(), 4096) if how == "mapped" else None
        if how != "named":
            (tmp_path / "large").unlink()
        if how == "mapped":
            file.close()
        with pytest.raises(WorkerError, match=r"hold 10[01] MiB") as caught:
            own(tmp_path).look()
        assert caught.value.hint
        if mapped is not None:
            mapped.close()


def forbid(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Let the kernel refuse what it refuses to all but the superuser."""
    stat, listdir = Path.stat, os.listdir

    def refusing(path: Path, **options: bool) -> os.stat_result:
        if part in str(path):
            raise PermissionError
        return stat(path, **options)

    def listing(path: str) -> list[str]:
        if path.endswith(part):
            raise PermissionError
        return listdir(path)

    monkeypatch.setattr(Path, "stat", refusing)
    monkeypatch.setattr(os, "listdir", listing)


@needs_proc
def test_a_worker_that_hides_its_open_files_is_ended_where_space_is_scarce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, "/fd")
    own(tmp_path).look()
    monkeypatch.setattr(worker_watch, "RESERVE_BYTES", 1 << 60)
    with pytest.raises(WorkerError, match="hides its open files"):
        own(tmp_path).look()


@needs_proc
def test_mapped_files_without_names_of_which_no_size_is_known_hide_what_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, "/map_files/")
    listdir = os.listdir  # `mmap` keeps the file open
    monkeypatch.setattr(os, "listdir", lambda path: [] if path.endswith("/fd") else listdir(path))
    monkeypatch.setattr(worker_watch, "RESERVE_BYTES", 1 << 60)
    with contextlib.ExitStack() as ends:
        for name in ("one that is shared", "two"):
            own(tmp_path).look()
            path = tmp_path / name
            path.write_bytes(bytes(8192))
            with path.open("r+b") as file:
                ends.callback(mmap.mmap(file.fileno(), 4096).close)
            path.unlink()
        with pytest.raises(WorkerError, match=r"maps files of .* without names"):
            own(tmp_path).look()
        (tmp_path / "other").mkdir()
        own(tmp_path / "other").look()  # they are not in its folder


@needs_proc
def test_many_threads_are_seen_also_those_of_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a thread of an earlier test may be about to end
    wait_until(lambda: worker_watch._threads(os.getpid()) == len(os.listdir("/proc/self/task")))  # noqa: PTH208
    here = worker_watch._threads(os.getpid())
    monkeypatch.setattr(worker_watch, "MOST_THREADS", here + 4)
    own(tmp_path).look()
    ends = threading.Event()
    threads = [threading.Thread(target=ends.wait) for _ in range(5)]
    for one in threads:
        one.start()
    try:
        with pytest.raises(WorkerError, match="threads"):
            own(tmp_path).look()
    finally:
        ends.set()
        for one in threads:
            one.join()
    own(tmp_path).look()
    code = (
        "import sys, threading\n"
        f"for _ in range({here + 6}): threading.Thread(target=sys.stdin.read, daemon=True).start()\n"
        "print(flush=True)\nthreading.Event().wait()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:
        assert child.stdout is not None
        child.stdout.readline()
        if child.pid in worker_watch._children(os.getpid()):  # where the kernel tells
            with pytest.raises(WorkerError, match="threads"):
                own(tmp_path).look()
        child.kill()


@needs_proc
def test_many_processes_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_watch, "MOST_PROCESSES", 3)
    monkeypatch.setattr(worker_watch, "PAUSE_S", 0.0)
    command = "for i in 1 2 3 4; do sleep 600 & done; wait"
    with subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True) as group:
        watch = Watch(group.pid, [str(tmp_path)], processes=True)
        wait_until(lambda: len(list(worker_watch._group(group.pid))) == 5)
        try:
            with pytest.raises(WorkerError, match="more than 3 processes"):
                watch.look()
        finally:
            os.killpg(group.pid, 9)


@needs_proc
def test_a_long_log_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_watch, "MOST_LOG_BYTES", 3 << 20)
    Watch(os.getpid(), [str(tmp_path)], log=lambda: 3 << 20).look()
    with pytest.raises(WorkerError, match="more than 3 MiB to its log"):
        Watch(os.getpid(), [str(tmp_path)], log=lambda: (3 << 20) + 1).look()


def test_the_free_files_of_a_disk_are_known_where_it_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Disk:
        f_bavail, f_frsize, f_files, f_favail = 3, 4096, 100, 7

    assert free_space(str(tmp_path)).bytes > 0
    monkeypatch.setattr(os, "statvfs", lambda path: Disk)
    assert free_space("/") == Free(bytes=12288, files=7)
    Disk.f_files = 0
    assert free_space("/") == Free(bytes=12288, files=None)
    assert not Free(bytes=1 << 40, files=None).is_scarce
