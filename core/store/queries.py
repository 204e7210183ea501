"""Queries of trial lists: filters, order and pages in SQL, fast for a hundred thousand trials.

Only the rows of one page are read and verified; the others are counted. The text search covers ids, model,
settings, study, owner, providers, error, labels and note of a trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal

from core.spec.settings import SETTINGS
from core.store import rows
from core.store.database import BY_GAIN, BY_P50, LISTED, SEARCHED, UNLISTED, WORDS, Connection

Order = Literal["newest", "oldest", "p50", "gain", "study"]

_ORDERS: dict[Order, str] = {
    "newest": "created_at DESC, rowid DESC",
    "oldest": "created_at, rowid",
    "p50": f"{BY_P50} DESC, rowid DESC",  # the expression is minus p50: trials without one come last
    "gain": f"{BY_GAIN} DESC, rowid DESC",
    # trials of one study stand together, where its newest is
    "study": "max(created_at) OVER (PARTITION BY iif(study = '', rowid, study)) DESC, study, created_at DESC,"
    " rowid DESC",
}
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)  # the same as SQLite's `lower`
_STORED = {
    one.short: one.field for one in SETTINGS if one.short not in one.field
}  # short name -> name of the setting, lower case
_LABELS = "SELECT value FROM json_each(iif(json_valid(labels), labels, '[]'))"
_TAGS = f"note || ' ' || coalesce((SELECT group_concat(value, ' ') FROM ({_LABELS})), '')"  # noqa: S608
_WITH = "id IN (SELECT id FROM marks WHERE {})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Filters and order of a list of trials; None and empty values do not filter."""

    model_sha256: str | None = None
    model_name: str | None = None
    kind: str | None = None  # None: no "reference", no "screen", see `Trial`
    states: Sequence[str] = ()
    text: str = ""  # words that must all occur in the searched text; A to Z in any case
    starred: bool = False
    archived: bool = False  # include archived trials
    labels: Sequence[str] = ()  # a trial must have all of them
    ids: Sequence[str] | None = None  # only these
    person: str | None = None  # only trials that this person started; see `Visibility`
    order: Order = "newest"


def page(db: Connection, query: Query, *, offset: int, limit: int) -> tuple[list[Any], int]:
    """Return the rows of one page, and the total number of trials."""
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


def checksums(db: Connection, query: Query, limit: int) -> list[tuple[str, str]]:
    """Return id and checksum of the first trials; the checksum changes with any change of the row."""
    where, bound = _where(query)
    found = db.execute(
        f"SELECT id, checksum FROM trials WHERE {where}"  # noqa: S608
        f" ORDER BY {_ORDERS[query.order]} LIMIT :_limit",
        {**bound, "_limit": limit},
    )
    return [(row["id"], row["checksum"]) for row in found]


_EQUAL = {
    "model_sha256": "model_sha256 = :model_sha256",
    "model_name": "model_name = :model_name",
    "person": "id IN (SELECT id FROM visibility WHERE person = :person)",
}


def _where(query: Query) -> tuple[str, dict[str, Any]]:
    """The SQL condition and its bound parameters."""
    # a model has fewer trials than a kind: the plus sign keeps its index out of use
    of_few = query.model_sha256 is not None or query.ids is not None
    parts = [LISTED if query.kind is None else f"{'+' * of_few}kind = :kind"]
    bound: dict[str, Any] = {} if query.kind is None else {"kind": query.kind}
    for name, condition in _EQUAL.items():
        if (value := getattr(query, name)) is not None:
            parts.append(condition)
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
        if word in _STORED:  # in addition to the word itself, which notes, labels and errors may contain
            spellings[f"stored{number}"] = _STORED[word]
        parts.append(_contains(spellings, query.kind))
        bound |= spellings
    return " AND ".join(parts), bound


def _contains(spellings: Iterable[str], kind: str | None) -> str:
    """The condition that a trial contains a word; each is looked up alone, so that no row has to be read."""
    in_trial, in_tags = (
        " OR ".join(f"instr(lower({text}), :{name})" for name in spellings) for text in (WORDS, _TAGS)
    )
    searched = "1" if kind in UNLISTED else SEARCHED  # lets SQLite use the index, which has no other rows
    return (  # `+`: the order needs the index of the outer query more
        f"+rowid IN (SELECT rowid FROM trials WHERE {searched} AND ({in_trial}) UNION"  # noqa: S608
        f" SELECT trials.rowid FROM marks JOIN trials USING (id) WHERE {in_tags})"
    )
