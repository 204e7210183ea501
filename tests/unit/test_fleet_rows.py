"""Rows of another store: complete, checked, marked with their origin, and harmless when they come twice."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from core.evidence.measurement import Trial
from core.store import Store
from core.store.transfer import Origin, StoredRows
from core.wire.errors import StoreError

ORIGIN = Origin(owner="fleet host a", paths={"/there/m.onnx": "/here/m.onnx"})


def trial(number: int) -> Trial:
    return Trial(
        id=f"trial{number:04}",
        kind="measure",
        state="COMPLETE",
        spec={"model": {"path": "/there/m.onnx", "sha256": "ab"}, "workload": {"batch_size": 2}},
        model_name="m",
        model_sha256="cd",
        key=f"key{number}",
        created_at=float(number),
        owner="user on there",
        result={"latencies_s": [0.1, 0.2], "runs": 2},  # type: ignore[typeddict-unknown-key]
    )


@pytest.fixture
def there(tmp_path: Path) -> Store:
    """A store with two trials of one process, and one of another."""
    store = Store(tmp_path / "there.db")
    for number, process in enumerate(["p", "p", "other"]):
        store.create_trial(trial(number), process=process)
    return store


def test_rows_of_one_process_arrive_with_their_raw_measurements(there: Store, tmp_path: Path) -> None:
    here = Store(tmp_path / "here.db")
    found = StoredRows.unpacked(there.rows_of("p").packed())
    assert found.ids()["trials"] == ["trial0000", "trial0001"]
    assert here.adopt(found, ORIGIN) == 2
    read = here.trial("trial0001")
    assert read.owner == "fleet host a"
    assert read.spec == {"model": {"path": "/here/m.onnx", "sha256": "ab"}, "workload": {"batch_size": 2}}
    assert read.facts["latencies_s"] == [0.1, 0.2]
    original = there.trial("trial0001")
    assert dataclasses.replace(read, owner="", spec={}) == dataclasses.replace(original, owner="", spec={})
    assert here.check().damaged == 0


def test_rows_that_come_twice_change_nothing(there: Store, tmp_path: Path) -> None:
    here = Store(tmp_path / "here.db")
    here.adopt(there.rows_of("p"), ORIGIN)
    here.update_trial("trial0000", model_name="renamed")
    assert here.adopt(there.rows_of("p"), ORIGIN) == 0
    assert here.trial("trial0000").model_name == "renamed"


def test_the_own_store_keeps_its_rows(there: Store) -> None:
    assert there.adopt(there.rows_of("p"), ORIGIN) == 0
    assert there.trial("trial0000").owner == "user on there"


@pytest.mark.parametrize(("table", "column"), [("trials", "result"), ("samples", "data")])
def test_a_row_that_changed_on_the_way_is_refused_with_all_others(
    there: Store, tmp_path: Path, table: str, column: str
) -> None:
    here = Store(tmp_path / "here.db")
    found = there.rows_of("p")
    value = found.tables[table][1][column]
    found.tables[table][1][column] = value[:-1] + (b"\x00" if isinstance(value, bytes) else " }")
    with pytest.raises(StoreError, match="arrived damaged"):
        here.adopt(found, ORIGIN)
    assert here.trials() == []


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x81\xa1a\x01"])
def test_bytes_that_are_no_rows_are_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        StoredRows.unpacked(data)
