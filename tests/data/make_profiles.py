"""Record the small ORT profiles beside this file: `python tests/data/make_profiles.py`.

Run it again when ORT is upgraded: the file names carry ORT's version, and test_profiling.py states numbers
that it reads from the recorded files, so a new recording means new numbers there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import below

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
Feeds = dict[str, np.ndarray]


def _model(graph: object) -> ModelProto:
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


def _weights(name: str, *shape: int, dtype: type = np.float32, seed: int = 0) -> TensorProto:
    values = np.random.default_rng(seed).standard_normal(shape) * 0.05
    return numpy_helper.from_array(values.astype(dtype), name)


def chain_model() -> tuple[ModelProto, Feeds]:
    """Conv -> MaxPool -> Conv -> Relu -> Flatten -> Gemm: ORT inserts layout changes around the Convs."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c1"], ["p1"], name="pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Erf", ["c2"], ["r2"], name='erf "2"'),
        helper.make_node("Flatten", ["r2"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w3"], ["y"], name="head"),
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [_weights("w1", 16, 3, 3, 3), _weights("w2", 16, 16, 3, 3), _weights("w3", 16 * 16 * 16, 10)],
    )
    return _model(graph), {"x": np.ones((2, 3, 32, 32), np.float32)}


def loop_model(trips: int = 5, rows: int = 64) -> tuple[ModelProto, Feeds]:
    """A Loop of `trips` MatMuls between two MatMuls; two body nodes carry no name."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["m"]),
            helper.make_node("Tanh", ["m"], ["next"]),
            helper.make_node("Identity", ["go_in"], ["go_out"], name="keep going"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [rows, 256]),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [rows, 256]),
        ],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="before"),
        helper.make_node("Loop", ["trips", "go", "a"], ["b"], name="loop", body=body),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="after"),
    ]
    graph = helper.make_graph(
        nodes,
        "loop",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 256]),
            helper.make_tensor_value_info("trips", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 256])],
        [_weights("w", 256, 256), numpy_helper.from_array(np.array(True), "go")],
    )
    return _model(graph), {"x": np.ones((rows, 256), np.float32), "trips": np.array(trips)}


def if_model(rows: int = 64) -> tuple[ModelProto, Feeds]:
    """An If inside an If; both branches of each contain a node of the same name."""

    def branch(op: str, out: str) -> object:
        nodes = [
            helper.make_node("MatMul", ["x", "w"], [f"{out}_m"], name="branch"),
            helper.make_node(op, [f"{out}_m"], [out], name="finish"),
        ]
        return helper.make_graph(
            nodes, out, [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, [rows, 256])]
        )

    inner = helper.make_node(
        "If",
        ["flag2"],
        ["i"],
        name="inner",
        then_branch=branch("Tanh", "t2"),
        else_branch=branch("Sigmoid", "e2"),
    )
    nested = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["n_m"], name="branch"),
            inner,
            helper.make_node("Add", ["n_m", "i"], ["n"]),
        ],
        "nested",
        [],
        [helper.make_tensor_value_info("n", TensorProto.FLOAT, [rows, 256])],
    )
    outer = helper.make_node(
        "If", ["flag"], ["y"], name="outer", then_branch=nested, else_branch=branch("Sigmoid", "e1")
    )
    graph = helper.make_graph(
        [outer],
        "if",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 256]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
            helper.make_tensor_value_info("flag2", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 256])],
        [_weights("w", 256, 256)],
    )
    return _model(graph), {
        "x": np.ones((rows, 256), np.float32),
        "flag": np.array(True),
        "flag2": np.array(False),
    }


def fp16_model() -> tuple[ModelProto, Feeds]:
    """A float16 Conv and MatMul: the CPU provider wraps them in Casts and computes in float32."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="matmul"),
    ]
    graph = helper.make_graph(
        nodes,
        "fp16",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1, 8, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1, 8, 32, 16])],
        [_weights("w1", 8, 8, 3, 3, dtype=np.float16), _weights("w2", 32, 16, dtype=np.float16)],
    )
    return _model(graph), {"x": np.ones((1, 8, 32, 32), np.float16)}


def branches_model() -> tuple[ModelProto, Feeds]:
    """Three independent MatMuls joined by Sum."""
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"m{i}"], name=f"branch{i}") for i in range(3)]
    nodes = [*nodes, *(helper.make_node("Tanh", [f"m{i}"], [f"t{i}"], name=f"tanh{i}") for i in range(3))]
    nodes.append(helper.make_node("Sum", ["t0", "t1", "t2"], ["y"], name="join"))
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 256])],
        [_weights(f"w{i}", 256, 256, seed=i) for i in range(3)],  # equal branches would become one
    )
    return _model(graph), {"x": np.ones((64, 256), np.float32)}


def record(
    model: ModelProto, feeds: Feeds, path: Path, *, runs: int, threads: int = 1, parallel: bool = False
) -> Path:
    """Run `model` `runs` times with the profiler on and leave the trace at `path`."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_profiling = True
    if parallel:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = 2
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for _ in range(runs):
            session.run(None, feeds)
        path.write_bytes(Path(session.end_profiling()).read_bytes())
    return path


def main() -> None:
    """Record every trace."""
    recipes: dict[str, tuple[Callable[[], tuple[ModelProto, Feeds]], dict[str, int | bool]]] = {
        "chain": (chain_model, {"runs": 6}),
        "chain_threads": (chain_model, {"runs": 4, "threads": 2}),
        "loop": (loop_model, {"runs": 5}),
        "if": (if_model, {"runs": 5}),
        "fp16_cpu": (fp16_model, {"runs": 5}),
        "parallel": (branches_model, {"runs": 4, "parallel": True}),
    }
    for what, (build, options) in recipes.items():
        record(*build(), HERE / f"profile_{ort.__version__}_{what}.json", **options)


if __name__ == "__main__":
    main()
