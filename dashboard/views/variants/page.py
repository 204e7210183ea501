"""Variants page: other precisions and graphs of a model, with the cost and speed of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.api import variants
from core.api.session import Status
from core.spec.datasets import DatasetSpec
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import format, state
from dashboard.views.accuracy import evaluations
from dashboard.views.variants import comparison as variant_comparison
from dashboard.views.variants import create as variant_maker
from dashboard.views.variants import detail as variant_detail
from dashboard.views.variants import errors as variant_errors
from dashboard.views.variants import job as variant_job
from dashboard.views.variants import text as variant_text
from dashboard.views.variants import tree as variant_tree
from dashboard.widgets import collapsible, controls, dataset, job_box, page_frame

VIEW = "variants.view"
NEW = "variants.new"  # whether the form is open
DONE, ERROR = "What was done", "Where the error comes from"  # as stored in forms
VIEW_NAMES = {DONE: "Details", ERROR: "Operator errors"}


def page() -> None:
    bar = page_frame.bar(
        "Variants",
        "Other precisions and graphs of a model. ORTune checks the outputs of each one.",
    )
    state.show_kept_error()
    variant_tree.follow_link()
    ended = _take_finished()
    with bar.model:
        source = controls.model_picker()
    if source is None:
        return
    records = variants.family(state.store(), source)
    made = [one for one in records if variants.variant_of(one) is not None]
    answer, running = st.container(key="variants.answer"), st.container(key="variants.running")
    with running:
        variant_comparison.running()
    with collapsible.box("New variant", key=NEW, icon="science", first_open=not made):
        left, right = st.columns([1, 2], gap="medium")
        with left:
            variant_maker.sizes_form(source)
        with right, st.container(key="variants.maker"):
            _maker_title(source)
            variant_maker.draw(source, bar.action, running)
    with running:
        variant_job.show_end(variant_job.MAKE, ended.get(variant_job.MAKE))
    with answer:
        if made:
            _family(source, records, made, bar, ended.get(variant_job.ERRORS))
        else:
            _empty(source)


def _take_finished() -> dict[str, Status]:
    """Take the ended jobs of this session, by type; show a new variant."""
    ended = {}
    for kind in (variant_job.MAKE, variant_job.ERRORS):
        status = job_box.take_ended(variant_job.job_key(kind))
        if status is None:
            continue
        ended[kind] = status
        if kind == variant_job.MAKE and status.result:
            found = status.result
            reused = found["reused"] == len(found["records"])
            _made(found["records"][-1], reused=reused, notes=found.get("notes", []))
    return ended


def _made(sha: str, *, reused: bool, notes: Sequence[str]) -> None:
    record = state.store().model(sha)
    if record is None:  # deleted in another tab meanwhile
        return
    variant_tree.show(sha)
    done = f"{record.name} exists already." if reused else f"Created {record.name}."
    state.notify(" ".join([done, *notes]))
    state.show_notice()


def _maker_title(source: ModelRecord) -> None:
    facts = variants.variant_of(source)
    st.markdown(f"**Create a variant of {format.plain(source.name)}**")
    if facts is not None:
        st.caption(
            f"It is a variant of {format.plain(facts['root_name'])} itself, and the steps "
            "continue from it. Choose the original above to start over."
        )


def _empty(source: ModelRecord) -> None:
    with st.container(border=True):
        st.markdown(
            f":material/account_tree: **No variant of {format.plain(source.name)} yet.** Add "
            "a step below and press **Create variant**."
        )


def _family(
    source: ModelRecord,
    records: Sequence[ModelRecord],
    made: Sequence[ModelRecord],
    bar: page_frame.Bar,
    ended: Status | None,
) -> None:
    root, data = variants.original(state.store(), source), dataset.labelled_if_valid()
    shown = variant_tree.shown_variant(made)
    if root is not None:
        with bar.more:
            variant_comparison.draw(root, made, data)
    try:
        verdicts = variants.verdicts(state.store(), root.content_sha256) if root is not None else {}
    except TunerError as error:
        state.report(error)
        verdicts = {}
    if shown is not None:
        st.markdown(f"#### {format.plain(variant_text.headline(shown, verdicts.get(shown.content_sha256)))}")
    variant_tree.draw(variants.tree(records), verdicts, _accuracies(records, data))
    if root is not None:
        variant_comparison.forest(root, made, verdicts)
    if root is None:
        st.warning(
            "The original of this family is gone, so variants cannot be compared or checked.",
            icon=":material/link_off:",
        )
    if shown is not None:
        _detail(shown, root, ended)


def _accuracies(records: Sequence[ModelRecord], data: DatasetSpec | None) -> dict[str, Mapping[str, Any]]:
    """Return the accuracy on `data` of each evaluated model, by content hash."""
    asked = [evaluations.on_default(one, data) for one in records] if data is not None else []
    return {one.accuracy.model_sha256: one.summary["accuracy"] for one in evaluations.find(asked)}


def _detail(shown: ModelRecord, root: ModelRecord | None, ended: Status | None) -> None:
    with st.container(border=True, key="variants.detail"):
        variant_detail.header(shown)
        view = st.segmented_control(
            "View",
            [DONE, ERROR],
            key=VIEW,
            format_func=VIEW_NAMES.__getitem__,
            default=None if VIEW in st.session_state else DONE,
            required=True,
            label_visibility="collapsed",
            persist_state="session",
        )
        if view == ERROR:
            variant_errors.draw(shown, root)
            variant_job.show_end(variant_job.ERRORS, ended)
        else:
            variant_detail.draw(shown, root)


page()
