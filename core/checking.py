"""Proving that a model file which ORTune wrote is valid and loads: `open_checked`. Worker side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime as ort

from core.errors import ModelError
from core.session import ORT_ERRORS
from core.session.ort_errors import clean


def checker_complaint(file: Path) -> str:
    """Return what ONNX's checker has against `file`; empty when it has nothing.

    It is stricter than ONNX Runtime, which runs inputs of unknown rank, for example.
    """
    try:
        # By path: a model above 2 GiB cannot be checked in memory.
        onnx.checker.check_model(str(file))
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        return first_line(error)
    return ""


def open_checked(
    file: Path, what: str, *, use_checker: bool = True, level: str = "ORT_ENABLE_ALL"
) -> ort.InferenceSession:
    """Check `file` with ONNX's checker and load it in ONNX Runtime on the CPU.

    Args:
        file: the model; external data is found beside it.
        what: how it came about, for the message ("the exported model").
        use_checker: False where the checker refused already what `file` was made from.
        level: how far to optimize, by ONNX Runtime's name.

    Raises:
        ModelError: the checker or ONNX Runtime refuses it.
    """
    complaint = checker_complaint(file) if use_checker else ""
    if complaint:
        raise ModelError(
            f"ONNX's checker refuses {what}: {complaint}",
            hint="Try another opset, or keep the model as it is.",
        )
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what it would log is raised as an error below
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    try:
        return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except ORT_ERRORS as error:
        raise ModelError(
            f"ONNX Runtime cannot load {what}: {first_line(error)}",
            hint="Try another opset, or keep the model as it is.",
        ) from None


def crashes_by_default(file: Path) -> bool:
    """True when ONNX Runtime's default optimizations kill the process that loads `file` on the CPU.

    Tried in a process of its own.
    """
    code = (
        "import sys, onnxruntime as ort; options = ort.SessionOptions(); options.log_severity_level = 4; "
        "ort.InferenceSession(sys.argv[1], options, providers=['CPUExecutionProvider'])"
    )
    quiet = subprocess.DEVNULL
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], stdin=quiet, stdout=quiet, stderr=quiet, check=False
    )
    return done.returncode < 0  # ended by a signal


def first_line(error: Exception) -> str:
    """Return the first line of an error's text that says something, at most 300 characters."""
    return (clean(str(error)) or type(error).__name__)[:300]
