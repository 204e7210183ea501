"""Wrap ONNX Runtime's quantizers: `prepare` reads a model once, `Quantizer.write` quantizes any part of it.

This module adds what the quantizers lack. Every node gets a name; renamed nodes are mapped back to the names
of the original model; calibration runs once; printed and logged text is suppressed, and exceptions become
clear errors. Worker side.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import onnx.version_converter
from onnx import GraphProto, ModelProto, NodeProto, TensorProto
from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.calibrate import CalibrationMethod
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.quantization.registry import IntegerOpsRegistry, QDQRegistry, QLinearOpsRegistry
from onnxruntime.quantization.shape_inference import quant_pre_process

from core.wire import DatasetPlan, FeedPlan, Progress
from core.wire.errors import ModelError, SpecError, nearest
from core.worker.make.transform.calibration import (
    CalibrationResult,
    CalibrationSettings,
    Method,
    Rows,
    calibrate,
)
from core.worker.make.transform.model_io import load_whole, write_whole
from core.worker.make.transform.step_result import option
from core.worker.make.transform.tools import quiet, tool_errors
from core.worker.make.transform.weights import store_weights
from core.worker.models import read_model
from core.worker.models.graphs import graphs_of, make_names_unique, nodes_of

STEPS = ("int8_dynamic", "int8_static", "int4")

# Operators that only quantized models have. Gather and others keep their name and read integers.
QUANTIZED_OPERATORS = frozenset(
    (
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
        *("MatMulInteger", "ConvInteger", "MatMulNBits", "GatherBlockQuantized"),
        *(
            "QLinearConv",
            "QLinearMatMul",
            "QGemm",
            "QAttention",
            "DynamicQuantizeLSTM",
            "QEmbedLayerNormalization",
        ),
    )
)

_DYNAMIC_TYPES = ("MatMul", "Gemm", "Attention", "LSTM", "Gather", "EmbedLayerNormalization")
_KNOWN_TYPES: dict[str, Collection[str]] = {
    "int8_dynamic": {*IntegerOpsRegistry, "Gemm"},
    "int8_static": {*QLinearOpsRegistry, *QDQRegistry},
    "int4": ("MatMul", "Gemm", "Gather"),
}
_DEFAULT_TYPES: dict[str, Collection[str]] = {
    "int8_dynamic": _DYNAMIC_TYPES,
    "int8_static": _KNOWN_TYPES["int8_static"],
    "int4": ("MatMul",),
}
_CONTRIB = "com.microsoft"
_CONTRIB_TYPES = ("Attention", "EmbedLayerNormalization")  # ai.onnx has a different operator named Attention
_BLOCK_GATHER_OPSET = 21  # the first with 4-bit tensors, which a block-quantized Gather needs
_OWN_INITIALIZERS_IR = 4  # the first version whose initializers need not be inputs as well
_SPLIT_GEMM = "_MatMul"  # suffix of the MatMul that a dynamic or 4-bit quantizer makes of a Gemm
_JOINED_GEMM = "/MatMulAddFusion"  # suffix of the Gemm that ONNX Runtime makes of a MatMul and an Add


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizer:
    """A model ready to be quantized, as a whole or in part."""

    step: str
    model: Path  # the float model to quantize: all nodes named, and preprocessed if requested
    options: Mapping[str, Any]
    op_types: Sequence[str]
    nodes: Sequence[str]  # of the requested operators, without excluded ones; some may have no integer form
    large: bool  # the float model does not fit in one file
    inner: frozenset[str] = frozenset()  # nodes in bodies of If, Loop and Scan
    table: Path | None = None  # ranges; static only
    calibrated: CalibrationResult | None = None
    notes: list[str] = field(default_factory=list)

    def write(self, draft: Path, nodes: Collection[str]) -> None:
        """Write the model to `draft` with `nodes`, some of `self.nodes`, quantized.

        Raises:
            ModelError: ONNX Runtime's quantizer cannot handle the model.
        """
        write = {"int8_dynamic": self._dynamic, "int8_static": self._static, "int4": self._blocks}[self.step]
        with tool_errors("quantize the model"), quiet():
            write(draft, list(nodes))

    def _dynamic(self, draft: Path, nodes: list[str]) -> None:
        split = [f"{name}{_SPLIT_GEMM}" for name in nodes]  # for nodes that are a Gemm
        types = {"MatMul" if one == "Gemm" else one for one in self.op_types}
        quantize_dynamic(
            self.model,
            draft,
            op_types_to_quantize=sorted(types),
            nodes_to_quantize=nodes + split,
            use_external_data_format=self.large,
            extra_options={
                "MatMulConstBOnly": True,
                "DefaultTensorType": TensorProto.FLOAT,
                "EnableSubgraph": not self.inner.isdisjoint(nodes),
            },
            **self._weights(),
        )

    def _static(self, draft: Path, nodes: list[str]) -> None:
        symmetric = bool(option(self.options, "activation_symmetric", False))
        quantize_static(
            self.model,
            draft,
            activation_type=QuantType[option(self.options, "activation_type", "QUInt8")],
            op_types_to_quantize=list(self.op_types),
            nodes_to_quantize=nodes,
            use_external_data_format=self.large,
            calibrate_method=CalibrationMethod[_method(self.options)],
            calibration_cache_path=self.table,
            extra_options={"ActivationSymmetric": symmetric},
            **self._weights(),
        )

    def _weights(self) -> dict[str, Any]:
        """Return the weight options that both kinds of INT8 share."""
        return {
            "per_channel": bool(option(self.options, "per_channel", False)),
            "reduce_range": bool(option(self.options, "reduce_range", False)),
            "weight_type": QuantType[option(self.options, "weight_type", "QInt8")],
        }

    def _blocks(self, draft: Path, nodes: list[str]) -> None:
        model = _adapt_for_blocks(onnx.load(self.model), self.op_types)
        wanted = {*nodes, *(f"{name}{_SPLIT_GEMM}" for name in nodes)}
        quantizer = MatMulNBitsQuantizer(
            model,
            bits=4,
            block_size=int(option(self.options, "block_size", 32)),
            is_symmetric=bool(option(self.options, "symmetric", True)),
            accuracy_level=int(option(self.options, "accuracy_level", 0)) or None,
            nodes_to_exclude=[node.name for node in nodes_of(model) if node.name not in wanted],
            op_types_to_quantize=tuple({"MatMul" if one == "Gemm" else one for one in self.op_types}),
        )
        quantizer.process()
        quantizer.model.save_model_to_file(str(draft), self.large)


def prepare(
    step: str,
    source: Path,
    folder: Path,
    options: Mapping[str, Any],
    feeds: Sequence[FeedPlan],
    calibration: DatasetPlan | None,
    progress: Progress,
) -> Quantizer:
    """Read the model in `source`, select the nodes to quantize, and for static INT8 find the ranges.

    Args:
        step: one of `STEPS`.
        source: the float model; nothing is written next to it.
        folder: folder for files of this module and the quantizer.
        options: of the step.
        feeds: used for random calibration without `calibration`.
        calibration: calibration rows.
        progress: receives the stages "prepare" and "calibrate".

    Raises:
        SpecError: an option or the calibration data do not fit this model.
        ModelError: it cannot be read, is quantized already, or has nothing to quantize.
        WorkerError: there is not enough memory.
    """
    progress("prepare", 0, 1, source.name)
    _check_options(step, options)
    model = load_whole(source, typed=True)
    _refuse_quantized(model, source.name)
    make_names_unique(model)
    op_types = _op_types(step, options)
    deep = step != "int8_static"  # that quantizer skips bodies of If, Loop and Scan
    if store_weights(model.graph, lambda node: _has_integer_form(node, op_types), deep=deep):
        model.ir_version = max(model.ir_version, _OWN_INITIALIZERS_IR)
    _forget_weight_types(model)
    if step != "int8_static":  # the others write a Gemm as MatMul and Add
        _unshare(model)
    excluded = _excluded(model, options)
    prepared = folder / "prepared.onnx"
    with tool_errors("prepare the model"), quiet():
        write_whole(model, prepared)
        large = prepared.with_name(f"{prepared.name}.data").exists()
        if step == "int8_static" and option(options, "preprocess", True):
            prepared = _preprocessed(prepared, large=large)
            model = _renamed(prepared)
    nodes = _candidates(step, model, op_types, excluded)
    if not nodes:
        raise nothing_to_quantize(op_types, excluded)
    quantizer = Quantizer(
        step=step,
        model=prepared,
        options=options,
        op_types=op_types,
        nodes=nodes,
        large=large,
        inner=frozenset(node.name for node in nodes_of(model))
        - frozenset(node.name for node in model.graph.node),
    )
    return _calibrated(quantizer, feeds, calibration, progress) if step == "int8_static" else quantizer


def _calibrated(
    quantizer: Quantizer, feeds: Sequence[FeedPlan], calibration: DatasetPlan | None, progress: Progress
) -> Quantizer:
    options = quantizer.options
    settings = CalibrationSettings(
        method=_method(options),
        percentile=float(option(options, "percentile", 99.99)),
        symmetric=bool(option(options, "activation_symmetric", False)),
        op_types=quantizer.op_types,
    )
    rows = Rows(dataset=calibration, feeds=feeds, wanted=int(option(options, "calibration_rows", 128)))
    table = quantizer.model.with_name("ranges.json")
    with tool_errors("calibrate the model"), quiet():
        found = calibrate(quantizer.model, table, settings, rows, large=quantizer.large, progress=progress)
    notes = [f"calibrated on {found.rows} sample{'s' if found.rows != 1 else ''} ({settings.method})"]
    return dataclasses.replace(quantizer, table=table, calibrated=found, notes=notes)


def _method(options: Mapping[str, Any]) -> Method:
    method: Method = option(options, "calibrate_method", "MinMax")
    return method


def _check_options(step: str, options: Mapping[str, Any]) -> None:
    signed = option(options, "activation_type", "QUInt8") == "QInt8"
    if step == "int8_static" and signed and option(options, "weight_type", "QInt8") == "QUInt8":
        raise SpecError(
            "There are no kernels for `activation_type` QInt8 with `weight_type` QUInt8.",
            hint="Use QUInt8 activations, or QInt8 weights.",
        )


def _op_types(step: str, options: Mapping[str, Any]) -> list[str]:
    chosen = list(option(options, "op_types", ())) or sorted(_DEFAULT_TYPES[step])
    for one in chosen:
        if one not in _KNOWN_TYPES[step]:
            known = sorted(_KNOWN_TYPES[step])
            raise SpecError(
                f"`{step}` has no integer form of `{one}`.{nearest(one, known)}",
                hint=f"Choose `op_types` among {', '.join(known)}.",
            )
    return chosen


# -- the model ---------------------------------------------------------------------------------------------


def _refuse_quantized(model: ModelProto, name: str) -> None:
    found = sorted({node.op_type for node in nodes_of(model)} & QUANTIZED_OPERATORS)
    if found:
        raise ModelError(
            f"`{name}` is quantized already: it has {', '.join(found)} nodes.",
            hint="Quantize the float model that it was made from.",
        )


def _forget_weight_types(model: ModelProto) -> None:
    """Drop the stated types of weights: quantizers transpose some weights without updating these types.

    Also drop names without a type, which onnxslim leaves after an operator that it does not know.
    """
    for graph in graphs_of(model):
        stored = {one.name for one in graph.initializer}
        kept = [one for one in graph.value_info if one.name not in stored and one.type.WhichOneof("value")]
        del graph.value_info[:]
        graph.value_info.extend(kept)


def _unshare(model: ModelProto) -> None:
    """Give each Gemm that reads shared weights transposed its own copy: they will be transposed in place."""
    readers = Counter(name for node in nodes_of(model) for name in set(node.input))
    for graph in graphs_of(model):
        stored = {one.name: one for one in graph.initializer}
        for node in graph.node:
            turned = node.op_type == "Gemm" and any(one.name == "transB" and one.i for one in node.attribute)
            if turned and readers[node.input[1]] > 1 and node.input[1] in stored:
                own = TensorProto()
                own.CopyFrom(stored[node.input[1]])
                own.name = f"{own.name}_of_{node.name}"
                graph.initializer.append(own)
                node.input[1] = own.name


def _excluded(model: ModelProto, options: Mapping[str, Any]) -> set[str]:
    names = [node.name for node in nodes_of(model)]
    excluded = set(option(options, "exclude_nodes", ()))
    for name in sorted(excluded):
        if name not in names:
            raise SpecError(
                f"`exclude_nodes` names `{name}`, but the model has no such node.{nearest(name, names)}",
                hint="Take the names from the error table, or from Netron.",
            )
    return excluded


def source_name(name: str, names: Collection[str]) -> str:
    """Return the original name of the node that a tool renamed to `name`.

    Args:
        name: of a node in the quantized model.
        names: of the nodes in the user's model.
    """
    for stem in (name.removesuffix(_SPLIT_GEMM), name.partition(_JOINED_GEMM)[0]):
        if name not in names and stem in names:
            return stem
    return name


def _candidates(
    step: str, model: ModelProto, op_types: Sequence[str], excluded: Collection[str]
) -> list[str]:
    graphs: list[GraphProto] = [model.graph] if step == "int8_static" else list(graphs_of(model))
    return [
        node.name
        for graph in graphs
        for node in graph.node
        if _has_integer_form(node, op_types) and source_name(node.name, excluded) not in excluded
    ]


def _has_integer_form(node: NodeProto, op_types: Sequence[str]) -> bool:
    own = (_CONTRIB,) if node.op_type in _CONTRIB_TYPES else ("", "ai.onnx")
    return node.op_type in op_types and node.domain in own


def nothing_to_quantize(
    op_types: Sequence[str], excluded: Collection[str], left: Mapping[str, int] | None = None
) -> ModelError:
    """Return the error for a model in which none of `op_types` can be quantized.

    Args:
        op_types: the requested operators.
        excluded: names of the nodes excluded by the user.
        left: op type -> nodes of these types that the quantizer left in float, if any.
    """
    apart = f", apart from the {len(excluded)} that are excluded" if excluded else ""
    if left:
        listed = ", ".join(f"{count} {name}" for name, count in left.items())
        return ModelError(
            f"The model has no node to quantize{apart}: the weights of its {listed} are computed or inputs, "
            "and not stored in the model.",
            hint="Simplify the model first, which folds what is constant, or choose another step.",
        )
    return ModelError(
        f"The model has no node to quantize{apart}: it needs one of {', '.join(op_types)}.",
        hint="Choose other operator types, or another step.",
    )


def _adapt_for_blocks(model: ModelProto, op_types: Sequence[str]) -> ModelProto:
    """Adapt a model to the MatMul and Gather quantizer: Gemm as MatMul and Add, an opset with 4 bits."""
    if "Gather" in op_types:
        opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
        if opset < _BLOCK_GATHER_OPSET:
            model = onnx.version_converter.convert_version(model, _BLOCK_GATHER_OPSET)
    if "Gemm" in op_types:
        whole = ONNXModel(model)
        whole.replace_gemm_with_matmul()
        model = whole.model
    return model


def _preprocessed(model: Path, *, large: bool) -> Path:
    """Fold what ONNX Runtime folds anyway (constants, batch normalization), to quantize fewer nodes."""
    target = model.with_name("preprocessed.onnx")
    quant_pre_process(
        str(model),
        str(target),
        skip_symbolic_shape=True,  # done while reading the model
        save_as_external_data=large,
        all_tensors_to_one_file=large,
        external_data_location=f"{target.name}.data" if large else None,
    )
    return target


def _renamed(file: Path) -> ModelProto:
    """Name the nodes that preprocessing left unnamed, also in the file; weights are not read."""
    model = read_model(file)
    before = [node.name for node in nodes_of(model)]
    make_names_unique(model)
    if before != [node.name for node in nodes_of(model)]:
        file.write_bytes(model.SerializeToString())  # below 2 GiB: larger weights are external
    return model
