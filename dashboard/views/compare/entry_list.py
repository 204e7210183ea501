"""The list of configurations that shall race; `adders` draws the ways into it.

The list is kept in the session as plain data, for one model; `contestants` knows what may stand in it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import streamlit as st

from core.evidence.comparison import same_request
from core.evidence.measurement import Trial
from core.run import variants
from core.run.plan import feed_plan
from core.show import setting_chips
from core.spec import TrialSpec, anchor
from core.store import ModelRecord
from core.wire.errors import SpecError, TunerError
from dashboard import configurations, format, state
from dashboard.configurations import Entry

# keys of the session
ENTRIES = "compare.entries"  # the list, as plain data
OF_MODEL = "compare.of_model"  # content hash of the model that the list is of
BASELINE = "compare.baseline"  # id of the entry that is the baseline
PLACE = "compare.list"  # where errors of adding to the list are shown: under the ways to add
DIFFERENT = "compare.different"  # whether models that compute something else may race
FED = "compare.fed"  # prefix of the keys of what all are fed

FIELD_PX = 124  # two of them stand beside each other


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
    taken = [
        entry_of(f"trial {trial.id[:8]}", spec, record) for trial, spec in zip(trials, specs, strict=True)
    ]
    _put(record, [])
    for entry in taken:
        add(record, entry)


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
    default = entry_of("preset: ORT default", anchor(spec), record)
    if same_request(spec, default.spec):
        return [default]
    return [default, entry_of("settings of Tune", spec, record)]


def _put(record: ModelRecord, listed: Sequence[Entry]) -> None:
    st.session_state[OF_MODEL] = record.content_sha256
    st.session_state[ENTRIES] = [one.to_dict() for one in listed]
    if st.session_state.get(BASELINE) not in {one.id for one in listed}:
        st.session_state[BASELINE] = listed[0].id if listed else None


def entry_of(source: str, spec: TrialSpec, record: ModelRecord) -> Entry:
    """Return an entry, on the model as this server keeps it: the list's own, or one of its family.

    Raises:
        SpecError: the configuration is of another model.
    """
    model = _model_of(spec, record)
    if model is None:
        raise SpecError(
            f"The configuration ({source}) belongs to another model than `{record.name}` and its variants.",
            hint='Compare configurations of one model and its variants, or switch on "Different models".',
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
    return configurations.labels([one.spec for one in listed], baseline_index(listed), models, record.name)


def can_load(entry: Entry) -> bool:
    """Whether an entry can be loaded on this machine, as far as that is known before the race."""
    return entry.spec.session.allow_fallback or not _missing_provider(entry)


def _missing_provider(entry: Entry) -> str:
    if not entry.spec.session.providers:
        return ""
    try:
        return configurations.missing_provider(entry.spec, state.environment()["providers"])
    except TunerError:  # said where the machine is looked at
        return ""


def base(record: ModelRecord) -> TrialSpec:
    """Return what a new entry begins with: the model of the list, fed what the list is fed.

    Raises:
        TunerError: the settings of Tune, or what the list is fed, cannot be used.
    """
    spec, own = state.current_spec(), entries(record)
    return configurations.fed_like(spec, own[baseline_index(own)].spec) if own else spec


def add(record: ModelRecord, entry: Entry) -> None:
    """Add an entry to the list.

    Raises:
        SpecError: it is in the list already, or the list is full.
    """
    own = entries(record)
    if any(same_request(one.spec, entry.spec) for one in own):
        raise SpecError(
            f"This configuration ({entry.source}) is in the list already.", hint="Change a setting first."
        )
    configurations.check_room(own)
    _put(record, [*own, entry])


def _remove(record: ModelRecord, entry_id: str) -> None:
    _put(record, [one for one in entries(record) if one.id != entry_id])


def _set_baseline(entry_id: str) -> None:
    st.session_state[BASELINE] = entry_id


def baseline_index(listed: Sequence[Entry]) -> int:
    """Which entry of the list is the baseline; the first one where none was chosen."""
    return next((i for i, one in enumerate(listed) if one.id == st.session_state.get(BASELINE)), 0)


# --- drawing it -------------------------------------------------------------------------------------------


def draw(record: ModelRecord) -> None:
    """Draw the list."""
    listed = entries(record)
    if not listed:
        st.info("The list is empty: add two to eight configurations.", icon=":material/playlist_add:")
        return
    against = baseline_index(listed)
    for index, (entry, name) in enumerate(zip(listed, names(record, listed), strict=True)):
        _line(record, entry, name, None if index == against else listed[against])


def inputs(record: ModelRecord) -> None:
    """Draw what all are fed, to be changed for all at once."""
    listed = entries(record)
    if not listed:
        return
    spec, info = listed[baseline_index(listed)].spec, record.info
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="compare.workload"):
        if info["batch_dim"] is not None:
            _fed_number(record, "batch_size", "Batch", spec.workload.batch_size or 1, least=1)
        for dim in info["free_dims"]:
            if dim != info["batch_dim"]:
                _fed_number(record, f"dims.{dim}", dim, spec.workload.dims.get(dim), least=0)
        _fed_number(record, "seed", "Seed", spec.workload.seed, least=0)
    source = "random values" if spec.workload.feeds == "random" else spec.workload.feeds
    st.caption(f"Inputs of all: {format.plain(source)}.")


def _fed_number(record: ModelRecord, name: str, label: str, value: int | None, *, least: int) -> None:
    key = f"{FED}.{name}"
    st.session_state[key] = value  # of the list, which is what counts
    st.number_input(
        format.plain(label),
        min_value=least,
        step=1,
        key=key,
        width=FIELD_PX,
        on_change=_refeed,
        args=(record, name),
        help="For all configurations. Presets with a batch of their own keep it.",
    )


def _refeed(record: ModelRecord, name: str) -> None:
    own, value = entries(record), st.session_state[f"{FED}.{name}"]
    value = None if name == "batch_size" and value == 1 else value  # what the model does unasked
    try:
        changed = configurations.refed(own, baseline_index(own), name, value)
        for one in changed:
            if not one.model:
                feed_plan(one.spec.workload, record.info)  # a size that cannot be is said here
    except TunerError as error:
        state.keep_error(error)
        return
    _put(record, changed)


def _line(record: ModelRecord, entry: Entry, name: str, baseline: Entry | None) -> None:
    """One entry: its name, its source, all that differs from `baseline`; None: it is the baseline."""
    with st.container(
        border=True, horizontal=True, vertical_alignment="center", key=f"compare.entry.{entry.id}"
    ):
        with st.container(gap=None):
            flag = " :blue-badge[:material/flag: baseline]" if baseline is None else ""
            st.markdown(f"**{format.plain(name)}**{flag}")
            found = setting_chips.differences(entry.spec, baseline.spec) if baseline is not None else []
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
                help="Compares all others with this one.",
            )
        st.button(
            "Remove",
            key=f"compare.drop.{entry.id}",
            icon=":material/close:",
            type="tertiary",
            on_click=_remove,
            args=(record, entry.id),
        )
