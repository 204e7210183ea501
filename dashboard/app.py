"""The entry script that Streamlit runs for each visitor: page config, navigation and the machine's status."""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:  # `streamlit run dashboard/app.py` puts only this folder on the path
    sys.path.insert(0, _ROOT)

import streamlit as st  # noqa: E402
from streamlit.navigation.page import StreamlitPage  # noqa: E402

from dashboard import form_state, format, presenting, state, url_state  # noqa: E402
from dashboard.demo import first_view  # noqa: E402
from dashboard.server import gate, login  # noqa: E402
from dashboard.widgets import accessibility, glossary, machine_line  # noqa: E402

_ICON = str(Path(__file__).with_name("icon.png"))
_NAME = str(Path(__file__).with_name("logo.svg"))
_STYLE = Path(__file__).with_name("style.css")
_SIDEBAR_PX = 216
st.set_page_config(page_title="ORTune", page_icon=_ICON, layout="wide", initial_sidebar_state=_SIDEBAR_PX)
st.logo(_NAME, size="large", icon_image=_ICON)
st.html(_STYLE)
gate.block_address_lookup()
login.require()
state.freeze_imports()
presenting.follow_from_address()
if not state.is_following():
    form_state.restore()


def _page(title: str, icon: str, *, default: bool = False) -> StreamlitPage:
    name = title.lower()
    return st.Page(url_state.file_of(name), title=title, icon=icon, url_path=name, default=default)


page = st.navigation(
    {
        "Measure": [
            _page("Tune", ":material/tune:", default=True),
            _page("Search", ":material/manage_search:"),
            _page("Compare", ":material/compare_arrows:"),
            _page("Sweep", ":material/show_chart:"),
        ],
        "Understand": [
            _page("Profile", ":material/search_insights:"),
            _page("Explain", ":material/troubleshoot:"),
            _page("Graph", ":material/account_tree:"),
            _page("Machine", ":material/developer_board:"),
        ],
        "Change the model": [
            _page("Models", ":material/deployed_code:"),
            _page("Variants", ":material/science:"),
            _page("Accuracy", ":material/fact_check:"),
        ],
        "Decide": [
            _page("Scorecard", ":material/checklist:"),
            _page("History", ":material/history:"),
            _page("Export", ":material/file_export:"),
        ],
    },
    expanded=True,  # otherwise Streamlit hides the last ones behind a button
)
if not state.is_following():
    form_state.keep()  # before the page, so that a reload of a slow page keeps the values just typed
first_view.choose_model(page.title.lower())
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
    login.log_out()
    accessibility.apply_fixes()
state.show_notice()
page.run()
if not state.is_following():
    form_state.keep()
presenting.tell(page.url_path)
