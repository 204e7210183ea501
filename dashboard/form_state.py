"""What was typed and chosen, kept longer than a session: a reload finds it again, a link shows it to others.

The browser begins a new session with every reload. So the plain wishes of a session are written to a small
file under ORTune's home, and its name stands in the address (`?form=…`). A session writes one file of its
own, over and over; what it was opened with is left alone, so that two tabs never share one.
A link is a file of its own that nobody writes to again. A disk that takes no more costs the reload, not the
session.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from core import __version__
from core.store import home
from dashboard import fields, state
from dashboard.widgets import dataset, protocol

PARAM = "form"
MOST = 2000  # files; the oldest go first
SPARE = 100  # files above that before any is removed

# keys of the session, none of them kept
_READ = "draft.read"  # the address was looked at
_OWN = "draft.own"  # name of the file that this session writes
_NAME = "draft.name"  # name of the file that holds what this session holds
_TEXT = "draft.text"  # what stands in it
_PAGE = "draft.page"  # path of the page that was drawn last

_ID = re.compile(r"[0-9a-f]{16}")
_KEPT = re.compile(
    r"model|trial|applied|trial\.of"
    r"|knob\..+|options?\..+|dim\..+|value\..+"
    r"|protocol\.wait_(quiet|minutes)"
    rf"|({dataset.LABELLED}|{dataset.CALIBRATION})\.({'|'.join(dataset.FIRST_VALUES)})"
    r"|scorecard\.(models|of_family|settings|precision|jobs|taken|targets|looked|linked|target\..+)"
    r"|accuracy\.(chosen|of_family|last|settings|batch|job|looked|linked|view|into|reference|accepted|metric"
    r"|positive|level)"
    r"|compare\.(entries|of_model|baseline|precision|margin|budget|duels|shown|shown_of|applied|followed|closed)"
    r"|curves\.(axis|second|values\..+|again|study|applied|looked|line_ms|statistic|view\.[12]|ghosts)"
    r"|profile\.(source|measured|runs|linked|view|search)"
    r"|search\.(objective|second|weight|limits|same_latency|budget_s|precision|extend|give_way|variants"
    r"|fixed|never|strategy|warm_start|seed|study|study\.of|applied)"
    r"|graph\.(source|linked|view|color|search)"
    r"|why\.(baseline|candidate|linked|job|view|search|looked)"
    r"|variants\.(chain|name|calibration|view|shown|linked|racers|offered|precision|job\..+)"
    r"|step\.[0-9a-f]{6}\..+"
    r"|history\.(model|kind|state|search)"
    r"|export\.(source|linked|accepted\..+)"
)
_NEVER = (fields.key("expert"),)  # nobody switches it on for another by a link


def restore() -> None:
    """Take up the form that the address names, once in a session, before any widget is drawn."""
    if st.session_state.get(_READ):
        return
    st.session_state[_READ] = True
    name = st.query_params.get(PARAM)
    if not name:
        return
    values = _load(name)
    if values is None:
        st.query_params.pop(PARAM, None)
        st.toast("The settings of this link are no longer stored.", icon=":material/link_off:")
        return
    for key, value in values.items():
        if _is_kept(key) and key not in st.session_state:
            st.session_state[key] = value
    st.session_state[_NAME], st.session_state[_TEXT] = name, _as_text(collect())


def take(values: Mapping[str, Any]) -> None:
    """Make the form of this session the given one, before any widget is drawn.

    Args:
        values: from `collect`, of another session.
    """
    usual = _usual()
    for key in [str(key) for key in st.session_state if _is_kept(str(key))]:
        if key in values:
            continue
        if key in usual:
            st.session_state[key] = usual[key]
        else:
            del st.session_state[key]
    for key, value in values.items():
        if _is_kept(key):
            st.session_state[key] = value


def carry(page: str) -> None:
    """Take the values along to another page, before its widgets are drawn.

    A value that only the script has set is lost on the way: the widget of the same key there begins at
    nothing (Streamlit 1.67), which would then count as typed.

    Args:
        page: path of the page that is drawn now.
    """
    if st.session_state.get(_PAGE) == page:
        return
    st.session_state[_PAGE] = page
    for key in [str(key) for key in st.session_state if _KEPT.fullmatch(str(key))]:
        st.session_state[key] = st.session_state[key]


def keep() -> None:
    """Write what changed, and see that the address names it."""
    text = _as_text(collect())
    if text != st.session_state.get(_TEXT, _as_text({})):
        own = st.session_state.setdefault(_OWN, secrets.token_hex(8))
        if not _write(own, text):
            return
        st.session_state[_NAME], st.session_state[_TEXT] = own, text
    name = st.session_state.get(_NAME)
    if name and st.query_params.get(PARAM) != name:
        st.query_params[PARAM] = name


def link() -> str:
    """Return an address of this page that opens it as it is now, whatever this session does later."""
    text = _as_text(collect())
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    shared = {PARAM: name} if _write(name, text) else {}
    here = urlsplit(st.context.url or "")
    others = {key: value for key, value in st.query_params.items() if key != PARAM}
    return urlunsplit((here.scheme, here.netloc, here.path or "/", urlencode({**others, **shared}), ""))


def button() -> None:
    """Draw the button that shows the address."""
    if st.button(
        "Link to this page",
        key="draft.link",
        icon=":material/link:",
        type="tertiary",
        help="An address that opens this page with its current settings and result.",
    ):
        _show()


@st.dialog("Link to this page", icon=":material/link:")
def _show() -> None:
    st.code(link(), language=None, wrap_lines=True)
    st.caption("Works on this server. Later changes do not alter the link.")


# --- values -------------------------------------------------------------------------------------------------


def _is_kept(key: str) -> bool:
    return _KEPT.fullmatch(key) is not None and key not in _NEVER


def collect() -> dict[str, Any]:
    """The plain values of this session that differ from what a new session begins with."""
    have = {str(key): value for key, value in st.session_state.items() if _is_kept(str(key))}
    if have.get(state.MODEL) == st.session_state.get(state.FALLBACK):
        have.pop(state.MODEL, None)
    usual = _usual()
    return {
        key: value
        for key, value in have.items()
        if _is_plain(value) and not (key in usual and usual[key] == value) and not _is_empty(key, value)
    }


def _is_empty(key: str, value: Any) -> bool:
    """Whether a field of no known default asks for nothing: an option, or a fixed value of an input."""
    return key.startswith(("option.", "options.", "value.")) and value in ("", None, fields.DEFAULT)


def _usual() -> Mapping[str, Any]:
    named = {
        dataset.key(prefix, name): value
        for prefix in (dataset.LABELLED, dataset.CALIBRATION)
        for name, value in dataset.FIRST_VALUES.items()
    }
    nothing = dict.fromkeys((state.TRIAL, state.TRIAL_OF))
    waiting = {protocol.WAIT: False, protocol.MINUTES: protocol.DEFAULT_MINUTES}
    return {**fields.defaults(), **named, **nothing, **waiting}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, str | int | float)


def _as_text(values: Mapping[str, Any]) -> str:
    return json.dumps({"version": __version__, "values": values}, sort_keys=True)


# --- files --------------------------------------------------------------------------------------------------


def _folder() -> Path:
    return home() / "forms"


def _load(name: str) -> dict[str, Any] | None:
    """The values of a file; None where there is none, or another version wrote it."""
    if not _ID.fullmatch(name):
        return None
    try:
        data = json.loads((_folder() / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or data.get("version") != __version__:
        return None
    values = data.get("values")
    return values if isinstance(values, dict) else None


def _write(name: str, text: str) -> bool:
    """Write a file as a whole; False where the disk does not take it."""
    folder = _folder()
    temporary = folder / f".{name}-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(folder / f"{name}.json")
        _remove_oldest(folder)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        return False
    return True


def _remove_oldest(folder: Path) -> None:
    found = list(folder.glob("*.json"))
    if len(found) <= MOST + SPARE:
        return
    for path in sorted(found, key=lambda one: one.stat().st_mtime)[:-MOST]:
        path.unlink(missing_ok=True)
