"""The runtime in which a recorded configuration is verified: that of its name here, or another on request.

A runtime of that name with another content is noted, and the versions of its libraries are compared: another
Python or another system has other files.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from core.evidence.verification import FactCheck
from core.process import runtimes
from core.run.bundle.opening import OpenedConfiguration
from core.spec import spec_from_dict
from core.wire.errors import SpecError, StoreError
from core.wire.runtime import OWN, Runtime, runtime

RUNTIME = "runtime"  # name of the check


def with_runtime_here(
    held: OpenedConfiguration, wanted: str | None
) -> tuple[OpenedConfiguration, FactCheck | None]:
    """Return a recorded configuration in a runtime of this machine, and the check of that runtime.

    Args:
        held: the recorded configuration.
        wanted: the runtime to verify in; None: the one of the recorded name.

    Returns:
        The configuration; its runtime is ORTune's own where there is none of the recorded name, and the check
        says so. No check: it ran in ORTune's own runtime, and no other is requested.

    Raises:
        SpecError: there is no runtime `wanted`, or its content has another hash.
    """
    recorded = runtime(held.spec.runtime)
    if wanted is not None:
        here = runtime(runtimes.pinned(wanted))
        if recorded.name == here.name == OWN:
            return _in(held, here), None
        same = recorded == here
        why = "" if same else f"Measured in `{recorded.name}`; verified in `{here.name}`, as requested."
        return _in(held, here), _check(recorded, here, why)
    if recorded.name == OWN:
        return _in(held, recorded), None
    try:
        here = runtime(runtimes.pinned(recorded.name, recorded_libraries(held.environment)))
    except (SpecError, StoreError) as error:
        hint = f"{error.hint} Or verify with the runtime `{OWN}`, the environment of ORTune itself."
        why = f"{error.message} {hint}"
        missing = FactCheck(name=RUNTIME, state="NO", recorded=_short(recorded), here="missing", why=why)
        return _in(held, Runtime(OWN)), missing
    why = "" if recorded.sha256 in ("", here.sha256) else "Its content differs; see the library versions."
    return _in(held, here), _check(recorded, here, why)


def recorded_libraries(environment: Any) -> dict[str, str]:
    """Return the versions of the libraries in a recorded, untrusted environment; empty: not known."""
    found = environment.get("libraries") if isinstance(environment, dict) else None
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def _check(recorded: Runtime, here: Runtime, why: str) -> FactCheck:
    state: Any = "NOTE" if why else "OK"
    return FactCheck(name=RUNTIME, state=state, recorded=_short(recorded), here=_short(here), why=why)


def _short(one: Runtime) -> str:
    return f"{one.name} ({one.sha256[:12]})" if one.sha256 else one.name


def _in(held: OpenedConfiguration, here: Runtime) -> OpenedConfiguration:
    """The configuration in a runtime, and its recorded baseline in the runtime of its name."""
    spec = held.spec.model_copy(update={"runtime": str(here)})
    baseline = held.baseline
    if baseline is not None and baseline["spec"] is not None:
        name = runtime(spec_from_dict(baseline["spec"]).runtime).name
        with suppress(SpecError, StoreError):
            name = runtimes.pinned(name)
        data = {key: part for key, part in baseline["spec"].items() if key != "runtime"}
        baseline = {**baseline, "spec": data if name == OWN else {**data, "runtime": name}}
    return replace(held, spec=spec, baseline=baseline)
