"""Two models on the very same rows: is the one worse than the other, and how many rows would tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from core.run.accuracy import DELTA
from core.wire.errors import TunerError
from dashboard import fields, format, state
from dashboard.charts import accuracy_charts
from dashboard.charts.accuracy_charts import DifferenceRow
from dashboard.views.accuracy.found import Evaluated, compared
from dashboard.views.accuracy.threshold import decision
from dashboard.widgets.profile_results import CONFIG

REFERENCE, ACCEPTED, METRIC = "accuracy.reference", "accuracy.accepted", "accuracy.metric"
ICONS: Mapping[str, str] = {
    "NOT_WORSE": ":green[:material/check_circle:]",
    "WORSE": ":red[:material/cancel:]",
    "UNDECIDED": ":orange[:material/help:]",
}
METRICS = ("accuracy", "sensitivity", "specificity")


def panel(found: Sequence[Evaluated]) -> None:
    """Draw the comparison of all models against one of them."""
    if len(found) < 2:
        with st.container(border=True):
            st.markdown(
                ":material/compare: **Two evaluated models are needed.** Make a variant, choose it beside "
                "the original on the left, and evaluate both."
            )
            st.page_link("views/variants/page.py", label="Variants", icon=":material/science:")
        return
    reference, delta, metric = _controls(found)
    try:
        fields.in_range("accepted loss in points", 100 * delta, 0, 99)
    except TunerError as error:
        state.report(error)
        return
    positive, threshold = decision(reference)
    rows: list[tuple[Evaluated, dict[str, Any], dict[str, Any]]] = []
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


def _controls(found: Sequence[Evaluated]) -> tuple[Evaluated, float, str]:
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
            help="The model that the others must not be worse than, usually the original.",
        )
    with middle:
        st.number_input(
            "Accepted loss δ (points)",
            step=0.1,
            key=ACCEPTED,
            persist_state="session",
            help="Percentage points. A variant is not worse where the whole 95 % interval of the difference "
            "lies above −δ.",
        )
    reference = named[st.session_state[REFERENCE]]
    positive, _ = decision(reference)
    offered = METRICS if positive is not None else METRICS[:1]
    if st.session_state.get(METRIC) not in offered:
        st.session_state[METRIC] = "accuracy"
    with right:
        st.selectbox(
            "Of",
            offered,
            key=METRIC,
            persist_state="session",
            help="Sensitivity and specificity are those of the positive class at the threshold; choose both "
            "in the view Threshold.",
        )
    return reference, st.session_state[ACCEPTED] / 100, st.session_state[METRIC]


def _verdicts(rows: Sequence[tuple[Evaluated, dict[str, Any], dict[str, Any]]]) -> None:
    with st.container(key="accuracy.verdicts"):
        for one, _, judged in rows:
            icon = ICONS.get(judged["verdict"], ICONS["UNDECIDED"])
            st.markdown(f"{icon} **{format.plain(one.name)}**: {format.plain(judged['text'])}")


def _chart(
    reference: Evaluated,
    delta: float,
    metric: str,
    rows: Sequence[tuple[Evaluated, dict[str, Any], dict[str, Any]]],
) -> None:
    drawn = [
        DifferenceRow(
            label=one.name,
            difference=judged["difference"],
            low=judged["low"],
            high=judged["high"],
            verdict=judged["verdict"],
        )
        for one, _, judged in rows
        if judged["difference"] is not None
    ]
    if not drawn:
        return
    info = accuracy_charts.differences_info(drawn, reference=reference.name, delta=delta, metric=metric)
    with st.container(border=True):
        st.plotly_chart(
            accuracy_charts.differences(info),
            key="accuracy.differences",
            config=CONFIG,
            alt=f"Difference in {metric} against the reference with its 95 % interval, and the accepted loss",
        )
        st.caption(
            "Intervals of paired differences (Newcombe): rows that both have right, or both wrong, say "
            "nothing about a difference. In the shaded part the loss is larger than accepted."
        )


def _table(rows: Sequence[tuple[Evaluated, dict[str, Any], dict[str, Any]]]) -> None:
    table = [
        {
            "Model": one.name,
            "Difference (points)": None if judged["difference"] is None else judged["difference"] * 100,
            "95 % (points)": None
            if judged["difference"] is None
            else f"{judged['low'] * 100:+.2f} to {judged['high'] * 100:+.2f}",
            "Only the reference right": judged["only_reference"],
            "Only this one right": judged["only_candidate"],
            "Rows": judged["rows"],
            "p (McNemar)": judged["p"],
            "Rows that would tell": judged["rows_needed"] if judged["verdict"] == "UNDECIDED" else None,
            "Same answer": whole["agreement"]["value"],
        }
        for one, whole, judged in rows
    ]
    st.dataframe(
        pd.DataFrame(table),
        key="accuracy.paired",
        hide_index=True,
        placeholder=format.DASH,
        column_config={
            "Difference (points)": st.column_config.NumberColumn(format="%+.2f"),
            "p (McNemar)": st.column_config.NumberColumn(
                format="%.3g",
                help="Exact test of whether both are right equally often. A large p proves nothing.",
            ),
            "Rows that would tell": st.column_config.NumberColumn(
                help="Estimate of the rows after which the verdict would no longer be undecided."
            ),
            "Same answer": st.column_config.NumberColumn(
                format="percent", help="Share of the rows in which both say the same class, right or wrong."
            ),
        },
        alt="Paired differences against the reference: interval, discordant rows, McNemar's p, rows needed",
    )
