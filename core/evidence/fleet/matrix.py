"""The answers of one question as hosts × configurations. Pure: documents in, cells out.

A ratio compares a configuration with the reference of the same host, which is its ORT default unless the
question names another baseline. Latencies of different hosts are never paired.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.evidence.fleet.fleet_types import Answer, AnswerState, FleetRun, HostRecord, Phase
from core.evidence.fleet.intervals import FleetInterval, interval_of
from core.evidence.fleet.pairs import PairRatio, by_key, pairs_of
from core.evidence.streams import throughput_interval
from core.evidence.verdict import MIN_LAUNCHES, Verdict, is_rejected
from core.spec.effort import DEFAULT_MARGIN
from core.spec.targets import TargetSpec
from core.spec.validation import validated
from core.wire.errors import SpecError
from core.wire.output_check import OUTPUTS_DIFFER

DEFAULT_KEY = "default"  # key of ONNX Runtime's default on the model of the question
NOT_COMPARED = ("protocol", "targets", "dataset", "dynamic_batching")
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One configuration, the same on every host."""

    key: str
    label: str  # as the comparison calls it
    spec: dict[str, Any]  # as in a YAML file; only what differs from the defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One configuration on one host."""

    trial: str  # ID; empty: not stored
    speedup: FleetInterval | None  # ratio to the host's reference, above 1 is better; None: not known
    verdict: Verdict | None  # None: the reference itself, or no ratio
    throughput: FleetInterval | None  # samples per second
    latency_s: FleetInterval | None  # mean
    unusable: str  # why the configuration cannot be used on this host; empty: it can


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """A constraint of the question on one host."""

    limit: str
    state: str  # MET, MISSED, UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """The answer of one host."""

    host: str
    kind: str
    price_per_hour: float | None
    state: AnswerState
    attempt: int
    why: str  # why there is no result; empty: there is one, or it is not there yet
    text: str  # result in a few words
    reference: str  # key of the configuration that the ratios refer to; empty: none
    best: tuple[str, ...]  # keys of the configurations that may be the fastest; one: decided
    rejected: str  # why no ratio is valid; empty: they are
    busy: str  # background load; empty: none
    margin: float  # equivalence margin
    limits: tuple[LimitState, ...] = ()
    cells: Mapping[str, Cell] = field(default_factory=dict)
    # configuration -> another one -> its speed relative to that; empty: ratios to the reference only
    pairs: Mapping[str, Mapping[str, PairRatio]] = field(default_factory=dict)

    @property
    def usable(self) -> dict[str, Cell]:
        """Cells of the configurations that can be used on this host; none if the ratios are not valid."""
        return {} if self.rejected else {key: one for key, one in self.cells.items() if not one.unusable}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One question: its hosts and configurations."""

    question: int
    command: str
    phase: Phase
    model: str
    model_sha256: str
    metric: str  # what the ratios compare
    configurations: tuple[Configuration, ...]
    rows: tuple[HostRow, ...]

    def configuration(self, key: str) -> Configuration:
        """Return the configuration with this key."""
        return next(one for one in self.configurations if one.key == key)

    @property
    def measured(self) -> list[HostRow]:
        """Rows of hosts that gave a result."""
        return [one for one in self.rows if one.cells]


def matrix(run: FleetRun, number: int, trials: Mapping[str, Document] | None = None) -> Matrix:
    """Return the answers of question `number` of a run as hosts × configurations.

    Args:
        run: with its answers.
        number: of the question; every host that was asked has a row, with or without a result.
        trials: stored trials by ID, which hold intervals that the document of a search lacks.
    """
    question = next(one for one in run.questions if one.number == number)
    answers = run.answers_of(number)
    read = _READERS.get(question.command, _words_only)
    found: dict[str, Configuration] = {}
    rows, metrics = [], []
    for host in run.hosts:
        if (answer := answers.get(host.name)) is None:
            continue
        made = read(answer.document, question.model.sha256, trials or {}) if answer.document else _Read()
        for one in made.configurations:
            found.setdefault(one.key, one)
        metrics += [made.metric] if made.metric else []
        rows.append(_row(host, answer, made))
    ordered = sorted(found.values(), key=lambda one: one.key != DEFAULT_KEY)
    return Matrix(
        question=number,
        command=question.command,
        phase=question.phase,
        model=question.model.name,
        model_sha256=question.model.sha256,
        metric=", ".join(dict.fromkeys(metrics)) or "latency_p50",
        configurations=tuple(ordered),
        rows=tuple(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What one document says."""

    configurations: Sequence[Configuration] = ()
    cells: Mapping[str, Cell] = field(default_factory=dict)
    reference: str = ""
    best: tuple[str, ...] = ()
    text: str = ""
    why: str = ""
    rejected: str = ""
    busy: str = ""
    metric: str = ""
    margin: float = DEFAULT_MARGIN
    limits: tuple[LimitState, ...] = ()
    pairs: Mapping[str, Mapping[str, PairRatio]] = field(default_factory=dict)


