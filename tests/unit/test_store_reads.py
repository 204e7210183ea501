"""What SQLite reads for a question: rows by an index, never a whole table of many gigabytes."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.store import Store, database
from core.wire.errors import StoreError
from tests import large_stores


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return large_stores.fill(tmp_path_factory.mktemp("large") / "ortune.db", 300)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that SQLite plans for each SELECT of the store."""
    found: list[str] = []
    opened = database._view

    class Planned(sqlite3.Connection):
        def execute(self, query: str, *bound: Any) -> sqlite3.Cursor:
            if query.startswith("SELECT"):
                steps = super().execute(f"EXPLAIN QUERY PLAN {query}", *bound).fetchall()
                found.extend(step["detail"] for step in steps)
            return super().execute(query, *bound)

    connect = sqlite3.connect

    @contextmanager
    def view(path: Path) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite3, "connect", lambda *args, **how: connect(*args, **how, factory=Planned))
            with opened(path) as db:
                yield db

    monkeypatch.setattr(database, "_view", view)
    return found


def test_a_trial_and_its_comparison_are_read_by_their_indexes(store: Store, plans: list[str]) -> None:
    one = next(one for one in store.trials(kind="measure") if one.comparison)
    plans.clear()
    assert store.trial(one.id[:8]).id == one.id
    assert one.id in {other.id for other in store.trials_of(one.comparison)}
    with pytest.raises(StoreError):
        store.trial("ffffffffff")
    assert plans
    assert not [step for step in plans if step.startswith("SCAN trials")], plans


def test_ids_that_begin_alike_are_told_apart(store: Store) -> None:
    one = store.trials()[0].id
    assert store.trial_id(one[:12]) == one
    with pytest.raises(StoreError):
        store.trial_id(f"{one[:12]}\U0010ffff")
