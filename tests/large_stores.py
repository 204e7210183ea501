"""Stores with as many trials as a team collects in years: real rows of a small store, with other names.

The rows are those of `data/stores/format_7.db.xz`: comparisons, a sweep, a profile, a failure and a search.
Each copy has its own ids, times, model, latencies and tags.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.store import Change, Store
from core.store.rows import COMPARISONS, STUDIES, TRIALS, samples_checksum
from core.store.transfer import Origin, StoredRows
from tests import earlier_stores

MODELS = 12
BATCH = 2_000  # trials of one transaction
SEARCH_SHARE = 5  # one cycle of the templates in so many has a search
_ID = re.compile(r"\b[0-9a-f]{16}\b")
_TABLES = (TRIALS, COMPARISONS, STUDIES)

Rows = dict[str, list[dict[str, Any]]]


def fill(path: Path, trials: int, progress: Callable[[int], None] = lambda made: None) -> Store:
    """Fill a store up to a number of trials; a store that has some already gets the others.

    Args:
        path: of the store.
        trials: number of its trials afterwards, or a few more.
        progress: gets the number of trials after each transaction.
    """
    templates = _templates()
    store = Store(path)
    made, cycle = _number_of_trials(store), 0
    while made < trials:
        rows: Rows = {"trials": [], "comparisons": [], "studies": [], "samples": []}
        ids: list[str] = []
        while len(rows["trials"]) < min(BATCH, trials - made):
            rng = random.Random(made + cycle)
            found = _varied(templates, rng, made + len(rows["trials"]), with_search=cycle % SEARCH_SHARE == 0)
            for name, there in found.items():
                rows[name] += there
            ids.append(found["trials"][0]["id"])
            cycle += 1
        store.adopt(StoredRows(rows), Origin("fleet host bench-07"))
        made += len(rows["trials"])
        _tag(store, ids)
        progress(made)
    return store


def _number_of_trials(store: Store) -> int:
    with store._database.reading() as db:
        return int(db.execute("SELECT count(*) FROM trials").fetchone()[0])


def _templates() -> Rows:
    """Rows of the small store in the present format."""
    with tempfile.TemporaryDirectory() as folder:
        path = earlier_stores.unpacked(7, Path(folder))
        Store(path)
        found = earlier_stores.tables(path)
    return {name: found[name] for name in ("trials", "comparisons", "studies", "samples")}


def _varied(templates: Rows, rng: random.Random, number: int, *, with_search: bool) -> Rows:
    """One copy of all templates with other ids, times, latencies and another model."""
    search = {row["id"] for row in templates["studies"]}
    known = {row["id"] for table in _TABLES for row in templates[table.name]}
    names: dict[str, str] = {}
    model = rng.randrange(MODELS)
    moment = 1_700_000_000.0 + number * 300.0

    def other_id(match: re.Match[str]) -> str:
        if match[0] not in known:  # digits of a number
            return match[0]
        return names.setdefault(match[0], f"{rng.getrandbits(64):016x}")

    found: Rows = {name: [] for name in templates}
    for table in _TABLES:
        for row in templates[table.name]:
            if not with_search and (row["id"] in search or row["study"] in search):
                continue
            changed = {
                name: _ID.sub(other_id, value) if isinstance(value, str) and name != "checksum" else value
                for name, value in row.items()
            }
            _give_times(changed, moment + rng.random() * 100)
            changed["model_name"] = f"{row['model_name']}_{model:02d}"
            changed["model_sha256"] = f"{model:02d}{row['model_sha256'][2:]}"
            if table is TRIALS:
                changed["key"] = f"{rng.randrange(2_000):04d}{row['key'][4:]}"
                changed["result"] = _slower(changed["result"], 0.5 + rng.random())
            changed["checksum"] = table.checksum(changed)
            found[table.name].append(changed)
    kept = {row["id"] for row in found["trials"]}
    for row in templates["samples"]:
        if (trial := names.get(row["trial"])) in kept:
            found["samples"].append(_sample(row, str(trial)))
    return found


def _sample(row: dict[str, Any], trial: str) -> dict[str, Any]:
    return {**row, "trial": trial, "checksum": samples_checksum(trial, row["data"])}


def _give_times(row: dict[str, Any], moment: float) -> None:
    before = row["created_at"]
    for name in ("created_at", "started_at", "finished_at"):
        if row[name] is not None:
            row[name] = moment + row[name] - before


def _slower(result: str | None, factor: float) -> str | None:
    if result is None:
        return None
    found = json.loads(result)
    if latency := found.get("latency"):
        found["latency"] = {**latency, "p50_s": latency["p50_s"] * factor}
    for one in found.get("contrasts") or ():
        one["ratio"] *= factor
    return json.dumps(found, separators=(",", ":"))


def _tag(store: Store, ids: list[str]) -> None:
    """Tag a few of the trials as users do."""
    store.mark(ids[::7], Change(starred=True))
    store.mark(ids[1::7], Change(add=("edge",), note="for the phone"))
    store.mark(ids[2::7], Change(archived=True))
