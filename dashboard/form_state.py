"""Form values kept longer than a session: a reload restores them, a link shares them.

The browser begins a new session with every reload. Therefore the plain values of a session's form are written
to a small file under ORTune's home, whose name is in the address (`?form=…`). A session writes only a file of
its own and never the one it was opened with, so two tabs never share a file. A link is a separate file that
is never written again. When the disk is full, a reload loses the values; the session goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from core import __version__
from core.store import home
from core.wire.files import made_private, written_whole
from dashboard import fields, state
from dashboard.pages import PAGES
from dashboard.widgets import dataset, protocol

PARAM = "form"
MOST = 2000  # files; the oldest go first
EVERY = 100  # writes of this process between removals of the oldest: listing the files takes milliseconds

# session keys, none of them saved
_READ = "draft.read"  # the address has been read
_OWN = "draft.own"  # name of the file that this session writes
_NAME = "draft.name"  # name of the file with the present values of this session
_TEXT = "draft.text"  # its content
_PAGE = "draft.page"  # path of the page drawn last

_ID = re.compile(r"[0-9a-f]{16}")
_SHOWN = r"[a-z_.]+\.(shown|linked)(\.of)?"  # of `ShownResult`
_KEPT = re.compile(
    rf"model|{_SHOWN}"
    r"|knob\..+|options?\..+|dim\..+|value\..+"
    r"|protocol\.wait_(quiet|minutes)"
    rf"|({dataset.LABELLED}|{dataset.CALIBRATION})\.({'|'.join(dataset.FIRST_VALUES)})"
    r"|step\.[0-9a-f]{6}\..+" + "".join(rf"|{one.name}\.({one.kept})" for one in PAGES.values() if one.kept)
)
_NEVER_KEPT = (fields.key("expert"),)  # a link must not switch it on for another person


def restore() -> None:
    """Load the form that the address names, once per session, before any widget is drawn."""
    if st.session_state.get(_READ):
        return
    st.session_state[_READ] = True
    name = st.query_params.get(PARAM)
    if not name:
        return
    values = _load(name)
    if values is not None and state.store().hidden(texts_in(values)):
        values = None  # of another person's private result
    if values is None:
        st.query_params.pop(PARAM, None)
        st.toast(
            "The settings of this link are no longer stored, or belong to a private result.",
            icon=":material/link_off:",
        )
        return
    for key, value in values.items():
        if _is_kept(key) and key not in st.session_state:
            st.session_state[key] = value
    st.session_state[_NAME], st.session_state[_TEXT] = name, _as_text(collect())


def replace_form(values: Mapping[str, Any]) -> None:
    """Replace the form of this session by `values`, before any widget is drawn.

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


def keep_over_pages(page: str) -> None:
    """Keep the values when the page changes, before its widgets are drawn.

    Without it a value that only the script has set is lost: the widget of the same key on the next page
    starts empty (Streamlit 1.67), and that would count as typed.

    Args:
        page: path of the page to draw.
    """
    if st.session_state.get(_PAGE) == page:
        return
    st.session_state[_PAGE] = page
    for key in [str(key) for key in st.session_state if _KEPT.fullmatch(str(key))]:
        st.session_state[key] = st.session_state[key]


def keep() -> None:
    """Save what changed, and put the file's name into the address."""
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
    """Return an address that opens this page with its present form, whatever this session does later."""
    text = _as_text(collect())
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    shared = {PARAM: name} if _write(name, text) else {}
    here = urlsplit(st.context.url or "")
    others = {key: value for key, value in st.query_params.items() if key != PARAM}
    return urlunsplit((here.scheme, here.netloc, here.path or "/", urlencode({**others, **shared}), ""))


def button() -> None:
    """Draw the button that shows the link."""
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
    return _KEPT.fullmatch(key) is not None and key not in _NEVER_KEPT


def collect() -> dict[str, Any]:
    """Return the plain values of this session that differ from those of a new session."""
    have = {key: value for key, value in st.session_state.to_dict().items() if _is_kept(key)}
    if have.get(state.MODEL) == st.session_state.get(state.FALLBACK):
        have.pop(state.MODEL, None)
    usual = _usual()
    return {
        key: value
        for key, value in have.items()
        if _is_plain(value) and not (key in usual and usual[key] == value) and not _is_empty(key, value)
    }


def _is_empty(key: str, value: Any) -> bool:
    """Whether a key without a known default says nothing: no result, an empty option or fixed value."""
    if re.fullmatch(_SHOWN, key):
        return value is None
    return key.startswith((*fields.OPTIONS, "value.")) and value in ("", None, fields.DEFAULT)


def _usual() -> Mapping[str, Any]:
    named = {
        dataset.key(prefix, name): value
        for prefix in (dataset.LABELLED, dataset.CALIBRATION)
        for name, value in dataset.FIRST_VALUES.items()
    }
    waiting = {protocol.WAIT: False, protocol.MINUTES: protocol.DEFAULT_MINUTES}
    return {**fields.defaults(), **named, **waiting}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, str | int | float)


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts in plain values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from texts_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts_in(one)


def _as_text(values: Mapping[str, Any]) -> str:
    return json.dumps({"version": __version__, "values": values}, sort_keys=True)


# --- files --------------------------------------------------------------------------------------------------


_writes = itertools.count()  # of this process


def _folder() -> Path:
    return home() / "forms"


def _load(name: str) -> dict[str, Any] | None:
    """Return the values of a file; None: it does not exist, or another version wrote it."""
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
    """Write a whole file; False: the disk refused."""
    folder = _folder()
    try:
        made_private(folder)
        with written_whole(folder / f"{name}.json") as part:
            part.write_text(text, encoding="utf-8")
    except OSError:
        return False
    if next(_writes) % EVERY == 0:
        _remove_oldest(folder)
    return True


def _remove_oldest(folder: Path) -> None:
    with contextlib.suppress(OSError):  # another server removes some, too
        for path in sorted(folder.glob("*.json"), key=lambda one: one.stat().st_mtime)[:-MOST]:
            path.unlink(missing_ok=True)
