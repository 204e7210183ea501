"""The Load page: what its form asks, and stored load tests of every kind and ending."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.evidence.load.load_result import point_words
from core.evidence.load.load_types import LoadResult
from core.evidence.measurement import Trial
from core.show import load_text
from core.spec import spec_from_dict
from core.spec.axes import axes_of_study, study_name
from core.spec.load import LoadSpec
from core.spec.space import Axis
from core.store import ModelRecord, home
from dashboard import state
from dashboard.views.load import form, results, scorecard_target
from tests.reading import numbers, tells
from tests.simulated_load import sample_load_result, sample_point, sample_run
from tests.views import sample_results
from tests.views.page import (
    Jobs,
    Open,
    cards,
    click,
    facts,
    figure,
    followed,
    icons,
    keys,
    lines,
    metrics,
    opened,
    place,
    status,
    table,
    texts,
)
from tests.views.sample_results import SampleConfiguration

Asked = list[tuple[list[Any], LoadSpec, dict[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Load tests that the page queued: configurations, question, options; nothing is run."""
    found: Asked = []

    def load(configurations: Any, question: LoadSpec, **how: Any) -> str:
        found.append((list(configurations), question, how))
        return f"job-{len(found)}"

    sample_results.queue(monkeypatch, "load", load)
    return found


def put(record: ModelRecord, found: LoadResult | None = None, **changes: Any) -> Trial:
    return sample_results.put_load(state.store(), record, found, **changes)


def single(run: Any, **changes: Any) -> LoadResult:
    """A load test of one configuration with one run, answered by its point."""
    result = sample_load_result("traffic")
    result.update(runs=[run], points=[sample_point(run, 0)], contrasts=[], verdict=run["verdict"])
    result["configurations"] = result["configurations"][:1]
    return LoadResult(**{**result, **changes})  # type: ignore[typeddict-item]


def rejected() -> LoadResult:
    """Its harness added 22 % of the median."""
    [run] = [one for one in sample_load_result("limit")["runs"] if load_text.is_rejected(one)]
    return single(run)


# --- the form -----------------------------------------------------------------------------------------------


