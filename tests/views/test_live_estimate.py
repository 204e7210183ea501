"""Live on the Tune page, and its sliders: the display, the requests, the values that a slider writes."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.api import live
from core.evidence.verdict import Verdict
from core.run.live import LEAST_LAUNCHES
from core.spec import TrialSpec
from core.store import ModelRecord
from dashboard import state
from dashboard.views.tune import live_estimate
from tests.reading import numbers, tells
from tests.views import sample_results
from tests.views.page import Jobs, Open, click, followed, icons, lines, status, streamed_lines, texts, widget

CONTRAST = {
    "candidate": live.WISH,
    "baseline": live.DEFAULT,
    "label": "one thread",
    "ratio": 1.32,
    "ratio_low": 1.2,
    "ratio_high": 1.45,
    "verdict": "FASTER",
}


ME = "a visitor"


def told(spec: TrialSpec, **changes: Any) -> dict[str, Any]:
    """`Status.live` of a live measurement that has shown a request of this visitor."""
    point = {"key": spec.key(), "label": "one thread", "p50_s": 1e-3, "rows_per_s": 1000.0, "ratio": 1.32}
    facts = {"state": "shown", "contrasts": [CONTRAST], "launches": 5, "trail": [point]}
    facts |= {"model": spec.model.sha256}
    return {"told": {ME: {**point, **facts, **changes}}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[live.LiveRequest]:
    """What pages wish; nothing runs."""
    wishes: list[live.LiveRequest] = []

    def job(box: live.LiveRequests, first: live.LiveRequest, **facts: Any) -> str:
        wishes.append(first)
        return f"live-{len(wishes)}"

    monkeypatch.setattr(live, "job", job)
    monkeypatch.setattr(state.scheduler(), "submit", lambda job: job)
    monkeypatch.setattr(live.LiveRequests, "put", lambda self, wish: wishes.append(wish) or True)
    return wishes


def estimate(at: AppTest) -> str:
    """What the estimate says; a first visit has a recorded result beside it."""
    return "\n".join(streamed_lines(followed(at, "glimpse.watch")))


def switch_on(at: AppTest) -> AppTest:
    at.session_state[live_estimate.VISITOR] = ME
    return at.toggle(key=live_estimate.ON).set_value(True).run()


# --- live -----------------------------------------------------------------------------------------------


def test_nothing_is_wished_until_live_is_on(
    open_page: Open, mlp: ModelRecord, asked: list[live.LiveRequest], jobs: Jobs
) -> None:
    at = open_page(model=mlp)
    assert asked == []
    at = switch_on(at)
    assert not at.exception
    assert [one.spec.key() for one in asked] == [sample_results.spec_for(mlp).key()]


def test_a_moved_slider_is_requested_once_and_its_estimate_is_called_one(
    open_page: Open, mlp: ModelRecord, asked: list[live.LiveRequest], jobs: Jobs
) -> None:
    wanted = sample_results.spec_for(mlp, intra_op_num_threads=1)
    jobs(status("live-1", kind="live", live=told(wanted)))
    at = switch_on(open_page(model=mlp))
    at.select_slider(key="slide.knob.intra_op_num_threads").set_value("1").run()
    assert not at.exception
    assert at.session_state["knob.intra_op_num_threads"] == 1
    assert [one.spec.key() for one in asked][-1] == wanted.key()
    number = len(asked)
    assert lines(at, ":material/bolt:", "1.32×", Verdict.FASTER.word, "[1.20, 1.45]")
    assert any(numbers(one)[:1] == [5] for one in texts(at).splitlines())
    at.run()
    assert len(asked) == number


def test_the_defaults_against_themselves_are_said_to_be_that(
    open_page: Open, mlp: ModelRecord, asked: list[live.LiveRequest], jobs: Jobs
) -> None:
    jobs(status("live-1", kind="live", live=told(sample_results.spec_for(mlp), contrasts=[])))
    said = estimate(switch_on(open_page(model=mlp)))
    assert ":material/bolt:" in said
    assert "Estimate:" not in said
    assert "×" not in said


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (None, None, "speed against ONNX Runtime's default: measuring…"),
        (0.96, 1.06, "undecided so far against ONNX Runtime's default: between 0.96× and 1.06×"),
        (0.2, 5.0, "speed against ONNX Runtime's default: not known yet"),
    ],
)
def test_there_is_no_direction_before_the_interval_has_one(
    open_page: Open,
    mlp: ModelRecord,
    asked: list[live.LiveRequest],
    jobs: Jobs,
    low: float | None,
    high: float | None,
    expected: str,
) -> None:
    wanted = sample_results.spec_for(mlp, intra_op_num_threads=1)
    ratio = None if low is None else 1.01
    contrast = {**CONTRAST, "ratio": ratio, "ratio_low": low, "ratio_high": high, "verdict": "UNDECIDED"}
    now = told(wanted, state="races", contrasts=[contrast], launches=2, trail=[])
    jobs(status("live-1", kind="live", live=now))
    at = switch_on(open_page(model=mlp))
    at.select_slider(key="slide.knob.intra_op_num_threads").set_value("1").run()
    said = estimate(at)
    assert expected in said
    assert "× faster" not in said
    assert "× slower" not in said
    assert "p50" not in "".join(lines(at, ":material/bolt:"))
    assert bool(followed(at, "glimpse.watch")["pictures"]) == (expected.startswith("undecided"))
    assert any(numbers(one) == [2, LEAST_LAUNCHES] for one in texts(at).splitlines()) == (low is None)


def test_a_model_slower_than_a_row_a_second_is_not_shown_as_none(
    open_page: Open, mlp: ModelRecord, asked: list[live.LiveRequest], jobs: Jobs
) -> None:
    wanted = sample_results.spec_for(mlp, intra_op_num_threads=1)
    point = {"key": wanted.key(), "label": "one thread", "p50_s": 4.4, "rows_per_s": 0.2273}
    jobs(status("live-1", kind="live", live=told(wanted, trail=[point])))
    at = switch_on(open_page(model=mlp))
    at.select_slider(key="slide.knob.intra_op_num_threads").set_value("1").run()
    assert lines(at, "4,400 ms", "0.2273 samples/s")


def test_an_earlier_result_is_shown_instead_of_an_estimate(
    open_page: Open, mlp: ModelRecord, asked: list[live.LiveRequest], jobs: Jobs
) -> None:
    known = sample_results.put_run(state.store(), mlp, fingerprint=state.environment()["fingerprint"])
    at = switch_on(open_page(model=mlp))
    assert not at.exception
    assert "verified" in icons(at)
    assert asked == []
    click(at, "glimpse.known")
    assert at.query_params["trial"] == known.id


def test_the_trail_stays_when_a_slider_comes_to_a_result_from_before(
    open_page: Open, mlp: ModelRecord, asked: list[live.LiveRequest], jobs: Jobs
) -> None:
    sample_results.put_run(state.store(), mlp, fingerprint=state.environment()["fingerprint"])
    points = [{"key": key, "label": key, "p50_s": 1e-3, "rows_per_s": 1000.0} for key in ("a", "b")]
    moved = sample_results.spec_for(mlp, intra_op_num_threads=1)
    jobs(status("live-1", kind="live", live=told(moved, trail=points, model=moved.model.sha256)))
    at = switch_on(open_page(model=mlp))
    at.select_slider(key="slide.knob.intra_op_num_threads").set_value("1").run()
    at.select_slider(key="slide.knob.intra_op_num_threads").set_value("auto").run()
    assert not at.exception
    assert "verified" in icons(at)
    assert len(followed(at, "glimpse.trail")["pictures"]) == 1


def test_settings_that_cannot_be_used_are_not_wished(
    open_page: Open, mlp: ModelRecord, asked: list[live.LiveRequest], jobs: Jobs
) -> None:
    at = open_page(model=mlp)
    widget(at, "intra_op_num_threads").set_value(1_000_000).run()
    at = switch_on(at)
    assert lines(at, ":material/bolt:")
    assert asked == []


def test_what_a_wish_failed_of_is_said(
    open_page: Open, mlp: ModelRecord, asked: list[live.LiveRequest], jobs: Jobs
) -> None:
    error = {"type": "WorkerError", "message": "Killed by SIGSEGV.", "hint": "Use fewer settings."}
    failed = told(sample_results.spec_for(mlp), state="failed", contrasts=[], error=error)
    jobs(status("live-1", kind="live", live=failed))
    at = switch_on(open_page(model=mlp))
    at.run()
    assert tells(texts(at), "SIGSEGV", "fewer settings")


def test_switching_it_off_leaves_and_a_comparison_that_rests_says_so(
    open_page: Open,
    mlp: ModelRecord,
    asked: list[live.LiveRequest],
    jobs: Jobs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[str] = []
    monkeypatch.setattr(live.LiveRequests, "leave", lambda self, visitor: left.append(visitor))
    jobs(status("live-1", kind="live", state="COMPLETE"))
    at = switch_on(open_page(model=mlp))
    assert lines(at, ":material/bolt:")
    at.toggle(key=live_estimate.ON).set_value(False).run()
    assert left == [ME]
    assert not lines(at, ":material/bolt:")


def test_an_estimate_and_its_trail_stay_gray_with_their_age_when_live_rests(
    open_page: Open,
    mlp: ModelRecord,
    asked: list[live.LiveRequest],
    jobs: Jobs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = sample_results.spec_for(mlp, intra_op_num_threads=1)
    points = [{"key": key, "label": key, "p50_s": 1e-3, "rows_per_s": 1000.0} for key in ("a", wanted.key())]
    jobs(status("live-1", kind="live", live=told(wanted, trail=points)))
    at = switch_on(open_page(model=mlp))
    at.select_slider(key="slide.knob.intra_op_num_threads").set_value("1").run()
    before = followed(at, "glimpse.watch")
    assert before["state"] == "measuring"
    jobs(status("live-1", kind="live", state="COMPLETE"))  # its last numbers went with it
    later = time.monotonic() + 200
    monkeypatch.setattr(live_estimate, "time", SimpleNamespace(monotonic=lambda: later))
    rests = followed(at.run(), "glimpse.watch")
    assert rests["state"] == "ended", "the component draws this state in gray"
    assert rests["pictures"] == before["pictures"]
    [age_s] = [one["age_s"] for one in rests["lines"] if "age_s" in one]
    assert age_s == pytest.approx(200, abs=20)


# --- sliders --------------------------------------------------------------------------------------------


def test_a_slider_stops_where_this_machine_does_and_beyond(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    usable = state.environment()["cpu"]["usable"]
    slider = at.select_slider(key="slide.knob.intra_op_num_threads")
    stops = [int(one) for one in slider.options[1:]]
    assert slider.options[0].startswith("auto")
    assert {1, usable, 2 * usable} <= set(stops)
    assert stops == sorted(stops)


def test_a_typed_number_moves_the_slider_and_the_slider_the_number(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    widget(at, "batch_size").set_value(5).run()
    assert at.select_slider(key="slide.knob.batch_size").value == "5"  # no stop, and shown all the same
    at.select_slider(key="slide.knob.batch_size").set_value("16").run()
    assert widget(at, "batch_size").value == 16
    assert "5" not in at.select_slider(key="slide.knob.batch_size").options
    widget(at, "intra_op_num_threads").set_value(2).run()
    at.select_slider(key="slide.knob.intra_op_num_threads").set_value("auto").run()
    assert widget(at, "intra_op_num_threads").value is None
