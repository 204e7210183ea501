"""The Scorecard page: targets as they are typed, verdicts on invented results, and measuring for real."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from streamlit.testing.v1 import AppTest

from core import wire
from core.evidence.comparison import DEFAULT_LABEL
from core.evidence.quality import BUSY
from core.evidence.targets import STATE_WORDS, Measurements, evaluate_target
from core.run.scorecard import ScorecardRow, Subject
from core.spec import spec_from_yaml, yaml_from_spec
from core.spec.presets import PRESETS
from core.spec.targets import target_from_dict
from core.store import ModelRecord
from core.wire.output_check import OUTPUTS_DIFFER
from dashboard import state
from dashboard.views.scorecard import measured as scorecard
from dashboard.views.scorecard import targets as scorecard_targets
from tests import builders, tiny_models
from tests.reading import numbers, tells
from tests.simulated_load import sample_load_result, sample_point, sample_run
from tests.views import sample_results
from tests.views.page import Add, Jobs, Open, icons, lines, status, texts


def add_target(at: AppTest, metric: str, limit: str, **conditions: Any) -> str:
    """Fill one more line, and return its id."""
    at.button(key="scorecard.add").click().run()
    line = str(at.session_state[scorecard_targets.IDS][-1])
    at.selectbox(key=scorecard_targets.key(line, "metric")).set_value(metric).run()
    at.text_input(key=scorecard_targets.key(line, "limit")).set_value(limit).run()
    for name, value in conditions.items():
        at.get_by_key(scorecard_targets.key(line, name)).set_value(value).run()
    assert not at.exception
    return line


def unfold(at: AppTest, group: str) -> AppTest:
    """Open a group of the form: what is in a closed one is not there."""
    at.session_state[f"scorecard.{group}"] = True
    return at.run()


def cells(at: AppTest) -> dict[str, str]:
    """Heading -> cell of the first configuration."""
    table = at.table[0].value
    return {str(name).replace("\\", ""): str(table[name].iloc[0]).replace("\\", "") for name in table.columns}


MET, MISSED, UNKNOWN = (scorecard.word(state) for state in ("MET", "MISSED", "UNKNOWN"))


def heading(metric: str, **target: Any) -> str:
    """The text above the cells of a target."""
    found = target_from_dict({"metric": metric, **target})
    return f"{found.what} {found.limit_words}"


def refusals(at: AppTest) -> list[str]:
    """What is said under a line that cannot be read."""
    return [one.value for one in at.caption if one.value.startswith(":material/error:")]


def why(at: AppTest, number: int) -> str:
    """What the first configuration's details say of a target."""
    return str(at.table[1].value["Reason"].iloc[number]).replace("\\", "")


def put(record: ModelRecord, machine: wire.Environment, **changes: Any) -> None:
    """A race of ORT's default, as the scheduler stores it; `changes` are of the racer or of the race."""
    comparison = {name: changes.pop(name) for name in ("older", "busy") if name in changes}
    configuration = sample_results.SampleConfiguration(
        spec=sample_results.spec_for(record), label="default", **changes
    )
    rival = sample_results.SampleConfiguration(
        spec=sample_results.spec_for(record, intra_op_num_threads=1), role="baseline"
    )
    sample_results.put_comparison(
        state.store(),
        record,
        [configuration, rival],
        fingerprint=machine["fingerprint"],
        rounds=50,
        **comparison,
    )


# --- stating targets ----------------------------------------------------------------------------------------


