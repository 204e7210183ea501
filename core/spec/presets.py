"""Named starting points. A preset sets session and workload; model and protocol stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.spec import SessionSpec, session_from_dict
from core.wire.errors import SpecError, nearest

PRESETS: Mapping[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    # name -> (label, what it is for, session, workload)
    "default": (
        "ORT default",
        "ONNX Runtime's own defaults. The baseline.",
        {},
        {},
    ),
    "cpu-latency": (
        "Latency on CPU",
        "Lowest latency for one caller: sequential, all graph optimizations, spinning threads.",
        {
            "graph_optimization_level": "ORT_ENABLE_ALL",
            "execution_mode": "ORT_SEQUENTIAL",
            "session_config_entries": {"session.intra_op.allow_spinning": "1"},
        },
        {"use_io_binding": True},
    ),
    "cpu-throughput": (
        "Throughput on CPU",
        "Many samples per second at a low CPU cost: larger batches, no spinning.",
        {
            "graph_optimization_level": "ORT_ENABLE_ALL",
            "session_config_entries": {
                "session.intra_op.allow_spinning": "0",
                "session.dynamic_block_base": "4",
            },
        },
        {"batch_size": 16, "use_io_binding": True},
    ),
    "gpu-server": (
        "GPU server",
        "CUDA with inputs and outputs kept on the device; the CPU runs what CUDA cannot.",
        {
            "providers": [
                {
                    "name": "CUDAExecutionProvider",
                    "options": {
                        "cudnn_conv_algo_search": "HEURISTIC",
                        "arena_extend_strategy": "kSameAsRequested",
                    },
                },
                {"name": "CPUExecutionProvider"},
            ],
        },
        {"batch_size": 16, "use_io_binding": True},
    ),
    "edge": (
        "Mobile / edge",
        "Least memory and CPU time: no arena, one thread, basic graph optimizations.",
        {
            "graph_optimization_level": "ORT_ENABLE_BASIC",
            "intra_op_num_threads": 1,
            "enable_cpu_mem_arena": False,
            "enable_mem_pattern": False,
        },
        {},
    ),
}


def preset(name: str) -> tuple[SessionSpec, dict[str, Any]]:
    """Return the session and the workload settings of preset `name`.

    Raises:
        SpecError: no preset has that name.
    """
    if name not in PRESETS:
        raise SpecError(
            f"Unknown preset `{name}`.{nearest(name, PRESETS)}", hint=f"Use one of {', '.join(PRESETS)}."
        )
    _, _, session, workload = PRESETS[name]
    return session_from_dict(session), dict(workload)
