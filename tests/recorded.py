"""The recorded results of the demonstration: real results of every kind, for tests that only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from core.spec.axes import axes_of_study
from core.store import STORE_NAME, Store
from dashboard import demo


@contextmanager
def recorded_store() -> Iterator[Store]:
    home = demo.unpack()
    try:
        yield Store(home / STORE_NAME)
    finally:
        demo.remove(home)


def reported(store: Store) -> dict[str, list[str]]:
    """Return each kind of report with the references that name one of it."""
    comparisons = store.comparisons(limit=500)
    pair = next(path for one in store.trials() for path in store.artifacts(one.id, "why-*.json"))
    return {
        "trial": [next(one.id for one in store.trials(kind="measure") if not one.study)],
        "race": [max(comparisons, key=lambda one: 0 if one.study else len(one.contestants)).id],
        "search": [next(one.id for one in store.studies() if one.answer and one.answer["winner"])],
        "curve": [next(one.study for one in comparisons if axes_of_study(one.study))],
        "card": [next(one.study for one in comparisons if one.study.startswith("scorecard"))],
        "why": [pair.stem.removeprefix("why-"), pair.parent.name],
        "profile": [store.trials(kind="profile")[0].id],
        "load": [store.trials(kind="load")[0].id],
    }
