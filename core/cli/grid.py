"""Columns of text that fit the width they have: cells wrap, and what still does not fit is left out by name.

The width belongs to a run of the command line: 80 characters where the terminal does not tell it, none where
`--wide` asks for everything. Without a run there is no limit.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar

UNKNOWN_WIDTH = 80
_NARROWEST = 40  # what is narrower than this no table fits
_GAP = 2
_LEAST, _TIGHT = 14, 8  # characters that a column is left before and after others were left out
_LONGEST_WORD = 24  # a longer one is broken

_width: ContextVar[int | None] = ContextVar("width", default=None)


@contextmanager
def terminal() -> Iterator[None]:
    """Lay tables out for the terminal that stdout is, as long as this lasts."""
    columns = shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns
    token = _width.set(max(_NARROWEST, columns))
    try:
        yield
    finally:
        _width.reset(token)


def widen(wide: bool) -> bool:
    """Lift the limit for the rest of the run, where `--wide` asks for it."""
    if wide:
        _width.set(None)
    return wide


def lay_out(
    cells: Sequence[Sequence[str]], *, left: Set[int], drop: Sequence[str], solid: Sequence[str]
) -> tuple[list[list[str]], list[str]]:
    """Lay out cells, the head first, in the width that there is: the lines of each row, and those below.

    Args:
        cells: rows of one length.
        left: columns that stand left; the others stand right.
        drop: names of columns that may be left out, the first one first.
        solid: names of columns whose cells are not wrapped.
    """
    width, head = _width.get(), cells[0]
    natural = [max(len(row[i]) for row in cells) for i in range(len(head))]
    shown = list(range(len(head)))
    if width is None or _total(natural, shown) <= width:
        return [[_line(row, shown, natural, left)] for row in cells], []
    shown = [i for i in shown if any(row[i] for row in cells[1:])] or shown  # blank ones hold nothing
    least = [
        natural[i] if head[i] in solid else _least(natural[i], [row[i] for row in cells], _LEAST)
        for i in range(len(head))
    ]
    hidden = []
    for name in drop:
        if _total(least, shown) <= width:
            break
        if name in (head[i] for i in shown):
            shown.remove(head.index(name))
            hidden.append(name)
    _tighten(least, [i for i in shown if head[i] not in solid], _total(least, shown) - width)
    widths = _shared(natural, least, shown, width)
    stand_left = {i for i in shown if i in left or widths[i] < natural[i]}  # what wraps reads from the left
    found = [_wrapped(row, shown, widths, stand_left) for row in cells]
    named = f"Left out for lack of width: {', '.join(hidden)}. All columns: --wide."
    return found, textwrap.wrap(f"({named})", width) if hidden else []


def _least(natural: int, column: Sequence[str], least: int) -> int:
    longest = max((len(word) for cell in column for word in cell.split()), default=0)
    return min(natural, max(least, min(longest, _LONGEST_WORD)))


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[i] for i in shown) + _GAP * (len(shown) - 1)


def _tighten(least: list[int], columns: Sequence[int], excess: int) -> None:
    """Take what is too much from the widest columns, in place."""
    for _ in range(excess):
        widest = max(columns, key=lambda i: least[i], default=None)
        if widest is None or least[widest] <= _TIGHT:
            break
        least[widest] -= 1


def _shared(natural: Sequence[int], least: Sequence[int], shown: Sequence[int], width: int) -> list[int]:
    """Give what is left of the width to the columns that lack most."""
    widths = list(least)
    for _ in range(width - _total(widths, shown)):
        needy = max(shown, key=lambda i: natural[i] - widths[i])
        if natural[needy] == widths[needy]:
            break
        widths[needy] += 1
    return widths


def _wrapped(row: Sequence[str], shown: Sequence[int], widths: Sequence[int], left: Set[int]) -> list[str]:
    parts = {i: textwrap.wrap(row[i], widths[i], break_on_hyphens=False) or [""] for i in shown}
    height = max(len(part) for part in parts.values())
    padded = {i: [*part, *[""] * (height - len(part))] for i, part in parts.items()}
    filled = [[padded[i][line] if i in padded else "" for i in range(len(row))] for line in range(height)]
    return [_line(one, shown, widths, left) for one in filled]


def _line(row: Sequence[str], shown: Sequence[int], widths: Sequence[int], left: Set[int]) -> str:
    cells = (row[i].ljust(widths[i]) if i in left else row[i].rjust(widths[i]) for i in shown)
    return (" " * _GAP).join(cells).rstrip()
