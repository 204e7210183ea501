"""Events that show a running job on a page: without a server, a browser or a clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.process.machine_queue import Entry
from core.run import live
from core.run.job import WAITING_IDLE, Status
from core.run.sweep import NEW
from dashboard import live_events
from tests import builders
from tests.reading import numbers, tells
from tests.unit.test_live_text import CONTRAST, FIELD, LIVE

COMPARISON = builders.comparison({"a": "candidate", "b": "anchor"}, state="RUNNING")


def running(**changes: Any) -> Status:
    facts: dict[str, Any] = {
        "id": "a", "kind": "measure", "state": "RUNNING", "what": "measure mlp", "stage": "rounds",
        "done": 9, "total": 32, "elapsed_s": 12.3, "live": LIVE,
    }  # fmt: skip
    return Status(**(facts | changes))


# --- one job ------------------------------------------------------------------------------------------------


def test_a_job_has_a_share_and_its_step_until_it_ends() -> None:
    event = live_events.of_job(running(live=None), "this job", name="export", more=" · 2 more to do")
    assert (event["ended"], event["state"], event["share"]) == (False, "measuring", 0.281)
    assert tells(event["text"], "export: rounds", "2 more to do")
    assert numbers(event["text"]) == [9, 32, 12, 2]
    for over in (None, running(state="COMPLETE"), running(state="FAIL"), running(state="CANCELLED")):
        assert live_events.of_job(over, "this job") == live_events.ENDED


def test_an_event_does_not_change_within_a_second_while_nothing_happens() -> None:
    found = [live_events.of_job(running(elapsed_s=elapsed), "this job") for elapsed in (11.6, 12.4, 12.6)]
    assert found[0] == found[1] != found[2]


def test_a_job_that_waits_says_for_whom() -> None:
    event = live_events.of_job(running(state="WAITING", holder="ann: a_race", place=2), "this job")
    assert (event["state"], event["share"]) == ("waiting", 0.0)
    assert tells(event["text"], "ann: a_race")  # plain text, nothing escaped
    quiet = live_events.of_job(running(state="WAITING", stage=WAITING_IDLE, text="busy"), "this job")
    assert tells(quiet["text"], "busy")


# --- comparisons --------------------------------------------------------------------------------------------


def test_a_trial_shows_how_its_ratio_went_once_it_has_changed() -> None:
    course = [(1.0, 1.3, 1.1, 1.5), (2.0, 1.31, 1.28, 1.34)]
    for known, pictures in ((course[:1], 1), (course, 2)):
        event = live_events.of_trial(running(live=LIVE | {"course": {"a": known}}), FIELD, 0.02)
        assert len(event["pictures"]) == pictures
    assert event["pictures"][1]["wide"]
    assert tells(event["pictures"][1]["alt"], "ORT default")


def test_a_trial_shows_its_ratio_in_words_and_as_an_interval() -> None:
    event = live_events.of_trial(running(), FIELD, 0.02)
    assert event["ratio"] == "1.31× faster so far, 95 % CI [1.28, 1.34]"
    [line] = event["lines"]
    assert tells(line["text"], event["ratio"].replace(" so far", " than ORT default so far"))
    [picture] = event["pictures"]
    assert picture["kind"] == "forest"
    assert (picture["margin"], picture["hollow"]) == (0.02, False)
    assert picture["rows"] == [{"label": "this trial", "short": "", "ratio": 1.31, "low": 1.28, "high": 1.34}]
    assert tells(picture["alt"], "1.31×", "ORT default")
    assert numbers(event["text"])[0] == 12, "the line below counts the rounds"
    json.dumps(event)


def test_nothing_is_drawn_before_something_is_known() -> None:
    loading = live_events.of_trial(running(live=None, stage="load"), FIELD, 0.02)
    assert not {"lines", "ratio", "pictures"} & set(loading)
    early = {**CONTRAST, "ratio": None, "ratio_low": None, "ratio_high": None}
    event = live_events.of_trial(running(live=LIVE | {"contrasts": [early]}), FIELD, 0.02)
    assert event["pictures"] == []
    assert numbers(event["ratio"]) == []


def test_a_comparison_shows_every_interval_with_its_p50_and_every_failure() -> None:
    event = live_events.of_comparison(
        running(), COMPARISON, FIELD, margin=0.02, failed={"a": "Killed by `SIGSEGV`."}
    )
    [picture] = event["pictures"]
    assert tells(picture["rows"][0]["label"], "threads 1", "0.8120 ms")
    assert tells(event["caption"], "ORT default", "1.064 ms")
    assert numbers(event["text"])[:3] == [3, 9, 32]
    assert tells(event["lines"][0]["text"], "threads 1", "`SIGSEGV`")
    json.dumps(event)


def test_a_comparison_of_too_many_is_progress_alone_and_one_that_waits_too() -> None:
    many = [{**CONTRAST, "candidate": str(n)} for n in range(live_events.MAX_LIVE_POINTS + 1)]
    event = live_events.of_comparison(
        running(live=LIVE | {"contrasts": many}), COMPARISON, FIELD, margin=0.02, failed={}
    )
    assert "pictures" not in event
    waits = live_events.of_comparison(running(state="WAITING"), COMPARISON, FIELD, margin=0.02, failed={})
    assert waits["state"] == "waiting"
    assert "pictures" not in waits


def test_a_sweep_adds_its_points_so_far() -> None:
    comparison = live_events.of_comparison(running(), COMPARISON, FIELD, margin=0.02, failed={})
    points = [
        builders.point({"batch_size": n}, state=NEW, batch_size=n, latency=known)
        for n, known in ((1, {"p50_s": 0.002}), (8, None))
    ]
    event = live_events.add_points(comparison, points, ["batch_size"])
    assert [one["kind"] for one in event["pictures"]] == ["forest", "plot", "plot"]
    assert numbers(event["lines"][-1]["text"])[:2] == [1, 2]
    nothing = [builders.with_result(one, latency=None) for one in points]
    assert live_events.add_points(comparison, nothing, ["batch_size"]) == comparison


# --- the queue ----------------------------------------------------------------------------------------------


def entry(**changes: Any) -> Entry:
    facts: dict[str, Any] = {
        "ticket": "1",
        "owner": "ann",
        "what": "a race",
        "since": 0.0,
        "running": True,
        "pid": 1,
    }
    return Entry(**(facts | changes))


@pytest.mark.parametrize(
    ("own", "icon"), [("WAITING", "hourglass_empty"), ("RUNNING", "speed"), ("FAIL", "error")]
)
def test_what_a_visitor_started_comes_first(own: Any, icon: str) -> None:
    event = live_events.of_queue(running(state=own), [], [])
    assert event["lines"][0]["icon"] == icon
    assert event["lines"][1]["text"] == "measure mlp"
    assert bool(event["more"]) == (own == "FAIL"), "the machine is free, unless theirs is on it"


def test_others_are_told_in_their_order() -> None:
    event = live_events.of_queue(None, [entry(), entry(running=False, what="another")], [])
    assert event["lines"] == []
    assert [one["icon"] for one in event["more"] if "icon" in one] == ["speed", "hourglass_empty"]
    assert tells(str(event["more"]), "a race", "another", "ann")
    assert live_events.of_queue(None, [], [running()])["more"][1]["text"] == "measure mlp"


# --- estimates ----------------------------------------------------------------------------------------------


def estimate(told: dict[str, Any], *, is_default: bool = False, **changes: Any) -> live_events.Event:
    status = running(kind="live", **changes)
    return live_events.of_estimate(status, told, "k", is_default=is_default, margin=0.02)


def told(**changes: Any) -> dict[str, Any]:
    point = {"key": "k", "label": "one", "p50_s": 0.001, "rows_per_s": 1000.0}
    contrast = {**CONTRAST, "candidate": live.WISH, "baseline": live.DEFAULT}
    return {**point, "contrasts": [contrast], "launches": 5, "trail": [point], **changes}


def test_an_estimate_is_hollow_and_told_in_the_bar_as_one() -> None:
    event = estimate(told())
    assert tells(event["lines"][0]["text"], "1.31×", "1.000 ms")
    assert event["ratio"].startswith("estimate: 1.31× faster")
    assert [one["hollow"] for one in event["pictures"] if one["kind"] == "forest"] == [True]
    json.dumps(event)


def test_an_estimate_of_other_settings_is_not_shown() -> None:
    event = estimate(told(key="other"))
    assert event["state"] == "waiting"
    assert "ratio" not in event
    assert event["pictures"] == []
    behind = estimate({}, state="WAITING", holder="ann: a race")
    assert tells(behind["lines"][0]["text"], "ann: a race")


def test_estimates_that_have_ended_say_why() -> None:
    rests = live_events.of_estimate(None, {}, "k", is_default=False, margin=0.02)
    assert rests["ended"]
    assert rests["lines"]
    error = {"type": "WorkerError", "message": "It crashed.", "hint": "Use fewer."}
    failed = estimate({}, state="FAIL", error=error)
    assert failed["ended"]
    assert tells(failed["lines"][0]["text"], "It crashed.", "Use fewer.")
    assert tells(estimate(told(error=error))["lines"][0]["text"], "It crashed.")
    assert numbers(estimate(told(contrasts=[]), is_default=True)["lines"][0]["text"]) == []


def test_the_last_estimate_stays_with_its_age_when_live_rests() -> None:
    ended = running(kind="live", state="COMPLETE")
    how: dict[str, Any] = {"is_default": False, "margin": 0.02, "age_s": 185.0}
    rests = live_events.of_estimate(ended, told(), "k", **how)
    assert rests["ended"]
    assert [one["age_s"] for one in rests["lines"] if tells(one["text"], "1.31×")] == [185.0]
    assert [one["kind"] for one in rests["pictures"]] == ["forest"]
    assert rests["ratio"] == ""  # the bar shows only measured values
    trail = [{**told()["trail"][0], "key": key} for key in ("other", "k")]
    other = live_events.of_estimate(ended, told(key="other", trail=trail), "k", **how)
    assert len(other["lines"]) == 1
    assert [one["kind"] for one in other["pictures"]] == ["plot"], "the trail stays for other settings"
