"""The Graph page on tiny models: what it shows, what it says where something lacks, what a choice does."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from onnx import helper
from streamlit.testing.v1 import AppTest

from core import wire
from core.evidence.graph_facts import times
from core.process.job_worker import run_job
from core.run.graph import draw_optimized, own_graph
from core.run.graph_layout import layout
from core.show.sheets.graphs import unmatched_words
from core.store import ModelRecord
from core.wire.errors import WorkerError, record_from_error
from core.wire.profile import profile_from_dict
from dashboard import session_jobs, state
from dashboard.charts.graph_charts import KINDS
from tests import tiny_models
from tests.reading import numbers, tells
from tests.tiny_models import save, value
from tests.views import sample_results
from tests.views.page import Add, Jobs, Open, buttons, click, figure, lines, table, texts
from tests.views.page import status as running

_done: dict[str, tuple[Any, bytes]] = {}


def run_once(job: str, payload: dict[str, Any], **how: Any) -> Any:
    """Called like `run_job`: what a worker reads of one model, and one layout, are worked out once."""
    if job not in (wire.GRAPH, wire.LAYOUT):
        return run_job(job, payload, **how)
    asked = {name: value for name, value in payload.items() if name not in ("model_path", "output")}
    content = Path(payload["model_path"]).read_bytes() if "model_path" in payload else b""
    key = f"{job} {json.dumps(asked, sort_keys=True)} {hashlib.sha256(content).hexdigest()}"
    output = Path(payload["output"]) if "output" in payload else None
    if key not in _done:
        reply = run_job(job, payload, **how)
        _done[key] = reply, output.read_bytes() if output else b""
    elif output:
        output.write_bytes(_done[key][1])
    return copy.deepcopy(_done[key][0])


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (own_graph, layout):
        monkeypatch.setattr(function, "__defaults__", (run_once,))


def open_graph(open_page: Open, record: ModelRecord, **query: str) -> AppTest:
    at = open_page("graph", model=record, **query)
    assert not at.exception
    return at


def choose(at: AppTest, key: str, what: str) -> AppTest:
    at.get_by_key(key).set_value(what).run()
    assert not at.exception
    return at


def optimize(record: ModelRecord) -> None:
    """Inspect ONNX Runtime's graph of the model, as the job of the page does."""
    draw_optimized(state.store(), sample_results.spec_for(record), run_job, environment=state.environment)


def points(at: AppTest, index: int = 0) -> list[str]:
    """The operators and names that are written beside the nodes."""
    return [
        text for one in figure(at, index)["data"] for text in one.get("text") or () if one.get("customdata")
    ]


def legend(at: AppTest, index: int = 0) -> list[str]:
    return [one["name"] for one in figure(at, index)["data"] if one.get("name")]


def drawn(at: AppTest) -> list[float]:
    """How many nodes the picture says that there are; where some are folded: how many blocks and how many
    single ones it draws."""
    return numbers(next(one.value for one in at.caption if one.value[:1].isdigit()))


def big(path: Path, count: int = 3_100) -> Path:
    """A chain of so many nodes in blocks of 60."""
    nodes = [
        helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], f"/stage{i // 500}/block{i // 60}/Relu_{i}")
        for i in range(count)
    ]
    return save(path, nodes, [value("t0", [4])], [value(f"t{count}", [4])])


# --- what is shown


def test_the_model_is_drawn_with_a_row_for_every_node(open_page: Open, mlp: ModelRecord) -> None:
    at = open_graph(open_page, mlp)
    count = mlp.info["nodes"]
    assert drawn(at) == [count]
    assert len(points(at)) == count
    assert len(table(at, "Operator")) == count


def test_a_model_of_one_node_is_drawn(open_page: Open, add_model: Add) -> None:
    at = open_graph(open_page, add_model(tiny_models.mul))
    [node] = points(at)
    assert tells(node, "Mul", "square")


def test_more_than_three_thousand_nodes_are_folded_and_cannot_all_be_opened(
    open_page: Open, add_model: Add
) -> None:
    at = open_graph(open_page, add_model(big))
    assert drawn(at)[0] == 3_100
    assert at.button(key="graph.open_all.model").disabled
    assert sum(len(one.get("customdata") or ()) for one in figure(at)["data"]) <= 62
    click(at, "graph.fold_all.model")
    assert drawn(at) == [3_100, 7, 0]


