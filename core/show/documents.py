"""What every command prints with `--json`, key by key; `schema` makes the JSON Schema of it.

The parts of a race and of a trial stand in `core.evidence.documents`; here they are put together. A dataclass
that stands in a document means the JSON object of its fields. Seconds, bytes and shares of 1 unless a comment
says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, Optional, TypedDict, get_type_hints

from core import wire
from core.evidence.comparison import Contestant
from core.evidence.documents import (
    ChangeRecord,
    CheckedFact,
    ComparisonResult,
    FedInput,
    SearchResult,
    SelfTestResult,
    SpaceFacts,
    TransferRecord,
    TrialResult,
    VerificationPart,
)
from core.evidence.measurement import RESULT_FIELDS, TrialKind, TrialState
from core.evidence.metrics.intervals import Interval
from core.evidence.metrics.pairs import Verdict as PairVerdict
from core.evidence.node_savings import Choice, Unit
from core.evidence.profile_difference import RowKind
from core.evidence.profile_grouping import GroupNode, Kind
from core.evidence.quietness import Answer
from core.evidence.roofline import Peak
from core.evidence.targets import Cause, State
from core.evidence.verdict import Grade, Verdict
from core.run.sizes import Source
from core.wire.errors import ErrorRecord
from core.wire.guard import Judged

JobState = Literal["COMPLETE", "FAIL", "CANCELLED"]


# --- trials and races -----------------------------------------------------------------------------------


class AskedModel(TypedDict):
    """The model of a trial, as it was asked for and as it was found."""

    path: NotRequired[str]
    name: str
    sha256: str | None
    precision: str
    variant_of: NotRequired[str]  # name of its original
    steps: NotRequired[str]  # that made it, in words
    content_sha256: NotRequired[str]


class TrialHead(TypedDict):
    """What stands at the beginning and the end of every trial."""

    trial: str  # id
    kind: TrialKind
    state: TrialState
    error: ErrorRecord | None
    model: AskedModel
    spec: dict[str, Any]  # as in a YAML file; only what differs from the defaults
    comparison: str | None  # id of the race it ran in
    fingerprint: str  # of the machine
    study: str
    owner: str
    created_at: float  # seconds since the epoch
    started_at: float | None
    finished_at: float | None
    sizes_from: NotRequired[dict[str, Source]]  # dimension that nobody gave a size -> where that is from


def _trial() -> Any:
    """The head and the result of a trial: what `RESULT_FIELDS` names may be null, the rest may be absent."""
    parts = get_type_hints(TrialResult)
    keys = {
        name: Optional[hint] if name in RESULT_FIELDS else NotRequired[hint]  # noqa: UP045 - of a variable
        for name, hint in parts.items()
    }
    return TypedDict("TrialDocument", {**keys, **get_type_hints(TrialHead, include_extras=True)})  # type: ignore[operator]


TrialDocument = _trial()


class Race(ComparisonResult):
    """A comparison: who raced, under which protocol, and what followed."""

    comparison: str  # id
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


class Limit(TypedDict):
    """What `--fail-if-slower` found."""

    limit: float  # slower by this share is too slow
    passed: bool  # nobody surely is, and of nobody it is open
    broken: list[str]  # trials that are surely slower
    open: list[str]  # trials that may be


class RaceDocument(Race):
    """A comparison with the trials of all its contestants."""

    trials: list[TrialDocument]  # type: ignore[valid-type] # made from `TrialResult`
    fail_if_slower: NotRequired[Limit | None]
    sizes_from: NotRequired[dict[str, Source]]  # dimension that nobody gave a size -> where that is from


class SweepPointHead(TypedDict):
    """What a sweep adds to the trial of a point."""

    values: dict[str, Any]  # what varies -> what this point sets
    reused: bool  # measured before
    state: str  # of its trial; REFUSED: no configuration allows it, NEW: nobody measured it
    place: str  # "best", "level with the best" (surely within the margin), "inconclusive", or nothing
    over_line: bool  # its percentile is over the line
    front: bool  # no other has surely more throughput at no more latency, or less at no less throughput
    same_as: dict[str, Any] | None  # values of the point that was measured in its place; null: it was itself
    why: str  # it is the same, or was refused


def _swept() -> Any:
    """A point of a sweep; where there is a trial of it, with all keys of the trial."""
    trial = {name: NotRequired[hint] for name, hint in get_type_hints(TrialDocument).items()}
    return TypedDict("SweepPoint", {**trial, **get_type_hints(SweepPointHead)})  # type: ignore[operator]


SweepPoint = _swept()


class SweepDocument(TypedDict):
    """A sweep: its points are trials."""

    study: str
    axes: dict[str, list[Any]]  # what varies -> its values
    comparison: Race | None  # null: everything was known before
    line_s: float | None  # the latency line; null: there is none
    percentile: str  # that the line applies to, "p95_s"
    best: dict[str, Any] | None  # values of the point with most rows/s, under the line where there is one
    verdict: str  # which point is best, and against which it is inconclusive, in words
    points: list[SweepPoint]  # type: ignore[valid-type] # made from `TrialDocument`
    sizes_from: NotRequired[dict[str, Source]]  # dimension that nobody gave a size -> where that is from


class MarksRecord(TypedDict):
    """What a person said of a trial."""

    starred: bool
    archived: bool  # left out of lists that do not ask for it
    labels: list[str]
    note: str


class MarkDocument(TypedDict):
    """The marks that trials have now."""

    marks: dict[str, MarksRecord]  # id of the trial -> its marks


class TrialsDeletedDocument(TypedDict):
    """What was deleted, or would be with `--dry-run`."""

    dry_run: bool
    trials: list[str]  # ids
    references: int  # trials that only raced beside them
    comparisons: int  # races of which no candidate is left
    samples_bytes: int  # of raw samples
    starred: int
    unfinished: list[str]  # ids of those that wait or run: with one, nothing is deleted


class HistoryDocument(TypedDict):
    """Trials, newest first, without raw samples."""

    trials: list[TrialDocument]  # type: ignore[valid-type] # made from `TrialResult`
    marks: dict[str, MarksRecord]  # id of the trial -> its marks, where it has any
    rescued: list[str]  # files with results that a full disk did not take


class PruneDocument(TypedDict):
    """What was dropped, or would be with `--dry-run`."""

    dry_run: bool
    trials: list[str]  # those of the oldest race first
    samples_bytes: int  # of their raw samples
    compressed: int  # trials whose samples an earlier version wrote as text: packed now, and nothing lost
    baselines_kept: int  # pinned trials among those that would have been dropped
    kept_bytes: int  # raw samples that are left
    freed_bytes: int  # by which the file gets smaller; about, while nothing is done yet
    file_bytes: int  # size of the file then; about, while nothing is done yet


# --- why ------------------------------------------------------------------------------------------------


class WhyEnd(TypedDict):
    """A whole run of both sides, and what is known of the difference; per run, or per row with `per_row`."""

    baseline_s: float  # its p50
    candidate_s: float  # raced: the baseline's p50 divided by the ratio of the rounds; else its own p50
    candidate_p50_s: float  # as it is stored
    difference_s: float  # candidate minus baseline: below zero the candidate is faster
    low_s: float | None  # 95 % interval of the difference; null: not known
    high_s: float | None
    verdict: Verdict
    words: str  # the verdict with its numbers
    raced: bool  # in the same rounds of one comparison
    per_row: bool  # the two fed different numbers of rows


class WhyPart(TypedDict):
    """A part of the difference."""

    label: str
    baseline_s: float
    candidate_s: float
    difference_s: float  # candidate minus baseline
    share: float | None  # of the whole difference; below zero where it works against it


class WhyRow(WhyPart):
    """One kind of work in both results."""

    kind: RowKind
    half_width_s: (
        float | None
    )  # of the difference, 95 %, from its scatter between the passes; null: not known
    baseline_nodes: int
    candidate_nodes: int


class WhyGroup(WhyPart):
    """Nodes of both sides that do the same work, and the nodes of the model that it comes from."""

    kind: Kind
    half_width_s: float | None
    baseline: list[GroupNode]
    candidate: list[GroupNode]
    model: list[str]  # names; of those in a body with all that encloses them
    baseline_by_pass: list[float]
    candidate_by_pass: list[float]


class WhyMove(WhyPart):
    """Nodes that one side ran on other providers than the other; the times of their groups."""

    baseline: list[str]  # providers
    candidate: list[str]
    nodes: int  # of the model


class WhyDocument(TypedDict):
    """Where the difference of two results comes from. After a failure only trials, state and error."""

    baseline: str  # trial
    candidate: str  # trial
    state: JobState
    error: ErrorRecord | None
    sentence: NotRequired[str]
    measure_longer: NotRequired[str | None]  # comparison that can be continued; null: none, or no need
    end: NotRequired[WhyEnd]
    rows: NotRequired[list[WhyRow]]  # largest difference first; empty where nothing is decided
    groups: NotRequired[list[WhyGroup]]  # largest difference first
    moves: NotRequired[list[WhyMove]]
    seen_s: NotRequired[float]  # the difference of the passes' own runs, without the profiler
    seen_half_width_s: NotRequired[float | None]
    instrument_s: NotRequired[float]  # taken off every call of a node: what the profiler adds to it
    scales: NotRequired[list[float]]
    passes: NotRequired[int]  # of each side
    runs: NotRequired[list[int]]  # of each pass
    overlapping: NotRequired[bool]  # nodes of one run ran at the same time
    host_timed: NotRequired[bool]  # some times are those of starting a kernel on a GPU
    origins_known: NotRequired[list[bool]]
    notes: NotRequired[list[str]]


class GraphTensor(TypedDict):
    """What a node takes or gives."""

    name: str
    dtype: str  # numpy's name; "unknown": nothing says it
    shape: list[int | str] | None  # "?": a size that nothing says; null: the rank is not known


class GraphNodeDocument(TypedDict):
    """A node of a graph."""

    name: str
    op_type: str  # with its domain, unless that is ai.onnx
    path: list[str]  # names of the nodes whose bodies enclose it, outermost first
    role: str  # what the innermost of them uses that body for; empty: the main graph
    scope: list[str]  # the modules that its author put it in, outermost first
    precision: str  # type that it computes in
    inputs: list[GraphTensor]
    outputs: list[GraphTensor]
    weight_bytes: int  # of the weights that it reads
    attributes: dict[str, str]  # long values are cut, tensors and graphs told by what they are
    does: list[str]  # of an optimized graph: names of the model's nodes whose work it does
    inserted: bool  # by ONNX Runtime
    self_s: float | None  # per run, of a profile; null: none was asked for, or it did not run by itself
    with_others: int | None  # further nodes that share this time, as of a fused one
    providers: list[str]  # where it ran
    error: float | None  # relative L2 error of the outputs when only this is quantized; null: not known


class GraphChange(TypedDict):
    """Nodes that ONNX Runtime changed in the same way."""

    kind: Literal[
        "fused", "inserted", "replaced", "removed", "unknown"
    ]  # unknown: no node of the model is known
    op_type: str  # of the optimized graph, without its domain; empty: removed
    of: str  # of replaced nodes: the model's operator; else empty
    by: str  # of replaced nodes: the operator that stands there now; else empty
    count: int


class GraphDocument(TypedDict):
    """The nodes of a model, or of what ONNX Runtime makes of it. After a failure only state and error."""

    state: JobState
    error: ErrorRecord | None
    model: NotRequired[str]
    content_sha256: NotRequired[str]
    optimized: NotRequired[bool]
    count: NotRequired[int]  # of all nodes, those that a filter left out among them
    nodes: NotRequired[list[GraphNodeDocument]]
    profile: NotRequired[str | None]  # trial that the times are of
    unmatched_s: NotRequired[float | None]  # per run, of profiled nodes that stand for no node here
    effective_providers: NotRequired[list[str]]  # of the session whose graph this is; empty: none was built
    changes: NotRequired[list[GraphChange]]  # of an optimized graph, the most frequent first; else empty
    notes: NotRequired[list[str]]


# --- accuracy and targets -------------------------------------------------------------------------------


class ShareDocument(TypedDict):
    """A share of rows with Wilson's 95 % interval; null of no rows."""

    value: float | None
    low: float | None
    high: float | None
    count: int
    total: int


