"""Services for who may only look: what changes something asks first whenever it is called.

Pages bind methods to buttons, and a role may change between the drawing and the press.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from core.api.session import Scheduler
from core.store import Store

# All writes of a store except the facts of a shown model.
WRITE_METHODS = frozenset(
    {
        "charge",
        "claim",
        "create_comparison",
        "create_trial",
        "forget",
        "delete_finished",
        "delete_study",
        "delete_trials",
        "mark",
        "share",
        "uncharge",
    }
    | {"pin_baseline", "prune", "put_accuracy", "put_model", "put_peaks", "put_self_test", "put_study"}
    | {"remove_model", "update_comparison", "update_study", "update_trial"}
)
SHELF_METHODS = frozenset({"delete", "put"})
START_METHODS = frozenset({"cancel", "submit"})


def store(service: Store, ask: Callable[[], None]) -> Store:
    """Return the store with `ask` before every change; it raises a `TunerError` to refuse."""
    return cast(Store, _Guarded(service, ask, WRITE_METHODS, {"shelf": SHELF_METHODS}))


def scheduler(service: Scheduler, ask: Callable[[], None]) -> Scheduler:
    """Return the scheduler with `ask` before every start and cancellation, as `store` does."""
    return cast(Scheduler, _Guarded(service, ask, START_METHODS))


class _Guarded:
    def __init__(
        self,
        service: object,
        ask: Callable[[], None],
        methods: frozenset[str],
        parts: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self._service, self._ask, self._methods, self._parts = service, ask, methods, parts or {}

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The kind of the service: the API checks what it is given."""
        return type(self._service)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._service, name)
        if name in self._parts:
            return _Guarded(found, self._ask, self._parts[name])
        return partial(self._call, found) if name in self._methods else found

    def _call(self, method: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
        self._ask()
        return method(*arguments, **how)
