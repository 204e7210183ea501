"""`TrialSpec`, the frozen request behind every trial, and its YAML file.

TrialSpec = ModelRef + SessionSpec + WorkloadSpec + ProtocolSpec, the engine that runs it, dynamic batching,
and criteria (`dataset`, `targets`). None, or an empty collection, means "ONNX Runtime's default": it is never
passed on. Specs only validate and raise `SpecError`; they read no file, no clock and no environment.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from core.spec.checks import (
    check_affinities,
    check_dimension,
    check_feed_value,
    check_image_statistics,
    check_libraries,
    check_provider,
    cpu_list,
)
from core.spec.datasets import DatasetSpec
from core.spec.effort import DEFAULT_MARGIN
from core.spec.load import BatchingSpec
from core.spec.openvino import OpenVinoSpec, check_expert
from core.spec.settings import (
    ENTRIES,
    PROVIDER_OPTIONS,
    SETTINGS,
    TrialSetting,
    Value,
    check_config_entry,
    check_optimizers,
    check_range,
    check_run_entry,
    trial_setting,
)
from core.spec.strict_yaml import dump_yaml, load_strict
from core.spec.targets import TargetSpec, check_targets
from core.spec.validation import Spec, validated
from core.wire import engines
from core.wire.errors import SpecError
from core.wire.runtime import OWN, runtime_text
from core.wire.variables import ALLOW_EXPERT

SCHEMA = 1  # 1: first public layout

GraphOptimizationLevel = Literal[
    "ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL"
]
ExecutionMode = Literal["ORT_SEQUENTIAL", "ORT_PARALLEL"]
ExecutionOrder = Literal["DEFAULT", "PRIORITY_BASED", "MEMORY_EFFICIENT"]


def _option_text(value: object) -> object:
    """Return a provider option as text; YAML's true, 1 and 1.5 are accepted."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value) if isinstance(value, int | float) else value


_SHA256 = re.compile(r"[0-9a-f]{64}")

OptionText = Annotated[str, BeforeValidator(_option_text)]


class ProviderSpec(Spec):
    """One execution provider of the chain, by ONNX Runtime's full name, with its options as text."""

    name: str
    options: dict[str, OptionText] = Field(default_factory=dict)


class ModelRef(Spec):
    """A model: its path, and the SHA-256 of the `.onnx` file when it is known.

    In files, a model with external weights also has `content_sha256`, which covers them. Stored requests do
    not have it.
    """

    path: str
    sha256: str | None = None
    content_sha256: str | None = None
    precision: Literal["fp32", "fp16"] = "fp32"
    keep_io_types: bool = True

    @model_validator(mode="after")
    def _check(self) -> ModelRef:
        if not self.path.strip():
            raise SpecError("`model.path` is empty.", hint="Write the path of an .onnx file.")
        for name in ("sha256", "content_sha256"):
            digest = getattr(self, name)
            if digest is not None and not _SHA256.fullmatch(digest):
                raise SpecError(
                    f"`model.{name}` must be 64 hexadecimal digits in lower case, but got `{digest[:80]}`.",
                    hint="Copy it from the exported file, or remove it.",
                )
        return self


