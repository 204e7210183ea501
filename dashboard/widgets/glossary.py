"""The glossary, one press away from where its terms are used."""

from __future__ import annotations

import streamlit as st

from core.show.glossary import TERMS
from dashboard import format


def button() -> None:
    """Draw the button that opens the whole glossary."""
    if st.button(
        "Glossary",
        key="glossary",
        icon=":material/menu_book:",
        type="tertiary",
        help="Definitions of the terms on these pages.",
    ):
        _show()


@st.dialog("Glossary", icon=":material/menu_book:", width="large")
def _show() -> None:
    wanted = st.text_input("Find", key="glossary.find", placeholder="round, p95, grade …").strip().lower()
    found = [(term, text) for term, text in TERMS.items() if wanted in f"{term} {text}".lower()]
    if not found:
        st.caption(f"No entry for {format.code(wanted[:40])}.")
    _draw(found)


def terms(*chosen: str) -> None:
    """Draw the meaning of some terms, inside an opened element.

    Args:
        chosen: keys of the glossary.
    """
    _draw([(term, TERMS[term]) for term in chosen])


def _draw(found: list[tuple[str, str]]) -> None:
    st.markdown("\n".join(f"- **{term}**: {format.plain(text)}" for term, text in found))
