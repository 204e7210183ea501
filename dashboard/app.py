"""The entry script that Streamlit runs for each visitor: page config, navigation and the machine's status."""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:  # `streamlit run dashboard/app.py` puts only this folder on the path
    sys.path.insert(0, _ROOT)

import streamlit as st  # noqa: E402
from streamlit.navigation.page import StreamlitPage  # noqa: E402

from core.wire.errors import MissingError, PrivateError  # noqa: E402
from dashboard import form_state, format, messages, presenting, state  # noqa: E402
from dashboard.demo import first_view  # noqa: E402
from dashboard.pages import PAGES, page_name  # noqa: E402
from dashboard.server import gate, login  # noqa: E402
from dashboard.widgets import accessibility, glossary, machine_line  # noqa: E402

_ICON = str(Path(__file__).with_name("icon.png"))
_NAME = str(Path(__file__).with_name("logo.svg"))
_STYLE = Path(__file__).with_name("style.css")
_SIDEBAR_PX = 216
_DRAWN_ANEW = "app.drawn_anew"  # session key: this run of the page is the second try
st.set_page_config(page_title="ORTune", page_icon=_ICON, layout="wide", initial_sidebar_state=_SIDEBAR_PX)
st.logo(_NAME, size="large", icon_image=_ICON)
st.html(_STYLE)
gate.block_address_lookup()
login.require()
state.freeze_imports()
presenting.follow_from_address()
if not state.is_following():
    form_state.restore()


groups: dict[str, list[StreamlitPage]] = {}
for one in PAGES.values():
    icon = f":material/{one.icon}:"
    script = st.Page(one.file, title=one.title, icon=icon, url_path=one.name, default=not groups)
    groups.setdefault(one.group, []).append(script)
# expanded, because otherwise Streamlit hides the last pages behind a button
page = st.navigation(groups, expanded=True)
if not state.is_following():
    form_state.keep()  # before the page, so that a reload of a slow page keeps the values just typed
first_view.choose_model(page_name(page.title))
form_state.keep_over_pages(page.url_path)
presenting.open_presenter_page(page.url_path)
with st.sidebar:
    if words := state.recorded():
        with st.container(key="recorded"):
            told = f"**Demonstration.** {format.plain(words)} Nothing you do is kept."
            st.caption(f":material/slideshow: {told}")
    machine_line.sidebar()
    if not state.is_following():
        form_state.button()
    glossary.button()
    presenting.sidebar()
    login.account()
    accessibility.apply_fixes()
messages.show_notice()
messages.warn_not_stored(state.not_stored())
try:
    page.run()
except (MissingError, PrivateError):  # another visitor deleted or hid what this run has just found
    if st.session_state.pop(_DRAWN_ANEW, False):
        raise
    st.session_state[_DRAWN_ANEW] = True
    st.rerun()
st.session_state.pop(_DRAWN_ANEW, None)
if not state.is_following():
    form_state.keep()
presenting.tell(page.url_path)
