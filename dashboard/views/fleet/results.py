"""The answer to each question of a fleet run: sentence, picture, tables."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from core.evidence.fleet.summary import Section, Summary
from core.evidence.verdict import Color
from core.show import fleet_text
from core.show.report.cost import ASSUMES
from core.show.sheets import Note
from core.show.sheets.fleet import (
    best_table,
    cost_table,
    failures,
    long_table,
    question_title,
    spread_table,
    state_table,
    worst_table,
)
from core.show.words import counted
from dashboard.charts import fleet_charts
from dashboard.format import plain
from dashboard.widgets import collapsible, plots, tables

MOST_ROWS = 12  # of a table, without scrolling
MOST_FAILURES = 8  # that show without a click
_ICONS: Mapping[Color, str] = {
    "green": "check_circle",
    "blue": "info",
    "orange": "warning",
    "red": "error",
    "gray": "help",
}


def draw(summary: Summary) -> None:
    """Draw all questions, the one that answers first on top."""
    main = summary.main
    for section in sorted(summary.sections, key=lambda one: one is not main):
        _section(section, summary, alone=len(summary.sections) == 1)


def _section(section: Section, summary: Summary, *, alone: bool) -> None:
    key = f"fleet.q{section.matrix.question}"
    said, color = fleet_text.answer(section)
    if not alone:
        st.markdown(f"#### {plain(question_title(section))}")
    with st.container(border=True, key=f"{key}.answer"):
        st.markdown(f":material/{_ICONS[color]}: **{plain(said)}**")
        if section.second_phase is not None:
            st.caption(f"Question {section.second_phase} compares all winners on every host.")
    _picture(section, summary, key)
    _failures(section, key)
    _tables(section, key)
    _kinds(section, summary, key)
    _costs(section, key)


def _picture(section: Section, summary: Summary, key: str) -> None:
    """Draw the heat map of regrets, or the speed-up of each host."""
    of, found = section.matrix, section.portability
    if found is not None and len(found.hosts) > 1 and len(of.configurations) > 1:
        info = fleet_charts.regret_info(of, found, summary.run.hosts)
        plots.draw(
            fleet_charts.regrets(info),
            "Regret by host and configuration",
            key=f"{key}.regrets",
            alt=fleet_charts.regret_alt(info),
            table=lambda: long_table(of, found),
        )
        st.caption(
            f"Regret: how much slower than the best configuration of the host. {fleet_charts.CHOSEN.strip()} "
            f"chosen for all hosts, {fleet_charts.MAY_BE_BEST.strip()} may be the best there, ✕ not usable."
            f"{_left_out(info.left_out)}"
        )
    elif (gains := fleet_charts.gain_info(of)) is not None:
        plots.draw(
            fleet_charts.gains(gains),
            "Speed-up by host",
            key=f"{key}.gains",
            alt=fleet_charts.gain_alt(gains),
            table=lambda: long_table(of),
        )
        if gains.left_out:
            st.caption(f"The largest and the smallest.{_left_out(gains.left_out)}")


def _left_out(number: int) -> str:
    return f" {counted(number, 'host')} not drawn: see the table." if number else ""


def _failures(section: Section, key: str) -> None:
    notes = [one for one in failures(section.matrix) if isinstance(one, Note)]
    shown, more = notes[:MOST_FAILURES], notes[MOST_FAILURES:]
    for one in shown:
        st.caption(f":material/{_ICONS[one.color or 'gray']}: {plain(one.text)}")
    if more:
        with st.expander(f"{len(more)} more remarks", key=f"{key}.failures"):
            for one in more:
                st.caption(plain(one.text))


def _tables(section: Section, key: str) -> None:
    of, found = section.matrix, section.portability
    alt = f"Answers to question {of.question}; {tables.SORTABLE}"
    if found is not None and len(found.hosts) > 1:
        tables.draw(
            worst_table(of, found), key=f"{key}.worst", alt=f"Worst regret by configuration; {alt}", most=8
        )
        st.caption(fleet_text.JOINT)
    if of.command == "search":
        tables.draw(best_table(of), key=f"{key}.best", alt=alt, most=MOST_ROWS)
    elif of.command == "sweep" or not of.configurations:
        tables.draw(state_table(of), key=f"{key}.states", alt=alt, most=MOST_ROWS)
    if of.measured:
        group = collapsible.box("All hosts and configurations", key=f"{key}.all", icon="table")
        if group.open:
            whole = long_table(of, found)
            with group:
                tables.draw(whole, key=f"{key}.long", alt=alt, most=MOST_ROWS)
                tables.download(whole, f"ortune-fleet-question-{of.question}.csv", key=f"{key}.csv")


def _kinds(section: Section, summary: Summary, key: str) -> None:
    """Draw the spread between machines of one kind, and hosts that disagree."""
    of = section.matrix
    named, kinds = fleet_text.names(of.configurations, of.model), fleet_text.kind_names(summary.run.hosts)
    for one in section.disagreements:
        st.warning(plain(fleet_text.disagreement_text(one, named, kinds)), icon=":material/warning:")
    if not section.spreads:
        return
    group = collapsible.box("Machines of one kind", key=f"{key}.kinds", icon="difference")
    if group.open:
        with group:
            tables.draw(
                spread_table(section.spreads, named, kinds),
                key=f"{key}.spreads",
                alt=f"Spread between machines of one kind; {tables.SORTABLE}",
                most=MOST_ROWS,
            )
            if note := fleet_text.spread_note(section.spreads):
                st.caption(plain(note))


def _costs(section: Section, key: str) -> None:
    if section.costs is None:
        return
    of = section.matrix
    named = fleet_text.names(of.configurations, of.model)
    st.markdown(plain(fleet_text.cost_sentence(section.costs, named)))
    tables.draw(
        cost_table(section.costs, named),
        key=f"{key}.costs",
        alt=f"Cost of a million inferences by host; {tables.SORTABLE}",
        most=MOST_ROWS,
    )
    st.caption(ASSUMES)
    if note := fleet_text.busy_note(of):
        st.caption(f":material/warning: {plain(note)}")
