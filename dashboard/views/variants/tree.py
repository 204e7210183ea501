"""The family of a model as a tree: an original and its variants, each with size, error and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.api import variants
from core.api.variants import Branch
from core.show.sheets import variants as sheets
from core.store import ModelRecord
from core.wire import output_check
from core.wire.errors import TunerError
from dashboard import format, state
from dashboard.shown_result import ShownResult
from dashboard.views.variants import text as variant_text
from dashboard.views.variants.text import Verdict

SHORT = 16
SHOWN = ShownResult("variants.shown", ("variant",))  # the first digits of the content hash
NO_BREAK = "\u00a0"  # Markdown keeps it
COLUMNS = (4.4, 1.5, 1.9, 1.9, 3.2, 1.3)
TITLES = {
    "Model": "Indented under the model that it was created from.",
    "Precision": "The type of most computations.",
    "Size": "With external data; the change is relative to the model before.",
    "Output error": (
        "Largest output difference divided by the largest magnitude of that output, on "
        "random inputs; how often the top class agrees; and the accuracy on the labelled data."
    ),
    "Speed": "Versus the original, with the 95 % interval, on ONNX Runtime's default settings.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One model of the tree, as text."""

    sha: str
    title: str  # with the branch prefix
    steps: str  # that made it, or its role
    precision: str
    color: str  # of the precision's badge
    size: str
    error: str
    agreement: str  # of the predicted classes; empty: no classes
    accuracy: str  # on the labelled data; empty: not evaluated
    verdict: Verdict | None  # None: the original, which is the baseline
    breach: str  # the exceeded output tolerance; empty: within it
    bound: str  # the hardware it requires; empty: none


Facts = Mapping[str, Mapping[str, Any]]  # by the content hash of a model


def lines(branches: Sequence[Branch], verdicts: Facts, accuracies: Facts) -> list[Line]:
    """Return the tree as lines of text, in its order."""
    keyed = [(one, one.record.content_sha256) for one in branches]
    return [_line(one, verdicts.get(sha), _accuracy(accuracies.get(sha))) for one, sha in keyed]


def _accuracy(share: Mapping[str, Any] | None) -> str:
    if share is None:
        return ""
    return f"accuracy {format.share(share['value'])}, {format.interval_share(share['low'], share['high'])}"


def _line(branch: Branch, found: Mapping[str, Any] | None, accuracy: str) -> Line:
    record, facts = branch.record, variants.variant_of(branch.record)
    words, color = variant_text.PRECISIONS[variants.precision_of_model(record)]
    title = branch.prefix.replace(" ", NO_BREAK) + format.plain(record.name)
    if facts is None:
        return Line(
            sha=record.content_sha256,
            title=title,
            steps="the original",
            precision=words,
            color=color,
            size=format.size(record.info["size_bytes"]),
            error="the reference",
            agreement="",
            accuracy=accuracy,
            verdict=None,
            breach="",
            bound="",
        )
    return Line(
        sha=record.content_sha256,
        title=title,
        steps=_own_steps(record, whole=not branch.parent_known),
        precision=words,
        color=color,
        size=sheets.size_text(facts),
        error=sheets.error_text(facts["error"]),
        agreement=sheets.agreement_text(facts["error"]),
        accuracy=accuracy,
        verdict=variant_text.verdict_of(found),
        breach=sheets.breach(record),
        bound=facts["hardware_bound"],
    )


def _own_steps(record: ModelRecord, *, whole: bool) -> str:
    """Return the last step; all steps where the parent was deleted."""
    try:
        steps = variants.steps_of(record)
    except TunerError:
        return "made by another version"
    told = " → ".join(sheets.step_line(step) for step in (steps if whole else steps[-1:]))
    return format.short(told, 120)


# --- drawing ------------------------------------------------------------------------------------------------


def draw(branches: Sequence[Branch], verdicts: Facts, accuracies: Facts) -> None:
    """Draw the tree; a click on a line shows its details."""
    with st.container(border=True, key="variants.tree", gap="small"):
        for column, (title, text) in zip(st.columns(COLUMNS), [*TITLES.items(), ("", "")], strict=True):
            if title:
                column.caption(f"**{title}**", help=text)
        for line in lines(branches, verdicts, accuracies):
            _row(line)


def _row(line: Line) -> None:
    name, precision, size, error, speed, button = st.columns(COLUMNS, vertical_alignment="center")
    with name, st.container(gap=None):
        st.markdown(f"**{line.title}**")
        st.caption(format.plain(line.steps))
    precision.badge(line.precision, color=line.color)  # type: ignore[arg-type] # a colour of the table
    if line.bound:
        precision.badge("this CPU", icon=":material/developer_board:", color="orange", help=line.bound)
    size.markdown(line.size)
    with error, st.container(gap=None):
        st.markdown(format.plain(line.error))
        if line.agreement:
            st.caption(line.agreement)
        if line.accuracy:
            st.container(key=f"variants.accuracy.{line.sha[:12]}").caption(line.accuracy)
    if line.breach:
        error.badge(
            output_check.OUTPUTS_DIFFER,
            icon=":material/difference:",
            color="red",
            help=format.plain(line.breach),
        )
    with speed:
        _verdict(line.verdict)
    if line.verdict is not None:
        shown = line.sha[:SHORT] == SHOWN.id
        button.button(
            "Shown" if shown else "Show",
            key=f"variants.show.{line.sha[:12]}",
            disabled=shown,
            help="Shows its steps and results.",
            on_click=show,
            args=(line.sha,),
        )


def _verdict(verdict: Verdict | None) -> None:
    if verdict is None:
        st.badge("baseline", icon=":material/flag:", color="gray")
        return
    with st.container(gap=None):
        st.badge(verdict.words, icon=verdict.icon, color=verdict.color)  # type: ignore[arg-type] # of `LOOKS`
        if verdict.interval:
            st.caption(format.plain(verdict.interval))
        if verdict.remark:
            st.caption(f":material/info: {format.plain(verdict.remark)}")


def follow_link() -> None:
    """Show the variant of `?variant=` and its family, once per link."""
    linked = SHOWN.take_link()
    if linked is None:
        return
    try:
        record = state.store().model(linked)
    except TunerError:  # an ambiguous prefix
        record = None
    if record is None:
        st.warning(f"There is no variant {format.plain(linked[:40])} here.", icon=":material/search_off:")
        return
    current = state.current_model()
    family = variants.family(state.store(), current) if current is not None else []
    if record.content_sha256 not in [one.content_sha256 for one in family]:
        state.choose_model(variants.original(state.store(), record) or record)
    show(record.content_sha256)


def show(sha: str) -> None:
    """Show the details of this variant."""
    SHOWN.show(sha[:SHORT])


def shown_variant(records: Sequence[ModelRecord]) -> ModelRecord | None:
    """Return the variant to show: the chosen one, or the current model if it is a variant, or the newest."""
    made = {one.content_sha256[:SHORT]: one for one in records if variants.variant_of(one) is not None}
    chosen = (SHOWN.id, (st.session_state.get(state.MODEL) or "")[:SHORT])
    newest = max(made.values(), key=lambda one: one.created_at, default=None)
    found = next((made[short] for short in chosen if short in made), newest)
    if found is not None:
        show(found.content_sha256)
    return found
