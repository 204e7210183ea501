"""Tags of a trial (star, labels, note, archived): types and checks; `Store.mark` writes them.

Pure: no SQL.

Tags have rows of their own, so that a user's change never modifies a measurement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from core.wire.errors import SpecError

MOST_LABELS = 20  # of one trial
MOST_LABEL, MOST_NOTE = 40, 2000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Tags of one trial; the default is no tags."""

    starred: bool = False
    archived: bool = False  # hidden in lists by default
    labels: tuple[str, ...] = ()  # in alphabetical order
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the tags as plain JSON data."""
        return {
            "starred": self.starred,
            "archived": self.archived,
            "labels": list(self.labels),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of tags; None does not change a value."""

    starred: bool | None = None
    archived: bool | None = None
    add: tuple[str, ...] = ()  # labels
    remove: tuple[str, ...] = ()  # labels
    note: str | None = None

    def __post_init__(self) -> None:
        """Refuse invalid labels and notes."""
        for name in ("add", "remove"):
            object.__setattr__(self, name, tuple(checked_label(one) for one in getattr(self, name)))
        if self.note is not None:
            object.__setattr__(self, "note", _checked_note(self.note))
        if both := set(self.add) & set(self.remove):
            raise SpecError(
                f"The label `{min(both)}` is to be added and removed at once.",
                hint="Leave one of them out.",
            )

    @property
    def is_nothing(self) -> bool:
        """Whether the change is empty."""
        return self == Change()

    @property
    def words(self) -> str:
        """Return the change in words, without the text of a note."""
        parts = [
            None if self.starred is None else "starred" if self.starred else "star removed",
            None if self.archived is None else "archived" if self.archived else "shown again",
            f"added {', '.join(self.add)}" if self.add else None,
            f"removed {', '.join(self.remove)}" if self.remove else None,
            None if self.note is None else "note written" if self.note else "note removed",
        ]
        return "; ".join(one for one in parts if one)

    def of(self, marks: Tags) -> Tags:
        """Return `marks` with this change.

        Raises:
            SpecError: more labels than one trial may have.
        """
        labels = tuple(sorted((set(marks.labels) | set(self.add)) - set(self.remove)))
        if len(labels) > MOST_LABELS:
            raise SpecError(
                f"A trial has at most {MOST_LABELS} labels, but this would make {len(labels)}.",
                hint="Remove a label first.",
            )
        return Tags(
            starred=marks.starred if self.starred is None else self.starred,
            archived=marks.archived if self.archived is None else self.archived,
            labels=labels,
            note=marks.note if self.note is None else self.note,
        )


def checked_label(label: str) -> str:
    """Return a label without spaces around it.

    Raises:
        SpecError: empty, too long, with a comma (the separator of labels), or not printable.
    """
    found = " ".join(label.split())
    if not 0 < len(found) <= MOST_LABEL or "," in found or not found.isprintable():
        raise SpecError(
            f"`{found[:60]!a}` is no label.",
            hint=f"Use 1 to {MOST_LABEL} printable characters without a comma.",
        )
    return found


def _checked_note(note: str) -> str:
    found = note.strip()
    if len(found) > MOST_NOTE or any(not one.isprintable() and one != "\n" for one in found):
        raise SpecError(
            f"A note has {MOST_NOTE:,} printable characters at most, but this one has {len(found):,}.",
            hint="Write a shorter one, without control characters.",
        )
    return found


def split(labels: str | Iterable[str]) -> list[str]:
    """Return the labels of comma-separated text, without duplicates."""
    given = [labels] if isinstance(labels, str) else labels
    return list(dict.fromkeys(part.strip() for one in given for part in one.split(",") if part.strip()))
