"""The runtime of a result in words: its name, versions and hash, wherever it is not ORTune's own. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core.evidence.measurement import Trial
from core.wire.engines import DEFAULT
from core.wire.runtime import OWN, runtime

_OPENVINO = "openvino"  # the engine, and the beginning of its packages' names


def runtime_name(spec: Mapping[str, Any]) -> str:
    """Return the name of the runtime of a stored spec: `ort130`, `own`."""
    return runtime(str(spec.get("runtime") or OWN)).name


def versions_text(environment: Mapping[str, Any] | None, engine: str = DEFAULT) -> str:
    """Return the versions of an environment: `onnxruntime 1.30.0, Python 3.12.1`; empty: not known.

    Args:
        environment: `wire.Environment`, or a part of it.
        engine: that computes; the packages of the other one are left out.
    """
    if not environment:
        return ""
    libraries: Mapping[str, str] = environment.get("libraries") or {}
    begin = _OPENVINO if engine == _OPENVINO else DEFAULT
    found = [f"{name} {libraries[name]}" for name in sorted(libraries) if name.startswith(begin)]
    python = environment.get("python")
    return ", ".join([*found, *([f"Python {python}"] if python else [])])


def runtime_text(trial: Trial) -> str:
    """Return the runtime of a trial: `ort130: onnxruntime 1.30.0, Python 3.12.1 (SHA-256 4f0a…)`.

    Empty where the trial ran in ORTune's own.
    """
    return runtime_of(trial.spec, trial.facts.get("environment"))


def runtime_of(spec: Mapping[str, Any], environment: Mapping[str, Any] | None) -> str:
    """Return `runtime_text` of a stored spec, with its environment if that is known."""
    asked = runtime(str(spec.get("runtime") or OWN))
    if asked.name == OWN:
        return ""
    versions = versions_text(environment, str(spec.get("engine") or DEFAULT))
    digest = f" (SHA-256 {asked.sha256[:12]}…)" if asked.sha256 else ""
    return f"{asked.name}{f': {versions}' if versions else ''}{digest}"


def name_and_versions(trial: Trial | None) -> str:
    """Return the runtime of a trial for a row of a table: `ort130 (onnxruntime 1.30.0)`, `own`."""
    if trial is None:
        return ""
    environment = trial.facts.get("environment")
    libraries = {"libraries": environment["libraries"]} if environment else None
    found = versions_text(libraries, str(trial.spec.get("engine") or DEFAULT))
    return f"{runtime_name(trial.spec)}{f' ({found})' if found else ''}"


def any_other(trials: Iterable[Trial]) -> bool:
    """Whether a trial ran in another runtime than ORTune's own."""
    return any(runtime_name(one.spec) != OWN for one in trials)
