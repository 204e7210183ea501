"""The chain of digests as a picture: model, variant, result, measurements, YAML file and bundle."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st

from core.api.provenance import DigestChain, provenance
from core.show.sheets.provenance import COLORS, LINK_WORDS, WORDS, links_table
from core.wire.errors import TunerError
from core.wire.plain_data import plain
from dashboard import format, messages, state, url_state
from dashboard.views.export import verifying
from dashboard.widgets import tables, uploads

FILE = "export.digests.file"
FOUND = "export.digests.found"  # session key: what was checked, its chain, and when
BOX_PX = 190
DIGITS = 64  # of a whole digest
_ICONS = {"MATCHES": ":material/check_circle:", "DIFFERS": ":material/cancel:", "MISSING": ":material/help:"}


def draw() -> None:
    """Draw the chain of the trial in the address, or of an uploaded file."""
    uploaded = st.file_uploader(
        "YAML file or bundle",
        type=["zip", "yaml", "yml"],
        key=FILE,
        max_upload_size=uploads.MOST_CHECKED_MB,
        help="The chain then ends in this file. Without a file, it ends in the bundle that was created here.",
    )
    trial = url_state.named(state.TRIAL_PARAM) or ""
    if uploaded is None and not trial:
        st.info(
            "No result is chosen. Choose one in the tab Download or in History, or a file here.",
            icon=":material/info:",
        )
        return
    try:
        chain, at = _checked(trial, uploaded)
    except TunerError as error:
        messages.report(error, "The digests were not checked")
        return
    _picture(chain, at)


def _checked(trial: str, uploaded: Any) -> tuple[DigestChain, float]:
    """Return the chain and when it was checked; files are read once, until the user asks again."""
    bundle = None if uploaded is not None else _bundle(trial)
    source = (trial, getattr(uploaded, "file_id", ""), bundle and (str(bundle), bundle.stat().st_mtime_ns))
    kept = st.session_state.get(FOUND)
    if kept is None or kept[0] != source:
        with st.spinner("Computing the digests of all files…", show_time=True):
            chain = _of_upload(uploaded) if uploaded is not None else _chain(bundle or trial)
        kept = st.session_state[FOUND] = (source, chain, time.time())
    return kept[1], kept[2]


def _chain(ref: str | Path) -> DigestChain:
    return provenance(ref, session=state.session()).record


def _of_upload(uploaded: Any) -> DigestChain:
    path = uploads.on_disk(uploaded)
    try:
        return replace(_chain(path), file=str(uploaded.name))
    finally:
        path.unlink(missing_ok=True)


def _bundle(trial: str) -> Path | None:
    """Return the bundle of a trial that the tab Download created.

    Raises:
        StoreError: there is no such trial, or it is private.
    """
    path = state.store().artifact_path(state.store().trial_id(trial), "bundle.zip")
    return path if path.is_file() else None


def _picture(chain: DigestChain, at: float) -> None:
    of = chain.file or f"Trial {(chain.trial or '')[:8]}"
    st.subheader(f"{format.plain(of)}: {WORDS[chain.state]}", anchor=False)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="export.chain"):
        for number, link in enumerate(chain.links):
            if number:
                st.markdown("→", width="content")
            with st.container(border=True, width=BOX_PX, key=f"export.chain.{number}"):
                st.markdown(f"**{format.plain(link.name[0].upper() + link.name[1:])}**")
                st.badge(LINK_WORDS[link.state], icon=_ICONS[link.state], color=COLORS[link.state])
                st.caption(format.plain(link.why))
    if chain.signature is not None:
        verifying.signature(plain(chain.signature))
    with st.expander("Digests", icon=":material/tag:", key="export.digests"):
        tables.draw(links_table(chain, digits=DIGITS), key="export.digests.table", alt="Digests of the chain")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Check again",
            key="export.digests.again",
            icon=":material/refresh:",
            on_click=_forget,
            help="Reads all files again.",
        )
        st.caption(f"Checked {format.when(at)}.", width="content")


def _forget() -> None:
    st.session_state.pop(FOUND, None)
