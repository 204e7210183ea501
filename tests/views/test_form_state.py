"""What was typed survives a reload, a link shows it to others, and a page opens with what is stored."""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core import wire
from core.store import ModelRecord
from dashboard import fields, form_state, state
from dashboard.views.scorecard import form
from dashboard.views.scorecard import targets as scorecard_targets
from dashboard.views.search import form as search_form
from dashboard.widgets import dataset
from tests.views import sample_results
from tests.views.page import Add, Open, choice, icons, keys, opened, texts
from tests.views.test_history import select


def address(at: AppTest) -> dict[str, str]:
    return {name: at.query_params[name] for name in at.query_params}  # type: ignore[attr-defined]


def reloaded(at: AppTest, open_page: Open, page: str) -> AppTest:
    """What a reload of the browser makes: a new session at the same address."""
    return open_page(page, **address(at))


def put(record: ModelRecord, **changes: Any) -> Any:
    return sample_results.put_run(
        state.store(), record, fingerprint=state.environment()["fingerprint"], **changes
    )


def forms(home: Path) -> list[Path]:
    return sorted((home / "forms").glob("*.json"))


# --- a reload


def test_settings_before_run_survive_a_reload(open_page: Open, add_model: Add) -> None:
    at = open_page(model=add_model())
    at.get_by_key(fields.key("batch_size")).set_value(7).run()
    at.get_by_key(fields.key("graph_optimization_level")).set_value("ORT_ENABLE_BASIC").run()
    again = reloaded(at, open_page, "tune")
    assert again.get_by_key(fields.key("batch_size")).value == 7
    assert again.get_by_key(fields.key("graph_optimization_level")).value == "ORT_ENABLE_BASIC"
    assert again.session_state[state.MODEL] == at.session_state[state.MODEL]


def test_typed_targets_and_data_survive_a_reload(open_page: Open, add_model: Add) -> None:
    at = open_page("scorecard", model=add_model())
    at.button(key="scorecard.add").click().run()
    line = at.session_state[scorecard_targets.IDS][-1]
    at.text_input(key=scorecard_targets.key(line, "limit")).set_value("3 ms").run()
    again = opened(reloaded(at, open_page, "scorecard"), form.TARGETS)
    assert again.text_input(key=scorecard_targets.key(line, "limit")).value == "3 ms"
    assert "checklist" not in icons(again)


def test_custom_values_of_a_search_survive_a_reload(open_page: Open, add_model: Add) -> None:
    at = opened(open_page("search", model=add_model()), "search.own_values")
    at.text_area(key=search_form.CUSTOM).set_value("intra_op_num_threads=1,3").run()
    assert reloaded(at, open_page, "search").session_state[search_form.CUSTOM] == "intra_op_num_threads=1,3"


def test_what_is_typed_on_one_page_survives_a_reload_of_another(open_page: Open, add_model: Add) -> None:
    at = open_page(model=add_model())
    at.get_by_key(fields.key("batch_size")).set_value(5).run()
    at.switch_page("views/machine/page.py").run()
    again = reloaded(at, open_page, "machine")
    assert again.session_state[fields.key("batch_size")] == 5


def test_nothing_is_written_and_the_address_is_clean_until_something_is_asked_for(
    open_page: Open, home: Path
) -> None:
    at = open_page()
    assert [path.read_text() for path in forms(home)] == []
    assert address(at) == {}


def test_a_session_writes_one_file_and_a_second_tab_another(
    open_page: Open, add_model: Add, home: Path
) -> None:
    at = open_page(model=add_model())
    for size in (2, 3, 4):
        at.get_by_key(fields.key("batch_size")).set_value(size).run()
    assert [path.stem for path in forms(home)] == [address(at)[form_state.PARAM]]
    other = reloaded(at, open_page, "tune")
    assert len(forms(home)) == 1  # nothing was changed yet
    other.get_by_key(fields.key("batch_size")).set_value(9).run()
    assert len(forms(home)) == 2
    assert reloaded(at, open_page, "tune").get_by_key(fields.key("batch_size")).value == 4
    assert reloaded(other, open_page, "tune").get_by_key(fields.key("batch_size")).value == 9


