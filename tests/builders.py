"""Results that nobody measured, in the form in which they are stored; every number can be worked out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.comparison import Comparison, Contestant, Role
from core.evidence.measurement import Trial
from core.run.sweep import Measured
from core.spec import TrialSpec, spec_from_dict
from core.store import ModelRecord
from core.wire.output_check import check_outputs
from tests.raw_comparisons import output_error

SHA = "0123456789abcdef" * 4


# As the job `environment` describes it.
MACHINE: dict[str, Any] = {
    "cpu": {
        **{"model": "CPU A", "logical": 2, "physical": 2, "allowed": [0, 1], "quota": None},
        **{"ort_default_threads": 2, "usable": 2},
    },
    "memory_bytes": 1 << 30,
    "gpus": [],
    "os": "Linux",
    "kernel": "6.1",
    "python": "3.11",
    "libraries": {"onnxruntime": "1.31.1"},
    "ort_build": "b",
    "variables": {},
}


def spec(**parts: Any) -> TrialSpec:
    """The spec of a request, of `m.onnx` unless `model` names another."""
    return spec_from_dict({"model": {"path": "m.onnx"}, **parts})


def export_plan(output: Path, **changes: Any) -> wire.ExportPlan:
    """A small torchvision classifier with random weights; `changes` are keys."""
    found: Any = {
        "source": "torchvision",
        "name": "squeezenet1_1",
        "path": "",
        "output": str(output),
        "opset": 20,
        "dynamic_batch": True,
        "pretrained": False,
        "seed": 0,
        "image_size": None,
        "external_data": "auto",
        **changes,
    }
    return wire.ExportPlan(**found)


def feed_plan(*inputs: dict[str, Any], **changes: Any) -> Any:
    """Inputs of a session: random values, as many samples as the first input has; `changes` are keys."""
    plan: dict[str, Any] = {
        "inputs": list(inputs),
        "source": "random",
        "path": None,
        "seed": 0,
        "values": {},
        "image_mean": [],
        "image_std": [],
        "batch_size": inputs[0]["shape"][0] if inputs and inputs[0]["shape"] else 1,
        "batch_axes": {one["name"]: 0 for one in inputs if one["shape"]},
    }
    return plan | changes


def one_input(name: str = "x", dtype: str = "float32", shape: tuple[int, ...] = (4, 3), **range_: Any) -> Any:
    """An input of a plan; `range_` are its ends."""
    return {"name": name, "dtype": dtype, "shape": list(shape), "low": None, "high": None} | range_


def trial(name: str = SHA[:16], of: TrialSpec | None = None, **changes: Any) -> Trial:
    """A complete measurement of `of`; `changes` are fields."""
    of = of or spec()
    facts: dict[str, Any] = {
        "id": name,
        "kind": "measure",
        "state": "COMPLETE",
        "spec": of.to_dict(),
        "model_name": "m",
        "model_sha256": of.model.sha256 or "",
        "key": of.key(),
        "created_at": 0.0,
    }
    return Trial(**(facts | changes))


def contrast(ratio: float = 1.42, half_width: float = 0.028, **changes: Any) -> dict[str, Any]:
    """The contrast of a candidate with its baseline, from nine good launches; `changes` are fields."""
    low, high = ratio / (1 + half_width), ratio * (1 + half_width)
    return {
        "candidate": "candidate",
        "baseline": "baseline",
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "verdict": "FASTER" if low > 1 else "SLOWER" if high < 1 else "UNDECIDED",
        "half_width": half_width,
        "rounds": 54,
        "generations": 9,
        "margin": 0.02,
        "grade": "A",
        "holds": True,
        "holds_reason": "",
        "wall_s": 9.0,
        "notes": [],
        **changes,
    }


def comparison(roles: Mapping[str, Role], name: str = "c1", **changes: Any) -> Comparison:
    """A complete comparison of the trials that have these roles; labels are their names in capitals."""
    contestants = tuple(Contestant(trial=one, label=one.upper(), role=role) for one, role in roles.items())
    facts: dict[str, Any] = {
        "id": name,
        "state": "COMPLETE",
        "model_name": "m",
        "model_sha256": "",
        "contestants": contestants,
        "protocol": {},
        "created_at": 0.0,
    }
    return Comparison(**(facts | changes))


def model(name: str = "m", content: str = SHA, **changes: Any) -> ModelRecord:
    """A model without a file; `changes` are fields."""
    facts: dict[str, Any] = {
        "content_sha256": content,
        "sha256": content,
        "name": name,
        "path": f"/{name}.onnx",
        "source": "file",
        "info": {"op_counts": {}, "inputs": [], "free_dims": ["batch"], "batch_dim": "batch"},
        "created_at": 0.0,
    }
    return ModelRecord(**(facts | changes))


BUSY = "under background load: chromium and 2 others used 1.6 cores"


def busy_machine(words: str = BUSY) -> dict[str, Any]:
    """What a result says of a machine that others used, too."""
    return {
        "words": words,
        "cores": 1.6,
        "programs": [{"name": "chromium", "cores": 1.2}],
        "steal_share": 0.0,
        "reasons": ["foreign_load"],
    }


def guarded(**error: Any) -> dict[str, Any]:
    """What a result says of outputs; `error` are fields that differ from outputs that agree."""
    found = output_error(**{"max_abs": 1e-6, "max_rel": 1e-6, "mean_abs": 1e-7, "mean_rel": 1e-7} | error)
    reference = {"model": "the original", "sha256": "0" * 64}
    return {
        "output_error": found,
        "guard": {"error": found, **check_outputs(found, "fp32").to_dict(), "reference": reference},
    }


# --- passes with the profiler, as the job `explain` stores them ---------------------------------------------

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
PASSES = 5
STEADY = (1.0, 1.0, 1.0, 1.0, 1.0)
WIGGLE = (0.99, 1.01, 1.0, 1.02, 0.98)  # its middle half has the mean 1
US = 1e-6

Node = dict[str, Any]


def node(
    name: str,
    op_type: str,
    us: float,
    *,
    provider: str = CPU,
    path: Sequence[str] = (),
    inserted: bool = False,
    nodes: int = 1,
    calls: float = 1.0,
    shape: Sequence[float] = STEADY,
) -> Node:
    """A node that takes `us` microseconds per run, times `shape` in each pass."""
    return {
        "path": list(path),
        "name": name,
        "op_type": op_type,
        "provider": provider,
        "inserted": inserted,
        "nodes": nodes,
        "calls_per_run": calls,
        "self_s": [us * US * one for one in shape],
    }


def side(
    nodes: Sequence[Node],
    *,
    outside_us: float = 0.0,
    profiler_us: float = 0.0,
    model: Sequence[tuple[str, str] | tuple[str, str, tuple[str, ...]]] | None = None,
    covers: dict[str, Sequence[str]] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A side whose run without the profiler is its nodes plus `outside_us`, and with it `profiler_us` more.

    Args:
        nodes: what ran.
        outside_us: what a run takes beyond its nodes.
        profiler_us: what the profiler adds to a run, all of it outside the nodes.
        model: (name, operator) or (name, operator, path) of the model's nodes; None: those that ran.
        covers: name of a node that ran -> nodes of the model whose work it does; the others do their own.
        changes: fields of the side.
    """
    given = [(*one, ()) if len(one) == 2 else one for one in model or []]
    if model is None:
        given = [(one["name"], one["op_type"], tuple(one["path"])) for one in nodes if not one["inserted"]]
    own = {(name, path) for name, _, path in given}
    origins = [
        {
            "path": one["path"],
            "name": one["name"],
            "nodes": list(
                (covers or {}).get(one["name"], [one["name"]] * ((one["name"], tuple(one["path"])) in own))
            ),
            "inserted": one["inserted"],
        }
        for one in nodes
    ]
    plain = [sum(one["self_s"][index] for one in nodes) + outside_us * US for index in range(PASSES)]
    return {
        "requested_providers": [CPU],
        "effective_providers": [CPU],
        "fallback": False,
        "fallback_reason": "",
        "batch_size": 1,
        "parallel": False,
        "runs": 100,
        "run_s": [seconds + profiler_us * US for seconds in plain],
        "plain_s": plain,
        "nodes": list(nodes),
        "model": [{"path": list(path), "name": name, "op_type": op_type} for name, op_type, path in given],
        "origins": origins,
        "notes": [],
        **changes,
    }


