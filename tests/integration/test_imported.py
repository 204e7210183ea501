"""Imported files, read by a real worker: their content, and files that are refused with one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from core import wire
from core.process.job_worker import run_job
from core.run.importing import import_evidence
from core.store import Store
from core.store import imported as imported_store
from core.wire.errors import SpecError, StoreError
from core.wire.files import written_whole
from core.wire.profile import profile_from_dict
from core.worker.measure import imported
from core.worker.measure.imported import read_import
from tests import in_process

DATA = Path(__file__).parent.parent / "data"
RECORDED = DATA / "profile_1.31.1_chain.json"

PRINTED = """Setting intra_op_num_threads to 2
Session creation time cost: 0.0123 s
Total inference requests: 1000
Average inference time cost: 0.52 ms
Min Latency: 0.0004 s
P50 Latency: 0.00051 s
P99 Latency: 0.00092 s
P999 Latency: 0.0011 s
"""
EARLIER = """Total iterations:200
Average time cost:2.5 ms
P50 Latency is 0.0024 sec
"""


def put(folder: Path, content: str | bytes, name: str = "file.txt") -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def rows(values: list[str], model: str = "mnist") -> str:
    return "".join(f"{model},{value},45678592,98,{number}\n" for number, value in enumerate(values))


def summary(folder: Path, text: str) -> Any:
    reply = read_import(put(folder, text))
    assert reply["format"] == "onnxruntime_perf_test"
    assert reply["profile"] is None
    return reply["summary"]


def test_a_profile_of_onnx_runtime_is_read_by_a_worker() -> None:
    reply = run_job(wire.IMPORT, {"path": str(RECORDED)})
    assert reply["format"] == "onnxruntime profile"
    profile = profile_from_dict(reply["profile"] or {})
    assert profile.nodes
    assert profile.skipped_runs == 1
    assert profile.constants == ()


def test_a_chrome_trace_with_its_events_is_the_same_profile(tmp_path: Path) -> None:
    events = json.loads(RECORDED.read_text())
    noise = [{"ph": "M", "name": "process_name", "pid": 1}, {"cat": "gpu", "name": "k", "ts": 1.5, "dur": 2}]
    trace = {"displayTimeUnit": "ms", "traceEvents": [*noise, *events]}
    reply = read_import(put(tmp_path, json.dumps(trace, indent=1)))
    assert reply["format"] == "Chrome trace"
    found, direct = reply["profile"], read_import(str(RECORDED))["profile"]
    assert found is not None
    assert direct is not None
    assert found["nodes"] == direct["nodes"]


def test_what_perf_test_prints_has_no_samples(tmp_path: Path) -> None:
    found = summary(tmp_path, PRINTED)
    assert (found["samples_s"], found["runs"]) == ([], 1000)
    assert found["mean_s"] == pytest.approx(0.52e-3)
    assert found["percentiles_s"] == pytest.approx(
        {"min": 0.4e-3, "p50": 0.51e-3, "p99": 0.92e-3, "p999": 1.1e-3}
    )
    assert found["session_creation_s"] == pytest.approx(0.0123)
    earlier = summary(tmp_path, EARLIER)
    assert (earlier["runs"], earlier["mean_s"]) == (200, pytest.approx(2.5e-3))
    assert earlier["percentiles_s"] == {"p50": 0.0024}


def test_its_result_file_has_every_latency(tmp_path: Path) -> None:
    found = summary(tmp_path, rows(["0.0005", "5.2e-04", "0.00054"]))
    assert found["samples_s"] == pytest.approx([0.5e-3, 0.52e-3, 0.54e-3])
    assert (found["model"], found["runs"]) == ("mnist", 3)
    assert found["mean_s"] == pytest.approx(0.52e-3)
    whole = summary(tmp_path, rows(["500000", "520000"]))  # of earlier versions
    assert whole["samples_s"] == pytest.approx([0.5e-3, 0.52e-3])
    assert len(whole["notes"]) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("   \n", "is empty"),
        ("Hello, world.", "holds no result of onnxruntime_perf_test"),
        (b"\x08\x07\xff\xfe\x00", "neither JSON nor text"),
        ('{"a": 1}', "no trace in Chrome's format"),
        ('{"traceEvents": []}', "no event of a node"),
        ('{"traceEvents": [{"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]}', "no event of a node"),
        ('[{"cat": "Session", "name": "model_run", "ts": 0, "dur": 5}]', "no event of a node"),
        ('[{"name": "x_kernel_time", "cat": "Node", "ts": "no', "ends mid-way"),
        ('[{"name": "x_kernel_time", "cat": "Node", "ts": 0, "dur": 1}]', "no complete run"),
        ("[" * 100_000 + "_kernel_time", "The file"),
        ("{" + '"a":[' * 100_000, "no trace in Chrome's format"),
        (rows(["0", "0.1"]), "zero, or longer than a day"),
        (rows(["90000.5", "1.5"]), "zero, or longer than a day"),
        (rows(["0.1"]) + rows(["0.2"]), "several calls"),
        (rows(["0.1"]) + rows(["0.2"], model="other"), "several calls"),
        ("P50 Latency: 1.2.3 s", "is no number"),
        ("Average inference time cost: 0 ms", "zero, or longer than a day"),
        ("Average inference time cost: 1e300 s", "zero, or longer than a day"),
        (re.sub(r'("Node".*?"dur" :)', r"\1-", RECORDED.read_text()), "below zero"),
    ],
)
def test_what_is_none_of_these_is_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        read_import(put(tmp_path, content))
    assert refused.value.hint
    assert len(refused.value.message) < 500


def test_a_file_that_is_too_large_or_no_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported, "MOST_IMPORT_BYTES", 1 << 20)
    with pytest.raises(SpecError, match="MiB"):
        read_import(put(tmp_path, b" " * ((1 << 20) + 1)))
    for path, message in (("/dev/zero", "a device"), (str(tmp_path / "no"), "No such file")):
        with pytest.raises(SpecError, match=message):
            read_import(path)


def test_what_was_imported_is_kept_apart_from_trials(tmp_path: Path) -> None:
    store = Store(tmp_path / "ortune.db")
    one = import_evidence(store, RECORDED, in_process.run, wanted="profile")
    assert one.label.startswith("imported: ")
    assert [found.id for found in store.shelf.all("profile")] == [one.id]
    assert store.shelf.all("summary") == []
    assert profile_from_dict(store.shelf.data(one.id)).nodes
    assert store.trials() == []  # in no list, so in no verdict
    again = import_evidence(store, RECORDED, in_process.run, wanted="profile")
    assert [found.id for found in store.shelf.all()] == [again.id]  # the same file is there once
    store.shelf.delete(again.id)
    with pytest.raises(StoreError, match="id"):
        store.shelf.get(again.id)
    with pytest.raises(StoreError):
        store.shelf.get("../../etc/passwd")


def test_the_other_kind_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    store = Store(tmp_path / "ortune.db")
    kept = import_evidence(store, RECORDED, in_process.run, wanted="profile")
    with pytest.raises(SpecError, match="profile") as refused:
        import_evidence(store, RECORDED, in_process.run, wanted="summary")
    assert "--import" in refused.value.hint
    assert [one.id for one in store.shelf.all()] == [kept.id]


def test_a_damaged_import_is_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "ortune.db")
    one = import_evidence(store, RECORDED, in_process.run, wanted="profile")
    (store.shelf.folder / f"{one.id}.data").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        store.shelf.data(one.id)
    (store.shelf.folder / f"{one.id}.json").write_text("{}")
    assert store.shelf.all() == []


def test_what_cannot_be_kept_leaves_nothing(tmp_path: Path) -> None:
    shelf = Store(tmp_path / "ortune.db").shelf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            imported_store, "written_whole", lambda path, **_: written_whole(tmp_path / "no" / path.name)
        )
        with pytest.raises(StoreError):
            import_evidence(Store(tmp_path / "ortune.db"), RECORDED, in_process.run, wanted="profile")
    assert list(shelf.folder.iterdir()) == []
