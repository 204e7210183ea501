"""The raw record of a comparison: its plans and options, and the measured blocks and costs.

Pure data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core import wire
from core.evidence.other_processes import OtherProcesses
from core.evidence.result_types import Outcome
from core.evidence.speedup_interval import ASSUMED_PRIOR, Prior
from core.spec.effort import Effort
from core.wire.errors import TunerError

Key = tuple[int, int]  # a process: configuration, copy; the ORT default has copies 0 and 1, others copy 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The model whose outputs are the reference, and the plan to run it."""

    model: str  # name
    sha256: str  # of the content
    plan: wire.ContestantPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configuration of a comparison."""

    label: str
    plan: wire.ContestantPlan
    shapes: Sequence[wire.FeedPlan] = ()  # other shapes, whose first run is timed separately
    fresh_process: bool = False  # not forked, as GPU libraries and PyTorch require
    reference: Reference | None = None  # None: the reference outputs are unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of a comparison. `baseline` and `anchor` (ORT default) are indices of entries, maybe equal."""

    effort: Effort
    budget_s: float  # wall time of the comparison: starts, warm-ups, rounds and the passes after them
    margin: float
    seed: int
    timeout_s: float  # for loading and warming up one configuration
    baseline: int
    anchor: int
    runs: int | None = None  # fixed number of timed runs of each; None: until the comparison is decided
    least: int = 0  # minimum number of launches before it stops as decided
    family: int = 1  # contrasts whose intervals hold together, so that ranks follow; 1: each alone
    splits: float | None = None  # divisor of the 5 % of an interval; None: the number of interim analyses
    prior_at: Callable[[float], Prior] = lambda run_s: ASSUMED_PRIOR  # prior by the duration of a run


@dataclass(slots=True, kw_only=True)
class ProcessResult:
    """Replies of one configuration. After an `error`, it keeps the replies that came before."""

    load: wire.LoadReply | None = None
    warm: wire.WarmReply | None = None
    cost: wire.CostReply | None = None
    footprint: wire.FootprintReply | None = None
    load_peak_rss_bytes: int | None = None
    shapes: list[wire.NewShape] = field(default_factory=list)
    output_error: wire.OutputError | None = None  # relative to the reference outputs
    not_compared: str = ""  # reason why there is no `output_error`, a sentence
    energy_j_per_run: float | None = None
    notes: list[str] = field(default_factory=list)
    error: TunerError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The runs of one process in one round. `at_s` counts from the first block of the comparison."""

    contestant: int
    copy: int  # of the configuration; 1: the A/A control
    generation: int
    round: int  # counted over the whole comparison
    position: int
    at_s: float
    refill_s: float | None  # None: runs are so long that none is used to refill the caches
    latencies_s: list[float]  # of several streams: stream by stream
    counters: wire.Counters
    window_s: float | None = None  # in which all streams ran; None: measured by an earlier version
    # Of several streams only; for each:
    stream_runs: tuple[int, ...] = ()  # runs
    stream_completed: tuple[float, ...] = ()  # runs in the window
    stream_refills_s: tuple[float, ...] = ()  # uncounted first run


@dataclass(slots=True, kw_only=True)
class Launch:
    """A launch: one set of fresh processes, with their start order and random memory layouts."""

    number: int
    order: list[Key]
    layouts: dict[Key, wire.Layout]
    start_s: float  # time for starting, loading and warming up
    rounds: int = 0  # valid rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """A round discarded because of its counters; its latencies are kept."""

    reason: str
    blocks: list[Block]


@dataclass(slots=True, kw_only=True)
class RawComparison:
    """The raw record of a comparison. Blocks are in run order."""

    ran: list[ProcessResult]
    runs: int | None = None  # fixed number of runs per process; the A/A control makes as many of its own
    blocks: list[Block] = field(default_factory=list)
    orders: list[list[int]] = field(default_factory=list)  # configurations of each valid round
    generations: list[Launch] = field(default_factory=list)
    discarded: list[Discarded] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)  # configurations in memory at the same time
    outcome: Outcome = "rounds"
    by_throughput: bool = False  # one has several streams, so throughput is the statistic of every block
    frozen: bool = True  # False: parked workers kept running
    energy_note: str = ""
    wall_s: float = 0.0
    interval_budget_s: int | None = None  # budget for two launches of each; None: no budget was set
    prior: Prior = ASSUMED_PRIOR  # prior that the comparison used
    other_processes: OtherProcesses | None = None  # CPU use of other processes; None: not known
    notes: list[str] = field(default_factory=list)
