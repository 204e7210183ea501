"""What a session that may only look may not do, whatever its page offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.run.scheduler import Scheduler
from core.store import Store
from core.store.imported import Shelf
from core.wire.errors import SpecError
from dashboard import guarded

WRITING = (
    "charge",
    "claim",
    "create_",
    "delete",
    "forget",
    "mark",
    "pin_",
    "prune",
    "put",
    "remove_",
    "share",
    "uncharge",
    "update_",
)
LOOKING = {"marks", "put_info"}  # the facts of a shown model are kept


class AnyService:
    """Has every method, and tells that it was called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> object:
        return self if name == "shelf" else lambda *_: self.called.append(name)


def refuse() -> None:
    raise SpecError("no")


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if name.startswith(WRITING)} - LOOKING


def test_who_may_only_look_writes_nothing() -> None:
    assert names(Store) == guarded.WRITE_METHODS
    assert names(Shelf) == guarded.SHELF_METHODS
    service = AnyService()
    store = guarded.store(service, refuse)  # type: ignore[arg-type]
    for name in sorted(names(Store)):
        with pytest.raises(SpecError):
            getattr(store, name)("any", "thing")
    for name in sorted(names(Shelf)):
        with pytest.raises(SpecError):
            getattr(store.shelf, name)("any")
    assert service.called == []
    store.models()
    assert service.called == ["models"]


def test_who_may_only_look_starts_and_cancels_nothing() -> None:
    assert all(hasattr(Scheduler, name) for name in guarded.START_METHODS)
    service = AnyService()
    scheduler = guarded.scheduler(service, refuse)  # type: ignore[arg-type]
    for name in sorted(guarded.START_METHODS):
        with pytest.raises(SpecError):
            getattr(scheduler, name)("any")
    assert service.called == []


def test_a_guarded_service_passes_for_the_service(tmp_path: Path) -> None:
    assert isinstance(guarded.store(Store(tmp_path / "ortune.db"), refuse), Store)


def test_the_role_counts_when_a_method_is_called_not_when_it_was_bound() -> None:
    allowed = [True]

    def ask() -> None:
        if not allowed[0]:
            refuse()

    service = AnyService()
    bound = guarded.store(service, ask).pin_baseline  # type: ignore[arg-type]
    bound("m", "t")
    allowed[0] = False
    with pytest.raises(SpecError):
        bound("m", "t")
    assert service.called == ["pin_baseline"]
