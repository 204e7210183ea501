"""The Fleet page on made-up runs: answer, picture, tables, progress, cancelling, logs."""

from __future__ import annotations

import io
import threading
import time
import zipfile
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.api import fleet
from core.evidence.fleet.fleet_types import AnswerProgress, FleetRun
from core.evidence.fleet.summary import summarize
from core.spec import spec_from_yaml
from core.store import ModelRecord, audit
from core.wire.errors import SpecError, WorkerError
from dashboard import live_events, state
from dashboard.views.fleet import archive, asking, first_use, progress
from tests import fleet_runs as made
from tests.fleet_runs import THREADS
from tests.reading import tells
from tests.views.page import Open, icons, keys, lines, texts

SURE = {"a": (1.2, 1.19, 1.21), "b": (1.1, 1.09, 1.11)}
OTHER = {"a": (0.9, 0.89, 0.91), "b": (1.1, 1.09, 1.11)}


def two_hosts(**changes: Any) -> FleetRun:
    return made.run({"h1": made.compared(SURE), "h2": made.compared(OTHER)}, **changes)


def plot_keys(at: AppTest) -> set[str]:
    return {str(one.key) for one in at.get("plotly_chart")}


def test_without_a_run_it_says_how_to_try_it(open_page: Open) -> None:
    at = open_page("fleet")
    assert at.title[0].value == "Fleet"
    assert first_use.TRY in [one.value for one in at.code]
    assert not at.get("plotly_chart")


def test_without_the_extra_it_says_how_to_install_it(
    open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_use, "EXTRA", "no_such_module_anywhere")
    at = open_page("fleet")
    assert first_use.INSTALL in [one.value for one in at.code]


def test_a_comparison_shows_regrets_and_the_configuration_for_all_hosts(open_page: Open) -> None:
    made.keep(two_hosts())
    at = open_page("fleet")
    assert lines(at, "One configuration for all hosts", "graph BASIC", "9.1 %", "h1")
    assert "check_circle" in icons(at)
    assert plot_keys(at) == {"fleet.q1.regrets"}
    worst = at.dataframe[0].value
    assert list(worst["Configuration"]) == ["graph BASIC", "ORT default", "threads 1"]
    assert worst["Choice"].iloc[0] == "chosen"
    assert {"fleet.yaml", "fleet.report"} <= keys(at)


def test_a_search_shows_the_speed_up_of_each_host(open_page: Open) -> None:
    documents = {"h1": made.searched(THREADS), "h2": made.searched(None, outcome="NO_DIFFERENCE")}
    made.keep(made.run(documents, command="search"))
    at = open_page("fleet")
    assert lines(at, "1 of 2 hosts")
    assert plot_keys(at) == {"fleet.q1.gains"}
    best = at.dataframe[0].value
    assert list(best["Host"]) == ["h1", "h2"]
    assert list(best["Best configuration"]) == ["threads 1", "ORT default"]


def test_a_link_opens_an_older_run_and_an_unknown_one_is_an_error(open_page: Open) -> None:
    made.keep(replace(two_hosts(name="old"), id="20261126-00000001", created_at=1.7e9))
    made.keep(two_hosts(name="new"))
    at = open_page("fleet", run="20261126-00000001")
    assert at.session_state["fleet.shown"] == "20261126-00000001"
    wrong = open_page("fleet", run="20260101-ffffffff")
    assert tells(wrong.error[0].value, "20260101-ffffffff")


def test_costs_kinds_and_disagreements_have_their_tables(open_page: Open) -> None:
    hosts = [made.host("h1", "k", price=1.0), made.host("h2", "k", price=3.0)]
    made.keep(two_hosts(hosts=hosts))
    at = open_page("fleet")
    assert lines(at, "The cheapest host", "h1")
    assert lines(at, "Hosts of one kind", "disagree", "threads 1")
    for group in ("fleet.q1.kinds", "fleet.q1.all", "fleet.hosts"):
        at.session_state[group] = True
    at.run()
    columns = {column for one in at.dataframe for column in one.value.columns}
    assert {"Spread between machines", "Per million", "Regret", "Memory (MiB)"} <= columns
    assert lines(at, "known only roughly")


