"""Detect overflow of 8-bit products on this CPU: x86 without VNNI adds two of them in 16 bits and saturates.

Unsigned activations times signed weights of the full range reach 2 x 255 x 127, above the 32,767 that fit.
Only a run tells how much this harms a model. With `session.x64quantprecision` ONNX Runtime avoids
saturation, so the same file is run both ways and compared with the float model. Source: ONNX Runtime's
quantization guide, section on U8S8. Worker side.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.wire import FeedPlan, StepCheck
from core.worker.machine.environment import instructions, read_text
from core.worker.make.transform.distance import AS_RUN, PLAIN, arrays_of, distance, open_session, runs
from core.worker.make.transform.step_result import option

EXACT_SUMS = {"session.x64quantprecision": "1"}
_VNNI = ("avx_vnni", "avx512_vnni", "amx_int8")  # each adds four products in 32 bits
_HARM = 0.005  # of the outputs' length: smaller errors are within the cost of 8-bit rounding
_TIMES = 1.25  # and at least a quarter above the error with exact sums

_CLIPPED = (
    "On this CPU, which has no VNNI, sums of 8-bit products overflow: the outputs are {plain:.1%} off, "
    "with exact sums {exact:.1%}. Make the variant with `reduce_range` or with `weight_type` QUInt8, or run "
    "it with `session.x64quantprecision` 1, which is slower"
)
_ELSEWHERE = (
    "This CPU has VNNI and adds 8-bit products exactly. An x86 CPU without it may clip the sums of this "
    "file's full-range weights: make it with `reduce_range` if it is to run there"
)


def saturation(
    source: Path, draft: Path, options: Mapping[str, Any], feeds: Sequence[FeedPlan]
) -> list[StepCheck]:
    """Find out whether the INT8 model in `draft` loses accuracy because this CPU saturates its sums.

    Args:
        source: the float model.
        draft: the quantized one.
        options: of the quantization.
        feeds: inputs of both runs.

    Returns:
        One finding at most; none with a remedy in `options`, or on a CPU that is not x86.

    Raises:
        ModelError: one of the models cannot be loaded or run.
    """
    if avoids_saturation(options) or platform.machine().lower() not in ("x86_64", "amd64"):
        return []
    if has_vnni(instructions(read_text("/proc/cpuinfo"))):
        return [_finding("info", _ELSEWHERE)]
    return saturation_finding(*errors(source, draft, feeds))


def avoids_saturation(options: Mapping[str, Any]) -> bool:
    """Whether two products of the weights fit into 16 bits, or the weights are unsigned."""
    return bool(option(options, "reduce_range", False)) or option(options, "weight_type", "QInt8") == "QUInt8"


def has_vnni(known: Sequence[str]) -> bool:
    """Whether a CPU adds 8-bit products in 32 bits.

    Args:
        known: its instruction sets, by the kernel's names.
    """
    return any(name in known for name in _VNNI)


def errors(source: Path, draft: Path, feeds: Sequence[FeedPlan]) -> tuple[float, float]:
    """Return the relative L2 errors of `draft` against `source`: by default, and with exact sums."""
    reference = open_session(source, PLAIN)
    arrays = arrays_of(feeds, reference)
    expected = list(runs(reference, arrays))
    del reference  # one session at a time
    plain = distance(open_session(draft, AS_RUN), arrays, expected)
    return plain, distance(open_session(draft, AS_RUN, EXACT_SUMS), arrays, expected)


def saturation_finding(plain: float, exact: float) -> list[StepCheck]:
    """Return the finding for two relative errors: by default, and with exact sums."""
    if plain < _TIMES * exact or plain - exact < _HARM:
        return []
    return [_finding("warning", _CLIPPED.format(plain=plain, exact=exact))]


def _finding(level: Any, text: str) -> StepCheck:
    return {"name": "saturation", "level": level, "text": f"{text}.", "remedy": {"reduce_range": True}}
