"""Widgets of settings, drawn from the table `core.spec.settings`; `state.current_spec` reads them.

Nothing here knows a setting by heart that the table could tell. `settings` draws all of them; pages that only
need to show what is set use `summary`.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core import spec as specs
from core.api.requests import thread_warning
from core.evidence.statistics import PERCENTILES, runs_needed
from core.show.setting_chips import chips, summary
from core.spec import TrialSpec
from core.spec.presets import PRESETS, preset
from core.spec.settings import ENTRIES, SETTINGS, TrialSetting, trial_setting, value_words
from core.store import ModelRecord
from core.wire.access import libraries_folder
from core.wire.errors import TunerError
from dashboard import fields, format, messages, runtimes, state
from dashboard.widgets import choice, feeding, page_frame, provider_chain
from dashboard.widgets import protocol as comparison
from dashboard.widgets.setting import DEFAULTS, is_changed, one

MOST_BADGES = 5
GROUPS: tuple[tuple[str, str, bool], ...] = (
    # group of the table -> icon, open at first
    ("Workload", ":material/input:", True),
    ("Threads", ":material/lan:", True),
    ("Providers", ":material/memory:", True),
    ("OpenVINO", ":material/developer_board:", True),
    ("Graph", ":material/account_tree:", True),
    ("Memory", ":material/database:", False),
    ("Protocol", ":material/timer:", True),
)
_ALSO_IN = {"Model": "Graph"}  # a single setting needs no group of its own
_RUNTIME = "runtime"  # drawn before the providers, which are those of its libraries
_OWN_WIDGETS = (
    *(_RUNTIME, "providers", "dims", "feeds", "feed_values", "image_mean", "image_std"),
    *("protocol.effort", "budget_s", "margin"),
)


# --- the model --------------------------------------------------------------------------------------------


def model_picker() -> ModelRecord | None:
    """Draw the choice of the model and return the current one; without any, show why and return None."""
    current = state.current_model()
    if current is None:
        page_frame.link("models", "Open Models")
        return None
    records = {one.content_sha256: one for one in [current, *state.store().models()]}
    choice.draw(
        "Model",
        list(records),
        key="model.picked",
        chosen=current.content_sha256,
        on_select=_choose_model,
        format_func=lambda sha: records[sha].name if sha in records else sha[:12],
        help=f"{format.plain(model_line(current))}. Add more on the Models page.",
    )
    return current


def _choose_model(sha256: str) -> None:
    if record := state.store().model(sha256):
        state.choose_model(record)


def model_line(record: ModelRecord) -> str:
    """Describe the model in one line."""
    info = record.info
    shapes = "; ".join(
        f"{one['name']} {one['dtype']} {format.shape(one['shape'])}" for one in info["inputs"][:3]
    )
    more = f" and {len(info['inputs']) - 3} more" if len(info["inputs"]) > 3 else ""
    note = f" · {record.note}" if record.note else ""
    return (
        f"{format.count(info['nodes'])} nodes · {format.count(info['parameters'])} parameters · "
        f"{format.size(info['size_bytes'])} · inputs: {shapes}{more}{note}"
    )


# --- all settings -----------------------------------------------------------------------------------------


def settings(record: ModelRecord) -> TrialSpec | None:
    """Draw every setting; return the spec, or None when it is invalid (the reason is shown)."""
    state.seed(record)
    spec, error = _try_spec()
    effects = specs.without_effect(spec) if spec is not None else {}
    changes()
    _show_counts()
    if error is not None:
        messages.report(error)
    for group, icon, is_open in GROUPS:
        if not _is_shown(group):
            continue
        with st.expander(
            group, icon=icon, expanded=is_open, key=f"group.{group.lower()}", on_change="rerun"
        ) as box:
            if box.open:
                _group(group, record, spec, effects)
    with st.expander("Advanced", icon=":material/build:", key="group.advanced", on_change="rerun") as box:
        if box.open:
            _advanced(record, effects)
    return spec


def counts() -> dict[str, int]:
    """Return the number of changed settings per group, without groups that have none."""
    changed = set(changed_settings())
    groups = [_box_of(one) for one in SETTINGS if one.name in changed]
    return {group: groups.count(group) for group in dict.fromkeys(groups)}


def _show_counts() -> None:
    """Write the counts after the names of the groups.

    They are not part of the label: a changed label would make a new expander, which closes while a slider
    moves.
    """
    rules = (
        f":is(.st-key-group-{group.lower()}, .st-key-group-{group.lower()} > *) > details > summary p::after "
        f'{{ content: " · {count} changed" }}'
        for group, count in counts().items()
    )
    st.html(f"<style>{' '.join(rules)} </style>")


def _try_spec() -> tuple[TrialSpec | None, TunerError | None]:
    try:
        return state.current_spec(), None
    except TunerError as error:
        return None, error


def _box_of(setting: TrialSetting) -> str:
    """Return the name of the box on the page that has a setting."""
    if setting.name == _RUNTIME:
        return "Providers"
    return "Advanced" if setting.advanced else _group_of(setting)


def _group_of(setting: TrialSetting) -> str:
    return _ALSO_IN.get(setting.group, setting.group)


def _in_group(group: str, *, advanced: bool) -> list[TrialSetting]:
    """Return the settings of a group that the chosen engine has, and changed ones, to reset them."""
    engine = st.session_state[fields.key("engine")]
    return [
        k
        for k in SETTINGS
        if _group_of(k) == group
        and k.advanced is advanced
        and k.name not in _OWN_WIDGETS
        and (k.name not in fields.LIBRARIES or _has_libraries(k.name))
        and (specs.belongs(k.name, engine) or is_changed(fields.key(k.name)))
    ]


def _is_shown(group: str) -> bool:
    """Whether a group has a setting for the chosen engine."""
    own_widgets = {"Providers": "providers", "Workload": "batch_size", "Protocol": "runs"}
    name = own_widgets.get(group)
    engine = st.session_state[fields.key("engine")]
    if name is not None and (specs.belongs(name, engine) or is_changed(fields.key(name))):
        return True
    return bool(_in_group(group, advanced=False))


def operators() -> tuple[str, ...]:
    """Draw the choice of operator libraries, which all pages share, and return the chosen ones.

    Draws nothing without an allowed folder of libraries.
    """
    name = "custom_op_libraries"
    st.session_state.setdefault(fields.key(name), fields.defaults()[fields.key(name)])
    if _has_libraries(name):
        one(trial_setting(name), None)
    return named_operators()


def named_operators() -> tuple[str, ...]:
    """Return the operator libraries that this session names."""
    return tuple(st.session_state.get(fields.key("custom_op_libraries")) or ())


def _has_libraries(name: str) -> bool:
    """Whether the operator allows a folder of libraries, or the settings of a loaded trial name some."""
    return libraries_folder() is not None or bool(st.session_state.get(fields.key(name)))


def _group(group: str, record: ModelRecord, spec: TrialSpec | None, effects: dict[str, str]) -> None:
    if group == "Providers":
        _runtime(record, spec, effects)
        provider_chain.providers()
    if group == "Protocol":
        comparison.protocol(spec, effects)
    for setting in _in_group(group, advanced=False):
        one(setting, effects.get(setting.name), record)
    if group == "Threads" and spec is not None:
        _warn_of_threads(spec)
    if group == "Workload":
        feeding.dims(record)
        feeding.feeds(record, effects)


def _runtime(record: ModelRecord, spec: TrialSpec | None, effects: dict[str, str]) -> None:
    """Draw the runtime and what it lacks for the other settings, where there is another than ORTune's own."""
    if not runtimes.others() and not is_changed(fields.RUNTIME):
        return
    one(trial_setting(_RUNTIME), effects.get(_RUNTIME))
    if spec is not None and (reason := state.lacking(spec, record)):
        st.caption(f":material/block: {format.plain(reason)}")
    page_frame.link("machine", "Manage runtimes")


