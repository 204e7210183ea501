"""The typed JSON that crosses the pipe between the parent process and a worker.

Plain dictionaries and the standard library only, so that a measuring worker loads numpy and onnxruntime
and nothing else. The parent validates (`core.spec`), resolves (`plan.session_plan`, `plan.feed_plan`) and
sends a plan; the worker obeys it to the letter. Seconds and bytes; nanoseconds where raw samples are kept.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Protocol, TypedDict

JobName = Literal["environment", "inspect", "measure", "profile", "export", "fp16"]


class Progress(Protocol):
    """How a job tells the parent how far it is; about once in half a second is enough."""

    def __call__(self, stage: str, done: int, total: int, text: str = "") -> None:
        """Report `done` of `total` steps of `stage`."""


class ProviderPlan(TypedDict):
    """One execution provider of the ordered chain; option values are already text."""

    name: str
    options: dict[str, str]


class SessionPlan(TypedDict):
    """What to set on `SessionOptions` and `InferenceSession`. What is absent here is not touched."""

    attributes: dict[str, bool | int | str]  # SessionOptions attribute -> value; enum members by name
    config_entries: dict[str, str]
    providers: list[ProviderPlan]  # never empty
    disabled_optimizers: list[str]
    allow_fallback: bool


class InputInfo(TypedDict):
    """One graph input or output as the model declares it."""

    name: str
    dtype: str  # numpy's name ("float32", "int64", "bool"), "bfloat16", "string", or ORT's text if no tensor
    shape: list[int | str] | None  # free dimension: its address ("batch" or "x:0"); None: rank unknown
    low: NotRequired[float | None]  # random feeds: smallest value; None: the type's usual range
    high: NotRequired[float | None]  # random feeds: integers are < high, floats <= high
    range_reason: NotRequired[str]  # why that range, in words for the screen


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
    free_dims: list[str]  # addresses, in order of appearance
    batch_dim: str | None  # the free dimension that `batch_size` sets; None: the batch is fixed
    batch_axes: dict[str, int]  # input -> axis that carries the batch; empty: no input has rows
    fixed_batch: int | None  # rows of a model whose batch is fixed; None: it is free
    nodes: int  # bodies of If/Loop/Scan included
    op_counts: dict[str, int]
    parameters: int  # number of weight elements
    external_data: list[ExternalFile]
    metadata: dict[str, str]


class InputPlan(TypedDict):
    """One input to feed: every dimension is a number now."""

    name: str
    dtype: str
    shape: list[int]
    low: float | None
    high: float | None


class FeedPlan(TypedDict):
    """Where the feeds of a trial come from."""

    inputs: list[InputPlan]
    source: Literal["random", "npz", "images"]
    path: str | None
    seed: int
    values: dict[str, Any]  # input -> fixed value (scalar or nested list), broadcast to the input's shape
    image_mean: list[float]  # per channel, of values in [0, 1]; images only
    image_std: list[float]
    batch_size: int
    batch_axes: dict[str, int]


class MeasurePlan(TypedDict):
    """The job `measure`: one configuration, timed."""

    model_path: str
    session: SessionPlan
    feeds: FeedPlan
    use_io_binding: bool
    warmup_runs: int
    runs: int


class ProfilePlan(TypedDict):
    """The job `profile`: the same configuration with ORT's profiler on, in a pass of its own."""

    model_path: str
    session: SessionPlan
    feeds: FeedPlan
    use_io_binding: bool
    runs: int
    trace_path: str  # where to leave ORT's trace (Chrome trace format)


class TensorInfo(TypedDict):
    """A tensor that was really fed or really came out."""

    name: str
    dtype: str
    shape: list[int]


class MeasureReply(TypedDict):
    """What `measure` answers. Latencies are nanoseconds in run order; nothing is dropped."""

    requested_providers: list[str]
    effective_providers: list[str]
    fallback: bool
    fallback_reason: str  # empty unless `fallback`
    batch_size: int  # rows really fed, counted on the feeds after the run
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    session_creation_s: float
    first_run_s: float
    warmup_latencies_ns: list[int]  # run order, the first run included
    latencies_ns: list[int]
    timed_wall_s: float  # the whole timed loop, the harness's own time included
    cpu_s_per_run: float  # user + system time of the process, over a window of at least 0.25 s
    baseline_rss_bytes: int  # after the imports, before the model
    peak_rss_bytes: int  # above the baseline
    gpu_memory_bytes: int | None  # of this process, from NVML; None: no GPU in use
    notes: list[str]  # facts a reader of the numbers must know, in words
    libraries: dict[str, str]


class ProfileReply(TypedDict):
    """What `profile` answers; `profile` is `profiling.Profile.to_dict()`."""

    requested_providers: list[str]
    effective_providers: list[str]
    fallback: bool
    fallback_reason: str
    batch_size: int
    assigned_nodes: dict[str, int]  # provider -> nodes, from ORT's assignment API (before late fusions)
    unprofiled_latencies_ns: list[int]  # same process, profiler off: what the profiler costs
    profile: dict[str, Any]
    trace_path: str


class ProviderFact(TypedDict):
    """Whether a provider that this build lists can really load here."""

    name: str
    loadable: bool
    reason: str  # why not, in words; empty when loadable
    remedy: str  # one imperative sentence; empty when loadable


class CpuFacts(TypedDict):
    """What the machine has, and what this process may use of it."""

    model: str
    logical: int
    physical: int
    allowed: list[int]  # the affinity mask
    quota: float | None  # CPUs, from the cgroup; None: no limit
    ort_default_threads: int  # what intra_op_num_threads = 0 starts here
    usable: int  # threads worth starting: min(allowed physical cores, quota), at least 1


class Environment(TypedDict):
    """The machine and its libraries; `fingerprint` is equal where results may be compared."""

    fingerprint: str
    cpu: CpuFacts
    memory_bytes: int  # what this container may use
    gpus: list[dict[str, Any]]  # name, memory_bytes, driver
    os: str
    kernel: str
    python: str
    libraries: dict[str, str]
    ort_build: str
    providers: list[ProviderFact]
    variables: dict[str, str]  # environment variables that change what ORT does


class ExportPlan(TypedDict):
    """The job `export`: a PyTorch model into an `.onnx` file."""

    source: Literal["torchvision", "pt2"]
    name: str  # torchvision's name of the model; empty for a `.pt2`
    path: str  # the `.pt2` file; empty for torchvision
    output: str  # the `.onnx` file to write; replaced if it is there
    opset: int  # 13..25; 20 where nothing speaks for another
    dynamic_batch: bool  # torchvision only: a `.pt2` keeps the dimensions it has
    pretrained: bool  # torchvision only: try to download trained weights
    seed: int  # of the random weights, and of the inputs that are compared
    image_size: int | None  # torchvision only; None: the size its weights were trained for
    external_data: Literal["auto", "always", "never"]  # auto: when one file would not hold the weights


class Difference(TypedDict):
    """How far ONNX Runtime's outputs are from PyTorch's on the same inputs."""

    batch: int | None  # None: the model has no batch dimension
    max_abs: float
    max_rel: float  # the largest difference over the largest magnitude PyTorch computed in that output


class ExportReply(TypedDict):
    """What `export` answers."""

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


class Fp16Reply(TypedDict):
    """What `fp16` answers."""

    path: str
    sha256: str
    size_bytes: int  # with external data
    nodes_before: int
    nodes_after: int
    notes: list[str]
