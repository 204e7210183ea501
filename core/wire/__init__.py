"""The typed JSON that crosses the pipe between the parent process and a worker.

All requests with their reply types are at the end; `channel` is the transport. Plain dictionaries and the
standard library only, so that a measuring worker loads numpy and onnxruntime and nothing else. The parent
validates (`core.spec`), resolves (`plan.session_plan`, `plan.feed_plan`) and sends a plan; the worker follows
it exactly. Units are seconds and bytes; nanoseconds for raw latencies.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypedDict, TypeVar

from core.wire.sandbox import Offer, Rules

if sys.version_info >= (3, 11) or TYPE_CHECKING:
    from typing import NotRequired

CUDA_PROVIDERS = ("CUDAExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")


StreamType = Literal["threads", "processes"]  # callers of one session; or each with a session and CPUs


class Progress(Protocol):
    """The callback by which a job reports its progress; about twice a second is enough."""

    def __call__(self, stage: str, done: int, total: int, text: str = "") -> None:
        """Report `done` of `total` steps of `stage`."""


class EmptyReply(TypedDict):
    """No fields."""


class InspectPlan(TypedDict):
    """The job `inspect`: describe a model file."""

    path: str
    any_version: NotRequired[bool]  # also one that is too new for ORTune's own ONNX Runtime


class ExternalDataPlan(TypedDict):
    """The job `external_data`: name the files of external data, from the model alone."""

    path: str


class ExternalDataReply(TypedDict):
    """Reply of `external_data`."""

    locations: list[str]  # as the model names them, relative to its folder; not checked


class LoadCheckPlan(TypedDict):
    """The job `load_check`: load a model on the CPU."""

    path: str
    custom_op_libraries: list[str]


class LoadCheckReply(TypedDict):
    """Reply of the job `load_check`: ONNX Runtime can load the model."""

    version: str
    creation_s: float
    libraries: dict[str, str]  # loaded native libraries, with their hashes


class ProviderPlan(TypedDict):
    """One execution provider of the ordered chain; option values are already text."""

    name: str
    options: dict[str, str]


class SessionPlan(TypedDict):
    """What to set on `SessionOptions` and `InferenceSession`. What is absent keeps its default."""

    attributes: dict[str, bool | int | str]  # SessionOptions attribute -> value; enum members by name
    config_entries: dict[str, str]
    run_config_entries: dict[str, str]  # of every run
    free_dimension_overrides: dict[str, int]
    providers: list[ProviderPlan]  # never empty
    disabled_optimizers: list[str]
    allow_fallback: bool
    custom_op_libraries: NotRequired[list[str]]  # in the form that `access` reads
    provider_libraries: NotRequired[list[str]]


def default_session_plan() -> SessionPlan:
    """Return the plan of a session with ONNX Runtime's defaults."""
    return {
        "attributes": {},
        "config_entries": {},
        "run_config_entries": {},
        "free_dimension_overrides": {},
        "providers": [{"name": "CPUExecutionProvider", "options": {}}],
        "disabled_optimizers": [],
        "allow_fallback": False,
    }


class InputInfo(TypedDict):
    """One graph input or output as the model declares it."""

    name: str
    dtype: str  # numpy's name ("float32", "int64", "bool"), "bfloat16", "string", or ORT's text if no tensor
    shape: list[int | str] | None  # free dimension: its address ("batch" or "x:0"); None: rank unknown
    low: NotRequired[float | None]  # of random values: minimum; None: the type's usual range
    high: NotRequired[float | None]  # of random values: integers are < high, floats <= high
    range_reason: NotRequired[str]  # reason for that range, in words


class ExternalFile(TypedDict):
    """A file that holds weights of a model beside the `.onnx` itself."""

    location: str
    size_bytes: int
    sha256: str


class ModelInfo(TypedDict):
    """What `inspect` finds in a model file."""

    path: str
    sha256: str  # of the .onnx file itself, as `sha256sum` prints it
    content_sha256: str  # of the .onnx file and its external data: the identity of the model
    size_bytes: int  # with external data
    ir_version: int
    opset: dict[str, int]  # domain ("" is ai.onnx) -> version
    producer: str
    inputs: list[InputInfo]
    outputs: list[InputInfo]
    free_dims: list[str]  # names of the free dimensions, in order of appearance
    batch_dim: str | None  # the free dimension that `batch_size` sets; None: the batch is fixed
    batch_axes: dict[str, int]  # input -> axis of the batch; empty: no input has one
    fixed_batch: int | None  # batch size of a model that fixes it; None: it is free
    nodes: int  # bodies of If/Loop/Scan included
    op_counts: dict[str, int]
    parameters: int  # number of weight elements
    external_data: list[ExternalFile]
    metadata: dict[str, str]


class InputPlan(TypedDict):
    """One input whose dimensions are all fixed."""

    name: str
    dtype: str
    shape: list[int]
    low: float | None
    high: float | None
    drawn: NotRequired[bool]  # random values from `low` to `high`, also where other inputs have none


