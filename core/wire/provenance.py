"""The fingerprint of a machine: the facts that two comparable results share, and their differences.

Pure functions of `wire.Environment`, for both sides of the pipe. One table (`_facts`) makes the fingerprint
and the words, so that the two cannot disagree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from core import wire

# The libraries that compute. torch may be compared with ONNX Runtime, but does not affect it.
_LIBRARIES = ("onnxruntime", "numpy", "nvidia-", "tensorrt")
_NOT_COMPUTING = ("nvidia-ml-py",)
_VARIABLES_LEFT_OUT = ("ORT_DISABLE_TELEMETRY", "LD_LIBRARY_PATH")  # of the latter, the versions found count
_HOST = {
    "microcode": "CPU microcode",
    "instructions": "CPU instructions",
    "sockets": "sockets",
    "numa_nodes": "NUMA nodes",
    "smt": "SMT",
    "governor": "clock governor",
    "turbo": "turbo",
    "hypervisor": "hypervisor",
    "huge_pages": "transparent huge pages",
}
_BUILD = "ONNX Runtime's build"
_UNKNOWN, _ABSENT = "unknown", "absent"


def fingerprint(machine: Mapping[str, Any]) -> str:
    """Hash the facts that must be equal before two results may be compared.

    CPU model with microcode and instructions, logical, physical and allowed CPUs, quota, sockets, NUMA, SMT,
    governor, turbo, hypervisor, huge pages; GPUs with memory, driver and CUDA; kernel; onnxruntime, numpy,
    CUDA, cuDNN and TensorRT versions; ORT's build; the environment variables that affect ORT. Left
    out: host name, memory size, container and boot, operating system's name, Python, and packages that do
    not compute.

    Args:
        machine: a `wire.Environment`; its own `fingerprint` is ignored.
    """
    return hashlib.sha256(json.dumps(_facts(machine), sort_keys=True).encode()).hexdigest()


def fingerprint_difference(
    one: Mapping[str, Any], other: Mapping[str, Any], *, libraries: bool = True
) -> list[str]:
    """Return why results of two machines are not comparable, one phrase per fact; empty: they are.

    "kernel: 6.8.0 against 6.12.1", "onnxruntime: 1.30.0 against 1.31.1".

    Args:
        one: `wire.Environment` of the first result.
        other: the same of the second.
        libraries: also name differing libraries; False: of results in different runtimes.
    """
    return [
        f"{name}: {mine} against {theirs}"
        for name, mine, theirs in differing_facts(one, other)
        if libraries or not is_software(name)
    ]


def differing_facts(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the facts that differ as (name, text of the first, text of the second); arguments as above."""
    first, second = _facts(one), _facts(other)
    names = [*first, *(name for name in second if name not in first)]
    return [
        (name, _text(first.get(name, _ABSENT)), _text(second.get(name, _ABSENT)))
        for name in names
        if first.get(name, _ABSENT) != second.get(name, _ABSENT)
    ]


def is_software(name: str) -> bool:
    """Whether the fact `name` belongs to the libraries, not to the machine."""
    return name.startswith(_LIBRARIES) or name == _BUILD


def thread_advice(machine: Mapping[str, Any]) -> str:
    """Return a warning if ONNX Runtime's default starts another number of threads than may run; else empty.

    Args:
        machine: a `wire.Environment`.
    """
    cpu = machine["cpu"]
    started, usable = cpu["ort_default_threads"], cpu["usable"]
    if started == usable:
        return ""
    threads = f"ONNX Runtime's default would start {_many(started, 'thread')}"
    if started < usable:
        return f"{threads}, although you may use {_many(usable, 'CPU')}: try intra_op_num_threads {usable}."
    return f"{threads}, but you may use {_allowance(cpu)}: set intra_op_num_threads to {usable}."


def _allowance(cpu: wire.CpuFacts) -> str:
    """How many CPUs may be used, and what limits them."""
    quota, allowed = cpu["quota"], len(cpu["allowed"])
    many = _many(cpu["usable"], "CPU")
    if quota is not None and quota < min(allowed, cpu["physical"]):
        return f"{many} (the container's quota is {quota:g})"
    if allowed < cpu["logical"]:
        return f"{many} ({allowed} of {cpu['logical']} are allowed to this process)"
    return many


