"""The job `capabilities`: what the libraries of this runtime can do, found by trying.

ONNX Runtime has no function that tells which IR version or opsets it reads, so the smallest models with
ascending versions are loaded. Names of settings are looked up like those of the job `settings`.
"""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnxruntime as ort

from core import wire
from core.worker.machine.provider_probe import probe
from core.worker.machine.unknown_settings import unknown_settings
from core.worker.session import CPU, ORT_ERRORS

INTERFACES = (
    # those that ORTune calls and that some version since 1.17 lacks
    "preload_dlls",
    "register_execution_provider_library",
    "get_ep_devices",
    "SessionOptions.add_provider",
    "SessionOptions.add_provider_for_devices",
    "InferenceSession.get_provider_graph_assignment_info",
    "OrtValue.ortvalue_from_numpy_with_onnx_type",
)
MODULES = ("PIL", "mlperf_loadgen")
DOMAINS = (
    *("", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"),
    *("com.microsoft", "com.microsoft.nchwc", "com.microsoft.experimental", "org.pytorch.aten"),
)
# No release reads versions as high as these, so the search ends.
_HIGHEST = 60
_KNOWN_IR, _KNOWN_OPSET = 8, 13  # that every version since 1.17 reads

# A graph of one Identity node, float32 [1], as field 7 of a ModelProto.
_GRAPH = bytes.fromhex(
    "3a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a020801"
    "620f0a0179120a0a08080112040a020801"
)


def capabilities(plan: wire.SettingsPlan) -> wire.Capabilities:
    """Return what this runtime can do.

    Args:
        plan: all names of settings that ORTune knows.
    """
    return {
        **unknown_settings(plan),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "build": str(ort.get_build_info()),
        "ir_version": newest_ir_version(),
        "opsets": {domain: newest for domain in DOMAINS if (newest := newest_opset(domain))},
        "interfaces": [one for one in INTERFACES if _exists(one)],
        "modules": [one for one in MODULES if importlib.util.find_spec(one) is not None],
        "defaults": _defaults(plan["attributes"]),
        "providers": probe(ort.get_available_providers()),
    }


def _defaults(names: Sequence[str]) -> dict[str, str]:
    """Return the defaults of the attributes that this version has; an enum by the name of its member."""
    options = ort.SessionOptions()
    found = {name: getattr(options, name) for name in names if hasattr(options, name)}
    return {name: str(getattr(value, "name", value)) for name, value in found.items()}


def newest_ir_version() -> int:
    """Return the newest IR version of a model that loads; 0: none does."""
    return _newest(_KNOWN_IR, lambda version: smallest_model(version, {"": _KNOWN_OPSET}))


def newest_opset(domain: str) -> int:
    """Return the newest opset of a domain with which a model loads; 0: none does, or all do."""
    others = {"": _KNOWN_OPSET} if domain else {}
    first = 1 if domain else _KNOWN_OPSET
    found = _newest(first, lambda version: smallest_model(_KNOWN_IR, {**others, domain: version}))
    return found if found < _HIGHEST else 0


def _newest(first: int, model: Callable[[int], bytes]) -> int:
    newest = 0
    for version in range(first, _HIGHEST + 1):
        if not _loads(model(version)):
            break
        newest = version
    return newest


def _loads(model: bytes) -> bool:
    options = ort.SessionOptions()
    options.log_severity_level = 4  # a refusal is an answer, not an error
    options.intra_op_num_threads = 1
    try:
        ort.InferenceSession(model, options, providers=[CPU])
    except ORT_ERRORS:
        return False
    return True


def smallest_model(ir_version: int, opsets: Mapping[str, int]) -> bytes:
    """Return a serialized ModelProto of one Identity node.

    Args:
        ir_version: of the file.
        opsets: domain ("" is ai.onnx) -> version.
    """
    model = b"\x08" + _varint(ir_version) + _GRAPH
    for domain, version in opsets.items():
        name = b"\x0a" + _varint(len(domain)) + domain.encode() if domain else b""
        entry = name + b"\x10" + _varint(version)
        model += b"\x42" + _varint(len(entry)) + entry
    return model


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _exists(name: str) -> bool:
    found: object = ort
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None