def test_settings_typed_after_a_run_win_over_those_of_the_trial_in_the_address(
    open_page: Open, add_model: Add
) -> None:
    record = add_model()
    trial = put(record, batch_size=3)
    at = open_page(trial=trial.id)
    assert at.get_by_key(fields.key("batch_size")).value == 3
    at.get_by_key(fields.key("batch_size")).set_value(11).run()
    again = reloaded(at, open_page, "tune")
    assert (address(again)["trial"], again.get_by_key(fields.key("batch_size")).value) == (trial.id, 11)


def test_expert_is_never_taken_from_an_address(open_page: Open, add_model: Add, home: Path) -> None:
    at = open_page(model=add_model())
    at.get_by_key(fields.key("batch_size")).set_value(2).run()
    [path] = forms(home)
    data = json.loads(path.read_text())
    data["values"] |= {fields.key("expert"): True, "run": True, "draft.own": "../../x"}
    path.write_text(json.dumps(data))
    again = reloaded(at, open_page, "tune")
    assert again.get_by_key(fields.key("batch_size")).value == 2
    assert not again.session_state[fields.key("expert")]
    assert not state.store().trials()


@pytest.mark.parametrize("name", ["0" * 16, "../../etc/passwd", "x", "[]"])
def test_an_address_of_a_form_that_is_gone_says_so(open_page: Open, name: str) -> None:
    at = open_page(form=name)
    assert [one.icon for one in at.toast] == [":material/link_off:"]
    assert form_state.PARAM not in at.query_params


@pytest.mark.parametrize("text", ["{", "[1]", '{"version": "0.0.0", "values": {}}'])
def test_a_damaged_form_is_as_good_as_gone(open_page: Open, home: Path, text: str) -> None:
    (home / "forms").mkdir(parents=True)
    (home / "forms" / f"{'a' * 16}.json").write_text(text)
    at = open_page(form="a" * 16)
    assert [one.icon for one in at.toast] == [":material/link_off:"]


def test_a_disk_that_takes_nothing_costs_the_reload_and_not_the_session(
    open_page: Open, add_model: Add, home: Path
) -> None:
    record = add_model()
    (home / "forms").write_text("a file where the folder should be")
    at = open_page(model=record)
    at.get_by_key(fields.key("batch_size")).set_value(7).run()
    assert not at.exception
    assert at.get_by_key(fields.key("batch_size")).value == 7
    assert form_state.PARAM not in at.query_params


