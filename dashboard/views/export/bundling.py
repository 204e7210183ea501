"""Bundle of a trial as one zip: a job makes it, since a worker records samples; downloaded from disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from core.api.exporting import bundle_job
from core.api.session import Status
from core.api.signing import key_pairs
from core.evidence.measurement import Trial
from core.wire.errors import TunerError
from core.wire.units import size
from dashboard import format, messages, session_jobs, state
from dashboard.views.export import signatures
from dashboard.widgets import job_box

KIND = "bundle"  # job type, as the scheduler lists it
FORM = "export.bundle.sign"  # begins the keys of its signature
FAILED = "The bundle was not created"
MOST_DOWNLOAD_BYTES = 1 << 30  # Streamlit holds a whole download in memory


def draw(trial: Trial, accepted: str, stem: str) -> None:
    """Draw the button that makes the bundle of a trial, and the download once it exists.

    Args:
        trial: to bundle.
        accepted: reason why deviating outputs are acceptable; see `export_yaml`.
        stem: beginning of the file name.
    """
    with st.container(border=True, key="export.bundle"):
        st.markdown("**Bundle**")
        st.caption(
            "One zip with model, YAML, sample data, script and requirements, for *Verify* on another machine."
        )
        status = job_box.find(_job_key(trial), KIND, trial.id[:8])
        _button(trial, accepted, status)
        messages.show_kept_error(KIND, FAILED)
        job_box.draw(status, "export", what="this bundle", help="No partial file remains.", of="bundle")
        if status is not None and status.error is not None:
            messages.report(status.error, FAILED)
        if (made := _result(status)) is not None:
            _download(made, f"{stem}.zip")


def _button(trial: Trial, accepted: str, status: Status | None) -> None:
    """Draw the button, with the choice of a key if this machine has one."""
    can_sign = bool(key_pairs())
    button = st.form_submit_button if can_sign else st.button
    with st.form(FORM, border=False) if can_sign else st.container():
        if can_sign:
            signatures.fields(FORM, optional=True)
        button(
            "Create bundle" if _result(status) is None else "Create again",
            key="export.bundle.make",
            icon=":material/inventory_2:",
            on_click=_start,
            args=(trial, accepted),
            **state.unless_closed(
                "A worker runs the configuration once and stores its inputs and outputs.",
                off=session_jobs.is_active(status),
            ),
        )


def _job_key(trial: Trial) -> str:
    return f"export.bundle.job.{trial.id}"


def _result(status: Status | None) -> Mapping[str, Any] | None:
    return status.result if status is not None and status.state == "COMPLETE" else None


def _start(trial: Trial, accepted: str) -> None:
    target = state.store().artifact_path(trial.id, "bundle.zip")
    try:
        key = signatures.opened(FORM)
        st.session_state[_job_key(trial)] = session_jobs.submit(
            bundle_job(state.session(), trial, target, accepted, key)
        )
        state.store().charge(target)  # not to the person of the trial
    except TunerError as error:
        messages.keep_error(error, KIND)
        return
    session_jobs.follow(st.session_state[_job_key(trial)], "export", **{state.TRIAL_PARAM: trial.id})


def _download(made: Mapping[str, Any], name: str) -> None:
    path = Path(made["path"])
    if made["no_sample"]:
        st.warning(
            f"{format.plain(made['no_sample'])} *Verify* cannot check the outputs.",
            icon=":material/warning:",
            title="Without a sample",
        )
    if made["signer"]:
        st.caption(format.plain(f"Signed with the key of {made['signer']}."))
    if made["size_bytes"] > MOST_DOWNLOAD_BYTES:
        st.info(
            f"It is {size(made['size_bytes'])}: too large to download here. It is on the server at "
            f"{format.code(str(path))}.",
            icon=":material/folder:",
        )
        return
    if not path.is_file():
        st.info("The file is missing. Create it again.", icon=":material/info:")
        return
    st.download_button(
        f"Download {name} ({size(made['size_bytes'])})",
        path.read_bytes,
        file_name=name,
        mime="application/zip",
        key="export.download_bundle",
        on_click="ignore",
        icon=":material/download:",
        type="primary",
        help="Without a signature, the same trial always gives the same bytes.",
    )
