"""A model file that ORTune writes: drafted beside its target, proven valid, then moved there. Worker side.

`draft_folder` and `move_into_place` see to it that a failure leaves nothing; `open_checked` is the proof.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import onnxruntime as ort

from core.wire.errors import ModelError
from core.worker.session import ORT_ERRORS, held_operators, own_options
from core.worker.session.ort_errors import clean, unregistered

ONE_FILE_BYTES = (
    1_900_000_000  # weights that one file holds: protobuf's 2 GiB, less room for the graph itself
)
_STALE_AFTER_S = 24 * 3600


# --- where it is written ------------------------------------------------------------------------------------


@contextlib.contextmanager
def draft_folder(target: Path, prefix: str) -> Iterator[Path]:
    """A folder beside `target`, on the same file system, removed at the end unless this process is killed.

    Args:
        target: the file to write in the end; its folder is made where there is none.
        prefix: the folder's name begins with it; what a killed process left under it a day ago is removed.

    Raises:
        ModelError: whatever the system refuses while the folder is in use.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent, prefix)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as folder:
            yield Path(folder)
    except OSError as error:
        raise ModelError(
            f"Cannot write `{target}`: {error.strerror or error}.",
            hint="Choose a folder you can write to, with space for the model.",
        ) from None


def _remove_stale(folder: Path, prefix: str) -> None:
    """Remove what a killed process left; one that may still run is younger than a day."""
    for left in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)


def move_into_place(draft: Path, target: Path, companions: Sequence[str] = ()) -> None:
    """Move `draft` to `target`, the files beside it first, so that the model is never there without them.

    Args:
        draft: the model.
        target: its final place, on the same file system.
        companions: names of files beside the draft that belong to it; each keeps its name.
    """
    for name in companions:
        (draft.parent / name).replace(target.parent / name)
    draft.replace(target)


# --- proof --------------------------------------------------------------------------------------------------


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
    options = own_options(level)
    try:
        return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except ORT_ERRORS as error:
        raise unregistered(str(error)) or ModelError(
            f"ONNX Runtime cannot load {what}: {first_line(error)}",
            hint="Try another opset, or keep the model as it is.",
        ) from None


def crashes_by_default(file: Path) -> bool:
    """True when ONNX Runtime's default optimizations kill the process that loads `file` on the CPU.

    Tried in a process of its own.
    """
    code = (
        "import sys, onnxruntime as ort; options = ort.SessionOptions(); options.log_severity_level = 4; "
        "[options.register_custom_ops_library(one) for one in sys.argv[2:]]; "
        "ort.InferenceSession(sys.argv[1], options, providers=['CPUExecutionProvider'])"
    )
    quiet = subprocess.DEVNULL
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), *held_operators()],
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        check=False,
    )
    return done.returncode < 0  # ended by a signal


def first_line(error: Exception) -> str:
    """Return the first line of an error's text that says something, at most 300 characters."""
    return (clean(str(error)) or type(error).__name__)[:300]
