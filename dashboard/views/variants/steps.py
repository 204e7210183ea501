"""The chain of steps that creates a variant: its widgets are drawn from the table `core.spec.steps`.

The session keeps the order of the steps, and each option as the value of its widget; `chain` reads them. This
module names no step and no option.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core import wire
from core.show.sheets.variants import option_text
from core.spec.steps import STEPS, Step, StepType, step_type
from core.spec.steps.option import Option
from core.wire.errors import TunerError
from dashboard import format, messages

CHAIN = "variants.chain"  # the steps in order: [{"id": …, "kind": …}]


def option_key(step_id: str, name: str) -> str:
    """Return the widget key of one option of one step."""
    return f"step.{step_id}.{name}"


# --- session state ------------------------------------------------------------------------------------------


def listed() -> list[dict[str, str]]:
    """Return the steps of this session, in order."""
    return list(st.session_state.get(CHAIN) or [])


def chain() -> list[Step]:
    """Return the steps of the widgets.

    Raises:
        SpecError: an invalid option.
    """
    return [Step(one["kind"], _values(one)) for one in listed()]


def clear() -> None:
    """Remove all steps."""
    for one in listed():
        _forget(one)
    st.session_state[CHAIN] = []


def _append(kind: str, options: Mapping[str, Any]) -> None:
    step_id = secrets.token_hex(3)
    for option in step_type(kind).options:
        value = options.get(option.name, option.default)
        if option.kind == "dims":
            for name, size in value.items():
                st.session_state[option_key(step_id, f"{option.name}.{name}")] = size
        else:
            st.session_state[option_key(step_id, option.name)] = value
    st.session_state[CHAIN] = [*listed(), {"id": step_id, "kind": kind}]


def _values(one: Mapping[str, str]) -> dict[str, Any]:
    return {option.name: _value(one["id"], option) for option in step_type(one["kind"]).options}


def _value(step_id: str, option: Option) -> Any:
    key = option_key(step_id, option.name)
    if option.kind == "dims":
        prefix = f"{key}."
        given = {str(k): v for k, v in st.session_state.items() if str(k).startswith(prefix)}
        return {name.removeprefix(prefix): int(size) for name, size in given.items() if size is not None}
    value = st.session_state.get(key, option.default)
    if value is None:  # an emptied number field
        return option.default
    return list(value) if option.kind == "names" else value


def _forget(one: Mapping[str, str]) -> None:
    for key in [str(k) for k in st.session_state if str(k).startswith(f"step.{one['id']}.")]:
        del st.session_state[key]


def _add(kind: str) -> None:
    _append(kind, {})


def _remove(step_id: str) -> None:
    for one in listed():
        if one["id"] == step_id:
            _forget(one)
    st.session_state[CHAIN] = [one for one in listed() if one["id"] != step_id]


def _move(step_id: str, by: int) -> None:
    """Move a step one place earlier (-1) or later (+1)."""
    steps = listed()
    index = next(i for i, one in enumerate(steps) if one["id"] == step_id)
    other = index + by
    if 0 <= other < len(steps):
        steps[index], steps[other] = steps[other], steps[index]
        st.session_state[CHAIN] = steps


# --- widgets ------------------------------------------------------------------------------------------------


def builder(info: wire.ModelInfo) -> list[Step] | None:
    """Draw the chain and the way to add to it; return its steps, None (with the error shown) if invalid.

    Args:
        info: of the model to which the first step applies.
    """
    steps = listed()
    if not steps:
        st.info(
            "No step yet. Add one: **INT8 dynamic** needs no data, **INT8 static** some "
            "typical samples, **FP16** halves the file.",
            icon=":material/science:",
        )
    for index, one in enumerate(steps):
        _card(one, index, len(steps), info)
    with (
        st.popover("Add a step", icon=":material/add:", help="Steps run in this order.", key="step.add"),
        st.container(gap="xsmall"),
    ):
        for kind in STEPS:
            _adder(kind)
    try:
        return chain()
    except TunerError as error:
        messages.report(error)
        return None


def _adder(kind: StepType) -> None:
    where = f"\n\n{kind.hardware}" if kind.hardware else ""
    st.button(
        kind.title,
        key=f"step.add.{kind.kind}",
        help=f"{format.plain(kind.help)}{format.plain(where)}",
        width="stretch",
        on_click=_add,
        args=(kind.kind,),
    )


def _card(one: Mapping[str, str], index: int, count: int, info: wire.ModelInfo) -> None:
    kind, step_id = step_type(one["kind"]), one["id"]
    with st.container(border=True, key=f"step.card.{step_id}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{index + 1}. {kind.title}**", width="content", help=format.plain(kind.help))
            st.space("stretch")
            _tool("earlier", "Move up", "arrow_upward", step_id, disabled=index == 0, by=-1)
            _tool("later", "Move down", "arrow_downward", step_id, disabled=index == count - 1, by=1)
            st.button(
                "Remove",
                key=f"step.remove.{step_id}",
                icon=":material/close:",
                type="tertiary",
                help=f"Removes {kind.title} from the chain.",
                on_click=_remove,
                args=(step_id,),
            )
        if kind.hardware:
            st.caption(f":material/memory: {format.plain(kind.hardware)}")
        _options([option for option in kind.options if not option.advanced], step_id, info)
        if advanced := [option for option in kind.options if option.advanced]:
            with st.expander("More options", icon=":material/build:", key=f"step.more.{step_id}"):
                _options(advanced, step_id, info)


def _tool(name: str, label: str, icon: str, step_id: str, *, disabled: bool, by: int) -> None:
    st.button(
        label,
        key=f"step.{name}.{step_id}",
        icon=f":material/{icon}:",
        type="tertiary",
        disabled=disabled,
        help="Change the order of the steps.",
        on_click=_move,
        args=(step_id, by),
    )


def _options(options: Sequence[Option], step_id: str, info: wire.ModelInfo) -> None:
    small = [one for one in options if one.kind not in ("dims", "names")]
    if small:
        with st.grid(3, min_column_width=220):
            for option in small:
                _widget(option, option_key(step_id, option.name))
    for option in options:
        if option.kind == "names":
            _names(option, option_key(step_id, option.name), info)
        elif option.kind == "dims":
            _dims(option, step_id, info)


def _widget(option: Option, key: str) -> None:
    st.session_state.setdefault(key, option.default)
    said = not option.unit or option.unit in option.label
    label = option.label if said else f"{option.label} ({option.unit})"
    text = help_text(option)
    if option.kind == "bool":
        st.toggle(label, key=key, help=text, persist_state="session")
    elif option.kind == "choice":
        st.selectbox(label, list(option.choices), key=key, help=text, persist_state="session")
    elif option.kind == "text":
        st.text_input(label, key=key, help=text, persist_state="session", placeholder="none")
    else:
        _number(option, label, key, text)


def _number(option: Option, label: str, key: str, text: str) -> None:
    whole = option.kind == "int"
    st.number_input(
        label,
        step=1 if whole else _step(float(option.default)),
        format="%d" if whole else "%g",
        key=key,
        help=text,
        persist_state="session",
    )


def _step(default: float) -> float:
    """Return the step of a number's buttons: 0.01 for a percentile, a tenth of a small tolerance."""
    return 0.01 if default >= 1 else default / 10


