"""The job `import`: read a result file made by another tool, without trusting it.

Three kinds: a profile of ONNX Runtime; the same events inside a trace saved by Chrome or Perfetto; and the
printed output or result file of `onnxruntime_perf_test`. The kind follows from the content, never from the
file's name.
"""

from __future__ import annotations

import hashlib
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from core import wire
from core.wire.errors import SpecError, WorkerError
from core.wire.files import MOST_IMPORT_BYTES, open_regular
from core.worker.measure.profile_parser import parse_profile

MOST_SAMPLES = 1_000_000
LONGEST_S = 86_400.0  # of one run; a longer one was read in the wrong unit
_FORMATS = (
    "Give a profile that ONNX Runtime wrote, a Chrome trace that holds its events, or the output of "
    "onnxruntime_perf_test."
)
_NO_LATENCY = "The file holds latencies that are zero, or longer than a day."
_AS_WRITTEN = "Give the result file as onnxruntime_perf_test wrote it."
_NODE = b"_kernel_time"  # end of the name of every node event


def read_import(path: str) -> wire.ImportReply:
    """Read the file at `path` and detect its kind.

    Raises:
        SpecError: it is missing, empty, too large, not text, of no known kind, or holds no run.
    """
    data = _data(Path(path))
    head = data.lstrip()[:1]
    reply: wire.ImportReply = {
        "format": "onnxruntime_perf_test",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size_bytes": len(data),
        "profile": None,
        "summary": None,
    }
    if head in (b"[", b"{"):
        reply["format"] = "Chrome trace" if head == b"{" else "onnxruntime profile"
        reply["profile"] = _profile(data, is_object=head == b"{")
    else:
        reply["summary"] = _summary(data)
    return reply


