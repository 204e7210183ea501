"""The result that a page shows: its id in the session and in the address.

A link, a reload and a choice in a list of past results all work alike: the address names a result that the
session does not show yet, and the page loads its model and settings once. Afterwards the form may change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import streamlit as st

from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import messages, state, url_state
from dashboard.format import plain


class _Stored(Protocol):
    @property
    def id(self) -> str: ...


Result = TypeVar("Result", bound=_Stored)


@dataclass(frozen=True, slots=True)
class ShownResult:
    """The result of one page. Its id joins the values of the address by a space, where it has several."""

    key: str  # of the session, for the id; with ".of" the model that was current when it was shown
    names: tuple[str, ...]  # of the values in the address

    @property
    def id(self) -> str | None:
        """Return the id; None: the page shows no result."""
        found: str | None = st.session_state.get(self.key)
        return found

    def take_link(self) -> str | None:
        """Return the id in the address if the session does not show it yet, and show it from now on."""
        linked = " ".join(url_state.named(one) or "" for one in self.names)
        if not linked.strip() or linked == self.id:
            return None
        st.session_state[self.key] = linked
        return linked

    def link(self, result: str) -> None:
        """Open a result as its link does; call in a callback, or before `take_link`."""
        self._put(result)

    def show(self, result: str | None) -> None:
        """Show a result whose settings the page has already, or none."""
        st.session_state[self.key] = result
        st.session_state[f"{self.key}.of"] = st.session_state.get(state.MODEL) if result else None
        self.put_in_address()

    def put_in_address(self) -> None:
        """Let the address name the shown result, so that a reload finds it; a change of the page drops it."""
        self._put(self.id)

    def _put(self, result: str | None) -> None:
        values = result.split(" ", len(self.names) - 1) if result else [None] * len(self.names)
        for name, value in zip(self.names, values, strict=True):
            url_state.put(name, value)

    def is_new_model(self, record: ModelRecord) -> bool:
        """Whether another model was current when a result was shown, or none was shown; once per model."""
        before = st.session_state.get(f"{self.key}.of")
        st.session_state[f"{self.key}.of"] = record.content_sha256
        return bool(before != record.content_sha256)

    def open(self, read: Callable[[str], Result], load: Callable[[Result], None]) -> Result | None:
        """Return the shown result; drop an id that does not exist, and keep its error.

        Args:
            read: returns a result by its id, or its beginning.
            load: loads the model and the settings of a linked result; once per link.
        """
        is_new = self.take_link() is not None
        if self.id is None:
            return None
        try:
            found = read(self.id)
        except TunerError as error:
            messages.keep_error(error)
            self.show(None)
            return None
        if is_new:
            try:
                load(found)
            except TunerError as error:
                words = (
                    f"The result is shown, but its settings could not be loaded. {error.message} {error.hint}"
                )
                st.warning(plain(words), icon=":material/warning:")
            self.show(found.id)
        self.put_in_address()
        return found


TUNE = ShownResult("tune.shown", (state.TRIAL_PARAM,))
