"""Results as text for a terminal: plain data in, lines out; numbers get their units from `units`.

Tables are as wide as `grid` says; else nothing but the data decides.

Control characters of file and tensor names are made visible, so that a model cannot write to the terminal.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core import wire
from core.cli import grid
from core.cli.grid import visible
from core.evidence.comparison import Comparison, Contestant
from core.evidence.fed import fed_from_dict, fed_words
from core.evidence.measurement import Trial, model_words
from core.evidence.quietness import Answer
from core.evidence.verdict import is_rejected, words
from core.run.sweep import Measured
from core.spec import TrialSpec, asked, changed, spec_from_dict, without_effect
from core.wire.errors import SpecError
from core.wire.guard import MARK, breach, else_words, error_in_words
from core.wire.profile import NodeTime, Profile, by_operator, by_provider
from core.wire.provenance import in_words, thread_advice
from core.wire.units import DASH, significant, size, span_ms
from core.wire.units import ms_number as ms

_PERCENTILES = ("p50_s", "p90_s", "p95_s", "p99_s")
_WIDE = 48  # characters of a node's name


# --- numbers ------------------------------------------------------------------------------------------------


def when(epoch_s: float | None) -> str:
    """Return a moment as local time."""
    if epoch_s is None:
        return DASH
    return datetime.fromtimestamp(epoch_s, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _lately(epoch_s: float) -> str:
    """A moment in few characters: without the year, or without the time where it is long ago."""
    recent = time.time() - epoch_s < 300 * 86_400
    return when(epoch_s)[5:] if recent else when(epoch_s)[:10]


def clipped(text: str, most: int = 120) -> str:
    """Return a name as it is, or its beginning: some models have names longer than a screen."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def short(provider: str) -> str:
    """Return a provider's short name."""
    return provider.removesuffix("ExecutionProvider")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    drop: Sequence[str] = (),
    solid: Sequence[str] = (),
) -> list[str]:
    """Lay out rows in columns that fit the terminal; the first `left` stand left, the others right.

    Args:
        head: names of the columns.
        rows: cells.
        left: see above.
        drop: columns that may be left out where the terminal is narrow, the first one first.
        solid: columns whose cells are not wrapped.
    """
    cells = [list(head), *([visible(cell) for cell in row] for row in rows)]
    return grid.lines(cells, left=left, drop=drop, solid=solid)