def _row(host: HostRecord, answer: Answer, made: _Read) -> HostRow:
    why = made.why
    if answer.error is not None and not made.cells:
        why = answer.error["message"]
    return HostRow(
        host=host.name,
        kind=host.kind,
        price_per_hour=host.price_per_hour,
        state=answer.state,
        attempt=answer.attempt,
        why=why,
        text=made.text,
        reference=made.reference,
        best=made.best,
        rejected=made.rejected,
        busy=made.busy,
        margin=made.margin,
        limits=made.limits,
        cells=made.cells,
        pairs=made.pairs,
    )


def configuration_key(spec: Document, model_sha256: str) -> str:
    """Return a key that equal configurations have on every host.

    Paths, the effort, and the hash of a runtime are left out, because they differ between hosts. A model
    counts by its content, and that of the question by nothing, so that the ORT default is `DEFAULT_KEY`.

    Args:
        spec: as in a YAML file; only what differs from the defaults.
        model_sha256: of the question's model.
    """
    data = {name: part for name, part in spec.items() if name not in NOT_COMPARED and part}
    model = {name: one for name, one in data.pop("model", {}).items() if name not in ("path", "name")}
    if model.get("sha256") == model_sha256 or model.get("sha256") is None:
        model.pop("sha256", None)
    if "runtime" in data:
        data["runtime"] = str(data["runtime"]).partition("@")[0]
    workload = {
        name: one for name, one in data.pop("workload", {}).items() if (name, one) != ("batch_size", 1)
    }
    data |= {name: part for name, part in (("model", model), ("workload", workload)) if part}
    if not data:
        return DEFAULT_KEY
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- comparisons and sweeps ---------------------------------------------------------------------------------


def _comparison(document: Document, model_sha256: str, _: Mapping[str, Document]) -> _Read:
    trials = {one["trial"]: one for one in document.get("trials") or ()}
    return _compared(document, trials, model_sha256)


def _sweep(document: Document, model_sha256: str, _: Mapping[str, Document]) -> _Read:
    trials = {one["trial"]: one for one in document.get("points") or () if one.get("trial")}
    if (comparison := document.get("comparison")) is not None:
        made = _compared(comparison, trials, model_sha256)
        return _Read(**{**_fields(made), "text": str(document.get("verdict") or "")})
    found: dict[str, Cell] = {}
    configurations = []
    for trial in trials.values():
        one = _configuration(trial, "", model_sha256)
        configurations.append(one)
        found[one.key] = _cell(trial, None, "")
    return _Read(configurations=configurations, cells=found, text=str(document.get("verdict") or ""))


def _fields(made: _Read) -> dict[str, Any]:
    return {name: getattr(made, name) for name in _Read.__dataclass_fields__}


