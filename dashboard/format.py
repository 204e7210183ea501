"""Text for Streamlit's Markdown, and the formats of `core.show`; no Streamlit here."""

from __future__ import annotations

import re

from core.show.format import (
    about,
    count,
    duration,
    interval_ms,
    interval_rate,
    interval_share,
    percent,
    rate,
    shape,
    share,
    short,
    value,
    when,
)
from core.wire.units import DASH, brief, ms, provider, rounded, significant, size, span, span_ms

__all__ = [
    "DASH",
    "about",
    "brief",
    "count",
    "duration",
    "icon",
    "interval_ms",
    "interval_rate",
    "interval_share",
    "label",
    "ms",
    "percent",
    "plain",
    "provider",
    "rate",
    "rounded",
    "shape",
    "share",
    "short",
    "significant",
    "size",
    "span",
    "span_ms",
    "value",
    "when",
]

_CODE = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([\\*_\[\]<>#$~|:])")


def plain(text: str) -> str:
    """Return `text` safe for Streamlit's Markdown: code spans stay, all other markup is literal.

    Messages contain names of files, tensors and keys with underscores, brackets and colons.
    """
    parts = _CODE.split(text)
    return "".join(p if i % 2 else _SPECIAL.sub(r"\\\1", p) for i, p in enumerate(parts))


def icon(name: str) -> str:
    """Return the name of a Material Symbol as Streamlit writes it: ":material/help:"."""
    return f":material/{name}:"


def label(name: str) -> str:
    """Return a name as the label of a widget, which screen readers read literally.

    It becomes a code span only where Markdown would change it.
    """
    harmless = re.fullmatch(r"[\w .,/()-]*", name) and not re.search(r"^_|_$|__", name)
    return name if harmless else f"`{name}`"
