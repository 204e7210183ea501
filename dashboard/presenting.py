"""Presenting: followers see a presenter's page in their own sessions.

This process holds the presenter's page, the query of its address and the plain values of its form. A
follower's session loads them before any widget is drawn, and listens to a stream that ends when they change.
The link contains a random token. A presentation ends when the presenter stops, closes the browser or reloads
the page.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from core.wire.errors import SpecError
from dashboard import form_state, live_events, messages, state, url_state
from dashboard.live_events import Event
from dashboard.pages import PAGES
from dashboard.server import live
from dashboard.widgets import live_view

PARAM = "follow"  # ?follow=<token>
CHECK_EVERY_S = (
    0.5  # between two checks for all followers together; a check costs one look-up in a dictionary
)
GRACE_S = 10.0  # a browser that lost its connection may reconnect
COUNT_EVERY_S = 10.0  # between two counts of the followers
MOST, MOST_OWN = 100, 10  # presentations of the server, and of one person
PLACE = "present"  # where the error of a refused presentation is shown
_INERT = Path(__file__).with_name("following.css")

# session keys, none of them saved with the form
PRESENTING = "follow.presenting"  # token of this session's presentation
JUST_BEGUN = "follow.begun"  # it has just begun: show its link
LOADED_VERSION = "follow.taken"  # version of the presenter's state that this session has loaded
ENDED = "follow.ended"  # the presentation that this session followed has ended


@dataclass(slots=True)
class Place:
    """The state of a presenter's page."""

    session: str  # id of the presenter's session
    person: str = ""  # the presenter; empty: a server without login
    page: str = ""  # path of the page, as in its address
    query: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # form values, as `form_state` saves them
    measuring: bool = False  # a measurement was running when its page was drawn
    withheld: bool = False  # query and values are empty, because they name private results
    version: int = 0  # number of changes
    gone_since: float | None = None  # monotonic time since which the presenter's browser is disconnected


class Presentations:
    """All presentations of this server. Thread-safe."""

    def __init__(self) -> None:
        """Begin without presentations."""
        self._lock = threading.Lock()
        self._places: dict[str, Place] = {}

    def begin(self, session: str, person: str = "") -> str:
        """Begin a presentation, and return its token.

        Args:
            session: id of the presenter's session.
            person: who presents; empty: a server without login.

        Raises:
            SpecError: this person, or the server, has as many as it may have.
        """
        token = secrets.token_urlsafe(16)
        with self._lock:
            self._places = {name: one for name, one in self._places.items() if not self._is_over(one)}
            own = sum(one.person == person for one in self._places.values()) if person else 0
            if own >= MOST_OWN:
                raise SpecError(
                    f"You have {own} presentations, and a person may have {MOST_OWN} at once.",
                    hint="End one: press Stop presenting, or close its page.",
                )
            if len(self._places) >= MOST:
                raise SpecError(
                    f"There are {len(self._places)} presentations, and this server may have {MOST} at once.",
                    hint="Try again when one has ended.",
                )
            self._places[token] = Place(session=session, person=person)
        return token

    def end(self, token: str) -> None:
        """End a presentation."""
        with self._lock:
            self._places.pop(token, None)

    def tell(
        self,
        token: str,
        page: str,
        query: Mapping[str, str],
        values: Mapping[str, Any],
        *,
        measuring: bool,
        withheld: bool = False,
    ) -> None:
        """Update the presenter's state, and whether a measurement runs; `withheld` as in `Place`."""
        with self._lock:
            place = self._places.get(token)
            now = (page, dict(query), dict(values), measuring, withheld)
            if place is None or now == (
                *(place.page, place.query, place.values),
                *(place.measuring, place.withheld),
            ):
                return
            place.page, place.query, place.values, place.measuring, place.withheld = now
            place.version += 1

    def find(self, token: str) -> Place | None:
        """Return the presenter's state; None: the presentation does not exist or has ended."""
        with self._lock:
            known = next((one for one in self._places if hmac.compare_digest(one, token)), None)
            if known is None or self._is_over(self._places[known]):
                self._places.pop(known or "", None)
                return None
            return self._places[known]

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
    """Return the presentations of this server."""
    return Presentations()


# --- followers ----------------------------------------------------------------------------------------------


def follow_from_address() -> None:
    """Follow the presentation that the address names and load its form; call before any widget is drawn."""
    token = _linked()
    if not token:
        return
    if token == st.session_state.get(PRESENTING):  # the presenter opened the link
        st.query_params.pop(PARAM, None)
        return
    place = presentations().find(token)
    if place is None:
        st.session_state.pop(state.FOLLOWING, None)
        st.query_params.pop(PARAM, None)
        st.session_state[ENDED] = True
        return
    st.session_state[state.FOLLOWING] = token
    st.session_state[LOADED_VERSION] = place.version
    form_state.replace_form(place.values)


def _linked() -> str:
    return st.query_params.get(PARAM) or st.session_state.get(state.FOLLOWING) or ""


