"""Checks of a recorded configuration that need no run.

One worker loads every provider and reports the machine's facts; another reports the settings that ONNX
Runtime knows. The recorded data is untrusted: it is validated before use.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import msgspec

from core import wire
from core.evidence.verification import Fact, FactCheck
from core.run.bundle.opening import OpenedConfiguration
from core.run.job import Service
from core.run.plan import session_plan, settings_of, thread_warning
from core.run.preparation import Resolved, resolve_trial
from core.run.verified_runtime import RUNTIME, recorded_libraries
from core.spec import SessionSpec, TrialSpec, effective
from core.spec.checks import cpu_list
from core.wire import engines
from core.wire.access import library, resolve_library
from core.wire.errors import Cancelled, ModelError, SpecError, StoreError, TunerError
from core.wire.openvino_devices import missing_devices
from core.wire.provenance import differing_facts, is_software


@dataclass(slots=True, kw_only=True)
class CheckResults:
    """Results of the checks."""

    checks: list[FactCheck] = field(default_factory=list)
    differences: list[tuple[str, str, str]] = field(default_factory=list)  # name, recorded, here


class _Cpu(TypedDict):
    """`wire.CpuFacts` as recorded in a file."""

    model: str
    logical: int
    physical: int
    allowed: list[int]
    quota: float | None


class _Machine(TypedDict):
    """The compared part of a recorded environment; untrusted, so it is validated before use."""

    cpu: _Cpu
    host: NotRequired[dict[str, Any]]
    gpus: list[dict[str, Any]]
    kernel: str
    libraries: dict[str, str]
    ort_build: str
    variables: dict[str, str]


def run_static_checks(
    held: OpenedConfiguration, machine: wire.Environment, service: Service, found: CheckResults
) -> Resolved | None:
    """Add every check to `found`, and return the model; None: it is missing or different.

    Args:
        held: the recorded configuration.
        machine: this one, with the libraries of its runtime.
        service: starts workers, and has the library.
        found: checks so far.

    Raises:
        StoreError: the facts of the model cannot be stored.
        Cancelled: the job was cancelled.
    """
    if not _libraries(held.spec, found):  # the check records it; inspect the model without them
        held = replace(
            held, spec=held.spec.model_copy(update={"session": _without_libraries(held.spec.session)})
        )
    has_runtime = all(one.state != "NO" for one in found.checks if one.name == RUNTIME)
    resolved = _model(held, service, found)
    if has_runtime and not engines.can(held.spec.engine, "settings"):
        _engine(held, machine, found)
    elif has_runtime:
        _versions(held, machine, found)
        _providers(held.spec, machine, found)
        _settings(held.spec, service, found)
    _threads(held.spec, machine, found)
    _machine(held, machine, found, libraries=has_runtime)
    return resolved


def _libraries(spec: TrialSpec, found: CheckResults) -> bool:
    """Check that every named library is in the operator's folder here and has the recorded hash."""
    for text in spec.session.libraries:
        recorded = library(text)
        name, then = f"library {recorded.name}", recorded.sha256[:12]
        try:
            here = resolve_library(text)[1].sha256[:12]
        except SpecError as error:
            why = f"{error.message} {error.hint}"
            found.checks.append(FactCheck(name=name, state="NO", recorded=then, why=why))
            continue
        if not then:
            why = "The file has no hash of the library it was measured with."
            found.checks.append(FactCheck(name=name, state="UNKNOWN", here=here, why=why))
        else:
            found.checks.append(FactCheck(name=name, state="OK", recorded=then, here=here))
    return all(one.state != "NO" for one in found.checks if one.name.startswith("library "))


def _without_libraries(session: SessionSpec) -> SessionSpec:
    return session.model_copy(update={"custom_op_libraries": (), "provider_libraries": ()})