def test_without_targets_the_page_says_what_to_do(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    assert "checklist" in icons(at)
    assert not [one for one in at.button if one.key == "scorecard.run"]


def test_a_line_without_a_limit_or_with_a_wrong_one_says_so(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    line = add_target(at, "latency_p99", "")
    assert any(one.value.startswith(":material/info:") for one in at.caption)
    assert not at.table
    limit = at.text_input(key=scorecard_targets.key(line, "limit"))
    limit.set_value("3").run()
    assert tells(refusals(at), "µs")
    limit.set_value("3 MB").run()
    assert tells(refusals(at), "MB")
    limit.set_value("3 ms").run()
    assert refusals(at) == []
    assert heading("latency_p99", at_most="3 ms") in cells(at)


def test_two_lines_on_the_same_thing_count_once(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p99", "3 ms")
    add_target(at, "latency_p99", "4 ms")
    assert tells(refusals(at), "p99")
    assert heading("latency_p99", at_most="3 ms") in cells(at)
    assert heading("latency_p99", at_most="4 ms") not in cells(at)


def test_a_removed_line_is_gone(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    line = add_target(at, "latency_p99", "3 ms")
    at.button(key=f"scorecard.drop.{line}").click().run()
    assert not at.exception
    assert "checklist" in icons(at)


def test_targets_survive_a_visit_to_another_page(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p99", "3 ms", batch=4)
    at.switch_page("views/machine/page.py").run()
    at.switch_page("views/scorecard/page.py").run()
    assert not at.exception
    assert heading("latency_p99", at_most="3 ms", batch_size=4) in cells(at)


# --- verdicts -----------------------------------------------------------------------------------------------


def test_met_missed_and_unknown_have_a_word_and_an_icon(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    put(mlp, machine, latency_s=0.002)
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    add_target(at, "latency_p95", "1 µs")
    add_target(at, "latency_p99", "1 s", batch=64)
    found = cells(at)
    p50 = found[heading("latency_p50", at_most="1 s")]
    assert p50.startswith(f"{MET} · 2.")
    assert found[heading("latency_p95", at_most="1 µs")].startswith(f"{MISSED} · 2.")
    assert found[heading("latency_p99", at_most="1 s", batch_size=64)] == UNKNOWN
    assert found["All"] == MISSED
    value, low, high, *_ = numbers(p50)
    assert low < value < high < 1_000
    assert str(at.table[1].value["Margin"].iloc[0]).startswith("+")
    assert numbers(why(at, 2))[0] == 64
    assert any(numbers(one.value) == [1, 64] for one in at.caption)  # what is missing


def test_a_comparison_of_an_earlier_version_that_was_rejected_is_not_known(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    put(mlp, machine, older=True, changes={"grade": "F", "grade_reason": "A neighbour."})
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    assert cells(at)[heading("latency_p50", at_most="1 s")] == UNKNOWN
    assert tells(why(at, 0), " F", "neighbour")
    assert not at.button(key="scorecard.run").disabled


def test_on_a_busy_machine_what_is_met_is_met_and_the_rest_not_known(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    put(mlp, machine, busy=builders.busy_machine())
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    add_target(at, "latency_p95", "1 µs")
    found = cells(at)
    assert found[heading("latency_p50", at_most="1 s")].startswith(MET)
    assert found[heading("latency_p95", at_most="1 µs")].startswith(UNKNOWN)
    who = str(at.table[0].value.index[0])
    assert BUSY in who
    assert lines(at, builders.BUSY)
    assert BUSY in why(at, 1)


def test_a_quiet_machine_has_no_mark(open_page: Open, mlp: ModelRecord, machine: wire.Environment) -> None:
    put(mlp, machine)
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    assert BUSY not in str(at.table[0].value.index[0]) + texts(at)


def test_everything_met_leaves_nothing_to_measure(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    put(mlp, machine)
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    assert list(cells(at).values())[-1].startswith(MET)
    assert at.button(key="scorecard.run").disabled


def test_outputs_that_differ_are_marked(open_page: Open, mlp: ModelRecord, machine: wire.Environment) -> None:
    put(mlp, machine, changes={"guard": {"breach": True, "why": "0.5 of the largest magnitude"}})
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    assert OUTPUTS_DIFFER in str(at.table[0].value.index[0])
    assert tells(at.warning[0].value, "0.5")


def test_every_model_is_judged_with_every_kind_of_settings(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    add_target(at, "model_size", "1 GB")
    unfold(at, "who").multiselect(key="scorecard.settings").set_value(["ORT default", "edge"]).run()
    assert not at.exception
    labels = [str(one) for one in at.table[0].value.index]
    assert labels == [f"**mlp · {name}**" for name in (DEFAULT_LABEL, PRESETS["edge"][0])]
    at.multiselect(key="scorecard.settings").set_value([]).run()
    assert ":material/checklist:" in [one.icon for one in at.info]


def test_an_accuracy_target_asks_for_labelled_data(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    add_target(at, "sensitivity", "98 %", positive="3", threshold=0.6)
    sensitivity = heading("sensitivity", at_least="98 %", positive_class=3, threshold=0.6)
    assert cells(at)[sensitivity] == UNKNOWN
    assert why(at, 0)


# --- the file -----------------------------------------------------------------------------------------------


def test_the_example_brings_its_model_data_and_targets(open_page: Open) -> None:
    at = open_page("scorecard")
    at.button(key="scorecard.example").click().run()
    assert not at.exception
    found = cells(at)
    assert heading("latency_p99", at_most="3 ms", batch_size=1) in found
    assert found[heading("model_size", at_most="1 MiB")].startswith(f"{MET} · 117.1 KiB")
    assert unfold(at, "data").text_input(key="dataset.path").value == "sample_models/digits_test.npz"
    assert not at.button(key="scorecard.run").disabled


def test_a_file_is_loaded_and_a_file_without_targets_refused(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    text = f"schema: 1\nmodel: {{path: mlp, sha256: {mlp.sha256}}}\n"
    at.text_area(key="scorecard.pasted").set_value(text).run()
    at.button(key="scorecard.load").click().run()
    assert at.error
    at.text_area(key="scorecard.pasted").set_value(text + "targets: [{metric: cpu_s, at_most: 5 ms}]\n").run()
    at.button(key="scorecard.load").click().run()
    assert not at.exception
    assert heading("cpu_s", at_most="5 ms") in cells(at)


def card_row(**changes: Any) -> ScorecardRow:
    target = target_from_dict({"metric": "model_size", "at_most": "1 MB"})
    record = ModelRecord(
        content_sha256="a" * 64,
        sha256="a" * 64,
        name="m",
        path="m.onnx",
        source="file",
        info={},  # type: ignore[typeddict-item]
    )
    spec = spec_from_yaml(
        "schema: 1\nmodel: {path: m.onnx}\ntargets: [{metric: model_size, at_most: 1 MB}]\n"
    )
    evidence = Measurements(**({"batch_size": 1, "size_bytes": 10} | changes))
    subject = Subject(label="a *star*", spec=spec, record=record)
    return ScorecardRow(subject=subject, evidence=evidence, judged=(evaluate_target(target, evidence),))


def test_names_are_literal_in_the_table() -> None:
    columns = scorecard.matrix([card_row()])
    assert columns["Configuration"] == ["**a \\*star\\***"]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([10, 10], "meet every target"),
        ([10, None], "meets every target"),
        ([None], "No configuration is known to meet every target yet."),
        ([10**9], "It misses a target."),
        ([10**9, 10**9], "No configuration meets every target."),
        ([10**9, None], "No configuration is known to meet every target yet."),
    ],
)
def test_the_headline(sizes: list[int | None], words: str) -> None:
    assert words in scorecard.headline([card_row(size_bytes=one) for one in sizes])


# --- measuring ----------------------------------------------------------------------------------------------


def test_a_running_measurement_shows_its_progress_and_can_be_cancelled(
    open_page: Open, mlp: ModelRecord, jobs: Jobs
) -> None:
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    cancelled = jobs(status(what="scorecard of mlp", stage="rounds", done=3, total=10, elapsed_s=4.0))
    at.session_state["scorecard.jobs"] = ["job"]
    at.run()
    assert not at.exception
    assert at.button(key="scorecard.run").disabled
    at.button(key="scorecard.cancel").click().run()
    assert cancelled == ["job"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "CANCELLED"}, "cancel"),
        (
            {"state": "FAIL", "error": {"type": "WorkerError", "message": "It crashed.", "hint": ""}},
            "It crashed.",
        ),
        ({"state": "COMPLETE", "result": {"failures": {"mlp": "It is no classifier."}}}, "no classifier"),
    ],
)
def test_how_measurements_ended_is_said(
    open_page: Open, mlp: ModelRecord, jobs: Jobs, changes: dict[str, Any], words: str
) -> None:
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    jobs(status(kind="accuracy", **changes))
    at.session_state["scorecard.jobs"] = ["job"]
    at.run()
    assert not at.exception
    assert words in "\n".join([*icons(at), texts(at)])


def test_what_measuring_brought_is_said_in_place(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, submitted: list[dict[str, Any]], jobs: Jobs
) -> None:
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    add_target(at, "accuracy", "98 %")
    jobs(status("job-1", state="COMPLETE", elapsed_s=46.2))
    at.button(key="scorecard.run").click().run()
    assert not at.exception
    put(mlp, machine)
    at.run()
    [said] = [one.value for one in at.info if one.icon == ":material/timer:"]
    plain = said.replace("\\", "")
    assert tells(plain, "46 s")
    assert numbers(plain)[:3] == [46, 1, 2]
    assert tells(plain, f"mlp · {heading('latency_p50', at_most='1 s')}: {MET} · ")
    assert tells(plain, f"mlp · {heading('accuracy', at_least='98 %')}: {UNKNOWN}")


def test_what_is_missing_is_measured_for_real(open_page: Open) -> None:
    at = open_page("scorecard")
    at.button(key="scorecard.example").click().run()
    unfold(at, "what")
    for line in at.session_state[scorecard_targets.IDS]:
        if at.session_state[scorecard_targets.key(line, "metric")] in (
            "latency_p99",
            "throughput",
            "peak_rss",
        ):
            at.button(key=f"scorecard.drop.{line}").click().run()
    at.button(key="scorecard.run").click().run()
    assert not at.exception
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    found = cells(at)
    assert found[heading("accuracy", at_least="97 %")].startswith(f"{MET} · 99.4")
    assert (
        "·" in found[heading("sensitivity", at_least="90 %", positive_class=5, threshold=0.6)]
    )  # a number, whatever the verdict


def test_variants_are_judged_beside_their_original(
    open_page: Open, add_model: Add, mlp: ModelRecord, machine: wire.Environment
) -> None:
    """A variant with a fixed batch of 2 is measured there; it refuses a batch of one."""
    made = add_model(tiny_models.fixed_batch, "mlp-fixed")
    descent = {"root": mlp.content_sha256, "parent": mlp.content_sha256, "precision": "fp32"}
    state.store().put_model(replace(made, details={"variant": descent}))
    put(mlp, machine)
    at = open_page("scorecard", model=mlp)
    add_target(at, "latency_p50", "1 s")
    add_target(at, "latency_p95", "1 s", batch=1)
    table = at.table[0].value
    assert [str(one) for one in table.index] == ["**mlp**", "**mlp-fixed**"]
    original, variant = (list(table.iloc[number]) for number in (0, 1))
    assert [cell.split("**")[1] for cell in original] == ["Met", "Met", "Met"]
    assert [cell.split("**")[1] for cell in variant] == [STATE_WORDS["UNKNOWN"]] * 3
    assert any(numbers(one.value) == [1, 2] for one in at.caption)  # what is missing: one, at batch 2
    assert 2 in numbers(at.table[2].value["Reason"].iloc[1])


def test_rows_seen_in_calibration_stand_in_the_yaml_that_is_taken_away() -> None:
    note = "9 of the 360 rows that this model is scored on also calibrated it"
    seen = card_row(summaries={(None, None): {"calibration_note": note}})
    assert seen.calibration == note
    assert yaml.safe_load(yaml_from_spec(seen.subject.spec, measured=seen.measured))["measured"] == {
        "scorecard": "MET",
        "targets": [one.to_dict() for one in seen.judged],
        "calibration_note": note,
    }
    assert card_row().calibration == ""
    assert "calibration_note" not in card_row().measured


# --- under load ---------------------------------------------------------------------------------------------


def add_load(at: AppTest, rate: float | None, limit: str) -> str:
    """Fill one more line with a target under load, and return its id."""
    at.button(key="scorecard.add").click().run()
    line = str(at.session_state[scorecard_targets.IDS][-1])
    at.selectbox(key=scorecard_targets.key(line, "metric")).set_value("load").run()
    at.text_input(key=scorecard_targets.key(line, "limit")).set_value(limit).run()
    at.number_input(key=scorecard_targets.key(line, "rate")).set_value(rate).run()
    assert not at.exception
    return line


def put_load(record: ModelRecord, machine: wire.Environment, rate: float) -> None:
    """A load test of ORT's default at a rate, as the scheduler stores it."""
    spec = sample_results.spec_for(record)
    found = sample_load_result("traffic")
    found["runs"] = [sample_run(rate)]
    found["points"] = [sample_point(found["runs"][0], 0)]
    found["configurations"] = found["configurations"][:1]
    found["configurations"][0]["spec"] = spec.to_dict()
    state.store().create_trial(
        builders.trial(
            "1234567890abcdef",
            spec,
            kind="load",
            model_sha256=record.content_sha256,
            fingerprint=machine["fingerprint"],
            result={"load": found},
        )
    )


def test_a_target_under_load_is_judged_by_a_load_test(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    put_load(mlp, machine, 200)
    at = open_page("scorecard", model=mlp)
    add_load(at, 200, "p99<=20ms")
    add_load(at, 300, "p99<=20ms")
    found = cells(at)
    assert found["p99 at 200 requests/s ≤ 20 ms"].startswith(f"{MET} · 0.2479 % slower")
    assert found["p99 at 300 requests/s ≤ 20 ms"] == UNKNOWN
    assert tells(why(at, 0), "6,000 requests", "95 % CI")
    assert any("1 load test of 30 s" in one.value for one in at.caption)
    assert not at.button(key="scorecard.run").disabled


def test_targets_of_an_earlier_load_test_are_offered(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    put_load(mlp, machine, 200)
    [trial] = state.store().trials(kind="load")
    state.store().update_trial(trial.id, spec={**trial.spec, "targets": [{"load": "200/s with p99<=20ms"}]})
    at = open_page("scorecard", model=mlp)
    assert cells(at)["p99 at 200 requests/s ≤ 20 ms"].startswith(MET)


def test_a_line_under_load_needs_a_limit_and_a_rate(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    line = add_load(at, None, "p99<=20ms")
    assert any(tells([one.value], "a limit and a rate") for one in at.caption)
    at.text_input(key=scorecard_targets.key(line, "limit")).set_value("3 ms").run()
    assert tells(refusals(at), "no limit of a load test")
    at.text_input(key=scorecard_targets.key(line, "limit")).set_value("p99<=20ms").run()
    at.number_input(key=scorecard_targets.key(line, "rate")).set_value(0.001).run()
    assert tells(refusals(at), "0.01 to")
    at.number_input(key=scorecard_targets.key(line, "rate")).set_value(12.5).run()
    assert refusals(at) == []
    assert "p99 at 12.5 requests/s ≤ 20 ms" in cells(at)


def test_a_file_with_a_target_under_load_fills_its_line(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("scorecard", model=mlp)
    text = (
        f"schema: 1\nmodel: {{path: mlp, sha256: {mlp.sha256}}}\n"
        "dynamic_batching: {max_batch_size: 8}\ntargets: [{load: 200/s with p99<=20ms}]\n"
    )
    at.text_area(key="scorecard.pasted").set_value(text).run()
    at.button(key="scorecard.load").click().run()
    assert not at.exception
    assert "p99 at 200 requests/s ≤ 20 ms" in cells(at)
    [line] = at.session_state[scorecard_targets.IDS]
    unfold(at, "what")
    assert at.number_input(key=scorecard_targets.key(line, "rate")).value == 200
    assert at.text_input(key=scorecard_targets.key(line, "limit")).value == "p99<=20ms"
