"""Evaluation results: the metrics of all models, then one model class by class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st

from core.show.sheets import accuracies
from core.show.table import Column, tabulate
from dashboard import format
from dashboard.charts import accuracy_charts
from dashboard.views.accuracy import pair as accuracy_pair
from dashboard.views.accuracy import threshold as accuracy_threshold
from dashboard.views.accuracy.evaluations import ModelEvaluation
from dashboard.widgets import plots, tables

VIEW, INTO = "accuracy.view", "accuracy.into"
FEW_ROWS = 30  # of a class: below, the interval is wide and a note says so
VIEWS = CLASSES, THRESHOLD, PAIRED = "Classes", "Threshold", "Not worse?"


def result(found: Sequence[ModelEvaluation]) -> None:
    """Draw the headline, the metrics of all models, the detail views and the notes."""
    _seen(found)
    st.markdown(f"#### {headline(found)}")
    _table(found)
    if st.session_state.get(VIEW) not in VIEWS:
        st.session_state[VIEW] = CLASSES
    view = st.segmented_control(
        "View",
        VIEWS,
        key=VIEW,
        required=True,
        label_visibility="collapsed",
        persist_state="session",
        help="One model class by class, a positive class at a threshold, or two models on the same samples.",
    )
    with st.container(key="accuracy.detail"):
        if view == PAIRED:
            accuracy_pair.panel(found)
        elif view == THRESHOLD:
            accuracy_threshold.panel(_into(found), found)
        else:
            _classes(_into(found))
    _cards(found)
    _notes(found)


def headline(found: Sequence[ModelEvaluation]) -> str:
    """Draw one sentence: accuracy of the best model, and the number of samples."""
    best = max(found, key=lambda one: one.summary["accuracy"]["value"])
    share = best.summary["accuracy"]
    interval = format.interval_share(share["low"], share["high"])
    of = f", the highest of {len(found)} models" if len(found) > 1 else ""
    return f"{format.plain(best.name)}: accuracy {format.share(share['value'])}, {interval}{of}."


# --- all models ---------------------------------------------------------------------------------------------


def _cards(found: Sequence[ModelEvaluation]) -> None:
    with st.container(key="accuracy.cards"), st.grid(4, min_column_width=180):
        for one in found:
            share = one.summary["accuracy"]
            with st.container(border=True, height="stretch", gap=None):
                st.metric(
                    format.plain(one.name),
                    format.share(share["value"]),
                )
                st.caption(
                    f"{format.interval_share(share['low'], share['high'])} · {share['count']:,} of "
                    f"{share['total']:,} samples correct",
                    help="Share of samples whose highest score is that of their class.",
                )


def _table(found: Sequence[ModelEvaluation]) -> None:
    area = "Each class versus all others, averaged over the classes with samples."
    tables.draw(
        tabulate(
            found,
            (Column("model", tells=True), lambda one: one.name),
            *accuracies.share("accuracy", _share("accuracy")),
            *accuracies.share("top 5", _share("top5")),
            (Column("ROC-AUC", "number", help=area), lambda one: one.summary["roc_auc"]["value"]),
            (Column("ROC-AUC, 95 %"), lambda one: _area(one.summary["roc_auc"])),
            (Column("samples", "count"), lambda one: one.summary["rows"]),
            (
                Column(
                    "not finite",
                    "count",
                    help="Samples whose scores contain NaN or Inf; they count as wrong.",
                ),
                lambda one: one.summary["not_finite"],
            ),
            (Column("output"), lambda one: one.accuracy.reply["output"]),
            (
                Column("providers"),
                lambda one: ", ".join(map(format.provider, one.accuracy.reply["effective_providers"])),
            ),
            (Column("took"), lambda one: format.duration(one.accuracy.reply["seconds"])),
        ),
        key="accuracy.table",
        alt="Accuracy, top 5 and ROC-AUC of each model with their 95 % intervals",
    )


def _share(key: str) -> Callable[[ModelEvaluation], Mapping[str, Any] | None]:
    return lambda one: one.summary[key]


def _area(found: Mapping[str, Any]) -> str | None:
    return None if found["low"] is None else f"{found['low']:.4f} to {found['high']:.4f}"


def _seen(found: Sequence[ModelEvaluation]) -> None:
    for one in found:
        if note := one.summary["calibration_note"]:
            st.warning(
                f"{format.plain(one.name)}: {format.plain(note)}",
                icon=":material/visibility:",
                title="Evaluated on data it has seen",
            )


def _notes(found: Sequence[ModelEvaluation]) -> None:
    lines: dict[str, list[str]] = {}
    for one in found:
        for line in [*one.summary["notes"], *_remarks(one.summary)]:
            lines.setdefault(line, []).append(one.name)
    if lines:
        listed = [
            line if len(of) == len(found) else f"{line} ({', '.join(of)})" for line, of in lines.items()
        ]
        st.info(
            "\n".join(f"- {format.plain(line)}" for line in listed),
            icon=":material/info:",
            title="Caveats",
        )


def _remarks(numbers: dict[str, Any]) -> list[str]:
    found = []
    if missing := numbers["missing_classes"]:
        found.append(
            "No sample has the label "
            f"{', '.join(missing[:10])}{' and others' if len(missing) > 10 else ''}: its "
            "sensitivity is unknown."
        )
    if numbers["not_finite"]:
        found.append(
            f"{numbers['not_finite']:,} samples have scores that are NaN or Inf; they count as wrong."
        )
    return found


# --- one model, class by class ------------------------------------------------------------------------------


def _into(found: Sequence[ModelEvaluation]) -> ModelEvaluation:
    """Draw the choice of one of `found`, where there are several, and return it."""
    named = {one.accuracy.id: one for one in found}
    if st.session_state.get(INTO) not in named:
        st.session_state[INTO] = found[-1].accuracy.id
    if len(found) > 1:
        st.selectbox(
            "Model",
            list(named),
            key=INTO,
            format_func=lambda one: named[one].name if one in named else str(one),
            persist_state="session",
            help="Its classes and curves are shown.",
        )
    return named[st.session_state[INTO]]


def _classes(one: ModelEvaluation) -> None:
    numbers = one.summary
    rows = [each["support"] for each in numbers["per_class"]]
    info = accuracy_charts.confusion_info(numbers["confusion"], one.class_names, rows)
    with st.container(border=True):
        plots.draw(
            accuracy_charts.confusion(info),
            "Confusion matrix",
            key="accuracy.confusion",
            table=partial(accuracy_charts.confusion_table, info),
            alt="Confusion matrix: true classes down, predicted classes across",
        )
        more = f" The {info.merged} classes with the fewest errors are merged." if info.merged else ""
        st.caption(f"Numbers: samples. Darker: larger share of the true class.{more}")
    _mistaken(accuracy_charts.confused_pairs(numbers["confusion"], one.class_names, rows))
    _class_table(numbers)


def _mistaken(pairs: Sequence[accuracy_charts.Pair]) -> None:
    if not pairs:
        st.caption(":material/check_circle: No sample was misclassified.")
        return
    worst = ", ".join(f"{one.truth} as {one.said} ({_rows(one.rows)})" for one in pairs[:3])
    st.caption(f":material/swap_horiz: Most frequent errors: {format.plain(worst)}.")


def _rows(count: int) -> str:
    return f"{count:,} {'sample' if count == 1 else 'samples'}"


def _class_table(numbers: dict[str, Any]) -> None:
    tables.draw(
        accuracies.classes(numbers["per_class"]),
        key="accuracy.classes",
        alt="Sensitivity, specificity and precision of each class with their 95 % intervals",
    )
    few = [one["name"] for one in numbers["per_class"] if 0 < one["support"] < FEW_ROWS]
    if few:
        st.caption(
            f":material/info: {len(few)} {'class has' if len(few) == 1 else 'classes have'} "
            f"fewer than {FEW_ROWS} samples: read the intervals, not the points."
        )
