"""The query of a page's address: the only module that reads and writes the address of results.

None removes a name. A value that is already there is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st


def base_path() -> str:
    """Return the path under which this server is reached, without a slash at its end."""
    base = str(st.get_option("server.baseUrlPath")).strip("/")
    return f"/{base}" if base else ""


def link(query: Mapping[str, str]) -> str:
    """Return the address of the first page with a query, for any browser."""
    here = urlsplit(st.context.url or "")
    return urlunsplit((here.scheme, here.netloc, f"{base_path()}/", urlencode(query), ""))


def named(name: str) -> str | None:
    """Return a value of the address; None: it has none."""
    return st.query_params.get(name)


def put(name: str, value: str | None) -> None:
    """Set a value of the address; None removes it."""
    if value is None:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value