def test_bodies_can_be_looked_at(open_page: Open, add_model: Add) -> None:
    at = open_graph(open_page, add_model(tiny_models.loop_model))
    assert KINDS["holder"] in legend(at)
    at.selectbox(key="graph.level.Model").set_value(1).run()
    assert not at.exception
    assert any("MatMul" in one for one in points(at))


def test_search_marks_what_is_found_and_lists_it(open_page: Open, mlp: ModelRecord) -> None:
    at = open_graph(open_page, mlp)
    at.text_input(key="graph.search").set_value("relu").run()
    assert not at.exception
    assert set(table(at, "Operator")["Operator"]) == {"Relu"}
    assert any(one.startswith("found (") for one in legend(at))
    at.text_input(key="graph.search").set_value("nothing of that name").run()
    assert not at.exception
    assert not [one for one in at.dataframe if "Operator" in one.value.columns]


def test_precision_is_a_colour_without_any_profile(open_page: Open, mlp: ModelRecord) -> None:
    at = choose(open_graph(open_page, mlp), "graph.color", "Precision")
    assert any(one.startswith("float32 (") for one in legend(at))


# --- what lacks


def test_without_a_profile_time_says_how_to_get_it(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def submit(spec: Any, **how: Any) -> str:
        asked.append(spec)
        return sample_results.put_profile(state.store(), mlp, spec).id

    sample_results.queue(monkeypatch, "profile", submit)
    at = choose(open_graph(open_page, mlp), "graph.color", "Time")
    assert "graph.profile" in buttons(at, "graph.")
    click(at, "graph.profile")
    assert not at.exception
    assert asked[0].protocol.runs == 20


def test_a_profile_colours_by_time_and_adds_columns(open_page: Open, mlp: ModelRecord) -> None:
    trial = sample_results.put_profile(state.store(), mlp, sample_results.spec_for(mlp))
    at = open_graph(open_page, mlp)
    assert at.get_by_key("graph.color").value == "Time"
    assert "graph.profile" not in buttons(at, "graph.")
    recorded = profile_from_dict(trial.facts["profile"])
    found = times(own_graph(state.store(), mlp, run_once).model, recorded)
    assert lines(at, unmatched_words(found))  # the recorded profile is of another model, which is said


def test_a_colour_that_was_chosen_stays_and_without_a_profile_the_operator_is_the_first(
    open_page: Open, mlp: ModelRecord
) -> None:
    at = open_graph(open_page, mlp)
    assert at.get_by_key("graph.color").value == "Operator"
    choose(at, "graph.color", "Precision")
    sample_results.put_profile(state.store(), mlp, sample_results.spec_for(mlp))
    at.session_state["graph.source"] = state.store().trials(kind="profile")[0].id
    at.run()
    assert at.get_by_key("graph.color").value == "Precision"


def test_error_says_where_errors_come_from(open_page: Open, mlp: ModelRecord) -> None:
    at = choose(open_graph(open_page, mlp), "graph.color", "Error")
    assert lines(at, ":material/science:")


def test_what_onnx_runtime_makes_of_it_is_offered_and_then_shown(open_page: Open, mlp: ModelRecord) -> None:
    at = choose(open_graph(open_page, mlp), "graph.view", "After optimization")
    assert not at.button(key="graph.optimize").disabled
    assert len(at.get("plotly_chart")) == 0
    click(at, "graph.optimize")
    assert state.scheduler().join(60)
    at.run()
    assert not at.exception
    assert len(at.get("plotly_chart")) == 1
    assert "graph.optimize" not in buttons(at, "graph.")
    count = mlp.info["nodes"]
    assert lines(at, "ONNX Runtime runs", f" {count}", "fused")
    choose(at, "graph.view", "Side by side")
    assert len(at.get("plotly_chart")) == 2
    assert lines(at, "ONNX Runtime runs", "fused")
    choose(at, "graph.view", "Model")
    assert not lines(at, "ONNX Runtime runs")


def test_settings_that_cannot_be_built_are_said(open_page: Open, mlp: ModelRecord, jobs: Jobs) -> None:
    at = choose(open_graph(open_page, mlp), "graph.view", "After optimization")
    error = record_from_error(WorkerError("It crashed.", hint="Try again."))
    click(at, "graph.optimize")
    job = at.session_state[session_jobs.OWN]["id"]
    assert state.scheduler().join(60)
    for one in (state.store().folder / "cache" / "graphs").glob("*-*.json"):
        one.unlink()
    jobs(running(job, kind="graph", state="FAIL", error=error))
    at.run()
    assert lines(at, "It crashed.")
    assert not at.button(key="graph.optimize").disabled


def test_a_model_whose_file_is_gone_says_so(open_page: Open, mlp: ModelRecord) -> None:
    Path(mlp.path).unlink()
    at = open_graph(open_page, mlp)
    assert at.error
    assert len(at.get("plotly_chart")) == 0


def test_a_link_to_a_model_that_is_not_there_says_so(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("graph", model=mlp, **{"trial": "", "model_": ""})
    at.query_params["model"] = "f" * 64
    at.run()
    assert tells(at.info[0].value, "f" * 12)


def test_a_link_brings_its_profile(open_page: Open, mlp: ModelRecord, add_model: Add) -> None:
    other = add_model(tiny_models.conv)
    old = sample_results.put_profile(state.store(), mlp, sample_results.spec_for(mlp))
    sample_results.put_profile(state.store(), mlp, sample_results.spec_for(mlp))
    at = open_graph(open_page, other, trial=old.id)
    assert state.store().trial(old.id).model_sha256 == at.session_state[state.MODEL]
    at.session_state["graph.configuration"] = True
    assert at.run().selectbox(key="graph.source").value == old.id


# --- a choice


def test_what_is_chosen_has_its_details_and_its_row_ticked_on_top(open_page: Open, mlp: ModelRecord) -> None:
    at = open_graph(open_page, mlp)
    level = own_graph(state.store(), mlp, run_job).model.levels[0]
    last = len(level.nodes) - 1
    at.session_state["graph.chosen"] = {
        "side": "Model",
        "token": mlp.content_sha256,
        "level": 0,
        "path": [],
        "nodes": [last],
        "names": [level.nodes[last].name],
        "does": [],
        "block": None,
        "by": "click",
    }
    at.run()
    assert not at.exception
    assert level.nodes[last].name in texts(at)
    assert table(at, "Operator").iloc[0]["Node"] == level.nodes[last].name
    assert not any(one.startswith("selected") for one in legend(at))  # Plotly marks the clicked one


def test_a_block_is_opened_and_folded_again(open_page: Open, add_model: Add) -> None:
    record = add_model(big)
    at = open_graph(open_page, record)
    click(at, "graph.fold_all.model")
    block = {"nodes": list(range(500)), "names": [], "does": [], "block": ["stage0"], "by": "click"}
    at.session_state["graph.chosen"] = {
        **{"side": "Model", "token": record.content_sha256, "level": 0, "path": []},
        **block,
    }
    at.run()
    assert lines(at, "500 ", "3,100", ";")
    click(at, "graph.open")
    assert drawn(at)[1] == 15  # six other stages, and nine blocks of this one
    click(at, "graph.fold")
    assert drawn(at) == [3_100, 7, 0]


def test_a_choice_on_one_side_is_marked_on_the_other(open_page: Open, add_model: Add) -> None:
    record = add_model(tiny_models.conv)
    optimize(record)
    at = choose(open_graph(open_page, record), "graph.view", "Side by side")
    assert len(at.get("plotly_chart")) == 2
    chosen = {"side": "Model", "level": 0, "path": [], "nodes": [0], "block": None, "by": "click", "does": []}
    name = own_graph(state.store(), record, run_job).model.levels[0].nodes[0].name
    at.session_state["graph.chosen"] = {**chosen, "token": "t", "names": [name]}
    at.run()
    assert not at.exception
    assert "selected (1)" in legend(at, 1)
