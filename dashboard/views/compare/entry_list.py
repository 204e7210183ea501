"""The list of configurations that shall race, and the ways into it: presets, history, YAML, Tune, PyTorch.

The list is kept in the session as plain data, for one model; `contestants` knows what may stand in it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import streamlit as st

from core.evidence.comparison import same_request
from core.evidence.measurement import Trial
from core.run import variants
from core.run.plan import feed_plan, torch_source
from core.show import settings, verdict
from core.spec import TrialSpec, anchor, spec_from_yaml
from core.spec.presets import PRESETS
from core.store import ModelRecord
from core.wire.doors import expert_allowed
from core.wire.engines import ENGINES
from core.wire.errors import SpecError, TunerError
from dashboard import contestants, format, state
from dashboard.contestants import Entry
from dashboard.folders import check_spec

# keys of the session
ENTRIES = "compare.entries"  # the list, as plain data
OF_MODEL = "compare.of_model"  # content hash of the model that the list is of
BASELINE = "compare.baseline"  # id of the entry that is the baseline
PLACE = "compare.list"  # where errors of adding to the list are shown: under the ways to add
PICKED, PASTED, FILE = "compare.picked", "compare.pasted", "compare.file"
RELATIVES, OTHERS = "compare.variants", "compare.others"
DIFFERENT = "compare.different"  # whether models that compute something else may race
FED = "compare.fed"  # prefix of the keys of what all are fed

OFFERED = 100  # earlier trials to choose from


def take_trials(trials: Sequence[Trial]) -> None:
    """Make these trials the list, the first one the baseline.

    Raises:
        TunerError: the settings of one cannot be read, or its model is not here.
    """
    specs = [state.trial_spec(trial) for trial in trials]
    if not specs:
        return
    record = state.find_model(specs[0].model)
    state.choose_model(record)
    taken = [_entry(f"trial {trial.id[:8]}", spec, record) for trial, spec in zip(trials, specs, strict=True)]
    _put(record, [])
    for entry in taken:
        _add(record, entry)


def is_begun() -> bool:
    """Whether this session has a list already."""
    return OF_MODEL in st.session_state


def entries(record: ModelRecord) -> list[Entry]:
    """The list of this session; at first ONNX Runtime's default, and Tune's settings where they differ."""
    if st.session_state.get(OF_MODEL) != record.content_sha256:
        _put(record, _first(record))
    return [Entry.from_dict(one) for one in st.session_state[ENTRIES]]


def _first(record: ModelRecord) -> list[Entry]:
    try:
        spec = state.current_spec()
    except TunerError:  # said on Tune; the list begins with what can be run
        return []
    default = _entry("preset: ORT default", anchor(spec), record)
    if same_request(spec, default.spec):
        return [default]
    return [default, _entry("settings of Tune", spec, record)]


def _put(record: ModelRecord, listed: Sequence[Entry]) -> None:
    st.session_state[OF_MODEL] = record.content_sha256
    st.session_state[ENTRIES] = [one.to_dict() for one in listed]
    if st.session_state.get(BASELINE) not in {one.id for one in listed}:
        st.session_state[BASELINE] = listed[0].id if listed else None


def _entry(source: str, spec: TrialSpec, record: ModelRecord) -> Entry:
    """An entry of the list, on the model as this server keeps it: the list's own, or one of its family.

    Raises:
        SpecError: the configuration is of another model.
    """
    model = _model_of(spec, record)
    if model is None:
        raise SpecError(
            f"The configuration ({source}) belongs to another model than `{record.name}` and its variants.",
            hint='Race configurations of one model and its variants, or switch on "Different models".',
        )
    here = {"path": state.portable(model.path), "sha256": model.sha256}
    spec = spec.model_copy(update={"model": spec.model.model_copy(update=here)})
    other = "" if model.content_sha256 == record.content_sha256 else model.name
    return Entry(id=secrets.token_hex(4), source=source, spec=spec, model=other)


def _model_of(spec: TrialSpec, record: ModelRecord) -> ModelRecord | None:
    """The model that a configuration runs; None: it is no relative of `record`."""
    if spec.model.sha256 in (None, record.sha256, record.content_sha256):
        return record
    relatives = state.store().models() if different_models() else variants.family(state.store(), record)
    return next((one for one in relatives if spec.model.sha256 in (one.sha256, one.content_sha256)), None)


def different_models() -> bool:
    """Whether the switch is on that lets models race which compute something else."""
    return bool(st.session_state.get(DIFFERENT))


def names(record: ModelRecord, listed: Sequence[Entry]) -> list[str]:
    """What to call the entries of the list."""
    models = [one.model for one in listed]
    return contestants.labels([one.spec for one in listed], baseline_index(listed), models, record.name)


def can_load(entry: Entry) -> bool:
    """Whether an entry can be loaded on this machine, as far as that is known before the race."""
    return entry.spec.session.allow_fallback or not _missing_provider(entry)


def _missing_provider(entry: Entry) -> str:
    if not entry.spec.session.providers:
        return ""
    try:
        return contestants.missing_provider(entry.spec, state.environment()["providers"])
    except TunerError:  # said where the machine is looked at
        return ""


def _base(record: ModelRecord) -> TrialSpec:
    """What a new entry begins with: the model of the list, fed what the list is fed.

    Raises:
        TunerError: the settings of Tune, or what the list is fed, cannot be used.
    """
    spec, own = state.current_spec(), entries(record)
    return contestants.fed_like(spec, own[baseline_index(own)].spec) if own else spec


def _add(record: ModelRecord, entry: Entry) -> None:
    own = entries(record)
    if any(same_request(one.spec, entry.spec) for one in own):
        raise SpecError(
            f"This configuration ({entry.source}) is in the list already.", hint="Change a setting first."
        )
    contestants.check_room(own)
    _put(record, [*own, entry])


def _try_add(record: ModelRecord, source: str, spec: TrialSpec) -> None:
    try:
        _add(record, _entry(source, spec, record))
    except TunerError as error:
        state.keep_error(error, PLACE)


def _remove(record: ModelRecord, entry_id: str) -> None:
    _put(record, [one for one in entries(record) if one.id != entry_id])


def _set_baseline(entry_id: str) -> None:
    st.session_state[BASELINE] = entry_id


def baseline_index(listed: Sequence[Entry]) -> int:
    """Which entry of the list is the baseline; the first one where none was chosen."""
    return next((i for i, one in enumerate(listed) if one.id == st.session_state.get(BASELINE)), 0)


# --- drawing it -------------------------------------------------------------------------------------------


def draw(record: ModelRecord) -> None:
    """Draw the list and the ways to add to it."""
    listed = entries(record)
    if listed:
        _fed(record, listed)
    _list(record, listed)
    _adders(record)
    state.show_kept_error(PLACE, "Not added to the list")


def _fed(record: ModelRecord, listed: Sequence[Entry]) -> None:
    """What all are fed, to be changed for all at once."""
    spec, info = listed[baseline_index(listed)].spec, record.info
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="compare.workload"):
        if info["batch_dim"] is not None:
            _fed_number(record, "batch_size", "Batch", spec.workload.batch_size or 1, least=1)
        for dim in info["free_dims"]:
            if dim != info["batch_dim"]:
                _fed_number(record, f"dims.{dim}", dim, spec.workload.dims.get(dim), least=0)
        _fed_number(record, "seed", "Seed", spec.workload.seed, least=0)
        source = "random values" if spec.workload.feeds == "random" else spec.workload.feeds
        st.caption(
            f"Fed to all: {format.plain(source)}. An entry that brought a batch of its own, as some presets "
            "do, says so in its line and keeps it.",
            width="stretch",
        )


def _fed_number(record: ModelRecord, name: str, label: str, value: int | None, *, least: int) -> None:
    key = f"{FED}.{name}"
    st.session_state[key] = value  # of the list, which is what counts
    st.number_input(
        format.plain(label),
        min_value=least,
        step=1,
        key=key,
        width=130,
        on_change=_refeed,
        args=(record, name),
        help="For everybody in the list.",
    )


def _refeed(record: ModelRecord, name: str) -> None:
    own, value = entries(record), st.session_state[f"{FED}.{name}"]
    value = None if name == "batch_size" and value == 1 else value  # what the model does unasked
    try:
        changed = contestants.refed(own, baseline_index(own), name, value)
        for one in changed:
            if not one.model:
                feed_plan(one.spec.workload, record.info)  # a size that cannot be is said here
    except TunerError as error:
        state.keep_error(error)
        return
    _put(record, changed)


def _list(record: ModelRecord, listed: Sequence[Entry]) -> None:
    if not listed:
        st.info("The list is empty: add two to eight configurations.", icon=":material/playlist_add:")
        return
    against = baseline_index(listed)
    for index, (entry, name) in enumerate(zip(listed, names(record, listed), strict=True)):
        _line(record, entry, name, None if index == against else listed[against])


def _line(record: ModelRecord, entry: Entry, name: str, baseline: Entry | None) -> None:
    """One entry: its name, its source, all that differs from `baseline`; None: it is the baseline."""
    with st.container(
        border=True, horizontal=True, vertical_alignment="center", key=f"compare.entry.{entry.id}"
    ):
        with st.container(gap=None):
            flag = " :blue-badge[:material/flag: baseline]" if baseline is None else ""
            st.markdown(f"**{format.plain(name)}**{flag}")
            found = settings.differences(entry.spec, baseline.spec) if baseline is not None else []
            st.caption(format.plain(" · ".join([entry.source, *(text for _, text in found)])))
            if missing := _missing_provider(entry):
                color, word = ("orange", "falls back") if can_load(entry) else ("red", "cannot load")
                st.caption(f":{color}-badge[:material/block: {word}] {format.plain(missing)}")
        if baseline is not None:
            st.button(
                "Make baseline",
                key=f"compare.flag.{entry.id}",
                icon=":material/flag:",
                type="tertiary",
                on_click=_set_baseline,
                args=(entry.id,),
                help="Put all others against this one.",
            )
        st.button(
            "Remove",
            key=f"compare.drop.{entry.id}",
            icon=":material/close:",
            type="tertiary",
            on_click=_remove,
            args=(record, entry.id),
        )


def _adders(record: ModelRecord) -> None:
    st.toggle(
        "Different models",
        key=DIFFERENT,
        persist_state="session",
        help="Lets models race that compute something else. Every verdict on one says so, with the error.",
    )
    with st.container(horizontal=True, gap="small", key="compare.adders"):
        with st.popover("Presets", icon=":material/bookmark:", help="Named starting points."):
            _preset_buttons(record)
        with st.popover("History", icon=":material/history:", help="Earlier trials of this model."):
            _history(record)
        with st.popover("YAML", icon=":material/upload_file:", help="A file that ORTune exported."):
            _yaml(record)
        with st.popover(
            "Variants",
            icon=":material/science:",
            help="The original of this model and its variants, each on ONNX Runtime's default.",
        ):
            _variants(record)
        if different_models():
            with st.popover("Models", icon=":material/deployed_code:", help="Any model of the library."):
                _other_models(record)
        st.button(
            "Settings of Tune",
            key="compare.add.current",
            icon=":material/tune:",
            on_click=_add_current,
            args=(record,),
            help="What the settings on Tune ask for now.",
        )
        if torch_source(record) is not None:
            for engine in (name for name, one in ENGINES.items() if one.program):
                st.button(
                    ENGINES[engine].label,
                    key=f"compare.add.{engine}",
                    icon=":material/local_fire_department:",
                    on_click=_add_engine,
                    args=(record, engine),
                    help="The PyTorch model that was exported to this file, on the same feeds, in a worker "
                    "of its own.",
                )


def _variants(record: ModelRecord) -> None:
    own = record.content_sha256
    relatives = {
        one.content_sha256: one for one in variants.family(state.store(), record) if one.content_sha256 != own
    }
    if not relatives:
        st.caption("This model has no variants yet: make some on the Variants page.")
        return
    st.multiselect(
        "Variants",
        list(relatives),
        key=RELATIVES,
        format_func=lambda one: _relative_label(relatives[one]) if one in relatives else one[:8],
        placeholder="Choose variants",
        help="They are fed what the list is fed, and run on ONNX Runtime's default.",
    )
    st.button(
        "Add",
        key="compare.add.variants",
        icon=":material/add:",
        on_click=_add_variants,
        args=(record,),
        help="Add each as an entry of its own.",
    )


def _relative_label(one: ModelRecord) -> str:
    made = variants.lineage(one) or "original"
    return f"{one.name} · {made} · {format.size(one.info['size_bytes'])}"


def _add_variants(record: ModelRecord) -> None:
    """Add the chosen ones, all on one workload: sizes that one of them has fixed hold for the others too."""
    relatives = {one.content_sha256: one for one in variants.family(state.store(), record)}
    chosen = [relatives[one] for one in st.session_state.get(RELATIVES) or [] if one in relatives]
    made = {one.sha256: variants.lineage(one) or "original" for one in chosen}
    try:
        for asked in variants.race_of_family(chosen, _base(record)):
            _add(record, _entry(made[asked.spec.model.sha256 or ""], asked.spec, record))
    except TunerError as error:
        state.keep_error(error, PLACE)
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
        help="They are fed what the list is fed, as far as they take it, and run on ONNX Runtime's default.",
    )
    st.button("Add", key="compare.add.others", icon=":material/add:", on_click=_add_others, args=(record,))


def _add_others(record: ModelRecord) -> None:
    """Add the chosen models, each on ONNX Runtime's default."""
    known = {one.content_sha256: one for one in state.store().models()}
    try:
        chosen = [known[one] for one in st.session_state.get(OTHERS) or [] if one in known]
        for asked in variants.race_of_family(chosen, _base(record)):
            _add(record, _entry("another model", asked.spec, record))
    except TunerError as error:
        state.keep_error(error)
    st.session_state[OTHERS] = []


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
        spec = contestants.from_preset(name, _base(record))
    except TunerError as error:
        state.keep_error(error, PLACE)
        return
    _try_add(record, f"preset: {PRESETS[name][0]}", spec)


