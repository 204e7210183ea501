"""Who made each result, and who sees it: the rows of the table `visibility`, and the rules for changing them.

A person has a stable id: the name of the operating system's user, or what a login of the dashboard gives. A
new result is shared with the team until its person makes it private. What belongs together is shared
together: the trials of a comparison, and all comparisons of a search. Machine time is kept per person.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.store import rows
from core.store.database import Connection
from core.store.records import Visibility
from core.store.rows import VISIBILITY
from core.store.statements import put
from core.wire.errors import PrivateError

MACHINE_TIME_KEPT_S = 31 * 86_400.0

_IN = "IN (SELECT value FROM json_each(:ids))"


def os_user() -> str:
    """Return the name of the operating system's user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return f"user {os.getuid()}"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who reads and writes through a store."""

    person: str  # stable id, recorded with new rows
    sees_all: bool = True  # also reads, shares and deletes the results of others


def found(db: Connection, ids: Iterable[str]) -> dict[str, Visibility]:
    """Return the visibility of results, without those of nobody, and without damaged rows."""
    query = f"SELECT * FROM visibility WHERE id {_IN}"  # noqa: S608 - text of ours
    there = db.execute(query, {"ids": rows.text(list(ids))}).fetchall()
    return dict(rows.undamaged(there, lambda row: (str(row["id"]), VISIBILITY.read(row))))


def record(db: Connection, ids: Iterable[str], person: str, *, continued: Iterable[str] = ()) -> None:
    """Record who made new results; what is recorded already stays.

    Args:
        db: in a write transaction.
        ids: of the results.
        person: who made them.
        continued: ids of results that they continue; if one is private, the new ones are, too.
    """
    wanted = list(ids)
    known = found(db, wanted)
    private = any(one.private for one in found(db, continued).values())
    _put(db, [one for one in wanted if one not in known], Visibility(person=person, private=private))


def replace(db: Connection, row_id: str, visibility: Visibility) -> None:
    """Write the visibility of one result."""
    _put(db, [row_id], visibility)


def _put(db: Connection, ids: Iterable[str], visibility: Visibility) -> None:
    columns = VISIBILITY.columns(rows.fields_of(visibility))
    for one in ids:
        put(db, VISIBILITY, {"id": one, **columns, "changed_at": time.time()}, replace=True)


def share(db: Connection, refs: Sequence[str], actor: Actor, *, private: bool) -> list[str]:
    """Share results and all that belongs to them with the team, or make them private.

    Args:
        db: in a write transaction.
        refs: ids of trials, comparisons, searches, accuracies or models.
        actor: who changes them; must have made them, or see all.
        private: True makes them private.

    Returns:
        The ids whose visibility is now as requested.

    Raises:
        PrivateError: somebody else made one; nothing is changed.
    """
    ids = _together(db, refs)
    known = found(db, ids)
    refuse_others(db, ids, actor, "shared or made private")
    for one in ids:
        person = known[one].person if one in known else actor.person * private
        replace(db, one, Visibility(person=person, private=private))
    return ids


def refuse_others(db: Connection, ids: Iterable[str], actor: Actor, what: str) -> None:
    """Refuse to change results of others.

    Raises:
        PrivateError: `actor` made not all of them, and does not see all.
    """
    if actor.sees_all:
        return
    wanted = list(ids)
    known = found(db, wanted)
    for one in wanted:
        person = known.get(one, Visibility()).person
        if person != actor.person:
            by = f"`{rows.legible(person)}`" if person else "an earlier version, which recorded no person"
            raise PrivateError(
                f"`{one[:12]}` was made by {by}, so it cannot be {what} by `{actor.person}`.",
                hint="Choose your own results, or ask an admin.",
            )


def _together(db: Connection, refs: Sequence[str]) -> list[str]:
    """The results and all rows that are shared with them."""
    found = db.execute(
        f"""WITH study AS (SELECT id FROM studies WHERE id {_IN}),
            comparison AS (
                SELECT comparison AS id FROM trials WHERE id {_IN} AND comparison <> ''
                UNION SELECT id FROM comparisons WHERE id {_IN} OR study IN (SELECT id FROM study)),
            trial AS (
                SELECT id FROM trials WHERE id {_IN}
                UNION SELECT id FROM trials
                    WHERE comparison <> '' AND comparison IN (SELECT id FROM comparison)
                UNION SELECT id FROM trials WHERE study <> '' AND study IN (SELECT id FROM study))
        SELECT id FROM study UNION SELECT id FROM comparison UNION SELECT id FROM trial
        UNION SELECT id FROM accuracies WHERE id {_IN}
        UNION SELECT content_sha256 FROM models WHERE content_sha256 {_IN}""",  # noqa: S608 - text of ours
        {"ids": rows.text(list(refs))},
    )
    return [row["id"] for row in found]


# --- use per person ---------------------------------------------------------------------------------------


def add_machine_time(db: Connection, person: str, began: float, seconds: float) -> None:
    """Add the time of one job to its person, and drop what is older than a month."""
    db.execute("INSERT INTO machine_time VALUES (?, ?, ?)", (person, began, seconds))
    db.execute("DELETE FROM machine_time WHERE began < ?", (began - MACHINE_TIME_KEPT_S,))


def machine_time(db: Connection, since: float) -> dict[str, float]:
    """Return the seconds of machine time of each person since a time, in seconds since the epoch.

    What began later than now was recorded by a clock that was ahead. It would count until then.
    """
    query = "SELECT person, sum(seconds) AS used FROM machine_time WHERE began BETWEEN ? AND ? GROUP BY 1"
    found = db.execute(query, (since, time.time()))
    return {row["person"]: row["used"] for row in found if rows.is_text(row["person"])}


def persons(db: Connection) -> dict[str, str]:
    """Return the person of each result and model, by its id."""
    there = db.execute("SELECT id, person FROM visibility WHERE person <> ''")
    return {row["id"]: row["person"] for row in there if rows.is_text(row["id"])}


def raw_bytes(db: Connection) -> dict[str, int]:
    """Return the bytes of the raw measurements of each person."""
    query = (
        "SELECT person, sum(length(data)) AS size FROM samples"
        " JOIN visibility ON visibility.id = samples.trial WHERE person <> '' GROUP BY person"
    )
    return {row["person"]: row["size"] for row in db.execute(query) if rows.is_text(row["person"])}
