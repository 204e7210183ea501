"""Upgrades of ONNX Runtime on the page Machine: the form that starts one, its progress, and the results."""

from __future__ import annotations

import contextlib
from functools import partial

import streamlit as st

from core.api import upgrading
from core.api.session import Status
from core.evidence.upgrade import UpgradeRecord, headline, intervals_text
from core.show.report.subjects import of_upgrade
from core.show.sheets import Fact, Note
from core.show.sheets import upgrades as sheets
from core.spec.effort import EFFORTS
from core.wire.errors import TunerError
from core.wire.runtime import OWN as OWN_RUNTIME
from dashboard import format, messages, runtimes, session_jobs, state
from dashboard.widgets import job_box, report, tables

OWN = "machine.upgrade.job"  # id of this session's job, until its end was shown
CHOSEN = "machine.upgrade.chosen"  # id of the upgrade that is shown, which is that of its job
MODELS, BEFORE, AFTER = "machine.upgrade.models", "machine.upgrade.before", "machine.upgrade.after"
EFFORT = "machine.upgrade.effort"
_PLACE = "upgrade"  # of the errors of this section
_LISTED = 50  # newest upgrades in the list


def draw() -> None:
    """Draw the form, a running upgrade, and the result of a finished one; empty without another runtime."""
    records = upgrading.stored_upgrades(state.store())[:_LISTED]
    names = [OWN_RUNTIME, *runtimes.others()]
    active = job_box.running(upgrading.KIND)
    if len(names) < 2 and not records:
        return
    st.markdown("#### Check an upgrade")
    messages.show_kept_error(_PLACE)
    if len(names) > 1:
        _form(names, active)
    job_box.draw(active, "machine.upgrade", what="this upgrade", help="Finished models are kept.")
    _ended()
    if records:
        _result(records)


def _form(names: list[str], active: Status | None) -> None:
    models = {one.path: one.name for one in state.store().models()}
    with st.container(horizontal=True, vertical_alignment="bottom", key="machine.upgrade.form"):
        st.multiselect(
            "Models",
            list(models),
            key=MODELS,
            format_func=lambda path: models.get(path, path),
            placeholder="Choose models" if models else "Add a model on the page Models",
            width=360,
        )
        st.selectbox("From", names, key=BEFORE, width=160, help="Runtime in use.")
        st.selectbox("To", names, key=AFTER, index=len(names) - 1, width=160, help="Runtime to change to.")
        st.selectbox("Effort", list(EFFORTS), key=EFFORT, width=140)
        st.button(
            "Check upgrade",
            key="machine.upgrade.start",
            icon=":material/upgrade:",
            on_click=_start,
            **state.unless_closed(
                "Compares outputs, speed and memory of every model in both runtimes.",
                busy="An upgrade is being checked." if active is not None else "",
            ),
        )


def _start() -> None:
    """Queue the upgrade that the form describes."""
    values = st.session_state
    try:
        asked = upgrading.asked_upgrade(
            state.session(),
            list(values.get(MODELS) or []),
            str(values.get(BEFORE) or OWN_RUNTIME),
            str(values.get(AFTER) or OWN_RUNTIME),
            given={"effort": str(values.get(EFFORT) or next(iter(EFFORTS)))},
        )
        submitted = values[OWN] = session_jobs.submit(upgrading.upgrade_job(state.session(), asked))
    except TunerError as error:
        messages.keep_error(error, _PLACE)
        return
    values[CHOSEN] = submitted
    session_jobs.follow(submitted, "machine")


def _ended() -> None:
    """Say once if this session's job was cancelled or failed."""
    ended = job_box.take_ended(OWN)
    if ended is not None:
        with contextlib.suppress(TunerError):  # the list then shows it as it was
            upgrading.note_end(state.store(), ended)
    job_box.report_end(ended, cancelled="The upgrade was cancelled; finished models are kept.")


def _result(records: list[UpgradeRecord]) -> None:
    """Draw the chosen upgrade, the newest at first."""
    by_id = {one.id: one for one in records}
    if st.session_state.get(CHOSEN) not in by_id:
        st.session_state.pop(CHOSEN, None)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Upgrade", list(by_id), key=CHOSEN, format_func=lambda one: _label(by_id[one]), width=480
        )
        record = by_id[chosen]
        report.offer(partial(of_upgrade, state.store(), record), key="machine.upgrade")
    about = of_upgrade(state.store(), record)
    st.markdown(f"**{format.plain(headline(about.rows))}**")
    sheet = sheets.upgrade(record, about.rows)
    tables.draw(sheets.models(about.rows), key="machine.upgrade.table", alt="Models in both runtimes")
    if covered := intervals_text(about.rows):
        st.caption(format.plain(covered))
    for one in [part for part in sheet.parts if isinstance(part, Note)][1:]:  # the first is the headline
        st.caption(format.plain(one.text))
    if facts := [part for part in sheet.parts if isinstance(part, Fact)]:
        tables.facts(facts)
    if record.changes:
        with st.expander(f"Changes between the versions ({len(record.changes)})", key="machine.upgrade.more"):
            tables.draw(
                sheets.changes(record.changes), key="machine.upgrade.changes", alt="What differs by version"
            )


def _label(record: UpgradeRecord) -> str:
    """Return the name of an upgrade in the list, which stays the same while it runs."""
    count = len(record.models)
    models = f"{count} model{'s' * (count != 1)}"
    return f"{format.when(record.created_at)} · {' → '.join(record.names)} · {models}"
