"""Types of the JSON that every command prints with `--json`; `schema` derives the JSON Schema from them.

The parts of a comparison and of a trial are in `core.evidence.result_types`; this module combines them. A
dataclass in a document is the JSON object of its fields. Units are seconds, bytes and shares of 1 unless a
comment names another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Optional, TypedDict, TypeVar, get_args, get_type_hints

from core import wire
from core.evidence.comparison import Contestant
from core.evidence.evaluations import Evaluation
from core.evidence.fleet.costs import Costs
from core.evidence.fleet.fleet_types import Answer, Command, HostRecord, Phase, RunState
from core.evidence.fleet.kinds import Disagreement, Spread
from core.evidence.fleet.matrix import Configuration, HostRow
from core.evidence.fleet.portability import Portability
from core.evidence.fusion_difference import Fusion
from core.evidence.graph_changes import GraphChange
from core.evidence.load.load_types import LoadResult
from core.evidence.load.loadgen_result import LoadGenResult
from core.evidence.measurement import TrialKind, TrialState
from core.evidence.metrics.intervals import Interval, Share
from core.evidence.metrics.pairs import Verdict as PairVerdict
from core.evidence.node_matching import Group
from core.evidence.node_savings import Choice, Savings
from core.evidence.noise_check import NoiseCheckResult
from core.evidence.profile_difference import DifferenceRow, EndToEnd, Move
from core.evidence.result_types import (
    ComparisonResult,
    ContrastRecord,
    InputDescription,
    Provenance,
    SearchResult,
    SelfTestResult,
    SpaceFacts,
    TrialNumbers,
    TrialResult,
)
from core.evidence.roofline import Peak
from core.evidence.targets import State, TargetResult
from core.evidence.upgrade import Change, RuntimeSide
from core.evidence.upgrade import State as UpgradeState
from core.evidence.verdict import Grade, Verdict
from core.evidence.verification import FactCheck, SpeedChange, Transfer, VerificationPart
from core.run.digest_chain import DigestChain, Link
from core.run.digest_chain import State as DigestState
from core.run.runtimes.checking import RuntimeCheck
from core.run.signing import SignatureCheck
from core.run.sizes import Source
from core.store import Accuracy, CheckResult, Deletion, PruneResult, Tags, Visibility
from core.store.audit import AuditCheck
from core.wire.errors import ErrorRecord
from core.wire.output_check import Judged
from core.wire.runtime import RuntimeRecord

JobState = Literal["COMPLETE", "FAIL", "CANCELLED"]


EXTENDED: dict[str, list[type]] = {}  # name of a type -> those whose keys it has besides its own

T = TypeVar("T")


def _with_keys_of(other: type, *, as_: Any = None) -> Callable[[type[T]], type[T]]:
    """Give an object also the keys of another; as `NotRequired` these may be absent, as `Optional` null."""

    def whole(own: type[T]) -> type[T]:
        hints = get_type_hints(other, include_extras=as_ is None)
        keys = hints if as_ is None else {name: as_[hint] for name, hint in hints.items()}
        combined: Any = TypedDict
        found: type[T] = combined(own.__name__, keys | get_type_hints(own, include_extras=True))
        found.__doc__ = own.__doc__
        EXTENDED.setdefault(own.__name__, []).append(other)
        return found

    return whole


# --- trials and comparisons -----------------------------------------------------------------------------


class RequestedModel(TypedDict):
    """The model of a trial, as requested and as found."""

    path: NotRequired[str]
    name: str
    sha256: str | None
    precision: str
    variant_of: NotRequired[str]  # name of its original
    steps: NotRequired[str]  # transform steps that created it, as text
    content_sha256: NotRequired[str]


@_with_keys_of(TrialResult, as_=NotRequired)
@_with_keys_of(TrialNumbers, as_=Optional)
@_with_keys_of(Provenance, as_=Optional)
class TrialDocument(TypedDict):
    """A trial; a profile has `profile` and related keys instead of latencies."""

    trial: str  # ID
    kind: TrialKind
    state: TrialState
    error: ErrorRecord | None
    model: RequestedModel
    spec: dict[str, Any]  # as in a YAML file; only what differs from the defaults
    runtime: str  # environment that it ran in: "own", or NAME@sha256:… with the hash of its content
    comparison: str | None  # ID of the comparison it was measured in
    fingerprint: str  # of the machine
    study: str
    owner: str
    created_at: float  # seconds since the epoch
    started_at: float | None
    finished_at: float | None
    sizes_from: NotRequired[dict[str, Source]]  # dimension without a given size -> source of the assumed size


class RequestKind(TypedDict):
    """One size of request."""

    rows: int  # samples
    dims: dict[str, int]  # free dimensions


class LoadRequests(TypedDict):
    """Times of the requests of one run, in nanoseconds from its start; lists have one entry per request."""

    run: int  # index into `runs` of the result
    at_ns: list[int]  # scheduled arrival
    kind: list[int]  # index into `kinds`
    start_ns: list[int]  # when the server took it; 0: it did not
    end_ns: list[int]  # when its outputs were there; 0: it was dropped or not served
    stream: list[int]  # which stream served it
    batch: list[int]  # number of the call of `session.run`; requests of one batch share it
    kinds: list[RequestKind]
    warmup_s: float  # requests that arrived before this do not count


@_with_keys_of(TrialDocument)
class LoadDocument(TypedDict):
    """A load test: a trial of kind `load`, with its result instead of latencies."""

    load: NotRequired[LoadResult]  # absent: it has no result
    requests: NotRequired[list[LoadRequests]]


class LoadGenDocument(LoadGenResult):
    """A cross-check with MLCommons' LoadGen. It is unofficial, and it is not stored."""

    state: JobState
    error: None