class SessionSpec(Spec):
    """Settings of a session, by ONNX Runtime's own names; None: not set."""

    providers: tuple[ProviderSpec, ...] = Field(default=(), strict=False)
    graph_optimization_level: GraphOptimizationLevel | None = None
    execution_mode: ExecutionMode | None = None
    execution_order: ExecutionOrder | None = None
    intra_op_num_threads: int | None = None
    inter_op_num_threads: int | None = None
    enable_cpu_mem_arena: bool | None = None
    enable_mem_pattern: bool | None = None
    enable_mem_reuse: bool | None = None
    use_deterministic_compute: bool | None = None
    use_per_session_threads: bool | None = None
    free_dimension_overrides: dict[str, int] = Field(default_factory=dict)
    disabled_optimizers: tuple[str, ...] = Field(default=(), strict=False)
    custom_op_libraries: tuple[str, ...] = Field(default=(), strict=False)  # `NAME` or `NAME@sha256:…`
    provider_libraries: tuple[str, ...] = Field(default=(), strict=False)
    session_config_entries: dict[str, OptionText] = Field(default_factory=dict)
    run_config_entries: dict[str, OptionText] = Field(default_factory=dict)
    allow_fallback: bool = False
    expert: bool = False

    @property
    def libraries(self) -> tuple[str, ...]:
        """All native libraries that it loads."""
        return (*self.custom_op_libraries, *self.provider_libraries)

    @model_validator(mode="after")
    def _check(self) -> SessionSpec:
        for name in ("intra_op_num_threads", "inter_op_num_threads"):
            if (number := getattr(self, name)) is not None:
                check_range(trial_setting(name), number)
        for key, value in self.session_config_entries.items():
            check_config_entry(key, value, expert=self.expert)
        for key, value in self.run_config_entries.items():
            check_run_entry(key, value, expert=self.expert)
        for name, size in self.free_dimension_overrides.items():
            check_dimension(name, size)
        check_optimizers(self.disabled_optimizers, expert=self.expert)
        check_affinities(
            self.session_config_entries.get("session.intra_op_thread_affinities", ""),
            threads=self.intra_op_num_threads or 0,
        )
        check_libraries(self.custom_op_libraries)
        check_libraries(self.provider_libraries)
        seen: set[str] = set()
        for provider in self.providers:
            if provider.name in seen:
                raise SpecError(
                    f"`{provider.name}` is given twice in the provider chain.",
                    hint="Name each execution provider once.",
                )
            seen.add(provider.name)
            check_provider(
                provider.name, provider.options, expert=self.expert, plugged=bool(self.provider_libraries)
            )
        return self

    @property
    def requested_providers(self) -> tuple[str, ...]:
        """Names of the requested chain; without one, the CPU provider."""
        return tuple(provider.name for provider in self.providers) or ("CPUExecutionProvider",)


class WorkloadSpec(Spec):
    """Inputs of one run. `batch_size` None: one sample, or the model's own fixed batch."""

    batch_size: int | None = None
    dims: dict[str, int] = Field(default_factory=dict)
    use_io_binding: bool = False
    streams: int = 1  # callers at the same time
    stream_type: Literal["threads", "processes"] = "threads"
    feeds: str = "random"
    feed_values: dict[str, Any] = Field(default_factory=dict)
    image_mean: tuple[float, ...] = Field(default=(), strict=False)
    image_std: tuple[float, ...] = Field(default=(), strict=False)
    seed: int = 0

    @model_validator(mode="after")
    def _check(self) -> WorkloadSpec:
        if self.batch_size is not None:
            check_range(trial_setting("batch_size"), self.batch_size)
        check_range(trial_setting("streams"), self.streams)
        check_range(trial_setting("seed"), self.seed)
        for name, size in self.dims.items():
            check_dimension(name, size)
        for name, value in self.feed_values.items():
            check_feed_value(name, value)
        check_image_statistics(self.image_mean, self.image_std)
        if self.feeds.strip() == "":
            raise SpecError("`feeds` is empty.", hint="Write `random` or the path of an `.npz` or image.")
        return self


OLD_EFFORT = "precision"  # the key of the effort in files from before 1.0


class ProtocolSpec(Spec):
    """How to measure. None: ORTune decides from the measurements so far."""

    effort: Literal["quick", "standard", "publish"] = "quick"
    budget_s: int | None = None  # None: that of the effort
    margin: float = DEFAULT_MARGIN  # a share: two configurations that differ by less are equivalent
    tolerance: float | None = None  # largest output error that is accepted; None: that of the precision
    warmup_runs: int | None = None  # None: until the latency is steady
    runs: int | None = None  # None: until the goal of the effort is reached; a number: exactly so many
    timeout_s: int = 600  # one step of one worker
    cpus: str = ""  # a Linux CPU list; empty: all that the process may use

    @model_validator(mode="before")
    @classmethod
    def _accept_old_key(cls, data: Any) -> Any:
        """Accept `precision`, the key of the effort before 1.0."""
        if not isinstance(data, Mapping) or OLD_EFFORT not in data or "effort" in data:
            return data
        return {"effort" if name == OLD_EFFORT else name: value for name, value in data.items()}

    @model_validator(mode="after")
    def _check(self) -> ProtocolSpec:
        for name in ("budget_s", "margin", "tolerance", "warmup_runs", "runs", "timeout_s"):
            if (number := getattr(self, name)) is not None:
                check_range(trial_setting(name), number)
        cpu_list(self.cpus)
        return self


