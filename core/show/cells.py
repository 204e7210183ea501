"""Numbers of a result as table rows: value, uncertainty, baseline. Uses no Streamlit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from core import spec as specs
from core.evidence.cold_start import BreakEven
from core.evidence.measurement import Trial
from core.evidence.streams import latency_words, stream_count, throughput_interval
from core.evidence.targets import process_peak
from core.evidence.verdict import Verdict, is_rejected, parts
from core.show import format
from core.show import verdict as verdicts
from core.show.runtime_text import runtime_name
from core.show.table import Column, Table
from core.spec.metrics import METRICS, Quantity
from core.spec.settings import SETTINGS
from core.wire import CUDA_PROVIDERS
from core.wire.errors import TunerError
from core.wire.output_check import OUTPUTS_DIFFER, WARNING, breach, not_judged_reason
from core.wire.provenance import fingerprint_difference
from core.wire.runtime import OWN
from core.wire.units import DASH, ms, significant, size, span_ms

Result = Mapping[str, Any]
Color = Literal["green", "orange", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number of a result.

    Only the paired rounds of a comparison give a change, because the ratio of two separate medians may
    contradict the verdict. Without a change the cell shows the baseline's number.
    """

    name: str  # key of the number in a result
    label: str
    value: str
    note: str
    help: str
    change: str = ""  # the verdict in a few characters
    change_note: str = ""  # its interval, "95 % CI [1.38, 1.46]"
    color: Color = "off"
    baseline_text: str = ""  # "baseline 1.230 ms"


PERCENTILE_HELP = (
    "Nearest-rank percentile of all timed runs; the interval accounts for correlation within rounds and "
    "processes. To compare, use the verdict above: it is paired by round and far more precise."
)


NOT_JUDGED = "inconclusive"
_COLORS: Mapping[str, Color] = {Verdict.FASTER: "green", Verdict.SLOWER: "orange"}


def batch_sizes_differ(result: Result, baseline: Result | None) -> bool:
    """Whether the batch sizes differ: then all compared numbers are per sample."""
    return baseline is not None and baseline["batch_size"] != result["batch_size"]


def latency_cells(
    result: Result,
    baseline: Result | None,
    contrast: verdicts.Contrast | None = None,
    *,
    per_row: bool | None = None,
) -> list[Cell]:
    """Return latency and throughput of `result`, each with the number of the baseline.

    Args:
        result: of the displayed trial.
        baseline: result of the baseline in the same comparison; None: there is none.
        contrast: of the two; the compared metric carries the verdict: the p50, or throughput where a side has
            several streams. None: there is none.
        per_row: latencies per sample instead of per run; None: if the batch sizes differ.
    """
    if per_row is None:
        per_row = bool(contrast and contrast.get("per_row")) or batch_sizes_differ(result, baseline)
    p50, rate = _percentile("p50_s", result, baseline, per_row=per_row), _throughput(result, baseline)
    if contrast is not None and contrast.get("statistic") == "throughput":
        rate = replace(rate, **_change(contrast))
    elif contrast is not None:
        p50 = replace(p50, **_change(contrast))
    return [
        p50,
        *(_percentile(name, result, baseline, per_row=per_row) for name in ("p90_s", "p95_s", "p99_s")),
        _mean(result, baseline, per_row=per_row),
        _deviation(result, baseline, per_row=per_row),
        rate,
        *_stream_cells(result),
    ]


def _change(contrast: verdicts.Contrast) -> dict[str, Any]:
    """Return the verdict of the comparison, in the words of the title."""
    if is_rejected(contrast):
        return {"change": verdicts.short(contrast)}
    return {
        "change": verdicts.short(contrast),
        "change_note": parts(contrast)[1],
        "color": _COLORS.get(contrast["verdict"], "off"),
    }


def cost_cells(result: Result, baseline: Result | None, *, per_row: bool | None = None) -> list[Cell]:
    """Return CPU time, memory and energy; `per_row` as for `latency_cells`."""
    rows = batch_sizes_differ(result, baseline) if per_row is None else per_row
    gpu = any(_has_gpu(one) for one in (result, baseline) if one)
    shown = [one for one in COSTS if gpu or one.name != GPU_MEMORY]  # no card without a GPU
    return [
        *(_single(one, result, baseline, per_row=rows) for one in shown),
        _idle(result, baseline),
        _energy(result, baseline, per_row=rows),
    ]


def _has_gpu(result: Result) -> bool:
    """Whether a GPU provider was requested or used, or GPU memory was measured."""
    asked = {*(result.get("requested_providers") or ()), *(result.get("effective_providers") or ())}
    return result.get(GPU_MEMORY) is not None or bool(asked & {*CUDA_PROVIDERS})


