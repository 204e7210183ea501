"""The machine on the screen: its sidebar line, facts, providers, and noise."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st

from core import wire
from core.evidence.noise_check import NoiseCheckResult, quality_of
from core.process.machine_queue import Entry
from core.run.job import Status
from core.show.sheets import models_and_machines
from core.show.table import Column, tabulate
from core.wire.errors import TunerError
from core.wire.provenance import thread_advice
from dashboard import format, live_events, messages, session_jobs, state
from dashboard.charts import machine_charts
from dashboard.live_events import Event
from dashboard.pages import PAGES
from dashboard.widgets import live_view, plots, results, tables

REFRESH_S = 10.0  # between two polls of a browser; other servers measure too, and reading a folder is cheap
OWN_REFRESH_S = 1.0  # while a job of this session runs; as on the page that shows it


def sidebar() -> None:
    """Draw the machine line and the live queue."""
    try:
        environment = state.environment()
    except TunerError as error:
        messages.report(error)
        return
    cpu = environment["cpu"]
    versions = environment["libraries"]
    ort = next((v for name, v in versions.items() if name.startswith("onnxruntime")), "unknown")
    st.caption(
        f":material/developer_board: {format.plain(cpu['model'])}  \n"
        f"{cpu['usable']} of {cpu['logical']} CPUs worth using · "
        f"{format.size(environment['memory_bytes'])}  \n"
        f"ONNX Runtime {format.plain(ort)}"
    )
    for gpu in environment["gpus"]:
        st.caption(f":material/memory: {format.plain(str(gpu.get('name', 'GPU')))}")
    queue_line()


def queue_line() -> None:
    """Draw the machine's queue: what is measured and what waits; first the job that this session started."""
    followed = session_jobs.own_job()
    own = followed[0].id if followed is not None else ""
    ask_s = OWN_REFRESH_S if session_jobs.is_busy() else REFRESH_S
    show = partial(live_view.watch, f"queue-{own}", partial(_event, own), ask_s=ask_s, rerun=False)
    if followed is not None:
        _, page, query = followed
        show(key="queue.own")
        st.page_link(PAGES[page].file, label="Open", icon=":material/arrow_forward:", query_params=query)
    show(key="queue.others", part="more")


def _event(own: str) -> Event:
    """Return the machine's queue as an event, for the session that started `own`; empty: none."""
    mine = session_jobs.status(own) if own else None
    entries = [one for one in state.queue().entries() if mine is None or not is_own_entry(one, mine)]
    return live_events.of_queue(mine, entries, state.scheduler().active())


def is_own_entry(entry: Entry, own: Status) -> bool:
    """Whether an entry of the machine's queue is the job that this session started."""
    return session_jobs.is_active(own) and entry.pid == os.getpid() and entry.what == own.what


# --- the Machine page ---------------------------------------------------------------------------------------


def facts(environment: wire.Environment) -> None:
    """Draw the facts that determine the speed of this machine and the comparability of its results."""
    if advice := thread_advice(environment):
        st.warning(format.plain(advice), icon=":material/account_tree:")
    tables.facts(models_and_machines.machine_facts(environment))


def libraries(environment: wire.Environment) -> None:
    """Draw the versions of all libraries, and how ONNX Runtime was built."""
    st.caption("Libraries and the build of ONNX Runtime:")
    versions = [f"{name} {version}" for name, version in environment["libraries"].items()]
    st.code("\n".join([*versions, "", environment["ort_build"]]), language=None, wrap_lines=True)


def providers(environment: wire.Environment) -> None:
    """Draw the providers of this build, and which of them load here."""
    listed = environment["providers"]
    tables.draw(
        tabulate(
            listed,
            (Column("provider", tells=True), lambda one: format.provider(one["name"])),
            (Column("loads"), lambda one: "yes" if one["loadable"] else "no"),
            (Column("reason"), lambda one: one["reason"]),
            (Column("remedy"), lambda one: one["remedy"]),
        ),
        key="machine.providers",
        alt="Providers that this build lists, whether each loads, the reason, and the remedy",
    )
    loadable = sum(one["loadable"] for one in listed)
    st.caption(
        f"{loadable} of {len(listed)} providers of this build load here, each tried in its own process."
    )


# --- noise --------------------------------------------------------------------------------------------------


def noise_check_result(answer: NoiseCheckResult, self_test: Mapping[str, Any]) -> None:
    """Draw the answer of a noise check in one statement."""
    with st.container(gap="xsmall", key="machine.answer"):
        icon = ":material/check_circle:" if answer.publishable else ":material/do_not_disturb_on:"
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.subheader(f"{icon} {format.plain(answer.headline)}", anchor=False, width="content")
            results.quality_badge(quality_of(self_test))


def noise_check_remarks(answer: NoiseCheckResult) -> None:
    """Draw the background load of a noise check, and reason and remedy of a failed one."""
    if answer.remedy and not answer.publishable:
        st.markdown(format.plain(f"{answer.reason} {answer.remedy}"))
    if answer.busy:
        st.caption(f":material/groups: {format.plain(f'Tested {answer.busy}.')}")


def noise_check_details(answer: NoiseCheckResult, self_test: Mapping[str, Any]) -> None:
    """Draw the evidence of the newest noise check."""
    st.markdown(format.plain(answer.reason))
    st.caption(format.plain(_about(answer, self_test)))


def needs(answer: NoiseCheckResult) -> None:
    """Draw the time that each effort would need here; nothing when the check was too short to tell."""
    if answer.needs:
        tables.draw(
            models_and_machines.needs(answer),
            key="machine.needs",
            alt="Launches and seconds that a comparison of two needs here, by effort",
        )


def _about(answer: NoiseCheckResult, self_test: Mapping[str, Any]) -> str:
    known = {"one pair of blocks": answer.sigma, "one launch": answer.sigma_between}
    noise = [f"{what} scatters by ±{100 * one:.2g} %" for what, one in known.items() if one is not None]
    return (
        f"Tested {format.when(self_test['at'])} with "
        f"{self_test.get('model') or 'a sample model'}; "
        f"{', '.join(noise) or 'scatter unknown'}. A larger model needs more seconds, "
        "rarely more launches."
    )


def noise_history(self_tests: Sequence[Mapping[str, Any]]) -> None:
    """Draw the A/A controls of this machine over time, including noise checks; nothing without one."""
    info = machine_charts.history_info(self_tests)
    if not info.points:
        return
    many = sum(len(one.at) for one in info.points)
    plots.draw(
        machine_charts.history(info),
        "A/A controls over time",
        key="machine.history",
        alt=f"{many} A/A controls over time: difference of two equal processes, with intervals and grades",
    )
    if info.beyond:
        st.caption(f"{info.beyond} lie outside this view: double-click it to see all.")