def test_without_a_load_test_the_page_says_what_to_do(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("load", model=mlp)
    assert "traffic" in icons(at)
    assert len(at.get("plotly_chart")) == 0
    assert not at.button(key="load.run").disabled


def test_a_run_asks_for_the_present_settings_under_poisson_traffic(
    open_page: Open, mlp: ModelRecord, asked: Asked
) -> None:
    at = open_page("load", model=mlp)
    at.text_input(key=form.RATES).set_value("100, 250").run()
    at.number_input(key=form.DURATION).set_value(10.0).run()
    click(at, "load.run")
    [(configurations, load, how)] = asked
    assert [one.spec.model.sha256 for one in configurations] == [mlp.sha256]
    assert (load.question, load.rates, load.duration_s) == ("traffic", (100.0, 250.0), 10.0)
    assert (load.arrivals.process, [one.text for one in load.limits]) == ("poisson", ["p99<=20ms"])
    assert how == {"model_name": mlp.name, "wait_quiet_s": 0.0, "trace": None}


def test_several_configurations_are_asked_under_names_that_tell_them_apart(
    open_page: Open, mlp: ModelRecord, machine: Any, asked: Asked
) -> None:
    measured = sample_results.put_run(
        state.store(), mlp, fingerprint=machine["fingerprint"], intra_op_num_threads=1
    )
    at = open_page("load", model=mlp)
    at.multiselect(key="load.chosen").set_value(
        ["default", f"trial:{measured.id}", "preset:cpu-latency"]
    ).run()
    assert lines(at, "3 configurations × 6 turns", "10 min")
    click(at, "load.run")
    [(configurations, _, _)] = asked
    assert [one.role for one in configurations] == ["baseline", "candidate", "candidate"]
    assert len({one.label for one in configurations}) == 3
    assert configurations[1].spec.session.intra_op_num_threads == 1


def test_the_highest_rate_has_a_budget_and_no_rate(open_page: Open, mlp: ModelRecord, asked: Asked) -> None:
    at = open_page("load", model=mlp)
    at.get_by_key(form.QUESTION).set_value("limit").run()
    assert form.RATES not in keys(at)
    at.number_input(key=form.BUDGET).set_value(60.0).run()
    at.text_input(key=form.LIMITS).set_value("p95<=5ms").run()
    click(at, "load.run")
    [(_, load, _)] = asked
    assert (load.question, load.rates, load.budget_s) == ("limit", (), 60.0)
    assert [one.text for one in load.limits] == ["p95<=5ms"]


def test_arrivals_show_the_fields_they_have_and_sizes_are_advanced(
    open_page: Open, mlp: ModelRecord, asked: Asked
) -> None:
    at = open_page("load", model=mlp)
    assert not {form.ON, form.FROM, form.ROWS} & keys(at)
    at.selectbox(key=form.ARRIVALS).set_value("bursts").run()
    at.number_input(key=form.OFF).set_value(4.0).run()
    at = opened(at, "load.advanced")
    at.text_input(key=form.ROWS).set_value("1:0.7,8:0.3").run()
    at.text_input(key=form.TIMEOUT).set_value("1s").run()
    at.text_input(key=form.LIMITS).set_value("p99<=20ms, timeouts<=0.1%").run()
    click(at, "load.run")
    [(_, load, _)] = asked
    assert (load.arrivals.process, load.arrivals.on_s, load.arrivals.off_s) == ("bursts", 1.0, 4.0)
    assert (load.rows, load.timeout_s) == ({1: 0.7, 8: 0.3}, 1.0)
    assert [one.text for one in load.limits] == ["p99<=20ms", "timeouts<=0.1%"]


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        (form.RATES, "fast", "`fast`"),
        (form.RATES, "90000", "50,000"),
        (form.RATES, "", "rate"),
        (form.LIMITS, "p99", "`p99`"),
        (form.LIMITS, "timeouts<=1%", "timeout"),
    ],
)
def test_a_value_that_cannot_be_read_is_said_and_nothing_starts(
    open_page: Open, mlp: ModelRecord, asked: Asked, key: str, text: str, said: str
) -> None:
    at = open_page("load", model=mlp)
    at.text_input(key=key).set_value(text).run()
    assert tells(at.error[0].value, said)
    assert at.button(key="load.run").disabled
    at.text_input(key=key).set_value("p99<=1s" if key == form.LIMITS else "10").run()
    assert not at.error
    assert not at.button(key="load.run").disabled


def test_a_trace_comes_from_an_allowed_folder_only(
    open_page: Open, mlp: ModelRecord, asked: Asked, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.csv").write_text("time,rows\n0,1\n0.5,1\n")
    at = open_page("load", model=mlp)
    at.selectbox(key=form.ARRIVALS).set_value("trace").run()
    at.text_input(key=form.RATES).set_value("").run()
    at.text_input(key=form.TRACE).set_value(str(tmp_path / "elsewhere.csv")).run()
    assert tells(at.error[0].value, "elsewhere.csv")
    assert at.button(key="load.run").disabled
    (home() / "feeds").mkdir()
    allowed = home() / "feeds" / "trace.csv"
    allowed.write_text("time,rows\n0,1\n0.5,1\n1.5,1\n")
    at.text_input(key=form.TRACE).set_value(str(allowed)).run()
    click(at, "load.run")
    [(_, load, _)] = asked
    assert (load.arrivals.process, load.arrivals.path, load.rates) == ("trace", str(allowed), ())


def test_a_demonstration_starts_nothing(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "recorded", lambda: "Recorded elsewhere.")
    at = open_page("load", model=mlp)
    assert at.button(key="load.run").disabled


# --- results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "views", "table_of"),
    [
        (
            "traffic",
            [results.RATES, results.DIFFERENCES, results.TIME, results.SHARES, results.COSTS],
            "Versus",
        ),
        ("limit", [results.RATES, results.TIME, results.SHARES, results.COSTS], "Verdict"),
        ("batching", [results.SERVICE, results.TIME, results.SHARES], "Max_batch_size"),
        ("together", [results.TOGETHER, results.TIME, results.SHARES, results.COSTS], "Alone (ms)"),
    ],
)
def test_every_question_has_its_answer_first_then_numbers_a_plot_and_tables(
    open_page: Open, mlp: ModelRecord, question: str, views: list[str], table_of: str
) -> None:
    found = sample_load_result(question)
    put(mlp, found)
    at = open_page("load", model=mlp)
    assert tells(at.subheader[0].value, "check_circle", found["words"])
    assert at.get_by_key(results.VIEW).options == views
    assert at.get_by_key(results.VIEW).value == views[0]
    assert place(at, "subheader", found["words"]) < place(at, "metric") < place(at, "plotly_chart")
    assert table(at, next(one for one in list_columns(at) if one.lower() == table_of.lower())) is not None
    for view in views:
        at.get_by_key(results.VIEW).set_value(view).run()
        assert not at.exception
        assert len(at.get("plotly_chart")) == 1


