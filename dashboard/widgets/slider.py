"""A number as a slider with stops and a field for any other value: two views of one widget key.

The field holds the value; the slider is drawn from it and writes into it when it is moved. The shown value is
therefore the one that runs, whether it was slid, typed, or loaded with a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

AUTO = "auto"  # the stop that empties the field
FIELD_PX = 104


def number_slider(
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
        stops: of the slider, ascending; None first if the empty field is a stop.
        help: for both.
        auto: name of the stop None.
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
        on_change=_slider_moved,
        args=(own, key),
        format_func=_stop_label(auto),
    )
    st.number_input(  # no bounds: the browser would show a number out of bounds and send the previous one
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


def _stop_label(auto: str) -> Callable[[str], str]:
    return lambda text: auto if text == AUTO else text


def _slider_moved(own: str, key: str) -> None:
    text = st.session_state[own]
    st.session_state[key] = None if text == AUTO else int(text)
