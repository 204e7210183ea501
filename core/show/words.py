"""Phrases on results for sheets and exports: counts, times, sizes and settings. Pure; numbers by `format`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from core.evidence.measurement import Trial
from core.run.sizes import Size, Source
from core.spec import TrialSpec, changed, requested_value, spec_from_dict
from core.wire.errors import INTERRUPTED, SpecError
from core.wire.units import DASH, span_ms


def when(epoch_s: float | None) -> str:
    """Return a time stamp as local time."""
    if epoch_s is None:
        return DASH
    return datetime.fromtimestamp(epoch_s, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def short_time(epoch_s: float) -> str:
    """Return a short time stamp: without the year, or without the time if it is long ago."""
    recent = time.time() - epoch_s < 300 * 86_400
    return when(epoch_s)[5:] if recent else when(epoch_s)[:10]


def value_text(value: object) -> str:
    """Return the value of a setting as readable text."""
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, tuple):
        return "→".join(map(str, value))
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def counted(number: int | None, noun: str) -> str:
    """Return "1 row", "2 rows"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


SOURCE_WORDS: Mapping[Source, str] = {
    "others": "as in the other configuration",
    "sum": "sum",
    "last run": "as in the last run",
    "file": "from the model's metadata",
    "names": "usual for",
    "guess": "assumed",
}


def sizes_words(sizes: Mapping[str, Size]) -> str:
    """Return sizes and their sources: "past=0, as in the last run; seq=128, usual for input_ids"."""
    by_source: dict[str, list[str]] = {}
    for dim, one in sizes.items():
        by_source.setdefault(source_words(one), []).append(f"{dim}={one.size}")
    return "; ".join(f"{', '.join(found)}, {source}" for source, found in by_source.items())


def source_words(one: Size) -> str:
    """Return where a size is from: "as in the last run", "from the model's metadata (imgsz 640 × 640)"."""
    if one.source == "file":
        return f"{SOURCE_WORDS['file']} ({one.why})"
    return f"{SOURCE_WORDS[one.source]} {one.why}".rstrip()


STATE_WORDS: Mapping[str, str] = {  # of trials and comparisons
    "WAITING": "waiting",
    "RUNNING": "running",
    "COMPLETE": "complete",
    "FAIL": "failed",
    "CANCELLED": "cancelled",
    "DAMAGED": "damaged",
}


OTHER_VERSION = "settings of another version"


class HasEnding(Protocol):
    """The common fields of trials and searches on how they ended."""

    @property
    def state(self) -> str: ...  # noqa: D102

    @property
    def error(self) -> Mapping[str, Any] | None: ...  # noqa: D102


def state_words(one: HasEnding) -> str:
    """Return the state of a trial or a search; if its process vanished, it was interrupted, not failed."""
    if one.state == "FAIL" and one.error is not None and one.error["message"].endswith(INTERRUPTED):
        return "interrupted"
    return STATE_WORDS.get(one.state, one.state.lower())


def changes_text(trial: Trial) -> str:
    """Return the non-default settings of a trial; empty: none."""
    try:
        return ", ".join(_changes(spec_from_dict(trial.spec)))
    except SpecError:
        return OTHER_VERSION


def changes_of(spec: TrialSpec) -> dict[str, str]:
    """Return the non-default settings of `spec` as text, including provider options."""
    names = [name for name in changed(spec) if name != "provider_options"]
    options = {f"{p.name}.{k}": v for p in spec.session.providers for k, v in p.options.items()}
    return {name: value_text(requested_value(spec, name)) for name in names} | options


def _changes(spec: TrialSpec) -> list[str]:
    return [f"{name}={value}" for name, value in changes_of(spec).items()]


def interval(low: float | None, high: float | None) -> str:
    """Return an interval in milliseconds without the unit, which the value has."""
    if low is None and high is None:
        return "unknown: too few runs"
    return span_ms(low, high, unit="")
