"""The recorded races of the demonstration: real results of every kind, for tests that only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from core.store import STORE_NAME, Store
from dashboard import demo


@contextmanager
def recorded_store() -> Iterator[Store]:
    home = demo.unpack()
    try:
        yield Store(home / STORE_NAME)
    finally:
        demo.remove(home)
