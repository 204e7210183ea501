"""The History page: finding a trial, showing it, loading its settings, deleting it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core.evidence.measurement import Trial
from core.evidence.quality import BUSY, CONTROL_FAILED
from core.show.sheets import history
from core.show.table import Column, tabulate
from core.store import Change, ModelRecord
from core.store.library import remove_model
from core.wire.output_check import OUTPUTS_DIFFER, WARNING
from dashboard import fields, state
from dashboard.shown_result import TUNE
from dashboard.widgets import tables
from tests import builders, tiny_models
from tests.reading import numbers, tells
from tests.simulated_load import sample_load_result
from tests.small_disks import small_disk
from tests.views import sample_results
from tests.views.conftest import TIMEOUT_S
from tests.views.page import Add, Open, cards, icons, keys, lines, texts

TABLE = "history.table."


def put(record: ModelRecord, created_at: float = 1_000_000.0, **changes: Any) -> Trial:
    return sample_results.put_run(state.store(), record, fingerprint="f", created_at=created_at, **changes)


def table(at: AppTest) -> Any:
    return next(one.value for one in at.dataframe if "Trial" in one.value)


def select(at: AppTest, *rows: int) -> AppTest:
    key = next(found[0] for one in at.dataframe if (found := re.search(f"{TABLE}.*", one.proto.id)))
    at.session_state[key] = {"selection": {"rows": list(rows), "columns": [], "cells": []}}
    return at.run()


def test_results_that_a_full_disk_keeps_out_of_the_store_are_named(
    mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def draw() -> None:
        from dashboard import messages, state

        messages.warn_not_stored(state.not_stored())

    trial = put(mlp)
    state.store().hold(trial, "The disk is full.", tmp_path / "rescued-1.json")
    state.store().hold(put(mlp, created_at=2_000_000.0), "The disk is full.")
    with monkeypatch.context() as full:
        full.setattr(state.store(), "write_held", lambda: None)
        [told] = AppTest.from_function(draw, default_timeout=TIMEOUT_S).run().warning
    assert f"kept as `{tmp_path / 'rescued-1.json'}`" in told.value
    assert "What has no file is lost" in told.value
    assert "free disk space" in told.value
    later = AppTest.from_function(draw, default_timeout=TIMEOUT_S)
    assert not later.run().warning  # there is space again
    assert state.store().trial(trial.id) == trial


def test_without_trials_the_page_says_what_to_do(open_page: Open) -> None:
    at = open_page("history")
    assert "history" in icons(at)
    assert at.page_link[0].proto.page == ""  # Tune, the page without a path


def test_all_trials_are_listed_newest_first_with_what_ran(open_page: Open, mlp: ModelRecord) -> None:
    old = put(mlp, 1_000_000.0, batch_size=4)
    new = put(mlp, 2_000_000.0, fallback=True)
    bad = sample_results.put_failed(
        state.store(), mlp, sample_results.spec_for(mlp), message="It crashed.", created_at=3_000_000.0
    )
    rows = table(open_page("history"))
    assert rows["Trial"].tolist() == [bad.id[:12], new.id[:12], old.id[:12]]
    assert rows["State"].tolist() == ["failed", "complete", "complete"]
    assert [one[:3] for one in rows["Ran on"]] == ["", "CPU", "CPU"]
    assert rows["Ran on"][1] != rows["Ran on"][2]  # it fell back
    assert rows["Error"].tolist() == [(bad.error or {})["message"], "", ""]
    assert rows["Batch"].tolist()[2] == 4
    assert rows["Changed"].tolist() == ["defaults", "defaults", "batch 4"]
    assert rows["p50 (ms)"][2] == pytest.approx(old.result["latency"]["p50_s"] * 1e3)  # type: ignore[index]


def test_a_load_test_is_listed_and_shown_with_its_answer(open_page: Open, mlp: ModelRecord) -> None:
    result: Any = {"load": sample_load_result("limit"), "notes": []}
    spec = sample_results.spec_for(mlp)
    state.store().create_trial(builders.trial("a" * 16, spec, kind="load", result=result))
    put(mlp)
    at = open_page("history")
    assert sorted(table(at)["Verdict"].tolist())[-1] == "up to 250/s"
    at.selectbox(key="history.kind").set_value("load").run()
    assert table(at)["Kind"].tolist() == ["load"]
    select(at, 0)
    assert lines(at, "250 requests/s confirmed, 300/s failed")
    assert [one.proto.page for one in at.page_link if "load" in one.proto.page]
    points = at.dataframe[-1].value
    assert points["Requests/s"].tolist() == [150, 200, 250, 300, 500]
    assert not at.exception


def test_damaged_trial_is_shown_as_damaged_beside_the_others(open_page: Open, mlp: ModelRecord) -> None:
    whole, broken = put(mlp, 1_000_000.0), put(mlp, 2_000_000.0)
    with closing(sqlite3.connect(state.store().path)) as db:
        db.execute('UPDATE trials SET result = \'{"latency": {"p50_s": 9}}\' WHERE id = ?', (broken.id,))
        db.commit()
    at = open_page("history")
    rows = table(at)
    assert rows["State"].tolist() == ["damaged", "complete"]
    assert rows["p50 (ms)"].isna().tolist() == [True, False]
    assert "damaged" in rows["Error"][0]
    at = select(at, 0)
    assert not at.exception
    assert any(tells(one.value, broken.id[:12]) for one in at.error)
    assert "history.delete" in keys(at)
    assert not any(one.key == "history.reopen" for one in at.button)
    assert not select(at, 1).exception
    assert whole.state == "COMPLETE"


def test_filters_narrow_the_list(open_page: Open, mlp: ModelRecord, add_model: Add) -> None:
    conv = add_model(tiny_models.conv)
    put(mlp, intra_op_num_threads=1)
    spins = sample_results.spec_for(conv, **{"session.intra_op.spin_duration_us": 100})
    sample_results.put_measured(state.store(), conv, spins, fingerprint="f", rows=1)
    failed = sample_results.put_failed(
        state.store(), mlp, sample_results.spec_for(mlp), message="Out of memory."
    )
    sample_results.put_profile(state.store(), mlp, sample_results.spec_for(mlp))
    at = open_page("history")
    assert len(table(at)) == 4
    at.selectbox(key="history.model").set_value("conv").run()
    assert table(at)["Model"].tolist() == ["conv"]
    at.selectbox(key="history.model").set_value("all")
    at.selectbox(key="history.kind").set_value("profile").run()
    assert table(at)["Kind"].tolist() == ["profile"]
    at.selectbox(key="history.kind").set_value("all")
    at.multiselect(key="history.state").set_value(["FAIL"]).run()
    assert table(at)["State"].tolist() == ["failed"]
    at.multiselect(key="history.state").set_value([])
    at.text_input(key="history.search").set_value("MLP intra_op_num_threads").run()
    assert table(at)["Changed"].tolist() == ["threads 1"]
    at.text_input(key="history.search").set_value("spin_us").run()  # as the table writes it
    assert table(at)["Changed"].tolist() == ["spin_us 100"]
    at.text_input(key="history.search").set_value("memory").run()
    assert table(at)["Error"].tolist() == [(failed.error or {})["message"]]
    at.text_input(key="history.search").set_value("nothing like it").run()
    assert ":material/filter_alt_off:" in [one.icon for one in at.info]


def test_a_selected_trial_is_shown_with_numbers_and_charts(open_page: Open, mlp: ModelRecord) -> None:
    put(mlp)
    at = select(open_page("history"), 0)
    assert cards(at).keys() >= {"p50_s", "throughput_per_s"}
    assert len(at.get("plotly_chart")) == 1  # the other tab draws its own when it is opened
    assert not at.exception


def compared(record: ModelRecord, **facts: Any) -> sample_results.Compared:
    return sample_results.put_compared(state.store(), record, fingerprint="f", **facts)


def test_the_table_has_verdict_and_grade_and_leaves_references_out(open_page: Open, mlp: ModelRecord) -> None:
    faster, rejected = compared(mlp), compared(mlp, grade="F", latency_s=0.0005)
    alone = put(mlp)
    at = open_page("history")
    shown = table(at).set_index("Trial")
    assert set(shown.index) == {one.id[:12] for one in (faster.trial, rejected.trial, alone)}
    assert shown.loc[faster.trial.id[:12], ["Verdict", "Grade"]].tolist() == ["1.42× faster", "B: ±2 %"]
    told = shown.loc[rejected.trial.id[:12], ["Verdict", "Grade"]].tolist()
    assert told == ["rejected", f"F: {CONTROL_FAILED}"]
    assert shown.loc[alone.id[:12], ["Verdict", "Grade"]].fillna("").tolist() == ["", ""]
    at.selectbox(key="history.kind").set_value("reference").run()
    assert set(table(at)["Trial"]) == {one.baseline.id[:12] for one in (faster, rejected)}


def test_a_busy_machine_is_in_the_table_and_can_be_searched_for(open_page: Open, mlp: ModelRecord) -> None:
    quiet, busy = compared(mlp), compared(mlp, busy=builders.busy_machine())
    at = open_page("history")
    shown = table(at).set_index("Trial")
    assert shown.loc[busy.trial.id[:12], "Verdict"] == "1.42× faster"
    assert shown.loc[[one.trial.id[:12] for one in (busy, quiet)], "Grade"].tolist() == [
        f"B: ±2 %, {BUSY}",
        "B: ±2 %",
    ]
    at.text_input(key="history.search").set_value("chromium").run()
    assert table(at)["Trial"].tolist() == [busy.trial.id[:12]]
    at = select(at, 0)
    assert lines(at, builders.BUSY)


def test_a_trial_whose_samples_were_pruned_keeps_its_numbers(open_page: Open, mlp: ModelRecord) -> None:
    put(mlp)
    before = cards(select(open_page("history"), 0))
    state.store().prune(before=time.time())
    at = select(open_page("history"), 0)
    assert cards(at) == before
    assert "content_cut" in icons(at)
    assert not at.get("plotly_chart")


def test_a_selected_tune_run_shows_its_verdict(open_page: Open, mlp: ModelRecord) -> None:
    compared(mlp)
    at = select(open_page("history"), 0)
    assert "1.42× faster" in at.header[0].value
    assert len(at.get("plotly_chart")) == 2
    assert not at.exception


def test_a_link_opens_a_reference_that_the_list_leaves_out(open_page: Open, mlp: ModelRecord) -> None:
    reference = compared(mlp).baseline
    at = open_page("history", trial=reference.id)
    assert at.header[0].value.startswith(":material/flag:")


def test_a_selected_failure_shows_its_error_and_hint(open_page: Open, mlp: ModelRecord) -> None:
    failed = sample_results.put_failed(
        state.store(), mlp, sample_results.spec_for(mlp), message="It was killed."
    )
    at = select(open_page("history"), 0)
    assert tells(at.error[0].value, *(failed.error[name] for name in ("message", "hint")))


def test_a_link_opens_its_trial(open_page: Open, mlp: ModelRecord) -> None:
    put(mlp, 2_000_000.0)
    linked = put(mlp, 1_000_000.0, latency_s=0.5)
    at = open_page("history", trial=linked.id)
    assert cards(at)["p50_s"].startswith("53")


def test_reopening_loads_settings_and_model_into_tune(
    open_page: Open, mlp: ModelRecord, add_model: Add
) -> None:
    conv = add_model(tiny_models.conv)
    trial = put(mlp, intra_op_num_threads=3, batch_size=4)
    at = open_page("history", model=conv)
    at.session_state["option.CUDAExecutionProvider.use_tf32"] = fields.OFF
    select(at, 0)
    at.button(key="history.reopen").click().run()
    assert at.title[0].value == "Tune"
    assert at.number_input(key="knob.intra_op_num_threads").value == 3
    assert at.number_input(key="knob.batch_size").value == 4
    assert at.session_state[state.MODEL] == mlp.content_sha256
    assert at.session_state[TUNE.key] == trial.id
    assert "option.CUDAExecutionProvider.use_tf32" not in at.session_state


def test_reopening_a_trial_whose_model_is_gone_says_so_and_changes_nothing(
    open_page: Open, mlp: ModelRecord, add_model: Add
) -> None:
    conv = add_model(tiny_models.conv)
    put(conv, intra_op_num_threads=3)
    remove_model(state.store(), conv.content_sha256)
    at = select(open_page("history", model=mlp), 0)
    at.button(key="history.reopen").click().run()
    assert at.title[0].value == "History"
    assert len(at.error) == 1
    assert at.session_state[state.MODEL] == mlp.content_sha256
    assert "knob.intra_op_num_threads" not in at.session_state


def test_a_trial_can_be_pinned_as_baseline(open_page: Open, mlp: ModelRecord) -> None:
    trial = put(mlp)
    at = select(open_page("history"), 0)
    at.button(key="history.pin").click().run()
    assert state.store().baseline(mlp.content_sha256) == trial.id


def test_deleting_asks_first_and_takes_all_selected(open_page: Open, mlp: ModelRecord) -> None:
    kept = put(mlp, 3_000_000.0)
    put(mlp, 2_000_000.0)
    put(mlp, 1_000_000.0)
    at = select(open_page("history"), 1, 2)
    assert numbers(at.button(key="history.delete").label) == [2]
    at.button(key="history.delete").click().run()
    assert any(re.search(r"^2 .* \d+ B ", line) for line in texts(at).splitlines())
    assert len(state.store().trials()) == 3
    assert at.button(key="history.confirm")
    assert kept.id in {one.id for one in state.store().trials()}


def test_a_tick_does_not_move_to_another_trial_when_one_comes(open_page: Open, mlp: ModelRecord) -> None:
    first = put(mlp, 1_000_000.0)
    at = select(open_page("history"), 0)
    assert first.id[:12] in texts(at)
    put(mlp, 2_000_000.0)
    at.run()
    assert not at.exception
    assert not [one for one in at.button if one.key == "history.delete"]


def test_deleting_the_pinned_baseline_says_so(open_page: Open, mlp: ModelRecord) -> None:
    pinned, other = put(mlp, 2_000_000.0), put(mlp, 1_000_000.0)
    state.store().pin_baseline(mlp.content_sha256, pinned.id)
    at = select(open_page("history"), 0)
    at.button(key="history.delete").click().run()
    assert [tells(one.value, pinned.id[:12], "mlp") for one in at.warning] == [True]
    at = select(open_page("history"), 1)
    at.button(key="history.delete").click().run()
    assert other.id
    assert not at.warning


def test_time_model_and_settings_come_first_in_low_rows_and_stay_in_sight(
    open_page: Open, mlp: ModelRecord
) -> None:
    put(mlp, intra_op_num_threads=1)
    at = open_page("history")
    assert list(table(at).columns)[:3] == ["When", "Model", "Changed"]
    drawn = next(one for one in at.dataframe if "Trial" in one.value).proto
    assert drawn.row_height == 35
    shown = json.loads(drawn.columns)
    assert [shown[name]["pinned"] for name in ("When", "Model", "Changed")] == [True] * 3
    assert shown["Changed"]["width"] >= 7 * len(table(at)["Changed"][0])


def test_what_is_not_read_first_is_hidden_until_the_menu_of_columns_shows_it(
    open_page: Open, mlp: ModelRecord
) -> None:
    put(mlp, batch_size=4)
    drawn = next(one for one in open_page("history").dataframe if "Trial" in one.value)
    hidden = {name for name, one in json.loads(drawn.proto.columns).items() if one["hidden"]}
    assert hidden >= {"p95 (ms)", "Batch"}
    assert not hidden & {"When", "Model", "Changed", "Verdict", "p50 (ms)"}
    assert {"p95 (ms)", "Batch"} <= set(drawn.value)


def test_trials_of_a_study_stand_together_where_its_newest_is(open_page: Open, mlp: ModelRecord) -> None:
    for created_at, study in ((1.0, "search a"), (2.0, ""), (3.0, "search a"), (4.0, "sweep b"), (5.0, "")):
        trial = put(mlp, created_at)
        state.store().update_trial(trial.id, study=study)
    at = open_page("history")
    assert table(at)["Study"].tolist() == ["", "sweep b", "search a", "search a", ""]
    indented = [one.startswith(history.BELOW) for one in table(at)["Changed"]]
    assert indented == [False, False, False, True, False]
    at.selectbox(key="history.order").set_value("newest").run()
    assert table(at)["Study"].tolist() == ["", "sweep b", "search a", "", "search a"]
    assert not any(one.startswith(history.BELOW) for one in table(at)["Changed"])


@pytest.mark.parametrize(("characters", "wraps"), [(36, False), (90, True)])
def test_what_tells_rows_apart_wraps_instead_of_being_cut(characters: int, wraps: bool) -> None:
    table = tabulate(["x" * characters], (Column("settings", tells=True), str))
    assert (tables.row_height(table) or 0) >= (tables.WRAPPED_PX if wraps else 0)
    assert wraps or tables.row_height(table) is None


def test_deleting_forgets_the_trial_that_tune_shows(open_page: Open, mlp: ModelRecord) -> None:
    gone = put(mlp, 1_000_000.0)
    kept = put(mlp, 2_000_000.0)

    def script(trial_id: str) -> None:
        import runpy
        from pathlib import Path

        import streamlit as st

        import dashboard

        views = Path(dashboard.__file__).parent / "views"
        history = runpy.run_path(str(views / "history" / "page.py"))
        st.session_state["tune.shown"] = trial_id
        history["delete"]([trial_id])

    at = AppTest.from_function(script, args=(gone.id,), default_timeout=60).run()
    assert not at.exception
    assert [one.id for one in state.store().trials()] == [kept.id]
    assert at.session_state[TUNE.key] is None


def test_wrong_results_are_marked_in_the_table_on_the_trial_and_found(
    open_page: Open, mlp: ModelRecord
) -> None:
    for made_at, error in ((1_000_000.0, {}), (2_000_000.0, {"max_rel": 0.5})):
        trial = put(mlp, made_at)
        assert trial.result is not None
        state.store().update_trial(trial.id, result=trial.result | builders.guarded(**error))
    put(mlp, 500_000.0)  # of an earlier version
    at = open_page("history", model=mlp)
    assert table(at)["Outputs"].tolist() == [f"{WARNING} {OUTPUTS_DIFFER}", "agree", ""]
    select(at, 0)
    assert lines(at, ":orange-badge[:material/warning:", OUTPUTS_DIFFER)
    assert lines(at, "0.5", "0.001")
    at.text_input(key="history.search").set_value("outputs differ").run()
    assert len(table(at)) == 1


def test_results_that_could_not_be_stored_are_named(open_page: Open, mlp: ModelRecord) -> None:
    trial = put(mlp)
    assert not open_page("history").warning
    kept = state.store().rescue(trial)
    assert str(kept) in texts(open_page("history")).replace("\\", "")


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
def test_history_is_shown_from_a_full_disk(
    open_page: Open, mlp: ModelRecord, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = put(mlp)
    state.scheduler().close()
    with small_disk() as small:
        shutil.copyfile(home / "ortune.db", small / "ortune.db")
        with (small / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        monkeypatch.setenv("ORTUNE_HOME", str(small))
        st.cache_resource.clear()
        at = open_page("history")
        assert not at.exception
        assert table(at)["Trial"].tolist() == [trial.id[:12]]
        state.scheduler().close()
        st.cache_resource.clear()


# --- tags, links, brushes -----------------------------------------------------------------------------------


def links(at: AppTest) -> dict[str, str]:
    return {one.proto.label: one.proto.query_string for one in at.get("page_link")}


def test_ticked_trials_are_starred_and_archived_and_found_so(open_page: Open, mlp: ModelRecord) -> None:
    old, new = put(mlp, 1_000_000.0), put(mlp, 2_000_000.0)
    at = select(open_page("history"), 0, 1)
    at.button(key="history.star").click().run()
    assert all(one.starred for one in state.store().marks([old.id, new.id]).values())
    assert table(at)["★"].tolist() == ["★", "★"]
    assert select(at, 0, 1).button(key="history.star").label == "Unstar"
    at = select(at, 1)
    at.button(key="history.archive").click().run()
    assert table(at)["Trial"].tolist() == [new.id[:12]]
    at.toggle(key="history.archived").set_value(True).run()
    assert table(at)["★"].tolist() == ["★", "★ archived"]
    at.toggle(key="history.starred").set_value(True).run()
    assert len(table(at)) == 2


def test_labels_and_notes_are_shown_and_filtered(open_page: Open, mlp: ModelRecord) -> None:
    one, other = put(mlp, 1_000_000.0), put(mlp, 2_000_000.0)
    note = "for the demo"
    state.store().mark([one.id], Change(add=("ship", "edge"), note=note))
    at = open_page("history")
    assert [one.split(", ") for one in table(at)["Labels"]] == [[""], ["edge", "ship"]]
    assert table(at)["Note"].tolist() == ["", note]
    at.multiselect(key="history.labels").set_value(["ship"]).run()
    assert table(at)["Trial"].tolist() == [one.id[:12]]
    at.multiselect(key="history.labels").set_value([])
    at.text_input(key="history.search").set_value("DEMO").run()
    assert table(at)["Trial"].tolist() == [one.id[:12]]
    at.text_input(key="history.search").set_value("").run()
    at = select(at, 1)
    at.button(key="history.edit").click().run()
    assert at.multiselect(key="history.edit.labels").value == ["edge", "ship"]
    assert at.text_area(key="history.edit.note").value == note
    assert other.id not in state.store().marks([other.id])


def test_ticked_trials_lead_to_the_pages_that_put_them_against_each_other(
    open_page: Open, mlp: ModelRecord
) -> None:
    study = "curve batch_size=1,2 #abcd"
    old = put(mlp, 1_000_000.0, study=study)
    new = put(mlp, 2_000_000.0, study=study, batch_size=2)
    at = select(open_page("history"), 0, 1)
    found = links(at)
    assert found["Compare"] == f"trials={new.id}%2C{old.id}"
    assert found["Explain"] == f"a={old.id}&b={new.id}"
    assert found["Sweep"].startswith("study=curve")
    assert "Compare" not in links(select(at, 0))


def test_a_running_trial_is_not_deleted(open_page: Open, mlp: ModelRecord) -> None:
    put(mlp, 1_000_000.0)
    running = put(mlp, 2_000_000.0, state="RUNNING")
    at = select(open_page("history"), 0, 1)
    at.button(key="history.delete").click().run()
    assert [(one.icon, numbers(one.value)[0]) for one in at.error] == [(":material/block:", 1)]
    assert not [one for one in at.button if one.key == "history.confirm"]
    assert state.store().trial(running.id)


def test_a_brush_in_the_scatter_picks_the_rows(open_page: Open, mlp: ModelRecord) -> None:
    trials = [put(mlp, 1_000_000.0 + number, intra_op_num_threads=1 + number % 2) for number in range(4)]
    at = open_page("history")
    at.session_state["history.drawn"] = True
    at.run()
    assert not at.exception
    (chart,) = at.get("plotly_chart")
    drawn = json.loads(chart.proto.spec)
    assert tells(drawn["layout"]["title"]["text"], "p50")
    assert sorted(drawn["data"][0]["customdata"]) == sorted(one.id for one in trials)
    brushed = [{"customdata": trials[1].id}, {"customdata": [trials[3].id]}]
    at.session_state["history.scatter.0"] = {"selection": {"points": brushed, "box": [], "lasso": []}}
    at.run()
    assert table(at)["Trial"].tolist() == [trials[3].id[:12], trials[1].id[:12]]
    assert any(numbers(one.value)[:1] == [2] for one in at.caption)
    assert numbers(at.button(key="history.delete").label) == [2]  # they are ticked
    at.button(key="history.let_go").click().run()
    assert len(table(at)) == 4


def test_parallel_lines_of_all_trials(open_page: Open, mlp: ModelRecord, add_model: Add) -> None:
    for number in range(3):
        put(mlp, 1_000_000.0 + number, intra_op_num_threads=1 + number % 2)
    put(add_model(tiny_models.conv))
    at = open_page("history")
    at.session_state["history.drawn"] = True
    at.run()
    assert ":material/filter_alt:" in [one.icon for one in at.info]
    at.selectbox(key="history.model").set_value("mlp").run()
    at.segmented_control(key="history.view").set_value("history.parallel").run()
    assert not at.exception
    (chart,) = at.get("plotly_chart")
    assert "intra_op_num_" in chart.proto.spec
    assert any(numbers(one.value)[:1] == [3] for one in at.caption)


def test_many_trials_have_pages_in_an_order_over_all_of_them(open_page: Open, mlp: ModelRecord) -> None:
    for number in range(103):
        put(mlp, 1_000_000.0 + number, latency_s=0.001 * (1 + number), runs=13)
    at = open_page("history")
    assert len(table(at)) == 100
    assert lines(at, "103 ")
    at.selectbox(key="history.order").set_value("p50").run()
    assert table(at)["p50 (ms)"][0] == pytest.approx(1, rel=0.1)  # the runs scatter
    at.session_state["history.page"] = 2
    at.run()
    assert table(at)["p50 (ms)"].tolist() == pytest.approx([101, 102, 103], rel=0.1)