def passes(baseline: dict[str, Any], candidate: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The job's result for the two sides."""
    return {
        "version": 1,
        "sides": [baseline, candidate],
        "fingerprint": "",
        "created_at": 1_000_000.0,
        **changes,
    }


MODEL = (("conv1", "Conv"), ("relu1", "Relu"), ("conv2", "Conv"), ("mm", "MatMul"), ("softmax", "Softmax"))


def unfused(**changes: Any) -> dict[str, Any]:
    """A small net as its author wrote it: 900 µs in nodes, 20 µs outside."""
    ran = [
        node("conv1", "Conv", 400),
        node("relu1", "Relu", 50),
        node("conv2", "Conv", 300),
        node("mm", "MatMul", 130),
        node("softmax", "Softmax", 20),
    ]
    return side(ran, **{"outside_us": 20, "model": MODEL, **changes})


def fused(**changes: Any) -> dict[str, Any]:
    """The same in another layout, Conv and Relu fused, three Reorders inserted: 530 µs and 15 µs outside."""
    ran = [
        node("conv1", "FusedConv", 200),
        node("c2_nchwc", "Conv", 160),
        node("mm", "MatMul", 130),
        node("softmax", "Softmax", 20),
        node("ReorderInput", "ReorderInput", 5, inserted=True, nodes=1),
        node("ReorderOutput", "ReorderOutput", 15, inserted=True, nodes=2),
    ]
    covers = {"conv1": ["conv1", "relu1"], "c2_nchwc": ["conv2"]}
    return side(ran, **{"outside_us": 15, "model": MODEL, "covers": covers, **changes})


# 100 billion operations and 10 billion bytes per second: the ridge is at 10 operations per byte
PEAK_TIMES: dict[str, Any] = {
    "threads": 2,
    "operations": 2_000_000_000,
    "product_ns": [20_000_000] * 40,
    "moved_bytes": 500_000_000,
    "copy_ns": [50_000_000] * 40,
}


def point(values: Mapping[str, Any], *, trial: str = "", **facts: Any) -> Measured:
    """A point of a sweep; facts that are not its own are those of its result, and None removes one."""
    own = {name: facts.pop(name) for name in list(facts) if name in Measured.__dataclass_fields__}
    result: Any = {name: value for name, value in facts.items() if value is not None}
    return Measured(**{"state": "COMPLETE", "reused": False} | own, values=values, trial=trial, result=result)


def with_result(one: Measured, **changes: Any) -> Measured:
    """The point with other numbers; None removes one."""
    result: Any = {name: value for name, value in {**one.result, **changes}.items() if value is not None}
    return replace(one, result=result)