def _check_engine(spec: TrialSpec) -> None:
    """Refuse settings that the engine would silently ignore.

    Raises:
        SpecError: a setting of another engine, I/O binding, or a converted copy of the model.
    """
    check_expert(spec.openvino, expert=spec.session.expert)
    lacking = set(_NEEDS.values()) - engines.ENGINES[spec.engine].can
    ignored = [name for name in changed(spec) if _NEEDS.get(name) in lacking] if lacking else []
    if ignored:
        left_out = ", ".join(f"`{name}`" for name in ignored)
        engines.require(
            spec.engine, _NEEDS[ignored[0]], of=f": `{ignored[0]}`", instead=f", or leave out {left_out}"
        )


def _check_streams(spec: TrialSpec) -> None:
    """Refuse streams that are processes on anything but ONNX Runtime's CPU provider.

    Raises:
        SpecError: another provider is in the chain.
    """
    workload = spec.workload
    if workload.streams == 1 or workload.stream_type != "processes":
        return
    others = [name for name in spec.session.requested_providers if name != CPU_PROVIDER]
    if others:
        raise SpecError(
            f"Streams of the type `processes` run on {CPU_PROVIDER} only, but the provider chain has "
            f"`{others[0]}`.",
            hint="Use `stream_type` threads, or remove the provider.",
        )


CPU_PROVIDER = "CPUExecutionProvider"
_ORT_ONLY = [
    k.name for k in SETTINGS if k.target in ("attribute", *ENTRIES, "session") and k.name != "expert"
]
_NEEDS: dict[str, engines.Ability] = {
    **dict.fromkeys([*_ORT_ONLY, "precision", "provider_options"], "settings"),
    **dict.fromkeys([k.name for k in SETTINGS if k.target == "openvino"], "openvino"),
    "use_io_binding": "bind",
    "streams": "streams",
    "stream_type": "processes",
}


def belongs(name: str, engine: str) -> bool:
    """Whether the engine `engine` can have another value than the default of the setting `name`."""
    return name not in _NEEDS or engines.can(engine, _NEEDS[name])


# parts of a spec that do not change what a comparison runs; load tests use the dynamic batching
NOT_COMPARED = ("dynamic_batching", "dataset", "targets")
BESIDE_SECTIONS = ("engine", "runtime", "openvino", *NOT_COMPARED)  # what a spec has beside its four sections


class TrialSpec(Spec):
    """One configuration of one model, ready to be measured."""

    model: ModelRef
    session: SessionSpec = Field(default_factory=SessionSpec)
    workload: WorkloadSpec = Field(default_factory=WorkloadSpec)
    protocol: ProtocolSpec = Field(default_factory=ProtocolSpec)
    engine: Annotated[str, AfterValidator(engines.known_engine)] = engines.DEFAULT
    runtime: Annotated[str, AfterValidator(runtime_text)] = OWN  # NAME or NAME@sha256:…
    openvino: OpenVinoSpec = Field(default_factory=OpenVinoSpec)  # settings of that engine
    dynamic_batching: BatchingSpec | None = None  # of requests, in front of the session; load tests only
    dataset: DatasetSpec | None = None  # for its accuracy
    targets: tuple[TargetSpec, ...] = Field(default=(), strict=False)  # limits that it must meet

    @model_validator(mode="after")
    def _check(self) -> TrialSpec:
        check_targets(self.targets)
        _check_engine(self)
        _check_streams(self)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data: the model, and the fields that differ from their defaults."""
        data: dict[str, Any] = self.model_dump(mode="json", exclude_defaults=True)
        return {"model": data["model"], **{k: v for k, v in data.items() if k != "model"}}

    def request(self) -> dict[str, Any]:
        """`to_dict` without `NOT_COMPARED`, and without a batch size of 1.

        A batch size of 1 is the default; a model with another fixed batch refuses 1.
        """
        data = {name: part for name, part in self.to_dict().items() if name not in NOT_COMPARED}
        workload = data.pop("workload", {})
        if workload.get("batch_size") == 1:
            del workload["batch_size"]
        return {**data, "workload": workload} if workload else data

    def key(self) -> str:
        """SHA-256 of `request`: equal for equal requests.

        The model counts by content when its hash is known, so a renamed file is the same model.
        """
        data = self.request()
        if self.model.sha256:
            data["model"] = {**data["model"], "path": ""}
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def repeatable(self) -> bool:
        """Whether the request alone determines the inputs: a file may change under the same path."""
        return self.workload.feeds == "random"


def spec_from_dict(data: Mapping[str, Any]) -> TrialSpec:
    """Build a spec from plain data.

    Raises:
        SpecError: an unknown key, a wrong type or a value out of range, named by its path.
    """
    return validated(TrialSpec, data)


def session_from_dict(data: Mapping[str, Any]) -> SessionSpec:
    """Build the session part alone; raises `SpecError` like `spec_from_dict`."""
    return validated(SessionSpec, data)


# --- reading one setting of a spec by its name in the table -------------------------------------------------


def requested_value(spec: TrialSpec, name: str) -> Value | None:
    """Return the value that `spec` sets for setting `name`; None: the default applies."""
    setting = trial_setting(name)
    if (entries := ENTRIES.get(setting.target)) is not None:
        return _typed(setting, getattr(spec.session, entries).get(name))
    part: BaseModel = spec if setting.target == "trial" else spec.session
    if setting.target in ("model", "workload", "protocol", "openvino"):
        part = getattr(spec, setting.target)
    value = getattr(part, setting.field)
    if name == "providers":
        return tuple(provider.name for provider in value) or None
    if name in ENTRIES.values():
        value = {key: text for key, text in value.items() if key not in _settings_in_entries(name)}
    return None if value in (None, (), {}) else value


@cache
def _settings_in_entries(entries: str) -> frozenset[str]:
    """Names of the settings that are entries of `entries` themselves."""
    return frozenset(k.name for k in SETTINGS if ENTRIES.get(k.target) == entries)


def effective(spec: TrialSpec, name: str) -> Value | None:
    """Return the effective value of setting `name`: the one set, or the default."""
    value = requested_value(spec, name)
    return trial_setting(name).default if value is None else value


def _typed(setting: TrialSetting, text: str | None) -> Value | None:
    if text is None:
        return None
    if setting.kind == "bool":
        return text == "1"
    return int(text) if setting.kind == "int" else text


def changed(spec: TrialSpec) -> list[str]:
    """Names of the settings of `spec` that differ from the default, in the table's order."""
    return [
        k.name
        for k in SETTINGS
        if (value := requested_value(spec, k.name)) is not None and value != k.default
    ] + ([] if not any(p.options for p in spec.session.providers) else ["provider_options"])