def test_a_failed_host_is_named_with_its_reason_and_its_log(
    open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"type": "WorkerError", "message": "The disk is full.", "hint": ""}
    failed = made.answered("h2", None, state="FAIL", error=error)
    run = made.keep(made.run({"h1": made.compared(SURE), "h2": failed}, state="FAIL"))
    asked: list[tuple[str, str]] = []

    def log(ref: str, host: str) -> str:
        asked.append((ref, host))
        return "last line"

    monkeypatch.setattr(fleet, "logs", log)
    at = open_page("fleet")
    assert lines(at, "h2", "The disk is full.")
    at.button(key="fleet.log.show").click().run()
    assert asked == [(run.id, "h2")]
    assert "last line" in [one.value for one in at.code]


def test_a_name_of_a_host_cannot_become_markup(open_page: Open) -> None:
    name = "**h** [x](http://x) :red[y]"
    failed = made.answered(
        name, None, state="LOST", error={"type": "WorkerError", "message": name, "hint": ""}
    )
    made.keep(made.run({name: failed, "h1": made.compared(SURE)}, state="INCOMPLETE"))
    at = open_page("fleet")
    told = [one.value for one in at.caption if "h1" not in one.value and "\\[x\\]" in one.value]
    assert told
    assert all("[x](" not in one for one in told)


# --- while it runs ------------------------------------------------------------------------------------------


def running(*ended: str) -> FleetRun:
    """A run of three hosts; those that ended have their answers."""
    answers = {
        name: made.answered(name, made.compared(SURE))
        if name in ended
        else made.answered(
            name, None, state="RUNNING", progress=AnswerProgress(stage="rounds", text=f"rounds on {name}")
        )
        for name in ("h1", "h2", "h3")
    }
    return made.run(answers, state="RUNNING")


def test_a_running_run_shows_the_progress_of_each_host(open_page: Open) -> None:
    run = made.keep(running("h1"))
    at = open_page("fleet")
    assert lines(at, "rounds on h2")
    assert "fleet.cancel" in keys(at)
    found = progress.event(run.id, run.phase, drawn=1)
    assert found["share"] == pytest.approx(1 / 3)
    assert found["text"] == "1 of 3 answers"


def test_the_page_is_drawn_again_when_an_answer_comes_in(open_page: Open) -> None:
    run = made.keep(running("h1"))
    assert progress.event(run.id, run.phase, drawn=0) == live_events.ENDED
    assert progress.event(run.id, "portability", drawn=1) == live_events.ENDED
    assert progress.event("20260101-ffffffff", run.phase, drawn=0) == live_events.ENDED


def test_a_host_that_does_not_reply_says_so() -> None:
    gone = replace(running(), id="20261127-00000002")
    answers = [replace(one, unreachable_since=1.0) if one.host == "h2" else one for one in gone.answers]
    made.keep(replace(gone, answers=answers))
    told = [one["text"] for one in progress.event("20261127-00000002", "ask", drawn=0)["lines"]]
    assert "h2: does not reply" in told


