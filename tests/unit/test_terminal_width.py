"""Tables of the command line in the width they have, and as CSV and Markdown."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest

from core.cli import terminal_width
from core.cli.sheets import lines
from core.evidence.comparison import DEFAULT_LABEL, Comparison, Contestant
from core.evidence.evaluations import Evaluation
from core.evidence.measurement import Trial
from core.run.sweep import Measured
from core.show.setting_chips import short_words
from core.show.sheets import Fact, Sheet, comparisons, history, searches, sweeps
from core.show.table import Column, Table, csv_text, md_text, tabulate, texts
from core.store import StudyRecord
from tests import builders

LONG = "/encoder/layer.11/attention/self/query/MatMul_output_0_quantized_with_a_name_that_does_not_end"

NODES = [(LONG, "MatMul", "1.5"), ("b", "Add", "0.1")]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "80")
    with terminal_width.terminal():
        yield


def trial(name: str = "0123456789abcdef", **changes: Any) -> Trial:
    facts: dict[str, Any] = {
        "model_name": "=cmd|' /C calc'!A0",
        "created_at": 1.0,
        "result": {
            "latency": {"p50_s": 1.23456789, "p50_s_low": 1.2, "p50_s_high": 1.3},
            "throughput_per_s": 12345.678,
            "batch_size": 8,
            "grade": "B",
            "effective_providers": ["CPUExecutionProvider"],
        },
    }
    return builders.trial(name, builders.spec(session={"intra_op_num_threads": 1}), **(facts | changes))


FAILED = {"type": "WorkerError", "message": "It crashed | with a long story of why it did so.", "hint": ""}


def comparison(*, against: str = "b" * 16, **changes: Any) -> Comparison:
    one, other = "0123456789abcdef", "b" * 16
    judged = {"ratio_low": 1.4, "ratio_high": 1.6, "outputs_differ": False, "contradicted": False, **changes}
    return builders.comparison(
        {},
        contestants=(
            Contestant(trial=one, label=f"{LONG}.yaml", role="candidate"),
            Contestant(trial=other, label="preset:default", role="baseline"),
            *([Contestant(trial=against, label="ORT default", role="anchor")] if against != other else []),
        ),
        result={
            "ranks": [{"trial": one, "rank": 1, "ties": []}, {"trial": against, "rank": 2, "ties": []}],
            "contrasts": [builders.contrast(1.5, candidate=one, baseline=against, **judged)],
            **{"grade": "A", "grade_reason": "Quiet.", "remedy": "", "notes": []},
            **{"rounds": 30, "wall_s": 3.0, "generations": []},
        },
    )


def points() -> list[Measured]:
    values = {f"a_dimension_with_a_name_{n}": 128 for n in range(3)}
    latency = {"p50_s": 1.0, "p50_s_low": 0.9, "p50_s_high": 1.1, "p95_s": 1.2}
    one = builders.point(values, trial="t" * 16, latency=latency)
    return [one, Measured(values=values, trial="u" * 16, state="FAIL", reused=False, error="It crashed.")]


def tables() -> dict[str, list[str]]:
    other = trial("b" * 16, state="FAIL", result=None, error=FAILED)
    return {
        "history": lines(Sheet("", [history.table([trial(), other])])),
        "compare": lines(Sheet("", [comparisons.configurations(comparison(), [trial(), other])])),
        "sweep": lines(Sheet("", [sweeps.points(points())])),
        "nodes": lines(Sheet("", [Table(columns=texts("node", "operator", "ms", left=2), rows=NODES)])),
    }


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name", ["history", "compare", "sweep", "nodes"])
def test_a_table_fits_80_characters(name: str) -> None:
    assert max(map(len, tables()[name])) <= 80


def test_a_comparison_says_first_which_configuration_is_fastest() -> None:
    said = lines(comparisons.comparison_sheet(comparison(), [trial(), trial("b" * 16)]))[1]
    assert (
        said == f"  {LONG}.yaml is the fastest; against preset:default: 1.50× faster, 95 % CI [1.40, 1.60]."
    )


def test_where_the_baseline_failed_the_verdicts_are_those_against_the_default() -> None:
    default = "c" * 16
    lost = trial("b" * 16, state="FAIL", result=None, error=FAILED)
    said = lines(comparisons.comparison_sheet(comparison(against=default), [trial(), lost, trial(default)]))
    row = next(line for line in said if line.startswith("1 "))
    assert "1.50× faster" in row
    assert DEFAULT_LABEL in said[1]


def test_what_was_rejected_has_no_rank_and_is_said_to_be_no_verdict() -> None:
    found = comparison(verdict="UNDECIDED", grade="F", holds=False, holds_reason="Two copies differed.")
    said = "\n".join(lines(comparisons.comparison_sheet(found, [trial(), trial("b" * 16)])))
    assert any("1.40×" in line and "1.60×" in line for line in said.splitlines())
    assert not any(line.startswith("1 ") for line in said.splitlines())
    assert "faster" not in said


def test_without_a_terminal_to_fit_everything_is_there() -> None:
    found = tables()
    assert LONG in found["nodes"][1]
    assert "It crashed | with a long story of why it did so." in "\n".join(found["history"])
    assert "Left out" not in "".join(line for one in found.values() for line in one)


@pytest.mark.usefixtures("narrow")
def test_what_is_wrapped_is_all_there_and_what_is_left_out_is_named() -> None:
    found = tables()
    assert "".join(line.split("  ")[0].strip() for line in found["nodes"][1:3]) == LONG
    assert "memory" in " ".join(found["compare"][-2:])
    head = found["history"][0]
    for word in ("trial", "when", "model", "grade", "changed", "p50 ms", "remark"):
        assert word in head
    assert "threads 1" in found["history"][1]
    assert "--wide" in " ".join(found["history"])


@pytest.mark.usefixtures("narrow")
def test_wide_lifts_the_limit_for_this_run() -> None:
    assert terminal_width.widen(True)
    assert LONG in tables()["nodes"][1]


def test_the_width_is_80_where_nobody_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.__stdout__", io.StringIO())
    with terminal_width.terminal():
        assert max(map(len, tables()["history"])) <= 80
        assert LONG not in tables()["nodes"][1]


SETTINGS: dict[str, Any] = {
    "graph_optimization_level": "ORT_ENABLE_EXTENDED",
    "execution_mode": "ORT_PARALLEL",
    "intra_op_num_threads": 4,
    "session.intra_op.allow_spinning": False,
    "enable_cpu_mem_arena": False,
}
SHORT = ["graph EXTENDED", "mode PARALLEL", "threads 4", "spinning off", "arena off"]


@pytest.mark.usefixtures("narrow")
def test_a_history_is_one_line_a_trial_and_no_name_in_it_is_broken() -> None:
    spec = builders.spec(session={"intra_op_num_threads": 4, "graph_optimization_level": "ORT_ENABLE_BASIC"})
    ended = trial("a" * 16, state="FAIL", result=None, error=FAILED, model_name="tiny_transformer")
    trials = [*(builders.trial(f"{n:016x}", spec, model_name="tiny_transformer") for n in range(19)), ended]
    shown = lines(Sheet("", [history.table(trials)]))
    assert len(shown) <= len(trials) + 3  # the head and what is left out
    assert max(map(len, shown)) <= 80
    assert sum("tiny_transformer" in line and "graph BASIC, …" in line for line in shown) == 19
    assert "FAIL" in shown[20]


@pytest.mark.usefixtures("narrow")
def test_no_table_of_a_search_breaks_a_setting_or_is_wider_than_its_terminal() -> None:
    changes = {**SETTINGS, "session.use_device_allocator_for_initializers": "1"}
    found = StudyRecord(
        **{"id": "s" * 12, "state": "COMPLETE", "question": {}, "spec": builders.spec().to_dict()},
        **{"model_name": "m", "model_sha256": "sha", "created_at": 1.0, "answer": None, "wall_s": 1.0},
        tried=[Evaluation(changes=one, key=str(one), looks=()).to_dict() for one in ({}, changes)],
    )
    shown = lines(Sheet("", [searches.evaluation_table(found)]))
    assert max(map(len, shown)) <= 80
    for one in [*SHORT, "ONNX Runtime's default", "use_device_allocator_for_initializers"]:
        assert any(one in line for line in shown), one
    wide = "".join(csv_text(searches.evaluation_table(found)))
    assert all(
        name.removeprefix("session.") in wide for name in changes if not name.endswith(("level", "mode"))
    )


@pytest.mark.parametrize("width", [16, 30, 60])
def test_settings_are_broken_at_commas(width: int) -> None:
    shown = terminal_width.fold(short_words(SETTINGS), width)
    assert max(map(len, shown)) <= width
    assert [one.strip() for line in shown for one in line.split(",") if one.strip()] == SHORT


def test_a_line_is_wrapped_for_a_reader_and_a_command_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "`python -m core tune m.onnx --dim height=320 --dim width=320`"
    said = Sheet(
        "A headline of a model",
        [Fact("hint", f"It has free dimensions of which nobody said a size: {command}.")],
    )
    monkeypatch.setenv("COLUMNS", "80")
    with terminal_width.terminal():
        shown = lines(said)
    assert max(map(len, shown)) <= 80
    assert [line.index(command) for line in shown if command in line] == [16]
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("sys.stdout", io.StringIO())  # a pipe: each sentence stays on one line
    with terminal_width.terminal():
        assert len(lines(said)) == 2


# --- for other programs -----------------------------------------------------------------------------------


def test_csv_has_numbers_in_full_with_their_units_and_no_formula() -> None:
    (row, lost) = csv.DictReader(
        io.StringIO(csv_text(history.table([trial(), trial("b" * 16, result=None, error=FAILED)])))
    )
    assert (row["p50_ms"], row["p50_ms_low"], row["rows_per_s"]) == ("1234.56789", "1200.0", "12345.678")
    assert (row["grade"], row["changed"], row["batch_size"]) == ("B", "intra_op_num_threads=1", "8")
    assert row["model"] == "'=cmd|' /C calc'!A0"
    assert lost["error"].startswith("It crashed")
    assert lost["p50_ms"] == ""
    assert csv_text(history.table([])) == ""
    (first, second) = csv.DictReader(
        io.StringIO(csv_text(comparisons.configurations(comparison(), [trial()])))
    )
    assert (first["rank"], first["ratio_low"], first["verdict"], first["state"]) == (
        *("1", "1.4", "FASTER", "COMPLETE"),
    )
    assert (second["role"], second["state"]) == ("baseline", "deleted")
    (point, failed) = csv.DictReader(io.StringIO(csv_text(sweeps.points(points()))))
    assert (point["a_dimension_with_a_name_0"], point["p95_ms"]) == ("128", "1200.0")
    assert (failed["state"], failed["error"]) == ("FAIL", "It crashed.")


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+cmd", "-cmd|' /C calc'!A0", "@SUM(A1)", " =1+1", "\uff1d1+1", "\uff20x", "-1+cmd", "+1;2"],
)
def test_a_spreadsheet_evaluates_no_foreign_text(text: str) -> None:
    """Neither in a cell nor in a head: a sweep has columns named after a model's dimensions."""
    table = Table(columns=[Column(text, key=text), Column("b", "number", key="b")], rows=[(text, text)])
    assert list(csv.reader(io.StringIO(csv_text(table)))) == [[f"'{text}", "b"], [f"'{text}", f"'{text}"]]


