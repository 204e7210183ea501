"""Building blocks of Markdown: tables, code, links and values in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.spec.setting_type import Setting

_KINDS = {
    "text": "text",
    "names": "list of names",
    "list": "list",
    "mapping": "`name=value` pairs",
    "dims": "`name=size` pairs",
}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a column that is empty in every row is left out."""
    rows = [list(row) for row in rows]
    kept = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    lines = [[heads[index] for index in kept], ["---"] * len(kept)]
    lines += [[cell(row[index]) for index in kept] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """Return a text on one line that ends no cell."""
    return prose(" ".join(text.split())).replace("|", "\\|")


def prose(text: str) -> str:
    """Return a text in which `<name>` outside of code is no HTML tag."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def bullets(lines: Iterable[str]) -> str:
    """Return a list."""
    return "\n".join(f"- {line}" for line in lines)


def code(text: object) -> str:
    """Return a text as code; one without characters as a dash."""
    return f"`{text}`" if str(text) else "–"


def codes(texts: Iterable[object]) -> str:
    """Return several texts as code, with commas."""
    return ", ".join(code(one) for one in texts)


def fence(text: str, language: str = "") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def page(*parts: str) -> str:
    """Return the parts that are not empty, a blank line between them."""
    return "\n\n".join(part.strip() for part in parts if part.strip())


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return plain.replace(" ", "-")


def link(text: str, heading: str, file: str = "") -> str:
    """Return a link to a heading of a page; an empty page is the same one."""
    return f"[{text}]({file}#{slug(heading)})"


# --- settings -----------------------------------------------------------------------------------------------


def accepts(setting: Setting) -> str:
    """Return what a setting accepts: `on or off`, `whole number, 0 to 1,024`."""
    if setting.kind == "bool":
        return "on or off"
    if setting.kind == "choice":
        return "one of " + codes('""' if one == "" else one for one in setting.choices)
    if setting.kind in ("int", "float"):
        kind = "whole number" if setting.kind == "int" else "number"
        unit = f" {setting.unit}" if setting.unit else ""
        return f"{kind}, {_range(setting)}{unit}"
    usual = f"; usual: {codes(setting.choices)}" if setting.kind == "names" and setting.choices else ""
    return _KINDS[setting.kind] + usual


def _range(setting: Setting) -> str:
    low, high = (None if end is None else number(end) for end in (setting.low, setting.high))
    if low == high:
        return f"{low} only"
    return f"{low} to {high}" if high is not None else f"{low} or more"


def number(value: float) -> str:
    """Return a number, thousands separated; small ones as they are."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def value(of: Any, *, unset: str = "not set") -> str:
    """Return the value of a setting in words; `unset` is what None means."""
    if of is None:
        return unset
    if isinstance(of, bool):
        return "on" if of else "off"
    if isinstance(of, Mapping):
        return codes(f"{name}={one}" for name, one in of.items()) or "none"
    if isinstance(of, list | tuple):
        return codes(of) or "none"
    return code(of) if of != "" else "none"