def outputs_cell(result: Result) -> Cell | None:
    """Return the result of the output check; None: a result of an earlier version."""
    judged = result.get("guard")
    if judged is None:
        return None
    error = result.get("output_error") or {}
    known = error.get("max_rel") is not None and judged["breach"] is not None
    unknown = NOT_JUDGED if not_judged_reason(result) else "not compared"
    note = f"{judged['tolerance']['max_rel']:g} allowed ({judged['precision']})" if known else unknown
    return Cell(
        name="output_error",
        label="Output error",
        value=f"{error['max_rel']:.2g}" if known else DASH,
        note=f"{WARNING} {OUTPUTS_DIFFER}; {note}" if judged["breach"] else note,
        help="Largest difference from the original model, run without optimizations on the CPU on the "
        "same inputs. Relative to the largest magnitude of that output.",
    )


def outputs_words(result: Result) -> str:
    """Return the result of the output check in a few words; empty: unknown."""
    if breach(result):
        return f"{WARNING} {OUTPUTS_DIFFER}"
    if not_judged_reason(result):
        return NOT_JUDGED
    return "agree" if (result.get("guard") or {}).get("breach") is False else ""


def cold_cells(result: Result, baseline: Result | None, *, per_row: bool | None = None) -> list[Cell]:
    """Return start-up times: session creation, first run, first run of each new shape."""
    rows = batch_sizes_differ(result, baseline) if per_row is None else per_row
    return [*(_single(one, result, baseline, per_row=rows) for one in STARTS), *_new_shapes(result)]


MIN_CORES = 0.01  # of one core; below, the process counts as idle


def _baseline_text(text: str | None) -> str:
    return f"baseline {text}" if text else ""


def _idle(result: Result, baseline: Result | None) -> Cell:
    own, other = _idle_cores(result), _idle_cores(baseline or {})
    return Cell(
        name="idle_cpu_s",
        label="Idle CPU use",
        value=DASH if own is None else _cores(own),
        note=f"in the {ms(result['idle_wall_s'], 3)} after a run" if own is not None else "not measured",
        help="CPU use of threads that spin while waiting for the next run. "
        "`session.intra_op.allow_spinning` turns it off.",
        baseline_text=_baseline_text(None if other is None else _cores(other)),
    )


def _idle_cores(result: Result) -> float | None:
    cpu_s, wall_s = result.get("idle_cpu_s"), result.get("idle_wall_s")
    return None if cpu_s is None or not wall_s else float(cpu_s / wall_s)


def _cores(number: float) -> str:
    return f"{significant(number, 2)} cores" if number >= MIN_CORES else "none"


def _energy(result: Result, baseline: Result | None, *, per_row: bool) -> Cell:
    own, other = (_joules(one, per_row=per_row) for one in (result, baseline or {}))
    return Cell(
        name="energy_j_per_inference",
        label="Energy",
        value=own or "not available",
        note=format.short(str(result.get("energy_note") or ""), 80),
        help="From the RAPL or NVML counter: the energy of the whole CPU or GPU, not of this process alone.",
        baseline_text=_baseline_text(other),
    )


def _joules(result: Result, *, per_row: bool) -> str | None:
    joules = result.get("energy_j_per_inference")
    if joules is None:
        return None
    rows = (result["batch_size"] or 1) if per_row else 1
    return f"{significant(joules / rows * 1e3, 3)} mJ per {'sample' if per_row else 'run'}"


