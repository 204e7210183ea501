"""The configurations of a load test: current settings, presets, earlier trials, variants and loaded ones.

The session keeps their names, and configurations that came with a link or a file as plain data.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.api import variants
from core.evidence.comparison import Configuration
from core.evidence.measurement import Trial
from core.show import setting_chips
from core.spec import TrialSpec, ort_default, spec_from_dict
from core.spec.load import MOST_CONFIGURATIONS
from core.spec.presets import PRESETS
from core.store import ModelRecord
from core.wire.errors import SpecError, TunerError
from dashboard import configurations, format, messages, state
from dashboard.folders import check_spec
from dashboard.widgets import yaml_source

# session keys
CHOSEN = "load.chosen"  # names of the chosen configurations
OWN = "load.own"  # name -> label, spec and model of loaded configurations, as plain data
FILE, PASTED = "load.file", "load.pasted"

CURRENT, DEFAULT = "current", "default"
OFFERED = 50  # earlier trials in the list
PLACE = "load.list"  # where errors of adding are shown
LABEL_LIMIT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """One configuration of the list; `spec` is built when it is chosen."""

    label: str
    source: Any


def draw(record: ModelRecord, *, others: bool, single: bool = False) -> None:
    """Draw the choice of configurations.

    Args:
        record: the current model.
        others: offer the other models of the library, too.
        single: one configuration only.
    """
    offered = _offered(record, others=others)
    kept = [one for one in st.session_state.get(CHOSEN) or [] if one in offered]
    st.session_state[CHOSEN] = kept or [CURRENT]
    st.multiselect(
        "Configurations",
        list(offered),
        key=CHOSEN,
        format_func=lambda one: offered[one].label if one in offered else str(one),
        max_selections=MOST_CONFIGURATIONS,
        persist_state="session",
        placeholder="Choose configurations",
        help="The first one is tested."
        if single
        else "Current settings are those of Tune. Several are compared at the same rates, in turns.",
    )
    with st.popover(
        "From YAML", icon=":material/upload_file:", key="load.yaml", help="A file that ORTune exported."
    ):
        yaml_source.fields(FILE, PASTED, begins="schema: 1\nmodel: …")
        st.button("Add", key="load.add.yaml", icon=":material/add:", on_click=_add_yaml)
    messages.show_kept_error(PLACE, "Not added to the list")


def _offered(record: ModelRecord, *, others: bool) -> dict[str, _Offer]:
    found = {
        CURRENT: _Offer(label="Current settings", source=None),
        DEFAULT: _Offer(label="ORT default", source=None),
    }
    found |= {
        f"preset:{name}": _Offer(label=row[0], source=name)
        for name, row in PRESETS.items()
        if name != DEFAULT
    }
    found |= {
        f"own:{name}": _Offer(label=format.short(str(one["label"]), LABEL_LIMIT), source=one)
        for name, one in _own().items()
    }
    family = {one.content_sha256 for one in variants.family(state.store(), record)}
    for one in state.store().models():
        if one.content_sha256 != record.content_sha256 and (others or one.content_sha256 in family):
            label = format.short(f"{one.name} · ORT default", LABEL_LIMIT)
            found[f"model:{one.content_sha256}"] = _Offer(label=label, source=one)
    for trial in state.measured(record, limit=OFFERED):
        found[f"trial:{trial.id}"] = _Offer(label=_trial_label(trial), source=trial)
    return found


def _own() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = st.session_state.get(OWN) or {}
    return found


def _trial_label(trial: Trial) -> str:
    changed = format.short(setting_chips.short_changes(trial) or "ORT default", 36)
    return f"{changed} · p50 {format.ms(trial.p50_s)} · {trial.id[:8]}"


def names() -> list[str]:
    """Return the names of the chosen configurations."""
    return list(st.session_state.get(CHOSEN) or [])


def configurations_of(record: ModelRecord, *, others: bool) -> list[Configuration]:
    """Return the chosen configurations, each with a name that tells it apart.

    Args:
        record: the current model.
        others: other models are allowed.

    Raises:
        TunerError: none is chosen, one cannot be read, or its model is not here.
    """
    offered = _offered(record, others=others)
    chosen = [one for one in names() if one in offered]
    if not chosen:
        raise SpecError("No configuration is chosen.", hint="Choose one in the list.")
    found = [_spec(name, offered[name].source, record) for name in chosen]
    models = ["" if one.content_sha256 == record.content_sha256 else one.name for _, one in found]
    labels = configurations.labels([spec for spec, _ in found], 0, models, record.name)
    return [
        Configuration(spec=spec, label=label, role="baseline" if index == 0 else "candidate", model=one.name)
        for index, ((spec, one), label) in enumerate(zip(found, labels, strict=True))
    ]


def _spec(name: str, source: Any, record: ModelRecord) -> tuple[TrialSpec, ModelRecord]:
    """Return the spec of an offered configuration, and its model."""
    kind = name.partition(":")[0]
    if kind == "model":
        [asked] = variants.family_configurations([source], state.current_spec())
        return asked.spec, source
    if kind in ("trial", "own"):
        spec = state.trial_spec(source) if kind == "trial" else spec_from_dict(source["spec"])
        found = state.find_model(spec.model)
        here = {"path": state.portable(found.path), "sha256": found.sha256}
        return spec.model_copy(update={"model": spec.model.model_copy(update=here)}), found
    base = state.current_spec()
    if kind == CURRENT:
        return base, record
    return (ort_default(base) if kind == DEFAULT else configurations.from_preset(source, base)), record


# --- loaded ones ------------------------------------------------------------------------------------------


def take(found: Sequence[tuple[str, TrialSpec]]) -> None:
    """Replace the choice by these configurations.

    Args:
        found: label and configuration of each.
    """
    chosen, own = [], {}
    for label, spec in found[:MOST_CONFIGURATIONS]:
        name = secrets.token_hex(4)
        own[name] = {"label": label, "spec": spec.to_dict()}
        chosen.append(f"own:{name}")
    st.session_state[OWN], st.session_state[CHOSEN] = own, chosen


def _add_yaml() -> None:
    try:
        label, spec = yaml_source.read(FILE, PASTED, to="add")
        check_spec(spec, state.store())
        state.find_model(spec.model, foreign=True)
        if len(names()) >= MOST_CONFIGURATIONS:
            raise SpecError(
                f"A load test takes at most {MOST_CONFIGURATIONS} configurations.", hint="Remove one first."
            )
    except TunerError as error:
        messages.keep_error(error, PLACE)
        return
    name = secrets.token_hex(4)
    st.session_state[OWN] = {**_own(), name: {"label": label, "spec": spec.to_dict()}}
    st.session_state[CHOSEN] = [*names(), f"own:{name}"]
