"""Who made each result, and who sees it: the rows of the table `visibility`, and the rules for changing them.

A person has a stable id: the name of the operating system's user, or what a login of the dashboard gives. A
new result is shared with the team until its person makes it private. What belongs together is shared
together: the trials of a comparison, and all comparisons of a search. All that belongs to a private model is
private: no result of it can be shared before the model. Machine time is kept per person.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

from core.store import rows
from core.store.database import Connection
from core.store.records import Visibility
from core.store.rows import VISIBILITY
from core.store.statements import put
from core.wire.errors import PrivateError

MACHINE_TIME_KEPT_S = 31 * 86_400.0
MACHINE_TURNS_KEPT = 10_000  # the newest, however old: a clock that is ahead must not delete a day of them

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


def follow_models(db: Connection, ids: Iterable[str], models: Iterable[str], person: str) -> None:
    """Make results private, with all that belongs to them, if one of their models is private.

    Args:
        db: in a write transaction.
        ids: of the results.
        models: content hashes, file hashes or paths of their models.
        person: whose those are that have no person yet.
    """
    if _private_models(db, models):
        of = list(ids)
        query = f"SELECT study FROM trials WHERE id {_IN} AND study <> ''"  # noqa: S608 - text of ours
        searches = [row["study"] for row in db.execute(query, {"ids": rows.text(of)})]
        _make_private(db, _together(db, [*of, *searches]), person)


def hidden(db: Connection, refs: Iterable[str], person: str) -> set[str]:
    """Return those of `refs` that are private to others.

    Args:
        db: connection.
        refs: ids of results, or content hashes, file hashes or paths of models.
        person: the reader.
    """
    query = (
        "SELECT value FROM json_each(:refs) AS one WHERE EXISTS (SELECT 1 FROM main.visibility AS its"
        " WHERE private AND person <> :person AND (its.id = one.value OR its.id IN"
        " (SELECT content_sha256 FROM main.models WHERE sha256 = one.value OR path = one.value)))"
    )
    found = db.execute(query, {"refs": rows.text(list(refs)), "person": person})
    return {row["value"] for row in found}


def refuse_hidden(db: Connection, refs: Iterable[str], actor: Actor) -> None:
    """Refuse to add a model that another person made private; the words do not say who.

    Raises:
        PrivateError: one of `refs` is private to another person, and `actor` does not see all.
    """
    if not actor.sees_all and hidden(db, refs, actor.person):
        raise PrivateError(
            "This model is private to another person of this server.", hint="Ask an admin to share it."
        )


def private_model_names(db: Connection) -> set[str]:
    """Return the names of all private models."""
    found = db.execute(
        "SELECT name FROM main.models JOIN main.visibility ON id = content_sha256 WHERE private"
    )
    return {row["name"] for row in found if rows.is_text(row["name"])}


def _private_models(db: Connection, refs: Iterable[str]) -> dict[str, str]:
    """Content hash -> name of those of these models that are private."""
    found = db.execute(
        f"""SELECT content_sha256, name FROM models JOIN visibility ON id = content_sha256
            WHERE private AND (content_sha256 {_IN} OR sha256 {_IN} OR path {_IN})""",  # noqa: S608 - text of ours
        {"ids": rows.text([one for one in refs if one])},
    )
    return {row["content_sha256"]: row["name"] for row in found}


def _make_private(db: Connection, ids: Sequence[str], person: str) -> None:
    """Make results private, each to the person who made it."""
    known = found(db, ids)
    for one in ids:
        replace(db, one, changed(known.get(one, Visibility(person=person)), private=True))


def replace(db: Connection, row_id: str, visibility: Visibility) -> None:
    """Write the visibility of one result."""
    _put(db, [row_id], visibility)


def _put(db: Connection, ids: Iterable[str], visibility: Visibility) -> None:
    columns = VISIBILITY.columns(rows.fields_of(visibility))
    for one in ids:
        put(db, VISIBILITY, {"id": one, **columns, "changed_at": time.time()}, replace=True)


def share(db: Connection, refs: Sequence[str], actor: Actor, *, private: bool) -> list[str]:
    """Share results and all that belongs to them with the team, or make them private.

    A model that becomes private takes its variants and all results of them with it, those of others too:
    each stays visible to the person who made it. A model that is shared shares itself alone.

    Args:
        db: in a write transaction.
        refs: ids of trials, comparisons, searches, accuracies, models, imports or upgrades.
        actor: who changes them; must have made them, or see all.
        private: True makes them private.

    Returns:
        The ids whose visibility is now as requested.

    Raises:
        PrivateError: somebody else made one, or one to be shared is of a private model; nothing is changed.
    """
    ids = _together(db, refs)
    refuse_others(db, ids, actor, "shared or made private")
    if private:
        ids = list(dict.fromkeys([*ids, *_together(db, _of_models(db, ids))]))
        _make_private(db, ids, actor.person)
        return ids
    models = _private_models(db, _models_of(db, ids)).items()
    if name := next((name for content, name in models if content not in ids), None):
        raise PrivateError(
            f"The model `{rows.legible(name)}` is private, so nothing of it can be shared.",
            hint="Share the model first, on Models.",
        )
    known = found(db, ids)
    for one in ids:
        replace(db, one, Visibility(person=known[one].person if one in known else ""))
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
        UNION SELECT content_sha256 FROM models WHERE content_sha256 {_IN}
        UNION SELECT id FROM visibility WHERE id {_IN}""",  # noqa: S608 - text of ours
        {"ids": rows.text(list(refs))},
    )
    return [row["id"] for row in found]


