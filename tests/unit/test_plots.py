"""Every plot is drawn in one way, so that each can be saved, or says why it cannot."""

from __future__ import annotations

import re
from pathlib import Path

DASHBOARD = Path(__file__).resolve().parents[2] / "dashboard"
DRAWS = re.compile(
    r"\.(plotly_chart|echarts_chart|altair_chart|vega_lite_chart|pyplot|bokeh_chart|pydeck_chart"
    r"|graphviz_chart|line_chart|bar_chart|area_chart|scatter_chart|map)\("
)
THE_ONE = "widgets/plots.py"


def drawn_past_it(files: dict[str, str]) -> list[str]:
    """Files that draw a plot by themselves."""
    return [name for name, text in files.items() if name != THE_ONE and DRAWS.search(text)]


def test_no_page_draws_a_plot_past_the_way_to_save_it() -> None:
    files = {str(path.relative_to(DASHBOARD)): path.read_text() for path in DASHBOARD.rglob("*.py")}
    assert DRAWS.search(files[THE_ONE])
    assert drawn_past_it(files) == []


def test_one_that_does_is_found() -> None:
    assert drawn_past_it({"views/new/page.py": "st.plotly_chart(figure)"}) == ["views/new/page.py"]
