"""Results of a fleet as text: names of configurations and kinds, and one sentence per question. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.evidence.fleet.costs import Costs
from core.evidence.fleet.fleet_types import AnswerState, FleetRun, HostRecord
from core.evidence.fleet.intervals import FleetInterval
from core.evidence.fleet.kinds import FEW_MACHINES, Disagreement, Spread
from core.evidence.fleet.matrix import DEFAULT_KEY, NOT_COMPARED, Cell, Configuration, Matrix
from core.evidence.fleet.portability import Portability, WorstRegret
from core.evidence.fleet.summary import Section
from core.evidence.result_types import SpeedUpNumbers
from core.evidence.verdict import Color, Verdict
from core.show import setting_chips
from core.show.sheets.searches import speedup_parts
from core.show.verdict import sentence
from core.show.words import counted
from core.spec import spec_from_dict
from core.wire.errors import SpecError
from core.wire.units import DASH, ci, significant

DEFAULT_NAME = "ORT default"
MOST_NAMED = 5  # hosts that a sentence names
_NO_REGRET = 0.0005  # is shown as 0.0 %
MOST_KNOWN = 1.0  # a spread with an upper bound above this share is shown as not known
JOINT = "All intervals of regrets hold together, for every host and configuration, with 95 % confidence."
STATES: Mapping[AnswerState, str] = {
    "WAITING": "waiting",
    "RUNNING": "running",
    "COMPLETE": "complete",
    "FAIL": "failed",
    "CANCELLED": "cancelled",
    "LOST": "lost",
}
OUTCOMES: Mapping[str, str] = {  # of a search, a scorecard and a verification
    "FOUND": "faster configuration found",
    "NO_DIFFERENCE": "no faster configuration",
    "NONE_KEEPS_LIMITS": "no configuration meets the constraints",
    "UNDECIDED": "undecided",
    "REJECTED": "rejected",
    "MET": "all targets met",
    "MISSED": "a target is missed",
    "UNKNOWN": "a target is not yet known",
    "CONFIRMED": "confirmed",
    "NOT_MEASURED": "not measured",
    "FAILED": "not confirmed",
}
MOST_TOLD = 3  # hosts whose own sentences are the answer


# --- names --------------------------------------------------------------------------------------------------


def names(configurations: Sequence[Configuration], model: str = "") -> dict[str, str]:
    """Return the displayed name of each configuration by key; equal names get a number.

    Args:
        configurations: of a question.
        model: name of its model, for configurations of another one.
    """
    found: dict[str, str] = {}
    for one in configurations:
        name = _name(one, model)
        same = sum(1 for other in found.values() if other == name or other.startswith(f"{name} ("))
        found[one.key] = f"{name} ({same + 1})" if same else name
    return found


def _name(one: Configuration, model: str) -> str:
    if one.key == DEFAULT_KEY:
        return DEFAULT_NAME
    if not one.spec or one.label.startswith("preset:"):
        return one.label or "unknown configuration"
    try:
        spec = spec_from_dict({name: part for name, part in one.spec.items() if name not in NOT_COMPARED})
    except SpecError:
        return one.label or setting_chips.OTHER_VERSION
    changes = setting_chips.short_words(setting_chips.changed_values(spec))
    stem = Path(spec.model.path).stem
    other = stem if model and stem not in (model, "") and not _is_same_model(stem, model) else ""
    return ", ".join(one for one in (other, changes) if one) or one.label or DEFAULT_NAME


def _is_same_model(stem: str, model: str) -> bool:
    return stem.lower() == Path(model).stem.lower() or len(stem) == 64  # a host may keep models by hash


def kind_names(hosts: Sequence[HostRecord]) -> dict[str, str]:
    """Return the displayed name of each kind of host by fingerprint: its CPU, a number if names are equal."""
    found: dict[str, str] = {}
    for one in hosts:
        if one.kind in found:
            continue
        cpu = one.environment.get("cpu") or {}
        model, count = cpu.get("model") or "unknown CPU", cpu.get("usable") or cpu.get("logical")
        name = f"{model}, {counted(count, 'CPU')}" if count else str(model)
        gpus = one.environment.get("gpus") or []
        name += f", {gpus[0].get('name', 'GPU')}" if gpus else ""
        same = sum(1 for other in found.values() if other == name or other.startswith(f"{name} ("))
        found[one.kind] = f"{name} ({same + 1})" if same else name
    return found


def hosts_text(hosts: Sequence[str]) -> str:
    """Return names of hosts, at most `MOST_NAMED`: "bench-01, bench-02 and 3 more"."""
    if len(hosts) > MOST_NAMED:
        return f"{', '.join(hosts[:MOST_NAMED])} and {len(hosts) - MOST_NAMED} more"
    return " and ".join([*([", ".join(hosts[:-1])] if len(hosts) > 1 else []), *hosts[-1:]])


# --- numbers ------------------------------------------------------------------------------------------------


def speedup_text(cell: Cell, metric: str) -> str:
    """Return a speed-up with its interval: "1.42× faster, 95 % CI [1.38, 1.46]"; the reference: a dash."""
    short, rest = speedup_cell(cell, metric)
    return f"{short}, {rest}" if rest else short


def speedup_cell(cell: Cell, metric: str) -> tuple[str, str]:
    """Return a speed-up and its interval as texts; empty: no interval."""
    if cell.unusable:
        return "not usable", ""
    if cell.speedup is None:
        return DASH, ""
    if cell.verdict is None:
        return "reference", ""
    return speedup_parts(_gain(cell.speedup, cell.verdict, metric))


def _gain(speedup: FleetInterval, verdict: Verdict, metric: str) -> SpeedUpNumbers:
    return {
        "metric": metric,
        "ratio": speedup.value,
        "ratio_low": speedup.low,
        "ratio_high": speedup.high,
        "verdict": verdict,
    }


def share_text(share: float) -> str:
    """Return a regret as text: "4.1 %"."""
    return f"{100 * share:.1f} %"


def regret_text(regret: FleetInterval) -> str:
    """Return a regret with its interval: "4.1 %, 95 % CI [2.0 %, 6.3 %]", "0.0 %, at most 1.2 %"."""
    if regret.high is None:
        return f"{share_text(regret.value)}, upper bound not known"
    if regret.high < _NO_REGRET:
        return share_text(0.0)
    if not regret.low:
        return f"{share_text(regret.value)}, at most {share_text(regret.high)}"
    return f"{share_text(regret.value)}, {ci(share_text(regret.low), share_text(regret.high))}"


def money_text(amount: float | None) -> str:
    """Return an amount with three significant digits."""
    return DASH if amount is None else significant(amount, 3)


def span_text(one: FleetInterval) -> str:
    """Return the interval of an amount: "0.0120 to 0.0131"."""
    if one.low is None or one.high is None:
        return "unknown: too few runs"
    return f"{money_text(one.low)} to {money_text(one.high)}"


def deviation_text(one: FleetInterval) -> str:
    """Return a spread between machines with its interval."""
    value = share_text(one.value)
    if one.high is None or one.high > MOST_KNOWN:
        least = f"at least {share_text(one.low)}, " if one.low else ""
        return f"{value}; {least}upper bound above {share_text(MOST_KNOWN)}: too few machines"
    return f"{value}, {ci(share_text(one.low or 0.0), share_text(one.high))}"


# --- sentences ----------------------------------------------------------------------------------------------


def title(run: FleetRun) -> str:
    """Return the title of a run."""
    models = list(dict.fromkeys(one.model.name for one in run.questions))
    return f"{run.name or 'Fleet'}: {hosts_text(models)} on {counted(len(run.hosts), 'host')}"


def answer(section: Section) -> tuple[str, Color]:
    """Return the answer to a question as a sentence, and its colour."""
    of = section.matrix
    if not of.measured and not any(one.text for one in of.rows):
        if section.is_open:
            return "No host has answered yet.", "gray"
        return "No host gave a result.", "red"
    if section.portability is not None and len(section.portability.regrets) > 0 and of.command == "compare":
        if len(section.portability.hosts) > 1 and len(of.configurations) > 2:
            return portability_sentence(section.portability, names(of.configurations, of.model))
        return verdicts_sentence(of), "blue"
    if of.command == "search":
        return search_sentence(of)
    if of.command == "sweep" and (told := [one for one in of.rows if one.text]):
        if len(told) <= MOST_TOLD:
            return " ".join(sentence(f"On {one.host}: {one.text}") for one in told), "blue"
        return f"The best point of each of {counted(len(told), 'host')} is in the table.", "blue"
    if of.command in ("compare", "sweep"):
        return verdicts_sentence(of), "blue"
    return states_sentence(of)


def portability_sentence(found: Portability, named: Mapping[str, str]) -> tuple[str, Color]:
    """Return which configuration to use on all hosts, and what that costs at most."""
    choice = found.choice
    if choice is None:
        return "No configuration runs with valid outputs on every host.", "orange"
    without = f" Not counted: {hosts_text(list(found.missing))}." if found.missing else ""
    name, loses = named[choice.configuration], _loss(choice)
    match found.outcome:
        case "BEST":
            return f"One configuration for all hosts: {name}. {loses}{without}", "green"
        case "EQUIVALENT":
            margin = f"{100 * found.margin:g} %"
            return (
                f"One configuration for all hosts: {name}. {loses} No other one loses less by more than the "
                f"equivalence margin of {margin}.{without}",
                "green",
            )
    others = [named[one] for one in found.possible if one != choice.configuration]
    more = f" or {len(others) - 3} more" if len(others) > 3 else ""
    return (
        f"Undecided which configuration loses least: {name} has the smallest estimate. {loses} "
        f"It may also be {' or '.join(others[:3]) or 'another one'}{more}.{without}",
        "gray",
    )


def _loss(choice: WorstRegret) -> str:
    regret = choice.regret
    if regret.high is None:
        return f"It loses {share_text(regret.value)} on {choice.host}, and how much at most is not known."
    if regret.value == 0 and not regret.low:
        return f"It loses at most {share_text(regret.high)} on any host."
    most = share_text(regret.high)
    return f"It loses {share_text(regret.value)} on {choice.host} and at most {most} on any host."


def search_sentence(of: Matrix) -> tuple[str, Color]:
    """Return how many hosts found a faster configuration, and whether it is the same one."""
    outcomes = Counter(one.text for one in of.rows if one.text)
    found, count = outcomes.get("FOUND", 0), len(of.rows)
    winners = {one.best[0] for one in of.rows if one.text == "FOUND" and one.best}
    text = f"A better configuration was found on {found} of {counted(count, 'host')}"
    if len(winners) > 1:
        text += f": {len(winners)} different ones"
    elif winners and found > 1:
        text += f", the same one: {names(of.configurations, of.model)[next(iter(winners))]}"
    rest = [
        f"{OUTCOMES.get(one, one.lower())} on {number}" for one, number in outcomes.items() if one != "FOUND"
    ]
    failed = [one.host for one in of.rows if not one.text and one.why]
    parts = [*rest, *([f"no result on {hosts_text(failed)}"] if failed else [])]
    return f"{text}{'; ' if parts else ''}{', '.join(parts)}.", "green" if found else "blue"


def verdicts_sentence(of: Matrix) -> str:
    """Return the verdicts on each configuration, counted over the hosts."""
    named, said = names(of.configurations, of.model), []
    for one in of.configurations:
        verdicts = Counter(
            cell.verdict.word
            for row in of.measured
            if not row.rejected and (cell := row.cells.get(one.key)) and cell.verdict is not None
        )
        if verdicts:
            parts = ", ".join(
                f"{word} on {counted(number, 'host')}" for word, number in verdicts.most_common()
            )
            said.append(f"{named[one.key]}: {parts}")
    more = f"; {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    return f"{'; '.join(said[:MOST_NAMED])}{more}." if said else "No valid comparison."


def states_sentence(of: Matrix) -> tuple[str, Color]:
    """Return the states that the hosts report, with their numbers."""
    found = Counter((OUTCOMES.get(one.text, one.text) or one.why or STATES[one.state]) for one in of.rows)
    parts = [f"{words} on {counted(number, 'host')}" for words, number in found.most_common(MOST_NAMED)]
    good = all(one.text in ("CONFIRMED", "MET", "PASS") for one in of.rows)
    return sentence("; ".join(parts)), "green" if good else "gray"


def disagreement_text(one: Disagreement, named: Mapping[str, str], kinds: Mapping[str, str]) -> str:
    """Return hosts of one kind that disagree, with their verdicts."""
    by_verdict: dict[str, list[str]] = {}
    for host, verdict in one.verdicts.items():
        by_verdict.setdefault(verdict.word, []).append(host)
    parts = "; ".join(f"{word}: {hosts_text(hosts)}" for word, hosts in by_verdict.items())
    kind, name = kinds.get(one.kind, one.kind[:8]), named[one.configuration]
    return f"Hosts of one kind ({kind}) disagree on {name}: {parts}."


def spread_note(found: Sequence[Spread]) -> str:
    """Return what to know about intervals of spreads; empty: nothing."""
    fewest = min((len(one.hosts) for one in found), default=FEW_MACHINES)
    if fewest >= FEW_MACHINES:
        return ""
    return (
        f"A spread between {counted(fewest, 'machine')} is known only roughly: {FEW_MACHINES} or more "
        "machines of one kind narrow its interval. A rare slow machine shows only if it is among them."
    )


def busy_note(of: Matrix) -> str:
    """Return on which hosts background load may have raised latencies and costs; empty: on none."""
    busy = [one.host for one in of.rows if one.busy]
    if not busy:
        return ""
    return f"Measured under background load: {hosts_text(busy)}. Latencies and costs there may be too high."


def cost_sentence(found: Costs, named: Mapping[str, str]) -> str:
    """Return the cheapest host that meets the constraints."""
    first = found.cheapest
    if first is None:
        return "No host with a price is known to meet every constraint."
    own = (
        f"{first.host} with {named.get(first.configuration, first.configuration)}, "
        f"{money_text(first.per_million.value)} per million inferences"
    )
    match found.outcome:
        case "CHEAPEST":
            return f"The cheapest host: {own}."
        case "EQUIVALENT":
            return f"The cheapest host: {own}. No other host is cheaper by more than the equivalence margin."
    others = [one for one in found.possible if one != first.host]
    return f"Undecided which host is the cheapest: {own}, or {hosts_text(others) or 'another one'}."
