"""CPU time of all processes and of the machine; `evidence.other_processes` compares two snapshots.

Formats: Linux, Documentation/filesystems/proc.rst. Other systems: psutil, within the user's permissions.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from core.evidence.other_processes import KERNEL, Process, Snapshot
from core.wire import limits
from core.wire.limits import TICKS_PER_S, CpuTime, parse_cpu_time, parse_pressure

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of the kernel's sched.h
_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO: all processes of the machine are visible in it
_READ_BYTES = 4096
_COMMAND_MOST = 15  # characters that the kernel keeps of a process's name
_NAME_MOST = 40


def snapshot() -> Snapshot:
    """Read the CPU time of every process that can be read, and of the machine.

    On Linux psutil, which takes several times as long, is used for TCP connections only.
    """
    if sys.platform != "linux":
        return _by_psutil()
    stat = _text("/proc/stat")
    return Snapshot(
        at_s=time.monotonic(),
        processes=tuple(_processes()),
        machine=parse_cpu_time(stat),
        usable=parse_cpu_time(stat, limits.allowed_cpus()),
        pressure_s=parse_pressure(_text("/proc/pressure/cpu")),
        whole=_in_first_pid_namespace(),
        server=os.getpid(),
        viewers=viewers(),
    )


def viewers() -> frozenset[int]:
    """Return the PIDs of local processes with a TCP connection to this process, such as a browser.

    Remote clients and clients behind a proxy are missing; empty where the system denies the list.
    """
    try:
        ends = {_ports(one) for one in psutil.Process().net_connections("tcp") if one.raddr}
        connections = psutil.net_connections("tcp") if ends else []
    except (psutil.Error, OSError):  # macOS allows it to root only
        return frozenset()
    found = {one.pid for one in connections if one.raddr and one.pid and _ports(one)[::-1] in ends}
    return frozenset(found - {os.getpid()})


def _ports(connection: Any) -> tuple[int, int]:
    """The ports of a connection, local first; no addresses, because one has several spellings."""
    return connection.laddr.port, connection.raddr.port


def parse_process(line: str) -> Process | None:
    """Read `/proc/PID/stat`, in which a name may hold blanks and brackets; None: another form."""
    start, _, named = line.partition("(")
    name, _, rest = named.rpartition(")")
    fields = rest.split()
    try:
        user_s, system_s, reaped_user_s, reaped_system_s = (int(one) / TICKS_PER_S for one in fields[11:15])
        return Process(
            pid=int(start),
            began=int(fields[19]) / TICKS_PER_S,
            name=KERNEL if int(fields[6]) & _KERNEL_THREAD else printable(name),
            parent=int(fields[1]),
            group=int(fields[2]),
            cpu_s=user_s + system_s,
            reaped_s=reaped_user_s + reaped_system_s,
        )
    except (ValueError, IndexError):
        return None


def program(command: str, arguments: str) -> str:
    """Return the name of a program.

    Args:
        command: what the kernel calls the process: cut after 15 characters, and helpers such as Firefox's
            "Web Content" and Node's "MainThread" change it.
        arguments: `/proc/PID/cmdline`, or nothing where the process does not show it.
    """
    if " " in command or command.endswith("MainThread"):
        return printable(re.split(r"[\0 ]", arguments)[0].rpartition("/")[2]) or command
    if len(command) < _COMMAND_MOST:
        return command
    match = re.search(re.escape(command) + r"[^\s/\0]*", arguments)
    return printable(match[0]) if match else command


def printable(name: str) -> str:
    """Return the name of a process as a short line of printable text."""
    return "".join(sign if sign.isprintable() else "?" for sign in name[:_NAME_MOST])


def _processes() -> Iterator[Process]:
    for pid in os.listdir("/proc"):  # noqa: PTH208 - names, without objects
        found = parse_process(_text(f"/proc/{pid}/stat")) if pid.isdigit() else None
        if found is None:  # no process, or it has ended by now
            continue
        odd = len(found.name) >= _COMMAND_MOST or " " in found.name or found.name.endswith("MainThread")
        if odd and found.name != KERNEL:
            found = replace(found, name=program(found.name, _text(f"/proc/{pid}/cmdline")))
        yield found


def _text(path: str) -> str:
    """The text of a `/proc` file, without a file object, as there are hundreds; empty: it is missing."""
    parts: list[bytes] = []
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(descriptor, _READ_BYTES):
                parts.append(part)
        finally:
            os.close(descriptor)
    return b"".join(parts).decode("utf-8", errors="replace")


@cache
def _in_first_pid_namespace() -> bool:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _FIRST_NAMESPACE
    except OSError:
        return True


def _by_psutil() -> Snapshot:
    """Take a snapshot without `/proc`: no steal, no pressure; other users' processes may be missing."""
    at_s, times = time.monotonic(), psutil.cpu_times()
    machine = CpuTime(
        cpus=psutil.cpu_count() or 1,
        busy_s=times.user + times.system + getattr(times, "nice", 0.0) + getattr(times, "irq", 0.0),
        steal_s=0.0,
        idle_s=times.idle,
    )
    asked = ["pid", "ppid", "name", "create_time", "cpu_times"]
    return Snapshot(
        at_s=at_s,
        processes=tuple(
            _from_psutil(one.info) for one in psutil.process_iter(asked) if one.info["cpu_times"]
        ),
        machine=machine,
        usable=machine,
        pressure_s=None,
        whole=True,
        server=os.getpid(),
        viewers=viewers(),
    )


def _from_psutil(info: dict[str, Any]) -> Process:
    used = info["cpu_times"]
    group = 0
    if hasattr(os, "getpgid"):
        with contextlib.suppress(OSError):
            group = os.getpgid(info["pid"])
    return Process(
        pid=info["pid"],
        began=info["create_time"] or 0.0,
        name=printable(info["name"] or ""),
        parent=info["ppid"] or 0,
        group=group,
        cpu_s=used.user + used.system,
        reaped_s=getattr(used, "children_user", 0.0) + getattr(used, "children_system", 0.0),
    )
