"""The runtime of a configuration on the pages: chosen, kept, said when it is missing, named in results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from core.run import runtime_check
from core.spec.axes import RUNTIME
from core.store import ModelRecord
from core.wire.runtime import OWN, RuntimeRecord, runtime
from dashboard import fields, runtimes, state
from dashboard.views.search import form
from dashboard.views.sweep import varied
from tests import other_runtimes
from tests.fresh_environment import onnxruntime_distribution
from tests.views import sample_results
from tests.views.page import Open, click, keys, lines, table, texts, unfolded, widget

NAME = "same"


@pytest.fixture
def other(home: Path) -> RuntimeRecord:
    """A runtime beside ORTune's own, with the same ONNX Runtime."""
    return other_runtimes.add(home, NAME)


def test_the_settings_stay_as_they_are_without_another_runtime(open_page: Open, mlp: ModelRecord) -> None:
    at = unfolded(open_page("tune", model=mlp))
    assert fields.RUNTIME not in keys(at)


def test_a_runtime_is_chosen_with_its_version_and_runs(
    open_page: Open, mlp: ModelRecord, other: RuntimeRecord
) -> None:
    at = open_page("tune", model=mlp)
    field = widget(at, "runtime")
    version = state.environment()["libraries"][onnxruntime_distribution()]
    assert [one.split(" · ")[0] for one in field.options] == [OWN, NAME]
    assert all(version in one for one in field.options)
    field.set_value(NAME).run()
    assert not at.exception
    assert at.session_state[fields.RUNTIME] == NAME
    widget(at, "runs").set_value(50).run()
    click(at, "run")
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    shown = state.store().trial(at.session_state["tune.shown"])
    assert shown.spec["runtime"] == f"{NAME}@sha256:{other['sha256']}"
    assert "Settings differ from this result" not in texts(at)
    assert lines(at, NAME)


def test_a_comparison_gets_the_settings_once_for_each_chosen_runtime(
    open_page: Open, mlp: ModelRecord, other: RuntimeRecord
) -> None:
    at = open_page("compare", model=mlp)
    at.multiselect(key="compare.runtimes").set_value([OWN, NAME]).run()
    click(at, "compare.add.runtimes")
    assert not at.exception
    assert [one["spec"].get("runtime") for one in at.session_state["compare.entries"]] == [
        None,
        f"{NAME}@sha256:{other['sha256']}",
    ]
    assert lines(at, f"**ORT default ({OWN})**")
    assert lines(at, f"**ORT default ({NAME})**")
    assert "sha256" not in texts(at).lower()
    shutil.rmtree(Path(other["python"]).parents[2])
    runtimes._records.clear()
    runtimes.pinned.clear()
    at.run()
    assert not at.exception
    assert lines(at, "cannot load", f"`{NAME}`", f"ortune runtimes add {NAME}")
    assert at.button(key="compare.run").disabled


def test_what_a_runtime_lacks_is_said_beside_it_before_the_run(
    open_page: Open, mlp: ModelRecord, other: RuntimeRecord, home: Path
) -> None:
    at = open_page("tune", model=mlp)
    widget(at, "runtime").set_value(NAME).run()
    assert not at.button(key="run").disabled
    kept = home / "runtimes" / NAME / runtime_check.FILE_NAME
    known = json.loads(kept.read_text())
    known["found"] |= {"ir_version": 3}
    kept.write_text(json.dumps(known))
    at.run()
    assert not at.exception
    assert lines(at, f"`{NAME}`", "IR version", 3)
    assert at.button(key="run").disabled
    assert "IR version" in at.button(key="run").help
    widget(at, "runtime").set_value(OWN).run()
    assert not at.button(key="run").disabled


