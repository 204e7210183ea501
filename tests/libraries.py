"""Tiny libraries of native code, compiled where there is a compiler, and models that need them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, TensorProto, helper, numpy_helper

COMPILER = shutil.which("g++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no g++ here")
SOURCES = Path(__file__).parent


def compiled(folder: Path, name: str, source: str, *flags: str) -> Path:
    """Compile `source` of this folder to a shared library."""
    assert COMPILER is not None
    target = folder / name
    command = [COMPILER, "-shared", "-fPIC", *flags, "-o", str(target), str(SOURCES / source)]
    subprocess.run(command, check=True, capture_output=True)
    return target


def twice(path: Path) -> Path:
    """A model of one custom operator: y = relu(2 x), on a free batch."""
    return _model(path, "Twice", "test.ops", TensorProto.FLOAT, ["batch", 4])


def between_products(path: Path) -> Path:
    """A custom operator between two products with weights, which can be quantized: y = relu(2 (x a) b)."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((rng.normal(size=(32, 32)) / 6).astype(np.float32), name)
        for name in ("a", "b")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["first"], name="first"),
        helper.make_node("Twice", ["first"], ["own"], name="own", domain="test.ops"),
        helper.make_node("MatMul", ["own", "b"], ["second"], name="second"),
        helper.make_node("Relu", ["second"], ["y"], name="last"),
    ]
    ends = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 32])] for name in ("x", "y"))
    return _written(path, helper.make_graph(nodes, "g", *ends, initializer=weights), "test.ops")


def attacker(path: Path, *attempts: str) -> Path:
    """A model whose operator tries to leave its sandbox: the name of an attempt and its arguments."""
    return _model(path, "Attack", "test.ops", TensorProto.FLOAT, ["batch", 4], attempts="\n".join(attempts))


def attacker_after_product(path: Path, *attempts: str) -> Path:
    """The same behind a product with weights, which can be quantized."""
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32), "weights")
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["between"], name="product"),
        helper.make_node("Attack", ["between"], ["y"], domain="test.ops", attempts="\n".join(attempts)),
    ]
    ends = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4])] for name in ("x", "y"))
    return _written(path, helper.make_graph(nodes, "g", *ends, initializer=[weights]), "test.ops")


def upper(path: Path) -> Path:
    """A model of an operator of onnxruntime-extensions, text in and out."""
    return _model(path, "StringUpper", "ai.onnx.contrib", TensorProto.STRING, ["batch"])


def identity_text(path: Path, shape: list[str | int]) -> Path:
    """A model that returns its input text, with standard operators only."""
    return _model(path, "Identity", "", TensorProto.STRING, shape)


def _model(
    path: Path, operator: str, domain: str, kind: int, shape: list[str | int], **attributes: str
) -> Path:
    ends = ([helper.make_tensor_value_info(name, kind, shape)] for name in ("x", "y"))
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"], domain=domain, **attributes)], "g", *ends
    )
    return _written(path, graph, domain)


def _written(path: Path, graph: GraphProto, domain: str) -> Path:
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path
