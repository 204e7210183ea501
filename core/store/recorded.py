"""A folder of results that were recorded elsewhere, to be shown: nothing is measured in it.

A file beside the store says so, and on which machine it was; whoever shows a number of such a store says it,
too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import wire
from core.wire.errors import SpecError

MARK_FILE = "recorded.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """When and where the results of a store were measured."""

    on: str  # day, "2026-11-23"
    environment: wire.Environment

    @property
    def words(self) -> str:
        """Say it in a sentence, as it stands on every page and in every report."""
        cpu = self.environment["cpu"]
        return f"Recorded on {self.on} on {cpu['model']} with {cpu['usable']} CPUs, not measured here."


def recording(folder: Path) -> Recording | None:
    """Return what the mark in the folder of a store says; None: there is none, its results are its own."""
    try:
        data: Any = json.loads((folder / MARK_FILE).read_text(encoding="utf-8"))
        return Recording(on=str(data["on"]), environment=data["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def words_of(folder: Path) -> str:
    """Return the words of a recording; empty: the folder holds none."""
    found = recording(folder)
    return "" if found is None else found.words


def refuse_measuring(folder: Path) -> None:
    """Refuse to measure among recorded results.

    Raises:
        SpecError: they are.
    """
    if (found := recording(folder)) is not None:
        raise SpecError(
            f"Nothing is measured in this demonstration. {found.words}",
            hint="Start ORTune without `--demo` to measure on this machine.",
        )