def _compared(document: Document, trials: Mapping[str, Document], model_sha256: str) -> _Read:
    contestants: Sequence[Document] = document.get("contestants") or ()
    reference = _reference(contestants)
    own_sha256 = _model_sha256(trials.get(reference)) or model_sha256
    contrasts: Sequence[Document] = document.get("contrasts") or ()
    against = {one["candidate"]: one for one in contrasts if one["baseline"] == reference}
    breaches: Mapping[str, str] = document.get("breaches") or {}
    configurations: list[Configuration] = []
    cells: dict[str, Cell] = {}
    reference_key = ""
    for one in sorted(contestants, key=lambda one: one["trial"] != reference):
        trial = trials.get(one["trial"], {"trial": one["trial"]})
        made = _configuration(trial, one["label"], own_sha256)
        if one["trial"] == reference:
            reference_key = made.key
        elif made.key in cells:
            continue  # measured twice under two labels
        configurations.append(made)
        own = _OWN if one["trial"] == reference else against.get(one["trial"])
        cells[made.key] = _cell(trial, own, breaches.get(one["trial"], ""))
    failed = str(document.get("grade_reason") or "The A/A control failed.") if is_rejected(document) else ""
    keys = {one.trial: key for key, one in cells.items()}
    return _Read(
        configurations=configurations,
        cells=cells if contrasts else {},
        pairs=by_key(pairs_of({**document, "trials": list(trials.values())}), keys),
        reference=reference_key,
        best=() if failed else fastest(cells),
        why=_message(document),
        rejected=failed,
        busy=_busy(document),
        metric="throughput" if document.get("statistic") == "throughput" else "latency_p50",
        margin=_margin(document.get("protocol")),
    )