ClassDocument = TypedDict(  # one class against all others; `class` can be no attribute
    "ClassDocument",
    {
        "name": str,
        "class": int,
        "support": int,
        "sensitivity": ShareDocument,
        "specificity": ShareDocument,
        "precision": ShareDocument,
        "roc_auc": Interval,
    },
)


class AccuracySummary(TypedDict):
    """Every metric of a model on its data."""

    rows: int
    classes: int
    class_names: list[str]
    not_finite: int  # rows with NaN or Inf, which count as wrong
    accuracy: ShareDocument  # top-1
    top5: ShareDocument | None  # null: not more than five classes
    roc_auc: Interval  # mean over the classes
    confusion: list[list[int]]  # true class -> predicted class
    per_class: list[ClassDocument]
    positive: dict[str, Any] | None  # the class that a threshold decides on
    missing_classes: list[str]
    calibration: wire.CalibrationRows | None
    calibration_note: str
    notes: list[str]


class AccuracyRecord(TypedDict):
    """One model on one dataset."""

    id: str
    key: str
    model_sha256: str
    model_name: str
    spec: dict[str, Any]
    dataset: dict[str, Any]
    reply: wire.AccuracyReply
    scores_path: str  # `.npz` with `scores` [rows, classes] and `labels` [rows]
    created_at: float  # seconds since the epoch
    fingerprint: str
    summary: AccuracySummary


