"""Charts of measurements, a module for each subject; here the look that all of them share.

Each chart is two steps: `*_info` turns results into plain data (tested as data), and the figure only draws
it. No Streamlit, no clock, no file here. Latencies arrive in seconds and are drawn in milliseconds.
Backgrounds stay transparent and text takes the page's colour, so that the light and the dark theme both work;
dashes and markers supplement the colours. The top of a figure is kept free for Plotly's toolbar, which would
otherwise cover the legend.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

from core.spec.metrics import SHOWN_UNITS, Metric
from core.wire.units import brief, provider, significant, visible

# Okabe and Ito's palette without its two lightest colours, distinct with all common kinds of colour vision;
# each has a contrast of 3:1 or nearly so on white and on a dark page.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7A7AFF", "#B8860B")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
MUTED = "#8A94A6"
TEXT = "#000037"  # a placeholder of Streamlit's, replaced by the strong text colour of the page's theme
PAGE = "#000038"  # the same for the background of the page
ON_LIGHT = "#0F172A"  # text colour where no placeholder works
FONT_PX, LARGE_PX, TITLE_PX = 12, 13, 15
FONT_FAMILY = "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
STANDOFF_PX = 10  # from the ticks of an axis to its title
LABEL_STANDOFF_PX = 4  # from an axis to its ticks
BAR_WIDTH = 0.7  # of a row; Plotly measures it within a series, whose rows may lie far apart
TOOLBAR_PX = 30
TITLE_ROW_PX = 38  # least height above the axes
HEIGHT = 340
# templates of Plotly without the name of the series; a saved file holds `text`, too
HOVER_TEXT, TEXT_HOVER = "%{hovertext}<extra></extra>", "%{text}<extra></extra>"
PARTIAL = "cancelled: partial results"
TRUE_Y = {"y": "customdata"}  # of a series whose drawn positions are not the values for a file
MOST_OF_LINE = 44  # characters of a line in the legend
WIDE = 5.0  # ratio of largest to smallest value from which an axis is logarithmic


def ran_label(result: Mapping[str, Any]) -> str:
    """Name a series after the providers that a result used."""
    return provider_label(
        result.get("effective_providers") or (),
        result.get("requested_providers") or (),
        fallback=bool(result.get("fallback")),
    )


def metric_title(metric: Metric, per: str) -> str:
    """Return the title of an axis: "Model size (MiB)", "CPU time per run (ms)".

    Args:
        metric: of the axis.
        per: "run" or "sample", named where a time may be either.
    """
    title = metric.title if metric.title[1].isdigit() else metric.title[0].upper() + metric.title[1:]
    either = metric.per_sample and metric.quantity != "rate"
    return f"{title}{f' per {per}' if either else ''} ({SHOWN_UNITS[metric.quantity][1]})"


def provider_label(effective: Sequence[str], requested: Sequence[str], *, fallback: bool) -> str:
    """Name a series after the providers used; a fallback is marked as one."""
    ran = effective[0] if effective else "unknown provider"
    if not fallback:
        return ran
    missing = [name for name in requested if name not in effective]
    asked = ", ".join(provider(name) for name in missing or requested)
    return f"{ran} — fallback, {asked} was requested"


def plain(text: str) -> str:
    """Make `text` safe to draw, because names come from untrusted models.

    Plotly interprets a subset of HTML, `%{...}` in hover templates, and formulas between dollar signs in a
    notebook, where MathJax is loaded. It reads entities last.
    """
    return html.escape(visible(text), quote=False).replace("$", "&#36;").replace("%{", "&#37;{")


def text_lines(parts: Iterable[str]) -> str:
    """Return texts as markup, one below the other."""
    return "<br>".join(map(plain, parts))


def ending(name: str, limit: int) -> str:
    """Return the end of a long name, which distinguishes nodes: exporters start all names alike."""
    return name if len(name) <= limit else f"…{name[1 - limit :]}"


def series_name(text: str) -> str:
    """Return a name for the legend, broken at commas: an entry wider than the figure would be cut."""
    lines = [""]
    for part in plain(text).split(", "):
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(joined) > MOST_OF_LINE:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = joined
    return "<br>".join(lines)


def number(value: float | None, digits: int = 4, *, signed: bool = False) -> str:
    """Format a number for a hover text, as everywhere else."""
    return "unknown" if value is None else minus(significant(value, digits, signed=signed))


def minus(number: str) -> str:
    """Return a number with the sign that Plotly writes on axes."""
    return number.replace("-", "−")


def base_figure(*, x_title: str, y_title: str, height: int = HEIGHT) -> go.Figure:
    """Return an empty figure: transparent background, titled axes; room for the toolbar, then the legend."""
    whole = height + TOOLBAR_PX
    # all at once: `update_layout` takes about ten times as long
    return go.Figure(
        layout={
            "height": whole,
            "margin": {"l": 12, "r": 12, "t": 44 + TOOLBAR_PX, "b": 12},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "template": "none",  # no theme: page and file show the same
            "colorway": PALETTE,
            "font": {"color": TEXT, "size": FONT_PX, "family": FONT_FAMILY},
            "legend": {
                "orientation": "h",
                "yref": "container",
                "y": 1 - TOOLBAR_PX / whole,
                "yanchor": "top",
                "x": 0,
                "xanchor": "left",
                "font": {"color": TEXT, "size": FONT_PX},
            },
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": TEXT, "activecolor": PALETTE[0]},
            "hovermode": "closest",
            "showlegend": True,
            "xaxis": axis(x_title),
            "yaxis": axis(y_title),
        }
    )


def points(values: Sequence[float | None]) -> np.ndarray:
    """Return the coordinates of a long line, NaN for a gap: Plotly checks each number of a list by itself."""
    return np.array(values, np.float64)


def axis(title: str = "") -> dict[str, Any]:
    """Return the look of an axis, for `lay_out`: automatic margins give all its text room."""
    return {
        "title": {"text": title, "font": {"color": TEXT, "size": LARGE_PX}, "standoff": STANDOFF_PX},
        "automargin": True,  # otherwise ticks are cut, and titles overlap them
        "ticks": "",
        "ticklabelstandoff": LABEL_STANDOFF_PX,
        "tickfont": {"color": TEXT, "size": FONT_PX},
        "exponentformat": "none",  # otherwise 1,000 is drawn as 1k and 0.00002 as 20µ: of milliseconds
        "separatethousands": True,
        "gridcolor": transparent(MUTED, 0.25),
        "zeroline": False,
    }


def add_title(figure: go.Figure, title: str) -> go.Figure:
    """Give a figure its title, left of the toolbar in the same row, and room for it."""
    lacking = TITLE_ROW_PX - (figure.layout.margin.t or 0)
    if lacking > 0:
        height = None if figure.layout.height is None else figure.layout.height + lacking
        lay_out(figure, margin={"t": TITLE_ROW_PX}, height=height)
    lay_out(
        figure,
        title={
            "text": plain(title),
            "font": {"color": TEXT, "size": TITLE_PX},
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 7, "l": 4},
        },
    )
    return figure


def lay_out(figure: go.Figure, **parts: Any) -> None:
    """Change parts of the layout; each part keeps its other properties, as with `update_layout`.

    `update_layout` and `update_yaxes` take about ten times as long: they set every property by its path.
    """
    for name, part in parts.items():
        kept = figure.layout[name].to_plotly_json() if isinstance(part, Mapping) else {}
        figure.layout[name] = {**kept, **part} if kept else part


def line_at(value: float, *, of: Literal["x", "y"], **line: Any) -> dict[str, Any]:
    """Return a shape of the layout: a line through the plot at a value of an axis."""
    return {"type": "line", **_across(of, value, value), "line": line}


def band(low: float, high: float, *, of: Literal["x", "y"], color: str) -> dict[str, Any]:
    """Return a shape of the layout: a band through the plot between two values, behind the data."""
    look = {"fillcolor": color, "line": {"width": 0}, "layer": "below"}
    return {"type": "rect", **_across(of, low, high), **look}


def _across(of: Literal["x", "y"], low: float, high: float) -> dict[str, Any]:
    other = "y" if of == "x" else "x"
    return {
        f"{of}0": low,
        f"{of}1": high,
        f"{of}ref": of,
        f"{other}0": 0,
        f"{other}1": 1,
        f"{other}ref": f"{other} domain",
    }


def note_beyond(figure: go.Figure, text: str) -> None:
    """Write in the upper right corner of the plot how much lies beyond it."""
    figure.add_annotation(
        x=1,
        xref="x domain",
        xanchor="right",
        y=1,
        yref="y domain",
        yanchor="bottom",
        text=text,
        font={"color": TEXT, "size": FONT_PX},
        showarrow=False,
    )


def text_on(color: str) -> str:
    """Return black or white, whichever has more contrast on `color`: always 4.5:1 or more."""
    return max(("#000000", "#FFFFFF"), key=lambda text: contrast(text, color))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, `#rrggbb`, as WCAG defines it: 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def log_ticks(values: Sequence[float]) -> list[float]:
    """Return the numbers 1, 2 and 5 times a power of ten that reach around positive `values`.

    Plotly's own labels between the decades are too small to read.
    """
    first, last = (math.floor(math.log10(end(values))) for end in (min, max))
    around = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 2, 5)]
    around.append(10.0 ** (last + 1))
    low = max((tick for tick in around if tick <= min(values)), default=around[0])
    high = min((tick for tick in around if tick >= max(values)), default=around[-1])
    return [tick for tick in around if low <= tick <= high]


def log_axis(ticks: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis with these ticks, for `lay_out`."""
    return {"type": "log", "tickvals": list(ticks), "ticktext": [brief(tick) for tick in ticks]}


