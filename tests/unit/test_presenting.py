"""What a session that follows a presenter may not do, whatever its page offers."""

from __future__ import annotations

import pytest

from core.store import Store
from core.wire.errors import SpecError
from dashboard.state import _WRITE_METHODS, _ReadOnlyService

WRITING = ("create_", "delete_", "mark", "pin_", "prune", "put_", "remove_", "update_")
LOOKING = {"marks", "put_info", "put_model"}  # the facts of a shown model are kept


def test_a_follower_writes_nothing() -> None:
    writing = {name for name in dir(Store) if name.startswith(WRITING)} - LOOKING
    assert writing == _WRITE_METHODS
    store = _ReadOnlyService(object(), _WRITE_METHODS)
    for name in sorted(writing):
        with pytest.raises(SpecError):
            getattr(store, name)("any", "thing")
