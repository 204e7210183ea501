"""Stored evaluations and their metrics, each computed once. Draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from core.api import judging, variants
from core.api.judging import Accuracy, accuracy_job
from core.evidence import metrics
from core.evidence.metrics import Floats, Integers
from core.show.runtime_text import runtime_name
from core.spec import ModelRef, TrialSpec, WorkloadSpec, spec_from_dict
from core.spec.datasets import DatasetSpec, dataset_from_dict, dataset_plan
from core.store import ModelRecord
from core.wire.errors import TunerError
from core.wire.runtime import OWN
from dashboard import session_jobs, state
from dashboard.folders import allowed_path

KIND = "accuracy"  # of the job
LIMIT = 200  # newest evaluations of one model that are searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A model to evaluate, with its settings and data."""

    record: ModelRecord
    spec: TrialSpec  # includes the dataset

    @property
    def name(self) -> str:
        """Return the model's name and precision, and its runtime if not ORTune's own, as in a legend."""
        name, runtime = record_name(self.record), runtime_name(self.spec.to_dict())
        return name if runtime == OWN else f"{name}, runtime {runtime}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEvaluation:
    """A stored evaluation of a requested model on the requested data."""

    name: str
    spec: TrialSpec  # the current request
    accuracy: Accuracy

    @property
    def summary(self) -> dict[str, Any]:
        """Return every metric with its interval, see `core.run.accuracy.summary`."""
        return _summary(self.accuracy.id)

    @property
    def class_names(self) -> list[str]:
        """Return the class names, ordered by class number."""
        return self.accuracy.reply["class_names"]


def record_name(record: ModelRecord) -> str:
    """Return the model's name and precision, as in a list."""
    return f"{record.name} ({variants.precision_of_model(record)})"


def on_default(record: ModelRecord, data: DatasetSpec) -> Request:
    """Return the request of a model on ONNX Runtime's default settings, as the Accuracy page begins with."""
    ref = ModelRef(path=state.portable(record.path), sha256=record.sha256)
    spec = TrialSpec(model=ref, workload=WorkloadSpec(batch_size=None), dataset=data)
    return Request(record=record, spec=spec)


def find(asked: Sequence[Request]) -> list[ModelEvaluation]:
    """Return the newest matching evaluation of each request on this machine, in the order of the requests.

    Requests without one are left out. An evaluation does not match once its data have changed.
    """
    return [
        ModelEvaluation(name=one.name, spec=one.spec, accuracy=found)
        for one in asked
        if (found := _newest(one)) is not None
    ]


def _newest(asked: Request) -> Accuracy | None:
    data = asked.spec.dataset
    if data is None:
        return None
    return next(
        (
            one
            for one in _kept(asked.record)
            if _same_settings(one, asked.spec) and _same_rows(one, data) and Path(one.scores_path).is_file()
        ),
        None,
    )


def offered(record: ModelRecord) -> list[Accuracy]:
    """Return the evaluations of a model that the page can open again, newest first.

    They were made on this machine, their data are unchanged, and the browser may access those data.
    """
    return [one for one in _kept(record) if _can_be_shown(one)]


def access_errors(record: ModelRecord) -> list[TunerError]:
    """Return the errors of evaluations whose data the browser may not access."""
    return [why for one in _kept(record) if (why := _out_of_reach(one)) is not None]


def _kept(record: ModelRecord) -> list[Accuracy]:
    """Return the evaluations of a model on this machine, newest first."""
    kept = state.store().accuracies(model_sha256=record.content_sha256, limit=LIMIT)
    here = state.environment()["fingerprint"] if kept else ""
    return [one for one in kept if one.fingerprint in (here, "")]


def _out_of_reach(one: Accuracy) -> TunerError | None:
    try:
        allowed_path(dataset_from_dict(one.dataset).path, state.store(), folder=True)
    except TunerError as error:
        return error
    return None


def _can_be_shown(one: Accuracy) -> bool:
    try:
        data = dataset_from_dict(one.dataset)
        precision = spec_from_dict(one.spec).model.precision
    except TunerError:
        return False
    if _out_of_reach(one) is not None:
        return False
    return precision == "fp32" and _same_rows(one, data) and Path(one.scores_path).is_file()


def _same_settings(one: Accuracy, spec: TrialSpec) -> bool:
    wanted = spec.to_dict()
    precision = one.spec.get("model", {}).get("precision", "fp32")
    return precision == spec.model.precision and all(
        one.spec.get(part, {}) == wanted.get(part, {})
        for part in ("session", "workload", "engine", "runtime", "openvino")
    )


def _same_rows(one: Accuracy, data: DatasetSpec) -> bool:
    """Return whether a result used the samples that `data` names; compares resolved paths."""
    try:
        own = dataset_from_dict(one.dataset)
        have, want = dataset_plan(own), dataset_plan(data)
        paths = [Path(plan["path"]).resolve() for plan in (have, want)]
        written_s = paths[1].stat().st_mtime
    except (TunerError, OSError):  # deleted meanwhile
        return False
    have["path"] = want["path"]
    alike = paths[0] == paths[1] and have == want and own.output == data.output
    return alike and (written_s <= one.created_at or _is_as_it_was(one))


def _is_as_it_was(one: Accuracy) -> bool:
    """Return whether names, sizes and times of the files are unchanged although their folder was modified."""
    try:
        return judging.key_of(spec_from_dict(one.spec), one.model_sha256) == one.key
    except TunerError:
        return False


# --- evaluating ---------------------------------------------------------------------------------------------


def submit(specs: Sequence[TrialSpec]) -> str:
    """Queue the evaluation of models with their data, and return the id of the job.

    Raises:
        TunerError: it may not be started.
    """
    return session_jobs.submit(accuracy_job(state.session(), specs))


# --- metrics, computed once ---------------------------------------------------------------------------------


@st.cache_resource(show_spinner="Computing the metrics…", max_entries=100)
def _summary(accuracy_id: str) -> dict[str, Any]:
    return judging.summary(state.store().accuracy(accuracy_id))


@st.cache_resource(show_spinner=False, max_entries=8)
def _scores(accuracy_id: str) -> tuple[Floats, Integers]:
    return judging.scores_of(state.store().accuracy(accuracy_id))


@st.cache_resource(show_spinner="Computing the curves…", max_entries=100)
def curve(accuracy_id: str, number: int) -> metrics.Curve:
    """Return sensitivity and specificity of class `number` over thresholds."""
    return judging.curve(state.store().accuracy(accuracy_id), number)


@st.cache_resource(show_spinner=False, max_entries=100)
def roc(accuracy_id: str, number: int) -> metrics.Roc | None:
    """Return the ROC curve of class `number` against the rest; None where all samples are of one side."""
    return judging.roc(state.store().accuracy(accuracy_id), number)


def at_threshold(one: ModelEvaluation, number: int, threshold: float) -> dict[str, Any]:
    """Return the metrics of class `number` against the rest when a probability >= `threshold` is positive."""
    probabilities, labels = _scores(one.accuracy.id)
    return metrics.at_threshold(probabilities[:, number], labels == number, threshold).to_dict()


@st.cache_resource(show_spinner="Comparing predictions…", max_entries=100)
def compared(
    reference: str, candidate: str, delta: float, positive: int | None, threshold: float
) -> dict[str, Any]:
    """Compare two evaluations on the same samples, see `core.run.accuracy.compare`.

    Raises:
        SpecError: they used different samples.
    """
    store = state.store()
    return judging.compare(
        store.accuracy(reference),
        store.accuracy(candidate),
        delta,
        positive=positive,
        threshold=threshold,
    )
