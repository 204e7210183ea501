"""Which values of a setting are worth trying on a model and a machine. Pure; read by the search's space.

A row of the table that says nothing is tried by its kind, so that a new row takes part by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.spec.setting_type import Setting

CHANGES_A_SESSION = ("attribute", "config_entry", "run_entry")
MOST_BATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a search knows of the model and the machine before it begins."""

    threads: int = 1  # that this process may use, at least 1
    providers: tuple[tuple[str, ...], ...] = (("CPUExecutionProvider",),)  # chains that really load
    any_batch: bool = False  # the model takes any number of rows, and the question is about one row
    memory: bool = False  # the question is about memory, too


Worth = Callable[[Setting, Place], tuple[Any, ...]]  # the default is among them where it is no None


def by_kind(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Both values of a switch and every choice; nothing of what has no natural values."""
    if getattr(setting, "target", "") not in CHANGES_A_SESSION:
        return ()
    return both(setting, place) if setting.kind == "bool" else setting.choices


def nothing(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Not worth trying: it answers another question than how fast or large a model is."""
    return ()


def both(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Both values of a switch, its default first."""
    return (setting.default, not setting.default)


def these(*values: Any) -> Worth:
    """The same values everywhere."""
    return lambda setting, place: values


def if_memory(*values: Any) -> Worth:
    """Values that save memory and cost time: worth trying where the question is about memory."""
    return lambda setting, place: values if place.memory else ()


def threads(setting: Setting, place: Place) -> tuple[Any, ...]:
    """ONNX Runtime's choice, one, and doubling up to what may be used."""
    return (0, *doubling(1, place.threads))


def inter_threads(setting: Setting, place: Place) -> tuple[Any, ...]:
    """ONNX Runtime's choice, and doubling from two: one thread across operators is no parallel run."""
    return (0, *doubling(2, place.threads))


def batches(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Doubling up to 32, where rows may be fed together."""
    return doubling(1, MOST_BATCH) if place.any_batch else ()


def loadable(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Every chain of providers that loads here."""
    return place.providers if len(place.providers) > 1 else ()


def doubling(low: int, high: int) -> tuple[int, ...]:
    """Return `low`, twice that, and so on, and `high` itself."""
    found, value = [], low
    while value < high:
        found.append(value)
        value *= 2
    return (*found, high) if high >= low else ()
