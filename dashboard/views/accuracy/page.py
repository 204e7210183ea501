"""Accuracy page: metrics of a model and its variants on labelled data, with intervals and a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import streamlit as st

from core.api import variants
from core.api.judging import BATCH_ROWS, Accuracy, score_outputs
from core.api.session import Status
from core.show.runtime_text import runtime_name
from core.show.words import counted
from core.spec import ModelRef, SessionSpec, TrialSpec, WorkloadSpec, spec_from_dict
from core.spec.datasets import DatasetSpec, dataset_from_dict
from core.store import ModelRecord
from core.wire.errors import TunerError
from core.wire.runtime import OWN
from dashboard import fields, format, messages, session_jobs, state, url_state
from dashboard.shown_result import ShownResult
from dashboard.views.accuracy import results as accuracy_results
from dashboard.views.accuracy.evaluations import (
    KIND,
    ModelEvaluation,
    Request,
    access_errors,
    find,
    offered,
    record_name,
    submit,
)
from dashboard.widgets import collapsible, controls, dataset, job_box, page_frame, past_results

PARAM = "accuracy"  # ?accuracy=<id>
SHOWN = ShownResult("accuracy.shown", (PARAM,))

# session keys
CHOSEN = "accuracy.chosen"  # content hashes of the models to evaluate
OF_FAMILY = "accuracy.of_family"  # content hash of the original whose family is listed
LAST = "accuracy.last"  # the current model at the last run of the page
SETTINGS = "accuracy.settings"
BATCH = "accuracy.batch"
PICKED = "accuracy.earlier"
FORM = "accuracy.form"  # whether the form is open
JOB = "accuracy.job"  # id of the job that this session started last

DEFAULTS, TUNE = "ONNX Runtime's defaults", "Settings of Tune"  # as stored in forms
SETTINGS_NAMES = {DEFAULTS: "ORT default", TUNE: "Current settings"}
MOST_CHOSEN = 4  # models selected at first in a large family
MOST_ROWS = 4096  # samples in one batch


def page() -> None:
    bar = page_frame.bar(
        "Accuracy",
        "Accuracy on labelled data, and whether a variant is worse than the original.",
    )
    messages.show_kept_error()
    _follow_link()
    with bar.model:
        record = controls.model_picker()
    if record is None:
        return
    with bar.choice:
        _earlier(record)
    answer = st.container(key="accuracy.answer")
    requests = _requests(record)
    found = find(requests)
    _put_in_url(record, found)
    job = job_box.find(JOB, KIND)
    with bar.action:
        _button(requests, found, job)
    with answer:
        messages.show_kept_error(KIND, "Nothing was evaluated")
        _live(job)
        if found:
            accuracy_results.result(found)
        elif not session_jobs.is_active(job):
            _empty(record)


# --- earlier evaluations ------------------------------------------------------------------------------------


def _follow_link() -> None:
    """Apply the model, data and settings of the evaluation that `?accuracy=` names, once per link."""
    if linked := SHOWN.take_link():
        try:
            _apply_evaluation(state.store().accuracy(linked))
        except TunerError as error:
            messages.report(error)


def _apply_evaluation(one: Accuracy) -> None:
    """Set the form to the model, data and settings of an evaluation.

    Raises:
        TunerError: its model is missing, or another version wrote it.
    """
    spec = spec_from_dict(one.spec)
    if _is_plain(spec):
        state.choose_model(state.find_model(spec.model))
        st.session_state[SETTINGS] = DEFAULTS
    else:
        state.apply_spec(spec)
        st.session_state[SETTINGS] = TUNE
    st.session_state[BATCH] = spec.workload.batch_size
    dataset.fill(dataset.LABELLED, dataset_from_dict(one.dataset))
    if one.model_sha256 not in st.session_state.get(CHOSEN, [one.model_sha256]):
        st.session_state[CHOSEN] = [*st.session_state[CHOSEN], one.model_sha256]
    SHOWN.show(one.id)


def _is_plain(spec: TrialSpec) -> bool:
    """Whether an evaluation ran ONNX Runtime's default settings in ORTune's own runtime."""
    return spec.session == SessionSpec() and spec.runtime == OWN


def _earlier(record: ModelRecord) -> None:
    """List the model's evaluations; open the newest if none was opened yet and no data are chosen."""
    kept = {one.id: one for one in offered(record)}
    if SHOWN.is_new_model(record):
        plain = [one for one in kept.values() if _is_plain(spec_from_dict(one.spec))]
        if plain and not st.session_state.get(dataset.key(dataset.LABELLED, "path")):
            _apply_evaluation(plain[0])
    past_results.offer(
        "Evaluations of this model",
        {name: _label(one) for name, one in kept.items()},
        shown=url_state.named(PARAM),
        key=PICKED,
        on_select=SHOWN.link,
        help="Evaluations of this model, newest first. Loads their data and settings.",
    )


def _label(one: Accuracy) -> str:
    data = PurePath(one.dataset["path"]).name
    name = runtime_name(one.spec)
    ran_in = "" if name == OWN else f" · runtime {name}"
    return f"{format.when(one.created_at)} · {data} · {one.reply['rows']:,} samples{ran_in} · {one.id[:8]}"


def _put_in_url(record: ModelRecord | None, found: Sequence[ModelEvaluation]) -> None:
    """Put the evaluation of the current model, or else the first one shown, into the URL."""
    own = record.content_sha256 if record is not None else ""
    shown = next((one for one in found if one.accuracy.model_sha256 == own), next(iter(found), None))
    if shown is None:
        url_state.put(PARAM, None)
    else:
        SHOWN.show(shown.accuracy.id)


# --- what to evaluate ---------------------------------------------------------------------------------------


