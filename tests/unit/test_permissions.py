"""The data folder is closed to other users: what is created, and what an earlier version left open."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.process import scratch
from core.store import Store, audit, permissions
from core.wire import variables
from core.wire.files import is_private, made_private, written_whole

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_paths(folder: Path) -> list[str]:
    """What others may use, in a folder and below."""
    found = [folder, *folder.rglob("*")]
    return sorted(one.name for one in found if not one.is_symlink() and mode(one) & 0o077)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in permissions.SHARED_BY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variables.HOME, str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def left_open(home: Path) -> Path:
    """A home as an earlier version left it."""
    Store()
    program = home / "runtimes" / "old" / "bin" / "python"
    for file in (
        home / "models" / "abc" / "m.onnx",
        home / "uploads" / "b" / "m.onnx",
        home / "mine.txt",
        program,
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        file.chmod(0o644)
    program.chmod(0o755)
    for folder in (home, *(one for one in home.rglob("*") if one.is_dir())):
        folder.chmod(0o755)
    (home / "ortune.db").chmod(0o644)
    return home


def test_what_the_store_creates_is_closed_whatever_the_umask(home: Path, umask: int) -> None:
    store = Store()
    audit.record("change", "one")
    store.backup(home / "kept.db")
    made_private(home / "cache" / "fp16")
    with written_whole(home / "cache" / "facts.json") as part:
        part.write_text("{}")
    with scratch.folder(home / "models", scratch.INCOMING) as folder:
        assert mode(folder) == 0o700
    assert open_paths(home) == []
    assert mode(home) == 0o700


def test_what_a_user_names_keeps_the_umask(home: Path, tmp_path: Path, umask: int) -> None:
    with written_whole(tmp_path / "export.yaml") as part:
        part.write_text("a: 1")
    Store().backup(tmp_path / "backup.db")
    assert not is_private(tmp_path / "export.yaml")
    assert mode(tmp_path / "export.yaml") == 0o666 & ~umask
    assert mode(tmp_path / "backup.db") == 0o644 & ~umask


def test_what_was_left_open_is_closed_at_the_start_and_said_once(
    left_open: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Store()
    assert len(caplog.records) == 1
    assert f"`{left_open}` was open to other users" in caplog.text
    # a runtime's folder closes its programs; what is not ORTune's stays
    assert open_paths(left_open) == ["bin", "mine.txt", "old", "python"]
    assert mode(left_open / "runtimes") == 0o700
    assert mode(left_open / "models" / "abc" / "m.onnx") == 0o600
    Store()
    assert len(caplog.records) == 1


def test_links_and_files_with_a_second_name_are_left_alone(left_open: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (shared / "weights.bin").write_text("x")
    (shared / "weights.bin").chmod(0o644)
    (left_open / "datasets").symlink_to(shared)
    (left_open / "models" / "abc" / "link.bin").symlink_to(shared / "weights.bin")
    (left_open / "models" / "abc" / "same.bin").hardlink_to(shared / "weights.bin")
    assert permissions.close_home()
    assert mode(shared) == 0o755
    assert mode(shared / "weights.bin") == 0o644


@pytest.mark.parametrize("name", permissions.SHARED_BY)
def test_a_folder_that_a_variable_shares_stays_open(
    left_open: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(left_open / "models" / "abc"))
    assert permissions.close_home()
    assert mode(left_open) == 0o755
    assert mode(left_open / "models") == 0o755
    assert mode(left_open / "uploads") == 0o700
    assert mode(left_open / "ortune.db") == 0o600


@pytest.mark.parametrize("bits", [0o2775, 0o1777])
def test_a_home_that_is_shared_by_its_mode_stays_open(left_open: Path, bits: int) -> None:
    left_open.chmod(bits)
    assert permissions.close_home() == ""
    assert mode(left_open) == bits
    assert mode(left_open / "models") == 0o755


def test_a_folder_without_a_store_and_a_persons_home_are_not_touched(
    home: Path, left_open: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(left_open))
    assert permissions.close_home() == ""
    monkeypatch.setenv("HOME", str(left_open.parent))
    (left_open / "ortune.db").unlink()
    assert permissions.close_home() == ""
    assert mode(left_open) == 0o755


def test_without_time_the_folders_are_closed_first(left_open: Path) -> None:
    assert permissions.close_home(most_s=-1.0)
    assert mode(left_open) == mode(left_open / "models") == mode(left_open / "uploads") == 0o700
    assert mode(left_open / "models" / "abc" / "m.onnx") == 0o644


def test_a_file_system_without_permissions_says_nothing(
    left_open: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "chmod", lambda path, bits: None)
    assert permissions.close_home() == ""


def test_windows_is_left_alone(left_open: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "HAS_MODES", False)
    assert permissions.close_home() == ""
    monkeypatch.undo()
    assert mode(left_open) == 0o755
