"""What the Fleet page shows before there is a run: how to try it in one command."""

from __future__ import annotations

from importlib.util import find_spec

import streamlit as st

EXTRA = "distributed"  # module of the extra
INSTALL = "pip install '.[fleet]'"
TRY = "ortune fleet search MODEL"


def draw() -> None:
    """Draw how to start, and how to install what is missing."""
    with st.container(border=True, key="fleet.empty"):
        st.markdown("#### :material/lan: No fleet run yet")
        st.markdown("Press **Ask hosts**, or try it in a terminal with this machine as the only host:")
        st.code(TRY, language="bash")
        st.markdown("Its answers appear here, also while it runs. More hosts: `ortune fleet --help`.")
        if find_spec(EXTRA) is None:
            st.markdown("The extra `fleet` is not installed. Install it in ORTune's folder:")
            st.code(INSTALL, language="bash")
