"""The header of exported files: origin, warnings, unsupported settings.

Pure functions: text in, lines of comments out. Every text of a configuration stands there by `repr`, so that
it stays on its line and in its comment.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from core import __version__
from core.evidence.measurement import Trial, model_words
from core.evidence.verdict import Verdict, is_rejected, words
from core.show.export.unsupported import Asked
from core.wire.errors import SpecError
from core.wire.output_check import MARK, breach, else_words, not_judged


def accepted(trial: Trial, reason: str) -> str:
    """Return the reason why outputs that differ are accepted; "" where they do not differ.

    Raises:
        SpecError: they differ, and `reason` says nothing.
    """
    why = breach(trial.result)
    words = " ".join(reason.encode(errors="replace").decode().split())
    if why and not any(character.isalpha() for character in words):
        raise SpecError(
            f"The {MARK} in trial {trial.id}: {why}.",
            hint="Export another trial, or give the reason why these outputs are acceptable "
            "(`--accept-breach`).",
        )
    return words if why else ""


def breach_lines(trial: Trial, accepted: str) -> list[str]:
    """Say that the outputs differ, and why that is accepted."""
    if why := not_judged(trial.result):
        return [f"# The output check was inconclusive: {why!r}"]
    if not accepted:
        return []
    return [f"# {MARK.upper()}: {breach(trial.result)!r}", f"# accepted_breach: {accepted!r}"]


def model_lines(result: Mapping[str, Any] | None) -> list[str]:
    """Say what the model is."""
    told = model_words(result)
    return [f"# MODEL: {told!r}"] if told else []


def caution(trial: Trial) -> str:
    """Say why nobody should take a trial's settings for the better ones; "" where nothing speaks against it.

    "Slower than its baseline: 1.30× slower, 95 % [1.25, 1.36]."
    """
    result = trial.facts
    contrasts = result.get("contrasts") or []
    first = contrasts[0] if contrasts else None
    if is_rejected(result) or is_rejected(first):
        told = first.get("holds_reason") if first else ""
        reason = told or result.get("grade_reason") or "the A/A control failed"
        return f"The comparison of this trial was rejected: {str(reason).rstrip('.')}."
    if first and first["verdict"] == Verdict.SLOWER:
        return f"Slower than its baseline: {words(first)}{else_words(first)}."
    if first and else_words(first):
        return str(first["something_else"])
    return ""


def doubt_lines(trial: Trial) -> list[str]:
    """Say what `caution` says."""
    text = caution(trial)
    return [f"# CAUTION: {text!r}"] if text else []


def fallback_lines(trial: Trial) -> list[str]:
    """Say that another provider ran than was asked for."""
    if not trial.facts.get("fallback"):
        return []
    return ["# FALLBACK: a requested provider did not load; see `measured`."]


NOT_EXPORTED = "NOT EXPORTED:"


def not_carried(text: str) -> list[str]:
    """Return what a file says on its top that it does not carry, a line for each setting."""
    lines = [line.lstrip("#/") for line in text.splitlines()]
    start = next((number for number, line in enumerate(lines) if line.strip() == NOT_EXPORTED), len(lines))
    return [line.strip() for line in takewhile(lambda line: line.startswith("   "), lines[start + 1 :])]


def lost_lines(asked: Asked) -> list[str]:
    """Say which settings the format does not carry, each with its value and the reason."""
    lost = asked.left()
    if not lost:
        return []
    return [f"# {NOT_EXPORTED}", *(f"#   {_plain(one.name)} = {one.value!r}: {one.why}" for one in lost)]


def _plain(name: str) -> str:
    """A name on one line: with `expert` a key is any text, and a line of its own would be code."""
    return name if name.isprintable() else repr(name)


def head(trial: Trial, accepted: str, asked: Asked, *notes: str, mark: str = "#") -> str:
    """Return the comment on top of a file.

    Args:
        trial: whose session it is.
        accepted: why its outputs may differ.
        asked: of which the body of the file took what it holds.
        notes: more lines, of this format.
        mark: what a comment begins with.
    """
    lines = [
        f"# The session of ORTune trial {trial.id}, made by ORTune {__version__}.",
        *model_lines(trial.result),
        *doubt_lines(trial),
        *breach_lines(trial, accepted),
        *(f"# {note}" for note in notes),
        *lost_lines(asked),
    ]
    # a comment that ends with a backslash would go on in the next line of C++ and of the shell
    return "\n".join(mark + line.removeprefix("#") + ("." if line.endswith("\\") else "") for line in lines)
