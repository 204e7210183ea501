"""Fleet page: the answers of a fleet run; picture first, tables below, progress while it runs."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.api.fleet_answers import latest, listed, summary_of
from core.evidence.fleet.fleet_types import ENDED, FleetRun
from core.evidence.fleet.summary import Summary
from core.show import fleet_text
from core.show.report.subjects import AboutFleet
from core.show.sheets.fleet import hosts_table
from core.show.words import counted
from core.store import Actor
from core.wire.errors import MissingError, StoreError
from dashboard import format, messages, state
from dashboard.shown_result import ShownResult
from dashboard.views.fleet import archive, asking, first_use, progress, results
from dashboard.widgets import collapsible, controls, page_frame, past_results, report, tables

SHOWN = ShownResult("fleet.shown", ("run",))  # ?run=<id>
MOST_HOSTS = 12  # rows that show without scrolling


def page() -> None:
    bar = page_frame.bar(
        "Fleet", "One question asked of many machines. Each host is compared with its own ORT default."
    )
    with bar.model:
        record = controls.model_picker()
    with bar.action:
        asking.draw(record, SHOWN.show)
    found = listed(state.store())
    run = _shown(found)
    messages.show_kept_error()
    with bar.choice:
        past_results.offer(
            "Fleet runs",
            {one.id: _label(one) for one in found},
            shown=run.id if run is not None else None,
            key="fleet.earlier",
            on_select=SHOWN.link,
            alone=True,
        )
    if run is None:
        first_use.draw()
        return
    summary = _summary(run.id, _version(run), state.store().actor)
    if summary is None:
        messages.report(StoreError(f"The fleet run `{run.id}` cannot be read.", hint="Start it again."))
        return
    with bar.more:
        _take_away(summary)
    progress.draw(run)
    results.draw(summary)
    _hosts(run)
    progress.logs(run)


def _shown(found: Sequence[FleetRun]) -> FleetRun | None:
    """Return the run in the address or of this session, else the newest."""

    def read(ref: str) -> FleetRun:
        for one in found:
            if one.id == ref:
                return one
        raise MissingError(f"There is no fleet run `{ref[:80]}` here.", hint="Choose a run in the list.")

    shown = SHOWN.open(read, lambda _: None)
    if shown is None and found:
        SHOWN.show(found[0].id)
        return found[0]
    return shown


def _label(run: FleetRun) -> str:
    return f"{fleet_text.title(run)} · {format.when(run.created_at)[:16]} · {run.id[-8:]}"


def _version(run: FleetRun) -> tuple[str, ...]:
    """Return what the summary depends on: the ended answers, and the state of the others."""
    return (run.state, run.phase, *(f"{one.key}:{one.state}" for one in run.answers))


@st.cache_resource(show_spinner="Reading the answers…", max_entries=4)
def _summary(run_id: str, version: tuple[str, ...], reader: Actor) -> Summary | None:
    """Return what a run says to a person; computed again when an answer comes in."""
    run = latest(run_id)
    return None if run is None else summary_of(run, state.store())


def _take_away(summary: Summary) -> None:
    """Draw the report, and the button that downloads the YAML files."""
    if any(one.state in ENDED for one in summary.run.answers):
        report.offer(lambda: AboutFleet(summary=summary), key="fleet")
    if any(one.matrix.measured for one in summary.sections):
        st.download_button(
            "YAML",
            data=lambda: archive.content(summary),
            file_name=f"ortune-fleet-{summary.run.id}.zip",
            mime="application/zip",
            key="fleet.yaml",
            icon=":material/download:",
            on_click="ignore",
            help="The best configuration of each host, and one file for all hosts.",
        )


def _hosts(run: FleetRun) -> None:
    group = collapsible.box(counted(len(run.hosts), "host"), key="fleet.hosts", icon="dns")
    if group.open:
        with group:
            tables.draw(
                hosts_table(run.hosts),
                key="fleet.hosts.table",
                alt=f"Hosts of this run and their facts; {tables.SORTABLE}",
                most=MOST_HOSTS,
            )


page()
