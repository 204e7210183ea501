"""One trial as a sheet: a measurement, one without a result, a profile. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from core.evidence.documents import ComparisonResult, ContrastRecord, TrialResult
from core.evidence.fed import fed_from_dict, fed_words
from core.evidence.measurement import Trial, model_words
from core.evidence.verdict import Grade, is_rejected, look
from core.show.sheets import Fact, Line, Note, Part, Sheet, Table
from core.show.words import changes_in_words, changes_of, counted, interval, noise, short, verdict, when
from core.spec import changed, spec_from_dict, without_effect
from core.wire.guard import MARK, breach, error_in_words
from core.wire.profile import NodeTime, Profile, by_operator, by_provider
from core.wire.units import DASH, significant, size
from core.wire.units import ms_number as ms

_PERCENTILES = ("p50_s", "p90_s", "p95_s", "p99_s")
_WIDE = 48  # characters of a node's name
NOTHING_CHANGED = "nothing: ONNX Runtime's defaults"


# --- a measurement ------------------------------------------------------------------------------------------


def measured(trial: Trial, labels: Mapping[str, str] | None = None) -> Sheet:
    """A complete measurement: the verdicts, what ran, the numbers with their intervals, and what to doubt.

    Args:
        trial: with a result.
        labels: of the trials that it raced against.
    """
    result = trial.facts
    return Sheet(
        f"{trial.model_name} · {trial.kind} · trial {trial.id}",
        [
            *_fallback(result),
            *_breach(result),
            *_verdicts(result, labels or {}),
            *_settings(trial, result),
            *_latency(result),
            *_numbers(result),
            *notes(result.get("notes") or []),
            Line(f"Take it away: python -m core emit {trial.id} --format yaml", apart=True),
        ],
    )


def failed(trial: Trial) -> Sheet:
    """A trial without a result: what it asked for, and why there is none."""
    error = trial.error or {"type": "", "message": "It has not ended.", "hint": ""}
    return Sheet(
        f"{trial.model_name} · {trial.kind} · trial {trial.id} · {trial.state}",
        [
            Fact("when", when(trial.created_at)),
            Fact("asked by", trial.owner or DASH),
            Fact("model", str(trial.spec["model"]["path"])),
            Fact("changed", changes_in_words(trial) or NOTHING_CHANGED),
            Fact("why", error["message"], "red"),
            *([Fact("hint", error["hint"])] if error["hint"] else []),
        ],
    )


def notes(texts: Iterable[str]) -> list[Note]:
    """What a reader must know, a line each."""
    return [Note(f"note: {text}") for text in texts]


def _fallback(result: TrialResult) -> Iterator[Fact]:
    """Mark a result that did not run on what was asked for."""
    if result.get("fallback"):
        asked_for, ran = (", ".join(result[name]) for name in ("requested_providers", "effective_providers"))
        yield Fact("FALLBACK", f"asked for {asked_for}, ran on {ran}.", "orange")
        yield Fact("", result.get("fallback_reason") or "")


def _breach(result: TrialResult) -> Iterator[Note]:
    """Mark a result whose outputs are not what they should be."""
    if why := breach(result):
        yield Note(f"{MARK.upper()}  {why}", "orange")


def _verdicts(result: TrialResult, labels: Mapping[str, str]) -> Iterator[Fact]:
    """One line a verdict: "1.42× faster, 95 % [1.38, 1.46]; against ORT default; grade B, 9 generations"."""
    contrasts = result.get("contrasts") or []
    for one in contrasts:
        against = labels.get(one["baseline"], one["baseline"][:12])
        yield Fact("verdict", f"{verdict(one)}; against {against}; {proof(one)}", look(one)[1])
    yield from [Fact("noise", text) for one in contrasts if (text := noise(one))][:1]
    yield from grade(result)


def proof(one: ContrastRecord | ComparisonResult) -> str:
    """What a verdict rests on: "grade B, 9 generations of 54 rounds, 12 s"."""
    made: Any = one.get("generations")  # of a contrast their number, of a comparison all of them
    many = len(made) if isinstance(made, list) else made
    generations = f"{counted(many, 'generation')} of " if many else ""
    return f"grade {one['grade']}, {generations}{counted(one['rounds'], 'round')}, {one['wall_s']:.0f} s"


def grade(result: TrialResult | ComparisonResult) -> Iterator[Fact]:
    """How fine the answer is and why, and what made the machine busy."""
    if not result.get("grade"):
        return
    letter = Grade[result["grade"]]
    rejected = "REJECTED: " if is_rejected(result) else ""
    reason = f"{rejected}{result['grade_reason']} {result['remedy']}".strip()
    yield Fact(f"grade {letter}", reason, letter.color)
    if found := result.get("busy"):
        yield Fact("BUSY", f"Measured {found['words']}.", "orange")


def _settings(trial: Trial, result: TrialResult) -> Iterator[Fact]:
    spec = spec_from_dict(trial.spec)
    idle = without_effect(spec)
    yield Fact("ran on", _placement(result))
    yield Fact("precision", _precision(spec.model.precision, result))
    yield Fact(
        "batch", f"{counted(result.get('batch_size'), 'row')} fed; {counted(result.get('runs'), 'run')}"
    )
    for one in result.get("fed") or []:
        yield Fact("fed", fed_words(fed_from_dict(one)))
    if told := model_words(result):
        yield Fact("model", told)
    changes = ", ".join(f"{name}={value}" for name, value in changes_of(spec).items())
    yield Fact("changed", changes or NOTHING_CHANGED)
    for name in changed(spec):
        if name in idle:
            yield Fact("no effect", f"{name}: {idle[name]}")


def _placement(result: TrialResult) -> str:
    """Providers with nodes and their share of the time; from the short profile pass."""
    placement = result.get("placement")
    if not placement:
        return ", ".join(result.get("effective_providers") or []) + " (loaded; placement not known)"
    total = sum(one["time_s"] for one in placement.values()) or 1.0
    return ", ".join(
        f"{name} {counted(one['nodes'], 'node')}{_fused(one)}, {one['time_s'] / total:.0%} of the time"
        for name, one in placement.items()
    )


def _fused(part: Mapping[str, Any]) -> str:
    ran = part.get("ran_nodes", part["nodes"])
    return f" ({ran} after fusion)" if ran != part["nodes"] else ""


def _precision(precision: str, result: TrialResult) -> str:
    casts = result.get("casts") or {}
    if precision == "fp16" and casts.get("computes_in_float32"):
        inserted = casts["inserted_casts"]
        return "fp16 model, computed in FP32" + (
            f" behind {inserted} inserted Casts" if inserted else "; all its Casts cancelled out"
        )
    guard: Mapping[str, Any] = result.get("guard") or {}
    return str(guard.get("precision", precision))  # a variant's own, or a GPU's


def _latency(result: TrialResult) -> Iterator[Table]:
    latency: Mapping[str, Any] = result.get("latency") or {}
    if not latency:
        return
    needs = latency.get("needs_runs") or {}
    rows = [_latency_row(name, latency, needs) for name in (*_PERCENTILES, "mean_s")]
    rows.append(("std", ms(latency.get("std_s")), ""))
    rows.append(("min … max", f"{ms(latency.get('min_s'))} … {ms(latency.get('max_s'))}", ""))
    yield Table(head=("latency", "ms", "95 % interval"), rows=rows, inset=True)


def _latency_row(name: str, latency: Mapping[str, Any], needs: Mapping[str, int]) -> tuple[str, str, str]:
    label = name.removesuffix("_s")
    if latency.get(name) is None:
        return label, DASH, f"needs {needs.get(name, 'more')} runs"
    return label, ms(latency[name]), interval(latency.get(f"{name}_low"), latency.get(f"{name}_high"))


def _numbers(result: TrialResult) -> Iterator[Fact]:
    per_s, cpu = result.get("throughput_per_s"), result.get("cpu_s_per_inference")
    gpu = result.get("gpu_memory_bytes")
    yield Fact("throughput", DASH if per_s is None else f"{significant(per_s)} rows/s")
    yield Fact("CPU time", f"{ms(cpu)} ms per run{_idle(result)}")
    yield Fact(
        "memory",
        f"{size(result.get('peak_rss_bytes'))} at the peak, above the process before the model"
        + (f"; GPU {size(gpu)}" if gpu is not None else ""),
    )
    for name, text in (("outputs", error_in_words(result)), ("energy", _energy(result))):
        if text:
            yield Fact(name, text)
    start = ms(result.get("session_creation_s")), ms(result.get("first_run_s"))
    yield Fact("start", f"session {start[0]} ms, first run {start[1]} ms")


def _idle(result: TrialResult) -> str:
    """What spinning threads burn after a run."""
    burnt, wall = result.get("idle_cpu_s"), result.get("idle_wall_s")
    return "" if burnt is None or not wall else f"; {ms(burnt, 3)} ms in the {ms(wall, 3)} ms after it"


def _energy(result: TrialResult) -> str:
    joules = result.get("energy_j_per_inference")
    return f"{significant(joules, 3)} J per run" if joules is not None else result.get("energy_note") or ""


# --- a profile ----------------------------------------------------------------------------------------------


def profiled(trial: Trial, profile: Profile, *, top: int) -> Sheet:
    """Where one run spends its time: by provider, by operator type, by node.

    Args:
        trial: of the profile.
        profile: of it.
        top: rows of a table.
    """
    result = trial.facts
    runs = f"{profile.runs} runs" + (f" after {profile.skipped_runs} warm-up" if profile.skipped_runs else "")
    head = ("nodes", "calls/run", "ms/run", "share")
    hidden = len(profile.nodes) - top
    parts: Sequence[Part] = [
        *_fallback(result),
        Fact("profiled", f"{runs}, batch {result.get('batch_size')}"),
        Fact(
            "time per run",
            f"{ms(profile.self_s)} ms in nodes, {ms(profile.remainder_s)} ms between them (mean)",
        ),
        Fact("overhead", _overhead(result)),
        *_truncated(profile),
        Table(head=("provider", *head), rows=_provider_rows(profile)),
        Table(head=("operator", *head), rows=_operator_rows(profile, top)),
        Table(
            head=("node", "operator", "provider", "ms/run", "share"), rows=_node_rows(profile, top), left=3
        ),
        *([Line(f"({hidden} more nodes; --top shows more)")] if hidden > 0 else []),
        *notes(result.get("notes") or []),
    ]
    return Sheet(f"{trial.model_name} · profile · trial {trial.id}", parts)


def _truncated(profile: Profile) -> Iterator[Fact]:
    if profile.truncated:
        dropped = profile.dropped_events
        ended = "the file ends mid-way." if dropped is None else f"{dropped:,} events were dropped."
        yield Fact("TRUNCATED", f"the profile is not complete: {ended}", "orange")


def _overhead(result: TrialResult) -> str:
    facts = result.get("overhead")
    if not facts or not facts.get("ratio"):
        return "not known"
    return (
        f"the median run takes {ms(facts['profiled_s'])} ms with the profiler and "
        f"{ms(facts['unprofiled_s'])} ms without: read the shares, not the times"
    )


def _provider_rows(profile: Profile) -> list[tuple[str, ...]]:
    return [
        (row.provider, str(row.nodes), f"{row.calls_per_run:g}", ms(row.self_s), f"{row.share:.1%}")
        for row in by_provider(profile)
    ]


def _operator_rows(profile: Profile, top: int) -> list[tuple[str, ...]]:
    return [
        (row.op_type, str(row.nodes), f"{row.calls_per_run:g}", ms(row.self_s), f"{row.share:.1%}")
        for row in by_operator(profile)[:top]
    ]


def _node_rows(profile: Profile, top: int) -> list[tuple[str, ...]]:
    return [
        (_node_name(node), node.op_type, short(node.provider), ms(node.self_s), f"{node.share:.1%}")
        for node in profile.nodes[:top]
    ]


def _node_name(node: NodeTime) -> str:
    name = " / ".join([*node.path, node.name])
    return name if len(name) <= _WIDE else f"{name[: _WIDE // 2]}…{name[-_WIDE // 2 + 1 :]}"
