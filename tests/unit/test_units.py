"""Quantities as text: one unit for a value, its interval and the axis that it is drawn at."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.elements.lib.streamlit_plotly_theme import BG_COLOR, GRAY_90

from core.evidence.targets import quantity
from core.show.table import Column, cell_text
from core.spec.metrics import METRICS
from core.spec.targets import target_from_dict
from core.wire import units
from dashboard import charts, format

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.9996, 1.002, "1.000 to 1.002 ms"),
        (2.2, 2.5, "2.200 to 2.500 ms"),
        (0.00000231, 0.0000025, "0.000002310 to 0.000002500 ms"),
        (2345.5, 12345.6, "2,346 to 12,346 ms"),
        (0.02763, 47.25, "0.02763 to 47.25 ms"),
        (2.2, None, "2.200 ms or more"),
        (None, 2.5, "2.500 ms or less"),
        (None, None, "–"),
        (0.0, 0.0, "0 to 0 ms"),
    ],
)
def test_both_ends_of_a_range_have_the_same_decimals(
    low: float | None, high: float | None, text: str
) -> None:
    assert units.span(low, high, "ms") == text


@given(st.floats(min_value=1e-8, max_value=1e5))
def test_a_time_reads_the_same_everywhere(seconds: float) -> None:
    text = units.ms(seconds)
    assert format.ms(seconds) == text
    assert f"{cell_text(Column('p50', 'ms'), seconds)} ms" == text
    assert f"{charts.number(seconds * 1e3)} ms" == text
    assert quantity(target_from_dict({"metric": "latency_p50", "at_most": "3 ms"}), seconds) == text
    assert f"{format.rounded(seconds * 1e3):.9g}" == f"{float(text.removesuffix(' ms').replace(',', '')):.9g}"


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_size_is_binary_everywhere(count: int) -> None:
    target = target_from_dict({"metric": "peak_rss", "at_most": "100 MB"})
    told = {
        format.size(count),
        cell_text(Column("size", "bytes"), count),
        quantity(target, float(count)),
        target.limit_words,
    }
    assert not any(re.search(r"\d [kMGT]B", text) for text in told)


def test_a_limit_is_told_in_the_unit_of_what_is_measured() -> None:
    def words(metric: str, limit: str) -> str:
        side = "at_most" if METRICS[metric].smaller_is_better else "at_least"
        return target_from_dict({"metric": metric, side: limit}).limit_words

    assert words("latency_p99", "500 µs") == "≤ 0.5 ms"
    assert words("latency_p99", "3 s") == "≤ 3,000 ms"
    assert words("peak_rss", "100 MB") == "≤ 95.3674 MiB"
    assert words("model_size", "10 MiB") == "≤ 10 MiB"
    assert words("accuracy", "98 %") == "≥ 98 %"
    assert words("throughput", "2000/s") == "≥ 2000/s"


def test_no_text_of_core_or_dashboard_counts_in_decimal_units() -> None:
    written = re.compile(r"[\d}] ?(?:MB|GB|kB)\b")
    sources = [*(ROOT / "core").rglob("*.py"), *(ROOT / "dashboard").rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sources
        for line in path.read_text(encoding="utf-8").splitlines()
        if written.search(line.partition("  # ")[0]) and '"' in line and "VmHWM" not in line
    ]
    assert found == []


def test_ticks_and_limits_have_no_exponent_and_no_prefix() -> None:
    assert [units.brief(one) for one in (0.00002, 0.5, 2.0, 1000.0, 20000.0)] == [
        "0.00002",
        "0.5",
        "2",
        "1,000",
        "20,000",
    ]
    axis = charts.base_figure(x_title="x", y_title="Latency per run (ms)").layout.yaxis
    assert (axis.exponentformat, axis.separatethousands) == ("none", True)


def test_what_is_not_finite_is_no_error() -> None:
    assert units.rounded(math.inf) == math.inf
    assert units.span(math.nan, 1.0, "ms") == "1.000 ms or less"
    assert units.size(-1536.0) == "-1.50 KiB"


# --- text in plots ----------------------------------------------------------------------------------------


def test_text_of_a_figure_is_large_enough_and_takes_the_colour_of_the_page() -> None:
    figure = charts.base_figure(x_title="x", y_title="y")
    fonts = [figure.layout.font, figure.layout.legend.font]
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        fonts += [axis.tickfont, axis.title.font]
    assert all(font.size >= 12 for font in fonts)
    assert {font.color for font in fonts} == {charts.TEXT} == {GRAY_90}
    assert charts.PAGE == BG_COLOR


@pytest.mark.parametrize("color", [*charts.PALETTE, charts.MUTED])
def test_text_on_a_bar_can_be_read(color: str) -> None:
    assert charts.contrast(charts.text_on(color), color) >= 4.5


def test_the_legend_stands_below_the_room_of_the_toolbar() -> None:
    for height in (110, 340, 900):
        layout = charts.base_figure(x_title="x", y_title="y", height=height).layout
        assert layout.legend.yref == "container"
        assert (1 - layout.legend.y) * layout.height == pytest.approx(charts.TOOLBAR_PX)
        assert layout.legend.yanchor == "top"


def test_an_execution_provider_is_called_as_its_maker_writes_it() -> None:
    names = ("CPUExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")
    assert [units.provider(one) for one in names] == ["CPU", "TensorRT", "NvTensorRTRTX"]