def _new_shapes(result: Result) -> list[Cell]:
    return [
        Cell(
            name=f"new_shape.{shape['batch_size']}",
            label=f"First run of batch {shape['batch_size']}",
            value=ms(shape["first_run_s"]),
            note=f"then {ms(shape['next_run_s'])}",
            help="First run with a new input shape: the session plans and allocates buffers again.",
        )
        for shape in result.get("new_shapes") or []
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleNumber:
    """A number that is measured once per trial, without an interval."""

    label: str
    name: str
    text: Callable[[float | None], str]
    help: str
    of: Literal["process", "run", "shape"] = "process"  # times of different shapes are not compared
    missing: str = ""


def _count(value: float | None) -> str:
    return DASH if value is None else significant(value)


_TEXTS: Mapping[Quantity, Callable[[float | None], str]] = {"time": ms, "size": size}
PEAK_MEMORY = METRICS["peak_rss"].field
GPU_MEMORY = "gpu_memory_bytes"
COSTS = (
    *(
        SingleNumber(
            label=one.label,
            name=one.field,
            text=_TEXTS.get(one.quantity, _count),
            help=one.tile_help,
            of="run" if one.per_sample else "process",
        )
        for one in METRICS.values()
        if one.label
    ),
    SingleNumber(
        label="Load memory",
        name="load_peak_rss_bytes",
        text=size,
        help="Peak resident memory up to the first run, minus the level before the model was loaded.",
    ),
    SingleNumber(
        label="GPU memory",
        name=GPU_MEMORY,
        text=size,
        help="GPU memory of the worker process, as reported by the driver (NVML).",
        missing="no GPU in use",
    ),
)
STARTS = (
    SingleNumber(
        label="Session creation",
        name="session_creation_s",
        text=ms,
        help="Time to load the model and optimize its graph.",
    ),
    SingleNumber(
        label="First run",
        name="first_run_s",
        text=ms,
        help="The first run after session creation, including allocations and lazy initialization.",
        of="shape",
    ),
)


def _single(one: SingleNumber, result: Result, baseline: Result | None, *, per_row: bool) -> Cell:
    value, other = (_single_text(one, side or {}, per_row=per_row) for side in (result, baseline))
    compared = other is not None and not (per_row and one.of == "shape")
    return Cell(
        name=one.name,
        label=_label(one.label, per_row=per_row and one.of == "run"),
        value=one.text(None) if value is None else value,
        note="one value, no interval" if value is not None else one.missing,
        help=_single_help(one, result),
        baseline_text=_baseline_text(other) if compared else "",
    )


def _single_help(one: SingleNumber, result: Result) -> str:
    peak = process_peak(result) if one.name == PEAK_MEMORY else None
    return one.help if peak is None else f"{one.help} The peak of the whole process: {size(peak)}."


def _single_text(one: SingleNumber, result: Result, *, per_row: bool) -> str | None:
    value = result.get(one.name)
    if value is None:
        return None
    rows = (result["batch_size"] or 1) if per_row else 1
    if one.of == "run":
        return one.text(value / rows)
    return f"{one.text(value)} for {_rows(rows)}" if per_row and one.of == "shape" else one.text(value)


def _rows(count: int) -> str:
    return f"{count} sample{'s' * (count != 1)}"


def _label(text: str, *, per_row: bool) -> str:
    return f"{text} per sample" if per_row else text


def _scaled(result: Result | None, name: str, *, per_row: bool) -> float | None:
    """Return a time of the latency summary in seconds, per run or per sample; None: unknown."""
    value: float | None = None if result is None else result["latency"].get(name)
    if value is None or not per_row or result is None:
        return value
    return value / (result["batch_size"] or 1)


def _interval(result: Result, name: str, *, per_row: bool) -> str:
    low, high = (_scaled(result, f"{name}_{end}", per_row=per_row) for end in ("low", "high"))
    return format.interval_ms(low, high)


def _beside_ms(baseline: Result | None, name: str, digits: int = 4, *, per_row: bool) -> str:
    other = _scaled(baseline, name, per_row=per_row)
    return _baseline_text(None if other is None else ms(other, digits))


def _percentile(name: str, result: Result, baseline: Result | None, *, per_row: bool) -> Cell:
    latency = result["latency"]
    label = _label(f"{name.removesuffix('_s')} {latency_words(result)}", per_row=per_row)
    baseline_text = _beside_ms(baseline, name, per_row=per_row)
    if latency.get(name) is None:
        needed = latency.get("needs_runs", {}).get(name)
        rounds = latency.get("needs_rounds", {}).get(name)
        return Cell(
            name=name,
            label=label,
            value=f"needs {needed:,} runs" if needed else DASH,
            note=f"{result['runs']:,} measured",
            help=f"{PERCENTILE_HELP} This percentile needs more runs."
            + (f" It needs {rounds:,} rounds." if rounds else ""),
            baseline_text=baseline_text,
        )
    return Cell(
        name=name,
        label=label,
        value=ms(_scaled(result, name, per_row=per_row)),
        note=_interval(result, name, per_row=per_row),
        help=PERCENTILE_HELP,
        baseline_text=baseline_text,
    )


_MEAN_HELP = (
    "Trimmed mean over launches, so a single slow launch has little weight. Percentiles use all runs."
)


def _mean(result: Result, baseline: Result | None, *, per_row: bool) -> Cell:
    return Cell(
        name="mean_s",
        label=_label(f"Mean {latency_words(result)}", per_row=per_row),
        value=ms(_scaled(result, "mean_s", per_row=per_row)),
        note=_interval(result, "mean_s", per_row=per_row),
        help=_MEAN_HELP,
        baseline_text=_beside_ms(baseline, "mean_s", per_row=per_row),
    )


def _deviation(result: Result, baseline: Result | None, *, per_row: bool) -> Cell:
    least, most = (_scaled(result, name, per_row=per_row) or 0.0 for name in ("min_s", "max_s"))
    return Cell(
        name="std_s",
        label=_label("Standard deviation", per_row=per_row),
        value=ms(_scaled(result, "std_s", per_row=per_row), 3),
        note=f"{span_ms(least, most)} range",
        help="Standard deviation of single runs, and the range from fastest to slowest.",
        baseline_text=_beside_ms(baseline, "std_s", 3, per_row=per_row),
    )


def _throughput(result: Result, baseline: Result | None) -> Cell:
    rows, count = result["batch_size"], stream_count(result)
    low, high = throughput_interval(result)
    other = (baseline or {}).get("throughput_per_s")
    how = f"{_rows(rows)} per run, divided by the mean latency, with one caller at a time."
    if count > 1:
        how = (
            f"{_rows(rows)} per run, times the runs of {count} callers in the time in which all of them ran."
        )
    return Cell(
        name="throughput_per_s",
        label="Throughput",
        value=format.rate(result["throughput_per_s"]),
        note=format.interval_rate(low, high if low else None),
        help=how,
        baseline_text=_baseline_text(None if other is None else format.rate(other)),
    )


def _stream_cells(result: Result) -> list[Cell]:
    """Return number, fairness and CPU use of several streams; none for one caller."""
    facts = result.get("streams")
    if not facts:
        return []
    threads = facts["threads"]
    each = f"intra-op threads {', '.join(map(str, threads))}" if threads else "of one session"
    return [
        Cell(
            name="streams",
            label="Streams",
            value=f"{facts['count']} {facts['type']}",
            note=each,
            help="Callers at the same time, each of which calls again as soon as its result is there.",
        ),
        Cell(
            name="streams.fairness",
            label="Stream fairness",
            value=f"{facts['fairness']:.0%}".replace("%", " %"),
            note=f"{format.rate(min(facts['rates_per_s']))} to {format.rate(max(facts['rates_per_s']))}",
            help="Rate of the slowest stream over that of the fastest.",
        ),
        Cell(
            name="streams.cpus_used",
            label="CPU use",
            value=f"{significant(facts['cpus_used'], 3)} CPUs",
            note="of all streams, on average",
            help="CPU time of all streams per second of their blocks.",
        ),
    ]


def break_even_cell(found: BreakEven) -> Cell:
    """Return after how many runs the faster side has made up for its longer start-up."""
    count = "" if found.count is None else f"{found.count:,} {found.unit}{'s' if found.count != 1 else ''}"
    short = {"after": f"after {count}", "until": f"for {count}", "same": "start decides"}
    return Cell(
        name="break_even",
        label="Break-even",
        value=short.get(found.kind, "not known" if found.kind == "unknown" else found.kind),
        note=found.words.partition(": ")[2] if found.kind in ("at once", "never", "unknown") else found.words,
        help="The number of runs after which the candidate has used less total time, including session "
        "creation and first run. Rough, because each start is measured once.",
    )


def differences(one: Trial, other: Trial) -> list[str]:
    """Return the differences between the machines or libraries of two trials; empty: none.

    Libraries of two runtimes differ on purpose, so they are not among them.
    """
    if one.fingerprint == other.fingerprint:
        return []
    own, others = (trial.facts.get("environment") for trial in (one, other))
    if not own or not others:
        return ["They were measured on different machines or library versions."]
    names = [runtime_name(trial.spec) for trial in (one, other)]
    told = fingerprint_difference(own, others, libraries=names[0] == names[1])
    if told or names != [OWN, OWN]:  # else only ORTune's own libraries differ, which one did not use
        return told
    return ["They were measured by different versions of ORTune."]


def comparison(trial: Trial, baseline: Trial) -> Table:
    """Return a result versus its baseline: settings that differ first, then the numbers.

    If the batch sizes differ, the numbers are per sample, and their names say so.
    """
    sides = [one.facts for one in (trial, baseline)]
    per_row = batch_sizes_differ(sides[0], sides[1])
    own, other = (_values(one, per_row=per_row) for one in sides)
    rows = _differing(trial, baseline)
    rows += [(name, own.get(name, DASH), other.get(name, DASH)) for name in dict.fromkeys([*own, *other])]
    columns = [Column("what", tells=True), Column("this result"), Column("baseline")]
    return Table(columns=columns, rows=rows)


def _values(result: Result, *, per_row: bool) -> dict[str, str]:
    shown = [
        *latency_cells(result, None, per_row=per_row),
        *cold_cells(result, None, per_row=per_row),
        *cost_cells(result, None, per_row=per_row),
    ]
    if (outputs := outputs_cell(result)) is not None:
        shown.append(outputs)
    return {one.label: one.value for one in shown}


def _differing(trial: Trial, baseline: Trial) -> list[tuple[str, str, str]]:
    try:
        own, other = specs.spec_from_dict(trial.spec), specs.spec_from_dict(baseline.spec)
    except TunerError:
        return []
    pairs = [
        (one.label, specs.effective(own, one.name), specs.effective(other, one.name)) for one in SETTINGS
    ]
    return [(label, format.value(a), format.value(b)) for label, a, b in pairs if a != b]