class FeedPlan(TypedDict):
    """The source of a trial's inputs."""

    inputs: list[InputPlan]
    source: Literal["random", "npz", "images"]
    path: str | None
    seed: int
    values: dict[str, Any]  # input -> fixed value (scalar or nested list), broadcast to the input's shape
    image_mean: list[float]  # per channel, of values in [0, 1]; images only
    image_std: list[float]
    batch_size: int
    batch_axes: dict[str, int]


class TorchSource(TypedDict):
    """The source of the PyTorch model that was exported to this ONNX file, for a comparison with it."""

    source: Literal["torchvision", "pt2"]
    name: str  # torchvision's name; empty for a `.pt2`
    path: str  # the `.pt2` file; empty for torchvision
    sha256: str  # of the exported `.pt2`: loading it runs its code, so it must be the same file
    weights: Literal["pretrained", "random", "file"]
    seed: int  # of random weights
    biases: bool  # biases are random, too; False: torchvision's initial values, mostly zero
    image_size: int | None  # pixels per side that random weights were made for; None: torchvision's own
    outputs: list[str]  # names that the `.onnx` gives the outputs, in order


class OpenVinoPlan(TypedDict):
    """How the engine OpenVINO compiles a model."""

    device: str  # for `compile_model`
    properties: dict[str, Any]  # for `compile_model`, by OpenVINO's names; only those that are set
    reshape: bool  # fix the shapes to those of the inputs before compiling


class ContestantPlan(TypedDict):
    """One configuration of a comparison, in a contestant process of its own."""

    engine: str  # a row of `engines`
    model_path: str
    torch: TorchSource | None  # of a PyTorch engine
    session: SessionPlan
    feeds: FeedPlan
    use_io_binding: bool
    warmup_runs: int | None  # after the first run; None: until the latency is steady
    cpus: list[int]  # affinity, set before the session is created; empty: as inherited
    streams: NotRequired[int]  # callers at the same time; absent: one
    stream_type: NotRequired[StreamType]  # absent: threads
    runtime: NotRequired[str]  # that it runs in, with its hash, see `runtime`; absent: ORTune's own
    openvino: NotRequired[OpenVinoPlan]  # of the engine OpenVINO


class ProfilePlan(TypedDict):
    """The job `profile`: the same configuration with ORT's profiler on, in a separate pass."""

    model_path: str
    session: SessionPlan
    feeds: FeedPlan
    use_io_binding: bool
    runs: int
    trace_path: str  # file to write ORT's trace to (Chrome trace format)
    saves_graph: NotRequired[
        bool
    ]  # False: the profile needs no constants of the optimized graph; absent: True
    graph_path: NotRequired[str]  # file for the optimized graph: the job `read_profile` then reads both


class ReadProfilePlan(TypedDict):
    """The job `read_profile`: interpret what the job `profile` has written in another runtime."""

    trace_path: str
    graph_path: str  # of the optimized graph; it is missing where the session could not save it


class ReadProfileReply(TypedDict):
    """Reply of `read_profile`; `profile` is `Profile.to_dict()`."""

    profile: dict[str, Any]


class TensorInfo(TypedDict):
    """An input or output tensor of a run."""

    name: str
    dtype: str
    shape: list[int]


# --- a comparison: the commands of a contestant process, and its replies ------------------------------------
#
# A contestant runs one command at a time; between two commands the parent stops it (SIGSTOP), so that its
# spinning threads do not disturb the others.


class ForkReply(TypedDict):
    """Reply of `fork`: a contestant process."""

    pid: int


class ReapReply(TypedDict):
    """Reply of `reap` (with: a Child): its exit status."""

    status: int | None  # as from `waitpid`; None while it lives


class LoadPlan(ContestantPlan):
    """Arguments of `load`: the configuration, and what differs between processes."""

    layout_seed: NotRequired[int]  # of this process's random memory layout; absent: not randomized
    again: NotRequired[bool]  # an earlier process reported the facts: skip what only they need
    sandbox: NotRequired[Rules]  # absent: the operator runs workers without a sandbox


class Layout(TypedDict):
    """The random memory layout of a process, which differs between two processes of one program."""

    heap_bytes: int  # allocated on the heap before the session is created
    mapped_pages: int  # mapped before the session is created; moves later mappings, such as thread stacks
    stack_frames: int  # between the top of the stack and the timed loop
    buffer_offset: int  # of the first input in its page, in bytes; the others have their own


class ProvidersUsed(TypedDict):
    """How a built session differs from the request; a part of replies."""

    requested_providers: list[str]  # of another engine: its name, maybe with a device: ["OpenVINO AUTO"]
    effective_providers: list[str]
    fallback: bool
    fallback_reason: str  # empty unless `fallback`


class LoadReply(ProvidersUsed):
    """Reply of `load` (with: a LoadPlan): the session is built and the first run done."""

    batch_size: int  # counted on the inputs after the run
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    session_creation_s: float
    first_run_ns: int
    affinity: list[int]  # CPUs that this process may use
    baseline_rss_bytes: int  # after the imports, before the model
    load_peak_rss_bytes: int  # above the baseline, up to the end of the first run
    exact_memory: bool  # False: the system does not let a process reset its peak
    clock_ns: float  # what the clock and the loop add to one latency
    notes: list[str]  # facts that readers of the numbers need, in words
    libraries: dict[str, str]
    layout: NotRequired[Layout]  # absent: not randomized
    stream_threads: NotRequired[list[int]]  # of each process: its intra-op threads; empty: no stream is one
    precision: NotRequired[str]  # that the engine chose for some nodes, as in `output_check`; absent: none


