"""The step `fuse`: fuse a transformer's attention, normalization and GELU into ONNX Runtime's operators.

ONNX Runtime's transformer optimizer looks for the patterns of one model type at a time. `auto` tries the
likely types, and keeps the one that fuses most with equal outputs. Attention that the optimizer does not
know is fused by `attention` before the optimizer runs. Worker side.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto

from core.wire import FeedPlan, InputPlan, Progress, StepCheck, TransformPlan
from core.wire.errors import ModelError, SpecError, TunerError
from core.worker.make.transform.agreement import Outputs, error_between, outputs_of
from core.worker.make.transform.attention import fuse_attention
from core.worker.make.transform.model_io import TOOL_ERRORS, write_whole
from core.worker.make.transform.optimized_graph import save_optimized
from core.worker.make.transform.step_result import StepResult, option
from core.worker.make.transform.tools import quiet
from core.worker.models.graphs import nodes_of
from core.worker.session.ort_errors import first_line

TOOL = "onnxruntime.transformers"
AGREEMENT = 1e-3  # largest relative difference of a fused model: kernels sum in another order
_LIKELY = ("bert", "vit", "gpt2", "clip", "bart", "t5")  # `auto` tries these; the others fit one model each
_ATTENTION = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedAttention")
_FUSED = (
    *_ATTENTION,
    "EmbedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "LayerNormalization",
    "SimplifiedLayerNormalization",
    "Gelu",
    "BiasGelu",
    "FastGelu",
    "QuickGelu",
    "GemmFastGelu",
    "RotaryEmbedding",
    "GroupNorm",
    "SkipGroupNorm",
    "NhwcConv",
    "BiasSplitGelu",
    "BiasAdd",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fused:
    """Result of the optimizer for one model type."""

    model_type: str
    own: bool  # `attention` found the attention, not the optimizer
    model: ModelProto
    operators: dict[str, int]  # fused operators that are not in the source
    nodes: int

    @property
    def sort_key(self) -> tuple[int, int, int]:
        """Return the sort key: attention first, then fused operators, then fewer nodes."""
        attention = sum(self.operators.get(one, 0) for one in _ATTENTION)
        return attention, sum(self.operators.values()), -self.nodes


def apply(plan: TransformPlan, draft: Path, progress: Progress) -> StepResult:
    """Write the fused model; see `step_result`.

    Options: `model_type` (one of the optimizer's, or "auto"), `num_heads` and `hidden_size` (0: from the
    graph).
    """
    source, options, feeds = Path(plan["path"]), plan["options"], plan["feeds"]
    wanted = option(options, "model_type", "auto")
    heads, width = int(option(options, "num_heads", 0)), int(option(options, "hidden_size", 0))
    _check_sizes(heads, width)
    types = _LIKELY if wanted == "auto" else (_known(wanted),)
    with tempfile.TemporaryDirectory(prefix="fuse-", dir=draft.parent) as folder:
        basic = Path(folder) / "basic.onnx"
        # Fold constants without sharing them and keep a bias as an Add: the form that the patterns expect.
        save_optimized(
            source, basic, level="ORT_ENABLE_BASIC", disabled=("ConstantSharing", "MatMulAddFusion")
        )
        found, refused = _fuse_each_type(source, basic, types, heads, width, progress)
        if not found:
            raise _nothing_fused(source, types, refused)
        chosen, wrong = _first_that_agrees(found, source, draft, [*feeds, *_with_padding(feeds)])
    return StepResult(
        tool=TOOL,
        checks=_attention_check(chosen),
        notes=wrong,
        facts={
            "fused": chosen.operators,
            "model_type": chosen.model_type,
            "tried": list(types),
            "attention_by": _attention_by(chosen),
        },
    )


def _check_sizes(heads: int, width: int) -> None:
    if (heads or width) and (not heads or not width or width % heads):
        raise SpecError(
            f"The hidden size must be a multiple of the attention heads, but got {width} and {heads}.",
            hint="Give both, or 0 for both to read them from the graph.",
        )


def _known(model_type: str) -> str:
    from onnxruntime.transformers.optimizer import MODEL_TYPES

    if model_type not in MODEL_TYPES:
        raise SpecError(
            f"ONNX Runtime's optimizer knows no model type `{model_type}`.",
            hint=f"Choose auto or one of {', '.join(MODEL_TYPES)}.",
        )
    return model_type


def _fuse_each_type(
    source: Path, basic: Path, types: Sequence[str], heads: int, width: int, progress: Progress
) -> tuple[list[_Fused], list[str]]:
    """Return the result of each type, best first, and the errors of types that failed."""
    before = _operators(onnx.load_model(str(source), load_external_data=False))
    found: list[_Fused] = []
    refused: list[str] = []
    tries = [*((one, False) for one in types), (types[0], True)]
    for index, (model_type, own) in enumerate(tries):
        progress("fuse", index, len(tries), model_type)
        try:
            model = _fused(basic, model_type, heads, width, own=own)
        except TOOL_ERRORS as error:
            refused.append(f"{model_type}: {first_line(error)}")
            continue
        after = _operators(model)
        new = {name: after[name] - before[name] for name in _FUSED if after[name] > before[name]}
        if new:
            nodes = sum(1 for _ in nodes_of(model))
            found.append(_Fused(model_type=model_type, own=own, model=model, operators=new, nodes=nodes))
    return sorted(found, key=lambda one: one.sort_key, reverse=True), refused


def _operators(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in nodes_of(model))


def _fused(basic: Path, model_type: str, heads: int, width: int, *, own: bool) -> ModelProto:
    from onnxruntime.transformers.fusion_options import AttentionMaskFormat, FusionOptions
    from onnxruntime.transformers.optimizer import optimize_by_fusion

    options = FusionOptions(model_type)
    if options.attention_mask_format == AttentionMaskFormat.MaskIndexEnd:
        options.use_raw_attention_mask()  # the other form is correct only for padding at the end
    model = onnx.load_model(str(basic))
    if own:
        fuse_attention(model)
    with quiet():
        optimizer = optimize_by_fusion(model, model_type, heads, width, options)
        optimizer.topological_sort()
    fused: ModelProto = optimizer.model
    return fused


def _first_that_agrees(
    found: Sequence[_Fused], source: Path, draft: Path, feeds: Sequence[FeedPlan]
) -> tuple[_Fused, list[str]]:
    """Write the best result whose outputs equal the source's; also return the errors of better ones."""
    reference: Outputs = outputs_of(source, feeds, "the model before the fusion")
    wrong: list[str] = []
    for one in found:
        write_whole(one.model, draft)
        if complaint := _complaint(reference, draft, feeds):
            wrong.append(f"as {one.model_type} it was fused wrongly: {complaint}")
        else:
            return one, wrong
    raise ModelError(
        f"No fusion of `{source.name}` computes what the model computes: {'; '.join(wrong)}",
        hint="Leave this step out of the chain; ONNX Runtime fuses what it can when a session starts.",
    )


