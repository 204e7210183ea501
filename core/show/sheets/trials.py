"""Sheet of one trial: a measurement, a failed trial, or a profile. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from core.evidence.input_description import input_text
from core.evidence.measurement import Trial, model_text
from core.evidence.operation_counts import OperationCounts, count_nodes, key_of
from core.evidence.quality import quality
from core.evidence.result_types import ComparisonResult, ContrastRecord, TrialResult
from core.evidence.roofline import Advice, Peak, Point, advice, peak_for, points, rate_text, settings_first
from core.evidence.verdict import icon_and_color, is_rejected
from core.show import cells
from core.show.format import minute
from core.show.runtime_text import runtime_text
from core.show.setting_chips import changes_text
from core.show.sheets import Fact, Line, Note, Part, Sheet
from core.show.sheets.peaks import NOT_MEASURED
from core.show.table import Column, Table, tabulate, texts
from core.show.verdict import OLDER, in_words, is_older, noise_words, quality_details
from core.show.words import counted
from core.spec import changed, spec_from_dict, without_effect
from core.wire.output_check import OUTPUTS_DIFFER, breach, error_in_words
from core.wire.profile import NodeTime, Profile, by_operator, by_provider
from core.wire.units import DASH, provider
from core.wire.units import ms_number as ms

_WIDE = 48  # characters of a node name
NOTHING_CHANGED = "nothing: ONNX Runtime's defaults"
ITSELF = "none: this is ONNX Runtime's default; change a setting to compare"


# --- measurements -------------------------------------------------------------------------------------------


def hidden_nodes(number: int) -> list[Line]:
    """Return the line for the nodes that a table leaves out."""
    return [Line(f"({number:,} more nodes; --top shows more)")] if number > 0 else []


def measured(trial: Trial, labels: Mapping[str, str] | None = None) -> Sheet:
    """Return the sheet of a complete measurement: verdicts, providers, numbers with intervals, warnings.

    Args:
        trial: with a result.
        labels: of the trials in its comparison.
    """
    result = trial.facts
    return Sheet(
        f"{trial.model_name} · {trial.kind} · trial {trial.id}",
        [
            *_fallback(result),
            *_tolerance_note(result),
            *_verdicts(trial, labels or {}),
            *_settings(trial, result),
            _numbers(result),
            *([Fact("outputs", text)] if (text := error_in_words(result)) else []),
            *notes(result.get("notes") or []),
            Line(f"Export: ortune export {trial.id} --format yaml", apart=True),
        ],
    )


def failed(trial: Trial) -> Sheet:
    """Return the sheet of a trial without a result: its settings and the error."""
    error = trial.error or {"type": "", "message": "It has not ended.", "hint": ""}
    return Sheet(
        f"{trial.model_name} · {trial.kind} · trial {trial.id} · {trial.state}",
        [
            Fact("when", minute(trial.created_at)),
            Fact("started by", trial.owner or DASH),
            Fact("model", str(trial.spec["model"]["path"])),
            *runtime_fact(trial),
            Fact("changed", changes_text(trial) or NOTHING_CHANGED),
            Fact("why", error["message"], "red"),
            *([Fact("hint", error["hint"])] if error["hint"] else []),
        ],
    )


def runtime_fact(trial: Trial) -> list[Fact]:
    """Return the runtime of a trial; empty where it ran in ORTune's own."""
    return [Fact("runtime", text)] if (text := runtime_text(trial)) else []


def notes(texts: Iterable[str]) -> list[Note]:
    """Return notes, one per line."""
    return [Note(f"note: {text}") for text in texts]


def _fallback(result: TrialResult) -> Iterator[Fact]:
    """Mark a result with a provider fallback."""
    if result.get("fallback"):
        asked_for, ran = (", ".join(result[name]) for name in ("requested_providers", "effective_providers"))
        yield Fact("FALLBACK", f"requested {asked_for}, ran on {ran}.", "orange")
        yield Fact("", result.get("fallback_reason") or "")


def _tolerance_note(result: TrialResult) -> Iterator[Note]:
    """Mark a result whose outputs exceed the tolerance."""
    if why := breach(result):
        yield Note(f"{OUTPUTS_DIFFER.upper()}  {why}", "orange")