def test_a_loaded_result_of_a_changed_or_removed_runtime_says_so(
    open_page: Open, mlp: ModelRecord, other: RuntimeRecord, home: Path
) -> None:
    pinned = f"{NAME}@sha256:{other['sha256']}"
    spec = sample_results.spec_for(mlp).model_copy(update={"runtime": pinned})
    trial = sample_results.put_measured(state.store(), mlp, spec, fingerprint="here", rows=1)
    at = open_page("tune", trial=trial.id)
    assert at.session_state[fields.RUNTIME] == NAME
    other_runtimes.change(home, NAME)
    runtimes.pinned.clear()
    at = open_page("tune", trial=trial.id)
    assert f"{NAME} · changed since {other['sha256'][:8]}" in widget(at, "runtime").options
    assert lines(at, f"`{NAME}`", other["sha256"][:12])
    assert at.button(key="run").disabled
    widget(at, "runtime").set_value(NAME).run()
    assert not at.button(key="run").disabled
    shutil.rmtree(home / "runtimes" / NAME)
    runtimes._records.clear()
    runtimes.pinned.clear()
    at = open_page("tune", trial=trial.id)
    assert f"{NAME} · not on this machine" in widget(at, "runtime").options
    assert at.button(key="run").disabled


def test_an_old_label_still_names_its_runtime(other: RuntimeRecord) -> None:
    other_name = "older"
    for text in (OWN, NAME, f"{NAME}@sha256:{'0' * 64}", other_name):
        label = runtimes.label(text, {"onnxruntime": "1.30.0"})
        assert label != text
        assert runtimes.chosen(label) == text.partition("@")[0]


def test_a_search_varies_the_runtimes_that_are_chosen_and_no_others(
    open_page: Open, mlp: ModelRecord, other: RuntimeRecord
) -> None:
    at = open_page("search", model=mlp)
    assert RUNTIME not in at.session_state[form.VARY]
    at.session_state["search.changes"] = True
    at.run()
    at.multiselect(key=form.RUNTIMES).set_value([NAME]).run()
    assert not at.exception
    assert RUNTIME in at.session_state[form.VARY]
    assert f"runtime {NAME}" in at.multiselect(key=form.EXCLUDED).options


def test_a_sweep_varies_the_runtime(open_page: Open, mlp: ModelRecord, other: RuntimeRecord) -> None:
    at = open_page("sweep", model=mlp)
    at.selectbox(key=varied.AXIS).set_value(RUNTIME).run()
    assert not at.exception
    assert [runtimes.chosen(one) for one in at.multiselect(key=f"{varied.VALUES}.{RUNTIME}").options] == [
        OWN,
        NAME,
    ]
    assert not at.button(key="sweep.run").disabled
    at.session_state[fields.key("runs")] = 50
    click(at, "sweep.run")
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    assert {runtime(one.spec.get("runtime", OWN)).name for one in state.store().trials(state="COMPLETE")} == {
        OWN,
        NAME,
    }
    assert {runtimes.chosen(one) for one in table(at, "State")["Runtime"]} == {OWN, NAME}


def test_the_history_finds_results_by_their_runtime(
    open_page: Open, mlp: ModelRecord, other: RuntimeRecord
) -> None:
    for name in (OWN, f"{NAME}@sha256:{other['sha256']}"):
        spec = sample_results.spec_for(mlp).model_copy(update={RUNTIME: name})
        sample_results.put_measured(state.store(), mlp, spec, fingerprint="here", rows=1)
    at = open_page("history")
    assert len(table(at, "Changed")) == 2
    at.text_input(key="history.search").set_value(NAME).run()
    (row,) = table(at, "Changed")["Changed"].tolist()
    assert row == f"runtime {NAME}"


def test_a_removed_runtime_of_a_search_form_is_left_out(
    open_page: Open, mlp: ModelRecord, other: RuntimeRecord
) -> None:
    at = open_page("search", model=mlp)
    at.session_state[form.RUNTIMES] = ["gone"]
    at.run()
    assert not at.exception
    assert RUNTIME not in at.session_state[form.VARY]