class JudgedPair(TypedDict):
    """Whether a candidate is worse than its reference by more than `delta`, on the same rows."""

    verdict: PairVerdict
    text: str
    rows: int
    both: int  # rows that both answered rightly
    only_reference: int  # that the reference alone did
    only_candidate: int
    neither: int
    delta: float
    reference: ShareDocument
    candidate: ShareDocument
    difference: float | None  # candidate less reference
    low: float
    high: float
    p: float  # of McNemar's exact test
    rows_needed: int | None  # for an answer; null: no number of rows is enough


class NamedAccuracy(TypedDict):
    """A side of a comparison."""

    id: str
    model: str


class AccuracyPair(TypedDict):
    """Two models on the same rows."""

    reference: NamedAccuracy
    candidate: NamedAccuracy
    rows: int
    delta: float  # a loss that still counts as not worse
    agreement: ShareDocument  # rows in which both predict the same class
    accuracy: JudgedPair
    positive: dict[str, Any] | None
    sensitivity: JudgedPair | None
    specificity: JudgedPair | None
    roc_auc: dict[str, float | None] | None


class AccuracyDocument(TypedDict):
    """What `accuracy` found."""

    accuracies: list[AccuracyRecord]
    comparisons: list[AccuracyPair]
    errors: list[ErrorRecord]