def _add_current(record: ModelRecord) -> None:
    try:
        spec = state.current_spec()
    except TunerError as error:
        state.keep_error(error, PLACE)
        return
    _try_add(record, "settings of Tune", spec)


def _add_engine(record: ModelRecord, engine: str) -> None:
    try:
        spec = contestants.from_engine(engine, _base(record))
    except TunerError as error:
        state.keep_error(error, PLACE)
        return
    _try_add(record, "the model before its export", spec)


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
    try:
        asked = "; ".join(settings.asked_for(trial)) or "defaults"
    except TunerError:
        asked = "settings of another version"
    busy = verdict.busy_mark(trial.result)
    return f"{asked} · p50 {format.ms(p50)}{busy} · {format.when(trial.created_at)} · {trial.id[:8]}"


def _add_picked(record: ModelRecord) -> None:
    try:
        for one in st.session_state.get(PICKED) or []:
            trial = state.store().trial(one)
            _add(record, _entry(f"trial {trial.id[:8]}", state.trial_spec(trial), record))
    except TunerError as error:
        state.keep_error(error, PLACE)
    st.session_state[PICKED] = []


def _yaml(record: ModelRecord) -> None:
    st.file_uploader("File", type=["yaml", "yml"], key=FILE, max_upload_size=1)
    st.text_area("or its text", key=PASTED, height=120, placeholder="schema: 1\nmodel: …")
    st.button("Add", key="compare.add.yaml", icon=":material/add:", on_click=_add_yaml, args=(record,))


def _add_yaml(record: ModelRecord) -> None:
    try:
        name, text = _yaml_text()
        spec = spec_from_yaml(text, expert=expert_allowed())
        check_spec(spec)
        if not spec.model.sha256:  # without a hash, the path or the name must be this model's
            found = state.find_model(spec.model, foreign=True)
            known = {"sha256": found.sha256}
            spec = spec.model_copy(update={"model": spec.model.model_copy(update=known)})
        _add(record, _entry(name, spec, record))
    except TunerError as error:
        state.keep_error(error, PLACE)


def _yaml_text() -> tuple[str, str]:
    uploaded = st.session_state.get(FILE)
    if uploaded is None:
        text = st.session_state.get(PASTED) or ""
        if not text.strip():
            raise SpecError("There is no YAML to add.", hint="Choose a file or paste its text.")
        return "pasted YAML", text
    try:
        return uploaded.name, str(uploaded.getvalue(), "utf-8")
    except UnicodeDecodeError:
        raise SpecError(
            "The file is not text in UTF-8.", hint="Choose a YAML file that ORTune exported."
        ) from None
