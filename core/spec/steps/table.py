"""The table of all steps: names, options with defaults, and suitable hardware. Data only."""

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
    precision: Precision | None = None  # of the model afterwards; None: unchanged
    needs_calibration: bool = False  # better with real samples; random ones are used where there are none
    hardware: str = ""  # where it helps and where not; empty: anywhere
    no_libraries: str = ""  # why it does not support custom operator libraries; empty: it does

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
                hint=f"Use one of {', '.join(names)}." if names else "Remove it: the step has no options.",
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
    help="ONNX Runtime optimizations to write into the file. Up to EXTENDED it runs on any "
    "machine; LAYOUT and ALL arrange weights for this kind of processor.",
)
_KEEP_IO = Option(
    name="keep_io_types",
    label="Keep input and output types",
    kind="bool",
    default=True,
    help="Inputs and outputs stay float32, with a Cast at each end. Turn it off if your program "
    "passes float16.",
)
_EXCLUDE = Option(
    name="exclude_nodes",
    label="Nodes to leave in float",
    kind="names",
    default=[],
    help="Names of nodes that stay in float. Choose those whose error is large for the time they save.",
)
_PER_CHANNEL = Option(
    name="per_channel",
    label="Per-channel scales",
    kind="bool",
    default=False,
    help="Gives each output channel of a weight its own scale. This is more accurate, most "
    "of all for convolutions whose channels differ in size.",
)
_REDUCE_RANGE = Option(
    name="reduce_range",
    label="7-bit weights",
    kind="bool",
    default=False,
    help="Uses 7 of 8 bits for weights, so that sums of products do not overflow on x86 "
    "processors without VNNI. With VNNI or AMX it only costs accuracy.",
)
_WEIGHT_TYPE = Option(
    name="weight_type",
    label="Weight type",
    kind="choice",
    default="QInt8",
    choices=("QInt8", "QUInt8"),
    help="QInt8 (signed) is the usual choice. Use QUInt8 on x86 processors without VNNI, "
    "where it does not overflow.",
)
_INTEGER_HARDWARE = (
    "Fast on x86 with VNNI or AMX, and on ARM with dot product instructions. Older x86 processors "
    "speed up less, and may overflow unless weights use 7 bits."
)
_FLOAT_ALONE = (
    "the converter turns the values of every operator into float16, also of those that do not accept it"
)
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
        help="Fold constants and remove redundant nodes, with onnxslim. ORTune rejects the result unless "
        "its outputs agree with the original on all test inputs.",
    ),
    StepType(
        kind="fix_dims",
        title="Fix dimensions",
        help="Give free dimensions a fixed size, which some optimizations and most mobile and accelerator "
        "providers need. The model then refuses other sizes.",
        options=(
            Option(
                name="dims",
                label="Sizes",
                kind="dims",
                default={},
                low=0,
                high=MAX_DIMENSION,
                help="Size of each free dimension to fix. The others stay free.",
            ),
        ),
    ),
    StepType(
        kind="fuse",
        title="Fuse transformer",
        help="Replace attention, layer normalization and GELU by ONNX Runtime's fused operators, with its "
        "optimizer for transformers. The result lists how many it found.",
        options=(
            Option(
                name="model_type",
                label="Model type",
                kind="choice",
                default="auto",
                choices=MODEL_TYPES,
                help="Model family whose patterns ORTune looks for. auto tries the likely ones and keeps "
                "the one that fuses most.",
            ),
            Option(
                name="num_heads",
                label="Attention heads",
                kind="int",
                default=0,
                low=0,
                high=4096,
                help="Number of attention heads. 0: read from the graph, which works for most exported "
                "models.",
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
        help="Save the graph as ONNX Runtime optimizes it when a session starts, so that sessions start "
        "faster. The latency does not change.",
        options=(_LEVEL,),
        hardware="Above EXTENDED the file fits this kind of processor only.",
    ),
    StepType(
        kind="fp16",
        title="FP16",
        no_libraries=_FLOAT_ALONE,
        help="Convert to float16: half the size, and faster where the provider has float16 kernels.",
        options=(
            _KEEP_IO,
            Option(
                name="block_ops",
                label="Operators to leave in float32",
                kind="names",
                default=[],
                help="Operator types that stay in float32, besides those that ONNX Runtime's converter "
                "always keeps.",
            ),
            Option(
                name="block_nodes",
                label="Nodes to leave in float32",
                kind="names",
                default=[],
                help="Names of nodes that stay in float32.",
                advanced=True,
            ),
        ),
        precision="fp16",
        hardware="For GPUs and ARM. On x86 the CPU provider has no float16 kernels for convolutions and "
        "matrix products: it converts and computes in float32, so the file is smaller but not "
        "faster.",
    ),
    StepType(
        kind="mixed",
        title="Mixed precision",
        no_libraries=_FLOAT_ALONE,
        help="Convert to float16, except for nodes that must stay in float32 to keep the outputs within a "
        "tolerance. ORTune finds these nodes by measuring the error, so it takes longer.",
        options=(
            Option(
                name="max_rel",
                label="Tolerance",
                kind="float",
                default=0.001,
                low=1e-7,
                high=1.0,
                help="Largest allowed difference from the original, as a share of the largest magnitude of "
                "that output.",
            ),
            _KEEP_IO,
        ),
        precision="mixed",
        hardware="For GPUs and ARM, as FP16.",
    ),
    StepType(
        kind="int8_dynamic",
        title="INT8 dynamic",
        help="Quantize weights to 8 bits; activations are quantized at run time, so no calibration is "
        "needed. Good for transformers and recurrent networks, not for convolutions.",
        options=(
            Option(
                name="op_types",
                label="Operator types",
                kind="names",
                default=list(DYNAMIC_OPERATORS),
                choices=(*DYNAMIC_OPERATORS, "Conv"),
                help="Operator types to quantize. Conv is not among them because its dynamic form is slower "
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
        no_libraries="ONNX Runtime's calibration opens its own sessions, which load no such libraries",
        help="Quantize weights and activations to 8 bits with fixed scales (QDQ), which are calibrated on "
        "sample inputs. The right choice for convolutional networks.",
        options=(
            Option(
                name="calibrate_method",
                label="Calibration method",
                kind="choice",
                default="MinMax",
                choices=("MinMax", "Entropy", "Percentile"),
                help="How a range follows from the observed values: all of them (MinMax), the least loss of "
                "information (Entropy), or a share of them (Percentile). Entropy and Percentile take "
                "more time and memory.",
            ),
            Option(
                name="percentile",
                label="Percentile",
                kind="float",
                default=99.99,
                low=90.0,
                high=100.0,
                unit="%",
                help="Share of the values that the range covers. Only Percentile uses it.",
                advanced=True,
            ),
            Option(
                name="calibration_rows",
                label="Calibration samples",
                kind="int",
                default=128,
                low=1,
                high=100_000,
                unit="samples",
                help="Number of samples that ORTune runs to find the ranges. 100 to 500 typical samples are "
                "enough.",
            ),
            Option(
                name="activation_type",
                label="Activation type",
                kind="choice",
                default="QUInt8",
                choices=("QUInt8", "QInt8"),
                help="QUInt8 suits x86 and values after ReLU. QInt8 suits ARM and GPUs.",
            ),
            _WEIGHT_TYPE,
            _PER_CHANNEL,
            _REDUCE_RANGE,
            Option(
                name="activation_symmetric",
                label="Symmetric activations",
                kind="bool",
                default=False,
                help="Puts the zero point of activations in the middle of the range. GPUs and some "
                "accelerators need it; after ReLU it wastes half of the range.",
                advanced=True,
            ),
            Option(
                name="preprocess",
                label="Preprocess",
                kind="bool",
                default=True,
                help="Infers shapes and optimizes the graph before quantizing, as ONNX Runtime recommends.",
                advanced=True,
            ),
            Option(
                name="op_types",
                label="Operator types",
                kind="names",
                default=[],
                choices=("Conv", "MatMul", "Gemm", "Add", "Mul", "AveragePool", "GlobalAveragePool"),
                help="Operator types to quantize. Empty: all that can be quantized.",
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
        help="Quantize the weights of matrix products to 4 bits, in blocks with one scale each; the model "
        "computes in float or 8 bits. An eighth of the size, mainly for large language models.",
        options=(
            Option(
                name="block_size",
                label="Block size",
                kind="choice",
                default=32,
                choices=(16, 32, 64, 128, 256),
                unit="weights",
                help="Number of weights that share a scale. Smaller blocks are more accurate and take more "
                "space.",
            ),
            Option(
                name="symmetric",
                label="Symmetric",
                kind="bool",
                default=True,
                help="Quantizes without a zero point: a little less accurate, smaller and faster.",
            ),
            Option(
                name="accuracy_level",
                label="Accuracy level",
                kind="int",
                default=0,
                low=0,
                high=4,
                help="Type in which the kernel may compute: 0 automatic, 1 float32, 2 float16, 3 bfloat16, "
                "4 int8. 4 is the fastest on most processors.",
            ),
            Option(
                name="op_types",
                label="Operator types",
                kind="names",
                default=["MatMul"],
                choices=("MatMul", "Gemm", "Gather"),
                help="Operator types to quantize. MatMul needs a constant weight, Gemm (a torch Linear) "
                "becomes MatMul and Add, Gather adds embeddings.",
            ),
            _EXCLUDE,
        ),
        precision="int4",
        hardware="Pays off where the weights do not fit into the cache: large models, small batches.",
    ),
    StepType(
        kind="ort_format",
        title="ORT format",
        help="Save as .ort, which small builds of ONNX Runtime for mobile and embedded devices load, with "
        "the list of operators that such a build needs.",
        options=(
            _LEVEL,
            Option(
                name="type_reduction",
                label="Type reduction",
                kind="bool",
                default=False,
                help="Also lists the types that each operator must support, for a smaller build.",
                advanced=True,
            ),
        ),
        hardware="Above EXTENDED the file fits this kind of processor only.",
    ),
    StepType(
        kind="metadata",
        title="Metadata",
        help="Write author, version and notes into the file. Other metadata of the file stay.",
        options=(
            Option(
                name="author",
                label="Author",
                kind="text",
                default="",
                help="Who is responsible for the model.",
            ),
            Option(
                name="version",
                label="Version",
                kind="text",
                default="",
                help="For example 3 or 1.2.0. A whole number also becomes the model's `model_version`.",
            ),
            Option(
                name="notes",
                label="Notes",
                kind="text",
                default="",
                help="What users of the model should know.",
            ),
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
            hint=f"Use one of {', '.join(_BY_KIND)}.",
        )
    return found