@pytest.mark.parametrize("value", [-0.5, "-0.5", "+3.2 %", "-1e-3", "+1,024", "+0.5 ms", "a=b", "", "1-2"])
def test_a_number_with_its_sign_is_no_formula(value: Any) -> None:
    table = Table(columns=[Column("a", "number", key="a"), Column("b", key="b")], rows=[(value, 1)])
    assert list(csv.reader(io.StringIO(csv_text(table))))[1] == [str(value), "1"]


def test_markdown_of_a_table_has_no_foreign_markup() -> None:
    nasty = (
        "![x](http://x.example/p.png) [a](http://b) @user #12 `c` $d$ <img src=x> :tada: www.x.example GH-1"
    )
    text = md_text(Table(columns=[Column(nasty)], rows=[(nasty,), ("- a",)]))
    assert "](" not in text.replace("\\]", "")
    assert not re.search(r"@user|#12|(?<!\\)`|\$d|<img|:tada:|://|www\.|GH-1", text)
    assert text.endswith("| \\- a |")


def test_markdown_has_every_column_and_no_stray_bar() -> None:
    text = md_text(history.table([trial(result=None, error=FAILED)]))
    head, rule, row = text.splitlines()
    columns = head.count("|")
    assert rule.count("---") == columns - 1
    assert row.replace("\\|", "").count("|") == columns
    assert md_text(comparisons.configurations(comparison(), [trial()])).count("\n") == 3


def test_a_file_works_out_its_own_columns_only() -> None:
    asked: list[str] = []

    def cell(name: str) -> Any:
        return lambda one: asked.append(name) or one

    table = tabulate([1, 2], (Column("a", key="a", on="none"), cell("file")), (Column("b"), cell("screens")))
    assert csv_text(table) == "a\n1\n2"
    assert set(asked) == {"file"}
    assert md_text(table).count("\n") == 3
    assert asked.count("screens") == 2  # once for each row


@pytest.mark.parametrize(
    ("width", "left"),
    [
        (28, "outputs differ; busy machine"),
        (18, "outputs differ; …"),
        (16, "outputs differ …"),
        (15, "outputs …"),
    ],
)
def test_a_line_is_cut_behind_a_whole_word_and_not_for_its_comma(width: int, left: str) -> None:
    assert terminal_width._cut("outputs differ; busy machine", width) == left
