"""The documents that are kept and printed: results of trials and comparisons, key by key.

What stands here is what the store holds and `--json` prints; `core.show.schema` makes the JSON Schema of it,
in which the comment behind a key describes it. Keys are never renamed: results of earlier versions lack some,
so a reader asks for what may be missing with `get`. Seconds, bytes and shares of 1 unless a comment says so.
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
    """A ratio with its interval, and what follows from it. Bounds are null where they cannot be known."""

    ratio: float  # speed against the baseline: above 1 is faster
    ratio_low: float | None  # of the 95 % interval for new processes, which `protocol.family` of them share
    ratio_high: float | None
    verdict: Verdict
    rounds: int
    generations: NotRequired[int]  # of fresh processes; absent: one pair of processes, by an earlier version
    sigma: float | None  # robust standard deviation of one round's log ratio within a generation
    sigma_between: NotRequired[float | None]  # the same between fresh processes; null: not told apart
    between_from: NotRequired[Source]  # where that is known from
    half_width: float | None  # of the interval, as a share of the ratio
    within_half_width: NotRequired[float | None]  # its part that more rounds would narrow; the squares add up
    between_half_width: NotRequired[float | None]  # its part that only more processes would narrow
    standard_error: NotRequired[float | None]  # of the log ratio
    df: NotRequired[float | None]  # degrees of freedom of the interval
    drifting: bool  # the log ratio itself moved from the first generations to the last
    margin: NotRequired[float]  # within which a difference counts as none
    interval_budget_s: NotRequired[int]  # seconds that hold an interval, where one launch of each gives none


class ContrastRecord(ContrastNumbers):
    """A candidate against a baseline, and whether its verdict may be believed."""

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
    """An A/A test: a configuration against its twin, whose true ratio is 1."""

    when: str  # "during" a race, "alone"; earlier versions: "before" and "after" it
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


# --- the machine meanwhile ------------------------------------------------------------------------------


class Program(TypedDict):
    """A program that used CPUs meanwhile."""

    name: str
    cores: float  # CPU seconds per second


class Presence(TypedDict):
    """Who used CPUs meanwhile."""

    cores: float  # all of them together
    programs: list[Program]  # that count, largest first; the rest comes last


class Busy(TypedDict):
    """What made the machine busy: it stands wherever numbers of this run stand."""

    words: str
    cores: float  # that others used
    programs: list[Program]
    steal_share: float | None  # of the CPU time asked for, that the hypervisor kept
    reasons: list[str]  # names of counters that show it


class Interference(TypedDict):
    """What disturbed a run. Shares are of its blocks unless noted; null: not readable here."""

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
    """Runs of one contestant in one round, without a pause."""

    generation: NotRequired[int]
    copy: NotRequired[int]  # 1: of the twin of ONNX Runtime's default
    round: int
    position: int  # in the order of its round
    at_s: float  # since the race began
    runs: int
    refill_s: float | None  # a run before, which fills the caches; in no statistic
    median_s: float
    counters: wire.Counters
    flags: list[str]  # what disturbed it, by its counters alone


class Latency(TypedDict):
    """Numbers of timed runs with their 95 % intervals; null: the runs are too few for it."""

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
    """What a run costs whose batch is another than before."""

    batch_size: int
    first_run_s: float
    next_run_s: float


class ModelName(TypedDict):
    """A model, by name and content."""

    model: str
    sha256: str


class Guard(Judged):
    """Whether the outputs are what they should be."""

    error: NotRequired[wire.OutputError | None]
    reference: NotRequired[ModelName | None]  # that they are held against


class ProviderPart(TypedDict):
    """What one execution provider computed."""

    nodes: int | None  # assigned by ONNX Runtime
    ran_nodes: int  # left after fusions
    time_s: float  # of a typical run


class FedInput(TypedDict):
    """One input that was fed."""

    name: str
    dtype: str
    shapes: list[list[int]]  # each that was fed; -1: a size that a file brings along
    values: str  # where they come from, in words


class ModelFacts(TypedDict):
    """What the model of a result was."""

    name: str
    sha256: str
    precision: str
    variant_of: str  # name of its original; empty: it is one
    steps: str  # that made it, in words


class Provenance(TypedDict, total=False):
    """Where a result was measured, and by which version."""

    environment: wire.Environment | None
    fingerprint: str
    tool_version: str


class TrialResult(Provenance, total=False):
    """What was measured of one configuration. A profile has `profile` and its like instead of latencies."""

    model: ModelFacts | None
    comparison: str
    role: Role
    contrasts: list[ContrastRecord]  # of which it is the candidate: against the baseline, then the default
    grade: Grade  # of its race
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


class GenerationRecord(TypedDict):
    """Everybody in fresh processes, and the rounds that they ran."""

    generation: int
    rounds: int
    start_s: float  # that starting everybody took
    order: list[str]  # of starting; `/1` behind a trial: the twin of ONNX Runtime's default
    layouts: dict[str, wire.Layout]  # process -> its drawn layout of memory


class Rank(TypedDict):
    """The places that the intervals against the baseline leave open for a configuration; 1 is the fastest."""

    trial: str
    rank: int  # the best of them: 1 + how many are surely faster, their whole interval above its own
    rank_worst: NotRequired[int]  # the worst: all but those that are surely slower
    ties: list[str]  # trials that are neither surely faster nor surely slower


class DiscardedRound(TypedDict):
    """A round that does not count, with its samples."""

    reason: str
    blocks: list[dict[str, Any]]


class ComparisonResult(Provenance, total=False):
    """What followed from a race."""

    rounds: int
    generations: list[GenerationRecord]
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
    """An A/A test that was asked for by itself, and what it says of the machine."""

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


class GainNumbers(TypedDict):
    """How much better a configuration is than ONNX Runtime's default; above 1 is better for every metric."""

    metric: str
    ratio: float
    ratio_low: float | None  # of the 95 % interval; null: not known
    ratio_high: float | None
    verdict: Verdict  # FASTER: better, SLOWER: worse


