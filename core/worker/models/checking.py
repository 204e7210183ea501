"""Write model files safely: draft next to the target, check, then move into place. Worker side.

After a failure, `draft_folder` and `move_into_place` leave no file; `open_checked` does the check.
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
from core.worker import spare_process
from core.worker.session import operator_library_paths
from core.worker.session.job_session import job_session
from core.worker.session.ort_errors import first_line

ONE_FILE_BYTES = 1_900_000_000  # weights in one file: protobuf's 2 GiB, less room for the graph
_STALE_AFTER_S = 24 * 3600


# --- draft and target ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def draft_folder(target: Path, prefix: str) -> Iterator[Path]:
    """Yield a folder next to `target` on the same file system, and remove it at the end.

    Args:
        target: the final file; its folder is created if missing.
        prefix: start of the folder's name; folders with this prefix older than a day are removed.

    Raises:
        ModelError: the system refuses an operation while the folder is in use.
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
    """Remove folders of killed processes; those of running ones are younger than a day."""
    for left in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)


def move_into_place(draft: Path, target: Path, companions: Sequence[str] = ()) -> None:
    """Move `draft` to `target`, companion files first, so that the model never exists without them.

    Args:
        draft: the model.
        target: its final place, on the same file system.
        companions: names of files next to the draft that belong to it; each keeps its name.
    """
    for name in companions:
        (draft.parent / name).replace(target.parent / name)
    draft.replace(target)


# --- check --------------------------------------------------------------------------------------------------


def checker_error(file: Path) -> str:
    """Return the complaint of ONNX's checker about `file`; empty if there is none.

    The checker is stricter than ONNX Runtime, which runs inputs of unknown rank, for example.
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
        file: the model; external data lies next to it.
        what: name of the model in the message ("the exported model").
        use_checker: False if the checker refused the source of `file` already.
        level: optimization level, by ONNX Runtime's name.

    Raises:
        ModelError: the checker or ONNX Runtime refuses it.
    """
    complaint = checker_error(file) if use_checker else ""
    if complaint:
        raise ModelError(
            f"ONNX's checker refuses {what}: {complaint}",
            hint="Try another opset, or keep the model as it is.",
        )
    return job_session(
        file,
        level,
        complaint=f"ONNX Runtime cannot load {what}",
        hint="Try another opset, or keep the model as it is.",
    )


def crashes_by_default(file: Path) -> bool:
    """Whether ONNX Runtime's default optimizations crash the process that loads `file` on the CPU.

    The test runs in its own process.
    """
    if (spare := spare_process.take()) is not None:
        return spare.crashes([str(file), *operator_library_paths()])
    quiet = subprocess.DEVNULL
    code = (
        "import sys; from core.worker.models.checking import load_by_default; load_by_default(*sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), *operator_library_paths()],
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        check=False,
    )
    return done.returncode < 0  # ended by a signal


def load_by_default(model: str, *libraries: str) -> None:
    """Load a model on the CPU with ONNX Runtime's defaults, which may crash this process."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    for one in libraries:
        options.register_custom_ops_library(one)
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
