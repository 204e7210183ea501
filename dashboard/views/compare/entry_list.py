"""The list of configurations to compare; `add_menu` draws the menu that adds to it.

The session keeps the list as plain data, for one model. `configurations` says which entries are allowed.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence

import streamlit as st

from core.api import variants
from core.api.requests import feed_plan
from core.evidence.comparison import same_request
from core.evidence.measurement import Trial
from core.show import setting_chips
from core.spec import TrialSpec, ort_default
from core.store import ModelRecord
from core.wire.errors import SpecError, TunerError
from dashboard import configurations, format, messages, runtimes, state
from dashboard.configurations import Entry

# session keys
ENTRIES = "compare.entries"  # the list, as plain data
OF_MODEL = "compare.of_model"  # content hash of the list's model
BASELINE = "compare.baseline"  # id of the entry that is the baseline
PLACE = "compare.list"  # where errors of adding are shown: under the menu
DIFFERENT = "compare.different"  # whether unrelated models may be compared
INPUTS = "compare.fed"  # prefix of the keys of the common inputs

FIELD_PX = 124  # two fields fit in one row


def replace_with_trials(trials: Sequence[Trial]) -> None:
    """Replace the list by these trials; the first one is the baseline.

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


def has_list() -> bool:
    """Return whether this session has a list."""
    return OF_MODEL in st.session_state


def entries(record: ModelRecord) -> list[Entry]:
    """Return the list of this session; at first the ORT default, and Tune's settings where they differ."""
    if st.session_state.get(OF_MODEL) != record.content_sha256:
        _put(record, _first(record))
    return [Entry.from_dict(one) for one in st.session_state[ENTRIES]]


def _first(record: ModelRecord) -> list[Entry]:
    try:
        spec = state.current_spec()
    except TunerError:  # shown on Tune; the list starts empty
        return []
    default = entry_of("preset: ORT default", ort_default(spec), record)
    if same_request(spec, default.spec):
        return [default]
    return [default, entry_of("settings of Tune", spec, record)]


def _put(record: ModelRecord, listed: Sequence[Entry]) -> None:
    st.session_state[OF_MODEL] = record.content_sha256
    st.session_state[ENTRIES] = [one.to_dict() for one in listed]
    if st.session_state.get(BASELINE) not in {one.id for one in listed}:
        st.session_state[BASELINE] = listed[0].id if listed else None


def entry_of(source: str, spec: TrialSpec, record: ModelRecord) -> Entry:
    """Return an entry on this server's copy of the model: the model of the list, or one of its family.

    Raises:
        SpecError: the configuration belongs to another model.
    """
    model = _model_of(spec, record)
    if model is None:
        raise SpecError(
            f"The configuration ({source}) belongs to another model than `{record.name}` and its variants.",
            hint='Compare configurations of one model and its variants, or switch on "Different models".',
        )
    here = {"path": state.portable(model.path), "sha256": model.sha256}
    spec = spec.model_copy(update={"model": spec.model.model_copy(update=here)})
    with contextlib.suppress(TunerError):  # the list says why this machine lacks the runtime
        spec = runtimes.pinned_spec(spec)
    other = "" if model.content_sha256 == record.content_sha256 else model.name
    return Entry(id=secrets.token_hex(4), source=source, spec=spec, model=other)


def _model_of(spec: TrialSpec, record: ModelRecord) -> ModelRecord | None:
    """Return the model that a configuration runs; None where it is not related to `record`."""
    if spec.model.sha256 in (None, record.sha256, record.content_sha256):
        return record
    relatives = state.store().models() if different_models() else variants.family(state.store(), record)
    return next((one for one in relatives if spec.model.sha256 in (one.sha256, one.content_sha256)), None)


def different_models() -> bool:
    """Return whether the switch is on that allows models with other computations."""
    return bool(st.session_state.get(DIFFERENT))


def names(record: ModelRecord, listed: Sequence[Entry]) -> list[str]:
    """Return the display names of the entries."""
    models = [one.model for one in listed]
    return configurations.labels([one.spec for one in listed], baseline_index(listed), models, record.name)


def can_load(record: ModelRecord, entry: Entry) -> bool:
    """Return whether an entry can be loaded on this machine, as far as is known before the comparison."""
    if _lacking(record, entry):
        return False
    return entry.spec.session.allow_fallback or not _missing_provider(entry)


def _lacking(record: ModelRecord, entry: Entry) -> str:
    """Return why the runtime of an entry cannot run it; empty: it can, or that is not known."""
    model = _model_of(entry.spec, record)
    return state.lacking(entry.spec, model) if model is not None else ""


