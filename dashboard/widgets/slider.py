"""A number as a slider with stops and a field beside it for any other: two views of one widget key.

The field holds the value; the slider is drawn from it, and writes into it when it is moved. So what is shown
is what runs, whether it was slid, typed, or came with a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import streamlit as st

AUTO = "auto"  # the stop at which the field is empty
FIELD_PX = 104
LATE_S = 2.0  # what a browser sent before it was told of a move has arrived by then


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A slider was moved, which its field shows as soon as the browser is told."""

    to: int | None
    past: tuple[int | None, ...]  # what the field showed before
    at: float  # monotonic


def settle() -> None:
    """Put back what a late request has undone; before anything reads a number.

    Every request of a browser, each look at a race among them, carries the numbers of all fields. One that
    left before the browser knew what a move had made of a field would make the move undone.
    """
    for name in [str(one) for one in st.session_state if str(one).startswith(_MOVED)]:
        move: Move = st.session_state[name]
        key = name.removeprefix(_MOVED)
        if time.monotonic() - move.at > LATE_S or st.session_state.get(key) not in (move.to, *move.past):
            del st.session_state[name]  # the browser knows, or a person has typed since
        elif key in st.session_state:
            st.session_state[key] = move.to


_MOVED = "moved."  # and the key of the field: its last move


def stepped(
    label: str,
    key: str,
    stops: Sequence[int | None],
    *,
    help: str,
    auto: str = AUTO,
    placeholder: str | None = None,
) -> None:
    """Draw a whole number as a slider with its field.

    Args:
        label: of both; read out with "exactly" for the field.
        key: of the field, which holds the number; None: empty.
        stops: of the slider, ascending; None first where nothing asked for is a stop.
        help: for both.
        auto: what the stop None is called.
        placeholder: of the empty field.
    """
    value: int | None = st.session_state[key]
    known = {_text(stop): stop for stop in [*stops, *([] if value in stops else [value])]}
    order = sorted(known, key=lambda text: (known[text] is not None, known[text] or 0))
    own = f"slide.{key}"
    st.session_state[own] = _text(value)
    st.select_slider(
        label,
        order,
        key=own,
        help=help,
        on_change=_slid,
        args=(own, key),
        format_func=_called(auto),
    )
    st.number_input(  # no bounds: the browser would show a number beyond them and send the one before
        f"{label}, exactly",
        step=1,
        key=key,
        help=help,
        label_visibility="collapsed",
        width=FIELD_PX,
        persist_state="session",
        placeholder=placeholder,
    )


def _text(value: int | None) -> str:
    return AUTO if value is None else str(value)


def _called(auto: str) -> Callable[[str], str]:
    return lambda text: auto if text == AUTO else text


def _slid(own: str, key: str) -> None:
    text = st.session_state[own]
    before: int | None = st.session_state[key]
    last: Move | None = st.session_state.get(_MOVED + key)
    value = None if text == AUTO else int(text)
    past = {before, *((last.to, *last.past) if last is not None else ())} - {value}
    st.session_state[_MOVED + key] = Move(to=value, past=tuple(past), at=time.monotonic())
    st.session_state[key] = value
