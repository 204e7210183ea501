"""The table of all steps: what each is called, its options and their defaults, where it helps. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from core.spec.steps.option import MAX_DIMENSION, Option
from core.wire import StepKind
from core.wire.errors import SpecError, nearest

Precision = Literal["fp32", "fp16", "mixed", "int8", "int4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepType:
    """One kind of step."""

    kind: StepKind
    title: str
    help: str
    options: tuple[Option, ...] = ()
    precision: Precision | None = None  # of the numbers afterwards; None: as before
    needs_calibration: bool = False  # better with real rows; random ones are fed where there are none
    hardware: str = ""  # where it helps and where not; empty: anywhere
    no_libraries: str = ""  # why a model that needs libraries of operators cannot take it; empty: it can

    @property
    def flag(self) -> str:
        """The step's name on the command line."""
        return "--" + self.kind.replace("_", "-")

    def option(self, name: str) -> Option:
        """Return the option `name`.

        Raises:
            SpecError: the step has no such option.
        """
        found = next((one for one in self.options if one.name == name), None)
        if found is None:
            names = [one.name for one in self.options]
            raise SpecError(
                f"The step `{self.kind}` has no option `{name[:80]}`.{nearest(name, names)}",
                hint=f"Choose among {', '.join(names)}." if names else "Leave it out: the step has none.",
            )
        return found


PORTABLE_LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED")  # above, the file suits one kind of machine
_LEVELS = (*PORTABLE_LEVELS, "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL")
_LEVEL = Option(
    name="level",
    label="Optimization level",
    kind="choice",
    default="ORT_ENABLE_EXTENDED",
    choices=_LEVELS,
    help="Which of ONNX Runtime's optimizations are written into the file. Up to EXTENDED it runs on any "
    "machine; LAYOUT and ALL arrange weights for this kind of processor.",
)
_KEEP_IO = Option(
    name="keep_io_types",
    label="Keep input and output types",
    kind="bool",
    default=True,
    help="Inputs and outputs stay float32, with a Cast at each border, so that programs need no change.",
)
_EXCLUDE = Option(
    name="exclude_nodes",
    label="Nodes to leave in float",
    kind="names",
    default=[],
    help="Names of nodes that are not quantized: those whose error is large for the time they save.",
)
_PER_CHANNEL = Option(
    name="per_channel",
    label="Scale per channel",
    kind="bool",
    default=False,
    help="Each output channel of a weight gets its own scale: more exact, most of all for convolutions whose "
    "channels differ in size.",
)
_REDUCE_RANGE = Option(
    name="reduce_range",
    label="7-bit weights",
    kind="bool",
    default=False,
    help="Weights use 7 of 8 bits, so that sums of products do not overflow on x86 processors without VNNI. "
    "Not needed with VNNI or AMX, and a little less exact there.",
)
_WEIGHT_TYPE = Option(
    name="weight_type",
    label="Type of weights",
    kind="choice",
    default="QInt8",
    choices=("QInt8", "QUInt8"),
    help="QInt8 is signed and the usual one; QUInt8 does not overflow on x86 processors without VNNI.",
)
_INTEGER_HARDWARE = (
    "Fast on x86 with VNNI or AMX and on ARM with dot products. Older x86 gains less, and may overflow "
    "unless weights use 7 bits."
)
_FLOAT_ALONE = "the converter turns the numbers of every operator into float16, and knows not which take them"
DYNAMIC_OPERATORS = ("MatMul", "Gemm", "Attention", "LSTM", "Gather", "EmbedLayerNormalization")
MODEL_TYPES = (
    "auto",
    "bert",
    "gpt2",
    "vit",
    "bart",
    "bert_tf",
    "bert_keras",
    "clip",
    "conformer",
    "gpt2_tf",
    "gpt_neox",
    "mmdit",
    "phi",
    "qwen3",
    "sam2",
    "swin",
    "t5",
    "tnlr",
    "unet",
    "vae",
)

