"""Recorded demonstrations: read-only stores with results of another machine.

A file in the folder of the store names the day and the machine. Every page and report with a number of such
a store must show these facts.
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
        """Return the sentence for pages and reports."""
        cpu = self.environment["cpu"]
        return f"Recorded on {self.on} on {cpu['model']} with {cpu['usable']} CPUs, not measured here."


def recording(folder: Path) -> Recording | None:
    """Return the recording of a store's folder; None: the store is not a recorded one."""
    try:
        data: Any = json.loads((folder / MARK_FILE).read_text(encoding="utf-8"))
        return Recording(on=str(data["on"]), environment=data["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def words_of(folder: Path) -> str:
    """Return the sentence of a recording; empty: the store is not a recorded one."""
    found = recording(folder)
    return "" if found is None else found.words


def refuse_measuring(folder: Path) -> None:
    """Refuse measurements into a recorded store.

    Raises:
        SpecError: the store is a recorded one.
    """
    if (found := recording(folder)) is not None:
        raise SpecError(
            f"Nothing is measured in this demonstration. {found.words}",
            hint="Start ORTune without the demonstration to measure on this machine.",
        )
