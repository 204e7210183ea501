"""The Profile page on recorded profiles, and on one that is really made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.show.sheets import imported
from core.show.table import Column, column_of, matching, tabulate
from core.store import ModelRecord
from core.worker.measure.profile_parser import parse_profile
from dashboard import state
from dashboard.charts.profile_charts import NOT_FOUND, REST
from dashboard.views.profile import results as profile_results
from dashboard.widgets import peaks
from tests import tiny_models
from tests.builders import PEAK_TIMES
from tests.reading import numbers, tells
from tests.views import sample_results
from tests.views.page import (
    Add,
    Open,
    buttons,
    choice,
    figure,
    followed,
    icons,
    lines,
    offers,
    status,
    texts,
)
from tests.views.sample_results import DATA


@pytest.fixture
def put(mlp: ModelRecord) -> Callable[..., Any]:
    """Store a recorded profile as one of the MLP."""
    return lambda **changes: sample_results.put_profile(
        state.store(), mlp, sample_results.spec_for(mlp, runs=20), **changes
    )


def view(at: AppTest, name: str) -> AppTest:
    at.get_by_key("profile.view").set_value(name).run()
    assert not at.exception
    return at


CPU = "CPUExecutionProvider"
OFF, ON, INSIDE, BETWEEN = range(4)  # the numbers: a run without and with the profiler, and the parts of one


def metrics(at: AppTest) -> list[tuple[str, str]]:
    return [(one.value, one.delta) for one in at.metric]


def basis(at: AppTest) -> Any:
    """The choice between means and medians."""
    return at.get_by_key(f"profile.basis.{at.session_state['profile.shown']}")


def roofs(at: AppTest) -> list[str]:
    """The peaks that are drawn, of two threads."""
    return [one["name"] for one in figure(at)["data"] if " 2 " in one.get("name", "")]


def test_without_a_profile_the_page_says_what_to_do(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("profile", model=mlp)
    assert "search_insights" in icons(at)
    assert not at.button(key="profile.run").disabled
    assert len(at.get("plotly_chart")) == 0


def test_run_asks_for_a_profile_of_the_current_settings(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def submit(spec: Any, **how: Any) -> str:
        asked.append({"spec": spec, **how})
        return sample_results.put_profile(state.store(), mlp, spec).id

    sample_results.queue(monkeypatch, "profile", submit)
    at = open_page("profile", model=mlp)
    at.session_state["knob.batch_size"] = 8
    at.number_input(key="profile.runs").set_value(7)
    at.button(key="profile.run").click().run()
    (one,) = asked
    assert one["spec"].workload.batch_size == 8
    assert one["spec"].protocol.runs == 7
    assert not at.exception
    assert len(metrics(at)) == 4


def test_what_the_profiler_costs_and_what_lies_between_the_nodes_is_stated(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put()
    at = open_page("profile", model=mlp)
    shown = metrics(at)
    assert numbers(shown[ON][1]) == [25.0]
    assert all("%" in shown[place][1] for place in (INSIDE, BETWEEN))
    shares = [numbers(shown[place][1])[0] for place in (INSIDE, BETWEEN)]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert lines(at, "5 to 8 µs")


def test_time_by_operator_adds_up_to_the_nodes(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    trial = put()
    at = open_page("profile", model=mlp)
    table = at.dataframe[0].value
    assert {"If", "MatMul"} <= set(table["Operator"])
    assert table["Share"].sum() == pytest.approx(1.0)
    assert table["Self (ms/run)"].sum() == pytest.approx(trial.result["profile"]["self_s"] * 1e3)
    drawn = sum(sum(one["x"]) for one in figure(at)["data"])
    assert drawn == pytest.approx(trial.result["profile"]["self_s"] * 1e3, rel=1e-6)


def test_an_if_shows_its_own_time_and_its_body_apart(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put()
    at = view(open_page("profile", model=mlp), "Nodes")
    table = at.dataframe[0].value
    outer = table[table["Operator"] == "If"].iloc[0]
    assert outer["Self (ms/run)"] < outer["Inclusive, mean (ms/run)"]
    assert outer["Node"] in " ".join(table["Inside"])


def test_the_table_of_nodes_can_be_searched(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put()
    at = view(open_page("profile", model=mlp), "Nodes")
    everything = len(at.dataframe[0].value)
    at.text_input(key="profile.search.nodes").set_value("MATMUL cpu").run()
    found = at.dataframe[0].value
    assert 0 < len(found) < everything
    assert all("matmul" in f"{row.Node} {row.Operator}".lower() for row in found.itertuples())
    assert f"{len(found)} of {everything} lines" in texts(at)
    at.text_input(key="profile.search.nodes").set_value("no such node").run()
    assert len(at.dataframe[0].value) == 0
    assert not at.exception


def test_a_search_is_for_plain_words_and_not_a_pattern() -> None:
    table = tabulate(["conv.1(a)", "convX1a"], (Column("node"), str))
    assert column_of(matching(table, "CONV.1("), "node") == ["conv.1(a)"]
    assert len(matching(table, "").rows) == 2


def test_the_providers_are_shown_with_the_rest_between_the_nodes(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put()
    at = view(open_page("profile", model=mlp), "Providers")
    assert list(at.dataframe[0].value["Ran on"]) == [CPU]
    assert [one["name"] for one in figure(at)["data"]] == [CPU, REST]


def test_the_timeline_has_a_lane_for_the_body_of_an_if(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    profile = put().result["profile"]
    at = view(open_page("profile", model=mlp), "Timeline")
    first, inside = figure(at)["layout"]["yaxis"]["ticktext"][:2]
    assert inside.startswith(first)
    assert numbers(first) == [1]
    assert lines(at, f" {profile['timeline_run'] + 1} of {profile['runs']}")


def test_a_truncated_profile_says_so(open_page: Open, mlp: ModelRecord, put: Callable[..., Any]) -> None:
    put(profile_changes={"truncated": True, "dropped_events": 12_022})
    at = open_page("profile", model=mlp)
    assert lines(at, "12,022")


def test_one_stall_of_the_machine_does_not_decide_what_is_shown_first(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    nodes = put().result["profile"]["nodes"]
    stalled = {**nodes[-1], "self_s": 0.5, "share": 0.99}
    put(profile_changes={"run_s": [0.001, 0.001, 0.001, 0.05], "nodes": [*nodes[:-1], stalled]})
    at = open_page("profile", model=mlp)
    assert lines(at, "13.3")
    assert basis(at).value == profile_results.MEDIAN
    assert at.dataframe[0].value["Operator"][0] != stalled["op_type"]
    at.get_by_key(f"profile.basis.{at.session_state['profile.shown']}").set_value("Mean").run()
    assert not at.exception
    assert basis(at).value == profile_results.MEAN
    assert at.dataframe[0].value["Operator"][0] == stalled["op_type"]


def test_nodes_that_onnx_runtime_inserted_are_called_out(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put(recording="fp16_cpu")
    at = open_page("profile", model=mlp)
    assert lines(at, ":material/add_box:", "Cast", "FP32")
    assert "Cast" in texts(at)


def test_a_profile_that_fell_back_says_so_and_is_never_called_cuda(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    trial = put(
        fallback=True,
        requested_providers=sample_results.ASKED_CUDA,
        effective_providers=sample_results.CPU,
        fallback_reason="The CUDA library is missing.",
    )
    at = open_page("profile", model=mlp)
    [said] = lines(at, ", ".join(sample_results.ASKED_CUDA))
    assert said.count("CUDA") == 2  # requested, and in the reason
    assert said.count(CPU) == 2  # requested, and the provider used
    assert tells(said, trial.result["fallback_reason"])
    names = [one["name"] for one in figure(at)["data"]]
    assert all(tells(name, CPU, "CUDA") for name in names)


def test_times_of_cuda_nodes_are_called_host_launch_time(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    trial = put()
    nodes = [{**node, "provider": "CUDAExecutionProvider"} for node in trial.result["profile"]["nodes"]]
    put(profile_changes={"nodes": nodes}, effective_providers=sample_results.ASKED_CUDA)
    at = open_page("profile", model=mlp)
    choice(at, "profile.shown").select_index(0).run()
    assert [one for one in at.info if tells(one.value, "CUDA", "TensorRT")]


def test_earlier_profiles_can_be_chosen(open_page: Open, mlp: ModelRecord, put: Callable[..., Any]) -> None:
    put(recording="loop")
    second = put(recording="chain")
    at = open_page("profile", model=mlp)
    box = choice(at, "profile.shown")
    assert len(box.options) == 2
    shown = at.dataframe[0].value
    box.select_index(1 if box.value == second.id else 0).run()
    assert not at.exception
    assert not at.dataframe[0].value.equals(shown)


def test_a_link_opens_the_profile_it_names(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any], add_model: Add
) -> None:
    wanted = put(recording="loop")
    put(recording="chain")
    at = open_page("profile", model=add_model(tiny_models.conv))
    at.query_params["trial"] = wanted.id
    at.run()
    assert choice(at, "profile.shown").value == wanted.id
    assert "Loop" in set(at.dataframe[0].value["Operator"])
    assert at.session_state[state.MODEL] == mlp.content_sha256


def test_a_link_to_a_measured_trial_offers_to_profile_it(open_page: Open, mlp: ModelRecord) -> None:
    spec = sample_results.spec_for(mlp, batch_size=16, intra_op_num_threads=1)
    trial = sample_results.put_measured(state.store(), mlp, spec, fingerprint="x", rows=16)
    at = open_page("profile", model=mlp, trial=trial.id)
    assert at.selectbox(key="profile.measured").value == trial.id


def test_a_failed_profile_shows_its_error(open_page: Open, mlp: ModelRecord) -> None:
    sample_results.put_failed(
        state.store(), mlp, sample_results.spec_for(mlp), message="Killed by SIGSEGV.", kind="profile"
    )
    at = open_page("profile", model=mlp)
    assert tells(at.error[0].value, "SIGSEGV")
    assert not at.button(key="profile.run").disabled


def test_a_running_profile_shows_progress_and_can_be_cancelled(
    open_page: Open, mlp: ModelRecord, jobs: Callable[..., list[str]]
) -> None:
    running = sample_results.put_failed(
        state.store(),
        mlp,
        sample_results.spec_for(mlp),
        message="",
        kind="profile",
        state="WAITING",
        model_sha256="",
    )
    at = open_page("profile", model=mlp)
    assert followed(at, "profile.watch")["state"] == "measuring"
    assert at.button(key="profile.run").disabled
    assert at.button(key="profile.cancel").disabled  # another process measures it
    cancelled = jobs(status(running.id, kind="profile"))
    at.run()
    at.button(key="profile.cancel").click().run()
    assert cancelled == [running.id]


def test_while_one_is_made_the_profile_before_stays_on_the_screen(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    before = put(recording="loop")
    running = sample_results.put_failed(
        state.store(), mlp, sample_results.spec_for(mlp), message="", kind="profile", state="WAITING"
    )
    at = open_page("profile", model=mlp, trial=running.id)
    assert followed(at, "profile.watch")["state"] == "measuring"
    assert "Loop" in set(at.dataframe[0].value["Operator"])
    state.store().delete_trials([before.id])
    at.run()
    assert not at.dataframe


def test_the_settings_of_a_profile_go_back_to_tune_but_not_its_number_of_runs(
    open_page: Open, mlp: ModelRecord
) -> None:
    spec = sample_results.spec_for(mlp, batch_size=4, runs=20)
    sample_results.put_profile(state.store(), mlp, spec)
    at = open_page("profile", model=mlp)
    at.button(key="profile.use").click().run()
    assert not at.exception
    assert at.title[0].value == "Tune"
    assert at.session_state["knob.batch_size"] == 4
    assert at.session_state["knob.runs"] is None  # until the verdict is final


def test_the_trace_is_offered_only_while_it_is_there(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put(trace=False)
    at = open_page("profile", model=mlp)
    assert offers(at)[0].proto.disabled
    put()
    at.run()
    choice(at, "profile.shown").select_index(0).run()
    assert not offers(at)[0].proto.disabled


def test_a_model_is_really_profiled(open_page: Open, add_model: Add) -> None:
    record = add_model(tiny_models.conv)
    at = open_page("profile", model=record)
    at.number_input(key="profile.runs").set_value(5)
    at.button(key="profile.run").click().run()
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    assert [error.value for error in at.error] == []
    assert {"Gemm"} <= set(at.dataframe[0].value["Operator"])
    shown = metrics(at)
    assert numbers(shown[OFF][0])[0] > 0
    trace = state.store().artifact_path(at.session_state["profile.shown"], "trace.json")
    assert any(event["name"] == "model_run" for event in json.loads(trace.read_text()))


# --- the roofline, another profile over it, and imported ones ---------------------------------------------


def test_one_sentence_stands_on_top(open_page: Open, mlp: ModelRecord, put: Callable[..., Any]) -> None:
    put(recording="fp16_cpu")
    at = open_page("profile", model=mlp)
    assert tells(at.subheader[0].value, "Conv", "%")


def test_the_roofline_offers_to_measure_the_peaks(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    sample_results.queue(monkeypatch)
    monkeypatch.setattr(peaks, "peaks_job", lambda threads: str(asked.append(threads)))
    fingerprint = state.environment()["fingerprint"]
    put(recording="fp16_cpu", fingerprint=fingerprint)
    at = view(open_page("profile", model=mlp), "Roofline")
    assert not roofs(at)
    assert len(at.get("plotly_chart")) == 1
    at.button(key="profile.peaks").click().run()
    assert asked == [0]
    assert not at.exception


def test_the_roofline_is_drawn_against_the_machine_of_the_profile(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    fingerprint = state.environment()["fingerprint"]
    state.store().put_peaks(fingerprint, {"times": [PEAK_TIMES], "cache_bytes": 1 << 20, "at": 1e9})
    put(recording="fp16_cpu", fingerprint=fingerprint)
    at = view(open_page("profile", model=mlp), "Roofline")
    assert lines(at, "100 billion", "9.31 GiB/s", " 2 ")
    assert roofs(at)
    put(recording="fp16_cpu", fingerprint="another")
    at = view(open_page("profile", model=mlp), "Roofline")
    assert [one for one in at.info if one.icon == ":material/roofing:"]
    assert buttons(at, "profile.peaks") == []  # they cannot be measured here
    assert not roofs(at)


def test_the_table_of_nodes_says_type_shape_and_work(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put(recording="fp16_cpu")
    table = view(open_page("profile", model=mlp), "Nodes").dataframe[0].value
    assert {"Type", "Output shape", "Mop/run", "Moves (KiB)", "Op/byte", "Gop/s"} <= set(table.columns)
    conv = table[table["Operator"] == "Conv"].iloc[0]
    assert conv["Type"] == "float32"
    assert conv["Mop/run"] > 0


def test_the_treemap_holds_all_the_time(open_page: Open, mlp: ModelRecord, put: Callable[..., Any]) -> None:
    trial = put()
    at = view(open_page("profile", model=mlp), "Treemap")
    drawn = figure(at)["data"][0]
    assert sum(drawn["values"]) == pytest.approx(trial.result["profile"]["self_s"] * 1e3)


def test_the_timeline_can_be_searched_and_zoomed(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put()
    at = view(open_page("profile", model=mlp), "Timeline")
    assert at.get_by_key("profile.zoom.timeline").disabled
    at.text_input(key="profile.search.timeline").set_value("matmul").run()
    [found] = [numbers(one.value) for one in at.caption if tells(one.value, ";", " ms")]
    assert 0 < found[0] < found[1]
    assert NOT_FOUND in [one["name"] for one in figure(at)["data"]]
    whole = figure(at)["layout"]["xaxis"]["range"]
    at.get_by_key("profile.zoom.timeline").set_value(True).run()
    assert figure(at)["layout"]["xaxis"]["range"] != whole
    at.text_input(key="profile.search.timeline").set_value("no such node").run()
    assert not [one for one in at.caption if tells(one.value, ";", " ms")]
    assert not at.exception


def test_two_profiles_lie_over_one_another(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put()
    at = view(open_page("profile", model=mlp), "Two profiles")
    assert [one for one in at.info if one.icon == ":material/compare:"]
    put(recording="fp16_cpu", batch_size=4)
    at = view(open_page("profile", model=mlp), "Two profiles")
    assert {"A (ms/run)", "B (ms/run)", "B minus A (ms/run)"} <= set(at.dataframe[0].value.columns)
    assert [one for one in at.warning if numbers(one.value) == [4, 1]]
    assert "verdict" in texts(at)
    assert len(at.get("plotly_chart")) == 2


def brought() -> Any:
    found = {
        "format": "onnxruntime profile",
        "sha256": "0" * 64,
        "size_bytes": 1,
        "profile": parse_profile(DATA / "profile_1.31.1_fp16_cpu.json").to_dict(),
        "summary": None,
    }
    return state.store().shelf.put(found, name="<b>theirs</b>.json", at=1e9)


def test_an_imported_profile_is_marked_and_has_no_roof(open_page: Open, mlp: ModelRecord) -> None:
    one = brought()
    at = open_page("profile", model=mlp, imported=one.id)
    assert tells(at.warning[0].proto.title, "<b>theirs</b>.json")
    assert lines(at, imported.UNKNOWN)
    assert len(metrics(at)) == 4
    at = view(at, "Roofline")
    assert not roofs(at)
    assert one.id in at.query_params["imported"]
    at.button(key="profile.import.remove").click().run()
    assert state.store().shelf.all() == []
    assert not metrics(at)


def test_an_import_that_is_gone_is_said(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("profile", model=mlp, imported="0123456789abcdef")
    assert tells(at.error[0].value, "0123456789abcdef")
    assert not at.exception


def test_an_uploaded_file_is_read_and_shown(
    open_page: Open, mlp: ModelRecord, tmp_path: Path, put: Callable[..., Any]
) -> None:
    put()
    file = tmp_path / "elsewhere.json"
    file.write_bytes((DATA / "profile_1.31.1_chain.json").read_bytes())
    at = open_page("profile", model=mlp)
    at.session_state["profile.import.pending"] = [str(file)]
    at.run()
    assert tells(at.warning[0].proto.title, "elsewhere.json")
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    at.session_state["profile.import.pending"] = [str(wrong)]
    at.run()
    assert at.error
    assert not at.exception