def _facts(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {name:<14}{visible(text)}".rstrip() for name, text in rows]


# --- one trial ----------------------------------------------------------------------------------------------


def trial_lines(trial: Trial, labels: Mapping[str, str] | None = None) -> list[str]:
    """A complete measurement: the verdicts, what ran, the numbers with their intervals, and what to doubt.

    Args:
        trial: with a result.
        labels: of the trials that it raced against.
    """
    result = trial.facts
    return [
        visible(f"{trial.model_name} · {trial.kind} · trial {trial.id}"),
        *fallback_lines(result),
        *breach_lines(result),
        *_facts(_verdict_facts(result, labels or {})),
        *_facts(_settings_facts(trial, result)),
        "",
        *_latency_table(result),
        "",
        *_facts(_number_facts(result)),
        *_notes(result),
        "",
        f"Take it away: python -m core emit {trial.id} --format yaml",
    ]


def failed_lines(trial: Trial) -> list[str]:
    """A trial without a result: what it asked for, and why there is none."""
    error = trial.error or {"type": "", "message": "It has not ended.", "hint": ""}
    return [
        visible(f"{trial.model_name} · {trial.kind} · trial {trial.id} · {trial.state}"),
        *_facts(
            [
                ("when", when(trial.created_at)),
                ("asked by", trial.owner or DASH),
                ("model", str(trial.spec["model"]["path"])),
                ("changed", changes_in_words(trial) or "nothing: ONNX Runtime's defaults"),
                ("why", error["message"]),
                *([("hint", error["hint"])] if error["hint"] else []),
            ]
        ),
    ]


def fallback_lines(result: Mapping[str, Any]) -> list[str]:
    """Mark a result that did not run on what was asked for; no lines otherwise."""
    if not result.get("fallback"):
        return []
    asked_for = ", ".join(result["requested_providers"])
    ran = ", ".join(result["effective_providers"])
    reason = result.get("fallback_reason") or ""
    return [
        f"  FALLBACK      asked for {asked_for}, ran on {ran}.",
        f"                {visible(reason)}".rstrip(),
    ]


def breach_lines(result: Mapping[str, Any]) -> list[str]:
    """Mark a result whose outputs are not what they should be; no lines otherwise."""
    why = breach(result)
    return [f"  {MARK.upper()}  {visible(why)}"] if why else []


def _verdict_facts(result: Mapping[str, Any], labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """One line a verdict: "1.42× faster, 95 % [1.38, 1.46]; against ORT default; grade B, 9 generations"."""
    rows = [
        (
            "verdict",
            f"{verdict(one)}; against {labels.get(one['baseline'], one['baseline'][:12])}; {_proof(one)}",
        )
        for one in result.get("contrasts") or []
    ]
    parts = [("noise", text) for one in result.get("contrasts") or [] if (text := noise(one))]
    return [*rows, *parts[:1], *_grade_facts(result)]


def noise(one: Mapping[str, Any]) -> str:
    """The two parts of what makes an interval wide: "between processes ±0.6 %, within one ±2.6 % a round"."""
    if "generations" not in one:
        return "an older version's race: its interval knows one pair of processes"
    if one["sigma"] is None:
        return ""
    within = f"within one ±{100 * one['sigma']:.2g} % a round"
    if one["sigma_between"] is None:
        return f"±{100 * one['sigma']:.2g} % a round; processes and rounds are not told apart"
    known = {
        "history": ", mostly from earlier races here",
        "assumed": ", mostly assumed: too few generations",
    }
    between = f"between processes ±{100 * one['sigma_between']:.2g} %"
    return f"{between}{known.get(one['between_from'], '')}; {within}"


def verdict(one: Mapping[str, Any]) -> str:
    """A contrast in words; the verdict stands first where the interval alone would say otherwise."""
    said = words(one) + else_words(one)
    return f"UNDECIDED (all rounds: {said})" if one.get("contradicted") else said


def _proof(one: Mapping[str, Any]) -> str:
    made = one.get("generations")  # of a contrast their number, of a comparison all of them
    many = len(made) if isinstance(made, list) else made
    generations = f"{counted(many, 'generation')} of " if many else ""
    return f"grade {one['grade']}, {generations}{counted(one['rounds'], 'round')}, {one['wall_s']:.0f} s"


def _grade_facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not result.get("grade"):
        return []
    rejected = "REJECTED: " if is_rejected(result) else ""
    reason = f"{rejected}{result['grade_reason']} {result['remedy']}".strip()
    return [(f"grade {result['grade']}", reason), *busy_facts(result)]


def busy_facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What stands wherever numbers of a busy machine stand; nothing on a quiet one."""
    found = result.get("busy")
    return [("BUSY", f"Measured {visible(found['words'])}.")] if found else []


def _settings_facts(trial: Trial, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    spec = spec_from_dict(trial.spec)
    idle = without_effect(spec)
    return [
        ("ran on", _placement(result)),
        ("precision", _precision(spec.model.precision, result)),
        ("batch", f"{counted(result.get('batch_size'), 'row')} fed; {counted(result.get('runs'), 'run')}"),
        *(("fed", fed_words(fed_from_dict(one))) for one in result.get("fed") or []),
        *([("model", told)] if (told := model_words(result)) else []),
        ("changed", ", ".join(_changes(spec)) or "nothing: ONNX Runtime's defaults"),
        *(("no effect", f"{name}: {idle[name]}") for name in changed(spec) if name in idle),
    ]


def value_in_words(value: object) -> str:
    """Return the value of a setting as a person writes it."""
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, tuple):
        return "→".join(map(str, value))
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _placement(result: Mapping[str, Any]) -> str:
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


def counted(number: int | None, noun: str) -> str:
    """Return "1 row", "2 rows"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _precision(precision: str, result: Mapping[str, Any]) -> str:
    casts = result.get("casts") or {}
    if precision == "fp16" and casts.get("computes_in_float32"):
        inserted = casts["inserted_casts"]
        return "fp16 model, computed in FP32" + (
            f" behind {inserted} inserted Casts" if inserted else "; all its Casts cancelled out"
        )
    return str((result.get("guard") or {}).get("precision", precision))  # a variant's own, or a GPU's


def _latency_table(result: Mapping[str, Any]) -> list[str]:
    latency = result.get("latency")
    if not latency:
        return []
    needs = latency.get("needs_runs") or {}
    rows = [_latency_row(name, latency, needs) for name in (*_PERCENTILES, "mean_s")]
    rows.append(("std", ms(latency.get("std_s")), ""))
    rows.append(("min … max", f"{ms(latency.get('min_s'))} … {ms(latency.get('max_s'))}", ""))
    return [f"  {line}" for line in table(("latency", "ms", "95 % interval"), rows)]


def _latency_row(name: str, latency: Mapping[str, Any], needs: Mapping[str, int]) -> tuple[str, str, str]:
    label = name.removesuffix("_s")
    if latency.get(name) is None:
        return label, DASH, f"needs {needs.get(name, 'more')} runs"
    return label, ms(latency[name]), _interval(latency.get(f"{name}_low"), latency.get(f"{name}_high"))


def _interval(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "unknown: too few runs"
    return span_ms(low, high, unit="")  # in ms, as the value beside it


def _number_facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    per_s, cpu = result.get("throughput_per_s"), result.get("cpu_s_per_inference")
    gpu = result.get("gpu_memory_bytes")
    rows = [
        ("throughput", DASH if per_s is None else f"{significant(per_s)} rows/s"),
        ("CPU time", f"{ms(cpu)} ms per run{_idle(result)}"),
        (
            "memory",
            f"{size(result.get('peak_rss_bytes'))} at the peak, above the process before the model"
            + (f"; GPU {size(gpu)}" if gpu is not None else ""),
        ),
        ("outputs", error_in_words(result)),
        ("energy", _energy(result)),
        (
            "start",
            f"session {ms(result.get('session_creation_s'))} ms, "
            f"first run {ms(result.get('first_run_s'))} ms",
        ),
    ]
    return [(name, text) for name, text in rows if text]


def _idle(result: Mapping[str, Any]) -> str:
    """What spinning threads burn after a run."""
    burnt, wall = result.get("idle_cpu_s"), result.get("idle_wall_s")
    return "" if burnt is None or not wall else f"; {ms(burnt, 3)} ms in the {ms(wall, 3)} ms after it"


def _energy(result: Mapping[str, Any]) -> str:
    joules = result.get("energy_j_per_inference")
    return f"{significant(joules, 3)} J per run" if joules is not None else result.get("energy_note") or ""


def _notes(result: Mapping[str, Any]) -> list[str]:
    return [f"  note: {visible(note)}" for note in result.get("notes") or []]


# --- a profile ----------------------------------------------------------------------------------------------


def profile_lines(trial: Trial, profile: Profile, *, top: int) -> list[str]:
    """Where one run spends its time: by provider, by operator type, by node."""
    result = trial.facts
    runs = f"{profile.runs} runs" + (f" after {profile.skipped_runs} warm-up" if profile.skipped_runs else "")
    lines = [
        visible(f"{trial.model_name} · profile · trial {trial.id}"),
        *fallback_lines(result),
        *_facts(
            [
                ("profiled", f"{runs}, batch {result.get('batch_size')}"),
                (
                    "time per run",
                    f"{ms(profile.self_s)} ms in nodes, {ms(profile.remainder_s)} ms between them (mean)",
                ),
                ("overhead", _overhead(result)),
            ]
        ),
    ]
    if profile.truncated:
        dropped = profile.dropped_events
        lines.append(
            "  TRUNCATED     the profile is not complete: "
            + ("the file ends mid-way." if dropped is None else f"{dropped:,} events were dropped.")
        )
    head = ("nodes", "calls/run", "ms/run", "share")
    lines += ["", *table(("provider", *head), _provider_rows(profile))]
    lines += ["", *table(("operator", *head), _operator_rows(profile, top))]
    lines += [
        "",
        *table(("node", "operator", "provider", "ms/run", "share"), _node_rows(profile, top), left=3),
    ]
    hidden = len(profile.nodes) - top
    return [*lines, *([f"({hidden} more nodes; --top shows more)"] if hidden > 0 else []), *_notes(result)]


def _overhead(result: Mapping[str, Any]) -> str:
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
    name = visible(" / ".join([*node.path, node.name]))
    return name if len(name) <= _WIDE else f"{name[: _WIDE // 2]}…{name[-_WIDE // 2 + 1 :]}"


# --- a comparison -------------------------------------------------------------------------------------------


def comparison_lines(race: Comparison, trials: Sequence[Trial]) -> list[str]:
    """Who raced: the verdict on each against the baseline, ranks with their ties, and what to doubt."""
    result = race.facts
    ranks, contrasts = _ranks(race), contrasts_of(race)
    head, rows = comparison_table(race, trials)
    before = race.protocol.get("continues")
    went_on = [f"It goes on with comparison {before}, whose generations it holds, too."] if before else []
    notes = [*went_on, *race.warnings, *result["notes"], *_contrast_notes(race, contrasts)]
    return [
        visible(
            f"{race.model_name} · comparison {race.id} · {_proof({**result, 'rounds': result['rounds']})}"
        ),
        *_facts(_grade_facts(result)),
        "",
        *table(head, rows, left=3, drop=("memory", "CPU ms", "rows/s", "trial")),
        *(
            ["= tie: not clearly apart at the joint confidence of all pairs"]
            if _has_ties(ranks.values())
            else []
        ),
        *(f"  note: {visible(note)}" for note in dict.fromkeys(notes)),
    ]


Table = tuple[Sequence[str], list[Sequence[str]]]  # the head, and the rows


def comparison_table(race: Comparison, trials: Sequence[Trial]) -> Table:
    """Who raced, the best rank first."""
    ranks, contrasts = _ranks(race), contrasts_of(race)
    by_id = {trial.id: trial for trial in trials}
    rows: list[Sequence[str]] = [
        (
            _rank(ranks.get(one.trial)),
            one.label,
            "baseline" if one.trial == race.baseline else _verdict_cell(contrasts.get(one.trial)),
            *_trial_cells(by_id.get(one.trial), contrasts.get(one.trial)),
        )
        for one in by_rank(race)
    ]
    head = ("rank", "configuration", "verdict", "p50 ms", "rows/s", "CPU ms", "memory", "trial", "remark")
    return head, rows


def by_rank(race: Comparison) -> list[Contestant]:
    """Return the contestants, the best rank first."""
    ranks = _ranks(race)
    return sorted(race.contestants, key=lambda one: ranks.get(one.trial, {}).get("rank", len(ranks) + 1))


def contrasts_of(race: Comparison) -> dict[str, Mapping[str, Any]]:
    """Return the verdict on each trial against the comparison's baseline."""
    found = race.facts.get("contrasts") or []
    return {one["candidate"]: one for one in found if one["baseline"] == race.baseline}


def _ranks(race: Comparison) -> dict[str, Mapping[str, Any]]:
    return {one["trial"]: one for one in race.facts.get("ranks") or []}


def _rank(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return DASH
    return f"{one['rank']}{'=' if one['ties'] else ''}"


def _has_ties(ranks: Iterable[Mapping[str, Any]]) -> bool:
    return any(one["ties"] for one in ranks)


def _verdict_cell(one: Mapping[str, Any] | None) -> str:
    return DASH if one is None else verdict(one)


def _trial_cells(trial: Trial | None, contrast: Mapping[str, Any] | None) -> list[str]:
    if trial is None:
        return [DASH, DASH, DASH, DASH, DASH, "deleted"]
    result = trial.facts
    per_s = result.get("throughput_per_s")
    remarks: list[str] = []
    if result.get("fallback"):
        remarks.append(f"FALLBACK: ran on {', '.join(map(short, result['effective_providers']))}")
    if breach(result) or (contrast and contrast["outputs_differ"]):
        remarks.append(MARK)
    if trial.state != "COMPLETE":
        remarks.append(trial.state)
    if trial.error is not None:
        remarks.append(trial.error["message"])
    return [
        ms(trial.p50_s),
        DASH if per_s is None else significant(per_s),
        ms(result.get("cpu_s_per_inference")),
        size(result.get("peak_rss_bytes")),
        trial.id[:12],
        "; ".join(remarks),
    ]


def _contrast_notes(race: Comparison, contrasts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    labels = {one.trial: one.label for one in race.contestants}
    return [f"{labels[trial]}: {note}" for trial, one in contrasts.items() for note in one["notes"]]


# --- a sweep ------------------------------------------------------------------------------------------------


def sweep_lines(points: Sequence[Measured]) -> list[str]:
    """One row per point of a sweep, in the order of its values."""
    head, rows = sweep_table(points)
    return table(head, rows, left=0, drop=("p95 ms", "trial", "95 % interval"))


def sweep_table(points: Sequence[Measured]) -> Table:
    """One row per point of a sweep, in the order of its values."""
    names = list(points[0].values) if points else []
    rows = [[*(str(one.values[name]) for name in names), *_point_cells(one)] for one in points]
    return [*names, "p50 ms", "95 % interval", "p95 ms", "rows/s", "trial", "remark"], list(rows)


def _point_cells(one: Measured) -> list[str]:
    remarks = [f"FALLBACK: ran on {', '.join(map(short, one.providers))}"] if one.fallback else []
    remarks += [MARK] if one.breach else []
    remarks += ["measured before"] if one.reused else []
    if one.latency is None:
        return [DASH, DASH, DASH, DASH, one.trial[:12], "; ".join([*remarks, one.state, one.error])]
    p95 = one.latency.get("p95_s")
    needed = (one.latency.get("needs_runs") or {}).get("p95_s", "more")
    return [
        ms(one.latency.get("p50_s")),
        _interval(one.latency.get("p50_s_low"), one.latency.get("p50_s_high")),
        ms(p95) if p95 is not None else f"needs {needed} runs",
        DASH if one.throughput_per_s is None else significant(one.throughput_per_s),
        one.trial[:12],
        "; ".join(remarks),
    ]


# --- history ------------------------------------------------------------------------------------------------


def history_lines(trials: Sequence[Trial]) -> list[str]:
    """One row per trial, newest first."""
    if not trials:
        return ["No trials yet. Measure one: python -m core bench digits_cnn"]
    head, rows = history_table(trials)
    drop = ("rows/s", "batch", "ran on", "kind", "state")
    return table(head, rows, left=7, drop=drop, solid=("when", "trial", "state"))


def history_table(trials: Sequence[Trial]) -> Table:
    """One row per trial: what it is about, how sure it is, what was changed, and why it failed."""
    head = ("trial", "when", "model", "kind", "state", "grade", "changed", "batch", "p50 ms", "rows/s")
    return (*head, "ran on", "remark"), [_history_row(trial) for trial in trials]


def rescued_lines(files: Sequence[Path]) -> list[str]:
    """Where results lie that the store had no room for; nothing where there are none."""
    if not files:
        return []
    head = "Results that could not be stored yet; the next start with enough disk space takes them back:"
    return [head, *(f"  {visible(path)}" for path in files)]


def _history_row(trial: Trial) -> tuple[str, ...]:
    result = trial.facts
    per_s = result.get("throughput_per_s")
    ran = "→".join(map(short, result.get("effective_providers") or [])) or DASH
    remarks = [f"FALLBACK: ran on {ran}"] if result.get("fallback") else []
    remarks += [MARK] if breach(result) else []
    if trial.state == "DAMAGED":
        remarks.append("damaged on the disk: no number of it is shown")
    elif trial.state != "COMPLETE":
        remarks.append(trial.state)
    remarks += [trial.error["message"]] if trial.error is not None else []
    return (
        trial.id[:12],
        _lately(trial.created_at),
        trial.model_name,
        trial.kind,
        trial.state,
        result.get("grade") or DASH,
        changes_in_words(trial) or "nothing",
        str(result.get("batch_size", DASH)),
        ms(trial.p50_s),
        DASH if per_s is None else significant(per_s),
        ran,
        "; ".join(remarks),
    )


def changes_in_words(trial: Trial) -> str:
    """Return what a trial asks for that is not the default; empty: nothing."""
    try:
        return ", ".join(_changes(spec_from_dict(trial.spec)))
    except SpecError:
        return "settings of another version"


def changes_of(spec: TrialSpec) -> dict[str, str]:
    """Return what `spec` asks for that is not the default, provider options too, in words."""
    names = [name for name in changed(spec) if name != "provider_options"]
    options = {f"{p.name}.{k}": v for p in spec.session.providers for k, v in p.options.items()}
    return {name: value_in_words(asked(spec, name)) for name in names} | options


def _changes(spec: TrialSpec) -> list[str]:
    return [f"{name}={value}" for name, value in changes_of(spec).items()]


# --- models and machine -------------------------------------------------------------------------------------


def model_lines(name: str, info: wire.ModelInfo, runs: str) -> list[str]:
    """What is in a model file; `runs` says what is known of its loading."""
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in info["opset"].items())
    lines = [
        visible(name),
        *_facts(
            [
                ("file", info["path"]),
                ("sha256", info["sha256"]),
                ("size", f"{size(info['size_bytes'])}, {info['parameters']:,} parameters"),
                ("nodes", f"{info['nodes']:,}: {_op_counts(info['op_counts'])}"),
                ("opset", f"{opsets}; IR {info['ir_version']}; made by {info['producer'] or 'unknown'}"),
                ("batch", _batch(info)),
                ("free", ", ".join(map(clipped, info["free_dims"])) or "no free dimension"),
                ("runs", runs),
            ]
        ),
        *_facts(
            ("external", f"{one['location']} ({size(one['size_bytes'])})") for one in info["external_data"]
        ),
        "",
    ]
    rows = [(kind, *_tensor(one)) for kind in ("inputs", "outputs") for one in _tensors(info, kind)]
    return [
        *lines,
        *table(("", "name", "type", "shape"), [(k.removesuffix("s"), *r) for k, *r in rows], left=4),
    ]


def _tensors(info: wire.ModelInfo, kind: str) -> list[wire.InputInfo]:
    return info["inputs"] if kind == "inputs" else info["outputs"]


def _tensor(one: wire.InputInfo) -> tuple[str, str, str]:
    sizes = ", ".join(clipped(str(size)) for size in one["shape"] or ())
    return clipped(one["name"]), one["dtype"], "any rank" if one["shape"] is None else f"[{sizes}]"


def _op_counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} {number}" for name, number in ordered[:8])
    return shown + (f", {len(ordered) - 8} more types" if len(ordered) > 8 else "")


def _batch(info: wire.ModelInfo) -> str:
    if info["batch_dim"] is not None:
        return f"free: `{clipped(info['batch_dim'])}`"
    return f"fixed at {info['fixed_batch']}" if info["batch_axes"] else "no input has rows"


def machine_lines(machine: wire.Environment) -> list[str]:
    """The machine, and which providers really load on it."""
    plain = {k: v for k, v in machine["libraries"].items() if not k.startswith("nvidia-")}
    libraries = ", ".join(f"{name} {version}" for name, version in plain.items())
    if more := len(machine["libraries"]) - len(plain):
        libraries += f", {more} NVIDIA packages (see --json)"
    advice = thread_advice(machine)
    lines = _facts(
        [
            *in_words(machine),
            *([("advice", advice)] if advice else []),
            ("memory", size(machine["memory_bytes"])),
            *(("GPU", f"{gpu.get('name')} ({size(gpu.get('memory_bytes'))})") for gpu in machine["gpus"]),
            ("system", f"{machine['os']}, kernel {machine['kernel']}, Python {machine['python']}"),
            ("libraries", libraries),
            ("fingerprint", machine["fingerprint"]),
        ]
    )
    for fact in machine["providers"]:
        lines.append(f"  {'loads' if fact['loadable'] else 'NOT HERE':<14}{visible(fact['name'])}")
        if not fact["loadable"]:
            lines.append(f"                {visible(fact['reason'])} {visible(fact['remedy'])}".rstrip())
    return lines


def quietness_lines(answer: Answer) -> list[str]:
    """Whether the machine is quiet enough to publish, why, and what each effort would need."""
    sigma = DASH if answer.sigma is None else f"±{100 * answer.sigma:.2g} % a pair of blocks"
    if answer.sigma_between is not None:
        sigma = f"between processes ±{100 * answer.sigma_between:.2g} %; {sigma}"
    facts = [("grade", answer.grade), ("reason", answer.reason), ("remedy", answer.remedy), ("noise", sigma)]
    facts += [("BUSY", f"Tested {visible(answer.busy)}.")] if answer.busy else []
    rows = [
        (
            one.precision,
            f"±{100 * one.target:g} %",
            str(one.generations),
            f"{one.seconds:.1f}",
            "yes" if one.fits else "no",
        )
        for one in answer.needs
    ]
    head = ("effort", "known to", "generations", "seconds", "in its budget")
    return [
        visible(answer.headline),
        *_facts((name, text) for name, text in facts if text),
        *(["", *table(head, rows, left=1)] if rows else []),
    ]


def export_lines(reply: wire.ExportReply) -> list[str]:
    """What an export wrote, and how far it is from PyTorch."""
    differences = [
        (
            "difference",
            f"{one['max_abs']:.2g} absolute, {one['max_rel']:.2g} relative"
            + ("" if one["batch"] is None else f", at batch {one['batch']}"),
        )
        for one in reply["differences"]
    ]
    return [
        visible(reply["path"]),
        *_facts(
            [
                ("size", f"{size(reply['size_bytes'])}, {reply['parameters']:,} parameters"),
                ("nodes", f"{reply['nodes']:,}: {_op_counts(reply['op_counts'])}"),
                ("opset", f"{reply['opset']}, IR {reply['ir_version']}"),
                ("weights", reply["weights"]),
                *differences,
                ("took", f"{reply['seconds']:.1f} s"),
            ]
        ),
        *(f"  note: {visible(note)}" for note in reply["notes"]),
    ]