class ComparisonPart(ComparisonResult):
    """A comparison: its configurations, protocol and result."""

    comparison: str  # ID
    state: TrialState
    error: ErrorRecord | None
    model_name: str
    model_sha256: str
    contestants: list[Contestant]
    protocol: dict[str, Any]  # precision, target, budget_s, margin, runs, looks, seed, family, splits
    study: str
    owner: str
    created_at: float  # seconds since the epoch
    started_at: float | None
    finished_at: float | None
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The result of `--fail-if-slower`."""

    limit: float  # slower than the baseline by more than this share fails
    passed: bool  # no candidate is too slow, and none is undecided
    broken: list[str]  # trials that are significantly too slow
    open: list[str]  # trials for which that is undecided


class ComparisonDocument(ComparisonPart):
    """A comparison with the trials of all its configurations."""

    trials: list[TrialDocument]
    fail_if_slower: NotRequired[Limit | None]
    sizes_from: NotRequired[dict[str, Source]]  # dimension without a given size -> source of the assumed size


@_with_keys_of(TrialDocument, as_=NotRequired)
class SweepPoint(TypedDict):
    """A point of a sweep, with the keys of its trial if there is one."""

    values: dict[str, Any]  # varied setting -> value at this point
    reused: bool  # measured earlier
    state: str  # of its trial; REFUSED: not a valid configuration, NEW: not measured yet
    place: str  # "best", "level with the best" (95 % interval within the margin), "inconclusive", or empty
    over_line: bool  # its percentile is over the latency limit
    front: bool  # on the Pareto front of throughput and latency
    same_as: dict[str, Any] | None  # values of the equivalent point that was measured instead; null: none
    why: str  # reason for same_as or REFUSED


class SweepDocument(TypedDict):
    """A sweep: its points are trials."""

    study: str
    axes: dict[str, list[Any]]  # varied setting -> its values
    comparison: ComparisonPart | None  # null: all points were measured earlier
    line_s: float | None  # latency limit; null: none
    percentile: str  # percentile of the latency limit, "p95_s"
    best: dict[str, Any] | None  # values of the point with the highest throughput within the latency limit
    verdict: str  # the best point, and the points it is inconclusive against, as text
    points: list[SweepPoint]
    sizes_from: NotRequired[dict[str, Source]]  # dimension without a given size -> source of the assumed size


class TagDocument(TypedDict):
    """The current tags of trials."""

    marks: dict[str, Tags]  # ID of the trial -> its tags


class SharingDocument(TypedDict):
    """Who made results, and who sees them now."""

    visibility: dict[str, Visibility]  # ID of a trial, comparison, search, accuracy or model -> this


@_with_keys_of(Deletion)
class TrialsDeletedDocument(TypedDict):
    """The deleted trials; with `--dry-run`, the trials that would be deleted."""

    dry_run: bool


class HistoryDocument(TypedDict):
    """Trials, newest first, without raw measurements."""

    trials: list[TrialDocument]
    marks: dict[str, Tags]  # ID of the trial -> its tags, if any
    visibility: dict[str, Visibility]  # ID of the trial -> who started it and who sees it, if known
    rescued: list[str]  # files with results that were not stored because the disk was full


@_with_keys_of(PruneResult)
class PruneDocument(TypedDict):
    """The pruned raw measurements; with `--dry-run`, those that would be pruned."""

    dry_run: bool


# --- upgrade --------------------------------------------------------------------------------------------


class UpgradedSide(TypedDict):
    """One model in one runtime."""

    trial: str  # ID
    state: TrialState
    error: ErrorRecord | None
    p50_s: float | None
    peak_rss_bytes: int | None
    session_creation_s: float | None
    first_run_s: float | None


class UpgradedModel(TypedDict):
    """One model of an upgrade."""

    model: str
    state: UpgradeState
    comparison: str | None  # ID; null: it was not compared
    reused: bool  # the comparison is of an earlier upgrade
    verdict: Verdict | None  # on the new runtime; null: there is no ratio
    contrast: ContrastRecord | None  # the new runtime against the old one
    simultaneous: int  # intervals that hold together with this one
    outputs_differ: bool | None  # beyond the tolerance; null: not compared, or cannot be judged
    outputs_reason: str | None
    between: Judged | None  # outputs of the new runtime against the old one's, on the same inputs
    old: UpgradedSide | None
    new: UpgradedSide | None
    error: ErrorRecord | None
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeLimit:
    """The result of `--fail-if-slower` for an upgrade."""

    limit: float  # slower than in the old runtime by more than this share fails
    passed: bool
    broken: list[str]  # models that are significantly too slow
    open: list[str]  # models for which that is undecided


class UpgradeDocument(TypedDict):
    """An upgrade of ONNX Runtime: models in two runtimes."""

    upgrade: str  # ID
    state: str  # of its job
    error: ErrorRecord | None
    study: str  # of its comparisons
    created_at: float  # seconds since the epoch
    config: str | None  # of every model; null: ONNX Runtime's defaults
    old: RuntimeSide | None
    new: RuntimeSide | None
    family: int  # intervals that hold together with 95 %
    headline: str
    intervals: str  # what the intervals cover together, in words
    models: list[UpgradedModel]
    changes: list[Change]  # what one version has and the other has not
    changes_reason: str | None  # why they are not known
    fingerprint: str  # of the machine
    fail_if_slower: NotRequired[UpgradeLimit | None]  # null: no limit was given


# --- explanation ----------------------------------------------------------------------------------------


@_with_keys_of(EndToEnd)
class ExplainSide(TypedDict):
    """A whole run of both sides and the difference; per run, or per sample with `per_row`."""

    difference_s: float  # candidate minus baseline; negative: the candidate is faster


class ExplainPart(TypedDict):
    """A part of the difference."""

    difference_s: float  # candidate minus baseline
    share: float | None  # of the whole difference; negative: it works against the difference


@_with_keys_of(DifferenceRow)
class ExplainRow(ExplainPart):
    """One kind of node in both results."""


@_with_keys_of(Group)
class ExplainGroup(ExplainPart):
    """Matched nodes of both sides, and the model nodes they come from."""

    baseline_s: float
    candidate_s: float
    half_width_s: float | None  # of the difference, 95 %, from its spread between the passes


@_with_keys_of(Move)
class ExplainMove(ExplainPart):
    """Nodes that ran on different providers on the two sides, with the times of their groups."""


@_with_keys_of(Fusion)
class ExplainFusion(ExplainPart):
    """Nodes of the model that one side fuses, or runs by other operators than the other side."""


class ExplainDocument(TypedDict):
    """Where the difference of two results comes from. After a failure only trials, state and error."""

    baseline: str  # trial
    candidate: str  # trial
    state: JobState
    error: ErrorRecord | None
    sentence: NotRequired[str]
    measure_longer: NotRequired[str | None]  # comparison to measure longer; null: none or not needed
    end: NotRequired[ExplainSide]
    rows: NotRequired[list[ExplainRow]]  # largest difference first; empty if undecided
    groups: NotRequired[list[ExplainGroup]]  # largest difference first
    moves: NotRequired[list[ExplainMove]]
    fusions: NotRequired[list[ExplainFusion]]  # made by one side only; largest difference first
    versions: NotRequired[list[str]]  # of ONNX Runtime on both sides; empty: the same runtime
    seen_s: NotRequired[float]  # difference in the runs of the passes without the profiler
    seen_half_width_s: NotRequired[float | None]
    instrument_s: NotRequired[float]  # profiler overhead subtracted from every node call
    scales: NotRequired[list[float]]
    passes: NotRequired[int]  # of each side
    runs: NotRequired[list[int]]  # of each pass
    overlapping: NotRequired[bool]  # nodes of a run were executed in parallel
    host_timed: NotRequired[bool]  # some times cover the GPU kernel launch only
    origins_known: NotRequired[list[bool]]
    notes: NotRequired[list[str]]


class GraphTensor(TypedDict):
    """An input or output of a node."""

    name: str
    dtype: str  # NumPy name; "unknown": not stated
    shape: list[int | str] | None  # "?": unknown size; null: unknown rank


class GraphNodeDocument(TypedDict):
    """A node of a graph."""

    name: str
    op_type: str  # with its domain, unless that is ai.onnx
    path: list[str]  # names of the enclosing nodes, outermost first
    role: str  # role of the subgraph in the innermost enclosing node; empty: the main graph
    scope: list[str]  # source modules, outermost first
    precision: str  # type that it computes in
    inputs: list[GraphTensor]
    outputs: list[GraphTensor]
    weight_bytes: int  # of the weights that it reads
    attributes: dict[str, str]  # long values are truncated, tensors and graphs are summarized
    does: list[str]  # of an optimized graph: names of the model nodes that it replaces
    inserted: bool  # by ONNX Runtime
    self_s: float | None  # per run, from a profile; null: no profile, or not run as a separate node
    with_others: int | None  # other nodes that share this time, as in a fused node
    providers: list[str]  # where it ran
    error: float | None  # relative L2 error of the outputs if only this node is quantized; null: unknown


class GraphDocument(TypedDict):
    """The nodes of a model or of its optimized graph. After a failure only state and error."""

    state: JobState
    error: ErrorRecord | None
    model: NotRequired[str]
    content_sha256: NotRequired[str]
    optimized: NotRequired[bool]
    count: NotRequired[int]  # number of all nodes, including filtered ones
    nodes: NotRequired[list[GraphNodeDocument]]
    profile: NotRequired[str | None]  # trial that the times are of
    unmatched_s: NotRequired[float | None]  # per run, time of profiled nodes without a match
    effective_providers: NotRequired[list[str]]  # of the session whose graph this is; empty: none was built
    changes: NotRequired[list[GraphChange]]  # of an optimized graph, the most frequent first; else empty
    notes: NotRequired[list[str]]


# --- accuracy and targets -------------------------------------------------------------------------------


ClassDocument = TypedDict(  # one class against all others; `class` can be no attribute
    "ClassDocument",
    {
        "name": str,
        "class": int,
        "support": int,
        "sensitivity": Share,
        "specificity": Share,
        "precision": Share,
        "roc_auc": Interval,
    },
)


class AccuracySummary(TypedDict):
    """Every metric of a model on its data."""

    rows: int
    classes: int
    class_names: list[str]
    not_finite: int  # samples with NaN or Inf, which count as wrong
    accuracy: Share  # top-1
    top5: Share | None  # null: not more than five classes
    roc_auc: Interval  # mean over the classes
    confusion: list[list[int]]  # true class -> predicted class
    per_class: list[ClassDocument]
    positive: dict[str, Any] | None  # class to which the threshold applies
    missing_classes: list[str]
    calibration: wire.CalibrationRows | None
    calibration_note: str
    notes: list[str]


@_with_keys_of(Accuracy)
class AccuracyRecord(TypedDict):
    """One model on one dataset."""

    summary: AccuracySummary


class JudgedPair(TypedDict):
    """Whether a candidate is worse than its reference by more than `delta`, on the same samples."""

    verdict: PairVerdict
    text: str
    rows: int
    both: int  # samples that both predicted correctly
    only_reference: int  # samples that only the reference predicted correctly
    only_candidate: int
    neither: int
    delta: float
    reference: Share
    candidate: Share
    difference: float | None  # candidate minus reference
    low: float
    high: float
    p: float  # of McNemar's exact test
    rows_needed: int | None  # samples needed to decide; null: no number is enough


class NamedAccuracy(TypedDict):
    """A side of a comparison."""

    id: str
    model: str


class AccuracyPair(TypedDict):
    """Two models on the same samples."""

    reference: NamedAccuracy
    candidate: NamedAccuracy
    rows: int
    delta: float  # largest loss that counts as not worse
    agreement: Share  # samples for which both predict the same class
    accuracy: JudgedPair
    positive: dict[str, Any] | None
    sensitivity: JudgedPair | None
    specificity: JudgedPair | None
    roc_auc: dict[str, float | None] | None


class AccuracyDocument(TypedDict):
    """The result of `accuracy`."""

    accuracies: list[AccuracyRecord]
    comparisons: list[AccuracyPair]
    errors: list[ErrorRecord]


class NamedModel(TypedDict):
    """A model, by name and content."""

    name: str
    sha256: str


class CheckDocument(TypedDict):
    """The scorecard of a configuration."""

    state: State
    model: NamedModel
    spec: dict[str, Any]
    targets: list[TargetResult]
    trials: list[str]
    breach: str | None  # why the output check failed; null: passed or not checked
    calibration_note: str | None
    error: ErrorRecord | None
    sizes_from: NotRequired[dict[str, Source]]  # dimension without a given size -> source of the assumed size


# --- verifications --------------------------------------------------------------------------------------


@_with_keys_of(VerificationPart)
class SamePart(TypedDict):
    """Whether its outputs match: YES, NO, or UNKNOWN."""

    error: wire.OutputError | None  # of its outputs versus the recorded ones; null: not compared


@_with_keys_of(VerificationPart)
class FastPart(TypedDict):
    """Whether the speed-up is reproduced: HOLDS, DIFFERS, UNDECIDED, or NOT_MEASURED."""

    gains: list[Transfer]


@_with_keys_of(SpeedChange)
class ChangeDocument(TypedDict):
    """A configuration compared with an earlier baseline of the same machine."""

    passed: bool  # the interval excludes a larger slow-down


class DifferingFact(TypedDict):
    """A property of the machine that differs from the recorded one."""

    name: str
    recorded: str
    here: str


class VerifyDocument(TypedDict):
    """The verification of a recorded configuration on this machine."""

    # exit code 0, 0, 1, 3; NOT_MEASURED: all but the speed, because of `--no-measure`
    state: Literal["CONFIRMED", "NOT_MEASURED", "FAILED", "UNDECIDED"]
    passed: bool  # all requested checks are confirmed
    file: str
    model: NamedModel
    recorded_trial: str | None  # ID on the machine where it was recorded
    signature: SignatureCheck  # of the file; a file with a wrong signature is refused
    runs: VerificationPart  # YES, NO, or UNKNOWN
    same: SamePart
    fast: FastPart
    checks: list[FactCheck]  # checks without a measurement
    differences: list[DifferingFact]  # of the machines
    targets: list[TargetResult]
    change: ChangeDocument | None  # versus a baseline of this machine; null: no baseline given
    margin: float  # speed-ups that differ by less from the recorded one count as reproduced
    trial: str | None  # of the comparison on this machine
    comparison: str | None
    recorded_to: str | None  # file with the numbers of this machine
    notes: list[str]
    tool_version: str
    error: ErrorRecord | None


# --- models ---------------------------------------------------------------------------------------------


class InspectDocument(wire.ModelInfo):
    """A model file."""

    loads: str | None  # result of loading it in ONNX Runtime; null: `--load` not given
    suggested: str  # options that set every free dimension; empty: none needed
    suggested_from: dict[str, Source]  # dimension -> source of its size; the batch is 1
    not_fed: str | None  # why ORTune cannot create an input of it; null: it can


class ExportDocument(wire.ExportReply):
    """An exported model and its output error versus the source."""

    state: JobState
    error: None


class StepDocument(TypedDict):
    """A variant created by one step."""

    model: str
    content_sha256: str
    path: str
    variant: dict[str, Any]  # steps, original, output error, checks
    guard: NotRequired[Judged | None]


class TransformDocument(TypedDict):
    """A chain of steps and the final variant. After a failure only state and error."""

    state: JobState
    error: ErrorRecord | None
    model: NotRequired[str]
    content_sha256: NotRequired[str]
    path: NotRequired[str]
    written: NotRequired[list[str] | None]  # files written by `-o`
    reused: NotRequired[int]  # steps that were reused
    steps: NotRequired[list[StepDocument]]
    notes: NotRequired[list[str]]


@_with_keys_of(Savings)
class NodeErrorsDocument(TypedDict):
    """The error added and the time saved by quantizing each operator."""

    state: JobState
    error: ErrorRecord | None
    variant: str
    libraries: NotRequired[dict[str, str]]  # custom operator libraries of the variant: name -> "sha256:…"
    curve: list[Choice]
    halving: list[str]  # operators to keep in float to halve the error
    fed: list[InputDescription]
    notes: list[str]


class ComparedVariant(TypedDict):
    """The latest comparison of a variant with its original."""

    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    verdict: Verdict
    grade: Grade
    generations: int | None
    busy: dict[str, Any] | None
    comparison: str
    trial: str


class VariantDocument(TypedDict):
    """A model of the library: an original or a variant."""

    model: str
    content_sha256: str
    path: str
    precision: str
    variant: dict[str, Any] | None  # null: an original
    against_original: ComparedVariant | None  # null: never compared


class VariantsDocument(TypedDict):
    """All originals that have variants, each with its variants."""

    variants: list[VariantDocument]


class RenamedDocument(TypedDict):
    """A variant that was renamed."""

    variant: str
    was: str
    content_sha256: str


class DeletedDocument(TypedDict):
    """A variant that was deleted."""

    deleted: str
    content_sha256: str


class AuditLine(TypedDict):
    """One line of the audit log."""

    n: int  # number of the line, from 1
    time: str  # UTC, ISO 8601
    who: str  # person, or "local"
    action: str  # see `audit --action`
    what: str
    more: dict[str, Any]  # further facts: IDs, the file, the address, the hash of the line before


@_with_keys_of(AuditCheck)
class AuditDocument(TypedDict):
    """The audit log: what its check found, and the newest lines that match."""

    entries: list[AuditLine]


class RuntimeAddedDocument(TypedDict):
    """A runtime that was added."""

    runtime: RuntimeRecord
    existed: bool  # it was there before, with the same content


class RuntimesDocument(TypedDict):
    """The runtimes of this machine besides ORTune's own."""

    runtimes: list[RuntimeRecord]


