"""Verdict and grade as types, and whether a ratio is valid.

A ratio is the speed relative to the baseline: above 1 is faster. Renderers only draw the icons and colours.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal

from core.spec.effort import DEFAULT_MARGIN
from core.wire.units import ci

Color = Literal["green", "blue", "orange", "red", "gray"]

MIN_LAUNCHES = 2  # of each; a single process may be slow for its whole life, by a factor of two
MIN_SINGLE_ROUND_LAUNCHES = 5  # launches of one round each: the minimum of which trimming leaves three
MOST_DIGITS, MOST_DECIMALS = 4, 6
MOST_FACTOR = 2.0  # an interval beyond this factor of the estimate, either way, counts as not known yet
NOT_KNOWN = "not known yet"


class Verdict(StrEnum):
    """Whether a candidate is faster than its reference.

    Each verdict has a `word`, an `icon` (a name of Material Symbols) and a `color`.
    """

    word: str
    icon: str
    color: Color

    FASTER = "FASTER", "faster", "rocket_launch", "green"
    SLOWER = "SLOWER", "slower", "trending_down", "orange"
    EQUIVALENT = "EQUIVALENT", "no difference", "equal", "blue"
    UNDECIDED = "UNDECIDED", "undecided", "help", "gray"

    def __new__(cls, value: str, word: str, icon: str, color: Color) -> Verdict:
        """Attach word, icon and color to a verdict."""
        member = str.__new__(cls, value)
        member._value_, member.word, member.icon, member.color = value, word, icon, color
        return member

    @classmethod
    def of(cls, low: float | None, high: float | None, margin: float) -> Verdict:
        """Return the verdict for the interval of a ratio: all of it on one side of 1, or within the margin.

        EQUIVALENT, within 1/(1 + margin) and 1 + margin, takes precedence. Without an interval the verdict is
        UNDECIDED.
        """
        if low is None or high is None:
            return cls.UNDECIDED
        if low >= 1 / (1 + margin) and high <= 1 + margin:
            return cls.EQUIVALENT
        return cls.FASTER if low > 1 else cls.SLOWER if high < 1 else cls.UNDECIDED

    @property
    def opposite(self) -> Verdict:
        """The verdict with candidate and reference swapped."""
        return {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}.get(self, self)


class Grade(StrEnum):
    """Precision of a result, by the half-width of its interval; F: the result is invalid.

    Each grade has a `word`, an `icon`, a `color`, and `most`, the largest half-width that it allows.
    """

    word: str
    icon: str
    color: Color
    most: float

    A = "A", "fine", "verified", "green", 0.01
    B = "B", "good", "check_circle", "blue", 0.03
    C = "C", "coarse", "grain", "orange", 0.10
    D = "D", "too coarse", "blur_on", "orange", math.inf
    F = "F", "rejected", "block", "red", math.inf

    def __new__(cls, value: str, word: str, icon: str, color: Color, most: float) -> Grade:
        """Attach word, icon, color and limit to a grade."""
        member = str.__new__(cls, value)
        member._value_, member.word, member.icon, member.color, member.most = value, word, icon, color, most
        return member

    @classmethod
    def of(cls, half_width: float | None, *, frozen: bool = True) -> Grade:
        """Return A to D: D if the half-width is not known, at best B if processes were not `frozen`."""
        letter = cls.D if half_width is None else next(one for one in cls if half_width <= one.most)
        return letter if frozen else max(letter, cls.B)


def is_rejected(graded: Mapping[str, Any] | None) -> bool:
    """Whether the A/A test invalidates a contrast, or all contrasts of a comparison.

    Args:
        graded: a stored contrast, or a stored result of a comparison or trial; None: no result.
    """
    found = graded or {}
    return found.get("holds") is False or found.get("grade") == Grade.F


def icon_and_color(contrast: Mapping[str, Any]) -> tuple[str, Color]:
    """Return icon and colour of the verdict of a contrast; those of grade F if it is invalid."""
    shown = Grade.F if is_rejected(contrast) else Verdict[contrast["verdict"]]
    return shown.icon, shown.color


# --- texts ---------------------------------------------------------------------------------------------


def ratio_is_known(low: float | None, high: float | None) -> bool:
    """Whether an interval is narrow enough to display the ratio: `high` is at most 4 times `low`.

    Texts that show a ratio or its bounds check this first and show `NOT_KNOWN` instead. False without an
    interval. The direction may still be known: [1.2, 6] is faster by an unknown factor.
    """
    return low is not None and high is not None and 0 < low <= high <= MOST_FACTOR**2 * low


def precision_is_known(half_width: float | None) -> bool:
    """Whether a relative half-width belongs to an interval that `ratio_is_known` accepts: at most 75 %."""
    return half_width is not None and half_width <= (MOST_FACTOR - 1 / MOST_FACTOR) / 2


def precision_text(half_width: float | None) -> str:
    """Return a relative half-width as text: "±1.6 %"; beyond ±75 %, or without one, `NOT_KNOWN`."""
    if half_width is None or not precision_is_known(half_width):
        return NOT_KNOWN
    return f"±{100 * half_width:.2g} %"


def ratio_text(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """Return the ratio as text with the digits that its interval supports, at most four significant ones.

    One step of the last digit is at most half of the interval's half-width: 1.4237 is "1.42" with ±0.04,
    "1.4" with ±0.3. Without an interval the text has two digits.
    """
    return f"{ratio:.{_decimals(ratio, low, high)}f}"


def ratio_places(rows: Iterable[tuple[float, float | None, float | None]]) -> int:
    """Return the common number of decimals for a column of ratios: the most that one of them supports.

    Args:
        rows: each ratio with its interval, as for `ratio_text`.
    """
    return max((_decimals(*row) for row in rows), default=0)


def interval_texts(ratio: float, low: float, high: float) -> tuple[str, str, str]:
    """Return a ratio and the bounds of its interval as texts with the digits of `ratio_text`."""
    places = _decimals(ratio, low, high)
    return f"{ratio:.{places}f}", f"{low:.{places}f}", f"{high:.{places}f}"


def words(contrast: Mapping[str, Any]) -> str:
    """Return a contrast (`Contrast.to_dict()`, or a stored one) as text for pages and commands.

    "1.42× faster, 95 % CI [1.38, 1.46]", "1.30× slower, 95 % CI [1.25, 1.36]", "no difference larger than
    2 % (1.004×, 95 % CI [0.995, 1.013])", "within the equivalence margin of ±2 %, though measurably slower
    (0.991×, 95 % CI [0.987, 0.995])", "undecided: between 0.97× and 1.08×", "undecided: the ratio is not
    known yet", where the interval is wider than `ratio_is_known` allows. With several streams: "1.42× more
    samples/s, 95 % CI [1.38, 1.46]".
    """
    short, rest = parts(contrast)
    match _verdict(contrast):
        case Verdict.FASTER | Verdict.SLOWER:
            return f"{short}, {rest}"
        case Verdict.EQUIVALENT:
            return f"{short} ({rest})"
    return f"{short}: {rest}"


def parts(contrast: Mapping[str, Any]) -> tuple[str, str]:
    """Return the two parts of `words`: the verdict, and its numbers.

    ("1.42× faster", "95 % CI [1.38, 1.46]"), ("undecided", "between 0.97× and 1.08×").
    """
    ratio, low, high = contrast["ratio"], contrast["ratio_low"], contrast["ratio_high"]
    if low is None or high is None:
        return Verdict.UNDECIDED.word, f"about {ratio_text(ratio)}×; {_why_no_interval(contrast)}"
    verdict = _verdict(contrast)
    if not ratio_is_known(low, high):
        what = "ratio" if verdict is Verdict.UNDECIDED else "factor"
        return direction_word(contrast, verdict), f"the {what} is {NOT_KNOWN}"
    if verdict is Verdict.SLOWER:
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    factor, lower, upper = interval_texts(ratio, low, high)
    span = ci(lower, upper)
    match verdict:
        case Verdict.FASTER | Verdict.SLOWER:
            return f"{factor}× {direction_word(contrast, verdict)}", span
        case Verdict.EQUIVALENT:
            return _equivalent(contrast), f"{factor}×, {span}"
    return verdict.word, f"between {lower}× and {upper}×"


def direction_word(contrast: Mapping[str, Any], verdict: Verdict) -> str:
    """Return "faster" or "slower"; where throughput is compared, "more samples/s" or "fewer samples/s".

    Beside other callers a run may take longer although more samples are done.
    """
    if contrast.get("statistic") != "throughput" or verdict not in _OF_THROUGHPUT:
        return verdict.word
    return _OF_THROUGHPUT[verdict]


_OF_THROUGHPUT = {Verdict.FASTER: "more samples/s", Verdict.SLOWER: "fewer samples/s"}


def measurable_direction(contrast: Mapping[str, Any]) -> Verdict | None:
    """Return FASTER or SLOWER if the whole interval is on one side of 1, within the margin or beyond it.

    A contrast can be EQUIVALENT and yet measurably different. None: the interval includes 1 or is not known.
    """
    low, high = contrast["ratio_low"], contrast["ratio_high"]
    if low is None or high is None:
        return None
    return Verdict.FASTER if low > 1 else Verdict.SLOWER if high < 1 else None


def _equivalent(contrast: Mapping[str, Any]) -> str:
    margin = 100 * (contrast.get("margin") or DEFAULT_MARGIN)  # results may be stored without it
    if (sure := measurable_direction(contrast)) is not None:
        word = direction_word(contrast, sure)
        return f"within the equivalence margin of ±{margin:g} %, though measurably {word}"
    return f"{Verdict.EQUIVALENT.word} larger than {margin:g} %"


def measured(contrast: Mapping[str, Any]) -> str:
    """Return the measured range without a verdict, for an invalid contrast: "between 0.97× and 1.08×"."""
    return parts({**contrast, "verdict": Verdict.UNDECIDED})[1]


def tick(ratio: float) -> str:
    """Return a tick label for an axis whose title names the faster side: 0.8 and 1.25 are "1.25×"."""
    return f"{max(ratio, 1 / ratio):.4g}×"


def _verdict(contrast: Mapping[str, Any]) -> Verdict:
    """Return the stored verdict; UNDECIDED without an interval, whatever is stored."""
    known = contrast["ratio_low"] is not None and contrast["ratio_high"] is not None
    return Verdict[contrast["verdict"]] if known else Verdict.UNDECIDED


def _why_no_interval(contrast: Mapping[str, Any]) -> str:
    launches = contrast.get("generations")
    if launches == 1:
        enough_s = contrast.get("interval_budget_s")
        what_to_do = f": give it about {enough_s} s" if enough_s else ""
        return f"an interval takes {MIN_LAUNCHES} launches of each, there was 1{what_to_do}"
    if launches and launches < MIN_SINGLE_ROUND_LAUNCHES and contrast.get("rounds") == launches:
        return (
            f"an interval takes 2 rounds in a launch, or {MIN_SINGLE_ROUND_LAUNCHES} launches: measure longer"
        )
    return "the rounds hardly differ: the clock is too coarse for an interval"


def _decimals(ratio: float, low: float | None, high: float | None) -> int:
    size = math.floor(math.log10(ratio))
    if low is None or high is None or high <= low:
        return max(0, 1 - size)
    step = math.floor(math.log10((high - low) / 4))
    places = max(0, min(MOST_DIGITS, size - step + 1) - 1 - size)
    while places < MOST_DECIMALS and any(_rounds_to_one(bound, places) for bound in (low, high)):
        places += 1  # rounding must not move a bound to 1, because the interval would seem to include 1
    return places


def _rounds_to_one(bound: float, places: int) -> bool:
    return bound != 1 and float(f"{bound:.{places}f}") == 1
