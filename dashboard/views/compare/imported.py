"""Imported results of onnxruntime_perf_test: listed next to a comparison, never part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from core.evidence.comparison import Comparison
from core.show.sheets import imported as sheets
from core.store.imported import Imported
from core.wire.errors import TunerError
from dashboard import format, messages, state
from dashboard.widgets import sharing, tables, uploads

OPEN = "compare.elsewhere.open"
CHOSEN = "compare.elsewhere.chosen"


def draw(shown: Comparison | None) -> None:
    """Draw the imported results next to those measured here, and the import form."""
    imports = state.store().shelf.all("summary")
    label = f"Imported results: {len(imports)}" if imports else "Import a result"
    with st.expander(label, icon=":material/move_to_inbox:", expanded=bool(imports), key=OPEN):
        one = uploads.evidence(
            "compare",
            "Output or result file of onnxruntime_perf_test",
            hint="A text file. Only the result file has raw latencies, and so intervals.",
            wanted="summary",
        )
        if one is not None:
            st.rerun()
        if imports:
            _table(imports, shown)
            _remove(imports)


def _table(imports: list[Imported], shown: Comparison | None) -> None:
    st.warning(format.plain(sheets.UNKNOWN), title="Imported", icon=":material/move_to_inbox:")
    entries: list[tuple[str, Mapping[str, Any]]] = []
    notes: list[str] = []
    for one in imports:
        try:
            found = state.store().shelf.data(one.id)
        except TunerError as error:
            messages.report(error)
            continue
        entries.append((f"{one.label} ({one.id[:8]})", found))
        notes += [f"{one.name}: {sheets.basis_text(found)}"]
    tables.draw(
        sheets.table(entries, _here(shown)),
        key="compare.elsewhere.table",
        alt="Latencies of imported results beside those measured here",
    )
    st.caption(format.plain(" ".join(notes)))
    if shown is not None:
        st.caption("Imported results were measured elsewhere, so there is no ratio and no verdict.")


def _here(shown: Comparison | None) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the configurations of the shown comparison with their latencies."""
    if shown is None:
        return []
    names = {one.trial: one.label for one in shown.contestants}
    return [
        (f"measured here: {names.get(trial.id, trial.id[:8])}", trial.facts["latency"])
        for trial in state.store().trials_of(shown.id)
        if trial.facts.get("latency")
    ]


def _remove(imports: list[Imported]) -> None:
    labels = {
        one.id: f"{one.label} · imported {format.when(one.created_at)} · {one.id[:8]}" for one in imports
    }

    def remove() -> None:
        try:
            state.store().shelf.delete(str(st.session_state[CHOSEN]))
        except TunerError as error:
            messages.keep_error(error)

    with st.container(horizontal=True, vertical_alignment="bottom"):
        one = st.selectbox(
            "Import",
            list(labels),
            key=CHOSEN,
            format_func=lambda one: labels.get(one, str(one)),
            help="To remove, or to share. Results measured here are kept.",
        )
        chosen = [] if one is None else [one]
        st.button(
            "Remove import",
            key="compare.import.remove",
            icon=":material/delete:",
            on_click=remove,
            **sharing.unless_of_others(chosen, ""),
        )
        sharing.button(chosen, key="compare.import.share", more="")
