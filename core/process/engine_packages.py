"""The packages that engines need: whether a runtime has them, and whether they are those of a result."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

from core.process import runtimes
from core.wire.engines import ENGINES
from core.wire.errors import EXTRAS, SpecError
from core.wire.runtime import OWN, runtime


def installed(engine: str, of: str = OWN) -> dict[str, str]:
    """Return the packages of an engine that a runtime has, with their versions.

    Args:
        engine: its name.
        of: a runtime, as a configuration names it.

    Raises:
        SpecError: there is no such runtime.
        StoreError: its record cannot be read.
    """
    name = runtime(of).name
    versions = None if name == OWN else runtimes.versions(runtimes.record(name))
    found = {package: _version(package, versions) for package in ENGINES[engine].packages}
    return {package: version for package, version in found.items() if version}


def _version(package: str, versions: Mapping[str, str] | None) -> str:
    if versions is not None:
        return versions.get(package, "")
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check_installed(engine: str, of: str = OWN) -> None:
    """Refuse an engine whose packages a runtime lacks.

    Raises:
        SpecError: it lacks them, or there is no such runtime.
        StoreError: the runtime's record cannot be read.
    """
    needed, name = ENGINES[engine].packages, runtime(of).name
    unknown = name != OWN and not runtimes.versions(runtimes.record(name))
    if not needed or unknown or installed(engine, of):
        return
    package = needed[0]
    if name == OWN:
        raise SpecError(
            f"The engine `{engine}` needs the package `{package}`, which is not installed.",
            hint=f"Install it with `pip install '.[{EXTRAS[package]}]'` in ORTune's folder, or choose a "
            "runtime that has it.",
        )
    raise SpecError(
        f"The engine `{engine}` needs the package `{package}`, which the runtime `{name}` lacks.",
        hint=f"Choose a runtime that has it, or add one with `ortune runtimes add NAME --package {package}`.",
    )


def is_same_version(engine: str, libraries: Mapping[str, str]) -> bool:
    """Whether ORTune's own runtime still has the version of an engine's package that a result was made with.

    The fingerprint of a machine holds the packages of ONNX Runtime alone; that of another runtime is pinned
    by its hash.

    Args:
        engine: of the result.
        libraries: of the result.
    """
    now = installed(engine)
    return all(libraries.get(name, version) == version for name, version in now.items())
