"""Models page: the library; models from samples, upload, server folders and exports from PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from core.api.requests import unsupported_input
from core.show.sheets import models_and_machines
from core.store import ModelRecord, audit, home, library
from core.wire.errors import TunerError
from dashboard import format, messages, state
from dashboard.folders import allowed_path
from dashboard.server.people_file import Role
from dashboard.shown_result import TUNE
from dashboard.views.models import exporting, removal
from dashboard.widgets import collapsible, controls, page_frame, sharing, tables, uploads

TABLE = "models.table"
MODELS, OPERATORS = 8, 8  # rows that show without scrolling
ADD = "models.add"  # whether the sources are open
WAYS = "models.ways"  # the open source
SAMPLE, FOLDER = "sample", "folder"  # sources of a model, and where their errors are shown
LOADS = "models.loads"  # content hash and operator libraries -> message of loading


def page() -> None:
    bar = page_frame.bar("Models", "The models that you can measure.")
    messages.show_kept_error()
    exporting.take_finished(_added)
    state.add_samples()
    records = state.store().models()
    bar.action.button(
        "Add model", key="models.add.open", icon=":material/add:", on_click=state.put, args=(ADD, True)
    )
    chosen = None
    if records:
        chosen = _table(records)
    else:
        with st.container(border=True):
            st.markdown("#### :material/deployed_code: No models yet")
            st.markdown("Upload an `.onnx` file below, or export a torchvision model.")
    with collapsible.box("Add a model", key=ADD, icon="add", first_open=not records):
        _ways(records)
    exporting.watch()
    _detail(chosen)


def _ways(records: Sequence[ModelRecord]) -> None:
    """Draw the sources of new models."""
    sample, uploaded, folder, export = st.tabs(
        ["Samples", uploads.TAB, "From the server", "Convert from PyTorch"],
        key=WAYS,
        on_change="rerun",  # else a message above the tabs resets the open one in the browser
    )
    with sample:
        _samples(records)
    with uploaded:
        if not state.show_closed_reason():
            uploads.model("models", _added)
    with folder:
        _server()
    with export:
        exporting.form()


# --- the library ------------------------------------------------------------------------------------------


def _table(records: Sequence[ModelRecord]) -> ModelRecord | None:
    """Draw the library and return the selected model."""
    chosen = tables.draw(
        models_and_machines.library(records),
        key=f"{TABLE}.{tables.key_of(one.content_sha256 for one in records)}",
        on_select="rerun",
        mode="single-row",
        most=MODELS,
        alt="The library of models with size, nodes, parameters and where each came from",
    )
    picked = chosen["selection"]["rows"]
    if picked and picked[0] < len(records):
        return records[picked[0]]
    current = state.current_model()
    wanted = st.session_state.get(removal.DETAIL) or (current.content_sha256 if current is not None else None)
    return next((one for one in records if one.content_sha256 == wanted), None)


def _detail(record: ModelRecord | None) -> None:
    if record is None:
        return
    with st.container(border=True, key="models.card"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.subheader(format.plain(record.name), anchor=False, width="content")
            if record.content_sha256 == st.session_state.get(state.MODEL):
                st.badge("current in Tune", icon=":material/check:", color="green")
            st.space("stretch")
            page_frame.link("graph", "Graph", model=record.content_sha256)
            if st.button("Use in Tune", key="models.use", icon=":material/tune:", type="primary"):
                _use(record, "tune")
            if st.button(
                "Find the best settings",
                key="models.search",
                icon=":material/manage_search:",
                help="Opens Search with this model.",
            ):
                _use(record, "search")
            sharing.button(
                [record.content_sha256],
                key="models.share",
                more="Its variants and results become private, too; they are shared one by one.",
            )
            if st.button(
                "Delete",
                key="models.delete",
                icon=":material/delete:",
                **sharing.unless_of_others([record.content_sha256], "Asks first."),
            ):
                _confirm(record)
        _facts(record)
        if record.source == "export" and record.details:
            exporting.card(record.details)


def _use(record: ModelRecord, page: str) -> None:
    state.choose_model(record)
    TUNE.show(None)
    page_frame.switch_to(page)


@st.dialog("Delete the model?", icon=":material/delete:")
def _confirm(record: ModelRecord) -> None:
    own = Path(record.path).is_relative_to(home())
    what = "Its files are deleted." if own else f"The file stays where it is: {format.code(record.path)}."
    st.markdown(
        f"**{format.plain(record.name)}** is removed from the library. {what} Its trials stay in the history."
    )
    with st.container(horizontal=True):
        if st.button("Delete", key="models.confirm", type="primary", icon=":material/delete:"):
            try:
                removal.remove(record)
            except TunerError as error:  # in use, or the original of variants
                messages.report(error)
            else:
                st.rerun()
        if st.button("Keep", key="models.keep"):
            st.rerun()


def _facts(record: ModelRecord) -> None:
    info = record.info
    if record.note:
        st.info(format.plain(record.note), icon=":material/info:")
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Inputs and outputs**")
        tables.draw(
            models_and_machines.tensors(record.info),
            key="models.tensors",
            alt="Inputs and outputs with type and shape",
        )
    with right:
        st.markdown("**Operators**")
        tables.draw(
            models_and_machines.operators(info),
            key="models.ops",
            most=OPERATORS,
            alt="How many nodes of each operator",
        )
    _loading(record)
    tables.facts(models_and_machines.model_facts(info))


def _loading(record: ModelRecord) -> None:
    """Show whether ONNX Runtime loads the model; adding it only read the file."""
    known = st.session_state.get(LOADS) or {}
    libraries = controls.operators()
    role: Role = "admin" if libraries else "engineer"
    about = " ".join([record.content_sha256, *libraries])
    if why := unsupported_input(record.info):
        st.warning(f"ORTune cannot run this model. {format.plain(why)}", icon=":material/block:")
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="models.loading"):
        if (words := known.get(about)) is not None:
            st.caption(f":material/check: {words[:1].upper()}{words[1:]}.")
            return
        st.caption(f":material/help: {library.NOT_CHECKED.capitalize()}: only the file was read.")
        if not st.button(
            "Check that it loads",
            key="models.load",
            icon=":material/memory:",
            **state.unless_closed(role=role),
        ):
            return
    try:
        state.refuse_if_closed(role)
        audit.record(
            "measure",
            f"check that `{record.name}` loads",
            ids=[record.content_sha256],
            libraries=", ".join(libraries),
        )
        with st.spinner("ONNX Runtime loads the model in a process of its own…"):
            words = library.check_loads(Path(record.path), libraries=libraries)
    except TunerError as error:
        messages.report(error)
        return
    st.session_state[LOADS] = {**known, about: words}
    st.rerun()


# --- sources ----------------------------------------------------------------------------------------------


def _added(record: ModelRecord, new: bool = True) -> None:
    st.session_state[removal.DETAIL] = record.content_sha256
    messages.notify_added(record, new)


def _samples(records: Sequence[ModelRecord]) -> None:
    st.caption("Small models come with ORTune; larger ones are exported on first use.")
    have = {one.path for one in records}
    for sample in library.sample_models():
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"`{sample.name}`", width=220)
            if sample.exists and sample.path in have:
                st.badge("in the library", icon=":material/check:", color="green")
            elif sample.exists:
                st.button(
                    "Add",
                    key=f"sample.{sample.name}",
                    on_click=_add_path,
                    args=(sample.path, sample.name, SAMPLE),
                    **state.unless_closed(),
                )
            elif sample.plan is not None:
                st.button(
                    "Create",
                    key=f"sample.{sample.name}",
                    icon=":material/build:",
                    on_click=exporting.start,
                    args=(sample.name, sample.plan),
                    **state.unless_closed(
                        "Exports it from torchvision, with pretrained weights if the download works, "
                        "else random ones.",
                        off=exporting.is_running(),
                    ),
                )
    messages.show_kept_error(SAMPLE, uploads.NOT_ADDED)


def _add_path(path: str, name: str, source: str) -> None:
    try:
        state.refuse_if_closed()
        _added(library.import_file(state.store(), Path(path), name=name, source=source))
    except TunerError as error:
        messages.keep_error(error, source)


def _server() -> None:
    try:
        found = library.folder_models()
    except TunerError as error:
        messages.report(error)
        return
    if found:
        chosen = st.selectbox(
            "Model in the server's folder",
            [str(path) for path in found],
            key="models.folder",
            filter_mode="fuzzy",
            help="All .onnx files under the server's models folder.",
        )
        st.button(
            "Add",
            key="models.folder_add",
            on_click=_add_path,
            args=(chosen, Path(chosen).stem, FOLDER),
            **state.unless_closed(),
        )
    else:
        st.caption(
            ":material/info: No folder of models is configured. Start the server with `python -m "
            "dashboard --models FOLDER` "
            "to offer one here."
        )
    st.text_input(
        "Or the path of a model",
        key="models.path",
        placeholder="/folder/of/models/my_model.onnx",
        help="In the server's models folder, or among what was uploaded. Other paths are not allowed.",
    )
    st.button(
        "Add this path",
        key="models.path_add",
        on_click=_add_typed,
        **state.unless_closed(),
    )
    messages.show_kept_error(FOLDER, uploads.NOT_ADDED)


def _add_typed() -> None:
    typed = str(st.session_state.get("models.path") or "").strip()
    try:
        path = allowed_path(typed, state.store())
    except TunerError as error:
        messages.keep_error(error, FOLDER)
        return
    _add_path(str(path), path.stem, FOLDER)


page()
