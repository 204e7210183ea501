"""A presenter whom others follow: their pages show what the presenter's shows, and they can only look.

Where the presenter is stands in this process: the page, what its address names, and the plain values of the
form. A follower takes it up before any widget is drawn, and looks again every second. The link holds a token
that nobody guesses. It ends when the presenter stops, closes the browser or reloads the page.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard import drafts, state

PARAM = "follow"  # ?follow=<token>
LOOK_S = 1.0  # between two looks of a follower; it costs a look into a dictionary
MEASURING_S = 4.0  # while something is measured, which a browser on the same machine disturbs by each look
GRACE_S = 10.0  # a browser that lost its connection may come back
STILL_S = 10.0  # a follower who has not looked for so long is counted no more
MOST = 100  # presentations of one server
_INERT = Path(__file__).with_name("following.css")

# keys of the session, none of them kept in a draft
PRESENTING = "follow.presenting"  # token of the presentation that this session gives
BEGUN = "follow.begun"  # it has just begun: its link is to be shown
TAKEN = "follow.taken"  # the version of the place that this session has taken up
ENDED = "follow.ended"  # a presentation that this session followed is over


@dataclass(slots=True)
class Place:
    """Where a presenter is."""

    session: str  # id of the presenter's
    page: str = ""  # path of the page, as its address has it
    query: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # of the form, as a draft keeps them
    measuring: bool = False  # something was, when its page was drawn
    version: int = 0  # counts what has changed
    gone_since: float | None = None  # monotonic: the presenter's browser is away
    followers: dict[str, float] = field(default_factory=dict)  # session -> when it last looked


class Presentations:
    """All that are given on this server. Safe from any thread."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._places: dict[str, Place] = {}

    def begin(self, session: str) -> str:
        """Give a new presentation, and return its token."""
        token = secrets.token_urlsafe(16)
        with self._lock:
            while len(self._places) >= MOST:  # nobody follows the oldest any more, or somebody plays
                del self._places[next(iter(self._places))]
            self._places[token] = Place(session=session)
        return token

    def end(self, token: str) -> None:
        """End a presentation."""
        with self._lock:
            self._places.pop(token, None)

    def tell(
        self, token: str, page: str, query: Mapping[str, str], values: Mapping[str, Any], *, measuring: bool
    ) -> None:
        """Say where the presenter is now, and whether something is measured, whose end they see with it."""
        with self._lock:
            place = self._places.get(token)
            now = (page, dict(query), dict(values), measuring)
            if place is None or (place.page, place.query, place.values, place.measuring) == now:
                return
            place.page, place.query, place.values, place.measuring = now
            place.version += 1

    def find(self, token: str, follower: str = "") -> Place | None:
        """Return where the presenter is; None: there is no such presentation, or it is over."""
        with self._lock:
            known = next((one for one in self._places if hmac.compare_digest(one, token)), None)
            if known is None or self._is_over(self._places[known]):
                self._places.pop(known or "", None)
                return None
            place = self._places[known]
            if follower:
                place.followers[follower] = time.monotonic()
            return place

    def count(self, token: str) -> int:
        """Return how many follow now."""
        with self._lock:
            place = self._places.get(token)
            seen = place.followers.values() if place is not None else ()
            return sum(time.monotonic() - at < STILL_S for at in seen)

    @staticmethod
    def _is_over(place: Place) -> bool:
        if not runtime.exists() or runtime.get_instance().is_active_session(place.session):
            place.gone_since = None
            return False
        now = time.monotonic()
        place.gone_since = now if place.gone_since is None else place.gone_since
        return now - place.gone_since > GRACE_S


@st.cache_resource(show_spinner=False)
def presentations() -> Presentations:
    """Those of this server."""
    return Presentations()


# --- who follows --------------------------------------------------------------------------------------------


def take_up() -> None:
    """Begin to follow where the address says so, and take the presenter's form; before any widget."""
    token = _linked()
    if not token:
        return
    if token == st.session_state.get(PRESENTING):  # the presenter tries the link
        st.query_params.pop(PARAM, None)
        return
    place = presentations().find(token, _session())
    if place is None:
        st.session_state.pop(state.FOLLOWING, None)
        st.query_params.pop(PARAM, None)
        st.session_state[ENDED] = True
        return
    st.session_state[state.FOLLOWING] = token
    st.session_state[TAKEN] = place.version
    drafts.take(place.values)


