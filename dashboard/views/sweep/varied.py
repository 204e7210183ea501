"""Widgets for the axes of a sweep: one or two settings, each with its values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from core.api.searching import CPU
from core.spec import TrialSpec
from core.spec.axes import (
    MAX_POINTS,
    RUNTIME,
    THREADS,
    Models,
    choices,
    default_values,
    offered,
    parse_values,
    row_of,
)
from core.spec.settings import Place, value_words
from core.spec.space import MODEL, STREAMS, Axis
from core.store import ModelRecord
from core.wire.errors import TunerError
from core.wire.runtime import OWN
from dashboard import messages, runtimes, state

AXIS = "sweep.axis"
SECOND = "sweep.second"
NONE = ""  # no second setting
VALUES = "sweep.values"  # + "." + name of the axis
PRESET = "sweep.preset"  # + "." + its number
PRESETS = {
    "Streams": (STREAMS,),
    "Streams × threads": (STREAMS, THREADS),
    "Runtimes": (RUNTIME,),
    "Threads × runtimes": (THREADS, RUNTIME),
}
_PRESET_HELP = {
    "Streams": "Varies the number of callers at the same time.",
    "Streams × threads": "Varies the number of callers at the same time and the threads of each session.",
    "Runtimes": "Varies the runtime.",
    "Threads × runtimes": "Varies the threads of each session; each runtime is a line.",
}


def _values_key(name: str) -> str:
    return f"{VALUES}.{name}"


def text_of(one: Axis) -> str:
    return ", ".join(map(value_words, one.values))


def _place() -> Place:
    machine = state.environment()
    loadable = [one["name"] for one in machine["providers"] if one["loadable"]]
    chains = [(one, CPU) for one in loadable if one != CPU]
    devices = tuple(machine.get("openvino_devices", ()))
    several = (OWN, *runtimes.others()) if runtimes.others() else ()
    return Place(
        threads=machine["cpu"]["usable"], providers=((CPU,), *chains), devices=devices, runtimes=several
    )


def draw(record: ModelRecord, base: TrialSpec, named: Models) -> list[Axis] | None:
    """Draw the axes; report a value that cannot be measured and return None."""
    place = _place()
    names = offered(record.info, place, named, base.engine)
    _presets(names, place)
    if st.session_state.get(AXIS) not in names:
        st.session_state[AXIS] = names[0]
    first = _axis(
        AXIS,
        "Setting to vary",
        names,
        "Batch size, threads, a dynamic dimension, model variants, or a setting with listed values.",
        (record, base, named, place),
    )
    others = [NONE, *(name for name in names if name != st.session_state[AXIS])]
    if st.session_state.get(SECOND) not in others:
        st.session_state[SECOND] = NONE
    second = _axis(
        SECOND,
        "Second setting",
        others,
        "Each of its values is a line; two numeric settings also make a heat map. Every "
        "combination is measured.",
        (record, base, named, place),
    )
    if first is None or (second is None and st.session_state[SECOND] != NONE):
        return None
    return [one for one in (first, second) if one is not None]


def _presets(names: Sequence[str], place: Place) -> None:
    """Draw a button for each usual choice of axes that this model and machine have."""
    with st.container(horizontal=True, gap="xsmall"):
        for number, (label, axes) in enumerate(PRESETS.items()):
            if set(axes) <= set(names):
                st.button(
                    label,
                    key=f"{PRESET}.{number}",
                    type="tertiary",
                    on_click=_take_preset,
                    args=(axes, place),
                    help=_PRESET_HELP[label],
                )


def _take_preset(names: Sequence[str], place: Place) -> None:
    set_axes(
        [
            Axis(
                name=one,
                values=choices(one, place, {}) or default_values(one, usable_threads=place.threads),
            )
            for one in names
        ]
    )


def _axis(
    key: str, label: str, names: Sequence[str], help: str, about: tuple[ModelRecord, TrialSpec, Models, Place]
) -> Axis | None:
    name = st.selectbox(label, names, key=key, format_func=label_of, persist_state="session", help=help)
    return _values(name, *about) if name else None


def _values(name: str, record: ModelRecord, base: TrialSpec, named: Models, place: Place) -> Axis | None:
    """Draw the values of an axis: a text field for numbers, a selection for others."""
    key = _values_key(name)
    if _is_listed(name):
        options = [value_words(one) for one in choices(name, place, named)]
        kept = [one for one in st.session_state.get(key) or [] if one in options]
        st.session_state[key] = kept or options
        texts = st.multiselect(
            "Values",
            options,
            key=key,
            persist_state="session",
            help="Every value is a point. With none chosen, all are.",
            format_func=partial(runtimes.label, own=state.environment()["libraries"])
            if name == RUNTIME
            else str,
        )
        return _read(name, ",".join(texts))
    if not st.session_state.get(key):
        current = base.workload.dims.get(name)
        suggested = default_values(name, usable_threads=place.threads, current=current)
        st.session_state[key] = ", ".join(map(str, suggested))
    text = st.text_input(
        "Values",
        key=key,
        persist_state="session",
        placeholder="1, 2, 4, 8",
        help=f"Comma-separated whole numbers, at most {MAX_POINTS} points in all. Empty: the suggestion.",
    )
    return _read(name, text or "")


def _read(name: str, text: str) -> Axis | None:
    try:
        return Axis(name=name, values=parse_values(text, name=name))
    except TunerError as error:
        messages.report(error)
        return None


def set_axes(axes: Sequence[Axis]) -> None:
    """Fill the widgets with axes; call before they are drawn."""
    for key, one in zip((AXIS, SECOND), (*axes, None), strict=False):
        st.session_state[key] = NONE if one is None else one.name
        if one is not None:
            texts = [value_words(value) for value in one.values]
            st.session_state[_values_key(one.name)] = texts if _is_listed(one.name) else ", ".join(texts)


def chosen_axes() -> list[Axis]:
    """Return the axes of the current widget values, so that a value just typed counts; raises `SpecError`."""
    found = []
    for name in (st.session_state[AXIS], st.session_state.get(SECOND)):
        if name:
            held = st.session_state[_values_key(name)]
            text = held if isinstance(held, str) else ",".join(held)
            found.append(Axis(name=name, values=parse_values(text, name=name)))
    return found


def _is_listed(name: str) -> bool:
    row = row_of(name)
    return name == MODEL or (row is not None and row.kind != "int")


def label_of(name: str) -> str:
    if name == NONE:
        return "none"
    if name == MODEL:
        return "Variant of the model"
    row = row_of(name)
    return name if row is None else row.label or name
