"""The widget of one setting: help, reset when changed, and the reason when it has no effect."""

from __future__ import annotations

import streamlit as st

from core.api.requests import torch_source
from core.spec.effort import EFFORTS
from core.spec.settings import ENTRIES, KNOWN_OPTIMIZERS, Place, TrialSetting
from core.store import ModelRecord
from core.wire.access import available_libraries, expert_allowed
from core.wire.engines import ENGINES
from core.wire.runtime import OWN
from core.wire.variables import ALLOW_EXPERT
from dashboard import fields, format, runtimes, state
from dashboard.widgets.slider import AUTO, number_slider


def one(setting: TrialSetting, no_effect: str | None, record: ModelRecord | None = None) -> None:
    """Draw one setting: help, its reset when changed, and the reason when it has no effect."""
    key = fields.key(setting.name)
    with st.container(
        horizontal=True, wrap=False, vertical_alignment="bottom", gap="small", key=f"row.{setting.name}"
    ):
        _widget(setting, setting.label, key, record)
        undo(setting.label, key)
    if no_effect:
        show_no_effect(no_effect)


def show_no_effect(reason: str) -> None:
    """Say why a setting has no effect now."""
    st.caption(f":material/block: No effect here: {format.plain(reason)}.")


def is_changed(key: str) -> bool:
    """Whether the value of the widget `key` differs from its default."""
    return bool(st.session_state.get(key, DEFAULTS[key]) != DEFAULTS[key])


DEFAULTS = fields.defaults()


UNDO_PX = 28


def undo(label: str, key: str) -> None:
    """Draw the reset of a changed widget; its room is reserved before, so that nothing moves."""
    with st.container(width=UNDO_PX, key=f"undo.{key}"):
        if is_changed(key):
            st.button(
                "Reset",  # only the icon is visible
                key=f"reset.{key}",
                icon=":material/undo:",
                type="tertiary",
                help=f"Reset {label} to the default",
                on_click=state.reset,
                args=(key,),
            )
        else:
            st.space(UNDO_PX)  # an empty container would take no room


def _widget(setting: TrialSetting, label: str, key: str, record: ModelRecord | None) -> None:
    text = help_text(setting)
    if fields.is_tristate(setting):
        default = "on" if setting.default else "off"
        st.selectbox(
            label,
            [fields.DEFAULT, fields.ON, fields.OFF],
            key=key,
            help=text,
            persist_state="session",
            format_func=lambda v: {fields.ON: "on", fields.OFF: "off"}.get(
                v, f"{_whose(setting)}'s default ({default})"
            ),
        )
    elif setting.kind == "bool":
        closed = setting.name == "expert" and not expert_allowed()
        if closed:
            text += f"Off on this server; its operator allows it with `{ALLOW_EXPERT}=1`."
        off = closed and not st.session_state.get(key)  # a value loaded with a trial can be turned off
        st.toggle(label, key=key, help=text, persist_state="session", disabled=off)
    elif setting.name == "engine":
        _engine(setting, label, key, text, record)
    elif setting.kind == "choice":
        _choice(setting, label, key, text)
    elif setting.kind == "int":
        _number(setting, label, key, text, record)
    elif setting.kind == "float":
        st.number_input(
            label,
            step=STEP,
            format="%.6g",
            key=key,
            help=text,
            persist_state="session",
            placeholder=_placeholder(setting) if setting.default is None else None,
        )
    elif setting.kind == "mapping":
        st.text_area(label, key=key, help=text, persist_state="session", height=90, placeholder=LINES)
    elif setting.name in _NAMES:
        _NAMES[setting.name](label, key, text)
    else:
        st.text_input(label, key=key, help=text, persist_state="session", placeholder="none")


MOST_IN_A_ROW = 4
LINES = "key=value, one per line"
STEP = 0.001  # of a share; other values can be typed


def _optimizers(label: str, key: str, text: str) -> None:
    chosen: list[str] = st.session_state[key]
    st.multiselect(
        label,
        [*KNOWN_OPTIMIZERS, *(name for name in chosen if name not in KNOWN_OPTIMIZERS)],
        key=key,
        help=text + "\n\nWith `expert` on, other names can be typed.",
        placeholder="none",
        accept_new_options=True,
        persist_state="session",
    )


def _libraries(label: str, key: str, text: str) -> None:
    """Draw the choice of libraries: the operator's, and those loaded with a trial, which may be gone."""
    offered, chosen = available_libraries(), list[str](st.session_state[key])
    st.multiselect(
        label,
        [*offered, *(name for name in chosen if name not in offered)],
        key=key,
        help=text,
        placeholder="none" if offered else "no library lies in the folder",
        format_func=format.value,
        persist_state="session",
    )


def _runtime(label: str, key: str, text: str) -> None:
    """Draw the choice of the runtime: those of this machine, and one of a loaded trial that it lacks."""
    own = state.environment()["libraries"]
    chosen = st.session_state[key] = runtimes.chosen(st.session_state[key])
    st.selectbox(
        label,
        list(dict.fromkeys([OWN, *runtimes.others(), chosen])),
        key=key,
        help=text,
        persist_state="session",
        format_func=lambda one: runtimes.label(one, own),
    )


