"""Slider stops of a setting, for a model and a machine.

Pure. Any other value can be typed.

The stop None leaves the setting unset. A row of the table without a rule has no slider.
"""

from __future__ import annotations

from typing import Any

from core.spec.setting_type import Setting
from core.spec.settings.search_values import Place, ValueRule, doubling

EACH_UP_TO = 8  # threads: every number up to here, doubling beyond
MOST_BATCH = 1024
IMAGE_SIDES = (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640)
MOST_LENGTH = 4096


def no_stops(setting: Setting, place: Place) -> tuple[Any, ...]:
    """No slider."""
    return ()


def stops_at(*values: Any) -> ValueRule:
    """The same stops for every model and machine."""
    return lambda setting, place: values


def thread_stops(setting: Setting, place: Place) -> tuple[int | None, ...]:
    """ONNX Runtime's choice, counts up to the usable threads, and two and four times as many."""
    usable = place.threads
    within = range(1, usable + 1) if usable <= EACH_UP_TO else doubling(1, usable)
    return (None, *within, 2 * usable, 4 * usable)


def batch_stops(setting: Setting, place: Place) -> tuple[int, ...]:
    """Doubling."""
    return doubling(1, MOST_BATCH)


def stream_stops(setting: Setting, place: Place) -> tuple[int, ...]:
    """Doubling up to twice the usable threads."""
    return tuple(sorted({*doubling(1, place.threads), 2 * place.threads}))


def dim_stops(*, is_image_side: bool) -> tuple[int, ...]:
    """Sizes that image models take, or lengths, doubling."""
    return IMAGE_SIDES if is_image_side else doubling(1, MOST_LENGTH)
