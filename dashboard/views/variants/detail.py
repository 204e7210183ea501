"""One variant: its steps, output error, checks, findings and actions."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from core import wire
from core.api import variants
from core.show.sheets import Fact
from core.show.sheets import variants as sheets
from core.show.table import Column, Table, tabulate
from core.show.verdict import sentence
from core.spec.steps import Step
from core.store import ModelRecord, library
from core.wire import output_check
from core.wire.errors import TunerError
from core.wire.files import file_stem
from dashboard import format, messages, state
from dashboard.shown_result import TUNE
from dashboard.views.models import removal
from dashboard.views.variants import create as variant_maker
from dashboard.views.variants import text as variant_text
from dashboard.widgets import page_frame, tables

DOWNLOAD_BYTES = 512 << 20  # a download passes through the server's memory
LEVELS = {"warning": (":material/warning:", "orange"), "info": (":material/info:", "blue")}
MOST_NAMES = 40


def draw(record: ModelRecord, root: ModelRecord | None) -> None:
    """Draw the details of a variant.

    Args:
        record: the variant.
        root: the original of its steps; None: it was deleted.
    """
    facts = variants.variant_of(record)
    if facts is None:
        return
    try:
        steps = variants.steps_of(record)
    except TunerError as error:
        messages.report(error)
        return
    _numbers(facts)
    if breach := sheets.breach(record):
        st.warning(
            f"{format.plain(breach)}. {output_check.ADVICE}",
            title=output_check.OUTPUTS_DIFFER,
            icon=":material/difference:",
        )
    for check in facts["checks"]:
        _check(check, facts, steps, root)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Steps**")
        st.markdown(
            "\n".join(f"{i}. {format.plain(sheets.step_line(one))}" for i, one in enumerate(steps, 1))
        )
        tables.facts([*sheets.creation_facts(record), Fact("file", record.path)])
    with right:
        _found(facts["facts"])
        if facts["notes"]:
            st.info(
                "\n".join(f"- {format.plain(sentence(note))}" for note in facts["notes"]),
                icon=":material/info:",
            )


def header(record: ModelRecord) -> None:
    """Draw the name of a variant, its badges, and its actions."""
    facts = variants.variant_of(record)
    if facts is None:
        return
    words, color = variant_text.PRECISIONS[variants.precision_of_model(record)]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="variants.header"):
        st.subheader(format.plain(record.name), anchor=False, width="content")
        st.badge(words, color=color)  # type: ignore[arg-type] # a colour of the table
        if facts["hardware_bound"]:
            st.badge(
                "machine-specific",
                icon=":material/developer_board:",
                color="orange",
                help=format.plain(facts["hardware_bound"]),
            )
        st.space("stretch")
        page_frame.link("graph", "Graph", model=record.content_sha256)
        if st.button(
            "Use in Tune", key="variants.use", icon=":material/tune:", help="Makes it the current model."
        ):
            state.choose_model(record)
            TUNE.show(None)
            page_frame.switch_to("tune")
        st.button(
            "Continue from here",
            key="variants.continue",
            icon=":material/alt_route:",
            help="The next steps start from this model.",
            on_click=state.choose_model,
            args=(record,),
            disabled=record.content_sha256 == st.session_state.get(state.MODEL),
        )
        _download(record, facts)
        if st.button(
            "Delete",
            key="variants.delete",
            icon=":material/delete:",
            **state.unless_closed("Asks first."),
        ):
            _confirm(record)
    if facts["hardware_bound"]:
        st.caption(f":material/developer_board: {format.plain(facts['hardware_bound'])}")


def _numbers(facts: sheets.Facts) -> None:
    error, changed = facts["error"], facts["size_bytes"] - facts["size_before_bytes"]
    with st.grid(5, min_column_width=150, border=True):
        st.metric(
            "Size",
            format.size(facts["size_bytes"]),
            delta=f"{'+' if changed > 0 else '−'}{format.size(abs(changed))}" if changed else None,
            delta_color="off",
            delta_arrow="off",
            help=f"With external data. Before the last step: {format.size(facts['size_before_bytes'])}.",
        )
        st.metric(
            "Nodes",
            format.count(facts["nodes_after"]),
            delta=f"{facts['nodes_after'] - facts['nodes_before']:+,}",
            delta_color="off",
            delta_arrow="off",
            help="Fewer is not always faster: quantization adds nodes that ONNX Runtime fuses again.",
        )
        st.metric(
            "Largest error",
            sheets.percent(error["max_rel"]),
            help="Largest output difference divided by the largest magnitude of that output. On "
            f"{facts['error_seeds']} random inputs, without optimizations on the CPU.",
        )
        st.metric(
            "Cosine",
            format.DASH if error["cosine"] is None else f"{error['cosine']:.6f}",
            help="Cosine similarity of both outputs: 1 if they point the same way.",
        )
        st.metric(
            "Same top-1",
            sheets.agreement_share(error) or format.DASH,
            help="How often the top class agrees on random inputs. Use the Accuracy page for accuracy.",
        )


# --- checks -------------------------------------------------------------------------------------------------


def _check(
    check: wire.StepCheck, facts: sheets.Facts, steps: Sequence[Step], root: ModelRecord | None
) -> None:
    icon, color = LEVELS[check["level"]]
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.badge(check["name"].replace("_", " "), icon=icon, color=color)  # type: ignore[arg-type] # of LEVELS
        st.markdown(format.plain(check["text"]))
        try:
            better = variant_text.corrected(steps, check["remedy"])
        except TunerError:  # the remedy is of another version
            better = None
        if better is not None and root is not None:
            text = variant_text.remedy_text(check["remedy"])
            st.button(
                f"Create with {text}",
                key=f"variants.remedy.{check['name']}",
                icon=":material/healing:",
                on_click=variant_maker.start_changed,
                args=(root, better, facts),
                **state.unless_closed("Creates the same chain with this option changed; this variant stays."),
            )


# --- findings of a step -------------------------------------------------------------------------------------


def _found(facts: Mapping[str, Any]) -> None:
    """Draw tables of the last step's findings; other facts are in the list on the left."""
    if fused := facts.get("fused"):
        st.markdown("**Fused operators**")
        _table(
            tabulate(
                fused.items(),
                (Column("operator", tells=True), lambda one: one[0]),
                (Column("nodes", "count"), lambda one: one[1]),
            ),
            "fused",
        )
    if integer := facts.get("integer_ops"):
        st.markdown("**Integer nodes**")
        _table(
            tabulate(
                integer.items(),
                (Column("operator", tells=True), lambda one: one[0]),
                (Column("nodes", "count"), lambda one: one[1]["nodes"]),
                (Column("integer", "count"), lambda one: one[1]["integer"]),
                (Column("float", "count"), lambda one: one[1]["float"]),
            ),
            "integer",
        )
        st.caption("In the graph that ONNX Runtime runs, after its own optimizations.")
    if blocked := facts.get("blocked"):
        st.markdown(f"**Left in float32: {len(blocked)} nodes**")
        more = f" and {len(blocked) - MOST_NAMES} more" if len(blocked) > MOST_NAMES else ""
        st.caption(format.plain(", ".join(blocked[:MOST_NAMES]) + more))


