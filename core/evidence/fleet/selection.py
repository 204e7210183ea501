"""Which hosts of a fleet are asked."""

from __future__ import annotations

from collections.abc import Sequence

from core.evidence.fleet.fleet_types import HostRecord
from core.wire.errors import SpecError, nearest

ALL = "all"


def select(hosts: Sequence[HostRecord], on: str = ALL, *, one_of_each_kind: bool = False) -> list[HostRecord]:
    """Return the hosts that `--on` names, in the order of their names.

    Args:
        hosts: all hosts.
        on: `all`, names (`bench-07,bench-09`), or labels that all must fit (`cpu=epyc,rack=2`).
        one_of_each_kind: of hosts with equal fingerprint, keep the one that is idle, else the first.

    Raises:
        SpecError: no such host, or one that may not be asked.
    """
    if not hosts:
        raise SpecError("The fleet has no host.", hint="Start one with `ortune fleet host --name NAME`.")
    parts = [one.strip() for one in on.split(",") if one.strip()]
    if parts in ([], [ALL]):
        found = [one for one in hosts if not one.refused]
    elif all("=" in one for one in parts):
        found = _with_labels(hosts, parts)
    elif any("=" in one for one in parts):
        raise SpecError(
            f"`--on` takes names or labels, not both, but got `{on[:120]}`.", hint="Write one of the two."
        )
    else:
        found = _named(hosts, parts)
    if not found:
        reasons = "; ".join(f"{one.name}: {one.refused}" for one in hosts if one.refused)
        raise SpecError(
            f"No host may be asked{f' ({reasons})' if reasons else ''}.",
            hint="See `ortune fleet hosts`.",
        )
    found = sorted(found, key=lambda one: one.name)
    return _one_of_each_kind(found) if one_of_each_kind else found


def _with_labels(hosts: Sequence[HostRecord], parts: Sequence[str]) -> list[HostRecord]:
    wanted = [one.partition("=")[::2] for one in parts]
    found = [one for one in hosts if all(one.labels.get(name) == value for name, value in wanted)]
    if not found:
        known = sorted({f"{name}={value}" for one in hosts for name, value in one.labels.items()})
        raise SpecError(
            f"No host has the label {' and '.join(f'`{one}`' for one in parts)}.{nearest(parts[0], known)}",
            hint=f"Labels are {', '.join(known)}." if known else "Start hosts with `--label NAME=VALUE`.",
        )
    return [one for one in found if not one.refused]


def _named(hosts: Sequence[HostRecord], names: Sequence[str]) -> list[HostRecord]:
    known = {one.name: one for one in hosts}
    for name in names:
        if name not in known:
            raise SpecError(
                f"There is no host `{name[:80]}`.{nearest(name, known)}",
                hint=f"Hosts are {', '.join(known)}.",
            )
        if known[name].refused:
            raise SpecError(
                f"The host `{name}` may not be asked: {known[name].refused}", hint="Mend it first."
            )
    return [known[name] for name in dict.fromkeys(names)]


def _one_of_each_kind(hosts: Sequence[HostRecord]) -> list[HostRecord]:
    chosen: dict[str, HostRecord] = {}
    for one in hosts:
        known = chosen.get(one.kind)
        if known is None or (known.busy and not one.busy):
            chosen[one.kind] = one
    return sorted(chosen.values(), key=lambda one: one.name)
