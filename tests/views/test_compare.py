"""The Compare page on invented comparisons, and on one that is really run."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core import wire
from core.evidence.comparison import DEFAULT_LABEL, Comparison
from core.evidence.measurement import Trial
from core.evidence.quality import BUSY
from core.evidence.verdict import Verdict
from core.run.launches import budget
from core.show import comparison_text, verdict
from core.show.sheets import imported as sheets
from core.show.verdict import in_words
from core.spec.presets import PRESETS
from core.store import ModelRecord, Store
from core.wire import engines
from core.wire.catalog import SEED_KEY, SOURCE_KEY, WEIGHTS_KEY
from core.wire.output_check import OUTPUTS_DIFFER, WARNING
from core.wire.runtime import OWN
from dashboard import state
from tests import builders, tiny_models
from tests.reading import numbers, tells
from tests.views import page, sample_results
from tests.views.page import Add, Jobs, Open, buttons, click, followed, icons, lines, opened, status, texts
from tests.views.sample_results import SampleConfiguration

EDGE = PRESETS["edge"][0]
DETAILS, PAST = "compare.details", "compare.past.box"  # closed groups


def names(at: AppTest) -> list[str]:
    """Names of the list, in order."""
    lines = [
        one.value.replace("\\", "")
        for one in at.markdown
        if one.value.startswith("**") and not one.value.startswith("**A/A")
    ]
    return [line.split("**")[1] for line in lines]


def frame(at: AppTest, start: str) -> Any:
    """The data frame whose key begins so."""
    (found,) = [one for one in at.dataframe if str(one.key).startswith(start)]
    return found


def table(at: AppTest) -> Any:
    return frame(at, "compare.table.").value


def configurations(record: ModelRecord) -> list[SampleConfiguration]:
    """The default as baseline, one clearly faster, one that is not told apart from it."""
    return [
        SampleConfiguration(
            spec=sample_results.spec_for(record), latency_s=0.002, role="baseline", label=DEFAULT_LABEL
        ),
        SampleConfiguration(
            spec=sample_results.spec_for(record, intra_op_num_threads=1),
            latency_s=0.0014,
            label="threads 1",
        ),
        SampleConfiguration(
            spec=sample_results.spec_for(record, use_io_binding=True),
            latency_s=0.00201,
            label="io_binding on",
        ),
    ]


def put(record: ModelRecord, machine: wire.Environment, **facts: Any) -> tuple[Comparison, list[Trial]]:
    return sample_results.put_comparison(
        state.store(),
        record,
        facts.pop("configurations", None) or configurations(record),
        fingerprint=machine["fingerprint"],
        study=facts.pop("study", "compare #1"),
        **facts,
    )


# --- the list ---------------------------------------------------------------------------------------------


def test_the_list_begins_with_the_default_as_baseline(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("compare", model=mlp)
    assert names(at) == [DEFAULT_LABEL]
    assert at.button(key="compare.run").disabled
    assert numbers(at.button(key="compare.run").help)[0] == 2


def test_the_settings_of_tune_join_the_list_when_they_are_no_default(
    open_page: Open, mlp: ModelRecord
) -> None:
    at = open_page(model=mlp)
    at.number_input(key="knob.intra_op_num_threads").set_value(1).run()
    at.switch_page("views/compare/page.py").run()
    assert names(at) == [DEFAULT_LABEL, "threads 1"]
    assert not at.button(key="compare.run").disabled


def test_presets_are_added_once_and_keep_their_name(open_page: Open, mlp: ModelRecord) -> None:
    at = click(open_page("compare", model=mlp), "compare.add.preset.edge")
    assert names(at) == [DEFAULT_LABEL, EDGE]
    assert numbers(at.button(key="compare.run").label) == [2]
    click(at, "compare.add.preset.edge")
    assert len(at.error) == 1
    assert len(names(at)) == 2


def test_what_all_are_fed_stands_above_the_list_and_is_changed_for_all(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = open_page(model=mlp)
    at.number_input(key="knob.batch_size").set_value(3).run()
    at.switch_page("views/compare/page.py").run()
    assert at.number_input(key="compare.fed.batch_size").value == 3  # Tune's, and it is shown
    click(at, "compare.add.preset.edge")
    click(at, "compare.add.preset.cpu-throughput")
    at.number_input(key="compare.fed.batch_size").set_value(5).run()
    assert not at.exception
    assert at.number_input(key="compare.fed.batch_size").value == 5
    click(at, "compare.run")
    (asked,) = submitted
    assert [one.spec.workload.batch_size for one in asked["contestants"]] == [5, 5, 16]
    assert tells(asked["contestants"][2].label, PRESETS["cpu-throughput"][0], "batch 16")


def test_what_cannot_load_is_marked_before_the_comparison(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"name": "CUDAExecutionProvider", "loadable": False, "reason": "There is no GPU.", "remedy": ""}
    others = [one for one in machine["providers"] if one["name"] != lost["name"]]
    monkeypatch.setitem(state.scheduler()._environments, OWN, {**machine, "providers": [lost, *others]})
    at = click(open_page("compare", model=mlp), "compare.add.preset.gpu-server")
    assert lines(at, "CUDA", lost["reason"])
    assert at.button(key="compare.run").disabled
    assert at.button(key="compare.run").help
    click(at, "compare.add.preset.edge")
    assert not at.button(key="compare.run").disabled


def add_pytorch(at: AppTest, model: ModelRecord) -> AppTest:
    """Another user's file requests PyTorch, of which nobody here knows what it is for this model."""
    text = f"schema: 1\nmodel: {{path: x.onnx, sha256: {model.sha256}}}\nengine: torch-eager"
    at.text_area(key="compare.pasted").set_value(text)
    return click(at, "compare.add.yaml")