# Content hashes of what a model was made from; a damaged row has none.
_ROOT, _PARENT = (
    f"json_extract(iif(json_valid(details), details, '{{}}'), '$.variant.{name}')"
    for name in ("root", "parent")
)


def _models_of(db: Connection, ids: Sequence[str]) -> list[str]:
    """Content hashes of the models of results, and of the originals of models."""
    found = db.execute(
        f"""SELECT model_sha256 AS id FROM trials WHERE id {_IN}
            UNION SELECT model_sha256 FROM comparisons WHERE id {_IN}
            UNION SELECT model_sha256 FROM studies WHERE id {_IN}
            UNION SELECT model_sha256 FROM accuracies WHERE id {_IN}
            UNION SELECT {_ROOT} FROM models WHERE content_sha256 {_IN}
            UNION SELECT {_PARENT} FROM models WHERE content_sha256 {_IN}""",  # noqa: S608 - text of ours
        {"ids": rows.text(list(ids))},
    )
    return [row["id"] for row in found if row["id"]]


def _of_models(db: Connection, ids: Sequence[str]) -> list[str]:
    """The variants of those of `ids` that are models, and all results of them.

    A trial that waits names its model in its spec only; a load test names all but the first in its result.
    """
    found = db.execute(
        f"""WITH RECURSIVE family(id, sha256) AS (
                SELECT content_sha256, sha256 FROM models WHERE content_sha256 {_IN}
                UNION SELECT content_sha256, models.sha256 FROM models, family
                    WHERE {_ROOT} = family.id OR {_PARENT} = family.id)
            SELECT id FROM family
            UNION SELECT id FROM trials WHERE model_sha256 IN (SELECT id FROM family)
            UNION SELECT study FROM trials WHERE model_sha256 IN (SELECT id FROM family)
            UNION SELECT id FROM trials WHERE model_sha256 = '' AND json_valid(spec)
                AND json_extract(spec, '$.model.sha256') IN (SELECT sha256 FROM family)
            UNION SELECT trials.id FROM trials, family WHERE kind = 'load' AND result IS NOT NULL
                AND (instr(result, family.id) OR instr(result, family.sha256))
            UNION SELECT id FROM comparisons WHERE model_sha256 IN (SELECT id FROM family)
            UNION SELECT id FROM studies WHERE model_sha256 IN (SELECT id FROM family)
            UNION SELECT id FROM accuracies WHERE model_sha256 IN (SELECT id FROM family)""",  # noqa: S608
        {"ids": rows.text(list(ids))},
    )
    return [row["id"] for row in found]


# --- use per person ---------------------------------------------------------------------------------------


def add_machine_time(db: Connection, person: str, began: float, seconds: float) -> None:
    """Add the time of one job to its person, and drop what is older than a month, except the newest."""
    db.execute("INSERT INTO machine_time VALUES (?, ?, ?)", (person, began, seconds))
    db.execute(
        "DELETE FROM machine_time WHERE began < ? AND rowid <= (SELECT max(rowid) FROM machine_time) - ?",
        (began - MACHINE_TIME_KEPT_S, MACHINE_TURNS_KEPT),
    )


def machine_time(db: Connection, since: float) -> dict[str, float]:
    """Return the seconds of machine time of each person since a time, in seconds since the epoch.

    Of a turn that began earlier, the part since then counts. What began later than now was recorded by a
    clock that was ahead. It would count until then.
    """
    query = (
        "SELECT person, sum(min(began + seconds, :now) - max(began, :since)) AS used FROM machine_time"
        " WHERE began <= :now AND began + seconds > :since GROUP BY 1"
    )
    found = db.execute(query, {"since": since, "now": time.time()})
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
