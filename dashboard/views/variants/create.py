"""Create a variant: form of the steps, calibration data, sizes and name, and its job."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.api import variants
from core.api.variants import transform_job
from core.show.sheets import variants as sheets
from core.spec import WorkloadSpec
from core.spec.datasets import DatasetSpec
from core.spec.settings import trial_setting
from core.spec.steps import Step, chain_text, check_chain
from core.store import ModelRecord
from core.wire.errors import SpecError, TunerError
from dashboard import fields, format, messages, session_jobs, state
from dashboard.views.variants import job as variant_job
from dashboard.views.variants import steps as step_controls
from dashboard.views.variants import text as variant_text
from dashboard.widgets import controls, dataset, feeding, setting

NAME, CALIBRATION = "variants.name", "variants.calibration"
RANDOM, DATA = "Random values", "My data"


# --- sizes --------------------------------------------------------------------------------------------------


def sizes_form(record: ModelRecord) -> None:
    """Draw batch size and free dimensions, shared with Tune; checks, errors and comparisons use them."""
    state.seed(record)
    setting.one(trial_setting("batch_size"), None, record)
    feeding.dims(record)
    with st.expander("Inputs", icon=":material/input:", key="variants.feeds"):
        feeding.feeds(record, {})
    controls.operators()
    try:
        workload(record)
    except TunerError as error:
        messages.report(error)


def workload(record: ModelRecord) -> WorkloadSpec:
    """Return the workload of `record` from the form.

    Raises:
        SpecError: a value that cannot be read.
    """
    return fields.workload_from_values(state.values(record), record.info)


def _check_workload(record: ModelRecord) -> WorkloadSpec:
    """Return the workload of the output check: random inputs at several batch sizes, or a file at one."""
    asked = workload(record)
    return asked if asked.feeds != fields.RANDOM else asked.model_copy(update={"batch_size": None})


# --- the form -----------------------------------------------------------------------------------------------


def draw(source: ModelRecord, action: DeltaGenerator, running: DeltaGenerator) -> None:
    """Draw the form that creates a variant of `source`.

    Args:
        source: an original, or a variant that the steps continue from.
        action: the place of the Create button.
        running: the place of the progress.
    """
    steps = step_controls.builder(source.info)
    reason = _why_not(steps, source)
    calibrates = steps and any(step.type.needs_calibration for step in steps)
    lacks = _calibration_form() if calibrates else ""
    if steps and reason:
        st.warning(format.plain(reason), icon=":material/block:")
    reason = reason or lacks
    status = variant_job.find(variant_job.MAKE, source)
    active = session_jobs.is_active(status)
    st.text_input(
        "Name",
        key=NAME,
        placeholder=f"{source.name} {chain_text(steps)}" if steps else "named after its steps",
        help="Empty: named after its steps.",
        persist_state="session",
    )
    action.button(
        "Creating" if active else "Create variant",
        key="variants.make",
        type="primary",
        icon=":material/science:",
        shortcut="Ctrl+Enter",
        disabled=active or not steps or bool(reason),
        help=reason or "Runs each step in its own process, and compares the outputs with the original's.",
        on_click=_make,
        args=(source,),
    )
    with running:
        variant_job.live(status, "make")


def _why_not(steps: Sequence[Step] | None, source: ModelRecord) -> str:
    """Return why these steps cannot be applied to `source`; empty where they can."""
    if reason := state.closed():
        return reason
    if not steps:
        return "Add a step first."
    try:
        libraries = controls.named_operators()
        check_chain(steps, source.info, done=variants.steps_of(source), libraries=libraries)
    except TunerError as error:
        return f"{error.message} {error.hint}"
    return ""


def _calibration_form() -> str:
    """Draw the choice of calibration data; return what is still to do, empty: nothing."""
    with st.container(border=True, key="variants.calibration.form"):
        st.segmented_control(
            "Calibrate on",
            [RANDOM, DATA],
            key=CALIBRATION,
            default=None if CALIBRATION in st.session_state else RANDOM,
            required=True,
            persist_state="session",
            help="The ranges of all activations are taken from these samples.",
        )
        if st.session_state.get(CALIBRATION, RANDOM) == DATA:
            chosen = dataset.form(dataset.CALIBRATION, labels=False)
            return "" if chosen is not None else "Choose the calibration data first."
        st.warning(
            "Random calibration is fine for speed and size, not for accuracy. Use **My "
            "data** before deploying.",
            icon=":material/casino:",
        )
        st.button(
            "Use sample data",
            key="variants.calibration.sample",
            icon=":material/grid_on:",
            on_click=_use_sample,
            help=dataset.SAMPLES[dataset.CALIBRATION][1],
        )
        return ""


def _use_sample() -> None:
    st.session_state[CALIBRATION] = DATA
    dataset.use_sample(dataset.CALIBRATION)


def chosen_calibration() -> DatasetSpec | None:
    """Return the chosen calibration data; None: random values.

    Raises:
        SpecError: no data are chosen.
        ModelError: the data do not exist.
    """
    if st.session_state.get(CALIBRATION, RANDOM) != DATA:
        return None
    spec = dataset.chosen_dataset(dataset.CALIBRATION)
    if spec is None:
        raise SpecError(
            "No calibration data are chosen.", hint="Name a file, upload one, or choose random values."
        )
    return spec


# --- the job ------------------------------------------------------------------------------------------------


def _make(source: ModelRecord) -> None:
    """Queue a variant with the current widget values."""
    try:
        workload(source)
        steps = step_controls.chain()
        calibrated = any(step.type.needs_calibration for step in steps)
        calibration = chosen_calibration() if calibrated else None
    except TunerError as error:
        messages.keep_error(error, variant_job.MAKE)
        return
    start(source, steps, calibration=calibration, name=str(st.session_state.get(NAME) or "").strip())


def start(
    source: ModelRecord, steps: Sequence[Step], *, calibration: DatasetSpec | None, name: str = ""
) -> None:
    """Queue the creation of a variant by `steps` from `source`; call in a callback.

    Args:
        source: the model that the first step changes.
        steps: the chain.
        calibration: data of the steps that need them; None: random values.
        name: of the result; empty: derived from its steps.
    """
    try:
        job = transform_job(
            state.session(),
            source,
            steps,
            name=name,
            dims=workload(source).dims,
            calibration=calibration,
            workload=_check_workload(source),
            libraries=controls.named_operators(),
        )
    except TunerError as error:
        messages.keep_error(error)
        return
    variant_job.start(variant_job.MAKE, job)


def start_changed(root: ModelRecord, steps: Sequence[Step], facts: sheets.Facts) -> None:
    """Queue a new variant of the original with changed steps and the same calibration data.

    Steps before the changed one are reused. Call in a callback.
    """
    try:
        calibration = variant_text.calibration_of(facts)
    except TunerError as error:
        messages.keep_error(error, variant_job.MAKE)
        return
    start(root, steps, calibration=calibration)
