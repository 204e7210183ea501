"""Sources of configurations for the list: presets, history, YAML, variants, runtimes, Tune, PyTorch."""

from __future__ import annotations

import streamlit as st

from core.api import variants
from core.api.requests import torch_source
from core.evidence.measurement import Trial
from core.evidence.streams import p50_words
from core.show import setting_chips, verdict
from core.spec import TrialSpec
from core.spec.presets import PRESETS
from core.store import ModelRecord
from core.wire.engines import ENGINES
from core.wire.errors import TunerError
from core.wire.runtime import OWN
from dashboard import configurations, format, messages, runtimes, state
from dashboard.folders import check_spec
from dashboard.views.compare import entry_list
from dashboard.widgets import yaml_source

# session keys
PICKED, PASTED, FILE = "compare.picked", "compare.pasted", "compare.file"
RELATIVES, OTHERS, RUNTIMES = "compare.variants", "compare.others", "compare.runtimes"

OFFERED = 100  # earlier trials in the list


def draw(record: ModelRecord) -> None:
    """Draw the menu of sources."""
    with st.container(horizontal=True, gap="small", key="compare.adders"):
        with st.popover(
            "Presets", icon=":material/bookmark:", help="Named starting points.", key="compare.add.presets"
        ):
            _preset_buttons(record)
        with st.popover("History", icon=":material/history:", help="Earlier trials of this model."):
            _history(record)
        with st.popover("YAML", icon=":material/upload_file:", help="A file that ORTune exported."):
            _yaml(record)
        with st.popover(
            "Variants",
            icon=":material/science:",
            help="The original and its variants, each on ONNX Runtime's default.",
        ):
            _variants(record)
        if entry_list.different_models():
            with st.popover("Models", icon=":material/deployed_code:", help="Any model of the library."):
                _other_models(record)
        if runtimes.others():
            with st.popover(
                "Runtimes", icon=":material/layers:", help="The settings of Tune, once for each runtime."
            ):
                _runtimes(record)
        st.button(
            "Current settings",
            key="compare.add.current",
            icon=":material/tune:",
            on_click=_add_current,
            args=(record,),
            help="The settings that Tune shows now.",
        )
        for engine in _engines(record):
            st.button(
                ENGINES[engine].label,
                key=f"compare.add.{engine}",
                icon=":material/local_fire_department:"
                if ENGINES[engine].program
                else ":material/developer_board:",
                on_click=_add_engine,
                args=(record, engine),
                help=f"Runs {ENGINES[engine].runs}, with the same inputs.",
            )
    st.toggle(
        "Different models",
        key=entry_list.DIFFERENT,
        persist_state="session",
        help="Allows models that compute something else. Each result then shows the output error.",
    )


def _try_add(record: ModelRecord, source: str, spec: TrialSpec) -> None:
    try:
        entry_list.add(record, entry_list.entry_of(source, spec, record))
    except TunerError as error:
        messages.keep_error(error, entry_list.PLACE)


def _variants(record: ModelRecord) -> None:
    own = record.content_sha256
    relatives = {
        one.content_sha256: one for one in variants.family(state.store(), record) if one.content_sha256 != own
    }
    if not relatives:
        st.caption("This model has no variants. Create one on the Variants page.")
        return
    st.multiselect(
        "Variants",
        list(relatives),
        key=RELATIVES,
        format_func=lambda one: _relative_label(relatives[one]) if one in relatives else one[:8],
        placeholder="Choose variants",
        help="They use the list's inputs and ONNX Runtime's default.",
    )
    st.button(
        "Add",
        key="compare.add.variants",
        icon=":material/add:",
        on_click=_add_variants,
        args=(record,),
        help="Adds each as a configuration of its own.",
    )


def _relative_label(one: ModelRecord) -> str:
    made = variants.lineage(one) or "original"
    return f"{one.name} · {made} · {format.size(one.info['size_bytes'])}"


def _add_variants(record: ModelRecord) -> None:
    """Add the chosen variants with one workload: a size fixed in one variant applies to the others too."""
    relatives = {one.content_sha256: one for one in variants.family(state.store(), record)}
    chosen = [relatives[one] for one in st.session_state.get(RELATIVES) or [] if one in relatives]
    made = {one.sha256: variants.lineage(one) or "original" for one in chosen}
    try:
        for asked in variants.family_configurations(chosen, entry_list.base(record)):
            entry_list.add(
                record, entry_list.entry_of(made[asked.spec.model.sha256 or ""], asked.spec, record)
            )
    except TunerError as error:
        messages.keep_error(error, entry_list.PLACE)
    st.session_state[RELATIVES] = []


def _other_models(record: ModelRecord) -> None:
    others = {one.content_sha256: one for one in state.store().models()}
    others.pop(record.content_sha256, None)
    if not others:
        st.caption("The library has no other model.")
        return
    st.multiselect(
        "Models",
        list(others),
        key=OTHERS,
        format_func=lambda one: others[one].name if one in others else one[:8],
        placeholder="Choose models",
        help="They use the list's inputs where these fit, and ONNX Runtime's default.",
    )
    st.button("Add", key="compare.add.others", icon=":material/add:", on_click=_add_others, args=(record,))


