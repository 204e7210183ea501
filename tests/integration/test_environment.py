from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

from core import wire
from core.worker.machine import environment, provider_probe
from core.worker.measure.footprint import parse_high_water_mark

X86 = """processor\t: 0
model name\t: AMD EPYC 7763 64-Core Processor
physical id\t: 0
core id\t\t: 0

processor\t: 1
model name\t: AMD EPYC 7763 64-Core Processor
physical id\t: 0
core id\t\t: 0

processor\t: 2
physical id\t: 1
core id\t\t: 0
"""
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"


@pytest.fixture(scope="module")
def described() -> wire.Environment:
    return environment.describe(lambda *args: None)


def test_it_describes_this_machine(described: wire.Environment) -> None:
    cpu = described["cpu"]
    assert cpu["model"]
    assert 1 <= cpu["usable"] <= cpu["physical"] <= cpu["logical"]
    assert cpu["logical"] == os.cpu_count()
    assert cpu["allowed"]
    assert described["memory_bytes"] > 1 << 28
    assert described["os"]
    assert described["kernel"] == os.uname().release
    assert described["ort_build"]
    assert described["libraries"]["numpy"] == importlib.metadata.version("numpy")
    assert described["variables"]["ORT_DISABLE_TELEMETRY"] == "1"


def test_every_provider_of_this_build_is_tried_and_a_reason_given(described: wire.Environment) -> None:
    facts = {fact["name"]: fact for fact in described["providers"]}
    assert list(facts) == ort.get_available_providers()
    assert facts["CPUExecutionProvider"]["loadable"]
    for fact in facts.values():
        assert bool(fact["reason"]) == bool(fact["remedy"]) == (not fact["loadable"])
    if "CUDAExecutionProvider" in facts and not Path("/dev/nvidiactl").exists():
        assert not facts["CUDAExecutionProvider"]["loadable"]
        assert ".so" in facts["CUDAExecutionProvider"]["reason"]


def test_the_fingerprint_is_stable_and_moves_with_what_computes(described: wire.Environment) -> None:
    facts: dict[str, Any] = dict(described)
    base = environment.fingerprint(facts)
    assert base == described["fingerprint"]
    assert len(base) == 64
    libraries = described["libraries"]
    for change in (
        {"kernel": "0.1"},
        {"cpu": {**described["cpu"], "quota": 0.5}},
        {"libraries": {**libraries, "numpy": "0"}},
        {"variables": {"ORT_INTRA_OP_NUM_THREADS": "3"}},
        {"gpus": [{"name": "GPU"}]},
        {"host": {**described["host"], "microcode": "0"}},
    ):
        assert environment.fingerprint({**facts, **change}) != base
    for change in (
        {"libraries": {**libraries, "torch": "0", "onnx": "0"}},
        {"memory_bytes": 1},
        {"python": "3"},
        {"host": {**described["host"], "boot": "0", "container": "0"}},
        {"variables": {**described["variables"], "LD_LIBRARY_PATH": "/x"}},
    ):
        assert environment.fingerprint({**facts, **change}) == base


def test_the_default_number_of_threads_is_what_onnx_runtime_starts() -> None:
    code = (
        "import core, os, sys, onnxruntime as ort\n"
        "from core.worker.machine.provider_probe import IDENTITY_MODEL as model\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "session = ort.InferenceSession(model, providers=['CPUExecutionProvider'])\n"
        "print(len(os.listdir('/proc/self/task')) - before + 1)\n"
    )
    if sys.platform != "linux":
        pytest.skip("threads are counted in /proc")
    for text in ("", "3"):
        variables = {**os.environ, "ORT_INTRA_OP_NUM_THREADS": text}
        if not text:
            del variables["ORT_INTRA_OP_NUM_THREADS"]
        done = subprocess.run(
            [sys.executable, "-c", code], env=variables, capture_output=True, check=True, text=True
        )
        cpu = environment.cpu_facts(environment.read_text("/proc/cpuinfo"))
        assert environment.ort_default_threads(variables, cpu["physical"]) == int(done.stdout)


