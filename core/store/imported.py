"""Stores imported profiles and summaries of other tools, one file each, separate from trials.

Imported data are never trials: no list of measurements, verdict, baseline or search can use them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from core.store import audit
from core.store.rows import text
from core.wire.errors import HOME_HINT, StoreError
from core.wire.files import made_private, written_whole

MARK = "imported"  # shown with every imported number
MOST = 200  # largest number of imports; older ones are deleted
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


class Shelf:
    """The folder of imported files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, found: Mapping[str, Any], *, name: str, at: float) -> Imported:
        """Store the reply of the job `import`; it replaces an earlier import of the same file.

        Args:
            found: `wire.ImportReply`.
            name: of the file.
            at: seconds since the epoch.

        Raises:
            StoreError: it cannot be written.
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
        same = [old for old in self.all(one.kind) if old.sha256 == one.sha256]
        path, content = (self.folder / f"{one.id}.{kind}" for kind in ("json", "data"))
        try:
            made_private(self.folder)
            with written_whole(content) as draft:
                draft.write_text(text(found["profile"] if is_profile else found["summary"]), "utf-8")
            with written_whole(path) as draft:
                draft.write_text(text(asdict(one)), encoding="utf-8")
        except OSError as error:
            with suppress(OSError):
                content.unlink(missing_ok=True)
            raise StoreError(
                f"What was imported cannot be kept in `{self.folder}`: {error.strerror or error}.",
                hint=HOME_HINT,
            ) from error
        for old in (*same, *self.all()[MOST:]):
            self._remove(old.id)
        audit.record("import", f"{one.kind} `{one.name}`", folder=self.folder.parent, ids=[one.id])
        return one

    def all(self, kind: str | None = None) -> list[Imported]:
        """Return all imports, newest first, without damaged ones."""
        try:
            paths = list(self.folder.glob("*.json"))
        except OSError:
            return []
        found = [one for path in paths if (one := _read(path)) is not None]
        kept = [one for one in found if kind is None or one.kind == kind]
        return sorted(kept, key=lambda one: (-one.created_at, one.id))

    def get(self, imported_id: str) -> Imported:
        """Return an import by its id.

        Raises:
            StoreError: there is none with that id, or its file is damaged.
        """
        one = _read(self.folder / f"{imported_id}.json") if _ID.fullmatch(imported_id) else None
        if one is None:
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
        """Delete an import if it exists."""
        if _ID.fullmatch(imported_id):
            self._remove(imported_id)
            audit.record("delete", "import", folder=self.folder.parent, ids=[imported_id])

    def _remove(self, imported_id: str) -> None:
        if _ID.fullmatch(imported_id):
            for kind in ("json", "data"):
                (self.folder / f"{imported_id}.{kind}").unlink(missing_ok=True)


def _read(path: Path) -> Imported | None:
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), Imported)
    except (OSError, ValueError, msgspec.ValidationError):
        return None