class RuntimeRemovedDocument(TypedDict):
    """A runtime that was removed."""

    removed: str


class FormatRecord(TypedDict):
    """An export format."""

    name: str  # of `--format`
    file: str  # suffix of its file name
    purpose: str
    cannot: str  # settings that it does not support
    takes_model: bool  # its file contains the model


class FormatsDocument(TypedDict):
    """The formats of `export`."""

    formats: list[FormatRecord]


class ReportedSignature(TypedDict):
    """The signature of a file of a report's result."""

    file: str | None  # null: no file of this result is known here
    state: Literal["VALID", "INVALID", "UNCHECKED", "NONE"]  # UNCHECKED: its package is not installed
    fingerprint: str | None  # of the public key of a valid signature
    trusted: bool | None  # whether the trust file has the key; null: no key, or no trust file
    signer: str | None  # name in the trust file; of another key the name that the signer states
    signed_at: str | None  # as the signer states, in UTC
    why: str


class ReportedDigests(TypedDict):
    """The recorded digests of a report's result, compared with those of what is there now."""

    state: DigestState  # BROKEN: a link differs; INCOMPLETE: none differs, but one is missing
    links: list[Link]  # none: of a fleet run


class ReportDocument(TypedDict):
    """`report`."""

    kind: str  # kind of the result, as text
    id: str  # ID of the result
    verdict: str  # one sentence
    rejected: str | None  # why the verdict is rejected; null: it is valid
    signatures: list[ReportedSignature]  # of `--file`, else of the bundles in the store; one at least
    digests: ReportedDigests
    format: Literal["html", "md"]
    output: str | None  # the file written; null: none
    output_bytes: int | None
    text: str | None  # the Markdown; null: an HTML file was written


