"""Export a Keras or TensorFlow model: `opened`. Worker side.

Needs the extra `tensorflow`, and reports if it is missing. A Keras file becomes a SavedModel first, so that a
single path leads through tf2onnx, which runs in its own process: it changes TensorFlow's global state. A
SavedModel is a program: loading one can run code of its author. Keras's safe mode is on.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from core.wire import Difference, ExportPlan, ModelInfo
from core.wire.catalog import SOURCE_KEY, WEIGHTS_KEY
from core.wire.errors import ModelError, SpecError
from core.worker.session.ort_errors import first_line

PACKAGES = ("tensorflow", "tf2onnx")
NEWEST_OPSET = 18  # newest that tf2onnx writes
_SIGNATURE = "serving_default"
_ROWS = 2  # batch of the compared inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A SavedModel to convert and, for the comparison, to run."""

    framework: str = "TensorFlow"
    weights: Literal["file"] = "file"
    saved: Path  # its folder
    source: Path  # the user's file or folder
    opset: int
    seed: int
    notes: list[str]

    def write(self, draft: Path) -> None:
        """Convert the model, and write it to `draft`."""
        _convert(self.saved, draft, self.opset, self.source.name)
        _mark(draft, self.source)

    def compare(self, session: Any, info: ModelInfo) -> tuple[list[Difference], list[str]]:
        """Run both on the same inputs."""
        return _compare(self.saved, session, info, self.seed)


def opened(plan: ExportPlan, folder: Path) -> Original:
    """Return the model of the plan as a SavedModel, which a Keras file becomes in `folder`.

    Args:
        plan: `path` is a `.keras` or `.h5` file, or the folder of a SavedModel.
        folder: for new files.

    Raises:
        SpecError: the extra is not installed.
        ModelError: Keras cannot load the model.
    """
    require_packages()
    # Keras opens its settings in the home folder, which the sandbox refuses; a saved model needs none of them
    os.environ["KERAS_HOME"] = str(folder / "keras_home")
    source, opset = Path(plan["path"]), min(plan["opset"], NEWEST_OPSET)
    note = f"opset {opset} instead of {plan['opset']}: the newest that tf2onnx writes"
    return Original(
        saved=source if source.is_dir() else _saved_model(source, folder / "saved_model"),
        source=source,
        opset=opset,
        seed=plan["seed"],
        notes=[note] if opset < plan["opset"] else [],
    )


def require_packages() -> None:
    """Raise if TensorFlow's extra is not installed.

    Raises:
        SpecError: a package is missing.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise SpecError(
            f"TensorFlow and Keras models need packages that are not installed: {', '.join(missing)}.",
            hint="Install them with `pip install '.[tensorflow]'` in ORTune's folder.",
        )


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow logs each missing GPU library
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # the comparison runs on the CPU
    import tensorflow

    return tensorflow


def _saved_model(file: Path, folder: Path) -> Path:
    """Write a Keras file as a SavedModel, without the parts needed only for training."""
    tf = _tensorflow()
    try:
        tf.keras.models.load_model(file, compile=False, safe_mode=True).export(str(folder), verbose=False)
    except Exception as error:  # custom layers may raise anything
        raise ModelError(
            f"Keras cannot load `{file.name}`: {first_line(error)}",
            hint="Save it as a SavedModel if it has layers of its own, or Lambda layers.",
        ) from None
    return folder


def _convert(saved: Path, draft: Path, opset: int, name: str) -> None:
    command = [sys.executable, "-m", "tf2onnx.convert", "--saved-model", str(saved)]
    command += ["--output", str(draft), "--opset", str(opset), "--signature_def", _SIGNATURE]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode or not draft.is_file():
        raise ModelError(
            f"tf2onnx cannot convert `{name}`: {_complaint(done.stderr)}",
            hint="Replace the operators it names, or convert the model with another opset.",
        )


def _complaint(log: str) -> str:
    """Return the reason of a tf2onnx failure: unknown operators, else the last non-empty line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    unknown = [line for line in lines if "not supported" in line or "Unsupported ops" in line]
    return (unknown or lines or ["it gave no reason"])[-1][:300]


def _mark(draft: Path, source: Path) -> None:
    import onnx

    model = onnx.load_model(str(draft), load_external_data=False)
    kept = {one.key: one.value for one in model.metadata_props}
    onnx.helper.set_model_props(model, {**kept, SOURCE_KEY: f"tensorflow {source.name}", WEIGHTS_KEY: "file"})
    onnx.save_model(model, str(draft))


# --- comparison with TensorFlow -----------------------------------------------------------------------------


def _compare(saved: Path, session: Any, info: ModelInfo, seed: int) -> tuple[list[Difference], list[str]]:
    """Run both on seeded inputs at batch 1 and 2, or at the fixed batch."""
    tf = _tensorflow()
    loaded = tf.saved_model.load(str(saved))
    run = loaded.signatures[_SIGNATURE]
    specs = run.structured_input_signature[1]
    names = [one["name"] for one in info["inputs"]]
    if sorted(names) != sorted(specs):
        return [], ["not compared with TensorFlow: the exported model takes other inputs than the signature"]
    free = any(spec.shape.rank and spec.shape[0] is None for spec in specs.values())
    found: list[Difference] = []
    for rows in (1, _ROWS) if free else (None,):
        feeds = {name: _array(spec, rows, seed) for name, spec in specs.items()}
        try:
            expected = {name: one.numpy() for name, one in run(**_tensors(tf, feeds)).items()}
        except (tf.errors.OpError, ValueError, TypeError) as error:
            return found, [f"not compared at batch {rows}, which TensorFlow refuses: {first_line(error)}"]
        found.append(_difference(rows, expected, session, feeds))
    return found, []


def _tensors(tf: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tf.constant(array) for name, array in feeds.items()}


def _array(spec: Any, rows: int | None, seed: int) -> Any:
    shape = [
        size if size is not None else (rows if axis == 0 and rows else 8)
        for axis, size in enumerate(spec.shape)
    ]
    generator = np.random.default_rng([abs(seed), len(shape)])
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    if dtype.kind == "f":
        return generator.random(shape).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)


def _difference(
    rows: int | None, expected: Mapping[str, Any], session: Any, feeds: Mapping[str, Any]
) -> Difference:
    got = dict(zip([one.name for one in session.get_outputs()], session.run(None, dict(feeds)), strict=True))
    if set(got) != set(expected) and len(got) == len(expected) == 1:
        got = dict(zip(expected, got.values(), strict=True))
    max_abs = max_rel = 0.0
    for name, wanted in expected.items():
        if name not in got or got[name].shape != wanted.shape:
            raise ModelError(
                f"The export has no output `{name}` of shape {list(wanted.shape)}, as in TensorFlow.",
                hint="Fix the input shapes before saving the model.",
            )
        distance = float(
            np.max(np.abs(got[name].astype(np.float64) - wanted.astype(np.float64)), initial=0.0)
        )
        largest = float(np.max(np.abs(wanted.astype(np.float64)), initial=0.0))
        max_abs, max_rel = max(max_abs, distance), max(max_rel, distance / largest if largest else 0.0)
    return {"batch": rows, "max_abs": max_abs, "max_rel": max_rel}
