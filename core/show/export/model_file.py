"""Copies the model file into an export. It copies bytes and never parses the model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO

from core.run.export_source import ExportSource
from core.wire.errors import ModelError, SpecError
from core.wire.files import open_regular

_CHUNK = 1 << 20


def refuse_fp16(source: ExportSource) -> None:
    """Refuse a trial that ran on a temporary FP16 copy, which has no file.

    Raises:
        SpecError: it ran on an FP16 copy.
    """
    if source.trial.spec["model"].get("precision") == "fp16":
        raise SpecError(
            "The trial ran on a temporary FP16 copy, and this format includes the model file.",
            hint="Create a variant with `transform --fp16`, measure it, and export its trial.",
        )


def copy_file(path: Path, sha256: str | None, to: IO[bytes]) -> None:
    """Copy a file of a model; `sha256`: its hash when it was measured, None: unknown.

    Raises:
        ModelError: the file is missing or has changed.
    """
    digest = hashlib.sha256()
    try:
        opened = open_regular(path)
    except OSError as error:
        raise ModelError(
            f"`{path}` cannot be read: {error.strerror or error}.",
            hint="Restore the model, or import it again.",
        ) from None
    with opened as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            to.write(chunk)
    if sha256 and digest.hexdigest() != sha256:
        raise ModelError(
            f"`{path}` is not the measured file: its SHA-256 differs.",
            hint="Restore the measured model, or measure this one.",
        )