class EmitDocument(TypedDict):
    """A file of settings."""

    trial: str
    format: str
    output: str | None
    text: str  # content of the file; empty for a bundle
    size_bytes: NotRequired[int]  # of a bundle


class OwnKeyDocument(TypedDict):
    """A key pair of this machine, without the private key."""

    name: str  # of the signer
    public_key: str
    fingerprint: str
    path: str  # of the private key
    encrypted: bool  # with a passphrase


class TrustedKeyDocument(TypedDict):
    """A row of the trust file."""

    name: str
    public_key: str
    fingerprint: str
    until: str  # last day on which it is trusted, in UTC; empty: no end
    note: str
    has_expired: bool


class KeysDocument(TypedDict):
    """The keys that this machine knows."""

    own: list[OwnKeyDocument]
    trusted: list[TrustedKeyDocument]
    trust_file: str


class SignedDocument(TypedDict):
    """A signed file."""

    file: str
    signature: SignatureCheck


# --- searches -------------------------------------------------------------------------------------------


@_with_keys_of(SearchResult, as_=NotRequired)
class SearchDocument(TypedDict):
    """A search, with the keys of its result if there is one."""

    study: str  # ID; also the study name of its comparisons and trials
    state: TrialState
    model: str
    error: ErrorRecord | None
    question: dict[str, Any]
    spec: dict[str, Any]  # the fixed settings
    trials: list[Evaluation]
    sizes_from: NotRequired[dict[str, Source]]  # dimension without a given size -> source of the assumed size


