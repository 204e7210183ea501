"""The frame of every page: one bar with title, model, choice and primary action; panes below it.

A page fills the bar's places in any sequence; their order is fixed. A page with more than one choice has its
settings in the left pane and its answer in the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import state
from dashboard.pages import PAGES

SETTINGS_PX, MODEL_PX = 340, 220


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The places of a page's bar, from left to right."""

    model: DeltaGenerator
    choice: DeltaGenerator  # model of the page, and which result is shown
    more: DeltaGenerator  # further actions
    action: DeltaGenerator  # the primary one

    def disabled_action(self, label: str, reason: str) -> None:
        """Draw the primary action, disabled, with the reason why nothing can be started."""
        self.action.button(label, key="bar.not_yet", type="primary", disabled=True, help=reason)


def bar(title: str, about: str = "") -> Bar:
    """Draw the bar of a page.

    Args:
        title: of the page.
        about: purpose of the page, on demand.
    """
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="bar"):
        st.title(title, anchor=False, width="content", help=about or None)
        return Bar(
            model=st.container(width=MODEL_PX, key="bar.model"),
            choice=st.container(
                horizontal=True, vertical_alignment="center", gap="small", width="stretch", key="bar.choice"
            ),
            more=st.container(
                horizontal=True, vertical_alignment="center", gap="small", width="content", key="bar.more"
            ),
            action=st.container(width="content", key="bar.action"),
        )


def link(
    page: str, label: str, *, icon: str = "", help: str | None = None, disabled: bool = False, **query: str
) -> None:
    """Draw a link to a page.

    Args:
        page: its name.
        label: of the link.
        icon: name of a Material Symbol; empty: that of the page.
        help: what the page shows then.
        disabled: whether it leads nowhere now.
        query: of its address.
    """
    symbol = f":material/{icon or PAGES[page].icon}:"
    st.page_link(
        PAGES[page].file, label=label, icon=symbol, help=help, disabled=disabled, query_params=query or None
    )


def switch_to(page: str, **query: str) -> NoReturn:
    """End this run and open a page, with a query in its address."""
    st.switch_page(PAGES[page].file, query_params=query or None)


def panes(width: int = SETTINGS_PX) -> tuple[DeltaGenerator, DeltaGenerator]:
    """Return the pane of settings and the pane of the answer; each scrolls by itself on a wide screen.

    Args:
        width: of the settings in pixels.
    """
    with st.container(horizontal=True, gap="medium", key="panes"):
        return st.container(width=width, key="pane.settings"), st.container(key="pane.result", gap="xsmall")


def foot(page: str, action: Callable[[str], None]) -> None:
    """Draw the bottom row of a narrow screen: it opens the settings, and starts the job. Wide ones hide it.

    Args:
        page: begins the keys.
        action: draws the primary action of the page with the given key.
    """
    name = f"{page}.drawer"
    is_open = bool(st.session_state.setdefault(name, False))
    with st.container(horizontal=True, gap="small", key="foot"):
        st.button(
            "Close" if is_open else "Settings",
            key=f"drawer.{'open' if is_open else 'shut'}",
            icon=":material/keyboard_arrow_down:" if is_open else ":material/tune:",
            on_click=state.put,
            args=(name, not is_open),
        )
        action(f"{page}.run.foot")
