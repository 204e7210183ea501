"""The command `load`: how a configuration keeps up with requests that do not wait for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from core.api import load as loading
from core.api import loadgen as crosschecking
from core.api import sweeping
from core.api.results import Result
from core.api.settings import EFFORT
from core.cli.options import CONFIG, Given, Model, WaitQuiet, wait_quiet_s, with_settings_but
from core.cli.output import (
    EXIT_FAILED,
    EXIT_UNDECIDED,
    Json,
    Quiet,
    Wide,
    check_output_path,
    exit_code,
    print_error,
    print_json,
)
from core.cli.report import write_report
from core.cli.sheets import print_sheet
from core.cli.signals import Interrupted
from core.cli.sweep import report_sweep
from core.cli.watch import Progress, finished, started
from core.evidence.load.load_types import LoadVerdict
from core.evidence.measurement import Trial
from core.show import load_text
from core.spec.axes import parse_values
from core.spec.load import MOST_CONFIGURATIONS, PROCESSES, parse_time, process_named
from core.spec.settings import trial_setting
from core.spec.text_values import share
from core.wire.engines import ENGINES
from core.wire.errors import SpecError

EXITS: Mapping[LoadVerdict, int] = {"PASS": 0, "FAIL": EXIT_FAILED, "UNDECIDED": EXIT_UNDECIDED}
TRAFFIC, REQUESTS, QUESTION = "Traffic", "Requests", "Question"  # groups of options
CLOSED_LOOP = "streams"
LOADGEN = "mlperf-loadgen"  # not an engine of the table: it runs nothing by itself
_OF_A_COMPARISON = (EFFORT, "margin", "runs", "warmup_runs", "tolerance")  # no use in an open loop

_SHAPES: Mapping[str, tuple[str, ...]] = {  # arrivals -> options that they take
    "bursts": ("on_s", "off_s"),
    "ramp": ("from_share",),
    "steps": ("from_share", "steps"),
    "diurnal": ("low_share",),
}
_FLAGS = {
    "on_s": "--on",
    "off_s": "--off",
    "from_share": "--from",
    "steps": "--steps",
    "low_share": "--low",
}


@with_settings_but("engine", "seed", "budget_s", "timeout_s")
def load(
    model: Model = None,
    *,
    config: Annotated[
        list[str] | None,
        typer.Option(
            help="Configuration to start from. Other options change it. Repeatable, up to "
            f"{MOST_CONFIGURATIONS} times: all are compared at the same rates, or run --together.",
            metavar=CONFIG,
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            help="Requests per second. Repeatable: one point each, or one for each configuration of "
            "--together.",
            metavar="N",
            show_default=False,
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            help="How requests arrive: "
            + "; ".join(f"{name}: {text}" for name, text in PROCESSES.items() if name != "trace")
            + ". Default: poisson.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            help="Time that counts, of each configuration and rate, after the warm-up. Default: 30s, or the "
            "length of the trace.",
            metavar="SECONDS|60s|2m",
            show_default=False,
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Replay recorded requests: CSV with the columns time and rows, or JSON Lines. Other "
            "columns are sizes of free dimensions. --rate scales the times.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            help="bursts: length of an on period. Default: 1s.",
            metavar="SECONDS",
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    off: Annotated[
        str | None,
        typer.Option(
            "--off",
            help="bursts: length of an off period. Default: 1s.",
            metavar="SECONDS",
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="ramp, steps: the first rate, as a share of --rate. Default: 10%.",
            metavar="SHARE|N%",
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="steps: number of steps. Default: 5.", metavar="N", rich_help_panel=TRAFFIC),
    ] = None,
    low: Annotated[
        str | None,
        typer.Option(
            "--low",
            help="diurnal: the lowest rate, as a share of the highest. Default: 25%.",
            metavar="SHARE|N%",
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Samples of a request: a number, 1-8 (equally likely), or with weights 1:0.7,8:0.3. "
            "Default: the batch size of the configuration.",
            metavar="N|N-M|N:W,…",
            show_default=False,
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            help="Sizes of a free dimension of the model, as --rows. Repeatable.",
            metavar="NAME=N-M",
            show_default=False,
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            help="Drop a request that waits longer. Default: every request is served.",
            metavar="20ms|1s",
            show_default=False,
            rich_help_panel=REQUESTS,
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="Limit on a percentile of the latency, p99<=20ms, or on the share of timeouts, "
            "timeouts<=0.1%. Repeatable.",
            metavar="LIMIT",
            show_default=False,
            rich_help_panel=QUESTION,
        ),
    ] = None,
    find_max: Annotated[
        bool,
        typer.Option("--find-max", help="Find the highest rate within the limits.", rich_help_panel=QUESTION),
    ] = False,
    find_batching: Annotated[
        bool,
        typer.Option(
            "--find-batching",
            help="Find the best dynamic batching at --rate.",
            rich_help_panel=QUESTION,
        ),
    ] = False,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Run all configurations at the same time, each at its own --rate.",
            rich_help_panel=QUESTION,
        ),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            help="--find-max, --find-batching: time for the search, without its confirmation. --streams: "
            "time for the comparison.",
            metavar="SECONDS|30s|2m",
            show_default=False,
            rich_help_panel=QUESTION,
        ),
    ] = None,
    turns: Annotated[
        int | None,
        typer.Option(
            help="Runs of each configuration and rate, in fresh processes; they share --duration. Default: "
            "1, or 6 where several configurations are compared.",
            metavar="N",
            show_default=False,
            rich_help_panel=QUESTION,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the arrivals, the sizes of requests and random inputs.",
            metavar="N",
            min=0,
            rich_help_panel=QUESTION,
        ),
    ] = 0,
    engine: Annotated[
        str | None,
        typer.Option(
            help=f"What runs the model: {', '.join(ENGINES)}. {LOADGEN}: MLCommons' LoadGen sends the "
            "requests, as a cross-check (LoadGen-compatible, unofficial). Default: onnxruntime.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            help=f"--engine {LOADGEN}: scenario of LoadGen. Repeatable. Default: SingleStream, or Server "
            "with a --rate.",
            metavar="SingleStream|MultiStream|Server|Offline",
            show_default=False,
        ),
    ] = None,
    wait_quiet: WaitQuiet = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Also write a report: HTML, or Markdown where the name ends in .md.",
            metavar="FILE",
            show_default=False,
            rich_help_panel="Output",
        ),
    ] = None,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Measure the latency of a configuration under traffic that does not wait for it.

    Latency is the time from the scheduled arrival to the completion, so waiting counts. Every result says how
    much of it the harness added. `--streams 1,2,4` is a closed loop instead: as many callers, each with the
    next request as soon as its last one is answered; the answer is samples per second.

    Exit codes: 0 done, and the limits are kept · 1 a limit is broken, or a worker failed · 2 bad input · 3
    undecided, or the run is not a measurement · 130 Ctrl-C.
    """
    patience_s = wait_quiet_s(wait_quiet)
    if output is not None:
        check_output_path(output)
    asked: dict[str, Any] = {
        "rate": rate or None,
        "duration_s": duration,
        "limits": limit or [],
        "timeout_s": timeout,
        "rows": rows,
        "sizes": _sizes(size or []),
        "trace": trace,
        "find_max": find_max,
        "find_batching": find_batching,
        "together": together,
        "turns": turns,
    }
    shape = {"on_s": on, "off_s": off, "from_share": from_, "steps": steps, "low_share": low}
    told = {name: value for name, value in shape.items() if value is not None}
    if engine == LOADGEN:
        _refuse_beside_loadgen({**asked, **told, "arrivals": arrivals, "output": output}, config or [])
        common = {
            "scenario": scenario,
            "rate": rate[0] if rate else None,
            "limits": limit or [],
            "seed": seed,
        }
        start = config[0] if config else None
        _cross_check(model, start, {**common, "duration_s": duration}, given, json_, quiet)
        return
    if scenario:
        raise SpecError("`--scenario` is for LoadGen.", hint=f"Add `--engine {LOADGEN}`, or remove it.")
    given = dict(given) | ({"engine": engine} if engine else {})
    if _is_closed_loop(given, asked):
        _refuse_beside_streams({**asked, **told, "arrivals": arrivals}, config or [])
        _closed_loop(
            model,
            config or [],
            {**given, "budget_s": budget, "seed": seed or None},
            patience_s=patience_s,
            json_=json_,
            quiet=quiet,
        )
        return
    _refuse_comparison_options(given)
    asked |= {"arrivals": _arrivals(arrivals, told), "budget_s": budget, "seed": seed}
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        measure = partial(loading.load, model, _one_or_all(config), **asked, wait_quiet_s=patience_s)
        try:
            result = finished(session, partial(measure, session=session, **given))
        except Interrupted as interrupted:
            _report_interrupted(session.last, interrupted, json_=json_)
            raise
    if output is not None and result.record.result is not None:
        write_report([result.id], output)
    raise typer.Exit(_report(result, json_=json_))