class JudgedTarget(TypedDict):
    """A target and what is known of it, in the metric's unit."""

    target: dict[str, Any]
    state: State
    value: float | None
    low: float | None
    high: float | None
    margin: float | None  # from the worse end of the interval to the limit; negative: beyond it
    why: str
    todo: str
    cause: Cause  # of UNKNOWN


class NamedModel(TypedDict):
    """A model, by name and content."""

    name: str
    sha256: str


class CheckDocument(TypedDict):
    """The scorecard of a configuration."""

    state: State
    model: NamedModel
    spec: dict[str, Any]
    targets: list[JudgedTarget]
    trials: list[str]
    breach: str | None  # why its outputs are not what they should be
    calibration_note: str | None
    error: ErrorRecord | None
    sizes_from: NotRequired[dict[str, Source]]  # dimension that nobody gave a size -> where that is from


# --- verifications --------------------------------------------------------------------------------------


class SamePart(VerificationPart):
    """Whether it answers the same: YES, NO, or UNKNOWN."""

    error: wire.OutputError | None  # of its outputs against the recorded ones; null: they were not compared


class FastPart(VerificationPart):
    """Whether it is as fast: HOLDS, DIFFERS, UNDECIDED, or NOT_MEASURED."""

    gains: list[TransferRecord]


class DifferingFact(TypedDict):
    """A fact of the machine that is not what it was."""

    name: str
    recorded: str
    here: str


class VerifyDocument(TypedDict):
    """What a recorded configuration does on this machine."""

    # exit code 0, 0, 1, 3; NOT_MEASURED: all but the speed, which `--no-measure` leaves out
    state: Literal["CONFIRMED", "NOT_MEASURED", "FAILED", "UNDECIDED"]
    passed: bool  # everything that was asked for is confirmed
    file: str
    model: NamedModel
    recorded_trial: str | None  # where it was measured
    runs: VerificationPart  # YES, NO, or UNKNOWN
    same: SamePart
    fast: FastPart
    checks: list[CheckedFact]  # what needs no measuring
    differences: list[DifferingFact]  # of the machines
    targets: list[JudgedTarget]
    change: ChangeRecord | None  # against a baseline of this machine; null: none was named
    margin: float  # a gain that differs by less from the recorded one is the same
    trial: str | None  # of the race here
    comparison: str | None
    recorded_to: str | None  # file with this machine's own numbers
    notes: list[str]
    tool_version: str
    error: ErrorRecord | None


# --- models ---------------------------------------------------------------------------------------------