SettingReader = Callable[[str], Any]  # name of a setting -> its effective value


def without_effect(spec: TrialSpec) -> dict[str, str]:
    """Return the settings without effect in this combination, each with the reason in words.

    Source: ONNX Runtime 1.31's behaviour (threads, spinning, arena, memory pattern).
    """
    return without_effect_where(partial(effective, spec))


def without_effect_where(value_of: SettingReader) -> dict[str, str]:
    """As `without_effect`, for a combination that is no spec yet; `value_of` returns a setting's value."""
    return {
        **_without_effect_on_threads(value_of),
        **_without_effect_on_graphs(value_of),
        **_without_effect_on_providers(value_of),
        **_without_effect_on_feeds(value_of),
        **_without_effect_on_protocol(value_of),
    }


_INTRA_OP_SPINNING = (
    "session.intra_op.allow_spinning",
    "session.intra_op.spin_duration_us",
)
_INTER_OP_SPINNING = ("session.inter_op.allow_spinning", "session.inter_op.spin_duration_us")


def _without_effect_on_threads(value_of: SettingReader) -> dict[str, str]:
    reasons: dict[str, str] = {}
    if value_of("execution_mode") == "ORT_PARALLEL":
        # seen in ORT 1.31.1's profile: every node of every run allocates, with either value of these two
        reasons["enable_mem_pattern"] = "ORT_PARALLEL does not use memory patterns"
        reasons["enable_mem_reuse"] = "ORT_PARALLEL does not reuse buffers"
    else:
        reasons["inter_op_num_threads"] = "used by ORT_PARALLEL only"
        for name in _INTER_OP_SPINNING:
            reasons[name] = "ORT_SEQUENTIAL has no inter-op thread pool"
    if value_of("use_per_session_threads") is False:
        for name in (*_INTRA_OP_SPINNING, *_INTER_OP_SPINNING, "session.intra_op_thread_affinities"):
            reasons.setdefault(name, "the thread pools of the process ignore it")
    if value_of("session.intra_op.allow_spinning") is False:
        reasons["session.intra_op.spin_duration_us"] = "intra-op spinning is off"
    if value_of("session.inter_op.allow_spinning") is False:
        reasons.setdefault("session.inter_op.spin_duration_us", "inter-op spinning is off")
    if value_of("intra_op_num_threads") == 1:
        for name in _INTRA_OP_SPINNING:
            reasons[name] = "with one intra-op thread there is no thread pool"
        reasons["session.dynamic_block_base"] = "with one intra-op thread no work is split"
    if all(_spinning_is_off(value_of, pool, reasons) for pool in ("intra", "inter")):
        reasons["session.force_spinning_stop"] = "spinning is off"
    return reasons


