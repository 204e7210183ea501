"""A stored result as rows of text: each number with how sure it is, the baseline beside it, what really ran.

No Streamlit: what stands here is tested as text. `results` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from core import spec as specs
from core.cold_start import BreakEven
from core.errors import TunerError
from core.guard import MARK, breach
from core.knobs import KNOBS
from core.measurement import Trial
from core.provenance import fingerprint_difference
from dashboard import format

Result = Mapping[str, Any]
DeltaColor = Literal["inverse", "normal", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number on the screen. `change` is relative to the baseline, None where there is none."""

    label: str
    value: str
    note: str
    help: str
    change: float | None = None
    color: DeltaColor = "off"  # "off" unless the two intervals are apart: grey is not a verdict
    change_note: str = ""


PERCENTILE_HELP = (
    "Nearest-rank percentile of all timed runs. The interval allows for runs of one round that resemble each "
    "other. Compare by the verdict above: it is paired round by round, which is far sharper."
)


REJECTED = "REJECTED"  # in the place of a verdict: the race was graded F
WARNING = "⚠"  # in tables and charts, which have no icons
_P50_NOTES = {"EQUIVALENT": "no difference", "UNDECIDED": "undecided", REJECTED: "rejected"}


def latency_cells(result: Result, baseline: Result | None, verdict: str | None) -> list[Cell]:
    """Return latency and throughput of `result`.

    The change of the p50 has the verdict's colour, because the medians are what was raced. The others have
    only their two intervals, so they get a colour where these lie apart. A rejected race colours nothing.

    Args:
        result: of the trial on the screen.
        baseline: result of what raced against it; None: nothing did.
        verdict: of the race, or `REJECTED`.
    """
    p50 = _percentile("p50_s", result, baseline)
    if p50.change is not None and verdict is not None:
        rows_differ = baseline is not None and baseline["batch_size"] != result["batch_size"]
        note = _P50_NOTES.get(verdict, "per row" if rows_differ else "vs baseline")
        p50 = replace(p50, color="off" if verdict in _P50_NOTES else "inverse", change_note=note)
    others = [
        *(_percentile(name, result, baseline) for name in ("p90_s", "p95_s", "p99_s")),
        _mean(result, baseline),
        _deviation(result),
        _throughput(result, baseline),
    ]
    if verdict == REJECTED:
        others = [
            replace(one, color="off", change_note=_P50_NOTES[REJECTED]) if one.change is not None else one
            for one in others
        ]
    return [p50, *others]


def cost_cells(result: Result, baseline: Result | None) -> list[Cell]:
    """Return what a run costs beside its latency."""
    return [*(_single(one, result, baseline) for one in COSTS), _idle(result, baseline), _energy(result)]


def outputs_cell(result: Result) -> Cell | None:
    """Return how far the outputs are from what they should be; None: a result of an earlier version."""
    judged = result.get("guard")
    if judged is None:
        return None
    error = result.get("output_error") or {}
    known = error.get("max_rel") is not None
    note = (
        f"{judged['tolerance']['max_rel']:g} is allowed ({judged['precision']})" if known else "not compared"
    )
    return Cell(
        label="Output error",
        value=f"{error['max_rel']:.2g}" if known else format.DASH,
        note=f"{WARNING} {MARK}; {note}" if judged["breach"] else note,
        help="The largest difference from the outputs of the original model, run without optimizations on "
        "the CPU on the same feeds, as a share of the largest magnitude in that output.",
    )


def outputs_words(result: Result) -> str:
    """Say in a table whether outputs are what they should be; empty where that is not known."""
    if breach(result):
        return f"{WARNING} {MARK}"
    judged = result.get("guard") or {}
    return "agree" if judged.get("breach") is False else ""


def cold_cells(result: Result, baseline: Result | None) -> list[Cell]:
    """Return what a start costs: the session, the first run, the first run of each new shape."""
    return [*(_single(one, result, baseline) for one in STARTS), *_new_shapes(result)]


LEAST_CORES = 0.01  # of one core: below, a process is asleep


