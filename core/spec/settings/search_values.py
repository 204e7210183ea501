"""The values of a setting that a search tries, for a model and a machine. Pure; the search space uses it.

A row of the table without a rule of its own uses `values_by_kind`: a new setting is searched automatically.
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
    """Facts of the model and the machine that a search has before it begins."""

    threads: int = 1  # that this process may use, at least 1
    providers: tuple[tuple[str, ...], ...] = (("CPUExecutionProvider",),)  # chains that load here
    any_batch: bool = False  # the model takes any batch size, and the objective is per sample
    streams: bool = False  # the objective is throughput, which several callers at the same time may raise
    memory: bool = False  # the question includes memory
    devices: tuple[str, ...] = ()  # of OpenVINO that exist here
    runtimes: tuple[str, ...] = ()  # that may vary; empty: all configurations keep theirs


ValueRule = Callable[[Setting, Place], tuple[Any, ...]]  # includes the default unless it is None


def values_by_kind(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Both values of a switch or every choice; empty for kinds without natural values."""
    if getattr(setting, "target", "") not in CHANGES_A_SESSION:
        return ()
    return both_values(setting, place) if setting.kind == "bool" else setting.choices


def runtimes_of_place(setting: Setting, place: Place) -> tuple[Any, ...]:
    """The runtimes among which the user lets the search choose."""
    return place.runtimes


def no_values(setting: Setting, place: Place) -> tuple[Any, ...]:
    """No values: the setting is not tried, because its purpose is neither speed nor size."""
    return ()


def both_values(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Both values of a switch, its default first."""
    return (setting.default, not setting.default)


def fixed_values(*values: Any) -> ValueRule:
    """The same values for every model and machine."""
    return lambda setting, place: values


def if_memory(*values: Any) -> ValueRule:
    """Values that save memory and cost time: tried where the question includes memory."""
    return lambda setting, place: values if place.memory else ()


def threads(setting: Setting, place: Place) -> tuple[Any, ...]:
    """ONNX Runtime's choice, one, and doubling up to the usable threads."""
    return (0, *doubling(1, place.threads))


def inter_threads(setting: Setting, place: Place) -> tuple[Any, ...]:
    """ONNX Runtime's choice, and doubling from two: one thread across operators is no parallel run."""
    return (0, *doubling(2, place.threads))


def batch_sizes(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Doubling up to 32, where the batch size may vary."""
    return doubling(1, MOST_BATCH) if place.any_batch else ()


def stream_counts(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Doubling up to the usable threads, where the objective is throughput."""
    return doubling(1, place.threads) if place.streams else ()


def stream_types(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Every type of stream, where several may run."""
    return setting.choices if place.streams and place.threads > 1 else ()


def openvino_streams(setting: Setting, place: Place) -> tuple[Any, ...]:
    """OpenVINO's choice, and doubling up to the usable threads, where the objective is throughput."""
    return (None, *doubling(1, place.threads)) if place.streams else ()


def openvino_threads(setting: Setting, place: Place) -> tuple[Any, ...]:
    """OpenVINO's choice, and doubling up to the usable threads."""
    return (None, *doubling(1, place.threads))


def devices(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Every device of OpenVINO that exists here."""
    return place.devices if len(place.devices) > 1 else ()


def loadable_chains(setting: Setting, place: Place) -> tuple[Any, ...]:
    """Every chain of providers that loads here."""
    return place.providers if len(place.providers) > 1 else ()


def doubling(low: int, high: int) -> tuple[int, ...]:
    """Return `low`, twice that, and so on, and `high` itself."""
    found, value = [], low
    while value < high:
        found.append(value)
        value *= 2
    return (*found, high) if high >= low else ()
