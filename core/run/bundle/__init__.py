"""Defines bundles: a trial as a zip with its model, configuration, recorded inputs and outputs, and a script.

`writing` creates a bundle: a worker records inputs and outputs once per trial, and the same trial gives the
same bytes. `opening` reads untrusted bundles and checks them before any part is used.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, TypedDict

FORMAT = 1  # version of the bundle format
MANIFEST, CONFIG, SCRIPT, NEEDS, README = (
    *("bundle.json", "config.yaml", "run.py", "requirements.txt", "README.md"),
)
INPUTS, OUTPUTS = "samples/inputs.npz", "samples/outputs.npz"
STORED = "bundle.zip"  # the bundle that the store keeps with a trial
PIECE = 1 << 20  # bytes copied at once, so that no whole model is in memory


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
    """Recorded inputs and outputs of one inference."""

    inputs: str  # path in the bundle
    outputs: str
    rows: int
    precision: str  # determines the tolerances of the output check, see `output_check.TOLERANCES`
    tolerance: float | None  # the user's tolerance of the largest error; null: by the precision


class BundledBaseline(TypedDict):
    """Baseline of the trial's comparison, if it was not the ORT default."""

    label: str
    spec: dict[str, Any] | None  # null: it used another model, which is not in the bundle


class Manifest(TypedDict):
    """`bundle.json`: contents of a bundle."""

    bundle: int  # FORMAT
    tool_version: str
    trial: str
    model: BundledModel
    sample: BundledSample | None
    no_sample: str  # reason if there is no sample; else empty
    baseline: BundledBaseline | None
    files: list[BundledFile]  # all except `bundle.json`


WEIGHTS_HINT = "Save the model again with its weights in a file next to it."


def path_problem(name: str) -> str:
    """Return why a path of a bundle is not a valid path inside its folder; empty: it is valid."""
    path = PurePosixPath(name)
    if not name or len(name) > 500 or not name.isprintable():
        return "is not a file name"
    if "\\" in name or ":" in name or path.is_absolute() or ".." in path.parts:
        return "points outside the folder of the bundle"
    return "" if str(path) == name.rstrip("/") else "is not a plain path"
