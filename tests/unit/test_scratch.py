"""Temporary folders: gone at the end, or at a later start when their process was killed; never while used."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.process import scratch
from core.process.confinement import DRAFT
from core.run.job_log import DAY_S, remove_remains

ROOT = Path(__file__).parents[2]
HOLDS = """
import os, sys, time
from pathlib import Path
from core.process import scratch

with scratch.folder(Path(sys.argv[1]), sys.argv[2]) as folder:
    (folder / "large").write_bytes(bytes(1000))
    print(folder, flush=True)
    sys.stdin.read()
"""
PREFIXES = [scratch.PREFIX, scratch.INCOMING]


@pytest.fixture(params=PREFIXES)
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def holder(tmp_path: Path, prefix: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that uses a folder, and that folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path), prefix],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_it_is_empty_and_goes_with_all_that_is_in_it(tmp_path: Path, prefix: str) -> None:
    with scratch.folder(tmp_path / "deep", prefix) as folder:
        assert folder.name.startswith(prefix)
        assert list(folder.iterdir()) == []
        (folder / "in").mkdir()
        (folder / "in" / "file").write_text("x")
        with scratch.folder(tmp_path / "deep", prefix) as other:
            assert other != folder
    assert list((tmp_path / "deep").iterdir()) == []


def test_it_goes_too_when_the_work_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), scratch.folder(tmp_path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_what_was_taken_out_of_it_stays(tmp_path: Path, prefix: str) -> None:
    """The library gives the folder itself another name."""
    with scratch.folder(tmp_path, prefix) as folder:
        (folder / "m.onnx").write_text("x")
        folder.rename(tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["m.onnx"]


def test_the_folder_of_a_killed_process_is_removed(
    tmp_path: Path, prefix: str, holder: tuple[subprocess.Popen[str], Path]
) -> None:
    process, folder = holder
    assert scratch.remove_abandoned(tmp_path, prefix) == 0
    assert (folder / "large").exists(), "a living process uses it"
    process.kill()
    process.wait()
    assert folder.exists()
    assert scratch.remove_abandoned(tmp_path, prefix) == 1
    assert not folder.exists()


def test_that_of_this_process_is_never_removed(tmp_path: Path, prefix: str) -> None:
    with scratch.folder(tmp_path, prefix) as folder:
        assert scratch.remove_abandoned(tmp_path, prefix) == 0
        assert folder.exists()


@pytest.mark.parametrize(
    "name",
    ["ortune-home", "ortune-scratch-mine", "ortune-scratch-", f"ortune-scratch-{'0' * 15}", "ortune-queue",
     f"x-ortune-scratch-{'0' * 16}", f"ortune-scratch-{'0' * 17}"],
)  # fmt: skip
def test_what_only_looks_like_one_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert scratch.remove_abandoned(tmp_path) == 0
    assert (tmp_path / name).exists()


def test_files_and_links_with_such_a_name_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    (tmp_path / f"{scratch.PREFIX}{'1' * 16}").symlink_to(tmp_path / "mine")
    (tmp_path / f"{scratch.PREFIX}{'2' * 16}").write_text("x")
    assert scratch.remove_abandoned(tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == 3
    assert (tmp_path / "mine" / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_another_users_folder_stays(tmp_path: Path) -> None:
    theirs = tmp_path / f"{scratch.PREFIX}{'3' * 16}"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    assert scratch.remove_abandoned(tmp_path) == 0
    assert theirs.exists()


def test_a_folder_that_is_gone_has_nothing_left(tmp_path: Path) -> None:
    assert scratch.remove_abandoned(tmp_path / "nowhere") == 0


# --- what a hostile process leaves in it --------------------------------------------------------------------


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is such a file system: a disk needs minutes for many files."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def nested(top: Path, depth: int) -> None:
    """Folders in folders, with a file in the innermost; no path leads there."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a folder", dir_fd=here)
        inner = os.open("a folder", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here))
    os.close(here)


def test_folders_nested_5000_deep_are_removed(in_memory: Path) -> None:
    with scratch.folder(in_memory) as folder:
        nested(folder, 5_000)
        nested(folder / "a folder", 0)
    assert list(in_memory.iterdir()) == []


def test_the_nested_folders_of_a_killed_process_are_removed(
    tmp_path: Path, holder: tuple[subprocess.Popen[str], Path], prefix: str
) -> None:
    process, folder = holder
    nested(folder, 1_500)  # deeper than Python calls, and than a process opens files
    process.kill()
    process.wait()
    assert scratch.remove_abandoned(tmp_path, prefix) == 1
    assert not folder.exists()


