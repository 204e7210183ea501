"""A stored search as it is told: settings as differences from what its ratios are to, reasons of failures."""

from __future__ import annotations

from typing import Any

from core.evidence.evaluations import Evaluation, Observation
from core.run.search.stored import answer_of, evaluations_of, failures
from core.show import documents
from core.show.sheets import searches
from core.show.sheets.searches import search_sheet
from core.show.table import md_text
from core.spec import TrialSpec
from core.store import StudyRecord
from tests import builders
from tests.views.sample_results import confirmed_one, search_answer

START = builders.spec(
    session={"graph_optimization_level": "ORT_ENABLE_BASIC", "intra_op_num_threads": 1},
    workload={"use_io_binding": True},
)
WINNER = {"use_io_binding": False}  # what it changes of the start
WHOLE = {"graph_optimization_level": "ORT_ENABLE_BASIC", "intra_op_num_threads": 1}
WORDS = "graph BASIC, threads 1"
FULL = "graph_optimization_level ORT_ENABLE_BASIC, intra_op_num_threads 1, use_io_binding"


def look(**how: Any) -> Observation:
    return Observation(stage="screen", race="r", trial="t", gains={"latency_p50": (0.2, 0.01)}, **how)


def tried(changes: dict[str, Any], **how: Any) -> Evaluation:
    return Evaluation(changes=changes, key=str(changes), looks=(look(**how),))


def record(default: TrialSpec | None = None, **changes: Any) -> StudyRecord:
    answer = search_answer("FOUND", "w", "d")
    answer["winner"] |= {"changes": WINNER}
    answer["front"][0] |= {"changes": WINNER}
    answer["default"] |= {"spec": {} if default is None else default.to_dict()}
    facts: dict[str, Any] = {
        "id": "aaaaaa000001",
        "state": "COMPLETE",
        "question": {},
        "spec": START.to_dict(),
        "model_name": "m",
        "model_sha256": "sha",
        "created_at": 1000.0,
        "tried": [one.to_dict() for one in (tried({}), tried(WINNER))],
        "answer": answer | {"others": [confirmed_one("o", 1.1, "FASTER", changes={})]},
    }
    return StudyRecord(**(facts | changes))


def test_an_answer_lists_all_that_differs_from_the_default_and_nothing_that_is_the_default() -> None:
    found = answer_of(record())
    assert found is not None
    assert found["winner"] is not None
    assert found["default"] is not None
    assert found["winner"]["changes"] == found["front"][0]["changes"] == WHOLE
    assert found["others"][0]["changes"] == WHOLE | {"use_io_binding": True}
    assert found["default"]["changes"] == {}
    assert [one.changes for one in evaluations_of(record())] == [WHOLE | {"use_io_binding": True}, WHOLE]


def test_terminal_markdown_and_json_say_the_same_settings() -> None:
    facts = {one.name: one.text for one in search_sheet(record()).parts if hasattr(one, "name")}
    assert facts["changed"] == WORDS
    table = md_text(searches.evaluation_table(record()))
    assert f"{FULL} on" in table
    assert f"{FULL} off" not in table
    document = documents.search(record())
    assert document["winner"]["changes"] == WHOLE
    assert [one["changes"] for one in document["trials"]] == [WHOLE | {"use_io_binding": True}, WHOLE]


def test_an_older_answer_is_told_against_the_default_that_it_was_measured_against() -> None:
    """That default was bound, as the start was."""
    bound = builders.spec(workload={"use_io_binding": True})
    found = answer_of(record(bound))
    assert found is not None
    assert found["winner"] is not None
    assert found["winner"]["changes"] == WHOLE | {"use_io_binding": False}


def test_a_start_that_cannot_be_read_leaves_the_answer_as_it_was() -> None:
    found = answer_of(record(spec={"model": {"path": "m.onnx"}, "unheard": 1}))
    assert found is not None
    assert found["winner"] is not None
    assert found["winner"]["changes"] == WINNER


# --- why configurations failed ------------------------------------------------------------------------------


def test_failures_are_counted_by_reason_with_what_explains_them() -> None:
    rank = "Invalid rank for output: y Got: {} Expected: 2."
    found = failures(
        [
            tried({"use_io_binding": True, "intra_op_num_threads": 1}, error=rank.format(1)),
            tried({"use_io_binding": True, "intra_op_num_threads": 2}, error=rank.format(3)),
            tried({"use_io_binding": True}, error=rank.format(1)),
            tried({"enable_mem_reuse": False}, error="It ran out of memory."),
            tried({"intra_op_num_threads": 1}),
            tried({"enable_mem_reuse": False, "intra_op_num_threads": 2}),
        ]
    )
    assert found == [
        {"count": 3, "reason": rank.format(1), "settings": {"use_io_binding": True}},
        {"count": 1, "reason": "It ran out of memory.", "settings": {}},
    ]
    assert [searches.failure_words(one) for one in found] == [
        "3 failed: Invalid rank for output: y Got: 1 Expected: 2, all with io_binding on",
        "1 failed: It ran out of memory",
    ]


def test_the_reasons_stand_in_the_first_lines_and_in_json() -> None:
    failed = tried({"use_io_binding": True, "enable_mem_reuse": False}, error="Invalid rank for output.")
    one = record(tried=[failed.to_dict(), tried(WINNER).to_dict()])
    said = "1 failed: Invalid rank for output, with mem_reuse off, io_binding on"
    notes = [part.text for part in search_sheet(one).parts[:3] if hasattr(part, "text")]
    assert said in notes
    assert documents.search(one)["failures"][0]["count"] == 1