class InspectDocument(wire.ModelInfo):
    """A model file."""

    loads: str | None  # what ONNX Runtime says of it; null: not asked for with `--load`
    suggested: str  # options that give every free dimension a size; empty: there is none
    suggested_from: dict[str, Source]  # dimension -> where its size is from; the batch is 1
    not_fed: str | None  # why ORTune cannot run it: an input that it cannot feed; null: it can


class ExportDocument(wire.ExportReply):
    """A model that was exported, and how far it is from its source."""

    state: JobState
    error: None


class StepDocument(TypedDict):
    """A variant that one step made."""

    model: str
    content_sha256: str
    path: str
    variant: dict[str, Any]  # how it was made: steps, original, error, checks
    guard: NotRequired[Judged | None]


class TransformDocument(TypedDict):
    """A chain of steps, and the variant at its end. After a failure only state and error."""

    state: JobState
    error: ErrorRecord | None
    model: NotRequired[str]
    content_sha256: NotRequired[str]
    path: NotRequired[str]
    written: NotRequired[list[str] | None]  # files that `-o` wrote
    reused: NotRequired[int]  # steps that had been made before
    steps: NotRequired[list[StepDocument]]
    notes: NotRequired[list[str]]


class NodeErrorsDocument(TypedDict):
    """What quantizing each operator costs and saves."""

    units: list[Unit]  # quantized operators, largest error first
    whole: float  # relative L2 error of the whole variant's outputs, as measured
    timed: bool
    elsewhere_s: (
        float  # saved by nodes that are no quantized operator; below zero: conversions cost that much
    )
    float_s: float | None  # a typical run of the float model; null: not timed
    quantized_s: float | None
    state: JobState
    error: ErrorRecord | None
    variant: str
    libraries: NotRequired[dict[str, str]]  # of native code that ran in it: name -> "sha256:…"
    curve: list[Choice]
    halving: list[str]  # operators to leave in float so that the error halves
    fed: list[FedInput]
    notes: list[str]


class RacedVariant(TypedDict):
    """The newest race of a variant against its original."""

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
    against_original: RacedVariant | None  # null: they never raced


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


class FormatRecord(TypedDict):
    """A format in which a trial leaves."""

    name: str  # of `--format`
    file: str  # how the name of its file ends
    purpose: str
    cannot: str  # what it cannot express
    takes_model: bool  # its file holds the model


class FormatsDocument(TypedDict):
    """The formats of `export`."""

    formats: list[FormatRecord]


class ReportDocument(TypedDict):
    """`report`."""

    kind: str  # of the result, in words
    id: str  # by which it is found again
    verdict: str  # one sentence
    rejected: str | None  # why no verdict stands; null: it stands
    format: Literal["html", "md"]
    output: str | None  # the file written; null: none
    output_bytes: int | None
    text: str | None  # the Markdown; null: an HTML file was written


class EmitDocument(TypedDict):
    """A file of settings."""

    trial: str
    format: str
    output: str | None
    text: str  # of a bundle, which is no text, empty
    size_bytes: NotRequired[int]  # of a bundle


# --- searches -------------------------------------------------------------------------------------------


class LookRecord(TypedDict):
    """What one race told of one configuration, to choose by; none of it is reported as a result."""

    stage: Literal["screen", "heat", "confirm"]
    race: str
    trial: str
    gains: dict[str, tuple[float, float | None]]  # metric -> ln(gain over the default), its standard error
    values: dict[str, float]
    error: str
    breach: str
    launches: NotRequired[int]  # fresh processes that the gain by medians rests on
    df: NotRequired[float | None]  # degrees of freedom of that standard error; null: not known
    splits: NotRequired[float]  # by which the 5 % of its interval are divided: interim analyses
    level: NotRequired[float | None]  # ln(seconds a row) of the default in the same race


class TriedRecord(TypedDict):
    """One configuration that a search tried."""

    changes: dict[str, Any]  # what it sets otherwise than ONNX Runtime's default
    key: str
    looks: list[LookRecord]
    twin: bool  # a hidden control


class SearchHead(TypedDict):
    """What stands at the beginning of every search."""

    study: str  # id; also the name of its races and trials
    state: TrialState
    model: str
    error: ErrorRecord | None
    question: dict[str, Any]
    spec: dict[str, Any]  # what stays fixed
    trials: list[TriedRecord]
    sizes_from: NotRequired[dict[str, Source]]  # dimension that nobody gave a size -> where that is from


