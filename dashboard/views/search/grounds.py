"""What the answer of a search rests on: the front, what matters, how it went, everything that was tried."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from core.evidence.documents import SearchResult
from core.evidence.tried import Tried, ratios_told
from core.run.search.reading import answer_of, tried_of
from core.show.sheets import Fact, searches
from core.show.table import csv_text
from core.spec import spec_from_dict
from core.spec.question import question_from_dict
from core.spec.space import changes_words
from core.store import StudyRecord
from dashboard import format
from dashboard.charts import search_charts, search_tried_charts
from dashboard.views.search import handing
from dashboard.widgets import plots, tables

# keys of the session
COST = "search.cost"
FRONT_CHART = "search.front"

PAIRS = 3  # of settings that do more together than each alone
ROWS = 6  # of the table of what was tried; others scroll


def _ratio_of(record: StudyRecord) -> Callable[[Tried], float | None]:
    return ratios_told(question_from_dict(record.question).objective, record.answer)


def beneath(record: StudyRecord) -> None:
    """Draw over the whole width what matters, what was tried, and how the search went."""
    found = answer_of(record)
    if found is not None:
        left, right = st.columns(2, gap="large")
        with left:
            _effects(record, found)
        with right:
            _front(record, found)
            _course(found)
        _went(found)
    if record.tried:
        _parallel(record, found)
        _table(record)


# --- the front ----------------------------------------------------------------------------------------------


def _front(record: StudyRecord, answer: SearchResult) -> None:
    points = answer["front"]
    known = search_charts.costs(points, answer["objective"])
    if not known:
        return
    with st.container(key="search.front_box"):
        st.subheader("Gain over what it costs", anchor=False)
        if st.session_state.get(COST) not in known:
            st.session_state[COST] = known[0]
        if len(known) > 1:
            st.segmented_control(
                "Cost",
                known,
                key=COST,
                required=True,
                format_func=lambda one: search_charts.COSTS[one][0].partition(" (")[0],
                label_visibility="collapsed",
            )
        cost = st.session_state[COST] or known[0]
        info = search_charts.front_info(
            points, tried_of(record), _ratio_of(record), cost=cost, winner=answer["winner"]
        )
        chosen = plots.draw(
            search_charts.front(info),
            "The front: gain against cost",
            key=FRONT_CHART,
            on_select="rerun",
            selection_mode="points",
            alt=f"Gain over {info.x_title} of {len(info.front)} configurations on the front",
        )
        beyond = f" {info.beyond} gained less than is shown: double-click to see all." if info.beyond else ""
        st.caption(
            f"Bars: 95 % intervals. Nobody is surely better than the front in every respect.{beyond} Click a "
            "point to take it up."
        )
        _picked(record, info, chosen)


def _picked(record: StudyRecord, info: search_charts.Front, chosen: Any) -> None:
    """The clicked point in words, and its way into Tune."""
    clicked = [one.get("customdata") for one in chosen["selection"]["points"]]
    found = next((one for one in (*info.winner, *info.front, *info.others) if one.trial in clicked), None)
    if found is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="search.picked"):
        st.markdown(format.plain(f"{search_charts.times(found.ratio, found.low, found.high)}: {found.label}"))
        st.space("stretch")
        st.button(
            "Load into Tune",
            key="search.load_point",
            icon=":material/tune:",
            on_click=handing.load,
            args=(record, found.trial),
            help="Sets every setting on Tune as this point has it. Only what was confirmed is an answer; run "
            "it there before you rely on it.",
        )


# --- what matters, and how it went -------------------------------------------------------------------------


def _effects(record: StudyRecord, answer: SearchResult) -> None:
    st.subheader("What matters", anchor=False)
    if not answer["effects"]:
        st.caption("Too little was tried to tell what each setting does.")
        return
    margin = spec_from_dict(record.spec).protocol.margin
    plots.draw(
        search_charts.intervals(search_charts.effects_info(answer["effects"], margin=margin)),
        "What each setting does on average",
        key="search.effects",
        alt=f"What {len(answer['effects'])} values of settings do on average, with 95 % intervals",
    )
    st.caption("Each value against where the search started, averaged over everything else that was tried.")
    for one in answer["pairs"][:PAIRS]:
        names = {name: value for name, value in zip(one["settings"], one["values"], strict=True)}
        said = search_charts.times(one["ratio"], one["ratio_low"], one["ratio_high"])
        st.markdown(
            f":material/join_inner: {format.plain(changes_words(names))}: together "
            f"{format.plain(said)} of what each does alone"
        )


def _course(answer: SearchResult) -> None:
    st.subheader("How it went", anchor=False)
    if any(one["ratio"] for one in answer["course"]):
        plots.draw(
            search_charts.course(answer["course"]),
            "Best known gain over the search",
            key="search.course",
            alt="The best gain that was known at each moment of the search",
        )
        st.caption("By all looks together, which choose. The answer comes from the confirming race alone.")


def _went(answer: SearchResult) -> None:
    """The space, the time, the hidden controls and the notes, in words."""
    failed = f", {answer['failed']:,} of them failed or were wrong" if answer["failed"] else ""
    tables.facts(
        [
            Fact(
                "tried",
                f"{answer['tried']:,} of {answer['space']['distinct']:,} configurations{failed}, in "
                f"{searches.time_words(answer)}",
            ),
            Fact("space", searches.space_words(answer["space"])),
            Fact("hidden controls", searches.controls_words(answer["controls"])),
            Fact("strategy", answer["strategy"]),
        ]
    )
    for note in answer["notes"]:
        st.caption(f":material/info: {format.plain(note)}")


# --- everything that was tried ----------------------------------------------------------------------------


def _parallel(record: StudyRecord, answer: SearchResult | None) -> None:
    effects = answer["effects"] if answer is not None else []
    info = search_tried_charts.parallel_info(tried_of(record), _ratio_of(record), effects)
    if len(info.gains) < 2 or not info.dimensions:
        return
    st.subheader("Everything that was tried", anchor=False)
    plots.draw(
        search_tried_charts.parallel(info),
        "Every configuration through its settings",
        key="search.parallel",
        table=partial(search_tried_charts.parallel_table, info),
        alt=f"{len(info.gains)} configurations as lines through their settings to their gain",
    )
    more = f" {info.hidden} settings that matter less are not drawn." if info.hidden else ""
    st.caption(
        f"One line per configuration, from setting to setting to its gain, which is cut off below "
        f"{info.axis[0]:.2g}×.{more}"
    )


def _table(record: StudyRecord) -> None:
    table = searches.tried(record)
    tables.draw(
        table, key="search.tried", most=ROWS, alt="All configurations that were tried, the best first"
    )
    st.download_button(
        "Download CSV",
        data=csv_text(table),
        file_name=f"search_{record.id[:8]}.csv",
        mime="text/csv",
        key="search.csv",
        icon=":material/download:",
        on_click="ignore",
    )
