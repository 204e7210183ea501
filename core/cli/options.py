"""Converts the settings table to command-line options, and the options to a spec.

Each row of `SETTINGS` becomes an option, so a new setting needs no code here. All values are read as text and
validated by the spec, with the messages of a YAML file. Pure except `config_from`, which reads the
configuration of `--config`.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.help_groups import ADVANCED
from core.cli.output import note
from core.run.named_files import check_named_files, open_folders, with_full_paths
from core.run.variants import variant_of
from core.spec import CRITERIA, WorkloadSpec, old_key_note, spec_from_dict, spec_from_yaml
from core.spec.checks import feed_range
from core.spec.presets import PRESETS, preset
from core.spec.settings import ENTRIES, SETTINGS, TrialSetting, trial_setting
from core.spec.settings.provider_options import KNOWN_PROVIDERS
from core.spec.strict_yaml import MAX_CHARACTERS
from core.store import Store
from core.store.library import MODEL_SUFFIXES, sample_models
from core.wire.access import expert_allowed
from core.wire.engines import REFS
from core.wire.errors import SpecError, StoreError, nearest
from core.wire.files import expand_home, open_regular

Given = dict[
    str, Any
]  # name of a setting (or "provider_options") -> text on the command line; absent: not given

# forms that `config_from` reads, for the help
CONFIG = "|".join(["FILE|TRIAL|MODEL.onnx|model:NAME|preset:NAME|variant:NAME", *REFS])
ENGINE_PREFIXES = tuple({ref.partition(":")[0] + ":" for ref in REFS})
KEEPS_MODEL = ("variant", "own")  # keys of a configuration that keeps its own model

_SECTION = dict.fromkeys(("attribute", "session", *ENTRIES), "session")
_SHORT_PROVIDERS = {name.removesuffix("ExecutionProvider").lower(): name for name in KNOWN_PROVIDERS}
_SHORT_PROVIDERS |= {"trt": "TensorrtExecutionProvider", "directml": "DmlExecutionProvider"}
_METAVARS = {
    "providers": "NAME",
    "disabled_optimizers": "NAME",
    "session_config_entries": "KEY=VALUE",
    "run_config_entries": "KEY=VALUE",
    "dims": "NAME=N",
    "free_dimension_overrides": "NAME=N",
    "custom_op_libraries": "NAME",
    "provider_libraries": "NAME",
    "feeds": "NAME=VALUE|NAME=random:LOW..HIGH|NAME=@LINES.txt|FILE.npz|IMAGES",
    "image_mean": "M,M,…",
    "image_std": "S,S,…",
    "budget_s": "SECONDS|30s|2m",
    "margin": "SHARE|N%",
    "tolerance": "SHARE|N%",
    "cpus": "0-3,6",
}
_PROVIDER_OPTION_HELP = (
    "Option of a provider, `PROVIDER.KEY=VALUE`, for example `cuda.use_tf32=0`. Repeatable."
)
_FEED_HELP = (
    "Input data: `NAME=VALUE` or `NAME=random:LOW..HIGH` for one input (repeatable), "
    "`NAME=TEXT` or `NAME=@FILE` (one line per sample) for text, or an .npz, an image or a "
    "folder of images. Default: seeded random values; text inputs need a value."
)
_GROUPS = ("Workload", "Threads", "Graph", "Providers", "Memory", "Model", "Protocol")  # groups in the help
MAX_INLINE_CHOICES = 40  # most characters of choices next to an option name
_OPERATORS = "custom_op_libraries"
EFFORT = "protocol.effort"  # name of the effort setting
_REPEATED = (
    *("providers", "disabled_optimizers", *ENTRIES.values(), "free_dimension_overrides"),
    *("custom_op_libraries", "provider_libraries"),
    *("dims", "feeds", "precision"),
)


# --- options of the table ----------------------------------------------------------------------------------


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `given: Given`, one option per row of the table."""
    rows = sorted(settings_with_option(), key=lambda one: _GROUPS.index(one.group))
    return _with_options(command, [*map(_parameter, rows), _provider_option()])


