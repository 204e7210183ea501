"""Decision threshold of one class against the rest: its metrics and its curves.

Class and threshold belong to the dataset's form, so pages and YAML share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from core.api.judging import decision as stored_decision
from core.api.references import open_folders, with_relative_paths
from core.show.sheets import accuracies
from core.show.table import Column, tabulate
from core.spec import yaml_from_spec
from core.wire.errors import SpecError
from core.wire.files import file_stem
from dashboard import format
from dashboard.charts import PALETTE, accuracy_charts
from dashboard.views.accuracy.evaluations import ModelEvaluation, at_threshold, curve, roc
from dashboard.widgets import dataset, page_frame, plots, tables

POSITIVE = dataset.key(dataset.LABELLED, "positive_class")
LEVEL = dataset.key(dataset.LABELLED, "threshold")
STEP = 0.005


def decision(one: ModelEvaluation) -> tuple[int | None, float]:
    """Return the number of the positive class, None where none is chosen, and the threshold."""
    try:
        return stored_decision(one.accuracy, st.session_state.get(POSITIVE), st.session_state.get(LEVEL, 0.5))
    except SpecError:  # the class belongs to other data
        return None, float(st.session_state.get(LEVEL, 0.5))


def panel(one: ModelEvaluation, found: Sequence[ModelEvaluation]) -> None:
    """Draw the choice of class and threshold for `one`, and all other models at the same threshold."""
    _seed(one)
    st.fragment(_panel)(one, found)  # so that moving the threshold redraws only this panel


def _seed(one: ModelEvaluation) -> None:
    """Fit the widgets to these data: class names become numbers, unknown classes are dropped."""
    number, threshold = decision(one)
    st.session_state[POSITIVE], st.session_state[LEVEL] = number, threshold


def _panel(one: ModelEvaluation, found: Sequence[ModelEvaluation]) -> None:
    left, right = st.columns([1, 2], vertical_alignment="bottom")
    with left:
        st.selectbox(
            "Positive class",
            [None, *range(len(one.class_names))],
            key=POSITIVE,
            format_func=lambda number: "choose a class" if number is None else _name(one, number),
            persist_state="session",
            help="The class that must not be missed, such as the ill one. All others count as negative.",
        )
    with right:
        st.slider(
            "Threshold",
            min_value=0.0,
            max_value=1.0,
            step=STEP,
            format="%.3f",
            key=LEVEL,
            persist_state="session",
            help="A sample counts as positive at or above this probability. Lower finds more "
            "positives and raises more false alarms.",
        )
    number, threshold = st.session_state[POSITIVE], float(st.session_state[LEVEL])
    if number is None:
        with st.container(border=True):
            st.markdown(
                ":material/tune: **Choose a positive class.** Then move the threshold to see "
                "sensitivity and false alarms."
            )
        return
    _numbers(at_threshold(one, number, threshold))
    _curves(one, found, number, threshold)
    if len(found) > 1:
        _table(found, number, threshold)
    _yaml(one, number, threshold)


def _name(one: ModelEvaluation, number: int | None) -> str:
    if number is None:
        return "choose a class"
    return one.class_names[number] if number < len(one.class_names) else str(number)


def _numbers(numbers: Mapping[str, Any]) -> None:
    said = {
        "sensitivity": ("Sensitivity", "Share of positive samples that are found (true positives)."),
        "specificity": ("Specificity", "Share of negative samples without an alarm (true negatives)."),
        "precision": ("Precision", "Share of alarms that are correct."),
    }
    with st.container(key="accuracy.decided"), st.grid(4, min_column_width=140):
        for name, (label, text) in said.items():
            share = numbers[name]
            with st.container(border=True, height="stretch", gap=None):
                st.metric(label, format.share(share["value"]), help=text)
                st.caption(
                    f"{format.interval_share(share['low'], share['high'])} · "
                    f"{share['count']:,} of {share['total']:,}"
                )
        missed = numbers["sensitivity"]["total"] - numbers["sensitivity"]["count"]
        alarms = numbers["specificity"]["total"] - numbers["specificity"]["count"]
        with st.container(border=True, height="stretch", gap=None):
            st.metric("Missed", format.count(missed), help="Positive samples below the threshold.")
            st.caption(f"and {alarms:,} false {'alarm' if alarms == 1 else 'alarms'}")


def _curves(one: ModelEvaluation, found: Sequence[ModelEvaluation], number: int, threshold: float) -> None:
    left, right = st.columns(2, gap="small")
    own = curve(one.accuracy.id, number)
    with left, st.container(border=True):
        plots.draw(
            accuracy_charts.tradeoff(
                own.thresholds.tolist(),
                own.sensitivity.tolist(),
                own.specificity.tolist(),
                threshold=threshold,
            ),
            "Sensitivity and specificity",
            key="accuracy.tradeoff",
            alt="Sensitivity and specificity over the threshold",
        )
    shown = [one, *(other for other in found if other is not one)][: len(PALETTE)]
    lines = [line for other in shown if (line := _roc(other, number, threshold)) is not None]
    with right, st.container(border=True):
        plots.draw(
            accuracy_charts.roc(lines),
            "Sensitivity against false alarms (ROC)",
            key="accuracy.roc",
            alt="Sensitivity over false alarms, a line for each model, with a mark at the threshold",
        )
        if len(found) > len(shown):
            st.caption(f"The first {len(shown)} of {len(found)} models.")


def _roc(one: ModelEvaluation, number: int, threshold: float) -> accuracy_charts.Roc | None:
    """Return the ROC curve of one model; None where the class has no samples, or all of them."""
    found = roc(one.accuracy.id, number)
    if found is None:
        return None
    at = at_threshold(one, number, threshold)
    return accuracy_charts.roc_info(
        one.name,
        (found.false_positive_rate.tolist(), found.true_positive_rate.tolist()),
        area=one.summary["per_class"][number]["roc_auc"]["value"],
        threshold=threshold,
        at=(at["sensitivity"]["value"], at["specificity"]["value"]),
    )


def _table(found: Sequence[ModelEvaluation], number: int, threshold: float) -> None:
    at = {one.name: at_threshold(one, number, threshold) for one in found}
    shares = [
        column
        for name in ("sensitivity", "specificity", "precision")
        for column in accuracies.share(name, _share_of(at, name))
    ]
    tables.draw(
        tabulate(found, (Column("model", tells=True), lambda one: one.name), *shares),
        key="accuracy.decisions",
        alt="Sensitivity, specificity and precision of each model at the threshold",
    )


def _share_of(at: Mapping[str, Any], name: str) -> Callable[[ModelEvaluation], Mapping[str, Any]]:
    return lambda one: at[one.name][name]


def _yaml(one: ModelEvaluation, number: int, threshold: float) -> None:
    """Draw the YAML of the configuration with its data, preprocessing, class and threshold."""
    data = one.spec.dataset
    if data is None:
        return
    chosen = {
        "positive_class": one.class_names[number],
        "threshold": threshold,
    }
    note = one.summary["calibration_note"]
    text = yaml_from_spec(
        with_relative_paths(
            one.spec.model_copy(update={"dataset": data.model_copy(update=chosen)}), open_folders()
        ),
        measured={"calibration_note": note} if note else None,
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            f"YAML with threshold {threshold:.3f}",
            text,
            file_name=f"{file_stem(one.accuracy.model_name)}.yaml",
            mime="application/yaml",
            key="accuracy.yaml",
            icon=":material/download:",
            help="The configuration with data, preprocessing, class and threshold.",
            on_click="ignore",
        )
        page_frame.link("scorecard", "Add as target")
