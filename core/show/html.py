"""Sheets as HTML for notebooks: plain tables without styles of their own, all text escaped. Pure."""

from __future__ import annotations

from html import escape

from core.show.sheets import Fact, Line, Note, Part, Sheet
from core.show.table import Table, as_text
from core.wire.units import visible


def html(sheet: Sheet) -> str:
    """Return a sheet as an HTML fragment."""
    return f"<div><strong>{_text(sheet.headline)}</strong>{''.join(map(_part, sheet.parts))}</div>"


def _part(part: Part) -> str:
    match part:
        case Fact():
            return f"<div>{_text(part.name)}: {_text(part.text)}</div>"
        case Table():
            return _table(part)
        case Note() | Line():
            return f"<p>{_text(part.text)}</p>"


def _table(table: Table) -> str:
    columns, rows = as_text(table)
    head = "".join(f"<th>{_text(one.head)}</th>" for one in columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(text: str) -> str:
    return escape(visible(text))