def _verdicts(trial: Trial, labels: Mapping[str, str]) -> Iterator[Fact]:
    """Return a line per verdict: "1.42× faster, 95 % CI [1.38, 1.46]; grade B, 9 launches".

    The ORT default has no reference, and its line says so.
    """
    result = trial.facts
    contrasts = result.get("contrasts") or []
    if not contrasts and trial.comparison and set(changed(spec_from_dict(trial.spec))) <= {"runtime"}:
        yield Fact("verdict", ITSELF)
    for one in contrasts:
        against = labels.get(one["baseline"], one["baseline"][:12])
        yield Fact(
            "verdict", f"{in_words(one)}; versus {against}; {verdict_basis(one)}", icon_and_color(one)[1]
        )
    noise = (OLDER if is_older(one) else noise_words(one) for one in contrasts)
    yield from [Fact("noise", text) for text in noise if text][:1]
    yield from grade(result)


def verdict_basis(one: ContrastRecord | ComparisonResult) -> str:
    """Return the basis of a verdict: "grade B, 9 launches of 54 rounds, 12 s"."""
    made: Any = one.get("generations")  # a contrast has their number, a comparison a list
    many = len(made) if isinstance(made, list) else made
    launches = f"{many} launch{'es' * (many != 1)} of " if many else ""
    good = quality(one, [one] if "candidate" in one else None)
    letter = good.grade if good is not None else DASH
    return f"grade {letter}, {launches}{counted(one['rounds'], 'round')}, {one['wall_s']:.0f} s"


def grade(result: TrialResult | ComparisonResult) -> Iterator[Fact]:
    """Return the grade of the result with its reason, and the details."""
    found = quality(result)
    if found is None:
        return
    rejected = "REJECTED; " if is_rejected(result) else ""
    yield Fact("grade", f"{rejected}{found.words}", found.color)
    yield from (Fact("", text) for text in quality_details(result))


def _settings(trial: Trial, result: TrialResult) -> Iterator[Fact]:
    spec = spec_from_dict(trial.spec)
    idle = without_effect(spec)
    yield from runtime_fact(trial)
    yield Fact("ran on", _placement(result))
    yield Fact("precision", _precision(spec.model.precision, result))
    yield Fact(
        "batch", f"{counted(result.get('batch_size'), 'sample')}; {counted(result.get('runs'), 'run')}"
    )
    for one in result.get("fed") or []:
        yield Fact("input", input_text(one))
    if told := model_text(result):
        yield Fact("model", told)
    yield Fact("changed", changes_text(trial) or NOTHING_CHANGED)
    for name in changed(spec):
        if name in idle:
            yield Fact("no effect", f"{name}: {idle[name]}")


def _placement(result: TrialResult) -> str:
    """Return providers with nodes and time shares; from the short profiled run."""
    placement = result.get("placement")
    if not placement:
        return ", ".join(result.get("effective_providers") or []) + " (loaded; placement unknown)"
    total = sum(one["time_s"] for one in placement.values()) or 1.0
    return ", ".join(
        f"{name} {_nodes(one)}, {one['time_s'] / total:.0%} of the time" for name, one in placement.items()
    )


def _nodes(part: Mapping[str, Any]) -> str:
    assigned, ran = part["nodes"], part.get("ran_nodes", part["nodes"])
    if assigned is None:  # unknown of an older ONNX Runtime
        return f"{counted(ran, 'node')} after fusion"
    return f"{counted(assigned, 'node')}{f' ({ran} after fusion)' if ran != assigned else ''}"


def _precision(precision: str, result: TrialResult) -> str:
    casts = result.get("casts") or {}
    if precision == "fp16" and casts.get("computes_in_float32"):
        inserted = casts["inserted_casts"]
        return "fp16 model, computed in FP32" + (
            f" behind {inserted} inserted Casts" if inserted else "; all inserted Casts cancelled out"
        )
    guard: Mapping[str, Any] = result.get("guard") or {}
    return str(guard.get("precision", precision))  # of a variant or a GPU


def _numbers(result: TrialResult) -> Table:
    """Return every number with its uncertainty, from the same cells as the browser."""
    found = [*cells.latency_cells(result, None), *cells.cost_cells(result, None)]
    outputs = cells.outputs_cell(result)
    found += [*([outputs] if outputs is not None else []), *cells.cold_cells(result, None)]
    rows = [(one.label, one.value, one.note) for one in found]
    return Table(columns=texts("", "value", "precision", left=3), rows=rows, solid=("",), inset=True)


# --- profiles -----------------------------------------------------------------------------------------------