class WarmReply(TypedDict):
    """Reply of `warm` (with: known_ns, the latency in earlier processes or null; cap_s, the time limit)."""

    latencies_ns: list[int]  # in run order, without the very first run
    steady: bool  # False: the cap came before a steady state
    median_ns: int  # of the last window: the expected latency


class Counters(TypedDict):
    """Signs of background load during one block. Differences over the block; None: not readable here."""

    wall_s: float
    cpu_s: float  # user + system time of this process, all threads
    involuntary_switches: int
    major_faults: int
    wait_s: float | None  # time that its runnable threads waited in a run queue (schedstat)
    steal_s: float | None  # time that the hypervisor gave to other guests
    busy_s: float | None  # busy time of all CPUs that the process may use; kernel ticks of 10 ms
    pressure_s: float | None  # time in which a task waited for a CPU (PSI)
    throttled_periods: int | None  # periods in which the container's CPU quota stopped it
    throttled_s: float | None
    canary_ns: int  # time of a fixed calculation before the block: shows the CPU speed
    frequency_hz: float | None  # mean over the CPUs it may use
    suspended_s: float  # time that the machine, or ORTune on it, was suspended
    gpu: dict[str, float] | None  # sm_clock_mhz, max_sm_clock_mhz, temperature_c, foreign_processes


class BlockReply(TypedDict):
    """Reply of `block` (with: block_ns, min_runs, max_runs, refill): runs until block_ns and min_runs."""

    refill_ns: int | None  # the first run, which refills the caches; excluded from every statistic
    latencies_ns: list[int]  # of several streams: stream by stream
    started_s: float  # CLOCK_MONOTONIC: comparable between processes of one machine
    counters: Counters
    window_s: NotRequired[float]  # latest first start to earliest last end of the streams; 0: they never met
    # Of several streams only, each a list with one item for each stream:
    stream_runs: NotRequired[list[int]]  # runs
    stream_completed: NotRequired[list[float]]  # runs in the window; those that cross an edge in part
    stream_refills_ns: NotRequired[list[int]]  # uncounted first runs; empty: there were none


class CostReply(TypedDict):
    """Reply of `cost` (with: seconds): CPU time and other costs of a run, from a separate pass."""

    cpu_s_per_run: float  # over at least a quarter of a second
    idle_cpu_s: float  # CPU time used during `idle_wall_s` after a run, without requests
    idle_wall_s: float


class FootprintReply(TypedDict):
    """Reply of `footprint` (with: runs), in a fresh worker after `load`."""

    run_peak_rss_bytes: int  # above the baseline of its LoadReply
    gpu_memory_bytes: int | None  # of this process, from NVML; None: no GPU in use
    notes: list[str]


class NewShape(TypedDict):
    """Latency of the first inputs of a new shape, in a session that has run other shapes before."""

    batch_size: int  # of the inputs
    first_run_ns: int
    next_run_ns: int


class NewShapesReply(TypedDict):
    """Reply of `new_shapes` (with: feeds, a list of FeedPlan): each is run twice, in that order."""

    shapes: list[NewShape]


class BatchingPlan(TypedDict):
    """Dynamic batching in front of a session."""

    max_batch_size: int  # samples
    max_delay_ns: int  # longest wait of the first request of a batch for others
    preferred: list[int]  # batch sizes at which a batch starts at once


class TrafficPlan(TypedDict):
    """Arguments of `prepare_traffic`: what is served, without the time at which it begins."""

    record: str  # path of the `traffic_record`, with the schedule
    requests: int  # in the record
    kinds: list[FeedPlan]  # inputs of each kind of request
    streams: int  # threads of this process that serve
    first_stream: int  # number of the first of them
    shared: bool  # other processes serve the same record
    batching: BatchingPlan | None  # None: each request alone
    drop_ns: int  # a request that has waited longer is not run; 0: all are
    until_ns: int  # no request is started later, from the begin; 0: all are
    spin_ns: int  # wait for an arrival without sleeping for so long before it; 0: only sleep


class TrafficReply(TypedDict):
    """Reply of `traffic` (with: begin_ns, CLOCK_MONOTONIC): all requests of the schedule are served."""

    counters: Counters
    memory_bytes: int | None  # private pages that this process has written, at the end


class OutputsPlan(TypedDict):
    """Arguments of `save_outputs` and `compare_outputs`."""

    path: str  # of the file with the outputs


