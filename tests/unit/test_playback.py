"""What was told of a job, played back: the frame of each second, the end, and files that tell nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from core.run.job import Status
from dashboard import live_events
from dashboard.live_events import Event
from dashboard.widgets import playback
from tests.unit.test_live_events import running


def shown(status: Status, now: float) -> Event:
    return {"ended": False, "share": now, "text": status.stage}


TOLD = [playback.RecordedStatus(at_s, 100 + at_s, running(stage=f"at {at_s}")) for at_s in (0.0, 1.5, 4.0)]


@pytest.mark.parametrize(
    ("at_s", "number"), [(-1.0, 0), (0.0, 0), (1.4, 0), (1.5, 1), (3.99, 1)], ids=lambda value: f"{value}"
)
def test_each_second_shows_what_was_told_last_by_then(at_s: float, number: int) -> None:
    event = playback.event(TOLD, shown, at_s)
    assert event["share"] == TOLD[number].now
    assert event["text"].endswith(TOLD[number].status.stage)
    assert event["text"] != TOLD[number].status.stage  # that it is no measurement of now is said


def test_it_ends_with_the_last_that_was_told() -> None:
    assert playback.event(TOLD, shown, 4.0) == playback.event(TOLD, shown, 60.0) == live_events.ENDED


def test_a_file_is_read_whole_and_one_that_is_damaged_tells_nothing(tmp_path: Path) -> None:
    rows = [{"at_s": one.at_s, "now": one.now, "status": asdict(one.status)} for one in TOLD]
    path = tmp_path / "told.json"
    path.write_text(json.dumps(rows))
    assert playback.read(path) == tuple(TOLD)
    for text in ("", "[", "{}", '[{"at_s": 1}]', '[{"at_s": 1, "now": 2, "status": {"other": 1}}]', "[1]"):
        path.write_text(text)
        assert playback.read(path) == ()
    assert playback.read(tmp_path / "none.json") == ()