class SpaceDocument(TypedDict):
    """The search space of a dry run."""

    objective: dict[str, float]
    limits: list[str]
    space: SpaceFacts
    axes: dict[str, list[Any]]  # setting -> values, the starting value first
    sizes_from: NotRequired[dict[str, Source]]  # dimension without a given size -> source of the assumed size


class StudiesDocument(TypedDict):
    """Searches, newest first, without evaluated configurations."""

    studies: list[SearchDocument]


class StudyExportedDocument(TypedDict):
    """A search that was written as a study of Optuna."""

    study: str
    optuna: str  # URL of the Optuna storage
    trials: int


class StudyDeletedDocument(TypedDict):
    """A search that was deleted."""

    deleted: str


# --- fleets ---------------------------------------------------------------------------------------------


class FleetHostDocument(TypedDict):
    """A host of a fleet and its facts."""

    record: HostRecord
    kind: str  # hosts of equal kind have equal machines and libraries


class FleetAnswersDocument(TypedDict):
    """The answers to one question."""

    question: int
    command: Command
    phase: Phase  # portability: the winners of all searches, compared on every host
    model: NamedModel
    arguments: list[str]  # of the command, after the model
    answer: str  # one sentence
    metric: str  # that the ratios compare
    names: dict[str, str]  # key of a configuration -> displayed name
    configurations: list[Configuration]
    hosts: list[HostRow]
    portability: Portability | None  # null: no comparison of several configurations
    spreads: list[Spread]  # between machines of one kind
    disagreements: list[Disagreement]  # hosts of one kind with different decided verdicts
    costs: Costs | None  # null: no host has a price
    answers: list[Answer]  # with the documents of the hosts; the store holds their raw measurements


