"""Quotas of each person on a server with login: waiting uploads, disk, and machine time per day.

The operator sets them in the section `[quotas]` of the people file. Admins have no quota.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

from core.show.format import duration
from core.store import Actor, Store
from core.wire.errors import SpecError
from core.wire.units import size
from dashboard.server import people

DAY_S = 86_400.0
MOST_JOB_S = DAY_S  # planned by one job, as the time budgets of searches and comparisons allow
DISK_READ_S = 30.0  # how long the use of the disk is taken as unchanged


def check_start(store: Store, actor: Actor, running_s: float = 0.0) -> None:
    """Refuse a job of a person whose machine time or disk is used up.

    Args:
        store: of the server.
        actor: who starts it.
        running_s: how long a job of this person has the machine now.

    Raises:
        SpecError: with the use, the limit and what to do.
    """
    if actor.sees_all:
        return
    most_s = people.quotas().machine_s_per_day
    used_s = min(running_s, DAY_S)
    if most_s is not None:
        used_s += store.machine_time(time.time() - DAY_S).get(actor.person, 0.0)
    if most_s is not None and used_s >= most_s:
        raise SpecError(
            f"Your jobs used the machine for {duration(used_s)} in the last 24 hours. The limit is "
            f"{duration(float(most_s))}.",
            hint="Wait until earlier jobs are more than 24 hours ago, or ask an admin for a higher limit.",
        )
    check_disk(store, actor)


def check_length(planned_s: float | None, actor: Actor) -> None:
    """Refuse a job that plans to have the machine for more than a day, of anyone but an admin.

    Args:
        planned_s: duration of the job; None: unknown.
        actor: who starts it.

    Raises:
        SpecError: with the duration, the limit and what to do.
    """
    if planned_s is not None and planned_s > MOST_JOB_S and not actor.sees_all:
        raise SpecError(
            f"This job would measure for {planned_s:,.0f} s. On this server one job may take "
            f"{MOST_JOB_S:,.0f} s (24 h).",
            hint="Shorten the duration, give fewer rates or configurations, or ask an admin.",
        )


def check_disk(store: Store, actor: Actor) -> None:
    """Refuse new files of a person whose disk quota is used up; arguments and errors as `check_start`."""
    most = people.quotas().disk_bytes
    if actor.sees_all or most is None:
        return
    used = disk_use(store).get(actor.person, 0)
    if used >= most:
        raise SpecError(
            f"Your models and results take {size(used)} on this server. The limit is {size(most)}.",
            hint="Delete some of them on Models and History, or ask an admin for a higher limit.",
        )


_disk: tuple[float, Path, Mapping[str, int]] = (0.0, Path(), {})
_disk_lock = threading.Lock()


def disk_use(store: Store) -> Mapping[str, int]:
    """Return the bytes on the disk of each person; counted anew every half minute."""
    global _disk
    with _disk_lock:
        at, folder, found = _disk
        if folder != store.folder or time.monotonic() - at > DISK_READ_S:
            found = store.disk_use()
            _disk = time.monotonic(), store.folder, found
        return found
