"""The form of an export to ONNX, its running job, and its report. Used by the Models page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from core import wire
from core.api.models import library_job
from core.api.session import Status
from core.show.table import Column, tabulate
from core.store import ModelRecord, home
from core.wire.catalog import DEFAULT_OPSET, EXPORT_OPSETS, RANDOM_WEIGHTS_NOTE, TORCHVISION_CLASSIFIERS
from core.wire.errors import TunerError
from core.wire.output_check import OUTPUTS_DIFFER, TOLERANCES
from dashboard import format, messages, session_jobs, state
from dashboard.folders import allowed_path
from dashboard.server import upload
from dashboard.widgets import job_box, live_view, tables

PLACE = "export"  # where errors of exports are shown: under the form
JOB = "models.job"  # id of the export that this session started; a reload keeps it
PT2_PATH = "export.pt2"  # path of the .pt2 file, typed or uploaded
TORCHVISION, PT2 = "torchvision", "pt2"
_SOURCES = {TORCHVISION: "torchvision model", PT2: "torch.export .pt2 file"}


# --- the form ---------------------------------------------------------------------------------------------


def form() -> None:
    """Draw the sources and options of an export."""
    source = st.segmented_control(
        "Source",
        list(_SOURCES),
        key="export.form.source",
        format_func=_SOURCES.__getitem__,
        default=TORCHVISION,
        required=True,
        help="A classifier that torchvision knows by name, or a program saved with torch.export.",
    )
    if source == PT2:
        _pt2_fields()
    else:
        _torchvision_fields()
    st.selectbox(
        "Opset",
        list(EXPORT_OPSETS),
        key="export.form.opset",
        index=list(EXPORT_OPSETS).index(DEFAULT_OPSET),
        help="Version of the operator set. Below 18 PyTorch's exporter must convert down, which can fail.",
    )
    st.button(
        "Convert",
        key="export.form.start",
        icon=":material/output:",
        on_click=_submit,
        **state.unless_closed(
            "Runs in its own process; this page stays usable.",
            busy="An export is running." if is_running() else "",
        ),
    )


def _torchvision_fields() -> None:
    st.selectbox(
        "Model",
        TORCHVISION_CLASSIFIERS,
        key="export.form.name",
        index=TORCHVISION_CLASSIFIERS.index("resnet18"),
        filter_mode="fuzzy",
        help="Torchvision image classifiers; type to search.",
    )
    with st.container(horizontal=True, gap="medium"):
        st.toggle(
            "Dynamic batch",
            value=True,
            key="export.form.dynamic",
            help="The batch dimension stays free.",
        )
        st.toggle(
            "Pretrained weights",
            value=True,
            key="export.form.pretrained",
            help=f"Tries to download trained weights. Without them: {RANDOM_WEIGHTS_NOTE}.",
        )


def _pt2_fields() -> None:
    st.warning(
        "A `.pt2` file is loaded by PyTorch, and loading one can run code. Export only files whose "
        "source you trust.",
        icon=":material/warning:",
    )
    st.text_input(
        "Path on the server",
        key=PT2_PATH,
        placeholder="model.pt2",
        help=("Inside the server's models folder, or upload it below. Dynamic dimensions stay as they are."),
    )
    upload.uploader(
        "Or upload it",
        key="export.upload",
        accept=".pt2",
        hint="One .pt2 file.",
        multiple=False,
        on_upload=_pt2_uploaded,
    )


def _pt2_uploaded(files: list[Path]) -> None:
    st.session_state[PT2_PATH] = str(upload.keep(files, home() / "pt2")[0])


def _submit() -> None:
    try:
        name, plan = form_plan(st.session_state)
    except TunerError as error:
        messages.keep_error(error, PLACE)
        return
    start(name, plan)


def form_plan(values: Mapping[Any, Any]) -> tuple[str, wire.ExportPlan]:
    """Return the model's name and the plan of the form's `values`.

    Raises:
        ModelError: a `.pt2` that is missing or outside of the folders the browser may reach.
    """
    pt2 = values.get("export.form.source") == PT2
    path = allowed_path(str(values.get(PT2_PATH) or "").strip(), state.store()) if pt2 else None
    name = path.stem if path else str(values["export.form.name"])
    opset = int(values["export.form.opset"])
    return name, {
        "source": "pt2" if pt2 else "torchvision",
        "name": "" if pt2 else name,
        "path": str(path) if path else "",
        "output": f"{name}.onnx",
        "opset": opset,
        "dynamic_batch": not pt2 and bool(values.get("export.form.dynamic", True)),
        "pretrained": not pt2 and bool(values.get("export.form.pretrained", True)),
        "seed": 0,
        "image_size": None,
        "external_data": "auto",
    }


# --- the job ----------------------------------------------------------------------------------------------


def start(name: str, plan: wire.ExportPlan) -> None:
    """Submit an export; a session runs one at a time."""
    if is_running():
        return
    try:
        state.refuse_if_closed()
        st.session_state[JOB] = session_jobs.submit(library_job(state.session(), plan, name))
    except TunerError as error:
        messages.keep_error(error, PLACE)


def is_running() -> bool:
    """Return whether an export of this session waits or runs."""
    return session_jobs.is_active(_status())


def _status() -> Status | None:
    """Return the status of this session's export; None: it has none, or the link of another person's."""
    job, actor = st.session_state.get(JOB), state.present_actor()
    if job is None or (actor is not None and state.scheduler().person_of(job) != actor.person):
        return None
    return session_jobs.status(job)


def take_finished(added: Callable[[ModelRecord, bool], None]) -> None:
    """Tell the session how its export ended, once; the job itself adds the model to the library."""
    status = _status()
    if session_jobs.is_active(status) or state.closed():
        return
    st.session_state.pop(JOB, None)
    if status is not None and status.error and status.state == "FAIL":
        messages.keep_error(status.error, PLACE)
    elif status is not None and status.result and (record := state.store().model(status.result["model"])):
        added(record, status.result["new"])
        messages.show_notice()


def watch() -> None:
    """Draw the running export until it ends, and the error of the last one."""
    messages.show_kept_error(PLACE, "Nothing was exported")
    status = _status()
    if session_jobs.is_active(status):
        _live(status)


def _live(status: Status) -> None:
    event = partial(job_box.event, status.id, "this export", status.what)
    with st.container(border=True, key="export.live"):
        live_view.watch(status.id, event, of=[status.id], key="export.watch")
        job_box.cancel(
            status.id,
            key="export.cancel",
            help="Stops the worker; nothing is kept.",
            label="Cancel the export",
        )


# --- report -----------------------------------------------------------------------------------------------


def card(reply: Mapping[str, Any]) -> None:
    """Draw the report of an export."""
    st.markdown("**Export**")
    if reply.get("weights") == "random":
        st.warning(f"{RANDOM_WEIGHTS_NOTE[0].upper()}{RANDOM_WEIGHTS_NOTE[1:]}.", icon=":material/casino:")
    st.caption(
        f"{format.count(reply['nodes'])} nodes · {format.count(reply['parameters'])} parameters · "
        f"{format.size(reply['size_bytes'])} · opset {reply['opset']} · IR {reply['ir_version']} · "
        f"weights: {reply['weights']} · took {format.duration(reply['seconds'])}"
    )
    if reply["differences"]:
        tables.draw(
            tabulate(
                reply["differences"],
                (Column("compared at", tells=True), _compared_at),
                (
                    Column("largest difference, PyTorch to ONNX Runtime"),
                    lambda one: f"{one['max_abs']:.3g}",
                ),
                (Column("relative to the largest output"), lambda one: f"{one['max_rel']:.3g}"),
            ),
            key="export.differences",
            alt="Largest difference between PyTorch's and ONNX Runtime's outputs",
        )
    far = [one for one in reply["differences"] if not one["max_rel"] <= TOLERANCES["fp32"].max_rel]
    if far:
        st.warning(
            f"The {OUTPUTS_DIFFER} from PyTorch's by more than {TOLERANCES['fp32'].max_rel:g} "
            "of the largest output.",
            icon=":material/warning:",
        )
    for note in reply.get("notes", []):
        st.caption(f":material/info: {format.plain(str(note))}")


def _compared_at(one: Mapping[str, Any]) -> str:
    return "no batch dimension" if one["batch"] is None else f"batch {one['batch']}"
