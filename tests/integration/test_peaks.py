"""The job that measures peaks, on small buffers; and the commands around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.cli import run
from core.evidence.roofline import peaks_of
from core.store import Store
from core.wire.errors import WorkerError
from core.worker.measure import peaks
from tests.documents import errors_of

DATA = Path(__file__).parent.parent / "data"


def quiet(*_: Any, **__: Any) -> None:
    """No progress."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "STEP_S", 0.01)
    monkeypatch.setattr(peaks, "LEAST_SIDE", 256)
    monkeypatch.setattr(peaks, "OPERATIONS_PER_THREAD", 1 << 20)
    monkeypatch.setattr(peaks, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(peaks, "_largest_cache", lambda: None)


def test_peaks_are_raw_times_of_products_and_copies(small: None) -> None:
    reply = peaks.peaks({"threads": [1, 3]}, quiet)
    assert [one["threads"] for one in reply["times"]] == [1, 3]
    for one in reply["times"]:
        assert one["operations"] == 2 * 256**3
        assert one["moved_bytes"] == 2 * (1 << 20)
        assert len(one["product_ns"]) >= peaks.LEAST_RUNS
        assert len(one["copy_ns"]) >= peaks.LEAST_RUNS
        assert min(*one["product_ns"], *one["copy_ns"]) > 0
    for found in peaks_of(reply):
        assert 0 < found.operations.value <= found.best_operations
        assert found.operations.low is not None


def test_a_copy_reaches_every_byte(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    targets: list[Any] = []
    zeros = peaks.np.zeros
    monkeypatch.setattr(peaks.np, "zeros", lambda *args: targets.append(zeros(*args)) or targets[-1])
    peaks._copy(1000 * 8, 3)
    assert (targets[0] == 1).all()


def test_a_machine_with_too_little_memory_says_so(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks.limits, "available_memory", lambda: 3 << 20)
    with pytest.raises(WorkerError, match=r"\b1 MiB.*\b3 MiB"):
        peaks.peaks({"threads": [1]}, quiet)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    return tmp_path


def test_the_command_measures_keeps_and_prints_them(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["machine", "--peaks", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert errors_of("machine --peaks", found) == []
    kept = Store().peaks(found["fingerprint"])
    assert kept is not None
    assert kept["times"] == found["times"]
    assert found["peaks"][0]["threads"] == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["machine", "--peaks", "--self-test"], "contradict"),
        (["profile", "digits_cnn", "--import", "x.json"], "takes no model"),
        (["compare", "--import", "x.txt", "--candidate", "preset:default"], "takes no model"),
        (["profile", "--import", "/no/such.json"], "cannot be read"),
        (["compare", "--import", str(DATA / "profile_1.31.1_chain.json")], "is a profile"),
    ],
)
def test_what_cannot_be_is_one_line(
    home: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert run(argv) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_an_imported_profile_is_printed_with_its_mark(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(DATA / "profile_1.31.1_chain.json")
    assert run(["profile", "--import", file]) == 0
    said = capsys.readouterr().out
    assert "profile_1.31.1_chain.json" in said.splitlines()[0]
    assert "IMPORTED" in said
    assert run(["profile", "--import", file, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert errors_of("profile --import", document) == []
    assert document["imported"] is True


def test_an_imported_result_of_perf_test_is_printed(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.csv"
    file.write_text("".join(f"m,0.000{500 + k % 11},1,98,{k}\n" for k in range(100)))
    assert run(["compare", "--import", str(file)]) == 0
    said = capsys.readouterr().out
    assert "100 " in said
    assert "95 %" in said
    assert run(["compare", "--import", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert errors_of("compare --import", document) == []
    assert len(document["summary"]["samples_s"]) == 100
