"""The result of a search: its sentence, what to do with it, and how to search longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pandas as pd
import streamlit as st

from core.api.searching import answer_of, evaluations_of
from core.evidence.quality import quality_of_search
from core.evidence.result_types import Confirmed, SearchResult
from core.evidence.targets import STATE_WORDS as LIMIT_WORDS
from core.show.report.subjects import of_search
from core.show.setting_chips import chips_of
from core.show.sheets import searches
from core.show.table import Column
from core.show.verdict import quality_details
from core.show.words import state_words
from core.store import StudyRecord
from dashboard import format, messages, state
from dashboard.views.search import details, form, links
from dashboard.widgets import collapsible, controls, page_frame, report, results, tables, trial_result

MORE = "search.more_s"

ICONS: Mapping[str, str] = {  # outcome -> name of a Material Symbol
    "FOUND": "rocket_launch",
    "NO_DIFFERENCE": "equal",
    "NONE_KEEPS_LIMITS": "rule",
    "UNDECIDED": "help",
    "REJECTED": "block",
}
UNDECIDED_OUTCOMES = ("UNDECIDED", "REJECTED")  # a longer search may decide these
LIMIT_ICONS: Mapping[str, str] = {"MET": "check_circle", "MISSED": "cancel", "UNKNOWN": "help"}
LOAD_ICONS: Mapping[str, str] = {"green": "check_circle", "red": "cancel", "gray": "help"}
MEANS: Mapping[str, str] = {  # outcome -> advice, where it is needed
    "NO_DIFFERENCE": "Keep the default.",
    "NONE_KEEPS_LIMITS": "Loosen a constraint, let more settings vary, or try a variant of the model.",
    "UNDECIDED": "Search longer; evaluated configurations are reused.",
    "REJECTED": "Wait for less background load, then search longer.",
}


# --- the result ---------------------------------------------------------------------------------------------


def draw(record: StudyRecord, go_on: Callable[[int | None], None], quiet: Callable[[], None]) -> None:
    """Draw the result of a search, or its state when it was stopped.

    Args:
        record: of a search that has ended.
        go_on: called with more seconds, or None for the time that was left.
        quiet: draws the button to search again on an idle machine, after a search under background load.
    """
    found = answer_of(record)
    if found is None:
        _unfinished(record, go_on)
        details.tabs(record, None)
        return
    with st.container(key="search.answer", gap=None):
        _sentence(found)
    details.main_chart(record, found)
    if found.get("busy"):
        quiet()
    _numbers(found)
    _advice(found, go_on)
    details.tabs(record, found)
    collapsible.group(
        "Confidence details", partial(_details, record, found), key="search.details", icon="fact_check"
    )


def _sentence(answer: SearchResult) -> None:
    """Draw the result in one sentence, its configuration, and remarks that change how to read it."""
    for line in answer.get("remarks", ()):
        st.markdown(f":orange[:material/warning:] {format.plain(_halves(line)[0])}")
    outcome, shown = answer["outcome"], details.shown_configuration(answer)
    color, icon = searches.COLORS[outcome], format.icon(ICONS[outcome])
    st.markdown(f"#### :{color}[{icon}] {format.plain(searches.sentence(answer))}")
    if (load := answer.get("load")) is not None:
        sign = format.icon(LOAD_ICONS[searches.load_color(load)])
        st.markdown(f":{searches.load_color(load)}[{sign}] {format.plain(load['words'])}")
    if shown is None:
        return
    rows = (shown["spec"].get("workload") or {}).get("batch_size")
    batch = {"batch_size": rows} if rows and "batch_size" not in shown["changes"] else {}
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="search.settings"):
        if answer["winner"] is None:
            st.markdown(":small[Best evaluated]", width="content")
        controls.setting_badges(chips_of({**shown["changes"], **batch}))
    if shown["error"]:
        st.markdown(f":orange[:material/warning: {format.plain(shown['error'])}]")


def _halves(remark: str) -> tuple[str, str]:
    """Return the first sentence of a remark, shown above the result, and the rest, shown in the details."""
    first, stop, rest = remark.partition(". ")
    return first + stop.strip(), rest


def _numbers(answer: SearchResult) -> None:
    """Draw a configuration's costs next to those of the default, its constraints, and failures."""
    shown = details.shown_configuration(answer)
    if shown is not None:
        if costs := searches.numbers(shown, answer["default"]):
            strip = pd.DataFrame([{tables.title(Column(name)): text for name, text in costs}])
            st.table(strip, border="horizontal", hide_index=True, alt="Costs versus default")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            results.quality_badge(quality_of_search(answer), answer)
            for one in shown["limits"]:
                icon = format.icon(LIMIT_ICONS[one["state"]])
                words = f"{format.plain(one['limit'])}: **{LIMIT_WORDS[one['state']]}**"
                st.markdown(f"{icon} {words}{searches.probability_text(one['probability'])}", width="content")
    if (load := answer.get("load")) is not None and len(load["tested"]) > 1:
        tables.draw(searches.load_table(load), key="search.load_tests", alt="Configurations under load")
    for line in searches.first_lines(answer):
        st.caption(f":material/info: {format.plain(line)}")