def _with_padding(feeds: Sequence[FeedPlan]) -> list[FeedPlan]:
    """Return the inputs with gaps in their masks: an all-ones mask hides a fusion that dropped the mask."""

    def is_mask(one: InputPlan) -> bool:
        return one["low"] == 1 and one["high"] == 2 and not one["dtype"].startswith("float")

    return [
        {**plan, "inputs": [{**one, "low": 0} if is_mask(one) else one for one in plan["inputs"]]}
        for plan in feeds
        if any(is_mask(one) for one in plan["inputs"])
    ]


def _complaint(reference: Outputs, draft: Path, feeds: Sequence[FeedPlan]) -> str:
    try:
        error = error_between(reference, outputs_of(draft, feeds, "the fused model"))
    except TunerError as failure:
        return failure.message
    if error["max_rel"] is None:
        return error["difference"]
    return f"outputs differ by {error['max_rel']:.2g}" if error["max_rel"] > AGREEMENT else ""


def _nothing_fused(source: Path, types: Sequence[str], refused: Sequence[str]) -> ModelError:
    why = f" ({'; '.join(refused)})" if refused else ""
    return ModelError(
        f"ONNX Runtime's optimizer found nothing to fuse in `{source.name}` as {', '.join(types)}{why}.",
        hint="Leave this step out of the chain, or name the model's type.",
    )


def _attention_by(chosen: _Fused) -> str:
    if not any(one in chosen.operators for one in _ATTENTION):
        return ""
    return "ortune" if chosen.own else TOOL


def _attention_check(chosen: _Fused) -> list[StepCheck]:
    if any(one in chosen.operators for one in _ATTENTION):
        return []
    text = (
        "No attention was fused: the exporter wrote it in a way that the optimizer does not know. The other "
        "fused operators save less."
    )
    return [{"name": "attention", "level": "info", "text": text, "remedy": {}}]
