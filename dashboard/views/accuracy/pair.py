"""Paired comparison of models on the same samples: non-inferiority verdicts and the sample size needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.api.judging import DELTA
from core.show.sheets import accuracies
from core.show.table import Column, tabulate
from core.wire.errors import TunerError
from dashboard import fields, format, state
from dashboard.charts import accuracy_charts
from dashboard.views.accuracy.evaluations import ModelEvaluation, compared
from dashboard.views.accuracy.threshold import decision
from dashboard.widgets import page_frame, plots, tables

REFERENCE, ACCEPTED, METRIC = "accuracy.reference", "accuracy.accepted", "accuracy.metric"
ICONS: Mapping[str, str] = {
    "NOT_WORSE": ":green[:material/check_circle:]",
    "WORSE": ":red[:material/cancel:]",
    "UNDECIDED": ":orange[:material/help:]",
}
METRICS = ("accuracy", "sensitivity", "specificity")


def panel(found: Sequence[ModelEvaluation]) -> None:
    """Draw the comparison of all models with the chosen reference."""
    if len(found) < 2:
        with st.container(border=True):
            st.markdown(
                ":material/compare: **Two evaluated models are needed.** Create a variant, "
                "choose it beside the original, and evaluate both."
            )
            page_frame.link("variants", "Variants")
        return
    reference, delta, metric = _controls(found)
    try:
        fields.in_range("accepted loss in points", 100 * delta, 0, 99)
    except TunerError as error:
        state.report(error)
        return
    positive, threshold = decision(reference)
    rows: list[tuple[ModelEvaluation, dict[str, Any], dict[str, Any]]] = []
    for one in found:
        if one is reference:
            continue
        try:
            whole = compared(reference.accuracy.id, one.accuracy.id, delta, positive, threshold)
        except TunerError as error:
            state.report(error)
            continue
        rows.append((one, whole, whole[metric]))
    if not rows:
        return
    _verdicts(rows)
    _chart(reference, delta, metric, rows)
    _table(rows)


def _controls(found: Sequence[ModelEvaluation]) -> tuple[ModelEvaluation, float, str]:
    named = {one.accuracy.id: one for one in found}
    if st.session_state.get(REFERENCE) not in named:
        st.session_state[REFERENCE] = found[0].accuracy.id
    st.session_state.setdefault(ACCEPTED, DELTA * 100)
    left, middle, right = st.columns(3, vertical_alignment="bottom")
    with left:
        st.selectbox(
            "Reference",
            list(named),
            key=REFERENCE,
            format_func=lambda one: named[one].name if one in named else str(one),
            persist_state="session",
            help="Usually the original. The others must not be worse than it.",
        )
    with middle:
        st.number_input(
            "Accepted loss δ (points)",
            step=0.1,
            key=ACCEPTED,
            persist_state="session",
            help="In percentage points. A model is not worse if the whole 95 % interval of the "
            "difference lies above −δ.",
        )
    reference = named[st.session_state[REFERENCE]]
    positive, _ = decision(reference)
    offered = METRICS if positive is not None else METRICS[:1]
    if st.session_state.get(METRIC) not in offered:
        st.session_state[METRIC] = "accuracy"
    with right:
        st.selectbox(
            "Metric",
            offered,
            key=METRIC,
            persist_state="session",
            help="Sensitivity and specificity use the positive class and threshold of the view Threshold.",
        )
    return reference, st.session_state[ACCEPTED] / 100, st.session_state[METRIC]


def _verdicts(rows: Sequence[tuple[ModelEvaluation, dict[str, Any], dict[str, Any]]]) -> None:
    with st.container(key="accuracy.verdicts"):
        for one, _, judged in rows:
            icon = ICONS.get(judged["verdict"], ICONS["UNDECIDED"])
            st.markdown(f"{icon} **{format.plain(one.name)}**: {format.plain(judged['text'])}")


def _chart(
    reference: ModelEvaluation,
    delta: float,
    metric: str,
    rows: Sequence[tuple[ModelEvaluation, dict[str, Any], dict[str, Any]]],
) -> None:
    drawn = [(one.name, judged) for one, _, judged in rows if judged["difference"] is not None]
    if not drawn:
        return
    with st.container(border=True):
        plots.draw(
            accuracy_charts.differences(drawn, reference=reference.name, delta=delta, metric=metric),
            f"Difference in {metric} versus the reference",
            key="accuracy.differences",
            alt=f"Difference in {metric} versus the reference with its 95 % interval, and the accepted loss",
        )
        st.caption("95 % intervals of paired differences (Newcombe). Shaded: more than the accepted loss.")


def _table(rows: Sequence[tuple[ModelEvaluation, dict[str, Any], dict[str, Any]]]) -> None:
    table = tabulate(
        rows,
        (Column("model", tells=True), lambda row: row[0].name),
        (
            Column("difference (points)", "number"),
            lambda row: None if (found := row[2]["difference"]) is None else 100 * found,
        ),
        (
            Column("95 % (points)"),
            lambda row: (
                None
                if row[2]["difference"] is None
                else f"{_points(row[2]['low'])} to {_points(row[2]['high'])}"
            ),
        ),
        (Column("only reference correct", "count"), lambda row: row[2]["only_reference"]),
        (Column("only this correct", "count"), lambda row: row[2]["only_candidate"]),
        (Column("samples", "count"), lambda row: row[2]["rows"]),
        (Column("p (McNemar)", "number", help=_P_HELP), lambda row: row[2]["p"]),
        (
            Column("samples needed", "count", help=_NEEDED_HELP),
            lambda row: row[2]["rows_needed"] if row[2]["verdict"] == "UNDECIDED" else None,
        ),
        *accuracies.share("agreement", _agreement, help=_SAME_HELP),
        (Column("agreement, of samples", "count"), lambda row: row[1]["agreement"]["total"]),
    )
    tables.draw(
        table,
        key="accuracy.paired",
        alt="Paired differences versus the reference: interval, discordant samples, "
        "McNemar's p, samples needed",
    )


def _agreement(row: tuple[ModelEvaluation, dict[str, Any], dict[str, Any]]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = row[1]["agreement"]
    return found


_P_HELP = "McNemar's exact test of whether both are correct equally often. A large p proves nothing."
_NEEDED_HELP = "Estimated number of samples until the verdict is no longer undecided."
_SAME_HELP = "Share of samples for which both predict the same class, correct or not."


def _points(share: float | None) -> str | None:
    return None if share is None else f"{share * 100:+.2f}"
