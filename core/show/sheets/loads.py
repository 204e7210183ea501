"""Sheet of a load test: the answer, what was asked, and tables of what was measured. Pure.

A point whose harness added too much shows that, and none of its percentiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from core.evidence.load.load_types import (
    Batching,
    BatchingTrial,
    Highest,
    LoadContrast,
    LoadResult,
    Percentile,
    Point,
    RunResult,
    ServiceTime,
)
from core.evidence.measurement import Trial
from core.show import load_text
from core.show.load_text import percentile, percentile_name, shown_latency
from core.show.runtime_text import runtime_of
from core.show.setting_chips import changes_text
from core.show.sheets import Fact, Line, Note, Part, Sheet
from core.show.sheets.trials import NOTHING_CHANGED, failed
from core.show.sheets.trials import notes as noted
from core.show.table import Column, Table, Value, tabulate
from core.show.words import counted
from core.wire.units import significant, size, span_ms

MOST_SHAPES = 12  # rows of the table of new shapes
_ALWAYS = (0.5, 0.99)  # percentiles of every table of points


def load_sheet(trial: Trial) -> Sheet:
    """Return headline, facts and tables of a load test, or why it has no result."""
    result = load_text.load_of(trial)
    if result is None:
        return failed(trial)
    parts: list[Part] = [
        *_facts(trial, result),
        *tables(result),
        *noted([*result["notes"], *_notes(trial, result)]),
        *_ended(trial),
        Line(f"Report: ortune report {trial.id}", apart=True),
    ]
    return Sheet(load_text.answer(result), parts)


def tables(result: LoadResult) -> Iterator[Table]:
    """Return the tables that a result has something for, the points first."""
    if result["highest"]:
        yield highest(result)
    if result["points"]:
        yield points(result)
    if result["contrasts"]:
        yield contrasts(result)
    if result["together"]:
        yield together(result)
    if result["batching"] is not None:
        yield service_times(result["batching"])
        if any(one["point"] is not None for one in result["batching"]["trials"]):
            yield batching_trials(result, simulated=False)
    if any(len(run["batches"]) > 1 for run in result["runs"]):
        yield batch_sizes(result)
    if any(len(run["new_shapes"]) > 1 for run in result["runs"]):
        yield new_shapes(result)


# --- facts --------------------------------------------------------------------------------------------------


def _facts(trial: Trial, result: LoadResult) -> Iterator[Fact]:
    asked = load_text.question_of(result)
    yield Fact("load test", f"{trial.model_name}, trial {trial.id}")
    if asked is not None:
        yield Fact("traffic", load_text.traffic_words(asked))
        yield Fact("requests", load_text.requests_words(asked, trial.facts.get("batch_size") or 1))
        if asked.limits:
            yield Fact("limits", ", ".join(one.words for one in asked.limits))
    yield from _configurations(trial, result)
    yield from _limit_facts(result)
    yield from harness_facts(result)
    yield from _resources(result)
    yield from _machine(result)


def _configurations(trial: Trial, result: LoadResult) -> Iterator[Fact]:
    several = len(result["configurations"]) > 1
    for number, one in enumerate(result["configurations"]):
        told = "1 stream" if one["streams"] == 1 else f"{one['streams']} streams ({one['stream_type']})"
        ran_in = runtime_of(one["spec"], {"libraries": one.get("libraries") or {}})
        if several:
            named = f", runtime {ran_in}" if ran_in else ""
            text = f"{one['label']}: {one['model']}, {told}{named}"
            yield Fact("configuration" if number == 0 else "", text)
        else:
            yield from [Fact("runtime", ran_in)] if ran_in else []
            yield Fact("streams", told)
            yield Fact("changed", changes_text(trial) or NOTHING_CHANGED)
        if one["error"]:
            yield Fact("", one["error"], "red")


def _limit_facts(result: LoadResult) -> Iterator[Fact]:
    """Return the verdict on every limit where there is one point; the table has those of several."""
    fresh = _fresh(result)
    if len(fresh) != 1 or load_text.is_rejected(fresh[0]):
        return
    for one in fresh[0]["limits"]:
        text = load_text.limit_sentence(one, fresh[0])
        if text not in load_text.answer(result):
            yield Fact("limit", text, load_text.COLORS[one["verdict"]])


def _fresh(result: LoadResult) -> list[Point]:
    return [one for one in result["points"] if one["fresh"]] or list(result["points"])


def harness_facts(result: LoadResult) -> Iterator[Fact]:
    """Return what the harness added at the point where it added most, and which points it spoiled."""
    known = [one for one in _fresh(result) if one["harness"] is not None]
    if not known:
        yield Fact("harness", load_text.harness_text(None))
        return
    worst = max(known, key=lambda one: one["harness"]["share_of_p50"] if one["harness"] else 0.0)
    at = f" (at {load_text.rate_text(worst['rate_per_s'])})" if len(known) > 1 else ""
    yield Fact("harness", f"{load_text.harness_text(worst['harness'])}{at}")
    labels = [one["label"] for one in result["configurations"]]
    for one in known:
        if load_text.has_no_answer(one) and (told := load_text.point_words(one)) not in load_text.answer(
            result
        ):
            who = f"{labels[one['configuration']]}: " if len(labels) > 1 else ""
            yield Fact("", f"{who}{told}", "orange")


def _resources(result: LoadResult) -> Iterator[Fact]:
    cpus = [one["cpus"] for one in _fresh(result) if one["cpus"] is not None]
    memory = [one["memory_bytes"] for one in _fresh(result) if one["memory_bytes"] is not None]
    if cpus:
        low, high = significant(min(cpus), 3), significant(max(cpus), 3)
        yield Fact("CPU", f"{low if low == high else f'{low} to {high}'} CPUs in use, of all its processes")
    if memory:
        yield Fact("memory", f"{size(max(memory))}, private pages of all its processes")


def _machine(result: LoadResult) -> Iterator[Fact]:
    busy = [found for run in result["runs"] if (found := run.get("busy"))]
    if busy:
        worst = max(busy, key=lambda one: one["cores"])
        most = "" if len(result["runs"]) == 1 else f" (most of {len(result['runs'])} runs)"
        yield Fact("machine", f"{worst['words']}{most}", "orange")


def _notes(trial: Trial, result: LoadResult) -> list[str]:
    known = {*result["notes"]}
    alone = {index for point in result["points"] if len(point["runs"]) == 1 for index in point["runs"]}
    own = list(trial.facts.get("notes") or [])
    for index, run in enumerate(result["runs"]):
        own += run["notes"] if index in alone else []  # several runs decide together
    early = [run["reason"] for run in result["runs"] if run["outcome"] in ("saturated", "failed")]
    if result["batching"] is not None:
        own += _simulated_note(result["batching"])
    return [load_text.MEANING, *dict.fromkeys(one for one in [*early, *own] if one and one not in known)]


def _simulated_note(found: Batching) -> list[str]:
    alone = sum(one["point"] is None for one in found["trials"])
    were = "was" if alone == 1 else "were"
    return [f"{counted(alone, 'more pair')} of batch and delay {were} only simulated."] if alone else []


def _ended(trial: Trial) -> Iterator[Note]:
    if trial.error is not None:
        told = f"{trial.state}: {trial.error['message']} {trial.error['hint']}".strip()
        yield Note(told, "red", apart=True)
    elif trial.state == "CANCELLED":
        yield Note("CANCELLED: this is what was measured until then.", "orange", apart=True)


# --- points -------------------------------------------------------------------------------------------------


def points(result: LoadResult) -> Table:
    """Return one row for each configuration and rate, in order of the rate."""
    labels = [one["label"] for one in result["configurations"]]
    several = len(labels) > 1
    probed = not all(one["fresh"] for one in result["points"])
    found = sorted(result["points"], key=lambda one: (one["rate_per_s"], one["configuration"]))
    named = _percentiles(result)
    limits = dict.fromkeys(limit["limit"] for one in found for limit in one["limits"])
    batching = _batching_of(result)
    shared = any(_is_beside(one, result) for one in found)
    return tabulate(
        found,
        (
            Column("configuration", key="configuration", tells=True, on="all" if several else "none"),
            lambda one: labels[one["configuration"]],
        ),
        (
            Column("batching", key="batching", tells=True, on="all" if batching else "none"),
            lambda one: batching.get(id(one), ""),
        ),
        (
            Column("models", key="models", tells=True, on="all" if shared else "none"),
            lambda one: "" if not shared else "together" if _is_beside(one, result) else "alone",
        ),
        (Column("requests/s", "number", key="rate_per_s", tells=True), lambda one: one["rate_per_s"]),
        (
            Column("completed/s", "number", key="completed_per_s", help=_COMPLETED_HELP),
            lambda one: one["completed_per_s"],
        ),
        (Column("samples/s", "number", key="samples_per_s", more=True), lambda one: one["samples_per_s"]),
        *(column for p in named for column in _latency_columns(p)),
        *(column for text in limits for column in _limit_columns(text, only=len(limits) == 1)),
        (Column("verdict", key="verdict", help=_VERDICT_HELP), load_text.verdict_text),
        (Column("requests", "count", key="requests"), lambda one: one["requests"]),
        (Column("runs", "count", key="runs", more=True), lambda one: len(one["runs"])),
        (
            Column("harness", "share", key="harness_share_of_p50", help=_HARNESS_HELP, more=True),
            lambda one: one["harness"]["share_of_p50"] if one["harness"] else None,
        ),
        (Column("harness p50", "ms", key="harness_p50_ms", on="none"), _harness("p50_s")),
        (Column("harness p99", "ms", key="harness_p99_ms", on="none"), _harness("p99_s")),
        (
            Column("accepted", key="accepted", on="none"),
            lambda one: None if one["harness"] is None else one["harness"]["accepted"],
        ),
        (Column("CPUs", "number", key="cpus"), lambda one: one["cpus"]),
        (Column("memory", "bytes", key="memory_bytes"), lambda one: one["memory_bytes"]),
        (
            Column("stage", key="stage", on="all" if probed else "none", help=_STAGE_HELP),
            lambda one: "confirmation" if one["fresh"] else "probe",
        ),
        (Column("outcome", key="outcome", on="none"), lambda one: one["outcome"]),
        drop=(
            *("memory", "CPUs", "samples/s", "runs", "harness", "requests", "p50, 95 %", "over limit"),
            *("completed/s", "p99, 95 %"),
        ),
        solid=tuple(f"{percentile_name(p)}, 95 %" for p in named),
        colors=[load_text.point_color(one) for one in found],
    )


def _is_beside(point: Point, result: LoadResult) -> bool:
    """Whether other models served at the same time."""
    return any(result["runs"][index]["beside"] for index in point["runs"])


def _batching_of(result: LoadResult) -> dict[int, str]:
    """Map the identity of a point to its dynamic batching; empty: the test did not look for one."""
    found = result["batching"]
    if found is None:
        return {}
    named = {id(one): "none" for one in result["points"]}
    for trial in found["trials"]:
        if trial["point"] is not None:
            delay = load_text.brief_ms(trial["max_queue_delay_microseconds"] / 1e6)
            named[id(result["points"][trial["point"]])] = f"{trial['max_batch_size']}, {delay}"
    return named


_COMPLETED_HELP = "Requests completed per second. Below the rate, a queue grows."
_VERDICT_HELP = (
    "PASS: with 95 % confidence no more requests than allowed were slower than the limit. FAIL: more were. "
    "UNDECIDED: the requests are too few to tell."
)
_HARNESS_HELP = "Latency that the harness added, as a share of p50. Above 10 % the point is no measurement."
_STAGE_HELP = "A probe is a short run that looks for the rate. Only a confirmation in a fresh process counts."

PointColumn = tuple[Column, Callable[[Point], Value]]


def _percentiles(result: LoadResult) -> list[float]:
    """Return the percentiles to show: p50, p99, and those of the limits."""
    asked = load_text.question_of(result)
    limits = [one.percentile for one in asked.limits if one.at_most_s is not None] if asked else []
    return sorted({*_ALWAYS, *limits})


def _latency_columns(p: float) -> list[PointColumn]:
    name, key = percentile_name(p), percentile_name(p).replace(".", "_")

    def known(point: Point) -> Percentile | None:
        return percentile(shown_latency(point), p)

    def value(point: Point) -> Value:
        return None if (one := known(point)) is None else one["value_s"]

    def end(name: str) -> Callable[[Point], Value]:
        return lambda point: None if (one := known(point)) is None else _end(one, name)

    def ends(point: Point) -> Value:
        one = known(point)
        return None if one is None else span_ms(one["low_s"], one["high_s"], unit="")

    return [
        (Column(name, "ms", key=f"{key}_ms", help=load_text.MEANING), value),
        (Column(f"{name}, 95 %", right=True, on="terminal"), ends),
        (Column(f"{name} low", "ms", key=f"{key}_ms_low", on="browser", more=True), end("low_s")),
        (Column(f"{name} high", "ms", key=f"{key}_ms_high", on="browser", more=True), end("high_s")),
    ]


def _end(one: Percentile, name: str) -> Value:
    return one["low_s"] if name == "low_s" else one["high_s"]


def _limit_columns(text: str, *, only: bool) -> list[PointColumn]:
    """Return the share of requests that broke a limit, with its one-sided 95 % bounds."""
    limit = load_text.limit_of(text)
    words = limit.words if limit is not None else text
    key = "" if only else f"_{text.partition('<')[0].replace('.', '_')}"

    def cell(name: str) -> Callable[[Point], Value]:
        def value(point: Point) -> Value:
            found = next((one for one in point["limits"] if one["limit"] == text), None)
            known = found is not None and (found["verdict"] == "PASS" or not load_text.is_rejected(point))
            return found[name] if found is not None and known else None  # type: ignore[literal-required]

        return value

    title = "over limit" if only else f"over {words}"
    about = f"Share of requests beyond {words}. It passes where the upper bound is at most what is allowed."
    return [
        (Column(title, "share", decimals=2, key=f"over_limit{key}", help=about), cell("share")),
        (
            Column("over at least", "share", decimals=2, key=f"over_limit{key}_low", on="browser", more=True),
            cell("low"),
        ),
        (Column("at most", "share", decimals=2, key=f"over_limit{key}_high", help=_BOUND_HELP), cell("high")),
    ]


_BOUND_HELP = "Upper bound of that share with 95 % confidence; requests that follow each other are dependent."


def _harness(name: str) -> Callable[[Point], Value]:
    def value(point: Point) -> Value:
        found = point["harness"]
        return None if found is None else found[name]  # type: ignore[literal-required]

    return value


# --- answers of the other questions ---------------------------------------------------------------------


def highest(result: LoadResult) -> Table:
    """Return the highest confirmed and the lowest failed rate of each configuration."""
    labels = [one["label"] for one in result["configurations"]]

    def cell(name: str) -> Callable[[Highest], Value]:
        return lambda one: one[name]  # type: ignore[literal-required]

    return tabulate(
        result["highest"],
        (Column("configuration", key="configuration", tells=True), lambda one: labels[one["configuration"]]),
        (
            Column("confirmed/s", "number", key="confirmed_per_s", help=_CONFIRMED_HELP),
            cell("confirmed_per_s"),
        ),
        (Column("undecided/s", "number", key="undecided_per_s"), cell("undecided_per_s")),
        (
            Column("failed/s", "number", key="failed_per_s", help="The lowest rate that failed."),
            cell("failed_per_s"),
        ),
        (
            Column("capacity/s", "number", key="capacity_per_s", help=_CAPACITY_HELP),
            cell("capacity_per_s"),
        ),
    )


_CONFIRMED_HELP = "The highest rate that kept the limits in a fresh process. The true limit may be higher."
_CAPACITY_HELP = "Requests per second when every stream starts the next request at once (closed loop)."


def contrasts(result: LoadResult) -> Table:
    """Return the ratio of two configurations' percentiles at each rate, with its interval."""
    labels = [one["label"] for one in result["configurations"]]

    def end(name: str) -> Callable[[LoadContrast], Value]:
        return lambda one: one[name]  # type: ignore[literal-required]

    return tabulate(
        result["contrasts"],
        (Column("configuration", key="configuration", tells=True), lambda one: labels[one["configuration"]]),
        (Column("versus", key="baseline"), lambda one: labels[one["baseline"]]),
        (Column("requests/s", "number", key="rate_per_s"), lambda one: one["rate_per_s"]),
        (Column("percentile", key="percentile"), lambda one: percentile_name(one["p"])),
        (Column("latency", help=_CONTRAST_HELP), load_text.contrast_text),
        (Column("ratio", "number", key="ratio", on="none"), end("ratio")),
        (Column("ratio low", "number", key="ratio_low", on="none"), end("ratio_low")),
        (Column("ratio high", "number", key="ratio_high", on="none"), end("ratio_high")),
        (Column("verdict", key="verdict", on="none"), end("verdict")),
        (Column("turns", "count", key="turns"), lambda one: one["turns"]),
        drop=("turns", "versus"),
    )