class FleetDocument(TypedDict):
    """A fleet run: its hosts, and the answers to its questions."""

    run: str  # ID
    name: str
    state: RunState
    phase: Phase
    owner: str
    created_at: float  # seconds since the epoch
    finished_at: float | None
    hosts: list[FleetHostDocument]
    questions: list[FleetAnswersDocument]


class FleetHostsDocument(TypedDict):
    """The hosts of a fleet now."""

    hosts: list[FleetHostDocument]


class FleetRunEntry(TypedDict):
    """A fleet run in a list."""

    run: str  # ID
    name: str
    state: RunState
    created_at: float  # seconds since the epoch
    finished_at: float | None
    owner: str
    hosts: list[str]  # names
    questions: int


class FleetRunsDocument(TypedDict):
    """All fleet runs of a client, newest first."""

    runs: list[FleetRunEntry]


class FleetCertificatesDocument(TypedDict):
    """The certificates that `fleet init` created."""

    folder: str
    created: list[str]  # folders, one for each machine; empty: all had a certificate


class FleetFileDocument(TypedDict):
    """A written configuration, or why there is none."""

    file: str
    host: str  # empty: the file for all hosts
    missing: str  # why there is no file; empty: it was written


class FleetExportDocument(TypedDict):
    """The files that `fleet export` wrote."""

    run: str
    folder: str
    files: list[FleetFileDocument]


