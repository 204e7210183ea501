"""The runtimes that a question names: one for all of its configurations, or several that it compares.

A configuration that names a runtime itself keeps it where several configurations are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.api import arguments
from core.evidence.comparison import several_runtimes
from core.process import runtimes
from core.spec import TrialSpec
from core.spec.axes import RUNTIME
from core.wire.errors import SpecError
from core.wire.runtime import OWN, runtime


def pinned_runtimes(value: object) -> list[str]:
    """Return the texts of one or several runtimes, each with the hash of its present content.

    Args:
        value: a text, or a list of texts.

    Raises:
        SpecError: there is no such runtime, its content has another hash, or one is named twice.
    """
    found = [runtimes.pinned(one) for one in arguments.texts(RUNTIME, value)]
    if twice := next((one for one in found if found.count(one) > 1), None):
        raise SpecError(
            f"The runtime `{runtime(twice).name}` is given twice.", hint="Give each runtime once."
        )
    return found


def one_runtime(value: object) -> str:
    """Return the text of the only runtime, pinned.

    Raises:
        SpecError: as of `pinned_runtimes`, or several are given.
    """
    found = pinned_runtimes(value)
    if len(found) != 1:
        names = ", ".join(f"`{runtime(one).name}`" for one in found) or "none"
        raise SpecError(
            f"This takes one runtime for its configuration, but got {len(found)}: {names}.",
            hint="Give one. `tune`, `compare`, `sweep` and `load` compare several, and `search` varies them.",
        )
    return found[0]


def without_runtimes(given: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the runtimes among settings, pinned, and the other settings; empty: none is given.

    Raises:
        SpecError: as of `pinned_runtimes`.
    """
    others = {name: value for name, value in given.items() if name != RUNTIME}
    return pinned_runtimes(given.get(RUNTIME, ())), others


def in_runtimes(
    specs: Sequence[TrialSpec],
    labels: Sequence[str],
    asked: Sequence[str],
    *,
    note: Callable[[str], None] = lambda text: None,
) -> tuple[list[TrialSpec], list[str]]:
    """Return each configuration once per runtime, with labels that name the runtime if there are several.

    Args:
        specs: the configurations.
        labels: of each.
        asked: pinned runtimes; empty: every configuration runs in its own.
        note: called with what keeps its runtime although others are asked for.
    """
    found: list[tuple[TrialSpec, str]] = []
    for spec, label in zip(specs, labels, strict=True):
        if asked and spec.runtime != OWN:
            note(f"{label} keeps its runtime, {runtime(spec.runtime).name}")
        chosen = [spec.runtime] if spec.runtime != OWN or not asked else asked
        found += [(spec.model_copy(update={RUNTIME: one}), label) for one in chosen]
    several = several_runtimes([spec for spec, _ in found])
    return [spec for spec, _ in found], [
        f"{label} ({runtime(spec.runtime).name})" if several else label for spec, label in found
    ]
