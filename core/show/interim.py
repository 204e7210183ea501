"""Sentences about a running comparison, for terminal and pages. Pure functions.

They take contrasts of `InterimResult.interim`, whose intervals are valid at every displayed update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.evidence.verdict import NOT_KNOWN, Verdict, parts, ratio_is_known

MEASURING = "measuring…"


def is_known(contrast: Mapping[str, Any]) -> bool:
    """Whether there is an interval, and it is narrow enough to be informative."""
    return ratio_is_known(contrast.get("ratio_low"), contrast.get("ratio_high"))


def words(contrast: Mapping[str, Any]) -> tuple[str, str]:
    """Return the interim result of a ratio and its interval; the interval is empty while unknown.

    ("1.31× faster", "95 % CI [1.10, 1.56]"), ("undecided", "between 0.96× and 1.06×"),
    ("not known yet", ""), ("measuring…", ""). There is no direction while the interval contains 1.
    """
    if contrast.get("ratio_low") is None or contrast.get("ratio_high") is None:
        return MEASURING, ""
    verdict = _verdict(contrast)
    if verdict is Verdict.UNDECIDED and not is_known(contrast):
        return NOT_KNOWN, ""
    return parts({**contrast, "verdict": verdict})


def sentence(contrast: Mapping[str, Any], against: str = "") -> str:
    """Return the interim result of a ratio as a sentence, with the name of its reference.

    "1.31× faster than ORT default so far, 95 % CI [1.10, 1.56]", "undecided so far against ORT default:
    between 0.96× and 1.06×", "no difference larger than 2 % from ORT default so far (1.004×, 95 % CI [0.995,
    1.013])", "speed against ORT default: measuring…".
    """
    head, rest = words(contrast)

    def with_reference(word: str) -> str:
        return f" {word} {against}" if against else ""

    if not rest:
        return f"speed{with_reference('against')}: {head}"
    match _verdict(contrast):
        case Verdict.FASTER | Verdict.SLOWER:
            return f"{head}{with_reference('than')} so far, {rest}"
        case Verdict.EQUIVALENT:
            return f"{head}{with_reference('from')} so far ({rest})"
    return f"{head} so far{with_reference('against')}: {rest}"


def _verdict(contrast: Mapping[str, Any]) -> Verdict:
    """Return the verdict of the interval; without a margin it is never equivalent."""
    return Verdict.of(contrast["ratio_low"], contrast["ratio_high"], contrast.get("margin") or 0.0)
