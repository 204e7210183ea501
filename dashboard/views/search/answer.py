"""The answer of a search on the screen: what it says, what to do with it, and how to go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from core.evidence.documents import Confirmed, SearchResult
from core.evidence.quality import quality_of_search
from core.evidence.targets import STATE_WORDS as LIMIT_WORDS
from core.run.search.reading import answer_of, tried_of
from core.show.report.subjects import of_search
from core.show.sheets import searches
from core.show.words import state_words
from core.spec.question import question_from_dict
from core.spec.space import changes_words
from core.store import StudyRecord
from dashboard import format, state
from dashboard.charts import search_charts
from dashboard.views.search import form, handing
from dashboard.widgets import duel, plots, report, results

MORE = "search.more_s"

ICONS: Mapping[str, str] = {  # outcome -> name of a Material Symbol
    "FOUND": "rocket_launch",
    "NO_DIFFERENCE": "equal",
    "NONE_KEEPS_LIMITS": "rule",
    "UNDECIDED": "help",
    "REJECTED": "block",
}
LIMIT_ICONS: Mapping[str, str] = {"MET": "check_circle", "MISSED": "cancel", "UNKNOWN": "help"}
MEANS: Mapping[str, str] = {  # outcome -> what to do, where that is not plain
    "NO_DIFFERENCE": "Keep the default: there is nothing to configure, and nothing to maintain.",
    "NONE_KEEPS_LIMITS": "Loosen a limit, let more settings change, or try a variant of the model.",
    "UNDECIDED": "Give it more time; what was tried counts.",
    "REJECTED": "Wait until the machine is quieter, then give it more time.",
}


# --- the answer ---------------------------------------------------------------------------------------------


def draw(record: StudyRecord, go_on: Callable[[int | None], None]) -> None:
    """Draw what a search said, or how far it came.

    Args:
        record: of a search that has ended.
        go_on: called with more seconds, or None for those that were left.
    """
    _header(record)
    found = answer_of(record)
    if found is None:
        _unfinished(record, go_on)
        return
    with st.container(border=True, key="search.answer"):
        _card(record, found)
    _more_time(record, go_on)


def _header(record: StudyRecord) -> None:
    question = question_from_dict(record.question)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(
            f"{format.plain(record.model_name)} · {format.plain(question.words)}",
            anchor=False,
            width="content",
        )
        results.state_badge(record.state)
        for line in question.limit_words:
            st.badge(format.plain(line), icon=":material/rule:", color="gray")
        st.space("stretch")
        report.offer(lambda: of_search(state.store(), record), key="search")
    owner = f" · {format.plain(record.owner)}" if record.owner else ""
    st.caption(
        f"Search `{record.id[:12]}` · {format.when(record.finished_at or record.created_at)} · "
        f"{format.duration(record.wall_s)}{owner}"
    )


def _card(record: StudyRecord, answer: SearchResult) -> None:
    outcome = answer["outcome"]
    shown = shown_of(answer)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        color, icon = searches.COLORS[outcome], format.icon(ICONS[outcome])
        st.subheader(f":{color}[{icon}] {format.plain(headline(answer))}", anchor=False, width="content")
        st.space("stretch")
        results.quality_badge(quality_of_search(answer), answer)
    for line in answer.get("remarks", ()):
        st.markdown(f":orange[:material/warning:] {format.plain(line)}")
    st.markdown(format.plain(searches.sentence(answer)))
    if answer["winner"] is not None:
        st.markdown(f":material/tune: **{format.plain(changes_words(answer['winner']['changes']))}**")
    for line in searches.first_lines(answer):
        st.markdown(f":material/info: {format.plain(line)}")
    if outcome in MEANS:
        st.markdown(f":material/lightbulb: {MEANS[outcome]}")
    results.busy_note(answer)
    _actions(record, answer)
    if shown is not None:
        _confirmed(shown, answer)


def headline(answer: SearchResult) -> str:
    """Return the answer in a few words."""
    winner = answer["winner"]
    if answer["outcome"] == "FOUND" and winner is not None:
        return searches.gain_parts(winner["gain"])[0].capitalize()
    return {
        "NO_DIFFERENCE": "Nothing beats the default",
        "NONE_KEEPS_LIMITS": "Nothing keeps the limits",
        "REJECTED": "Rejected: no verdict stands",
    }.get(answer["outcome"], "Undecided")


def shown_of(answer: SearchResult) -> Confirmed | None:
    """Return whose numbers stand on the card: the winner, else the first that was turned down."""
    return answer["winner"] or next(iter(answer["others"]), None)


def _confirmed(shown: Confirmed, answer: SearchResult) -> None:
    """What a configuration brings in every respect, its limits, and what it costs beside the default."""
    if answer["winner"] is None:
        st.markdown(f"**The best that was tried:** {format.plain(changes_words(shown['changes']))}")
    if shown["error"]:
        st.warning(format.plain(shown["error"]), icon=":material/warning:")
    for one in shown["limits"]:
        icon = format.icon(LIMIT_ICONS[one["state"]])
        words = f"{format.plain(one['limit'])}: **{LIMIT_WORDS[one['state']]}**"
        st.markdown(f"{icon} {words}{searches.sure_words(one['probability'])}")
    costs = searches.numbers(shown, answer["default"])
    if costs:
        st.table({name: text for name, text in costs}, border="horizontal")
    if shown["gains"]:
        plots.draw(
            search_charts.intervals(search_charts.gains_info(shown["gains"])),
            "Gain over ONNX Runtime's default",
            key="search.gains",
            alt="Gain over ONNX Runtime's default in every respect, with 95 % intervals",
        )


def _actions(record: StudyRecord, answer: SearchResult) -> None:
    """What can be done with the answer: with the winner, else with the default that nothing beats."""
    winner, default = answer["winner"], answer["default"]
    taken = winner or (default if answer["outcome"] == "NO_DIFFERENCE" else None)
    if taken is None:
        return
    trial = taken["trial"]
    link = {state.TRIAL_PARAM: trial}
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="search.actions"):
        st.button(
            "Load into Tune" if winner is not None else "Load the default into Tune",
            key="search.load",
            icon=":material/tune:",
            on_click=handing.load,
            args=(record, trial),
            help="Sets every setting on Tune as this configuration has it.",
        )
        if winner is None:
            return
        st.page_link(
            "views/export/page.py", label="Export YAML", icon=":material/file_export:", query_params=link
        )
        if default is not None:
            st.page_link(
                "views/why/page.py",
                label="Why?",
                icon=":material/troubleshoot:",
                query_params={"a": default["trial"], "b": trial},
                help="Profiles of both sides, operator by operator: where the difference comes from.",
            )
        st.page_link(
            duel.COMPARE_PAGE,
            label="Race it against…",
            icon=":material/compare_arrows:",
            query_params={duel.TRIALS_PARAM: trial},
            help="Opens Compare with it; add what it shall race against.",
        )
        _pin(record, trial)
        st.button(
            "Check on the scorecard",
            key="search.judge",
            icon=":material/checklist:",
            on_click=handing.judge,
            args=(record, trial),
            help="Opens the scorecard with it and with the limits of this search as targets.",
        )


def _pin(record: StudyRecord, trial: str) -> None:
    pinned = state.store().baseline(record.model_sha256) == trial
    st.button(
        "Unpin baseline" if pinned else "Pin as baseline",
        key="search.pin",
        icon=":material/keep_off:" if pinned else ":material/keep:",
        on_click=state.store().pin_baseline,
        args=(record.model_sha256, None if pinned else trial),
        **state.unless_closed(
            "Later runs of this model race against it, for everybody on this server."
            if not pinned
            else "Later runs of this model race against ONNX Runtime's default again."
        ),
    )


# --- without an answer, and going on ------------------------------------------------------------------------


def _unfinished(record: StudyRecord, go_on: Callable[[int | None], None]) -> None:
    tried = len(tried_of(record))
    kept = f"What it tried is kept: {tried:,} configuration{'s' * (tried != 1)}." if tried else ""
    word = state_words(record)
    if record.state == "CANCELLED":
        st.info(f"The search was cancelled. {kept}", icon=":material/cancel:")
    elif record.error is not None:
        state.report_record(record.error, f"The search {'was ' * (word == 'interrupted')}{word}")
        if kept:
            st.caption(kept)
    else:
        st.info(f"The search has no answer: {state_words(record)}. {kept}", icon=":material/help:")
    st.button(
        "Resume",
        key="search.resume",
        icon=":material/resume:",
        on_click=go_on,
        args=(None,),
        **state.unless_closed(
            "Goes on with what was tried, in the time that was left. Some of it is looked at again first, "
            "to see whether the machine is still the same."
        ),
    )


def _more_time(record: StudyRecord, go_on: Callable[[int | None], None]) -> None:
    st.session_state.setdefault(MORE, form.DEFAULTS[form.BUDGET])
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="search.further"):
        st.select_slider(
            "More time",
            form.TIMES_S,
            key=MORE,
            format_func=format.duration,
            width=260,
            help="What was tried counts; the answer is confirmed anew.",
        )
        st.button(
            "Go on",
            key="search.go_on",
            icon=":material/more_time:",
            on_click=lambda: go_on(int(st.session_state[MORE])),
            **state.unless_closed("Goes on with this search. Its answer is replaced by the new one."),
        )
