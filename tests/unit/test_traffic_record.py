"""The record that workers of a load test share with the parent."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from core.wire import traffic_record
from core.wire.traffic_record import TrafficRecord


def test_what_one_side_writes_the_other_reads(tmp_path: Path) -> None:
    path = tmp_path / "record"
    written = traffic_record.create(path, array("q", [5, 10, 20]), [0, 1, 0])
    read = TrafficRecord(path, 3)
    read.touch()
    assert (list(read.at_ns), list(read.kind), list(read.end_ns)) == ([5, 10, 20], [0, 1, 0], [0, 0, 0])
    read.start_ns[1], read.end_ns[1], read.stream[1], read.batch[1] = 11, 19, 2, 1
    read.ticket = 2
    assert (written.start_ns[1], written.end_ns[1], written.stream[1], written.batch[1]) == (11, 19, 2, 1)
    assert (written.ticket, written.stopped, read.stopped) == (2, False, False)
    written.stop()
    assert read.stopped
    for one in (read, written):
        one.close()


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(bytes(64))
    with pytest.raises((ValueError, OSError)):
        TrafficRecord(path, 3)


def test_a_record_without_requests_can_be_mapped(tmp_path: Path) -> None:
    record = traffic_record.create(tmp_path / "record", array("q"), [])
    assert (record.requests, len(record.at_ns)) == (0, 0)
    record.close()


def test_a_record_too_large_for_memory_goes_to_the_disk(tmp_path: Path) -> None:
    assert traffic_record.folder(10**15, tmp_path) == tmp_path
