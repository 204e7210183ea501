"""Slider stops of a setting, for a model and a machine.

Pure; any other value can be typed beside.

None is the stop at which nothing is asked for. A row of the table that says nothing has no slider.
"""

from __future__ import annotations

from typing import Any

from core.spec.setting_type import Setting
from core.spec.settings.search_values import Place, Worth, doubling

EACH_UP_TO = 8  # threads: every number up to here, doubling beyond
MOST_BATCH = 1024
IMAGE_SIDES = (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640)
MOST_LENGTH = 4096


def no_stops(setting: Setting, place: Place) -> tuple[Any, ...]:
    """No slider."""
    return ()


def stops_at(*values: Any) -> Worth:
    """The same stops everywhere."""
    return lambda setting, place: values


def thread_stops(setting: Setting, place: Place) -> tuple[int | None, ...]:
    """ONNX Runtime's choice, what this machine may use, and twice and four times as many beyond."""
    usable = place.threads
    within = range(1, usable + 1) if usable <= EACH_UP_TO else doubling(1, usable)
    return (None, *within, 2 * usable, 4 * usable)


def batch_stops(setting: Setting, place: Place) -> tuple[int, ...]:
    """Doubling."""
    return doubling(1, MOST_BATCH)


def dim_stops(*, is_image_side: bool) -> tuple[int, ...]:
    """Sizes that image models take, or lengths, doubling."""
    return IMAGE_SIDES if is_image_side else doubling(1, MOST_LENGTH)
