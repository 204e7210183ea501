"""Deletes the raw measurements of old comparisons and shrinks the file.

Deleted data are runs and blocks, which only charts and later estimators need. Results remain, with the time
of the deletion (`rows.PRUNED`). All trials of a comparison are pruned together, because a ratio needs both
sides. Pinned baselines, unfinished comparisons and profiles (whose result is their table of nodes) are kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

from core.store import rows, samples
from core.store.database import Connection, Database
from core.store.rows import TRIALS
from core.store.statements import update
from core.wire.errors import StoreError

_AT_ONCE = 100  # trials per transaction, which blocks other writers and needs journal space
_HELD = (
    "SELECT trials.id AS id, CASE comparison WHEN '' THEN trials.id ELSE comparison END AS comparison,"
    " CAST(coalesce(finished_at, created_at) AS REAL) AS ended_at,"
    " length(data) AS size, typeof(data) = 'text' AS is_text,"  # text is JSON in ASCII: as long in bytes
    " kind = 'profile' AS is_profile, state IN ('WAITING', 'RUNNING') AS is_unfinished,"
    " trials.id IN (SELECT value FROM settings WHERE name LIKE 'baseline:%') AS is_pinned"
    " FROM samples JOIN trials ON trials.id = samples.trial"
    " WHERE model_sha256 = coalesce(?, model_sha256) AND model_name = coalesce(?, model_name)"
    " ORDER BY created_at, trials.rowid"
)
_DROP = (
    "DELETE FROM samples WHERE trial = ?"
    " AND trial NOT IN (SELECT value FROM settings WHERE name LIKE 'baseline:%')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """Result of pruning, or its prediction in a dry run."""

    trials: tuple[str, ...]  # ids of pruned trials, those of the oldest comparison first
    samples_bytes: int  # of their raw measurements
    compressed: int  # trials whose raw measurements an older version wrote as text, packed without loss
    baselines_kept: int  # pinned trials that were excluded from pruning
    kept_bytes: int  # raw measurements that remain
    freed_bytes: int  # decrease of the file size; an estimate in a dry run
    file_bytes: int  # file size afterwards; an estimate in a dry run


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrialSamples:
    """Raw measurements of one trial."""

    id: str
    comparison: str  # its id; that of the trial if it has no comparison
    ended_at: float  # seconds since the epoch
    size: int  # bytes
    is_text: bool
    is_profile: bool
    is_unfinished: bool
    is_pinned: bool


def prune(
    database: Database,
    *,
    before: float | None,
    keep_bytes: int | None,
    model_sha256: str | None,
    model_name: str | None,
    dry_run: bool,
) -> PruneResult:
    """Delete raw measurements by age, pack those in text, delete by size, and shrink the file.

    Packing comes before the limit by size, so that the limit deletes as little as possible.

    Args:
        database: the file.
        before: seconds since the epoch; comparisons that ended earlier are pruned. None: no limit by age.
        keep_bytes: largest size of all raw measurements; the oldest comparisons are pruned beyond it.
            None: no limit by size.
        model_sha256: content of a model; only its trials count. None: all.
        model_name: only trials under this name count. None: all.
        dry_run: change nothing.

    Raises:
        StoreError: the file cannot be written, or cannot be shrunk because another process uses it.
    """
    file_bytes, free_bytes = database.file_bytes(), database.free_bytes()
    with database.reading() as db:
        held = [_trial_samples(row) for row in db.execute(_HELD, (model_sha256, model_name))]
    old = [
        comparison
        for comparison in _comparisons_to_delete(held)
        if before is not None and comparison[-1].ended_at < before
    ]
    gone = _drop(database, old, dry_run=dry_run)
    packed = _pack(database, [one for one in _without(held, gone) if one.is_text], dry_run=dry_run)
    left = [replace(one, size=packed.get(one.id, one.size)) for one in _without(held, gone)]
    beyond = _beyond(left, keep_bytes) if keep_bytes is not None else []
    dropped = _drop(database, beyond, dry_run=dry_run)
    left = _without(left, dropped)
    if dry_run:
        freed = min(file_bytes, _size(held) - _size(left) + free_bytes)
    else:
        _shrink(database, dropped=len(gone) + len(dropped))
        freed = max(0, file_bytes - database.file_bytes())
    return PruneResult(
        trials=tuple(one.id for one in [*gone, *dropped]),
        samples_bytes=_size(gone) + _size(dropped),
        compressed=sum(one.id in packed for one in left),
        baselines_kept=len({one.id for one in chain(*old, *beyond) if one.is_pinned}),
        kept_bytes=_size(left),
        freed_bytes=freed,
        file_bytes=file_bytes - freed,
    )


# --- selection ----------------------------------------------------------------------------------------------


def _comparisons_to_delete(held: Iterable[_TrialSamples]) -> list[list[_TrialSamples]]:
    """Finished comparisons, the oldest first; their trials sorted by end time."""
    comparisons: dict[str, list[_TrialSamples]] = {}
    for one in sorted(held, key=lambda one: one.ended_at):
        if not one.is_profile:
            comparisons.setdefault(one.comparison, []).append(one)
    ended = [
        comparison for comparison in comparisons.values() if not any(one.is_unfinished for one in comparison)
    ]
    return sorted(ended, key=lambda comparison: comparison[-1].ended_at)


def _beyond(held: Sequence[_TrialSamples], keep_bytes: int) -> list[list[_TrialSamples]]:
    """The oldest comparisons whose deletion makes the others fit into `keep_bytes`."""
    total = _size(held)
    found = []
    for comparison in _comparisons_to_delete(held):
        if total <= keep_bytes:
            break
        found.append(comparison)
        total -= _size(one for one in comparison if not one.is_pinned)
    return found


def _without(held: Iterable[_TrialSamples], gone: Iterable[_TrialSamples]) -> list[_TrialSamples]:
    ids = {one.id for one in gone}
    return [one for one in held if one.id not in ids]


def _size(held: Iterable[_TrialSamples]) -> int:
    return sum(one.size for one in held)


def _trial_samples(row: rows.Row) -> _TrialSamples:
    values: dict[str, Any] = {one.name: row[one.name] for one in fields(_TrialSamples)}
    return _TrialSamples(
        **values | {name: bool(value) for name, value in values.items() if name.startswith("is_")}
    )


# --- deletion -----------------------------------------------------------------------------------------------


def _drop(
    database: Database, comparisons: Iterable[Sequence[_TrialSamples]], *, dry_run: bool
) -> list[_TrialSamples]:
    """Delete the raw measurements of comparisons and set `PRUNED` in their results; return the deleted."""
    wanted = [one for one in chain.from_iterable(comparisons) if not one.is_pinned]
    if dry_run:
        return wanted
    now = time.time()
    gone: list[_TrialSamples] = []
    for first in range(0, len(wanted), _AT_ONCE):
        with database.writing() as db:
            gone += [one for one in wanted[first : first + _AT_ONCE] if _drop_one(db, one.id, now)]
    return gone


def _drop_one(db: Connection, trial_id: str, now: float) -> bool:
    """Return False if the trial was pinned or deleted meanwhile, or is damaged."""
    row = db.execute("SELECT * FROM trials WHERE id = ?", (trial_id,)).fetchone()
    if not rows.undamaged([row] if row else [], TRIALS.read):
        return False  # damaged data are kept for the user
    if db.execute(_DROP, (trial_id,)).rowcount == 0:
        return False
    if row["result"] is not None:
        result = {**json.loads(row["result"]), rows.PRUNED: now}
        update(db, TRIALS, trial_id, {"result": rows.text(result)})
    return True


def _pack(database: Database, texts: Iterable[_TrialSamples], *, dry_run: bool) -> dict[str, int]:
    """Pack raw measurements in text, one trial at a time; return their new sizes in bytes."""
    sizes: dict[str, int] = {}
    for trial_id, text in _texts(database, [one.id for one in texts]):
        try:
            data = samples.pack(rows.raw_parts(text))
        except ValueError:
            continue  # damaged data are kept for the user
        sizes[trial_id] = len(data)
        if not dry_run:
            with database.writing() as db:
                # unless another process has changed it meanwhile
                query = "UPDATE samples SET data = ?, checksum = ? WHERE trial = ? AND data = ?"
                db.execute(query, (data, rows.samples_checksum(trial_id, data), trial_id, text))
    return sizes


def _texts(database: Database, trial_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    for one in trial_ids:
        with database.reading() as db:
            row = db.execute("SELECT data FROM samples WHERE trial = ?", (one,)).fetchone()
        if row is not None and isinstance(row["data"], str):
            yield one, row["data"]


def _shrink(database: Database, *, dropped: int) -> None:
    try:
        database.shrink()
    except StoreError as error:
        done = (
            f"{dropped} trials lost their raw measurements" if dropped else "No trial lost raw measurements"
        )
        raise StoreError(
            f"{error.message} {done}, but the file is not smaller yet. Run the same command again.",
            hint=error.hint,
        ) from error
