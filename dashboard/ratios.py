"""A ratio in words, the same in a title, on a chart and in a table. No Streamlit.

A ratio is speed against the baseline, so that on every axis right of 1 is faster. In words its number is
never below 1: "1.42× faster", "1.30× slower". Title and parts come from
`core.evidence.contrast.words`, so they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.evidence import contrast as contrasts

Contrast = Mapping[str, Any]


def parts(contrast: Contrast) -> tuple[str, str]:
    """Return a verdict and what it rests on: ("1.42× faster", "95 % [1.38, 1.46]").

    Both together are the words of the title; ("undecided", "between 0.97× and 1.08×") where it is open.
    """
    said = contrasts.words({"rounds": 0, **contrast})
    mark = {"EQUIVALENT": " (", "FASTER": ", ", "SLOWER": ", "}.get(contrast["verdict"], ": ")
    short, _, rest = said.partition(mark)
    return short, rest.removesuffix(")") if mark == " (" else rest


def measured(contrast: Contrast) -> str:
    """Return what was measured without a verdict, for one that was rejected: "between 0.97× and 1.08×"."""
    return contrasts.words({"rounds": 0, **contrast}).removeprefix("undecided: ")


def so_far(contrast: Contrast) -> tuple[str, str]:
    """Return a ratio that is not final and its interval: ("1.31× faster", "95 % [1.10, 1.56]")."""
    faster = contrast["ratio"] >= 1
    if not contrast.get("ratio_low") or not contrast.get("ratio_high"):
        size = contrast["ratio"] if faster else 1 / contrast["ratio"]
        return f"about {contrasts.ratio_text(size)}× {'faster' if faster else 'slower'}", "no interval yet"
    return parts({**contrast, "verdict": "FASTER" if faster else "SLOWER"})


def tick(ratio: float) -> str:
    """Return a tick of an axis whose title says on which side faster lies: 0.8 and 1.25 are "1.25×"."""
    return f"{max(ratio, 1 / ratio):.4g}×"
