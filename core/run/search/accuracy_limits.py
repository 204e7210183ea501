"""Measures the accuracy of configurations on labelled rows, for the constraints of a search.

Accuracy is measured once for each combination of settings that change outputs (model, optimization level,
provider). Configurations that differ only in other settings share the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from core.process.job_worker import Run
from core.run.accuracy import compare, measure_accuracy, summary
from core.run.scorecard import Subject
from core.spec import TrialSpec, with_changes
from core.spec.question import Question
from core.spec.settings import SETTINGS
from core.store import ModelRecord, Store

CHANGES_NUMBERS = (  # settings that may change outputs; all others change only the execution
    "graph_optimization_level",
    "disabled_optimizers",
    "session.set_denormal_as_zero",
)


def output_settings_only(spec: TrialSpec) -> TrialSpec:
    """Return the spec without settings that change no output, so that equivalent specs are measured once."""
    idle = {
        one.name: None
        for one in SETTINGS
        if one.target in ("attribute", "config_entry", "run_entry") and one.name not in CHANGES_NUMBERS
    }
    return with_changes(spec, {**idle, "use_io_binding": None})


def accuracy_for_limits(
    store: Store,
    run: Run,
    question: Question,
    own: tuple[TrialSpec, ModelRecord],
    start: tuple[TrialSpec, ModelRecord],
) -> Mapping[Any, Any]:
    """Return the accuracy of a configuration for `answer.judged`; empty: no constraint needs it.

    Args:
        store: keeps scores, so that the same outputs are measured once.
        run: starts workers.
        question: the constraints.
        own: the configuration, with the dataset, and its model.
        start: spec and model of the start, the reference of an accuracy drop.

    Raises:
        TunerError: the rows cannot be scored.
    """
    if not question.accuracy:
        return {}
    measure = partial(measure_accuracy, store, run=run)
    scored = measure(_subject(*own).for_accuracy)
    found: dict[Any, Any] = {}
    for target in question.limits:
        if target.about.source == "accuracy":
            condition = target.positive_class, target.threshold
            found[condition] = summary(scored, *condition)
    if question.accuracy_drop is not None:
        before = measure(_subject(*start).for_accuracy)
        pair = compare(before, scored, delta=question.accuracy_drop)["accuracy"]
        if pair["difference"] is not None:
            found["drop"] = (pair["difference"], pair["low"], pair["high"], pair["rows"])
    return found


def _subject(spec: TrialSpec, record: ModelRecord) -> Subject:
    return Subject(label="", spec=output_settings_only(spec), record=record)