def list_columns(at: Any) -> list[str]:
    return [str(column) for one in at.dataframe for column in one.value.columns]


def test_the_highest_rate_shows_confirmed_failed_and_capacity(open_page: Open, mlp: ModelRecord) -> None:
    put(mlp, sample_load_result("limit"))
    at = open_page("load", model=mlp)
    assert cards(at)["highest"] == "250/s"
    assert lines(at, "failed: 300/s", "capacity 500/s")
    assert numbers(cards(at)["p99"]) == [18.42]
    assert lines(at, "failed: 300/s")


def test_several_configurations_have_a_number_each(open_page: Open, mlp: ModelRecord) -> None:
    compared = put(mlp, sample_load_result("traffic"), created_at=5.0)
    put(mlp, sample_load_result("together"), created_at=2e6)
    at = open_page("load", model=mlp)
    assert metrics(at)["ORT default"] == metrics(at)["intra_op_num_threads=1"] == "12.50 ms"
    assert lines(at, "p99 together", "9.000 ms alone")
    at = open_page("load", model=mlp, trial=compared.id)
    assert metrics(at)["ORT default"] == metrics(at)["intra_op_num_threads=1"] == "15.35 ms"
    assert lines(at, "p99 at 200/s", "95 % CI".replace(" ", "\N{NO-BREAK SPACE}"))


def test_saturated_and_rejected_runs_are_drawn_and_named_without_a_latency(
    open_page: Open, mlp: ModelRecord
) -> None:
    put(mlp, sample_load_result("limit"))
    at = open_page("load", model=mlp)
    drawn = {one["name"]: one["x"] for one in figure(at)["data"] if one.get("x") and one["x"] != [None]}
    assert drawn["saturated"] == [500.0]
    assert drawn["not a measurement"] == [150.0]
    assert drawn["p99"] == [200.0, 250.0, 300.0]
    assert lines(at, "At 500 requests/s", "Saturated after 6.2 s")
    assert lines(at, "Not a measurement at 150 requests/s", "22.2 % of p50")


def test_a_run_that_is_no_measurement_shows_the_harness_and_no_percentile(
    open_page: Open, mlp: ModelRecord
) -> None:
    put(mlp, rejected())
    at = open_page("load", model=mlp)
    assert tells(at.subheader[0].value, "block", "Not a measurement", "22.2 %")
    assert set(cards(at)) == {"completed", "harness", "cpus"}
    assert {one["name"] for one in figure(at)["data"]} == {"arrivals", "completions", "queue"}
    assert not any(one.startswith("p50") or one.startswith("p99") for one in list_columns(at))
    assert "Distribution" not in texts(at)