# --- the machine and the store --------------------------------------------------------------------------


class QueuedJobDocument(TypedDict):
    """A job in the queue of this machine, which all its users and servers share."""

    running: bool  # it has the machine
    place: int  # jobs ahead of it
    what: str  # the job, in one line of text
    private: bool  # `what` does not tell the job, and `person` and `owner` are null
    person: str | None  # who started it; null: the owner itself
    owner: str | None  # process that submitted it
    since: float  # time of its start, or of its arrival, seconds since the epoch
    starts_in_s: float | None  # of a waiting job, predicted if no other job arrives; null: unknown


class MachineDocument(wire.Environment):
    """Facts of this machine, and its queue."""

    queue: list[QueuedJobDocument]  # in order, the running job first


class SelfTestDocument(SelfTestResult):
    """An A/A test of this machine, and whether it passes the noise check."""

    state: JobState
    error: None
    model: str
    answer: NoiseCheckResult


class ImportDocument(TypedDict):
    """Content of an imported file. It was not measured on this machine."""

    imported: bool  # always true
    id: str
    kind: Literal["profile", "summary"]
    file: str  # file name
    format: str
    sha256: str  # of the file
    created_at: float  # time of the import, seconds since the epoch
    profile: dict[str, Any] | None  # nodes with their times, and a timeline
    summary: wire.Summary | None  # of onnxruntime_perf_test


