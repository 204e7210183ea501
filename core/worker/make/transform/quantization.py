"""The steps `int8_dynamic`, `int8_static` and `int4`: quantize, then check the result on this machine.

Dynamic INT8 computes the range of activations in each run. Static INT8 has fixed ranges from a calibration
(pairs of QuantizeLinear and DequantizeLinear). INT4 packs the weights of MatMuls into blocks of 4 bits.
Worker side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from core.wire import Progress, StepCheck, TransformPlan
from core.worker.make.transform.integer_facts import IntegerFacts, facts_checks, integer_facts
from core.worker.make.transform.quantizer import QUANTIZED_OPERATORS, Quantizer, nothing_to_quantize, prepare
from core.worker.make.transform.saturation import saturation
from core.worker.make.transform.step_result import StepResult, option
from core.worker.models import read_model
from core.worker.models.graphs import nodes_of

_TOOL = "onnxruntime.quantization"
_INTEGER_LEVEL = 4  # of `accuracy_level`: the one that multiplies integers
_FLOAT_BLOCKS = (
    "The 4-bit weights are turned back into float32 for each multiplication; `accuracy_level` 4 multiplies "
    "them with 8-bit activations"
)


def apply(plan: TransformPlan, draft: Path, progress: Progress) -> StepResult:
    """Write the quantized model; see `step_result`.

    Missing options have the defaults of `quantizer`. The feeds serve the saturation check. Without data they
    also calibrate static INT8, and a check warns of random inputs.

    Args:
        plan: of the step "int8_dynamic", "int8_static" or "int4".
        draft: the file to write, in an empty folder.
        progress: receives the stages "prepare", "calibrate", "quantize" and "look".

    Raises:
        SpecError: an option or the calibration data do not fit this model.
        ModelError: the model cannot be quantized, or has nothing to quantize.
        WorkerError: there is not enough memory.
    """
    step, source = plan["step"], Path(plan["path"])
    options, feeds = plan["options"], plan["feeds"]
    with TemporaryDirectory(prefix=".quantize-", dir=draft.parent) as folder:
        quantizer = prepare(step, source, Path(folder), options, feeds, plan["calibration"], progress)
        progress("quantize", 0, 1, f"{len(quantizer.nodes)} nodes")
        quantizer.write(draft, quantizer.nodes)
        if not is_quantized(draft):
            raise nothing_to_quantize(
                quantizer.op_types, option(options, "exclude_nodes", ()), _selected(quantizer)
            )
        progress("look", 0, 1)
        found = integer_facts(read_model(quantizer.model), draft, large=quantizer.large)
        checks, facts = _checks(quantizer, found), _facts(quantizer, found)
    if step != "int4" and found.sums_products:
        checks += saturation(source, draft, options, feeds)
    calibrated = "" if quantizer.calibrated is None else quantizer.calibrated.hashes
    return StepResult(tool=_TOOL, checks=checks, notes=_notes(quantizer), facts=facts, calibrated=calibrated)


def is_quantized(file: Path) -> bool:
    """Whether the model in `file` has integer operators of a quantizer."""
    return any(node.op_type in QUANTIZED_OPERATORS for node in nodes_of(read_model(file)))


def _checks(quantizer: Quantizer, found: IntegerFacts) -> list[StepCheck]:
    calibrated = quantizer.calibrated.checks if quantizer.calibrated is not None else []
    return [*calibrated, *facts_checks(found, _selected(quantizer), quantizer.op_types)]


def _selected(quantizer: Quantizer) -> Mapping[str, int]:
    chosen = set(quantizer.nodes)
    return Counter(node.op_type for node in nodes_of(read_model(quantizer.model)) if node.name in chosen)


def _facts(quantizer: Quantizer, found: IntegerFacts) -> dict[str, Any]:
    rows = {} if quantizer.calibrated is None else {"calibration_rows": quantizer.calibrated.rows}
    return {"integer_ops": found.operators, "conversions": found.conversions, **rows}


def _notes(quantizer: Quantizer) -> list[str]:
    in_float = quantizer.step == "int4" and option(quantizer.options, "accuracy_level", 0) != _INTEGER_LEVEL
    return [*quantizer.notes, *([_FLOAT_BLOCKS] if in_float else [])]
