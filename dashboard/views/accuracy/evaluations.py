"""Which evaluations are there already, and their numbers, computed once. No drawing here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from core.evidence import metrics
from core.evidence.metrics import Floats, Integers
from core.run import accuracy as accuracy_run
from core.run import variants
from core.run.accuracy import Accuracy
from core.spec import TrialSpec, spec_from_dict
from core.spec.datasets import DatasetSpec, dataset_from_dict, dataset_plan
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import state
from dashboard.folders import allowed_path

LIMIT = 200  # evaluations of one model to look through


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A model that shall be evaluated, and how."""

    record: ModelRecord
    spec: TrialSpec  # with its dataset

    @property
    def name(self) -> str:
        """The model in a legend: its name and its precision."""
        return record_name(self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A model that was evaluated on the data that the page asks for."""

    name: str
    spec: TrialSpec  # that asks for it now
    accuracy: Accuracy

    @property
    def summary(self) -> dict[str, Any]:
        """Every metric with its interval, see `core.run.accuracy.summary`."""
        return _summary(self.accuracy.id)

    @property
    def class_names(self) -> list[str]:
        """Names of the classes in the order of their numbers."""
        return self.accuracy.reply["class_names"]


def record_name(record: ModelRecord) -> str:
    """A model in a list: its name and its precision."""
    return f"{record.name} ({variants.precision_of_model(record)})"


def find(asked: Sequence[Request]) -> list[Evaluated]:
    """Return what was measured on this machine of each request, where it was, in that order.

    Data that were written to since are other data.
    """
    return [
        Evaluated(name=one.name, spec=one.spec, accuracy=found)
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
    """Return the evaluations of a model that a page can show again, newest first.

    They are of this machine, and of data that are as they were and that the browser may name.
    """
    return [one for one in _kept(record) if _can_be_shown(one)]


def out_of_reach(record: ModelRecord) -> list[TunerError]:
    """Return why evaluations of a model on this machine are not offered: their data are not the browser's."""
    return [why for one in _kept(record) if (why := _out_of_reach(one)) is not None]


def _kept(record: ModelRecord) -> list[Accuracy]:
    """Evaluations of a model on this machine, newest first."""
    kept = state.store().accuracies(model_sha256=record.content_sha256, limit=LIMIT)
    here = state.environment()["fingerprint"] if kept else ""
    return [one for one in kept if one.fingerprint in (here, "")]


def _out_of_reach(one: Accuracy) -> TunerError | None:
    try:
        allowed_path(dataset_from_dict(one.dataset).path, folder=True)
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
        one.spec.get(part, {}) == wanted.get(part, {}) for part in ("session", "workload")
    )


def _same_rows(one: Accuracy, data: DatasetSpec) -> bool:
    """Whether a result is of the rows that `data` asks for, wherever its path was counted from."""
    try:
        own = dataset_from_dict(one.dataset)
        have, want = dataset_plan(own), dataset_plan(data)
        paths = [Path(plan["path"]).resolve() for plan in (have, want)]
        written_s = paths[1].stat().st_mtime
    except (TunerError, OSError):  # gone since
        return False
    have["path"] = want["path"]
    alike = paths[0] == paths[1] and have == want and own.output == data.output
    return alike and (written_s <= one.created_at or _is_as_it_was(one))


def _is_as_it_was(one: Accuracy) -> bool:
    """Whether data have the names, sizes and times of then, though their folder was written to since."""
    try:
        return accuracy_run.key_of(spec_from_dict(one.spec), one.model_sha256) == one.key
    except TunerError:
        return False


# --- numbers, computed once ---------------------------------------------------------------------------------


@st.cache_resource(show_spinner="Computing the metrics…", max_entries=100)
def _summary(accuracy_id: str) -> dict[str, Any]:
    return accuracy_run.summary(state.store().accuracy(accuracy_id))


@st.cache_resource(show_spinner=False, max_entries=8)
def _scores(accuracy_id: str) -> tuple[Floats, Integers]:
    return accuracy_run.scores_of(state.store().accuracy(accuracy_id))


@st.cache_resource(show_spinner="Computing the curves…", max_entries=100)
def curve(accuracy_id: str, number: int) -> metrics.Curve:
    """Sensitivity and specificity of class `number` over thresholds."""
    return accuracy_run.curve(state.store().accuracy(accuracy_id), number)


@st.cache_resource(show_spinner=False, max_entries=100)
def roc(accuracy_id: str, number: int) -> metrics.Roc | None:
    """ROC curve of class `number` against the rest; None where only one of the two has rows."""
    return accuracy_run.roc(state.store().accuracy(accuracy_id), number)


def at_threshold(one: Evaluated, number: int, threshold: float) -> dict[str, Any]:
    """Class `number` against all others where a probability of at least `threshold` counts as it."""
    probabilities, labels = _scores(one.accuracy.id)
    return metrics.at_threshold(probabilities[:, number], labels == number, threshold).to_dict()


@st.cache_resource(show_spinner="Comparing predictions…", max_entries=100)
def compared(
    reference: str, candidate: str, delta: float, positive: int | None, threshold: float
) -> dict[str, Any]:
    """One evaluation against another on the same rows, see `core.run.accuracy.compare`.

    Raises:
        SpecError: they are not of the same rows.
    """
    store = state.store()
    return accuracy_run.compare(
        store.accuracy(reference),
        store.accuracy(candidate),
        delta,
        positive=positive,
        threshold=threshold,
    )
