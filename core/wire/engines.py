"""The table of engines that can run a model: name, worker module and abilities.

No other module compares the names of engines. A new runtime is a row here and a worker module with
`contender(plan, layout)`; `require` refuses what the row does not list. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from core.wire.errors import SpecError, nearest

Ability = Literal[
    "settings",
    "openvino",
    "bind",
    "profile",
    "accuracy",
    "emit",
    "streams",
    "processes",
    "place",
    "fork",
    "cap",
]

# completes "the engine cannot …"; the last three are never required, because there is another way
ABILITIES: Mapping[Ability, str] = {
    "settings": "take settings of ONNX Runtime",
    "openvino": "take settings of OpenVINO",
    "bind": "bind inputs and outputs",
    "profile": "be profiled",
    "accuracy": "be measured for accuracy",
    "emit": "be written as a script",
    "streams": "run several streams",
    "processes": "run streams that are processes",
    "place": "place its inputs in a given memory layout",
    "fork": "start from a server that has its libraries loaded",
    "cap": "run under a memory limit",
}


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to run a model."""

    label: str  # on screens
    runs: str  # what it runs, for help texts
    module: str  # its import loads the libraries, its `contender` prepares a plan
    can: frozenset[Ability] = frozenset()
    ref: str = ""  # its name on the command line; empty: none is needed
    program: bool = False  # runs the program that a file was exported from, a `wire.TorchSource`
    compiles: bool = False  # its compiler runs in processes of its own
    packages: tuple[str, ...] = ()  # distributions, one of which a runtime needs for it
    threads: str = ""  # the setting of its number of threads; empty: it has none


DEFAULT = "onnxruntime"
_PROGRAM = "the PyTorch model that this file was converted from, with PyTorch's defaults"
_TORCH = "core.worker.session.torch_engine"

ENGINES: Mapping[str, Engine] = {
    DEFAULT: Engine(
        "ONNX Runtime",
        "the ONNX file",
        "core.worker.measure.inference",
        frozenset(ABILITIES) - {"openvino"},
        threads="intra_op_num_threads",
    ),
    "openvino": Engine(
        "OpenVINO",
        "the ONNX file with OpenVINO's own runtime",
        "core.worker.session.openvino_engine",
        frozenset({"openvino", "bind", "accuracy", "streams", "place", "fork", "cap"}),
        ref="openvino",
        packages=("openvino", "openvino-nightly"),
        threads="openvino.INFERENCE_NUM_THREADS",
    ),
    "torch-eager": Engine(
        "PyTorch eager", _PROGRAM, _TORCH, ref="torch:eager", program=True, packages=("torch",)
    ),
    "torch-compile": Engine(
        "torch.compile",
        "that PyTorch model, compiled",
        _TORCH,
        ref="torch:compile",
        program=True,
        compiles=True,
        packages=("torch",),
    ),
}
REFS: Mapping[str, str] = {engine.ref: name for name, engine in ENGINES.items() if engine.ref}


def can(name: str, ability: Ability) -> bool:
    """Whether the engine `name` has an ability; an unknown engine has none."""
    return name in ENGINES and ability in ENGINES[name].can


def require(name: str, ability: Ability, *, of: str = "", instead: str = "") -> None:
    """Refuse what the engine `name` cannot do.

    Args:
        name: of the engine.
        ability: that is needed.
        of: what needs it; follows the ability in the message.
        instead: an alternative; follows the hint.

    Raises:
        SpecError: the engine lacks that ability.
    """
    if not can(name, ability):
        able = " or ".join(f"`{one}`" for one in ENGINES if can(one, ability))
        raise SpecError(
            f"The engine `{name}` cannot {ABILITIES[ability]}{of}.", hint=f"Use the engine {able}{instead}."
        )


def require_export(name: str) -> None:
    """Refuse an engine whose trials can be exported as YAML only."""
    require(name, "emit", instead=", or write the trial as YAML")


def known_engine(name: str) -> str:
    """Return `name`, which must be that of an engine.

    Raises:
        SpecError: no engine has it.
    """
    if name not in ENGINES:
        raise SpecError(
            f"`engine` must be one of {', '.join(ENGINES)}, but got `{name[:80]}`.{nearest(name, ENGINES)}",
            hint="Choose one of them.",
        )
    return name