def _without_effect_on_graphs(value_of: SettingReader) -> dict[str, str]:
    if value_of("graph_optimization_level") == "ORT_DISABLE_ALL":
        return {"disabled_optimizers": "no optimizer runs at ORT_DISABLE_ALL"}
    return {}


def _spinning_is_off(value_of: SettingReader, pool: str, reasons: Mapping[str, str]) -> bool:
    name = f"session.{pool}_op.allow_spinning"
    return name in reasons or value_of(name) is False


def _without_effect_on_providers(value_of: SettingReader) -> dict[str, str]:
    reasons: dict[str, str] = {}
    chain = value_of("providers")
    if "CPUExecutionProvider" not in chain and not value_of("allow_fallback"):
        reasons["enable_cpu_mem_arena"] = "the CPU provider is not among the chosen providers"
    if chain == ("CPUExecutionProvider",):
        reasons["allow_fallback"] = "the CPU provider needs no fallback"
        reasons["disable_synchronize_execution_providers"] = (
            "the CPU provider has finished when `run` returns"
        )
        reasons["use_deterministic_compute"] = "CPU kernels are deterministic anyway"
    if chain[0] == "DmlExecutionProvider":
        reasons["enable_mem_pattern"] = "DirectML turns it off"
        reasons["execution_mode"] = "DirectML forces sequential execution"
    return reasons


def _without_effect_on_feeds(value_of: SettingReader) -> dict[str, str]:
    reasons: dict[str, str] = {}
    if value_of("streams") == 1:
        reasons["stream_type"] = "there is one stream"
    if value_of("precision") == "fp32":
        reasons["keep_io_types"] = "only fp16 changes types"
    if value_of("feeds") != "random":
        reasons["seed"] = "the inputs come from files"
    if value_of("feeds") == "random" or value_of("feeds").lower().endswith(".npz"):
        reasons["image_mean"] = reasons["image_std"] = "the inputs are not images"
    return reasons


def _without_effect_on_protocol(value_of: SettingReader) -> dict[str, str]:
    if value_of("runs") is None:
        return {}
    return dict.fromkeys(("protocol.effort", "budget_s"), "`runs` sets the number of inferences")


def with_changes(spec: TrialSpec, values: Mapping[str, Value | None]) -> TrialSpec:
    """Return `spec` with other values of settings, by name; None, or the default, unsets a setting.

    Raises:
        SpecError: a value that the setting does not accept.
    """
    data = spec.to_dict()
    for name, value in values.items():
        if is_provider_option(name):
            _set_option(data.setdefault("session", {}), name, value)
            continue
        row = trial_setting(name)
        asks = value is not None and value != row.default
        if (entries := ENTRIES.get(row.target)) is not None:
            section = data.setdefault("session", {}).setdefault(entries, {})
            field, value = name, _entry_text(value)
        else:
            at = {"attribute": "session", "trial": None}.get(row.target, row.target)
            section = data if at is None else data.setdefault(at, {})
            field = row.field
        if asks and name == "providers" and isinstance(value, tuple):
            section[field] = [{"name": one} for one in value]
        elif asks:
            section[field] = value
        else:
            section.pop(field, None)
    return spec_from_dict(data)


def differing(spec: TrialSpec, other: TrialSpec) -> dict[str, Any]:
    """Return the settings whose effective value differs from `other`: name -> value in `spec`.

    They come in the table's order, options of providers (`CUDAExecutionProvider.use_tf32`) last; None: only
    `other` sets the option.
    """
    found: dict[str, Any] = {
        k.name: own for k in SETTINGS if (own := effective(spec, k.name)) != effective(other, k.name)
    }
    own_options, others = _provider_options(spec), _provider_options(other)
    return found | {
        name: own_options.get(name)
        for name in dict.fromkeys([*own_options, *others])
        if own_options.get(name) != others.get(name)
    }


def _provider_options(spec: TrialSpec) -> dict[str, str]:
    return {
        f"{provider.name}.{name}": value
        for provider in spec.session.providers
        for name, value in provider.options.items()
    }


def is_provider_option(name: str) -> bool:
    """Whether `name` is an option of a provider: `CUDAExecutionProvider.use_tf32`."""
    return name.partition(".")[0] in PROVIDER_OPTIONS


