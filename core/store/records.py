"""Records of the store that no other package defines: models, accuracies, searches, and counts of rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from core import wire
from core.evidence.measurement import TrialState
from core.wire.errors import ErrorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """One model of the library. `details` holds facts of its creation, for example export differences."""

    content_sha256: str  # of the .onnx file and its external data: the identity
    sha256: str  # of the .onnx file alone
    name: str
    path: str
    source: str  # "sample", "upload", "export", "file" or "folder"
    info: wire.ModelInfo
    note: str = ""
    created_at: float = 0.0  # seconds since the epoch
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Scores of one model and configuration on one dataset; every metric is computed from them."""

    id: str
    key: str  # equal for the same session on the same data
    model_sha256: str  # content of the model
    model_name: str
    spec: dict[str, Any]  # as in a YAML file, with the data
    dataset: dict[str, Any]  # as in a YAML file
    reply: wire.AccuracyReply
    scores_path: str  # `.npz` with `scores` [samples, classes] and `labels` [samples]
    created_at: float  # seconds since the epoch
    fingerprint: str = ""  # of the machine; empty: not known, so never reused

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """One search: its question, its evaluations so far, and its answer.

    Its id is the study of its comparisons and trials.
    """

    id: str
    state: TrialState
    question: dict[str, Any]  # `Question` as plain data
    spec: dict[str, Any]  # fixed settings and protocol
    model_name: str
    model_sha256: str  # content of the model
    created_at: float  # seconds since the epoch
    owner: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    wall_s: float = 0.0  # time spent so far, including before interruptions
    tried: list[dict[str, Any]] = field(default_factory=list)  # `Evaluation` as plain data, in order
    answer: dict[str, Any] | None = None  # `SearchResult`; None: not yet
    error: ErrorRecord | None = None
    fingerprint: str = ""  # of the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """Who made a result, and who sees it; the default is a shared result without a person."""

    person: str = ""  # stable id; empty: unknown, as for results of earlier versions
    private: bool = False  # only its person and admins see it; False: shared with the team

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Rows that a deletion of trials removes, or would remove."""

    trials: tuple[str, ...]  # ids of the requested trials that exist
    references: int  # baselines and ORT defaults of their comparisons, deleted with them
    comparisons: int  # comparisons without remaining candidates
    samples_bytes: int  # of raw measurements
    starred: int
    unfinished: tuple[str, ...]  # ids of waiting or running trials


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of a check of a store: for each table the number of rows, and of damaged rows."""

    trials: tuple[int, int]
    comparisons: tuple[int, int]
    accuracies: tuple[int, int]
    samples: tuple[int, int]
    studies: tuple[int, int]
    marks: tuple[int, int]
    visibility: tuple[int, int]

    @property
    def damaged(self) -> int:
        """Number of damaged rows."""
        return sum(getattr(self, one.name)[1] for one in fields(self))
