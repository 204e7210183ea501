"""Writes the configurations of a fleet run as YAML: one file per host, and one for all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core import __version__
from core.evidence.fleet.fleet_types import FleetRun, HostRecord
from core.evidence.fleet.matrix import DEFAULT_KEY, Cell, Configuration, HostRow, Matrix
from core.evidence.fleet.portability import Portability
from core.evidence.fleet.summary import Section, Summary
from core.show.export.yaml_file import machine_facts
from core.show.fleet_text import answer, hosts_text, names, speedup_text
from core.spec import SCHEMA, spec_from_dict
from core.spec.per_machine import document
from core.spec.strict_yaml import dump_yaml
from core.wire.errors import SpecError
from core.wire.files import file_stem
from core.wire.units import visible

_ASKED = ("search", "compare")  # questions whose answer is a configuration
_SECTIONS = ("session", "workload", "engine", "runtime", "openvino")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFile:
    """A YAML file, or the reason why a host has none."""

    name: str  # of the file
    text: str
    host: str  # empty: the file for all hosts
    missing: str = ""  # why there is no file; empty: there is one


def files(summary: Summary) -> list[ConfigurationFile]:
    """Return one file per host and one for all hosts, for each model.

    A model's portability comparison decides, else its search, else its first comparison. Several models give
    files that begin with the name of the model.
    """
    chosen = _sections(summary.sections)
    several, taken = len(chosen) > 1, set[str]()
    found: list[ConfigurationFile] = []
    for section in chosen:
        prefix = f"{_free(file_stem(section.matrix.model), taken)}-" if several else ""
        found += _host_files(section, summary.run, prefix)
        found.append(_combined(section, summary.run, prefix))
    return found


_ALL_HOSTS = "all-hosts"  # stem of the file for all of them


def _sections(every: Sequence[Section]) -> list[Section]:
    """Return the section that decides about each model."""
    best: dict[str, Section] = {}
    for one in every:
        of = one.matrix
        if of.command not in _ASKED or not of.measured:
            continue
        known = best.get(of.model_sha256)
        if known is None or _rank(one) > _rank(known):
            best[of.model_sha256] = one
    return list(best.values())


def _rank(one: Section) -> int:
    return 2 if one.matrix.phase == "portability" else int(one.matrix.command == "search")


def recommended(row: HostRow) -> str:
    """Return the key of the configuration for a host: the default if it may be the fastest, else the best."""
    if row.rejected or not row.best:
        return ""
    return DEFAULT_KEY if DEFAULT_KEY in row.best else row.best[0]


# --- one host -----------------------------------------------------------------------------------------------


def _host_files(section: Section, run: FleetRun, prefix: str) -> Iterator[ConfigurationFile]:
    of, hosts = section.matrix, {one.name: one for one in run.hosts}
    taken = {f"{prefix}{_ALL_HOSTS}".lower()}
    for row in of.rows:
        name = _free(f"{prefix}{file_stem(row.host)}", taken)
        key = recommended(row)
        if not key:
            why = row.rejected or row.why or row.text or row.state
            yield ConfigurationFile(name=f"{name}.yaml", text="", host=row.host, missing=why)
            continue
        one = of.configuration(key)
        try:
            text = _host_text(of, row, one, hosts[row.host], run)
        except SpecError as error:  # of another version
            yield ConfigurationFile(name=f"{name}.yaml", text="", host=row.host, missing=error.message)
            continue
        yield ConfigurationFile(name=f"{name}.yaml", text=text, host=row.host)


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free.lower() in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free.lower())
    return free


def _host_text(of: Matrix, row: HostRow, one: Configuration, host: HostRecord, run: FleetRun) -> str:
    cell = row.cells[one.key]
    named = names(of.configurations, of.model)
    others = [named[key] for key in row.best if key != one.key]
    lines = [
        f"# ORTune {__version__}, fleet run {run.id}, host {visible(row.host)}.",
        f"# {visible(named[one.key])}: {_said(cell, of)}.",
        *([f"# As fast within the intervals: {visible(hosts_text(others))}."] if others else []),
        *([f"# {visible(row.busy)}"] if row.busy else []),
    ]
    data = {
        "schema": SCHEMA,
        **_sections_of(one, of, run),
        "measured": _measured(cell, row, run),
        **({"environment": machine_facts(host.environment)} if host.environment else {}),
    }
    return "\n".join([*lines, dump_yaml(data)])


def _said(cell: Cell, of: Matrix) -> str:
    if cell.verdict is None:
        return "no other configuration is known to be faster on this host"
    return speedup_text(cell, of.metric)


def _sections_of(one: Configuration, of: Matrix, run: FleetRun) -> dict[str, Any]:
    """Return a configuration as plain data, on the client's path of the question's model.

    Raises:
        SpecError: this version cannot read it.
    """
    spec = spec_from_dict(one.spec).to_dict() if one.spec else {}
    asked = next(each.model for each in run.questions if each.number == of.question)
    model = dict(spec.get("model") or {})
    if model.get("sha256") in (None, of.model_sha256):
        model["path"] = asked.path or asked.name
    return {"model": model, **{name: spec[name] for name in _SECTIONS if spec.get(name)}}


def _measured(cell: Cell, row: HostRow, run: FleetRun) -> dict[str, Any]:
    found: dict[str, Any] = {"trial": cell.trial, "host": row.host, "fleet_run": run.id}
    if cell.throughput is not None:
        found["throughput_per_s"] = cell.throughput.value
    if row.busy:
        found["busy"] = {"words": row.busy}
    if cell.speedup is not None and cell.verdict is not None:
        ratio = {"ratio": cell.speedup.value, "ratio_low": cell.speedup.low, "ratio_high": cell.speedup.high}
        found["contrasts"] = [{name: one for name, one in ratio.items() if one is not None}]
    return found


# --- all hosts ----------------------------------------------------------------------------------------------


def _combined(section: Section, run: FleetRun, prefix: str) -> ConfigurationFile:
    of = section.matrix
    name = f"{prefix}{_ALL_HOSTS}.yaml"
    key = _for_all(of, section.portability)
    try:
        whole = _sections_of(of.configuration(key), of, run)
        kinds = list(_kinds(of, run, whole))
    except (SpecError, StopIteration) as error:
        return ConfigurationFile(name=name, text="", host="", missing=str(error) or "no configuration")
    named = names(of.configurations, of.model)
    lines = [
        f"# ORTune {__version__}, fleet run {run.id}. {visible(answer(section)[0])}",
        f"# Every machine: {visible(named[key])}. `per_machine` holds the best configuration of each kind;",
        "# `ortune fleet pick FILE` writes that of the machine it runs on.",
    ]
    return ConfigurationFile(name=name, text="\n".join([*lines, dump_yaml(document(whole, kinds))]), host="")


def _for_all(of: Matrix, found: Portability | None) -> str:
    """Return the key of the configuration for all machines: a decided choice, else the default."""
    if found is not None and found.choice is not None and found.outcome in ("BEST", "EQUIVALENT"):
        return found.choice.configuration
    if any(one.key == DEFAULT_KEY for one in of.configurations):
        return DEFAULT_KEY
    return of.configurations[0].key


def _kinds(of: Matrix, run: FleetRun, whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the configuration of each kind of machine on whose hosts the recommendations agree."""
    by_kind: dict[str, list[HostRow]] = {}
    for row in of.rows:
        if recommended(row):
            by_kind.setdefault(row.kind, []).append(row)
    environments = {one.kind: one.environment for one in run.hosts}
    for kind, rows in by_kind.items():
        keys = {recommended(one) for one in rows}
        key = keys.pop() if len(keys) == 1 else _joint_choice(of, rows)
        own = _sections_of(of.configuration(key), of, run)
        if own["model"] == whole["model"]:
            own.pop("model")
        yield {
            "cpu": str((environments[kind].get("cpu") or {}).get("model") or ""),
            "fingerprint": kind,
            "hosts": [one.host for one in rows],
            "configuration": own,
        }


def _joint_choice(of: Matrix, rows: Sequence[HostRow]) -> str:
    """Return the key with the smallest estimated worst loss on hosts of one kind that disagree."""

    def worst(key: str) -> float:
        found = []
        for row in rows:
            speeds = {name: one.speedup.value for name, one in row.usable.items() if one.speedup is not None}
            found.append(max(speeds.values()) / speeds[key] if speeds.get(key) else float("inf"))
        return max(found)

    return min((one.key for one in of.configurations), key=worst)
