"""Values excluded from a search because configurations with them fail.

Pure.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from core.evidence.effects import Codes
from core.evidence.evaluations import Evaluation
from core.spec.space import Choice

GUILTY, GUILTY_PAIR = 2, 3  # failures without a success after which a value or a pair is excluded

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedValues:
    """Values excluded from the search because configurations with them fail."""

    axes: tuple[int, ...]
    values: Choice  # of these axes
    failures: int
    reason: str


def excluded_values(tried: Mapping[Choice, Evaluation], default: Choice | None) -> list[ExcludedValues]:
    """Return the single values and pairs of values with which every configuration has failed.

    The value that explains most failures of one reason is excluded first, and these failures count for no
    other value. One failure is enough if only that value differs from a configuration that works.

    Args:
        tried: evaluation of each launched configuration.
        default: the ORT default, which works; None: not in the space.
    """
    failed = {c: one.failed for c, one in tried.items() if one.failed and one.looks[-1].trial}
    worked = [choice for choice, one in tried.items() if not one.failed]
    if default is not None:
        worked.append(default)
    axes = range(len(next(iter(failed), ())))
    singles = [(axis,) for axis in axes]
    pairs = list(itertools.combinations(axes, 2))
    found = []
    while failed:
        guilty = _failing_values(singles, GUILTY, failed, worked) or _failing_values(
            pairs, GUILTY_PAIR, failed, worked
        )
        if guilty is None:
            break
        found.append(guilty)
        failed = {c: why for c, why in failed.items() if _of(c, guilty.axes) != guilty.values}
    return found


def excluded_mask(excluded: Sequence[ExcludedValues], codes: Codes) -> Mask:
    """Return which configurations have excluded values."""
    found = np.zeros(len(codes), dtype=np.bool_)
    for one in excluded:
        found |= (codes[:, one.axes] == one.values).all(axis=1)
    return found


def sound(excluded: Sequence[ExcludedValues], choices: Sequence[Choice]) -> list[Choice]:
    """Return the configurations without excluded values."""
    return [one for one in choices if not any(_of(one, found.axes) == found.values for found in excluded)]


def _failing_values(
    groups: Sequence[tuple[int, ...]], least: int, failed: Mapping[Choice, str], worked: Sequence[Choice]
) -> ExcludedValues | None:
    """Return the values that most failures of one reason share, and no working configuration has."""
    best: ExcludedValues | None = None
    for group in groups:
        innocent = {_of(choice, group) for choice in worked}
        counts = Counter((_of(choice, group), why) for choice, why in failed.items())
        alone = {
            _of(choice, group) for choice in failed if any(map(partial(_is_alone, choice, group), worked))
        }
        for (values, why), count in counts.items():
            enough = count >= least or (len(group) == 1 and values in alone)
            if enough and any(values) and values not in innocent and (not best or count > best.failures):
                best = ExcludedValues(axes=group, values=values, failures=count, reason=why)
    return best


def _is_alone(choice: Choice, group: tuple[int, ...], other: Choice) -> bool:
    """Whether two configurations differ on all axes of a group and on no other axis."""
    return all((a == b) != (axis in group) for axis, (a, b) in enumerate(zip(choice, other, strict=True)))


def _of(choice: Choice, group: Sequence[int]) -> Choice:
    return tuple(choice[axis] for axis in group)