def _model(held: OpenedConfiguration, service: Service, found: CheckResults) -> Resolved | None:
    wanted = held.spec.model.sha256
    try:
        resolved = resolve_trial(held.spec, service.store, service.run)
    except (Cancelled, StoreError):
        raise
    except TunerError as error:
        found.checks.append(
            FactCheck(name="model", state="NO", recorded=(wanted or "")[:12], why=error.message)
        )
        return None
    resolved = _in_library(held, resolved, service)
    here = resolved.record.sha256
    if wanted is None:
        why = "The file has no hash of the measured model."
        found.checks.append(FactCheck(name="model", state="UNKNOWN", here=here[:12], why=why))
    else:
        found.checks.append(FactCheck(name="model", state="OK", recorded=wanted[:12], here=here[:12]))
    return resolved


def _in_library(held: OpenedConfiguration, resolved: Resolved, service: Service) -> Resolved:
    """The model from the library, if it is there: its results stay usable after the bundle is deleted."""
    known = service.store.model(resolved.record.content_sha256)
    if held.folder is None or known is None or not Path(known.path).is_file():
        return resolved
    model = resolved.spec.model.model_copy(update={"path": known.path})
    with suppress(ModelError, SpecError):
        other = resolve_trial(resolved.spec.model_copy(update={"model": model}), service.store, service.run)
        if other.record.content_sha256 == resolved.record.content_sha256:
            return other
    return resolved


def _versions(held: OpenedConfiguration, machine: wire.Environment, found: CheckResults) -> None:
    """Compare version and build of ONNX Runtime: a difference may change outputs and speed."""
    recorded, libraries = _recorded_machine(held.environment), recorded_libraries(held.environment)
    here = _ort_versions(machine["libraries"])
    if not libraries:
        why = "The file does not state the ONNX Runtime version."
        found.checks.append(FactCheck(name="ONNX Runtime", state="UNKNOWN", here=here, why=why))
        return
    then = _ort_versions(libraries)
    same = then == here
    why = "" if same else f"Measured with {then}; this machine has {here}."
    found.checks.append(
        FactCheck(name="ONNX Runtime", state="OK" if same else "NOTE", recorded=then, here=here, why=why)
    )
    if recorded is None:
        return
    same = recorded["ort_build"] == machine["ort_build"]
    found.checks.append(
        FactCheck(
            name="its build",
            state="OK" if same else "NOTE",
            recorded=recorded["ort_build"],
            here=machine["ort_build"],
            why="" if same else "The ONNX Runtime build differs.",
        )
    )


def _engine(held: OpenedConfiguration, machine: wire.Environment, found: CheckResults) -> None:
    """Check version and devices of another engine than ONNX Runtime."""
    engine = engines.ENGINES[held.spec.engine]
    here = _versions_of(engine, machine["libraries"])
    then = _versions_of(engine, recorded_libraries(held.environment) or {})
    why = ""
    state: Fact = "OK"
    if not here:
        why, state = f"{engine.label} is not installed here.", "NO"
    elif not then:
        why, state = f"The file does not state the version of {engine.label}.", "UNKNOWN"
    elif here != then:
        why, state = f"Measured with {then}; this machine has {here}.", "NOTE"
    found.checks.append(FactCheck(name=engine.label, state=state, recorded=then, here=here, why=why))
    if not engines.can(held.spec.engine, "openvino") or not here:
        return
    device, there = held.spec.openvino.device, list(machine.get("openvino_devices", ()))
    missing = missing_devices(device, there)
    why = f"OpenVINO has no device `{missing[0]}` here." if missing else ""
    found.checks.append(
        FactCheck(
            name="device",
            state="NO" if missing else "OK",
            recorded=device,
            here=", ".join(there) or "none",
            why=why,
        )
    )


