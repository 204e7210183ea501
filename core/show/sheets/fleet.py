"""Sheets of a fleet run: the answer to each question, its hosts and configurations, and the hosts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.evidence.fleet.costs import Costs, HostCost
from core.evidence.fleet.fleet_types import FleetRun, HostRecord
from core.evidence.fleet.intervals import FleetInterval
from core.evidence.fleet.kinds import Spread
from core.evidence.fleet.matrix import Cell, HostRow, Matrix
from core.evidence.fleet.portability import Portability
from core.evidence.fleet.summary import Section, Summary, summarize
from core.evidence.verdict import Color
from core.show.fleet_text import (
    JOINT,
    OUTCOMES,
    STATES,
    answer,
    busy_note,
    cost_sentence,
    deviation_text,
    disagreement_text,
    hosts_text,
    kind_names,
    money_text,
    names,
    regret_text,
    span_text,
    speedup_text,
    spread_note,
    title,
)
from core.show.format import short, when
from core.show.report.cost import ASSUMES
from core.show.sheets import Fact, Line, Note, Part, Sheet
from core.show.table import Column, Table, Value, tabulate
from core.wire.units import DASH, size

CONFIGURATION_LIMIT = 44  # characters of a configuration on a terminal
MOST_COLUMNS = 4  # configurations beside each other on a terminal; more are listed below each other
_STATE_COLORS: Mapping[str, Color] = {"FAIL": "red", "LOST": "red", "CANCELLED": "orange"}

_Pair = tuple[HostRow, str]  # host and key of a configuration


def run_sheet(run: FleetRun, *, found: Summary | None = None) -> Sheet:
    """Return the sheet of a run: one answer per question, with its tables.

    Args:
        run: with its answers.
        found: what it says, with the intervals of stored trials; None: from its documents alone.
    """
    found = summarize(run) if found is None else found
    parts: list[Part] = []
    for section in found.sections:
        parts += section_parts(section, found)
    return Sheet(f"{title(run)} · fleet run {run.id} · {run.state.lower()}", parts)


def section_parts(section: Section, summary: Summary) -> list[Part]:
    """Return the answer to a question with its tables and notes."""
    of, kinds = section.matrix, kind_names(summary.run.hosts)
    said, color = answer(section)
    parts: list[Part] = [Line(question_title(section), apart=True), Note(said, color)]
    if section.second_phase is not None:
        parts.append(Note(f"Question {section.second_phase} compares all winners on every host."))
    if of.command == "search":
        parts.append(best_table(of))
    elif of.configurations:
        parts += [state_table(of)] if of.command == "sweep" else []
        parts.append(speedup_table(of, section.portability))
    else:
        parts.append(state_table(of))
    parts += failures(of)
    if (found := section.portability) is not None and len(found.hosts) > 1:
        wide = len(of.configurations) > MOST_COLUMNS + 1  # the table of speed-ups has the regrets, too
        parts += [*([] if wide else [regret_table(of, found)]), worst_table(of, found), Note(JOINT)]
    named = names(of.configurations, of.model)
    parts += [Note(disagreement_text(one, named, kinds), "orange") for one in section.disagreements]
    if section.spreads:
        parts.append(spread_table(section.spreads, named, kinds))
        parts += [Note(text)] if (text := spread_note(section.spreads)) else []
    if section.costs is not None:
        parts += [Note(cost_sentence(section.costs, named)), cost_table(section.costs, named), Note(ASSUMES)]
        parts += [Note(text, "orange")] if (text := busy_note(of)) else []
    return parts


def question_title(section: Section) -> str:
    """Return the heading of a question."""
    of = section.matrix
    what = "portability" if of.phase == "portability" else of.command
    return f"Question {of.question}: {what} of {of.model}"


def failures(of: Matrix) -> list[Part]:
    """Return a note for each host without a valid result, and for configurations that a host cannot run."""
    named = names(of.configurations, of.model)
    notes: list[Part] = []
    for row in of.rows:
        if row.why and not row.cells:
            notes.append(Note(f"{row.host}: {row.why}", _STATE_COLORS.get(row.state, "orange")))
        elif row.rejected:
            notes.append(Note(f"{row.host}: rejected. {row.rejected}", "red"))
        if row.attempt > 1:
            notes.append(Note(f"{row.host}: measured again (attempt {row.attempt})."))
        notes += [
            Note(f"{row.host} cannot use {named[key]}: {one.unusable}", "orange")
            for key, one in row.cells.items()
            if one.unusable
        ]
    return notes


# --- tables -------------------------------------------------------------------------------------------------


def speedup_table(of: Matrix, portable: Portability | None = None) -> Table:
    """Return the speed-ups: a row per host, or per host and configuration where there are many of them.

    Args:
        of: the question.
        portable: its regrets, for rows per configuration; None: without.
    """
    named = names(of.configurations, of.model)
    shown = [one.key for one in of.configurations if not _is_reference(of, one.key)]
    if len(shown) > MOST_COLUMNS or not shown:
        return long_table(of, portable)
    return tabulate(
        of.rows,
        (Column("host", tells=True), lambda one: one.host),
        *[(Column(short(named[key], CONFIGURATION_LIMIT)), _speedup_of(key, of.metric)) for key in shown],
        (Column("state"), _state),
    )


def _is_reference(of: Matrix, key: str) -> bool:
    return all(one.reference == key for one in of.measured)


def _speedup_of(key: str, metric: str) -> Callable[[HostRow], Value]:
    def text(row: HostRow) -> Value:
        if row.rejected:
            return "rejected"
        return speedup_text(row.cells[key], metric) if key in row.cells else DASH

    return text


def long_table(of: Matrix, portable: Portability | None = None) -> Table:
    """Return one row per host and configuration with all numbers, for files and the browser."""
    named = names(of.configurations, of.model)
    pairs = [(row, one.key) for row in of.rows for one in of.configurations if one.key in row.cells]

    def cell(pair: _Pair) -> Cell:
        return pair[0].cells[pair[1]]

    def bound(read: Callable[[Cell], FleetInterval | None], end: str) -> Callable[[_Pair], Value]:
        return lambda pair: getattr(read(cell(pair)), end, None)

    def regret(pair: _Pair) -> FleetInterval | None:
        return None if portable is None else portable.regrets.get(pair[0].host, {}).get(pair[1])

    ratio, rate = lambda one: one.speedup, lambda one: one.throughput
    return tabulate(
        pairs,
        (Column("question", "count", key="question", on="none"), lambda _: of.question),
        (Column("host", key="host", tells=True), lambda pair: pair[0].host),
        (Column("configuration", key="configuration", most=CONFIGURATION_LIMIT), lambda pair: named[pair[1]]),
        (Column("speed-up"), lambda pair: _with_rejection(pair, of.metric)),
        (Column("verdict", key="verdict", on="none"), lambda pair: cell(pair).verdict or ""),
        *[
            (Column(name, "number", key=name, on="none"), bound(ratio, end))
            for name, end in (("ratio", "value"), ("ratio_low", "low"), ("ratio_high", "high"))
        ],
        (Column("regret"), lambda pair: regret_text(one) if (one := regret(pair)) else None),
        *[
            (
                Column(name, "share", key=name, on="none"),
                lambda pair, end=end: getattr(regret(pair), end, None),
            )
            for name, end in (("regret", "value"), ("regret_low", "low"), ("regret_high", "high"))
        ],
        (Column("samples/s", "number", key="samples_per_s"), bound(rate, "value")),
        (Column("samples_per_s_low", "number", key="samples_per_s_low", on="none"), bound(rate, "low")),
        (Column("samples_per_s_high", "number", key="samples_per_s_high", on="none"), bound(rate, "high")),
        (Column("not usable", key="not_usable"), lambda pair: cell(pair).unusable),
        (Column("kind", "id", key="kind", on="none"), lambda pair: pair[0].kind),
        (Column("trial", "id", key="trial", on="browser", more=True), lambda pair: cell(pair).trial),
    )


def _with_rejection(pair: _Pair, metric: str) -> str:
    row, key = pair
    return "rejected" if row.rejected else speedup_text(row.cells[key], metric)


def best_table(of: Matrix) -> Table:
    """Return the best configuration of each host, from its search."""
    named = names(of.configurations, of.model)

    def best(row: HostRow) -> str:
        return " or ".join(named[key] for key in row.best) or DASH

    def gain(row: HostRow) -> Value:
        key = row.best[0] if row.best else ""
        return speedup_text(row.cells[key], of.metric) if key in row.cells and not row.rejected else DASH

    return tabulate(
        of.rows,
        (Column("host", key="host", tells=True), lambda one: one.host),
        (Column("result", key="result"), lambda one: OUTCOMES.get(one.text, one.text) or _state(one)),
        (Column("best configuration", key="configuration", most=CONFIGURATION_LIMIT), best),
        (Column("speed-up", key="speed_up"), gain),
        (
            Column("constraints", key="constraints"),
            lambda one: "; ".join(f"{limit.limit}: {limit.state.lower()}" for limit in one.limits),
        ),
        (Column("background load", key="background_load"), lambda one: one.busy),
        drop=("background load", "constraints"),
        solid=("host",),
    )


def state_table(of: Matrix) -> Table:
    """Return the state of each host, for commands without configurations to compare."""
    return tabulate(
        of.rows,
        (Column("host", key="host", tells=True), lambda one: one.host),
        (Column("state", key="state"), _state),
        (Column("result", key="result"), lambda one: OUTCOMES.get(one.text, one.text)),
        (
            Column("targets", key="targets"),
            lambda one: "; ".join(f"{limit.limit}: {limit.state.lower()}" for limit in one.limits),
        ),
    )


def _state(row: HostRow) -> str:
    again = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    return f"{STATES[row.state]}{again}"


def regret_table(of: Matrix, found: Portability) -> Table:
    """Return the regret matrix: how much slower each configuration is than the best one of the host."""
    named = names(of.configurations, of.model)
    rows = [one for one in of.rows if one.host in found.regrets]

    def text(key: str) -> Callable[[HostRow], Value]:
        def cell(row: HostRow) -> Value:
            own = found.regrets[row.host].get(key)
            return regret_text(own) if own is not None else "not usable"

        return cell

    return tabulate(
        rows,
        (Column("host", tells=True, help=_REGRET_HELP), lambda one: one.host),
        *[
            (Column(f"regret of {short(named[one.key], CONFIGURATION_LIMIT)}"), text(one.key))
            for one in of.configurations
        ],
    )


_REGRET_HELP = "How much slower the configuration is on this host than the best configuration of the host."


def worst_table(of: Matrix, found: Portability) -> Table:
    """Return the largest regret of each configuration over all hosts, the smallest first."""
    named = names(of.configurations, of.model)
    by_key = {one.configuration: one for one in found.worst}
    keys = [*by_key, *found.excluded]

    def share(end: str) -> Callable[[str], Value]:
        return lambda key: getattr(by_key[key].regret, end) if key in by_key else None

    return tabulate(
        keys,
        (
            Column("configuration", key="configuration", tells=True, most=CONFIGURATION_LIMIT),
            named.__getitem__,
        ),
        (
            Column("worst regret", right=True),
            lambda key: regret_text(by_key[key].regret) if key in by_key else DASH,
        ),
        *[
            (Column(name, "share", key=name, on="none"), share(end))
            for name, end in (("worst", "value"), ("worst_low", "low"), ("worst_high", "high"))
        ],
        (Column("on host", key="host"), lambda key: by_key[key].host if key in by_key else ""),
        (Column("choice", key="choice"), lambda key: _choice(key, found)),
    )


def _choice(key: str, found: Portability) -> str:
    if key in found.excluded:
        return f"excluded: {found.excluded[key]}"
    if found.choice is not None and key == found.choice.configuration and found.outcome != "UNDECIDED":
        return "chosen"
    return "possible" if key in found.possible else ""


def spread_table(found: Sequence[Spread], named: Mapping[str, str], kinds: Mapping[str, str]) -> Table:
    """Return how much machines of one kind differ."""
    return tabulate(
        found,
        (Column("kind", key="kind", tells=True), lambda one: kinds.get(one.kind, one.kind[:8])),
        (Column("machines", "count", key="machines"), lambda one: len(one.hosts)),
        (
            Column("number", key="number", most=CONFIGURATION_LIMIT),
            lambda one: f"{one.number}, {named[one.configuration]}",
        ),
        (
            Column("spread between machines", help=_SPREAD_HELP),
            lambda one: deviation_text(one.deviation),
        ),
        *[
            (
                Column(name, "share", key=name, on="none"),
                lambda one, end=end: getattr(one.deviation, end),
            )
            for name, end in (("spread", "value"), ("spread_low", "low"), ("spread_high", "high"))
        ],
        (Column("lowest", key="lowest"), lambda one: one.lowest),
        (Column("highest", key="highest"), lambda one: one.highest),
        (Column("highest / lowest", "number", key="ratio"), lambda one: one.ratio),
        drop=("lowest", "highest", "machines"),
    )


_SPREAD_HELP = (
    "Relative standard deviation between machines of one kind, without the uncertainty of each measurement."
)


def cost_table(found: Costs, named: Mapping[str, str]) -> Table:
    """Return the cost of a million inferences on each host, the cheapest first."""

    def place(one: HostCost) -> str:
        if one.meets == "MISSED":
            return f"misses {', '.join(one.limits)}"
        if one.meets == "UNKNOWN":
            return f"not known to meet {', '.join(one.limits)}"
        is_first = found.cheapest is one and found.outcome in ("CHEAPEST", "EQUIVALENT")
        return "cheapest" if is_first else "possible" if one.host in found.possible else ""

    return tabulate(
        found.hosts,
        (Column("host", key="host", tells=True), lambda one: one.host),
        (
            Column("configuration", key="configuration", most=CONFIGURATION_LIMIT),
            lambda one: named.get(one.configuration, ""),
        ),
        (Column("price per hour", "number", key="price_per_hour"), lambda one: one.price_per_hour),
        (Column("samples/s", "number", key="samples_per_s"), lambda one: one.throughput.value),
        (Column("per million", right=True), lambda one: money_text(one.per_million.value)),
        (Column("95 % interval", right=True), lambda one: span_text(one.per_million)),
        *[
            (Column(name, "number", key=name, on="none"), lambda one, end=end: getattr(one.per_million, end))
            for name, end in (
                ("per_million", "value"),
                ("per_million_low", "low"),
                ("per_million_high", "high"),
            )
        ],
        (Column("cheapest", key="cheapest"), place),
        drop=("price per hour", "samples/s"),
        solid=("host", "95 % interval"),
    )


# --- hosts --------------------------------------------------------------------------------------------------


def hosts_table(hosts: Sequence[HostRecord]) -> Table:
    """Return the hosts with their facts."""
    kinds = kind_names(hosts)

    def fact(read: Callable[[Mapping[str, Any]], Value]) -> Callable[[HostRecord], Value]:
        return lambda one: read(one.environment) if one.environment else None

    return tabulate(
        hosts,
        (Column("host", key="host", tells=True), lambda one: one.name),
        (
            Column("labels", key="labels"),
            lambda one: ", ".join(f"{name}={text}" for name, text in one.labels.items()),
        ),
        (Column("kind", key="kind"), lambda one: kinds.get(one.kind, "")),
        (Column("memory", "bytes", key="memory_bytes"), fact(lambda of: of.get("memory_bytes"))),
        (Column("OS", key="os", on="browser"), fact(lambda of: of.get("os"))),
        (Column("ORTune", key="ortune"), lambda one: one.ortune),
        (
            Column("ONNX Runtime", key="onnxruntime"),
            fact(_ort_version),
        ),
        (
            Column("runtimes", key="runtimes"),
            lambda one: ", ".join(str(record["name"]) for record in one.runtimes),
        ),
        (Column("price per hour", "number", key="price_per_hour"), lambda one: one.price_per_hour),
        (
            Column("CPUs in use", "share", key="background_load", help="By all processes, just now."),
            lambda one: one.background_load,
        ),
        (Column("busy", key="busy"), lambda one: "; ".join(one.busy)),
        (Column("refused", key="refused"), lambda one: one.refused),
    )


def _ort_version(environment: Mapping[str, Any]) -> Value:
    libraries = environment.get("libraries") or {}
    return next((text for name, text in libraries.items() if name.startswith("onnxruntime")), None)


def runs_table(runs: Sequence[FleetRun]) -> Table:
    """Return the list of runs."""
    return tabulate(
        runs,
        (Column("run", "id", tells=True), lambda one: one.id),
        (Column("name"), title),
        (Column("state"), lambda one: one.state.lower()),
        (Column("started", "moment"), lambda one: one.created_at),
    )


def host_facts(run: FleetRun) -> list[Part]:
    """Return the facts of a run's machines, for a report."""
    kinds = kind_names(run.hosts)
    parts: list[Part] = []
    for kind, name in kinds.items():
        hosts = [one for one in run.hosts if one.kind == kind]
        memory = hosts[0].environment.get("memory_bytes")
        text = f"{len(hosts)}: {hosts_text([one.name for one in hosts])}"
        parts.append(Fact(name, f"{text}; {size(memory)} memory" if memory else text))
    parts.append(Fact("asked", f"{when(run.created_at)} by {run.owner}"))
    return parts