def _names(option: Option, key: str, info: wire.ModelInfo) -> None:
    st.session_state.setdefault(key, list(option.default))
    offered = [*option.choices, *(sorted(info["op_counts"]) if option.name.endswith("_ops") else ())]
    chosen = [str(one) for one in st.session_state[key]]
    st.multiselect(
        option.label,
        list(dict.fromkeys([*map(str, offered), *chosen])),
        key=key,
        help=help_text(option),
        placeholder="none" if offered else "none; type the name of a node",
        accept_new_options=True,
        persist_state="session",
    )


def _dims(option: Option, step_id: str, info: wire.ModelInfo) -> None:
    if not info["free_dims"]:
        st.caption(":material/block: No effect here: all sizes of this model are fixed.")
        return
    with st.grid(3, min_column_width=220):
        for name in info["free_dims"]:
            key = option_key(step_id, f"{option.name}.{name}")
            st.session_state.setdefault(key, None)
            st.number_input(
                f"{option.label}: {format.plain(name)}",
                step=1,
                key=key,
                help=option.help,
                placeholder="stays free",
                persist_state="session",
            )


def help_text(option: Option) -> str:
    """Describe an option: effect, name for the command line, range and default."""
    parts = [option.help, f"Name: `{option.name}`."]
    if option.low is not None and option.high is not None and option.kind in ("int", "float"):
        parts.append(f"From {option.low:g} to {option.high:g}.")
    if option.default not in ("", [], {}):
        parts.append(f"Default: `{option_text(option.default)}`.")
    return "\n\n".join(parts)
