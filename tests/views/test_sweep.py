"""The Sweep page on invented points, and on one sweep that is really measured."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import core.api.requests
from core import wire
from core.evidence.comparison import DEFAULT_LABEL, Comparison
from core.evidence.measurement import Trial
from core.evidence.quality import BUSY
from core.evidence.verdict import Verdict
from core.run.launches import budget
from core.show import verdict
from core.show.verdict import in_words
from core.spec import TrialSpec, axes
from core.spec.axes import point_name
from core.spec.settings.search_values import doubling
from core.spec.space import Axis
from core.store import ModelRecord, Store
from dashboard import state
from tests import builders, tiny_models
from tests.reading import numbers, tells
from tests.views import sample_results
from tests.views.page import Add, Jobs, Open, figure, followed, icons, lines, opened, place, status, texts
from tests.views.sample_results import SampleConfiguration

CPU = "CPUExecutionProvider"
BOTH = point_name({axes.THREADS: 2, axes.BATCH: 16})


def drawn_lines(at: AppTest, index: int) -> dict[str, Any]:
    """The drawn lines by name, without intervals and markers."""
    return {one["name"]: one for one in figure(at, index)["data"] if "customdata" in one}


def specs(comparison: dict[str, Any]) -> list[TrialSpec]:
    return [one.spec for one in comparison["contestants"]]


def set_values(at: AppTest, text: str, axis: str = "batch_size") -> AppTest:
    return at.text_input(key=f"sweep.values.{axis}").set_value(text).run()


def table(at: AppTest) -> Any:
    return at.dataframe[0].value


def against_default(at: AppTest) -> list[str]:
    """The column of verdicts."""
    shown = table(at)
    return list(shown[next(name for name in shown if DEFAULT_LABEL in name)])


def sentence(at: AppTest) -> str:
    """What the page says of the best point, with its symbol."""
    return str(at.subheader[0].value).replace("\\", "")


def predicted(at: AppTest) -> list[float]:
    """The page's text on the next comparison: points, known ones, and its time if known."""
    return next(numbers(one.value) for one in at.caption if one.value[:1].isdigit() and "·" in one.value)


