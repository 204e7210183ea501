"""Explanation of a difference: headline, metrics, charts and tables."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from core.evidence.profile_difference import Difference, DifferenceRow
from core.evidence.profile_sentence import remarks, sentence
from core.show.sheets import differences as sheets
from core.show.table import Table, column_of, matching
from core.wire.units import ci
from dashboard import format
from dashboard.charts import explain_charts, minus
from dashboard.widgets import plots, tables

SEARCH_LABEL = "Search nodes by name, operator or provider"
VIEW, SEARCH, DETAILS = "explain.view", "explain.search", "explain.details"
NOTES = (
    (
        "All parts add up to the whole run. A part is clear if the passes agree on its "
        "sign; the sentence names only clear parts."
    ),
    (
        "Nodes of both sides that do the same work are one line: a fused node stands for "
        "all the nodes that it replaced."
    ),
)


def result(found: Difference, sides: Callable[[], None]) -> None:
    """Draw the explanation.

    Args:
        found: the difference.
        sides: draws the names of the two results.
    """
    with st.container(key="explain.sentence"):
        st.markdown(f"#### {format.icon(found.end.verdict.icon)} {format.plain(sentence(found))}")
    if not found.end.decided:
        sides()
        return
    _charts(found)
    sides()
    _metrics(found)
    _tables(found)
    _details(found)


def _details(found: Difference) -> None:
    with st.expander("Details", icon=":material/info:", key=DETAILS, on_change="rerun") as box:
        if box.open:
            st.markdown("\n".join(f"- {format.plain(line)}" for line in (*remarks(found), *NOTES)))


def _metrics(found: Difference) -> None:
    end, nodes = found.end, found.in_nodes
    outside, unseen = found.rows[-2], found.rows[-1]
    unit = "row" if end.per_row else "run"
    with st.container(border=True), st.grid(4, min_column_width=150):
        st.metric(
            f"Difference per {unit}",
            _signed(found, end.difference_s),
            delta=_interval(found),
            delta_color="off",
            delta_arrow="off",
            help=f"From the paired ratio: the baseline's p50, {format.ms(end.baseline_s)}, divided "
            f"by the ratio is {format.ms(end.candidate_s)}. The other three numbers add up to "
            "it.",
        )
        _part(found, "In nodes", nodes, "Nodes that do the same work are compared with each other.")
        _part(
            found,
            "Outside the nodes",
            outside,
            "Time outside the nodes: the call, the executor, waiting for a GPU.",
        )
        _part(
            found,
            "Unexplained",
            unseen,
            "The part of the difference that the profiling runs did not reproduce: noise, or "
            "a changed machine.",
        )


def _part(found: Difference, name: str, row: DifferenceRow, text: str) -> None:
    share = found.share(row)
    st.metric(
        name,
        _signed(found, row.difference_s),
        delta=None if share is None else f"{minus(f'{share:.0%}')} of the difference",
        delta_color="off",
        delta_arrow="off",
        help=f"{text} Baseline {format.ms(row.baseline_s)}, candidate {format.ms(row.candidate_s)}.",
    )


def _interval(found: Difference) -> str:
    low, high = found.end.low_s, found.end.high_s
    if low is None or high is None:
        return "interval unknown"
    return ci(_signed(found, low), _signed(found, high))


def _signed(found: Difference, seconds: float) -> str:
    """Return a time with as many decimals as in the tables, so that the sums match visibly."""
    return minus(f"{seconds * 1e3:+,.{sheets.decimals(found.end)}f} ms")


# --- charts and tables ------------------------------------------------------------------------------------


def _charts(found: Difference) -> None:
    unit = "row" if found.end.per_row else "run"
    left, right = st.columns([3, 2], gap="small")
    with left:
        plots.draw(
            explain_charts.steps(explain_charts.steps_info(found), unit=unit),
            "From one result to the other",
            key="explain.steps",
            alt="The difference of the two results, part by part; the lines are 95 % intervals.",
        )
    with right:
        plots.draw(
            explain_charts.sides(found),
            explain_charts.SIDES_TITLE,
            key="explain.sides",
            alt=explain_charts.SIDES_TITLE,
        )


def _tables(found: Difference) -> None:
    views: dict[str, Callable[[Difference], None]] = {"Operators": _operators, "Nodes": _nodes}
    if found.moves:
        views[f"Moved ({len(found.moves)})"] = _moves
    if found.fusions and all(found.versions):
        views[f"Fusions ({len(found.fusions)})"] = _fusions
    for tab, draw in zip(st.tabs(list(views), key=VIEW, on_change="rerun"), views.values(), strict=True):
        if tab.open:
            with tab:
                draw(found)


def _operators(found: Difference) -> None:
    _table(found, sheets.parts(found), "operators")


def _nodes(found: Difference) -> None:
    _table(found, sheets.groups(found), "nodes", words=tables.search(SEARCH_LABEL, key=SEARCH))


def _moves(found: Difference) -> None:
    _table(found, sheets.moves(found), "moves")


def _fusions(found: Difference) -> None:
    _table(found, sheets.fusions(found), "fusions")


def _table(found: Difference, table: Table, name: str, *, words: str = "") -> None:
    shown = matching(table, words)
    if words:
        together = sum(float(one or 0) for one in column_of(shown, "difference"))
        st.caption(f"{len(shown.rows)} of {len(table.rows)} lines; together {_signed(found, together)}.")
    tables.draw(shown, key=f"explain.table.{name}", alt=f"Both results by {name}; {tables.SORTABLE}")
