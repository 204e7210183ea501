"""The entry script that Streamlit runs for each visitor: page config, navigation and the machine's status."""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:  # `streamlit run dashboard/app.py` puts only this folder on the path
    sys.path.insert(0, _ROOT)

import streamlit as st  # noqa: E402

from dashboard import drafts, gate, login, state  # noqa: E402
from dashboard.panels import machine  # noqa: E402

_ICON = str(Path(__file__).with_name("icon.png"))
_STYLE = Path(__file__).with_name("style.css")
st.set_page_config(page_title="ORTune", page_icon=_ICON, layout="wide")
st.logo(_ICON, size="large")
st.html(_STYLE)
gate.stay_inside()
login.require()
state.freeze_imports()
drafts.restore()
drafts.keep()  # before the page: what was just typed survives a reload of a slow one

page = st.navigation(
    [
        st.Page("views/tune.py", title="Tune", icon=":material/tune:", default=True),
        st.Page("views/compare.py", title="Compare", icon=":material/compare_arrows:"),
        st.Page("views/curves.py", title="Curves", icon=":material/show_chart:"),
        st.Page("views/profile.py", title="Profile", icon=":material/search_insights:"),
        st.Page("views/why.py", title="Why", icon=":material/troubleshoot:"),
        st.Page("views/variants.py", title="Variants", icon=":material/science:"),
        st.Page("views/accuracy.py", title="Accuracy", icon=":material/fact_check:"),
        st.Page("views/scorecard.py", title="Scorecard", icon=":material/checklist:"),
        st.Page("views/models.py", title="Models", icon=":material/deployed_code:"),
        st.Page("views/history.py", title="History", icon=":material/history:"),
        st.Page("views/export.py", title="Export", icon=":material/file_export:"),
        st.Page("views/machine.py", title="Machine", icon=":material/developer_board:"),
    ]
)
drafts.carry(page.url_path)
with st.sidebar:
    machine.sidebar()
    drafts.button()
    login.log_out()
state.show_notice()
page.run()
drafts.keep()