def profiled(trial: Trial, profile: Profile, *, top: int, peaks: Sequence[Peak] = ()) -> Sheet:
    """Return the sheet of a profile: a sentence, times by provider, by operator type, and by node.

    Args:
        trial: of the profile.
        profile: of the trial.
        top: rows of a table.
        peaks: of the machine that it ran on; empty: not measured.
    """
    peak = peak_for(peaks, threads_of(trial.spec))
    said = profile_advice(trial, profile, peaks)
    result = trial.facts
    hidden = len(profile.nodes) - top
    parts: Sequence[Part] = [
        *_fallback(result),
        *advice_facts(said),
        *runtime_fact(trial),
        Fact("profiled", f"{runs_words(profile)}, batch {result.get('batch_size')}"),
        Fact("time per run", time_words(profile)),
        Fact("overhead", _overhead(result)),
        Fact("peaks", peak_words(peak, peaks, threads_of(trial.spec))),
        *truncated(profile),
        providers(profile),
        operators(profile, most=top),
        nodes(profile, most=top, peak=peak),
        *hidden_nodes(hidden),
        *notes(result.get("notes") or []),
    ]
    return Sheet(f"{trial.model_name} · profile · trial {trial.id}", parts)


def profile_advice(trial: Trial, profile: Profile, peaks: Sequence[Peak] = ()) -> Advice:
    """Return where a profiled run spends its time, and the advice; arguments as of `profiled`."""
    peak = peak_for(peaks, threads_of(trial.spec))
    return settings_first(advice(profile, peak), trial.spec, peaks)


def advice_facts(said: Advice) -> Iterator[Fact]:
    """Return the summary sentence of a profile, and the advice."""
    if said.sentence:
        yield Fact("says", said.sentence, "blue")
    if said.remedy:
        yield Fact("try", said.remedy)


def threads_of(spec: Mapping[str, Any]) -> int:
    """Return the configured number of threads; 0: ONNX Runtime chooses."""
    return int((spec.get("session") or {}).get("intra_op_num_threads") or 0)


def peak_words(peak: Peak | None, peaks: Sequence[Peak], threads: int) -> str:
    """Return the peak of the roofline of a profile, or why there is none."""
    if peak is not None:
        rates = f"{rate_text(peak.operations.value)}, {rate_text(peak.bytes.value, 'bytes')} copied"
        return f"{rates}, with {counted(peak.threads, 'thread')}"
    if peaks:
        return f"not measured with {counted(threads, 'thread')}"
    return NOT_MEASURED


def runs_words(profile: Profile) -> str:
    """Return the number of runs in a profile: "99 runs after 1 warm-up"."""
    skipped = f" after {profile.skipped_runs} warm-up" if profile.skipped_runs else ""
    return f"{profile.runs} runs{skipped}"


def time_words(profile: Profile) -> str:
    """Return the mean time in nodes and between them."""
    return f"{ms(profile.self_s)} ms in nodes, {ms(profile.remainder_s)} ms between them (mean)"


def truncated(profile: Profile) -> Iterator[Fact]:
    """Say which part of a profile is missing."""
    if profile.truncated:
        dropped = profile.dropped_events
        ended = "the file ends mid-way." if dropped is None else f"{dropped:,} events were dropped."
        yield Fact("TRUNCATED", f"the profile is incomplete: {ended}", "orange")


def _overhead(result: TrialResult) -> str:
    facts = result.get("overhead")
    if not facts or not facts.get("ratio"):
        return "not known"
    return (
        f"the median run takes {ms(facts['profiled_s'])} ms with the profiler and "
        f"{ms(facts['unprofiled_s'])} ms without: use the shares, not the times"
    )


def providers(profile: Profile, name: Callable[[str], str] = str) -> Table:
    """Return times by provider; `name` returns its label."""
    return tabulate(
        by_provider(profile),
        (Column("ran on", tells=True), lambda one: name(one.provider)),
        (Column("nodes", "count"), lambda one: one.nodes),
        (Column("calls/run", "number"), lambda one: one.calls_per_run),
        (Column("self", "ms", per="run"), lambda one: one.self_s),
        (_SHARE, lambda one: one.share),
    )


def operators(profile: Profile, name: Callable[[str], str] = str, *, most: int | None = None) -> Table:
    """Return times by operator type, of the `most` slowest; None: all. Operations of counted nodes only."""
    done = _operations(profile)
    return tabulate(
        by_operator(profile)[:most],
        (Column("operator", tells=True), lambda one: one.op_type),
        (Column("nodes", "count"), lambda one: one.nodes),
        (Column("inserted", "count", on="browser"), lambda one: one.inserted_nodes),
        (Column("calls/run", "number"), lambda one: one.calls_per_run),
        (Column("self", "ms", per="run"), lambda one: one.self_s),
        (_SHARE, lambda one: one.share),
        (_MOP, lambda one: None if done[one.op_type][0] is None else (done[one.op_type][0] or 0) / 1e6),
        (
            Column("counted", on="browser", help="Nodes with an operation count from their shapes."),
            lambda one: f"{done[one.op_type][1]} of {one.nodes}",
        ),
        (Column("ran on", on="browser"), lambda one: ", ".join(map(name, one.providers))),
        drop=(_MOP.name,),
    )


