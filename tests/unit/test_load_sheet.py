"""A load test as text: answer, tables, exit codes, list, report and document, from results of known truth."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from core.api.history import history
from core.api.results import Result
from core.api.session import Session
from core.api.stored import load_result
from core.cli import sheets, watch
from core.evidence.load import batching
from core.evidence.load.load_types import LoadResult
from core.evidence.measurement import Trial
from core.run.job import Status
from core.show import load_text
from core.show.report.compose import compose
from core.show.report.markdown import markdown
from core.show.report.subjects import AboutLoad, find
from core.show.sheets import Fact, loads
from core.show.table import Table, column_of, frame_columns
from core.show.verdict import trial_verdict
from core.spec.load import load_from_dict, parse_load_limit
from core.store import Store
from tests import builders
from tests.documents import errors_of
from tests.simulated_load import sample_load_result, sample_point, sample_run

QUESTIONS = ("traffic", "limit", "batching", "together")


def trial_of(result: LoadResult | None, **fields: Any) -> Trial:
    facts: Any = None if result is None else {"load": result, "notes": [], "seed": 0}
    return builders.trial("a" * 16, builders.spec(), kind="load", result=facts, **fields)


def facts_of(result: LoadResult) -> dict[str, str]:
    return {one.name: one.text for one in loads.load_sheet(trial_of(result)).parts if isinstance(one, Fact)}


def points_of(result: LoadResult) -> dict[str, list[Any]]:
    table = loads.points(result)
    return {one.key: column_of(table, one.name) for one in table.columns if one.key}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_headline_is_the_answer_and_every_table_has_rows(question: str) -> None:
    result = sample_load_result(question)
    sheet = loads.load_sheet(trial_of(result))
    assert sheet.headline == result["words"]
    tables = [part for part in sheet.parts if isinstance(part, Table)]
    wanted = {"traffic": 2, "limit": 2, "batching": 3, "together": 2}[question]  # points and the answer's own
    assert len(tables) == wanted
    assert all(table.rows for table in tables)
    assert "\n".join(sheets.lines(sheet)).startswith(result["words"])


def test_a_limit_is_judged_in_a_sentence_with_its_numbers() -> None:
    result = sample_load_result("batching")
    point = result["points"][0]
    assert load_text.limit_sentence(point["limits"][0], point) == (
        "Passed: at 200 requests/s, p99 is 15.4 ms (95 % CI [13.8, 17.5]), limit 20 ms; 0.25 % of 6,000 "
        "requests were slower (at most 0.43 %, 95 % confidence; 1 % allowed)."
    )
    failed = sample_point(sample_run(300), 0)
    assert load_text.limit_sentence(failed["limits"][0], failed) == (
        "Failed: at 300 requests/s, p99 is 23.0 ms (95 % CI [20.7, 26.2]), limit 20 ms; 1.8 % of 9,000 "
        "requests were slower (at least 1.5 %, 95 % confidence; 1 % allowed)."
    )


def test_a_limit_on_timeouts_says_timed_out() -> None:
    point = copy.deepcopy(sample_load_result("batching")["points"][0])
    point["limits"][0] |= {"limit": parse_load_limit("timeouts<=1%").text, "verdict": "UNDECIDED"}
    said = load_text.limit_sentence(point["limits"][0], point)
    assert said.startswith("Undecided: at 200 requests/s, 0.25 % of 6,000 requests timed out (between 0.12 %")


def test_points_are_in_order_of_the_rate_and_a_frame_of_them_is_numeric() -> None:
    result = sample_load_result("limit")
    found = points_of(result)
    assert found["rate_per_s"] == [150, 200, 250, 300, 500]
    assert found["verdict"] == ["not a measurement", "PASS", "PASS", "FAIL", "FAIL, saturated"]
    assert found["stage"] == ["confirmation", "confirmation", "confirmation", "probe", "confirmation"]
    assert found["p99_ms"][1:4] == pytest.approx([0.0153506, 0.0184207, 0.0230259], rel=1e-5)  # seconds
    frame = frame_columns(loads.points(result))
    assert frame["p99_ms"][1] == pytest.approx(15.3506, rel=1e-5)
    for name in ("rate_per_s", "completed_per_s", "p50_ms", "p99_ms_low", "over_limit_high", "requests"):
        assert all(isinstance(one, int | float) for one in frame[name]), name


def test_a_point_that_is_no_measurement_shows_the_harness_and_none_of_its_percentiles() -> None:
    result = sample_load_result("limit")
    spoiled = next(one for one in result["points"] if one["rate_per_s"] == 150)
    assert spoiled["latency"]  # they were computed
    found = points_of(result)
    numbers = [name for name in found if name.startswith(("p50_ms", "p99_ms", "over_limit"))]
    assert len(numbers) == 9
    assert all(found[name][0] is None for name in numbers)
    assert found["harness_share_of_p50"][0] == pytest.approx(0.0004 / 0.0018)
    text = "\n".join(sheets.lines(loads.load_sheet(trial_of(result))))
    assert "Not a measurement at 150 requests/s: The harness added 22 % of the median latency." in text


def test_percentiles_of_the_limits_have_columns() -> None:
    result = sample_load_result("batching")
    result["question"]["limits"] = ["p90<=20ms", "p99.9<=50ms"]
    found = points_of(result)
    assert found["p90_ms"][0] == pytest.approx(0.00767528, rel=1e-5)
    assert found["p99_9_ms"] == [None, None]  # the requests cannot support it


def test_the_batching_of_a_point_is_named() -> None:
    found = points_of(sample_load_result("batching"))
    assert found["batching"] == ["8, 1 ms", "4, 1 ms"]


def test_facts_say_what_the_harness_added_where_it_added_most() -> None:
    facts = facts_of(sample_load_result("traffic"))
    assert facts["harness"] == "adds 0.110 ms to p50 (6.3 %) and 0.330 ms to p99 (at 100 requests/s)"
    assert facts["traffic"] == "Poisson arrivals at 100 and 200 requests/s, 30 s each after 2 s of warm-up"
    assert facts["limits"] == "p99 ≤ 20 ms"
    assert facts["CPU"] == "0.250 to 0.450 CPUs in use, of all its processes"


@pytest.mark.parametrize(
    ("arrivals", "words"),
    [
        ({"process": "constant"}, "constant intervals"),
        ({"process": "bursts", "off_s": 3.0}, "bursts (1 s on, 3 s off)"),
        ({"process": "ramp"}, "a ramp from 10 % of the rate"),
        ({"process": "steps", "steps": 4}, "4 steps from 10 % of the rate"),
        ({"process": "diurnal"}, "a day (lowest rate 25 % of the highest)"),
        ({"process": "trace", "path": "x.csv"}, "a recorded trace"),
    ],
)
def test_arrivals_are_named_with_their_shape(arrivals: dict[str, Any], words: str) -> None:
    asked = load_from_dict({"arrivals": arrivals, "rates": [50.0]})
    assert load_text.traffic_words(asked) == f"{words} at 50 requests/s, 30 s after 2 s of warm-up"


def test_background_load_is_said() -> None:
    result = sample_load_result("batching")
    result["runs"][0]["busy"] = {
        "words": "beside 1.2 CPUs of other processes",
        "cores": 1.2,
        "programs": [],
        "steal_share": None,
        "reasons": [],
    }
    result["runs"][1]["busy"] = {**result["runs"][0]["busy"], "words": "beside 0.4 CPUs", "cores": 0.4}
    assert facts_of(result)["machine"] == "beside 1.2 CPUs of other processes (most of 2 runs)"
    assert "machine" not in facts_of(sample_load_result("batching"))


def test_sizes_of_batches_add_up_over_runs_and_new_shapes_are_told() -> None:
    result = sample_load_result("batching")
    for run, batches in zip(result["runs"], ({"1": 60, "4": 20}, {"4": 20}), strict=True):
        run["batches"] = batches
        run["new_shapes"] = [
            {"rows": 1, "dims": {"seq": size}, "requests": 10, "first_s": 0.01 * size, "later_s": 0.002}
            for size in (1, 2)
        ]
    calls = loads.batch_sizes(result)
    assert column_of(calls, "samples per call") == [1, 4]
    assert column_of(calls, "calls") == [60, 40]
    assert column_of(calls, "share") == [0.6, 0.4]
    shapes = loads.new_shapes(result)
    assert column_of(shapes, "dimensions") == ["seq=2", "seq=1"]  # the most expensive first
    assert column_of(shapes, "requests") == [20, 20]
    assert column_of(shapes, "×") == [10, 5]
    assert len([one for one in loads.load_sheet(trial_of(result)).parts if isinstance(one, Table)]) == 5


# --- verdict, exit code, lists ------------------------------------------------------------------------------


def with_points(*runs: Any, verdict: Any = None) -> LoadResult:
    result = sample_load_result("traffic")
    result["runs"], result["verdict"] = list(runs), verdict
    result["points"] = [sample_point(run, i) for i, run in enumerate(runs)]
    return result


def with_point(run: Any) -> LoadResult:
    return with_points(run, verdict=run["verdict"])


def test_a_test_passes_only_if_every_point_passes_and_is_a_measurement() -> None:
    spoiled = sample_load_result("limit")["runs"][-1]
    assert load_text.outcome(with_points(sample_run(100), sample_run(200))) == "PASS"
    assert load_text.outcome(with_points(sample_run(100), sample_run(300))) == "FAIL"
    assert load_text.outcome(with_points(sample_run(100), sample_run(500))) == "FAIL"  # saturated
    assert (
        load_text.outcome(with_points(sample_run(100), sample_run(100, verdict="UNDECIDED"))) == "UNDECIDED"
    )
    assert load_text.outcome(with_points(sample_run(100), spoiled)) == "UNDECIDED"
    assert load_text.outcome(with_points(sample_run(300), spoiled)) == "FAIL"
    assert load_text.outcome(with_points({**spoiled, "verdict": "FAIL"})) == "UNDECIDED"  # it judges nothing
    assert load_text.outcome(with_points()) == "UNDECIDED"


def test_without_limits_a_test_passes_unless_a_run_failed() -> None:
    free: Any = {"limits": [], "verdict": None}
    assert load_text.outcome(with_points(sample_run(100, **free))) == "PASS"
    assert load_text.outcome(with_points(sample_run(100, **free), sample_run(500, **free))) == "PASS"
    assert load_text.outcome(with_points(sample_run(100, **free, outcome="failed"))) == "FAIL"


@pytest.mark.parametrize(
    ("confirmed", "undecided", "expected"),
    [(250.0, None, "PASS"), (None, 200.0, "UNDECIDED"), (None, None, "FAIL"), (250.0, 280.0, "PASS")],
)
def test_the_highest_rate_passes_when_it_is_confirmed(
    confirmed: float | None, undecided: float | None, expected: str
) -> None:
    result = sample_load_result("limit")
    result["highest"][0] |= {"confirmed_per_s": confirmed, "undecided_per_s": undecided}
    assert load_text.outcome(result) == expected


@pytest.mark.parametrize(
    ("question", "short"),
    [("limit", "up to 250/s"), ("traffic", "PASS at 200/s"), ("batching", "PASS at 200/s")],
)
def test_a_list_shows_the_answer_in_short(question: str, short: str) -> None:
    assert load_text.short(sample_load_result(question)) == short


def test_a_list_shows_the_lowest_rate_that_failed() -> None:
    runs = [sample_run(rate) for rate in (100, 500, 300)]
    assert load_text.short(with_points(*runs, verdict="FAIL")) == "FAIL at 300/s"


def test_a_contrast_is_said_with_its_interval_and_without_one() -> None:
    one = sample_load_result("traffic")["contrasts"][0]
    assert load_text.contrast_text(one) == "1.12× faster, 95 % CI [1.05, 1.19]"
    slower = {**one, "ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.625, "verdict": "SLOWER"}
    assert load_text.contrast_text(slower) == "2.0× slower, 95 % CI [1.6, 2.5]"  # type: ignore[arg-type]
    none = {**one, "ratio_low": None, "ratio_high": None, "verdict": "UNDECIDED"}
    assert load_text.contrast_text(none) == (  # type: ignore[arg-type]
        "undecided, about 1.1×; an interval needs more turns"
    )


def test_progress_says_rate_time_queue_and_percentiles_so_far() -> None:
    live = {
        "stage": "confirm",
        "run": 7,
        "runs": 0,
        "rate_per_s": 310.0,
        "elapsed_s": 4.2,
        "duration_s": 32.0,
        "queue": 1203,
        "p50_s": 0.0012,
        "p99_s": None,
    }
    status = Status(id="1", kind="load", state="RUNNING", what="load test of m", live={"load": live})
    assert watch.describe(status) == (
        "load test of m: confirm · run 7 · 310 requests/s · 4 of 32 s · queue 1,203 · p50 1.20 ms so far"
    )


# --- stored -------------------------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Store(tmp_path / "ortune.db"))


def stored(session: Session, result: LoadResult | None, **fields: Any) -> Result[Any]:
    trial = trial_of(result, **fields)
    session.store.create_trial(trial)
    return load_result(trial.id[:8], session=session) if result is not None else None  # type: ignore[return-value]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_stored_test_is_loaded_with_its_document(session: Session, question: str) -> None:
    result = stored(session, sample_load_result(question))
    assert result.kind == "load"
    assert result.verdict == sample_load_result(question)["words"]
    document = result.to_dict()
    assert document["load"]["question"]["question"] == question
    assert not errors_of("load", document)
    assert not errors_of("show TRIAL", document)
    assert errors_of("load", {**document, "load": {**document["load"], "points": [{}]}})
    assert len(result.to_frame()) == len(sample_load_result(question)["points"])


def test_the_history_lists_a_test_with_its_answer(session: Session) -> None:
    stored(session, sample_load_result("limit"))
    listed = history(session=session)
    text = "\n".join(sheets.lines(listed.sheet()))
    assert "up to 250/s" in text
    assert column_of(listed.table(), "kind") == ["load"]


def test_a_report_says_the_answer_the_method_and_what_the_harness_added(session: Session) -> None:
    stored(session, sample_load_result("limit"))
    about = find(session.store, ["a" * 16])
    assert isinstance(about, AboutLoad)
    said = compose(about, session.store)
    assert (said.kind, said.color, said.rejected) == ("Load test", "green", "")
    assert said.verdict == sample_load_result("limit")["words"]
    text = markdown(said)
    assert "250 requests/s confirmed, 300/s failed" in text
    assert "the ideal queue is replayed" in text
    assert "schema:" in text  # the YAML of its configuration


def test_a_report_of_a_test_that_is_no_measurement_is_rejected(session: Session) -> None:
    spoiled = sample_load_result("limit")["runs"][-1]
    stored(session, with_points(spoiled, verdict="PASS"))
    said = compose(find(session.store, ["a" * 16]), session.store)
    assert (
        said.rejected == "Not a measurement at 150 requests/s: The harness added 22 % of the median latency."
    )
    assert said.color == "gray"


def test_a_cancelled_test_keeps_and_says_what_was_measured(session: Session) -> None:
    result = stored(session, sample_load_result("traffic"), state="CANCELLED")
    text = "\n".join(sheets.lines(result.sheet()))
    assert "CANCELLED: this is what was measured until then." in text
    assert "15.35" in text


def test_a_test_without_a_result_says_why() -> None:
    error: Any = {"type": "WorkerError", "message": "It crashed.", "hint": "Try again."}
    trial = trial_of(None, state="FAIL", error=error)
    assert loads.load_sheet(trial).headline.endswith("· load · trial aaaaaaaaaaaaaaaa · FAIL")
    assert trial_verdict(trial, None)[0].startswith("No numbers")


def test_the_answer_at_one_rate_names_every_limit_the_worst_first() -> None:
    run = sample_run(300)
    fine = {
        **run["limits"][0],
        "limit": "p50<=20ms",
        "allowed": 0.5,
        "share": 0.0,
        "high": 0.001,
        "verdict": "PASS",
    }
    point = sample_point({**run, "limits": [fine, run["limits"][0]]}, 0)  # type: ignore[list-item, typeddict-item]
    said = load_text.point_words(point)
    assert said.startswith("Failed: at 300 requests/s, p99 is 23.0 ms")
    assert (
        "Passed: at 300 requests/s, p50 is 3.47 ms (95 % CI [3.38, 3.59]), limit 20 ms; 0 % of 9,000" in said
    )


def test_one_limit_is_said_in_the_headline_alone() -> None:
    result = with_point(sample_run(200))
    result["words"] = load_text.point_words(result["points"][0])
    assert "limit" not in facts_of(result)
    result["words"] = "Another answer."
    assert facts_of(result)["limit"].startswith("Passed: at 200 requests/s")


def test_pairs_that_were_only_simulated_are_counted_not_listed() -> None:
    sheet = loads.load_sheet(trial_of(sample_load_result("batching")))
    listed = next(one for one in sheet.parts if isinstance(one, Table) and one.columns[0].name == "best")
    assert column_of(listed, "max_batch_size") == [8, 4]
    assert column_of(listed, "best") == ["★", ""]
    assert "note: 1 more pair of batch and delay was only simulated." in [
        getattr(one, "text", "") for one in sheet.parts
    ]
    assert len(loads.batching_trials(sample_load_result("batching")).rows) == 3


def test_batching_that_could_not_be_measured_has_no_numbers() -> None:
    result = sample_load_result("batching")
    found = result["batching"]
    assert found is not None
    alone, spoiled = sample_point(sample_run(200), 0), sample_load_result("limit")["points"][-1]
    assert load_text.is_rejected(spoiled)
    trials = [{**one, "point": 0} for one in found["trials"][:1]]
    faster: Any = {"verdict": "FASTER", "ratio": 1.5}

    def answer(alone: Any, batched: Any) -> Any:
        return batching.chosen(
            found["service_times"],
            trials,  # type: ignore[arg-type]
            [batched],
            alone=alone,
            contrasts=[faster],
            p=0.99,
        )

    assert answer(alone, alone)["best"] == 0
    assert answer(alone, spoiled)["best"] is None  # it passed, but is no measurement
    said = answer(spoiled, spoiled)
    assert said["words"].startswith("Not a measurement at 150 requests/s: The harness added 22 %")
    assert "instead of not a measurement" in answer(spoiled, alone)["words"]