class OutputError(TypedDict):
    """Error of outputs against a reference on the same inputs: the worst output counts.

    Also the reply of `compare_outputs` (with: path of the file that another contestant wrote at
    `save_outputs`), from the contestant whose outputs are the reference.
    """

    max_abs: float | None  # None: shapes or names differ, see `difference`
    mean_abs: float | None
    max_rel: float | None  # the largest difference over the largest magnitude of that output
    mean_rel: float | None  # the mean difference over the mean magnitude of that output
    cosine: float | None  # cosine similarity of the two outputs as vectors; None: one of them is zero
    top1_agreement: float | None  # share of samples with equal argmax over the last axis of the first output
    difference: str  # empty, or why the outputs cannot be compared
    rows: NotRequired[int]  # samples behind `top1_agreement`; 0: no output holds classes
    not_finite: NotRequired[int]  # values that are equally infinite or NaN in both outputs
    void: NotRequired[list[str]]  # outputs that cannot be compared: empty, or without a finite value


class ProfileReply(ProvidersUsed):
    """Reply of `profile`; `profile` is `Profile.to_dict()`, empty where the job `read_profile` reads it."""

    batch_size: int
    # provider -> nodes, from ORT's assignment API (before late fusions); empty: this version has no such API
    assigned_nodes: dict[str, int]
    unprofiled_latencies_ns: list[int]  # same process, profiler off: shows the profiler's overhead
    profile: dict[str, Any]
    trace_path: str


class ProviderFact(TypedDict):
    """Whether a provider that this build lists can be loaded here."""

    name: str
    loadable: bool
    reason: str  # why not, in words; empty when loadable
    remedy: str  # one imperative sentence; empty when loadable


class CpuFacts(TypedDict):
    """CPUs of the machine, and those that this process may use."""

    model: str
    logical: int
    physical: int
    allowed: list[int]  # the affinity mask
    quota: float | None  # CPUs, from the cgroup; None: no limit
    ort_default_threads: int  # threads that ORT starts on this machine with intra_op_num_threads = 0
    usable: int  # recommended number of threads: min(allowed physical cores, quota), at least 1


class HostFacts(TypedDict):
    """Details of CPU, kernel and container. None: cannot be read here."""

    microcode: str | None
    instructions: list[str]  # those of the CPU that kernels of neural networks use: "avx512f", "amx_int8"
    sockets: int | None
    numa_nodes: int | None
    smt: bool | None  # two threads share a core
    governor: str | None  # frequency governor; comma-separated if the CPUs differ
    turbo: bool | None
    hypervisor: str | None  # "none": not a virtual machine
    huge_pages: str | None  # transparent ones: "always", "madvise" or "never"
    cgroup: str | None  # "v1" or "v2"
    cpuset: str | None  # CPUs that the container may use, as the kernel writes them
    container: str | None  # id
    boot: str | None  # id, new with each start of the machine


class Environment(TypedDict):
    """The machine and its libraries; results with equal `fingerprint` are comparable."""

    fingerprint: str
    cpu: CpuFacts
    host: NotRequired[HostFacts]  # absent in results of earlier versions
    memory_bytes: int  # limit of this container
    gpus: list[dict[str, Any]]  # name, memory_bytes, driver, cuda (newest version that the driver supports)
    os: str
    kernel: str
    python: str
    libraries: dict[str, str]
    ort_build: str
    providers: list[ProviderFact]
    variables: dict[str, str]  # environment variables that affect ORT
    openvino_devices: NotRequired[dict[str, str]]  # device -> its full name; absent: not installed
    sandbox: NotRequired[Offer]  # of workers; absent in results of earlier versions


class ExportPlan(TypedDict):
    """The job `export`: a PyTorch or TensorFlow model into an `.onnx` file."""

    source: Literal["torchvision", "pt2", "tensorflow"]
    name: str  # torchvision's name of the model; empty for a file
    path: str  # the `.pt2` or Keras file, or the folder of a SavedModel; empty for torchvision
    output: str  # the `.onnx` file to write; replaced if it is there
    opset: int  # 13..25; usually 20
    dynamic_batch: bool  # torchvision only: a `.pt2` keeps the dimensions it has
    pretrained: bool  # torchvision only: try to download trained weights
    seed: int  # of the random weights, and of the inputs of the comparison
    image_size: int | None  # torchvision only; None: the size its weights were trained for
    external_data: Literal["auto", "always", "never"]  # auto: when one file would not hold the weights


class Difference(TypedDict):
    """Error of ONNX Runtime's outputs against PyTorch's on the same inputs."""

    batch: int | None  # None: the model has no batch dimension
    max_abs: float
    max_rel: float  # the largest difference over the largest magnitude PyTorch computed in that output


class ExportReply(TypedDict):
    """Reply of `export`."""

    path: str
    sha256: str
    size_bytes: int  # with external data
    nodes: int
    op_counts: dict[str, int]
    parameters: int
    opset: int
    ir_version: int
    differences: list[Difference]  # empty: nothing could be compared, and a note says why
    weights: Literal["pretrained", "random", "file"]
    notes: list[str]
    seconds: float
    pt2: str  # the `.pt2` file that it came from, an absolute path; empty for torchvision


# --- variants: the job `transform` --------------------------------------------------------------------------

