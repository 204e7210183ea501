"""Text for Streamlit's Markdown, and the formats of `core.show`; no Streamlit here."""

from __future__ import annotations

import re

from core.show.escapes import JOINER, code_span, literal_start, starts_block
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
from core.wire.units import DASH, brief, ms, provider, rounded, significant, size, span, span_ms, visible

__all__ = [
    "DASH",
    "about",
    "brief",
    "code",
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

_CODE = re.compile(r"((?<!`)`[^`]+`(?!`))")  # another run of backticks is no code span of ours
_SPECIAL = re.compile(r"([\\`*_\[\]<>#$~|:&])")
# What Streamlit and its Markdown replace even where it is escaped: icons, links, signs such as ->
_REPLACED = re.compile(
    r"(?<=:)(?=material[/_]|streamlit:)|(?<=https:)(?=//)|(?<=http:)(?=//)|(?<=www)(?=\.)"
    r"|(?<=(?<!\S)-)(?=[->](?!\S))|(?<=(?<!\S)<)(?=->?(?!\S))|(?<=(?<!\S)[<>~])(?==(?!\S))",
    re.IGNORECASE,
)
_NO_BREAK = "\N{NO-BREAK SPACE}"


def plain(text: str) -> str:
    """Return `text` safe for Streamlit's Markdown: code spans and line breaks stay, the rest is literal.

    Messages contain names of files, tensors and keys with underscores, brackets and colons; foreign names may
    hold pictures, links, icons and characters that reorder text.
    """
    return "\n".join(map(_plain_line, text.split("\n")))


def _plain_line(line: str) -> str:
    parts = _CODE.split(_shown(line))
    text = "".join(code(one[1:-1]) if i % 2 else _literal(one) for i, one in enumerate(parts))
    return literal_start(text)


def _literal(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", _REPLACED.sub(JOINER, text))


def _shown(text: str) -> str:
    return _NO_BREAK.join(map(visible, text.split(_NO_BREAK)))


def code(text: str) -> str:
    """Return `text` as a code span on one line, fenced by more backticks than it contains in a row."""
    return code_span(text).replace(":material/", f":{JOINER}material/")  # Streamlit replaces it even here


def icon(name: str) -> str:
    """Return the name of a Material Symbol as Streamlit writes it: ":material/help:"."""
    return f":material/{name}:"


def label(name: str) -> str:
    """Return a name as the label of a widget, which screen readers read literally.

    It becomes a code span only where Markdown would change it.
    """
    marked = starts_block(name) or re.search(r"^_|_$|__|--|www\.", name)
    return name if re.fullmatch(r"[\w .,/()-]*", name) and not marked else code(name)