def _engine(setting: TrialSetting, label: str, key: str, text: str, record: ModelRecord | None) -> None:
    """Draw the engine; one that needs an exported program only for such models, or where it is chosen."""
    has_program = record is not None and torch_source(record) is not None
    chosen = st.session_state[key]
    options = [one for one in setting.choices if has_program or not ENGINES[one].program or one == chosen]
    st.selectbox(
        label,
        options,
        key=key,
        help=text,
        persist_state="session",
        format_func=lambda engine: ENGINES[engine].label if engine in ENGINES else engine,
        disabled=len(options) == 1,
    )


def _choice(setting: TrialSetting, label: str, key: str, text: str) -> None:
    own_default = DEFAULTS[key] == ""
    options = ["", *setting.choices] if own_default else list(setting.choices)
    if setting.few:
        shown_at_once = st.segmented_control if len(options) <= MOST_IN_A_ROW else st.pills  # these wrap
        shown_at_once(
            label, options, key=key, help=text, required=True, persist_state="session", format_func=_brief
        )
        return
    st.selectbox(
        label,
        options,
        key=key,
        help=text,
        persist_state="session",
        format_func=lambda v: v or _default_words(setting),
    )


def _brief(choice: str) -> str:
    """Return a choice without the prefix that all share: "extended" of ORT_ENABLE_EXTENDED."""
    plain = choice.removeprefix("ORT_ENABLE_").removeprefix("ORT_")
    return plain.replace("_", " ").lower() if plain != choice else choice.upper() or "default"


def _number(setting: TrialSetting, label: str, key: str, text: str, record: ModelRecord | None) -> None:
    fixed = setting.name == "batch_size" and record is not None and record.info["batch_dim"] is None
    if fixed and record is not None:
        _fixed_batch(record)
        return
    optional = DEFAULTS[key] is None
    if stops := setting.slider_stops(setting, Place(threads=state.environment()["cpu"]["usable"])):
        number_slider(
            label, key, stops, help=text, auto=_auto(setting), placeholder=AUTO if optional else None
        )
        return
    st.number_input(  # no bounds: the browser would show a number out of bounds and send the previous one
        label,
        step=1,
        key=key,
        help=text,
        persist_state="session",
        placeholder=_placeholder(setting) if optional else None,
    )


def _whose(setting: TrialSetting) -> str:
    """Return the runtime whose setting it is."""
    return "OpenVINO" if setting.target == "openvino" else "ONNX Runtime"


def _default_words(setting: TrialSetting) -> str:
    """Return the choice that sets nothing."""
    if setting.target == "openvino" and not setting.default:
        return "OpenVINO decides"
    return f"{_whose(setting)}'s default ({setting.default or 'none'})"


def _device(label: str, key: str, text: str) -> None:
    """Draw the device of OpenVINO: those of this machine, and any other name that is typed."""
    there = state.environment().get("openvino_devices", {})
    chosen: str = st.session_state[key]
    st.selectbox(
        label,
        list(dict.fromkeys(["", *(name for name in there if name != "CPU"), "AUTO", chosen])),
        key=key,
        help=text,
        persist_state="session",
        accept_new_options=True,
        format_func=lambda name: f"{name} ({there[name]})" if name in there else name or "CPU",
    )


_NAMES = {
    "disabled_optimizers": _optimizers,
    "openvino.device": _device,
    "runtime": _runtime,
    **dict.fromkeys(fields.LIBRARIES, _libraries),
}


def _auto(setting: TrialSetting) -> str:
    """Return what ONNX Runtime uses by default, as far as that is a number."""
    if setting.name == "intra_op_num_threads":
        return f"{AUTO} ({state.environment()['cpu']['ort_default_threads']})"
    return AUTO


def _fixed_batch(record: ModelRecord) -> None:
    rows = record.info["fixed_batch"]
    st.text_input(
        "Batch size",
        value=str(rows) if rows else "no batch dimension",
        disabled=True,
        key="fixed.batch",
        help="This model's batch is fixed. Export it with a dynamic batch to use other sizes.",
    )


def _placeholder(setting: TrialSetting) -> str:
    if setting.name == "intra_op_num_threads":
        return f"ONNX Runtime decides ({state.environment()['cpu']['ort_default_threads']} here)"
    if setting.name == "tolerance":
        return "by the precision of the model"
    if setting.name == "budget_s":
        return str(EFFORTS[st.session_state[fields.key("protocol.effort")]].budget_s)
    return "the measurement decides" if setting.target == "protocol" else f"{_whose(setting)} decides"


def help_text(setting: TrialSetting) -> str:
    """Describe a setting: effect, the runtime's name, default, and the default's value on this machine."""
    parts = [setting.help]
    if setting.name in ("intra_op_num_threads", "inter_op_num_threads"):
        cpu = state.environment()["cpu"]
        quota = f", a quota of {cpu['quota']:g} CPUs" if cpu["quota"] is not None else ", no CPU quota"
        parts.append(
            f"Empty or 0: {cpu['ort_default_threads']} here. The machine has "
            f"{cpu['physical']} physical and {cpu['logical']} logical CPUs; this process may "
            f"use {len(cpu['allowed'])}{quota}, so {cpu['usable']} threads are useful."
        )
    own = setting.target in ("attribute", *ENTRIES, "openvino")
    name = f"{_whose(setting)}'s name" if own else "Name in the YAML"
    parts.append(f"{name}: `{setting.field}`.")
    if setting.default not in (None, "", (), {}):
        parts.append(f"Default: `{format.value(setting.default)}`.")
    return "\n\n".join(parts)
