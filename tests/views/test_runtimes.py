"""The runtime of a configuration on the pages: chosen, kept, said when it is missing, named in results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.store import ModelRecord
from core.wire.runtime import OWN, RuntimeRecord
from dashboard import fields, runtimes, state
from tests import other_runtimes
from tests.fresh_environment import onnxruntime_distribution
from tests.views.page import Open, click, keys, lines, texts, unfolded, widget

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
    own, another = (one for one in lines(at, "**ORT default"))
    assert "runtime own" in own
    assert f"runtime {NAME}" in another
    assert "sha256" not in texts(at).lower()
    shutil.rmtree(Path(other["python"]).parents[2])
    runtimes._records.clear()
    runtimes.pinned.clear()
    at.run()
    assert not at.exception
    assert lines(at, "cannot load", f"`{NAME}`")
    assert at.button(key="compare.run").disabled