def test_a_limit_kept_in_spite_of_the_harness_is_said_and_shows_no_percentile(
    open_page: Open, mlp: ModelRecord
) -> None:
    found = rejected()
    for one in (found["points"][0], found["runs"][0]):
        one["verdict"] = "PASS"
        one["limits"] = [{**limit, "verdict": "PASS"} for limit in one["limits"]]
    found["verdict"], found["words"] = "PASS", point_words(found["points"][0])
    put(mlp, found)
    at = open_page("load", model=mlp)
    assert tells(at.subheader[0].value, "Passed: at 150 requests/s", "although the harness added 22 %")
    assert "p99" not in cards(at)
    assert not any(one.startswith("p50") or one.startswith("p99") for one in list_columns(at))


def test_differences_and_distributions_of_no_measurement_are_not_offered(
    open_page: Open, mlp: ModelRecord
) -> None:
    found = sample_load_result("traffic")
    spoiled = rejected()["points"][0]["harness"]
    found["points"] = [{**one, "harness": spoiled} for one in found["points"]]
    put(mlp, found)
    at = open_page("load", model=mlp)
    assert at.get_by_key(results.VIEW).options == [results.RATES, results.TIME, results.COSTS]
    assert "Versus" not in list_columns(at)


def test_a_harness_that_is_late_in_the_tail_alone_is_said_so(open_page: Open, mlp: ModelRecord) -> None:
    found = rejected()
    harness = {**found["runs"][0]["harness"], "share_of_p50": 0.07, "p99_s": 0.0069}  # type: ignore[dict-item]
    found["runs"][0]["harness"] = found["points"][0]["harness"] = harness  # type: ignore[typeddict-item]
    put(mlp, found)
    at = open_page("load", model=mlp)
    assert tells(at.subheader[0].value, "Not a measurement", "6.90 ms at p99")


def test_a_run_over_time_shows_latency_arrivals_and_the_queue_and_another_run_can_be_chosen(
    open_page: Open, mlp: ModelRecord
) -> None:
    put(mlp, sample_load_result("limit"))
    at = open_page("load", model=mlp)
    at.get_by_key(results.VIEW).set_value(results.TIME).run()
    names = [one["name"] for one in figure(at)["data"]]
    assert names == ["p50", "p99 of each part", "arrivals", "completions", "queue"]
    assert "250" in at.selectbox(key=results.RUN).value
    [saturated] = [one for one in at.selectbox(key=results.RUN).options if "saturated" in one]
    at.selectbox(key=results.RUN).set_value(saturated).run()
    queue = next(one for one in figure(at)["data"] if one["name"] == "queue")
    assert queue["y"] == sorted(queue["y"])
    assert queue["y"][-1] > 200


def test_a_failed_load_test_keeps_what_was_measured(open_page: Open, mlp: ModelRecord) -> None:
    error = {"type": "WorkerError", "message": "Killed by SIGKILL.", "hint": "Use fewer streams."}
    put(mlp, single(sample_run(520)), state="FAIL", error=error)
    at = open_page("load", model=mlp)
    assert tells(at.error[0].value, "SIGKILL", "fewer streams")
    assert "incomplete_circle" in at.subheader[0].value
    assert len(at.get("plotly_chart")) == 1


def test_a_failed_load_test_without_a_result_is_its_error_alone(open_page: Open, mlp: ModelRecord) -> None:
    error = {"type": "ModelError", "message": "It cannot be loaded.", "hint": "Export it again."}
    put(mlp, None, state="FAIL", error=error)
    at = open_page("load", model=mlp)
    assert tells(at.error[0].value, "It cannot be loaded.")
    assert len(at.get("plotly_chart")) == 0


def test_a_cancelled_load_test_has_no_verdict(open_page: Open, mlp: ModelRecord) -> None:
    found = sample_load_result("traffic")
    put(mlp, found, state="CANCELLED")
    at = open_page("load", model=mlp)
    assert "cancel" in icons(at)
    assert found["words"] not in texts(at)
    assert len(at.get("plotly_chart")) == 1


def test_details_say_what_was_sent(open_page: Open, mlp: ModelRecord) -> None:
    put(mlp, sample_load_result("limit"))
    at = opened(open_page("load", model=mlp), "load.details")
    assert tells(facts(at)["Limits"], "p99 ≤ 20 ms")
    assert tells(facts(at)["Traffic"], "Poisson")


