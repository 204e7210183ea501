"""What a callback wrote into another widget outlives what the browser sent before it was told."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from core.store import ModelRecord
from dashboard import fields, moves
from tests.views.page import Open, click, unfolded, widget


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(moves.time, "monotonic", lambda: clock[0])
    return clock


def slide(at: AppTest, value: str) -> AppTest:
    return at.select_slider(key="slide.knob.batch_size").set_value(value).run()


def send(at: AppTest, value: int) -> int:
    """A request in which the field still, or again, shows `value`; what it shows then."""
    widget(at, "batch_size").set_value(value).run()
    return int(widget(at, "batch_size").value)


def test_a_late_request_does_not_take_a_move_back(
    open_page: Open, mlp: ModelRecord, now: list[float]
) -> None:
    at = slide(open_page(model=mlp), "2")
    assert widget(at, "batch_size").value == 2
    assert send(at, 1) == 2
    at = slide(at, "4")
    assert [send(at, late) for late in (1, 2)] == [4, 4]
    assert at.select_slider(key="slide.knob.batch_size").value == "4"


def test_what_a_person_types_counts(open_page: Open, mlp: ModelRecord, now: list[float]) -> None:
    at = slide(open_page(model=mlp), "2")
    assert send(at, 5) == 5  # at once, because no late request holds it
    at = slide(at, "2")
    now[0] += moves.LATE_S + 0.1
    assert send(at, 1) == 1


def test_a_late_request_does_not_take_a_reset_back(
    open_page: Open, mlp: ModelRecord, now: list[float]
) -> None:
    at = unfolded(open_page(model=mlp))
    at.selectbox(key="knob.enable_mem_pattern").set_value(fields.OFF).run()
    click(at, "reset.all")
    assert at.selectbox(key="knob.enable_mem_pattern").value == fields.DEFAULT
    at.selectbox(key="knob.enable_mem_pattern").set_value(fields.OFF).run()
    assert at.selectbox(key="knob.enable_mem_pattern").value == fields.DEFAULT
    now[0] += moves.LATE_S + 0.1
    at.selectbox(key="knob.enable_mem_pattern").set_value(fields.OFF).run()
    assert at.selectbox(key="knob.enable_mem_pattern").value == fields.OFF
