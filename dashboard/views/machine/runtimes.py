"""Runtimes on the page Machine: their list, the form that adds one, checks and removal."""

from __future__ import annotations

from typing import Any, cast

import streamlit as st

from core.api import runtimes
from core.api.runtimes import RuntimeCheck
from core.api.session import Job, Status
from core.show.sheets import Fact
from core.show.sheets import runtimes as sheets
from core.wire.access import runtimes_allowed
from core.wire.errors import SpecError, TunerError
from core.wire.runtime import RuntimeRecord
from core.wire.variables import ALLOW_RUNTIMES
from dashboard import format, messages, session_jobs, state
from dashboard.folders import allowed_path
from dashboard.widgets import job_box, tables

OWN = "machine.runtimes.job"  # id of this session's job, until its end was shown
FOUND = "machine.runtimes.found"  # id of the job whose check is shown
ADDING = "machine.runtimes.adding"  # whether the form is open
REMOVING = "machine.runtimes.asked"  # name of the runtime whose removal waits for a confirmation
CHOSEN = "machine.runtimes.chosen"
NAME, PACKAGES, BASE = "machine.runtimes.name", "machine.runtimes.packages", "machine.runtimes.base"
UNCHANGED = "The runtimes are unchanged"  # title of an error
PURPOSE = (
    "A runtime is an environment with another version of ONNX Runtime, or with OpenVINO. Configurations in "
    "different runtimes are compared under the same conditions."
)


def draw() -> None:
    """Draw the list of runtimes with its actions, and the progress of a running one."""
    records = runtimes.runtimes().record
    active = job_box.running(runtimes.KIND)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("#### Runtimes", width="content")
        st.space("stretch")
        _add_button(active)
    job_box.draw(active, "machine.runtimes", what="this", help="Ends its programs; nothing is kept.")
    _ended()
    _add_form()
    if not records:
        st.caption(PURPOSE)
        return
    tables.draw(
        sheets.listed(records),
        key="machine.runtimes.table",
        alt="Runtimes of this machine with engine, Python, providers, size and hash",
    )
    _actions(records, active)
    _check()


def _refused(help: str, active: Status | None) -> dict[str, Any]:
    """Arguments of a button that adds or removes: disabled with the reason where that is not allowed."""
    busy = "Another change of the runtimes is running." if active is not None else ""
    if not runtimes_allowed():
        return state.unless_closed(
            f"Off on this server; its operator allows it with `{ALLOW_RUNTIMES}=1`. "
            "On the command line: `ortune runtimes`.",
            off=True,
        )
    return state.unless_closed(help, busy=busy, role="admin")


def _ensure_allowed() -> None:
    """Refuse a change of the runtimes, whatever a browser sends for a disabled button.

    Raises:
        SpecError: this session or this server may not change them.
    """
    state.refuse_if_closed("admin")
    if not runtimes_allowed():
        raise SpecError(
            "Runtimes cannot be changed on this server.",
            hint=f"Ask its operator to start it with {ALLOW_RUNTIMES}=1.",
        )


# --- add ----------------------------------------------------------------------------------------------------


def _add_button(active: Status | None) -> None:
    st.button(
        "Add runtime",
        key="machine.runtimes.add",
        icon=":material/add:",
        on_click=state.put,
        args=(ADDING, True),
        **_refused("Creates an environment with the packages that you name.", active),
    )


def _add_form() -> None:
    messages.show_kept_error("runtimes", UNCHANGED)
    if not st.session_state.get(ADDING):
        return
    with st.container(border=True, key="machine.runtimes.form"):
        st.text_input(
            "Name", key=NAME, placeholder="ort130", help="Lower-case letters, digits, `.`, `-` and `_`."
        )
        st.text_area(
            "Packages",
            key=PACKAGES,
            placeholder="onnxruntime==1.30.*",
            height=90,
            help="One per line: a package with its version, or the path of a wheel on the server.",
        )
        bases = {one.path: one.label for one in runtimes.bases()}
        st.selectbox(
            "Python",
            list(bases),
            key=BASE,
            format_func=lambda path: bases.get(path, path),
            help="Older versions of ONNX Runtime need an older Python.",
        )
        with st.container(horizontal=True):
            st.button(
                "Add",
                key="machine.runtimes.confirm",
                type="primary",
                icon=":material/add:",
                on_click=_add,
                **_refused("Downloads and installs the packages.", job_box.running(runtimes.KIND)),
            )
            st.button("Close", key="machine.runtimes.close", on_click=state.put, args=(ADDING, False))


