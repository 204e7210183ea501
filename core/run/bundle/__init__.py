"""A trial as one zip to take along: the model, the configuration, a sample of inputs and outputs, a script.

Here stands what a bundle looks like. `making` puts one together: the sample is recorded once per trial, by a
worker, and the same input gives the same bytes. `opening` takes one of strangers, and checks it before
anything of it is used.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, TypedDict

FORMAT = 1  # of a bundle
MANIFEST, CONFIG, SCRIPT, NEEDS, README = (
    *("bundle.json", "config.yaml", "run.py", "requirements.txt", "README.md"),
)
INPUTS, OUTPUTS = "samples/inputs.npz", "samples/outputs.npz"
PIECE = 1 << 20  # bytes that are copied at once, so that no model lies in memory


class BundledFile(TypedDict):
    """One file of a bundle."""

    path: str
    sha256: str
    size_bytes: int


class BundledModel(TypedDict):
    """The model of a bundle."""

    path: str  # in the bundle
    name: str
    sha256: str  # of the .onnx file
    content_sha256: str  # with its external data


class BundledSample(TypedDict):
    """What was recorded of one run."""

    inputs: str  # path in the bundle
    outputs: str
    rows: int
    precision: str  # by which the outputs are judged, see `guard.TOLERANCES`
    tolerance: float | None  # of the largest error, that the user allows; null: by the precision


class BundledBaseline(TypedDict):
    """What the trial raced against beside ONNX Runtime's default."""

    label: str
    spec: dict[str, Any] | None  # null: it ran another model, which is not in the bundle


class Manifest(TypedDict):
    """`bundle.json`: what is in a bundle."""

    bundle: int  # FORMAT
    tool_version: str
    trial: str
    model: BundledModel
    sample: BundledSample | None
    no_sample: str  # why there is none; empty: there is one
    baseline: BundledBaseline | None
    files: list[BundledFile]  # all but this one


def no_place(name: str) -> str:
    """Why a path of a bundle names no place in its folder; empty: it does."""
    path = PurePosixPath(name)
    if not name or len(name) > 500 or any(ord(one) < 32 for one in name):
        return "is not a file name"
    if "\\" in name or ":" in name or path.is_absolute() or ".." in path.parts:
        return "points outside the folder of the bundle"
    return "" if str(path) == name.rstrip("/") else "is not a plain path"