def _data(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            data = file.read(MOST_IMPORT_BYTES + 1)
    except OSError as error:
        raise SpecError(
            f"`{path.name}` cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from None
    if len(data) > MOST_IMPORT_BYTES:
        raise SpecError(
            f"`{path.name}` is larger than {MOST_IMPORT_BYTES >> 20} MiB.",
            hint="Profile fewer runs, and import that.",
        )
    if not data.strip():
        raise SpecError(f"`{path.name}` is empty.", hint=_FORMATS)
    return data


# --- profiles and traces ------------------------------------------------------------------------------------


def _profile(data: bytes, *, is_object: bool) -> dict[str, Any]:
    events = _trace_events(data) if is_object else data
    if _NODE not in events:
        raise SpecError(
            "The file is JSON, but holds no event of a node that ONNX Runtime ran.",
            hint="Make it with `enable_profiling`, and take the file that `end_profiling()` names.",
        )
    with tempfile.TemporaryDirectory(prefix="ortune-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "imported.json"
        file.write_bytes(events)
        try:
            try:
                profile = parse_profile(file, skip_runs=1)  # the first run warms up
            except WorkerError:
                profile = parse_profile(file)  # there is only one
        except WorkerError as error:
            message = error.message.replace("The profile imported.json", "The file").replace(
                "imported.json", "The file"
            )
            raise SpecError(message, hint=f"Give the file as ONNX Runtime wrote it. {_FORMATS}") from None
        except (RecursionError, msgspec.MsgspecError, ValueError, OverflowError):
            raise SpecError("The file is no profile that can be read.", hint=_FORMATS) from None
    if not all(map(math.isfinite, (profile.self_s, profile.remainder_s, *profile.run_s))):
        raise SpecError("The file holds times that are no numbers.", hint=_FORMATS)
    if any(one.inclusive_s < 0 for one in profile.nodes) or min(profile.run_s, default=0.0) < 0:
        raise SpecError("The file holds times below zero.", hint=_FORMATS)
    return profile.to_dict()


class _Trace(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # Chrome's name


def _trace_events(data: bytes) -> bytes:
    """Return the events of a trace as a list, keeping only those of ONNX Runtime."""
    try:
        found = msgspec.json.decode(data, type=_Trace)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise SpecError(
            f"The file is no trace in Chrome's format: {str(error)[:200]}.", hint=_FORMATS
        ) from None
    kept = [bytes(one) for one in found.traceEvents if b'"cat"' in bytes(one)]
    return b"[\n" + b",\n".join(one.replace(b"\n", b" ") for one in kept) + b"\n]"


# --- onnxruntime_perf_test ----------------------------------------------------------------------------------

_NUMBER = r"([0-9][0-9.]*(?:e[-+]?[0-9]+)?)"
_SECONDS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6}
_SUMMARY_NAMES = {  # printed name -> name here; the unit follows the number
    r"(?:Average|Mean)(?: inference)? time cost": "mean",
    r"Session creation time cost": "creation",
    r"Min Latency": "min",
    r"Max Latency": "max",
    r"P(50|90|95|99|999) Latency": "p",
}
_RUNS = re.compile(r"^(?:Total inference requests|Total iterations|Runs)\s*:\s*([0-9]+)", re.I | re.M)
_ROW = re.compile(rf"^([^,\n]*),\s*{_NUMBER}\s*,\s*[0-9.]+\s*,\s*-?[0-9]+\s*,\s*([0-9]+)\s*$", re.I | re.M)


def _summary(data: bytes) -> wire.Summary:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise SpecError("The file is neither JSON nor text.", hint=_FORMATS) from None
    told = _parse_summary(text)
    model, samples, notes = _samples(text)
    if not samples and "mean" not in told and not any(name.startswith("p") for name in told):
        raise SpecError("The file holds no result of onnxruntime_perf_test.", hint=_FORMATS)
    runs = _RUNS.search(text)
    return {
        "model": model,
        "samples_s": samples,
        "runs": len(samples) or (int(runs[1]) if runs is not None and len(runs[1]) < 12 else None),
        "mean_s": sum(samples) / len(samples) if samples else told.get("mean"),
        "percentiles_s": {name: value for name, value in told.items() if name not in ("mean", "creation")},
        "session_creation_s": told.get("creation"),
        "notes": notes,
    }


def _parse_summary(text: str) -> dict[str, float]:
    """Parse the printed summary in seconds, by name: "mean", "p50", "min", "creation"."""
    found: dict[str, float] = {}
    for pattern, name in _SUMMARY_NAMES.items():
        for match in re.finditer(rf"{pattern}\s*(?::|is)\s*{_NUMBER}\s*(sec|ms|us|s)\b", text, re.I):
            *named, value, unit = match.groups()
            found["".join([name, *named])] = _seconds(value) * _SECONDS[unit.lower()]
    if any(one > LONGEST_S for one in found.values()) or found.get("mean") == 0:
        raise SpecError(_NO_LATENCY, hint=_AS_WRITTEN)
    return found


def _samples(text: str) -> tuple[str, list[float], list[str]]:
    """Return model and latency of every run, from lines `model,latency,memory,CPU,number` of the file."""
    rows = _ROW.findall(text)
    if len(rows) > MOST_SAMPLES:
        raise SpecError(f"The file holds more than {MOST_SAMPLES:,} runs.", hint="Give it fewer.")
    models = {row[0].strip() for row in rows}
    if len(models) > 1 or len({row[2] for row in rows}) < len(rows):
        raise SpecError(
            "The file holds the results of several calls of onnxruntime_perf_test, which appends to it.",
            hint="Give each call a file of its own, or cut the file.",
        )
    values = [_seconds(row[1]) for row in rows]
    if not values:
        return "", [], []
    whole = all(
        re.fullmatch(r"[0-9]+", row[1]) and value >= 1000 for row, value in zip(rows, values, strict=True)
    )
    scale, unit = (1e-9, "nanoseconds") if whole else (1.0, "seconds")  # earlier versions wrote nanoseconds
    seconds = [value * scale for value in values]
    if not all(0 < one <= LONGEST_S for one in seconds):
        raise SpecError(_NO_LATENCY, hint=_AS_WRITTEN)
    return models.pop()[:200], seconds, [f"Its latencies were taken for {unit}."]


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SpecError(f"`{text[:40]}` is no number.", hint=_FORMATS)
    return value
