"""Writes the header of exported files: origin, warnings, unsupported settings.

Pure functions: text in, comment lines out. Every text of a configuration is written by `repr`, so that it
stays on its line and inside the comment.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from core import __version__
from core.evidence.measurement import Trial, model_text
from core.evidence.verdict import Verdict, is_rejected, words
from core.show.export.unsupported import SettingTracker
from core.show.runtime_text import runtime_text
from core.wire.errors import SpecError
from core.wire.output_check import OUTPUTS_DIFFER, breach, different_outputs_words, not_judged_reason


def accepted(trial: Trial, reason: str) -> str:
    """Return the reason for accepting outputs that exceed the tolerance; "" if they are within it.

    Raises:
        SpecError: the outputs exceed the tolerance, and `reason` is empty.
    """
    why = breach(trial.result)
    words = " ".join(reason.encode(errors="replace").decode().split())
    if why and not any(character.isalpha() for character in words):
        raise SpecError(
            f"The {OUTPUTS_DIFFER} in trial {trial.id}: {why}.",
            hint="Export another trial, or give the reason why these outputs are acceptable "
            "(`--accept-breach`).",
        )
    return words if why else ""


def tolerance_lines(trial: Trial, accepted: str) -> list[str]:
    """Return lines on an exceeded output tolerance and the reason for accepting it."""
    if why := not_judged_reason(trial.result):
        return [f"# The output check was inconclusive: {why!r}"]
    if not accepted:
        return []
    return [f"# {OUTPUTS_DIFFER.upper()}: {breach(trial.result)!r}", f"# accepted_breach: {accepted!r}"]


def model_lines(result: Mapping[str, Any] | None) -> list[str]:
    """Return lines on the model."""
    told = model_text(result)
    return [f"# MODEL: {told!r}"] if told else []


def runtime_lines(trial: Trial) -> list[str]:
    """Return a line on the runtime, if it is not ORTune's own."""
    told = runtime_text(trial)
    return [f"# RUNTIME: {told!r}"] if told else []


def caution(trial: Trial) -> str:
    """Return why a trial's settings may not be an improvement; "" if there is no reason.

    "Slower than its baseline: 1.30× slower, 95 % CI [1.25, 1.36]."
    """
    result = trial.facts
    contrasts = result.get("contrasts") or []
    first = contrasts[0] if contrasts else None
    if is_rejected(result) or is_rejected(first):
        told = first.get("holds_reason") if first else ""
        reason = told or result.get("grade_reason") or "the A/A control failed"
        return f"The comparison of this trial was rejected: {str(reason).rstrip('.')}."
    if first and first["verdict"] == Verdict.SLOWER:
        return f"Slower than its baseline: {words(first)}{different_outputs_words(first)}."
    if first and different_outputs_words(first):
        return str(first["something_else"])
    return ""


def caution_lines(trial: Trial) -> list[str]:
    """Return the text of `caution` as lines."""
    text = caution(trial)
    return [f"# CAUTION: {text!r}"] if text else []


def fallback_lines(trial: Trial) -> list[str]:
    """Return lines on a fallback from the requested provider."""
    if not trial.facts.get("fallback"):
        return []
    return ["# FALLBACK: a requested provider did not load; see `measured`."]


NOT_EXPORTED = "NOT EXPORTED:"


def not_carried(text: str) -> list[str]:
    """Return the unsupported settings that the header of `text` lists, one line per setting."""
    lines = [line.lstrip("#/") for line in text.splitlines()]
    start = next((number for number, line in enumerate(lines) if line.strip() == NOT_EXPORTED), len(lines))
    return [line.strip() for line in takewhile(lambda line: line.startswith("   "), lines[start + 1 :])]


def unsupported_lines(tracker: SettingTracker) -> list[str]:
    """Return lines on the unsupported settings, each with its value and the reason."""
    lost = tracker.unsupported_settings()
    if not lost:
        return []
    return [f"# {NOT_EXPORTED}", *(f"#   {_plain(one.name)} = {one.value!r}: {one.why}" for one in lost)]


def _plain(name: str) -> str:
    """Return a name on one line: with `expert` a key is any text, and a further line would be code."""
    return name if name.isprintable() else repr(name)


def head(trial: Trial, accepted: str, tracker: SettingTracker, *notes: str, mark: str = "#") -> str:
    """Return the comment at the top of a file.

    Args:
        trial: of the session.
        accepted: why its outputs may exceed the tolerance.
        tracker: tracks the settings; the body of the file has already been written.
        notes: further lines of this format.
        mark: start of a comment line.
    """
    lines = [
        f"# The session of ORTune trial {trial.id}, made by ORTune {__version__}.",
        *model_lines(trial.result),
        *runtime_lines(trial),
        *caution_lines(trial),
        *tolerance_lines(trial, accepted),
        *(f"# {note}" for note in notes),
        *unsupported_lines(tracker),
    ]
    # in C++ and shell, a backslash at the end would continue the comment in the next line
    return "\n".join(mark + line.removeprefix("#") + ("." if line.endswith("\\") else "") for line in lines)
