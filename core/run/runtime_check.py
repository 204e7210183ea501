"""Refuses a configuration that its runtime cannot run, before anything of it runs.

    check_runtime(spec, info, run)    raise what another runtime than ORTune's own lacks for it
    capabilities(runtime, run)        what a runtime can do; a worker finds it once for each content

What ORTune does not know about a runtime is not refused: the run shows it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from core import __version__, wire
from core.process import runtimes
from core.process.job_worker import Run
from core.run.plan import feeds_source, session_plan, settings_of
from core.spec import TrialSpec
from core.spec.settings import ENTRIES, ENUM_ATTRIBUTES, SETTINGS
from core.spec.settings.config_entries import KNOWN_CONFIG_ENTRIES, KNOWN_OPTIMIZERS
from core.wire import engines
from core.wire.errors import SpecError, WorkerError
from core.wire.feeding import BFLOAT16
from core.wire.files import written_whole
from core.wire.runtime import OWN, check_versions, runtime

FILE_NAME = "capabilities.json"  # beside the record of the runtime
NEWER = "Choose a runtime with a newer ONNX Runtime"


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a runtime does not have, and what to do."""

    what: str  # completes "The runtime … cannot run this configuration: …"
    remedy: str  # one sentence


def check_runtime(spec: TrialSpec, info: wire.ModelInfo, run: Run) -> None:
    """Refuse a spec whose runtime lacks a setting, a function, an opset or a provider that it needs.

    Args:
        spec: with its runtime; ORTune's own only has limits on the model.
        info: of the model file that runs.
        run: starts a worker where the capabilities of the runtime are not known yet.

    Raises:
        SpecError: the runtime lacks something, or cannot load ONNX Runtime at all.
        ModelError: the model is too new for ORTune's own ONNX Runtime.
    """
    if spec.runtime == OWN:
        check_versions(info["ir_version"], info["opset"].get("", 0))
        return
    if engines.ENGINES[spec.engine].program:
        raise SpecError(
            f"The engine `{spec.engine}` runs in ORTune's own runtime only, not in "
            f"`{runtime(spec.runtime).name}`.",
            hint="Leave `runtime` out, or choose the engine `onnxruntime`.",
        )
    if spec.engine != engines.DEFAULT:
        return
    try:
        known = capabilities(spec.runtime, run)
    except WorkerError:  # none may start now, or it crashed: the run shows what the runtime can do
        return
    if found := list(lacks(spec, info, known)):
        named = f"`{runtime(spec.runtime).name}` (ONNX Runtime {known['version']})"
        raise SpecError(
            f"The runtime {named} cannot run this configuration: {'; '.join(one.what for one in found)}.",
            hint=" ".join(dict.fromkeys(one.remedy for one in found)),
        )


def require_package(text: str, module: str, package: str, run: Run, *, needs: str) -> None:
    """Refuse a runtime without an optional package.

    Args:
        text: the runtime; ORTune's own is not checked.
        module: one of those in `wire.Capabilities.modules`.
        package: that has the module.
        run: starts a worker where the capabilities of the runtime are not known yet.
        needs: what needs the package, for the message.

    Raises:
        SpecError: the runtime lacks it, or cannot load ONNX Runtime at all.
    """
    if text == OWN:
        return
    try:
        known = capabilities(text, run)
    except WorkerError:
        return
    if module not in known["modules"]:
        raise SpecError(
            f"The runtime `{runtime(text).name}` has no package `{package}`, which {needs} needs.",
            hint=f"Add `{package}` to the packages of the runtime, or leave `runtime` out.",
        )


# --- capabilities -------------------------------------------------------------------------------------------


_own: dict[str, wire.Capabilities] = {}  # content hash -> capabilities of ORTune's own runtime


def capabilities(text: str, run: Run) -> wire.Capabilities:
    """Return what a runtime can do; kept beside its record until its content changes.

    That of ORTune's own runtime is kept in this process.

    Args:
        text: the runtime.
        run: starts the worker.

    Raises:
        SpecError: there is no such runtime, or it cannot load ONNX Runtime.
        WorkerError: the worker crashed or hung.
    """
    if text == OWN:
        content = runtimes.content_hash(Path(sys.executable))
        if content not in _own:
            _own[content] = run(wire.CAPABILITIES, known_settings())
        return _own[content]
    pinned = runtimes.pinned(text)
    path = runtimes.folder() / runtime(pinned).name / FILE_NAME
    asked = known_settings()
    key = hashlib.sha256(json.dumps([__version__, pinned, asked], sort_keys=True).encode()).hexdigest()
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
        if kept.key == key:
            return kept.found
    found = run(wire.CAPABILITIES, asked, runtime=pinned)
    with contextlib.suppress(OSError), written_whole(path) as draft:
        draft.write_bytes(msgspec.json.encode(_Kept(key=key, found=found)))
    return found