def _requests(record: ModelRecord) -> list[Request]:
    """Draw the form; return the models with their specs, none where something is missing."""
    outputs, reason = score_outputs(record.info)
    if reason:
        st.info(format.plain(reason), icon=":material/block:", title="Accuracy is not offered")
        return []
    named = bool(st.session_state.get(dataset.key(dataset.LABELLED, "path")))
    with collapsible.box("Models and data", key=FORM, icon="dataset", first_open=not named):
        left, right = st.columns(2, gap="medium")
        with left:
            chosen = _models(record)
            settings = _settings()
        with right:
            data = dataset.form(dataset.LABELLED, outputs=outputs)
    if data is None or settings is None:
        return []
    try:
        return [Request(record=one, spec=_spec(one, settings, data)) for one in chosen]
    except TunerError as error:
        messages.report(error)
        return []


def _models(record: ModelRecord) -> list[ModelRecord]:
    """Draw the choice among the model's family; at first the original, the current and the newest models."""
    family = {one.content_sha256: one for one in variants.family(state.store(), record)}
    root, current = next(iter(family)), record.content_sha256
    if st.session_state.get(OF_FAMILY) != root or CHOSEN not in st.session_state:
        first = dict.fromkeys([root, current, *reversed(family)])
        chosen = list(first)[:MOST_CHOSEN]
    else:
        chosen = [sha for sha in st.session_state[CHOSEN] if sha in family]
        if st.session_state.get(LAST) != current and current not in chosen:
            chosen.append(current)  # just chosen in the header
    st.session_state[CHOSEN], st.session_state[OF_FAMILY], st.session_state[LAST] = chosen, root, current
    st.multiselect(
        "Models to evaluate",
        list(family),
        key=CHOSEN,
        format_func=lambda sha: record_name(family[sha]) if sha in family else str(sha)[:12],
        persist_state="session",
        help="The original and its variants from the Variants page.",
    )
    return [family[sha] for sha in st.session_state[CHOSEN]]


def _settings() -> Mapping[str, Any] | None:
    """Draw the choice of settings; return them as parts of a spec, None where those of Tune are invalid."""
    st.session_state.setdefault(SETTINGS, DEFAULTS)
    st.session_state.setdefault(BATCH, None)
    with st.expander("Run settings", icon=":material/tune:", key="accuracy.how"):
        st.segmented_control(
            "Session settings",
            [DEFAULTS, TUNE],
            key=SETTINGS,
            format_func=SETTINGS_NAMES.__getitem__,
            required=True,
            persist_state="session",
            help="Providers, optimizations and config entries can change a model's outputs.",
        )
        st.number_input(
            "Batch size",
            step=1,
            key=BATCH,
            placeholder=f"{BATCH_ROWS}, or 1 where outputs depend on it",
            persist_state="session",
            help="Samples per run. It matters for dynamic quantization, whose ranges depend on the batch.",
        )
    if st.session_state[SETTINGS] == DEFAULTS:
        return {}
    try:
        spec = state.current_spec()
    except TunerError as error:
        messages.report(error)
        return None
    return {"session": spec.session, "runtime": spec.runtime}


def _spec(record: ModelRecord, settings: Mapping[str, Any], data: DatasetSpec) -> TrialSpec:
    rows = st.session_state[BATCH] if record.info["batch_dim"] is not None else None
    if rows is not None:
        fields.in_range("batch size", rows, 1, MOST_ROWS)
    return TrialSpec(
        model=ModelRef(path=state.portable(record.path), sha256=record.sha256),
        workload=WorkloadSpec(batch_size=None if rows is None else int(rows)),
        dataset=data,
        **settings,
    )


# --- evaluating ---------------------------------------------------------------------------------------------


def _button(requests: Sequence[Request], found: Sequence[ModelEvaluation], job: Status | None) -> None:
    active = session_jobs.is_active(job)
    again = bool(requests) and len(found) == len(requests)
    words = "Choose a model and labelled data first." if not requests else None
    st.button(
        "Evaluating" if active else "Evaluate again" if again else "Evaluate",
        key="accuracy.run",
        type="secondary" if again or active else "primary",
        icon=":material/fact_check:",
        shortcut="Ctrl+Enter",
        on_click=_start,
        args=([one.spec for one in requests],),
        **state.unless_closed(
            words or "Runs all samples through each chosen model; unchanged results are reused.",
            off=not requests,
            busy="Wait for the evaluation, or cancel it." if active else "",
        ),
    )


def _start(specs: Sequence[TrialSpec]) -> None:
    try:
        job = submit(specs)
    except TunerError as error:
        messages.keep_error(error, KIND)
        return
    session_jobs.follow(job, "accuracy")
    st.session_state[JOB] = job


def _live(job: Status | None) -> None:
    if job is not None and not session_jobs.is_active(job):
        _ended(job)
    job_box.draw(job, "accuracy", what="this evaluation", help="Models that finished before are kept.")


def _ended(job: Status) -> None:
    job_box.report_end(job, cancelled="The evaluation was cancelled; finished models are kept.")
    for error in (job.result or {}).get("errors", []):
        messages.report(error)


def _empty(record: ModelRecord) -> None:
    hidden = access_errors(record)
    if hidden:
        told = f"{format.plain(hidden[0].message)} {format.plain(hidden[0].hint)}"
        title = f"{counted(len(hidden), 'evaluation')} of this model cannot be shown again here"
        st.info(told, icon=":material/visibility_off:", title=title)
    with st.container(border=True):
        st.markdown(
            ":material/fact_check: **Nothing evaluated yet.** Choose labelled data below, "
            "then press **Evaluate**. The sample digits belong to the model `digits_cnn`."
        )
        page_frame.link("variants", "Create a variant")


page()
