"""What each person uses of the server, and the limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.show.format import duration
from core.show.table import Column, Table, tabulate
from core.wire.units import size
from dashboard.server.people_file import Quotas


@dataclass(frozen=True, slots=True)
class Use:
    """What one person uses."""

    person: str
    machine_s: float  # in the last 24 hours
    disk_bytes: int
    waiting_bytes: int  # of uploads that are not imported yet


def uses(machine_s: Mapping[str, float], disk: Mapping[str, int], waiting: Mapping[str, int]) -> list[Use]:
    """Return what each person uses, the most machine time first."""
    found = [
        Use(name, machine_s.get(name, 0.0), disk.get(name, 0), waiting.get(name, 0))
        for name in machine_s.keys() | disk.keys() | waiting.keys()
    ]
    return sorted(found, key=lambda one: (-one.machine_s, -one.disk_bytes, one.person))


def table(found: Sequence[Use]) -> Table:
    """Return one row per person."""
    return tabulate(
        found,
        (Column("person", tells=True), lambda one: one.person),
        (Column("machine time, 24 h"), lambda one: duration(one.machine_s)),
        (Column("on disk", "bytes"), lambda one: one.disk_bytes),
        (Column("waiting uploads", "bytes"), lambda one: one.waiting_bytes),
    )


def limits(quotas: Quotas) -> str:
    """Return the limits of each person in words."""
    most_s = quotas.machine_s_per_day
    known = {
        "machine time per 24 h": None if most_s is None else duration(float(most_s)),
        "disk": None if quotas.disk_bytes is None else size(quotas.disk_bytes),
        "waiting uploads": None if quotas.upload_bytes is None else size(quotas.upload_bytes),
    }
    said = ", ".join(f"{name} {limit or 'unlimited'}" for name, limit in known.items())
    return f"Limits of each person but admins: {said}. The section `[quotas]` of the people file sets them."
