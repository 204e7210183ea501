"""An upgrade of ONNX Runtime: the same models in two runtimes, and what follows for each of them. Pure.

`UpgradeRecord` is what the store keeps of an upgrade; the measurements are in its comparisons. `judge` draws
the conclusion for a model from its comparison. Seconds and bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from core import wire
from core.evidence import continuation
from core.evidence.comparison import Comparison, against_baseline
from core.evidence.measurement import Trial
from core.evidence.verdict import Color, Verdict, is_rejected
from core.wire.errors import ErrorRecord
from core.wire.output_check import Judged

VERSION = 1  # of the stored record
STUDY = "upgrade #"  # begins the study name of the comparisons; the ID of the upgrade follows


class State(StrEnum):
    """What is known about one model.

    Each state has a `word` and a `color`.
    """

    word: str
    color: Color

    COMPARED = "COMPARED", "compared", "green"
    REFUSED = "REFUSED", "fails in the new runtime", "red"
    ONLY_NEW = "ONLY_NEW", "fails in the old runtime only", "blue"
    FAILED = "FAILED", "fails in both runtimes", "red"
    UNUSABLE = "UNUSABLE", "cannot be compared", "red"
    CANCELLED = "CANCELLED", "cancelled", "gray"
    NOT_MEASURED = "NOT_MEASURED", "not measured", "gray"

    def __new__(cls, value: str, word: str, color: Color) -> State:
        """Attach word and color to a state."""
        member = str.__new__(cls, value)
        member._value_, member.word, member.color = value, word, color
        return member


# --- what is kept -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSide:
    """One of the two runtimes."""

    runtime: str  # with the hash of its content, as a configuration names it
    name: str
    onnxruntime: str  # version; empty: unknown
    python: str
    build: str  # of ONNX Runtime, in its own words
    package_bytes: int | None  # files of the packages of ONNX Runtime; None: not found
    environment_bytes: int | None  # of all files of the environment; None: unknown, or ORTune's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that one of the two versions has and the other has not, or has with another value."""

    kind: str  # "setting", "default", "provider", "opset", "model format", "function"
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeItem:
    """One model of an upgrade."""

    model: str  # as it was asked for
    comparison: str = ""  # ID; empty: it was not compared
    reused: bool = False  # the comparison is of an earlier upgrade
    between: Judged | None = None  # outputs of the new runtime against those of the old; None: not compared
    between_reason: str = ""  # why they were not compared
    error: ErrorRecord | None = None  # why there is no comparison
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRecord:
    """An upgrade: what was asked, and what has been done so far."""

    version: int
    id: str
    created_at: float  # seconds since the epoch
    config: str  # configuration of all models, as it was given; empty: ONNX Runtime's defaults
    names: tuple[str, str]  # of the old and the new runtime
    models: tuple[str, ...]  # all that were asked for, in order
    family: int  # intervals that hold together with 95 %
    process: str = ""  # that runs it
    state: str = "RUNNING"  # of its job
    error: ErrorRecord | None = None  # why its job failed or was cancelled
    before: RuntimeSide | None = None  # None: not described yet
    after: RuntimeSide | None = None
    changes: tuple[Change, ...] = ()
    changes_reason: str = ""  # why the changes are not known; empty: they are
    items: tuple[UpgradeItem, ...] = ()
    fingerprint: str = ""  # of the machine

    @property
    def study(self) -> str:
        """The study of its comparisons."""
        return f"{STUDY}{self.id}"

    @property
    def title(self) -> str:
        """Both versions as text."""
        if self.before is None or self.after is None:
            return " → ".join(self.names)
        named = [f"{one.onnxruntime} ({one.name})" for one in (self.before, self.after)]
        return f"ONNX Runtime {named[0]} → {named[1]}"

    def with_item(self, item: UpgradeItem) -> UpgradeRecord:
        """Return the record with the result of one more model."""
        return replace(self, items=(*self.items, item))