def with_workload(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `given: Given`, the options that apply to all configurations."""
    shared = [
        one
        for one in settings_with_option()
        if one.target in ("workload", "protocol") or one.name in ("precision", "custom_op_libraries")
    ]
    return _with_options(command, [_parameter(setting) for setting in shared])


def with_input_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `given: Given`, the options of inputs (except `--dim`) and operators."""
    names = ("batch_size", "feeds", "image_mean", "image_std", "seed", _OPERATORS)
    return _with_options(
        command, [_parameter(setting) for setting in settings_with_option() if setting.name in names]
    )


def with_operators(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `given: Given`, the option for custom operator libraries."""
    return _with_options(command, [_parameter(trial_setting(_OPERATORS))])


def operators_of(given: Given) -> tuple[str, ...]:
    """Return the given custom operator libraries, as written."""
    return tuple(given.get(_OPERATORS, ()))


def workload_of(given: Given, dims: Mapping[str, int]) -> WorkloadSpec:
    """Return the workload of the options of `with_input_options`.

    Raises:
        SpecError: the text of an option is invalid.
    """
    data = spec_data({}, "model", {name: text for name, text in given.items() if name != _OPERATORS})
    workload = {**data.get("workload", {}), "dims": dict(dims)}
    return spec_from_dict({"model": data["model"], "workload": workload}).workload


def _with_options(command: Callable[..., None], added: Sequence[inspect.Parameter]) -> Callable[..., None]:
    own = inspect.signature(command, eval_str=True)
    kept = [one for name, one in own.parameters.items() if name != "given"]
    names = {one.name for one in added}

    @wraps(command)
    def run(**values: Any) -> None:
        given = {_setting_name(name): values.pop(name) for name in names if values[name] not in (None, [])}
        for name in names & set(values):
            values.pop(name)
        command(**values, given=_with_effort(given))

    run.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*kept, *added]}
    return run


def _with_effort(given: Given) -> Given:
    """Replace `--precision quick` of earlier versions by `--effort quick`, with a note on stderr.

    Raises:
        SpecError: both options are given.
    """
    given, numbers = dict(given), list[str]()
    effort = [given.pop(EFFORT)] if EFFORT in given else []
    for text in given.pop("precision", []):
        if text in trial_setting(EFFORT).choices:
            typer.echo(f"--precision {text} is now --effort {text}", err=True)
            effort.append(text)
        else:
            numbers.append(text)
    for name, texts in (("precision", numbers), (EFFORT, effort)):
        if len(texts) > 1:
            raise SpecError(
                f"`{trial_setting(name).flag} {texts[1]}` contradicts an earlier one.", hint="Give one."
            )
        if texts:
            given[name] = texts[0]
    return given


def settings_with_option() -> list[TrialSetting]:
    """Return the settings with a separate option; fixed values share the option of the inputs."""
    return [setting for setting in SETTINGS if setting.name != "feed_values"]


def _parameter(setting: TrialSetting) -> inspect.Parameter:
    flags = [setting.flag]
    metavar = _METAVARS.get(setting.name)
    if setting.kind == "bool":
        flags = [f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"]
    elif setting.kind == "int":
        metavar = metavar or "N"
    elif setting.kind == "choice":
        metavar = metavar or ("NAME" if _are_long(setting) else "|".join(setting.choices))
    kind: Any = bool | None if setting.kind == "bool" else str | None
    if setting.name in _REPEATED:
        kind = list[str] | None
    panel = f"{setting.group}{ADVANCED if setting.advanced else ''}"
    option = typer.Option(
        *flags, help=_help(setting), metavar=metavar, show_default=False, rich_help_panel=panel
    )
    return _keyword(setting.name.replace(".", "__"), Annotated[kind, option])


def _help(setting: TrialSetting) -> str:
    if setting.name == "feeds":
        return _FEED_HELP
    default = setting.default
    if isinstance(default, bool):
        default = "on" if default else "off"
    choices = f" One of {', '.join(setting.choices)}." if _are_long(setting) else ""
    shown = f" Default: {default}." if default not in ((), {}, "", None) else ""
    return setting.help + choices + (shown if not isinstance(default, tuple) else "")


def _are_long(setting: TrialSetting) -> bool:
    """Whether the choices are too long to fit next to an option name."""
    return setting.kind == "choice" and len("|".join(setting.choices)) > MAX_INLINE_CHOICES


def _provider_option() -> inspect.Parameter:
    option = typer.Option(
        "--provider-option",
        help=_PROVIDER_OPTION_HELP,
        metavar="PROVIDER.KEY=VALUE",
        rich_help_panel=f"Providers{ADVANCED}",
    )
    return _keyword("provider_options", Annotated[list[str] | None, option])


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _setting_name(parameter: str) -> str:
    return parameter.replace("__", ".")


# --- waiting for an idle machine -------------------------------------------------------------------------


Model = Annotated[
    str | None,
    typer.Argument(
        help="Path, library name, sample name or hash of a model; not needed if --config names one.",
        metavar="MODEL",
        show_default=False,
    ),
]
ModelHere = Annotated[
    str, typer.Argument(help="Path, library name, sample name or hash of a model.", metavar="MODEL")
]
Again = Annotated[bool, typer.Option("--again", help="Measure again, even if a result is stored.")]
WaitQuiet = Annotated[
    str | None,
    typer.Option(
        "--wait-quiet",
        help="Wait for an idle machine before measuring, at most this long. Then ORTune measures "
        "in any case, and notes the background load.",
        metavar="SECONDS|30s|5m|1h",
        show_default=False,
    ),
]


def wait_quiet_s(text: str | None) -> float:
    """Read the value of `--wait-quiet` in seconds; 0: not given.

    Raises:
        SpecError: it is not a duration.
    """
    return 0.0 if text is None else float(seconds("--wait-quiet", text))


# --- sources of a configuration ----------------------------------------------------------------------------


def config_from(
    ref: str | None, *, store: Callable[[], Store], other_model: bool = False, expert: bool = False
) -> dict[str, Any]:
    """Return the configuration of `ref`: a YAML file, a model, a preset, a variant, PyTorch, a trial.

    A model and a variant run on ONNX Runtime's default and keep their model. The configuration of a variant
    has the key `variant` with the hash of its original, that of a model the key `own`.

    Args:
        ref: value of an option; None: not given.
        store: opens the store; called only for a trial or a variant.
        other_model: the command line names a model. Settings of a trial may apply to any model, while a
            YAML file stays bound to its hash.
        expert: the command line turns `expert` on, so a file may use it.

    Raises:
        SpecError: no such file, preset or variant, or an invalid configuration.
        StoreError: the trial does not exist.
    """
    if ref is None:
        return {}
    if ref.startswith("preset:"):
        return preset_config(ref.removeprefix("preset:"))
    if ref.startswith(ENGINE_PREFIXES):
        return {"engine": _engine(ref)}
    if ref.startswith("variant:"):
        return _variant_config(ref.removeprefix("variant:"), store())
    if ref.startswith("model:") or ref.lower().endswith(MODEL_SUFFIXES):
        return {"model": {"path": ref.removeprefix("model:")}, "own": True}
    path = expand_home(ref)
    if path.suffix.lower() in (".yaml", ".yml") or _is_file(path):
        return _file_config(path, expert=expert)
    trial = _spec_of_trial(ref, store())
    return {**trial, "model": {k: v for k, v in trial["model"].items() if k != "sha256" or not other_model}}


def _spec_of_trial(ref: str, store: Store) -> dict[str, Any]:
    try:
        return store.trial(ref).spec
    except StoreError as error:
        if not error.message.startswith("There is no trial"):  # damaged, or an ambiguous prefix
            raise
    raise _unknown_reference_error(ref, store)


def _unknown_reference_error(ref: str, store: Store) -> SpecError:
    """Return the error for an unknown reference; often the prefix of a name is missing."""
    names = {one.name: f"model:{one.name}" for one in sample_models() if one.exists}
    names |= {
        one.name: f"{'model' if variant_of(one) is None else 'variant'}:{one.name}" for one in store.models()
    }
    names |= {name: f"preset:{name}" for name in PRESETS} | {one: one for one in REFS}
    meant = names.get(ref)
    return SpecError(
        f"`{ref[:80]}` is no existing file, and no trial"
        f"{'.' if meant else ', model, variant or preset.'}{'' if meant else nearest(ref, names)}",
        hint=f"Write `{meant}`."
        if meant
        else "Give a YAML file, a MODEL.onnx, a trial of `history`, model:NAME, variant:NAME, "
        f"{', '.join(REFS)}, or preset:NAME with one of {', '.join(PRESETS)}.",
    )


def _is_file(path: Path) -> bool:
    """Whether a path is a file, even one that will be refused later; a trial ID is not."""
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # not a valid path
        return False


def _file_config(path: Path, *, expert: bool) -> dict[str, Any]:
    """Return the configuration of a YAML file; its files and libraries lie near it or in ORTune's folder.

    Options of the command line may name any path, because the user types them.
    """
    text = _read(path)
    spec = with_full_paths(spec_from_yaml(text, expert=expert or expert_allowed()))
    if remark := old_key_note(text):
        note(f"{path.name}: {remark}")
    check_named_files(spec.session, [Path.cwd().resolve(), path.resolve().parent, *open_folders()])
    return spec.to_dict()


def keeps_model(config: Mapping[str, Any]) -> bool:
    """Whether a configuration keeps its own model."""
    return any(name in config for name in KEEPS_MODEL)


def _engine(ref: str) -> str:
    if ref not in REFS:
        raise SpecError(
            f"`{ref[:48]}` names no engine.{nearest(ref, REFS)}", hint=f"Use {' or '.join(REFS)}."
        )
    return REFS[ref]


def _variant_config(name: str, store: Store) -> dict[str, Any]:
    """Return the configuration of a variant on ONNX Runtime's default."""
    record = store.model(name)
    variant = None if record is None else variant_of(record)
    if record is None or variant is None:
        names = [one.name for one in store.models() if variant_of(one)]
        listed = ", ".join(names[:8]) if names else ""
        raise SpecError(
            f"`{name[:80]}` is no variant of a model.{nearest(name, names)}",
            hint=f"Choose among {listed}." if listed else "Create one with `transform` first.",
        )
    model = {"path": record.path, "sha256": record.sha256}
    return {"model": model, "variant": variant["root"]}


def preset_config(name: str) -> dict[str, Any]:
    """Return the configuration of the preset `name`."""
    session, workload = preset(name)
    return {"session": session.model_dump(mode="json", exclude_defaults=True), "workload": workload}


def _read(path: Path, *, what: str = "configuration") -> str:
    try:
        with open_regular(path) as file:
            return file.read(4 * MAX_CHARACTERS + 1).decode("utf-8")
    except OSError as error:
        raise SpecError(
            f"The {what} `{path}` cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from None
    except UnicodeDecodeError:
        other = "a YAML file that ORTune exported" if what == "configuration" else "a file of UTF-8 text"
        raise SpecError(f"The {what} `{path}` is not UTF-8 text.", hint=f"Choose {other}.") from None


# --- options to a spec -------------------------------------------------------------------------------------


def spec_data(config: Mapping[str, Any], model: str | None, given: Given) -> dict[str, Any]:
    """Apply the command line to a configuration and return plain data for `spec_from_dict`.

    Options extend mappings (dimensions, config entries, fixed values) and replace everything else. A variant
    keeps its own model, and so does a model that is used as a configuration.

    Raises:
        SpecError: there is no model, or the text of an option is invalid.
    """
    data: dict[str, Any] = {name: dict(config.get(name, {})) for name in _SECTIONS}
    if model is not None and not keeps_model(config):
        data["model"]["path"] = model
    if not data["model"].get("path"):
        raise SpecError("No model is given.", hint="Give the path or the name of a model.")
    for setting in settings_with_option():
        if setting.name in given:
            _apply(data, setting, given[setting.name])
    _apply_provider_options(data["session"], given.get("provider_options", []))
    for name in ("engine", *CRITERIA):
        if name in config:
            data.setdefault(name, config[name])
    return {name: part for name, part in data.items() if part}


_SECTIONS = ("model", "session", "workload", "protocol")


def _apply(data: dict[str, Any], setting: TrialSetting, value: Any) -> None:
    if setting.target == "trial":
        data[setting.name] = value
        return
    part = data[_SECTION.get(setting.target, setting.target)]
    if setting.name == "providers":
        part["providers"] = _chain(part.get("providers", []), value)
    elif setting.name == "feeds":
        _apply_inputs(part, value)
    elif setting.kind == "mapping":
        pairs = [_pair(setting.flag, one) for one in value]
        part[setting.name] = {**part.get(setting.name, {}), **_values(setting, pairs)}
    elif (entries := ENTRIES.get(setting.target)) is not None:
        text = ("1" if value else "0") if setting.kind == "bool" else str(_typed(setting, value))
        part[entries] = {**part.get(entries, {}), setting.name: text}
    else:
        part[setting.field] = _typed(setting, value)


def _typed(setting: TrialSetting, value: Any) -> Any:
    if setting.kind == "choice" and value not in setting.choices:
        choices = ", ".join(setting.choices)
        raise SpecError(
            f"`{setting.flag}` accepts {choices}, but got `{value[:40]}`.{nearest(value, setting.choices)}",
            hint="Choose one of them.",
        )
    if setting.name == "budget_s":
        return seconds(setting.flag, value)
    if setting.kind == "float":
        return share(setting.flag, value)
    if setting.kind == "int":
        return whole_number(setting.flag, value)
    if setting.name in ("image_mean", "image_std"):
        return numbers(setting.flag, value)
    return value


def whole_number(flag: str, text: str) -> int:
    """Read the value of an option as a whole number.

    Raises:
        SpecError: it is not a whole number.
    """
    digits = text.strip()
    if not (digits.removeprefix("-").isascii() and digits.removeprefix("-").isdigit() and len(digits) < 20):
        raise SpecError(f"`{flag}` takes a whole number, but got `{text[:40]}`.", hint="Write digits only.")
    return int(digits)


_UNITS_S = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600}


def seconds(flag: str, text: str) -> int:
    """Read a duration: `90`, `90s`, `2m`, `1h`.

    Raises:
        SpecError: it is not a duration.
    """
    match = re.fullmatch(r"([0-9]{1,9})\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_S:
        raise SpecError(
            f"`{flag}` takes whole seconds or minutes, but got `{text[:40]}`.",
            hint="Write for example 60s or 2m.",
        )
    return int(match[1]) * _UNITS_S[match[2]]


def share(flag: str, text: str) -> float:
    """Read a share: `0.02` or `2%`. Without `%` it is below 1, because a bare `5` may mean 5 % or 500 %.

    Raises:
        SpecError: it is not a share.
    """
    digits = text.strip()
    try:
        value = float(digits.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise SpecError(
            f"`{flag}` takes a share of 0 or more, but got `{text[:40]}`.",
            hint="Write for example 0.02 or 2%.",
        )
    if digits.endswith("%"):
        return value / 100
    if value >= 1:
        hint = f"Write `{flag} {value:g}%`"
        hint += f", or `{flag} {value / 100:g}`." if value < 100 else "."
        raise SpecError(f"`{flag}` takes a share below 1 or a percentage, but got `{text[:40]}`.", hint=hint)
    return value


def numbers(flag: str, text: str) -> list[float]:
    """Read numbers with commas between them; raises `SpecError`."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(
            f"`{flag}` takes numbers with commas between them, but got `{text[:40]}`.",
            hint=f"Write for example `{flag} 0.5,0.5,0.5`.",
        ) from None


_OF_DIMENSIONS = ("--dim", "--free-dimension-override")  # a dimension name may contain `=`


def _pair(flag: str, text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=") if flag in _OF_DIMENSIONS else text.partition("=")
    if not equals or not name:
        raise SpecError(f"`{flag}` takes NAME=VALUE, but got `{text[:80]}`.", hint="Write both, with a `=`.")
    return name, value


def _values(setting: TrialSetting, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name in found:
            raise SpecError(f"`{setting.flag} {name}` is given twice.", hint="Give it once.")
        sized = setting.flag in _OF_DIMENSIONS
        found[name] = whole_number(f"{setting.flag} {name}", text) if sized else text
    return found


def provider_name(text: str) -> str:
    """Return ONNX Runtime's name for `text`, which may be short (`cuda`) and in any case."""
    short = text.lower().removesuffix("executionprovider")
    return _SHORT_PROVIDERS.get(short, text)


def _chain(before: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a new provider chain; providers of the old chain keep their options."""
    options = {one["name"]: one.get("options", {}) for one in before}
    return [
        {"name": name, "options": options.get(name, {})}
        for text in names
        for name in [provider_name(part) for part in text.split(",")]
    ]


def _apply_provider_options(session: dict[str, Any], texts: Sequence[str]) -> None:
    chain = [
        {"name": one["name"], "options": {**one.get("options", {})}} for one in session.get("providers", [])
    ]
    by_name = {one["name"]: one["options"] for one in chain}
    for text in texts:
        address, value = _pair("--provider-option", text)
        short, dot, key = address.partition(".")
        name = provider_name(short)
        if not dot or not key:
            raise SpecError(
                f"`--provider-option` takes PROVIDER.KEY=VALUE, but got `{text[:80]}`.",
                hint="Write for example `cuda.use_tf32=0`.",
            )
        if name not in by_name:
            raise SpecError(
                f"`{name}` is not in the provider chain, but `--provider-option` sets its `{key}`."
                f"{nearest(name, by_name)}",
                hint=f"Add `--provider {short}`.",
            )
        by_name[name][key] = value
    if texts:
        session["providers"] = chain


# --- inputs ------------------------------------------------------------------------------------------------


def _apply_inputs(workload: dict[str, Any], texts: Sequence[str]) -> None:
    """Apply `NAME=VALUE`, a fixed input, or the source of all other inputs."""
    values = dict(workload.get("feed_values", {}))
    sources = [text for text in texts if _is_source(text)]
    if len(sources) > 1:
        raise SpecError(
            f"`--feed` names {len(sources)} sources, `{sources[0]}` and `{sources[1]}`.",
            hint="Give one .npz, image or folder; write fixed values as NAME=VALUE.",
        )
    fixed: set[str] = set()
    for text in texts:
        if text in sources:
            workload["feeds"] = text
            continue
        name, value = _pair("--feed", text)
        if name in fixed:
            raise SpecError(f"`--feed {name}` is given twice.", hint="Give each input one value.")
        fixed.add(name)
        values[name] = _input_value(name, value)
    if values:
        workload["feed_values"] = values


def _is_source(text: str) -> bool:
    try:
        return "=" not in text or Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or with a zero byte: a value
        return False


def _input_value(name: str, text: str) -> Any:
    """Read a number, `true` or `false`, nested JSON lists of them, or a range of random values."""
    if len(text) > MAX_CHARACTERS:
        raise SpecError(f"The value of `--feed {name}` is too long.", hint="Put it into an .npz.")
    plain = text.strip()
    if plain in ("True", "False"):
        return plain == "True"
    if plain.startswith("@"):
        return _lines(name, plain[1:])
    if feed_range(name, plain) is not None:
        return plain
    try:
        return json.loads(plain)
    except (ValueError, RecursionError):
        pass
    try:
        return float(plain)  # `.5` and `1.` are not JSON
    except ValueError:
        if plain and plain[0] not in '[{"':
            return text  # the input's type is checked when the model is known
        raise SpecError(
            f"`--feed {name}` takes a number, true, false, a JSON list, a range or text, but got "
            f"`{text[:40]}`.",
            hint="Write a range as `random:0..30521`; give a file without a name: `--feed feeds.npz`.",
        ) from None


def _lines(name: str, path: str) -> list[str]:
    """Return the lines of a text file; the configuration stores the lines, not the path."""
    lines = _read(expand_home(path), what=f"file of lines for `--feed {name}`").splitlines()
    if not lines or len(lines) > MAX_INPUT_LINES:
        raise SpecError(
            f"`--feed {name}=@{path[:80]}` must have 1 to {MAX_INPUT_LINES:,} lines, but has {len(lines):,}.",
            hint="Give one line for each sample of the batch.",
        )
    return lines


MAX_INPUT_LINES = 10_000  # every file of the configuration contains them
