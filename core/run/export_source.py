"""Everything an export needs about a trial: its model, lineage and search.

Gathered here from the store, so that what writes files (`show/emit`) stays pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.measurement import Trial
from core.evidence.result_types import ModelFacts
from core.run.named_files import open_folders
from core.run.search import found_by
from core.run.variants import original, steps_of
from core.spec.steps import Step
from core.store import ModelRecord, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A trial, and what is known of its model."""

    trial: Trial
    info: wire.ModelInfo | None = None  # None: nobody has looked at the model
    facts: ModelFacts | None = None  # of a model whose trial has no result that says so
    found: Mapping[str, Any] | None = None  # how a search found it
    steps: tuple[Step, ...] = ()  # that made the model from `original`
    original: str = ""  # path of the original; empty where the model is none's variant
    whole: bool = False  # YAML holds all settings, what was measured and where, and absolute paths
    folders: tuple[Path, ...] = ()  # from which files are named that are in them


def leaving(store: Store, trial: Trial) -> Leaving:
    """Return what the store knows of a trial and its model."""
    record = store.model(trial.model_sha256) if trial.model_sha256 else None
    return Leaving(
        trial=trial,
        info=record.info if record is not None else _seen(store, trial),
        found=found_by(store, trial),
        folders=tuple(open_folders()),
        **_making(store, record),
    )


def unmeasured(store: Store, trial: Trial, record: ModelRecord | None, facts: ModelFacts | None) -> Leaving:
    """Return what is known of settings that nobody measured yet."""
    info = record.info if record is not None else None
    folders = tuple(open_folders())
    return Leaving(trial=trial, info=info, facts=facts, folders=folders, **_making(store, record))


def _making(store: Store, record: ModelRecord | None) -> dict[str, Any]:
    steps = tuple(steps_of(record)) if record is not None else ()
    root = original(store, record) if record is not None and steps else None
    return {"steps": steps, "original": root.path if root is not None else ""}


def _seen(store: Store, trial: Trial) -> wire.ModelInfo | None:
    """The facts of a file that is no model of the library, where they are of the bytes that ran."""
    path = str(Path(trial.spec["model"]["path"]).absolute())
    cached = store.cached_info(path)
    return cached[1] if cached is not None and cached[1]["content_sha256"] == trial.model_sha256 else None
