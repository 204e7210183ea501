"""The result of a comparison, computed from its raw record: ratios, grade, ranks, results per configuration.

`Evidence` evaluates a `RawComparison` with the pure functions of `speedup_interval`, `background_load` and
`statistics`: no clock, no file, no worker. No latency is dropped. If rounds are left out of a contrast, only
their counters decide, and both versions are reported. Seconds and bytes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from core import __version__, wire
from core.evidence import result_types
from core.evidence.background_load import (
    busy,
    flag_blocks,
    summarize,
    unusual_speed,
)
from core.evidence.comparison import Contestant
from core.evidence.input_description import describe_inputs
from core.evidence.measurement import latency_summary, latency_warnings
from core.evidence.quality import GradeReport, biased, grade, invalid_reason
from core.evidence.ranking import Key as PerRoundKey
from core.evidence.ranking import PerRound, intervals, paired_log_ratios, ranks
from core.evidence.result_types import (
    ComparisonResult,
    ContrastRecord,
    Interference,
    LaunchRecord,
    Provenance,
    Rank,
    SelfTest,
    SelfTestResult,
    TrialResult,
)
from core.evidence.speedup_interval import (
    Contrast,
    contrast,
    excess_between,
    trimmed_estimate,
    with_joint_interval,
)
from core.evidence.streams import completed, seconds_per_run, stream_facts, throughput_numbers, window_s
from core.evidence.verdict import MIN_LAUNCHES, Grade, Verdict
from core.spec.effort import DEFAULT_MARGIN
from core.wire.errors import WorkerError
from core.wire.output_check import (
    OUTPUTS_DIFFER,
    OutputCheck,
    Pairs,
    check_outputs,
    effective_precision,
    loosest_precision,
    output_difference_words,
)
from core.wire.units import ms

if TYPE_CHECKING:
    from core.evidence.record import Block, Key, Launch, ProcessResult, RawComparison

MAX_RANKED = 32  # configurations; a sweep of hundreds of points is not ranked
CLEAN_ROUNDS, CLEAN_LAUNCHES = 8, 4  # undisturbed rounds and launches needed for a separate verdict
LEAST_WARM_UP = 4  # runs, including the first one; fewer cannot show a steady latency
COPIES = (0, 1)  # possible copies of a configuration in a launch
CLOCK_WARNING = 0.015  # overhead of clock and loop, as a share of a run

OUTCOMES: Mapping[str, str] = {
    "decided": "Every verdict is decided.",
    "rounds": "All planned rounds were run.",
    "hopeless": "Stopped early: more rounds would not have decided it within the budget.",
    "budget": "The time budget was used up.",
    "disturbed": "Stopped early: too many rounds were disturbed.",
    "cancelled": "It was cancelled.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredConfiguration:
    """A configuration of a comparison with its facts from other sources."""

    contestant: Contestant
    precision: str  # of the model, as `output_check` names it
    feeds: wire.FeedPlan
    model: result_types.ModelFacts | None = None
    origin: str = ""  # content hash of the original of its model
    origin_name: str = ""
    notes: tuple[str, ...] = ()  # notes to display with its numbers
    placement: Mapping[str, result_types.ProviderPart] | None = None
    casts: Mapping[str, Any] | None = None
    tolerance: float | None = None  # largest output error that the user allows; None: by precision
    reference: result_types.ModelName | None = None  # {model, sha256} whose outputs are the reference
    session: wire.SessionPlan | None = None  # as requested; None: it computes in the model's precision
    random: tuple[str, ...] = ()  # operators of the model that draw random numbers
    environment: wire.Environment | None = None  # of another runtime than ORTune's own

    @property
    def trial(self) -> str:
        """Id of its trial."""
        return self.contestant.trial


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A comparison with the verdicts, grades and numbers computed from its raw record.

    `baseline` and `anchor` (the ORT default) are indices of configurations. If one of them failed, the other
    takes its place; if both failed, there are no contrasts.
    """

    record: RawComparison
    configurations: Sequence[MeasuredConfiguration]
    looks: float  # divisor of the 5 %, from the number of interim analyses
    margin: float
    baseline: int
    anchor: int
    environment: wire.Environment | None
    comparison: str = ""  # id
    apart: Pairs = field(default_factory=dict)  # output checks between several original models
    usual_s: Sequence[float] = ()  # p50 of the ORT default in earlier comparisons on this machine

    def to_dict(self) -> ComparisonResult:
        """Return the result of the comparison as plain JSON data."""
        record = self.record
        return {
            "rounds": len(record.orders),
            "generations": [self._launch(one) for one in record.generations],
            "wall_s": record.wall_s,
            "outcome": record.outcome,
            "outcome_text": OUTCOMES[record.outcome],
            "statistic": "throughput" if record.by_throughput else "median",
            "orders": [[self.configurations[index].trial for index in order] for order in record.orders],
            "contrasts": self.contrasts,
            "ranks": self._ranks(),
            "grade": self.grade.grade,
            "grade_reason": self.grade.reason,
            "remedy": self.grade.remedy,
            "busy": self.busy,
            "self_tests": [] if self.aa is None else [self._self_test()],
            "interference": self.interference,
            "breaches": {
                configuration.trial: one.why
                for configuration, one in zip(self.configurations, self._verdicts, strict=True)
                if one.breach
            },
            "frozen": record.frozen,
            "groups": [[self.configurations[index].trial for index in group] for group in record.groups],
            "discarded": [
                {"reason": one.reason, "blocks": [self._discarded(block) for block in one.blocks]}
                for one in record.discarded
            ],
            "notes": self.notes,
            **self._provenance(),
        }

    def _self_test(self) -> SelfTest:
        assert self.aa is not None
        runs_s = [
            statistics.median(one.latencies_s) for one in self.record.blocks if one.contestant == self.anchor
        ]
        return {**self_test_dict("during", self.aa, self._aa), "run_s": statistics.median(runs_s)}

    def _launch(self, one: Launch) -> LaunchRecord:
        return {
            "generation": one.number,
            "rounds": one.rounds,
            "start_s": one.start_s,
            "order": [self._process(key) for key in one.order],
            "layouts": {self._process(key): layout for key, layout in one.layouts.items()},
        }

    def _process(self, key: Key) -> str:
        """Return the name of a process in a record: its trial, with the suffix `/1` for the A/A control."""
        return f"{self.configurations[key[0]].trial}{'/1' if key[1] else ''}"

    def _discarded(self, block: Block) -> dict[str, Any]:
        """Return a discarded block with its latencies."""
        trial = self.configurations[block.contestant].trial
        stored = _block(block, [], by_throughput=self.record.by_throughput)
        return {"trial": trial, **stored, "latencies_s": block.latencies_s}

    def _provenance(self) -> Provenance:
        machine = self.environment
        return {
            "environment": machine,
            "fingerprint": machine["fingerprint"] if machine is not None else "",
            "tool_version": __version__,
        }

    # --- contrasts ------------------------------------------------------------------------------------------

    @cached_property
    def contrasts(self) -> list[ContrastRecord]:
        """All configurations compared with the baseline, and with the ORT default if that is another one."""
        references = dict.fromkeys(
            one for one in (self._reference, self.anchor) if one is not None and self._has_result(one)
        )
        return [
            self._contrast(index, reference)
            for reference in references
            for index in range(len(self.configurations))
            if index != reference and self._has_result(index) and self._have_common_round(index, reference)
        ]

    @cached_property
    def _reference(self) -> int | None:
        return next((one for one in (self.baseline, self.anchor) if self._has_result(one)), None)

    def _has_result(self, index: int) -> bool:
        """Whether a configuration has valid numbers: it completed rounds and did not fail."""
        return self.record.ran[index].error is None and bool(self._log_medians[index])

    def _have_common_round(self, one: int, other: int) -> bool:
        """Whether both have a common round."""
        return not self._log_medians[one].keys().isdisjoint(self._log_medians[other])

    def _contrast(self, candidate: int, baseline: int) -> ContrastRecord:
        own, other = self._log_medians[candidate], self._log_medians[baseline]
        found = self._estimate(paired_log_ratios(own, other))
        flagged = (self._flagged[candidate] | self._flagged[baseline]) & own.keys() & other.keys()
        clean = self._without(flagged, own, other) if flagged else None
        rows = [self._rows(one) for one in (candidate, baseline)]
        notes = []
        if rows[0] != rows[1]:
            notes.append(
                f"The batch sizes differ ({rows[0]} and {rows[1]} samples), so times per sample are compared."
            )
        if self.record.by_throughput:
            notes.append("Throughput is compared, because a configuration has several streams.")
        if found.drifting:
            notes.append("The ratio drifted from the first launches to the last.")
        contradicted = clean is not None and _contradict(found, clean)
        if clean is not None and contradicted:
            notes.append(
                f"All {found.rounds} rounds give {found.verdict}, but the {clean.rounds} undisturbed "
                f"rounds alone give {clean.verdict}. The interval covers both."
            )
            found = with_joint_interval(found, clean)
        doubt = invalid_reason(found, self.aa)
        notes += [doubt] if doubt else []
        notes += self._output_notes(candidate, baseline)
        apart, told = self._original_check(candidate, baseline)
        notes += [told] if told else []
        record: ContrastRecord = {
            "candidate": self.configurations[candidate].trial,
            "baseline": self.configurations[baseline].trial,
            **found.to_dict(),
            "verdict": Verdict.UNDECIDED if doubt else found.verdict,
            "holds": not doubt,
            "holds_reason": doubt,
            "grade": Grade.F if doubt else Grade.of(found.half_width, frozen=self.record.frozen),
            "wall_s": self.record.wall_s,
            "per_row": rows[0] != rows[1],
            "statistic": "throughput" if self.record.by_throughput else "median",
            "flagged_rounds": len(flagged),
            "without_flagged": clean.to_dict() if clean is not None else None,
            "contradicted": contradicted,
            "outputs_differ": _or_unknown(
                self._verdicts[candidate].breach, apart is not None and apart.breach
            ),
            "something_else": told if apart is not None and apart.breach is not False else "",
            "notes": notes,
        }
        return self._with_interval_budget(record)

    def _with_interval_budget(self, told: ContrastRecord) -> ContrastRecord:
        """Add the budget that allows an interval, where too few launches give none."""
        enough_s = self.record.interval_budget_s
        if enough_s is not None and told.get("generations", 0) < MIN_LAUNCHES:
            told["interval_budget_s"] = enough_s
        return told

    def _estimate(self, log_ratios: Sequence[Sequence[float]]) -> Contrast:
        return contrast(log_ratios, looks=self.looks, margin=self.margin, prior=self.record.prior)

    def _without(self, flagged: Collection[PerRoundKey], own: PerRound, other: PerRound) -> Contrast | None:
        """Return the contrast without rounds in which either side was disturbed, by counters alone."""
        kept = paired_log_ratios({key: value for key, value in own.items() if key not in flagged}, other)
        if sum(map(len, kept)) < CLEAN_ROUNDS or len(kept) < CLEAN_LAUNCHES:
            return None
        return self._estimate(kept)

    @cached_property
    def aa(self) -> Contrast | None:
        """The A/A control: the ORT default compared with itself, true ratio 1; None: no common round."""
        return contrast(self._aa, margin=DEFAULT_MARGIN, prior=self.record.prior) if self._aa else None

    @cached_property
    def _aa(self) -> list[list[float]]:
        """Log ratios of the A/A test, by launch."""
        return paired_log_ratios(self._of_copy(self.anchor, 1), self._of_copy(self.anchor, 0))

    def _output_notes(self, candidate: int, baseline: int) -> list[str]:
        """Return notes on outputs of the two sides that exceed their tolerance."""
        found = []
        if self._verdicts[candidate].breach:
            found.append(f"{OUTPUTS_DIFFER}: {self._verdicts[candidate].why}")
        if self._verdicts[baseline].breach:
            name = self.configurations[baseline].contestant.label
            found.append(
                f"{OUTPUTS_DIFFER} of `{name}`, the reference of this comparison: "
                f"{self._verdicts[baseline].why}"
            )
        return found

    def _original_check(self, candidate: int, baseline: int) -> tuple[OutputCheck | None, str]:
        """Return the output check between the originals of two sides, with text; None: same original."""
        one, other = self.configurations[candidate], self.configurations[baseline]
        found = self.apart.get((one.origin, other.origin)) or self.apart.get((other.origin, one.origin))
        if found is None or one.origin == other.origin:
            return None, ""
        return found, f"{output_difference_words(one.origin_name, other.origin_name, found)}."

    @cached_property
    def _verdicts(self) -> list[OutputCheck]:
        """The output check of each configuration."""
        found = []
        for configuration, ran in zip(self.configurations, self.record.ran, strict=True):
            unknown = ran.not_compared or _why_not_compared(self.record, configuration)
            found.append(
                check_outputs(
                    ran.output_error,
                    _computed_in(configuration, ran),
                    configuration.tolerance,
                    unknown=unknown,
                    random=configuration.random,
                )
            )
        return found

    def _ranks(self) -> list[Rank]:
        measured = [index for index in range(len(self.configurations)) if self._has_result(index)]
        if self.grade.grade is Grade.F or not 2 <= len(measured) <= MAX_RANKED:
            return []
        assert self._reference is not None
        names = [self.configurations[index].trial for index in measured]
        found = ranks(intervals(self.contrasts, self.configurations[self._reference].trial, names))
        return [
            {"trial": one.name, "rank": one.best, "rank_worst": one.worst, "ties": list(one.ties)}
            for one in found
        ]

    # --- the whole comparison -------------------------------------------------------------------------------

    @cached_property
    def grade(self) -> GradeReport:
        """Precision grade of the comparison; F if no verdict is valid."""
        holding = [one["holds"] for one in self.contrasts]
        rejected = not any(holding) if holding else biased(self.aa)
        reference = None if self._reference is None else self.configurations[self._reference].trial
        widths = [one["half_width"] for one in self.contrasts if one["baseline"] == reference]
        return grade(self.aa, widths, self.interference, rejected=rejected, frozen=self.record.frozen)

    @cached_property
    def busy(self) -> result_types.Busy | None:
        """Background load, and an unusual state of the machine; see `background_load.busy`."""
        own = [
            t for block in self.record.blocks if block.contestant == self.anchor for t in block.latencies_s
        ]
        state = unusual_speed(statistics.median(own) if own else None, self.usual_s)
        return busy(self.interference, self.record.other_processes, state)

    @cached_property
    def interference(self) -> Interference:
        """Disturbances of all blocks."""
        return summarize([block.counters for block in self.record.blocks], self._flags)

    @cached_property
    def notes(self) -> list[str]:
        """Notes to display with every verdict."""
        record = self.record
        failed = [
            f"`{configuration.contestant.label}` failed: {ran.error.message}"
            for configuration, ran in zip(self.configurations, record.ran, strict=True)
            if ran.error is not None
        ]
        if self.baseline != self._reference is not None:
            failed.append(
                "The baseline has no result, so the others are compared with "
                f"`{self.configurations[self._reference].contestant.label}`."
            )
        return [
            *([] if record.outcome in ("decided", "rounds") else [OUTCOMES[record.outcome]]),
            *failed,
            *self._protocol_notes(),
            *record.notes,
        ]

    def _protocol_notes(self) -> list[str]:
        """Return notes on departures from the protocol."""
        found, record = [], self.record
        if len(record.groups) > 1:
            found.append(
                f"Memory did not hold all configurations at once, so {len(record.groups)} groups were "
                "measured in turn, each with the references."
            )
        if not record.frozen:
            found.append(
                "parked_workers_live: waiting worker processes could not be paused, so their idle "
                "threads may have disturbed the running one."
            )
        if lost := len(record.discarded):
            reasons = "; ".join(dict.fromkeys(one.reason for one in record.discarded))
            found.append(f"{lost} round{'s' * (lost != 1)} discarded: {reasons}.")
        return found

    @cached_property
    def _flags(self) -> list[list[str]]:
        blocks = self.record.blocks
        cpus = max((len(ran.load["affinity"]) for ran in self.record.ran if ran.load is not None), default=0)
        counters = [block.counters for block in blocks]
        return flag_blocks(counters, [block.contestant for block in blocks], cpus=max(1, cpus))

    @cached_property
    def _flagged(self) -> list[set[PerRoundKey]]:
        """Configuration -> rounds in which it was disturbed."""
        found: list[set[PerRoundKey]] = [set() for _ in self.configurations]
        for block, flags in zip(self.record.blocks, self._flags, strict=True):
            if flags:
                found[block.contestant].add((block.generation, block.round))
        return found

    @cached_property
    def _log_medians(self) -> list[dict[PerRoundKey, float]]:
        """Configuration -> round -> ln(seconds per sample), the mean over its processes there.

        The seconds are those of the median run, or by throughput: see `streams`.
        """
        found: list[dict[PerRoundKey, float]] = []
        for index in range(len(self.configurations)):
            copies = [one for copy in COPIES if (one := self._of_copy(index, copy))]
            keys = set[PerRoundKey]().union(*copies)
            values = {key: [one[key] for one in copies if key in one] for key in sorted(keys)}
            found.append({key: math.fsum(one) / len(one) for key, one in values.items()})
        return found

    def _of_copy(self, index: int, copy: int) -> dict[PerRoundKey, float]:
        """Return round -> ln(seconds per sample) of one copy."""
        return self._per_process.get((index, copy), {})

    @cached_property
    def _per_process(self) -> dict[Key, dict[PerRoundKey, float]]:
        found: dict[Key, dict[PerRoundKey, float]] = {}
        for block in self.record.blocks:
            per_run = seconds_per_run(block, by_throughput=self.record.by_throughput)
            per_row = per_run / self._rows(block.contestant)
            rounds = found.setdefault((block.contestant, block.copy), {})
            rounds[block.generation, block.round] = math.log(per_row)
        return found

    def _rows(self, index: int) -> int:
        load = self.record.ran[index].load
        return max(1, load["batch_size"]) if load is not None else 1

    # --- one configuration ----------------------------------------------------------------------------------

    def trial_result(self, index: int) -> TrialResult | None:
        """Return the result of one configuration's trial under the names of the `--json` contract.

        Measurements from before a failure or a cancellation are a result too. None: it has no block. The
        result of the ORT default includes the runs of its A/A control, which has the same configuration. With
        a fixed number of runs it does not, because the control makes as many of its own. `throughput_per_s`
        is the samples of a run over the mean latency; in a comparison with several streams it is the samples
        over the common windows. `cpu_s_per_inference` is user and system time per run; `blocks` are its
        rounds, whose `runs` add up to the number of latencies.
        """
        ran, configuration = self.record.ran[index], self.configurations[index]
        found = [
            (block, flags)
            for block, flags in zip(self.record.blocks, self._flags, strict=True)
            if block.contestant == index and not (block.copy and self.record.runs is not None)
        ]
        if ran.load is None or not found:
            return None
        blocks = [block for block, _ in found]
        latencies = [one for block in blocks for one in block.latencies_s]
        latency = latency_summary(
            latencies,
            rounds=[len(block.latencies_s) for block in blocks],
            processes=[(block.generation, block.copy) for block in blocks],
        )
        mean_s = latency["mean_s"]
        counters = [block.counters for block in blocks]
        own = [one for one in self.contrasts if one["candidate"] == configuration.trial]
        by_throughput = self.record.by_throughput
        return {
            "model": configuration.model,
            **_facts(ran, ran.load),
            **_costs(ran, self.record.energy_note),
            **_cpu_spread(blocks),
            "guard": {
                "error": ran.output_error,
                **self._verdicts[index].to_dict(),
                "reference": configuration.reference,
            },
            "placement": None if configuration.placement is None else dict(configuration.placement),
            "casts": None if configuration.casts is None else dict(configuration.casts),
            "runs": len(latencies),
            "latencies_s": latencies,
            "latency": latency,
            "throughput_per_s": ran.load["batch_size"] / mean_s if mean_s else None,
            **(throughput_numbers(blocks, self._rows(index)) if by_throughput else {}),
            **({"streams": stream_facts(blocks, ran.load)} if blocks[0].stream_completed else {}),
            "timed_wall_s": math.fsum(one["wall_s"] for one in counters),
            "comparison": self.comparison,
            "role": configuration.contestant.role,
            "contrasts": own,
            "grade": self.grade.grade,
            "grade_reason": self.grade.reason,
            "remedy": self.grade.remedy,
            "busy": self.busy,
            "generations": len({block.generation for block in blocks}),
            "blocks": [_block(block, flags, by_throughput=by_throughput) for block, flags in found],
            "interference": summarize(counters, [flags for _, flags in found]),
            "notes": [
                *_notes(ran, latency),
                *_stream_notes(blocks),
                *configuration.notes,
                *self._trial_notes(index, own),
                *self._protocol_notes(),
                *latency_warnings(latencies, latency),
            ],
            "seed": configuration.feeds["seed"],
            "fed": [*describe_inputs([configuration.feeds], None, ran.load["inputs"])],
            **self._provenance(),
            **({} if (other := configuration.environment) is None else {"environment": other}),
        }

    def _trial_notes(self, index: int, own: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the notes of its contrasts and its output check, each once."""
        verdict = self._verdicts[index]
        mark = [f"{OUTPUTS_DIFFER}: {verdict.why}"] if verdict.breach else []
        if verdict.breach is None and self.record.ran[index].output_error is not None:
            mark = [f"The output check was inconclusive: {verdict.why}."]
        return list(dict.fromkeys([*mark, *(note for one in own for note in one["notes"])]))


def self_test_dict(when: str, found: Contrast, log_ratios: Sequence[Sequence[float]]) -> SelfTest:
    """Return an A/A test in its stored form: the ratio of two processes of one configuration, true value 1.

    Args:
        when: "during" a comparison, or "alone".
        found: their contrast.
        log_ratios: log ratios of every round, by launch.
    """
    return {
        "when": when,
        "ratio": found.ratio,
        "ratio_low": found.ratio_low,
        "ratio_high": found.ratio_high,
        "half_width": found.half_width,
        "sigma": found.sigma,
        "sigma_between": found.sigma_between,
        "rounds": found.rounds,
        "generations": found.generations,
        "excess_between": excess_between(log_ratios),
        "log_ratios": [one for rounds in log_ratios for one in rounds],
    }


def self_test_result(evidence: Evidence) -> SelfTestResult:
    """Return the result of a self-test: a configuration compared with itself.

    Raises:
        WorkerError: there was no A/A test, because the second process failed.
    """
    found = evidence.to_dict()
    if evidence.aa is None:
        raise WorkerError(
            f"There was no A/A test. {' '.join(evidence.record.notes)}".strip(), hint="Run it again."
        )
    generations = evidence.record.generations
    seconds = evidence.record.wall_s / max(1, len(generations))
    return {
        **found["self_tests"][0],
        "when": "alone",
        "seconds_per_generation": seconds,
        "rounds_per_generation": evidence.aa.rounds / max(1, evidence.aa.generations),
        "grade": found["grade"],
        "grade_reason": found["grade_reason"],
        "remedy": found["remedy"],
        "busy": found["busy"],
        "interference": found["interference"],
        "environment": found["environment"],
        "fingerprint": found["fingerprint"],
    }


def _computed_in(configuration: MeasuredConfiguration, ran: ProcessResult) -> str:
    """Return the precision of the computation, from the providers that ran nodes where that is known."""
    if ran.load is not None and "precision" in ran.load:
        return loosest_precision(configuration.precision, ran.load["precision"])
    if configuration.session is None:
        return configuration.precision
    providers = None if ran.load is None else ran.load["effective_providers"]
    if configuration.placement:
        providers = [name for name, part in configuration.placement.items() if part["ran_nodes"]] or providers
    return effective_precision(configuration.precision, configuration.session, providers)


def _why_not_compared(record: RawComparison, configuration: MeasuredConfiguration) -> str:
    if record.outcome == "cancelled":
        return "The outputs were not compared because the comparison was cancelled first."
    if configuration.reference is None:
        return "The outputs were not compared because the reference outputs are missing. See the notes."
    return ""


def _or_unknown(one: bool | None, other: bool | None) -> bool | None:
    """Return `one or other` in three-valued logic; None: not known."""
    if one or other:
        return True
    return None if None in (one, other) else False


def _contradict(one: Contrast, other: Contrast) -> bool:
    return Verdict.UNDECIDED not in (one.verdict, other.verdict) and one.verdict != other.verdict


# --- parts of a trial's result ------------------------------------------------------------------------------


def _facts(ran: ProcessResult, load: wire.LoadReply) -> TrialResult:
    """Return the facts from loading and warming up a configuration."""
    warm = ran.warm
    return {
        "requested_providers": load["requested_providers"],
        "effective_providers": load["effective_providers"],
        "fallback": load["fallback"],
        "fallback_reason": load["fallback_reason"],
        "batch_size": load["batch_size"],
        "inputs": load["inputs"],
        "outputs": load["outputs"],
        "session_creation_s": load["session_creation_s"],
        "first_run_s": load["first_run_ns"] / 1e9,
        "warmup_latencies_s": [
            ns / 1e9 for ns in (load["first_run_ns"], *(warm["latencies_ns"] if warm is not None else []))
        ],
        "steady": warm["steady"] if warm is not None else None,
        "affinity": load["affinity"],
        "libraries": load["libraries"],
    }


def _costs(ran: ProcessResult, energy_note: str) -> TrialResult:
    """Return the costs of a run apart from latency; None where their pass was not reached."""
    cost, footprint, load = ran.cost, ran.footprint, ran.load
    assert load is not None
    load_peak = load["load_peak_rss_bytes"] if ran.load_peak_rss_bytes is None else ran.load_peak_rss_bytes
    run_peak = footprint["run_peak_rss_bytes"] if footprint is not None else None
    return {
        "cpu_s_per_inference": cost["cpu_s_per_run"] if cost is not None else None,
        "idle_cpu_s": cost["idle_cpu_s"] if cost is not None else None,
        "idle_wall_s": cost["idle_wall_s"] if cost is not None else None,
        "baseline_rss_bytes": load["baseline_rss_bytes"],
        "load_peak_rss_bytes": load_peak,
        "run_peak_rss_bytes": run_peak,
        "peak_rss_bytes": max(load_peak, run_peak or 0),
        "gpu_memory_bytes": footprint["gpu_memory_bytes"] if footprint is not None else None,
        "energy_j_per_inference": ran.energy_j_per_run,
        "energy_note": energy_note,
        "output_error": ran.output_error,
        "new_shapes": [
            {
                "batch_size": one["batch_size"],
                "first_run_s": one["first_run_ns"] / 1e9,
                "next_run_s": one["next_run_ns"] / 1e9,
            }
            for one in ran.shapes
        ],
    }


def _cpu_spread(blocks: Sequence[Block]) -> TrialResult:
    """Return the 95 % interval of the mean CPU time of a run, from the (coarser) counters of the blocks.

    It holds for new processes, like that of the mean latency; a single process has none.
    """
    by_process: dict[tuple[int, int], list[float]] = {}
    for one in blocks:  # short runs have one more that refills the caches
        refills = len(one.stream_refills_s) or (one.refill_s is not None)
        runs = len(one.latencies_s) + refills
        by_process.setdefault((one.generation, one.copy), []).append(one.counters["cpu_s"] / runs)
    spread = trimmed_estimate([statistics.fmean(own) for own in by_process.values()])
    return {"cpu_s_per_inference_low": spread.low, "cpu_s_per_inference_high": spread.high}


def _block(block: Block, flags: list[str], *, by_throughput: bool) -> result_types.Block:
    found: result_types.Block = {
        "generation": block.generation,
        "copy": block.copy,
        "round": block.round,
        "position": block.position,
        "at_s": block.at_s,
        "runs": len(block.latencies_s),
        "refill_s": block.refill_s,
        "median_s": statistics.median(block.latencies_s),
        "counters": block.counters,
        "flags": flags,
    }
    if by_throughput:
        found["window_s"] = window_s(block)
        found["completed"] = completed(block)
        if found["completed"]:  # a discarded block may have no run in its window
            found["throughput_run_s"] = seconds_per_run(block, by_throughput=True)
    if block.stream_completed:
        found["stream_runs"] = list(block.stream_runs)
        found["stream_completed"] = list(block.stream_completed)
        found["stream_refills_s"] = list(block.stream_refills_s)
    return found


def _stream_notes(blocks: Sequence[Block]) -> list[str]:
    """Return the note on latencies beside other callers; none for one caller."""
    count = len(blocks[0].stream_completed)
    if not count:
        return []
    return [
        f"Its latencies are service latency under {count} callers in a closed loop, not user latency: each "
        "caller waits for its own result, so no request waits for its turn."
    ]


def _notes(ran: ProcessResult, latency: Mapping[str, Any]) -> list[str]:
    """Return the notes of a configuration, and notes on its warm-up and the resolution of the clock."""
    load, footprint = ran.load, ran.footprint
    assert load is not None
    found = [*load["notes"], *ran.notes, *(footprint["notes"] if footprint is not None else [])]
    if ran.warm is not None and not ran.warm["steady"]:
        made = len(ran.warm["latencies_ns"]) + 1
        still = f"The latency was not yet steady after {made} warm-up runs"
        short = f"{made} warm-up runs are too few to show a steady latency, but the budget allowed no more"
        found.append(f"{still if made > LEAST_WARM_UP else short}.")
    typical_s, clock_s = latency["p50_s"] or latency["mean_s"], load["clock_ns"] / 1e9
    if typical_s and clock_s >= CLOCK_WARNING * typical_s:
        found.append(
            f"Reading the clock and the loop add {ms(clock_s, 2)} to each run "
            f"({clock_s / typical_s:.1%}). For runs this short, use the ratios rather than the times."
        )
    return found