def test_the_oldest_forms_go_first_with_the_first_write_and_now_and_then(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(form_state, "MOST", 3)
    monkeypatch.setattr(form_state, "EVERY", 4)
    monkeypatch.setattr(form_state, "_writes", itertools.count())
    names = [secrets.token_hex(8) for _ in range(5)]
    for number, name in enumerate(names):
        assert form_state._write(name, "{}")
        assert len(forms(home)) == (number + 1 if number < 4 else 3)
        os.utime(home / "forms" / f"{name}.json", (number, number))  # the clock of files may stand still
    assert {path.stem for path in forms(home)} == set(names[2:])
    monkeypatch.setattr(form_state, "_writes", itertools.count())
    assert form_state._write(names[0], "{}")
    assert {path.stem for path in forms(home)} == {names[0], *names[3:]}


# --- a link


def test_a_link_shows_the_page_as_it_was(open_page: Open, add_model: Add) -> None:
    at = open_page(model=add_model())
    at.get_by_key(fields.key("batch_size")).set_value(6).run()
    at.button(key="draft.link").click().run()
    [shown] = [one.value for one in at.code if "form=" in one.value]
    at.get_by_key(fields.key("batch_size")).set_value(8).run()
    linked = re.search(r"form=([0-9a-f]{16})", shown)
    assert linked is not None
    assert linked[1] != address(at)[form_state.PARAM]
    assert open_page(form=linked[1]).get_by_key(fields.key("batch_size")).value == 6


def test_a_link_of_a_reloaded_form_holds_it_as_well(open_page: Open, add_model: Add, home: Path) -> None:
    at = open_page(model=add_model())
    at.get_by_key(fields.key("batch_size")).set_value(7).run()
    at.switch_page("views/scorecard/page.py").run()
    again = reloaded(at, open_page, "scorecard")
    again.switch_page("views/tune/page.py").run()
    assert again.get_by_key(fields.key("batch_size")).value == 7
    again.button(key="draft.link").click().run()
    [shown] = [one.value for one in again.code if "form=" in one.value]
    found = re.search(r"form=([0-9a-f]{16})", shown)
    assert found is not None
    text = (home / "forms" / f"{found[1]}.json").read_text()
    assert json.loads(text)["values"][fields.key("batch_size")] == 7


@pytest.mark.parametrize(
    ("page", "query", "words"),
    [
        ("tune", {"trial": "0123456789abcdef"}, "There is no trial `0123456789abcdef` here"),
        ("compare", {"comparison": "deadbeef"}, "There is no comparison"),
        ("sweep", {"study": "curve batch_size=1 #nothere"}, "There is no sweep called"),
        ("profile", {"trial": "nosuchtrial"}, "nosuchtrial"),
        ("explain", {"a": "nosuchtrial"}, "nosuchtrial"),
        ("export", {"trial": "feedfeedfeedfeed"}, "is not a finished measurement here"),
    ],
)
def test_a_link_to_nothing_is_said_and_the_page_works(
    open_page: Open, add_model: Add, page: str, query: dict[str, str], words: str
) -> None:
    at = open_page(page, model=add_model(), **query)
    assert words in texts(at)
    if page in ("tune", "compare"):
        assert not set(query) & set(address(at))
    if page == "tune":
        assert not at.button(key="run").disabled


# --- pages open with what is stored


def test_tune_opens_with_the_newest_result_of_the_model_and_its_settings(
    open_page: Open, add_model: Add
) -> None:
    record, other = add_model(name="one"), add_model(name="two")
    older, newer = put(record, batch_size=2), put(record, batch_size=4)
    at = open_page(model=record)
    assert "first" not in keys(at)
    assert f"`{newer.id[:12]}`" in texts(at)
    assert address(at)["trial"] == newer.id
    assert at.get_by_key(fields.key("batch_size")).value == 4
    choice(at, "tune.earlier").set_value(older.id).run()
    assert f"`{older.id[:12]}`" in texts(at)
    assert (address(at)["trial"], at.get_by_key(fields.key("batch_size")).value) == (older.id, 2)
    assert f"`{older.id[:12]}`" in texts(reloaded(at, open_page, "tune"))
    choice(at, "model.picked").set_value(other.content_sha256).run()
    assert "first" in keys(at)
    assert "trial" not in address(at)
    choice(at, "model.picked").set_value(record.content_sha256).run()
    assert f"`{newer.id[:12]}`" in texts(at)


def test_a_profile_linked_on_tune_opens_on_its_own_page(open_page: Open, add_model: Add) -> None:
    record = add_model()
    profile = sample_results.put_profile(state.store(), record, sample_results.spec_for(record))
    at = open_page(trial=profile.id)
    assert not at.exception
    assert at.title[0].value == "Profile"
    del at.query_params["trial"]  # as the navigation does
    at.switch_page("views/tune/page.py").run()
    assert at.title[0].value == "Tune"


def test_export_opens_with_the_newest_result_of_the_model(open_page: Open, add_model: Add) -> None:
    record = add_model()
    trial = put(record, batch_size=2)
    at = open_page("export", model=record)
    assert at.selectbox(key="export.source").value == trial.id
    assert address(at)["trial"] == trial.id
    at.selectbox(key="export.source").set_value("current").run()
    assert "trial" not in address(at)


def test_a_ticked_row_of_history_has_an_address(open_page: Open, add_model: Add) -> None:
    trial = put(add_model())
    at = open_page("history")
    select(at, 0)
    assert address(at)["trial"] == trial.id
    select(at)
    assert "trial" not in address(at)


def test_compare_opens_with_the_newest_comparison_until_it_is_closed(open_page: Open, add_model: Add) -> None:
    record = add_model()
    fingerprint = state.environment()["fingerprint"]
    comparison = sample_results.put_compared(
        state.store(), record, fingerprint=fingerprint, study="race #1"
    ).comparison
    at = open_page("compare", model=record)
    assert address(at)["comparison"] == comparison.id
    at.button(key="compare.close").click().run()
    assert "comparison" not in address(at)
    at.run()
    assert "comparison" not in address(at)


def test_curves_open_with_the_newest_sweep_where_no_setting_was_changed(
    open_page: Open, add_model: Add, machine: wire.Environment
) -> None:
    from tests.views.test_sweep import put_comparison

    record = add_model()
    comparison, _ = put_comparison(record, machine, (1, 4))
    newest, _ = put_comparison(record, machine, (2, 8))
    at = open_page("sweep", model=record)
    assert address(at)["study"] == newest.study
    assert at.text_input(key="sweep.values.batch_size").value == "2, 8"
    assert at.get_by_key("sweep.axis").value == "batch_size"

    at = open_page(model=record)
    at.get_by_key(fields.key("intra_op_num_threads")).set_value(1).run()
    at.switch_page("views/sweep/page.py").run()
    assert "study" not in address(at)
    assert at.session_state[fields.key("intra_op_num_threads")] == 1
    choice(at, "sweep.earlier").set_value(comparison.study).run()
    assert address(at)["study"] == comparison.study


def test_explain_opens_with_the_pair_that_was_explained_last(open_page: Open, add_model: Add) -> None:
    from tests.views.test_explain import put_passes

    record = add_model()
    explained = sample_results.put_compared(state.store(), record, fingerprint="x")
    sample_results.put_compared(state.store(), record, fingerprint="x")
    put_passes(explained.baseline, explained.trial)
    at = open_page("explain", model=record)
    assert (address(at)["a"], address(at)["b"]) == (explained.baseline.id, explained.trial.id)
    assert "troubleshoot" not in icons(at)


def test_accuracy_opens_with_the_newest_evaluation_and_survives_a_reload(
    open_page: Open, add_model: Add, home: Path
) -> None:
    from tests.views.test_accuracy import put as put_accuracy

    record = add_model()
    path = home / "rows.npz"
    np.savez(path, images=np.zeros((4, 16), np.float32), labels=np.zeros(4, np.int64))
    data = dataset.spec_from_values({"path": str(path)})
    assert data is not None
    scores = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]
    stored = put_accuracy(record, data, scores, [0, 0, 1, 0])
    at = open_page("accuracy", model=record)
    assert "fact_check" not in icons(at)
    assert address(at)["accuracy"] == stored.id
    assert at.get_by_key(dataset.key(dataset.LABELLED, "path")).value == str(path)
    again = reloaded(at, open_page, "accuracy")
    assert address(again)["accuracy"] == stored.id
    linked = open_page("accuracy", accuracy=stored.id)
    assert linked.session_state[state.MODEL] == record.content_sha256
    assert address(linked)["accuracy"] == stored.id


