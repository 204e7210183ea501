"""The demonstration: ORTune with recorded comparisons, so that it needs no idle machine.

The recording is part of the package. It is unpacked into a temporary home, which is removed with the server.
Its mark (`core.store.recorded`) makes every page and report state the origin of the numbers, and disables
measuring.
"""

from __future__ import annotations

import functools
import json
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from core.api.judging import key_of
from core.api.variants import variant_of
from core.evidence.verdict import Grade, Verdict, is_rejected
from core.show import setting_chips, verdict
from core.spec import spec_from_dict
from core.store import STORE_NAME, ModelRecord, Store
from core.store.recorded import words_of
from core.wire.errors import StoreError, TunerError

RECORDED = Path(__file__).with_name("recorded.tar.xz")
EXAMPLE = Path(__file__).with_name("example.json")  # written by docs/demo.py
PREFIX = "ortune-demo-"
MODELS = "models"  # folder of a home: variants that were created for the recording
PLAYBACK = "playback"  # recorded statuses of running jobs, a file each


_DRAWN = ("candidate", "baseline", "ratio", "ratio_low", "ratio_high", "verdict", "rounds", "grade", "holds")


class Example(TypedDict):
    """A recorded result for the first visit, when unpacking the recording would take too long."""

    model: str
    settings: str  # that differ from the baseline's
    sentence: str
    icon: str
    against: str
    baseline: str  # name of the baseline
    contrast: dict[str, Any]  # keys of a stored contrast that the chart needs
    margin: float  # of equivalence
    origin: str  # day and machine


@functools.cache
def example() -> Example:
    """Return the result of the first visit."""
    found: Example = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return found


def example_from(store: Store, model: str) -> Example:
    """Return the result of a sample model with the largest speed-up as an example.

    Args:
        store: the recorded results.
        model: name of the sample model.
    """
    trial, comparison, contrast = max(
        (
            (trial, comparison, contrast)
            for trial in store.trials(kind="measure")
            if trial.model_name == model and trial.facts["contrasts"]
            for comparison in [store.comparison(trial.comparison)]
            for contrast in verdict.contrasts_of(comparison, trial.id)
            if contrast["verdict"] == Verdict.FASTER and contrast.get("holds")
        ),
        key=lambda found: found[2]["ratio_low"],
    )
    said = verdict.card(comparison, contrast)
    return Example(
        model=model,
        settings=setting_chips.short_changes(trial),
        sentence=said.headline,
        icon=said.icon,
        against=said.against,
        baseline=verdict.label(comparison, contrast["baseline"]),
        contrast={name: contrast[name] for name in _DRAWN if name in contrast},
        margin=float(comparison.protocol["margin"]),
        origin=words_of(store.folder),
    )


def unpack() -> Path:
    """Unpack the recording and return the new home; `remove` deletes it.

    Raises:
        StoreError: it is missing or damaged, or the temporary folder is full.
    """
    home = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with tarfile.open(RECORDED) as archive:
            archive.extractall(home, filter="data")
        store = Store(home / STORE_NAME)
        _find_scores_again(store)
        _find_models_again(store, home)
        for one in home.rglob("*"):
            one.chmod(0o700 if one.is_dir() else 0o600)
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
        remove(home)
        raise StoreError(
            f"The recorded comparisons cannot be unpacked: {error}.",
            hint="Install ORTune again, or free some disk.",
        ) from error
    return home


def opening(store: Store) -> str | None:
    """Return the id of the result that a visitor sees first: the clearest speed-up, best with a playback."""
    wins = [
        (
            (store.folder / PLAYBACK / f"{one['candidate']}.json").is_file(),
            float(one["ratio_low"] or 0.0),
            str(one["candidate"]),
        )
        for comparison in store.comparisons(state="COMPLETE", limit=1000)
        for one in (comparison.result or {}).get("contrasts", [])
        if _is_clear(one) and store.trial(one["candidate"]).kind == "measure"
    ]
    return max(wins)[2] if wins else None


def opening_model(store: Store) -> list[str]:
    """Return the content hash of the model of that result; empty: there is none."""
    first = opening(store)
    return [store.trial(first).model_sha256] if first else []


def searched(store: Store) -> list[str]:
    """Return the content hashes of models with a search, first those where it found a speed-up."""
    found = sorted(store.studies(), key=lambda one: (one.answer or {}).get("outcome") != "FOUND")
    return [one.model_sha256 for one in found]


def compared(store: Store, study: str) -> list[str]:
    """Return the content hashes of models with a comparison of a study, by its first word; empty: of none."""
    return [one.model_sha256 for one in store.comparisons() if one.study.split(" ")[0] == study]


def variants(store: Store) -> list[str]:
    """Return the content hashes of the variants."""
    return [one.content_sha256 for one in store.models() if variant_of(one) is not None]


def _is_clear(one: Mapping[str, Any]) -> bool:
    """Whether a contrast is a plain speed-up: for as many samples, with equal outputs."""
    differs = one["per_row"] or one["outputs_differ"] or one.get("something_else") or one.get("contradicted")
    is_fine = one.get("grade") in (Grade.A, Grade.B)
    return one["verdict"] == Verdict.FASTER and is_fine and not differs and not is_rejected(one)


def remove(home: Path) -> None:
    """Delete the home of a demonstration."""
    shutil.rmtree(home, ignore_errors=True)


def moved(record: ModelRecord, path: str) -> ModelRecord:
    """Return a model of the library with its file at another place."""
    return replace(record, path=path, info={**record.info, "path": path})


def _find_models_again(store: Store, home: Path) -> None:
    """Update the paths of model files to their places here."""
    for one in store.models():
        if not Path(one.path).is_absolute():
            store.put_model(moved(one, str(home / one.path)))


def _find_scores_again(store: Store) -> None:
    """Update the paths of scores and data of accuracy results; a missing sample leaves them unknown."""
    for one in store.accuracies():
        try:
            key = key_of(spec_from_dict(one.spec), one.model_sha256)
        except TunerError:
            continue
        scores = store.scores_path(one.id)
        store.put_accuracy(replace(one, key=key, scores_path=str(scores)))