_OWN: Document = {"ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0, "df": None, "verdict": None}


def _reference(contestants: Iterable[Document]) -> str:
    roles = {one["role"]: str(one["trial"]) for one in contestants}
    return roles.get("baseline") or roles.get("anchor") or ""


def _model_sha256(holder: Document | None) -> str:
    """Return the hash of the `.onnx` file in a spec; that of a model with external data covers these, too."""
    return str((((holder or {}).get("spec") or {}).get("model") or {}).get("sha256") or "")


def _configuration(trial: Document, label: str, model_sha256: str) -> Configuration:
    spec = dict(trial.get("spec") or {})
    key = configuration_key(spec, model_sha256) if spec else f"label:{label}"
    return Configuration(key=key, label=label, spec=spec)


def _cell(trial: Document, contrast: Document | None, breach: str) -> Cell:
    error = trial.get("error") or {}
    unusable = str(error.get("message") or "")
    if not unusable and trial.get("fallback"):
        unusable = str(trial.get("fallback_reason") or "Nodes ran on another provider than requested.")
    if not unusable and (breach or (contrast or {}).get("outputs_differ")):
        unusable = f"{OUTPUTS_DIFFER.capitalize()}{f': {breach}' if breach else '.'}"
    ratio = interval_of(contrast, "ratio", df=(contrast or {}).get("df"))
    doubted = contrast is not None and is_rejected(contrast)
    verdict = None if contrast is None or contrast["verdict"] is None else Verdict[contrast["verdict"]]
    if doubted and ratio is not None:
        ratio, verdict = FleetInterval(value=ratio.value), Verdict.UNDECIDED
    return Cell(
        trial=str(trial.get("trial") or ""),
        speedup=ratio,
        verdict=verdict,
        throughput=_throughput(trial),
        latency_s=_mean(trial),
        unusable=unusable,
    )


def _process_df(trial: Document) -> float | None:
    """Return the degrees of freedom of the mean's interval, which is a `trimmed_estimate` of processes."""
    processes = (trial.get("latency") or {}).get("processes")
    if not processes or processes < MIN_LAUNCHES:
        return None
    return float(processes - 2 * (processes // 5) - 1)  # a fifth is trimmed at each end


def _mean(trial: Document) -> FleetInterval | None:
    return interval_of(trial.get("latency"), "mean_s", df=_process_df(trial))


def _throughput(trial: Document) -> FleetInterval | None:
    rate = trial.get("throughput_per_s")
    if not rate:
        return None
    low, high = throughput_interval(trial)
    return FleetInterval(value=rate, low=low, high=high, df=_process_df(trial))


def fastest(cells: Mapping[str, Cell]) -> tuple[str, ...]:
    """Return the keys of the usable configurations that may be the fastest by their intervals.

    A configuration is out if the whole interval of another one is above its own. One without an interval
    stays in.
    """
    usable = {key: one.speedup for key, one in cells.items() if not one.unusable and one.speedup is not None}
    lows = [one.low for one in usable.values() if one.low is not None]
    most = max(lows, default=0.0)
    kept = {key: one for key, one in usable.items() if one.high is None or one.high >= most}
    return tuple(sorted(kept, key=lambda key: -kept[key].value))


# --- searches -----------------------------------------------------------------------------------------------


def _search(document: Document, model_sha256: str, trials: Mapping[str, Document]) -> _Read:
    winner, default = document.get("winner"), document.get("default")
    told = [one for one in (default, winner) if one]
    own_sha256 = _model_sha256(document) or model_sha256
    configurations, cells = [], {}
    for one in told:
        own = _configuration(one, "", own_sha256)
        if own.key in cells:
            continue
        configurations.append(own)
        cells[own.key] = _searched(one, trials.get(one["trial"]) or {}, is_default=one is default)
    outcome = document.get("outcome")
    reference = configurations[0].key if default and configurations else ""
    best: tuple[str, ...] = ()
    if outcome == "FOUND" and winner:
        best = (configurations[-1].key,)
    elif outcome == "NO_DIFFERENCE" and reference:
        best = (reference,)
    elif outcome == "UNDECIDED":
        best = fastest(cells)
    return _Read(
        configurations=configurations,
        cells=cells,
        reference=reference,
        best=best,
        text=str(outcome or ""),
        why=_message(document),
        rejected="The confirmation was rejected: its A/A control failed." if outcome == "REJECTED" else "",
        busy=_busy(document),
        metric=" and ".join(document.get("objective") or ()),
        margin=float(document.get("margin") or DEFAULT_MARGIN),
        limits=tuple(
            LimitState(limit=one["limit"], state=one["state"])
            for one in (winner or default or {}).get("limits") or ()
        ),
    )


def _searched(one: Document, trial: Document, *, is_default: bool) -> Cell:
    gain = _OWN if is_default else one.get("gain")
    contrast = one.get("contrast") or {}
    is_of_rounds = gain is not None and contrast.get("ratio") == gain["ratio"]
    rate = (one.get("measurements") or {}).get("throughput")
    mean = (one.get("measurements") or {}).get("latency_mean")
    return Cell(
        trial=str(one.get("trial") or ""),
        speedup=interval_of(gain, "ratio", df=contrast.get("df") if is_of_rounds else None),
        verdict=None if is_default or gain is None else Verdict[gain["verdict"]],
        throughput=_throughput(trial) or (FleetInterval(value=rate) if rate else None),
        latency_s=_mean(trial) or (FleetInterval(value=mean) if mean else None),
        unusable=str(one.get("error") or ""),
    )


# --- other commands -----------------------------------------------------------------------------------------


def _words_only(document: Document, _: str, __: Mapping[str, Document]) -> _Read:
    """Return the state of a verification, a scorecard or a load test; it has no configurations to compare."""
    load = document.get("load") or {}
    targets = tuple(
        LimitState(limit=_target_words(one), state=str(one["state"])) for one in document.get("targets") or ()
    )
    return _Read(
        text=str(load.get("words") or document.get("state") or ""),
        why=_message(document),
        limits=targets,
        busy=_busy(document),
    )


def _target_words(judged: Document) -> str:
    try:
        target = validated(TargetSpec, judged["target"])
    except (KeyError, SpecError):  # of another version
        return "target"
    return f"{target.what} {target.limit_words}"


def _message(document: Document) -> str:
    return str((document.get("error") or {}).get("message") or "")


def _busy(document: Document) -> str:
    return str((document.get("busy") or {}).get("words") or "")


def _margin(protocol: Document | None) -> float:
    return float((protocol or {}).get("margin") or DEFAULT_MARGIN)


_READERS = {"compare": _comparison, "sweep": _sweep, "search": _search}
