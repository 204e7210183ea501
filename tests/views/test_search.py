"""The Search page: the form, the search space, a running search, and every answer."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from core import wire
from core.evidence.comparison import same_request
from core.evidence.targets import STATE_WORDS
from core.process.job_worker import run_job
from core.run import search
from core.run.prediction import ComparisonHistory, MeasuredRun
from core.run.search.stored import answer_of
from core.show.export import export_yaml
from core.show.setting_chips import chips_of
from core.show.sheets import searches
from core.spec import TrialSpec, differing, spec_from_dict, spec_from_yaml, with_changes
from core.spec.question import PRESETS, question_from_dict
from core.spec.settings import SETTINGS
from core.spec.space import changes_words, reference
from core.spec.strict_yaml import load_strict
from core.spec.targets import target_from_dict
from core.store import ModelRecord, StudyRecord
from core.wire.errors import BudgetError, SpecError
from dashboard import configurations, fields, format, live_events, session_jobs, state
from dashboard.shown_result import TUNE
from dashboard.views.compare import entry_list
from dashboard.views.scorecard import targets
from dashboard.views.search import form, links, preview
from dashboard.widgets.protocol import DEFAULT_MINUTES
from tests import tiny_models
from tests.reading import numbers, tells
from tests.views import sample_results
from tests.views.page import (
    Add,
    Jobs,
    Open,
    buttons,
    choice,
    click,
    figure,
    followed,
    icons,
    keys,
    lines,
    opened,
    status,
    texts,
)

RUN = "search.run"
CHANGES, OWN_VALUES, STRATEGY = "search.changes", "search.own_values", "search.how"  # closed groups
_LIMIT = target_from_dict({"metric": "latency_p99", "at_most": "3 ms"})
P99 = f"{_LIMIT.what} {_LIMIT.limit_words}"


@pytest.fixture
def waits() -> list[float]:
    """The time limit of each search of the page for an idle machine, in seconds."""
    return []


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> list[search.Prepared]:
    """Searches that the page queues; their rows are kept, and nothing is run."""
    asked: list[search.Prepared] = []

    def submit(prepared: search.Prepared) -> str:
        asked.append(prepared)
        state.store().put_study(prepared.record)
        return prepared.record.id

    monkeypatch.setattr(search, "job", lambda prepared, wait_quiet_s: waits.append(wait_quiet_s) or prepared)
    monkeypatch.setattr(session_jobs, "submit", submit)
    return asked


def put(record: ModelRecord, machine: wire.Environment, outcome: str = "FOUND", **how: Any) -> StudyRecord:
    """A search whose winner and default are kept, too."""
    compared = sample_results.put_compared(state.store(), record, fingerprint=machine["fingerprint"])
    confirmed = (compared.trial.id, compared.baseline.id)
    return sample_results.put_study(
        state.store(),
        record,
        fingerprint=machine["fingerprint"],
        outcome=outcome,
        confirmed=confirmed,
        **how,
    )


# --- asking -------------------------------------------------------------------------------------------------


def test_without_a_search_the_page_says_what_to_do_and_what_there_is_to_try(
    open_page: Open, mlp: ModelRecord
) -> None:
    at = open_page("search", model=mlp)
    assert "manage_search" in icons(at)
    assert preview.SPACE in keys(at)
    at = opened(at, preview.SPACE)
    budget = format.duration(form.DEFAULTS[form.BUDGET])
    [bought] = lines(at, f"{budget}:")
    assert numbers(bought) == numbers(budget)  # how many can be evaluated is not known
    assert not at.table[0].value.empty  # what is left out, and why
    assert not at.button(key=RUN).disabled
    assert not buttons(at, "search.cancel")


def test_a_limit_that_cannot_be_read_is_said_beneath_it_and_nothing_starts(
    open_page: Open, mlp: ModelRecord, started: list[search.Prepared]
) -> None:
    at = open_page("search", model=mlp)
    at.text_area(key=form.LIMITS).set_value("p99<3ms\nlatensy<=3ms").run()
    assert not at.exception
    assert tells(at.error[0].value, "latensy")
    assert len(at.error) == 1
    assert at.button(key=RUN).disabled
    assert started == []
    at.text_area(key=form.LIMITS).set_value("p99<=3ms\nmemory<=100MB").run()
    assert not at.error
    assert not at.button(key=RUN).disabled


def test_the_scorecards_targets_become_limits(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("search", model=mlp)
    assert not buttons(at, "search.targets")
    values = {
        "a": ("latency_p99", "3 ms", None),
        "b": ("peak_rss", "100 MiB", None),
        "c": ("latency_p50", "1 ms", 8),
    }
    at.session_state[targets.IDS] = list(values)
    for line, (metric, limit, batch) in values.items():
        for name, value in (("metric", metric), ("limit", limit), ("batch", batch)):
            at.session_state[targets.key(line, name)] = value
    at.run()
    click(at, "search.targets")
    assert not at.exception
    assert at.text_area(key=form.LIMITS).value.splitlines() == ["latency_p99<=3 ms", "peak_rss<=100 MiB"]
    assert any(
        numbers(one)[:2] == [1, 3] for one in [*texts(at).splitlines(), *(one.value for one in at.toast)]
    )
    assert not at.error


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fills_the_form_and_is_marked(open_page: Open, mlp: ModelRecord, name: str) -> None:
    at = open_page("search", model=mlp)
    at.pills(key=form.PRESET).set_value(name).run()
    assert not at.exception
    wanted = question_from_dict(PRESETS[name][1])
    assert at.session_state[form.OBJECTIVE] == next(iter(wanted.objective))
    assert at.session_state[form.SAME] is wanted.same_latency
    assert bool(at.session_state[form.LIMITS]) is bool(wanted.limits)
    assert at.session_state[form.PRESET] == name
    at.toggle(key=form.SAME).set_value(not wanted.same_latency).run()
    assert at.session_state[form.PRESET] is None


def test_what_is_asked_is_put_into_the_queue(
    open_page: Open, mlp: ModelRecord, started: list[search.Prepared]
) -> None:
    at = open_page("search", model=mlp)
    at.selectbox(key=form.SECOND).set_value("peak_rss").run()
    at.slider(key=form.WEIGHT).set_value(60).run()
    at.text_area(key=form.LIMITS).set_value("p99<=3ms").run()
    at.select_slider(key=form.BUDGET).set_value(120).run()
    opened(at, STRATEGY).toggle(key=form.GIVE_WAY).set_value(True).run()
    click(at, RUN)
    assert not at.exception
    [prepared] = started
    asked = prepared.question
    assert asked.objective == {"latency_p50": 0.6, "peak_rss": 0.4}
    assert asked.limit_words == [P99]
    assert (asked.budget_s, asked.give_way, asked.strategy) == (120, True, "race")
    assert prepared.resolved.spec.protocol.effort == "quick"
    assert at.session_state["search.shown"] == prepared.record.id
    assert at.query_params["study"] == prepared.record.id


def slow_past(model: ModelRecord) -> ComparisonHistory:
    """Earlier measurements that took 776 ms an inference."""
    return ComparisonHistory(
        **{
            "seen": (MeasuredRun(spec=sample_results.spec_for(model), run_s=0.776),),
            "start_s": 3.0,
            "after_s": 1.0,
        },
        **{"beside_s": 1.0, "sigma": 0.01, "sigma_between": 0.01, "generations": {}},
    )


def test_a_time_that_cannot_confirm_anything_is_refused_or_extended(
    open_page: Open, mlp: ModelRecord, started: list[search.Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "past", lambda *_, **__: slow_past(mlp))
    at = open_page("search", model=mlp)
    at.select_slider(key=form.BUDGET).set_value(30).run()
    assert at.button(key=RUN).disabled
    assert "776 ms" in at.button(key=RUN).help
    at.toggle(key=form.EXTEND).set_value(True).run()
    click(at, RUN)
    assert not at.exception
    [prepared] = started
    assert prepared.question.budget_s > 30
    assert any("30 s" in note for note in prepared.notes)


def test_what_stays_and_what_is_never_tried_make_the_space_smaller(
    open_page: Open, mlp: ModelRecord, started: list[search.Prepared]
) -> None:
    at = open_page("search", model=mlp)
    free = list(opened(at, CHANGES).session_state[form.VARY])
    assert "intra_op_num_threads" in free
    at.multiselect(key=form.VARY).set_value([]).run()
    click(at, "search.all")
    assert at.session_state[form.VARY] == free
    at.multiselect(key=form.VARY).set_value(["intra_op_num_threads", "enable_mem_pattern"]).run()
    assert [one.label for one in at.expander if numbers(one.label)[:1] == [2]]
    at.multiselect(key=form.EXCLUDED).set_value(["enable_mem_pattern=off"]).run()
    assert not at.exception
    click(at, RUN)
    assert [one.name for one in started[0].space.axes] == ["intra_op_num_threads"]


def test_values_of_ones_own_are_tried_and_nothing_else_varies(
    open_page: Open, mlp: ModelRecord, started: list[search.Prepared]
) -> None:
    at = opened(open_page("search", model=mlp), CHANGES, OWN_VALUES)
    at.multiselect(key=form.VARY).set_value(["enable_mem_pattern"]).run()  # threads are fixed
    at.text_area(key=form.CUSTOM).set_value("intra_op_num_threads=1,3\nuse_io_binding=on,off").run()
    assert not at.exception
    assert not at.error
    click(at, RUN)
    axes = {one.name: one.values for one in started[0].space.axes}
    assert axes == {"intra_op_num_threads": (0, 1, 3), "use_io_binding": (False, True)}
    at.text_area(key=form.CUSTOM).set_value("").run()
    assert "intra_op_num_threads" in at.session_state[form.VARY]
    assert len(at.session_state[form.VARY]) > 2


@pytest.mark.parametrize(
    ("text", "named"),
    [("intra_op_num_thread=1", "intra_op_num_threads"), ("use_io_binding", "use_io_binding")],
)
def test_a_value_that_cannot_be_read_is_said_beneath_it(
    open_page: Open, mlp: ModelRecord, text: str, named: str
) -> None:
    at = opened(open_page("search", model=mlp), OWN_VALUES)
    at.text_area(key=form.CUSTOM).set_value(text).run()
    assert not at.exception
    assert len(at.error) == 1
    assert tells(at.error[0].value, named)
    assert at.button(key=RUN).disabled
    assert at.text_area(key=form.CUSTOM).value == text


def test_a_search_that_is_opened_brings_its_own_values(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    vary = {"intra_op_num_threads": [1, 2], "enable_cpu_mem_arena": [True, False]}
    study = put(mlp, machine, question={"vary": vary})
    at = opened(open_page("search", study=study.id), OWN_VALUES)
    assert not at.exception
    assert at.text_area(key=form.CUSTOM).value.splitlines() == [
        "intra_op_num_threads=1,2",
        "enable_cpu_mem_arena=on,off",
    ]
    assert sorted(at.session_state[form.VARY]) == ["enable_cpu_mem_arena", "intra_op_num_threads"]


def test_the_form_survives_a_visit_to_another_page(open_page: Open, mlp: ModelRecord) -> None:
    at = opened(open_page("search", model=mlp), CHANGES)
    at.pills(key=form.PRESET).set_value("smallest that keeps the answers").run()
    at.select_slider(key=form.BUDGET).set_value(300).run()
    at.multiselect(key=form.VARY).set_value(["intra_op_num_threads"]).run()
    at.switch_page("views/machine/page.py").run()
    at.switch_page("views/search/page.py").run()
    assert not at.exception
    assert at.selectbox(key=form.OBJECTIVE).value == "model_size"
    assert at.text_area(key=form.LIMITS).value == "output_error<=0.02"
    assert at.select_slider(key=form.BUDGET).value == 300
    assert opened(at, CHANGES).multiselect(key=form.VARY).value == ["intra_op_num_threads"]


def test_where_nothing_may_change_the_page_says_so(open_page: Open, mlp: ModelRecord) -> None:
    at = opened(open_page("search", model=mlp), CHANGES)
    at.multiselect(key=form.VARY).set_value([]).run()
    assert not at.exception
    assert at.warning
    assert at.button(key=RUN).disabled


def test_the_start_is_what_is_set_on_tune(
    open_page: Open, mlp: ModelRecord, started: list[search.Prepared]
) -> None:
    at = open_page("search", model=mlp)
    at.number_input(key=fields.key("batch_size")).set_value(4).run()
    click(at, RUN)
    assert not at.exception
    assert started[0].resolved.spec.workload.batch_size == 4


def test_a_limit_on_the_accuracy_asks_for_labelled_data(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("search", model=mlp)
    at.text_area(key=form.LIMITS).set_value("accuracy>=-0.5%").run()
    assert not at.exception
    assert "search.data" in keys(at)


def test_what_cannot_be_searched_is_said_in_place(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = SpecError("This cannot be searched.", hint="Ask something else.")

    def refuse(*_: Any, **__: Any) -> None:
        raise refusal

    at = open_page("search", model=mlp)
    monkeypatch.setattr(search, "prepare", refuse)
    click(at, RUN)
    assert not at.exception
    assert lines(at, refusal.message)


# --- while it runs ------------------------------------------------------------------------------------------


def live_state(**changes: Any) -> dict[str, Any]:
    """`Status.live` after the first screening."""
    found = sample_results.search_answer("FOUND", "w", "d")
    facts: dict[str, Any] = {
        "study": "s",
        "tried": 3,
        "distinct": 8,
        "doing": "a first look at 6",
        "spent_s": 12.0,
        "ends_at": time.time() + 30.0,
        "budget_s": 60.0,
        "best": {"changes": {"intra_op_num_threads": 1}, "gain": sample_results.gain(1.25), "launches": 6},
        "front": found["front"],
        "points": [{"label": "intra_op_num_threads 1", "ratio": 1.25, "memory": 8e6}],
        "course": found["course"],
    }
    return facts | changes


def test_a_running_search_shows_the_best_so_far_and_can_be_cancelled(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, jobs: Jobs
) -> None:
    study = put(mlp, machine, "", state="RUNNING")
    state.store().put_study(study, process=state.scheduler()._process)  # one that lives
    cancelled = jobs(
        status(study.id, kind="search", stage="rounds", done=2, total=5, elapsed_s=12.0, live=live_state())
    )
    at = open_page("search", model=mlp)  # without a link: it is found by its model
    assert lines(at, "1.25×", "[1.20, 1.30]")
    assert lines(at, f"{changes_words({'intra_op_num_threads': 1})} · ")
    assert lines(at, "3 ", "5 of 8")
    assert len(followed(at, "search.watch")["pictures"]) == 2
    assert at.button(key=RUN).disabled
    assert at.query_params["study"] == study.id
    click(at, "search.cancel")
    assert cancelled == [study.id]


def test_a_search_that_waits_says_for_whom(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, jobs: Jobs
) -> None:
    study = put(mlp, machine, "", state="WAITING", tried=[])
    waiting = status(study.id, kind="search", state="WAITING", holder="somebody: a race", place=1)
    jobs(waiting)
    at = open_page("search", model=mlp, study=study.id)
    doing = live_events.search_progress(waiting, 0.0)[1]
    assert tells(doing, "somebody", "race")
    assert numbers(doing) == []  # nobody is before it
    assert lines(at, question_from_dict(study.question).words)


def test_a_search_of_another_process_is_followed_by_its_row(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    study = put(mlp, machine, "", state="RUNNING")
    state.store().put_study(study, process=state.scheduler()._process)  # one that lives
    at = open_page("search", model=mlp)
    assert at.button(key=RUN).disabled
    assert lines(at, question_from_dict(study.question).words)
    assert at.button(key="search.cancel").disabled


@pytest.mark.parametrize(
    ("left_s", "left"),
    [(30.0, [30]), (-1.0, [])],
)
def test_the_time_that_is_left(left_s: float, left: list[float]) -> None:
    running = status(
        stage="rounds", done=2, total=5, elapsed_s=12.0, live=live_state(ends_at=1000.0 + left_s)
    )
    share, text = live_events.search_progress(running, 1000.0)
    assert tells(text, live_state()["doing"][1:])
    assert numbers(text) == [6, 2, 5, 12, *left]
    assert share == pytest.approx(0.5 if left_s > 0 else 1.0)


def test_before_screening_nothing_is_best() -> None:
    assert live_events.best_words(live_state(best=None)) != live_events.best_words(live_state())
    assert numbers(live_events.best_words(live_state(best=None))[0]) == []


# --- answers ------------------------------------------------------------------------------------------------


def test_an_answer_beside_other_programs_offers_to_wait_for_quiet(
    open_page: Open,
    mlp: ModelRecord,
    machine: wire.Environment,
    started: list[search.Prepared],
    waits: list[float],
) -> None:
    study = put(mlp, machine)
    assert not buttons(open_page("search", model=mlp), "search.quiet")
    answered = {**(study.answer or {}), "busy": {"words": "beside other programs"}}
    state.store().update_study(study.id, answer=answered)
    at = open_page("search", model=mlp)
    assert searches.sentence(answered) in texts(at)
    click(at, "search.quiet")
    assert len(started) == 1
    assert waits == [60.0 * DEFAULT_MINUTES]


@pytest.mark.parametrize("outcome", list(searches.COLORS))
def test_every_answer_is_said_with_what_it_rests_on(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, outcome: str
) -> None:
    study = put(mlp, machine, outcome)
    at = open_page("search", model=mlp)
    said = texts(at)
    assert study.answer is not None
    assert searches.sentence(study.answer) in said
    assert lines(at, f"{P99}: **")
    assert figure(at)["layout"]["yaxis"]["title"]["text"]  # the Pareto front is the first picture
    assert lines(at, "1.20×", "[1.10, 1.30]")
    assert lines(opened(at, "search.details"), study.answer["notes"][0])
    for tab, titled in (("Effects", True), ("Progress", True), ("All metrics", True), ("Parallel", False)):
        drawn = figure(opened(at, f"search.tabs:{tab}"), 1)
        assert bool(drawn["layout"].get("xaxis", {}).get("title", {}).get("text")) is titled
    opened(at, "search.tabs:Evaluated")
    assert list(at.dataframe[0].value["State"])[::2] == ["confirmed", "failed"]
    assert "threads 1" in list(at.dataframe[0].value["Configuration"])
    assert tells(at.dataframe[0].value, "out of memory")
    assert not at.button(key=RUN).disabled
    assert bool(buttons(at, "search.load")) is (outcome != "NONE_KEEPS_LIMITS")


def under_load(study: StudyRecord, *states: str) -> dict[str, Any]:
    """An answer under load: the winner, a survivor, and the default, with these states."""
    roles = ("winner", "survivor", "default")
    return {
        "target": "200/s with p99<=20ms",
        "tested": [
            {
                "role": role,
                "trial": f"{number}" * 16,
                "changes": {} if role == "default" else {"intra_op_num_threads": number + 1},
                "spec": study.spec,
                "gain": None if role == "default" else sample_results.gain(1.3),
                "state": found,
                "value": 0.004,
                "low": 0.003,
                "high": 0.005,
                "why": "0.4 % of 6,000 requests were slower.",
            }
            for number, (role, found) in enumerate(zip(roles, states, strict=False))
        ],
        "passed": states.index("MET") if "MET" in states else None,
        "seconds": 60.0,
        "words": "The answer under load.",
    }


@pytest.mark.parametrize("states", [("MET",), ("MISSED", "MET"), ("MISSED", "UNKNOWN", "MISSED")])
def test_the_answer_under_load_is_said_with_what_was_run(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, states: tuple[str, ...]
) -> None:
    study = put(mlp, machine)
    assert study.answer is not None
    load = under_load(study, *states)
    state.store().update_study(study.id, answer={**study.answer, "load": load})
    at = open_page("search", model=mlp)
    assert load["words"] in texts(at)
    tables = [one for one in at.dataframe if "State" in one.value and "Load test" in one.value]
    assert len(tables) == (len(states) > 1)
    for one in tables:
        assert list(one.value["State"]) == [STATE_WORDS[state] for state in states]  # type: ignore[index]
    if states == ("MISSED", "MET"):
        click(at, "search.load")  # the survivor's load test is not stored here
        assert at.error


def test_traffic_is_asked_for_and_its_time_is_said_before(
    open_page: Open, mlp: ModelRecord, started: list[search.Prepared]
) -> None:
    at = open_page("search", model=mlp)
    at.text_input(key=form.LOAD).set_value("200/s with p99<=20").run()
    assert not at.exception
    assert tells(at.error[0].value, "20")
    assert at.button(key=RUN).disabled
    at.text_input(key=form.LOAD).set_value("200/s with p99<=20ms").run()
    assert not at.error
    assert lines(at, "load tests of 30 s each")
    click(at, RUN)
    assert started[0].question.load is not None
    assert started[0].question.load.text == "200/s with p99<=20ms"
    assert started[0].record.question["load"] == "200/s with p99<=20ms"


def test_targets_under_load_go_to_the_search_and_back(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    at = open_page("search", model=mlp)
    at.session_state[targets.IDS] = ["a"]
    for name, value in (("metric", "load"), ("limit", "p99<=20ms"), ("rate", 200.0)):
        at.session_state[targets.key("a", name)] = value
    at.run()
    click(at, "search.targets")
    assert not at.exception
    assert at.text_input(key=form.LOAD).value == "200/s with p99<=20ms"
    assert at.text_area(key=form.LIMITS).value == ""
    put(mlp, machine, question={"load": "150/s with p99<=20ms"})
    at = open_page("search", model=mlp)
    at.button(key="search.judge").click().run()
    assert not at.exception
    assert at.title[0].value == "Scorecard"
    assert "p99 at 150 requests/s ≤ 20 ms" in [str(one) for one in at.table[0].value.columns]


@pytest.mark.parametrize(
    ("probability", "words"),
    [(None, ""), (0.321, "of 32 %"), (0.9999, "of more than 99 %"), (0.0001, "of less than 1 %")],
)
def test_how_sure_a_limit_is_kept(probability: float | None, words: str) -> None:
    assert searches.probability_text(probability).endswith(words)


def test_the_winner_goes_into_tune_with_its_result(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    study = put(mlp, machine)
    at = open_page("search", model=mlp)
    at.button(key="search.load").click().run()
    assert not at.exception
    assert at.title[0].value == "Tune"
    assert at.session_state[fields.key("intra_op_num_threads")] == 1
    assert study.answer is not None
    assert at.session_state[TUNE.key] == study.answer["winner"]["trial"]


def test_where_nothing_beats_the_default_the_default_is_loaded(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    put(mlp, machine, "NO_DIFFERENCE")
    at = open_page("search", model=mlp)
    at.session_state[fields.key("intra_op_num_threads")] = 2
    click(at, "search.load")
    assert not at.exception
    assert at.title[0].value == "Tune"
    assert at.session_state[fields.key("intra_op_num_threads")] is None


def test_an_evaluated_configuration_loads_its_settings_and_no_result(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    study = put(mlp, machine)
    at = open_page("search", model=mlp)
    assert study.answer is not None
    reference = study.answer["default"]["trial"]
    assert links.spec_of(study, reference).session == sample_results.spec_for(mlp).session
    assert at.session_state["search.shown"] == study.id


def test_the_winner_is_pinned_and_unpinned(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    study = put(mlp, machine)
    at = open_page("search", model=mlp)
    click(at, "search.pin")
    assert study.answer is not None
    assert state.store().baseline(mlp.content_sha256) == study.answer["winner"]["trial"]
    assert at.button(key="search.pin").icon == ":material/keep_off:"
    click(at, "search.pin")
    assert state.store().baseline(mlp.content_sha256) is None


def test_the_limits_become_targets_of_the_scorecard(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    limit = {"metric": "latency_p99", "at_most": "3 ms"}
    put(mlp, machine, question={"limits": [limit]})
    at = open_page("search", model=mlp)
    at.button(key="search.judge").click().run()
    assert not at.exception
    assert at.title[0].value == "Scorecard"
    assert P99 in [str(one) for one in at.table[0].value.columns]
    assert at.session_state["scorecard.settings"] == [links.FROM_TUNE]


def test_a_deleted_trial_is_said_and_the_page_stays(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    sample_results.put_study(state.store(), mlp, fingerprint=machine["fingerprint"])
    at = open_page("search", model=mlp)
    click(at, "search.load")
    assert not at.exception
    assert at.title[0].value == "Search"
    assert at.error


# --- without an answer, and going on ------------------------------------------------------------------------


def test_a_failed_search_says_why_and_is_resumed(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, started: list[search.Prepared]
) -> None:
    error = {"type": "WorkerError", "message": "The default crashed.", "hint": "Measure it on Tune."}
    study = put(mlp, machine, "", state="FAIL", error=error)
    at = open_page("search", model=mlp)
    assert lines(at, error["message"])
    assert lines(at, "kept", 3)
    click(at, "search.resume")
    assert not at.exception
    [prepared] = started
    assert prepared.record.id == study.id
    assert len(prepared.record.tried) == 4


def test_a_cancelled_search_keeps_what_it_tried_and_is_resumed_in_the_time_left(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, started: list[search.Prepared]
) -> None:
    put(mlp, machine, "", state="CANCELLED", wall_s=20.0)
    at = open_page("search", model=mlp)
    assert any(numbers(one.value) == [3] for one in at.info if one.icon == ":material/cancel:")
    assert len(at.dataframe[0].value) == 3
    click(at, "search.resume")
    assert started[0].question.budget_s == 40


def test_a_finished_search_gets_more_time(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment, started: list[search.Prepared]
) -> None:
    study = put(mlp, machine)
    at = open_page("search", model=mlp)
    at.select_slider(key="search.more_s").set_value(300).run()
    click(at, "search.go_on")
    assert not at.exception
    assert (started[0].record.id, started[0].question.budget_s) == (study.id, 300)


def test_a_search_of_another_machine_cannot_go_on(
    open_page: Open, mlp: ModelRecord, started: list[search.Prepared]
) -> None:
    sample_results.put_study(state.store(), mlp, fingerprint="another")
    at = open_page("search", model=mlp)
    click(at, "search.go_on")
    assert len(at.error) == 1
    assert started == []


def test_a_search_does_not_go_on_for_a_time_that_cannot_confirm_anything(
    open_page: Open,
    mlp: ModelRecord,
    machine: wire.Environment,
    started: list[search.Prepared],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What `--resume` refuses, the button refuses; `--extend` makes it long enough instead."""
    study = put(mlp, machine)
    monkeypatch.setattr(search, "past", lambda *_, **__: slow_past(mlp))
    at = open_page("search", model=mlp)
    at.select_slider(key="search.more_s").set_value(15).run()
    click(at, "search.go_on")
    assert "776 ms" in texts(at)
    assert started == []
    resume = partial(search.continue_search, state.store(), study.id, run_job, machine, budget_s=15)
    with pytest.raises(BudgetError):
        resume()
    longer = resume(question={"extend": True})
    assert longer.record.id == study.id
    assert longer.question.budget_s > 15