_CONTRAST_HELP = "From turns of fresh processes with the same arrivals; a turn is one measurement."


def together(result: LoadResult) -> Table:
    """Return what sharing the machine costs each model."""
    labels = [one["label"] for one in result["configurations"]]
    return tabulate(
        result["together"],
        (Column("configuration", key="configuration", tells=True), lambda one: labels[one["configuration"]]),
        (Column("percentile", key="percentile"), lambda one: percentile_name(one["p"])),
        (Column("alone", "ms", key="alone_ms"), lambda one: one["alone_s"]),
        (Column("together", "ms", key="together_ms"), lambda one: one["together_s"]),
        (Column("cost", help=_ALONE_HELP), load_text.alone_text),
        (Column("ratio", "number", key="together_ratio", on="none"), lambda one: one["ratio"]),
        (Column("ratio low", "number", key="together_ratio_low", on="none"), lambda one: one["ratio_low"]),
        (Column("ratio high", "number", key="together_ratio_high", on="none"), lambda one: one["ratio_high"]),
    )


_ALONE_HELP = "Latency together divided by latency alone, from turns with the same arrivals."


def service_times(found: Batching) -> Table:
    """Return the service time of each batch size."""

    def ends(one: ServiceTime) -> Value:
        return span_ms(one["low_s"], one["high_s"], unit="")

    return tabulate(
        found["service_times"],
        (Column("batch", "count", key="samples", tells=True), lambda one: one["samples"]),
        (Column("service time", "ms", key="service_p50_ms", help=_SERVICE_HELP), lambda one: one["p50_s"]),
        (Column("95 %", right=True, on="terminal"), ends),
        (Column("low", "ms", key="service_p50_ms_low", on="browser", more=True), lambda one: one["low_s"]),
        (Column("high", "ms", key="service_p50_ms_high", on="browser", more=True), lambda one: one["high_s"]),
        (Column("per sample", "ms", key="per_sample_ms"), lambda one: one["per_sample_s"]),
        (
            Column("samples/s", "number", key="samples_per_s"),
            lambda one: 1 / one["per_sample_s"] if one["per_sample_s"] else None,
        ),
        solid=("95 %",),
    )


