"""Types of a comparison: its configurations, their roles, and the added references.

Every measurement is a comparison: a single trial is compared with its baseline and the ORT default.
`Comparison` is the stored record; `with_references` returns the configurations to measure.
Pure data: no clock, no file, no worker. `evidence.result` computes the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.evidence.measurement import Trial, TrialState
from core.evidence.result_types import ComparisonResult, ContrastRecord, Role
from core.spec import TrialSpec, ort_default
from core.wire.errors import ErrorRecord
from core.wire.runtime import runtime

DEFAULT_LABEL = "ORT default"
CANDIDATE_LABEL = "candidate"  # label of a single candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One configuration of a comparison; its numbers are the result of its trial."""

    trial: str  # id
    label: str  # short, for tables and legends: "preset:edge", "batch_size 8", "ORT default"
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Configurations measured together. `result` is None until a round is complete; see `evidence.result`."""

    id: str
    state: TrialState
    model_name: str
    model_sha256: str
    contestants: tuple[Contestant, ...]
    protocol: dict[str, Any]  # precision, target, budget_s, margin, runs, looks, seed, family, splits
    created_at: float  # seconds since the epoch
    study: str = ""
    owner: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    error: ErrorRecord | None = None
    result: ComparisonResult | None = None
    fingerprint: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def facts(self) -> ComparisonResult:
        """The result; an empty dict where there is none."""
        return self.result if self.result is not None else {}

    @property
    def baseline(self) -> str:
        """Trial that the others are compared with: the baseline where there is one, else the ORT default."""
        by_role = {one.role: one.trial for one in reversed(self.contestants)}
        return by_role.get("baseline") or by_role.get("anchor") or self.contestants[0].trial

    @property
    def is_single_trial(self) -> bool:
        """Whether it measured a single candidate, as Tune and `tune` do; always False for a study."""
        return not self.study and [one.label for one in self.contestants if one.role == "candidate"] == [
            CANDIDATE_LABEL
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, as `--json` prints it."""
        data = asdict(self)
        data["comparison"] = data.pop("id")
        result = data.pop("result") or {}
        return {**data, **result}


# --- configurations to measure ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration to measure, with its label."""

    spec: TrialSpec
    label: str
    role: Role = "candidate"
    model: str = ""  # name of its model; empty: the name of the file


def with_references(asked: Sequence[Configuration]) -> list[Configuration]:
    """Return all configurations to measure: candidates, baseline, and ORT default on the same workload.

    The default is added only if it is not among them. A candidate that equals the default comes first, so
    that `Comparison.baseline` finds it. The protocol of the first candidate (effort, budget, margin and
    number of runs) applies to all configurations.

    Args:
        asked: at least one candidate, at most one baseline. Without a configuration of the role "anchor", the
            ORT default gets the workload of the first candidate.
    """
    candidates = [one for one in asked if one.role == "candidate"]
    assert candidates, "no other configuration to compare with"
    first = candidates[0].spec
    shared = {name: getattr(first.protocol, name) for name in ("effort", "budget_s", "margin", "runs")}
    configurations = [*candidates, *(one for one in asked if one.role == "baseline")]
    given = next((one for one in asked if one.role == "anchor"), None)
    default = ort_default(first) if given is None else given.spec
    configurations.sort(key=lambda one: one.role == "baseline" or not same_request(one.spec, default))
    if not any(same_request(one.spec, default) for one in configurations):
        label = _default_label(candidates[0], default, asked) if given is None else given.label
        configurations.append(Configuration(spec=default, label=label, role="anchor"))
    return [
        Configuration(
            spec=one.spec.model_copy(update={"protocol": one.spec.protocol.model_copy(update=shared)}),
            label=one.label,
            role=one.role,
            model=one.model,
        )
        for one in configurations
    ]


def _default_label(first: Configuration, default: TrialSpec, asked: Sequence[Configuration]) -> str:
    """Return the label of the ORT default, with its model, runtime and I/O binding where these differ."""
    label, binding = DEFAULT_LABEL, first.spec.workload.use_io_binding
    if several_models([one.spec for one in asked]):
        label += f" ({first.model or Path(first.spec.model.path).stem})"
    if several_runtimes([one.spec for one in asked]):
        label += f" ({runtime(default.runtime).name})"
    if any(one.role == "baseline" and one.spec.workload.use_io_binding != binding for one in asked):
        label += f", io_binding {'on' if binding else 'off'}"
    return label


def several_models(specs: Sequence[TrialSpec]) -> bool:
    """Whether specs name several models, compared by path and, where all hashes are known, by hash."""
    paths, hashes = {one.model.path for one in specs}, {one.model.sha256 for one in specs}
    return len(paths) > 1 and (None in hashes or len(hashes) > 1)


def several_runtimes(specs: Sequence[TrialSpec]) -> bool:
    """Whether specs run in several runtimes, by name."""
    return len({runtime(one.runtime).name for one in specs}) > 1


def same_request(one: TrialSpec, other: TrialSpec) -> bool:
    """Whether two specs request the same configuration, regardless of the effort."""
    return _request(one) == _request(other)


def _request(spec: TrialSpec) -> dict[str, Any]:
    data = {name: part for name, part in spec.request().items() if name != "protocol"}
    identity = "path" if spec.model.sha256 is None else "sha256"
    ignored = {"path", "sha256"} - {identity}
    data["model"] = {name: value for name, value in data["model"].items() if name not in ignored}
    return {**data, "cpus": spec.protocol.cpus, "warmup_runs": spec.protocol.warmup_runs}


# --- verdicts on the candidates ---------------------------------------------------------------------------


def against_baseline(comparison: Comparison) -> list[ContrastRecord]:
    """Return the verdicts on the candidates: contrasts against the comparison's baseline."""
    candidates = {one.trial for one in comparison.contestants if one.role == "candidate"}
    return [
        one
        for one in comparison.facts.get("contrasts", ())
        if one["candidate"] in candidates and one["baseline"] == comparison.baseline
    ]


def has_undecided(comparison: Comparison) -> bool:
    """Whether the verdict on a candidate is undecided or missing."""
    verdicts = {one["candidate"]: one["verdict"] for one in against_baseline(comparison)}
    asked = [
        one.trial
        for one in comparison.contestants
        if one.role == "candidate" and one.trial != comparison.baseline
    ]
    return any(verdicts.get(trial, "UNDECIDED") == "UNDECIDED" for trial in asked)


def failures(comparison: Comparison, trials: Sequence[Trial]) -> list[ErrorRecord]:
    """Return the errors of the requested configurations: the candidates and the baseline.

    Configurations that were cancelled because others failed are omitted, if there is another error.
    """
    asked = {one.trial for one in comparison.contestants if one.role != "anchor"}
    errors = [trial.error for trial in trials if trial.id in asked and trial.error is not None]
    return [one for one in errors if one["type"] != "Cancelled"] or errors
