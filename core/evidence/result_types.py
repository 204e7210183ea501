"""Types of the stored and printed results of trials, comparisons and searches.

The store and `--json` use these keys. `core.show.schema` generates the JSON Schema; the comment behind a key
becomes its description. Keys are never renamed. Results of earlier versions lack some keys, so readers use
`get` for these. Units are seconds, bytes and shares of 1 unless a comment says otherwise.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from core import wire
from core.evidence.verdict import Grade, Verdict
from core.wire.output_check import Judged

Role = Literal["candidate", "baseline", "anchor"]  # anchor: the ORT default, which every comparison includes
Source = Literal["race", "search", "history", "assumed"]  # source of the spread between processes
Statistic = Literal["median", "throughput"]  # of a block: its median run, or its throughput
Outcome = Literal["decided", "rounds", "hopeless", "budget", "disturbed", "cancelled"]


# --- a ratio --------------------------------------------------------------------------------------------


class ContrastNumbers(TypedDict):
    """A ratio with its interval and verdict. Bounds are null where they cannot be estimated."""

    ratio: float  # baseline latency / candidate latency per sample; above 1: the candidate is faster
    ratio_low: float | None  # of the 95 % interval for new launches; corrected for `protocol.family`
    ratio_high: float | None
    verdict: Verdict
    rounds: int
    generations: NotRequired[int]  # launches; absent: one pair of processes, by an earlier version
    sigma: float | None  # robust standard deviation of one round's log ratio within a launch
    sigma_between: NotRequired[float | None]  # the same between launches; null: not separable from `sigma`
    between_from: NotRequired[Source]  # source of `sigma_between`
    half_width: float | None  # half-width of the interval, as a share of the ratio
    within_half_width: NotRequired[float | None]  # part that more rounds reduce; squares of both parts add up
    between_half_width: NotRequired[float | None]  # part that only more launches reduce
    standard_error: NotRequired[float | None]  # standard error of the log ratio
    df: NotRequired[float | None]  # degrees of freedom of the interval
    drifting: bool  # the log ratio has a trend over the launches
    margin: NotRequired[float]  # equivalence margin: smaller relative differences count as none
    interval_budget_s: NotRequired[int]  # budget that gives an interval, if one launch of each gave none


class ContrastRecord(ContrastNumbers):
    """A candidate compared with a baseline, and whether the verdict is valid."""

    candidate: str  # ID of the trial
    baseline: str  # ID of the trial
    holds: NotRequired[bool]  # false: too small beside a failed A/A control, so the verdict is UNDECIDED
    holds_reason: NotRequired[str]
    grade: NotRequired[Grade]  # precision of the interval, A to D; F: the comparison is invalid
    wall_s: NotRequired[float]
    per_row: bool  # the batch sizes differ, so the ratio is per sample
    statistic: NotRequired[Statistic]  # throughput: of samples/s, as a side has several streams; else median
    flagged_rounds: int  # rounds with a disturbance
    without_flagged: ContrastNumbers | None  # from the other rounds; null: too few, or none is flagged
    contradicted: NotRequired[bool]  # the verdict differs without flagged rounds; the interval covers both
    outputs_differ: bool | None  # the output check failed, or the two models differ; null: not compared
    something_else: NotRequired[str]  # why two models do not compute the same outputs; empty: they do
    notes: list[str]


class SelfTest(TypedDict):
    """An A/A test: a configuration compared with itself; the true ratio is 1."""

    when: str  # "during" a comparison, "alone"; earlier versions: "before" and "after" it
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    half_width: NotRequired[float | None]
    sigma: float | None
    sigma_between: NotRequired[float | None]
    rounds: int
    generations: NotRequired[int]
    excess_between: NotRequired[float | None]  # variance between launches that rounds do not explain
    log_ratios: list[float]  # one per round
    run_s: NotRequired[float]  # typical latency


# --- background load ------------------------------------------------------------------------------------


class Program(TypedDict):
    """All processes of one program, which used CPUs during the run."""

    name: str
    cores: float  # CPU seconds per second


class Presence(TypedDict):
    """CPU use of other processes during the run."""

    cores: float  # sum over all programs
    programs: list[Program]  # programs with the most CPU use, largest first; the sum of the rest is last


class Busy(TypedDict):
    """Background load of a run; every display of its numbers includes it."""

    words: str  # as text
    cores: float  # CPUs used by other processes, on average
    programs: list[Program]
    steal_share: float | None  # share of the requested CPU time that the hypervisor withheld
    reasons: list[str]  # names of the counters that show the load


class Interference(TypedDict):
    """Disturbances of a run. Shares are of its blocks unless noted; null: not readable on this system."""

    blocks: int
    flagged_share: float  # blocks with any flag
    disturbed_share: float  # blocks disturbed by another program, steal or a CPU quota
    shares: dict[str, float]  # flag -> share; flags without a block are absent
    run_flags: list[str]  # flags of the whole run
    foreign_cpus: float | None  # CPUs used by other processes, on average
    neighbour_cpus: NotRequired[float | None]  # `foreign_cpus` in the blocks flagged `foreign_load`
    steal_share: float | None  # of the requested CPU time
    pressure_share: float | None  # share of the time in which a task waited for a CPU
    throttled_periods: int | None
    throttled_s: float | None
    canary_spread: float | None  # robust standard deviation / median of the time of a fixed calculation
    foreign_gpu_processes: int


# --- a trial --------------------------------------------------------------------------------------------


class Block(TypedDict):
    """Consecutive runs of one configuration in one round."""

    generation: NotRequired[int]
    copy: NotRequired[int]  # 1: the A/A control, a second process of the ORT default
    round: int
    position: int  # position in the order of its round
    at_s: float  # start, since the start of the comparison
    runs: int
    refill_s: float | None  # latency of the run before the block, which fills the caches; excluded
    median_s: float
    counters: wire.Counters
    flags: list[str]  # disturbances shown by its counters
    window_s: NotRequired[float]  # time in which all streams ran; of a comparison with several streams
    completed: NotRequired[float]  # runs in `window_s`; those that cross its edges count in part
    throughput_run_s: NotRequired[float]  # `window_s` over `completed`: the compared statistic, if present
    stream_runs: NotRequired[list[int]]  # runs of each stream; the latencies are stored stream by stream
    stream_completed: NotRequired[list[float]]  # part of `completed` of each stream
    stream_refills_s: NotRequired[list[float]]  # first run of each stream, which fills the caches; excluded


class StreamFacts(TypedDict):
    """The callers of a configuration with several streams, each in a closed loop."""

    count: int  # latencies of this result are service latency under so many callers, not user latency
    type: wire.StreamType  # threads of one session, or processes with a session each
    threads: list[int]  # intra-op threads of each process; empty: the streams are threads
    rates_per_s: list[float]  # samples per second of each stream in the common windows
    fairness: float  # rate of the slowest stream over that of the fastest
    cpus_used: float  # CPU seconds of all streams per second


class Latency(TypedDict):
    """Latency statistics of timed runs with 95 % intervals; null: too few runs.

    With several streams it is service latency under that many callers, never user latency.
    """

    mean_s: float | None  # 20 % trimmed mean of the means of all processes
    mean_s_low: float | None
    mean_s_high: float | None
    std_s: float | None
    min_s: float
    max_s: float
    p50_s: float | None
    p50_s_low: float | None
    p50_s_high: float | None
    p90_s: float | None
    p90_s_low: float | None
    p90_s_high: float | None
    p95_s: float | None
    p95_s_low: float | None
    p95_s_high: float | None
    p99_s: float | None
    p99_s_low: float | None
    p99_s_high: float | None
    needs_runs: dict[str, int]  # percentile without a value or an upper bound -> runs needed in total
    needs_rounds: NotRequired[dict[str, int]]  # percentile -> rounds needed in total
    processes: NotRequired[int]  # number of processes; from 2 on the interval of the mean covers new ones


class NewShape(TypedDict):
    """Latency of the first runs with a new batch size."""

    batch_size: int
    first_run_s: float
    next_run_s: float


class ModelName(TypedDict):
    """A model, by name and content."""

    model: str
    sha256: str


class Guard(Judged):
    """The output check of a configuration."""

    error: NotRequired[wire.OutputError | None]
    reference: NotRequired[ModelName | None]  # model whose outputs are the reference; null: none


class ProviderPart(TypedDict):
    """The part of one execution provider in a run."""

    nodes: int | None  # nodes assigned by ONNX Runtime
    ran_nodes: int  # nodes that ran, after fusions
    time_s: float  # time in a typical run


class InputDescription(TypedDict):
    """Description of one input."""

    name: str
    dtype: str
    shapes: list[list[int]]  # all shapes used; -1: the size comes from a file
    values: str  # source of the values, as text


class ModelFacts(TypedDict):
    """The model of a result."""

    name: str
    sha256: str
    precision: str
    variant_of: str  # name of its original; empty: it is an original
    steps: str  # transform steps that created it, as text


class Provenance(TypedDict, total=False):
    """Machine and version that measured a result."""

    environment: wire.Environment | None
    fingerprint: str
    tool_version: str


class TrialNumbers(TypedDict, total=False):
    """The keys of a result that, as those of `Provenance`, `--json` always prints, null without a value."""

    role: Role
    contrasts: list[ContrastRecord]  # this trial versus the baseline, then versus the ORT default
    grade: Grade  # grade of its comparison
    grade_reason: str
    remedy: str  # how to improve the grade; empty: no action needed
    busy: Busy | None  # background load; null: none
    generations: int  # number of launches
    requested_providers: list[str]
    effective_providers: list[str]  # execution providers that ONNX Runtime loaded
    fallback: bool  # nodes ran on another execution provider than requested
    placement: dict[str, ProviderPart] | None  # execution provider -> its part of a run
    batch_size: int  # batch size used
    runs: int  # timed runs
    latencies_s: list[float]  # all timed runs, in order
    blocks: list[Block]
    warmup_latencies_s: list[float]
    steady: bool | None  # false: the warm-up ended before the latency was steady
    session_creation_s: float
    first_run_s: float
    new_shapes: list[NewShape]
    latency: Latency
    throughput_per_s: float | None  # samples/s: batch size / mean latency; of streams: over common windows
    cpu_s_per_inference: float | None  # user and system time of one inference
    idle_cpu_s: float | None  # CPU time used in `idle_wall_s` after a run, while idle
    idle_wall_s: float | None
    energy_j_per_inference: float | None
    energy_note: str
    load_peak_rss_bytes: int  # peak above `baseline_rss_bytes`, up to the end of the first run
    peak_rss_bytes: int  # the larger of `load_peak_rss_bytes` and `run_peak_rss_bytes`
    gpu_memory_bytes: int | None
    affinity: list[int]  # CPUs that the process may use
    output_error: wire.OutputError | None
    guard: Guard
    interference: Interference
    seed: int  # seed of random inputs


class TrialResult(TrialNumbers, Provenance, total=False):
    """Measurements of one configuration. A profile has `profile` and related keys instead of latencies."""

    model: ModelFacts | None
    comparison: str
    fallback_reason: str
    casts: dict[str, Any] | None  # float16/float32 conversions in the optimized graph
    inputs: list[wire.TensorInfo]
    outputs: list[wire.TensorInfo]
    timed_wall_s: float
    streams: StreamFacts  # absent: one caller
    throughput_per_s_low: float | None  # present in a comparison with several streams
    throughput_per_s_high: float | None
    cpu_s_per_inference_low: float | None
    cpu_s_per_inference_high: float | None
    baseline_rss_bytes: int  # resident memory after the imports, before the model is loaded
    run_peak_rss_bytes: int | None  # peak above `baseline_rss_bytes` during the timed runs
    libraries: dict[str, str]
    fed: list[InputDescription]  # its inputs
    notes: list[str]
    # profile only: execution provider -> nodes, before late fusions; empty: ONNX Runtime does not tell
    assigned_nodes: dict[str, int]
    profile: dict[str, Any]  # profile only: nodes with their times, and a timeline
    overhead: dict[str, float | None] | None  # profile only: overhead of the profiler
    load: dict[str, Any]  # load test only: its result, a `LoadResult`
    requests: list[dict[str, Any]]  # load test only: times of every request, for each run
    unprofiled_latencies_s: list[float]
    trace: str  # file name of ONNX Runtime's trace, in the folder of the store
    samples_pruned_at: float  # when raw measurements were pruned, seconds since the epoch


# --- a comparison ---------------------------------------------------------------------------------------


class LaunchRecord(TypedDict):
    """A launch: all configurations in fresh processes, with the rounds that they ran."""

    generation: int
    rounds: int
    start_s: float  # time to start all processes
    order: list[str]  # start order; suffix `/1`: the A/A control
    layouts: dict[str, wire.Layout]  # process -> its random memory layout


class Rank(TypedDict):
    """Ranks of a configuration consistent with the intervals against the baseline; 1 is the fastest."""

    trial: str
    rank: int  # best possible rank: 1 + configurations with an interval entirely above its own
    rank_worst: NotRequired[int]  # worst possible rank: all but those with an interval entirely below it
    ties: list[str]  # trials with an interval that overlaps its own


class DiscardedRound(TypedDict):
    """A discarded round with its latencies."""

    reason: str
    blocks: list[dict[str, Any]]


class ComparisonResult(Provenance, total=False):
    """Result of a comparison."""

    rounds: int
    generations: list[LaunchRecord]
    wall_s: float
    outcome: Outcome  # reason for the stop
    outcome_text: str
    statistic: Statistic  # that the ratios compare; absent: the median
    orders: list[list[str]]  # order of the trials in each round
    contrasts: list[ContrastRecord]
    ranks: list[Rank]  # empty: the comparison has no valid ranking
    grade: Grade
    grade_reason: str
    remedy: str
    busy: Busy | None
    self_tests: list[SelfTest]
    interference: Interference
    breaches: dict[str, str]  # trial -> why its output check failed
    frozen: bool  # processes that were not timed were stopped with SIGSTOP
    groups: list[list[str]]  # trials that were in memory at the same time
    discarded: list[DiscardedRound]
    notes: list[str]


class SelfTestResult(SelfTest):
    """A separate A/A test, with the noise of the machine."""

    seconds_per_generation: NotRequired[float]
    rounds_per_generation: NotRequired[float]
    grade: Grade
    grade_reason: str
    remedy: str
    busy: NotRequired[Busy | None]
    interference: Interference
    environment: wire.Environment | None
    fingerprint: str


# --- a search -------------------------------------------------------------------------------------------

SearchOutcome = Literal["FOUND", "NO_DIFFERENCE", "NONE_KEEPS_LIMITS", "UNDECIDED", "REJECTED"]


class SpeedUpNumbers(TypedDict):
    """Improvement of a configuration over the ORT default; above 1 is better for every metric."""

    metric: str
    ratio: float
    ratio_low: float | None  # lower bound of the 95 % interval; null: unknown
    ratio_high: float | None
    verdict: Verdict  # FASTER: better, SLOWER: worse


class LimitJudged(TypedDict):
    """One constraint, and whether a configuration meets it."""

    limit: str  # the constraint, as text
    state: Literal["MET", "MISSED", "UNKNOWN"]
    probability: float | None  # probability that it is met; null: not measured
    value: float | None  # seconds, bytes, shares of 1
    low: float | None
    high: float | None
    why: str


class Confirmed(TypedDict):
    """A configuration compared with the ORT default in a confirmation run of fresh processes."""

    trial: str
    comparison: str
    changes: dict[str, Any]  # settings that differ from ONNX Runtime's default
    spec: dict[str, Any]
    gain: SpeedUpNumbers  # speed-up in the objective
    contrast: ContrastRecord | None  # ratio of the p50 within rounds
    gains: list[SpeedUpNumbers]  # speed-up in every measured metric
    limits: list[LimitJudged]
    measurements: dict[str, float]  # metric -> seconds, bytes, samples per second
    error: str  # why it cannot be the answer; empty: it can


class FailureGroup(TypedDict):
    """Configurations of a search that failed, or exceeded an output tolerance, for the same reason."""

    count: int
    reason: str
    settings: dict[str, Any]  # settings that all of them have and no working configuration has


class FrontPoint(TypedDict):
    """A point of the Pareto front: none is significantly better in one metric and no worse in the others."""

    changes: dict[str, Any]
    trial: str  # trial of its latest measurement
    gains: list[SpeedUpNumbers]
    values: dict[str, float]


class EffectRecord(TypedDict):
    """Effect of a setting's value compared with the start's value, averaged over the other settings."""

    setting: str
    value: Any
    against: Any
    ratio: float
    ratio_low: float
    ratio_high: float


class PairRecord(TypedDict):
    """Interaction of two values: their joint effect beyond the sum of their single effects."""

    settings: list[str]
    values: list[Any]
    ratio: float
    ratio_low: float
    ratio_high: float


class Controls(TypedDict):
    """A/A controls: configurations compared with themselves under another name."""

    pairs: int
    apart: int  # pairs with a 95 % interval that excludes 1
    largest: float | None  # ratio farthest from 1; null: no pair


class SpaceFacts(TypedDict):
    """Size of the search space."""

    combinations: int
    distinct: int
    left_out: dict[str, int]  # reason -> combinations equivalent to another one


class SearchCosts(TypedDict):
    """Time costs of a search, from its comparisons."""

    run_s: float  # one inference of the ORT default
    start_s: float  # start of one process: starting, loading, warm-up
    block_s: float  # one block of one process
    runs: int  # smallest number of inferences in a block
    screen_s: float  # screening of one configuration, including its start
    fixed_s: float  # a comparison, excluding its processes
    after_s: float  # work on a confirmed configuration after its rounds


class CoursePoint(TypedDict):
    """The best configuration at one time of a search."""

    at_s: float
    stage: str
    tried: int
    ratio: float | None


class LoadTested(TypedDict):
    """One configuration of a search, run under the traffic that the question asks for, in fresh processes."""

    role: Literal["winner", "survivor", "default"]  # survivor: one of the next best; default: ONNX Runtime's
    trial: str  # ID of the load test; empty: it could not be started
    changes: dict[str, Any]  # settings that differ from ONNX Runtime's default
    spec: dict[str, Any]
    gain: SpeedUpNumbers | None  # speed-up of one caller; of a survivor often an estimate; null: the default
    state: Literal["MET", "MISSED", "UNKNOWN"]
    value: float | None  # share of requests that were slower than the limit
    low: float | None  # one-sided 95 % bounds of that share
    high: float | None
    why: str  # the numbers in words, or why there are none


class SearchUnderLoad(TypedDict):
    """Which of the best configurations of a search passes under the traffic that the question asks for."""

    target: str  # "200/s with p99<=20ms"
    tested: list[LoadTested]  # in the order of their runs, the fastest first, up to the first that passes
    passed: int | None  # index into `tested`; null: none does
    seconds: float  # time of the load tests, which is not part of the budget
    words: str  # the answer in a sentence


class SearchResult(TypedDict):
    """The result of a search with its evidence."""

    outcome: SearchOutcome
    margin: NotRequired[float]  # equivalence margin: smaller relative differences count as none
    objective: dict[str, float]  # metric -> weight
    limits: list[str]
    space: SpaceFacts
    tried: int  # number of evaluated configurations
    failed: int  # evaluated configurations that failed
    failures: NotRequired[list[FailureGroup]]  # reasons for failure, the most frequent first
    remarks: NotRequired[list[str]]  # limitations of the answer
    sought: NotRequired[int]  # promising configurations; absent: the budget was enough for all of them
    enough_s: NotRequired[int]  # budget that is enough for those and a confirmation; absent: it was
    why_open: NotRequired[str]  # why no configuration was confirmed
    costs: NotRequired[SearchCosts]  # costs of the last screening
    load: NotRequired[SearchUnderLoad]  # absent: the question asks for no traffic
    winner: Confirmed | None
    default: Confirmed | None  # ONNX Runtime's default in the same comparison
    others: list[Confirmed]  # other configurations of the confirmation run, rejected ones included, in order
    front: list[FrontPoint]
    effects: list[EffectRecord]
    pairs: list[PairRecord]
    controls: Controls
    course: list[CoursePoint]
    grade: Grade | None  # grade of the confirmation run
    busy: Busy | None
    budget_s: float
    wall_s: float
    own_s: float  # part of `wall_s` in which the search itself computed and stored
    strategy: str
    notes: list[str]
