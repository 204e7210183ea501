"""What is written is there whole or not at all."""

import os
from pathlib import Path

import pytest

from core.wire import files
from core.wire.files import read_result, written_whole


def test_what_was_written_takes_the_place_of_what_stood_there(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text("before")
    with written_whole(path) as draft:
        draft.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_durable_file_is_on_the_disk_before_its_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, path.exists()))

    path = tmp_path / "kept.json"
    monkeypatch.setattr(os, "fsync", fsync)
    with written_whole(path, durable=True) as draft:
        draft.write_text("whole")
    assert synced == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]


def test_what_stood_there_stays_when_the_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text("before")

    def half() -> None:
        with written_whole(path) as draft:
            draft.write_text("half")
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        half()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_do_not_share_a_draft(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    with written_whole(path) as one, written_whole(path) as other:
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_is_said_by_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "nowhere" / "kept.json") as draft:
        draft.write_text("text")


def test_a_device_or_a_pipe_stays_what_it_is(tmp_path: Path) -> None:
    """As root `-o /dev/null` would create a file there, for every user."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="named pipe"), written_whole(path) as draft:
        draft.write_text("text")
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one_and_its_file_is_written(tmp_path: Path) -> None:
    path, link = tmp_path / "there" / "kept.json", tmp_path / "link.json"
    path.parent.mkdir()
    path.write_text("before")
    link.symlink_to(path)
    with written_whole(link) as draft:
        draft.write_text("after")
    assert link.is_symlink()
    assert path.read_text() == "after"
    assert [one.name for one in path.parent.iterdir()] == ["kept.json"]


def test_a_file_of_a_worker_is_read_up_to_a_size_and_never_where_it_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_RESULT_BYTES", 1 << 20)
    path = tmp_path / "graph.json"
    path.write_bytes(b"x" * (1 << 20))
    assert read_result(path) == b"x" * (1 << 20)
    os.truncate(path, (1 << 20) + 1)
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_result(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="named pipe"):
        read_result(path)
