"""Fits text to the terminal's width: wraps cells and sentences, and omits columns that do not fit.

The width applies to one run of the command line: 80 characters if the terminal's width is unknown, no limit
with `--wide` or outside a run. Sentences wrap only on a terminal: in a pipe or a file each stays one line, so
that other programs can find it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar

UNKNOWN_WIDTH = 80
_SMALLEST_TABLE_WIDTH = 40  # no table fits a smaller width
_GAP = 2
_LEAST, _LEAST_CUT, _TIGHT = (
    14,
    16,
    8,
)  # smallest widths of a column, before and after others are omitted
_LONGEST_WORD = 44  # longer words are broken; the longest setting name is not
_PHRASE = 3  # words before a comma that stay together, such as a setting and its value

_width: ContextVar[int | None] = ContextVar("width", default=None)
_sentences: ContextVar[bool] = ContextVar("sentences", default=False)  # whether sentences wrap


@contextmanager
def terminal() -> Iterator[None]:
    """Lay out text for the terminal on stdout within this context; `COLUMNS` overrides its width."""
    columns = shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns
    token = _width.set(max(_SMALLEST_TABLE_WIDTH, columns))
    told = _sentences.set(bool(os.environ.get("COLUMNS")) or sys.stdout.isatty())
    try:
        yield
    finally:
        _width.reset(token)
        _sentences.reset(told)


def widen(wide: bool) -> bool:
    """Remove the limit for the rest of the run if `wide`."""
    if wide:
        _width.set(None)
    return wide


def is_limited() -> bool:
    """Whether the width is limited."""
    return _width.get() is not None


def sentence(text: str, *, begin: str = "", indent: int = 0) -> list[str]:
    """Return a sentence as lines; commands in backticks and paths are not broken.

    Args:
        text: the sentence.
        begin: text before it.
        indent: spaces before each further line.
    """
    width = _width.get()
    if width is None or not _sentences.get():
        return [f"{begin}{text}".rstrip()]
    first, *rest = fold(text, width - max(len(begin), indent), hard=False)
    return [f"{begin}{first}".rstrip(), *(" " * indent + one for one in rest)]


def lay_out(
    cells: Sequence[Sequence[str]],
    *,
    left: Set[int],
    drop: Sequence[str],
    solid: Sequence[str],
    cut: bool = False,
) -> tuple[list[list[str]], list[str]]:
    """Lay out cells, the head first, in the available width.

    Args:
        cells: rows of equal length.
        left: columns aligned left; the others are aligned right.
        drop: names of columns that may be omitted, in this order.
        solid: names of columns whose cells do not wrap.
        cut: each row is one line: long cells end in `…` instead of wrapping.

    Returns:
        The lines of each row, and the lines below the table.
    """
    width, head = _width.get(), cells[0]
    natural = [max(len(row[i]) for row in cells) for i in range(len(head))]
    shown = list(range(len(head)))
    if width is None or _total(natural, shown) <= width:
        return [[_line(row, shown, natural, left)] for row in cells], []
    shown = [i for i in shown if any(row[i] for row in cells[1:])] or shown  # without empty columns
    least = [
        natural[i] if head[i] in solid else _smallest_width(natural[i], [row[i] for row in cells], cut=cut)
        for i in range(len(head))
    ]
    hidden = []
    for name in drop:
        if _total(least, shown) <= width:
            break
        if name in (head[i] for i in shown):
            shown.remove(head.index(name))
            hidden.append(name)
    _reduce_widths(least, [i for i in shown if head[i] not in solid], _total(least, shown) - width)
    widths = _distribute_width(natural, least, shown, width)
    left_aligned = {
        i for i in shown if i in left or widths[i] < natural[i]
    }  # wrapped columns are aligned left
    found = [_wrapped(row, shown, widths, left_aligned, cut=cut) for row in cells]
    named = f"Columns that do not fit: {', '.join(hidden)}. Show them with --wide."
    return found, textwrap.wrap(f"({named})", width) if hidden else []


def _smallest_width(natural: int, column: Sequence[str], *, cut: bool) -> int:
    """Return the smallest width of a column that breaks no word."""
    if cut:
        return min(natural, _LEAST_CUT)
    longest = max((len(one) for cell in column for word in cell.split() for one in _pieces(word)), default=0)
    return min(natural, max(_LEAST, min(longest, _LONGEST_WORD)))


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[i] for i in shown) + _GAP * (len(shown) - 1)


def _reduce_widths(least: list[int], columns: Sequence[int], excess: int) -> None:
    """Remove the excess from the widest columns, in place."""
    for _ in range(excess):
        widest = max(columns, key=lambda i: least[i], default=None)
        if widest is None or least[widest] <= _TIGHT:
            break
        least[widest] -= 1


def _distribute_width(
    natural: Sequence[int], least: Sequence[int], shown: Sequence[int], width: int
) -> list[int]:
    """Distribute the remaining width to the columns that lack most."""
    widths = list(least)
    for _ in range(width - _total(widths, shown)):
        needy = max(shown, key=lambda i: natural[i] - widths[i])
        if natural[needy] == widths[needy]:
            break
        widths[needy] += 1
    return widths


def _wrapped(
    row: Sequence[str], shown: Sequence[int], widths: Sequence[int], left: Set[int], *, cut: bool
) -> list[str]:
    parts = {i: [_cut(row[i], widths[i])] if cut else fold(row[i], widths[i]) for i in shown}
    height = max(len(part) for part in parts.values())
    padded = {i: [*part, *[""] * (height - len(part))] for i, part in parts.items()}
    filled = [[padded[i][line] if i in padded else "" for i in range(len(row))] for line in range(height)]
    return [_line(one, shown, widths, left) for one in filled]


def _cut(text: str, width: int) -> str:
    """Truncate a text to one line, at a word if possible, with `…` if it is longer."""
    if len(text) <= width:
        return text
    first = fold(text, width - 2)[0]
    longer = fold(text, width - 1)[0].rstrip(",;")  # keep a word that fits without its comma
    if len(first) < len(longer) <= width - 2:
        return f"{longer} …"
    return f"{first} …" if text[len(first)] == " " else f"{text[: width - 1].rstrip(' ,')}…"


def _line(row: Sequence[str], shown: Sequence[int], widths: Sequence[int], left: Set[int]) -> str:
    cells = (row[i].ljust(widths[i]) if i in left else row[i].rjust(widths[i]) for i in shown)
    return (" " * _GAP).join(cells).rstrip()


# --- wrapping -----------------------------------------------------------------------------------------------

_WORD = re.compile(r"(?:[^\s`]*`[^`]*`)+[^\s`]*|\S+")  # text in backticks is one word
_PIECE = re.compile(r"[^/,;=|]*[/,;=|]?")  # words break here, never inside an identifier


def fold(text: str, width: int, *, hard: bool = True) -> list[str]:
    """Return a text in lines of at most `width` characters, broken at commas if phrases are short.

    Args:
        text: to wrap.
        width: of a line, in characters.
        hard: break words longer than a line; otherwise such a word gets a longer line.
    """
    if len(text) <= width:
        return [text]
    lines = [""]
    for gap, piece in _segments(text, width, hard=hard):
        if not lines[-1] or len(lines[-1]) + len(gap) + len(piece) <= width:
            lines[-1] += f"{gap}{piece}" if lines[-1] else piece
        else:
            lines.append(piece)
    return lines


def _segments(text: str, width: int, *, hard: bool) -> Iterator[tuple[str, str]]:
    """Yield unbreakable pieces, each with its separator from the previous piece on the same line."""
    for phrase in _phrases(text):
        for word in [phrase] if len(phrase) <= width else _WORD.findall(phrase):
            pieces = [word] if len(word) <= width or not hard else _split_word(word, width)
            yield from zip([" ", *[""] * (len(pieces) - 1)], pieces, strict=True)


def _phrases(text: str) -> list[str]:
    """Return the words of a text, or its comma-separated phrases, such as settings, if all are short."""
    words, phrases = _WORD.findall(text), [""]
    for word in words:
        phrases[-1] += f" {word}" if phrases[-1] else word
        if word.endswith((",", ";")):
            phrases.append("")
    is_list = all(phrase.count(" ") < _PHRASE for phrase in phrases)
    return [one for one in phrases if one] if is_list else words


def _pieces(word: str) -> list[str]:
    return [one for one in _PIECE.findall(word) if one]


def _split_word(word: str, width: int) -> list[str]:
    """Return a word in pieces that fit a line."""
    return [one[at : at + width] for one in _pieces(word) for at in range(0, len(one), width)]