def test_without_points_the_page_says_what_to_do(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("sweep", model=mlp)
    assert "show_chart" in icons(at)  # nothing is drawn yet
    assert at.text_input(key="sweep.values.batch_size").value == "1, 2, 4, 8, 16, 32"
    assert numbers(at.button(key="sweep.run").label) == [6]
    assert predicted(at) == [6]  # and no time
    assert len(at.get("plotly_chart")) == 0


def test_the_threads_suggested_are_what_this_machine_may_use(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    at = open_page("sweep", model=mlp)
    at.get_by_key("sweep.axis").set_value("intra_op_num_threads").run()
    values = axes.parse_values(
        at.text_input(key="sweep.values.intra_op_num_threads").value, name=axes.THREADS
    )
    assert max(values) == machine["cpu"]["usable"]
    assert min(values) == 1


@pytest.mark.parametrize(
    ("label", "axes"),
    [("Streams", ["streams", ""]), ("Streams × threads", ["streams", "intra_op_num_threads"])],
)
def test_streams_are_offered_as_axes_up_to_the_usable_cpus(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, label: str, axes: list[str]
) -> None:
    at = open_page("sweep", model=mlp)
    next(one for one in at.button if one.label == label).click().run()
    assert not at.exception
    assert [at.selectbox(key="sweep.axis").value, at.selectbox(key="sweep.second").value] == axes
    usable = machine["cpu"]["usable"]
    assert at.text_input(key="sweep.values.streams").value == ", ".join(map(str, doubling(1, usable)))


def test_run_asks_for_one_comparison_of_all_values(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = set_values(open_page("sweep", model=mlp), "1, 8")
    at.button(key="sweep.run").click().run()
    (comparison,) = submitted
    assert [spec.workload.batch_size for spec in specs(comparison)] == [1, 8]
    assert [one.label for one in comparison["contestants"]] == ["batch 1", "batch 8"]
    assert axes.axes_of_study(comparison["study"]) == (Axis(name="batch_size", values=(1, 8)),)
    assert comparison["model_name"] == mlp.name
    assert comparison["wait_quiet_s"] == 0.0
    at.toggle(key="protocol.wait_quiet").set_value(True).run()
    at.button(key="sweep.run").click().run()
    assert submitted[1]["wait_quiet_s"] == 300.0
    assert {spec.model.sha256 for spec in specs(comparison)} == {mlp.sha256}


def test_points_measured_before_are_drawn_marked_and_not_measured_again(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, submitted: list[dict[str, Any]]
) -> None:
    sample_results.batches(state.store(), mlp, [1, 2], fingerprint=machine["fingerprint"])
    at = set_values(open_page("sweep", model=mlp), "1, 2, 4")
    assert predicted(at) == [3, 2]  # and no time
    latency = drawn_lines(at, 0)
    assert [tuple(name.split(" · ")) for name in latency] == [("p50", CPU), ("p95", CPU)]
    assert next(iter(latency.values()))["x"] == [1, 2]
    assert next(iter(latency.values()))["marker"]["symbol"] == ["circle-open", "circle-open"]
    assert list(table(at)["State"]) == ["reused", "reused", "new"]
    at.button(key="sweep.run").click().run()
    assert [spec.workload.batch_size for spec in specs(submitted[0])] == [4]


def test_points_of_another_machine_or_other_settings_are_not_reused(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    sample_results.batches(state.store(), mlp, [1], fingerprint="another machine")
    spec = sample_results.spec_for(mlp, batch_size=2, intra_op_num_threads=3)
    sample_results.put_measured(state.store(), mlp, spec, fingerprint=machine["fingerprint"], rows=2)
    at = set_values(open_page("sweep", model=mlp), "1, 2")
    assert numbers(at.button(key="sweep.run").label) == [2]
    assert "show_chart" in icons(at)


def test_finished_points_can_be_measured_again_on_request(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, submitted: list[dict[str, Any]]
) -> None:
    sample_results.batches(state.store(), mlp, [1, 2], fingerprint=machine["fingerprint"])
    at = set_values(open_page("sweep", model=mlp), "1, 2")
    again = at.button(key="sweep.run")
    assert not again.disabled
    assert numbers(again.label) == []
    assert numbers(again.help) == [2]
    again.click().run()
    assert [len(specs(comparison)) for comparison in submitted] == [2]
    at.toggle(key="sweep.again").set_value(True).run()
    assert numbers(at.button(key="sweep.run").label) == [2]
    at.button(key="sweep.run").click().run()
    assert [len(specs(comparison)) for comparison in submitted] == [2, 2]


def test_the_best_point_under_a_typed_line_is_named_in_words(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    sample_results.batches(state.store(), mlp, [1, 8, 32], fingerprint=machine["fingerprint"])
    at = set_values(open_page("sweep", model=mlp), "1, 8, 32")
    assert tells(sentence(at), "batch 32: ")
    at.number_input(key="sweep.line.number").set_value(2.0).run()
    found = sentence(at)
    assert tells(found, "check_circle", "batch 8: ", "2 ms")
    assert re.search(r"samples/s \(95 % CI \[[\d,]+ to [\d,]+\]\)[^.]* p95 1\.4", found)
    assert list(table(at)["Best"]) == ["", "★", ""]
    assert figure(at, 0)["layout"]["shapes"][0]["y0"] == pytest.approx(2.0)
    at.number_input(key="sweep.line.number").set_value(0.1).run()
    assert tells(sentence(at), "block", "p95", "0.1 ms")


def test_the_slider_and_the_number_move_one_line(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    sample_results.batches(state.store(), mlp, [1, 8], fingerprint=machine["fingerprint"])
    at = set_values(open_page("sweep", model=mlp), "1, 8")
    slider = at.select_slider(key="sweep.line.slider")
    chosen = slider.options[3]
    slider.set_value(float(chosen.removesuffix(" ms"))).run()
    assert at.number_input(key="sweep.line.number").value == pytest.approx(float(chosen.removesuffix(" ms")))
    at.number_input(key="sweep.line.number").set_value(1.0).run()
    assert at.select_slider(key="sweep.line.slider").value == pytest.approx(1.0, rel=0.1)


def test_a_failed_point_is_listed_with_its_error_and_the_others_stay(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    study = axes.study_name([Axis(name="batch_size", values=(1, 64))], "abc")
    sample_results.batches(state.store(), mlp, [1], fingerprint=machine["fingerprint"], study=study)
    sample_results.put_failed(
        state.store(),
        mlp,
        sample_results.spec_for(mlp, batch_size=64),
        message="Killed by SIGKILL.",
        study=study,
    )
    at = open_page("sweep", model=mlp, study=study)
    (error,) = at.error
    assert tells(error.value, "SIGKILL", "smaller")
    assert list(table(at)["State"]) == ["complete", "fail"]
    assert next(iter(drawn_lines(at, 0).values()))["x"] == [1]
    assert numbers(at.button(key="sweep.run").label) == [1]


def test_a_point_that_fell_back_is_never_drawn_as_cuda(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    sample_results.batches(state.store(), mlp, [1], fingerprint=machine["fingerprint"], fallback=True)
    at = set_values(open_page("sweep", model=mlp), "1")
    [ran] = drawn_lines(at, 1)
    assert tells(ran, CPU, "CUDA")
    assert "CUDAExecutionProvider" not in json.dumps(figure(at, 0)["data"])
    assert lines(at, "samples/s", "CUDA")
    assert tells(table(at)["Ran on"][0], "CPU", "(")


def test_a_percentile_that_some_runs_do_not_support_is_said(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    fingerprint = machine["fingerprint"]
    sample_results.batches(state.store(), mlp, [1], fingerprint=fingerprint)
    sample_results.batches(state.store(), mlp, [2], fingerprint=fingerprint, runs=20)
    at = set_values(open_page("sweep", model=mlp), "1, 2")
    assert at.get_by_key("sweep.statistic").value == "p50_s"
    at.get_by_key("sweep.statistic").set_value("p95_s").run()
    at.number_input(key="sweep.line.number").set_value(100.0).run()
    assert lines(at, "p95", "batch 2.")


@pytest.mark.parametrize(("text", "rule"), [("1, x", "`x`"), ("0", "got 0."), ("-1", "got -1.")])
def test_values_that_cannot_be_measured_give_a_red_box_and_no_run(
    open_page: Open, mlp: ModelRecord, text: str, rule: str
) -> None:
    at = set_values(open_page("sweep", model=mlp), text)
    assert rule in at.error[0].value.replace("\\", "")
    assert not [button for button in at.button if button.key == "sweep.run"]


def test_a_model_with_a_fixed_batch_offers_its_threads(open_page: Open, add_model: Add) -> None:
    at = open_page("sweep", model=add_model(tiny_models.fixed_batch))
    assert at.get_by_key("sweep.axis").value == "intra_op_num_threads"
    assert at.text_input(key="sweep.values.intra_op_num_threads").value.startswith("1")


def test_another_free_dimension_can_be_swept(
    open_page: Open, add_model: Add, submitted: list[dict[str, Any]]
) -> None:
    at = open_page("sweep", model=add_model(tiny_models.tokens))
    at.get_by_key("sweep.axis").set_value("sequence").run()
    set_values(at, "4, 16", "sequence").button(key="sweep.run").click().run()
    assert [spec.workload.dims for spec in specs(submitted[0])] == [{"sequence": 4}, {"sequence": 16}]


def test_a_link_to_a_sweep_brings_its_settings_its_values_and_its_points(
    open_page: Open, mlp: ModelRecord
) -> None:
    study = axes.study_name([Axis(name="batch_size", values=(3, 5))], "abc")
    for rows in (3, 5):
        spec = sample_results.spec_for(mlp, batch_size=rows, intra_op_num_threads=1)
        sample_results.put_measured(state.store(), mlp, spec, fingerprint="x", rows=rows, study=study)
    at = open_page("sweep", study=study)
    assert at.text_input(key="sweep.values.batch_size").value == "3, 5"
    assert drawn_lines(at, 1)["CPUExecutionProvider"]["x"] == [3, 5]
    assert at.session_state["knob.intra_op_num_threads"] == 1
    assert at.session_state["knob.batch_size"] == 1  # varied here: none of its values was chosen for Tune
    assert list(table(at)["State"]) == ["complete", "complete"]


def test_the_best_point_becomes_the_settings_of_tune(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    sample_results.batches(state.store(), mlp, [1, 8], fingerprint=machine["fingerprint"])
    at = set_values(open_page("sweep", model=mlp), "1, 8")
    assert at.button(key="sweep.use").disabled
    at.number_input(key="sweep.line.number").set_value(5.0).run()
    assert tells(at.button(key="sweep.use").label, "batch 8")
    at.button(key="sweep.use").click().run()
    assert not at.exception
    assert at.session_state["knob.batch_size"] == 8
    assert at.title[0].value == "Tune"


def put_comparison(
    record: ModelRecord, machine: wire.Environment, sizes: Sequence[int] = (1, 8, 32), **facts: Any
) -> tuple[Comparison, list[Trial]]:
    """A sweep over the batch beside the default, in one race; a fixed cost plus a cost per row."""
    configurations = [
        SampleConfiguration(
            spec=sample_results.spec_for(record, batch_size=size),
            latency_s=0.0005 + 0.0001 * size,
            rows=size,
            label=f"batch {size}",
        )
        for size in sizes
    ]
    anchor = SampleConfiguration(
        spec=sample_results.spec_for(record), latency_s=0.0007, role="anchor", label=DEFAULT_LABEL
    )
    study = axes.study_name([Axis(name="batch_size", values=tuple(sizes))], "abc")
    return sample_results.put_comparison(
        state.store(),
        record,
        [*configurations, anchor],
        fingerprint=machine["fingerprint"],
        study=study,
        **facts,
    )


def open_comparison(open_page: Open, record: ModelRecord, comparison: Comparison) -> AppTest:
    at = open_page("sweep", model=record)
    at.query_params["study"] = comparison.study
    return at.run()


def test_a_measured_sweep_shows_its_grade_its_verdicts_and_its_bands(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put_comparison(mlp, machine)
    at = open_comparison(open_page, mlp, comparison)
    rows = table(at)
    assert against_default(at)[1].startswith("4.3")
    assert tells(against_default(at)[1], Verdict.FASTER.word, "95 % CI [")
    assert lines(opened(at, "sweep.confidence"), verdict.rounds_words(comparison.facts))
    bands = [one for one in figure(at, 0)["data"] if "95 % interval" in one.get("name", "")]
    assert len(bands) == 2
    assert list(rows["State"]) == ["complete"] * 3


def test_a_sweep_on_a_busy_machine_names_its_best_point_with_the_remark(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put_comparison(mlp, machine, busy=builders.busy_machine())
    at = open_comparison(open_page, mlp, comparison)
    assert lines(at, builders.BUSY)
    assert set(table(at)["Machine"]) == {builders.BUSY}
    assert lines(at, "samples/s (95 % ", "p95", BUSY)
    assert place(at, "subheader") < place(at, "plotly_chart") < place(at, "caption", builders.BUSY)
    assert "4.3" in against_default(at)[1]
    assert not at.error
    quiet, _ = put_comparison(mlp, machine)
    assert "Machine" not in table(open_comparison(open_page, mlp, quiet))


def test_a_sweep_of_an_earlier_version_says_what_its_intervals_know(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put_comparison(mlp, machine, older=True)
    at = open_comparison(open_page, mlp, comparison)
    assert lines(opened(at, "sweep.confidence"), verdict.OLDER)
    assert [one.key for one in at.button if one.key == "sweep.go_on"] == []


def test_a_sweep_whose_samples_were_pruned_is_drawn_as_before(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put_comparison(mlp, machine)
    before = figure(open_comparison(open_page, mlp, comparison), 0)
    state.store().prune(before=time.time())
    at = open_comparison(open_page, mlp, comparison)
    assert figure(at, 0) == before
    assert [one.key for one in at.button if one.key == "sweep.go_on"] == []


def test_a_finished_sweep_goes_on_under_its_name(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison, _ = put_comparison(mlp, machine)
    asked: list[str] = []

    def submit(_store: Store, comparison_id: str, **_: Any) -> str:
        asked.append(comparison_id)
        return running_comparison(mlp, machine, "RUNNING", sizes=(1, 8, 32))[0].id

    sample_results.queue(monkeypatch, "more_launches", submit)
    at = open_comparison(open_page, mlp, comparison)
    at.button(key="sweep.go_on").click().run()
    assert asked == [comparison.id]
    assert at.query_params["study"] == comparison.study
    assert followed(at, "sweep.watch")
    assert [one.key for one in at.button if one.key == "sweep.go_on"] == []


def widened(trial: Trial, half: float, **changes: Any) -> None:
    """Let the interval of a trial's mean be so wide, as a share."""
    result: dict[str, Any] = {**(state.store().trial(trial.id).result or {})}
    mean = result["latency"]["mean_s"]
    latency = {**result["latency"], "mean_s_low": mean * (1 - half), "mean_s_high": mean * (1 + half)}
    state.store().update_trial(trial.id, result={**result, "latency": latency, **changes})


def test_the_point_of_most_rows_is_best_and_a_wide_interval_is_inconclusive(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    """Ranks of medians and a lower latency decide nothing: the rows per second that are shown do."""
    comparison, trials = put_comparison(mlp, machine, sizes=(1, 8, 16, 32))
    ids = [one.id for one in trials]
    ranks = [{"trial": one, "rank": 1, "ties": [other for other in ids if other != one]} for one in ids]
    state.store().update_comparison(comparison.id, result={**(comparison.result or {}), "ranks": ranks})
    widened(trials[2], 0.5)
    at = open_comparison(open_page, mlp, comparison)
    assert tells(sentence(at), "help", "batch 32: ")
    assert lines(at, "batch 16")  # which may be as good
    at.number_input(key="sweep.line.number").set_value(10.0).run()
    assert list(table(at)["Best"]) == ["", "", "? ★", "★"]
    assert tells(sentence(at), "help", "10 ms", "batch 32")


def test_a_sweep_of_few_launches_says_what_its_intervals_know(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, trials = put_comparison(mlp, machine)
    for one in trials:
        widened(one, 0.01, generations=3)
    at = open_comparison(open_page, mlp, comparison)
    assert lines(at, "3 launches", *(f"batch {size}" for size in (1, 8, 32)))
    assert "batch 32: " in texts(at)
    assert lines(at, "batch 32: ", "samples/s (")
    assert not lines(at, "samples/s (95")
    assert list(table(at)["Best"]) == ["? ★", "? ★", "★"]


def test_a_rejected_comparison_names_no_best_point(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put_comparison(
        mlp, machine, grade="F", grade_reason="A neighbour used 0.9 cores.", remedy="Stop it.", ranks=[]
    )
    at = open_comparison(open_page, mlp, comparison)
    assert tells(at.error[0].value, *(comparison.facts[name] for name in ("grade_reason", "remedy")))
    assert place(at, "subheader", "ejected") < place(at, "plotly_chart") < place(at, "error")
    assert not lines(at, "samples/s")
    said = {one for one in against_default(at) if "×" in one}
    assert said
    assert said <= {in_words(one) for one in comparison.facts["contrasts"]}
    assert numbers(at.button(key="sweep.run").label) == [3]


def test_the_time_is_predicted_from_an_earlier_comparison(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_comparison(mlp, machine, sizes=(1, 8))
    at = set_values(open_page("sweep", model=mlp), "1, 8, 16, 64")
    assert len(predicted(at)) > 2
    assert predicted(at)[:2] == [4, 2]
    assert "rounds" in texts(at)
    one = SimpleNamespace(seconds=2.0, rounds=1, late="")
    monkeypatch.setattr(core.api.requests, "predict", lambda *_, **__: one)
    assert ", 1 round" in texts(at.run())
    assert "1 rounds" not in texts(at)


def running_comparison(
    record: ModelRecord, machine: wire.Environment, state_name: str, sizes: Sequence[int] = (1, 2)
) -> tuple[Comparison, list[Trial]]:
    comparison, trials = put_comparison(record, machine, sizes)
    for trial in trials:
        state.store().update_trial(trial.id, state=state_name, result=None)
    state.store().update_comparison(comparison.id, state=state_name, result=None)
    return comparison, trials


def test_a_running_sweep_shows_all_points_together_and_can_be_cancelled(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, jobs: Jobs
) -> None:
    comparison, trials = running_comparison(mlp, machine, "RUNNING")
    contrast = {"ratio": 1.2, "ratio_low": 1.1, "ratio_high": 1.3, "verdict": "FASTER"}
    contrasts = [
        {"candidate": one.id, "baseline": trials[-1].id, "label": f"batch {n}", **contrast}
        for n, one in enumerate(trials[:-1], 1)
    ]
    live = {"rounds": 9, "predicted_rounds": 40, "elapsed_s": 3.0, "contrasts": contrasts}
    cancelled = jobs(status(comparison.id, stage="rounds", done=9, total=40, live=live))
    at = open_comparison(open_page, mlp, comparison)
    shown = followed(at, "sweep.watch")
    assert numbers(shown["text"])[:2] == [9, 40]
    assert tells(str(shown["pictures"]), "batch 2")
    assert at.button(key="sweep.run").disabled
    [cancel] = at.get_by_key("bar.more").button  # in sight, however high the plots are
    cancel.click().run()
    assert cancelled == [comparison.id]


def test_a_waiting_sweep_says_who_has_the_machine(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, jobs: Jobs
) -> None:
    comparison, _ = running_comparison(mlp, machine, "WAITING")
    jobs(status(comparison.id, state="WAITING", place=2, holder="bob: measure"))
    at = open_comparison(open_page, mlp, comparison)
    text = followed(at, "sweep.watch")["text"].replace("\\", "")
    assert tells(text, "bob: measure")
    assert numbers(text) == [2]


def test_a_sweep_is_really_measured_and_its_points_are_kept(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "GRACE_S", 60.0)  # a slow machine may overrun it, instead of being refused
    at = open_page("sweep", model=mlp)
    at.session_state["knob.budget_s"] = 5
    set_values(at, "1, 4").button(key="sweep.run").click().run()
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    (comparison,) = state.store().comparisons()
    assert (comparison.state, comparison.error) == ("COMPLETE", None)
    rows = table(at)
    assert list(rows["batch_size"]) == [1, 4]
    assert list(rows["State"]) == ["complete", "complete"]
    assert (rows["p50 (ms)"] > 0).all()
    assert (rows["Runs"] > 0).all()
    assert drawn_lines(at, 1)["CPUExecutionProvider"]["x"] == [1, 4]
    # Whatever else this machine does now: both points may be rejected, or one.
    points = [state.store().trial(one.id) for one in state.store().trials()]
    assert len(points) == 2
    rejected = sum((one.result or {})["grade"] == "F" for one in points)
    assert numbers(at.button(key="sweep.run").label) == ([rejected] if rejected else [])


# --- two settings -----------------------------------------------------------------------------------------


def put_grid(record: ModelRecord, machine: wire.Environment, **facts: Any) -> Comparison:
    """A sweep over threads and batch: more threads and larger batches bring more rows per second."""
    configurations = [
        SampleConfiguration(
            spec=sample_results.spec_for(record, batch_size=size, intra_op_num_threads=threads),
            latency_s=(0.0005 + 0.0001 * size) / threads,
            rows=size,
            label=f"threads {threads}, batch {size}",
        )
        for threads in (1, 2)
        for size in (4, 16)
    ]
    anchor = SampleConfiguration(
        spec=sample_results.spec_for(record), latency_s=0.0007, role="anchor", label=DEFAULT_LABEL
    )
    varied = [Axis(name=axes.THREADS, values=(1, 2)), Axis(name=axes.BATCH, values=(4, 16))]
    study = axes.study_name(varied, facts.pop("token", "abc"))
    comparison, _ = sample_results.put_comparison(
        state.store(),
        record,
        [*configurations, anchor],
        fingerprint=machine["fingerprint"],
        study=study,
        **facts,
    )
    return comparison


def test_two_settings_are_compared_in_every_combination(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = set_values(open_page("sweep", model=mlp), "1, 8")
    at.selectbox(key="sweep.second").set_value("graph_optimization_level").run()
    key = "sweep.values.graph_optimization_level"
    assert len(at.multiselect(key=key).value) == 5
    at.multiselect(key=key).set_value(["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"]).run()
    assert predicted(at) == [4]
    at.button(key="sweep.run").click().run()
    (comparison,) = submitted
    assert [one.label for one in comparison["contestants"]] == [
        f"batch {size}, {level}" for size in (1, 8) for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL")
    ]
    assert [one.name for one in axes.axes_of_study(comparison["study"])] == [
        "batch_size",
        "graph_optimization_level",
    ]


def test_two_settings_of_numbers_open_as_a_heat_map_whose_cells_lead_to_tune(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison = put_grid(mlp, machine)
    at = open_comparison(open_page, mlp, comparison)
    assert not at.exception
    assert at.selectbox(key="sweep.axis").value == "intra_op_num_threads"
    assert at.selectbox(key="sweep.second").value == "batch_size"
    drawn = figure(at, 0)["data"]
    assert drawn[0]["type"] == "heatmap"
    assert drawn[-1]["customdata"][3] == BOTH
    assert at.button(key="sweep.use").disabled
    at.session_state["sweep.point"] = BOTH
    at.run()
    assert tells(at.button(key="sweep.use").label, BOTH)
    assert any(lines(at, in_words(one)) for one in comparison.facts["contrasts"])
    memory = "Peak memory added by the session"
    assert {one.label for one in at.metric} >= {"p50", "p95", "Throughput", memory}
    at.button(key="sweep.line_here").click().run()
    assert at.number_input(key="sweep.line.number").value > 0
    at.button(key="sweep.use").click().run()
    assert at.title[0].value == "Tune"
    assert at.session_state["knob.batch_size"] == 16
    assert at.session_state["knob.intra_op_num_threads"] == 2


def test_lines_show_earlier_sweeps_over_the_same_settings_when_asked(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    put_grid(mlp, machine, token="before")
    at = open_comparison(open_page, mlp, put_grid(mlp, machine))
    at.get_by_key("sweep.view.2").set_value("Lines").run()
    names = [one.get("name") for one in figure(at, 0)["data"] if "customdata" in one]
    assert names == ["batch 4", "batch 16"]
    before = len(figure(at, 0)["data"])
    at.toggle(key="sweep.ghosts").set_value(True).run()
    assert len(figure(at, 0)["data"]) == before + 2
    assert sum("earlier, " in (one.get("name") or "") for one in figure(at, 1)["data"]) == 2


def test_throughput_against_latency_shows_the_front(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    at = open_comparison(open_page, mlp, put_grid(mlp, machine))
    at.get_by_key("sweep.view.2").set_value("Throughput against latency").run()
    drawn = {one["name"]: one for one in figure(at, 0)["data"]}
    front, *others = drawn
    assert others == ["batch 4", "batch 16"]
    assert len(drawn[front]["x"]) == 2  # two threads beat one at either batch


def test_what_is_the_same_is_said_once_and_asked_for_once(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = open_page("sweep", model=mlp)
    at.selectbox(key="sweep.axis").set_value("execution_mode").run()
    at.selectbox(key="sweep.second").set_value("inter_op_num_threads").run()
    set_values(at, "1, 2", "inter_op_num_threads")
    assert predicted(at) == [4, 1]
    assert lines(at, ":material/content_copy:", "ORT_SEQUENTIAL")
    at.button(key="sweep.run").click().run()
    assert len(specs(submitted[0])) == 3


def test_a_combination_that_no_configuration_allows_is_shown_with_its_rule(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = open_page("sweep", model=mlp)
    at.session_state["knob.intra_op_num_threads"] = 2
    at.session_state["knob.session.intra_op_thread_affinities"] = "1"
    at.selectbox(key="sweep.axis").set_value("intra_op_num_threads").run()
    set_values(at, "2, 3", "intra_op_num_threads")
    (said,) = at.warning
    assert "intra_op_thread_affinities" in said.value.replace("\\", "")
    assert numbers(said.proto.title) == [1, 2]
    at.button(key="sweep.run").click().run()
    assert [one.session.intra_op_num_threads for one in specs(submitted[0])] == [2]


def test_a_cancelled_sweep_keeps_its_points_and_offers_to_measure_them_again(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, trials = put_comparison(mlp, machine)
    for trial in trials:
        state.store().update_trial(trial.id, state="CANCELLED")
    state.store().update_comparison(comparison.id, state="CANCELLED")
    at = open_comparison(open_page, mlp, comparison)
    assert list(table(at)["State"]) == ["cancelled"] * 3
    assert next(iter(drawn_lines(at, 0).values()))["x"] == [1, 8, 32]
    assert not lines(at, "samples/s")
    assert "cancel" in icons(at)
    assert numbers(at.button(key="sweep.run").label) == [3]


def test_a_running_sweep_draws_its_points_so_far(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, jobs: Jobs
) -> None:
    comparison, trials = running_comparison(mlp, machine, "RUNNING")
    jobs(
        status(
            comparison.id,
            stage="rounds",
            live={"rounds": 3, "p50_s": {trials[1].id: 0.002}, "rows_fed": {trials[1].id: 2}},
        )
    )
    at = open_comparison(open_page, mlp, comparison)
    assert lines(at, "1 of 2")
    latency, throughput = followed(at, "sweep.watch")["pictures"]
    assert [one["points"] for one in latency["series"]] == [[[0.0, None, ""], [1.0, 2.0, ""]]]
    assert [one["points"] for one in throughput["series"]] == [[[0.0, None, ""], [1.0, 1000.0, ""]]]