def _facts(machine: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of the fingerprint, by their names in messages."""
    cpu, host = machine["cpu"], machine.get("host") or {}
    libraries = {
        name: version
        for name, version in machine["libraries"].items()
        if name.startswith(_LIBRARIES) and name not in _NOT_COMPUTING
    }
    return {
        "CPU": cpu["model"],
        "logical CPUs": cpu["logical"],
        "physical cores": cpu["physical"],
        "allowed CPUs": len(cpu["allowed"]),
        "CPU quota": cpu["quota"] if cpu["quota"] is not None else "none",
        **{words: host.get(name) for name, words in _HOST.items()},
        "GPUs": machine["gpus"],
        "kernel": machine["kernel"],
        **libraries,
        _BUILD: machine["ort_build"],
        **{k: v for k, v in machine["variables"].items() if k not in _VARIABLES_LEFT_OUT},
    }


def _text(value: Any) -> str:
    match value:
        case None:
            return _UNKNOWN
        case bool():
            return "on" if value else "off"
        case list():
            return ", ".join(_item(one) for one in value) or "none"
        case _:
            return str(value)


def _item(one: Any) -> str:
    if not isinstance(one, Mapping):
        return str(one)
    return " ".join(str(one[name]) for name in ("name", "driver", "cuda") if one.get(name))


# --- the facts in words -------------------------------------------------------------------------------------


def facts_in_words(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return facts of processor and container as (topic, phrase) pairs.

    Unknown facts are left out. The caller adds sizes, GPUs and libraries.

    Args:
        machine: a `wire.Environment`.
    """
    cpu, host = machine["cpu"], machine.get("host") or {}
    rows = [
        ("processor", _joined(cpu["model"], _labelled("microcode", host.get("microcode")))),
        ("instructions", ", ".join(host.get("instructions") or [])),
        ("cores", _cores(cpu, host)),
        ("clock", _joined(_labelled("governor", host.get("governor")), _onoff("turbo", host.get("turbo")))),
        ("hypervisor", _VIRTUAL.get(host.get("hypervisor") or "", host.get("hypervisor") or "")),
        ("container", _container(cpu, host)),
        ("threads", _threads(cpu)),
        ("huge pages", host.get("huge_pages") or ""),
    ]
    return [(topic, text) for topic, text in rows if text]


_VIRTUAL = {"none": "none", "unidentified": "one that does not tell its name"}


def _cores(cpu: wire.CpuFacts, host: Mapping[str, Any]) -> str:
    return _joined(
        f"{cpu['logical']} logical CPUs on {_many(cpu['physical'], 'physical core')}",
        _many(host.get("sockets"), "socket"),
        _many(host.get("numa_nodes"), "NUMA node"),
        _onoff("SMT", host.get("smt")),
    )


def _container(cpu: wire.CpuFacts, host: Mapping[str, Any]) -> str:
    quota = "no CPU quota" if cpu["quota"] is None else f"a quota of {cpu['quota']:g} CPUs"
    version = f" (cgroup {host['cgroup']})" if host.get("cgroup") else ""
    return _joined(
        quota + version,
        f"{len(cpu['allowed'])} of {cpu['logical']} CPUs allowed",
        _labelled("CPU set", host.get("cpuset")),
    )


def _threads(cpu: wire.CpuFacts) -> str:
    started = _many(cpu["ort_default_threads"], "thread")
    return f"ONNX Runtime's default starts {started}, {cpu['usable']} can be used"


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _labelled(label: str, value: str | None) -> str:
    return f"{label} {value}" if value else ""


def _onoff(label: str, value: bool | None) -> str:
    return "" if value is None else f"{label} {'on' if value else 'off'}"


def _many(count: int | None, noun: str) -> str:
    return "" if count is None else f"{count} {noun}{'s' * (count != 1)}"