_SERVICE_HELP = "Median time of one call of `session.run` with that many samples, without waiting."


def batching_trials(result: LoadResult, *, simulated: bool = True) -> Table:
    """Return the pairs of batch and delay that were really run, and the others that were `simulated`."""
    found = result["batching"]
    trials: Sequence[BatchingTrial] = [] if found is None else found["trials"]
    best = None if found is None else found["best"]

    def real(one: BatchingTrial) -> Point | None:
        return None if one["point"] is None else result["points"][one["point"]]

    def latency(p: float) -> Callable[[tuple[int, BatchingTrial]], Value]:
        def value(row: tuple[int, BatchingTrial]) -> Value:
            point = real(row[1])
            known = None if point is None else percentile(shown_latency(point), p)
            return None if known is None else known["value_s"]

        return value

    def verdict(row: tuple[int, BatchingTrial]) -> Value:
        point = real(row[1])
        return "simulated only" if point is None else load_text.verdict_text(point)

    return tabulate(
        [(number, one) for number, one in enumerate(trials) if simulated or one["point"] is not None],
        (Column("best", key="best", on="all"), lambda row: "★" if row[0] == best else ""),
        (
            Column("max_batch_size", "count", key="max_batch_size", tells=True),
            lambda row: row[1]["max_batch_size"],
        ),
        (
            Column("delay", "ms", key="max_queue_delay_ms", tells=True, decimals=2),
            lambda row: row[1]["max_queue_delay_microseconds"] / 1e6,
        ),
        (
            Column("preferred", key="preferred_batch_size", on="none"),
            lambda row: ",".join(map(str, row[1]["preferred_batch_size"])),
        ),
        (Column("p50", "ms", key="p50_ms"), latency(0.5)),
        (Column("p99", "ms", key="p99_ms"), latency(0.99)),
        (Column("verdict", key="verdict"), verdict),
        (
            Column("simulated p50", "ms", key="simulated_p50_ms", help=_SIMULATED_HELP),
            lambda row: row[1]["simulated_p50_s"],
        ),
        (
            Column("simulated batch", "number", key="simulated_batch", help=_SIMULATED_HELP),
            lambda row: row[1]["simulated_batch"],
        ),
        drop=("simulated batch", "simulated p50"),
    )