def test_a_comparison_in_which_no_candidate_can_run_is_not_queued(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = click(add_pytorch(open_page("compare", model=mlp), mlp), "compare.run")
    assert submitted == []
    assert tells(at.error[0].value, "torch-eager")


def test_one_that_cannot_run_keeps_no_other_from_being_measured(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = add_pytorch(open_page("compare", model=mlp), mlp)
    click(click(at, "compare.add.preset.edge"), "compare.run")
    (asked,) = submitted
    assert len(asked["contestants"]) == 3


def test_another_model_joins_only_with_the_switch(
    open_page: Open, mlp: ModelRecord, add_model: Add, submitted: list[dict[str, Any]]
) -> None:
    other = add_model(tiny_models.conv, name="other")
    at = open_page("compare", model=mlp)
    assert not [one for one in at.multiselect if one.key == "compare.others"]
    at.toggle(key="compare.different").set_value(True).run()
    at.multiselect(key="compare.others").set_value([other.content_sha256]).run()
    click(at, "compare.add.others")
    assert not at.exception
    assert names(at) == [f"{DEFAULT_LABEL} (mlp)", "other"]
    click(at, "compare.run")
    (asked,) = submitted
    assert asked["different_models"] is True
    assert [one.model for one in asked["contestants"]] == ["mlp", "other"]


def test_another_baseline_names_the_others_anew(open_page: Open, mlp: ModelRecord) -> None:
    at = click(open_page("compare", model=mlp), "compare.add.preset.edge")
    click(at, buttons(at, "compare.flag.")[0])
    assert names(at) == [DEFAULT_LABEL, EDGE]
    (flag,) = buttons(at, "compare.flag.")
    assert flag.endswith(at.session_state["compare.entries"][0]["id"])


def test_an_entry_can_be_removed(open_page: Open, mlp: ModelRecord) -> None:
    at = click(open_page("compare", model=mlp), "compare.add.preset.edge")
    click(at, buttons(at, "compare.drop.")[0])
    assert names(at) == [EDGE]
    assert at.button(key="compare.run").disabled


def test_no_more_than_eight(open_page: Open, mlp: ModelRecord, machine: wire.Environment) -> None:
    for threads in range(1, 8):
        spec = sample_results.spec_for(mlp, intra_op_num_threads=threads)
        sample_results.put_measured(state.store(), mlp, spec, fingerprint=machine["fingerprint"])
    at = open_page("compare", model=mlp)
    trials = [trial.id for trial in state.store().trials(kind="measure")]
    at.multiselect(key="compare.picked").set_value(trials)
    click(at, "compare.add.history")
    assert len(names(at)) == 8
    click(at, "compare.add.preset.edge")
    assert numbers(at.error[0].value)[0] == 8


def test_a_yaml_of_this_model_is_added(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("compare", model=mlp)
    text = f"schema: 1\nmodel: {{path: x.onnx, sha256: {mlp.sha256}}}\nsession: {{intra_op_num_threads: 2}}"
    at.text_area(key="compare.pasted").set_value(text)
    click(at, "compare.add.yaml")
    assert names(at) == [DEFAULT_LABEL, "threads 2"]
    assert at.session_state["compare.entries"][1]["spec"]["model"]["path"] == mlp.path


def test_a_yaml_of_another_model_or_none_is_refused(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("compare", model=mlp)
    click(at, "compare.add.yaml")
    assert len(at.error) == 1
    at.text_area(key="compare.pasted").set_value(f"schema: 1\nmodel: {{path: x.onnx, sha256: {'a' * 64}}}")
    click(at, "compare.add.yaml")
    assert tells(at.error[0].value, mlp.name)
    at.text_area(key="compare.pasted").set_value("schema: 1\nmodel: {path: x.onnx}\nsesion: {}")
    click(at, "compare.add.yaml")
    assert tells(at.error[0].value, "sesion", "session")
    assert len(names(at)) == 1


def test_linked_trials_become_the_list(open_page: Open, mlp: ModelRecord, machine: wire.Environment) -> None:
    trials = [
        sample_results.put_measured(
            state.store(),
            mlp,
            sample_results.spec_for(mlp, batch_size=rows),
            fingerprint=machine["fingerprint"],
            rows=rows,
        )
        for rows in (1, 4)
    ]
    at = open_page("compare", trials=",".join(one.id for one in trials))
    assert names(at) == [DEFAULT_LABEL, "batch 4"]
    at.query_params["trials"] = "nonsense"
    at.run()
    assert tells(at.error[0].value, "nonsense")


def test_pytorch_is_offered_for_models_that_were_exported_here_only(
    open_page: Open, add_model: Add, mlp: ModelRecord
) -> None:
    assert buttons(open_page("compare", model=mlp), "compare.add.torch") == []
    exported = add_model(tiny_models.conv, name="exported")
    metadata = {SOURCE_KEY: "torchvision resnet18", WEIGHTS_KEY: "random", SEED_KEY: "3"}
    record = replace(exported, info={**exported.info, "metadata": metadata})
    state.store().put_model(record)
    at = open_page("compare", model=record)
    click(at, "compare.add.torch-eager")
    assert engines.ENGINES["torch-eager"].label in names(at)


# --- starting ---------------------------------------------------------------------------------------------


def test_a_comparison_is_asked_for_with_one_protocol_names_and_a_baseline(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = click(open_page("compare", model=mlp), "compare.add.preset.edge")
    at.get_by_key("compare.precision").set_value("standard")
    at.number_input(key="compare.margin").set_value(5.0)
    at.number_input(key="compare.budget").set_value(40).run()
    click(at, "compare.run")
    (asked,) = submitted
    default, edge = asked["contestants"]
    assert (default.label, default.role) == (DEFAULT_LABEL, "baseline")
    assert (edge.role, edge.spec.session.intra_op_num_threads) == ("candidate", 1)
    for one in (default, edge):
        assert one.spec.protocol.effort == "standard"
        assert one.spec.protocol.margin == pytest.approx(0.05)
        assert one.spec.protocol.budget_s == 40
        assert one.spec.model.sha256 == mlp.sha256
    assert asked["study"].startswith("compare #")
    assert asked["model_name"] == mlp.name
    assert asked["wait_quiet_s"] == 0.0


def test_a_comparison_waits_for_an_idle_machine_when_asked_to(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = click(open_page("compare", model=mlp), "compare.add.preset.edge")
    at.toggle(key="protocol.wait_quiet").set_value(True).run()
    click(at, "compare.run")
    assert submitted[0]["wait_quiet_s"] == 300.0  # five minutes, unless another number is typed


def test_the_predicted_time_is_unknown_before_the_first_comparison_and_then_shown(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    at = click(open_page("compare", model=mlp), "compare.add.preset.edge")
    assert lines(at, "30 s")
    put(mlp, machine)
    at.run()
    assert any(numbers(line)[:2] == [2, 3] for line in lines(at, "±3 %"))
    quick = texts(at)
    at.get_by_key("compare.precision").set_value("publish").run()
    assert lines(at, "600 s")
    assert texts(at) != quick


# --- a finished comparison --------------------------------------------------------------------------------


def test_a_link_shows_a_comparison_with_verdicts_ranks_and_ties(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put(mlp, machine)
    at = open_page("compare", comparison=comparison.id)
    rows = table(at)
    default, one, binding = (configuration.label for configuration in configurations(mlp))
    assert list(rows["Configuration"]) == [one, default, binding]
    assert list(rows["Rank"]) == ["1", "2–3", "2–3"]
    assert rows["Verdict"][0].startswith("1.43× faster, 95 % CI [")
    assert rows["Verdict"][1] == "baseline"
    assert lines(at, one, default, "1.43×", Verdict.FASTER.word)
    assert list(rows["Settings"]) == [one, "", binding]


def test_a_linked_comparison_of_a_model_outside_the_library_stays(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    gone, _ = put(replace(mlp, content_sha256="f" * 64), machine, older=True)
    put(mlp, machine)  # the newest one of the current model
    at = open_page("compare", comparison=gone.id)
    assert at.session_state["compare.shown"] == gone.id
    assert at.run().session_state["compare.shown"] == gone.id


def test_the_forest_holds_every_interval_and_the_band(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put(mlp, machine)
    at = open_page("compare", comparison=comparison.id)
    figure = json.loads(at.get("plotly_chart")[0].proto.spec)
    drawn = {trace["name"]: trace["x"] for trace in figure["data"]}
    assert drawn["faster"] == [pytest.approx(2 / 1.4)]
    assert drawn["baseline"] == [1.0]
    assert figure["layout"]["xaxis"]["type"] == "log"
    band = figure["layout"]["shapes"][0]
    assert (band["x0"], band["x1"]) == (pytest.approx(1 / 1.02), pytest.approx(1.02))


def test_a_first_place_that_the_intervals_leave_open_is_said(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, trials = put(mlp, machine)
    assert comparison.result is not None
    wide = [{**one, "ratio_low": 0.6, "ratio_high": 1.6} for one in comparison.result["contrasts"]]
    state.store().update_comparison(comparison.id, result={**comparison.result, "contrasts": wide})
    at = open_page("compare", comparison=comparison.id)
    shown = state.store().comparison(comparison.id)
    assert lines(at, comparison_text.headline(shown))
    assert list(table(at)["Rank"]) == ["1–3"] * len(trials)
    assert lines(
        opened(at, DETAILS), comparison_text.intervals_text(shown)
    )  # of a protocol that split nothing over them
    state.store().update_comparison(comparison.id, protocol={**comparison.protocol, "family": 2})
    together = comparison_text.intervals_text(state.store().comparison(comparison.id))
    assert numbers(together)[:2] == [95, 2]
    assert lines(at.run(), together)


def test_a_rejected_comparison_ranks_nothing_and_says_what_to_do(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put(
        mlp,
        machine,
        grade="F",
        grade_reason="Two copies of the same configuration differed by 2.1 %.",
        remedy="Measure when it is quieter.",
    )
    at = open_page("compare", comparison=comparison.id)
    (error,) = at.error
    assert tells(error.value, *(comparison.facts[name] for name in ("grade_reason", "remedy")))
    assert "Rank" not in table(at)
    said = [text for text in table(at)["Verdict"] if text != "baseline"]
    assert said
    no_verdict = {in_words(one) for one in comparison.facts["contrasts"]}
    assert set(said) <= no_verdict
    assert not lines(at, "1.43×")


def test_a_busy_machine_keeps_verdicts_and_ranks_and_is_told_with_the_numbers(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put(mlp, machine, busy=builders.busy_machine())
    at = open_page("compare", comparison=comparison.id)
    assert table(at)["Verdict"][0].startswith("1.43× faster")
    assert table(at)["Rank"][0] == "1"
    assert [BUSY in one for one in table(at)["Grade"] if one] == [True, True]
    assert lines(at, builders.BUSY)
    assert lines(at, ":orange-badge[:material/groups:")
    assert "green-badge" not in texts(at)
    assert BUSY in frame(opened(at, PAST), "compare.past.").value["Grade"][0]
    quiet, _ = put(mlp, machine)
    assert BUSY not in "".join(table(open_page("compare", comparison=quiet.id))["Grade"])


def test_the_parts_of_the_widest_interval_are_told(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put(mlp, machine)
    said = texts(opened(open_page("compare", comparison=comparison.id), DETAILS))
    assert tells(said, "±1 %", "±1.7 %")
    assert tells(said, verdict.rounds_words(comparison.facts))
    older, _ = put(mlp, machine, older=True)
    said = texts(opened(open_page("compare", comparison=older.id), DETAILS))
    assert "±1.7 %" not in said
    assert tells(said, verdict.OLDER)


def test_a_comparison_whose_samples_were_pruned_keeps_its_numbers(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put(mlp, machine)
    before = table(open_page("compare", comparison=comparison.id))
    state.store().prune(before=time.time())
    at = open_page("compare", comparison=comparison.id)
    assert table(at).equals(before)
    assert "content_cut" in icons(at)
    assert len(at.get("plotly_chart")) == 1
    assert buttons(at, "compare.go_on") == []


def test_a_finished_comparison_is_measured_longer_as_another_one_in_the_address(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison, _ = put(mlp, machine)
    asked: list[str] = []

    def submit(_store: Store, comparison_id: str, **_: Any) -> str:
        asked.append(comparison_id)
        return running(mlp, machine)[0].id

    sample_results.queue(monkeypatch, "more_launches", submit)
    at = click(open_page("compare", comparison=comparison.id), "compare.go_on")
    assert asked == [comparison.id]
    assert at.query_params["comparison"] != comparison.id
    assert followed(at, "compare.watch")
    assert buttons(at, "compare.go_on") == []  # it runs
    exact, _ = put(mlp, machine)
    state.store().update_comparison(exact.id, protocol={**exact.protocol, "runs": 100})
    assert buttons(open_page("compare", comparison=exact.id), "compare.go_on") == []


def test_a_failed_configuration_is_shown_with_its_error_and_the_others_stay(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, trials = put(mlp, machine)
    dead = trials[2].id
    error = {"type": "WorkerError", "message": "The worker was killed by SIGSEGV.", "hint": "Try CPU."}
    state.store().update_trial(dead, state="FAIL", result=None, error=error)
    result = dict(comparison.result or {})
    result["contrasts"] = [one for one in result["contrasts"] if one["candidate"] != dead]
    result["ranks"] = [one for one in result["ranks"] if one["trial"] != dead]
    state.store().update_comparison(comparison.id, result=result)
    at = open_page("compare", comparison=comparison.id)
    assert "SIGSEGV" in at.error[0].value
    assert tells(at.error[0].value, error["hint"])
    assert list(table(at)["Verdict"])[-1] == "failed"
    assert table(at)["Verdict"][0].startswith("1.43× faster")


def test_different_batches_and_different_outputs_are_marked(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    field = configurations(mlp)
    spec, wrong = sample_results.spec_for(mlp, batch_size=4), builders.guarded(max_rel=0.5)
    field[1] = SampleConfiguration(spec=spec, latency_s=0.004, rows=4, label="batch 4", changes=wrong)
    notes = ["The batch sizes differ (4 and 1 rows): times per row are compared.", "outputs differ: 0.5"]
    comparison, _ = put(mlp, machine, configurations=field, contrast={"notes": notes})
    at = open_page("compare", comparison=comparison.id)
    rows = table(at)
    outputs = dict(zip(rows["Configuration"], rows["Outputs"], strict=True))
    assert outputs.pop("batch 4") == f"{WARNING} {OUTPUTS_DIFFER}"
    assert set(outputs.values()) == {"agree"}
    assert rows["p50 (ms/sample)"].iloc[0] == pytest.approx(1.0, rel=0.2)
    opened(at, DETAILS)
    assert lines(at, "batch 4", notes[0])
    assert lines(at, notes[1])


def test_a_comparison_of_an_earlier_version_keeps_its_warnings(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    field = [replace(one, changes={"guard": None, "output_error": None}) for one in configurations(mlp)]
    comparison, _ = put(mlp, machine, configurations=field, contrast={"outputs_differ": True})
    rows = table(open_page("compare", comparison=comparison.id))
    assert list(rows["Outputs"]).count(f"{WARNING} {OUTPUTS_DIFFER}") == len(field) - 1


def select(at: AppTest, *rows: int) -> AppTest:
    at.session_state[frame(at, "compare.table.").key] = {
        "selection": {"rows": list(rows), "columns": [], "cells": []}
    }
    return at.run()


def test_a_chosen_configuration_is_opened_in_tune(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, trials = put(mlp, machine)
    at = select(open_page("compare", comparison=comparison.id), 0)
    click(at, "compare.open")
    assert not at.exception
    assert at.title[0].value == "Tune"
    assert at.session_state["tune.shown"] == trials[1].id
    assert at.session_state["knob.intra_op_num_threads"] == 1


def test_two_chosen_configurations_can_be_explained(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, trials = put(mlp, machine)
    at = select(open_page("compare", comparison=comparison.id), 0, 1)
    queries = [link.proto.query_string for link in at.get("page_link")]
    assert [one for one in queries if tells(one, trials[0].id, trials[1].id)]


def test_a_comparison_is_loaded_as_the_list_again(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put(mlp, machine)
    at = click(open_page("compare", comparison=comparison.id), "compare.again")
    assert names(at)[:3] == [configuration.label for configuration in configurations(mlp)]


def test_past_comparisons_are_listed_and_tune_runs_on_request(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    put(mlp, machine)
    sample_results.put_compared(state.store(), mlp, fingerprint=machine["fingerprint"])
    at = opened(open_page("compare", model=mlp), PAST)
    rows = frame(at, "compare.past.").value
    assert len(rows) == 1
    default, one, binding = (configuration.label for configuration in configurations(mlp))
    assert tells(rows["Configurations"][0], default, one, binding)
    assert rows["Result"][0].startswith(one)
    at.toggle(key="compare.duels").set_value(True).run()
    assert len(frame(at, "compare.past.").value) == 2


def test_a_comparison_of_the_command_line_is_opened_and_listed(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = put(mlp, machine, study="")
    at = open_page("compare", model=mlp)
    assert at.query_params["comparison"] == comparison.id
    assert len(frame(opened(at, PAST), "compare.past.").value) == 1


def test_a_comparison_of_a_variant_is_one_of_its_baseline_too(
    open_page: Open, mlp: ModelRecord, add_variant: Add, machine: wire.Environment
) -> None:
    comparison, trials = put(add_variant(mlp, "small", hidden=24), machine)
    assert "comparison" not in open_page("compare", model=mlp).query_params
    state.store().update_trial(trials[0].id, model_sha256=mlp.content_sha256)
    at = open_page("compare", model=mlp)
    assert at.query_params["comparison"] == comparison.id
    assert len(frame(opened(at, PAST), "compare.past.").value) == 1


# --- a running comparison ---------------------------------------------------------------------------------


def running(record: ModelRecord, machine: wire.Environment, **facts: Any) -> tuple[Comparison, list[Trial]]:
    comparison, trials = put(record, machine)
    for trial in trials:
        state.store().update_trial(trial.id, state="RUNNING", result=None)
    state.store().update_comparison(comparison.id, state="RUNNING", result=None, finished_at=None, **facts)
    return comparison, trials


def test_a_running_comparison_shows_every_interval_and_can_be_cancelled(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, jobs: Jobs
) -> None:
    comparison, trials = running(mlp, machine)
    against, *others = (one.id for one in trials)
    contrasts = [
        {
            "candidate": one,
            "baseline": against,
            "label": f"number {n}",
            "ratio": 1.2,
            "ratio_low": 1.1,
            "ratio_high": 1.3,
            "verdict": "FASTER",
        }
        for n, one in enumerate(others)
    ]
    live = {
        "rounds": 7,
        "predicted_rounds": 40,
        "generation": 2,
        "elapsed_s": 2.0,
        "contrasts": contrasts,
        "p50_s": {against: 0.0024, others[0]: 0.002},
    }
    cancelled = jobs(status(comparison.id, stage="rounds", done=7, total=40, elapsed_s=4.0, live=live))
    at = open_page("compare", comparison=comparison.id)
    shown = followed(at, "compare.watch")
    assert numbers(shown["text"])[:4] == [2, 7, 40, 4.0]
    (picture,) = shown["pictures"]
    first = picture["rows"][0]
    assert tells(first["label"], "threads 1", "2.000 ms")
    assert Verdict.FASTER.word in first["short"]
    assert (first["ratio"], first["low"], first["high"]) == (1.2, 1.1, 1.3)
    assert lines(at, DEFAULT_LABEL, "2.400 ms")
    assert at.button(key="compare.run").disabled
    click(at, "compare.cancel")
    assert cancelled == [comparison.id]


def test_a_waiting_comparison_says_its_place(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, jobs: Jobs
) -> None:
    comparison, _ = running(mlp, machine)
    jobs(status(comparison.id, state="WAITING", place=1, holder="dashboard of ann: race"))
    at = open_page("compare", comparison=comparison.id)
    said = followed(at, "compare.watch")["text"]
    assert tells(said, "ann")
    assert numbers(said) == []  # nobody is before it


def test_a_comparison_of_another_process_is_shown_and_not_cancelled_here(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    comparison, _ = running(mlp, machine, owner="command line of bob")
    at = open_page("compare", comparison=comparison.id)
    assert tells(followed(at, "compare.watch")["text"], "bob")
    assert at.button(key="compare.cancel").disabled


# --- for real ---------------------------------------------------------------------------------------------


def test_a_comparison_is_really_run(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "GRACE_S", 60.0)  # a slow machine may overrun it, instead of being refused
    at = click(open_page("compare", model=mlp), "compare.add.preset.edge")
    at.number_input(key="compare.budget").set_value(5).run()
    click(at, "compare.run")
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    comparison = state.store().comparison(str(at.query_params["comparison"]))
    assert (comparison.state, comparison.error) == ("COMPLETE", None)
    rows = table(at)
    assert "baseline" in list(rows["Verdict"])
    assert (rows["p50 (ms)"] > 0).all()
    assert len(at.get("plotly_chart")) == 2  # the forest and the latency over time


# --- imported results -------------------------------------------------------------------------------------


def test_an_imported_result_stands_beside_and_has_no_verdict(open_page: Open, mlp: ModelRecord) -> None:
    samples = [0.0005 + 1e-6 * (k % 11) for k in range(300)]
    for name, raw in (("printed.txt", []), ("raw.csv", samples)):
        summary = {
            "model": "mnist",
            "samples_s": raw,
            "runs": 300,
            "mean_s": 0.00052,
            "percentiles_s": {} if raw else {"p50": 0.00051},
            "session_creation_s": None,
            "notes": [],
        }
        found = {"format": "onnxruntime_perf_test", "sha256": name, "profile": None, "summary": summary}
        state.store().shelf.put(found, name=name, at=1e9)
    at = open_page("compare", model=mlp)
    shown = page.table(at, "Source").set_index("Result")
    assert all(one.startswith("imported: ") for one in shown.index)
    raw_row = next(row for name, row in shown.iterrows() if "raw.csv" in str(name))
    told_row = next(row for name, row in shown.iterrows() if "printed.txt" in str(name))
    assert len(numbers(raw_row["p50, 95 % (ms)"])) == 2
    assert told_row["p50, 95 % (ms)"] == "–"
    assert told_row["p50 (ms)"] == pytest.approx(0.51)
    assert lines(at, sheets.UNKNOWN)
    at.button(key="compare.import.remove").click().run()
    assert len(state.store().shelf.all()) == 1
    assert not at.exception