def test_the_newest_load_test_fills_a_form_that_nothing_was_chosen_in(
    open_page: Open, mlp: ModelRecord
) -> None:
    put(mlp, sample_load_result("together"))
    at = open_page("load", model=mlp)
    assert at.get_by_key(form.QUESTION).value == "together"
    assert at.text_input(key=form.RATES).value == "100, 20"


def test_a_link_loads_question_and_configurations(open_page: Open, mlp: ModelRecord, asked: Asked) -> None:
    put(mlp, sample_load_result("batching"))
    trial = put(mlp, sample_load_result("traffic"), created_at=5.0)
    at = open_page("load", trial=trial.id)
    assert at.text_input(key=form.RATES).value == "100, 200"
    assert at.get_by_key(form.QUESTION).value == "traffic"
    assert len(at.multiselect(key="load.chosen").value) == 2
    click(at, "load.run")
    [(configurations, load, _)] = asked
    assert [one.spec for one in configurations] == [spec_from_dict(trial.spec)] * 2
    assert load.seed == 7


def test_a_link_to_another_kind_of_result_is_refused(open_page: Open, mlp: ModelRecord, machine: Any) -> None:
    trial = sample_results.put_run(state.store(), mlp, fingerprint=machine["fingerprint"])
    at = open_page("load", trial=trial.id)
    assert tells(at.error[0].value, trial.id[:12])


def test_a_link_to_tune_and_the_history_lead_here(open_page: Open, mlp: ModelRecord) -> None:
    trial = put(mlp, sample_load_result("limit"))
    at = open_page(trial=trial.id)
    assert at.title[0].value == "Load"
    assert cards(at)["highest"] == "250/s"


# --- while it runs ------------------------------------------------------------------------------------------


def test_a_running_load_test_is_shown_live_and_can_be_cancelled(
    open_page: Open, mlp: ModelRecord, jobs: Jobs
) -> None:
    run = sample_run(200)
    trial = put(mlp, None, state="RUNNING", created_at=9.0)
    live = {
        "run": 2, "runs": 4, "configuration": 0, "label": "ORT default", "rate_per_s": 200.0,
        "elapsed_s": 12.0, "duration_s": 32.0, "queue": 3, "course": run["course"][:12],
        "p50_s": 0.0023, "p99_s": 0.0154, "points": [sample_point(sample_run(100), 0)],
        "stage": "traffic", "limits": ["p99<=20ms"],
    }  # fmt: skip
    cancelled = jobs(status(trial.id, kind="load", live={"load": live}, elapsed_s=44.0))
    at = open_page("load", model=mlp)
    event = followed(at, "load.watch")
    assert numbers(event["text"])[:3] == [2, 4, 200]
    assert event["share"] == pytest.approx((1 + 12 / 32) / 4, abs=1e-3)
    assert lines(at, "p50 2.300 ms", "p99 15.40 ms", "3 requests")
    assert lines(at, "100/s passed")
    assert [one["y"]["title"] for one in event["pictures"]] == [
        "Latency (ms)",
        "Requests/s",
        "Queue (requests)",
    ]
    assert event["pictures"][0]["level"] == pytest.approx(20.0)
    json.dumps(event)
    assert at.button(key="load.run").disabled
    click(at, "load.cancel")
    assert cancelled == [trial.id]


def test_a_waiting_load_test_says_for_whom(open_page: Open, mlp: ModelRecord, jobs: Jobs) -> None:
    trial = put(mlp, None, state="WAITING", created_at=9.0)
    jobs(status(trial.id, kind="load", state="WAITING", holder="ann: a sweep", place=1))
    at = open_page("load", model=mlp)
    assert tells(followed(at, "load.watch")["text"], "ann: a sweep")


# --- to the scorecard ---------------------------------------------------------------------------------------


