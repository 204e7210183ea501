"""Converts the settings table to command-line options, and the options to a spec.

Each row of `SETTINGS` becomes an option, so a new setting needs no code here. All values are read as text and
validated by the spec, with the messages of a YAML file. Pure.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from core.api.settings import EFFORT, INPUTS, OPERATORS
from core.cli.help_groups import ADVANCED
from core.spec.presets import PRESETS
from core.spec.settings import ENTRIES, SETTINGS, TrialSetting, trial_setting
from core.spec.text_values import seconds
from core.wire.engines import REFS
from core.wire.errors import SpecError

Given = dict[str, Any]  # name of a setting (or "provider_options") -> text on the command line

# forms that `config_from` reads, for the help
CONFIG = "|".join(["FILE|TRIAL|MODEL.onnx|model:NAME|preset:NAME|variant:NAME", *REFS])
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
    "runtime": "NAME",
    "cpus": "0-3,6",
    "openvino.device": "CPU|GPU|NPU|AUTO|HETERO:…",
    "openvino.properties": "NAME=VALUE",
}
_PROVIDER_OPTION_HELP = (
    "Option of a provider, `PROVIDER.KEY=VALUE`, for example `cuda.use_tf32=0`. Repeatable."
)
_FEED_HELP = (
    "Input data: `NAME=VALUE` or `NAME=random:LOW..HIGH` for one input (repeatable), "
    "`NAME=TEXT` or `NAME=@FILE` (one line per sample) for text, or an .npz, an image or a "
    "folder of images. Default: seeded random values; text inputs need a value."
)
_GROUPS = (
    "Workload",
    "Threads",
    "Graph",
    "Providers",
    "Memory",
    "OpenVINO",
    "Model",
    "Protocol",
)  # groups in the help
MAX_INLINE_CHOICES = 40  # most characters of choices next to an option name
_REPEATED = (
    *("providers", "disabled_optimizers", *ENTRIES.values(), "free_dimension_overrides"),
    *("custom_op_libraries", "provider_libraries"),
    *("dims", "feeds", "precision", "runtime", "openvino.properties"),
)


# --- options of the table ----------------------------------------------------------------------------------


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `given: Given`, one option per row of the table."""
    return with_settings_but()(command)


def with_settings_but(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return `with_settings` without some rows, for a command that has options of its own for them."""

    def give(command: Callable[..., None]) -> Callable[..., None]:
        rows = [one for one in settings_with_option() if one.name not in names]
        ordered = sorted(rows, key=lambda one: _GROUPS.index(one.group))
        return _with_options(command, [*map(_parameter, ordered), _provider_option()])

    return give


def with_workload(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `given: Given`, the options that apply to all configurations."""
    shared = [
        one
        for one in settings_with_option()
        if one.target in ("workload", "protocol")
        or one.name in ("precision", "custom_op_libraries", "runtime")
    ]
    return _with_options(command, [_parameter(setting) for setting in shared])


def with_input_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `given: Given`, the options of inputs (except `--dim`) and operators."""
    names = {*INPUTS, OPERATORS} - {"dims"}
    return _with_options(
        command, [_parameter(setting) for setting in settings_with_option() if setting.name in names]
    )


def with_operators(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `given: Given`, the option for custom operator libraries."""
    return _with_options(command, [_parameter(trial_setting(OPERATORS))])


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
    default, text = setting.default, setting.help
    if setting.name == "runtime":
        text += " Repeatable where configurations are compared: each runs once in every runtime."
    if isinstance(default, bool):
        default = "on" if default else "off"
    choices = f" One of {', '.join(setting.choices)}." if _are_long(setting) else ""
    shown = f" Default: {default}." if default not in ((), {}, "", None) else ""
    return text + choices + (shown if not isinstance(default, tuple) else "")


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


# --- configuration to start from ----------------------------------------------------------------------------


Config = Annotated[
    str | None,
    typer.Option(
        help="Configuration to start from: a YAML file, a trial ID or preset:NAME. Other options change it.",
        metavar="FILE|TRIAL|preset:NAME",
        show_default=False,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(help=f"Preset to start from: {', '.join(PRESETS)}.", metavar="NAME", show_default=False),
]


def start_of(config: str | None, preset: str | None) -> str | None:
    """Return the reference of `--config` or `--preset`."""
    if config is not None and preset is not None:
        raise SpecError("`--config` and `--preset` contradict each other.", hint="Give one of them.")
    return config if preset is None else f"preset:{preset}"