class _Kept(msgspec.Struct):
    """The content of the file."""

    key: str  # hash of ORTune's version, the runtime's content and the names that were asked for
    found: wire.Capabilities


def known_settings() -> wire.SettingsPlan:
    """Return the names of all settings that ORTune knows, as the worker looks for them."""
    keys = {one.field for one in SETTINGS if one.target in ENTRIES}
    return {
        "attributes": [one.name for one in SETTINGS if one.target == "attribute"],
        "enums": {name: list(members) for name, members in ENUM_ATTRIBUTES.items()},
        "keys": sorted({*keys, *KNOWN_CONFIG_ENTRIES}),
        "optimizers": list(KNOWN_OPTIMIZERS),
    }


# --- what is missing ----------------------------------------------------------------------------------------


def lacks(spec: TrialSpec, info: wire.ModelInfo, known: wire.Capabilities) -> Iterator[Lack]:
    """Yield what a runtime lacks for a configuration.

    Args:
        spec: the configuration.
        info: of the model file that runs.
        known: capabilities of the runtime.
    """
    yield from _of_model(info, known)
    yield from _of_settings(spec, known)
    yield from _of_providers(spec, known)
    yield from _of_inputs(spec, info, known)


def _of_model(info: wire.ModelInfo, known: wire.Capabilities) -> Iterator[Lack]:
    most = known["ir_version"]
    if 0 < most < info["ir_version"]:
        yield Lack(
            f"the model has IR version {info['ir_version']}, and it reads at most {most}",
            f"{NEWER}, or save the model with `ir_version` {most}.",
        )
    for domain, version in info["opset"].items():
        newest = known["opsets"].get(domain)
        if newest is not None and version > newest:
            yield Lack(
                f"the model uses opset {version} of {domain or 'ai.onnx'}, and it supports at most {newest}",
                f"{NEWER}, or export the model with opset {newest}.",
            )


def _of_settings(spec: TrialSpec, known: wire.Capabilities) -> Iterator[Lack]:
    asked = settings_of(session_plan(spec.session))
    members = [f"{name} {one}" for name, several in asked["enums"].items() for one in several]
    names = [*asked["attributes"], *members, *asked["keys"], *asked["optimizers"]]
    if unknown := [f"`{one}`" for one in names if one in known["unknown"]]:
        listed = " and ".join(filter(None, [", ".join(unknown[:-1]), unknown[-1]]))
        yield Lack(f"it does not know {listed}", f"{NEWER}, or leave {listed} out.")
    if spec.session.provider_libraries and _misses(known, "register_execution_provider_library"):
        yield Lack("it cannot load provider libraries", f"{NEWER}, or leave `provider_libraries` out.")


def _of_providers(spec: TrialSpec, known: wire.Capabilities) -> Iterator[Lack]:
    if spec.session.allow_fallback or spec.session.provider_libraries:
        return
    facts = {one["name"]: one for one in known["providers"]}
    for name in spec.session.requested_providers:
        fact = facts.get(name)
        if fact is None:
            loadable = ", ".join(one for one in facts if facts[one]["loadable"])
            way = f"Choose among {loadable}, or a runtime whose package has {name}."
            yield Lack(f"its build has no {name}", way)
        elif not fact["loadable"]:
            yield Lack(f"{name} does not load in it: {fact['reason'].rstrip('.')}", fact["remedy"])


def _of_inputs(spec: TrialSpec, info: wire.ModelInfo, known: wire.Capabilities) -> Iterator[Lack]:
    if any(one["dtype"] == BFLOAT16 for one in info["inputs"]) and _misses(
        known, "OrtValue.ortvalue_from_numpy_with_onnx_type"
    ):
        yield Lack("it cannot take bfloat16 inputs from Python", f"{NEWER}.")
    if feeds_source(spec.workload.feeds)[0] == "images" and "PIL" not in known["modules"]:
        yield Lack(
            "the inputs are images, and it has no Pillow to read them",
            "Add the package `pillow` to the runtime, or give the inputs as an `.npz`.",
        )


def _misses(known: wire.Capabilities, interface: str) -> bool:
    return interface not in known["interfaces"]