_SIMULATED_HELP = "From a simulation that chooses what to run. It understates high percentiles: no result."


# --- sizes of requests and batches ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchRow:
    configuration: str
    samples: int
    calls: int
    share: float


def batch_sizes(result: LoadResult) -> Table:
    """Return the batch sizes that really formed: samples of a call, and how many calls had them."""
    rows: list[_BatchRow] = []
    for number, configuration in enumerate(result["configurations"]):
        calls: Counter[int] = Counter()
        for run in result["runs"]:
            if run["configuration"] == number:
                calls.update({int(samples): many for samples, many in run["batches"].items()})
        total = sum(calls.values())
        rows += [
            _BatchRow(
                configuration=configuration["label"], samples=one, calls=calls[one], share=calls[one] / total
            )
            for one in sorted(calls)
        ]
    several = len(result["configurations"]) > 1
    return tabulate(
        rows,
        (
            Column("configuration", key="configuration", on="all" if several else "none"),
            lambda one: one.configuration,
        ),
        (Column("samples per call", "count", key="samples", tells=True), lambda one: one.samples),
        (Column("calls", "count", key="calls"), lambda one: one.calls),
        (Column("share", "share", key="share", bar=True), lambda one: one.share),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShapeRow:
    configuration: str
    rows: int
    dims: str
    requests: int
    first_s: float
    later_s: float | None


def new_shapes(result: LoadResult) -> Table:
    """Return the cost of the first request of each size: the median over runs, the most expensive first."""
    found: dict[tuple[int, int, str], list[RunResult]] = {}
    first: dict[tuple[int, int, str], list[float]] = {}
    later: dict[tuple[int, int, str], list[float]] = {}
    many: Counter[tuple[int, int, str]] = Counter()
    for run in result["runs"]:
        for one in run["new_shapes"]:
            key = run["configuration"], one["rows"], _dims_text(one["dims"])
            found.setdefault(key, []).append(run)
            first.setdefault(key, []).append(one["first_s"])
            many[key] += one["requests"]
            if one["later_s"] is not None:
                later.setdefault(key, []).append(one["later_s"])
    labels = [one["label"] for one in result["configurations"]]
    rows = [
        _ShapeRow(
            configuration=labels[key[0]],
            rows=key[1],
            dims=key[2],
            requests=many[key],
            first_s=median(first[key]),
            later_s=median(later[key]) if key in later else None,
        )
        for key in found
    ]
    rows.sort(key=lambda one: one.first_s, reverse=True)
    return tabulate(
        rows[:MOST_SHAPES],
        (
            Column("configuration", key="configuration", on="all" if len(labels) > 1 else "none"),
            lambda one: one.configuration,
        ),
        (Column("samples", "count", key="samples", tells=True), lambda one: one.rows),
        (Column("dimensions", key="dimensions", tells=True), lambda one: one.dims),
        (Column("first", "ms", key="first_ms", help=_FIRST_HELP), lambda one: one.first_s),
        (
            Column("later", "ms", key="later_ms", help="Median service time of the others."),
            lambda one: one.later_s,
        ),
        (
            Column("×", "number", key="first_ratio"),
            lambda one: one.first_s / one.later_s if one.later_s else None,
        ),
        (Column("requests", "count", key="requests"), lambda one: one.requests),
    )


_FIRST_HELP = "Service time of the first request of that size: the session plans and allocates buffers again."


def _dims_text(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={number}" for name, number in sorted(dims.items()))
