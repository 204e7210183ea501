"""The model's own file beside what is written for it. Bytes are copied, never read as a model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from core.run.leaving import Leaving
from core.wire.errors import ModelError, SpecError

_CHUNK = 1 << 20


def refuse_fp16(leaving: Leaving) -> None:
    """Refuse a trial that ran on a copy of which there is no file.

    Raises:
        SpecError: it computed on an FP16 copy.
    """
    if leaving.trial.spec["model"].get("precision") == "fp16":
        raise SpecError(
            "The trial computed on an FP16 copy that was made for it, and this format takes a file along.",
            hint="Make a variant with `transform --fp16`, measure that, and export its trial.",
        )


def copy_model(leaving: Leaving, path: Path, to: BinaryIO) -> None:
    """Copy a model file that must be the one that was measured.

    Raises:
        SpecError: the trial ran on an FP16 copy.
        ModelError: the file is not there, or has other bytes by now.
    """
    refuse_fp16(leaving)
    digest, wanted = hashlib.sha256(), leaving.trial.spec["model"].get("sha256")
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                to.write(chunk)
    except OSError as error:
        raise ModelError(
            f"`{path}` cannot be read: {error.strerror or error}.",
            hint="Put the model back, or import it again.",
        ) from None
    if wanted and digest.hexdigest() != wanted:
        raise ModelError(
            f"`{path}` is not the model that was measured: its SHA-256 is another.",
            hint="Put the measured model back, or measure this one.",
        )