def _advice(answer: SearchResult, go_on: Callable[[int | None], None]) -> None:
    """Draw what to do, where the outcome needs advice."""
    outcome = answer["outcome"]
    if outcome in MEANS:
        st.markdown(f":material/lightbulb: {MEANS[outcome]}")
    if outcome in UNDECIDED_OUTCOMES:
        _more_time(go_on)


def _details(record: StudyRecord, answer: SearchResult) -> None:
    remarks = [_halves(one)[1] for one in answer.get("remarks", ())]
    for line in (*filter(None, remarks), *quality_details(answer)):
        st.caption(format.plain(line))
    results.other_processes_note(answer)
    details.course_text(answer)
    owner = f" · {format.plain(record.owner)}" if record.owner else ""
    st.caption(
        f"Search `{record.id[:12]}` · {format.when(record.finished_at or record.created_at)} · "
        f"{format.duration(record.wall_s)}{owner}"
    )


# --- actions ------------------------------------------------------------------------------------------------


def actions(record: StudyRecord, go_on: Callable[[int | None], None], delete: Callable[[str], None]) -> None:
    """Draw the actions for a search that has ended into the bar.

    Args:
        record: of the search.
        go_on: called with more seconds.
        delete: called with the id of the search.
    """
    answer = answer_of(record)
    taken = _loadable(answer)
    if taken:
        st.button(
            "Load into Tune",
            key="search.load",
            icon=":material/tune:",
            on_click=links.load,
            args=(record, taken),
            help="Loads every setting of this configuration into Tune.",
        )
        page_frame.link("export", "Export", trial=taken)
    report.offer(lambda: of_search(state.store(), record), key="search")
    with st.popover("More", icon=":material/more_horiz:", key="search.more"):
        if answer is not None and answer["winner"] is not None:
            _winner(record, answer["winner"], answer["default"])
        if answer is not None and answer["outcome"] not in UNDECIDED_OUTCOMES:
            _more_time(go_on)
        _deletion(record, delete)


def _loadable(answer: SearchResult | None) -> str:
    """Return the trial of the configuration to load into Tune; empty: there is none.

    It is the fastest that passes under load, else the winner, or the default where there is no difference.
    """
    if answer is None:
        return ""
    if (load := answer.get("load")) is not None and load["passed"] is not None:
        passed = load["tested"][load["passed"]]
        if passed["role"] != "winner":
            return passed["trial"]
    default = answer["default"] if answer["outcome"] == "NO_DIFFERENCE" else None
    taken = answer["winner"] or default
    return "" if taken is None else taken["trial"]


def _winner(record: StudyRecord, winner: Confirmed, default: Confirmed | None) -> None:
    trial = winner["trial"]
    if default is not None:
        trial_result.explain_link(default["trial"], trial)
    page_frame.link("compare", "Compare with…", help="Opens Compare with this configuration.", trials=trial)
    is_pinned = state.store().baseline(record.model_sha256) == trial
    trial_result.pin_button(record.model_sha256, trial, is_pinned=is_pinned, key="search.pin")
    st.button(
        "Check targets",
        key="search.judge",
        icon=":material/checklist:",
        on_click=links.open_scorecard,
        args=(record, trial),
        help="Opens Scorecard with it and with this search's constraints as targets.",
    )


def _deletion(record: StudyRecord, delete: Callable[[str], None]) -> None:
    with st.expander("Delete this search", icon=":material/delete:", key="search.deletion"):
        st.markdown("Deletes what screening measured, for all users. Confirmed results stay in the history.")
        st.button(
            "Delete",
            key="search.delete",
            type="primary",
            on_click=delete,
            args=(record.id,),
            **state.unless_closed(),
        )


# --- without a result, and searching longer -----------------------------------------------------------------


def _unfinished(record: StudyRecord, go_on: Callable[[int | None], None]) -> None:
    tried = len(evaluations_of(record))
    kept = f"Evaluated configurations that are kept: {tried:,}." if tried else ""
    word = state_words(record)
    if record.state == "CANCELLED":
        st.info(f"The search was cancelled. {kept}", icon=":material/cancel:")
    elif record.error is not None:
        messages.report(record.error, f"The search {'was ' * (word == 'interrupted')}{word}")
        if kept:
            st.caption(kept)
    else:
        st.info(f"The search has no result: {state_words(record)}. {kept}", icon=":material/help:")
    st.button(
        "Resume",
        key="search.resume",
        icon=":material/resume:",
        on_click=go_on,
        args=(None,),
        **state.unless_closed(
            "Continues with what was evaluated, in the time that was left. Some of it is "
            "measured again, to detect a changed machine."
        ),
    )


def _more_time(go_on: Callable[[int | None], None]) -> None:
    st.session_state.setdefault(MORE, form.DEFAULTS[form.BUDGET])
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="search.further"):
        st.select_slider(
            "More time",
            form.TIMES_S,
            key=MORE,
            format_func=format.duration,
            width=260,
            help="Evaluated configurations are reused; the result is confirmed again.",
        )
        st.button(
            "Search longer",
            key="search.go_on",
            icon=":material/more_time:",
            on_click=lambda: go_on(int(st.session_state[MORE])),
            **state.unless_closed("Continues this search. The new result replaces this one."),
        )
