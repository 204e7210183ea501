"""What a race is asked and what it answers: entries and settings in, raw blocks and facts out. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from core import wire
from core.contrast import Precision
from core.errors import TunerError

Outcome = Literal["decided", "rounds", "budget", "hopeless", "disturbed", "cancelled"]
When = Literal["before", "during", "after", "alone"]


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

    precision: Precision
    budget_s: float  # of self-tests and rounds; loading is not counted
    margin: float
    seed: int
    timeout_s: float  # for loading and warming up one contestant
    baseline: int
    anchor: int
    runs: int | None = None  # exactly so many timed runs of each; None: until the answer is known


@dataclass(slots=True, kw_only=True)
class Ran:
    """What one contestant answered; `error` ends its part, and what was found before stays."""

    load: wire.LoadReply | None = None
    warm: wire.WarmReply | None = None
    cost: wire.CostReply | None = None
    footprint: wire.FootprintReply | None = None
    load_peak_rss_bytes: int | None = None
    shapes: list[dict[str, Any]] = field(default_factory=list)  # batch_size, first_run_ns, next_run_ns
    output_error: wire.OutputError | None = None  # against those of its reference
    not_compared: str = ""  # why there is no `output_error`, in a sentence
    energy_j_per_run: float | None = None
    notes: list[str] = field(default_factory=list)
    error: TunerError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One contestant's runs of one round. `at_s` counts from the first block of the race."""

    contestant: int
    round: int
    position: int
    at_s: float
    refill_s: float
    latencies_s: list[float]
    counters: wire.Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """The same configuration in two processes: paired log-ratios, whose truth is zero."""

    when: When
    log_ratios: list[float]
    counters: list[wire.Counters]
    seconds_per_round: float
    frozen: bool = True  # False: the one that waited went on running


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """A round that does not count, by what its counters say; its samples are kept."""

    reason: str
    blocks: list[Block]


@dataclass(slots=True, kw_only=True)
class RaceRecord:
    """All that happened. Blocks are in the order in which they ran."""

    ran: list[Ran]
    blocks: list[Block] = field(default_factory=list)
    orders: list[list[int]] = field(default_factory=list)  # of each round that counts
    discarded: list[Discarded] = field(default_factory=list)
    self_tests: list[SelfTest] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)  # contestants that were alive together
    outcome: Outcome = "rounds"
    frozen: bool = True  # False: parked workers went on running
    energy_note: str = ""
    wall_s: float = 0.0
    notes: list[str] = field(default_factory=list)
