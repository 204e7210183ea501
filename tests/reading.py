"""What a text tells, whatever its words are: the numbers and names that are facts."""

from __future__ import annotations

import re


def tells(text: object, *facts: object) -> bool:
    """Whether a text, without Markdown escapes, contains all these numbers with their units and names."""
    return all(str(fact) in str(text).replace("\\", "") for fact in facts)


def numbers(text: object) -> list[float]:
    """The numbers of a text in its order, without those inside a name such as p50."""
    found = re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", str(text).replace("\\", ""))
    return [float(one.rstrip(",").replace(",", "")) for one in found]
