"""Writes a trial as the YAML file for export, import and verification on another machine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core import __version__
from core.evidence.measurement import Trial
from core.evidence.result_types import ModelFacts
from core.evidence.streams import latency_words, p50_words, stream_count
from core.run.export_source import ExportSource
from core.run.named_files import with_relative_paths
from core.show.export import header
from core.show.verdict import short_of
from core.spec import SCHEMA, TrialSpec, spec_from_dict, yaml_from_spec
from core.spec.strict_yaml import dump_yaml
from core.store import PRUNED, RAW_FIELDS
from core.wire.units import ms, utc_text

# Parts of a result that are raw, or that the file holds elsewhere.
_NOT_NUMBERS = {
    *(*RAW_FIELDS, PRUNED, "trace"),
    *("environment", "fingerprint", "inputs", "outputs", "fed", "libraries"),
}
# of a load test, without its single runs and their courses
_OF_LOAD = ("question", "points", "contrasts", "highest", "batching", "together", "verdict", "words", "notes")
_MACHINE = (
    "fingerprint",
    "cpu",
    "host",
    "memory_bytes",
    "gpus",
    "os",
    "kernel",
    "python",
    "libraries",
    "ort_build",
    "variables",
    "sandbox",
)


def export_yaml(
    trial: Trial,
    *,
    accepted_breach: str = "",
    model: ModelFacts | None = None,
    found: Mapping[str, Any] | None = None,
) -> str:
    """Return the trial as the YAML file for export, import and verification on another machine.

    The file holds the configuration, the measured numbers and the machine. Reading it back gives the trial's
    spec exactly.

    Args:
        trial: to write.
        accepted_breach: why its outputs may exceed the tolerance; it is written into the file.
        model: facts of its model (`variants.model_facts`), if the trial has no result with them.
        found: how a search found it (`search.search_provenance`).

    Raises:
        SpecError: the outputs exceed the tolerance and no reason is given for accepting that; or this version
            cannot read the stored spec.
    """
    spec, accepted = _spec(trial), header.accepted(trial, accepted_breach)
    measured = _measured(trial) | ({"accepted_breach": accepted} if accepted else {})
    measured |= {"found_by_search": dict(found)} if found else {}
    lines = [
        f"# ORTune {__version__}, trial {trial.id}. Latencies in seconds, memory in bytes.",
        *header.model_lines({"model": model} if model else trial.result),
        *header.runtime_lines(trial),
        *header.fallback_lines(trial),
        *header.caution_lines(trial),
        *header.tolerance_lines(trial, accepted),
    ]
    fp32 = _precision(trial, model) == "fp32"
    text = yaml_from_spec(spec, measured=measured, environment=_environment(trial.result), fp32=fp32)
    return "\n".join([*lines, text])


def export_short_yaml(source: ExportSource, accepted_breach: str = "") -> str:
    """Return the short form of a trial: its model, settings that differ from the defaults, and its speed.

    It contains no absolute path. Reading it back gives the trial's spec, on the model with this hash.

    Args:
        source: the trial and the facts of its model.
        accepted_breach: as of `export_yaml`.

    Raises:
        SpecError: as of `export_yaml`.
    """
    trial, accepted = source.trial, header.accepted(source.trial, accepted_breach)
    data = with_relative_paths(_spec(trial), source.folders).to_dict()
    if _precision(trial, source.facts) == "fp32":
        data["model"].setdefault("precision", "fp32")
    document = {"schema": SCHEMA, **{name: part for name, part in data.items() if part}}
    if measured := _in_short(trial):
        document["measured"] = measured | ({"accepted_breach": accepted} if accepted else {})
    if "runtime" in data and (libraries := _libraries_of_runtime(trial)):
        document["environment"] = libraries
    p50 = f" {_p50(trial)}" if trial.p50_s is not None else ""
    lines = [
        f"# ORTune {__version__}, trial {trial.id}.{p50}",
        *header.model_lines({"model": source.facts} if source.facts else trial.result),
        *header.runtime_lines(trial),
        *header.fallback_lines(trial),
        *header.caution_lines(trial),
        *header.tolerance_lines(trial, accepted),
    ]
    return "\n".join([*lines, dump_yaml(document)])


def _spec(trial: Trial) -> TrialSpec:
    """Return the spec of a trial; `content_sha256` covers external weights, which `sha256` does not."""
    spec = spec_from_dict(trial.spec)
    if spec.model.sha256 is None or trial.model_sha256 in ("", spec.model.sha256):
        return spec
    model = spec.model.model_copy(update={"content_sha256": trial.model_sha256})
    return spec.model_copy(update={"model": model})


def _libraries_of_runtime(trial: Trial) -> dict[str, Any]:
    """Return what another machine needs to create the runtime: the versions of Python and its libraries."""
    machine: Mapping[str, Any] = trial.facts.get("environment") or {}
    names = ("onnxruntime", "openvino", "numpy")
    found = {
        name: version for name, version in machine.get("libraries", {}).items() if name.startswith(names)
    }
    return {"python": machine["python"], "libraries": found} if found else {}


def _p50(trial: Trial) -> str:
    said = short_of(trial.facts)
    return f"{p50_words(trial.facts)} {ms(trial.p50_s or 0.0)}{f', {said}' if said else ''}."


_GAIN = ("ratio", "ratio_low", "ratio_high", "grade", "holds", "holds_reason", "contradicted")
_NO_DOUBT = {"holds": True, "contradicted": False}


def _in_short(trial: Trial) -> dict[str, Any]:
    """Return the numbers that `verify` compares a run on another machine with."""
    result: Mapping[str, Any] = trial.facts
    if not result:
        return {}
    measured: dict[str, Any] = {"trial": trial.id, "p50_s": trial.p50_s}
    if load := result.get("load"):
        measured["load"] = load["words"]
    if stream_count(result) > 1:
        measured |= {"latency_kind": latency_words(result), "throughput_per_s": result["throughput_per_s"]}
    if busy := result.get("busy"):
        measured["busy"] = {"words": busy["words"]}
    gains = [
        {name: one[name] for name in _GAIN if one.get(name, "") not in (None, "", _NO_DOUBT.get(name))}
        for one in result.get("contrasts") or []
    ]
    return measured | ({"contrasts": gains} if gains else {})


def _precision(trial: Trial, model: ModelFacts | None) -> str:
    """Return the precision of the model; in results of earlier versions the output check holds it."""
    result = trial.facts
    facts, guard = model or result.get("model"), result.get("guard")
    return (facts.get("precision") if facts else guard.get("precision") if guard else "") or ""


def _measured(trial: Trial) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "trial": trial.id,
        "kind": trial.kind,
        "state": trial.state,
        "at": None if trial.finished_at is None else utc_text(trial.finished_at),
    }
    if trial.error is not None:
        facts["error"] = trial.error
    result: Mapping[str, Any] = trial.facts
    numbers = {name: one for name, one in result.items() if name not in _NOT_NUMBERS}
    if load := result.get("load"):
        numbers["load"] = {name: one for name, one in load.items() if name in _OF_LOAD}
    return facts | numbers


def _environment(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not result or not result.get("environment"):
        return None
    return machine_facts(result["environment"]) | {"effective_providers": result.get("effective_providers")}


def machine_facts(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a machine that a file holds."""
    return {name: machine[name] for name in _MACHINE if name in machine}
