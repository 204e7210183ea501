"""Everything an export needs about a trial: its model, lineage and search.

It is read from the store here, so that `show/export`, which writes the files, stays pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.load.load_result import best_batching
from core.evidence.measurement import Trial
from core.evidence.result_types import ModelFacts
from core.run.named_files import open_folders
from core.run.search import search_provenance
from core.run.variants import original, steps_of
from core.spec.load import BatchingSpec
from core.spec.steps import Step
from core.store import ModelRecord, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSource:
    """A trial, and the known facts of its model."""

    trial: Trial
    info: wire.ModelInfo | None = None  # None: the model was not inspected
    facts: ModelFacts | None = None  # for a trial without a result that holds them
    found: Mapping[str, Any] | None = None  # facts of the search that found it
    steps: tuple[Step, ...] = ()  # from `original` to the model
    original: str = ""  # path of the original; empty where the model is no variant
    whole: bool = False  # YAML with all settings, results, machine and absolute paths
    folders: tuple[Path, ...] = ()  # files inside them are named by relative paths


def export_source_of(store: Store, trial: Trial) -> ExportSource:
    """Return a trial with the facts that the store holds of its model.

    A load test that looked for the best dynamic batching has it in its configuration.
    """
    trial = with_best_batching(trial)
    record = store.model(trial.model_sha256) if trial.model_sha256 else None
    return ExportSource(
        trial=trial,
        info=record.info if record is not None else _inspected_facts(store, trial),
        found=search_provenance(store, trial),
        folders=tuple(open_folders()),
        **_lineage(store, record),
    )


def with_best_batching(trial: Trial) -> Trial:
    """Return a load test that looked for the best dynamic batching with it in its configuration."""
    load: Any = trial.facts.get("load")
    best: Any = None if load is None else best_batching(load["batching"])
    if best is None:
        return trial
    batching = {name: best[name] for name in BatchingSpec.model_fields if best[name]}
    return replace(trial, spec={**trial.spec, "dynamic_batching": batching})


def source_of_settings(
    store: Store, trial: Trial, record: ModelRecord | None, facts: ModelFacts | None
) -> ExportSource:
    """Return settings that were not measured yet, with the facts of their model."""
    info = record.info if record is not None else None
    folders = tuple(open_folders())
    return ExportSource(trial=trial, info=info, facts=facts, folders=folders, **_lineage(store, record))


def _lineage(store: Store, record: ModelRecord | None) -> dict[str, Any]:
    steps = tuple(steps_of(record)) if record is not None else ()
    root = original(store, record) if record is not None and steps else None
    return {"steps": steps, "original": root.path if root is not None else ""}


def _inspected_facts(store: Store, trial: Trial) -> wire.ModelInfo | None:
    """The facts of a file outside the library, where they belong to the content that ran."""
    path = str(Path(trial.spec["model"]["path"]).absolute())
    cached = store.cached_info(path)
    return cached[1] if cached is not None and cached[1]["content_sha256"] == trial.model_sha256 else None
