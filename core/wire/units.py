"""Quantities and names as text, for dashboard, charts, terminal and targets: one unit for each kind.

Latencies are in milliseconds and sizes in binary units, so that a value, its interval and the axis below it
are comparable. Arguments are seconds and bytes. An unknown value is a dash, never a zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

DASH = "–"
PROVIDER = "ExecutionProvider"  # ends the name of each in ONNX Runtime
FAR_RATIO = 8.0  # ratio of two ends above which each has its own decimals
BINARY: Sequence[tuple[float, str]] = (
    *((float(1 << power), unit) for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"))),
    (1.0, "B"),
)


def utc_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def provider(name: str) -> str:
    """Return an execution provider's short name as its maker writes it, such as `CUDA`."""
    return name.removesuffix(PROVIDER).replace("Tensorrt", "TensorRT")


def decimals(value: float, digits: int = 4) -> int:
    """Return how many decimals leave `value` with `digits` significant digits."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(9, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def significant(value: float, digits: int = 4, *, signed: bool = False) -> str:
    """Return `value` with `digits` significant digits, thousands separated, never in exponent form."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    return f"{value:{'+' if signed else ''},.{decimals(value, digits)}f}"


def rounded(value: float, digits: int = 4) -> float:
    """Return the number that `significant` writes; one that is not finite stays."""
    return round(value, decimals(value, digits)) if math.isfinite(value) else value


def span(low: float | None, high: float | None, unit: str = "", digits: int = 4) -> str:
    """Return `2.200 to 2.500 ms`, or `2.200 ms or more`; ends that are near have the same decimals."""
    low, high = (None if end is None or not math.isfinite(end) else end for end in (low, high))
    ends = [end for end in (low, high) if end is not None]
    if not ends:
        return DASH
    least, most = min(map(abs, ends)), max(map(abs, ends))
    far = least > 0 and most > FAR_RATIO * least
    said = [f"{end:,.{decimals(end if far else most, digits)}f}" for end in ends]
    text = " to ".join(said) if len(said) == 2 else said[0]
    open_end = "" if len(said) == 2 else " or more" if low is not None else " or less"
    return f"{text} {unit}".rstrip() + open_end


def ci(low: str, high: str) -> str:
    """Return a confidence interval from the texts of its ends: `95 % CI [1.38, 1.46]`.

    Ends with separated thousands are joined by a word: `95 % CI [20,106 to 21,349]`.
    """
    joint = " to " if "," in low + high else ", "
    return f"95 % CI [{low}{joint}{high}]"


def interval(low: float | None, high: float | None, unit: str = "") -> str:
    """Return a confidence interval: `95 % CI [2.200, 2.500] ms`, or `95 % CI: 2.200 ms or more`."""
    ends = span(low, high).split(" to ")
    if len(ends) != 2:
        return f"95 % CI: {span(low, high, unit)}"
    return f"{ci(*ends)} {unit}".rstrip()


def ms_number(seconds: float | None, digits: int = 4) -> str:
    """Return a time in milliseconds without the unit, for a column that names it."""
    return DASH if seconds is None else significant(seconds * 1e3, digits)


def ms(seconds: float | None, digits: int = 4, *, signed: bool = False) -> str:
    """Return a time in milliseconds, `0.8123 ms`."""
    return DASH if seconds is None else f"{significant(seconds * 1e3, digits, signed=signed)} ms"


def span_ms(low: float | None, high: float | None, unit: str = "ms") -> str:
    """Return a range of times in milliseconds, `2.200 to 2.500 ms`; an open end is written in words.

    Args:
        low: in seconds; None: unknown, and nothing is below zero.
        high: in seconds; None: unknown.
        unit: empty in a column that names it.
    """
    if low is None and high is None:
        return DASH
    return span((low or 0.0) * 1e3, None if high is None else high * 1e3, unit)


def size_scale(count: float) -> tuple[float, str]:
    """Return the largest binary unit that leaves `count` bytes at 1 or more, with its name."""
    return next((one for one in BINARY if abs(count) >= one[0]), BINARY[-1])


def size(count: float | None) -> str:
    """Return a number of bytes with a binary unit, `1.50 MiB`."""
    if count is None:
        return DASH
    scale, unit = size_scale(float(count))
    if unit == "B":
        return f"{count:.0f} B"
    return f"{significant(count / scale, 3)} {unit}"


def brief(value: float) -> str:
    """Return a number that is exact, as of an axis or a limit: like `significant`, no zeros at its end."""
    text = significant(value, 6)
    return text.rstrip("0").rstrip(".") if "." in text else text


def clipped(text: str, most: int = 120) -> str:
    """Return a name as it is, or its beginning: some models have names longer than a screen."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def visible(text: object) -> str:
    """Return `text` on one line, with what is not printable written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
