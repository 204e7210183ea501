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
from core.spec import TrialSpec, with_changes
from core.spec.question import Question
from core.spec.settings import SETTINGS
from core.store import Store

CHANGES_NUMBERS = (  # settings that may change outputs; all others change only the execution
    "graph_optimization_level",
    "disabled_optimizers",
    "session.set_denormal_as_zero",
    "openvino.device",
    "openvino.INFERENCE_PRECISION_HINT",
    "openvino.EXECUTION_MODE_HINT",
    "openvino.reshape",
    "openvino.properties",
)


def output_settings_only(spec: TrialSpec) -> TrialSpec:
    """Return the spec without settings that change no output, so that equivalent specs are measured once."""
    idle = {
        one.name: None
        for one in SETTINGS
        if one.target in ("attribute", "config_entry", "run_entry", "openvino")
        and one.name not in CHANGES_NUMBERS
    }
    if spec.workload.batch_size == 1:  # any batch gives the same accuracy
        idle["batch_size"] = None
    return with_changes(spec, {**idle, "use_io_binding": None})


def accuracy_for_limits(
    store: Store, run: Run, question: Question, own: TrialSpec, start: TrialSpec
) -> Mapping[Any, Any]:
    """Return the accuracy of a configuration for `answer.judged`; empty: no constraint needs it.

    Args:
        store: keeps scores, so that the same outputs are measured once.
        run: starts workers.
        question: the constraints.
        own: the configuration, with the dataset.
        start: the start, the reference of an accuracy drop.

    Raises:
        TunerError: the rows cannot be scored.
    """
    if not question.accuracy:
        return {}
    measure = partial(measure_accuracy, store, run=run)
    scored = measure(output_settings_only(own))
    found: dict[Any, Any] = {}
    for target in question.limits:
        if target.about.source == "accuracy":
            condition = target.positive_class, target.threshold
            found[condition] = summary(scored, *condition)
    if question.accuracy_drop is not None:
        before = measure(output_settings_only(start))
        pair = compare(before, scored, delta=question.accuracy_drop)["accuracy"]
        if pair["difference"] is not None:
            found["drop"] = (pair["difference"], pair["low"], pair["high"], pair["rows"])
    return found