class LimitJudged(TypedDict):
    """One limit, and whether a configuration keeps it."""

    limit: str  # in words
    state: Literal["MET", "MISSED", "UNKNOWN"]
    probability: float | None  # that it is kept; null: nothing was measured
    value: float | None  # seconds, bytes, shares of 1
    low: float | None
    high: float | None
    why: str


class Confirmed(TypedDict):
    """A configuration that raced against ONNX Runtime's default in fresh processes."""

    trial: str
    comparison: str
    changes: dict[str, Any]  # what it sets otherwise than ONNX Runtime's default
    spec: dict[str, Any]
    gain: GainNumbers  # of the objective
    contrast: ContrastRecord | None  # of the p50 within rounds
    gains: list[GainNumbers]  # of every metric that is known
    limits: list[LimitJudged]
    measurements: dict[str, float]  # metric -> seconds, bytes, rows a second
    error: str  # why it is no answer; empty: it may be one


class FailureGroup(TypedDict):
    """Configurations of a search that failed, or were wrong, for one reason."""

    count: int
    reason: str
    settings: dict[str, Any]  # that all of them have, and none that worked


class FrontPoint(TypedDict):
    """A configuration of which none is surely better in one respect and no worse in the others."""

    changes: dict[str, Any]
    trial: str  # newest look at it
    gains: list[GainNumbers]
    values: dict[str, float]


class EffectRecord(TypedDict):
    """What a value of a setting does against the start's, averaged over the others."""

    setting: str
    value: Any
    against: Any
    ratio: float
    ratio_low: float
    ratio_high: float


class PairRecord(TypedDict):
    """What two values do together beyond what each does alone."""

    settings: list[str]
    values: list[Any]
    ratio: float
    ratio_low: float
    ratio_high: float


class Controls(TypedDict):
    """Hidden A/A controls: configurations that raced against themselves under another name."""

    pairs: int
    apart: int  # whose 95 % interval does not hold 1
    largest: float | None  # ratio farthest from 1; null: there was none


class SpaceFacts(TypedDict):
    """What could have been tried."""

    combinations: int
    distinct: int
    left_out: dict[str, int]  # reason -> combinations that are another one's twins


class SearchCosts(TypedDict):
    """What a search spends its time on, as its comparisons have shown it."""

    run_s: float  # one inference of the default
    start_s: float  # one process: starting, loading, warming up
    block_s: float  # one block of one process
    runs: int  # inferences of a block, the fewest
    screen_s: float  # one configuration in screening, its start included
    fixed_s: float  # a comparison, beside its processes
    after_s: float  # what is found out of a confirmed configuration after its rounds


class CoursePoint(TypedDict):
    """The best that was known at some moment."""

    at_s: float
    stage: str
    tried: int
    ratio: float | None


class SearchResult(TypedDict):
    """The answer of a search, with all that it rests on."""

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
    default: Confirmed | None  # ONNX Runtime's default in the same race
    others: list[Confirmed]  # that were confirmed, too, or turned down, the first one first
    front: list[FrontPoint]
    effects: list[EffectRecord]
    pairs: list[PairRecord]
    controls: Controls
    course: list[CoursePoint]
    grade: Grade | None  # of the race that confirmed it
    busy: Busy | None
    budget_s: float
    wall_s: float
    own_s: float  # of it, that the search itself computed and stored
    strategy: str
    notes: list[str]


# --- a verification -----------------------------------------------------------------------------------------


class CheckedFact(TypedDict):
    """One thing that is known without measuring."""

    name: str
    state: Literal["OK", "NO", "NOTE", "UNKNOWN"]  # NOTE: it runs, but is not what was recorded
    recorded: str
    here: str
    why: str


class VerificationPart(TypedDict):
    """One of the three answers, and what it rests on."""

    state: str
    why: str


class RatioRecord(TypedDict):
    """How fast something is against something else; above 1 is faster."""

    ratio: float
    low: float | None  # of the 95 % interval; null: not known
    high: float | None
    doubt: str  # why its race must not be believed; empty: it may


class QuotientRecord(TypedDict):
    """A quotient of two independent estimates, with its 95 % interval."""

    ratio: float
    low: float
    high: float


class TransferRecord(TypedDict):
    """A recorded gain against the same gain here."""

    against: str
    recorded: RatioRecord
    here: RatioRecord | None  # null: it was not measured
    between: QuotientRecord | None  # here over recorded
    state: Literal["HOLDS", "DIFFERS", "UNDECIDED", "NOT_MEASURED"]
    why: str


class ChangeRecord(TypedDict):
    """A configuration now against a baseline that was kept on the same machine."""

    between: QuotientRecord | None  # speed now over speed then, per row
    raw: QuotientRecord | None  # before the speed of the CPUs was taken into account
    cpus: float | None  # speed of a core now over then
    limit: float  # slower by this share is too slow
    passed: NotRequired[bool]  # it is surely not slower by more
    state: Literal["HOLDS", "DIFFERS", "UNDECIDED", "NOT_MEASURED"]
    why: str
    changed: list[str]  # what is not the same as then