StepKind = Literal[
    "simplify",
    "fix_dims",
    "fp16",
    "mixed",
    "int8_dynamic",
    "int8_static",
    "int4",
    "fuse",
    "optimize",
    "ort_format",
    "metadata",
]


class Preprocessing(TypedDict):
    """Preprocessing of a dataset's images, in this order. Arrays that fit an input are used unchanged."""

    resize: int | None  # pixels of the shorter side, antialiased; None: straight to the input's size
    crop: int | None  # pixels of a centred square, after `resize`; None: none
    channels: Literal["auto", "rgb", "bgr", "gray"]  # auto: gray where the input has one channel, else rgb
    scale: float  # what a pixel of 255 becomes: 1.0 is torchvision's, 255.0 leaves the bytes
    mean: list[float]  # per channel, after `scale`; empty: nothing is subtracted
    std: list[float]  # likewise; empty: nothing is divided


class DatasetPlan(TypedDict):
    """Samples of a dataset, with labels where the source has them."""

    path: str
    kind: Literal["npz", "folders", "csv", "images"]  # images: a folder or file without labels
    split: str  # of an `.npz` in MedMNIST's layout: "train", "val" or "test"; empty: test, or what there is
    preprocessing: Preprocessing
    limit: int | None  # rows; None: all
    seed: int  # which rows, where `limit` leaves some out: the same share of each class
    part: NotRequired[Literal["calibration", "rest"]]  # of the rows, before `limit`; absent: all
    share: NotRequired[float]  # of the rows, and of each class, that is the part for calibration


class TransformPlan(TypedDict):
    """One step: converts a model file into another one, checked against the original of the whole chain."""

    path: str
    output: str  # the file to write; replaced if it is there. Nothing is left there after a failure
    step: StepKind
    options: dict[str, Any]  # every option of the step's type, see `steps`
    reference: str  # the original model at the root of the chain; `path` itself for the first step
    feeds: list[FeedPlan]  # several seeds, for the inputs of `path`; the check runs on all
    calibration: DatasetPlan | None  # None: a step that needs none, or random feeds (`feeds`)
    custom_op_libraries: NotRequired[list[str]]  # that the models need, in the form that `access` reads
    other_feeds: NotRequired[list[list[FeedPlan]]]  # used in this order where the model refuses `feeds`


class StepCheck(TypedDict):
    """A finding of a step that the user should see; `remedy` is an options change that would help."""

    name: str  # "saturation", "slower_operators", "sharing", "small_calibration", "random_calibration", …
    level: Literal["info", "warning"]
    text: str
    remedy: dict[str, Any]  # options to change; empty: none


class TransformReply(TypedDict):
    """Reply of `transform`."""

    path: str
    sha256: str
    size_bytes: int  # with external data
    size_before_bytes: int
    nodes_before: int
    nodes_after: int
    tool: str  # "onnxslim", "onnxruntime.quantization", …
    tool_version: str
    seconds: float
    error: OutputError  # of the written model against the reference, both with optimizations off on the CPU
    error_seeds: int  # number of seeds that `error` covers
    checks: list[StepCheck]
    notes: list[str]
    hardware_bound: str  # empty: runs anywhere; else why the file fits this kind of machine only
    facts: dict[
        str, Any
    ]  # of the step: "fused" {operator: n}, "integer_ops" {op_type: {…}}, "blocked" [node], …
    files: list[str]  # further files beside the output that belong to it
    libraries: NotRequired[dict[str, str]]  # native libraries that ran in the checks, with their hashes
    calibrated: NotRequired[str]  # hashes of the calibration rows, 16 digits each; absent: none
    feeds_number: NotRequired[int]  # index of the inputs used: 0 is `feeds`, then `other_feeds`; absent: 0


# --- accuracy on data: the jobs `accuracy` and `node_errors` ------------------------------------------------


class AccuracyPlan(TypedDict):
    """The job `accuracy`: one configuration over a labelled dataset."""

    model_path: str
    session: SessionPlan
    inputs: list[InputPlan]  # with the batch size of one run
    batch_axes: dict[str, int]
    values: dict[str, Any]  # fixed values of inputs that the dataset lacks
    seed: int  # of inputs with a range of random values
    output: str  # name of the output with the classes; empty: the only candidate
    dataset: DatasetPlan
    engine: NotRequired[str]  # a row of `engines`; absent: ONNX Runtime
    openvino: NotRequired[OpenVinoPlan]  # of the engine OpenVINO
    # of an `.npz` to write: `scores` [rows, classes] as they came, `labels` int64 [rows], `rows`: hashes
    # uint64 [rows], or nothing where rows cannot be told apart
    scores_path: str


class CalibrationRows(TypedDict):
    """Overlap of the rows that a model was calibrated on with those that it is scored on."""

    rows: int | None  # calibration rows; None: an earlier version kept no hashes
    shared: int | None  # scored rows that are among them; None: unknown


