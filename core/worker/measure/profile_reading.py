"""Interpret what the job `profile` has written: ONNX Runtime's trace and the optimized graph.

Apart from that job, because it needs msgspec and onnx, which a runtime beside ORTune's own need not have.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from core import wire
from core.wire.profile import Profile
from core.worker.measure.profile_parser import parse_profile


def read_profile(plan: wire.ReadProfilePlan) -> wire.ReadProfileReply:
    """Do the job `read_profile`.

    Raises:
        WorkerError: the trace is not a profile of ONNX Runtime.
    """
    graph = Path(plan["graph_path"])
    return {"profile": read(Path(plan["trace_path"]), graph if graph.is_file() else None).to_dict()}


def read(trace: Path, graph: Path | None) -> Profile:
    """Return the profile without its first run, with the constants of the optimized graph if it is known.

    Raises:
        WorkerError: the trace is not a profile of ONNX Runtime.
    """
    found = parse_profile(trace, skip_runs=1)
    if graph is None:
        return found
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    from core.worker.models.constants import constants_of

    try:
        return replace(found, constants=tuple(constants_of(onnx.load(str(graph), load_external_data=False))))
    except (OSError, DecodeError):  # the profile can do without
        return found