def _one_or_all(config: Sequence[str] | None) -> Any:
    """Return one configuration by itself, several as a list."""
    if not config:
        return None
    return list(config) if len(config) > 1 else config[0]


def _sizes(texts: Sequence[str]) -> dict[str, str]:
    """Read `NAME=SIZES`."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        if not equals or not name.strip() or not sizes.strip():
            raise SpecError(
                f"`--size` takes NAME=SIZES, but got `{text[:40]}`.",
                hint="Write for example `--size sequence=16-128`.",
            )
        if name in found:
            raise SpecError(
                f"`--size` names `{name[:40]}` twice.", hint="Join its sizes: `NAME=1:0.5,8:0.5`."
            )
        found[name] = sizes
    return found


def _arrivals(name: str | None, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrivals of `--arrivals` and its parameters."""
    process = process_named(name or "poisson")
    if process == "trace":
        raise SpecError("`--arrivals trace` needs the trace's file.", hint="Give it with `--trace FILE`.")
    takes = _SHAPES.get(process, ())
    for one in told:
        if one not in takes:
            users = ", ".join(of for of, names in _SHAPES.items() if one in names)
            raise SpecError(
                f"`{_FLAGS[one]}` does not concern {process} arrivals.",
                hint=f"Use `--arrivals {users}`, or remove it.",
            )
    read: dict[str, Any] = {}
    for one, value in told.items():
        flag = _FLAGS[one]
        if one == "steps":
            read[one] = value
        elif one.endswith("_share"):
            read[one] = 1.0 if value.strip() in ("1", "100%") else share(flag, value)
        else:
            read[one] = _period_s(flag, value)
    return {"process": process, **read}