class AccuracyReply(TypedDict):
    """Reply of `accuracy`. `core.evidence.metrics` computes the metrics from the scores."""

    rows: int
    classes: int
    class_names: list[str]
    output: str
    scores: Literal["logits", "probabilities"]  # content of the output, determined from all samples
    scores_path: str
    dataset_sha256: str  # of the data and its labels, as they were read
    batch_size: int
    not_finite: int  # samples with NaN or Inf in their scores, which count as wrong
    seconds: float
    effective_providers: list[str]
    notes: list[str]
    calibration: NotRequired[CalibrationRows]  # added by the parent, for a model that was calibrated on data


class NodeErrorsPlan(TypedDict):
    """The job `node_errors`: the output error when each operator alone is quantized."""

    float_path: str  # the model before the quantization
    quantized_path: str
    step: StepKind
    options: dict[str, Any]  # of the step that created the variant
    feeds: list[FeedPlan]
    calibration: DatasetPlan | None
    custom_op_libraries: NotRequired[list[str]]  # that the models need


class NodeError(TypedDict):
    """One operator that the variant quantizes."""

    name: str  # of the node in the float model
    op_type: str
    alone: float  # relative L2 error of the model's outputs when only this operator is quantized
    accumulated: float | None  # relative L2 error of its own output in the whole variant; None: not found
    weight_bytes: int  # in the float model


class NodeErrorsReply(TypedDict):
    """Reply of `node_errors`; errors are over all `feeds`."""

    nodes: list[NodeError]
    whole: float  # relative L2 error of the outputs of the variant
    seconds: float
    notes: list[str]
    libraries: NotRequired[dict[str, str]]  # native libraries that ran, with their hashes


# --- profile differences: the job `explain` -----------------------------------------------------------------


class PassPlan(TypedDict):
    """The job `profiled_pass`: one pass of the job `explain`, in the runtime of its configuration."""

    side: ContestantPlan
    folder: str  # of the profiler's file
    runs: int  # with the profiler, and again without; 0: the first pass, which learns their number
    optimized: str  # file that the first pass saves the optimized graph to
    done: int  # passes of both sides before it, for the progress
    total: int


class PassReply(ProvidersUsed):
    """Reply of `profiled_pass`."""

    profile: str  # file that the profiler wrote; empty: of the first pass
    plain_ns: list[int]  # latencies without the profiler
    runs: int  # for every later pass
    saved: bool  # whether the optimized graph was saved
    batch_size: int
    notes: list[str]


class RecordedPasses(TypedDict):
    """The passes of one side, made in processes of their own."""

    first: PassReply
    passes: list[PassReply]
    optimized: str
    notes: list[str]


class NamedModelPlan(TypedDict):
    """The job `named_model`: give every node of a model a name, in a copy."""

    model_path: str
    folder: str  # for the copy


class NamedModelReply(TypedDict):
    """Reply of `named_model`."""

    path: str  # of the copy; of the model itself if all nodes have names or it cannot be copied
    notes: list[str]


class ExplainPlan(TypedDict):
    """The job `explain`: profile two configurations in turns, and map their nodes to those of the model."""

    sides: list[ContestantPlan]  # two, the baseline first; ONNX Runtime only
    fingerprint: str  # of the machine, for the record
    output: str  # file to write the `profile_passes.Passes` to, as JSON
    recorded: NotRequired[list[RecordedPasses]]  # of each side; absent: profile both in this process


class ExplainReply(TypedDict):
    """Reply of `explain`."""

    output: str
    passes: int  # of each side
    notes: list[str]


# --- checks of a bundle on another machine: `samples`, `answers`, `settings` --------------------------------


class SamplesPlan(TypedDict):
    """The job `samples`: run a configuration once, and keep its inputs and outputs."""

    plan: ContestantPlan
    folder: str  # folder to write `inputs.npz` and `outputs.npz` to
    most_bytes: int  # of each of the two files; a larger one is not kept


class SamplesReply(TypedDict):
    """Reply of `samples`."""

    rows: int  # of the inputs
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    refusal: str  # why nothing was kept, in a sentence; empty: the files were kept


class AnswersPlan(TypedDict):
    """The job `answers`: run a configuration once, and compare its outputs with recorded ones."""

    plan: ContestantPlan
    outputs: str  # an `.npz` of the job `samples`; empty: run without comparing


class AnswersReply(TypedDict):
    """Reply of `answers`."""

    effective_providers: list[str]
    fallback: bool
    fallback_reason: str
    rows: int
    error: OutputError | None  # null: nothing is recorded
    unusable: str  # why the recorded data cannot be used; then nothing was run
    notes: list[str]


class SettingsPlan(TypedDict):
    """The job `settings`: find the names that the installed ONNX Runtime does not know."""

    attributes: list[str]  # of SessionOptions
    enums: dict[str, list[str]]  # attribute -> members
    keys: list[str]  # of session and run config entries
    optimizers: list[str]


class SettingsReply(TypedDict):
    """Reply of `settings`."""

    version: str
    searched: int  # number of libraries whose literals were searched; 0: none can be read
    unknown: list[str]  # names of the plan


# --- what a runtime can do: the job `capabilities` ----------------------------------------------------------