def _search() -> Any:
    """The head and the answer of a search, whose keys are absent until there is one."""
    parts = {name: NotRequired[hint] for name, hint in get_type_hints(SearchResult).items()}
    return TypedDict("SearchDocument", {**parts, **get_type_hints(SearchHead, include_extras=True)})  # type: ignore[operator]


SearchDocument = _search()


class SpaceDocument(TypedDict):
    """What would be searched."""

    objective: dict[str, float]
    limits: list[str]
    space: SpaceFacts
    axes: dict[str, list[Any]]  # setting -> values, that of the start first
    sizes_from: NotRequired[dict[str, Source]]  # dimension that nobody gave a size -> where that is from


class StudiesDocument(TypedDict):
    """Searches, newest first, without what they tried."""

    studies: list[SearchDocument]  # type: ignore[valid-type] # made from `SearchResult`


class StudyExportedDocument(TypedDict):
    """A search that was written as a study of Optuna."""

    study: str
    optuna: str  # the storage
    trials: int


class StudyDeletedDocument(TypedDict):
    """A search that was deleted."""

    deleted: str


# --- the machine and the store --------------------------------------------------------------------------


class SelfTestDocument(SelfTestResult):
    """An A/A test of this machine, and whether it passes the noise check."""

    state: JobState
    error: None
    model: str
    answer: Answer


class ImportDocument(TypedDict):
    """What was found in a file that was made elsewhere; nothing of it was measured here."""

    imported: bool  # always true: the mark
    id: str
    kind: Literal["profile", "summary"]
    file: str  # its name
    format: str
    sha256: str  # of the file
    created_at: float  # when it was imported, seconds since the epoch
    profile: dict[str, Any] | None  # nodes with their times, and a timeline
    summary: wire.Summary | None  # of onnxruntime_perf_test


class PeaksDocument(wire.PeaksReply):
    """What this machine reaches at most: raw times, and the rates that follow from them."""

    state: JobState
    error: None
    fingerprint: str  # of the machine
    at: float  # seconds since the epoch
    peaks: list[Peak]  # a row for each number of threads


class Contents(TypedDict):
    """What was found in a store: [rows, damaged ones] of each table."""

    trials: tuple[int, int]
    comparisons: tuple[int, int]
    accuracies: tuple[int, int]
    samples: tuple[int, int]
    studies: tuple[int, int]
    marks: tuple[int, int]
    damaged: int


class BackupDocument(Contents):
    """A copy of the store."""

    file: str
    file_bytes: int


class RestoreDocument(Contents):
    """The store after a backup took its place."""

    store: str
    previous: str | None  # where what was there before is kept


class FailureDocument(TypedDict):
    """What any command prints that failed or was cancelled; what was measured stands beside it."""

    trial: NotRequired[str | None]
    state: Literal["FAIL", "CANCELLED"]
    error: ErrorRecord


DOCUMENTS: Mapping[str, Any] = {
    "tune": TrialDocument,
    "compare": RaceDocument,
    "profile": TrialDocument,
    "sweep": SweepDocument,
    "explain": WhyDocument,
    "graph": GraphDocument,
    "accuracy": AccuracyDocument,
    "scorecard": CheckDocument,
    "verify": VerifyDocument,
    "transform": TransformDocument,
    "node-errors": NodeErrorsDocument,
    "inspect": InspectDocument,
    "convert": ExportDocument,
    "export": EmitDocument,
    "export --list": FormatsDocument,
    "report": ReportDocument,
    "history": HistoryDocument,
    "history --prune": PruneDocument,
    "tag": MarkDocument,
    "delete": TrialsDeletedDocument,
    "show TRIAL": TrialDocument,
    "show COMPARISON": RaceDocument,
    "variants list": VariantsDocument,
    "variants rename": RenamedDocument,
    "variants delete": DeletedDocument,
    "search": SearchDocument,
    "search --dry-run": SpaceDocument,
    "searches list": StudiesDocument,
    "searches show": SearchDocument,
    "searches export": StudyExportedDocument,
    "searches delete": StudyDeletedDocument,
    "machine": wire.Environment,
    "machine --self-test": SelfTestDocument,
    "machine --peaks": PeaksDocument,
    "profile --import": ImportDocument,
    "compare --import": ImportDocument,
    "backup": BackupDocument,
    "restore": RestoreDocument,
    "failure": FailureDocument,
}
