"""The raw record of a comparison: plan and options in, blocks and facts out.

Pure data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core import wire
from core.evidence.contrast import ASSUMED, Prior
from core.evidence.other_processes import Neighbours
from core.evidence.result_types import Outcome
from core.spec.effort import Effort
from core.wire.errors import TunerError

Key = tuple[int, int]  # a process: contestant, and which copy of it; the anchor has two, the others copy 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The model whose outputs are right by definition, and how it is run."""

    model: str  # its name
    sha256: str  # of its content
    plan: wire.ContestantPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One contestant of a race."""

    label: str
    plan: wire.ContestantPlan
    shapes: Sequence[wire.FeedPlan] = ()  # other shapes, whose first run is timed apart
    fresh_process: bool = False  # not forked, as GPU libraries and PyTorch need it
    reference: Reference | None = None  # None: nobody knows what its outputs should be


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to race. `baseline` and `anchor` are indices of entries, and may be the same."""

    effort: Effort
    budget_s: float  # wall time of the race: starts, warm-ups, rounds and what is found after them
    margin: float
    seed: int
    timeout_s: float  # for loading and warming up one contestant
    baseline: int
    anchor: int
    runs: int | None = None  # exactly so many timed runs of each; None: until the answer is known
    least: int = 0  # generations before which it does not stop for being decided
    family: int = 1  # contrasts whose intervals hold together, so that ranks follow from them; 1: each alone
    splits: float | None = None  # by which the 5 % of an interval are divided; None: the number of looks
    prior_at: Callable[[float], Prior] = lambda run_s: ASSUMED  # the spread between processes, by run_s


@dataclass(slots=True, kw_only=True)
class Ran:
    """What one contestant answered; `error` ends its part, and what was found before stays."""

    load: wire.LoadReply | None = None
    warm: wire.WarmReply | None = None
    cost: wire.CostReply | None = None
    footprint: wire.FootprintReply | None = None
    load_peak_rss_bytes: int | None = None
    shapes: list[wire.NewShape] = field(default_factory=list)
    output_error: wire.OutputError | None = None  # against those of its reference
    not_compared: str = ""  # why there is no `output_error`, in a sentence
    energy_j_per_run: float | None = None
    notes: list[str] = field(default_factory=list)
    error: TunerError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One process's runs of one round. `at_s` counts from the first block of the race."""

    contestant: int
    copy: int  # of the contestant: its A/A twin is 1
    generation: int
    round: int  # counted over the whole race
    position: int
    at_s: float
    refill_s: float | None  # None: runs so long that no run is spent on filling the caches
    latencies_s: list[float]
    counters: wire.Counters


@dataclass(slots=True, kw_only=True)
class Generation:
    """One set of fresh processes: the order in which they were started, and the layout that each drew."""

    number: int
    order: list[Key]
    layouts: dict[Key, wire.Layout]
    start_s: float  # that starting, loading and warming up took
    rounds: int = 0  # that count


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """A round that does not count, by what its counters say; its samples are kept."""

    reason: str
    blocks: list[Block]


@dataclass(slots=True, kw_only=True)
class RaceRecord:
    """All that happened. Blocks are in the order in which they ran."""

    ran: list[Ran]
    runs: int | None = None  # of each process, where their number was given; those of a twin are beside it
    blocks: list[Block] = field(default_factory=list)
    orders: list[list[int]] = field(default_factory=list)  # contestants of each round that counts
    generations: list[Generation] = field(default_factory=list)
    discarded: list[Discarded] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)  # contestants that were alive together
    outcome: Outcome = "rounds"
    frozen: bool = True  # False: parked workers went on running
    energy_note: str = ""
    wall_s: float = 0.0
    interval_budget_s: int | None = None  # that holds two launches of each; None: it was given no budget
    prior: Prior = ASSUMED  # that the race used
    neighbours: Neighbours | None = None  # who else used the CPUs; None: not known
    notes: list[str] = field(default_factory=list)
