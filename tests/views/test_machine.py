"""The Machine page: what the machine is, what loads, its self-tests over time, and the test it offers."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core import wire
from core.run import comparison
from core.run.job import Status
from core.run.launches import budget
from core.show import verdict
from core.show.sheets import models_and_machines
from core.wire.errors import WorkerError
from core.wire.runtime import OWN
from core.wire.variables import SANDBOX
from dashboard import session_jobs, state
from dashboard.charts import machine_charts
from tests import builders
from tests.reading import numbers, tells
from tests.views import sample_results
from tests.views.page import (
    Jobs,
    Open,
    click,
    facts,
    followed,
    icons,
    lines,
    place,
    status,
    streamed_lines,
    table,
    texts,
)


def self_test(**changes: Any) -> dict[str, Any]:
    """A self-test as the scheduler keeps it."""
    facts = {
        "when": "alone",
        "ratio": 1.004,
        "ratio_low": 0.996,
        "ratio_high": 1.012,
        "sigma": 0.02,
        "sigma_between": 0.004,
        "half_width": 0.008,
        "rounds": 54,
        "generations": 9,
        "seconds_per_generation": 0.6,
        "rounds_per_generation": 6.0,
        "model": "digits_cnn",
        "grade": "A",
        "grade_reason": "Two copies of the same configuration came out at 1.004×, ±0.8 %.",
        "remedy": "",
        "busy": None,
    }
    return facts | changes


OLDER: dict[str, Any] = {
    "sigma_between": None,
    "generations": None,
    "seconds_per_generation": None,
    "rounds_per_generation": None,
    "seconds_per_round": 0.09,
}


def put(machine: wire.Environment, at: float = 1_000_000.0, **changes: Any) -> None:
    state.store().put_self_test(machine["fingerprint"], self_test(**changes), at=at)


# --- what the machine is ------------------------------------------------------------------------------------


def test_the_page_says_what_the_machine_is_and_what_loads(open_page: Open, machine: wire.Environment) -> None:
    at = open_page("machine")
    assert at.title[0].value == "Machine"
    assert machine["fingerprint"] in [one.value for one in at.code]
    rows = facts(at)
    assert rows["Processor"].startswith(machine["cpu"]["model"])
    assert numbers(rows["Container"])[:2] == [len(machine["cpu"]["allowed"]), machine["cpu"]["logical"]]
    assert f"numpy {machine['libraries']['numpy']}" in rows["Libraries"]
    providers = table(at, "Provider")
    assert providers["Loads"].tolist() == ["yes" if one["loadable"] else "no" for one in machine["providers"]]
    columns = [providers[name].tolist() for name in providers]
    assert [one["reason"] for one in machine["providers"]] in columns
    assert [one["remedy"].replace("`", "") for one in machine["providers"]] in columns


def test_threads_that_may_not_run_are_said(
    open_page: Open, machine: wire.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = machine["cpu"] | {"ort_default_threads": 16, "physical": 16, "usable": 2, "quota": 2.0}
    monkeypatch.setitem(state.scheduler()._environments, OWN, machine | {"cpu": cpu})
    at = open_page("machine")
    [advice] = [one.value for one in at.warning if one.icon == ":material/account_tree:"]
    assert numbers(advice)[:2] == [16, 2]
    assert tells(advice, "intra_op_num_threads", " 2")


def test_a_machine_that_cannot_be_described_is_an_error_with_a_hint(
    open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> wire.Environment:
        raise WorkerError("The worker was killed.", hint="Try again.")

    monkeypatch.setattr(state, "environment", fail)
    at = open_page("machine")
    assert any("killed" in one.value for one in at.error)
    assert not at.exception


def test_a_gpu_is_described_with_its_driver() -> None:
    gpu = {"name": "NVIDIA T4", "memory_bytes": 16 << 30, "driver": "550.1", "cuda": "12.4"}
    own = {"gpus": [gpu], "variables": {"ORT_X": "1"}, "libraries": {"onnxruntime-gpu": "1.31.1"}}
    facts: Any = builders.MACHINE | own
    rows = {one.name: one.text for one in models_and_machines.machine_facts(facts)}
    assert tells(rows["GPU"], gpu["name"], "16.0 GiB", gpu["driver"], gpu["cuda"])
    assert rows["variables"] == "ORT_X=1"
    without = models_and_machines.machine_facts(facts | {"gpus": [], "variables": {}})
    assert next(one.text for one in without if one.name == "GPU").startswith("none")


# --- noise --------------------------------------------------------------------------------------------------


def test_without_a_self_test_the_page_offers_one(open_page: Open) -> None:
    at = open_page("machine")
    assert ":material/monitor_heart:" in [one.icon for one in at.info]
    assert not at.button(key="machine.run").disabled
    assert not at.get("plotly_chart")


def test_the_newest_answer_is_shown_with_what_each_precision_needs(
    open_page: Open, machine: wire.Environment
) -> None:
    put(machine, 1_000_000.0, grade="F", grade_reason="It was loud.", remedy="Stop it.")
    put(machine, 2_000_000.0)
    put(machine, 3_000_000.0, when="during", grade="C", grade_reason="")
    at = open_page("machine")
    assert "passed (±0.8 %)" in " ".join(one.value for one in at.subheader)
    assert lines(at, "1.004×", "±0.8 %")
    assert "loud" not in texts(at)
    assert lines(at, "±2 %", "±0.4 %")
    needs = table(at, "Effort")
    assert needs["Effort"].tolist() == ["quick", "standard", "publish"]
    assert needs["Launches"].tolist() == sorted(needs["Launches"])
    assert ["yes"] * 3 in [needs[name].tolist() for name in needs]
    assert len(at.get("plotly_chart")) == 1


def test_a_busy_machine_is_not_quiet_enough_and_says_who(open_page: Open, machine: wire.Environment) -> None:
    put(machine, busy=builders.busy_machine())
    at = open_page("machine")
    assert lines(at, builders.BUSY)
    assert at.subheader[0].value.startswith(":material/do_not_disturb_on:")


def test_a_self_test_of_an_earlier_version_is_shown(open_page: Open, machine: wire.Environment) -> None:
    put(machine, **OLDER)
    put(machine, 3_000_000.0, when="before", **OLDER)
    at = open_page("machine")
    assert lines(at, "±2 %.")
    assert not [one for one in at.dataframe if "Effort" in one.value]
    drawn = at.get("plotly_chart")[0].proto.spec
    assert machine_charts.WHEN["before"] in drawn


def test_a_rejected_self_test_says_why_and_what_to_do(open_page: Open, machine: wire.Environment) -> None:
    reason = "A neighbour used 0.9 cores during 61 % of the blocks."
    remedy = "Stop the other programs."
    put(machine, grade="F", grade_reason=reason, remedy=remedy)
    at = open_page("machine")
    said = texts(at)
    assert place(at, "subheader") < place(at, "plotly_chart") < place(at, "markdown", reason)
    assert tells(said, remedy)


def test_self_tests_of_another_machine_are_not_shown(open_page: Open) -> None:
    state.store().put_self_test("another", self_test(), at=1.0)
    assert ":material/monitor_heart:" in [one.icon for one in open_page("machine").info]


def test_a_running_self_test_is_found_again_by_every_session(open_page: Open, jobs: Jobs) -> None:
    cancelled = jobs(status(kind="self-test", stage="self-test", done=12, total=48, elapsed_s=2.0))
    at = open_page("machine")
    assert [12, 48, 2.0] in [numbers(followed(at, "machine.watch")["text"])]
    assert at.button(key="machine.run").disabled
    click(at, "machine.cancel")
    assert cancelled == ["job"]


def test_a_waiting_self_test_says_who_has_the_machine(open_page: Open, jobs: Jobs) -> None:
    jobs(status(kind="self-test", state="WAITING", place=2, holder="command line of ada: measure vit"))
    said = followed(open_page("machine"), "machine.watch")["text"]
    assert "ada" in said
    assert numbers(said) == [2]


def test_a_self_test_that_failed_is_told_once(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    service = state.scheduler()
    error: Any = {"type": "WorkerError", "message": "The worker was killed.", "hint": "Free memory."}
    failed = Status(id="job", kind="self-test", state="FAIL", what="self-test", error=error)
    monkeypatch.setattr(service, "submit", lambda _: "job")
    monkeypatch.setattr(service, "status", lambda job: failed)
    at = open_page("machine")
    at.button(key="machine.run").click().run()
    assert any("killed" in one.value for one in at.error)
    at.run()
    assert not at.error


def test_the_test_really_runs_and_leaves_an_answer(
    open_page: Open, machine: wire.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "SELF_TEST", replace(comparison.SELF_TEST, budget_s=4))
    monkeypatch.setattr(budget, "GRACE_S", 60.0)  # a slow machine may overrun it, instead of being refused
    at = open_page("machine")
    at.button(key="machine.run").click().run()
    assert not at.exception
    assert state.scheduler().join(120)
    at.run()
    assert not at.error
    kept = state.store().self_tests(machine["fingerprint"])
    assert [one["when"] for one in kept] == ["alone"]
    assert kept[0]["at"] <= time.time()
    assert len(at.get("plotly_chart")) == 1
    assert f"Grade {kept[0]['grade']}" in texts(at)


# --- the chart ----------------------------------------------------------------------------------------------


def test_the_history_is_drawn_in_the_order_of_time_and_marks_what_leaves_0_out() -> None:
    tests = [
        self_test(at=3.0, ratio=1.02, ratio_low=1.01, ratio_high=1.03),
        self_test(at=1.0, ratio=0.99, ratio_low=0.97, ratio_high=1.01),
        self_test(at=2.0, ratio=1.0, ratio_low=None, ratio_high=None, grade=None),
        self_test(at=4.0, ratio=None, rounds=0),
    ]
    info = machine_charts.history_info(tests)
    agrees, differs = info.points
    assert agrees.percent == pytest.approx([-1.0, 0.0])
    assert agrees.low == [pytest.approx(-3.0), None]
    assert differs.percent == pytest.approx([2.0])
    assert (differs.low, differs.high) == ([pytest.approx(1.0)], [pytest.approx(3.0)])
    assert agrees.at[0] < agrees.at[1] < differs.at[0]
    assert info.reach > 3.0
    assert info.beyond == 0
    assert "[" not in agrees.hover[1]
    assert "interval" in agrees.hover[1]
    assert tells(differs.hover[0], " A")
    assert tells(differs.hover[0], verdict.rounds_words(tests[0]))


def test_a_test_within_a_comparison_says_so() -> None:
    during, before = (
        self_test(at=1.0, when=when, **more) for when, more in (("during", {}), ("before", OLDER))
    )
    said = machine_charts.history_info([during, before]).points[0].hover
    assert machine_charts.WHEN["during"] in said[0]
    assert machine_charts.WHEN["before"] in said[1]
    assert "generations" not in said[1]


def test_a_wild_self_test_does_not_flatten_the_others() -> None:
    tests = [self_test(at=1.0), self_test(at=2.0, ratio=1.6, ratio_low=0.5, ratio_high=2.0)]
    info = machine_charts.history_info(tests)
    assert info.reach == machine_charts.MOST
    assert info.beyond == 1


def test_the_two_kinds_differ_by_more_than_colour() -> None:
    tests = [self_test(at=1.0), self_test(at=2.0, ratio=1.02, ratio_low=1.01, ratio_high=1.03)]
    figure = machine_charts.history(machine_charts.history_info(tests))
    assert len({one.marker.symbol for one in figure.data}) == 2
    assert len({one.marker.color for one in figure.data}) == 2
    assert [one.text for one in figure.layout.annotations] == ["A: ±1 %", "B: ±3 %"]


# --- the sidebar ------------------------------------------------------------------------------------------


def sidebar(at: AppTest) -> str:
    """What this session has started, and then the others."""
    own, others = followed(at, "queue.own"), followed(at, "queue.others")
    return "\n".join(streamed_lines({"lines": own.get("lines", []), "more": others["more"]}))


@pytest.mark.parametrize("how", ["off", "on"])
def test_the_sidebar_says_that_workers_have_no_sandbox(
    open_page: Open, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv(SANDBOX, how)
    assert ("without a sandbox" in texts(open_page("history"))) is (how == "off")


def test_the_sidebar_follows_what_this_session_has_started_on_every_page(open_page: Open, jobs: Jobs) -> None:
    job = status(what="measure mlp", stage="rounds", done=3, total=9)
    jobs(job)
    at = open_page("history")
    at.session_state[session_jobs.OWN] = {"id": "job", "page": "tune", "query": {"trial": "job"}}
    at.run()
    assert not at.exception
    assert ":material/speed:" in sidebar(at)
    assert job.what in sidebar(at)
    assert any(numbers(line) == [30] for line in sidebar(at).splitlines())  # per cent
    assert "bedtime" not in sidebar(at)
    jobs(replace(job, state="COMPLETE"))
    at.run()
    assert ":material/check_circle:" in sidebar(at)
    assert "bedtime" in sidebar(at)


def test_work_of_others_that_has_no_ticket_yet_is_not_called_nothing(open_page: Open, jobs: Jobs) -> None:
    waiting = status(state="WAITING", what="measure mlp")
    jobs(waiting)
    at = open_page("history")
    assert "bedtime" not in sidebar(at)
    assert waiting.what in sidebar(at)


def test_the_peaks_are_shown_with_how_sure_they_are(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    at = open_page("machine")
    assert "roofing" in icons(at)
    times = {
        "threads": 2,
        "operations": 2_000_000_000,
        "product_ns": [20_000_000 + 100_000 * (k % 7) for k in range(40)],
        "moved_bytes": 500_000_000,
        "copy_ns": [50_000_000 + 100_000 * (k % 5) for k in range(40)],
    }
    found = {"times": [{**times, "threads": 1}, times], "cache_bytes": 32 << 20, "at": 1e9}
    state.store().put_peaks(state.environment()["fingerprint"], found)
    at = open_page("machine")
    shown = table(at, "Computes (Gop/s)")
    assert list(shown["Threads"]) == [1, 2]
    assert all(" to " in one for one in shown["95 % interval"])
    assert any(numbers(line)[:2] == [2, 1] for line in texts(at).splitlines())
    assert lines(at, "32.0 MiB")
    sample_results.queue(monkeypatch, "peaks", lambda threads: "job")
    click(at, "machine.peaks")
    assert not at.exception
