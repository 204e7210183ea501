"""Why two results differ, on the screen: the sentence, the numbers it rests on, charts and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from core.evidence.profile_difference import Difference, Row
from core.evidence.profile_grouping import Group, GroupNode
from core.evidence.profile_sentence import remarks, sentence
from dashboard import format
from dashboard.charts import why_charts
from dashboard.widgets import columns
from dashboard.widgets.profile_results import CONFIG, matching

VIEW, SEARCH = "why.view", "why.search"
CHART_PX = (
    440  # narrower, there is no room for bars beside their labels: the charts stand one below the other
)
MOST_NAMES = 12  # of the nodes of one group in a cell; the rest is counted


def result(found: Difference) -> None:
    with st.container(border=True, key="why.sentence"):
        st.markdown(f"#### {format.icon(found.end.verdict.icon)} {format.plain(sentence(found))}")
    _metrics(found)
    _views(found)
    st.info(
        "\n".join(f"- {format.plain(line)}" for line in remarks(found)),
        icon=":material/info:",
        title="To know when reading these numbers",
    )


def _metrics(found: Difference) -> None:
    end, nodes = found.end, found.in_nodes
    outside, unseen = found.rows[-2], found.rows[-1]
    unit = "row" if end.per_row else "run"
    with st.grid(4, min_column_width=200, border=True):
        st.metric(
            f"Difference per {unit} (p50)",
            _signed(end.difference_s),
            delta=_interval(found),
            delta_color="off",
            delta_arrow="off",
            help=f"Candidate {format.ms(end.candidate_s)} minus baseline {format.ms(end.baseline_s)}. The "
            "other three numbers add up to it.",
        )
        _part(found, "In nodes", nodes, "Nodes that do the same work are put against each other.")
        _part(
            found,
            "Outside the nodes",
            outside,
            "What a run takes beyond its nodes: the call, the executor, waiting for a GPU.",
        )
        _part(
            found,
            "Not seen in the passes",
            unseen,
            "What the results differ by and the runs made to explain it do not: the machine was another, or "
            "noise. Nothing of it is spread over the nodes.",
        )


def _part(found: Difference, name: str, row: Row, text: str) -> None:
    share = found.share(row)
    st.metric(
        name,
        _signed(row.difference_s),
        delta=None if share is None else f"{share:.0%} of the difference",
        delta_color="off",
        delta_arrow="off",
        help=f"{text} Baseline {format.ms(row.baseline_s)}, candidate {format.ms(row.candidate_s)}.",
    )


def _interval(found: Difference) -> str:
    low, high = found.end.low_s, found.end.high_s
    if low is None or high is None:
        return "interval unknown"
    return f"95 % [{_signed(low)}, {_signed(high)}]"


def _signed(seconds: float) -> str:
    return format.ms(seconds, 3, signed=True)


# --- charts and tables ------------------------------------------------------------------------------------


def _views(found: Difference) -> None:
    views: dict[str, Callable[[Difference], None]] = {"Operators": _operators, "Nodes": _nodes}
    if found.moves:
        views[f"Moved ({len(found.moves)})"] = _moves
    if st.session_state.get(VIEW) not in views:
        st.session_state[VIEW] = "Operators"
    view = st.segmented_control(
        "View", list(views), key=VIEW, required=True, label_visibility="collapsed", persist_state="session"
    )
    views[str(view)](found)


def _operators(found: Difference) -> None:
    unit = "row" if found.end.per_row else "run"
    info = why_charts.steps_info(found)
    with st.grid(2, min_column_width=CHART_PX):
        with st.container(border=True):
            st.plotly_chart(
                why_charts.steps(info, unit=unit),
                key="why.steps",
                config=CONFIG,
                alt="The difference of the two results, part by part; the lines are 95 % intervals.",
            )
        with st.container(border=True):
            st.plotly_chart(
                why_charts.sides(found),
                key="why.sides",
                config=CONFIG,
                alt="Time of both results by part.",
            )
    rows = [
        {
            "part": why_charts.label(row),
            **_times(row.baseline_s, row.candidate_s, row.half_width_s, found.share(row)),
            "nodes": why_charts.nodes(row),
            "clear": row.clear,
        }
        for row in found.rows
    ]
    _table(rows, "operators")
    st.caption(
        "All parts together are the p50 of each result. A part is clear where the passes agree on the sign "
        "of its difference; only clear parts are named on top."
    )


def _nodes(found: Difference) -> None:
    rows = [
        {
            "nodes of the baseline": _names(one.baseline),
            "nodes of the candidate": _names(one.candidate),
            "part": f"{one.label} (inserted)" if one.kind == "inserted" else one.label,
            **_times(one.baseline_s, one.candidate_s, one.half_width_s, found.share(one)),
            "operators": _operators_of(one),
            "in the model": _shortened(one.model),
            "ran on": _providers(one),
        }
        for one in found.groups
    ]
    words = st.text_input(
        "Search nodes by name, operator or provider",
        key=SEARCH,
        icon=":material/search:",
        placeholder="all words must occur",
        live="300ms",
    )
    _table(rows, "nodes", words=words or "")
    st.caption(
        "One row holds nodes of both sides that do the same work: a fused node stands against all the nodes "
        "of the model that it replaced."
    )


def _moves(found: Difference) -> None:
    rows = [
        {
            "part": move.label,
            "baseline ran on": ", ".join(map(format.provider, move.baseline)),
            "candidate ran on": ", ".join(map(format.provider, move.candidate)),
            "nodes": move.nodes,
            **_times(move.baseline_s, move.candidate_s, None, found.share(move)),
        }
        for move in found.moves
    ]
    _table(rows, "moves")


def _times(
    baseline_s: float, candidate_s: float, half_width_s: float | None, share: float | None
) -> dict[str, Any]:
    return {
        "baseline (ms)": baseline_s * 1e3,
        "candidate (ms)": candidate_s * 1e3,
        "difference (ms)": (candidate_s - baseline_s) * 1e3,
        "± (ms)": math.nan if half_width_s is None else half_width_s * 1e3,
        "share": math.nan if share is None else round(share, 4) + 0.0,  # no minus before a zero
    }


_NUMBERS = {
    **columns.numbers(
        ("baseline (ms)", "candidate (ms)", "± (ms)", "difference (ms)"),
        help={"difference (ms)": "Candidate minus baseline."},
    ),
    "share": st.column_config.NumberColumn(
        format="percent", help="Of the whole difference; below zero where a part works against it."
    ),
}


def _table(rows: Sequence[Mapping[str, Any]], name: str, *, words: str = "") -> None:
    frame = pd.DataFrame(rows)
    shown, first = matching(frame, words), str(frame.columns[0])
    if words:
        st.caption(
            f"{len(shown)} of {len(frame)} rows; together {_signed(shown['difference (ms)'].sum() / 1e3)}."
        )
    st.dataframe(
        columns.readable(shown),
        key=f"why.table.{name}",
        hide_index=True,
        placeholder=format.DASH,
        row_height=columns.row_height(shown[first]),
        column_config={**_NUMBERS, first: columns.telling(shown[first])},
        alt=f"Both results by {name}; click a column's title to sort.",
    )


def _names(nodes: Iterable[GroupNode]) -> str:
    return _shortened(
        [
            " › ".join([*node.path, node.name]) + (f" ×{node.nodes}" if node.nodes > 1 else "")
            for node in nodes
        ]
    )


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _operators_of(one: Group) -> str:
    before, after = (
        " + ".join(dict.fromkeys(node.op_type for node in side)) or "none"
        for side in (one.baseline, one.candidate)
    )
    return before if before == after else f"{before} → {after}"


def _providers(one: Group) -> str:
    before, after = (
        ", ".join(sorted({format.provider(node.provider) for node in side}))
        for side in (one.baseline, one.candidate)
    )
    return before or after if before == after or not before or not after else f"{before} → {after}"