# --- which search is shown ----------------------------------------------------------------------------------


def test_a_link_brings_the_question_and_a_link_to_nothing_is_said(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    question = {
        "objective": {"throughput": 1.0},
        "limits": [{"metric": "peak_rss", "at_most": "100 MB"}],
        "accuracy_drop": 0.005,
        "without": ["use_io_binding", "execution_mode=ORT_PARALLEL"],
    }
    study = put(mlp, machine, question=question)
    at = open_page("search", study=study.id)
    assert at.session_state[state.MODEL] == mlp.content_sha256
    assert at.session_state[form.OBJECTIVE] == "throughput"
    assert at.session_state[form.LIMITS].splitlines() == ["peak_rss<=100 MB", "accuracy>=-0.5%"]
    assert "use_io_binding" not in at.session_state[form.VARY]
    assert at.session_state[form.EXCLUDED] == ["execution_mode=ORT_PARALLEL"]
    at = open_page("search", model=mlp, study="0123456789abcdef")
    assert "0123456789abcdef" in texts(at)


def test_earlier_searches_are_listed_and_the_newest_is_open(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    first = put(mlp, machine, "NO_DIFFERENCE", question={"objective": {"peak_rss": 1.0}})
    second = put(mlp, machine, created_at=2_000_000.0)
    at = open_page("search", model=mlp)
    assert at.session_state["search.shown"] == second.id
    kept = choice(at, "search.shown")
    assert len(kept.options) == 2
    listed = opened(at, "search.earlier").dataframe[-1].value
    assert list(listed["Search"]) == [first.id[:12]]
    assert len(listed["Answer"]) == 1
    kept.select_index(1).run()
    assert not at.exception
    assert at.session_state["search.shown"] == first.id
    assert at.query_params["study"] == first.id


def test_another_model_has_searches_of_its_own(
    open_page: Open, mlp: ModelRecord, add_model: Add, machine: wire.Environment
) -> None:
    put(mlp, machine)
    at = open_page("search", model=mlp)
    assert "1.30× faster" in texts(at)
    add_model(tiny_models.fixed_batch, "other")
    at.run()
    choice(at, "model.picked").select("other").run()
    assert not at.exception
    assert "manage_search" in icons(at)


def test_a_search_is_deleted_after_a_question_and_its_confirmed_comparison_stays(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    record = put(mlp, machine)
    at = open_page("search", model=mlp, study=record.id)
    click(at, "search.delete")
    assert not at.exception
    assert state.store().studies() == []
    assert record.answer is not None
    assert state.store().trial(record.answer["winner"]["trial"]).state == "COMPLETE"


# --- what the answer says first, and where it leads ---------------------------------------------------------


def put_elsewhere(record: ModelRecord, machine: wire.Environment) -> StudyRecord:
    """A search that started at bound inputs and a lower level, and whose winner is not bound."""
    start = sample_results.spec_for(
        record, use_io_binding=True, graph_optimization_level="ORT_ENABLE_BASIC", intra_op_num_threads=1
    )
    found = sample_results.spec_for(
        record, graph_optimization_level="ORT_ENABLE_BASIC", intra_op_num_threads=1
    )
    name, here = "feed" * 4, machine["fingerprint"]
    compared = sample_results.put_compared(state.store(), record, spec=found, fingerprint=here, study=name)
    said = sample_results.search_answer("FOUND", compared.trial.id, compared.baseline.id)
    said["winner"] |= {"changes": {"use_io_binding": False}, "spec": compared.trial.spec}
    return sample_results.put_study(
        state.store(), record, fingerprint=here, id=name, spec=start.to_dict(), answer=said
    )


def test_sentence_tune_compare_history_and_yaml_hold_one_configuration(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    study = put_elsewhere(mlp, machine)
    found = answer_of(study)
    assert found is not None
    assert found["winner"] is not None
    trial = found["winner"]["trial"]
    resolved = with_changes(reference(spec_from_dict(study.spec)), found["winner"]["changes"])

    def same(spec: TrialSpec) -> bool:
        return same_request(spec, resolved)

    at = open_page("search", model=mlp)
    chips = [words for words, _ in chips_of(found["winner"]["changes"])]
    assert len(chips) == 2
    assert all(f"-badge[{format.plain(words)}]" in texts(at) for words in chips)
    yaml = export_yaml(
        state.store().trial(trial), found=search.search_provenance(state.store(), state.store().trial(trial))
    )
    assert same(spec_from_yaml(yaml))
    assert load_strict(yaml)["measured"]["found_by_search"]["changes"] == found["winner"]["changes"]
    at.button(key="search.load").click().run()
    assert at.title[0].value == "Tune"
    names = [fields.key(one.name) for one in SETTINGS]
    values = {name: at.session_state[name] for name in names if name in at.session_state}
    assert same(fields.spec_from_values(values, path=mlp.path, sha256=mlp.sha256, info=mlp.info))
    at = open_page("compare", model=mlp, trials=trial)
    entries = [configurations.Entry.from_dict(one) for one in at.session_state[entry_list.ENTRIES]]
    (taken,) = [one.spec for one in entries if same(one.spec)]
    assert differing(taken, reference(taken)) == found["winner"]["changes"]


def test_what_must_be_known_first_stands_before_the_sentence_and_failures_behind_it(
    open_page: Open, mlp: ModelRecord, machine: wire.Environment
) -> None:
    said = sample_results.search_answer("FOUND", "w", "d") | {
        "remarks": ["A/A control failed: 1 of 3 pairs."]
    }
    put(mlp, machine, answer=said)
    shown = texts(open_page("search", model=mlp))
    order = [
        shown.index(text)
        for text in (
            "A/A control failed: 1 of 3 pairs.",
            searches.sentence(said),
            "1 failed: It ran out of memory",
        )
    ]
    assert order == sorted(order)
