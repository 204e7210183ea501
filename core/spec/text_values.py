"""Values as people write them, on the command line or in a script: `2m`, `5%`, `8`, `0.5,0.5`.

Pure. Every function raises `SpecError` with the text and how to write it; `name` is that of the value.
"""

from __future__ import annotations

import math
import re

from core.wire.errors import SpecError

# what a text for a switch means
ON_OFF = dict.fromkeys(("on", "true", "yes", "1"), True) | dict.fromkeys(("off", "false", "no", "0"), False)


def whole_number(name: str, text: str) -> int:
    """Read the value of an option as a whole number.

    Raises:
        SpecError: it is not a whole number.
    """
    digits = text.strip()
    if not (digits.removeprefix("-").isascii() and digits.removeprefix("-").isdigit() and len(digits) < 20):
        raise SpecError(f"`{name}` takes a whole number, but got `{text[:40]}`.", hint="Write digits only.")
    return int(digits)


_UNITS_S = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600}


def seconds(name: str, text: str) -> int:
    """Read a duration: `90`, `90s`, `2m`, `1h`.

    Raises:
        SpecError: it is not a duration.
    """
    match = re.fullmatch(r"([0-9]{1,9})\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_S:
        raise SpecError(
            f"`{name}` takes whole seconds or minutes, but got `{text[:40]}`.",
            hint="Write for example 60s or 2m.",
        )
    return int(match[1]) * _UNITS_S[match[2]]


def share(name: str, text: str) -> float:
    """Read a share: `0.02` or `2%`. Without `%` it is below 1, because a bare `5` may mean 5 % or 500 %.

    Raises:
        SpecError: it is not a share.
    """
    digits = text.strip()
    try:
        value = float(digits.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise SpecError(
            f"`{name}` takes a share of 0 or more, but got `{text[:40]}`.",
            hint="Write for example 0.02 or 2%.",
        )
    if digits.endswith("%"):
        return value / 100
    if value >= 1:
        hint = f"Write `{value:g}%`" + (f" or `{value / 100:g}`." if value < 100 else ".")
        raise SpecError(f"`{name}` takes a share below 1 or a percentage, but got `{text[:40]}`.", hint=hint)
    return value


def numbers(name: str, text: str) -> list[float]:
    """Read numbers with commas between them; raises `SpecError`."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(
            f"`{name}` takes numbers with commas between them, but got `{text[:40]}`.",
            hint="Write for example `0.5,0.5,0.5`.",
        ) from None