class Capabilities(SettingsReply):
    """Reply of `capabilities` (with: a SettingsPlan of all names that ORTune knows)."""

    numpy: str  # version
    python: str  # version
    build: str  # of ONNX Runtime, in its own words
    ir_version: int  # newest that it reads; 0: unknown
    opsets: dict[str, int]  # domain ("" is ai.onnx) -> newest opset that it reads; absent: unknown
    interfaces: list[str]  # those of `capabilities.INTERFACES` that it has, for example "OrtValue.numpy"
    modules: list[str]  # further Python modules that it can import, for example "PIL"
    defaults: dict[str, str]  # attribute of SessionOptions -> its default, as text
    providers: list[ProviderFact]


# --- environments: the job `install` ------------------------------------------------------------------------


class InstallPlan(TypedDict):
    """The job `install`: create a virtual environment with packages, or describe an existing one."""

    folder: str  # of the new environment, which must not exist; empty: describe `python`
    python: str  # interpreter of the existing environment, or the base of the new one; empty: this one
    packages: list[str]  # requirements (PEP 508) and paths of wheels
    lock: str  # text of a lock file, installed instead of `packages`; empty: none


class InstallReply(TypedDict):
    """Reply of `install`."""

    installer: str  # name and version of the program; empty: nothing was installed
    lock: str  # `name==version --hash=…` of everything that was installed
    python: str  # path of the environment's interpreter
    python_version: str
    versions: dict[str, str]  # distribution -> version
    size_bytes: int
    notes: list[str]


# --- peak rates of the machine: the job `peaks` -------------------------------------------------------------


class PeaksPlan(TypedDict):
    """The job `peaks`: time a product of matrices and a copy with each number of threads."""

    threads: list[int]


class PeakTimes(TypedDict):
    """Raw times with one number of threads, in run order."""

    threads: int
    operations: int  # of one product of float32 matrices; a multiplication and an addition are two
    product_ns: list[int]
    moved_bytes: int  # by one copy: read and written
    copy_ns: list[int]


class PeaksReply(TypedDict):
    """Reply of `peaks`."""

    times: list[PeakTimes]
    cache_bytes: int | None  # the largest cache; null: unknown


# --- files of other programs: the job `import` --------------------------------------------------------------


class Summary(TypedDict):
    """The output of `onnxruntime_perf_test`; a number that it did not print is null."""

    model: str
    samples_s: list[float]  # in run order; empty: there is a summary only
    runs: int | None
    mean_s: float | None
    percentiles_s: dict[str, float]  # as printed: "p50" -> seconds
    session_creation_s: float | None
    notes: list[str]  # notes on reading the file


class ImportPlan(TypedDict):
    """The job `import`: read a profile, or the output of a program."""

    path: str


class ImportReply(TypedDict):
    """Reply of `import`: either `profile` or `summary` is set."""

    format: Literal["onnxruntime profile", "Chrome trace", "onnxruntime_perf_test"]
    sha256: str
    size_bytes: int
    profile: dict[str, Any] | None  # `Profile.to_dict()`
    summary: Summary | None


# --- the model as a graph: the job `graph` ------------------------------------------------------------------


class GraphPlan(TypedDict):
    """The job `graph`: the nodes and tensors of a model, and those of ONNX Runtime's optimized graph."""

    model_path: str
    session: SessionPlan | None  # also return the graph that this session runs; None: the model's own only
    saved: NotRequired[SavedGraph]  # the optimized graph, saved in another runtime; `session` is None then
    output: str  # file to write the `graph.Graphs` to, as JSON


class SaveGraphPlan(TypedDict):
    """The job `save_graph`: save the optimized graph of a session, for the job `graph` in another runtime."""

    model_path: str
    session: SessionPlan
    graph_path: str  # file to write


class SaveGraphReply(ProvidersUsed):
    """Reply of `save_graph`."""


class SavedGraph(TypedDict):
    """What the job `save_graph` has written."""

    path: str
    effective_providers: list[str]
    notes: list[str]  # for the reader of the result


class GraphReply(TypedDict):
    """Reply of `graph`."""

    output: str
    nodes: int
    optimized_nodes: int | None  # None: not requested


class LayoutPlan(TypedDict):
    """The job `layout`: positions for the items of a graph."""

    levels: list[int]  # of each item
    edges: list[list[int]]  # from item to item


class LayoutReply(TypedDict):
    """Reply of `layout`; x to the right, y the level."""

    points: list[list[float]]  # of each item
    bends: list[list[list[float]]]  # of each edge, from its start to its end


# --- cross-check with LoadGen: the job `loadgen` ------------------------------------------------------------

LoadGenScenario = Literal["SingleStream", "MultiStream", "Server", "Offline"]


class LoadGenPlan(TypedDict):
    """The job `loadgen`: LoadGen sends inferences to one session."""

    plan: ContestantPlan
    scenario: LoadGenScenario
    duration_s: float  # least duration of the test
    min_queries: int  # least number of queries
    rate: float  # queries per second of Server; the other scenarios ignore it
    limit_s: float  # latency limit of Server, likewise
    percentile: float  # a share, for example 0.99; of Server the one that the limit is for
    samples_per_query: int  # inferences per query of MultiStream
    streams: int  # threads that run inferences on the session
    seed: int  # of LoadGen's schedule
    timeout_s: float  # from the start of the test to its end