def test_the_confirmed_rate_becomes_a_target_of_the_scorecard_with_the_tested_settings(
    open_page: Open, mlp: ModelRecord
) -> None:
    put(mlp, sample_load_result("limit"))
    at = click(open_page("load", model=mlp), "load.to_scorecard")
    assert not at.error
    at = click(at, "load.to_scorecard")  # it is there already
    [line] = at.session_state["scorecard.targets"]
    assert at.session_state[f"scorecard.target.{line}.rate"] == 250.0
    at.switch_page("views/scorecard/page.py").run()
    assert tells(at.table[0].value.columns, "p99", "250 requests/s", "≤ 20 ms")


@pytest.mark.parametrize(
    ("confirmed", "text"), [(310.44, "310/s with p99<=20ms"), (9.999, "9.99/s with p99<=20ms"), (None, "")]
)
def test_the_suggested_rate_is_rounded_down_so_that_what_passed_still_passes(
    confirmed: float | None, text: str
) -> None:
    result = sample_load_result("limit")
    result["highest"][0]["confirmed_per_s"] = confirmed
    found = scorecard_target.suggested(result)
    assert getattr(found, "text", "") == text


def test_bursts_and_results_without_a_limit_suggest_no_target() -> None:
    result = sample_load_result("traffic")
    for changes in ({"limits": []}, {"arrivals": {"process": "bursts"}}, {"rows": {"8": 1.0}}):
        found = scorecard_target.suggested({**result, "question": {**result["question"], **changes}})
        assert isinstance(found, str)
    assert isinstance(scorecard_target.suggested(rejected()), str)


def test_the_best_dynamic_batching_is_part_of_the_configuration(open_page: Open, mlp: ModelRecord) -> None:
    trial = put(mlp, sample_load_result("batching"))
    found = load_text.load_of(trial)
    assert found is not None
    batching = scorecard_target.tested_spec(found).dynamic_batching
    assert batching is not None
    assert (batching.max_batch_size, batching.max_queue_delay_microseconds) == (8, 1000)


def test_the_last_result_stays_below_one_that_waits(open_page: Open, mlp: ModelRecord, jobs: Jobs) -> None:
    found = sample_load_result("limit")
    put(mlp, found)
    trial = put(mlp, None, state="WAITING", created_at=2e6)
    jobs(status(trial.id, kind="load", state="WAITING"))
    at = open_page("load", model=mlp)
    assert followed(at, "load.watch")["state"] == "waiting"
    assert tells(at.subheader[0].value, found["words"])
    assert len(at.get("plotly_chart")) == 1
    assert not at.metric


# --- streams ------------------------------------------------------------------------------------------------


def test_streams_queue_a_sweep_and_open_it(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = open_page("load", model=mlp)
    at.get_by_key(form.QUESTION).set_value("streams").run()
    assert form.RATES not in keys(at)
    assert "stacked_line_chart" in icons(at)
    at.text_input(key=form.STREAMS).set_value("1, 2").run()
    at.text_input(key=form.THREADS).set_value("1, 2").run()
    click(at, "load.run")
    [asked] = submitted
    axes = axes_of_study(asked["study"])
    assert {one.name: one.values for one in axes} == {"streams": (1, 2), "intra_op_num_threads": (1, 2)}
    assert at.title[0].value == "Sweep"


def test_the_newest_sweep_over_streams_is_the_answer_of_a_closed_loop(
    open_page: Open, mlp: ModelRecord, machine: Any
) -> None:
    study = study_name([Axis(name="streams", values=(1, 2))], "abcdef12")
    sample_results.put_comparison(
        state.store(),
        mlp,
        [
            SampleConfiguration(spec=sample_results.spec_for(mlp, streams=streams), latency_s=0.002, rows=1)
            for streams in (1, 2)
        ],
        study=study,
        fingerprint=machine["fingerprint"],
    )
    at = open_page("load", model=mlp)
    at.get_by_key(form.QUESTION).set_value("streams").run()
    assert tells(at.subheader[0].value, "streams", "samples/s")
    assert len(at.get("plotly_chart")) == 1
    assert list(at.dataframe[0].value["Streams"]) == [1, 2]
