"""The machine and its libraries: what a result depends on besides its settings.

`describe` is a worker's job. Nothing heavy is imported: versions come from package metadata, GPUs from NVML.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort

from core import limits, wire
from core.provider_probe import probe
from core.wire import Progress

PACKAGES = ("onnxruntime", "onnxruntime-gpu", "numpy", "onnx", "torch", "torchvision", "tensorrt")
_PACKAGE_PREFIXES = ("nvidia-", "onnxruntime-", "tensorrt")  # the libraries that providers load
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX", "LD_PRELOAD")
_NOT_IN_FINGERPRINT = ("ORT_DISABLE_TELEMETRY", "LD_LIBRARY_PATH", "nvidia-ml-py")
# The libraries that compute. torch makes models but runs none, so another torch makes results no worse.
_FINGERPRINT_LIBRARIES = ("onnxruntime", "numpy", "nvidia-", "tensorrt")


def describe(progress: Progress) -> wire.Environment:
    """Describe this machine as this process may use it.

    Args:
        progress: told the stages "machine" and "providers"; trying the providers takes a second or more.
    """
    progress("machine", 0, 2)
    cpu = cpu_facts(read_text("/proc/cpuinfo"))
    libraries = library_versions()
    facts: dict[str, Any] = {
        "cpu": cpu,
        "gpus": gpus(),
        "kernel": platform.release(),
        "libraries": libraries,
        "ort_build": build_info(libraries),
        "variables": variables(os.environ),
    }
    progress("providers", 1, 2)
    return {
        "fingerprint": fingerprint(facts),
        "cpu": cpu,
        "memory_bytes": limits.memory_limit(),
        "gpus": facts["gpus"],
        "os": os_name(read_text("/etc/os-release")),
        "kernel": facts["kernel"],
        "python": platform.python_version(),
        "libraries": libraries,
        "ort_build": facts["ort_build"],
        "providers": probe(ort.get_available_providers()),
        "variables": facts["variables"],
    }


def fingerprint(facts: Mapping[str, Any]) -> str:
    """Hash what decides whether two results may be compared.

    CPU model, logical, physical and allowed CPUs, quota; GPUs with memory and driver; kernel; onnxruntime,
    numpy, CUDA, cuDNN and TensorRT versions; ORT's build; the environment variables that change what ORT
    does. Left out: host name, memory size, operating system's name, Python, `LD_LIBRARY_PATH` (the versions
    of what it finds count), and packages that do not compute.
    """
    cpu = facts["cpu"]
    chosen = {
        "cpu": [cpu["model"], cpu["logical"], cpu["physical"], len(cpu["allowed"]), cpu["quota"]],
        "gpus": facts["gpus"],
        "kernel": facts["kernel"],
        "libraries": {
            name: version
            for name, version in facts["libraries"].items()
            if name.startswith(_FINGERPRINT_LIBRARIES) and name not in _NOT_IN_FINGERPRINT
        },
        "ort_build": facts["ort_build"],
        "variables": {k: v for k, v in facts["variables"].items() if k not in _NOT_IN_FINGERPRINT},
    }
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()


def cpu_facts(cpuinfo: str) -> wire.CpuFacts:
    """What the machine has and what this process may use."""
    cores = limits.physical_cores()
    allowed = limits.allowed_cpus()
    logical = os.cpu_count() or 1
    physical = len(cores) or physical_from_cpuinfo(cpuinfo) or logical
    quota = limits.cpu_quota()
    return {
        "model": cpu_model(cpuinfo),
        "logical": logical,
        "physical": physical,
        "allowed": allowed,
        "quota": quota,
        "ort_default_threads": ort_default_threads(os.environ, physical),
        "usable": limits.usable_threads(cores, allowed, quota),
    }


def cpu_model(cpuinfo: str) -> str:
    """Name of the CPU: `model name` on x86, else implementer and part (ARM), else the architecture."""
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    if match:
        return match[1].strip()
    part = re.search(r"^CPU part\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    maker = re.search(r"^CPU implementer\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    if part and maker:
        return f"{platform.machine()} implementer {maker[1]} part {part[1]}"
    return platform.processor() or platform.machine()


def physical_from_cpuinfo(cpuinfo: str) -> int:
    """Count the distinct (physical id, core id) pairs; 0 where the file does not give them."""
    pairs = set()
    for block in cpuinfo.split("\n\n"):
        package = re.search(r"^physical id\s*:\s*(\d+)", block, re.MULTILINE)
        core = re.search(r"^core id\s*:\s*(\d+)", block, re.MULTILINE)
        if package and core:
            pairs.add((package[1], core[1]))
    return len(pairs)


def ort_default_threads(environ: Mapping[str, str], physical: int) -> int:
    """Threads that `intra_op_num_threads = 0` means: `ORT_INTRA_OP_NUM_THREADS`, else physical cores."""
    text = environ.get("ORT_INTRA_OP_NUM_THREADS", "")
    return int(text) if text.isdigit() and int(text) > 0 else physical


def library_versions(distributions: Iterable[Any] | None = None) -> dict[str, str]:
    """Versions of the packages that compute or make models, by name, from their metadata."""
    found = {}
    for distribution in importlib.metadata.distributions() if distributions is None else distributions:
        name = (distribution.metadata["Name"] or "").lower()
        if name in PACKAGES or name.startswith(_PACKAGE_PREFIXES):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def build_info(libraries: Mapping[str, str]) -> str:
    """ORT's own words about its build, and a warning where two wheels have overwritten each other."""
    text = str(ort.get_build_info())
    if "onnxruntime" in libraries and "onnxruntime-gpu" in libraries:
        text += (
            " (both onnxruntime and onnxruntime-gpu are installed and overwrite each other: uninstall both, "
            "then install one)"
        )
    return text


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that change what ORT does. `OMP_NUM_THREADS` is not among them: no effect."""
    return {k: v for k, v in sorted(environ.items()) if k.startswith("ORT_") or k in _VARIABLES}


def os_name(os_release: str) -> str:
    """`PRETTY_NAME` of `/etc/os-release`, else the platform's name."""
    match = re.search(r'^PRETTY_NAME="?(.*?)"?$', os_release, re.MULTILINE)
    return match[1] if match else platform.platform()


def gpus() -> list[dict[str, Any]]:
    """Name, memory and driver of every NVIDIA GPU; empty without a driver."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        driver = pynvml.nvmlSystemGetDriverVersion()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                "driver": driver,
            }
            for handle in handles
        ]
    except pynvml.NVMLError:
        return []


def read_text(path: str) -> str:
    """The file's text, or nothing where there is no such file."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