def wide_ticks(values: Sequence[float]) -> list[float]:
    """Return ticks of a logarithmic axis if a linear one would hide the small values; else nothing."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    return log_ticks([low, high]) if low > 0 and high > WIDE * low else []


def error_bars(
    values: Sequence[tuple[float, float | None, float | None]], color: str, *, thickness: float, width: float
) -> dict[str, Any]:
    """Return the intervals of a series: each value with its bounds; an unknown bound has no bar."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if high is None else high - value for value, _, high in values],
        "arrayminus": [0.0 if low is None else value - low for value, low, _ in values],
        "color": color,
        "thickness": thickness,
        "width": width,
    }


def pattern(shape: str | Sequence[str]) -> dict[str, Any]:
    """Return light strokes over the own colour of a bar, which keep its text readable."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.5)", "solidity": 0.2}


def name_rows(figure: go.Figure, names: Sequence[str]) -> None:
    """Name the rows 0, 1, … of a figure by markup, the first on top."""
    rows = {"tickvals": list(range(len(names))), "ticktext": list(names)}
    lay_out(figure, yaxis={**rows, "range": [len(names) - 0.5, -0.5], "showgrid": False})


def style(index: int) -> dict[str, str]:
    """Return colour, dash and marker of series number `index`."""
    return {
        "color": PALETTE[index % len(PALETTE)],
        "dash": DASHES[index % len(DASHES)],
        "symbol": MARKERS[index % len(MARKERS)],
    }


def transparent(color: str, alpha: float) -> str:
    """Return `#rrggbb` with an opacity of 0 to 1."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"
