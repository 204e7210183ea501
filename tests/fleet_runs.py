"""Made-up fleet runs with literal numbers: documents as the commands print them, hosts, and runs on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.evidence.fleet.fleet_types import (
    Answer,
    AnswerState,
    AskedModel,
    Command,
    FleetRun,
    HostRecord,
    Phase,
    Question,
    RunState,
)
from core.evidence.verdict import Verdict
from core.run.fleet.runs import RunFolder

SHA256 = "5" * 64
MODEL = AskedModel(name="digits_cnn", sha256=SHA256, path="models/digits_cnn.onnx")
THREADS: dict[str, Any] = {"session": {"intra_op_num_threads": 1}}
BASIC: dict[str, Any] = {"session": {"graph_optimization_level": "ORT_ENABLE_BASIC"}}
DF = 12.0
Ratio = tuple[float, float | None, float | None]


def host(name: str, kind: str = "", *, price: float | None = None, **labels: str) -> HostRecord:
    """A host; one without a kind is the only one of its kind."""
    return HostRecord(
        name=name,
        labels=labels,
        price_per_hour=price,
        fingerprint=kind or f"kind-of-{name}",
        environment={
            "fingerprint": kind or f"kind-of-{name}",
            "cpu": {"model": f"CPU {kind or name}", "usable": 4},
            "memory_bytes": 16 << 30,
            "os": "Linux",
            "libraries": {"onnxruntime": "1.31.1"},
        },
        ortune="1.0.0",
    )


def spec(
    part: Mapping[str, Any] | None = None, *, path: str = "/on/the/host/digits_cnn.onnx"
) -> dict[str, Any]:
    """A spec as in a document; no part: the ORT default."""
    return {"model": {"path": path, "sha256": SHA256}, **(part or {})}


def trial(
    name: str,
    part: Mapping[str, Any] | None = None,
    *,
    mean_s: float = 0.001,
    half: float = 0.01,
    **changes: Any,
) -> dict[str, Any]:
    """A trial of a document, with a mean latency of 10 processes and its relative half-width."""
    return {
        "trial": name,
        "state": "COMPLETE",
        "error": None,
        "spec": spec(part),
        "batch_size": 1,
        "throughput_per_s": 1 / mean_s,
        "latency": {
            "mean_s": mean_s,
            "mean_s_low": mean_s * (1 - half),
            "mean_s_high": mean_s * (1 + half),
            "processes": 10,
        },
        "fallback": False,
        **changes,
    }


def contrast(candidate: str, ratio: Ratio, **changes: Any) -> dict[str, Any]:
    """A contrast of a document against the trial `default`."""
    value, low, high = ratio
    return {
        "candidate": candidate,
        "baseline": "default",
        "ratio": value,
        "ratio_low": low,
        "ratio_high": high,
        "df": DF,
        "verdict": str(Verdict.of(low, high, 0.02)),
        "holds": True,
        "outputs_differ": False,
        **changes,
    }


def compared(
    ratios: Mapping[str, Ratio],
    parts: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    mean_s: float = 0.001,
    trials: Mapping[str, Mapping[str, Any]] | None = None,
    contrasts: Mapping[str, Mapping[str, Any]] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A document of `compare`: the candidates and the ORT default as the baseline.

    Args:
        ratios: name of a candidate -> ratio with bounds; its name is its trial, too.
        parts: name -> settings; absent: THREADS and BASIC by the order of the names.
        mean_s: of the default.
        trials: name -> changes of its trial.
        contrasts: name -> changes of its contrast.
        changes: of the document.
    """
    given = parts or dict(zip(ratios, (THREADS, BASIC), strict=False))
    own = [
        trial(name, given[name], mean_s=mean_s / ratio[0], **dict((trials or {}).get(name, {})))
        for name, ratio in ratios.items()
    ]
    return {
        "comparison": "c1",
        "state": "COMPLETE",
        "error": None,
        "contestants": [
            *({"trial": name, "label": name, "role": "candidate"} for name in ratios),
            {"trial": "default", "label": "preset:default", "role": "baseline"},
        ],
        "protocol": {"margin": 0.02, "family": len(ratios)},
        "contrasts": [
            contrast(name, one, **dict((contrasts or {}).get(name, {}))) for name, one in ratios.items()
        ],
        "breaches": {},
        "grade": "B",
        "statistic": "median",
        "busy": None,
        "trials": [*own, trial("default", mean_s=mean_s)],
        **changes,
    }


def searched(
    part: Mapping[str, Any] | None,
    ratio: Ratio = (1.2, 1.15, 1.25),
    *,
    outcome: str = "FOUND",
    **changes: Any,
) -> dict[str, Any]:
    """A document of `search`; no settings: no winner."""
    gain = {"metric": "latency_p50", "ratio": ratio[0], "ratio_low": ratio[1], "ratio_high": ratio[2]}
    same = {"metric": "latency_p50", "ratio": 1.0, "ratio_low": None, "ratio_high": None}

    def confirmed(name: str, own: Mapping[str, Any] | None, numbers: Mapping[str, Any]) -> dict[str, Any]:
        verdict = str(Verdict.of(numbers["ratio_low"], numbers["ratio_high"], 0.02))
        return {
            "trial": name,
            "spec": spec(own),
            "gain": {**numbers, "verdict": verdict},
            "contrast": {**numbers, "df": DF, "verdict": verdict} if own is not None else None,
            "limits": [],
            "measurements": {"throughput": 1000.0, "latency_mean": 0.001},
            "error": "",
        }

    return {
        "study": "s1",
        "state": "COMPLETE",
        "error": None,
        "spec": spec(),
        "outcome": outcome,
        "objective": {"latency_p50": 1.0},
        "margin": 0.02,
        "limits": [],
        "winner": confirmed("w1", part, gain) if part is not None else None,
        "default": confirmed("default", None, same),
        "busy": None,
        "trials": [],
        **changes,
    }


def question(
    number: int = 1, command: Command = "compare", phase: Phase = "ask", *arguments: str
) -> Question:
    return Question(number=number, command=command, model=MODEL, phase=phase, arguments=list(arguments))


def answered(
    name: str,
    document: dict[str, Any] | None,
    *,
    number: int = 1,
    state: AnswerState = "COMPLETE",
    **changes: Any,
) -> Answer:
    return Answer(
        key=f"run1-q{number}-a1-{name}",
        question=number,
        host=name,
        state=state,
        exit_code=0 if state == "COMPLETE" else 1,
        document=document,
        **changes,
    )


def run(
    answers: Mapping[str, dict[str, Any] | Answer],
    *,
    command: Command = "compare",
    hosts: Sequence[HostRecord] | None = None,
    state: RunState = "COMPLETE",
    name: str = "nightly",
) -> FleetRun:
    """A run of one question.

    Args:
        answers: host -> the document that it printed, or its answer.
        command: of the question.
        hosts: by default one of a kind of its own for each answer.
        state: of the run.
        name: of the run.
    """
    found = [one if isinstance(one, Answer) else answered(key, one) for key, one in answers.items()]
    return FleetRun(
        id="20261127-0a1b2c3d",
        name=name,
        created_at=1.79e9,
        owner="me on here",
        state=state,
        hosts=list(hosts) if hosts is not None else [host(one) for one in answers],
        questions=[question(1, command)],
        answers=found,
    )


def keep(made: FleetRun) -> FleetRun:
    """Put a run with its documents where the client keeps its runs."""
    folder = RunFolder(made.id)
    folder.path.mkdir(parents=True)
    folder.save(made)
    for one in made.answers:
        folder.save_document(one)
    return made
