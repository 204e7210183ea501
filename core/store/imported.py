"""Stores imported profiles and summaries of other tools, one file each, separate from trials.

Imported data are never trials: no list of measurements, verdict, baseline or search can use them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from core.store import audit
from core.store.records import Visibility
from core.store.rows import text
from core.store.sharing import Actor
from core.wire.errors import HOME_HINT, StoreError
from core.wire.files import made_private, written_whole

MARK = "imported"  # shown with every imported number
MOST = 200  # largest number of imports of all persons together
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One imported file as its reader decoded it."""

    id: str
    kind: Literal["profile", "summary"]
    name: str  # of the file
    format: str
    sha256: str  # of the file
    created_at: float  # import time, seconds since the epoch; the time of the measurement is not known

    @property
    def label(self) -> str:
        """Name in lists and charts, always with `MARK`."""
        return f"{MARK}: {self.name}"


class Owners(Protocol):
    """What the shelf asks a store: whose results these are."""

    actor: Actor

    def claim(self, ids: Sequence[str]) -> None:
        """Record the store's person for new results."""

    def visibility(self, ids: Sequence[str]) -> Mapping[str, Visibility]:
        """Return whose results these are."""

    def hidden(self, refs: Iterable[str]) -> set[str]:
        """Return those that are private to others."""

    def refuse_others(self, ids: Sequence[str], deed: str) -> None:
        """Raise where one belongs to another person."""

    def forget(self, ids: Sequence[str]) -> None:
        """Remove the person of results that are gone."""


class Shelf:
    """The folder of imported files, as the person of a store sees it."""

    def __init__(self, folder: Path, store: Owners) -> None:
        self.folder, self._store = folder, store

    def put(self, found: Mapping[str, Any], *, name: str, at: float) -> Imported:
        """Store the reply of the job `import`; it replaces an earlier import of the same file.

        Where `MOST` imports are kept, it also replaces the person's own oldest one, never one of others.

        Args:
            found: `wire.ImportReply`.
            name: of the file.
            at: seconds since the epoch.

        Raises:
            StoreError: it cannot be written, or others made all of the `MOST` imports.
        """
        is_profile = found["profile"] is not None
        one = Imported(
            id=secrets.token_hex(8),
            kind="profile" if is_profile else "summary",
            name=name[:120],
            format=found["format"],
            sha256=found["sha256"],
            created_at=at,
        )
        replaced = self._replaced_by(one)
        path, content = (self.folder / f"{one.id}.{kind}" for kind in ("json", "data"))
        try:
            made_private(self.folder)
            with written_whole(content, durable=True) as draft:
                draft.write_text(text(found["profile"] if is_profile else found["summary"]), "utf-8")
            with written_whole(path, durable=True) as draft:
                draft.write_text(text(asdict(one)), encoding="utf-8")
        except OSError as error:
            with suppress(OSError):
                content.unlink(missing_ok=True)
            raise StoreError(
                f"What was imported cannot be kept in `{self.folder}`: {error.strerror or error}.",
                hint=HOME_HINT,
            ) from error
        self._store.claim([one.id])
        audit.record("import", f"{one.kind} `{one.name}`", folder=self.folder.parent, ids=[one.id])
        if replaced:
            for old in replaced:
                self._remove(old.id)
            what = f"import{'s' * (len(replaced) != 1)} replaced by a newer one"
            audit.record("delete", what, folder=self.folder.parent, ids=[old.id for old in replaced])
        return one

    def all(self, kind: str | None = None) -> list[Imported]:
        """Return all imports, newest first, without damaged ones."""
        found = self._whole(kind)
        hidden = self._store.hidden([one.id for one in found])
        return [one for one in found if one.id not in hidden]

    def _whole(self, kind: str | None = None) -> list[Imported]:
        """All imports, also those that are private to others."""
        try:
            paths = list(self.folder.glob("*.json"))
        except OSError:
            return []
        found = [one for path in paths if (one := _read(path)) is not None]
        kept = [one for one in found if kind is None or one.kind == kind]
        return sorted(kept, key=lambda one: (-one.created_at, one.id))

    def _replaced_by(self, new: Imported) -> list[Imported]:
        """Own imports of the same file, and as many of the oldest as make room for `new`.

        Raises:
            StoreError: there is no room, and no own import left to remove.
        """
        own = self._own()
        same = [old for old in own if (old.kind, old.sha256) == (new.kind, new.sha256)]
        others = [old for old in own if old not in same]
        excess = max(0, len(self._whole()) + 1 - len(same) - MOST)
        if excess > len(others):
            raise StoreError(
                f"`{new.name}` is not kept: there are {MOST} imports already, and others made them.",
                hint="Ask an admin, or a person who imported many files, to delete some.",
            )
        return [*same, *others[len(others) - excess :]]

    def _own(self) -> list[Imported]:
        """Imports that this person may replace, newest first."""
        found = self.all()
        known = self._store.visibility([one.id for one in found])
        mine = ("", self._store.actor.person)  # those of earlier versions have no person
        return [one for one in found if known.get(one.id, Visibility()).person in mine]

    def get(self, imported_id: str) -> Imported:
        """Return an import by its id.

        Raises:
            StoreError: there is none with that id, its file is damaged, or it is private to another person.
        """
        one = _read(self.folder / f"{imported_id}.json") if _ID.fullmatch(imported_id) else None
        if one is None or self._store.hidden([one.id]):
            raise StoreError(
                f"Nothing imported has the id `{imported_id[:40]}`.", hint="Import the file again."
            )
        return one

    def data(self, imported_id: str) -> dict[str, Any]:
        """Return the data of an import: `Profile.to_dict()`, or `wire.Summary`.

        Raises:
            StoreError: see `get`.
        """
        self.get(imported_id)
        try:
            found: dict[str, Any] = json.loads((self.folder / f"{imported_id}.data").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(
                f"What was imported as `{imported_id}` is damaged.", hint="Import the file again."
            ) from error
        return found

    def delete(self, imported_id: str) -> None:
        """Delete an import if it exists.

        Raises:
            PrivateError: somebody else made it, and this person does not see all.
        """
        if _ID.fullmatch(imported_id) and (self.folder / f"{imported_id}.json").exists():
            self._store.refuse_others([imported_id], "deleted")
            self._remove(imported_id)
            audit.record("delete", "import", folder=self.folder.parent, ids=[imported_id])

    def _remove(self, imported_id: str) -> None:
        if _ID.fullmatch(imported_id):
            for kind in ("json", "data"):
                (self.folder / f"{imported_id}.{kind}").unlink(missing_ok=True)
            self._store.forget([imported_id])


def _read(path: Path) -> Imported | None:
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), Imported)
    except (OSError, ValueError, msgspec.ValidationError):
        return None
