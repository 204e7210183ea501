"""Recorded baselines: a machine's results in a file, for comparison with later models and versions.

keep(path, trial, …)       write a baseline
read(path)                 read and validate one; the file is untrusted
against(kept, trial, …)    the change since then, from `core.evidence.verification.change`
"""

from __future__ import annotations

import json
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from core import __version__, wire
from core.evidence.measurement import Trial
from core.evidence.streams import stream_count, throughput_interval
from core.evidence.verdict import is_rejected
from core.evidence.verification import SpeedChange, Speedup, change
from core.spec import spec_from_dict
from core.store import ModelRecord
from core.wire.errors import SpecError, unwritable
from core.wire.files import open_regular, written_whole
from core.wire.plain_data import plain
from core.wire.provenance import differing_facts, fingerprint, is_software

FORMAT = 1
MOST_BYTES = 4 << 20


class KeptModel(TypedDict):
    """The model that was measured."""

    name: str
    content_sha256: str


class _File(TypedDict):
    """Contents of a baseline file."""

    baseline: int  # FORMAT
    tool_version: str
    at: float  # seconds since the epoch
    model: KeptModel
    spec: dict[str, Any]
    batch_size: int
    speed: Speedup  # samples per second
    canary_s: float | None  # duration of the canary, a fixed computation; median over all blocks
    environment: wire.Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBaseline:
    """A recorded baseline and its file."""

    path: Path
    file: _File

    def check(self, machine: wire.Environment) -> None:
        """Refuse a baseline of another machine; libraries may differ, since that is what it is used for.

        Raises:
            SpecError: a fact of the machine differs.
        """
        told = [
            f"{name}: {then} then, {now} now"
            for name, then, now in differing_facts(self.file["environment"], machine)
            if not is_software(name)
        ]
        if told:
            more = f" (and {len(told) - 3} more)" if len(told) > 3 else ""
            raise SpecError(
                f"The baseline `{self.path.name}` was recorded on another machine: "
                f"{'; '.join(told[:3])}{more}.",
                hint="Record one on this machine.",
            )


def record_baseline(path: Path, trial: Trial, record: ModelRecord, machine: wire.Environment) -> None:
    """Write the results of a trial to `path`.

    Raises:
        SpecError: the file cannot be written; no partial file is left.
    """
    file: _File = {
        "baseline": FORMAT,
        "tool_version": __version__,
        "at": trial.finished_at or time.time(),
        "model": {"name": record.name, "content_sha256": record.content_sha256},
        "spec": trial.spec,
        "batch_size": int(trial.facts["batch_size"]),
        "speed": _speed(trial),
        "canary_s": _canary_s(trial),
        "environment": machine,
    }
    try:
        with written_whole(path) as part:
            part.write_text(json.dumps(plain(file), indent=1), encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from None


def read(path: Path) -> RecordedBaseline:
    """Read a baseline.

    Raises:
        SpecError: it cannot be read, is not a baseline, or was written by a newer version.
    """
    try:
        with open_regular(path) as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise SpecError(
            f"The baseline `{path}` cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from None
    try:
        loose = json.loads(data)
        version = loose.get("baseline") if isinstance(loose, dict) else None
        if type(version) is int and version > FORMAT:
            raise SpecError(
                f"The baseline `{path.name}` was made by a newer version: its format is {version}, and this "
                f"version reads up to {FORMAT}.",
                hint="Update ORTune, or record the baseline again.",
            )
        file = msgspec.convert(loose, _File)
        fingerprint(file["environment"])
        speed = file["speed"]
        sound = all(
            value is None or (math.isfinite(value) and value > 0)
            for value in (speed.ratio, speed.low, speed.high, file["canary_s"])
        )
    except SpecError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound or version != FORMAT:
        raise SpecError(
            f"`{path.name}` is not a recorded baseline.", hint="Record one on this machine first."
        )
    return RecordedBaseline(path=path, file=file)


def compare_with(
    kept: RecordedBaseline, trial: Trial, record: ModelRecord, machine: wire.Environment, *, limit: float
) -> SpeedChange:
    """Compare a trial with a baseline of the same machine.

    Args:
        kept: the baseline.
        trial: the new measurement.
        record: its model.
        machine: its current state.
        limit: a fraction: a trial that takes (1 + limit) times as long is too slow.
    """
    file = kept.file
    now_s = _canary_s(trial)
    cpus = None if file["canary_s"] is None or now_s is None else file["canary_s"] / now_s
    return change(
        file["speed"],
        _speed(trial),
        limit=limit,
        cpus=cpus,
        changed=_changed(file, trial, record, machine),
    )


def _changed(file: _File, trial: Trial, record: ModelRecord, machine: wire.Environment) -> list[str]:
    """Differences in model, libraries and configuration."""
    found = [
        f"{name}: {then} then, {now} now" for name, then, now in differing_facts(file["environment"], machine)
    ]
    if file["model"]["content_sha256"] != record.content_sha256:
        found.insert(0, f"model: {file['model']['name']} then, {record.name} now, with different content")
    if _settings(file["spec"]) != _settings(trial.spec):
        found.append("settings: the configuration differs")
    return found


def _settings(spec: dict[str, Any]) -> Any:
    try:
        data = spec_from_dict(spec).to_dict()
    except SpecError:  # stored by another version
        return None
    workload = data.get("workload", {})
    if "feeds" in workload:  # a bundle is unpacked into a new folder each time
        workload["feeds"] = Path(workload["feeds"]).name
    return {
        **{name: data.get(name) for name in ("session", "engine", "runtime", "openvino")},
        **{name: data["model"].get(name) for name in ("precision", "keep_io_types")},
        "workload": workload,
        "cpus": data.get("protocol", {}).get("cpus"),
    }


def _speed(trial: Trial) -> Speedup:
    """Samples per second at the median latency, of several streams those of throughput; with the interval."""
    result = trial.facts
    latency, rows = result["latency"], int(result["batch_size"])
    p50_s, low_s, high_s = latency["p50_s"], latency["p50_s_low"], latency["p50_s_high"]
    doubt = str(result.get("grade_reason") or "its A/A test failed") if is_rejected(result) else ""
    if stream_count(result) > 1 and (rate := result["throughput_per_s"]):
        low, high = throughput_interval(result)
        return Speedup(ratio=rate, low=low, high=high, doubt=doubt)
    if p50_s is None:
        return Speedup(ratio=1.0, low=None, high=None, doubt="it has no p50 latency")
    return Speedup(
        ratio=rows / p50_s,
        low=rows / high_s if high_s else None,
        high=rows / low_s if low_s else None,
        doubt=doubt,
    )


def _canary_s(trial: Trial) -> float | None:
    """Median duration of the canary, the fixed computation before every block; seconds."""
    times = [one["counters"]["canary_ns"] for one in trial.facts.get("blocks") or []]
    found = [value for value in times if value > 0]
    return statistics.median(found) / 1e9 if found else None