def _warn_of_threads(spec: TrialSpec) -> None:
    if warning := thread_warning(spec, state.environment()["cpu"]):
        st.caption(f":material/warning: {format.plain(warning)}")


def _advanced(record: ModelRecord, effects: dict[str, str]) -> None:
    for group, icon, _ in GROUPS:
        chosen = _in_group(group, advanced=True)
        if chosen:
            st.markdown(f"{icon} **{group}**")
        for setting in chosen:
            one(setting, effects.get(setting.name), record)
            if setting.name == "runs":
                _percentile_note(st.session_state.get(fields.key("runs")))


def _percentile_note(runs: int | None) -> None:
    """Say which percentiles the chosen number of runs supports."""
    if not runs:
        return
    words = [
        f"p{round(p * 100)} {'yes' if runs >= runs_needed(p) else f'needs {runs_needed(p)} runs'}"
        for p in PERCENTILES
    ]
    st.caption(f":material/info: {runs:,} runs can support: {' · '.join(words)}")


# --- presets and changed settings -------------------------------------------------------------------------


def presets() -> None:
    """Draw the presets; one click loads one."""
    with st.popover("Presets", icon=":material/tune:", key="presets"):
        for name, (label, purpose, _, _) in PRESETS.items():
            st.button(
                label,
                key=f"preset.{name}",
                help=f"{purpose} Loads these settings; the model and the runs stay.",
                on_click=apply_preset,
                args=(name,),
            )


def apply_preset(name: str) -> None:
    """Load preset `name` into the widgets; model, dimensions, inputs and protocol stay as they are."""
    session, workload = preset(name)
    template = TrialSpec.model_construct(
        model=specs.ModelRef(path="-"), session=session, workload=specs.WorkloadSpec(**workload)
    )
    wanted = fields.values_from_spec(template)
    for setting in SETTINGS:
        if setting.name == "custom_op_libraries":  # the model needs them with any settings
            continue
        if setting.target in ("attribute", *ENTRIES, "session", "openvino") or setting.name in (
            "batch_size",
            "use_io_binding",
            "engine",
        ):
            st.session_state[fields.key(setting.name)] = wanted[fields.key(setting.name)]
    for widget in [str(k) for k in st.session_state if str(k).startswith(fields.OPTIONS)]:
        del st.session_state[widget]
    for widget, value in wanted.items():
        if widget.startswith(fields.OPTIONS):
            st.session_state[widget] = value


