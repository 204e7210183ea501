"""`report` on the command line: the file, its JSON document, and what is refused in two lines."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.cli import run
from core.store import Store
from dashboard.report.__main__ import main
from tests.documents import errors_of
from tests.recorded import recorded_store


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with recorded_store() as found:
        yield found


@pytest.fixture(autouse=True)
def recorded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(store.folder))


def test_a_file_is_written_by_a_process_of_its_own(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison, output = store.comparisons()[0].id, tmp_path / "r.html"
    price = ["--price-per-hour", "0.34", "--currency", "EUR"]
    assert run(["report", comparison[:10], "-o", str(output), *price, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert errors_of("report", document) == []
    assert (document["id"], document["output_bytes"]) == (comparison, output.stat().st_size)
    text = output.read_text(encoding="utf-8")
    assert "EUR" in text
    assert "0.34" in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nothing"], "There is no trial"),
        (["{race}", "--price-per-hour", "much"], "takes a number"),
        (["{race}", "--price-per-hour", "-1"], "price per hour"),
        (["{race}", "-o", "/nowhere/r.html"], "cannot be written"),
    ],
)
def test_what_cannot_be_is_refused(
    given: list[str], said: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = store.comparisons()[0].id
    assert run(["report", *(one.replace("{race}", comparison) for one in given)]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 2


def _write_half(path: Path, text: str, encoding: str = "") -> int:
    """Fail as a full disk does."""
    path.write_bytes(text.encode()[: len(text) // 2])
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("format_", ["md", "html"])
def test_a_write_that_fails_keeps_the_old_file(
    format_: str,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / f"r.{format_}"
    output.write_bytes(b"old")
    given = [store.comparisons()[0].id, "--output", str(output)]
    monkeypatch.setattr(Path, "write_text", _write_half)
    if format_ == "md":
        assert run(["report", *given, "--format", "md"]) == 2
    else:
        monkeypatch.setattr(sys, "argv", ["dashboard.report", *given])
        assert main() == 2
    assert "No space left on device" in capsys.readouterr().err
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(output.name, b"old")]