def test_facts_of_the_host_are_read_or_left_out(described: wire.Environment, tmp_path: Path) -> None:
    host = described["host"]
    if sys.platform == "linux":
        assert host["boot"]
        assert host["cgroup"] in ("v1", "v2")
    nothing = environment.host_facts(tmp_path)
    assert nothing.pop("instructions") == []  # type: ignore[typeddict-item]
    assert set(nothing.values()) == {None}


# -- pure parts --------------------------------------------------------------------------------------------


def test_the_cpu_is_named_on_x86_and_arm() -> None:
    assert environment.cpu_model(X86) == "AMD EPYC 7763 64-Core Processor"
    assert "implementer 0x41 part 0xd0c" in environment.cpu_model(ARM)
    assert environment.cpu_model("")


def test_physical_cores_are_counted_once_per_package() -> None:
    assert environment.physical_from_cpuinfo(X86) == 2
    assert environment.physical_from_cpuinfo(ARM) == 0


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


CPUS = "sys/devices/system/cpu"


def test_a_bare_server_with_two_sockets(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "microcode\t: 0x2b\nflags\t\t: fpu avx2 avx512f amx_int8 avx512_vnni\n",
        "proc/self/cgroup": "0::/user.slice",
        "proc/sys/kernel/random/boot_id": "0b-00",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/fs/cgroup/user.slice/cpuset.cpus.effective": "0-3",
        f"{CPUS}/smt/active": "1",
        f"{CPUS}/intel_pstate/no_turbo": "1",
        "sys/devices/system/node/node0/cpulist": "0-1",
        "sys/devices/system/node/node1/cpulist": "2-3",
    }
    for cpu in range(4):
        files[f"{CPUS}/cpu{cpu}/topology/physical_package_id"] = str(cpu // 2)
        files[f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor"] = "powersave" if cpu else "performance"
    assert environment.host_facts(put(tmp_path, files)) == {
        "microcode": "0x2b",
        "instructions": ["avx2", "avx512f", "avx512_vnni", "amx_int8"],
        "sockets": 2,
        "numa_nodes": 2,
        "smt": True,
        "governor": "performance, powersave",
        "turbo": False,
        "hypervisor": "none",
        "huge_pages": "madvise",
        "cgroup": "v2",
        "cpuset": "0-3",
        "container": None,
        "boot": "0b-00",
    }


def test_a_container_on_a_virtual_machine(tmp_path: Path) -> None:
    root = put(
        tmp_path,
        {
            "proc/cpuinfo": "flags\t: sse hypervisor",
            "proc/self/cgroup": "4:memory:/docker/x\n1:cpuset:/docker/x",
            "sys/class/dmi/id/sys_vendor": "QEMU",
            "sys/class/dmi/id/product_name": "Standard PC",
            "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "1",
            f"{CPUS}/cpufreq/boost": "1",
        },
    )
    host = environment.host_facts(root)
    assert host["hypervisor"] == "QEMU Standard PC"
    assert (host["cgroup"], host["cpuset"], host["turbo"], host["smt"]) == ("v1", "1", True, None)


def test_who_runs_the_virtual_machine_is_not_guessed(tmp_path: Path) -> None:
    assert environment.hypervisor("flags : sse hypervisor", tmp_path) == "unidentified"
    assert environment.hypervisor(ARM, tmp_path) is None
    put(tmp_path, {"sys/hypervisor/type": "xen"})
    assert environment.hypervisor(ARM, tmp_path) == "xen"


def test_a_container_is_known_by_its_64_digits() -> None:
    name = "0123456789abcdef" * 4
    docker = f"12:cpu:/docker/{name}\n"
    mount = f"1 2 0:1 /var/lib/docker/containers/{name}/hostname /etc/hostname rw - ext4 /dev/sda rw\n"
    podman = f"1 2 0:1 /containers/storage/overlay-containers/{name}/userdata/hosts /etc/hosts rw\n"
    assert environment.container_id(docker, "") == name
    assert environment.container_id("0::/", mount) == name
    assert environment.container_id("0::/", podman) == name
    assert environment.container_id("0::/", "22 27 0:21 / /proc rw - proc proc rw\n") is None


@dataclass
class Distribution:
    metadata: dict[str, str]
    version: str


def test_two_builds_of_onnx_runtime_at_once_are_reported() -> None:
    found = environment.library_versions(
        Distribution({"Name": name}, "1.31.1") for name in ("onnxruntime", "onnxruntime-gpu", "flask")
    )
    assert found == {"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"}
    assert "overwrite each other" in environment.build_info("", found)
    assert "overwrite" not in environment.build_info("", {"onnxruntime": "1.31.1"})


def test_an_environment_without_onnx_runtime_is_described_and_has_no_providers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # importing it raises ModuleNotFoundError
    found = environment.describe(lambda *_: None)
    assert found["ort_build"] == ""
    assert found["providers"] == []
    assert found["cpu"]["logical"] > 0


def test_only_variables_that_change_onnx_runtime_are_kept() -> None:
    found = environment.variables({"ORT_X": "1", "OMP_NUM_THREADS": "4", "HOME": "/", "LD_PRELOAD": "a"})
    assert found == {"LD_PRELOAD": "a", "ORT_X": "1"}


def test_the_name_of_the_operating_system() -> None:
    assert environment.os_name('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12"\n') == "Debian GNU/Linux 12"
    assert environment.os_name("")


@pytest.mark.parametrize(
    ("output", "code", "reason"),
    [
        (b"", -11, "Loading X ended the process by SIGSEGV."),
        (b"", 3, "Loading X ended the process with status 3."),
        (b"garbage", 0, "Loading X ended the process with status 0."),
        (b'noise\n{"reason": "no.", "remedy": "Do."}\n', 0, "no."),
    ],
)
def test_a_probe_that_crashes_is_a_provider_that_does_not_load(output: bytes, code: int, reason: str) -> None:
    fact = provider_probe.fact_from_output("X", output, code)
    assert not fact["loadable"]
    assert fact["reason"] == reason
    assert fact["remedy"]


def test_a_probe_that_answers_nothing_wrong_is_loadable() -> None:
    fact = provider_probe.fact_from_output("X", b'noise\n{"reason": "", "remedy": ""}\n', 0)
    assert fact == {"name": "X", "loadable": True, "reason": "", "remedy": ""}


def test_a_probe_that_hangs_is_ended() -> None:
    (fact,) = provider_probe.probe(["CUDAExecutionProvider"], timeout_s=0.001)
    assert not fact["loadable"]
    assert "did not load within" in fact["reason"]


def test_the_probe_model_is_a_model() -> None:
    session = ort.InferenceSession(provider_probe.IDENTITY_MODEL, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["x"]


PEAKS = """
import mmap
from core.worker.measure.footprint import peak_rss_bytes, reset_peak

reset = [reset_peak()]
before = peak_rss_bytes()
block = mmap.mmap(-1, 64 << 20)  # given back at once when closed; an allocator may keep what it frees
block.write(bytes(1) * (64 << 20))
used = peak_rss_bytes() - before
block.close()
kept = peak_rss_bytes() - before
reset.append(reset_peak())
print(all(reset), used >> 20, kept >> 20, peak_rss_bytes() - before >> 20)
"""


def test_the_peak_can_be_reset_and_read() -> None:
    """In a separate process: threads of other tests allocate memory, too."""
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True)
    reset, used, kept, after = done.stdout.split()
    if reset == "False":
        pytest.skip("this system does not let a process reset its peak")
    assert int(used) > 48
    assert int(kept) > 48
    assert int(after) < 48


def test_the_high_water_mark_is_read_in_kibibytes() -> None:
    assert parse_high_water_mark("VmPeak:\t  9 kB\nVmHWM:\t   1024 kB\n") == 1 << 20
    with pytest.raises(ValueError, match="VmHWM"):
        parse_high_water_mark("VmPeak:\t9 kB\n")