# --- what it means ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRow:
    """One model: both results, and what follows."""

    item: UpgradeItem
    state: State
    comparison: Comparison | None = None
    before: Trial | None = None
    after: Trial | None = None
    contrast: Mapping[str, Any] | None = None  # the new runtime against the old one; None: there is no ratio
    outputs_differ: bool | None = None  # beyond the tolerance; None: not compared, or cannot be judged
    outputs_reason: str = ""  # in words
    error: ErrorRecord | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Whether the new runtime is faster; None: there is no ratio."""
        if self.contrast is None:
            return None
        return Verdict.UNDECIDED if is_rejected(self.contrast) else Verdict[self.contrast["verdict"]]

    @property
    def simultaneous(self) -> int:
        """The number of intervals that hold together with this one."""
        return 1 if self.comparison is None else continuation.family(self.comparison.protocol)

    @property
    def fails(self) -> bool:
        """Whether the upgrade may break this model: it fails in the new runtime, or its outputs differ."""
        broken = self.state in (State.REFUSED, State.FAILED, State.UNUSABLE)
        return broken or self.outputs_differ is True


def judge(item: UpgradeItem, comparison: Comparison | None, trials: Sequence[Trial] = ()) -> UpgradeRow:
    """Return what one model's comparison shows.

    Args:
        item: of the record.
        comparison: of its two runtimes; None: there is none, or it is no longer stored.
        trials: of the comparison.
    """
    if comparison is None:
        state = State.CANCELLED if _is_cancelled(item.error) else State.UNUSABLE
        return UpgradeRow(item=item, state=state if item.error else State.NOT_MEASURED, error=item.error)
    by_role = {one.role: one.trial for one in reversed(comparison.contestants)}
    by_id = {one.id: one for one in trials}
    before, after = by_id.get(by_role.get("baseline", "")), by_id.get(by_role.get("candidate", ""))
    contrast = next(iter(against_baseline(comparison)), None)
    if contrast is not None and before is not None and contrast["baseline"] != before.id:
        contrast = None
    state, error = _state(comparison, before, after)
    differ, why = _outputs(item, before, after) if state == State.COMPARED else (None, "")
    return UpgradeRow(
        item=item,
        state=state,
        comparison=comparison,
        before=before,
        after=after,
        contrast=contrast,
        outputs_differ=differ,
        outputs_reason=why,
        error=error,
    )


def _state(
    comparison: Comparison, before: Trial | None, after: Trial | None
) -> tuple[State, ErrorRecord | None]:
    errors = [None if one is None or one.state != "FAIL" else one.error for one in (before, after)]
    if all(errors):
        return (State.FAILED if _about_runtimes(errors) else State.UNUSABLE), errors[1]
    if errors[1] is not None:
        return State.REFUSED, errors[1]
    if comparison.state == "CANCELLED":
        return State.CANCELLED, None
    if errors[0] is not None:
        return State.ONLY_NEW, errors[0]
    if comparison.state == "FAIL":
        return State.UNUSABLE, comparison.error
    return (State.COMPARED if comparison.state == "COMPLETE" else State.NOT_MEASURED), None


def _about_runtimes(errors: Sequence[ErrorRecord | None]) -> bool:
    """Whether two errors say something about the runtimes; a request that neither can run does not."""
    one, other = errors
    return one != other or (one is not None and one["type"] not in ("SpecError", "BudgetError"))


def _is_cancelled(error: ErrorRecord | None) -> bool:
    return error is not None and error["type"] == "Cancelled"


def _outputs(item: UpgradeItem, before: Trial | None, after: Trial | None) -> tuple[bool | None, str]:
    """Judge the outputs of the new runtime against the old one's, and both against the original model's.

    They differ if the two runtimes differ beyond the tolerance, or if only the new one differs from the
    original.
    """
    guards = [one.facts.get("guard") if one is not None else None for one in (before, after)]
    breaches = [None if guard is None else guard["breach"] for guard in guards]
    if item.between is not None and item.between["breach"]:
        return True, f"the new runtime against the old one: {item.between['why']}"
    if breaches[1] and not breaches[0]:
        assert guards[1] is not None
        return True, f"the new runtime against the original model: {guards[1]['why']}"
    if item.between is not None and item.between["breach"] is False:
        also = "; both differ from the original model" if all(breaches) else ""
        return False, f"{item.between['why']}{also}"
    reason = item.between["why"] if item.between is not None else item.between_reason
    if breaches == [False, False]:
        return False, f"both within the tolerance of the original model ({reason})"
    return None, reason or "The outputs were not compared."


def rows(record: UpgradeRecord, found: Sequence[UpgradeRow]) -> list[UpgradeRow]:
    """Return a row for every model that was asked for, in order; those not reached are NOT_MEASURED."""
    done = {one.item.model: one for one in found}
    return [done.get(name) or judge(UpgradeItem(model=name), None) for name in record.models]


# --- in words -----------------------------------------------------------------------------------------------


def headline(found: Sequence[UpgradeRow]) -> str:
    """Return the counts in one sentence: "3 of 40 models are slower, 5 faster, …"."""
    verdicts = Counter(row.verdict for row in found if row.state == State.COMPARED and row.verdict)
    states = Counter(row.state for row in found)
    differ = sum(row.outputs_differ is True for row in found)
    unknown = sum(row.outputs_differ is None for row in found if row.state == State.COMPARED)
    parts = [
        f"{count} {word}"
        for word, count in (
            ("slower", verdicts[Verdict.SLOWER]),
            ("faster", verdicts[Verdict.FASTER]),
            ("without a difference", verdicts[Verdict.EQUIVALENT]),
            ("undecided", verdicts[Verdict.UNDECIDED]),
            *((one.word, states[one]) for one in State if one != State.COMPARED),
        )
        if count
    ]
    models = f"{len(found)} model{'s' * (len(found) != 1)}"
    text = f"{models}: {', '.join(parts) or 'none compared'}"
    text += f"; outputs differ in {differ}" if differ else ""
    text += f"; outputs of {unknown} not judged" if unknown else ""
    return f"{text}."


def intervals_text(found: Sequence[UpgradeRow]) -> str:
    """Say what the intervals cover together; empty: there is none."""
    known = [row for row in found if row.contrast is not None]
    if not known:
        return ""
    if len(known) == 1:
        return "The interval has 95 % confidence, over all interim analyses."
    if all(row.simultaneous >= len(known) for row in known):
        return (
            f"The intervals of all {len(known)} models hold together with 95 %, over all interim analyses: "
            "the chance that any verdict is wrong is at most 5 %."
        )
    return (
        f"Each interval has 95 % confidence alone: of {len(known)} models without a difference, about "
        f"{len(known) * (1 - 0.95):.2g} would be called different by chance."
    )


# --- changes between two versions ---------------------------------------------------------------------------


def changes(before: wire.Capabilities, after: wire.Capabilities) -> list[Change]:
    """Return what differs between two runtimes: settings, defaults, providers, opsets and functions."""
    found = [
        *_in_one(set(after["unknown"]), set(before["unknown"]), "setting"),
        *_values(before["defaults"], after["defaults"], "default"),
        *_values(_providers(before), _providers(after), "provider", absent="not in this build"),
        *_values(_texts(before["opsets"]), _texts(after["opsets"]), "opset"),
        *_in_one(set(before["interfaces"]), set(after["interfaces"]), "function"),
    ]
    formats = [str(one["ir_version"] or "unknown") for one in (before, after)]
    if formats[0] != formats[1]:
        found.append(Change(kind="model format", name="IR version", before=formats[0], after=formats[1]))
    return found


def _in_one(before: set[str], after: set[str], kind: str) -> list[Change]:
    return [
        Change(
            kind=kind,
            name=name,
            before="known" if name in before else "not known",
            after="known" if name in after else "not known",
        )
        for name in sorted(before ^ after)
    ]


def _values(
    before: Mapping[str, str], after: Mapping[str, str], kind: str, *, absent: str = ""
) -> list[Change]:
    """Return the names with different values; without `absent`, only those that both have."""
    names = sorted({*before, *after} if absent else set(before) & set(after))
    return [
        Change(kind=kind, name=name, before=before.get(name, absent), after=after.get(name, absent))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _providers(known: wire.Capabilities) -> dict[str, str]:
    """Return whether each provider loads; the reason depends on the environment, not on the version."""
    return {one["name"]: "loads" if one["loadable"] else "does not load" for one in known["providers"]}


def _texts(numbers: Mapping[str, int]) -> dict[str, str]:
    return {name or "ai.onnx": str(number) for name, number in numbers.items()}