def changes() -> None:
    """Draw the presets, each difference from the default with its reset, and a reset of everything."""
    changed = changed_settings()
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="changes"):
        presets()
        if not changed:
            st.badge("ORT default", icon=":material/check:", color="gray", help="No setting is changed.")
            return
        st.badge(f"{len(changed)} changed", icon=":material/edit:", color="blue")
        st.button(
            "Reset all",
            key="reset.all",
            icon=":material/restart_alt:",
            type="tertiary",
            on_click=state.reset,
            help="Set every setting back to its default. The model stays.",
        )
        for name in changed:
            if name == BATCHING:
                _batching_chip()
            elif name != _OPTIONS:
                _chip(trial_setting(name))


def _chip(setting: TrialSetting) -> None:
    """Draw a changed setting with its value; a press resets it to its default."""
    key = fields.key(setting.name)
    value = st.session_state[key]
    words = value_words(value) if setting.name == _RUNTIME else format.value(value)
    text = "empty" if value is None else format.short(words, 24)
    st.button(
        f"{setting.short} {format.plain(text)}",
        key=f"chip.{setting.name}",
        icon=":material/close:",
        on_click=state.reset,
        args=(key,),
        help=f"Reset `{setting.name}` to the default",
    )


def _batching_chip() -> None:
    """Draw the dynamic batching, which no control of this page changes; a press removes it."""
    spec, _ = _try_spec()
    batching = None if spec is None else spec.dynamic_batching
    st.button(
        f"batching {batching.short}" if batching is not None else "batching",
        key="chip.dynamic_batching",
        icon=":material/close:",
        on_click=state.reset,
        args=(fields.BATCHING,),
        help="Remove `dynamic_batching`. Load tests use it; comparisons do not.",
    )


_OPTIONS = "provider_options"  # of any provider
BATCHING = "dynamic_batching"  # part of a configuration that is no setting


def changed_settings() -> list[str]:
    """Return the names of the settings whose widgets differ from their defaults."""
    names = [k.name for k in SETTINGS if fields.key(k.name) in DEFAULTS and is_changed(fields.key(k.name))]
    options = any(
        value not in ("", None, fields.DEFAULT)
        for key, value in st.session_state.items()
        if str(key).startswith(fields.OPTIONS)
    )
    others = {_OPTIONS: options, BATCHING: is_changed(fields.BATCHING)}
    return names + [name for name, found in others.items() if found]


def load_result_settings(spec: TrialSpec) -> None:
    """Load the settings of the shown result, unless somebody has chosen or loaded others.

    Raises:
        TunerError: see `state.apply_spec`.
    """
    if not settings_unchosen():
        return
    if summary(spec) != summary(state.current_spec()):
        state.apply_spec(spec)
    mark_settings_unchosen()


def mark_settings_unchosen() -> None:
    """Remember that the present settings came with a result and were not chosen."""
    st.session_state[state.LOADED] = False
    st.session_state[state.LOADED_WITH_RESULT] = _settings_without_sizes(state.current_spec())


def _settings_without_sizes(spec: TrialSpec) -> list[str]:
    """Return the settings without sizes, which are proposed automatically."""
    return [line for line in summary(spec) if not line.startswith("dims ")]


def settings_unchosen() -> bool:
    """Whether nobody has chosen a setting yet; a choice stays recorded."""
    came = st.session_state.get(state.LOADED_WITH_RESULT, [])
    spec, _ = _try_spec()
    if spec is None or _settings_without_sizes(spec) != came:
        st.session_state[state.LOADED] = True
    return not st.session_state.get(state.LOADED)


def badges(spec: TrialSpec) -> None:
    """Draw the settings as a row of badges, or that all are at their defaults."""
    with st.container(horizontal=True, gap="small"):
        spec_badges(spec)


def spec_badges(spec: TrialSpec, model: str = "") -> None:
    """Draw the settings as badges into the open row.

    Args:
        spec: whose settings are drawn.
        model: description of its model, unless that is the FP32 original.
    """
    found = chips(spec)
    if model:
        made = model.partition("`: ")[2] or model  # the recipe of the variant; its name on hover
        st.badge(format.plain(format.short(made, 48)), color="violet", help=format.plain(model))
    setting_badges(found)


def setting_badges(found: Sequence[tuple[str, str]]) -> None:
    """Draw a badge for each setting, `(short words, full name with value)`, into the open row.

    Many settings share a last badge that names them on hover; one badge stands for no settings at all.
    """
    if not found:
        st.badge("ORT default", icon=":material/check:", color="gray", help="No setting is changed.")
    shown = found if len(found) <= MOST_BADGES else found[: MOST_BADGES - 1]
    for words, line in shown:
        st.badge(format.plain(format.short(words, 40)), color="blue", help=format.code(line))
    if rest := found[len(shown) :]:
        st.badge(f"+ {len(rest)}", color="blue", help="  \n".join(format.code(line) for _, line in rest))