class PeaksDocument(wire.PeaksReply):
    """Peak rates of this machine, and the raw times that they are computed from."""

    state: JobState
    error: None
    fingerprint: str  # of the machine
    at: float  # seconds since the epoch
    peaks: list[Peak]  # one per number of threads


@_with_keys_of(CheckResult)
class Contents(TypedDict):
    """Content of a store: for each table the number of rows and of damaged rows."""

    damaged: int


@_with_keys_of(Contents)
class BackupDocument(TypedDict):
    """A copy of the store."""

    file: str
    file_bytes: int


@_with_keys_of(Contents)
class RestoreDocument(TypedDict):
    """The store after a backup took its place."""

    store: str
    previous: str | None  # file with the previous content


class FailureDocument(TypedDict):
    """Output of a command that failed or was cancelled, together with the keys of what was measured."""

    trial: NotRequired[str | None]
    state: Literal["FAIL", "CANCELLED"]
    error: ErrorRecord


DOCUMENTS: Mapping[str, Any] = {
    "tune": TrialDocument,
    "compare": ComparisonDocument,
    "profile": TrialDocument,
    "sweep": SweepDocument,
    "load": LoadDocument,
    "load --streams": SweepDocument,
    "load --engine mlperf-loadgen": LoadGenDocument,
    "explain": ExplainDocument,
    "upgrade": UpgradeDocument,
    "graph": GraphDocument,
    "accuracy": AccuracyDocument,
    "scorecard": CheckDocument,
    "verify": VerifyDocument,
    "transform": TransformDocument,
    "node-errors": NodeErrorsDocument,
    "inspect": InspectDocument,
    "convert": ExportDocument,
    "provenance": DigestChain,
    "sign": SignedDocument,
    "keys create": OwnKeyDocument,
    "keys list": KeysDocument,
    "keys trust": TrustedKeyDocument,
    "keys remove": TrustedKeyDocument,
    "export": EmitDocument,
    "export --list": FormatsDocument,
    "report": ReportDocument,
    "history": HistoryDocument,
    "history --prune": PruneDocument,
    "tag": TagDocument,
    "share": SharingDocument,
    "unshare": SharingDocument,
    "delete": TrialsDeletedDocument,
    "show TRIAL": TrialDocument,
    "show COMPARISON": ComparisonDocument,
    "show UPGRADE": UpgradeDocument,
    "variants list": VariantsDocument,
    "variants rename": RenamedDocument,
    "variants delete": DeletedDocument,
    "search": SearchDocument,
    "search --dry-run": SpaceDocument,
    "searches list": StudiesDocument,
    "searches show": SearchDocument,
    "searches export": StudyExportedDocument,
    "searches delete": StudyDeletedDocument,
    "runtimes add": RuntimeAddedDocument,
    "runtimes list": RuntimesDocument,
    "runtimes check": RuntimeCheck,
    "runtimes remove": RuntimeRemovedDocument,
    "machine": MachineDocument,
    "machine --self-test": SelfTestDocument,
    "machine --peaks": PeaksDocument,
    "profile --import": ImportDocument,
    "compare --import": ImportDocument,
    "fleet init": FleetCertificatesDocument,
    "fleet hosts": FleetHostsDocument,
    **{f"fleet {name}": FleetDocument for name in (*get_args(Command), "run", "resume", "cancel", "show")},
    "fleet runs": FleetRunsDocument,
    "fleet export": FleetExportDocument,
    "fleet report": ReportDocument,
    "audit": AuditDocument,
    "backup": BackupDocument,
    "restore": RestoreDocument,
    "failure": FailureDocument,
}
