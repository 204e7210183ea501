"""How often a session looks again at what is measured: who started it, and all the others together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.run.job import Status
from dashboard import following, polling, state
from tests.views.page import status


class _Server:
    """A server whose sessions are there, but for one."""

    def is_active_session(self, session: str) -> bool:
        return session != "gone"


@pytest.fixture
def racing() -> Status:
    ratio = {"candidate": "a", "baseline": "b", "ratio": 1.3}
    return replace(status("race", stage="rounds"), live={"rounds": 1, "contrasts": [ratio]})


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Ids of the sessions of this server; this one has started nothing."""
    known: set[str] = {"this", "gone"}
    monkeypatch.setattr(state, "_sessions", lambda: known)
    monkeypatch.setattr(state, "own_job", lambda: None)
    monkeypatch.setattr(state.runtime, "exists", lambda: True)
    monkeypatch.setattr(state.runtime, "get_instance", _Server)
    return known


def test_who_looks_alone_sees_the_first_ratio_at_once(sessions: set[str], racing: Status) -> None:
    assert state.look_s(replace(racing, live=None)) == polling.FIRST_S
    assert state.look_s(racing) == state.look_s(None) == polling.RACE_S
    assert sessions == {"this"}


def test_four_who_started_nothing_look_as_often_as_one(sessions: set[str], racing: Status) -> None:
    sessions |= {"that started it", "second", "third", "fourth"}
    for now in (racing, replace(racing, live=None), None):
        assert state.look_s(now) == 4 * polling.RACE_S
    sessions |= {str(number) for number in range(20)}
    assert state.look_s(racing) == polling.MOST_SHARING * polling.RACE_S


def test_who_started_it_looks_as_if_alone(
    sessions: set[str], racing: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions |= {"second", "third", "fourth", "fifth"}
    monkeypatch.setattr(state, "own_job", lambda: (racing, "views/tune/page.py", {}))
    assert state.look_s(racing) == polling.RACE_S
    done = replace(racing, state="COMPLETE")
    monkeypatch.setattr(state, "own_job", lambda: (done, "views/tune/page.py", {}))
    assert state.look_s(racing) == 4 * polling.RACE_S


def test_followers_are_told_that_a_measurement_began_and_ended() -> None:
    found = following.Presentations()
    token = found.begin("one")
    versions = []
    for measuring in (False, True, True, False):
        found.tell(token, "tune", {}, {}, measuring=measuring)
        place = found.find(token)
        assert place is not None
        versions.append(place.version)
    assert versions[0] < versions[1] == versions[2] < versions[3]
