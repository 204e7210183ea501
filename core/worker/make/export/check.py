"""Compare an exported model with its PyTorch program: `compare`. Worker side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from core.wire import Difference, ModelInfo
from core.wire.errors import ModelError
from core.worker.session import ORT_ERRORS
from core.worker.session.ort_errors import first_line
from core.worker.session.torch_programs import TORCH_ERRORS

Array = np.ndarray[Any, np.dtype[Any]]


def compare(
    run: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    session: Any,
    info: ModelInfo,
    seed: int,
) -> tuple[list[Difference], list[str]]:
    """Run both on the same inputs: at batch 1 and at a batch other than the traced one.

    Args:
        run: the PyTorch program.
        args: the sample inputs of the export.
        kwargs: the same, by name.
        session: ONNX Runtime's session of the exported model.
        info: facts from `inspect` on the exported model.
        seed: of the values that replace the sample's floating-point ones.

    Returns:
        One difference per batch that both could run, and notes on what could not be compared.

    Raises:
        ModelError: ONNX Runtime cannot run the model, or its outputs have other shapes than PyTorch's.
    """
    leaves, layout = pytree.tree_flatten((args, kwargs))
    used = [index for index, one in enumerate(leaves) if isinstance(one, torch.Tensor)]
    names = [one["name"] for one in info["inputs"]]
    if len(used) != len(names):
        return [], ["not compared with PyTorch: the exported model takes other inputs than the program"]
    if any(one["dtype"] == "bfloat16" for one in (*info["inputs"], *info["outputs"])):
        return [], ["not compared with PyTorch: numpy has no bfloat16"]
    axes = [info["batch_axes"].get(name) for name in names]
    torch.manual_seed(seed)
    found: list[Difference] = []
    notes: list[str] = []
    for batch in _batches([leaves[index] for index in used], axes, info):
        fed = list(leaves)
        for index, axis in zip(used, axes, strict=True):
            if batch is not None and axis is not None:
                fed[index] = _with_rows(leaves[index], axis, batch)
        try:
            expected = _run_torch(run, fed, layout)
        except TORCH_ERRORS as error:
            notes.append(f"not compared at batch {batch}, which PyTorch refuses: {first_line(error)}")
            continue
        feeds = {name: _array(fed[index]) for name, index in zip(names, used, strict=True)}
        rows = batch if batch is not None else (info["fixed_batch"] if info["batch_axes"] else None)
        found.append(_difference(rows, expected, _run_ort(session, feeds)))
        if not any(one.any() for one in expected):
            at = "" if rows is None else f" at batch {rows}"
            notes.append(f"PyTorch's outputs are all zero{at}: that they agree proves nothing")
    return found, notes


def _batches(sample: Sequence[Any], axes: Sequence[int | None], info: ModelInfo) -> list[int | None]:
    """Return batch 1 and an untraced one; None, the sample as it is, if the batch is fixed."""
    sizes = [one.shape[axis] for one, axis in zip(sample, axes, strict=True) if axis is not None]
    if info["batch_dim"] is None or not sizes:
        return [None]
    return [1, 2 if sizes[0] == 3 else 3]


def _with_rows(tensor: torch.Tensor, axis: int, rows: int) -> torch.Tensor:
    """Resize to a batch: fresh values for a floating-point type, repeated sample values for others."""
    picked = tensor.index_select(axis, torch.arange(rows) % tensor.shape[axis])
    return torch.rand_like(picked) if picked.is_floating_point() else picked


def _run_torch(run: Callable[..., Any], leaves: list[Any], layout: Any) -> list[Array]:
    args, kwargs = pytree.tree_unflatten(leaves, layout)
    with torch.no_grad():
        outputs = run(*args, **kwargs)
    return [_array(one) for one in pytree.tree_leaves(outputs) if isinstance(one, torch.Tensor)]


def _array(tensor: torch.Tensor) -> Array:
    return tensor.numpy(force=True)


def _run_ort(session: Any, feeds: dict[str, Array]) -> list[Array]:
    try:
        outputs: list[Array] = session.run(None, feeds)
    except ORT_ERRORS as error:
        raise ModelError(
            f"ONNX Runtime cannot run the exported model: {first_line(error)}",
            hint="Export with a fixed batch, or try another opset.",
        ) from None
    return outputs


def _difference(batch: int | None, expected: Sequence[Array], got: Sequence[Array]) -> Difference:
    """Return the largest absolute difference, and the largest relative to an output's largest magnitude."""
    if [one.shape for one in expected] != [one.shape for one in got]:
        raise ModelError(
            "The exported model's outputs do not have the shapes of PyTorch's.",
            hint="Export with a fixed batch, or try another opset.",
        )
    largest = relative = 0.0
    for wanted, other in zip(expected, got, strict=True):
        left, right = wanted.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(left)
        if not np.array_equal(finite, np.isfinite(right)):
            raise ModelError(
                "The exported model's outputs are not finite where PyTorch's are, or the other way round.",
                hint="Try another opset.",
            )
        gap = float(np.abs(left - right, where=finite, out=np.zeros_like(left)).max(initial=0.0))
        scale = float(np.abs(left[finite]).max(initial=0.0))
        largest, relative = max(largest, gap), max(relative, gap / scale if scale else gap)
    return {"batch": batch, "max_abs": largest, "max_rel": relative}