def _add() -> None:
    """Queue the addition that the form describes, and close the form."""
    lines = str(st.session_state.get(PACKAGES) or "").splitlines()
    base = st.session_state.get(BASE) or ""
    try:
        _ensure_allowed()
        job = runtimes.add_runtime_job(
            str(st.session_state.get(NAME) or "").strip(),
            packages=[_package(one) for line in lines if (one := line.strip())],
            base=base if base in {one.path for one in runtimes.bases()} else "",
        )
        _submit(job)
    except TunerError as error:
        messages.keep_error(error, "runtimes")
        return
    st.session_state[ADDING] = False


def _package(text: str) -> str:
    """A wheel must lie in a folder that this server allows; other texts are checked with the request."""
    return str(allowed_path(text, state.store())) if text.endswith(".whl") else text


def _submit(job: Job) -> None:
    submitted = st.session_state[OWN] = session_jobs.submit(job)
    session_jobs.follow(submitted, "machine")


def _ended() -> None:
    """Say how this session's job ended, once."""
    ended = job_box.take_ended(OWN)
    if ended is None:
        return
    if ended.result is None:
        job_box.report_end(ended, title=UNCHANGED)
    elif "record" in ended.result:
        record = cast(RuntimeRecord, ended.result["record"])
        sheet = sheets.added(record, existed=bool(ended.result["existed"]))
        st.session_state[CHOSEN] = record["name"]
        st.success(format.plain(f"{sheet.headline}."), icon=":material/check_circle:")
        for note in record.get("notes", []):
            st.caption(format.plain(note))
    else:
        st.session_state[FOUND] = ended.id


# --- check and remove ---------------------------------------------------------------------------------------


def _actions(records: list[RuntimeRecord], active: Status | None) -> None:
    names = [one["name"] for one in records]
    if st.session_state.get(CHOSEN) not in names:
        st.session_state.pop(CHOSEN, None)  # it was removed
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Runtime", names, key=CHOSEN, width=240)
        st.button(
            "Check",
            key="machine.runtimes.check",
            icon=":material/fact_check:",
            on_click=_start_check,
            args=(name,),
            **state.unless_closed(
                "Loads its providers, runs a small model, and compares its files with those that were added.",
                busy="Another job of the runtimes is running." if active is not None else "",
            ),
        )
        st.button(
            "Remove",
            key="machine.runtimes.remove",
            icon=":material/delete:",
            on_click=state.put,
            args=(REMOVING, name),
            **_refused("Asks first.", active),
        )
    if (
        asked := next((one for one in records if one["name"] == st.session_state.get(REMOVING)), None)
    ) is not None:
        _confirm(asked)


def _start_check(name: str) -> None:
    st.session_state.pop(FOUND, None)
    try:
        _submit(runtimes.check_runtime_job(name))
    except TunerError as error:
        messages.keep_error(error, "runtimes")


def _check() -> None:
    """Draw the newest check of this session."""
    status = session_jobs.status(st.session_state.get(FOUND) or "")
    if status is None or status.result is None:
        return
    sheet = sheets.check(cast(RuntimeCheck, status.result))
    with st.container(border=True, key="machine.runtimes.result"):
        st.markdown(f"**{format.plain(sheet.headline)}**")
        tables.facts([one for one in sheet.parts if isinstance(one, Fact)])


def _confirm(record: RuntimeRecord) -> None:
    what = "Its environment is deleted." if record["managed"] else "Its environment stays where it is."
    with st.container(border=True, key="machine.runtimes.removing"):
        st.markdown(f"Remove **{format.plain(record['name'])}**? {what} Results keep naming it.")
        with st.container(horizontal=True):
            st.button(
                "Remove",
                key="machine.runtimes.removed",
                type="primary",
                icon=":material/delete:",
                on_click=_remove,
                args=(record["name"],),
                **_refused("This cannot be undone.", None),
            )
            st.button("Keep", key="machine.runtimes.keep", on_click=state.put, args=(REMOVING, ""))


def _remove(name: str) -> None:
    st.session_state[REMOVING] = ""
    try:
        _ensure_allowed()
        runtimes.remove_runtime(name)
    except TunerError as error:  # in use
        messages.keep_error(error, "runtimes")
        return
    messages.notify(f"Removed {name}.")
