"""The list of configurations to compare: the source of each, and its name.

Pure functions of specs; no Streamlit, no store. A configuration is named after its differences from the
baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.evidence.comparison import same_request, several_runtimes
from core.show import setting_chips
from core.spec import TrialSpec, belongs, ort_default, requested_value, session_from_dict, spec_from_dict
from core.spec.presets import PRESETS, preset
from core.spec.settings import ENTRIES, SETTINGS, short
from core.wire.engines import DEFAULT, ENGINES, can
from core.wire.errors import SpecError
from core.wire.runtime import runtime
from dashboard import format

LEAST, MOST = 2, 8
ORT_DEFAULT = "ORT default"
LABEL_LIMIT = 48  # characters of a name in a legend; the table shows the whole difference
INPUT_PROPERTIES = (
    "batch_size",
    "dims",
    "seed",
    "feeds",
    "feed_values",
    "image_mean",
    "image_std",
)  # parts of a workload
_IO_BINDING = f"{short('use_io_binding')} "
_WORKLOAD = ("workload", "protocol", "batching")  # no settings of the session: inputs, protocol, batching


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configuration of the list. `id` is unique in the list and names its widgets."""

    id: str
    source: str  # origin, in words
    spec: TrialSpec
    model: str = ""  # name of the related model that it runs; empty: the model of the list

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as the session keeps it."""
        return {"id": self.id, "source": self.source, "spec": self.spec.to_dict(), "model": self.model}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Entry:
        """Return the entry that `to_dict` wrote."""
        return cls(
            id=data["id"],
            source=data["source"],
            spec=spec_from_dict(data["spec"]),
            model=data.get("model", ""),
        )


# --- sources ----------------------------------------------------------------------------------------------


def from_preset(name: str, base: TrialSpec) -> TrialSpec:
    """Return the preset `name` on the model and workload of `base`, with the operator libraries of `base`.

    Raises:
        SpecError: no such preset, or it does not fit that workload.
    """
    session, workload = preset(name)
    session = session.model_copy(update={"custom_op_libraries": base.session.custom_op_libraries})
    data = base.to_dict()
    return spec_from_dict(
        {
            **_without(data, "engine", "openvino"),
            "session": session.model_dump(mode="json", exclude_defaults=True),
            "workload": {**data.get("workload", {}), **workload},
        }
    )


def preset_label(spec: TrialSpec) -> str:
    """Return the name of the preset that equals `spec`, ignoring the batch; empty: none, or the default."""
    if (spec.engine, spec.model.precision) != (DEFAULT, "fp32"):
        return ""
    for name, (label, _, session, workload) in PRESETS.items():
        bound = workload.get("use_io_binding", False)
        same = session_from_dict(session) == spec.session and bound == spec.workload.use_io_binding
        if name != "default" and same:
            return label
    return ""


def from_engine(engine: str, base: TrialSpec) -> TrialSpec:
    """Return another engine on the workload of `base`, without settings that the engine cannot have.

    An engine for the program before its export runs in ORTune's own runtime, the only one with PyTorch.
    """
    data = base.to_dict()
    ignored = [name for name in data.get("workload", {}) if not belongs(name, engine)]
    return spec_from_dict(
        {
            **_without(data, "session", "openvino", *(["runtime"] if ENGINES[engine].program else [])),
            "model": {**_without(data["model"], "precision", "keep_io_types")},
            "workload": _without(data.get("workload", {}), "use_io_binding", *ignored),
            "engine": engine,
        }
    )


def with_inputs_of(spec: TrialSpec, other: TrialSpec) -> TrialSpec:
    """Return `spec` with the inputs of `other`.

    Raises:
        SpecError: the inputs do not fit the rest of `spec`.
    """
    data, fed = spec.to_dict(), other.to_dict().get("workload", {})
    own = _without(data.get("workload", {}), *INPUT_PROPERTIES)
    return spec_from_dict({**data, "workload": own | {k: v for k, v in fed.items() if k in INPUT_PROPERTIES}})


def with_changed_input(listed: Sequence[Entry], against: int, name: str, value: int | None) -> list[Entry]:
    """Return the list with one input property changed, for all entries that have the baseline's value.

    An entry keeps a value of its own, such as the batch of a preset.

    Args:
        listed: the entries.
        against: index of the baseline.
        name: `batch_size`, `seed`, or `dims.NAME` for a free dimension.
        value: the new one; None: the model's own.

    Raises:
        SpecError: a value out of range.
    """
    common = _input_property(listed[against].spec, name)
    return [
        replace(one, spec=_with_part(one.spec, name, value))
        if _input_property(one.spec, name) == common
        else one
        for one in listed
    ]


def _input_property(spec: TrialSpec, name: str) -> int | None:
    part, _, dim = name.partition(".")
    return spec.workload.dims.get(dim) if dim else getattr(spec.workload, part)


def _with_part(spec: TrialSpec, name: str, value: int | None) -> TrialSpec:
    part, _, dim = name.partition(".")
    data = spec.to_dict()
    workload = dict(data.get("workload", {}))
    whole: Any = {**workload.get("dims", {}), dim: value} if dim else value
    if dim and value is None:
        whole = _without(whole, dim)
    workload = _without(workload, part) | ({} if whole is None else {part: whole})
    return spec_from_dict({**data, "workload": workload})


def missing_provider(spec: TrialSpec, providers: Sequence[Mapping[str, Any]]) -> str:
    """Return which provider of `spec` does not load on this machine, and why; empty: none is known.

    Args:
        spec: to be compared.
        providers: what `environment` found about each.
    """
    facts = {one["name"]: one for one in providers}
    for provider in spec.session.providers:
        fact = facts.get(provider.name, {"loadable": False, "reason": "", "remedy": ""})
        if not fact["loadable"] and facts:
            told = " ".join(str(fact[name]) for name in ("reason", "remedy") if fact.get(name))
            return f"{format.provider(provider.name)} does not load here. {told}".strip()
    return ""


def _without(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}


def with_protocol(spec: TrialSpec, *, precision: str, budget_s: int | None, margin: float) -> TrialSpec:
    """Return `spec` with the protocol of the comparison; it keeps its warm-up, time limit and CPUs.

    Raises:
        SpecError: an effort, a budget or a margin out of range.
    """
    data = spec.to_dict()
    protocol = {**data.get("protocol", {}), "effort": precision, "margin": margin}
    protocol = _without(protocol, "runs", "budget_s") | ({} if budget_s is None else {"budget_s": budget_s})
    return spec_from_dict({**data, "protocol": protocol})


def check_count(entries: Sequence[Entry]) -> None:
    """Refuse a comparison of fewer than two configurations.

    Raises:
        SpecError: fewer than two.
    """
    if len(entries) < LEAST:
        raise SpecError(
            f"A comparison needs at least {LEAST} configurations, but there {_count_words(len(entries))}.",
            hint="Add one from a preset, the history or a YAML file.",
        )


def check_room(entries: Sequence[Entry]) -> None:
    """Refuse to add a configuration to a full list.

    Raises:
        SpecError: there are eight already.
    """
    if len(entries) >= MOST:
        raise SpecError(
            f"A comparison takes at most {MOST} configurations, and there {_count_words(len(entries))}.",
            hint="Remove one first: each further configuration widens all intervals.",
        )


def _count_words(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


# --- names ------------------------------------------------------------------------------------------------


def labels(specs: Sequence[TrialSpec], baseline: int, models: Sequence[str] = (), own: str = "") -> list[str]:
    """Name each of `specs` after its differences from `specs[baseline]`; the names are unique.

    Args:
        specs: configurations to compare.
        baseline: index of the one that the others are compared with.
        models: name of the related model that each runs, "" for the list's; empty: all run that one.
        own: name of the model of the list; its default carries it where other models are compared, too.
    """
    default = ort_default(specs[baseline])
    without = {"session": default.session, "openvino": default.openvino, "engine": DEFAULT}
    default = specs[baseline].model_copy(update=without)
    in_several = several_runtimes(specs)
    named: list[str] = []
    for index, spec in enumerate(specs):
        name = _label(spec, default if index == baseline else specs[baseline], default)
        if models and models[index]:
            name = _short([models[index], *([] if name == ORT_DEFAULT else [name])])
        elif own and any(models) and name == ORT_DEFAULT:
            name = f"{ORT_DEFAULT} ({format.short(own, LABEL_LIMIT - len(ORT_DEFAULT) - 3)})"
        if in_several:
            name = f"{name} ({runtime(spec.runtime).name})"
        equals = sum(one == name or one.startswith(f"{name} (") for one in named)
        named.append(f"{name} ({equals + 1})" if equals else name)
    return named


def _label(spec: TrialSpec, other: TrialSpec, default: TrialSpec) -> str:
    """Return the name of a configuration after its differences from `other`, whatever their runtimes."""
    if spec.runtime != other.runtime:
        spec = spec.model_copy(update={"runtime": other.runtime})
        other = default if same_request(spec, other) else other
    found = setting_chips.differences(spec, other)
    workload = [one.chip for one in found if one.target in _WORKLOAD]
    if not can(spec.engine, "settings"):
        own = [one.chip for one in found if one.target == "openvino"]
        parts = [ENGINES[spec.engine].label, *own, *workload]
    elif named := preset_label(spec):
        parts = [named, *(text for text in workload if not text.startswith(_IO_BINDING))]
    elif is_default(spec):
        parts = workload if workload and is_default(other) else [ORT_DEFAULT, *workload]
    else:
        parts = [one.chip for one in found] or _explicit_settings(spec)
    return _short(parts)


def _explicit_settings(spec: TrialSpec) -> list[str]:
    """Return the settings that explicitly request what ONNX Runtime does by default."""
    said = [
        setting_chips.chip(k, value)
        for k in SETTINGS
        if k.target in ("attribute", *ENTRIES) and (value := requested_value(spec, k.name)) is not None
    ]
    return ["explicit " + text for text in said] or ["same settings"]


def is_default(spec: TrialSpec) -> bool:
    """Whether `spec` has ONNX Runtime's default settings, on any workload."""
    return (spec.engine, spec.model.precision, spec.session) == (DEFAULT, "fp32", ort_default(spec).session)


def _short(parts: Sequence[str]) -> str:
    """Join as many of `parts` as fit a legend, and say how many more there are."""
    shown = parts[0]
    for index, part in enumerate(parts[1:], 1):
        if len(shown) + len(part) + 2 > LABEL_LIMIT:
            return f"{format.short(shown, LABEL_LIMIT)} + {len(parts) - index} more"
        shown += f", {part}"
    return format.short(shown, LABEL_LIMIT)
