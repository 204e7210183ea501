"""The ranges that ORTune names: requirements.txt, requirements-dev.txt, and the extras in pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from packaging.requirements import Requirement

from supply.locked import ROOT

RUN_EXTRAS = ("pytorch",)  # what `make run` installs
# what `make setup` pins in requirements-dev.txt
TOOL_EXTRAS = ("optuna", "loadgen", "openvino", "fleet", "extensions")
NOT_LOCKED = {  # extra: why no `make` target installs it
    "tensorflow": "1.5 GB that only conversion from Keras and SavedModel needs",
    "triton": "holds protobuf below 7, which onnx and the dashboard do not",
    "olive": "holds protobuf below 7, which onnx and the dashboard do not",
}


def of_file(name: str) -> list[Requirement]:
    """Return the requirements of a file, without those of files that it includes."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


def extras() -> dict[str, list[Requirement]]:
    """Return the extras and what they require."""
    extras: dict[str, list[str]] = _project()["project"]["optional-dependencies"]
    return {name: [Requirement(one) for one in texts] for name, texts in extras.items()}


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def running() -> list[Requirement]:
    """Return what `make run` installs: to run, to convert from PyTorch, and to install ORTune itself."""
    converting = [one for name in RUN_EXTRAS for one in extras()[name]]
    building = [Requirement(one) for one in _project()["build-system"]["requires"]]
    return [*of_file("requirements.txt"), *converting, *building]


def tools() -> list[Requirement]:
    """Return what `make setup` installs."""
    pinned = (one for name in TOOL_EXTRAS for one in extras()[name])
    return [*running(), *of_file("requirements-dev.txt"), *pinned]


def as_text(wanted: Iterable[Requirement]) -> str:
    """Return the requirements, one per line."""
    return "".join(f"{one}\n" for one in wanted)