def _table(table: Table, name: str) -> None:
    tables.draw(table, key=f"variants.table.{name}", alt=f"The step's table: {name}")


# --- download and deletion ----------------------------------------------------------------------------------


def _download(record: ModelRecord, facts: sheets.Facts) -> None:
    files = files_of(record, facts)
    missing = [file.name for file in files if not file.is_file()]
    too_large = record.info["size_bytes"] > DOWNLOAD_BYTES
    name = f"{file_stem(files[0].stem)}{files[0].suffix if len(files) == 1 else '.zip'}"
    st.download_button(
        "Download",
        data=reader(files),
        file_name=name,
        mime="application/zip" if len(files) > 1 else "application/octet-stream",
        key="variants.download",
        icon=":material/download:",
        on_click="ignore",
        disabled=bool(missing) or too_large,
        help=f"The file {format.code(str(missing[0]))} is gone."
        if missing
        else f"Too large for a browser: copy it from {format.code(record.path)}."
        if too_large
        else "One file."
        if len(files) == 1
        else f"{len(files)} files that belong together.",
    )


def files_of(record: ModelRecord, facts: sheets.Facts) -> list[Path]:
    """Return all files of a variant: the model, its external data, and further files."""
    folder = Path(record.path).parent
    beside = [one["location"] for one in record.info["external_data"]] + list(facts["files"])
    return [Path(record.path), *(folder / name for name in dict.fromkeys(beside))]


def reader(files: Sequence[Path]) -> Callable[[], bytes]:
    """Return a function that reads the files when called: one as it is, several as an uncompressed zip."""

    def read() -> bytes:
        if len(files) == 1:
            return files[0].read_bytes()
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
            for file in files:
                archive.write(file, str(file.relative_to(files[0].parent)))
        return packed.getvalue()

    return read


@st.dialog("Delete the variant?", icon=":material/delete:")
def _confirm(record: ModelRecord) -> None:
    st.markdown(f"**{format.plain(record.name)}** and its files are deleted. Its trials stay in the history.")
    if children := _made_from(record):
        names = ", ".join(format.plain(one.name) for one in children)
        st.caption(f"Derived variants, kept: {names}.")
    uses = library.unfinished_trials_of(state.store(), record.content_sha256)
    if uses:
        st.warning(f"It is in use: {format.plain('; '.join(uses[:3]))}.", icon=":material/lock:")
    with st.container(horizontal=True):
        if st.button(
            "Delete",
            key="variants.confirm",
            type="primary",
            icon=":material/delete:",
            disabled=bool(uses),
            help="Wait until that is done, or cancel it first." if uses else None,
        ):
            try:
                removal.remove(record)
            except TunerError as error:  # in use meanwhile
                messages.report(error)
            else:
                st.rerun()
        if st.button("Keep", key="variants.keep"):
            st.rerun()


def _made_from(record: ModelRecord) -> list[ModelRecord]:
    sha = record.content_sha256
    return [one for one in state.store().models() if (variants.variant_of(one) or {}).get("parent") == sha]