def _period_s(flag: str, text: str) -> float:
    """Read seconds with or without a unit."""
    plain = text.strip()
    return parse_time(plain if plain[-1:].isalpha() else f"{plain}s", what=flag)


# --- a closed loop ------------------------------------------------------------------------------------------


def _is_closed_loop(given: Given, asked: Mapping[str, Any]) -> bool:
    """Whether `--streams` is the question: it has a list, or no traffic is asked for."""
    if CLOSED_LOOP not in given:
        return False
    open_loop = ("rate", "trace", "find_max", "find_batching", "together")
    return "," in str(given[CLOSED_LOOP]) or not any(asked[name] for name in open_loop)


def _refuse_beside_streams(asked: Mapping[str, Any], config: Sequence[str]) -> None:
    for name, value in asked.items():
        if value not in (None, False, [], {}):
            flag = _flag(name)
            raise SpecError(
                f"`{flag}` is for traffic, but `--streams` with several numbers is a closed loop.",
                hint=f"Give one number of streams, or remove `{flag}`.",
            )
    if len(config) > 1:
        raise SpecError(
            "`--streams` with several numbers takes one configuration.", hint="Give one `--config`."
        )


def _flag(name: str) -> str:
    """Return the option of an argument of the API."""
    kept = ("together", "rows", "turns", "arrivals")
    plain = name if name in kept else name.removesuffix("_s").removesuffix("s")
    return _FLAGS.get(name) or f"--{plain.replace('_', '-')}"


def _closed_loop(
    model: str | None,
    config: Sequence[str],
    given: Mapping[str, Any],
    *,
    patience_s: float,
    json_: bool,
    quiet: bool,
) -> None:
    """Sweep the number of streams: the answer is samples per second."""
    rest = {name: one for name, one in given.items() if one is not None}
    vary = {CLOSED_LOOP: list(parse_values(rest.pop(CLOSED_LOOP), name=CLOSED_LOOP))}
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        measure = partial(sweeping.sweep, model, vary, config[0] if config else None)
        try:
            result = measure(wait_quiet_s=patience_s, session=session, **rest)
        except Interrupted:
            if not json_ and session.last is not None:
                print_sheet(session.last.sheet())
            raise
    report_sweep(result, "json" if json_ else "text")


def _refuse_comparison_options(given: Given) -> None:
    for name in _OF_A_COMPARISON:
        if name in given:
            flag = trial_setting(name).flag
            raise SpecError(
                f"`{flag}` is for comparisons, not for traffic.",
                hint="Use --duration, --turns and --budget, or remove it.",
            )


# --- LoadGen ------------------------------------------------------------------------------------------------


def _refuse_beside_loadgen(asked: Mapping[str, Any], config: Sequence[str]) -> None:
    for name, value in asked.items():
        if name not in ("rate", "limits", "duration_s") and value not in (None, False, [], {}):
            raise SpecError(
                f"`{_flag(name)}` does not concern LoadGen.",
                hint=f"Remove it, or remove `--engine {LOADGEN}`.",
            )
    if len(config) > 1 or len(asked["rate"] or []) > 1:
        raise SpecError(
            "LoadGen takes one configuration and one rate.", hint="Give one `--config` and one `--rate`."
        )


def _cross_check(
    model: str | None, config: str | None, asked: Mapping[str, Any], given: Given, json_: bool, quiet: bool
) -> None:
    """Let LoadGen measure, print its verdict, and end the command with its exit code."""
    told = {name: value for name, value in asked.items() if value is not None}
    if not told.get("scenario"):
        told["scenario"] = ["Server" if "rate" in told else "SingleStream"]
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        result = crosschecking.loadgen(model, config, session=session, **told, **given)
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())
    raise typer.Exit(EXITS[result.record["verdict"]])


# --- the result ---------------------------------------------------------------------------------------------


def _report_interrupted(last: Result[Any] | None, interrupted: Interrupted, *, json_: bool) -> None:
    """Print what was measured until Ctrl-C, and say where it is."""
    if last is None:
        return
    if load_text.load_of(last.record) is None:
        return
    interrupted.hint = f"What was measured until then is kept: `ortune show {last.id[:12]}`."
    if not json_:
        print_sheet(last.sheet())


def _report(result: Result[Trial], *, json_: bool) -> int:
    """Print a load test and return the exit code."""
    trial = result.record
    found = load_text.load_of(trial)
    if json_:
        print_json(result.to_dict())
    elif found is not None:
        print_sheet(result.sheet())
    if trial.error is not None:
        print_error(trial.error["message"], trial.error["hint"])
        return exit_code(trial.error)
    return 0 if found is None else EXITS[load_text.outcome(found)]
