"""Reports of a result: an HTML file for people without ORTune, Markdown for a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import streamlit as st

from core.show.report import Price, Report
from core.show.report.compose import compose
from core.show.report.markdown import markdown
from core.show.report.signed import SignatureSection, section, trials_of
from core.show.report.subjects import About
from core.show.sheets import Fact
from core.wire.errors import TunerError
from dashboard import format, messages, state
from dashboard.report.page import html_of
from dashboard.widgets import uploads

PRICE, CURRENCY = "report.price", "report.currency"  # session keys, shared by all pages
SIGNATURE = "report.signature"
DEFAULT_CURRENCY = "USD"
MARKDOWN_PX = 260


def offer(about: Callable[[], About], *, key: str) -> None:
    """Draw the popover; its content is made when somebody opens it.

    Args:
        about: returns the subject of the report; may raise `TunerError`.
        key: of the page's widgets.
    """
    opened = st.popover(
        "Report",
        icon=":material/summarize:",
        key=f"{key}.report",
        on_change="rerun",
        help="This result as one HTML file that opens offline, or as Markdown for a pull request.",
    )
    if not opened.open:
        st.session_state.pop(f"{key}.{SIGNATURE}", None)
        return
    with opened:
        try:
            _inside(about(), key)
        except TunerError as error:
            messages.report(error)


def _inside(about: About, key: str) -> None:
    price = _price(key)
    recorded = state.recorded()
    signature = _signed(about, key)
    said = compose(about, state.store(), price=price, recorded=recorded, signature=signature)
    store = state.store()  # of this person: the file is made in a thread without a session
    st.download_button(
        "Download HTML",
        data=lambda: html_of(about, store, price=price, recorded=recorded, signature=signature),
        file_name=f"{_stem(said)}.html",
        mime="text/html",
        key=f"{key}.report.html",
        icon=":material/download:",
        type="primary",
        on_click="ignore",
        help="Verdict, interactive plots, machine, method, caveats and YAML in one file of "
        "about 5 MiB that works offline.",
    )
    st.caption("Copy as Markdown, for a pull request:")
    st.code(markdown(said), language="markdown", height=MARKDOWN_PX)


def _signed(about: About, key: str) -> SignatureSection:
    """Draw the field of a signed file and what its check found; without a file, that of the store counts."""
    with st.expander("Signed file", icon=":material/signature:"):
        uploaded = st.file_uploader(
            "YAML file or bundle of this result",
            type=["zip", "yaml", "yml"],
            key=f"{key}.report.file",
            max_upload_size=uploads.MOST_CHECKED_MB,
            help="The report states its signature and digests. Without a file, it states those of the bundle "
            "in the store, if there is one.",
        )
        found = _signature(about, key, uploaded)
        if uploaded is not None:
            facts = [one for one in found.parts if isinstance(one, Fact) and one.name != "file"]
            lines = [f"{one.name}: :{one.color or 'gray'}[{format.plain(one.text)}]" for one in facts]
            differing = [one.why for one in found.digests["links"] if one.state == "DIFFERS"]
            st.markdown("  \n".join([*lines, *map(format.plain, differing)]))
    return found


def _signature(about: About, key: str, uploaded: Any) -> SignatureSection:
    """Return the state of the signature and the digests; files are read once for each opening."""
    file = None if uploaded is None else uploaded.file_id
    subject = (type(about).__name__, [one.id for one in trials_of(about)], file)
    kept: tuple[Any, SignatureSection] | None = st.session_state.get(f"{key}.{SIGNATURE}")
    if kept is None or kept[0] != subject:
        with st.spinner("Computing the digests…", show_time=True):
            kept = st.session_state[f"{key}.{SIGNATURE}"] = (subject, _section(about, uploaded))
    return kept[1]


def _section(about: About, uploaded: Any) -> SignatureSection:
    if uploaded is None:
        return section(about, state.store())
    path = uploads.on_disk(uploaded)
    try:
        return section(about, state.store(), file=path, name=uploaded.name)
    finally:
        path.unlink(missing_ok=True)


def _price(key: str) -> Price | None:
    """Draw the fields of the price; None: nobody entered one."""
    left, right = st.columns([3, 2])
    per_hour = left.number_input(
        "Price per hour",
        value=st.session_state.get(PRICE),
        min_value=0.0,
        step=0.01,
        format="%.4g",
        key=f"{key}.{PRICE}",
        placeholder="none",
        help="Adds the cost of a million inferences to the report, with its 95 % interval. It "
        "assumes one session without pauses.",
    )
    currency = right.text_input(
        "Currency",
        value=st.session_state.get(CURRENCY, DEFAULT_CURRENCY),
        max_chars=8,
        key=f"{key}.{CURRENCY}",
        help="Written after the amounts.",
    )
    st.session_state[PRICE], st.session_state[CURRENCY] = per_hour, currency
    return Price(per_hour=per_hour, currency=currency.strip()) if per_hour else None


def _stem(said: Report) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", f"ortune {said.kind} {said.id}").strip("-").lower()[:60]