def _linked() -> str:
    return st.query_params.get(PARAM) or st.session_state.get(state.FOLLOWING) or ""


def mirror(page: str) -> None:
    """Go where the presenter is, and say so; before the page is drawn, after the pages are known.

    Args:
        page: path of the page that this run would draw.
    """
    if st.session_state.pop(ENDED, None):
        st.info(
            "The presentation is over. From here on you look around by yourself.",
            icon=":material/co_present:",
        )
    token = st.session_state.get(state.FOLLOWING)
    place = presentations().find(token, _session()) if token else None
    if token is None or place is None:
        return
    wanted = {**place.query, PARAM: token}
    if place.page and place.page != (page or HOME):
        st.switch_page(f"views/{place.page}/page.py", query_params=wanted)
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)
    st.html(_INERT)
    st.info(
        "**You follow a presenter.** This page shows what theirs shows; you cannot change anything.",
        icon=":material/co_present:",
    )
    look_s = MEASURING_S if state.scheduler().active() else LOOK_S
    st.fragment(_watch, run_every=look_s)(token, place.version)


HOME = "tune"  # the page without a path


def _watch(token: str, version: int) -> None:
    place = presentations().find(token, _session())
    if place is None or place.version != version:
        st.rerun()


# --- who presents -------------------------------------------------------------------------------------------


def tell(page: str) -> None:
    """Say where this session is, where it presents; after the page was drawn."""
    token = st.session_state.get(PRESENTING)
    if token:
        query = {key: value for key, value in st.query_params.items() if key not in (PARAM, drafts.PARAM)}
        measuring = bool(state.scheduler().active())
        presentations().tell(token, page or HOME, query, drafts.collect(), measuring=measuring)


def sidebar() -> None:
    """Draw the button that begins or ends a presentation, or the one that ends following."""
    if st.session_state.get(state.FOLLOWING):
        st.button(
            "Stop following",
            key="follow.stop",
            icon=":material/logout:",
            type="tertiary",
            on_click=_leave,
            help="This page is yours again.",
        )
        return
    token = st.session_state.get(PRESENTING)
    if token is None:
        st.button(
            "Present",
            key="follow.present",
            icon=":material/co_present:",
            type="tertiary",
            on_click=_begin,
            help="Gives you a link. Whoever opens it sees the pages that you see, and can change nothing.",
        )
        return
    st.badge("Presenting", icon=":material/co_present:", color="green")
    if st.button(
        "Link", key="follow.link", icon=":material/link:", type="tertiary", help="Show it again."
    ) or (st.session_state.pop(BEGUN, False)):
        _show_link(token)
    _followers(token)
    st.button(
        "Stop presenting",
        key="follow.end",
        icon=":material/stop_circle:",
        type="tertiary",
        on_click=_end,
        help="The link ends; those who follow keep the page that they see.",
    )


@st.fragment(run_every=STILL_S)
def _followers(token: str) -> None:
    many = presentations().count(token)
    said = "Nobody follows yet." if not many else f"{many:,} follow{'s' * (many == 1)}."
    st.caption(f"{said} It ends when you close or reload this page.")


@st.dialog("Presentation link", icon=":material/co_present:")
def _show_link(token: str) -> None:
    st.markdown("Whoever opens this address sees what you see, and can change nothing.")
    st.code(_link(token), language=None, wrap_lines=True)


def _begin() -> None:
    st.session_state[PRESENTING] = presentations().begin(_session())
    st.session_state[BEGUN] = True


def _end() -> None:
    presentations().end(st.session_state.pop(PRESENTING, ""))


def _leave() -> None:
    st.session_state.pop(state.FOLLOWING, None)
    st.query_params.pop(PARAM, None)


def _link(token: str) -> str:
    here = urlsplit(st.context.url or "")
    prefix = st.get_option("server.baseUrlPath").strip("/")
    path = f"/{prefix}/" if prefix else "/"
    return urlunsplit((here.scheme, here.netloc, path, urlencode({PARAM: token}), ""))


def _session() -> str:
    context = get_script_run_ctx()
    return context.session_id if context is not None else ""