def test_the_scorecard_opens_with_the_targets_that_were_measured_last(
    open_page: Open, add_model: Add
) -> None:
    from core.spec.targets import target_from_dict

    record = add_model()
    target = target_from_dict({"metric": "latency_p99", "at_most": "3 ms"})
    spec = sample_results.spec_for(record).model_copy(update={"targets": (target,)})
    sample_results.put_measured(
        state.store(), record, spec, fingerprint=state.environment()["fingerprint"], rows=1
    )
    at = open_page("scorecard", model=record)
    assert "checklist" not in icons(at)
    [line] = at.session_state[scorecard_targets.IDS]
    assert opened(at, form.TARGETS).text_input(key=scorecard_targets.key(line, "limit")).value == "3 ms"


def test_a_variant_has_an_address_that_brings_its_family(open_page: Open, add_model: Add) -> None:
    from core.spec.steps import Step
    from tests.views.test_variants import put_variant

    root = add_model()
    first = put_variant(root, Step("fp16", {}), name="half")
    put_variant(root, Step("int8_dynamic", {}), name="eighth")
    at = open_page("variants", variant=first.content_sha256[:16])
    assert at.session_state[state.MODEL] == root.content_sha256
    assert address(at)["variant"] == first.content_sha256[:16]
    assert any(one.value == "half" for one in at.subheader)
    gone = open_page("variants", variant="0" * 16)
    assert "search_off" in icons(gone)
