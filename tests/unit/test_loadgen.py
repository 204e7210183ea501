"""What a test of LoadGen is asked for, and what its log says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.evidence.load.loadgen_result import LABEL, sentence, verdict
from core.run.load.loadgen import LoadGenTest, loadgen_plan
from core.show.sheets import Fact, Note
from core.show.sheets.loadgen import loadgen_sheet
from core.show.table import Table
from core.wire.errors import SpecError, WorkerError
from core.worker.measure import loadgen
from core.worker.measure.loadgen import judged, read_log

CONFIGURATION: Any = {"engine": "onnxruntime"}

LOG: dict[str, Any] = {
    "loadgen_version": "6.0.17 @ d6147c7eb7",
    "effective_scenario": "Server",
    "effective_target_qps": 200,
    "generated_samples_per_query": 1,
    "result_validity": "INVALID",
    "result_perf_constraints_met": False,
    "result_min_duration_met": True,
    "result_min_queries_met": True,
    "early_stopping_met": False,
    "result_invalid_reason": "Reduce target QPS to improve latency. ",
    "early_stopping_result": " * Run unsuccessful.  * Processed 190 queries.",
    "result_query_count": 190,
    "result_overlatency_query_count": 7,
    "num_errors": 0,
    **{f"result_{one}_latency_ns": ns for one, ns in (("min", 1e6), ("mean", 3e6), ("max", 9e6))},
    **{
        f"result_{one}_percentile_latency_ns": 10**6 * number
        for number, one in enumerate(("50.00", "90.00", "95.00", "97.00", "99.00", "99.90"), 1)
    },
}


def lines(log: dict[str, Any]) -> list[str]:
    return [
        f":::MLLOG {json.dumps({'key': key, 'value': value, 'metadata': {}})}" for key, value in log.items()
    ]


def test_a_log_is_read_line_by_line() -> None:
    broken = ':::MLLOG {"key": "loadgen_file_sha1", "value": '
    text = ["a line of something else", broken, ':::MLLOG {"key": "note", "value": "a\tb"}', *lines(LOG)]
    assert read_log(text) == {"note": "a\tb", **LOG}


def test_the_verdict_is_loadgens() -> None:
    found = judged(LOG, "Server")
    assert (found["valid"], found["limit_met"], found["early_stopping_met"]) == (False, False, False)
    assert found["reasons"] == [
        "Reduce target QPS to improve latency.",
        "Run unsuccessful. Processed 190 queries.",
    ]
    assert found["latency_s"] == pytest.approx(
        {
            "min": 1e-3,
            "mean": 3e-3,
            "max": 9e-3,
            "p50": 1e-3,
            "p90": 2e-3,
            "p95": 3e-3,
            "p97": 4e-3,
            "p99": 5e-3,
        }
        | {"p99.9": 6e-3}
    )
    assert (found["queries"], found["inferences"], found["over_limit"]) == (190, 190, 7)
    assert (found["version"], found["settings"]) == ("6.0.17", {"scenario": "Server", "target_qps": 200})


def test_a_valid_run_needs_no_reason() -> None:
    valid = {**LOG, "result_validity": "VALID", "early_stopping_met": True}
    assert judged(valid, "Server")["reasons"] == []


def reply(scenario: str = "Server", **changes: Any) -> Any:
    """The reply of a worker, from the log above."""
    rest = {"scenario": scenario, "batch_size": 4, "samples_per_s": 123.4, "seconds": 2.5, "notes": []}
    used = {"fallback": False, "fallback_reason": ""}
    found = judged(LOG, "Server")
    settings = {"target_qps": 200, "target_latency_ns": 2e7, "target_latency_percentile": 0.99}
    return {**found, **rest, **used, "settings": settings, **changes}


VALID = reply("Offline", valid=True, reasons=[], limit_met=None)


def test_the_verdict_on_several_tests_is_that_of_the_worst() -> None:
    assert verdict([VALID, VALID]) == "PASS"
    assert verdict([VALID, reply(limit_met=None)]) == "UNDECIDED"
    assert verdict([reply(limit_met=None), reply()]) == "FAIL"


def test_the_words_say_that_it_is_unofficial() -> None:
    assert sentence([VALID]) == f"{LABEL}: LoadGen 6.0.17 calls the scenario Offline valid."
    assert sentence([reply()]).endswith("calls the scenario Server invalid.")
    assert sentence([VALID, VALID]).endswith("calls all 2 scenarios valid.")
    assert sentence([VALID, reply()]).endswith("calls 1 of 2 scenarios invalid (Server).")


def test_the_sheet_shows_numbers_reasons_and_the_label() -> None:
    tests = [VALID, reply(notes=["A note."])]
    result: Any = {"label": LABEL, "model": "m.onnx", "words": sentence(tests), "tests": tests}
    sheet = loadgen_sheet(result)
    assert sheet.headline.startswith(LABEL)
    facts = {one.name: one for one in sheet.parts if isinstance(one, Fact)}
    assert facts["cross-check"].text == LABEL
    assert facts["Server"].text == "200 queries/s, p99 ≤ 20 ms"
    assert (facts["above the limit"].text, facts["above the limit"].color) == (
        "7 of 190 queries (3.7 %)",
        "red",
    )
    (table,) = [one for one in sheet.parts if isinstance(one, Table)]
    assert [list(row) for row in table.rows] == [
        ["Offline", "yes", None, None, None, 190, 123.4, 2.5],
        ["Server", "no", 1e-3, 2e-3, 5e-3, 190, 123.4, 2.5],
    ]
    notes = [one.text for one in sheet.parts if isinstance(one, Note)]
    assert notes[:3] == [
        "Server is invalid: Reduce target QPS to improve latency.",
        "Server is invalid: Run unsuccessful. Processed 190 queries.",
        "note: A note.",
    ]


def test_a_query_of_multistream_is_not_one_inference() -> None:
    per_query = {
        name.replace("percentile_", "percentile_per_query_"): 8 * value
        for name, value in LOG.items()
        if "percentile" in name
    }
    whole = {
        f"result_{one}_query_latency_ns": LOG[f"result_{one}_latency_ns"] * 8
        for one in ("min", "mean", "max")
    }
    found = judged({**LOG, **per_query, **whole, "generated_samples_per_query": 8}, "MultiStream")
    assert found["inferences"] == 8 * 190
    assert (found["latency_s"]["p99"], found["latency_s"]["max"]) == pytest.approx((0.04, 0.072))


def test_a_log_without_a_verdict_is_an_error() -> None:
    with pytest.raises(WorkerError, match="ended without a result"):
        judged({"loadgen_version": "6"}, "Server")


def test_a_long_test_of_short_inferences_is_shortened_to_what_memory_holds() -> None:
    assert loadgen._affordable(60, 1e-3) == (60, [])
    duration_s, notes = loadgen._affordable(60, 10e-6)
    assert duration_s == pytest.approx(5)
    assert notes == [
        "LoadGen prepares all queries before the test. The duration is 5 s instead of 60 s, so that at most "
        "1,000,000 queries are prepared."
    ]


def plan(**test: Any) -> Any:
    return loadgen_plan(CONFIGURATION, LoadGenTest(**{"scenario": "Server", "duration_s": 2.0, **test}))


def test_a_plan_holds_what_its_scenario_needs() -> None:
    found = plan(rate=50.0, limit_s=0.02)
    assert (found["rate"], found["limit_s"], found["percentile"], found["samples_per_query"]) == (
        50,
        0.02,
        0.99,
        1,
    )
    assert found["timeout_s"] > 2 * found["duration_s"]
    closed = plan(scenario="SingleStream", rate=50.0)
    assert (closed["rate"], closed["percentile"]) == (0, 0.9)
    assert plan(scenario="MultiStream", percentile=0.95)["percentile"] == 0.95
    assert plan(scenario="MultiStream")["samples_per_query"] == 8


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"scenario": "server"}, "must be one of SingleStream, .*Did you mean `Server`"),
        ({"limit_s": 0.02}, "needs a rate"),
        ({"rate": 5.0}, "needs a latency limit"),
        ({"rate": 0.0, "limit_s": 0.02}, r"rate per second must be 0\.001 to 1,000,000, but got 0"),
        ({"scenario": "Offline", "duration_s": float("nan")}, "duration in seconds .* but got nan"),
        (
            {"scenario": "Offline", "percentile": 99.0},
            r"percentile, as a share, must be 0\.5 to 0\.9999, but got 99",
        ),
        ({"scenario": "Offline", "streams": 0}, "number of streams must be 1 to 256, but got 0"),
    ],
)
def test_what_cannot_be_done_is_refused(test: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        plan(**test)


def test_another_engine_is_refused() -> None:
    with pytest.raises(SpecError, match="`torch-eager` cannot take settings of ONNX Runtime, and LoadGen"):
        loadgen_plan(
            {**CONFIGURATION, "engine": "torch-eager"}, LoadGenTest(scenario="Offline", duration_s=1.0)
        )
