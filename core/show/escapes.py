"""Foreign text in Markdown and in spreadsheets: names of models, nodes, files and people stay text. Pure.

HTML has `core.show.html.escaped`; terminals and logs have `core.wire.units.visible`; programs their literals.
"""

from __future__ import annotations

import re

from core.wire.units import visible

JOINER = "\N{WORD JOINER}"  # without width; it interrupts what a reader would replace
_WIDE = "\uff1d\uff0b\uff0d\uff20"  # full-width = + - @, which count in some locales
_FORMULA = re.compile(rf"[ \t\r]*[=+@{_WIDE}-]|[\t\r]")
_NUMBER = re.compile(r" *[+-][\d.,]+(?:e[+-]?\d+)? ?[A-Z\u00b5\u00d7%]{0,12}", re.IGNORECASE)
# the beginning of a list, the line under a heading, or a rule
_BLOCK = re.compile(r" *(?:\d{1,9}(?=[.)](?:\s|$))|(?=[-+](?:\s|$)|[-=]+\s*$))")
_SPECIAL = re.compile(r"([\\`*\[\]|~#]|(?<![^\W_])_|_(?![^\W_]))")  # an underscore inside a word is none
# What GitHub replaces even where it is escaped: mentions, issues, links, emoji
_REPLACED = re.compile(
    r"(?<=@)|(?<=#)(?=\d)|(?<=\bGH-)(?=\d)|(?<=https:)(?=//)|(?<=http:)(?=//)|(?<=www)(?=\.)"
    r"|(?<=(?<!\d):)(?=[\w+-]+:)",
    re.IGNORECASE,
)


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would evaluate the cell `text`; a number with sign and unit is none."""
    return _FORMULA.match(text) is not None and _NUMBER.fullmatch(text) is None


def starts_block(text: str) -> bool:
    """Whether Markdown would read the beginning of the line `text` as a list, a heading or a rule."""
    return _BLOCK.match(text) is not None


def literal_start(line: str) -> str:
    """Return a line whose beginning is neither a list nor a heading nor a rule in Markdown."""
    start = _BLOCK.match(line)
    return line if start is None else f"{start[0]}\\{line[start.end() :]}"


def code_span(text: str) -> str:
    """Return `text` as a code span on one line, fenced by more backticks than it contains in a row."""
    shown = visible(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    edge = " " if shown[:1] in "` " or shown[-1:] in "` " else ""
    return f"{fence}{edge}{shown}{edge}{fence}"


def unlinked(text: object) -> str:
    """Return `text` on one line, in which GitHub finds neither links nor mentions nor emoji."""
    return _REPLACED.sub(JOINER, visible(" ".join(str(text).split())))


def md_plain(text: object) -> str:
    """Return `text` on one line of GitHub's Markdown, without markup, links and mentions."""
    plain = unlinked(text)
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _SPECIAL.sub(r"\\\1", plain).replace("$", "<span>$</span>")  # a formula could begin there
    return literal_start(escaped)
