"""Verify a bundle or YAML file on this machine: a job checks whether its claims are reproduced."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.api.exporting import RecordedBaseline, Request, read, verify_job
from core.api.session import Status
from core.evidence.verification import MARGIN
from core.show.sheets import Line, Note, signatures, verifications
from core.show.table import Table
from core.spec import TrialSpec
from core.spec.effort import EFFORTS
from core.wire.errors import SpecError, TunerError
from dashboard import folders, format, messages, session_jobs, state, url_state
from dashboard.server import people
from dashboard.widgets import job_box, tables, uploads

KIND = "verify"
FILE, PATH, RACE, MARGIN_KEY = "verify.file", "verify.path", "verify.race", "verify.margin"
EFFORT, AS_RECORDED = "verify.effort", "as it was recorded"
JOB_PARAM = "verify"  # in the URL, so that a reload finds the result
AGAINST = "verify.against"
_ICONS = {"green": ":material/check_circle:", "red": ":material/cancel:", "orange": ":material/warning:"}


def draw(action: DeltaGenerator) -> None:
    """Draw the form, the running job and its result.

    Args:
        action: the place of the Verify button.
    """
    left, right = st.columns([2, 3], gap="large")
    with left:
        _ask()
        _button(action)
        messages.show_kept_error(KIND, "Verification failed")
    with right:
        status = _job()
        job_box.draw(
            status, "verify", what="this verification", help="Finished measurements are kept in History."
        )
        if status is None:
            st.info(
                "No verification yet. Choose a bundle: ORTune checks whether it runs here, gives "
                "the same outputs and is as fast.",
                icon=":material/info:",
            )
        elif status.error is not None:
            messages.report(status.error, "Verification failed")
        elif status.result is not None:
            _answer(status.result)


def _ask() -> None:
    st.subheader("Verify on this machine", anchor=False)
    st.file_uploader(
        "Bundle or YAML file",
        type=["zip", "yaml", "yml"],
        key=FILE,
        max_upload_size=uploads.MOST_CHECKED_MB,
        help="Only the model in it is executed, in a worker. A YAML file has no sample, so "
        "its outputs cannot be checked.",
    )
    st.text_input(
        "or a path on the server",
        key=PATH,
        placeholder="for large bundles",
        help="A file in the allowed folders. Used when no file is chosen.",
    )
    st.toggle(
        "Measure speed",
        value=True,
        key=RACE,
        help="Compares with ONNX Runtime's default and the recorded baseline. Off: checks "
        "facts and outputs only, in seconds.",
    )
    st.slider(
        "Speed-up margin (%)",
        min_value=1,
        max_value=25,
        value=round(100 * MARGIN),
        key=MARGIN_KEY,
        help="Speed-ups within ± this margin of the recorded value count as reproduced (the "
        "95 % interval must fit inside).",
    )
    st.selectbox(
        "Effort",
        [AS_RECORDED, *EFFORTS],
        key=EFFORT,
        help="More effort gives a narrower interval.",
    )
    st.file_uploader(
        "Baseline of this machine",
        type=["json"],
        key=AGAINST,
        max_upload_size=4,
        help="A file from *Save as baseline*. Verify then reports a slowdown of more than the margin; "
        "baselines of other machines are refused.",
    )


def _button(action: DeltaGenerator) -> None:
    action.button(
        "Verify",
        key="verify.start",
        type="primary",
        icon=":material/fact_check:",
        on_click=_start,
        **state.unless_closed(
            "Checks facts, runs it once, then measures. Waits for its turn on this machine.",
            off=session_jobs.is_active(_job()),
        ),
    )


def _job() -> Status | None:
    """Return the job of this URL, else one that another tab started and that runs."""
    own = session_jobs.status(url_state.named(JOB_PARAM) or "")
    if own is not None and own.kind == KIND:
        return own
    return job_box.running(KIND)


def _start() -> None:
    try:
        state.refuse_if_closed()
        path, name = _file()
        baseline = _baseline()
        measure = bool(st.session_state.get(RACE, True))
        if baseline is not None and not measure:
            raise SpecError("A baseline needs a measurement.", hint='Turn "Measure speed" on.')
        folder = state.store().folder / "cache" / "verify"
        request = Request(
            path=path,
            name=name,
            measure=measure,
            record=folder / f"{secrets.token_hex(8)}.json" if measure and folder.is_dir() else None,
            baseline=baseline,
            margin=st.session_state.get(MARGIN_KEY, 100 * MARGIN) / 100,
            effort=None if (effort := st.session_state.get(EFFORT)) in (None, AS_RECORDED) else effort,
            admit=partial(_admitted, person=people.person()),  # the job has no browser session
        )
        job = session_jobs.submit(verify_job(request))
    except TunerError as error:
        messages.keep_error(error, KIND)
        return
    url_state.put(JOB_PARAM, job)
    session_jobs.follow(job, "export", **{JOB_PARAM: job})


def _file() -> tuple[Path, str]:
    """Return the path and the name of the uploaded file, or of the file on the server."""
    uploaded = st.session_state.get(FILE)
    if uploaded is None:
        path = folders.allowed_path((st.session_state.get(PATH) or "").strip(), state.store())
        return path, path.name
    return uploads.on_disk(uploaded), str(uploaded.name)


def _baseline() -> RecordedBaseline | None:
    uploaded = st.session_state.get(AGAINST)
    return None if uploaded is None else read(uploads.on_disk(uploaded))


def _admitted(spec: TrialSpec, person: people.Person) -> TrialSpec:
    """Return the spec on a model that the browser may access; raise where a path lies outside.

    A bundle was unpacked into an allowed folder. A model elsewhere becomes the library's model of the same
    hash, if there is one.
    """
    folders.check_role(spec, person)
    store = state.store_of(person)
    folders.check_spec(spec, store)
    try:
        path = str(folders.allowed_path(spec.model.path, store))
    except TunerError:
        known = store.model(spec.model.sha256) if spec.model.sha256 else None
        if known is None:
            raise
        path = known.path
    return spec.model_copy(update={"model": spec.model.model_copy(update={"path": path})})


# --- result -------------------------------------------------------------------------------------------------


def _answer(document: Mapping[str, Any]) -> None:
    st.subheader(f"{format.plain(document['file'])}: {verifications.WORDS[document['state']]}", anchor=False)
    if (change := document["change"]) is not None:
        _since(document, change)
    columns = st.columns(len(verifications.PARTS))
    for column, (key, name) in zip(columns, verifications.PARTS, strict=True):
        with column, st.container(border=True, key=f"verify.{key}"):
            part = document[key]
            color = verifications.COLORS[part["state"]]
            st.caption(name)
            st.badge(
                verifications.state_text(part["state"]),
                icon=_ICONS.get(color, ":material/help:"),
                color=color,
            )
            st.markdown(format.plain(part["why"]))
    signature(document["signature"])
    if document["notes"]:
        said = "  \n".join(map(format.plain, document["notes"]))
        st.warning(said, icon=":material/groups:", title="Background load")
    tables.draw(verifications.checks(document), key="verify.checks", alt="Checks without measuring")
    _parts(verifications.differences(document), "verify.differences", "Machine differences")
    _parts(verifications.targets(document), "verify.targets", "Targets")
    if document["recorded_to"] and Path(document["recorded_to"]).is_file():
        st.download_button(
            "Save as baseline",
            Path(document["recorded_to"]).read_bytes,
            file_name="baseline.json",
            mime="application/json",
            key="verify.keep",
            on_click="ignore",
            icon=":material/save:",
            help="Numbers of this machine, to compare a later model or ONNX Runtime with.",
        )
    st.download_button(
        "Download as JUnit XML",
        verifications.as_junit(document),
        file_name="verify.xml",
        mime="application/xml",
        key="verify.junit",
        on_click="ignore",
        icon=":material/download:",
        help="The checks as test cases, for CI.",
    )


def signature(found: Mapping[str, Any]) -> None:
    """Draw the state of the file's signature."""
    color = signatures.COLORS.get(found["state"], "gray")
    with st.container(border=True, key="verify.signature"):
        st.caption("signature")
        st.badge(
            format.plain(signatures.state_text(found)),
            icon=_ICONS.get(color, ":material/help:"),
            color=color,
        )
        st.markdown(format.plain(" ".join(filter(None, (found["why"], found["hint"])))))


def _since(document: Mapping[str, Any], change: Mapping[str, Any]) -> None:
    """Draw the change since a baseline of this machine."""
    with st.container(border=True, key="verify.since"):
        color = verifications.COLORS[change["state"]]
        st.caption("versus the baseline")
        st.badge(
            verifications.state_text(change["state"]), icon=_ICONS.get(color, ":material/help:"), color=color
        )
        st.markdown(format.plain(change["why"]))
        for one in verifications.change_lines({**document, "recorded_to": None})[1:]:
            if isinstance(one, Note):
                st.caption(format.plain(one.text))


def _parts(parts: Any, key: str, alt: str) -> None:
    for one in parts:
        if isinstance(one, Table):
            tables.draw(one, key=key, alt=alt)
        elif isinstance(one, Line):
            st.markdown(f"**{format.plain(one.text)}**")