def _add_others(record: ModelRecord) -> None:
    """Add the chosen models with ORT's default settings."""
    known = {one.content_sha256: one for one in state.store().models()}
    try:
        chosen = [known[one] for one in st.session_state.get(OTHERS) or [] if one in known]
        for asked in variants.family_configurations(chosen, entry_list.base(record)):
            entry_list.add(record, entry_list.entry_of("another model", asked.spec, record))
    except TunerError as error:
        messages.keep_error(error)
    st.session_state[OTHERS] = []


def _runtimes(record: ModelRecord) -> None:
    own = state.environment()["libraries"]
    st.multiselect(
        "Runtimes",
        [OWN, *runtimes.others()],
        key=RUNTIMES,
        format_func=lambda one: runtimes.label(one, own),
        placeholder="Choose runtimes",
        help="Each runs the settings that Tune shows now, with the list's inputs.",
    )
    st.button(
        "Add", key="compare.add.runtimes", icon=":material/add:", on_click=_add_runtimes, args=(record,)
    )


def _add_runtimes(record: ModelRecord) -> None:
    try:
        entry_list.add_in_runtimes(record, st.session_state.get(RUNTIMES) or [])
    except TunerError as error:
        messages.keep_error(error, entry_list.PLACE)
    st.session_state[RUNTIMES] = []


def _preset_buttons(record: ModelRecord) -> None:
    for name, (label, purpose, _, _) in PRESETS.items():
        st.button(
            label,
            key=f"compare.add.preset.{name}",
            help=purpose,
            width="stretch",
            on_click=_add_preset,
            args=(record, name),
        )


def _add_preset(record: ModelRecord, name: str) -> None:
    try:
        spec = configurations.from_preset(name, entry_list.base(record))
    except TunerError as error:
        messages.keep_error(error, entry_list.PLACE)
        return
    _try_add(record, f"preset: {PRESETS[name][0]}", spec)


def _add_current(record: ModelRecord) -> None:
    try:
        spec = state.current_spec()
    except TunerError as error:
        messages.keep_error(error, entry_list.PLACE)
        return
    _try_add(record, "settings of Tune", spec)


def _engines(record: ModelRecord) -> list[str]:
    """Return the other engines that can run the model here: its PyTorch program, or an installed package."""
    libraries = state.environment()["libraries"]
    has_program = torch_source(record) is not None
    return [
        name
        for name, one in ENGINES.items()
        if one.packages and (has_program if one.program else any(each in libraries for each in one.packages))
    ]


def _add_engine(record: ModelRecord, engine: str) -> None:
    try:
        spec = configurations.from_engine(engine, entry_list.base(record))
    except TunerError as error:
        messages.keep_error(error, entry_list.PLACE)
        return
    _try_add(record, "the model before its export" if ENGINES[engine].program else "another engine", spec)


def _history(record: ModelRecord) -> None:
    trials = state.store().trials(
        model_sha256=record.content_sha256, kind="measure", state="COMPLETE", limit=OFFERED
    )
    offered = {trial.id: trial for trial in trials}
    if not offered:
        st.caption("Nothing was measured on this model yet.")
        return
    st.multiselect(
        "Trials",
        list(offered),
        key=PICKED,
        format_func=lambda one: _trial_label(offered[one]) if one in offered else one[:8],
        placeholder="Choose trials",
    )
    st.button("Add", key="compare.add.history", icon=":material/add:", on_click=_add_picked, args=(record,))


def _trial_label(trial: Trial) -> str:
    p50 = trial.p50_s
    told = f"{p50_words(trial.result)} {format.ms(p50)}{verdict.background_load_mark(trial.result)}"
    return f"{setting_chips.words(trial)} · {told} · {format.when(trial.created_at)} · {trial.id[:8]}"


def _add_picked(record: ModelRecord) -> None:
    try:
        for one in st.session_state.get(PICKED) or []:
            trial = state.store().trial(one)
            entry_list.add(
                record, entry_list.entry_of(f"trial {trial.id[:8]}", state.trial_spec(trial), record)
            )
    except TunerError as error:
        messages.keep_error(error, entry_list.PLACE)
    st.session_state[PICKED] = []


def _yaml(record: ModelRecord) -> None:
    yaml_source.fields(FILE, PASTED, begins="schema: 1\nmodel: …")
    st.button("Add", key="compare.add.yaml", icon=":material/add:", on_click=_add_yaml, args=(record,))


def _add_yaml(record: ModelRecord) -> None:
    try:
        name, spec = yaml_source.read(FILE, PASTED, to="add")
        check_spec(spec, state.store())
        if not spec.model.sha256:  # without a hash, path or name must match this model
            found = state.find_model(spec.model, foreign=True)
            known = {"sha256": found.sha256}
            spec = spec.model_copy(update={"model": spec.model.model_copy(update=known)})
        entry_list.add(record, entry_list.entry_of(name, spec, record))
    except TunerError as error:
        messages.keep_error(error, entry_list.PLACE)