def _versions_of(engine: engines.Engine, libraries: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {libraries[name]}" for name in engine.packages if name in libraries)


def _ort_versions(libraries: Mapping[str, str]) -> str:
    names = sorted(name for name in libraries if name.startswith("onnxruntime"))
    return ", ".join(f"{name} {libraries[name]}" for name in names) or "none known to pip"


def _providers(spec: TrialSpec, machine: wire.Environment, found: CheckResults) -> None:
    """Check that every requested provider loads; the machine's facts come from loading them."""
    known = {one["name"]: one for one in machine["providers"]}
    for name in spec.session.requested_providers:
        fact = known.get(name)
        if fact is None and spec.session.provider_libraries:
            why = f"ONNX Runtime itself has no {name}; the run shows whether a library provides it."
            found.checks.append(FactCheck(name=name, state="UNKNOWN", why=why))
            continue
        if fact is not None and fact["loadable"]:
            found.checks.append(FactCheck(name=name, state="OK", here="loads"))
            continue
        reason = f"This ONNX Runtime has no {name}." if fact is None else fact["reason"]
        why = f"{name} does not load here: {reason}" if fact is not None else reason
        state: Fact = "NOTE" if spec.session.allow_fallback else "NO"
        found.checks.append(FactCheck(name=name, state=state, here="does not load", why=why))


def _settings(spec: TrialSpec, service: Service, found: CheckResults) -> None:
    """Check that this ONNX Runtime knows every setting: it silently ignores unknown config entries."""
    asked = settings_of(session_plan(spec.session))
    total = len(asked["attributes"]) + len(asked["keys"]) + len(asked["optimizers"])
    if total == 0:
        found.checks.append(FactCheck(name="settings", state="OK", here="none is set"))
        return
    try:
        reply = service.run(wire.SETTINGS, asked, runtime=spec.runtime)
    except Cancelled:
        raise
    except TunerError as error:
        found.checks.append(FactCheck(name="settings", state="UNKNOWN", why=error.message))
        return
    if reply["unknown"]:
        names = ", ".join(f"`{name}`" for name in reply["unknown"])
        why = f"ONNX Runtime {reply['version']} does not know {names} and silently ignores unknown entries."
        found.checks.append(
            FactCheck(name="settings", state="NO", here=f"{len(reply['unknown'])} unknown", why=why)
        )
    elif asked["keys"] and not reply["searched"]:
        why = "The ONNX Runtime library cannot be read, so its known config entries are unknown."
        found.checks.append(FactCheck(name="settings", state="UNKNOWN", why=why))
    else:
        found.checks.append(
            FactCheck(name="settings", state="OK", recorded=f"{total} set", here=f"{total} known")
        )


def _threads(spec: TrialSpec, machine: wire.Environment, found: CheckResults) -> None:
    """Check that pinned CPUs exist here, and that the threads fit the usable CPUs."""
    cpu = machine["cpu"]
    pinned = cpu_list(spec.protocol.cpus)
    if lacking := sorted(set(pinned) - set(cpu["allowed"])):
        why = f"`cpus` includes CPU {lacking[0]}, which this process may not use."
        found.checks.append(FactCheck(name="CPUs", state="NO", recorded=spec.protocol.cpus, why=why))
    engine = engines.ENGINES[spec.engine]
    asked = effective(spec, engine.threads) if engine.threads else None
    text = f"{engine.label}'s default" if not asked else f"{asked}"
    here = f"{cpu['usable']} usable"
    why = thread_warning(spec, cpu)
    found.checks.append(
        FactCheck(name="threads", state="NOTE" if why else "OK", recorded=text, here=here, why=why)
    )


def _machine(
    held: OpenedConfiguration, machine: wire.Environment, found: CheckResults, *, libraries: bool
) -> None:
    """Compare the fingerprint, fact by fact; its libraries only if the runtime exists here."""
    recorded = _recorded_machine(held.environment)
    if recorded is None:
        why = (
            "The file does not state the machine."
            if not (isinstance(held.environment, dict) and "cpu" in held.environment)
            else "The machine description in the file cannot be read."
        )
        found.checks.append(FactCheck(name="machine", state="UNKNOWN", why=why))
        return
    found.differences = [
        one for one in differing_facts(recorded, machine) if libraries or not is_software(one[0])
    ]
    here, why = "the same", ""
    if hardware := [name for name, _, _ in found.differences if not is_software(name)]:
        here, why = "another", f"{_facts(len(hardware))} of the machine differ."
    elif found.differences:
        here, why = (
            "this machine with different software",
            f"{_facts(len(found.differences))} of its software differ.",
        )
    found.checks.append(FactCheck(name="machine", state="NOTE" if why else "OK", here=here, why=why))


def _facts(number: int) -> str:
    return f"{number} fact{'s' * (number != 1)}"


def _recorded_machine(environment: Any) -> _Machine | None:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(environment, _Machine)
    return None