def _idle(result: Result, baseline: Result | None) -> Cell:
    own, other = _idle_cores(result), _idle_cores(baseline or {})
    note = f"in the {format.ms(result['idle_wall_s'], 3)} after a run" if own is not None else "not measured"
    if own is not None and other is not None:
        note += f"; baseline: {_cores(other)}"
    return Cell(
        label="CPU while idle",
        value=format.DASH if own is None else _cores(own),
        note=note,
        help="What idle threads burn after a run, waiting for the next one: the spinning that "
        "`session.intra_op.allow_spinning` turns off.",
    )


def _idle_cores(result: Result) -> float | None:
    cpu_s, wall_s = result.get("idle_cpu_s"), result.get("idle_wall_s")
    return None if cpu_s is None or not wall_s else float(cpu_s / wall_s)


def _cores(number: float) -> str:
    return f"{format.significant(number, 2)} cores" if number >= LEAST_CORES else "none"


def _energy(result: Result) -> Cell:
    joules = result.get("energy_j_per_inference")
    return Cell(
        label="Energy",
        value="not available" if joules is None else f"{format.significant(joules * 1e3, 3)} mJ a run",
        note=format.short(str(result.get("energy_note") or ""), 80),
        help="From the machine's own counter (RAPL or NVML): all that it used, not this process alone.",
    )


