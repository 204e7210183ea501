"""Errors of a quantized variant by operator, and a new variant without its worst operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from core.api import graphs, variants
from core.api.graphs import Located, located_at, node_errors_job, quantized_from
from core.evidence.node_savings import Choice, Savings, choices, halving_choice, keep_float
from core.show.sheets import quantized
from core.show.sheets import variants as sheets
from core.show.verdict import sentence
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import format, messages, session_jobs, state
from dashboard.charts import variant_charts
from dashboard.views.variants import create as variant_maker
from dashboard.views.variants import job as variant_job
from dashboard.views.variants import text as variant_text
from dashboard.widgets import controls, plots, tables

OF, COUNT, BLOCKED = "variants.errors.of", "variants.errors.count", "variants.errors.blocked"


def draw(record: ModelRecord, root: ModelRecord | None) -> None:
    """Draw the errors of a variant's operators, or the button that locates them.

    Args:
        record: a variant.
        root: the original of its steps; None: it was deleted.
    """
    try:
        of = quantized_from(state.store(), record)
    except TunerError as error:
        st.info(f"{format.plain(error.message)} {format.plain(error.hint)}", icon=":material/info:")
        return
    status = variant_job.find(variant_job.ERRORS, record)
    active = session_jobs.is_active(status)
    found = _located(record)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Locating" if active else "Locate again" if found else "Locate errors",
            key="variants.errors.run",
            type="secondary" if found else "primary",
            icon=":material/manage_search:",
            on_click=_start,
            args=(record,),
            **state.unless_closed(
                "Quantizes each operator alone and compares the outputs with the float model's; "
                "then profiles both models.",
                off=active,
            ),
        )
        if found is not None:
            st.caption(
                f"Against {format.plain(of.before.name)}, which it was quantized from · "
                f"{format.when(found.made_at)}"
            )
    variant_job.live(status, "errors")
    if found is not None:
        _result(record, root, found)
    elif not active:
        _empty()


def _empty() -> None:
    with st.container(border=True):
        st.markdown(
            ":material/manage_search: **No errors located yet.** Press **Locate errors** to "
            "see which operators lose accuracy, and the time each saves. It takes half a "
            "minute or more."
        )


def _start(record: ModelRecord) -> None:
    """Queue the job that locates errors, with the current widget values."""
    try:
        of = quantized_from(state.store(), record)
        sizes = variant_maker.workload(of.before)
        job = node_errors_job(state.session(), record, sizes, controls.named_operators())
    except TunerError as error:
        messages.keep_error(error, variant_job.ERRORS)
        return
    variant_job.start(variant_job.ERRORS, job)


def _located(record: ModelRecord) -> Located | None:
    try:
        return _cached(record.content_sha256, located_at(state.store(), record))
    except TunerError as error:
        messages.report(error)
        return None


@st.cache_resource(show_spinner=False, max_entries=8)
def _cached(sha: str, made_at: float | None) -> Located | None:
    """Return the located errors; cached, because the result made at one moment never changes."""
    record = state.store().model(sha) if made_at else None
    return graphs.located(state.store(), record) if record is not None else None


# --- result -------------------------------------------------------------------------------------------------


def _result(record: ModelRecord, root: ModelRecord | None, located: Located) -> None:
    found = located.savings
    if not found.units:
        st.info("No operator of this variant is quantized.", icon=":material/info:")
        return
    curve = choices(found)
    _seed(f"{record.content_sha256} {located.made_at}", curve)
    _numbers(found)
    left, right = st.columns(2, gap="small")
    with right:
        chosen = _choice(found, curve)
        _next(record, root, chosen, everything=len(chosen.blocked) == _operators(found))
    with left, st.container(border=True):
        plots.draw(
            variant_charts.bars(found, chosen.blocked),
            "Error of each operator when it alone is quantized",
            key="variants.errors.bars",
            alt="Error of the outputs when only one operator is quantized, the largest first.",
        )
        more = len(found.units) - variant_charts.MAX_BARS
        if more > 0:
            st.caption(f"{more} more with smaller errors are in the table.")
    _table(found, chosen)
    for note in (*located.notes, *sheets.native_libraries_text(located.libraries)):
        st.caption(f":material/info: {format.plain(sentence(note))}")


def _seed(of: str, curve: Sequence[Choice]) -> None:
    """Select the choice that halves the error, once for each result of a variant."""
    if st.session_state.get(OF) == of and COUNT in st.session_state:
        return
    st.session_state[OF] = of
    st.session_state[COUNT] = halving_choice(curve)
    st.session_state[BLOCKED] = list(curve[st.session_state[COUNT]].blocked)


def _numbers(found: Savings) -> None:
    with st.grid(4, min_column_width=180, border=True):
        st.metric(
            "Error of the variant",
            sheets.percent(found.whole),
            help="Norm of the output difference divided by the norm of the float model's output.",
        )
        st.metric("Quantized operators", format.count(_operators(found)))
        st.metric(
            "Saved by them",
            _ms(math.fsum(unit.saved_s or 0.0 for unit in found.units) if found.timed else None),
            help="Time in the float model minus time in the variant, per run, in profiled passes.",
        )
        st.metric(
            "Saved elsewhere",
            _ms(found.elsewhere_s if found.timed else None),
            help="Time change in all other nodes. Negative: added conversions between float and "
            "integer cost this much.",
        )
    if found.float_s is not None and found.quantized_s is not None:
        st.caption(
            f"A run takes {format.ms(found.float_s)} in float and "
            f"{format.ms(found.quantized_s)} in this variant, on ONNX Runtime's default. A "
            "comparison measures it better."
        )


def _ms(seconds: float | None) -> str:
    return format.ms(seconds, 3, signed=True)


def _choice(found: Savings, curve: Sequence[Choice]) -> Choice:
    """Draw the curve and the selected choice; return the choice."""
    st.slider(
        "Keep in float",
        0,
        len(curve) - 1,
        key=COUNT,
        format="%d operators",
        on_change=_slid,
        args=(curve,),
        help="Starts with the operators that save the least time for the error they add.",
    )
    names = [name for unit in found.units for name in unit.nodes]
    st.multiselect(
        "Block list",
        names,
        key=BLOCKED,
        placeholder="none",
        help="Nodes that the next variant keeps in float. Fused nodes are selected together.",
    )
    chosen = keep_float(found, st.session_state[BLOCKED])
    if timed := [one for one in curve if one.saved_s is not None]:
        with st.container(border=True):
            plots.draw(
                variant_charts.curve(timed, chosen),
                "Time saved over expected error",
                key="variants.errors.curve",
                alt="Time saved per run over expected error, from nothing quantized to everything.",
            )
    else:
        st.caption(":material/info: Without times the operators are ordered by their error alone.")
    saved = "" if chosen.saved_s is None else f", {_ms(chosen.saved_s)} saved by the other operators"
    st.caption(f"Expected: about {sheets.percent(chosen.error)} error{saved}, if errors are independent.")
    return chosen


def _slid(curve: Sequence[Choice]) -> None:
    st.session_state[BLOCKED] = list(curve[st.session_state[COUNT]].blocked)


def _next(record: ModelRecord, root: ModelRecord | None, chosen: Choice, *, everything: bool) -> None:
    facts = variants.variant_of(record) or {}
    making = variant_job.find(variant_job.MAKE, root) if root else None
    reason = ""
    if root is None:
        reason = "The original is gone, so no variant can be created."
    elif not chosen.blocked:
        reason = "Choose at least one operator to keep in float."
    elif everything:
        reason = "Leave at least one operator quantized."
    st.button(
        f"Create variant with {len(chosen.blocked)} in float",
        key="variants.errors.next",
        type="primary",
        icon=":material/science:",
        on_click=_make_next,
        args=(record, root, chosen.blocked, facts),
        **state.unless_closed(
            reason or "The same chain; its last step skips the block list.",
            off=bool(reason) or session_jobs.is_active(making),
        ),
    )


def _operators(found: Savings) -> int:
    return sum(len(unit.nodes) for unit in found.units)


def _make_next(record: ModelRecord, root: ModelRecord, blocked: Sequence[str], facts: sheets.Facts) -> None:
    try:
        steps = variant_text.with_excluded(variants.steps_of(record), blocked)
    except TunerError as error:
        messages.keep_error(error, variant_job.ERRORS)
        return
    variant_maker.start_changed(root, steps, facts)


def _table(found: Savings, chosen: Choice) -> None:
    tables.draw(
        quantized.operators(found, chosen),
        key="variants.errors.table",
        alt="Every quantized operator with its error and the time it saves; click a column's title to sort.",
    )