class LoadGenVerdict(TypedDict):
    """What LoadGen's log says; the words and the verdict are LoadGen's."""

    version: str  # of LoadGen
    valid: bool
    reasons: list[str]  # why it is not; latencies in them are nanoseconds
    duration_met: bool
    queries_met: bool
    limit_met: bool | None  # share of queries within the limit; None: the scenario has no limit
    early_stopping_met: bool  # enough queries for the percentile, by LoadGen's rule
    early_stopping: str
    queries: int
    inferences: int
    over_limit: int | None  # queries above the limit; None: the scenario has none
    latency_s: dict[str, float]  # of queries: min, mean, max, p50, p90, p95, p97, p99, p99.9
    settings: dict[str, Any]  # as LoadGen applied them, by its own names and units
    errors: int  # reported by LoadGen itself


class LoadGenReply(ProvidersUsed, LoadGenVerdict):
    """Reply of `loadgen`."""

    scenario: LoadGenScenario
    batch_size: int
    samples_per_s: float
    seconds: float  # duration of the test
    notes: list[str]
    libraries: dict[str, str]


# --- requests of the parent ---------------------------------------------------------------------------------

Reply = TypeVar("Reply", bound=Mapping[str, Any])


class Request(str, Generic[Reply]):
    """The name of a job or command, with the type of its reply."""

    reply: type[Reply]
    most_bytes: int
    stores: bool

    def __new__(
        cls, name: str, reply: type[Reply], most_bytes: int = 32 << 20, *, stores: bool = False
    ) -> Request[Reply]:
        """Create a request.

        Args:
            name: of the job or command.
            reply: type of its reply.
            most_bytes: largest size of all its messages, progress included.
            stores: it writes into the store's folder, so its error may be a `StoreError`.
        """
        one = super().__new__(cls, name)
        one.reply, one.most_bytes, one.stores = reply, most_bytes, stores
        return one


_LARGE = 256 << 20  # lists of every latency, node or position


# jobs, each in a worker of its own
ENVIRONMENT = Request("environment", Environment)
INSPECT = Request("inspect", ModelInfo, _LARGE)
EXTERNAL_DATA = Request("external_data", ExternalDataReply)
LOAD_CHECK = Request("load_check", LoadCheckReply)
PROFILE = Request("profile", ProfileReply, _LARGE)
EXPORT = Request("export", ExportReply)
TRANSFORM = Request("transform", TransformReply, _LARGE)
ACCURACY = Request("accuracy", AccuracyReply, _LARGE)
NODE_ERRORS = Request("node_errors", NodeErrorsReply, _LARGE)
EXPLAIN = Request("explain", ExplainReply, stores=True)
PROFILED_PASS = Request("profiled_pass", PassReply)
NAMED_MODEL = Request("named_model", NamedModelReply)
SAMPLES = Request("samples", SamplesReply)
ANSWERS = Request("answers", AnswersReply)
SETTINGS = Request("settings", SettingsReply)
CAPABILITIES = Request("capabilities", Capabilities)
READ_PROFILE = Request("read_profile", ReadProfileReply, _LARGE)
INSTALL = Request("install", InstallReply, stores=True)
PEAKS = Request("peaks", PeaksReply)
IMPORT = Request("import", ImportReply, _LARGE)
LOADGEN = Request("loadgen", LoadGenReply)


GRAPH = Request("graph", GraphReply, stores=True)
SAVE_GRAPH = Request("save_graph", SaveGraphReply)
LAYOUT = Request("layout", LayoutReply, _LARGE)
FORKSERVER = Request("forkserver", EmptyReply)
CONTESTANT = Request("contestant", EmptyReply)

# Jobs that need Python 3.10, numpy and onnxruntime only: they run in the runtime of their configuration.
# Every other job needs ORTune's own libraries, such as onnx or msgspec, and runs in ORTune's own runtime.
IN_ANY_RUNTIME: frozenset[str] = frozenset(
    {
        *(ENVIRONMENT, CAPABILITIES, SETTINGS, LOAD_CHECK, FORKSERVER, CONTESTANT),
        *(PROFILE, SAMPLES, ANSWERS, ACCURACY, LOADGEN, PROFILED_PASS, SAVE_GRAPH),
    }
)

# commands of a fork server
FORK = Request("fork", ForkReply)
REAP = Request("reap", ReapReply)

# commands of a contestant
LOAD = Request("load", LoadReply)
WARM = Request("warm", WarmReply, _LARGE)
BLOCK = Request("block", BlockReply, _LARGE)
COST = Request("cost", CostReply)
FOOTPRINT = Request("footprint", FootprintReply)
NEW_SHAPES = Request("new_shapes", NewShapesReply)
PREPARE_TRAFFIC = Request("prepare_traffic", EmptyReply)
TRAFFIC = Request("traffic", TrafficReply)
SAVE_OUTPUTS = Request("save_outputs", EmptyReply)
COMPARE_OUTPUTS = Request("compare_outputs", OutputError)
