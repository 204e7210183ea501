"""Shared by tests of quantization: feed plans, the digits as calibration data, and the steps' options."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from core import wire
from core.worker.make.transform import quantization
from core.worker.make.transform.step_result import StepResult
from core.worker.models import inspect_model

SAMPLES = Path(__file__).parent.parent / "sample_models"
DIGITS, DIGITS_ROWS = SAMPLES / "digits_cnn.onnx", SAMPLES / "digits_test.npz"
TRANSFORMER = SAMPLES / "tiny_transformer.onnx"

DYNAMIC: dict[str, Any] = {
    "op_types": ["MatMul", "Gemm", "Attention", "LSTM", "Gather", "EmbedLayerNormalization"],
    "per_channel": False,
    "reduce_range": False,
    "weight_type": "QInt8",
    "exclude_nodes": [],
}
STATIC: dict[str, Any] = {
    "calibrate_method": "MinMax",
    "percentile": 99.99,
    "activation_type": "QUInt8",
    "weight_type": "QInt8",
    "per_channel": False,
    "reduce_range": False,
    "op_types": [],
    "exclude_nodes": [],
    "calibration_rows": 64,
    "activation_symmetric": False,
    "preprocess": True,
}
INT4: dict[str, Any] = {
    "block_size": 32,
    "symmetric": True,
    "accuracy_level": 0,
    "op_types": ["MatMul"],
    "exclude_nodes": [],
}
OPTIONS = {"int8_dynamic": DYNAMIC, "int8_static": STATIC, "int4": INT4}


def silent(stage: str, done: int, total: int, text: str = "") -> None:
    """A listener that does not care."""


def feed_plans(model: Path, *, seeds: int = 2, rows: int = 4, other: int = 8) -> list[wire.FeedPlan]:
    """Random inputs of several seeds; free dimensions other than the batch get the size `other`."""
    info = inspect_model(str(model))
    inputs: list[wire.InputPlan] = []
    for one in info["inputs"]:
        sizes = [size if isinstance(size, int) else other for size in one["shape"] or []]
        axis = info["batch_axes"].get(one["name"])
        if axis is not None and info["fixed_batch"] is None:
            sizes[axis] = rows
        ends = {"low": one.get("low"), "high": one.get("high")}
        inputs.append({"name": one["name"], "dtype": one["dtype"], "shape": sizes, **ends})  # type: ignore[typeddict-item]
    return [
        {
            "inputs": inputs,
            "source": "random",
            "path": None,
            "seed": seed,
            "values": {},
            "image_mean": [],
            "image_std": [],
            "batch_size": info["fixed_batch"] or rows,
            "batch_axes": info["batch_axes"],
        }
        for seed in range(seeds)
    ]


def digits_dataset(path: Path = DIGITS_ROWS, limit: int | None = None) -> wire.DatasetPlan:
    """The digits, as a dataset to calibrate on."""
    return {
        "path": str(path),
        "kind": "npz",
        "split": "test",
        "preprocessing": {
            "resize": None,
            "crop": None,
            "channels": "auto",
            "scale": 1.0,
            "mean": [],
            "std": [],
        },
        "limit": limit,
        "seed": 0,
    }


def quantize(
    step: str,
    source: Path,
    folder: Path,
    *,
    calibration: wire.DatasetPlan | None = None,
    feeds: list[wire.FeedPlan] | None = None,
    **changes: Any,
) -> tuple[Path, StepResult]:
    """Run a step with its usual options and `changes` to them; return the file it wrote in `folder`."""
    folder.mkdir(exist_ok=True)
    draft = folder / "variant.onnx"
    plan: wire.TransformPlan = {
        "path": str(source),
        "output": str(draft),
        "step": cast(wire.StepKind, step),
        "options": {**OPTIONS[step], **changes},
        "reference": str(source),
        "feeds": feed_plans(source) if feeds is None else feeds,
        "calibration": calibration,
    }
    return draft, quantization.apply(plan, draft, silent)
