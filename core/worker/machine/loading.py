"""Whether numpy and ONNX Runtime can be imported in this runtime at all, and why not."""

from __future__ import annotations

import importlib.metadata
import re

from core.wire.errors import SpecError

_NUMPY_2_SINCE = (1, 19)  # the first ONNX Runtime that was built for numpy 2


def require_onnxruntime() -> None:
    """Import numpy and ONNX Runtime.

    Raises:
        SpecError: one of them is missing or cannot be imported.
    """
    try:
        import numpy  # noqa: F401 - the import is the check
        import onnxruntime  # noqa: F401
    except ModuleNotFoundError as error:
        raise SpecError(
            f"The runtime has no package `{error.name}`.",
            hint="Add `onnxruntime` and `numpy` to its packages.",
        ) from error
    except ImportError as error:
        message, hint = why_not(str(error), _version("onnxruntime"), _version("numpy"))
        raise SpecError(message, hint=hint) from error


def why_not(text: str, onnxruntime: str, numpy: str) -> tuple[str, str]:
    """Return message and hint for an import that failed with `text`; versions may be empty."""
    if _numbers(numpy) >= (2,) and () < _numbers(onnxruntime) < _NUMPY_2_SINCE:
        return (
            f"The runtime has ONNX Runtime {onnxruntime}, which was built for numpy 1, and numpy {numpy}.",
            "Add `numpy<2` to its packages.",
        )
    named = f"ONNX Runtime {onnxruntime}" if onnxruntime else "ONNX Runtime"
    return (
        f"{named} cannot be imported in the runtime{f': {text}' if text else ''}.",
        "Install its packages again.",
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # a build under another name
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", version)[:2])
