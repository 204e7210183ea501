from __future__ import annotations

from pathlib import Path

import pytest

from core.wire import limits


@pytest.mark.parametrize(
    ("text", "cpus"), [("max 100000\n", None), ("150000 100000\n", 1.5), ("50000 100000", 0.5), ("", None)]
)
def test_cgroup_v2_quota(text: str, cpus: float | None) -> None:
    assert limits.parse_cpu_max(text) == cpus


@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [("-1\n", "100000\n", None), ("200000\n", "100000\n", 2.0), ("", "", None), ("25000", "50000", 0.5)],
)
def test_cgroup_v1_quota(quota: str, period: str, cpus: float | None) -> None:
    assert limits.parse_cfs_quota(quota, period) == cpus


@pytest.mark.parametrize(
    ("text", "size"),
    [("max\n", None), ("536870912\n", 1 << 29), ("9223372036854771712\n", None), ("", None)],
)
def test_memory_limits_of_both_versions(text: str, size: int | None) -> None:
    assert limits.parse_memory_limit(text) == size


def test_meminfo_is_in_kibibytes() -> None:
    text = "MemTotal:       24684084 kB\nMemFree: 1 kB\n"
    assert limits.parse_meminfo(text, "MemTotal") == 24684084 * 1024
    assert limits.parse_meminfo(text, "MemAvailable") == limits.parse_meminfo("", "MemTotal") == 0


def test_throttling_counters_of_both_versions() -> None:
    v2 = limits.parse_throttling("usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 1500000\n")
    v1 = limits.parse_throttling("nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000\n")
    assert (v2.periods, v2.seconds) == (v1.periods, v1.seconds) == (3, 1.5)
    assert limits.parse_throttling("").periods == 0


def test_the_groups_of_a_process() -> None:
    text = "4:memory:/jobs/a\n3:cpuset:/\n2:cpu,cpuacct:/jobs/a\n0::/slice\n"
    assert limits.parse_cgroups(text) == {
        "memory": "/jobs/a", "cpuset": "/", "cpu": "/jobs/a", "cpuacct": "/jobs/a", "": "/slice",
    }  # fmt: skip


def test_siblings_are_one_core() -> None:
    assert limits.parse_siblings(["0,4\n", "1,5\n", "0,4\n", "1,5\n"]) == [{0, 4}, {1, 5}]
    assert limits.parse_siblings(["0-1", "0-1", "2-3", "2-3"]) == [{0, 1}, {2, 3}]
    assert limits.parse_siblings(["", ""]) == []


@pytest.mark.parametrize(
    ("allowed", "quota", "threads"),
    [
        ([0, 1, 2, 3], None, 2),  # two cores with two threads each
        ([0, 2], None, 1),  # one core's two threads
        ([0, 1, 2, 3], 1.5, 1),
        ([0, 1, 2, 3], 0.25, 1),
        ([0, 1, 2, 3], 8.0, 2),
    ],
)
def test_usable_threads(allowed: list[int], quota: float | None, threads: int) -> None:
    assert limits.usable_threads([frozenset({0, 2}), frozenset({1, 3})], allowed, quota) == threads


def test_usable_threads_without_topology_are_the_allowed_cpus() -> None:
    assert limits.usable_threads([], [0, 1, 2], None) == 3


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def test_the_tightest_v2_limit_on_the_way_to_the_root_holds(tmp_path: Path) -> None:
    groups = {"": "/pod/container"}
    write(tmp_path / "pod" / "cpu.max", "100000 100000")
    write(tmp_path / "pod" / "container" / "cpu.max", "max 100000")
    write(tmp_path / "pod" / "memory.max", "1048576")
    write(tmp_path / "pod" / "container" / "memory.max", "max")
    assert limits.cpu_quota(tmp_path, groups) == 1.0
    assert limits.memory_limit(tmp_path, groups) == 1048576


def test_inside_a_container_the_root_is_the_own_group(tmp_path: Path) -> None:
    """The path of `/proc/self/cgroup` is the host's there and does not exist inside."""
    write(tmp_path / "cpu.max", "50000 100000")
    assert limits.cpu_quota(tmp_path, {"": "/kubepods/pod1"}) == 0.5


def test_v1_limits(tmp_path: Path) -> None:
    groups = {"cpu": "/a", "memory": "/a"}
    write(tmp_path / "cpu" / "a" / "cpu.cfs_quota_us", "150000")
    write(tmp_path / "cpu" / "a" / "cpu.cfs_period_us", "100000")
    write(tmp_path / "cpu" / "a" / "cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 7000000\n")
    write(tmp_path / "memory" / "a" / "memory.limit_in_bytes", "2097152")
    assert limits.cpu_quota(tmp_path, groups) == 1.5
    assert limits.memory_limit(tmp_path, groups) == 2097152
    assert limits.throttling_file(tmp_path, groups) == tmp_path / "cpu" / "a" / "cpu.stat"


def test_without_cgroups_there_is_no_quota(tmp_path: Path) -> None:
    assert limits.cpu_quota(tmp_path, {}) is None
    assert limits.throttling_file(tmp_path, {}) is None
    assert limits.memory_limit(tmp_path, {}) > 0


def test_throttling_is_read_where_it_stands_and_only_there(tmp_path: Path) -> None:
    write(
        tmp_path / "cpu.stat", "usage_usec 5\nuser_usec 3\n"
    )  # the root group of cgroup v2 is never throttled
    assert limits.throttling_file(tmp_path, {"": "/"}) is None
    write(tmp_path / "pod" / "cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_usec 1500000\n")
    assert limits.throttling_file(tmp_path, {"": "/pod"}) == tmp_path / "pod" / "cpu.stat"
    assert limits.throttling_file(tmp_path, {}) is None


STAT = """cpu  100 10 50 1000 20 5 5 7 0 0
cpu0 60 10 30 400 0 5 5 4 0 0
cpu1 40 0 20 600 20 0 0 3 0 0
intr 123 0 0
ctxt 99
"""


@pytest.mark.parametrize(
    ("cpus", "found"),
    [
        (None, (2, 1.7, 0.07, 10.2)),
        ([1], (1, 0.6, 0.03, 6.2)),
        ([0, 1], (2, 1.7, 0.07, 10.2)),
        ([0, 5], None),
    ],
)
def test_the_machines_time_is_summed_over_all_or_some_cpus(
    monkeypatch: pytest.MonkeyPatch, cpus: list[int] | None, found: tuple[float, ...] | None
) -> None:
    monkeypatch.setattr(limits, "TICKS_PER_S", 100)
    time = limits.parse_cpu_time(STAT, cpus)
    assert (time and (time.cpus, time.busy_s, time.steal_s, time.idle_s)) == (found and pytest.approx(found))


@pytest.mark.parametrize("text", ["", "cpu  1 2 3\n"])
def test_a_line_that_is_missing_or_short_makes_it_unknown(text: str) -> None:
    assert limits.parse_cpu_time(text) is None


def test_pressure_is_the_total_of_some() -> None:
    text = "some avg10=6.80 avg60=3.76 avg300=1.14 total=9658052\nfull avg10=0.00 avg60=0.00 total=7\n"
    assert limits.parse_pressure(text) == 9.658052
    assert limits.parse_pressure("") is None
    assert limits.parse_pressure("full avg10=0.00 total=7\n") is None