def test_names_that_are_no_text_and_every_kind_of_file_are_removed(tmp_path: Path) -> None:
    (kept := tmp_path / "kept").mkdir()
    (kept / "file").write_text("precious")
    with scratch.folder(tmp_path / "own") as folder:
        for name in (b"\xff\xfe", b"a\nb", b"\x1b[2J", b" ", b"-rf", b"x" * 255):
            place = os.fsencode(folder) + b"/" + name
            os.mkdir(place)  # noqa: PTH102 - bytes
            os.close(os.open(place + b"/\xff" + name[:250], os.O_CREAT | os.O_WRONLY))
        (folder / "link").symlink_to(kept)
        (folder / "in").mkdir()
        (folder / "in" / "link").symlink_to(kept / "file")
        os.link(kept / "file", folder / "hard")
        os.mkfifo(folder / "pipe")
    assert list((tmp_path / "own").iterdir()) == []
    assert (kept / "file").read_text() == "precious"
    assert (kept / "file").stat().st_mode & 0o777 == 0o644 & ~umask()


def umask() -> int:
    os.umask(now := os.umask(0))
    return now


WITHOUT_RIGHTS = """
import os, sys
from pathlib import Path
from core.process import scratch

if os.geteuid() == 0:
    os.setresgid(12345, 12345, 12345)
    os.setresuid(12345, 12345, 12345)
os.chdir(sys.argv[1])
with scratch.folder(Path("own")) as folder:
    (folder / "closed" / "in" / "deep").mkdir(parents=True)
    (folder / "closed" / "file").write_text("x")
    for one in ("closed/in/deep", "closed/in", "closed"):
        (folder / one).chmod(0)
print(os.listdir("own"))
"""


def test_folders_without_any_rights_are_removed() -> None:
    """As a user who is not the superuser, for whom such folders are closed."""
    with tempfile.TemporaryDirectory() as made:
        if os.geteuid() == 0:
            Path(made).chmod(0o777)
            if not all(one.stat().st_mode & 1 for one in Path(made).parents):
                pytest.skip("another user cannot reach the folder for temporary files")
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_RIGHTS, made],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout == "[]\n", done.stderr


def test_other_threads_go_on_while_100000_files_are_removed(in_memory: Path) -> None:
    """The dashboard answers meanwhile: no call holds Python's lock for long."""
    ends, turns = threading.Event(), [0]

    def count() -> None:
        while not ends.wait(0.001):
            turns[0] += 1

    with scratch.folder(in_memory) as folder:
        for number in range(100_000):
            os.close(os.open(folder / str(number), os.O_CREAT | os.O_WRONLY))
        other = threading.Thread(target=count)
        other.start()
    ends.set()
    other.join()
    assert list(in_memory.iterdir()) == []
    assert turns[0] > 20


def test_what_cannot_be_removed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    with scratch.folder(tmp_path) as folder:
        (folder / "in").mkdir()
        (folder / "in" / "file").write_text("x")
        (folder / "file").write_text("x")
        monkeypatch.setattr(os, "unlink", refuse)
    assert folder.exists()
    monkeypatch.undo()
    scratch.remove(folder)
    scratch.remove(folder)  # it is gone
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_held_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(path: Path) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(scratch, "_open_folder", none_left)
    with pytest.raises(OSError, match="Too many"), scratch.folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_server_removes_what_killed_processes_left_in_the_data_folder(tmp_path: Path) -> None:
    day = "forms/.one.json.0a1b2c3d.part", ".ortune.db.999.part-journal", "rescued-aaaaaa.part"
    others = (
        "forms/one.json",
        "artifacts/aaaaaa/trace.part",
        "models/one/.w.0a1b2c3d.part",  # external data may have any name
        "runtimes/one/.w.0a1b2c3d.part",
        ".notes.part",
    )
    young = "cache/.one.json.0a1b2c3d.part"
    long_ago = time.time() - DAY_S - 1
    for name in (*day, *others, young):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        if name != young:
            os.utime(path, (long_ago, long_ago))
    left = tmp_path / "artifacts" / "aaaaaa" / f"{DRAFT}{'a' * 16}"
    left.mkdir()
    with scratch.folder(left.parent, DRAFT) as used:
        remove_remains(tmp_path)
        assert used.exists()
    assert not left.exists()
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {*others, young}
    remove_remains(tmp_path / "nowhere")
