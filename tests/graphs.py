"""Invented graphs and profiles of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.wire.graph import Level, Node, Side, Tensor
from core.wire.profile import NodeTime, Profile
from core.wire.profile import Tensor as InputDescription


def node(name: str, op_type: str, inputs: str, outputs: str, **changes: Any) -> Node:
    """A node; `inputs` and `outputs` are names with blanks between them."""
    facts: dict[str, Any] = {
        "scope": (),
        "captured": (),
        "attributes": {},
        "bodies": (),
        "does": (),
        "inserted": False,
        **changes,
    }
    return Node(
        name=name, op_type=op_type, inputs=tuple(inputs.split()), outputs=tuple(outputs.split()), **facts
    )


def level(*nodes: Node, path: tuple[str, ...] = (), role: str = "", dtype: str = "float32") -> Level:
    """A graph whose tensors all have one type; what begins with `w` is a weight of 100 bytes."""
    names = dict.fromkeys(name for one in nodes for name in (*one.inputs, *one.outputs, *one.captured))
    tensors = tuple(
        Tensor(name=name, dtype=dtype, shape=("n", 4), weight_bytes=100 if name[0] == "w" else None)
        for name in names
    )
    return Level(path=path, role=role, inputs=("x",), outputs=("y",), nodes=nodes, tensors=tensors)


def side(*levels: Level) -> Side:
    return Side(levels=levels, notes=())


def timed(name: str, op_type: str, self_s: float, **changes: Any) -> NodeTime:
    facts: dict[str, Any] = {
        "provider": "CPUExecutionProvider",
        "node_index": 0,
        "path": (),
        "inserted": False,
        "calls": 1,
        "calls_per_run": 1.0,
        "inclusive_s": self_s,
        "total_s": self_s,
        "min_s": self_s,
        "median_s": self_s,
        "share": 0.25,
        "inputs": (),
        "outputs": (InputDescription(dtype="float32", shape=(1, 4)),),
        "parameter_bytes": 0,
        "activation_bytes": 0,
        "output_bytes": 0,
        **changes,
    }
    return NodeTime(name=name, op_type=op_type, self_s=self_s, **facts)


def profile(nodes: Sequence[NodeTime]) -> Profile:
    return Profile(
        nodes=tuple(nodes),
        runs=1,
        skipped_runs=0,
        run_s=(1.0,),
        execute_s=1.0,
        self_s=sum(one.self_s for one in nodes),
        remainder_s=0.0,
        parallel=False,
        model_loading_s=0.0,
        session_initialization_s=0.0,
        truncated=False,
        dropped_events=0,
        events=0,
        ignored_events=0,
        timeline=(),
        timeline_run=0,
        timeline_omitted=0,
    )


def model() -> Side:
    """conv → relu → gemm."""
    return side(
        level(
            node("conv", "Conv", "x w1", "a", scope=("stem",)),
            node("relu", "Relu", "a", "b", scope=("stem",)),
            node("gemm", "Gemm", "b w2", "y", scope=("head",)),
        )
    )


def optimized() -> Side:
    """What ONNX Runtime could make of `model`: convolution and activation in one, in a layout of its own."""
    return side(
        level(
            node("b_nchwc", "com.microsoft.nchwc.Conv", "x w1", "b_n", does=("conv", "relu")),
            node("Reorder", "com.microsoft.nchwc.ReorderOutput", "b_n", "b", inserted=True),
            node("gemm", "Gemm", "b w2", "y", does=("gemm",)),
        )
    )


def run() -> Profile:
    """A run of `optimized`: 2 + 1 + 5 seconds."""
    return profile(
        [
            timed("gemm", "Gemm", 5.0, share=0.625),
            timed("b_nchwc", "Conv", 2.0, share=0.25),
            timed("Reorder_token_7", "ReorderOutput", 1.0, share=0.125, inserted=True),
        ]
    )
