"""Sheets as HTML, for reports and notebooks: tables with classes but no styles, all text escaped. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from core.show.sheets import Fact, Part, Sheet
from core.show.table import Table, as_text, table_texts
from core.wire.units import visible


def fragment(sheet: Sheet) -> str:
    """Return a sheet as a part of a page."""
    return f"<div><strong>{escaped(sheet.headline)}</strong>{''.join(parts(sheet.parts))}</div>"


def escaped(words: str) -> str:
    """Return text as HTML without markup; unprintable characters become visible."""
    return html.escape(visible(words), quote=True)


def prose(words: str) -> str:
    """Return a sentence as HTML; text in backticks becomes code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(words))


def parts(content: Sequence[Part]) -> Iterable[str]:
    """Return the parts of a sheet as tables and paragraphs."""
    facts: list[Fact] = []
    for part in [*content, None]:
        if isinstance(part, Fact):
            facts.append(part)
            continue
        if facts:
            yield from _facts(facts)
            facts = []
        if isinstance(part, Table):
            yield from _table(part)
        elif part is not None and "\n" in part.text:
            lines = "\n".join(map(escaped, part.text.splitlines()))
            yield f"<pre>{lines}</pre>"
        elif part is not None:
            yield f'<p class="{part.color or "plain"}">{prose(part.text)}</p>'


def _facts(facts: Sequence[Fact]) -> Iterable[str]:
    rows = "".join(
        f'<tr><th scope="row">{escaped(one.name)}</th>'
        f'<td class="{one.color or "plain"}">{prose(one.text)}</td></tr>'
        for one in facts
    )
    yield f'<table class="facts">{rows}</table>'


def _table(table: Table) -> Iterable[str]:
    heads, rows = table_texts(table)
    left = {one.head for one in as_text(table)[0] if one.is_text}
    sides = ["left" if head in left else "right" for head in heads]
    named = list(zip(heads, sides, strict=True))
    yield '<div class="wide"><table><thead><tr>'
    yield "".join(f'<th scope="col" class="{side}">{escaped(head)}</th>' for head, side in named)
    yield "</tr></thead><tbody>"
    colors = table.colors or [None] * len(rows)
    for row, color in zip(rows, colors, strict=True):
        cells = zip(row, sides, strict=True)
        yield f'<tr class="{color or "plain"}">'
        yield "".join(f'<td class="{side}">{escaped(cell)}</td>' for cell, side in cells)
        yield "</tr>"
    yield "</tbody></table></div>"
