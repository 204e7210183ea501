"""Where sliders stop: within what a setting takes, in order, and with a way back to its default."""

from __future__ import annotations

import pytest

from core.spec.settings import SETTINGS, Place, trial_setting
from core.spec.settings.slider_stops import dim_stops

PLACES = [Place(threads=n) for n in (1, 2, 6, 8, 12, 64)]
SLIDERS = [one.name for one in SETTINGS if one.slider_stops(one, PLACES[0])]


def test_what_has_a_scale_has_a_slider() -> None:
    assert {"intra_op_num_threads", "inter_op_num_threads", "batch_size"} <= set(SLIDERS)
    assert {"session.intra_op.spin_duration_us", "session.dynamic_block_base"} <= set(SLIDERS)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SLIDERS)
def test_every_stop_is_a_value_of_its_setting(name: str, place: Place) -> None:
    setting = trial_setting(name)
    stops = setting.slider_stops(setting, place)
    numbers = [one for one in stops if one is not None]
    assert setting.kind == "int"
    assert numbers == sorted(set(numbers))
    assert None not in stops[1:]
    assert stops[0] is None or setting.default in stops
    assert setting.low is not None
    assert setting.high is not None
    assert all(setting.low <= one <= setting.high for one in numbers)


@pytest.mark.parametrize("place", PLACES)
def test_threads_stop_at_what_may_be_used_and_beyond(place: Place) -> None:
    setting = trial_setting("intra_op_num_threads")
    stops = setting.slider_stops(setting, place)
    assert {1, place.threads, 2 * place.threads, 4 * place.threads} <= set(stops)
    if place.threads <= 8:
        assert set(range(1, place.threads + 1)) <= set(stops)


def test_image_sides_and_lengths_have_stops_of_their_own() -> None:
    assert {224, 384} <= set(dim_stops(is_image_side=True))
    assert {1, 128, 4096} <= set(dim_stops(is_image_side=False))