def _missing_provider(entry: Entry) -> str:
    if not entry.spec.session.providers:
        return ""
    try:
        return configurations.missing_provider(entry.spec, state.providers(entry.spec.runtime))
    except TunerError:  # shown on the Machine page
        return ""


def base(record: ModelRecord) -> TrialSpec:
    """Return the spec that new entries start from: the model and the inputs of the list.

    Raises:
        TunerError: the settings of Tune, or the inputs of the list, are invalid.
    """
    spec, own = state.current_spec(), entries(record)
    return configurations.with_inputs_of(spec, own[baseline_index(own)].spec) if own else spec


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


def add_in_runtimes(record: ModelRecord, names: Sequence[str]) -> None:
    """Add the settings of Tune once for each runtime; those that are in the list already are left out.

    Raises:
        TunerError: the settings of Tune are invalid, the list is full, or has all of them already.
    """
    spec = base(record)
    asked = [
        entry_of("settings of Tune", spec.model_copy(update={"runtime": name}), record) for name in names
    ]
    known = [one.spec for one in entries(record)]
    new = [one for one in asked if not any(same_request(one.spec, have) for have in known)]
    for entry in new or asked:
        add(record, entry)


def _remove(record: ModelRecord, entry_id: str) -> None:
    _put(record, [one for one in entries(record) if one.id != entry_id])


def baseline_index(listed: Sequence[Entry]) -> int:
    """Return the index of the baseline; 0 where none was chosen."""
    return next((i for i, one in enumerate(listed) if one.id == st.session_state.get(BASELINE)), 0)


# --- drawing ----------------------------------------------------------------------------------------------


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
    """Draw the common inputs; a change applies to all entries."""
    listed = entries(record)
    if not listed:
        return
    spec, info = listed[baseline_index(listed)].spec, record.info
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="compare.workload"):
        if info["batch_dim"] is not None:
            _input_field(record, "batch_size", "Batch", spec.workload.batch_size or 1, least=1)
        for dim in info["free_dims"]:
            if dim != info["batch_dim"]:
                _input_field(record, f"dims.{dim}", dim, spec.workload.dims.get(dim), least=0)
        _input_field(record, "seed", "Seed", spec.workload.seed, least=0)
    source = "random values" if spec.workload.feeds == "random" else spec.workload.feeds
    st.caption(f"Inputs of all: {format.plain(source)}.")


def _input_field(record: ModelRecord, name: str, label: str, value: int | None, *, least: int) -> None:
    key = f"{INPUTS}.{name}"
    st.session_state[key] = value  # the list holds the value, the widget shows it
    st.number_input(
        format.plain(label),
        min_value=least,
        step=1,
        key=key,
        width=FIELD_PX,
        on_change=_change_inputs,
        args=(record, name),
        help="For all configurations. Presets with a batch of their own keep it.",
    )


def _change_inputs(record: ModelRecord, name: str) -> None:
    own, value = entries(record), st.session_state[f"{INPUTS}.{name}"]
    value = None if name == "batch_size" and value == 1 else value  # the default of the model
    try:
        changed = configurations.with_changed_input(own, baseline_index(own), name, value)
        for one in changed:
            if not one.model:
                feed_plan(one.spec.workload, record.info)  # raises for an impossible size
    except TunerError as error:
        messages.keep_error(error)
        return
    _put(record, changed)


def _line(record: ModelRecord, entry: Entry, name: str, baseline: Entry | None) -> None:
    """Draw one entry: name, source, and its differences from `baseline`; None: it is the baseline."""
    with st.container(
        border=True, horizontal=True, vertical_alignment="center", key=f"compare.entry.{entry.id}"
    ):
        with st.container(gap=None):
            flag = " :blue-badge[:material/flag: baseline]" if baseline is None else ""
            st.markdown(f"**{format.plain(name)}**{flag}")
            found = setting_chips.differences(entry.spec, baseline.spec) if baseline is not None else []
            st.caption(
                format.plain(" · ".join([entry.source, *(one.chip for one in found)])),
                help="  \n".join(format.code(one.full) for one in found) or None,
            )
            if missing := _lacking(record, entry) or _missing_provider(entry):
                color, word = ("orange", "falls back") if can_load(record, entry) else ("red", "cannot load")
                st.caption(f":{color}-badge[:material/block: {word}] {format.plain(missing)}")
        if baseline is not None:
            st.button(
                "Make baseline",
                key=f"compare.flag.{entry.id}",
                icon=":material/flag:",
                type="tertiary",
                on_click=state.put,
                args=(BASELINE, entry.id),
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
