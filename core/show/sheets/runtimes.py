"""Sheets of runtimes: the list, an added one, and a check. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core.evidence.verdict import Color
from core.run.runtimes.checking import RuntimeCheck, engines
from core.show.format import short, when
from core.show.sheets import Fact, Part, Sheet
from core.show.table import Column, Table, tabulate
from core.wire.engines import ENGINES
from core.wire.runtime import RuntimeRecord
from core.wire.units import DASH, clipped, size

MOST_NAMES = 12  # settings that are named in a sheet


def runtimes(records: Sequence[RuntimeRecord]) -> Sheet:
    """Return the sheet of all runtimes."""
    return Sheet("", [listed(records)])


def listed(records: Sequence[RuntimeRecord]) -> Table:
    """Return the table of runtimes."""
    return tabulate(
        records,
        (Column("name", tells=True), lambda one: one["name"]),
        (Column("engine"), engine_text),
        (Column("Python"), lambda one: one["python_version"]),
        (Column("providers"), providers_text),
        (Column("size", "bytes"), lambda one: one["size_bytes"]),
        (Column("hash"), lambda one: one["sha256"][:12]),
        (Column("added"), lambda one: when(one["created_at"])),
        (Column("environment", on="browser"), environment_text),
    )


def environment_text(record: RuntimeRecord) -> str:
    """Return whether ORTune created the environment of a runtime, else where it is."""
    return "created by ORTune" if record["managed"] else clipped(record["python"])


def engine_text(record: RuntimeRecord) -> str:
    """Return the libraries of a runtime that run models, with their versions."""
    found = engines(record["versions"])
    return ", ".join(f"{name} {version}" for name, version in found.items()) or DASH


def providers_text(record: RuntimeRecord) -> str:
    """Return the short names of the providers that loaded when a runtime was added."""
    names = record.get("providers", [])
    return ", ".join(one.removesuffix("ExecutionProvider") for one in names) or DASH


def added(record: RuntimeRecord, *, existed: bool) -> Sheet:
    """Return the sheet of a runtime that was added, or existed already."""
    what = "exists already, unchanged" if existed else "is ready"
    return Sheet(f"Runtime `{record['name']}` {what}", facts(record))


def facts(record: RuntimeRecord) -> list[Part]:
    """Return the facts of a record."""
    asked = ", ".join(map(clipped, record["packages"]))
    return [
        Fact("engine", engine_text(record)),
        Fact("Python", f"{record['python_version']}, {record['python']}"),
        Fact("providers", providers_text(record)),
        *([Fact("packages", asked)] if asked else []),
        *([Fact("installer", record["installer"])] if "installer" in record else []),
        Fact("size", size(record["size_bytes"])),
        Fact("hash", record["sha256"]),
        *(Fact("note", one) for one in record.get("notes", [])),
    ]


def check(found: RuntimeCheck) -> Sheet:
    """Return the sheet of a check."""
    record, environment = found["runtime"], found["environment"]
    parts: list[Part] = [
        Fact("engine", ", ".join(f"{k} {v}" for k, v in found["engines"].items()) or DASH),
        Fact("Python", f"{environment['python']}, {record['python']}"),
        Fact("numpy", environment["libraries"].get("numpy", DASH)),
        Fact("build", short(environment["ort_build"], 160) or "no ONNX Runtime"),
    ]
    for one in environment["providers"]:
        if one["loadable"]:
            parts.append(Fact("loads", one["name"], "green"))
        else:
            parts += [Fact("NOT HERE", one["name"], "orange"), Fact("", f"{one['reason']} {one['remedy']}")]
    for device, full in environment.get("openvino_devices", {}).items():
        parts.append(Fact("OpenVINO device", f"{device} ({full})"))
    devices = ", ".join(str(one.get("name")) for one in environment["gpus"])
    parts.append(Fact("GPU", devices or "none reported by the NVIDIA driver"))
    parts += [*_model_formats(found), Fact("settings", _settings(found)), *_runs(found), *_content(found)]
    return Sheet(_headline(found), parts)


def _headline(found: RuntimeCheck) -> str:
    name = found["runtime"]["name"]
    if found["changed"]:
        return f"Runtime `{name}` has changed since it was added"
    if any(found["runs"].values()) or not found["runs"]:
        return f"Runtime `{name}` does not run a model"
    return f"Runtime `{name}` works"


def _settings(found: RuntimeCheck) -> str:
    if not found["settings"]:
        return "unknown" if found["environment"]["ort_build"] else DASH
    unknown = found["unknown_settings"]
    if not unknown:
        return f"all {found['settings']} are known"
    names = ", ".join(unknown[:MOST_NAMES])
    more = f" and {len(unknown) - MOST_NAMES} more" if len(unknown) > MOST_NAMES else ""
    return f"{len(unknown)} of {found['settings']} are unknown there: {names}{more}"


def _runs(found: RuntimeCheck) -> list[Part]:
    """Return for each engine whether it ran the smallest model."""
    return [
        Fact("runs a model", f"{ENGINES[engine].label}: {why}" if why else ENGINES[engine].label, _color(why))
        for engine, why in found["runs"].items()
    ]


def _color(why_not: str) -> Color:
    return "red" if why_not else "green"


def _model_formats(found: RuntimeCheck) -> list[Part]:
    """Return the newest models that its ONNX Runtime reads."""
    if not found["ir_version"]:
        return []
    opsets = ", ".join(f"{name or 'ai.onnx'} {version}" for name, version in found["opsets"].items())
    return [Fact("reads up to", f"IR version {found['ir_version']}; opsets {opsets or 'unknown'}")]


def _content(found: RuntimeCheck) -> list[Part]:
    if not found["changed"]:
        return [Fact("content", f"unchanged, {found['sha256']}", "green")]
    return [*(Fact("content", one, "red") for one in found["changed"]), Fact("hash", found["sha256"])]
