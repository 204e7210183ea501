"""The machine on its page: facts, libraries, providers, and noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core import wire
from core.evidence.noise_check import NoiseCheckResult, quality_of
from core.show.sheets import models_and_machines
from core.show.table import Column, tabulate
from core.wire.provenance import thread_advice
from dashboard import format
from dashboard.charts import machine_charts
from dashboard.widgets import plots, results, tables


def system(environment: wire.Environment) -> None:
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