@pytest.mark.parametrize(("choice", "expected"), [(progress.ALL_HOSTS, None), ("h2", "h2")])
def test_cancelling_ends_one_host_or_all(
    choice: str, expected: str | None, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made.keep(running("h1"))
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(fleet, "cancel", lambda ref, host=None: asked.append((ref, host)))
    at = open_page("fleet")
    at.selectbox(key=progress.HOST).set_value(choice).run()
    at.button(key="fleet.cancel").click().run()
    assert asked == [(run.id, expected)]


def test_a_cancellation_is_recorded(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made.keep(running("h1"))
    monkeypatch.setattr(fleet, "_at_fleet_of", lambda run, work: [])
    at = open_page("fleet")
    at.selectbox(key=progress.HOST).set_value("h2").run()
    at.button(key="fleet.cancel").click().run()
    [line] = [one for one in audit.entries(action="change") if one.more.get("kind") == "fleet"]
    assert line.more["ids"] == [run.id]
    assert tells(line.what, run.name, "h2")


def test_a_refused_cancellation_is_an_error_on_the_page(
    open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(ref: str, host: str | None = None) -> None:
        raise WorkerError("The fleet does not reply.", hint="Try again.")

    made.keep(running("h1"))
    monkeypatch.setattr(fleet, "cancel", refuse)
    at = open_page("fleet")
    at.button(key="fleet.cancel").click().run()
    assert tells(at.error[0].value, "The fleet does not reply.", "Try again.")


def test_a_run_with_missing_answers_says_how_to_collect_them(open_page: Open) -> None:
    lost = made.answered("h2", None, state="LOST")
    run = made.keep(made.run({"h1": made.compared(SURE), "h2": lost}, state="INCOMPLETE"))
    at = open_page("fleet")
    assert lines(at, f"ortune fleet resume {run.id}")


# --- asking -------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the page asks; each question becomes a running run."""
    found: list[dict[str, Any]] = []

    def ask(questions: list[fleet.Asked], *, on_change: Any, **how: Any) -> FleetRun:
        found.append({"asked": questions[0], **how})
        kept = made.keep(running())
        on_change(kept)
        return kept

    monkeypatch.setattr(fleet, "ask", ask)
    return found


def test_a_search_is_asked_of_the_named_hosts(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]
) -> None:
    at = open_page("fleet", model=mlp)
    at.text_input(key=asking.HOSTS).set_value("cpu=epyc").run()
    at.toggle(key=asking.PORTABILITY).set_value(True).run()
    at.button(key="fleet.ask.start").click().run()
    assert not at.exception
    [one] = asked
    assert (one["on"], one["portability"], one["scheduler"]) == ("cpu=epyc", True, None)
    assert one["asked"] == fleet.Asked(command="search", model=mlp.path, arguments=["--budget=60"])
    assert at.session_state["fleet.shown"] == running().id
    assert lines(at, "rounds on h2")


def test_presets_are_compared(open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]) -> None:
    at = open_page("fleet", model=mlp)
    command: Any = at.get_by_key(asking.COMMAND)
    command.set_value(asking.COMPARE).run()
    at.multiselect(key=asking.CANDIDATES).set_value(["cpu-latency"]).run()
    at.button(key="fleet.ask.start").click().run()
    [one] = asked
    assert one["asked"].arguments == ["--candidate=preset:cpu-latency", "--budget=60"]
    assert one["portability"] is False


def test_what_a_fleet_refuses_is_an_error_on_the_page(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SpecError("No host has the label `cpu=epyc`.", hint="Choose another one.")

    monkeypatch.setattr(fleet, "ask", refuse)
    at = open_page("fleet", model=mlp)
    at.button(key="fleet.ask.start").click().run()
    assert tells(at.error[0].value, "No host has the label", "Choose another one.")


def test_the_end_of_the_server_cancels_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    def ask(questions: Any, *, on_change: Any, control: fleet.Control, **how: Any) -> None:
        on_change(running())
        while not control.is_cancelled("h1"):
            time.sleep(0.01)
        cancelled.set()

    monkeypatch.setattr(fleet, "ask", ask)
    client = state.fleet_client()
    question = fleet.Asked(command="search", model="m")
    assert client.start(state.session(), question, on="all", portability=False) == running().id
    state.close()
    assert cancelled.is_set()


# --- files --------------------------------------------------------------------------------------------------


def test_the_archive_holds_a_yaml_for_each_host_and_one_for_all() -> None:
    found = archive.content(summarize(two_hosts()))
    with zipfile.ZipFile(io.BytesIO(found)) as packed:
        assert packed.namelist() == ["h1.yaml", "h2.yaml", "all-hosts.yaml"]
        specs = {name: spec_from_yaml(packed.read(name).decode()) for name in packed.namelist()}
    assert specs["h1.yaml"].session.intra_op_num_threads == 1
    assert specs["h2.yaml"].session.graph_optimization_level == "ORT_ENABLE_BASIC"
    assert specs["all-hosts.yaml"].session == specs["h2.yaml"].session


def test_two_hundred_hosts_are_aggregated_before_they_are_drawn(open_page: Open) -> None:
    documents = {f"h{number:03}": made.compared(SURE if number % 2 else OTHER) for number in range(200)}
    hosts = [made.host(name, f"kind {number % 3}") for number, name in enumerate(documents)]
    made.keep(made.run(documents, hosts=hosts))
    at = open_page("fleet")
    figure = at.get("plotly_chart")[0].proto.spec
    assert "66 hosts" in figure
    assert "h199" not in figure
    assert tells(texts(at), "200 hosts") or lines(at, "One configuration")
