"""Which trials a list shows: filters, order and pages, all in SQL, so that ten thousand trials stay quick.

A page of rows is read whole and checked, the others are only counted. What is looked for in a text is what
describes a trial: its ids, model, settings, study, owner, providers, error, labels and note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal

from core.spec.settings import KNOBS
from core.store import rows
from core.store.database import BY_GAIN, BY_P50, Connection
from core.wire.output_check import MARK

Order = Literal["newest", "oldest", "p50", "gain", "study"]

_ORDERS: dict[Order, str] = {
    "newest": "created_at DESC, rowid DESC",
    "oldest": "created_at, rowid",
    "p50": f"{BY_P50} DESC, rowid DESC",  # of minus p50: what has none comes last
    "gain": f"{BY_GAIN} DESC, rowid DESC",
    "study": "study = '', study, rowid DESC",
}
_JOIN = " || ' ' || "
_FOUND_IN = _JOIN.join(
    [
        *("id", "model_name", "model_sha256", "study", "owner", "spec", "coalesce(error, '')"),
        "coalesce((SELECT note FROM marks WHERE marks.id = trials.id), '')",
        "coalesce((SELECT group_concat(value, ' ')"
        " FROM marks, json_each(iif(json_valid(labels), labels, '[]')) WHERE marks.id = trials.id), '')",
    ]
)
_FOUND_IN_RESULT = (  # looked at only where the rest does not hold the word: it takes the longest
    "iif(json_valid(result), coalesce(json_extract(result, '$.effective_providers'), '') || ' '"
    " || iif(json_extract(result, '$.fallback'), 'fallback', '') || ' '"
    " || coalesce(json_extract(result, '$.busy.words'), '') || ' '"
    " || coalesce(json_extract(result, '$.model'), '') || ' '"
    f" || iif(json_extract(result, '$.guard.breach'), '{MARK}', ''), '')"
)
_LOOKED_IN = (_FOUND_IN, _FOUND_IN_RESULT)
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)  # what SQLite's `lower` does, and no more
_STORED = {
    one.short: one.field for one in KNOBS if one.short not in one.field
}  # short name -> the setting's, in small letters
_LABELS = "SELECT value FROM json_each(iif(json_valid(labels), labels, '[]'))"
_WITH = "id IN (SELECT id FROM marks WHERE {})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a listed trial must be like; None and empty ask for nothing."""

    model_sha256: str | None = None
    model_name: str | None = None
    kind: str | None = None  # None: no "reference", no "screen", see `Trial`
    states: Sequence[str] = ()
    text: str = ""  # words that all occur in what describes it; A to Z in any case
    starred: bool = False
    archived: bool = False  # those that are put away, too
    labels: Sequence[str] = ()  # all of them
    ids: Sequence[str] | None = None  # only these
    order: Order = "newest"


def page(db: Connection, query: Query, *, offset: int, limit: int) -> tuple[list[Any], int]:
    """Return the rows of one page, and how many trials there are in all."""
    where, bound = _where(query)
    total: int = db.execute(f"SELECT count(*) FROM trials WHERE {where}", bound).fetchone()[0]  # noqa: S608
    found = db.execute(
        f"SELECT rowid FROM trials WHERE {where} ORDER BY {_ORDERS[query.order]}"  # noqa: S608
        " LIMIT :_limit OFFSET :_offset",
        {**bound, "_limit": limit, "_offset": offset},
    ).fetchall()
    numbers = rows.text([row["rowid"] for row in found])
    whole = db.execute(
        "SELECT trials.* FROM json_each(?) AS one JOIN trials ON trials.rowid = one.value ORDER BY one.key",
        (numbers,),
    ).fetchall()
    return whole, total


def seals(db: Connection, query: Query) -> list[tuple[str, str]]:
    """Return id and checksum of every trial, in order: what changes when anything of it changes."""
    where, bound = _where(query)
    found = db.execute(
        f"SELECT id, checksum FROM trials WHERE {where} ORDER BY {_ORDERS[query.order]}",  # noqa: S608
        bound,
    )
    return [(row["id"], row["checksum"]) for row in found]


def _where(query: Query) -> tuple[str, dict[str, Any]]:
    """The condition with what is bound in it."""
    parts = ["kind NOT IN ('reference', 'screen')" if query.kind is None else "kind = :kind"]
    bound: dict[str, Any] = {} if query.kind is None else {"kind": query.kind}
    for name in ("model_sha256", "model_name"):
        if (value := getattr(query, name)) is not None:
            parts.append(f"{name} = :{name}")
            bound[name] = value
    for name, wanted in (("state", query.states or None), ("id", query.ids)):
        if wanted is not None:
            parts.append(f"{name} IN (SELECT value FROM json_each(:{name}))")  # noqa: S608 - names of ours
            bound[name] = rows.text(list(wanted))
    if query.starred:
        parts.append(_WITH.format("starred"))
    if not query.archived:
        parts.append(f"NOT {_WITH.format('archived')}")
    for number, label in enumerate(query.labels):
        parts.append(_WITH.format(f":label{number} IN ({_LABELS})"))
        bound[f"label{number}"] = label
    for number, word in enumerate(query.text.translate(_LOWER).split()):
        spellings = {f"word{number}": word}
        if word in _STORED:  # a note, a label or an error may hold the word itself
            spellings[f"stored{number}"] = _STORED[word]
        found = (f"instr(lower({where}), :{name})" for where in _LOOKED_IN for name in spellings)
        parts.append(f"({' OR '.join(found)})")
        bound |= spellings
    return " AND ".join(parts), bound
