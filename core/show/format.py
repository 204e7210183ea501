"""Formats numbers and names of results, for terminal and browser. Pure; takes seconds and bytes.

Units come from `core.wire.units`. An unknown number is a dash, never a zero.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from core.evidence.verdict import NOT_KNOWN as NOT_KNOWN
from core.evidence.verdict import precision_is_known as precision_is_known
from core.evidence.verdict import precision_text as precision_text
from core.evidence.verdict import ratio_is_known as ratio_is_known
from core.spec.settings import value_words
from core.wire.units import DASH, ci, interval, provider, significant

_UNKNOWN_INTERVAL = "interval unknown: too few runs"


def interval_ms(low: float | None, high: float | None) -> str:
    """Return a 95 % interval in milliseconds, with words for an open side."""
    if low is None and high is None:
        return _UNKNOWN_INTERVAL
    return interval((low or 0.0) * 1e3, None if high is None else high * 1e3, "ms")


def duration(seconds: float | None) -> str:
    """Return a readable duration: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 05 min`, `1 d 3 h`."""
    if seconds is None:
        return DASH
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def about(seconds: float) -> str:
    """Return a rough duration: `20 s`, `5 min`, `1.5 h`, `2.0 d`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 129_600 else f"{seconds / 86_400:.1f} d"


def rate(per_second: float | None) -> str:
    """Return samples per second."""
    return DASH if per_second is None else f"{significant(per_second)} samples/s"


def interval_rate(low: float | None, high: float | None) -> str:
    """Return a 95 % interval of samples per second, with words for an open side."""
    if low is None and high is None:
        return _UNKNOWN_INTERVAL
    return interval(low, high, "samples/s")


def count(number: int | None) -> str:
    """Return a whole number with thousands separated."""
    return DASH if number is None else f"{number:,}"


def percent(fraction: float, digits: int = 1) -> str:
    """Return a change with its sign, `+3.2 %` or `−3.2 %`."""
    return f"{fraction:+.{digits}%}".replace("%", " %").replace("-", "−")


def when(epoch_s: float | None) -> str:
    """Return a moment as local time, `2026-11-21 09:14:03`."""
    if epoch_s is None:
        return DASH
    return datetime.fromtimestamp(epoch_s, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def minute(epoch_s: float | None) -> str:
    """Return a moment as local time without seconds, `2026-11-21 09:14`."""
    if epoch_s is None:
        return DASH
    return datetime.fromtimestamp(epoch_s, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def short_time(epoch_s: float) -> str:
    """Return a moment without the year, or without the time if it is long ago."""
    recent = time.time() - epoch_s < 300 * 86_400
    return minute(epoch_s)[5:] if recent else minute(epoch_s)[:10]


def short(text: str, limit: int = 60) -> str:
    """Return `text`, cut in the middle when it is longer than `limit`."""
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def shape(sizes: Sequence[int | str] | None) -> str:
    """Return a tensor's shape, `(batch, 3, 224, 224)`."""
    return "(any rank)" if sizes is None else "(" + ", ".join(str(one) for one in sizes) + ")"


def value(setting: object) -> str:
    """Return a setting's value as readable text; None: `default`."""
    if isinstance(setting, dict):
        return ", ".join(f"{k}={v}" for k, v in setting.items()) or "none"
    if isinstance(setting, tuple | list):
        return " → ".join(provider(value(one)) for one in setting) or "none"
    return _HASHED.sub(r" (SHA-256 \1…)", setting if isinstance(setting, str) else value_words(setting))


_HASHED = re.compile(r"@sha256:([0-9a-f]{12})[0-9a-f]{52}$")  # suffix of a library's or a runtime's name


def share(fraction: float | None, digits: int = 2) -> str:
    """Return a share of samples, `99.44 %`."""
    return DASH if fraction is None else f"{fraction:.{digits}%}".replace("%", " %")


def interval_share(low: float | None, high: float | None, digits: int = 2) -> str:
    """Return a 95 % interval of a share, `95 % CI [98.00 %, 99.80 %]`."""
    if low is None or high is None:
        return "interval unknown: no samples"
    return ci(share(low, digits), share(high, digits))
