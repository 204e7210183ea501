"""The Tune page: settings, a run that is really measured, the live view, the baseline, links, mistakes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from core import wire
from core.knobs import KNOBS
from core.library import remove_model
from core.presets import PRESETS
from core.scheduler import Status
from core.store import ModelRecord
from dashboard import fields, format, state
from tests import tiny_models
from tests.views import invented

Open = Callable[..., AppTest]
Add = Callable[..., ModelRecord]


@pytest.fixture
def mlp(add_model: Add) -> ModelRecord:
    return add_model(tiny_models.mlp)


def texts(at: AppTest) -> str:
    parts = [*at.markdown, *at.caption, *at.info, *at.success, *at.warning, *at.error]
    titles = [part.proto.title for part in [*at.error, *at.warning, *at.info]]
    return "\n".join([*(str(part.value) for part in parts), *titles]).replace("\\", "")


def widget(at: AppTest, name: str) -> Any:
    return at.get_by_key(fields.key(name))


def run_and_wait(at: AppTest) -> AppTest:
    at.button(key="run").click().run()
    assert state.scheduler().join(120)
    return at.run()


def values(at: AppTest) -> dict[str, str]:
    return {one.label: one.value for one in at.metric}


def put_complete(record: ModelRecord, *, latency_s: float = 0.002, **changes: Any) -> Any:
    """An invented measurement, of the workload in `changes`."""
    workload = {name: changes.pop(name) for name in ("batch_size", "intra_op_num_threads") if name in changes}
    spec = invented.spec_for(record, **workload)
    fingerprint = state.environment()["fingerprint"]
    rows = workload.get("batch_size", 1)
    return invented.put_measured(
        state.store(), record, spec, fingerprint=fingerprint, latency_s=latency_s, rows=rows, **changes
    )


# --- first sight ------------------------------------------------------------------------------------------


def test_a_first_visitor_sees_the_sample_model_and_can_run_at_once(open_page: Open) -> None:
    at = open_page()
    assert state.store().model(at.session_state[state.MODEL]).name == "digits_cnn"  # type: ignore[union-attr]
    assert "Nothing measured yet" in texts(at)
    assert not at.button(key="run").disabled
    assert not at.error


def test_every_setting_of_the_table_is_on_the_page_with_its_help(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    at.get_by_key(fields.FEEDS_SOURCE).set_value(fields.IMAGES).run()
    apart = {"dims", "feed_values", "streams"}  # by dimension, by input, and only one value is possible
    for setting in KNOBS:
        if setting.name not in apart:
            drawn = at.get_by_key(fields.key(setting.name))
            assert setting.name in drawn.proto.help, setting.name
            assert setting.help.split(".")[0] in drawn.proto.help, setting.name


def test_the_help_of_threads_says_how_many_that_is_here(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    at = open_page(model=mlp)
    text = widget(at, "intra_op_num_threads").proto.help
    cpu = machine["cpu"]
    assert f"Empty or 0 is {cpu['ort_default_threads']} here" in text
    assert f"may use {len(cpu['allowed'])} of them" in text
    assert f"{cpu['usable']} threads are worth starting" in text


def test_the_page_says_for_each_provider_whether_it_loads_here(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    at = open_page(model=mlp)
    said = texts(at)
    for fact in machine["providers"]:
        if not fact["loadable"]:
            assert fact["reason"] in said
            assert fact["remedy"] in said
    assert "CPU can load here" in said


def test_a_library_without_models_is_said(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "sample_models", lambda: [])
    at = open_page()
    assert "The library is empty" in texts(at)
    assert at.button(key="run").disabled


# --- settings ---------------------------------------------------------------------------------------------


def test_a_changed_setting_is_marked_and_can_be_reset_alone(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    widget(at, "intra_op_num_threads").set_value(1)
    widget(at, "runs").set_value(50).run()
    assert "changed" in widget(at, "intra_op_num_threads").label
    assert "changed" not in widget(at, "inter_op_num_threads").label
    at.button(key="reset.knob.intra_op_num_threads").click().run()
    assert widget(at, "intra_op_num_threads").value is None
    assert widget(at, "runs").value == 50


def test_reset_all_sets_every_setting_back(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    widget(at, "providers").set_value(["CUDAExecutionProvider"]).run()
    at.get_by_key("option.CUDAExecutionProvider.use_tf32").set_value(fields.OFF)
    widget(at, "enable_cpu_mem_arena").set_value(fields.OFF)
    widget(at, "batch_size").set_value(4).run()
    assert at.button(key="reset.all")
    at.button(key="reset.all").click().run()
    assert fields.spec_from_values(
        {k: at.session_state[k] for k in at.session_state.keys() if k.startswith(("knob.", "option."))},  # noqa: SIM118
        path=mlp.path,
        sha256=mlp.sha256,
        info=mlp.info,
    ) == invented.spec_for(mlp)


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_loads_what_it_says_and_leaves_the_runs(
    open_page: Open, mlp: ModelRecord, name: str
) -> None:
    at = open_page(model=mlp)
    widget(at, "runs").set_value(7).run()
    at.button(key=f"preset.{name}").click().run()
    _, _, session, workload = PRESETS[name]
    assert widget(at, "providers").value == [one["name"] for one in session.get("providers", [])]
    assert widget(at, "batch_size").value == workload.get("batch_size", 1)
    assert widget(at, "use_io_binding").value is workload.get("use_io_binding", False)
    assert widget(at, "runs").value == 7
    assert not at.error


def test_a_preset_replaces_the_options_of_the_one_before(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    at.button(key="preset.gpu-server").click().run()
    assert at.get_by_key("option.CUDAExecutionProvider.cudnn_conv_algo_search").value == "HEURISTIC"
    at.button(key="preset.default").click().run()
    assert not [k for k in at.session_state.keys() if k.startswith("option.")]  # noqa: SIM118


def test_settings_survive_a_visit_to_another_page(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    widget(at, "intra_op_num_threads").set_value(2)
    widget(at, "session.set_denormal_as_zero").set_value(fields.ON).run()
    at.switch_page("views/history.py").run()
    at.switch_page("views/tune.py").run()
    assert widget(at, "intra_op_num_threads").value == 2
    assert widget(at, "session.set_denormal_as_zero").value == fields.ON


def test_a_setting_without_effect_stays_visible_with_the_reason(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    assert "No effect here: used by ORT_PARALLEL only" in texts(at)
    widget(at, "execution_mode").set_value("ORT_PARALLEL").run()
    assert "used by ORT_PARALLEL only" not in texts(at)


def test_the_runs_say_which_percentiles_they_carry(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    assert "p95 yes · p99 needs 368 runs" in texts(at)
    widget(at, "runs").set_value(50).run()
    assert "p90 yes · p95 needs 72 runs" in texts(at)


def test_free_dimensions_get_a_field_each_and_reach_the_spec(open_page: Open, add_model: Add) -> None:
    at = open_page(model=add_model(tiny_models.unnamed_dims))
    record = state.store().model(at.session_state[state.MODEL])
    assert record is not None
    names = fields.other_dims(record.info)
    assert names
    at.number_input(key=fields.dim_key(names[0])).set_value(3).run()
    at = run_and_wait(at)
    [trial] = state.store().trials()
    assert trial.spec["workload"]["dims"][names[0]] == 3
    assert trial.state == "COMPLETE", trial.error


def test_a_fixed_batch_is_shown_and_cannot_be_changed(open_page: Open, add_model: Add) -> None:
    at = open_page(model=add_model(tiny_models.fixed_batch))
    assert at.text_input(key="fixed.batch").value == "2"
    assert at.text_input(key="fixed.batch").disabled
    run_and_wait(at)
    [trial] = state.store().trials()
    assert trial.result is not None
    assert trial.result["batch_size"] == 2


def test_a_fixed_value_is_fed(open_page: Open, add_model: Add) -> None:
    at = open_page(model=add_model(tiny_models.mul))
    name = state.store().models()[0].info["inputs"][0]["name"]
    at.text_input(key=fields.value_key(name)).set_value("0.5").run()
    run_and_wait(at)
    [trial] = state.store().trials()
    assert trial.spec["workload"]["feed_values"] == {name: 0.5}
    assert trial.state == "COMPLETE", trial.error


def test_arrays_of_a_file_are_fed_and_too_few_rows_are_refused(
    open_page: Open, mlp: ModelRecord, tmp_path: Path
) -> None:
    name = mlp.info["inputs"][0]["name"]
    np.savez(tmp_path / "rows.npz", **{name: np.ones((3, 16), np.float32)})
    at = open_page(model=mlp)
    at.get_by_key(fields.FEEDS_SOURCE).set_value(fields.NPZ).run()
    assert at.button(key="run").disabled
    at.text_input(key=fields.FEEDS_PATH).set_value(str(tmp_path / "rows.npz"))
    widget(at, "batch_size").set_value(3).run()
    run_and_wait(at)
    assert state.store().trials()[0].state == "COMPLETE", state.store().trials()[0].error
    widget(at, "batch_size").set_value(4).run()
    at = run_and_wait(at)
    assert state.store().trials()[0].state == "FAIL"
    assert "4" in texts(at)
    assert len(at.error) == 1


def test_images_of_a_folder_are_fed(open_page: Open, add_model: Add, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for index in range(2):
        Image.new("RGB", (20, 12), (index * 90, 10, 200)).save(folder / f"{index}.png")
    at = open_page(model=add_model(tiny_models.conv))
    at.get_by_key(fields.FEEDS_SOURCE).set_value(fields.IMAGES).run()
    at.text_input(key=fields.FEEDS_PATH).set_value(str(folder))
    widget(at, "batch_size").set_value(2).run()
    run_and_wait(at)
    [trial] = state.store().trials()
    assert trial.state == "COMPLETE", trial.error
    assert trial.result is not None
    assert trial.result["batch_size"] == 2


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("knob.session_config_entries", "session.nonsense=1", "Unknown session config entry"),
        ("knob.session_config_entries", "what?", "Line 1 must be `key=value`"),
        ("knob.session.intra_op_thread_affinities", "1;2", "needs one entry per pool thread"),
        ("knob.image_mean", "red", "`image_mean` must be numbers"),
    ],
)
def test_settings_that_cannot_be_used_are_a_red_box_and_stop_run(
    open_page: Open, mlp: ModelRecord, key: str, value: str, words: str
) -> None:
    at = open_page(model=mlp)
    if key == "knob.image_mean":
        at.get_by_key(fields.FEEDS_SOURCE).set_value(fields.IMAGES)
        at.run()
        at.text_input(key=fields.FEEDS_PATH).set_value("/images").run()
    at.get_by_key(key).set_value(value).run()
    assert not at.exception
    assert words in texts(at)
    assert "What to do:" in texts(at)
    assert at.button(key="run").disabled
    assert words.split("`")[0] in at.button(key="run").proto.help


# --- running ----------------------------------------------------------------------------------------------


def test_run_measures_for_real_and_shows_what_ran(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    widget(at, "intra_op_num_threads").set_value(1)
    widget(at, "runs").set_value(80)
    widget(at, "batch_size").set_value(3).run()
    at = run_and_wait(at)
    assert not at.exception
    [trial] = state.store().trials()
    result = state.store().trial(trial.id).result
    assert trial.state == "COMPLETE", trial.error
    assert result is not None
    assert trial.spec["session"] == {"intra_op_num_threads": 1}
    assert (result["batch_size"], result["runs"], len(result["latencies_s"])) == (3, 80, 80)
    shown = values(at)
    assert shown["p50 latency"] == format.ms(result["latency"]["p50_s"])
    assert shown["Throughput"] == format.rate(result["throughput_per_s"])
    assert shown["Peak memory"] == format.size(result["peak_rss_bytes"])
    assert shown["p99 latency"] == "needs 368 runs"
    assert shown["GPU memory"] == "–"
    assert at.query_params["trial"] == trial.id
    table = next(one.value for one in at.dataframe if "Provider" in one.value)
    assert table["Provider"].tolist() == ["CPU"]
    assert table["Loaded"].tolist() == ["yes"]
    assert table["Nodes"][0] == result["placement"]["CPUExecutionProvider"]["nodes"] > 0
    assert len(at.get("plotly_chart")) == 2


def test_a_trial_that_fails_is_a_red_box_with_its_hint(open_page: Open, add_model: Add) -> None:
    at = run_and_wait(open_page(model=add_model(tiny_models.failing_run)))
    assert not at.exception
    [trial] = state.store().trials()
    assert trial.state == "FAIL"
    assert trial.error is not None
    assert trial.error["hint"].replace("`", "")[:30] in texts(at).replace("`", "")
    assert not at.button(key="run").disabled


def test_a_provider_that_cannot_load_fails_and_is_not_called_by_its_name(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    missing = [fact["name"] for fact in machine["providers"] if not fact["loadable"]]
    if not missing:
        pytest.skip("every provider of this build loads here")
    at = open_page(model=mlp)
    widget(at, "providers").set_value([missing[0]]).run()
    at = run_and_wait(at)
    assert "An execution provider is not available" in texts(at)
    assert not at.metric
    widget(at, "allow_fallback").set_value(True).run()
    at = run_and_wait(at)
    assert "Fallback" in texts(at)
    assert f"Asked for {missing[0]}, ran on CPUExecutionProvider" in texts(at)
    labels = str([one.proto.spec for one in at.get("plotly_chart")])
    assert "fallback" in labels


def test_fp16_on_the_cpu_says_that_it_computes_in_fp32(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    widget(at, "precision").set_value("fp16").run()
    at = run_and_wait(at)
    [trial] = state.store().trials()
    assert trial.state == "COMPLETE", trial.error
    assert "Computed in FP32 although the model is FP16" in texts(at)


def test_the_run_in_progress_shows_stage_share_eta_and_cancel(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = put_complete(mlp, state="RUNNING")
    now = Status(
        id=trial.id,
        kind="measure",
        state="RUNNING",
        what="measure mlp",
        stage="timed runs",
        done=25,
        total=100,
        text="",
        started_at=time.time(),
        elapsed_s=1.0,
        eta_s=3.0,
        place=0,
        holder="",
    )
    cancelled: list[str] = []
    monkeypatch.setattr(state.scheduler(), "status", lambda _: now)
    monkeypatch.setattr(state.scheduler(), "cancel", cancelled.append)
    at = open_page(model=mlp, trial=trial.id)
    assert at.progress[0].value == 25
    assert at.progress[0].text == "timed runs · 25 of 100 · 1.0 s so far · about 3.0 s left"
    assert at.button(key="run").disabled
    at.button(key="cancel").click().run()
    assert cancelled == [trial.id]


def test_a_queued_run_says_who_has_the_machine_and_its_place(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = put_complete(mlp, state="WAITING")
    now = Status(
        id=trial.id,
        kind="measure",
        state="WAITING",
        what="",
        place=2,
        holder="command line of ada: measure vit",
    )
    monkeypatch.setattr(state.scheduler(), "status", lambda _: now)
    at = open_page(model=mlp, trial=trial.id)
    said = at.progress[0].text.replace("\\", "")
    assert "command line of ada: measure vit has the machine" in said
    assert "this one is number 2 in the queue" in said


def test_a_run_of_another_process_is_followed_through_the_store(open_page: Open, mlp: ModelRecord) -> None:
    trial = put_complete(mlp, state="RUNNING", owner="command line of ada")
    at = open_page(model=mlp, trial=trial.id)
    assert "Being measured by command line of ada" in at.progress[0].text
    state.store().update_trial(trial.id, state="COMPLETE")
    at.run()
    assert not at.progress
    assert "p50 latency" in values(at)


def test_a_reload_while_a_trial_runs_finds_it_again(open_page: Open, add_model: Add) -> None:
    record = add_model(tiny_models.slow)
    at = open_page(model=record)
    at.button(key="run").click().run()
    trial_id = at.query_params["trial"]
    again = open_page(trial=trial_id)  # a reload is a new session with the same address
    assert again.progress
    assert again.button(key="run").disabled
    again.button(key="cancel").click().run()
    assert state.scheduler().join(60)
    again.run()
    assert state.store().trial(trial_id).state == "CANCELLED"
    assert "cancelled" in texts(again).lower()


# --- the baseline -----------------------------------------------------------------------------------------


def test_a_pinned_result_stands_beside_later_ones(open_page: Open, mlp: ModelRecord) -> None:
    first = put_complete(mlp, latency_s=0.004)
    at = open_page(model=mlp, trial=first.id)
    at.button(key="pin").click().run()
    assert state.store().baseline(mlp.content_sha256) == first.id
    assert at.button(key="unpin")
    second = put_complete(mlp, latency_s=0.002, intra_op_num_threads=1)
    at = open_page(model=mlp, trial=second.id)
    p50 = next(one for one in at.metric if one.label == "p50 latency")
    assert p50.delta == "-50.0 %"
    assert "2.00× faster than the baseline" in texts(at)
    assert "One run each is not a verdict" in texts(at)
    beside = next(one.value for one in at.dataframe if "Baseline" in one.value)
    assert beside.iloc[0].tolist() == ["Intra-op threads", "1", "0"]
    assert "p50 latency" in beside[""].tolist()


def test_overlapping_intervals_are_called_noise_and_stay_grey(open_page: Open, mlp: ModelRecord) -> None:
    first, second = put_complete(mlp, latency_s=0.002), put_complete(mlp, latency_s=0.00201)
    state.store().pin_baseline(mlp.content_sha256, first.id)
    at = open_page(model=mlp, trial=second.id)
    assert "Within the noise of these two runs" in texts(at)
    p50 = next(one for one in at.metric if one.label == "p50 latency")
    assert p50.proto.delta_description == "within noise"
    assert p50.proto.color == p50.proto.GRAY


def test_results_of_different_batches_are_compared_per_row(open_page: Open, mlp: ModelRecord) -> None:
    first = put_complete(mlp, latency_s=0.002, batch_size=1)
    second = put_complete(mlp, latency_s=0.004, batch_size=4)
    state.store().pin_baseline(mlp.content_sha256, first.id)
    at = open_page(model=mlp, trial=second.id)
    p50 = next(one for one in at.metric if one.label == "p50 latency")
    assert p50.delta == "-50.0 %"
    assert p50.proto.delta_description == "per row"


def test_results_of_different_machines_are_not_compared(open_page: Open, mlp: ModelRecord) -> None:
    first = put_complete(mlp)
    other = replace(first, id="f" * 16, result={**first.result, "fingerprint": "another"})
    state.store().create_trial(other)
    state.store().pin_baseline(mlp.content_sha256, other.id)
    at = open_page(model=mlp, trial=first.id)
    assert "cannot be compared: they were measured on different machines" in texts(at)
    assert not any(one.delta for one in at.metric)


def test_the_default_can_be_measured_and_becomes_the_baseline(open_page: Open, mlp: ModelRecord) -> None:
    trial = put_complete(mlp, intra_op_num_threads=1)
    at = open_page(model=mlp, trial=trial.id)
    at.button(key="measure_default").click().run()
    assert state.scheduler().join(120)
    at.run()
    pinned = state.store().baseline(mlp.content_sha256)
    assert pinned is not None
    assert "session" not in state.store().trial(pinned).spec


# --- links ------------------------------------------------------------------------------------------------


def test_a_link_opens_the_same_trial_with_its_settings(open_page: Open, mlp: ModelRecord) -> None:
    trial = put_complete(mlp, intra_op_num_threads=1, batch_size=8)
    at = open_page(trial=trial.id)
    assert widget(at, "intra_op_num_threads").value == 1
    assert widget(at, "batch_size").value == 8
    assert at.session_state[state.MODEL] == mlp.content_sha256
    assert "p50 latency" in values(at)


def test_a_link_to_nothing_is_said_and_the_page_works(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp, trial="0123456789abcdef")
    assert len(at.error) == 1
    assert not at.button(key="run").disabled
    assert "trial" not in at.query_params


def test_a_link_to_a_trial_of_a_deleted_model_shows_the_result_and_says_why(
    open_page: Open, add_model: Add, mlp: ModelRecord
) -> None:
    other = add_model(tiny_models.conv)
    trial = put_complete(other, batch_size=5)
    remove_model(state.store(), other.content_sha256)
    at = open_page(model=mlp, trial=trial.id)
    assert "p50 latency" in values(at)
    assert "its settings could not be loaded" in texts(at)
    assert widget(at, "batch_size").value == 1
    assert at.session_state[state.MODEL] == mlp.content_sha256


def test_changed_settings_are_told_from_the_shown_result(open_page: Open, mlp: ModelRecord) -> None:
    trial = put_complete(mlp)
    at = open_page(trial=trial.id)
    assert "Settings changed since this result" not in texts(at)
    widget(at, "batch_size").set_value(2).run()
    assert "Settings changed since this result" in texts(at)
