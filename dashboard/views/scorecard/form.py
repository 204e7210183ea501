"""The form of the scorecard: targets, labelled data, configurations and effort, in collapsible groups."""

from __future__ import annotations

import streamlit as st

from core.api import variants
from core.api.references import with_full_paths
from core.spec import TrialSpec, spec_from_yaml
from core.spec.datasets import DatasetSpec
from core.spec.effort import EFFORTS
from core.spec.presets import PRESETS
from core.spec.targets import TargetSpec
from core.store import ModelRecord
from core.wire.errors import SpecError, TunerError
from core.wire.files import ROOT
from dashboard import configurations, state
from dashboard.views.scorecard import targets as scorecard_targets
from dashboard.widgets import collapsible, dataset, yaml_source
from dashboard.widgets.protocol import QUICK, effort, wait_for_quiet

# session keys
MODELS, OF_FAMILY = (
    "scorecard.models",
    "scorecard.of_family",
)  # content hashes of the chosen models; hash of their original
SETTINGS = "scorecard.settings"
PRECISION = "scorecard.precision"
LOAD = "scorecard.load"  # where errors of loading are shown
FILE, PASTED = "scorecard.file", "scorecard.pasted"
TARGETS, DATA, WHO, HOW = "scorecard.what", "scorecard.data", "scorecard.who", "scorecard.how"  # the groups

DEFAULT, TUNE = "ORT default", "Settings of Tune"  # as stored in forms
EXAMPLE = ROOT / "sample_models" / "digits_scorecard.yaml"
MOST_MODELS = 4  # models selected at first in a large family


# --- targets and data ---------------------------------------------------------------------------------------


def what(record: ModelRecord | None) -> tuple[DatasetSpec | None, list[TargetSpec]]:
    """Draw the targets and the labelled data, and return both."""
    stated, lines = len(scorecard_targets.read()), len(scorecard_targets.ids())
    count = f"{stated}" if stated == lines else f"{stated} of {lines}"
    with collapsible.box(f"Targets ({count})", key=TARGETS, icon="checklist", first_open=not stated) as box:
        targets = _targets() if box.open else scorecard_targets.read()
    state.show_kept_error(LOAD, "The targets were not loaded")
    needed = any(one.about.source == "accuracy" for one in targets)
    # the YAML includes data that no target needs
    return _data(record) if needed else dataset.labelled_if_valid(), targets


def _targets() -> list[TargetSpec]:
    targets = scorecard_targets.draw()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Example: digits",
            key="scorecard.example",
            icon=":material/lightbulb:",
            on_click=_load_example,
            help="Medical targets on the sample model: one digit must not be missed.",
        )
        with st.popover(
            "From YAML", icon=":material/upload_file:", key="scorecard.yaml", help="A file with targets."
        ):
            _yaml()
    return targets


def _data(record: ModelRecord | None) -> DatasetSpec | None:
    named = bool(st.session_state.get(dataset.key(dataset.LABELLED, "path")))
    with collapsible.box("Labelled data", key=DATA, icon="dataset", first_open=not named) as box:
        if box.open:
            outputs = [one["name"] for one in record.info["outputs"]] if record is not None else []
            return dataset.form(dataset.LABELLED, outputs=outputs)
    try:
        return dataset.chosen_dataset(dataset.LABELLED)
    except TunerError as error:
        state.report(error)
        return None


def _load_example() -> None:
    try:
        load(spec_from_yaml(EXAMPLE.read_text(encoding="utf-8")))
    except OSError as error:
        state.keep_error(
            SpecError(f"The example cannot be read: {error.strerror}.", hint="Install again."), LOAD
        )
    except TunerError as error:
        state.keep_error(error, LOAD)


def load(spec: TrialSpec, *, foreign: bool = False) -> None:
    """Apply the targets, the data and the settings of a configuration.

    Raises:
        SpecError: it has no targets.
        ModelError: its model is not here, or may not be named in the browser.
    """
    if not spec.targets:
        raise SpecError(
            "The configuration has no targets.", hint="Add `targets:` to the file, or state them here."
        )
    state.apply_spec(spec, foreign=foreign)
    scorecard_targets.load(spec.targets)
    if spec.dataset is not None:
        dataset.fill(dataset.LABELLED, spec.dataset)
    st.session_state[SETTINGS] = [DEFAULT] if configurations.is_default(spec) else [TUNE]
    st.session_state[TARGETS] = st.session_state[DATA] = False  # so that the result is in view


def _yaml() -> None:
    yaml_source.fields(FILE, PASTED, begins="schema: 1\ntargets: …")
    st.button("Load", key="scorecard.load", icon=":material/upload:", on_click=_load_yaml)


def _load_yaml() -> None:
    try:
        load(with_full_paths(yaml_source.read(FILE, PASTED, to="load")[1]), foreign=True)
    except TunerError as error:
        state.keep_error(error, LOAD)


# --- configurations and effort ------------------------------------------------------------------------------


def models_and_settings(record: ModelRecord) -> list[ModelRecord]:
    """Draw the choice of models and settings; return the models."""
    family = _family(record)
    st.session_state.setdefault(SETTINGS, [DEFAULT])
    count = len(st.session_state[MODELS]) * len(st.session_state[SETTINGS])
    with collapsible.box(f"Configurations ({count})", key=WHO, icon="list", first_open=not count) as box:
        if box.open:
            _choices(family)
    return [family[sha] for sha in st.session_state[MODELS]]


def _family(record: ModelRecord) -> dict[str, ModelRecord]:
    """Return the models to choose from; for another family, select the first ones."""
    family = {one.content_sha256: one for one in variants.family(state.store(), record)}
    root = next(iter(family))
    if st.session_state.get(OF_FAMILY) != root:
        first = dict.fromkeys([root, record.content_sha256, *reversed(list(family)[1:])])
        st.session_state[OF_FAMILY], st.session_state[MODELS] = root, list(first)[:MOST_MODELS]
    st.session_state[MODELS] = [one for one in st.session_state.get(MODELS) or [] if one in family]
    return family


def _choices(family: dict[str, ModelRecord]) -> None:
    left, right = st.columns(2, gap="medium")
    left.multiselect(
        "Original and variants",
        list(family),
        key=MODELS,
        format_func=lambda sha: family[sha].name if sha in family else str(sha)[:12],
        persist_state="session",
        placeholder="Choose models",
        help="Create variants on the Variants page.",
    )
    right.multiselect(
        "Settings",
        [DEFAULT, TUNE, *(name for name in PRESETS if name != "default")],
        key=SETTINGS,
        format_func=label,
        persist_state="session",
        placeholder="Choose settings",
        help="Each chosen model is judged with each of these.",
    )


def label(name: str) -> str:
    """Return the display name of settings."""
    return PRESETS[name][0] if name in PRESETS else {TUNE: "Current settings"}.get(name, name)


def effort_and_wait() -> None:
    """Draw effort and waiting for an idle machine."""
    chosen = chosen_effort()
    with collapsible.box(f"Effort: {chosen}", key=HOW, icon="timer") as box:
        if box.open:
            effort(PRECISION)
            wait_for_quiet()


def chosen_effort() -> str:
    """Return the effort of this session."""
    found = str(st.session_state.get(PRECISION))
    return found if found in EFFORTS else QUICK
