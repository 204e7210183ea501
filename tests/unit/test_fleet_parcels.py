"""Files that a host receives: in pieces, checked, continued, by content."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.run.fleet import parcels
from core.run.fleet.parcels import Parcel
from core.wire.errors import SpecError, StoreError, WorkerError

WEIGHTS = bytes(range(256)) * 40


@pytest.fixture
def parcel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parcel:
    """A model of two files, on the client."""
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "host"))
    client = tmp_path / "client"
    client.mkdir()
    (client / "m.onnx").write_bytes(b"graph")
    (client / "w.bin").write_bytes(WEIGHTS)
    files: Any = [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in (("m.onnx", b"graph"), ("w.bin", WEIGHTS))
    ]
    return {"sha256": "ab" * 32, "files": files}


def give(parcel: Parcel, path: str, offset: int, data: bytes) -> int:
    return parcels.receive(parcel, path, offset, data, hashlib.sha256(data).hexdigest())


def give_all(parcel: Parcel) -> None:
    give(parcel, "m.onnx", 0, b"graph")
    give(parcel, "w.bin", 0, WEIGHTS[:5000])
    give(parcel, "w.bin", 5000, WEIGHTS[5000:])


def test_pieces_make_the_files(parcel: Parcel) -> None:
    assert parcels.state(parcel) == {"path": "", "bytes": {"m.onnx": 0, "w.bin": 0}}
    give_all(parcel)
    path = parcels.complete(parcel)
    assert Path(path).read_bytes() == b"graph"
    assert (Path(path).parent / "w.bin").read_bytes() == WEIGHTS
    assert parcels.state(parcel) == {"path": path, "bytes": {}}


def test_a_transfer_continues_where_it_ended(parcel: Parcel) -> None:
    assert give(parcel, "w.bin", 0, WEIGHTS[:100]) == 100
    assert parcels.state(parcel)["bytes"] == {"m.onnx": 0, "w.bin": 100}


@pytest.mark.parametrize("offset", [0, 50, 101, 9000])
def test_a_piece_that_does_not_follow_changes_nothing(parcel: Parcel, offset: int) -> None:
    give(parcel, "w.bin", 0, WEIGHTS[:100])
    assert give(parcel, "w.bin", offset, b"x" * 10) == 100


def test_a_piece_beyond_the_end_changes_nothing(parcel: Parcel) -> None:
    assert give(parcel, "m.onnx", 0, b"graphics") == 0


def test_a_changed_piece_is_refused(parcel: Parcel) -> None:
    with pytest.raises(WorkerError, match="changed on the way"):
        parcels.receive(parcel, "m.onnx", 0, b"graph", hashlib.sha256(b"grape").hexdigest())
    assert parcels.state(parcel)["bytes"]["m.onnx"] == 0


def test_a_file_with_another_content_is_deleted_and_may_come_again(parcel: Parcel) -> None:
    give(parcel, "m.onnx", 0, b"grape")
    give(parcel, "w.bin", 0, WEIGHTS)
    with pytest.raises(WorkerError, match="another content"):
        parcels.complete(parcel)
    assert parcels.state(parcel)["bytes"] == {"m.onnx": 0, "w.bin": len(WEIGHTS)}
    give(parcel, "m.onnx", 0, b"graph")
    assert Path(parcels.complete(parcel)).read_bytes() == b"graph"


def test_a_truncated_file_is_sent_again(parcel: Parcel) -> None:
    give_all(parcel)
    path = Path(parcels.complete(parcel))
    path.write_bytes(b"gra")
    assert parcels.state(parcel)["path"] == ""


def test_the_same_content_on_a_shared_disk_is_used_in_its_place(parcel: Parcel, tmp_path: Path) -> None:
    here = tmp_path / "client" / "m.onnx"
    assert parcels.state(parcel, str(here))["path"] == str(here)
    (here.parent / "w.bin").write_bytes(WEIGHTS[::-1])
    assert parcels.state(parcel, str(here))["path"] == ""


@pytest.mark.parametrize("path", ["../m.onnx", "/etc/passwd", "a/../../b"])
def test_a_path_that_leads_out_is_refused(parcel: Parcel, path: str) -> None:
    parcel["files"][0]["path"] = path
    for work in (parcels.state, parcels.complete):
        with pytest.raises(SpecError, match="leads out of its folder"):
            work(parcel)
    with pytest.raises(SpecError):
        give(parcel, path, 0, b"graph")


@pytest.mark.parametrize("sha256", ["", "..", "../" + "ab" * 31, "AB" * 32])
def test_a_hash_that_is_none_is_refused(parcel: Parcel, sha256: str) -> None:
    parcel["sha256"] = sha256
    with pytest.raises(SpecError, match=r"is no SHA-256"):
        parcels.state(parcel)


def test_a_file_of_another_parcel_is_refused(parcel: Parcel) -> None:
    with pytest.raises(SpecError, match="is no file of this model"):
        give(parcel, "other.bin", 0, b"x")


def test_a_full_disk_keeps_what_was_there(parcel: Parcel, monkeypatch: pytest.MonkeyPatch) -> None:
    give(parcel, "w.bin", 0, WEIGHTS[:100])
    usage = shutil.disk_usage("/")

    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(parcels, "open", lambda *_, **__: Full(), raising=False)
        patch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
        with pytest.raises(StoreError, match="The disk is full"):
            give(parcel, "w.bin", 100, WEIGHTS[100:200])
    assert parcels.state(parcel)["bytes"]["w.bin"] == 100
