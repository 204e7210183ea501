"""Quotas of each person on a server with login: waiting uploads, disk, and machine time per day.

The operator sets them in the section `[quotas]` of the people file. Admins have no quota.
"""

from __future__ import annotations

import os
import threading
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from core.show.format import duration
from core.store import Actor, Store
from core.wire.errors import SpecError
from core.wire.units import size

PEOPLE = "ORTUNE_PEOPLE"
SECTION = "quotas"
DAY_S = 86_400.0
DISK_READ_S = 30.0  # how long the use of the disk is taken as unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Limits of each person; None: no limit."""

    upload_bytes: int | None = None  # uploaded and not imported yet
    disk_bytes: int | None = None  # models, raw measurements, bundles and other files of results
    machine_s_per_day: int | None = None  # of jobs, within 24 hours


def from_table(table: Mapping[str, object]) -> Quotas:
    """Read the section of the people file.

    Raises:
        SpecError: an unknown name, or a value that is no whole number of 0 or more.
    """
    names = [one.name for one in fields(Quotas)]
    for name, value in table.items():
        if name not in names:
            raise SpecError(
                f"`[{SECTION}]` of the people file has no limit `{name[:60]}`.",
                hint=f"Use {', '.join(f'`{one}`' for one in names)}.",
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SpecError(
                f"The limit `{name}` of the people file must be a whole number of 0 or more, but is "
                f"`{str(value)[:60]}`.",
                hint="Write for example `disk_bytes = 50_000_000_000` or `machine_s_per_day = 14_400`.",
            )
    return Quotas(**table)  # type: ignore[arg-type] # checked above


_read: dict[str, tuple[tuple[int, int], Quotas]] = {}  # by path, with the stamps of the file


def present() -> Quotas:
    """Return the present quotas; none without a people file.

    Raises:
        SpecError: its section is invalid.
    """
    path = os.environ.get(PEOPLE, "")
    if not path:
        return Quotas()
    try:
        facts = Path(path).stat()
        stamps = facts.st_mtime_ns, facts.st_size
        if path not in _read or _read[path][0] != stamps:
            found = tomllib.loads(Path(path).read_text("utf-8")).get(SECTION, {})
            _read[path] = stamps, from_table(found if isinstance(found, dict) else {SECTION: found})
    except (OSError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(
            f"The people file `{path}` cannot be read: {error}.", hint="Ask the operator of this server."
        ) from error
    return _read[path][1]


def check_start(store: Store, actor: Actor) -> None:
    """Refuse a job of a person whose machine time or disk is used up.

    Args:
        store: of the server.
        actor: who starts it.

    Raises:
        SpecError: with the use, the limit and what to do.
    """
    if actor.sees_all:
        return
    most_s = present().machine_s_per_day
    used_s = store.machine_time(time.time() - DAY_S).get(actor.person, 0.0) if most_s is not None else 0.0
    if most_s is not None and used_s >= most_s:
        raise SpecError(
            f"Your jobs used the machine for {duration(used_s)} in the last 24 hours. The limit is "
            f"{duration(float(most_s))}.",
            hint="Wait until earlier jobs are more than 24 hours ago, or ask an admin for a higher limit.",
        )
    check_disk(store, actor)


def check_disk(store: Store, actor: Actor) -> None:
    """Refuse new files of a person whose disk quota is used up; arguments and errors as `check_start`."""
    most = present().disk_bytes
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
