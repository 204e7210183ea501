"""The Profile page on recorded profiles, and on one that is really made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.show.table import Column, column_of, matching, tabulate
from core.store import ModelRecord
from core.worker.measure.profile_parser import parse_profile
from dashboard import state
from tests import tiny_models
from tests.views import invented
from tests.views.invented import DATA
from tests.views.page import Add, Open, choice, figure, offers, run_late, texts


@pytest.fixture
def put(mlp: ModelRecord) -> Callable[..., Any]:
    """Store a recorded profile as one of the MLP."""
    return lambda **changes: invented.put_profile(
        state.store(), mlp, invented.spec_for(mlp, runs=20), **changes
    )


def view(at: AppTest, name: str) -> AppTest:
    at.get_by_key("profile.view").set_value(name).run()
    assert not at.exception
    return at


def metrics(at: AppTest) -> dict[str, tuple[str, str]]:
    return {one.label: (one.value, one.delta) for one in at.metric}


def test_without_a_profile_the_page_says_what_to_do(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("profile", model=mlp)
    assert "No profile of this model yet" in texts(at)
    assert not at.button(key="profile.run").disabled
    assert len(at.get("plotly_chart")) == 0


def test_run_asks_for_a_profile_of_the_current_settings(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def submit(spec: Any, **how: Any) -> str:
        asked.append({"spec": spec, **how})
        return invented.put_profile(state.store(), mlp, spec).id

    invented.queue(monkeypatch, "profile", submit)
    at = open_page("profile", model=mlp)
    at.session_state["knob.batch_size"] = 8
    at.number_input(key="profile.runs").set_value(7)
    at.button(key="profile.run").click().run()
    (one,) = asked
    assert one["spec"].workload.batch_size == 8
    assert one["spec"].protocol.runs == 7
    assert not at.exception
    assert "Run, profiler on (p50)" in metrics(at)


def test_what_the_profiler_costs_and_what_lies_between_the_nodes_is_stated(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put()
    at = open_page("profile", model=mlp)
    shown = metrics(at)
    assert shown["Run, profiler on (p50)"][1] == "+25.0 % by the profiler"
    assert shown["In the nodes (mean)"][1].endswith("of a run")
    assert shown["Between the nodes (mean)"][1].endswith("of a run")
    shares = [
        float(shown[name][1].split("%")[0]) for name in ("In the nodes (mean)", "Between the nodes (mean)")
    ]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert "Of each call, up to 5 to 8 µs are the instrument's own noise" in texts(at)


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
    assert f"{len(found)} of {everything} rows" in texts(at)
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
    assert list(at.dataframe[0].value["Ran on"]) == ["CPUExecutionProvider"]
    assert [one["name"] for one in figure(at)["data"]] == ["CPUExecutionProvider", "between the nodes"]


def test_the_timeline_has_a_lane_for_the_body_of_an_if(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put()
    at = view(open_page("profile", model=mlp), "Timeline")
    assert figure(at)["layout"]["yaxis"]["ticktext"][:2] == ["thread 1", "thread 1 · in a body"]
    assert "the one with the median duration" in texts(at)


def test_a_truncated_profile_says_so(open_page: Open, mlp: ModelRecord, put: Callable[..., Any]) -> None:
    put(profile_changes={"truncated": True, "dropped_events": 12_022})
    at = open_page("profile", model=mlp)
    assert "cut off: 12,022 events are missing" in texts(at)


def test_one_stall_of_the_machine_does_not_decide_what_is_shown_first(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    nodes = put().result["profile"]["nodes"]
    stalled = {**nodes[-1], "self_s": 0.5, "share": 0.99}
    put(profile_changes={"run_s": [0.001, 0.001, 0.001, 0.05], "nodes": [*nodes[:-1], stalled]})
    at = open_page("profile", model=mlp)
    assert "the mean run took 13.3 times the median one" in texts(at)
    assert "In the nodes (median)" in metrics(at)
    assert at.dataframe[0].value["Operator"][0] != stalled["op_type"]
    at.get_by_key(f"profile.basis.{at.session_state['profile.shown']}").set_value("Mean").run()
    assert not at.exception
    assert "In the nodes (mean)" in metrics(at)
    assert at.dataframe[0].value["Operator"][0] == stalled["op_type"]


def test_nodes_that_onnx_runtime_inserted_are_called_out(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put(recording="fp16_cpu")
    at = open_page("profile", model=mlp)
    assert "that the model does not have" in texts(at)
    assert "Cast" in texts(at)
    assert "compute in **FP32** behind these Casts" in texts(at)


def test_a_profile_that_fell_back_says_so_and_is_never_called_cuda(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put(
        fallback=True,
        requested_providers=invented.ASKED_CUDA,
        effective_providers=invented.CPU,
        fallback_reason="The CUDA library is missing.",
    )
    at = open_page("profile", model=mlp)
    assert (
        "Fallback. Asked for: CUDAExecutionProvider, CPUExecutionProvider; ran: CPUExecutionProvider."
        in texts(at)
    )
    assert "The CUDA library is missing." in texts(at)
    names = [one["name"] for one in figure(at)["data"]]
    assert all("CPUExecutionProvider — fallback, CUDA was asked" in name for name in names)


def test_times_of_cuda_nodes_are_called_host_launch_time(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    trial = put()
    nodes = [{**node, "provider": "CUDAExecutionProvider"} for node in trial.result["profile"]["nodes"]]
    put(profile_changes={"nodes": nodes}, effective_providers=invented.ASKED_CUDA)
    at = open_page("profile", model=mlp)
    choice(at, "profile.shown").select_index(0).run()
    assert "host launch time" in texts(at)


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


def test_what_the_browser_sent_before_it_knew_the_new_profile_does_not_choose_the_old_one(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(recording="loop")
    put(recording="chain")
    made = []

    def submit(_spec: Any, **_how: Any) -> str:
        made.append(put())
        return str(made[0].id)

    invented.queue(monkeypatch, "profile", submit)
    at = open_page("profile", model=mlp)
    late = choice(at, "profile.shown")._widget_state
    at.button(key="profile.run").click().run()
    run_late(at, late)
    assert choice(at, "profile.shown").value == made[0].id
    assert at.query_params["trial"] == made[0].id


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
    spec = invented.spec_for(mlp, batch_size=16, intra_op_num_threads=1)
    trial = invented.put_measured(state.store(), mlp, spec, fingerprint="x", rows=16)
    at = open_page("profile", model=mlp, trial=trial.id)
    assert at.get_by_key("profile.source").value == "A measured trial"
    assert at.selectbox(key="profile.measured").value == trial.id


def test_a_failed_profile_shows_its_error(open_page: Open, mlp: ModelRecord) -> None:
    invented.put_failed(
        state.store(), mlp, invented.spec_for(mlp), message="Killed by SIGSEGV.", kind="profile"
    )
    at = open_page("profile", model=mlp)
    assert "Killed by SIGSEGV" in at.error[0].value
    assert not at.button(key="profile.run").disabled


def test_a_running_profile_shows_progress_and_can_be_cancelled(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = invented.put_failed(
        state.store(),
        mlp,
        invented.spec_for(mlp),
        message="",
        kind="profile",
        state="WAITING",
        model_sha256="",
    )
    cancelled: list[str] = []
    monkeypatch.setattr(state.scheduler(), "cancel", cancelled.append)
    at = open_page("profile", model=mlp)
    assert len(at.get("progress")) == 1
    assert at.button(key="profile.run").disabled
    at.button(key="profile.cancel").click().run()
    assert cancelled == [running.id]


def test_the_settings_of_a_profile_go_back_to_tune_but_not_its_number_of_runs(
    open_page: Open, mlp: ModelRecord
) -> None:
    spec = invented.spec_for(mlp, batch_size=4, runs=20)
    invented.put_profile(state.store(), mlp, spec)
    at = open_page("profile", model=mlp)
    at.button(key="profile.use").click().run()
    assert not at.exception
    assert at.title[0].value == "Tune"
    assert at.session_state["knob.batch_size"] == 4
    assert at.session_state["knob.runs"] is None  # until the verdict stands


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
    assert float(shown["Run, profiler off (p50)"][0].split()[0]) > 0
    trace = state.store().artifact_path(at.session_state["profile.shown"], "trace.json")
    assert any(event["name"] == "model_run" for event in json.loads(trace.read_text()))


# --- the roofline, another profile over it, and what was made elsewhere -----------------------------------


PEAK_TIMES = {
    "threads": 2,
    "operations": 2_000_000_000,
    "product_ns": [20_000_000] * 40,
    "moved_bytes": 500_000_000,
    "copy_ns": [50_000_000] * 40,
}


def test_one_sentence_stands_on_top(open_page: Open, mlp: ModelRecord, put: Callable[..., Any]) -> None:
    put(recording="fp16_cpu")
    at = open_page("profile", model=mlp)
    assert "Conv takes" in texts(at)
    assert "of the time in nodes; the largest" in texts(at)


def test_the_roofline_offers_to_measure_the_peaks(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    invented.queue(monkeypatch, "peaks", lambda threads: str(asked.append(threads)))
    fingerprint = state.environment()["fingerprint"]
    put(recording="fp16_cpu", fingerprint=fingerprint)
    at = view(open_page("profile", model=mlp), "Roofline")
    assert "are not measured yet, so no roof is drawn" in texts(at)
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
    assert "The roof: 100 billion operations per second, 9.31 GiB/s copied, with 2 threads" in texts(at)
    names = [one["name"] for one in figure(at)["data"]]
    assert "peak of this machine, 2 threads" in names
    put(recording="fp16_cpu", fingerprint="another")
    at = view(open_page("profile", model=mlp), "Roofline")
    assert "another machine, or with other libraries" in texts(at)
    assert "peak of this machine, 2 threads" not in [one["name"] for one in figure(at)["data"]]


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
    assert "executions found" in texts(at)
    assert "not found" in [one["name"] for one in figure(at)["data"]]
    whole = figure(at)["layout"]["xaxis"]["range"]
    at.get_by_key("profile.zoom.timeline").set_value(True).run()
    assert figure(at)["layout"]["xaxis"]["range"] != whole
    at.text_input(key="profile.search.timeline").set_value("no such node").run()
    assert "Nothing of that name is on the timeline" in texts(at)
    assert not at.exception


def test_two_profiles_lie_over_one_another(
    open_page: Open, mlp: ModelRecord, put: Callable[..., Any]
) -> None:
    put()
    at = view(open_page("profile", model=mlp), "Two profiles")
    assert "There is no other profile of this model" in texts(at)
    put(recording="fp16_cpu", batch_size=4)
    at = view(open_page("profile", model=mlp), "Two profiles")
    assert {"A (ms/run)", "B (ms/run)", "B minus A (ms/run)"} <= set(at.dataframe[0].value.columns)
    assert "A was fed 4 rows a run and B 1" in texts(at)
    assert "no verdict" in texts(at)
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
    assert "Imported: <b>theirs</b>.json" in texts(at)
    assert "No verdict rests on it" in texts(at)
    assert "In the nodes (mean, imported)" in metrics(at)
    at = view(at, "Roofline")
    assert "no roof is drawn over it" in texts(at)
    assert one.id in at.query_params["imported"]
    at.button(key="profile.import.remove").click().run()
    assert state.store().shelf.all() == []
    assert "No profile of this model yet" in texts(at)


def test_an_import_that_is_gone_is_said(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("profile", model=mlp, imported="0123456789abcdef")
    assert "Nothing imported has the id" in texts(at)
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
    assert "Imported: elsewhere.json" in texts(at)
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    at.session_state["profile.import.pending"] = [str(wrong)]
    at.run()
    assert "Nothing was imported" in texts(at)
    assert not at.exception
