"""Stored answers of fleet runs: the run with what its hosts sent, for pages, commands and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.evidence.fleet.fleet_types import FleetRun
from core.evidence.fleet.pairs import PAIRS, pairs_of
from core.evidence.fleet.summary import Summary, summarize, trial_ids
from core.run.fleet import folders
from core.run.fleet import runs as kept
from core.store import Store
from core.wire.errors import StoreError

MOST_KEPT = 1024  # documents and runs in memory; without raw measurements about 50 kB each
# raw parts of documents, which the store holds; `generations` is a list of launches or a number
_RAW = frozenset(
    {"latencies_s", "warmup_latencies_s", "blocks", "orders", "requests", "log_ratios", "discarded", "course"}
)
_WITHOUT_TRIALS = ("winner",)  # a search, whose `trials` are all evaluated configurations


def summary(ref: str, store: Store) -> Summary:
    """Return what a fleet run says.

    Args:
        ref: ID of the run, or its first characters.
        store: holds the trials that the hosts sent.

    Raises:
        MissingError: there is no such run.
        StoreError: it cannot be read.
    """
    run = latest(kept.find(ref))
    if run is None:
        raise StoreError(f"The fleet run `{ref[:80]}` cannot be read.", hint="Start it again.")
    return summary_of(run, store)


def summary_of(run: FleetRun, store: Store) -> Summary:
    """Return what a run with its documents says; see `summary`."""
    trials: dict[str, Mapping[str, Any]] = {}
    for name in trial_ids(run):
        try:
            trials[name] = store.trial(name).to_dict()
        except StoreError:  # deleted, or a host that sent no rows
            continue
    return summarize(run, trials)


# --- reading many runs quickly ------------------------------------------------------------------------------


def listed(store: Store) -> list[FleetRun]:
    """Return all runs without documents, newest first; a run that has ended is read once.

    A run is as private as its models and the rows that its hosts sent.

    Args:
        store: of the person who reads; runs with what is hidden from this person are left out.
    """
    try:
        names = [one.name for one in folders.runs().iterdir()]
    except OSError:
        return []
    found = [one for name in names if (one := _listed(name)) is not None]
    hidden = store.hidden([ref for one in found for ref in refs(one)])
    found = [one for one in found if hidden.isdisjoint(refs(one))]
    return sorted(found, key=lambda one: one.created_at, reverse=True)


def refs(run: FleetRun) -> list[str]:
    """Models and rows that a run names."""
    models = [ref for one in run.questions for ref in (one.model.sha256, one.model.path) if ref]
    return [*models, *(name for one in run.answers for ids in one.rows.values() for name in ids)]


def _listed(run_id: str) -> FleetRun | None:
    try:
        found = (folders.runs() / run_id / "run.json").stat()
    except OSError:
        return None
    known = _ended_run(run_id, found.st_mtime_ns, found.st_size)
    return known if known is None or known.state == "COMPLETE" else kept.light(run_id)


@lru_cache(maxsize=MOST_KEPT)
def _ended_run(run_id: str, changed_ns: int, size_bytes: int) -> FleetRun | None:
    """Return a run as its file had it; the time and the size are part of the key of the cache."""
    return kept.light(run_id)


def latest(ref: str) -> FleetRun | None:
    """Return a run with documents that have no raw measurements; None: it cannot be read.

    Documents do not change, so each is read once; a page may ask every second.

    Args:
        ref: whole ID of the run.
    """
    run = kept.light(ref)
    if run is None:
        return None
    folder = folders.runs() / run.id / "documents"
    answers = [replace(one, document=_document(folder / f"{one.key}.json")) for one in run.answers]
    return replace(run, answers=answers)


def _document(path: Path) -> dict[str, Any] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _light_document(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=MOST_KEPT)
def _light_document(path: Path, changed_ns: int, size_bytes: int) -> dict[str, Any] | None:
    """Return a document without raw parts; the time and the size are part of the key of the cache."""
    data = folders.read_json(path)
    if data is None:
        return None
    if "contestants" in data:
        data[PAIRS] = pairs_of(data)  # needs the raw rounds
    if all(name in data for name in _WITHOUT_TRIALS):
        data.pop("trials", None)
    without_raw: dict[str, Any] = _without_raw(data)
    return without_raw


def _without_raw(data: Any) -> Any:
    if isinstance(data, dict):
        return {
            name: _without_raw(part)
            for name, part in data.items()
            if name not in _RAW and not (name == "generations" and isinstance(part, list))
        }
    return [_without_raw(one) for one in data] if isinstance(data, list) else data
