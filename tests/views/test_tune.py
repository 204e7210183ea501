"""The Tune page: settings, a run that is really measured, the live view, the baseline, links, mistakes."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from core import wire
from core.evidence.cold_start import BreakEven
from core.evidence.comparison import DEFAULT_LABEL
from core.evidence.quality import CONTROL_FAILED
from core.evidence.result_types import InputDescription
from core.evidence.verdict import Grade, Verdict
from core.show import cells, verdict
from core.show.setting_chips import chips
from core.show.verdict import in_words
from core.spec import belongs
from core.spec.presets import PRESETS
from core.spec.settings import SETTINGS, trial_setting
from core.spec.steps import Step
from core.store import ModelRecord, Store
from core.store.library import remove_model
from core.wire.engines import DEFAULT
from core.wire.errors import SpecError, WorkerError, record_from_error
from core.wire.output_check import ADVICE, OUTPUTS_DIFFER
from core.wire.variables import ALLOW_LIBRARIES
from core.worker.session.ort_errors import provider_error
from dashboard import demo, fields, format, state
from dashboard.shown_result import TUNE
from dashboard.widgets import job_box
from tests import builders, other_runtimes, tiny_models
from tests.reading import numbers, tells
from tests.views import sample_results
from tests.views.page import (
    Add,
    Jobs,
    Open,
    buttons,
    card,
    cards,
    click,
    followed,
    icons,
    keys,
    lines,
    place,
    status,
    table,
    texts,
    unfolded,
    widget,
)
from tests.views.test_models import sent
from tests.views.test_variants import put_variant


def run_and_wait(at: AppTest, *, runs: int) -> AppTest:
    """Press Run and wait for the end of the comparison; exactly `runs` runs a side keep it short."""
    widget(at, "runs").set_value(runs).run()
    click(at, "run")
    assert state.scheduler().join(120)
    return at.run()


def put_complete(record: ModelRecord, **changes: Any) -> Any:
    """An invented measurement on this machine."""
    return sample_results.put_run(
        state.store(), record, fingerprint=state.environment()["fingerprint"], **changes
    )


def put_compared(record: ModelRecord, **facts: Any) -> sample_results.Compared:
    """An invented duel on this machine."""
    return sample_results.put_compared(
        state.store(), record, fingerprint=state.environment()["fingerprint"], **facts
    )


def told(compared: sample_results.Compared) -> dict[str, Any]:
    """The contrast of the candidate."""
    return dict(compared.trial.facts["contrasts"][0])


def break_even(kind: Any) -> str:
    """What the card says where there is no count."""
    return cells.break_even_cell(BreakEven(kind=kind, start_s=0.01, gain_s=0.0)).value


# --- first sight ------------------------------------------------------------------------------------------


def test_an_empty_page_says_what_to_do_in_three_lines(open_page: Open, add_model: Add) -> None:
    at = open_page(model=add_model())
    [said] = [one.value for one in at.markdown if "Choose a model" in one.value]
    lines = [line.strip() for line in said.splitlines()]
    assert [line[:5] for line in lines] == ["**1**", "**2**", "**3**"]
    assert len(said.split()) < 20


def test_a_recorded_result_stands_beside_the_steps_with_its_origin(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page()
    assert "first.example" in keys(at)
    shown = demo.example()
    assert lines(at, shown["sentence"])
    assert lines(at, shown["settings"], shown["against"])
    assert lines(at, shown["origin"])
    [drawn] = at.get("plotly_chart")
    assert shown["settings"] in drawn.proto.spec
    at = open_page(model=mlp, trial=put_compared(mlp).trial.id)
    assert "first.example" not in keys(at)


@pytest.mark.parametrize("deletions", [1, 2])
def test_a_result_deleted_while_its_page_is_drawn_costs_one_more_run(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch, deletions: int
) -> None:
    kept = put_complete(mlp)
    measured = state.measured
    left = [put_complete(mlp, created_at=2_000_000_000.0 + number).id for number in range(deletions)]

    def measured_and_deleted(record: ModelRecord, *, limit: int = 100) -> list[Any]:
        found = measured(record, limit=limit)
        if found and found[0].id in left:  # another visitor is quicker than this run
            state.store().delete_trials([found[0].id])
        return found

    monkeypatch.setattr(state, "measured", measured_and_deleted)
    if deletions > 1:
        with pytest.raises(AssertionError, match="encountered an error"):
            open_page(model=mlp)
        return
    at = open_page(model=mlp)
    assert at.session_state[TUNE.key] == kept.id
    assert not at.error


def test_a_first_visitor_sees_the_sample_model_and_can_run_at_once(open_page: Open) -> None:
    at = open_page()
    assert state.store().model(at.session_state[state.MODEL]).name == "digits_cnn"  # type: ignore[union-attr]
    assert "first" in keys(at)  # the first steps instead of a result
    assert not at.button(key="run").disabled
    assert not at.error


def test_a_model_dropped_on_the_first_page_is_the_current_one(open_page: Open, tmp_path: Path) -> None:
    data = tiny_models.mlp(tmp_path / "mine.onnx").read_bytes()
    at = dropped(open_page(), sent({"mine.onnx": data}))
    assert state.store().model(at.session_state[state.MODEL]).name == "mine"
    assert lines(at, "mine")


def test_a_file_dropped_on_the_first_page_that_is_no_model_is_refused_there(open_page: Open) -> None:
    at = dropped(open_page(), sent({"bad.onnx": b"no model"}))
    assert at.error
    assert state.store().model(at.session_state[state.MODEL]).name == "digits_cnn"


def dropped(at: AppTest, files: list[Path]) -> AppTest:
    at.session_state["first.upload.pending"] = [str(file) for file in files]
    at.run()
    assert not at.exception
    return at


def test_every_setting_of_the_table_is_on_the_page_with_its_help(
    open_page: Open, mlp: ModelRecord, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOW_LIBRARIES, str(tmp_path))  # else there is nothing to choose libraries from
    other_runtimes.add(home, "same")  # else there is no runtime to choose
    at = open_page(model=mlp)
    unfolded(at).get_by_key(fields.FEEDS_SOURCE).set_value(fields.IMAGES).run()
    apart = {"dims", "feed_values"}  # by dimension, and by input
    for setting in SETTINGS:
        if setting.name not in apart and belongs(setting.name, DEFAULT):
            drawn = at.get_by_key(fields.key(setting.name))
            assert f"`{setting.field}`" in drawn.proto.help, setting.name
            assert setting.help.split(".")[0] in drawn.proto.help, setting.name


def test_the_help_of_threads_says_how_many_that_is_here(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    at = open_page(model=mlp)
    text = widget(at, "intra_op_num_threads").proto.help
    cpu = machine["cpu"]
    assert tells(text, cpu["ort_default_threads"], len(cpu["allowed"]), cpu["usable"])


def test_the_page_says_for_each_provider_whether_it_loads_here(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    at = open_page(model=mlp)
    said = texts(at)
    for fact in machine["providers"]:
        if not fact["loadable"]:
            assert fact["reason"] in said
            assert fact["remedy"] in said
    assert lines(at, ":material/check_circle:", "CPU")


def test_a_library_without_models_is_said(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "sample_models", lambda: [])
    at = open_page()
    assert at.error
    assert at.button(key="run").disabled


# --- settings ---------------------------------------------------------------------------------------------


def test_a_changed_setting_is_marked_and_can_be_reset_alone(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    widget(at, "intra_op_num_threads").set_value(1)
    widget(at, "runs").set_value(50).run()
    assert "reset.knob.intra_op_num_threads" in [one.key for one in at.button]
    assert "reset.knob.inter_op_num_threads" not in [one.key for one in at.button]
    assert lines(at, ":blue-badge[:material/edit: 2 ")
    counted = [one.value for one in at.get("html") if "content:" in one.value and "group-" in one.value]
    assert [tells(one, "group-threads", "1 changed", "group-advanced") for one in counted] == [True]
    at.button(key="reset.knob.intra_op_num_threads").click().run()
    assert widget(at, "intra_op_num_threads").value is None
    assert widget(at, "runs").value == 50


def test_a_chip_names_a_changed_setting_and_takes_it_back(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    assert not buttons(at, "chip.")
    widget(at, "intra_op_num_threads").set_value(3)
    widget(at, "enable_mem_pattern").set_value(fields.OFF).run()
    assert buttons(at, "chip.") == ["chip.intra_op_num_threads", "chip.enable_mem_pattern"]
    assert (
        at.button(key="chip.intra_op_num_threads").label == f"{trial_setting('intra_op_num_threads').short} 3"
    )
    at.button(key="chip.intra_op_num_threads").click().run()
    assert widget(at, "intra_op_num_threads").value is None
    assert buttons(at, "chip.") == ["chip.enable_mem_pattern"]


def test_dynamic_batching_of_a_loaded_configuration_stays_until_it_is_removed(
    open_page: Open, mlp: ModelRecord
) -> None:
    at = open_page("tune", model=mlp)
    at.session_state[fields.BATCHING] = '{"max_batch_size": 8, "max_queue_delay_microseconds": 2000}'
    at.run()
    assert at.button(key="chip.dynamic_batching").label == "batching 8, 2 ms"
    click(at, "preset.edge")
    assert at.session_state[fields.BATCHING]  # a preset sets session and workload
    at.button(key="chip.dynamic_batching").click().run()
    assert not at.session_state[fields.BATCHING]
    assert "chip.dynamic_batching" not in buttons(at, "chip.")


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
    ) == sample_results.spec_for(mlp)


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
    at.switch_page("views/history/page.py").run()
    at.switch_page("views/tune/page.py").run()
    assert widget(at, "intra_op_num_threads").value == 2
    assert widget(at, "session.set_denormal_as_zero").value == fields.ON


def test_what_is_set_in_a_closed_group_counts_and_stands_there_when_it_is_opened(
    open_page: Open, mlp: ModelRecord
) -> None:
    name = "session.set_denormal_as_zero"
    at = open_page(model=mlp)
    assert fields.key(name) not in keys(at)
    widget(at, name).set_value(fields.ON).run()
    at.session_state["group.advanced"] = False
    at.run()
    assert fields.key(name) not in keys(at)
    assert buttons(at, "chip.") == [f"chip.{name}"]
    assert widget(at, name).value == fields.ON
    at.session_state["group.advanced"] = False
    click(at, f"chip.{name}")
    assert widget(at, name).value == fields.DEFAULT


def test_a_setting_without_effect_stays_visible_with_the_reason(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    without = lines(at, ":material/block:", "ORT_PARALLEL")
    assert without
    widget(at, "execution_mode").set_value("ORT_PARALLEL").run()
    assert not set(without) & set(texts(at).splitlines())


def test_the_runs_say_which_percentiles_they_carry(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    assert not lines(at, "p90", "p95")  # as many as the answer needs
    widget(at, "runs").set_value(50).run()
    assert lines(at, "p90", "p95", 72)


def test_free_dimensions_get_a_field_each_and_reach_the_spec(
    open_page: Open, add_model: Add, submitted: list[dict[str, Any]]
) -> None:
    record = add_model(tiny_models.unnamed_dims)
    at = open_page(model=record)
    [name, *_] = fields.other_dims(record.info)
    at.number_input(key=fields.dim_key(name)).set_value(3).run()
    click(at, "run")
    assert submitted[0]["spec"].workload.dims[name] == 3


def test_a_fixed_batch_is_shown_and_cannot_be_changed(
    open_page: Open, add_model: Add, submitted: list[dict[str, Any]]
) -> None:
    at = open_page(model=add_model(tiny_models.fixed_batch))
    assert at.text_input(key="fixed.batch").value == "2"
    assert at.text_input(key="fixed.batch").disabled
    click(at, "run")
    assert submitted[0]["spec"].workload.batch_size is None


def test_a_fixed_value_is_fed_and_shown(
    open_page: Open, add_model: Add, submitted: list[dict[str, Any]]
) -> None:
    record = add_model(tiny_models.mul)
    at = open_page(model=record)
    at.text_input(key=fields.value_key("x")).set_value("0.5").run()
    click(at, "run")
    spec = submitted[0]["spec"]
    assert spec.workload.feed_values == {"x": 0.5}
    fed = InputDescription(name="x", dtype="float32", shapes=[[3, 2]], values="0.5 everywhere")
    trial = put_compared(record, changes={"fed": [fed]}).trial
    assert any(
        ":material/input:" in one.value and "0.5" in one.value for one in open_page(trial=trial.id).caption
    )


def test_arrays_of_a_file_are_fed(
    open_page: Open, mlp: ModelRecord, home: Path, submitted: list[dict[str, Any]]
) -> None:
    np.savez(home / "rows.npz", x=np.ones((3, 16), np.float32))
    at = open_page(model=mlp)
    at.get_by_key(fields.FEEDS_SOURCE).set_value(fields.NPZ).run()
    assert at.button(key="run").disabled
    at.text_input(key=fields.FEEDS_PATH).set_value(str(home / "rows.npz"))
    widget(at, "batch_size").set_value(3).run()
    click(at, "run")
    asked = submitted[0]["spec"].workload
    assert (asked.feeds, asked.batch_size) == (str(home / "rows.npz"), 3)


def test_images_of_a_folder_are_fed(
    open_page: Open, add_model: Add, home: Path, submitted: list[dict[str, Any]]
) -> None:
    folder = home / "images"
    folder.mkdir()
    Image.new("RGB", (20, 12), (90, 10, 200)).save(folder / "0.png")
    at = open_page(model=add_model(tiny_models.conv))
    at.get_by_key(fields.FEEDS_SOURCE).set_value(fields.IMAGES).run()
    at.text_input(key=fields.FEEDS_PATH).set_value(str(folder))
    widget(at, "batch_size").set_value(2).run()
    click(at, "run")
    asked = submitted[0]["spec"].workload
    assert (asked.feeds, asked.batch_size) == (str(folder), 2)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("session_config_entries", "session.nonsense=1", "session.nonsense"),
        ("session_config_entries", "what?", "key=value"),
        ("session.intra_op_thread_affinities", "1;2", "session.intra_op_thread_affinities"),
        ("image_mean", "red", "image_mean"),
    ],
)
def test_settings_that_cannot_be_used_are_a_red_box_and_stop_run(
    open_page: Open, mlp: ModelRecord, name: str, value: str, named: str
) -> None:
    at = open_page(model=mlp)
    if name == "image_mean":
        at.get_by_key(fields.FEEDS_SOURCE).set_value(fields.IMAGES)
        at.run()
        at.text_input(key=fields.FEEDS_PATH).set_value("/images").run()
    widget(at, name).set_value(value).run()
    assert not at.exception
    [error] = at.error
    assert tells(error.value, named)
    assert at.button(key="run").disabled
    assert named in at.button(key="run").proto.help


# --- running ----------------------------------------------------------------------------------------------


def test_a_run_is_really_compared_with_the_default_and_shows_the_providers_used(
    open_page: Open, mlp: ModelRecord
) -> None:
    at = open_page(model=mlp)
    widget(at, "intra_op_num_threads").set_value(1)
    widget(at, "batch_size").set_value(3).run()
    at = run_and_wait(at, runs=80)
    assert not at.exception
    [trial] = state.store().trials()  # the configuration beside it is a reference
    result = state.store().trial(trial.id).result
    assert trial.state == "COMPLETE", trial.error
    assert result is not None
    assert trial.spec["session"] == {"intra_op_num_threads": 1}
    assert (result["batch_size"], result["runs"], len(result["latencies_s"])) == (3, 80, 80)
    shown = cards(at)
    assert shown["p50_s"] == format.ms(result["latency"]["p50_s"])
    assert shown["throughput_per_s"] == format.rate(result["throughput_per_s"])
    assert shown[cells.PEAK_MEMORY] == format.size(result["peak_rss_bytes"])
    assert numbers(shown["p99_s"]) == [368]
    assert cells.GPU_MEMORY not in shown  # not requested
    beside = {
        *("session_creation_s", "first_run_s", "break_even", "idle_cpu_s"),
        *("load_peak_rss_bytes", "energy_j_per_inference"),
    }
    assert beside <= set(shown)
    assert at.query_params["trial"] == trial.id
    ran = table(at, "Provider")
    assert (ran["Provider"].tolist(), ran["Loaded"].tolist()) == (["CPU"], ["yes"])
    assert ran["Nodes"][0] == result["placement"]["CPUExecutionProvider"]["nodes"] > 0
    assert len(at.get("plotly_chart")) == 2  # the interval, and latency over time

    comparison = state.store().comparison(trial.comparison)
    assert [one.role for one in comparison.contestants] == ["candidate", "anchor"]
    contrast = result["contrasts"][0]
    assert verdict.in_words(contrast)[1:] in at.header[0].value.replace("\\", "")
    assert f"against {DEFAULT_LABEL}" in texts(at)
    assert comparison.result is not None
    assert f"Grade {comparison.result['grade']}" in texts(at)
    assert len(result["blocks"]) == contrast["rounds"]
    tabs = [
        "More numbers",
        "Distribution",
        "Cold start",
        "Cost",
        "Providers used",
        "Versus baseline",
        "Details",
    ]
    assert [one.label for one in at.tabs] == tabs


def test_a_trial_that_fails_is_a_red_box_with_its_hint(open_page: Open, mlp: ModelRecord) -> None:
    failed = sample_results.put_failed(
        state.store(), mlp, sample_results.spec_for(mlp), message="It was killed."
    )
    at = open_page(model=mlp, trial=failed.id)
    [error] = at.error
    assert tells(error.value, failed.error["message"], failed.error["hint"])
    assert not at.button(key="run").disabled


def test_a_cancelled_trial_says_so(open_page: Open, mlp: ModelRecord) -> None:
    cancelled = sample_results.put_failed(
        state.store(), mlp, sample_results.spec_for(mlp), message="", state="CANCELLED", error=None
    )
    at = open_page(model=mlp, trial=cancelled.id)
    assert "cancel" in icons(at)
    assert at.info[0].value == "This trial was cancelled; it has no numbers."
    assert not cards(at)
    assert not at.button(key="run").disabled


@pytest.mark.parametrize("page", ["tune", "history"])
@pytest.mark.parametrize("state_", ["CANCELLED", "FAIL"])
def test_what_was_measured_before_a_trial_ended_early_is_shown(
    open_page: Open, mlp: ModelRecord, page: str, state_: str
) -> None:
    error = record_from_error(WorkerError("It was killed.", hint="Use a smaller batch."))
    early = put_compared(mlp, busy=builders.busy_machine()).trial
    state.store().update_trial(early.id, state=state_, error=error if state_ == "FAIL" else None)
    at = open_page(page, model=mlp, trial=early.id)
    if state_ == "FAIL":
        assert tells(at.error[0].value, "It was killed.", "Use a smaller batch.")
    else:
        assert at.info[0].value == "This trial was cancelled; this is what was measured until then."
    assert cards(at)["p50_s"].startswith("2.183 ms")
    [said] = lines(at, builders.BUSY)
    assert tells(said, verdict.BUSY_MEANING)


def test_a_trial_that_another_process_measures_is_not_cancelled_here(
    open_page: Open, mlp: ModelRecord
) -> None:
    running = sample_results.put_failed(
        state.store(), mlp, sample_results.spec_for(mlp), message="", state="WAITING", error=None
    )
    at = open_page(model=mlp, trial=running.id)
    assert at.button(key="cancel").disabled
    assert at.button(key="cancel").help == job_box.ELSEWHERE


def test_a_provider_that_cannot_load_fails_and_is_not_called_by_its_name(
    open_page: Open, mlp: ModelRecord
) -> None:
    spec = sample_results.spec_for(mlp, providers=["CUDAExecutionProvider"])
    error = provider_error("CUDAExecutionProvider", "CUDA does not load here.")  # as its worker says it
    failed = sample_results.put_failed(state.store(), mlp, spec, message="", error=record_from_error(error))
    at = open_page(model=mlp, trial=failed.id)
    assert tells(at.error[0].value, error.message)
    assert tells(at.error[0].value, error.hint)
    assert not at.metric
    click(at, "ways_out.failed.fallback")
    assert widget(at, "allow_fallback").value is True
    at = open_page(model=mlp, trial=put_complete(mlp, fallback=True).id)
    assert "Fallback" in texts(at)
    [asked] = lines(at, ", ".join(sample_results.ASKED_CUDA))
    assert asked.count("CPUExecutionProvider") == 2  # requested, and the provider used
    assert "fallback" in str([one.proto.spec for one in at.get("plotly_chart")])


def test_where_a_provider_does_not_load_the_ways_out_stand_beside_it(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    missing = [fact["name"] for fact in machine["providers"] if not fact["loadable"]]
    if not missing:
        pytest.skip("every provider of this build loads here")
    at = open_page(model=mlp)
    assert not buttons(at, "ways_out.providers.cpu")
    widget(at, "providers").set_value([missing[0]]).run()
    at.button(key="ways_out.providers.fallback").click().run()
    assert widget(at, "allow_fallback").value is True
    assert at.button(key="ways_out.providers.fallback").disabled
    at.button(key="ways_out.providers.cpu").click().run()
    assert not at.exception
    assert widget(at, "providers").value == []
    assert not buttons(at, "ways_out.providers.cpu")


def test_no_accessible_name_holds_markup(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    for name in ("intra_op_num_threads", "runs"):
        widget(at, name).set_value(1).run()
    kinds = ("selectbox", "number_input", "text_input", "text_area", "multiselect", "toggle", "button_group")
    labels = [one.label for kind in kinds for one in at.get(kind)]
    assert len(labels) > 20
    assert not [label for label in labels if re.search(r"[`\\]|:material/|:[a-z-]+\[|\*\*", label)]


def test_fp16_on_the_cpu_says_that_it_computes_in_fp32(open_page: Open, mlp: ModelRecord) -> None:
    casts = {
        "inserted_casts": 4,
        "inserted_cast_s": 0.0001,
        "inserted_cast_share": 0.25,
        "float32_ops": {"Gemm": 2},
        "computes_in_float32": True,
    }
    at = open_page(model=mlp, trial=put_compared(mlp, changes={"casts": casts}).trial.id)
    assert lines(at, "FP32", "FP16")


def test_the_run_in_progress_shows_stage_share_eta_and_cancel(
    open_page: Open, mlp: ModelRecord, jobs: Jobs
) -> None:
    trial = put_complete(mlp, state="RUNNING")
    facts: dict[str, Any] = {"done": 25, "total": 100, "elapsed_s": 1.0, "eta_s": 3.0}
    cancelled = jobs(status(trial.id, stage="timed runs", **facts))
    at = open_page(trial=trial.id)  # a reload is a new session with the same address
    shown = followed(at, "tune.watch")
    assert (shown["share"], shown["state"], shown["ended"]) == (0.25, "measuring", False)
    assert tells(shown["text"], "timed")
    assert numbers(shown["text"]) == [25, 100, 1, 3]
    assert buttons(at, "run") == []  # Cancel replaces it, here and at the foot of a narrow screen
    assert [one for one in buttons(at, "") if "cancel" in one] == ["cancel", "tune.cancel.foot"]
    click(at, "cancel")
    assert cancelled == [trial.id]


def test_a_running_tune_run_shows_its_interval_before_the_verdict(
    open_page: Open, mlp: ModelRecord, jobs: Jobs
) -> None:
    compared = put_compared(mlp, baseline=sample_results.spec_for(mlp, intra_op_num_threads=2))
    state.store().update_trial(compared.trial.id, state="RUNNING")
    so_far = {"ratio": 1.31, "ratio_low": 1.1, "ratio_high": 1.56, "verdict": "FASTER", "label": "candidate"}
    anchor = next(one.trial for one in compared.comparison.contestants if one.role == "anchor")
    known = {
        "rounds": 9,
        "predicted_rounds": 32,
        "generation": 3,
        "elapsed_s": 2.0,
        "contrasts": [
            {**so_far, "candidate": compared.trial.id, "baseline": compared.baseline.id},
            {**so_far, "candidate": anchor, "baseline": compared.baseline.id, "ratio": 7.7},
        ],
        "p50_s": {compared.trial.id: 0.000812, compared.baseline.id: 0.00106, anchor: 0.0011},
    }
    jobs(status(compared.trial.id, stage="rounds", done=9, total=32, live=known))
    at = open_page(model=mlp, trial=compared.trial.id)
    shown = followed(at, "tune.watch")
    [said] = [one["text"] for one in shown["lines"]]
    assert tells(said, "0.8120 ms", "1.060 ms", Verdict.FASTER.word)
    assert numbers(said) == [3, 9, 32, 0.812, 1.06, 1.3, 95, 1.1, 1.6]
    assert "7.7" not in str(shown)
    assert numbers(shown["text"]) == [0.0], "the line below counts the rounds"
    [picture] = shown["pictures"]
    [row] = picture["rows"]
    assert (row["ratio"], row["low"], row["high"], row["short"]) == (1.31, 1.1, 1.56, "")
    assert followed(at, "tune.watch.ratio") == shown, "the bar of the page shows the same stream"
    assert not at.header


def test_a_queued_run_says_who_has_the_machine_and_its_place(
    open_page: Open, mlp: ModelRecord, jobs: Jobs
) -> None:
    trial = put_complete(mlp, state="WAITING")
    holder = "command line of ada: measure vit"
    jobs(status(trial.id, state="WAITING", place=2, holder=holder))
    shown = followed(open_page(model=mlp, trial=trial.id), "tune.watch")
    assert shown["state"] == "waiting"
    assert tells(shown["text"], holder)
    assert numbers(shown["text"]) == [2]


def test_a_run_of_another_process_is_followed_through_the_store(open_page: Open, mlp: ModelRecord) -> None:
    trial = put_complete(mlp, state="RUNNING", owner="command line of ada")
    at = open_page(model=mlp, trial=trial.id)
    assert tells(followed(at, "tune.watch")["text"], trial.owner)
    state.store().update_trial(trial.id, state="COMPLETE")
    at.run()
    assert not followed(at, "tune.watch")
    assert "p50_s" in cards(at)


# --- the baseline -----------------------------------------------------------------------------------------


def test_a_tune_run_shows_verdict_numbers_and_both_sides(open_page: Open, mlp: ModelRecord) -> None:
    compared = put_compared(mlp, latency_s=0.002, baseline_s=0.00284)
    at = open_page(model=mlp, trial=compared.trial.id)
    assert "1.42× faster, 95 % CI [1.39, 1.45]" in at.header[0].value.replace("\\", "")
    assert lines(at, f"against {DEFAULT_LABEL}")
    assert lines(at, "8 ", " 16 ", "2.9 s", "±2 %", "±3 %")
    assert lines(at, "±1 %", "±1.7 %")
    p50 = card(at, "p50_s").metric[0]
    assert "1.42× faster" in p50.help
    assert not any(one.delta for one in at.metric)  # the headline says it
    assert f"baseline {format.ms(compared.baseline.result['latency']['p90_s'])}" in texts(at)
    beside = next(one.value for one in at.dataframe if "Baseline" in one.value)
    assert beside.iloc[0].tolist() == [trial_setting("intra_op_num_threads").label, "1", "0"]
    assert p50.label in beside["What"].tolist()
    names = str([one.proto.spec for one in at.get("plotly_chart")])
    assert DEFAULT_LABEL in names
    assert lines(at, " 3 ", " 48 ")  # the default has two processes


def test_no_difference_is_said_and_stays_grey(open_page: Open, mlp: ModelRecord) -> None:
    compared = put_compared(mlp, latency_s=0.002, baseline_s=0.00201, half_width=0.01)
    at = open_page(model=mlp, trial=compared.trial.id)
    assert tells(at.header[0].value.lower(), Verdict.EQUIVALENT.word, "2 %")
    assert tells(card(at, "p50_s").metric[0].help, Verdict.EQUIVALENT.word)
    assert "(1.005×, 95 % CI [0.995, 1.015])" in at.header[0].value.replace("\\", "")
    assert cards(at)["break_even"] == break_even("same")


def test_an_open_question_says_what_would_answer_it(open_page: Open, mlp: ModelRecord) -> None:
    compared = put_compared(mlp, latency_s=0.002, baseline_s=0.00206, half_width=0.08)
    at = open_page(model=mlp, trial=compared.trial.id)
    assert tells(at.header[0].value.lower(), Verdict.UNDECIDED.word)
    advice = verdict.card(compared.comparison, told(compared)).advice
    assert advice
    assert lines(at, advice)
    assert "machine" in [one.proto.page for one in at.page_link]
    assert cards(at)["break_even"] == break_even("unknown")


REJECTED = "Two copies of the same configuration differed by 2.1 % in the A/A test of this race."


def test_a_rejected_comparison_is_no_verdict_and_says_why_and_what_to_do(
    open_page: Open, mlp: ModelRecord
) -> None:
    compared = put_compared(mlp, grade="F", grade_reason=REJECTED, remedy="Measure when it is quieter.")
    at = open_page(model=mlp, trial=compared.trial.id)
    assert at.header[0].value.startswith(f":material/{Grade.F.icon}:")
    assert tells(at.header[0].value, "1.39×", "1.45×")
    assert Verdict.FASTER.word not in at.header[0].value
    assert lines(at, REJECTED, compared.comparison.facts["remedy"])
    assert texts(at).count(REJECTED) == 1  # the note of the contrast says the same
    assert CONTROL_FAILED in texts(at)
    assert cards(at)["break_even"] == break_even("unknown")
    assert at.tabs[0].label == "Ratio"
    no_verdict = in_words(told(compared)).partition(" (")[0]
    assert any(no_verdict in one.proto.spec for one in at.get("plotly_chart"))


def test_the_picture_follows_the_sentence_and_cautions_come_below(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp, trial=put_compared(mlp, older=True).trial.id)
    assert place(at, "header") < place(at, "plotly_chart") < place(at, "markdown", verdict.OLDER)
    at = open_page(model=mlp, trial=put_compared(mlp, grade="F", grade_reason=REJECTED).trial.id)
    assert place(at, "header") < place(at, "plotly_chart") < place(at, "error", REJECTED)


def test_settings_stand_under_the_sentence_only_where_the_form_has_others(
    open_page: Open, mlp: ModelRecord
) -> None:
    compared = put_compared(mlp)
    badges = [f":blue-badge[{words}]" for words, _ in chips(state.trial_spec(compared.trial))]
    at = open_page(model=mlp, trial=compared.trial.id)
    assert "chip.intra_op_num_threads" in buttons(at, "chip.")
    assert [len(lines(at, badge)) for badge in badges] == [1]  # under Details
    widget(at, "intra_op_num_threads").set_value(3).run()
    assert [len(lines(at, badge)) for badge in badges] == [2]


def test_a_busy_machine_keeps_the_verdict_and_is_told_beside_every_number(
    open_page: Open, mlp: ModelRecord
) -> None:
    compared = put_compared(mlp, busy=builders.busy_machine())
    at = open_page(model=mlp, trial=compared.trial.id)
    assert "1.42× faster, 95 % CI [1.39, 1.45]" in at.header[0].value.replace("\\", "")
    assert lines(at, builders.BUSY)
    assert lines(at, verdict.BUSY_MEANING)
    assert lines(at, ":orange-badge[:material/groups:")
    assert "green-badge" not in texts(at)
    assert "Rejected" not in at.header[0].value
    assert not at.error


def test_a_comparison_of_an_earlier_version_says_that_its_interval_knows_one_pair(
    open_page: Open, mlp: ModelRecord
) -> None:
    at = open_page(model=mlp, trial=put_compared(mlp, older=True).trial.id)
    assert "1.42× faster, 95 % CI [1.39, 1.45]" in at.header[0].value.replace("\\", "")
    assert lines(at, verdict.OLDER)
    assert not lines(at, "±1.7 %")
    assert buttons(at, "tune.go_on") == []
    rejected = put_compared(mlp, older=True, grade="F", grade_reason="A neighbour.", remedy="Stop it.")
    at = open_page(model=mlp, trial=rejected.trial.id)
    assert at.header[0].value.startswith(f":material/{Grade.F.icon}:")
    assert tells(at.header[0].value, "1.39×", "1.45×")
    assert Verdict.FASTER.word not in at.header[0].value
    assert lines(at, *(rejected.comparison.facts[name] for name in ("grade_reason", "remedy")))
    assert cards(at)["break_even"] == break_even("unknown")


def test_a_spread_that_the_comparison_did_not_see_itself_says_so(open_page: Open, mlp: ModelRecord) -> None:
    compared = put_compared(mlp, contrast={"between_from": "assumed"})
    at = open_page(model=mlp, trial=compared.trial.id)
    noise = verdict.noise_words(told(compared))
    assert noise != verdict.noise_words({**told(compared), "between_from": "race"})
    assert lines(at, noise[1:])


def test_pruned_samples_leave_the_numbers(open_page: Open, mlp: ModelRecord) -> None:
    compared = put_compared(mlp)
    before = cards(open_page(model=mlp, trial=compared.trial.id))
    state.store().prune(before=time.time())
    at = open_page(model=mlp, trial=compared.trial.id)
    assert cards(at) == before
    assert "content_cut" in icons(at)
    assert len(at.get("plotly_chart")) == 1  # the interval needs no samples
    assert buttons(at, "tune.go_on") == []


def test_samples_of_one_side_alone_are_drawn_and_the_other_is_named(
    open_page: Open, mlp: ModelRecord
) -> None:
    compared = put_compared(mlp)
    state.store().pin_baseline(mlp.content_sha256, compared.trial.id)  # a pinned baseline keeps its samples
    state.store().prune(before=time.time())
    at = open_page(model=mlp, trial=compared.trial.id)
    assert lines(at, ":material/content_cut:", DEFAULT_LABEL)
    assert len(at.get("plotly_chart")) == 2


# --- going on ---------------------------------------------------------------------------------------------


@pytest.fixture
def continued(
    monkeypatch: pytest.MonkeyPatch, mlp: ModelRecord
) -> list[tuple[str, float, sample_results.Compared]]:
    """What the page asks the scheduler to go on with; the race that goes on is invented, and runs."""
    asked: list[tuple[str, float, sample_results.Compared]] = []

    def submit(_store: Store, comparison_id: str, *, wait_quiet_s: float = 0.0) -> str:
        more = put_compared(mlp)
        state.store().update_trial(more.trial.id, state="RUNNING")
        asked.append((comparison_id, wait_quiet_s, more))
        return more.comparison.id

    sample_results.queue(monkeypatch, "more_launches", submit)
    return asked


def test_a_finished_comparison_is_measured_longer_as_another_one_that_the_page_follows(
    open_page: Open, mlp: ModelRecord, continued: list[tuple[str, float, sample_results.Compared]]
) -> None:
    compared = put_compared(mlp)
    at = open_page(model=mlp, trial=compared.trial.id)
    at.button(key="tune.go_on").click().run()
    [(comparison, wait_quiet_s, more)] = continued
    assert (comparison, wait_quiet_s) == (compared.comparison.id, 0.0)
    assert at.query_params["trial"] == more.trial.id
    assert followed(at, "tune.watch")
    assert buttons(at, "tune.go_on") == []
    assert buttons(at, "run") == []


def test_what_cannot_go_on_is_said(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = SpecError("Its samples are gone.", hint="Race them anew.")

    def refuse(_store: Store, comparison_id: str, **_: Any) -> str:
        raise refusal

    sample_results.queue(monkeypatch, "more_launches", refuse)
    compared = put_compared(mlp)
    at = open_page(model=mlp, trial=compared.trial.id)
    at.button(key="tune.go_on").click().run()
    assert tells(at.error[0].value, refusal.message)
    assert at.query_params["trial"] == compared.trial.id


# --- details of a run -------------------------------------------------------------------------------------


def test_a_run_waits_for_quiet_when_asked_to_and_the_wish_is_shared_by_the_pages(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    at = open_page(model=mlp)
    assert at.number_input(key="protocol.wait_minutes").disabled
    click(at, "run")
    at.toggle(key="protocol.wait_quiet").set_value(True).run()
    at.number_input(key="protocol.wait_minutes").set_value(2).run()
    at.switch_page("views/compare/page.py").run()
    assert at.toggle(key="protocol.wait_quiet").value is True
    assert at.number_input(key="protocol.wait_minutes").value == 2
    at.switch_page("views/tune/page.py").run()
    click(at, "run")
    assert [one["wait_quiet_s"] for one in submitted] == [0.0, 120.0]


def test_what_cannot_run_is_said_at_once_and_not_queued(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    half = replace(mlp, details=put_variant(mlp, Step("fp16", {}), name="half").details)
    state.store().put_model(half)
    at = open_page(model=half)
    widget(at, "precision").set_value("fp16").run()  # again
    click(at, "run")
    assert submitted == []
    assert at.error[0].value.count("FP16") == 2


def test_outputs_that_differ_stand_with_the_verdict(open_page: Open, mlp: ModelRecord) -> None:
    note = "outputs differ: largest error 0.31 of the largest magnitude"
    wrong = builders.guarded(max_rel=0.31, max_abs=2.5)
    compared = put_compared(mlp, changes=wrong, contrast={"notes": [note], "outputs_differ": True})
    at = open_page(model=mlp, trial=compared.trial.id)
    assert lines(at, "0.31")
    assert lines(at, ":orange-badge[:material/warning:", OUTPUTS_DIFFER)
    [warning] = at.warning
    assert tells(warning.value, ADVICE)
    assert cards(at)["output_error"] == "0.31"


def test_outputs_that_agree_are_told_with_how_far_they_are(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp, trial=put_compared(mlp).trial.id)
    assert lines(at, ":material/fact_check:", "1e-06", "0.001", "fp32")
    assert cards(at)["output_error"] == "1e-06"
    assert not at.warning


def test_a_result_of_an_earlier_version_is_shown_without_what_it_does_not_know(
    open_page: Open, mlp: ModelRecord
) -> None:
    before = {
        "guard": None,
        "output_error": {"max_abs": 0.1, "max_rel": 0.1, "top1_agreement": 1.0, "difference": ""},
    }
    at = open_page(model=mlp, trial=put_compared(mlp, changes=before).trial.id)
    assert "output_error" not in cards(at)
    assert not at.warning
    marked = put_compared(mlp, changes=before, contrast={"outputs_differ": True})
    at = open_page(model=mlp, trial=marked.trial.id)
    assert lines(at, ":orange-badge[:material/warning:", OUTPUTS_DIFFER)


def test_different_batches_are_compared_per_row(open_page: Open, mlp: ModelRecord) -> None:
    compared = put_compared(mlp, latency_s=0.004, baseline_s=0.002, rows=4, baseline_rows=1)
    at = open_page(model=mlp, trial=compared.trial.id)
    assert "2.00× faster" in at.header[0].value.replace("\\", "")
    assert lines(at, verdict.card(compared.comparison, told(compared)).against)
    p50 = card(at, "p50_s").metric[0]
    assert "2.00× faster" in p50.help
    assert p50.value == format.ms(compared.trial.result["latency"]["p50_s"] / 4)
    beside = next(one.value for one in at.dataframe if "Baseline" in one.value)
    assert card(at, "p50_s").metric[0].label in beside["What"].tolist()
    assert cells.latency_cells(compared.trial.facts, None)[0].label not in beside["What"].tolist()
    assert DEFAULT_LABEL in at.get("plotly_chart")[0].proto.spec
    assert cards(at)["break_even"]


def test_the_default_itself_has_no_verdict_but_a_self_test(open_page: Open, mlp: ModelRecord) -> None:
    [trial] = sample_results.put_comparison(
        state.store(),
        mlp,
        [sample_results.SampleConfiguration(spec=sample_results.spec_for(mlp))],
        fingerprint=state.environment()["fingerprint"],
    )[1]
    at = open_page(model=mlp, trial=trial.id)
    assert at.header[0].value.startswith(":material/flag:")
    assert lines(at, "1.001×", "[0.990, 1.012]", " 8 ", " 16 ")
    assert "break_even" not in cards(at)
    assert not any(one.delta for one in at.metric)


def test_a_pinned_baseline_is_measured_in_the_next_run(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]]
) -> None:
    first = put_compared(mlp).trial
    at = open_page(model=mlp, trial=first.id)
    click(at, "pin")
    assert state.store().baseline(mlp.content_sha256) == first.id
    assert at.button(key="pin").icon == ":material/keep_off:"
    widget(at, "intra_op_num_threads").set_value(None)
    widget(at, "enable_cpu_mem_arena").set_value(fields.OFF).run()
    assert tells(at.button(key="run").help, "pinned")
    click(at, "run")
    baseline = submitted[0]["baseline"]
    assert (baseline.role, tells(baseline.label, "threads 1")) == ("baseline", True)
    assert baseline.spec.to_dict() == first.spec


def test_a_comparison_with_a_pinned_baseline_shows_the_verdict_on_the_default_too(
    open_page: Open, mlp: ModelRecord
) -> None:
    configurations = [
        sample_results.SampleConfiguration(
            spec=sample_results.spec_for(mlp, intra_op_num_threads=2), latency_s=0.001
        ),
        sample_results.SampleConfiguration(
            spec=sample_results.spec_for(mlp, intra_op_num_threads=1), role="baseline", label="mine"
        ),
        sample_results.SampleConfiguration(spec=sample_results.spec_for(mlp), role="anchor"),
    ]
    trials = sample_results.put_comparison(
        state.store(), mlp, configurations, fingerprint=state.environment()["fingerprint"]
    )[1]
    at = open_page(model=mlp, trial=trials[0].id)
    assert lines(at, "mine")
    assert lines(at, DEFAULT_LABEL)


def test_a_pin_that_was_never_compared_with_the_result_offers_a_comparison_instead_of_numbers(
    open_page: Open, mlp: ModelRecord
) -> None:
    shown = put_compared(mlp).trial
    spec = sample_results.spec_for(mlp, inter_op_num_threads=2, execution_mode="ORT_PARALLEL")
    other = put_compared(mlp, spec=spec, latency_s=0.001).trial
    state.store().pin_baseline(mlp.content_sha256, other.id)
    at = open_page(model=mlp, trial=shown.id)
    assert lines(at, ":material/history_toggle_off:", other.id[:8])
    assert f"trials={shown.id}%2C{other.id}" in [one.proto.query_string for one in at.page_link]
    assert "1.42× faster" in at.header[0].value  # the earlier comparison still counts


def test_a_trial_of_another_machine_says_what_differs(open_page: Open, mlp: ModelRecord) -> None:
    shown = put_complete(mlp)
    here = state.environment()
    there = {**here, "kernel": "0.0.1"}
    other = replace(
        shown,
        id="f" * 16,
        fingerprint="another",
        result={**shown.result, "environment": there, "fingerprint": "another"},
    )
    state.store().update_trial(shown.id, result={**shown.result, "environment": dict(here)})
    state.store().create_trial(other)
    state.store().pin_baseline(mlp.content_sha256, other.id)
    at = open_page(model=mlp, trial=shown.id)
    assert "kernel: " in texts(at)
    assert not any(one.delta for one in at.metric)


def test_a_trial_of_before_there_were_comparisons_is_shown_without_a_verdict(
    open_page: Open, mlp: ModelRecord
) -> None:
    at = open_page(model=mlp, trial=put_complete(mlp).id)
    assert "p50_s" in cards(at)
    assert tells(at.header[0].value, "p50", "samples/s")
    assert "×" not in at.header[0].value


def test_the_precision_says_how_long_it_will_take(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    assert lines(at, ":material/schedule:", "±3 %", "30 s")
    put_compared(mlp)
    at.run()
    [told_time] = lines(at, ":material/schedule:")
    assert tells(told_time, "±3 %")
    assert len(numbers(told_time)) == 3  # and how long that takes, in seconds and rounds
    control = widget(at, "protocol.effort")
    assert re.fullmatch(r"\w+ · [0-9]+ s", control.proto.options[0].content)
    control.set_value("publish").run()
    assert "Within ±0.7 %" in texts(at)
    widget(at, "budget_s").set_value(1).run()
    [shorter] = lines(at, ":material/schedule:")
    assert shorter.partition(".")[2] != told_time.partition(".")[2]  # the budget does not cover it


def test_the_result_leads_to_explain(open_page: Open, mlp: ModelRecord) -> None:
    compared = put_compared(mlp)
    at = open_page(model=mlp, trial=compared.trial.id)
    assert f"a={compared.baseline.id}&b={compared.trial.id}" in [
        one.proto.query_string for one in at.page_link
    ]


# --- links ------------------------------------------------------------------------------------------------


def test_a_link_opens_the_same_trial_with_its_settings(open_page: Open, mlp: ModelRecord) -> None:
    trial = put_complete(mlp, intra_op_num_threads=1, batch_size=8)
    at = open_page(trial=trial.id)
    assert widget(at, "intra_op_num_threads").value == 1
    assert widget(at, "batch_size").value == 8
    assert at.session_state[state.MODEL] == mlp.content_sha256
    assert "p50_s" in cards(at)


def test_a_link_to_a_trial_of_a_deleted_model_shows_the_result_and_says_why(
    open_page: Open, add_model: Add, mlp: ModelRecord
) -> None:
    other = add_model(tiny_models.conv)
    trial = put_complete(other, batch_size=5)
    remove_model(state.store(), other.content_sha256)
    at = open_page(model=mlp, trial=trial.id)
    assert "p50_s" in cards(at)
    assert len(at.warning) == 1
    assert widget(at, "batch_size").value == 1
    assert at.session_state[state.MODEL] == mlp.content_sha256


def test_changed_settings_are_told_from_the_shown_result(open_page: Open, mlp: ModelRecord) -> None:
    trial = put_complete(mlp)
    at = open_page(trial=trial.id)
    assert "sync_problem" not in icons(at)
    widget(at, "batch_size").set_value(2).run()
    assert "sync_problem" in icons(at)