def _new_shapes(result: Result) -> list[Cell]:
    return [
        Cell(
            label=f"First run of batch {shape['batch_size']}",
            value=format.ms(shape["first_run_s"]),
            note=f"then {format.ms(shape['next_run_s'])}",
            help="A shape that the session had not seen: buffers are planned and allocated anew.",
        )
        for shape in result.get("new_shapes") or []
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A number that a trial has once, without an interval."""

    label: str
    name: str
    text: Callable[[float | None], str]
    help: str
    compare: Literal["always", "per row", "same rows"] = "always"
    missing: str = ""


COSTS = (
    Single(
        label="CPU time",
        name="cpu_s_per_inference",
        text=format.ms,
        help="User and system time per run, all threads, spinning included.",
        compare="per row",
    ),
    Single(
        label="Peak memory",
        name="peak_rss_bytes",
        text=format.size,
        help="Largest resident memory of a run, above the worker's level before the model was loaded.",
    ),
    Single(
        label="Memory to load",
        name="load_peak_rss_bytes",
        text=format.size,
        help="Largest resident memory up to the first run, above the level before the model was loaded.",
    ),
    Single(
        label="GPU memory",
        name="gpu_memory_bytes",
        text=format.size,
        help="Of the worker process, as the driver counts it (NVML).",
        missing="no GPU in use",
    ),
)
STARTS = (
    Single(
        label="Session creation",
        name="session_creation_s",
        text=format.ms,
        help="Loading the model and optimizing its graph.",
    ),
    Single(
        label="First run",
        name="first_run_s",
        text=format.ms,
        help="The very first run, with allocations and lazy set-up.",
        compare="same rows",
    ),
)


def _single(one: Single, result: Result, baseline: Result | None) -> Cell:
    value = result.get(one.name)
    change, note = _single_change(one, result, baseline or {})
    return Cell(
        label=one.label,
        value=one.text(value),
        note="one value, no interval" if value is not None else one.missing,
        help=one.help,
        change=change,
        change_note=note,
    )


def _single_change(one: Single, result: Result, baseline: Result) -> tuple[float | None, str]:
    value, other = result.get(one.name), baseline.get(one.name)
    if value is None or not other:
        return None, ""
    rows, other_rows = result["batch_size"] or 1, baseline["batch_size"] or 1
    if one.compare == "always" or rows == other_rows:
        return value / other - 1, ""
    if one.compare == "same rows":
        return None, ""
    return (value / rows) / (other / other_rows) - 1, "per row"


def _percentile(name: str, result: Result, baseline: Result | None) -> Cell:
    latency = result["latency"]
    label = f"{name.removesuffix('_s')} latency"
    if latency.get(name) is None:
        needed = latency.get("needs_runs", {}).get(name)
        rounds = latency.get("needs_rounds", {}).get(name)
        return Cell(
            label=label,
            value=f"needs {needed:,} runs" if needed else format.DASH,
            note=f"{result['runs']:,} were made" + (f"; needs {rounds:,} rounds" if rounds else ""),
            help=f"{PERCENTILE_HELP} With fewer runs the largest sample says nothing about this percentile.",
        )
    change, color, note = _change(_span(result, name), _span(baseline, name), lower_is_better=True)
    return Cell(
        label=label,
        value=format.ms(latency[name]),
        note=format.interval_ms(latency[f"{name}_low"], latency[f"{name}_high"]),
        help=PERCENTILE_HELP,
        change=change,
        color=color,
        change_note=note,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """A value per row of the batch, and its interval."""

    value: float
    low: float | None
    high: float | None
    rows: int


def _span(result: Result | None, name: str) -> _Span | None:
    if result is None or result["latency"].get(name) is None:
        return None
    rows, latency = result["batch_size"] or 1, result["latency"]
    low, high = latency.get(f"{name}_low"), latency.get(f"{name}_high")
    return _Span(
        value=latency[name] / rows,
        low=None if low is None else low / rows,
        high=None if high is None else high / rows,
        rows=rows,
    )


def _change(
    own: _Span | None, other: _Span | None, *, lower_is_better: bool
) -> tuple[float | None, DeltaColor, str]:
    """Return the relative change, its colour, and words on how far to trust it."""
    if own is None or other is None or other.value == 0:
        return None, "off", ""
    change = own.value / other.value - 1 if lower_is_better else other.value / own.value - 1
    rows_differ = lower_is_better and own.rows != other.rows  # a throughput is per row anyway
    if own.low is None or own.high is None or other.low is None or other.high is None:
        return change, "off", "no interval"
    if own.low <= other.high and other.low <= own.high:
        return change, "off", "intervals overlap"
    return change, "inverse" if lower_is_better else "normal", "per row" if rows_differ else "vs baseline"


def _mean(result: Result, baseline: Result | None) -> Cell:
    latency = result["latency"]
    change, color, note = _change(_span(result, "mean_s"), _span(baseline, "mean_s"), lower_is_better=True)
    return Cell(
        label="Mean latency",
        value=format.ms(latency["mean_s"]),
        note=format.interval_ms(latency.get("mean_s_low"), latency.get("mean_s_high")),
        help=f"Over {result['runs']:,} runs, nothing left out.",
        change=change,
        color=color,
        change_note=note,
    )


def _deviation(result: Result) -> Cell:
    latency = result["latency"]
    return Cell(
        label="Standard deviation",
        value=format.ms(latency["std_s"], 3),
        note=(
            f"{format.significant(latency['min_s'] * 1e3)} to "
            f"{format.significant(latency['max_s'] * 1e3)} in all"
        ),
        help="Spread of the single runs, with the fastest and the slowest of them.",
    )


def _throughput(result: Result, baseline: Result | None) -> Cell:
    change, color, note = _change(_span(result, "mean_s"), _span(baseline, "mean_s"), lower_is_better=False)
    rows = result["batch_size"]
    latency = result["latency"]
    low, high = latency.get("mean_s_low"), latency.get("mean_s_high")
    interval = "interval unknown: too few runs"
    if high:
        upper = f" to {format.significant(rows / low)}" if low else " or more"
        interval = f"{format.significant(rows / high)}{upper} (95 %)"
    return Cell(
        label="Throughput",
        value=format.rate(result["throughput_per_s"]),
        note=interval,
        help=(
            f"{rows} row{'s' if rows != 1 else ''} really fed per run, over the time inside the runs; "
            f"one caller at a time."
        ),
        change=change,
        color=color,
        change_note=note,
    )


def break_even_cell(found: BreakEven) -> Cell:
    """Return after how much work the faster side has repaid its start."""
    count = "" if found.count is None else f"{found.count:,} {found.unit}{'s' if found.count != 1 else ''}"
    short = {"after": f"after {count}", "until": f"ahead for {count}", "same": "start decides"}
    return Cell(
        label="Break-even",
        value=short.get(found.kind, "not known" if found.kind == "unknown" else found.kind),
        note=found.words.partition(": ")[2] if found.kind in ("at once", "never", "unknown") else found.words,
        help="After how much work the candidate has used less time in all than the baseline, session "
        "creation and first run included. A start is measured once, so this is a rough number.",
    )


def differences(one: Trial, other: Trial) -> list[str]:
    """Say what differs between the machines or libraries of two trials; empty where they are the same."""
    if one.fingerprint == other.fingerprint:
        return []
    own, others = ((trial.result or {}).get("environment") for trial in (one, other))
    if not own or not others:
        return ["They were measured on different machines or library versions."]
    return fingerprint_difference(own, others) or ["They were measured by different versions of ORTune."]


def comparison(trial: Trial, baseline: Trial) -> list[dict[str, str]]:
    """Return rows {what, this, baseline}: settings that differ first, then the numbers."""
    rows = _setting_rows(trial, baseline)
    own, other = (_values(one.result or {}) for one in (trial, baseline))
    for name in dict.fromkeys([*own, *other]):
        rows.append(
            {
                "": name,
                "This result": own.get(name, format.DASH),
                "Baseline": other.get(name, format.DASH),
            }
        )
    return rows


def _values(result: Result) -> dict[str, str]:
    shown = [
        *latency_cells(result, None, None),
        *cold_cells(result, None),
        *cost_cells(result, None),
    ]
    if (outputs := outputs_cell(result)) is not None:
        shown.append(outputs)
    return {one.label: one.value for one in shown}


def _setting_rows(trial: Trial, baseline: Trial) -> list[dict[str, str]]:
    try:
        own, other = specs.spec_from_dict(trial.spec), specs.spec_from_dict(baseline.spec)
    except TunerError:
        return []
    rows = []
    for setting in KNOBS:
        a, b = specs.effective(own, setting.name), specs.effective(other, setting.name)
        if a != b:
            rows.append({"": setting.label, "This result": format.value(a), "Baseline": format.value(b)})
    return rows


def placement_rows(result: Result) -> list[dict[str, Any]]:
    """Return one row per provider that was asked for or took part: loaded, nodes, time, share of time."""
    placement: Mapping[str, Mapping[str, Any]] = result.get("placement") or {}
    total = sum(float(part.get("time_s") or 0) for part in placement.values())
    names = dict.fromkeys([*result["requested_providers"], *result["effective_providers"], *placement])
    rows = []
    for name in names:
        part = placement.get(name, {})
        time_s = part.get("time_s")
        rows.append(
            {
                "Provider": format.provider(name),
                "Asked for": "yes" if name in result["requested_providers"] else "no, ORT adds it",
                "Loaded": "yes" if name in result["effective_providers"] else "no",
                "Nodes": int(part.get("nodes") or 0) if placement else None,
                "After fusion": int(part.get("ran_nodes") or 0) if placement else None,
                "Time per run (ms)": None if time_s is None else float(time_s) * 1e3,
                "Share of node time": None if time_s is None or not total else float(time_s) / total,
            }
        )
    return rows


def cast_lines(casts: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return icon and words on the Casts of an FP16 copy, and on the precision that it computed in."""
    if not casts:
        return []
    lines = []
    if casts["inserted_casts"]:
        words = (
            f"ONNX Runtime inserted {casts['inserted_casts']} Cast nodes: "
            f"{format.ms(casts['inserted_cast_s'])} per run, "
            f"{casts['inserted_cast_share']:.0%} of the node time."
        )
        lines.append((":material/swap_horiz:", words))
    if casts["computes_in_float32"]:
        operators = ", ".join(f"{count} {name}" for name, count in casts["float32_ops"].items())
        words = f"Computed in FP32 although the model is FP16: {operators}."
        lines.append((":material/warning:", f"{words} This provider gains nothing from FP16."))
    return lines
