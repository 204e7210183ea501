"""Past comparisons of a model: a list to choose from in the bar, and a closed table of their results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from core.evidence.comparison import Comparison
from core.show.sheets import comparisons
from core.store import ModelRecord
from dashboard import format, state
from dashboard.widgets import collapsible, past_results

PAST, SINGLE_TRIALS = "compare.past", "compare.duels"  # session keys

LIMIT = 200
ROWS = 8  # visible rows of the table; the others scroll

Show = Callable[[str], None]  # opens the comparison of this id


def of_model(record: ModelRecord, *, with_single_trials: bool = False) -> list[Comparison]:
    """Return the comparisons that include the model, also as the baseline, newest first."""
    found = state.store().comparisons(compared_sha256=record.content_sha256, limit=LIMIT)
    return [one for one in found if with_single_trials or not one.is_single_trial]


def offer(record: ModelRecord, shown: Comparison | None, show: Show) -> None:
    """Draw the list of comparisons, with the shown one selected."""
    found = of_model(record)
    if shown is not None and shown.id not in {one.id for one in found}:
        found = [shown, *found]  # of another model, or started on Tune
    past_results.offer(
        "Comparison shown",
        {one.id: _name(one) for one in found},
        shown=shown.id if shown is not None else None,
        key="compare.pick",
        on_select=show,
        alone=True,
    )


def _name(one: Comparison) -> str:
    """Return a label that never changes: Streamlit finds the selected option by its label."""
    return f"{format.when(one.created_at)} · {comparisons.against(one)} · {one.id[:6]}"


def table(record: ModelRecord, show: Show) -> None:
    """Draw the past comparisons with their results in a closed table; selecting a row opens one."""
    collapsible.group("Past comparisons", partial(_table, record, show), key=f"{PAST}.box", icon="history")


def _table(record: ModelRecord, show: Show) -> None:
    with_single_trials = st.toggle(
        "Include Tune runs",
        key=SINGLE_TRIALS,
        persist_state="session",
        help="Each run on Tune is a comparison of its settings with the baseline.",
    )
    found = of_model(record, with_single_trials=with_single_trials)
    if not found:
        st.caption(f"No comparison of {format.plain(record.name)} yet.")
        return
    past_results.table(
        comparisons.earlier_comparisons(found),
        [one.id for one in found],
        key=PAST,
        most=ROWS,
        on_select=show,
        alt="Past comparisons of this model with their results",
    )
    st.caption("Tick a comparison to open it.")
