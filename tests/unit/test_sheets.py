"""Sheets on a terminal: colours where one reads them, plain text where a file or a pipe does."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.cli import terminal_width
from core.cli.sheets import lines, print_sheet
from core.evidence.noise_check import NoiseCheckResult
from core.show.sheets import Fact, Line, Note, Sheet, models_and_machines
from core.show.table import Table, texts
from core.worker.models import inspect_model
from tests import tiny_models

SHEET = Sheet(
    "resnet\x1b[2J18",
    [
        Fact("verdict", "1.42× faster", "green"),
        Fact("", "a line of its own \x07"),
        Table(columns=texts("name", "ms"), rows=[("a", "1"), ("b", "2")], colors=["red", None]),
        Note("note: one"),
        Line("Take it away", apart=True),
    ],
)
PLAIN = [
    "resnet\\x1b[2J18",
    "  verdict       1.42× faster",
    "                a line of its own \\x07",
    "",
    "name  ms",
    "a      1",
    "b      2",
    "  note: one",
    "",
    "Take it away",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sheet], str]:
    """What a terminal gets."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def show(sheet: Sheet) -> str:
        with contextlib.redirect_stdout(Terminal()) as screen:
            print_sheet(sheet)
        return screen.getvalue()

    return show


def test_a_sheet_is_lines_with_the_control_characters_of_names_made_visible() -> None:
    assert lines(SHEET) == PLAIN


def test_a_pipe_gets_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_sheet(SHEET)
    assert capsys.readouterr().out.splitlines() == PLAIN


def test_a_terminal_gets_the_same_text_in_colours(shown: Callable[[Sheet], str]) -> None:
    text = shown(SHEET)
    assert "\x1b[32m  verdict       1.42× faster\x1b[0m" in text  # green
    assert "\x1b[31ma      1\x1b[0m" in text  # a row of its own colour
    assert "\x1b[1mname  ms\x1b[0m" in text  # a bold head
    assert "\x1b[2J" not in text
    assert "\x07" not in text


def test_who_wants_no_colours_gets_none(
    shown: Callable[[Sheet], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in shown(SHEET)


def test_every_line_of_a_row_that_wraps_has_its_colour(
    shown: Callable[[Sheet], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [("one two three four five six seven eight nine", "1")]
    with terminal_width.terminal():
        text = shown(Sheet("", [Table(columns=texts("words", "ms"), rows=rows, colors=["green"])]))
    assert text.count("\x1b[32m") == 2


def test_the_first_part_of_a_sheet_without_a_headline_stands_at_the_top() -> None:
    table = Table(columns=texts("a"), rows=[("1",)], inset=True)
    assert lines(Sheet("", [table, Fact("after", "it")])) == ["  a", "  1", "", "  after         it"]


def test_a_busy_machine_is_said_with_its_grade() -> None:
    facts: dict[str, Any] = {"publishable": False, "headline": "No.", "grade": "C", "reason": "Wide."}
    answer = NoiseCheckResult(**facts, remedy="", sigma=None, sigma_between=0.01, busy="under load", needs=())
    assert lines(models_and_machines.noise_check_sheet(answer)) == [
        "No.",
        "  grade         C",
        "  details       Wide.",
        "                Tested under load.",
        "  noise         between processes ±1 %; –",
    ]


def test_names_of_a_model_that_are_longer_than_a_screen_are_told_by_their_beginning(tmp_path: Path) -> None:
    info: Any = dict(inspect_model(str(tiny_models.mul(tmp_path / "mul.onnx"))))
    info |= {"op_counts": {"R" * 100_000: 1}, "opset": {"d" * 100_000: 1}, "producer": "p" * 100_000}
    shown = "\n".join(lines(models_and_machines.model("mul", info, "")))
    assert f"1: {'R' * 119}… 1\n" in shown
    assert len(shown) < 2_000
