"""Types of the stored and printed results of trials, comparisons, searches and verifications.

The store and `--json` use these keys. `core.show.schema` generates the JSON Schema; the comment behind a key
becomes its description. Keys are never renamed. Results of earlier versions lack some keys, so readers use
`get` for these. Units are seconds, bytes and shares of 1 unless a comment says otherwise.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from core import wire
from core.evidence.verdict import Grade, Verdict
from core.wire.output_check import Judged

Role = Literal["candidate", "baseline", "anchor"]  # anchor: ONNX Runtime's default, in every round
Source = Literal["race", "search", "history", "assumed"]  # where the spread between processes is known from
Outcome = Literal["decided", "rounds", "hopeless", "budget", "disturbed", "cancelled"]


# --- a ratio --------------------------------------------------------------------------------------------


class ContrastNumbers(TypedDict):
    """A ratio with its interval and verdict. Bounds are null where they cannot be estimated."""

    ratio: float  # speed against the baseline: above 1 is faster
    ratio_low: float | None  # of the 95 % interval for new processes, which `protocol.family` of them share
    ratio_high: float | None
    verdict: Verdict
    rounds: int
    generations: NotRequired[int]  # of fresh processes; absent: one pair of processes, by an earlier version
    sigma: float | None  # robust standard deviation of one round's log ratio within a launch
    sigma_between: NotRequired[float | None]  # the same between fresh processes; null: not told apart
    between_from: NotRequired[Source]  # where that is known from
    half_width: float | None  # of the interval, as a share of the ratio
    within_half_width: NotRequired[float | None]  # its part that more rounds would narrow; the squares add up
    between_half_width: NotRequired[float | None]  # its part that only more processes would narrow
    standard_error: NotRequired[float | None]  # of the log ratio
    df: NotRequired[float | None]  # degrees of freedom of the interval
    drifting: bool  # the log ratio itself moved from the first launches to the last
    margin: NotRequired[float]  # within which a difference counts as none
    interval_budget_s: NotRequired[int]  # seconds that hold an interval, where one launch of each gives none


class ContrastRecord(ContrastNumbers):
    """A candidate compared with a baseline, and whether the verdict is valid."""

    candidate: str  # trial
    baseline: str  # trial
    holds: NotRequired[bool]  # false: the A/A test does not let the verdict stand, which is UNDECIDED then
    holds_reason: NotRequired[str]
    grade: NotRequired[Grade]  # how fine the answer is; F: it must not be believed
    wall_s: NotRequired[float]
    per_row: bool  # the sides fed different numbers of rows: the ratio is per row
    flagged_rounds: int  # that something disturbed
    without_flagged: ContrastNumbers | None  # of the other rounds; null: too few, or none is flagged
    contradicted: NotRequired[bool]  # the two decide differently, so that the interval spans both
    outputs_differ: bool | None  # of the candidate from what they should be, or between two models
    something_else: NotRequired[str]  # why two different models do not compute the same; empty: they do
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
    excess_between: NotRequired[float | None]  # variance between processes beyond what rounds explain
    log_ratios: list[float]  # of every round
    run_s: NotRequired[float]  # a typical run


# --- background load ------------------------------------------------------------------------------------


class Program(TypedDict):
    """A program that used CPUs during the run."""

    name: str
    cores: float  # CPU seconds per second


class Presence(TypedDict):
    """CPU use of other processes during the run."""

    cores: float  # all of them together
    programs: list[Program]  # that count, largest first; the rest comes last


class Busy(TypedDict):
    """Background load of a run; every display of its numbers includes it."""

    words: str
    cores: float  # that others used
    programs: list[Program]
    steal_share: float | None  # of the CPU time asked for, that the hypervisor kept
    reasons: list[str]  # names of counters that show it


class Interference(TypedDict):
    """Disturbances of a run. Shares are of its blocks unless noted; null: not readable on this system."""

    blocks: int
    flagged_share: float  # with any flag
    disturbed_share: float  # by a cause: another program, steal, a CPU quota
    shares: dict[str, float]  # flag -> share; flags that never came up are absent
    run_flags: list[str]  # what marks the whole run
    foreign_cpus: float | None  # CPUs that others used, on average
    neighbour_cpus: NotRequired[float | None]  # the same in the blocks that they disturbed
    steal_share: float | None  # of the CPU time asked for
    pressure_share: float | None  # of the time in which some task waited for a CPU
    throttled_periods: int | None
    throttled_s: float | None
    canary_spread: float | None  # robust standard deviation over the median of a fixed piece of work
    foreign_gpu_processes: int


# --- a trial --------------------------------------------------------------------------------------------


class Block(TypedDict):
    """Consecutive runs of one configuration in one round."""

    generation: NotRequired[int]
    copy: NotRequired[int]  # 1: the A/A control, a second process of the ORT default
    round: int
    position: int  # in the order of its round
    at_s: float  # since the comparison began
    runs: int
    refill_s: float | None  # a run before, which fills the caches; in no statistic
    median_s: float
    counters: wire.Counters
    flags: list[str]  # what disturbed it, by its counters alone


class Latency(TypedDict):
    """Latency statistics of timed runs with 95 % intervals; null: too few runs."""

    mean_s: float | None  # of a usual process: the 20 % trimmed mean of those of all processes
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
    needs_runs: dict[str, int]  # percentile without a number or an upper bound -> runs that it takes in all
    needs_rounds: NotRequired[dict[str, int]]  # percentile -> rounds that it would take in all
    processes: NotRequired[int]  # that made the runs; the interval of the mean holds for new ones from 2 on


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
    reference: NotRequired[ModelName | None]  # that they are held against


class ProviderPart(TypedDict):
    """The part of one execution provider in a run."""

    nodes: int | None  # assigned by ONNX Runtime
    ran_nodes: int  # left after fusions
    time_s: float  # of a typical run


class FedInput(TypedDict):
    """Description of one input."""

    name: str
    dtype: str
    shapes: list[list[int]]  # each that was fed; -1: a size that a file brings along
    values: str  # where they come from, in words


class ModelFacts(TypedDict):
    """The model of a result."""

    name: str
    sha256: str
    precision: str
    variant_of: str  # name of its original; empty: it is one
    steps: str  # that made it, in words


class Provenance(TypedDict, total=False):
    """Machine and version that measured a result."""

    environment: wire.Environment | None
    fingerprint: str
    tool_version: str


class TrialResult(Provenance, total=False):
    """Measurements of one configuration. A profile has `profile` and related keys instead of latencies."""

    model: ModelFacts | None
    comparison: str
    role: Role
    contrasts: list[ContrastRecord]  # of which it is the candidate: against the baseline, then the default
    grade: Grade  # of its comparison
    grade_reason: str
    remedy: str  # what would make it finer; empty: nothing must be done
    busy: Busy | None  # null: the machine was quiet
    generations: int  # of fresh processes
    requested_providers: list[str]
    effective_providers: list[str]  # that really loaded
    fallback: bool  # another provider than the one asked for ran it
    fallback_reason: str
    placement: dict[str, ProviderPart] | None  # provider -> what it computed
    casts: dict[str, Any] | None  # conversions between float16 and float32 in the graph that ran
    batch_size: int  # rows really fed
    inputs: list[wire.TensorInfo]
    outputs: list[wire.TensorInfo]
    runs: int  # timed ones
    latencies_s: list[float]  # of every timed run, in order
    blocks: list[Block]
    warmup_latencies_s: list[float]
    steady: bool | None  # false: the warm-up ended before the latency was steady
    session_creation_s: float
    first_run_s: float
    new_shapes: list[NewShape]
    latency: Latency
    throughput_per_s: float | None  # rows fed by a run over the mean latency
    timed_wall_s: float
    cpu_s_per_inference: float | None  # user and system time of a run
    cpu_s_per_inference_low: float | None
    cpu_s_per_inference_high: float | None
    idle_cpu_s: float | None  # CPU time burnt in `idle_wall_s` after a run, when nothing was asked of it
    idle_wall_s: float | None
    energy_j_per_inference: float | None
    energy_note: str
    baseline_rss_bytes: int  # after the imports, before the model
    load_peak_rss_bytes: int  # added by the session above the baseline, up to the end of the first run
    run_peak_rss_bytes: int | None  # the same, of runs
    peak_rss_bytes: (
        int  # added by the session: the larger of the two; the process's peak has the baseline, too
    )
    gpu_memory_bytes: int | None
    affinity: list[int]  # CPUs it could use
    output_error: wire.OutputError | None
    guard: Guard
    interference: Interference
    libraries: dict[str, str]
    seed: int  # of random feeds
    fed: list[FedInput]
    notes: list[str]
    assigned_nodes: dict[str, int]  # of a profile: provider -> nodes, before late fusions
    profile: dict[str, Any]  # of a profile: nodes with their times, and a timeline
    overhead: dict[str, float | None] | None  # of a profile: what the profiler costs
    unprofiled_latencies_s: list[float]
    trace: str  # file name of ONNX Runtime's trace, beside the store
    samples_pruned_at: float  # seconds since the epoch: raw samples were dropped then


# --- a comparison ---------------------------------------------------------------------------------------


class LaunchRecord(TypedDict):
    """A launch: all configurations in fresh processes, with the rounds that they ran."""

    generation: int
    rounds: int
    start_s: float  # that starting everybody took
    order: list[str]  # of starting; `/1` behind a trial: the A/A control
    layouts: dict[str, wire.Layout]  # process -> its drawn layout of memory


class Rank(TypedDict):
    """Ranks of a configuration consistent with the intervals against the baseline; 1 is the fastest."""

    trial: str
    rank: int  # best possible rank: 1 + the number whose whole interval is above its own
    rank_worst: NotRequired[int]  # worst possible rank: all but those whose whole interval is below its own
    ties: list[str]  # trials whose intervals overlap its own


class DiscardedRound(TypedDict):
    """A discarded round with its latencies."""

    reason: str
    blocks: list[dict[str, Any]]


class ComparisonResult(Provenance, total=False):
    """Result of a comparison."""

    rounds: int
    generations: list[LaunchRecord]
    wall_s: float
    outcome: Outcome  # why it stopped
    outcome_text: str
    orders: list[list[str]]  # trials in the order of each round
    contrasts: list[ContrastRecord]
    ranks: list[Rank]  # empty where nobody may be ranked
    grade: Grade
    grade_reason: str
    remedy: str
    busy: Busy | None
    self_tests: list[SelfTest]
    interference: Interference
    breaches: dict[str, str]  # trial -> why its outputs are not what they should be
    frozen: bool  # those who waited were stopped, so that their threads disturbed nobody
    groups: list[list[str]]  # trials whose memory was held at once
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
    ratio_low: float | None  # of the 95 % interval; null: not known
    ratio_high: float | None
    verdict: Verdict  # FASTER: better, SLOWER: worse


class LimitJudged(TypedDict):
    """One constraint, and whether a configuration meets it."""

    limit: str  # in words
    state: Literal["MET", "MISSED", "UNKNOWN"]
    probability: float | None  # that it is kept; null: nothing was measured
    value: float | None  # seconds, bytes, shares of 1
    low: float | None
    high: float | None
    why: str


class Confirmed(TypedDict):
    """A configuration compared with the ORT default in a confirmation run of fresh processes."""

    trial: str
    comparison: str
    changes: dict[str, Any]  # what it sets otherwise than ONNX Runtime's default
    spec: dict[str, Any]
    gain: SpeedUpNumbers  # of the objective
    contrast: ContrastRecord | None  # of the p50 within rounds
    gains: list[SpeedUpNumbers]  # of every metric that is known
    limits: list[LimitJudged]
    measurements: dict[str, float]  # metric -> seconds, bytes, rows a second
    error: str  # why it is no answer; empty: it may be one


class FailureGroup(TypedDict):
    """Configurations of a search that failed, or exceeded an output tolerance, for the same reason."""

    count: int
    reason: str
    settings: dict[str, Any]  # that all of them have, and none that worked


class FrontPoint(TypedDict):
    """A point of the Pareto front: none is significantly better in one metric and no worse in the others."""

    changes: dict[str, Any]
    trial: str  # newest look at it
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
    apart: int  # whose 95 % interval does not hold 1
    largest: float | None  # ratio farthest from 1; null: there was none


class SpaceFacts(TypedDict):
    """Size of the search space."""

    combinations: int
    distinct: int
    left_out: dict[str, int]  # reason -> combinations equivalent to another one


class SearchCosts(TypedDict):
    """Time costs of a search, from its comparisons."""

    run_s: float  # one inference of the default
    start_s: float  # one process: starting, loading, warming up
    block_s: float  # one block of one process
    runs: int  # inferences of a block, the fewest
    screen_s: float  # one configuration in screening, its start included
    fixed_s: float  # a comparison, beside its processes
    after_s: float  # what is found out of a confirmed configuration after its rounds


class CoursePoint(TypedDict):
    """The best configuration at one time of a search."""

    at_s: float
    stage: str
    tried: int
    ratio: float | None


class SearchResult(TypedDict):
    """The result of a search with its evidence."""

    outcome: SearchOutcome
    margin: NotRequired[float]  # relative difference that counts as none
    objective: dict[str, float]  # metric -> weight
    limits: list[str]
    space: SpaceFacts
    tried: int
    failed: int  # of those
    failures: NotRequired[list[FailureGroup]]  # why, the most frequent reason first
    remarks: NotRequired[list[str]]  # what must be known before the answer is read
    sought: NotRequired[int]  # configurations worth a look; only where the time held fewer
    enough_s: NotRequired[int]  # time that is enough for those and a confirmation; only where there was less
    why_open: NotRequired[str]  # why nothing was confirmed
    costs: NotRequired[SearchCosts]  # of its last screening
    winner: Confirmed | None
    default: Confirmed | None  # ONNX Runtime's default in the same comparison
    others: list[Confirmed]  # that were confirmed, too, or turned down, the first one first
    front: list[FrontPoint]
    effects: list[EffectRecord]
    pairs: list[PairRecord]
    controls: Controls
    course: list[CoursePoint]
    grade: Grade | None  # of the comparison that confirmed it
    busy: Busy | None
    budget_s: float
    wall_s: float
    own_s: float  # of it, that the search itself computed and stored
    strategy: str
    notes: list[str]


# --- a verification -----------------------------------------------------------------------------------------


class CheckedFact(TypedDict):
    """One fact checked without measuring."""

    name: str
    state: Literal["OK", "NO", "NOTE", "UNKNOWN"]  # NOTE: it runs, but is not what was recorded
    recorded: str
    here: str
    why: str


class VerificationPart(TypedDict):
    """One of the three parts of a verification, with its reason."""

    state: str
    why: str


class RatioRecord(TypedDict):
    """Speed-up in one comparison; above 1 is faster."""

    ratio: float
    low: float | None  # of the 95 % interval; null: not known
    high: float | None
    doubt: str  # why its comparison is invalid; empty: it is valid


class QuotientRecord(TypedDict):
    """A quotient of two independent estimates, with its 95 % interval."""

    ratio: float
    low: float
    high: float


class TransferRecord(TypedDict):
    """A recorded speed-up compared with the same speed-up on this machine."""

    against: str
    recorded: RatioRecord
    here: RatioRecord | None  # null: it was not measured
    between: QuotientRecord | None  # here over recorded
    state: Literal["HOLDS", "DIFFERS", "UNDECIDED", "NOT_MEASURED"]
    why: str


class ChangeRecord(TypedDict):
    """A configuration compared with an earlier baseline of the same machine."""

    between: QuotientRecord | None  # speed now over speed then, per row
    raw: QuotientRecord | None  # before the speed of the CPUs was taken into account
    cpus: float | None  # speed of a core now over then
    limit: float  # slower by this share is too slow
    passed: NotRequired[bool]  # the interval excludes a larger slow-down
    state: Literal["HOLDS", "DIFFERS", "UNDECIDED", "NOT_MEASURED"]
    why: str
    changed: list[str]  # what is not the same as then
