"""Phrases on results: counts, sizes and states. Pure; numbers and times by `format`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from core.run.sizes import Size, Source
from core.show.format import duration
from core.wire.errors import INTERRUPTED


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


ANOTHER_PERSON = "another person"  # of a private job, to others


def start_words(starts_in_s: float | None, *, basis: bool = True) -> str:
    """Return when a queued job starts: "starts in about 3 min, predicted from earlier runs".

    Args:
        starts_in_s: predicted seconds; None: unknown.
        basis: say what the prediction is from, or why there is none; False: where words are few.
    """
    if starts_in_s is None:
        return "start unknown" + (": a job ahead of it has no prediction" if basis else "")
    predicted = ", predicted from earlier runs" if basis else " (predicted)"
    if starts_in_s < 10:
        return f"starts in a few seconds{predicted}"
    coarse_s = 10 * round(starts_in_s / 10) if starts_in_s < 60 else 60 * round(starts_in_s / 60)
    return f"starts in about {duration(float(coarse_s))}{predicted}"
