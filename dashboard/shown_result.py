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

_NO_MODEL = "none"  # a link opened a result before a model was current: the first one is no change


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
        linked = self._linked()
        if linked is not None:
            st.session_state[self.key] = linked
        return linked

    def _linked(self) -> str | None:
        linked = " ".join(url_state.named(one) or "" for one in self.names)
        return linked if linked.strip() and linked != self.id else None

    def link(self, result: str | None) -> None:
        """Let the address name a result; the page opens one that it does not show yet as by a link."""
        values = result.split(" ", len(self.names) - 1) if result else [None] * len(self.names)
        for name, value in zip(self.names, values, strict=True):
            url_state.put(name, value)

    def show(self, result: str | None) -> None:
        """Show a result whose settings the page has already, or none."""
        self.link(result)  # first, because Streamlit may end a run at any access to the session
        current = st.session_state.get(state.MODEL) or _NO_MODEL
        st.session_state[f"{self.key}.of"] = current if result else None
        st.session_state[self.key] = result

    def is_new_model(self, record: ModelRecord) -> bool:
        """Whether another model was current when a result was shown, or none was shown; once per model."""
        before = st.session_state.get(f"{self.key}.of")
        st.session_state[f"{self.key}.of"] = record.content_sha256
        return before not in (record.content_sha256, _NO_MODEL)

    def open(self, read: Callable[[str], Result], load: Callable[[Result], None]) -> Result | None:
        """Return the shown result; drop an id that does not exist, and keep its error.

        Args:
            read: returns a result by its id, or its beginning.
            load: loads the model and the settings of a linked result; once per link.
        """
        linked = self._linked()
        wanted = linked or self.id
        if wanted is None:
            return None
        try:
            found = read(wanted)
        except TunerError as error:
            messages.keep_error(error)
            self.show(None)
            return None
        if linked is None:
            self.link(found.id)  # a change of the page dropped it
            return found
        try:
            load(found)
        except TunerError as error:
            words = f"The result is shown, but its settings could not be loaded. {error.message} {error.hint}"
            st.warning(plain(words), icon=":material/warning:")
        self.show(found.id)
        return found


TUNE = ShownResult("tune.shown", (state.TRIAL_PARAM,))
