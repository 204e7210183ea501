"""Fingerprint, differences and advice, from invented machines."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from core.wire.provenance import facts_in_words, fingerprint, fingerprint_difference, thread_advice


def machine(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "fingerprint": "not looked at",
        "cpu": {
            "model": "AMD EPYC 7763",
            "logical": 8,
            "physical": 4,
            "allowed": list(range(8)),
            "quota": None,
            "ort_default_threads": 4,
            "usable": 4,
        },
        "host": {
            "microcode": "0xa0011d3",
            "instructions": ["avx2", "fma"],
            "sockets": 1,
            "numa_nodes": 1,
            "smt": True,
            "governor": "performance",
            "turbo": True,
            "hypervisor": "none",
            "huge_pages": "madvise",
            "cgroup": "v2",
            "cpuset": "0-7",
            "container": "a" * 64,
            "boot": "b",
        },
        "memory_bytes": 1 << 34,
        "gpus": [],
        "os": "Debian",
        "kernel": "6.1",
        "python": "3.11",
        "libraries": {"onnxruntime": "1.31.1", "numpy": "2.4", "torch": "2.9"},
        "ort_build": "flags",
        "providers": [],
        "variables": {"ORT_DISABLE_TELEMETRY": "1"},
    }
    return copy.deepcopy(facts) | changes


def changed(part: str, **changes: Any) -> dict[str, Any]:
    return machine(**{part: machine()[part] | changes})


COUNTS = [
    (changed("cpu", model="Intel Xeon"), "CPU: AMD EPYC 7763 against Intel Xeon"),
    (changed("cpu", allowed=[0, 1]), "allowed CPUs: 8 against 2"),
    (changed("cpu", quota=1.5), "CPU quota: none against 1.5"),
    (changed("host", microcode="0xa"), "CPU microcode: 0xa0011d3 against 0xa"),
    (changed("host", instructions=["avx2"]), "CPU instructions: avx2, fma against avx2"),
    (changed("host", sockets=2), "sockets: 1 against 2"),
    (changed("host", numa_nodes=None), "NUMA nodes: 1 against unknown"),
    (changed("host", smt=False), "SMT: on against off"),
    (changed("host", governor="powersave"), "clock governor: performance against powersave"),
    (changed("host", turbo=False), "turbo: on against off"),
    (changed("host", hypervisor="KVM"), "hypervisor: none against KVM"),
    (changed("host", huge_pages="always"), "transparent huge pages: madvise against always"),
    (machine(gpus=[{"name": "T4", "driver": "550", "cuda": "12.4"}]), "GPUs: none against T4 550 12.4"),
    (machine(kernel="6.2"), "kernel: 6.1 against 6.2"),
    (machine(ort_build="other"), "ONNX Runtime's build: flags against other"),
    (changed("libraries", onnxruntime="1.30.0"), "onnxruntime: 1.31.1 against 1.30.0"),
    (changed("libraries", **{"nvidia-cudnn-cu12": "9.1"}), "nvidia-cudnn-cu12: absent against 9.1"),
    (changed("variables", MALLOC_ARENA_MAX="1"), "MALLOC_ARENA_MAX: absent against 1"),
]
COUNTS_NOT = [
    machine(memory_bytes=1),
    machine(os="Ubuntu"),
    machine(python="3.12"),
    machine(fingerprint="other"),
    changed("libraries", torch="2.10", **{"nvidia-ml-py": "13"}),
    changed("variables", LD_LIBRARY_PATH="/x", ORT_DISABLE_TELEMETRY="0"),
    changed("host", boot="c", container=None, cpuset="0-3", cgroup="v1"),
    changed("cpu", usable=1, ort_default_threads=1),
]


@pytest.mark.parametrize(("other", "words"), COUNTS)
def test_what_changes_results_is_in_the_fingerprint_and_told(other: dict[str, Any], words: str) -> None:
    assert fingerprint(other) != fingerprint(machine())
    assert fingerprint_difference(machine(), other) == [words]


@pytest.mark.parametrize("other", COUNTS_NOT)
def test_what_changes_no_result_is_not(other: dict[str, Any]) -> None:
    assert fingerprint(other) == fingerprint(machine())
    assert fingerprint_difference(machine(), other) == []


def test_a_machine_of_an_earlier_version_can_be_told_apart() -> None:
    earlier = machine()
    del earlier["host"]
    assert fingerprint(earlier) != fingerprint(machine())
    assert "SMT: unknown against on" in fingerprint_difference(earlier, machine())


@pytest.mark.parametrize(
    ("cpu", "words"),
    [
        ({}, ""),
        (
            {"ort_default_threads": 16, "physical": 16, "logical": 32, "quota": 2.5, "usable": 2},
            "ONNX Runtime's default would start 16 threads, but you may use 2 CPUs (the container's quota is "
            "2.5): set intra_op_num_threads to 2.",
        ),
        (
            {"allowed": [3], "usable": 1},
            "ONNX Runtime's default would start 4 threads, but you may use 1 CPU (1 of 8 are allowed to this "
            "process): set intra_op_num_threads to 1.",
        ),
        (
            {"ort_default_threads": 12},
            "ONNX Runtime's default would start 12 threads, but you may use 4 CPUs: set intra_op_num_threads "
            "to 4.",
        ),
        (
            {"ort_default_threads": 1},
            "ONNX Runtime's default would start 1 thread, although you may use 4 CPUs: try "
            "intra_op_num_threads 4.",
        ),
    ],
)
def test_threads_that_do_not_fit_are_said(cpu: dict[str, Any], words: str) -> None:
    assert thread_advice(changed("cpu", **cpu)) == words


def test_a_machine_in_words() -> None:
    rows = dict(facts_in_words(machine()))
    assert rows["processor"] == "AMD EPYC 7763, microcode 0xa0011d3"
    assert rows["cores"] == "8 logical CPUs on 4 physical cores, 1 socket, 1 NUMA node, SMT on"
    assert rows["clock"] == "governor performance, turbo on"
    assert rows["container"] == "no CPU quota (cgroup v2), 8 of 8 CPUs allowed, CPU set 0-7"
    assert rows["threads"] == "ONNX Runtime's default starts 4 threads, 4 can be used"


def test_what_is_not_known_is_not_in_the_words() -> None:
    bare = machine()
    del bare["host"]
    rows = dict(facts_in_words(bare))
    assert rows["cores"] == "8 logical CPUs on 4 physical cores"
    assert rows.keys() == {"processor", "cores", "container", "threads"}