def _operations(profile: Profile) -> dict[str, tuple[float | None, int]]:
    """Map operators to operations per run of their counted nodes (None: none counted) and their number."""
    found = count_nodes(profile)
    done: dict[str, tuple[float | None, int]] = {}
    for node in profile.nodes:
        operations = found[key_of(node)].operations
        before, many = done.get(node.op_type, (None, 0))
        if operations is None:
            done[node.op_type] = before, many
        else:
            done[node.op_type] = (before or 0) + operations * node.calls_per_run, many + 1
    return done


def nodes(
    profile: Profile,
    name: Callable[[str], str] = provider,
    *,
    most: int | None = None,
    peak: Peak | None = None,
) -> Table:
    """Return times by node, of the `most` slowest (None: all), with operations and bytes."""
    found = count_nodes(profile)
    under = {key_of(one.node): one for one in points(profile, peak)}
    return tabulate(
        profile.nodes[:most],
        (Column("node", on="terminal", most=_WIDE), lambda one: " / ".join([*one.path, one.title])),
        (Column("node", on="browser", tells=True), lambda one: one.title),
        (Column("operator"), lambda one: one.op_type),
        (Column("ran on"), lambda one: name(one.provider)),
        (Column("self", "ms", per="run"), lambda one: one.self_s),
        (_SHARE, lambda one: one.share),
        (Column("type", help="Of the first input."), lambda one: one.inputs[0].dtype if one.inputs else ""),
        (Column("output shape"), lambda one: _shape(one.outputs)),
        (_MOP, lambda one: _millions(found[key_of(one)], one)),
        (
            Column("moves", "bytes", on="browser", unit="KiB", help=_MOVES),
            lambda one: found[key_of(one)].bytes,
        ),
        (_INTENSITY, lambda one: found[key_of(one)].intensity),
        (_RATE, lambda one: under[key_of(one)].operations_per_s / 1e9 if key_of(one) in under else None),
        (_REACH, lambda one: _reach(under.get(key_of(one)))),
        (Column("inclusive, mean", "ms", on="browser", per="run"), lambda one: one.inclusive_s),
        (Column("calls/run", "number", on="browser"), lambda one: one.calls_per_run),
        (Column("min", "ms", on="browser"), lambda one: one.min_s),
        (Column("median", "ms", on="browser"), lambda one: one.median_s),
        (Column("inside", on="browser"), lambda one: " › ".join(one.path)),
        (Column("inserted", on="browser"), lambda one: one.inserted or None),
        (Column("not counted", on="browser", narrow=True), lambda one: found[key_of(one)].why),
        (Column("inputs", on="browser"), lambda one: _shapes(one.inputs)),
        (Column("outputs", on="browser"), lambda one: _shapes(one.outputs)),
        (Column("weights", "bytes", on="browser", unit="KiB"), lambda one: one.parameter_bytes),
        (Column("output", "bytes", on="browser", unit="KiB"), lambda one: one.output_bytes),
        drop=(_INTENSITY.name, _RATE.name, "type", "output shape", _MOP.name, _REACH.name),
    )


_MOVES = "Minimum memory traffic: inputs, weights and output once."
_MOP = Column(
    "Mop",
    "number",
    per="run",
    help="Millions of operations, counted from shapes. Empty: not counted.",
)
_INTENSITY = Column("op/byte", "number", help="Operations per byte of minimum memory traffic.")
_RATE = Column("Gop/s", "number", help="Billions of operations per second, by the median run.")
_REACH = Column(
    "of roof",
    "share",
    help="Share of its roofline limit: peak compute or memory bandwidth, whichever is lower.",
)


def _millions(work: OperationCounts, node: NodeTime) -> float | None:
    return None if work.operations is None else work.operations * node.calls_per_run / 1e6


def _reach(point: Point | None) -> float | None:
    """Return the roofline share, if the time is the node's own and not mostly profiler overhead."""
    return point.reach if point is not None and point.is_clear else None


_SHARE = Column("share", "share", bar=True, help="Share of the time in nodes.")


def _shape(tensors: Sequence[Any]) -> str:
    return "×".join(map(str, tensors[0].shape)) or "scalar" if tensors else ""


def _shapes(tensors: Sequence[Any]) -> str:
    return ", ".join(f"{one.dtype}[{'×'.join(map(str, one.shape))}]" for one in tensors)