STEPS: tuple[StepType, ...] = (
    StepType(
        kind="simplify",
        title="Simplify",
        help="Fold constants and remove what changes nothing, with onnxslim. Outputs must agree with the "
        "original on all feeds of the check, or the result is refused.",
    ),
    StepType(
        kind="fix_dims",
        title="Fix dimensions",
        help="Give free dimensions a size, so that shapes are known ahead: some optimizations and most "
        "mobile and accelerator providers need that. Other sizes are refused by the model afterwards.",
        options=(
            Option(
                name="dims",
                label="Sizes",
                kind="dims",
                default={},
                low=0,
                high=MAX_DIMENSION,
                help="Free dimensions with the size that each gets; what is not named stays free.",
            ),
        ),
    ),
    StepType(
        kind="fuse",
        title="Fuse transformer",
        help="Replace attention, layer normalization and GELU by ONNX Runtime's fused operators, with its "
        "optimizer for transformers. It knows patterns of exporters; how many it found is shown.",
        options=(
            Option(
                name="model_type",
                label="Model type",
                kind="choice",
                default="auto",
                choices=MODEL_TYPES,
                help="Whose patterns to look for. auto tries the likely ones and keeps what fuses most.",
            ),
            Option(
                name="num_heads",
                label="Attention heads",
                kind="int",
                default=0,
                low=0,
                high=4096,
                help="0: read from the graph, which works for most exports.",
            ),
            Option(
                name="hidden_size",
                label="Hidden size",
                kind="int",
                default=0,
                low=0,
                high=1_000_000,
                help="Width of the hidden state. 0: read from the graph.",
            ),
        ),
        hardware="Uses operators that only ONNX Runtime has.",
    ),
    StepType(
        kind="optimize",
        title="Optimized graph",
        help="Save the graph as ONNX Runtime rewrites it when a session starts, so that this work is not "
        "done at every start. Times of runs stay as they are.",
        options=(_LEVEL,),
        hardware="Above EXTENDED the file belongs to this kind of processor.",
    ),
    StepType(
        kind="fp16",
        title="FP16",
        no_libraries=_FLOAT_ALONE,
        help="Compute in float16: half the size, and faster where there are float16 kernels.",
        options=(
            _KEEP_IO,
            Option(
                name="block_ops",
                label="Operators to leave in float32",
                kind="names",
                default=[],
                help="Operator types that stay in float32, added to those that ONNX Runtime's converter "
                "leaves by itself.",
            ),
            Option(
                name="block_nodes",
                label="Nodes to leave in float32",
                kind="names",
                default=[],
                help="Names of single nodes that stay in float32.",
                advanced=True,
            ),
        ),
        precision="fp16",
        hardware="For GPUs and ARM. On x86 the CPU provider has no float16 kernels for convolutions and "
        "matrix products: it computes them in float32 and converts, so the file is smaller but not faster.",
    ),
    StepType(
        kind="mixed",
        title="Mixed precision",
        no_libraries=_FLOAT_ALONE,
        help="Float16 except for the nodes that must stay in float32 for the outputs to hold a tolerance. "
        "Which those are is found by measuring the error, so it takes longer.",
        options=(
            Option(
                name="max_rel",
                label="Tolerance",
                kind="float",
                default=0.001,
                low=1e-7,
                high=1.0,
                help="Largest difference to the original over the largest magnitude of that output.",
            ),
            _KEEP_IO,
        ),
        precision="mixed",
        hardware="As FP16: for GPUs and ARM.",
    ),
    StepType(
        kind="int8_dynamic",
        title="INT8 dynamic",
        help="8-bit weights; activations are quantized while the model runs, so no calibration is needed. "
        "Good for transformers and recurrent networks, not for convolutions.",
        options=(
            Option(
                name="op_types",
                label="Operators",
                kind="names",
                default=list(DYNAMIC_OPERATORS),
                choices=(*DYNAMIC_OPERATORS, "Conv"),
                help="Operator types that are quantized. Conv is left out because the dynamic one is slower "
                "than float on most processors.",
            ),
            _PER_CHANNEL,
            _REDUCE_RANGE,
            _WEIGHT_TYPE,
            _EXCLUDE,
        ),
        precision="int8",
        hardware=_INTEGER_HARDWARE,
    ),
    StepType(
        kind="int8_static",
        title="INT8 static",
        no_libraries="ONNX Runtime's calibration opens sessions of its own, which take no libraries",
        help="8-bit weights and activations with scales fixed ahead (QDQ), from what flows through the "
        "model on calibration rows. The right one for convolutional networks.",
        options=(
            Option(
                name="calibrate_method",
                label="Calibration",
                kind="choice",
                default="MinMax",
                choices=("MinMax", "Entropy", "Percentile"),
                help="How a range follows from the values seen: all of them (MinMax), the loss of "
                "information (Entropy), or a share of them (Percentile). The last two keep histograms: "
                "slower, more memory.",
            ),
            Option(
                name="percentile",
                label="Percentile",
                kind="float",
                default=99.99,
                low=90.0,
                high=100.0,
                unit="%",
                help="Share of the values that the range covers; used by Percentile only.",
                advanced=True,
            ),
            Option(
                name="calibration_rows",
                label="Calibration rows",
                kind="int",
                default=128,
                low=1,
                high=100_000,
                unit="rows",
                help="How many rows of the data are fed to find the ranges. One to five hundred typical rows "
                "are enough; more take longer.",
            ),
            Option(
                name="activation_type",
                label="Type of activations",
                kind="choice",
                default="QUInt8",
                choices=("QUInt8", "QInt8"),
                help="QUInt8 suits x86 and values after ReLU, QInt8 suits ARM and GPUs.",
            ),
            _WEIGHT_TYPE,
            _PER_CHANNEL,
            _REDUCE_RANGE,
            Option(
                name="activation_symmetric",
                label="Symmetric activations",
                kind="bool",
                default=False,
                help="The zero of activations lies in the middle of the range. GPUs and some accelerators "
                "need that; it wastes half of the range after ReLU.",
                advanced=True,
            ),
            Option(
                name="preprocess",
                label="Prepare the model first",
                kind="bool",
                default=True,
                help="Infer shapes and optimize the graph before quantizing, as ONNX Runtime recommends.",
                advanced=True,
            ),
            Option(
                name="op_types",
                label="Operators",
                kind="names",
                default=[],
                choices=("Conv", "MatMul", "Gemm", "Add", "Mul", "AveragePool", "GlobalAveragePool"),
                help="Operator types that are quantized; none named: all that can be.",
                advanced=True,
            ),
            _EXCLUDE,
        ),
        precision="int8",
        needs_calibration=True,
        hardware=_INTEGER_HARDWARE,
    ),
    StepType(
        kind="int4",
        title="INT4 weights",
        help="4-bit weights of matrix products, in blocks with a scale each; everything is computed in "
        "float or 8 bits. An eighth of the size, for large language models above all.",
        options=(
            Option(
                name="block_size",
                label="Block size",
                kind="choice",
                default=32,
                choices=(16, 32, 64, 128, 256),
                unit="weights",
                help="Weights that share a scale: smaller blocks are more exact and take more room.",
            ),
            Option(
                name="symmetric",
                label="Symmetric",
                kind="bool",
                default=True,
                help="No zero point: a little less exact, smaller and faster.",
            ),
            Option(
                name="accuracy_level",
                label="Type of the computation",
                kind="int",
                default=0,
                low=0,
                high=4,
                help="What the kernel may compute in: 0 its own choice, 1 float32, 2 float16, 3 bfloat16, "
                "4 int8, which is the fastest on most processors.",
            ),
            Option(
                name="op_types",
                label="Operators",
                kind="names",
                default=["MatMul"],
                choices=("MatMul", "Gemm", "Gather"),
                help="MatMul with a constant weight; Gemm is what a torch Linear is exported as, and becomes "
                "MatMul and Add; Gather adds embeddings.",
            ),
            _EXCLUDE,
        ),
        precision="int4",
        hardware="Pays where weights do not fit into the cache: large models, few rows.",
    ),
    StepType(
        kind="ort_format",
        title="ORT format",
        help="Save as .ort, which small builds of ONNX Runtime for mobile and embedded devices load, with "
        "the list of operators that such a build must have.",
        options=(
            _LEVEL,
            Option(
                name="type_reduction",
                label="List the types too",
                kind="bool",
                default=False,
                help="The list of operators also names the types that each must support, for a still "
                "smaller build.",
                advanced=True,
            ),
        ),
        hardware="Above EXTENDED the file belongs to this kind of processor.",
    ),
    StepType(
        kind="metadata",
        title="Metadata",
        help="Write who made the model, its version and notes into the file. What stands there stays.",
        options=(
            Option(name="author", label="Author", kind="text", default="", help="Who is responsible."),
            Option(
                name="version",
                label="Version",
                kind="text",
                default="",
                help="For example 3 or 1.2.0; a whole number is also written as the model's own version.",
            ),
            Option(name="notes", label="Notes", kind="text", default="", help="Anything a user should know."),
        ),
    ),
)

_BY_KIND: Mapping[str, StepType] = {one.kind: one for one in STEPS}
assert set(_BY_KIND) == set(get_args(StepKind)), "the table and the wire name the same steps"


def step_type(kind: str) -> StepType:
    """Return the step type `kind`.

    Raises:
        SpecError: there is none of that name.
    """
    found = _BY_KIND.get(kind)
    if found is None:
        raise SpecError(
            f"There is no step `{kind[:80]}`.{nearest(kind, _BY_KIND)}",
            hint=f"Choose among {', '.join(_BY_KIND)}.",
        )
    return found
