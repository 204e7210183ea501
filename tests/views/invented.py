"""Trials that were never run, with results in the form that the scheduler stores."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.measurement import Trial, latency_summary
from core.profiling import cast_facts, parse_profile
from core.spec import TrialSpec
from core.store import ModelRecord, Store

DATA = Path(__file__).parents[1] / "data"
CPU = ["CPUExecutionProvider"]
ASKED_CUDA = ["CUDAExecutionProvider", "CPUExecutionProvider"]


def spec_for(record: ModelRecord, **workload: Any) -> TrialSpec:
    """What the pages ask for with every setting at its default."""
    from dashboard import fields

    values = {fields.key(name): value for name, value in workload.items()}
    return fields.spec_from_values(values, path=record.path, sha256=record.sha256, info=record.info)


def put_measured(
    store: Store,
    record: ModelRecord,
    spec: TrialSpec,
    *,
    fingerprint: str,
    latency_s: float = 0.002,
    rows: int = 1,
    runs: int = 100,
    **changes: Any,
) -> Trial:
    """Store a complete measurement whose runs scatter by some percent."""
    samples = [latency_s * (1 + 0.01 * ((index * 7919) % 13)) for index in range(runs)]
    fallback = changes.pop("fallback", False)
    result = {
        "requested_providers": ASKED_CUDA if fallback else CPU,
        "effective_providers": CPU,
        "fallback": fallback,
        "fallback_reason": "CUDA is not here." if fallback else "",
        "placement": {"CPUExecutionProvider": {"nodes": 4, "time_s": latency_s}},
        "batch_size": rows,
        "runs": runs,
        "latencies_s": samples,
        "warmup_latencies_s": [latency_s * 3],
        "latency": latency_summary(samples),
        "throughput_per_s": rows * runs / sum(samples),
        "fingerprint": fingerprint,
        "notes": [],
    }
    return _put(store, record, spec, "measure", result, fingerprint=fingerprint, **changes)


def put_failed(store: Store, record: ModelRecord, spec: TrialSpec, *, message: str, **changes: Any) -> Trial:
    """Store a trial that failed."""
    error = {"type": "WorkerError", "message": message, "hint": "Use a smaller batch."}
    facts = {"state": "FAIL", "error": error} | changes
    return _put(store, record, spec, facts.pop("kind", "measure"), None, **facts)


def put_profile(
    store: Store,
    record: ModelRecord,
    spec: TrialSpec,
    *,
    recording: str = "if",
    profile_changes: dict[str, Any] | None = None,
    trace: bool = True,
    **result_changes: Any,
) -> Trial:
    """Store a profile that ONNX Runtime really recorded, of another model."""
    path = DATA / f"profile_1.31.1_{recording}.json"
    parsed = parse_profile(path)
    profile = parsed.to_dict() | (profile_changes or {})
    result = {
        "requested_providers": CPU,
        "effective_providers": CPU,
        "fallback": False,
        "fallback_reason": "",
        "casts": cast_facts(parsed),
        "batch_size": 1,
        "runs": profile["runs"],
        "profile": profile,
        "unprofiled_latencies_s": [0.8 * seconds for seconds in profile["run_s"]],
        "fingerprint": "",
        "notes": [],
    }
    trial = _put(store, record, spec, "profile", result | result_changes)
    if trace:
        store.artifact_path(trial.id, "trace.json").write_bytes(path.read_bytes())
        json.loads(path.read_text())
    return trial


def _put(
    store: Store,
    record: ModelRecord,
    spec: TrialSpec,
    kind: Any,
    result: dict[str, Any] | None,
    **changes: Any,
) -> Trial:
    facts: dict[str, Any] = {
        "id": secrets.token_hex(8),
        "kind": kind,
        "state": "COMPLETE",
        "spec": spec.to_dict(),
        "model_name": record.name,
        "model_sha256": record.content_sha256,
        "key": spec.key(),
        "created_at": 1_000_000.0,
        "started_at": 1_000_000.0,
        "finished_at": 1_000_002.0,
        "result": result,
    }
    trial = Trial(**(facts | changes))
    store.create_trial(trial)
    return trial


def batches(
    store: Store, record: ModelRecord, sizes: Sequence[int], *, fingerprint: str, **changes: Any
) -> list[Trial]:
    """Store one measurement per batch size: a fixed cost plus a cost per row."""
    return [
        put_measured(
            store,
            record,
            spec_for(record, batch_size=size),
            fingerprint=fingerprint,
            latency_s=0.0005 + 0.0001 * size,
            rows=size,
            **changes,
        )
        for size in sizes
    ]
