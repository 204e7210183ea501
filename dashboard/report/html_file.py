"""The HTML file of a result, from references to it; used by the command line's process and the pages."""

from __future__ import annotations

from core.show.report import Price
from core.show.report.compose import compose
from core.show.report.subjects import About
from core.store import Store
from dashboard.report.figures import plots
from dashboard.report.page import page


def html_of(about: About, store: Store, *, price: Price | None = None, recorded: str = "") -> str:
    """Return the HTML file about a result; see `compose` for the arguments."""
    return page(compose(about, store, price=price, recorded=recorded), plots(about))