def _set_option(session: dict[str, Any], name: str, value: Value | None) -> None:
    """Change an option of a provider of the chain; ignore one of any other provider."""
    provider, _, option = name.partition(".")
    for one in session.get("providers", []):
        if one["name"] == provider:
            options = {key: text for key, text in one.get("options", {}).items() if key != option}
            one["options"] = options if value is None else {**options, option: str(value)}


def _entry_text(value: Value | None) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


# --- YAML ---------------------------------------------------------------------------------------------


_KINDS = {type(None): "nothing", list: "a list"}


def spec_from_yaml(text: str, *, expert: bool = False) -> TrialSpec:
    """Read an exported configuration; `measured` and `environment` are informative and not part of it.

    So is `per_machine`, which `core.spec.per_machine` reads.

    Args:
        text: of the file.
        expert: whether the operator allows `expert`; a file alone cannot turn it on.

    Raises:
        SpecError: not YAML, another schema version, unknown or duplicate keys, wrong types, foreign tags, or
            `expert` where it is not allowed.
    """
    data = load_strict(text)
    if not isinstance(data, dict):
        raise SpecError(
            f"A configuration is a mapping, but this YAML holds {_KINDS.get(type(data), 'one value')}.",
            hint="Choose a YAML file that ORTune exported.",
        )
    schema = data.pop("schema", None)
    if type(schema) is not int or schema != SCHEMA:  # True and 1.0 are equal to 1
        raise SpecError(
            f"`schema` must be {SCHEMA}, but got {schema!r:.80}.",
            hint="Export the configuration again with this version of ORTune.",
        )
    for informative in ("measured", "environment", "per_machine"):
        data.pop(informative, None)
    if not expert:
        refuse_expert(data)
    return spec_from_dict(data)


def old_key_note(text: str) -> str:
    """Return a note if a valid configuration has the key of the effort before 1.0; empty otherwise."""
    if OLD_EFFORT not in (load_strict(text).get("protocol") or {}):
        return ""
    return f"`protocol.{OLD_EFFORT}` is called `protocol.effort` now; the old key still works."


def refuse_expert(data: Mapping[str, Any]) -> None:
    """Refuse plain data of a file in which `expert` is on.

    Raises:
        SpecError: it is on.
    """
    session = data.get("session")
    if isinstance(session, dict) and session.get("expert") not in (None, False):
        raise SpecError(
            "`session.expert` is the operator's to turn on, not a file's.",
            hint=f"Remove it; if you trust the file, start ORTune with {ALLOW_EXPERT}=1.",
        )


def yaml_from_spec(
    spec: TrialSpec,
    *,
    measured: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    fp32: bool = False,
) -> str:
    """Write `spec` as YAML, from which `spec_from_yaml` builds an equal one.

    Args:
        spec: to write.
        measured: results of the configuration.
        environment: facts of the machine.
        fp32: write the precision, because the model is known to compute in FP32; `spec.model.precision` alone
            does not tell.
    """
    data = spec.to_dict()
    session = data.get("session", {})
    if spec.session.providers:  # with empty options, as in the documentation
        session = session | {"providers": [p.model_dump() for p in spec.session.providers]}
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "model": {**data["model"], **({"precision": spec.model.precision} if fp32 else {})},
        "session": session,
        "workload": {
            **data.get("workload", {}),
            "use_io_binding": spec.workload.use_io_binding,
            "streams": spec.workload.streams,
            "feeds": spec.workload.feeds,
        },
        "protocol": {"effort": spec.protocol.effort} | data.get("protocol", {}),
    }
    document |= {name: data[name] for name in BESIDE_SECTIONS if name in data}
    if measured is not None:
        document["measured"] = dict(measured)
    if environment is not None:
        document["environment"] = dict(environment)
    return dump_yaml(document)


def ort_default(spec: TrialSpec) -> TrialSpec:
    """Return the ORT default for `spec`: ONNX Runtime's default settings on the same model and workload.

    It has one stream, because streams are a setting that is compared with it. Custom operator libraries are
    kept, because the model needs them; and the runtime, unless another engine runs in it.
    """
    model = ModelRef(path=spec.model.path, sha256=spec.model.sha256)
    session = SessionSpec(custom_op_libraries=spec.session.custom_op_libraries)
    workload = spec.workload.model_copy(update={"streams": 1, "stream_type": "threads"})
    runtime = spec.runtime if spec.engine == engines.DEFAULT else OWN
    return TrialSpec(model=model, session=session, workload=workload, protocol=spec.protocol, runtime=runtime)