def open_presenter_page(page: str) -> None:
    """Open the presenter's page and say so; call before the page is drawn, after the pages are known.

    Args:
        page: path of the page that this run would otherwise draw.
    """
    if st.session_state.pop(ENDED, None):
        st.info(
            "The presentation has ended. You can use this page again.",
            icon=":material/co_present:",
        )
    token = st.session_state.get(state.FOLLOWING)
    place = presentations().find(token) if token else None
    if token is None or place is None:
        return
    wanted = {**place.query, PARAM: token}
    if place.page and place.page != (page or HOME):
        st.switch_page(PAGES[place.page].file, query_params=wanted)
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)
    st.html(_INERT)
    st.info(
        "**You are following a presenter.** Your page shows theirs; you cannot change anything.",
        icon=":material/co_present:",
    )


HOME = next(iter(PAGES))  # the page without a path


def _stream(token: str) -> str:
    """Return the prefix of a presentation's stream names; it must not reveal the token."""
    return f"follow-{hashlib.sha256(token.encode()).hexdigest()[:16]}-"


def _event(token: str, version: int) -> Event:
    """Return the event for a follower with this version: nothing, until there is another version."""
    place = presentations().find(token)
    gone = place is None or place.version != version
    return live_events.ENDED if gone else {"ended": False, "state": "waiting"}


# --- presenter ----------------------------------------------------------------------------------------------


def tell(page: str) -> None:
    """Update this session's presentation, if it has one; call after the page is drawn."""
    token = st.session_state.get(PRESENTING)
    if token:
        query = {key: value for key, value in st.query_params.items() if key not in (PARAM, form_state.PARAM)}
        measuring, values = bool(state.scheduler().active()), form_state.collect()
        withheld = state.present_actor() is not None and _is_private([query, values])
        told = ({}, {}) if withheld else (query, values)
        presentations().tell(token, page or HOME, *told, measuring=measuring, withheld=withheld)


def _is_private(told: object) -> bool:
    """Whether values name a private result or model: by its id, hash or path, or a model by its name."""
    texts = set(form_state.texts_in(told))
    store = state.store()
    ids = {*texts, *(word for text in texts for word in text.split())}
    return bool(store.for_person("", sees_all=False).hidden(ids)) or any(
        name in text for name in store.private_model_names() for text in texts
    )


def sidebar() -> None:
    """Draw the button that begins or ends a presentation, or that stops following."""
    if st.session_state.get(state.FOLLOWING):
        st.button(
            "Stop following",
            key="follow.stop",
            icon=":material/logout:",
            type="tertiary",
            on_click=_leave,
            help="Lets you use this page yourself again.",
        )
        _listen(str(st.session_state[state.FOLLOWING]), int(st.session_state.get(LOADED_VERSION, 0)))
        return
    token = st.session_state.get(PRESENTING)
    if token is None:
        st.button(
            "Present",
            key="follow.present",
            icon=":material/co_present:",
            type="tertiary",
            on_click=_begin,
            help="Creates a link. Viewers see the pages that you open and cannot change anything.",
        )
        messages.show_kept_error(PLACE)
        return
    st.badge("Presenting", icon=":material/co_present:", color="green")
    again = st.button("Link", key="follow.link", icon=":material/link:", type="tertiary")
    if st.session_state.pop(JUST_BEGUN, False) or again:
        _show_link(token)
    _followers(token)
    st.button(
        "Stop presenting",
        key="follow.end",
        icon=":material/stop_circle:",
        type="tertiary",
        on_click=_end,
        help="Ends the link. Viewers keep the page that they see.",
    )


def _listen(token: str, version: int) -> None:
    """Rerun this page as soon as the presenter's state changes."""
    name, follow = f"{_stream(token)}{version}", partial(_event, token, version)
    live_view.watch(name, follow, of=(), key="follow.watch", tick_s=CHECK_EVERY_S)


def _followers(token: str) -> None:
    count = partial(_count, token)
    name = f"{_stream(token)}count"
    live_view.watch(name, count, of=(), key="follow.count", ask_s=COUNT_EVERY_S, rerun=False)


def _count(token: str) -> Event:
    """Say, for the presenter, how many followers there are."""
    many = live.STREAMS.listeners(_stream(token))
    said = "No viewers yet." if not many else f"{many:,} viewer{'s' * (many != 1)}."
    place = presentations().find(token)
    private = " They do not see your private results." if place is not None and place.withheld else ""
    text = f"{said}{private} It ends when you close or reload this page."
    return {"ended": False, "state": "waiting", "lines": [{"text": text, "small": True}]}


@st.dialog("Presentation link", icon=":material/co_present:")
def _show_link(token: str) -> None:
    st.markdown("Viewers who open this address see what you see and cannot change anything.")
    st.code(url_state.link({PARAM: token}), language=None, wrap_lines=True)


def _begin() -> None:
    actor = state.present_actor()
    try:
        token = presentations().begin(_session(), "" if actor is None else actor.person)
    except SpecError as error:
        messages.keep_error(error, PLACE)
        return
    st.session_state[PRESENTING] = token
    st.session_state[JUST_BEGUN] = True


def _end() -> None:
    presentations().end(st.session_state.pop(PRESENTING, ""))


def _leave() -> None:
    st.session_state.pop(state.FOLLOWING, None)
    st.query_params.pop(PARAM, None)


def _session() -> str:
    context = get_script_run_ctx()
    return context.session_id if context is not None else ""
