"""Describe the machine and its libraries, on which results depend besides the settings.

`describe` is a worker job. It imports no heavy module: versions come from package metadata, GPUs from NVML.
A runtime without ONNX Runtime has an empty `ort_build` and no providers.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from core import wire
from core.wire import Progress, limits
from core.wire.provenance import fingerprint
from core.worker import sandbox
from core.worker.machine import openvino_devices
from core.worker.machine.provider_probe import probe

PACKAGES = ("onnxruntime", "onnxruntime-gpu", "numpy", "onnx", "torch", "torchvision", "tensorrt", "openvino")
_PACKAGE_PREFIXES = ("nvidia-", "onnxruntime-", "tensorrt")  # libraries that providers load
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX", "LD_PRELOAD")
# Instruction sets by which oneDNN, MLAS and XNNPACK choose kernels, in the kernel's spelling (x86, then ARM).
_INSTRUCTIONS = (
    *("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
)


def describe(progress: Progress) -> wire.Environment:
    """Describe this machine as far as this process may use it.

    Args:
        progress: receives the stages "machine" and "providers"; probing providers takes a second or more.
    """
    progress("machine", 0, 2)
    cpuinfo = read_text("/proc/cpuinfo")
    libraries = library_versions()
    ort = _onnxruntime()
    machine: wire.Environment = {
        "fingerprint": "",
        "cpu": cpu_facts(cpuinfo),
        "host": host_facts(),
        "memory_bytes": limits.memory_limit(),
        "gpus": gpus(),
        "os": os_name(read_text("/etc/os-release")),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "libraries": libraries,
        "ort_build": "" if ort is None else build_info(str(ort.get_build_info()), libraries),
        "providers": [],
        "variables": variables(os.environ),
        "sandbox": sandbox.described(),
    }
    progress("providers", 1, 2)
    if "openvino" in libraries:
        machine["openvino_devices"] = openvino_devices.find()
    return {
        **machine,
        "fingerprint": fingerprint(machine),
        "providers": [] if ort is None else probe(ort.get_available_providers()),
    }


def _onnxruntime() -> ModuleType | None:
    """ONNX Runtime; None: this environment has none, for example one of OpenVINO alone."""
    try:
        return importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        return None


def cpu_facts(cpuinfo: str) -> wire.CpuFacts:
    """CPUs and memory of the machine, and the share that this process may use."""
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
    """Return the CPU's name: `model name` on x86, else implementer and part (ARM), else the architecture."""
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    if match:
        return match[1].strip()
    part = re.search(r"^CPU part\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    maker = re.search(r"^CPU implementer\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    if part and maker:
        return f"{platform.machine()} implementer {maker[1]} part {part[1]}"
    return platform.processor() or platform.machine()


def physical_from_cpuinfo(cpuinfo: str) -> int:
    """Count the distinct (physical id, core id) pairs; 0 if the file has none."""
    pairs = set()
    for block in cpuinfo.split("\n\n"):
        package = re.search(r"^physical id\s*:\s*(\d+)", block, re.MULTILINE)
        core = re.search(r"^core id\s*:\s*(\d+)", block, re.MULTILINE)
        if package and core:
            pairs.add((package[1], core[1]))
    return len(pairs)


def host_facts(root: Path = Path("/")) -> wire.HostFacts:
    """Other facts that affect speed, from files below `root`; missing facts stay missing."""
    cpuinfo = read_text(root / "proc/cpuinfo")
    groups = limits.parse_cgroups(read_text(root / "proc/self/cgroup"))
    cpus = root / "sys/devices/system/cpu"
    packages = {read_line(file) for file in cpus.glob("cpu[0-9]*/topology/physical_package_id")}
    governors = {read_line(file) for file in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    huge_pages = re.search(r"\[(\w+)\]", read_text(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return {
        "microcode": _field(cpuinfo, "microcode"),
        "instructions": instructions(cpuinfo),
        "sockets": len(packages) or None,
        "numa_nodes": len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or None,
        "smt": _switch(cpus / "smt/active"),
        "governor": ", ".join(sorted(filter(None, governors))) or None,
        "turbo": turbo(cpus),
        "hypervisor": hypervisor(cpuinfo, root),
        "huge_pages": huge_pages[1] if huge_pages else None,
        "cgroup": ("v2" if set(groups) == {""} else "v1") if groups else None,
        "cpuset": _cpuset(root / "sys/fs/cgroup", groups),
        "container": container_id(
            read_text(root / "proc/self/cgroup"), read_text(root / "proc/self/mountinfo")
        ),
        "boot": read_line(root / "proc/sys/kernel/random/boot_id"),
    }


def instructions(cpuinfo: str) -> list[str]:
    """Return the CPU's instruction sets that affect the choice of neural-network kernels."""
    known = (_field(cpuinfo, "flags") or _field(cpuinfo, "Features") or "").split()
    return [name for name in _INSTRUCTIONS if name in known]


def turbo(cpus: Path) -> bool | None:
    """Whether the clock may exceed its nominal rate; None if the driver does not tell."""
    no_turbo = _switch(cpus / "intel_pstate/no_turbo")
    return not no_turbo if no_turbo is not None else _switch(cpus / "cpufreq/boost")


def hypervisor(cpuinfo: str, root: Path) -> str | None:
    """Return the hypervisor named by the firmware; "none" on x86 without the CPU's hypervisor flag."""
    flags, xen = _field(cpuinfo, "flags"), read_line(root / "sys/hypervisor/type")
    if flags is None:
        return xen
    if "hypervisor" not in flags.split():
        return "none"
    firmware = [read_line(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    return xen or " ".join(filter(None, firmware)) or "unidentified"


def container_id(cgroups: str, mounts: str) -> str | None:
    """Return the 64-digit container id of Docker, containerd or Podman, if visible."""
    for text, pattern in (
        (cgroups, r"\b([0-9a-f]{64})\b"),
        (mounts, r"/\S*containers?/(?:\S*/)?([0-9a-f]{64})/"),
    ):
        if match := re.search(pattern, text):
            return match[1]
    return None


def _cpuset(root: Path, groups: Mapping[str, str]) -> str | None:
    """Return the CPUs of this process's cgroup; containers often mount their own group as the root."""
    for folder in (groups.get("", ""), "", f"cpuset{groups.get('cpuset', '')}", "cpuset"):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
            if found := read_line(root / folder.lstrip("/") / name):
                return found
    return None


def _field(cpuinfo: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else None


def _switch(path: Path) -> bool | None:
    return {"0": False, "1": True}.get(read_line(path) or "")


def ort_default_threads(environ: Mapping[str, str], physical: int) -> int:
    """Return the threads of `intra_op_num_threads = 0`: `ORT_INTRA_OP_NUM_THREADS`, else physical cores."""
    text = environ.get("ORT_INTRA_OP_NUM_THREADS", "")
    return int(text) if text.isdigit() and int(text) > 0 else physical


def library_versions(distributions: Iterable[Any] | None = None) -> dict[str, str]:
    """Return the versions of packages that run or make models, by name, from their metadata."""
    found = {}
    for distribution in importlib.metadata.distributions() if distributions is None else distributions:
        name = (distribution.metadata["Name"] or "").lower()
        if name in PACKAGES or name.startswith(_PACKAGE_PREFIXES):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def build_info(text: str, libraries: Mapping[str, str]) -> str:
    """Return ORT's build info, and a warning if two wheels have overwritten each other."""
    if "onnxruntime" in libraries and "onnxruntime-gpu" in libraries:
        text += (
            " (both onnxruntime and onnxruntime-gpu are installed and overwrite each other: uninstall both, "
            "then install one)"
        )
    return text


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that change ORT's behavior; `OMP_NUM_THREADS` has no effect and is left out."""
    return {k: v for k, v in sorted(environ.items()) if k.startswith("ORT_") or k in _VARIABLES}


def os_name(os_release: str) -> str:
    """`PRETTY_NAME` of `/etc/os-release`, else the platform's name."""
    match = re.search(r'^PRETTY_NAME="?(.*?)"?$', os_release, re.MULTILINE)
    return match[1] if match else platform.platform()


def gpus() -> list[dict[str, Any]]:
    """Return name, memory, driver and newest CUDA version of every NVIDIA GPU; empty without a driver."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        driver, cuda = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                "driver": driver,
                "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
            }
            for handle in handles
        ]
    except pynvml.NVMLError:
        return []


def read_text(path: str | Path) -> str:
    """Return the file's text; empty if there is no such file."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_line(path: Path) -> str | None:
    """Return the one line of a file, or None if there is none."""
    return read_text(path).strip() or None
