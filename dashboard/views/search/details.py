"""Details of a search result: Pareto front, effects, course of the search, and all evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import streamlit as st

from core.api.searching import evaluations_of
from core.evidence.evaluations import Evaluation, reported_ratio
from core.evidence.result_types import Confirmed, SearchResult
from core.show.sheets import Fact, searches
from core.spec import spec_from_dict
from core.spec.question import question_from_dict
from core.spec.space import changes_words
from core.store import StudyRecord
from dashboard import format
from dashboard.charts import search_charts, search_evaluation_charts
from dashboard.views.search import links
from dashboard.widgets import plots, tables

# session keys
COST = "search.cost"
FRONT_CHART = "search.front"
TABS = "search.tabs"

PICTURE_PX = 480  # the chart below the result fills the screen

PAIRS = 3  # of interacting settings
ROWS = 6  # visible rows of the table of evaluations; others scroll


def _ratio_of(record: StudyRecord) -> Callable[[Evaluation], float | None]:
    return reported_ratio(question_from_dict(record.question).objective, record.answer)


def main_chart(record: StudyRecord, answer: SearchResult) -> None:
    """Draw the main chart of the result: the Pareto front, or the speed-ups where there is none."""
    if pareto_metrics(answer):
        _front(record, answer)
    else:
        _speedups(answer, least=PICTURE_PX)


def pareto_metrics(answer: SearchResult) -> list[str]:
    """Return the metrics for the axes of the Pareto front; empty: there is no front."""
    return search_charts.costs(answer["front"], answer["objective"])


def shown_configuration(answer: SearchResult) -> Confirmed | None:
    """Return the configuration whose numbers are shown: the winner, or else the first rejected one."""
    return answer["winner"] or next(iter(answer["others"]), None)


def tabs(record: StudyRecord, answer: SearchResult | None) -> None:
    """Draw the detail tabs; only the open tab is computed."""
    shown = {name: draw for name, (there, draw) in _tabs(record, answer).items() if there}
    if not shown:
        return
    for tab, draw in zip(st.tabs(list(shown), key=TABS, on_change="rerun"), shown.values(), strict=True):
        if tab.open:
            with tab:
                draw()


def _tabs(record: StudyRecord, answer: SearchResult | None) -> Mapping[str, tuple[bool, Callable[[], None]]]:
    """Return tab -> whether it has content, and the function that draws it."""
    tried = bool(record.tried)
    rest = {
        "Evaluated": (tried, partial(_table, record)),
        "Parallel": (len(record.tried) > 1, partial(_parallel, record, answer)),
    }
    if answer is None:
        return rest
    course = any(one["ratio"] for one in answer["course"])
    gains = bool(pareto_metrics(answer)) and shown_configuration(answer) is not None
    return {
        "Effects": (True, partial(_effects, record, answer)),
        "Evaluated": rest["Evaluated"],
        "Progress": (course, partial(_course, answer)),
        "Parallel": rest["Parallel"],
        "All metrics": (gains, partial(_speedups, answer)),
    }


# --- the chart ----------------------------------------------------------------------------------------------


def _speedups(answer: SearchResult, least: int = 0) -> None:
    """Draw the speed-up of a configuration in every metric."""
    shown = shown_configuration(answer)
    if shown is not None and shown["gains"]:
        plots.draw(
            search_charts.intervals(search_charts.speedups_info(shown["gains"]), least=least),
            search_charts.SPEEDUP_TITLE,
            key="search.gains",
            alt=search_charts.SPEEDUPS_ALT,
        )


def _front(record: StudyRecord, answer: SearchResult) -> None:
    known = pareto_metrics(answer)
    if st.session_state.get(COST) not in known:
        st.session_state[COST] = known[0]
    cost = st.session_state[COST]
    info = search_charts.front_info(
        answer["front"], evaluations_of(record), _ratio_of(record), cost=cost, winner=answer["winner"]
    )
    with st.container(key="search.front_box", gap="xsmall"):
        chosen = plots.draw(
            search_charts.front(info, height=PICTURE_PX),
            "Pareto front",
            key=FRONT_CHART,
            on_select="rerun",
            selection_mode="points",
            alt=search_charts.front_alt(info),
        )
        _picked(record, info, chosen)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if len(known) > 1:
                st.segmented_control(
                    "Cost",
                    known,
                    key=COST,
                    required=True,
                    format_func=lambda one: search_charts.cost_title(one).partition(" (")[0],
                    label_visibility="collapsed",
                )
            beyond = f"Double-click to see {info.beyond} more below." if info.beyond else None
            st.caption("Click a point to load it.", help=beyond, width="content")


def _picked(record: StudyRecord, info: search_charts.Front, chosen: Any) -> None:
    """Draw the clicked point in words, with a button that loads it into Tune."""
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
            on_click=links.load,
            args=(record, found.trial),
            help="Loads every setting of this point into Tune. Only the confirmed result is final.",
        )


# --- the tabs -----------------------------------------------------------------------------------------------


def _effects(record: StudyRecord, answer: SearchResult) -> None:
    if not answer["effects"]:
        st.caption("Too few configurations were evaluated to estimate effects.")
        return
    margin = spec_from_dict(record.spec).protocol.margin
    plots.draw(
        search_charts.intervals(search_charts.effects_info(answer["effects"], margin=margin)),
        "Average effect of each setting",
        key="search.effects",
        alt=f"Average effect of {len(answer['effects'])} values of settings, with 95 % intervals",
    )
    st.caption("Each value versus the starting point, averaged over the other evaluated settings.")
    for one in answer["pairs"][:PAIRS]:
        names = {name: value for name, value in zip(one["settings"], one["values"], strict=True)}
        said = search_charts.times(one["ratio"], one["ratio_low"], one["ratio_high"])
        st.markdown(
            f":material/join_inner: {format.plain(changes_words(names))}: together "
            f"{format.plain(said)} of what each does alone"
        )


def _course(answer: SearchResult) -> None:
    plots.draw(
        search_charts.course(answer["course"]),
        "Best improvement over time",
        key="search.course",
        alt=search_charts.COURSE_ALT,
    )
    st.caption("Estimates of all steps. The result comes from the confirmation alone.")


def course_text(answer: SearchResult) -> None:
    """Draw space, time, A/A controls and notes, in words."""
    failed = f", {answer['failed']:,} of them failed or were wrong" if answer["failed"] else ""
    tables.facts(
        [
            Fact(
                "evaluated",
                f"{answer['tried']:,} of {answer['space']['distinct']:,} configurations{failed}, in "
                f"{searches.time_words(answer)}",
            ),
            Fact("space", searches.space_words(answer["space"])),
            Fact("A/A controls", searches.controls_words(answer["controls"])),
            Fact("strategy", answer["strategy"]),
        ]
    )
    for note in answer["notes"]:
        st.caption(f":material/info: {format.plain(note)}")


def _parallel(record: StudyRecord, answer: SearchResult | None) -> None:
    effects = answer["effects"] if answer is not None else []
    info = search_evaluation_charts.parallel_info(evaluations_of(record), _ratio_of(record), effects)
    if len(info.gains) < 2 or not info.dimensions:
        st.caption("Fewer than two configurations have a result.")
        return
    plots.draw(
        search_evaluation_charts.parallel(info),
        "All configurations by setting",
        key="search.parallel",
        table=partial(search_evaluation_charts.parallel_table, info),
        alt=search_evaluation_charts.parallel_alt(info),
    )
    more = f" {info.hidden} less important settings are hidden." if info.hidden else ""
    st.caption(f"One line per configuration. Improvements below {info.axis[0]:.2g}× are cut off.{more}")


def _table(record: StudyRecord) -> None:
    table = searches.evaluation_table(record)
    tables.draw(table, key="search.tried", most=ROWS, alt="All evaluated configurations, the best first")
    tables.download(table, f"search_{record.id[:8]}.csv", key="search.csv")
