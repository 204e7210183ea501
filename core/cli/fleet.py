"""The command `fleet`: sets up a fleet of machines, asks its hosts, and shows their answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from core.api import fleet
from core.api.fleet_answers import summary_of
from core.api.session import Session, user_on_host
from core.cli import COMMANDS, fleet_answers
from core.cli.fleet_arguments import split
from core.cli.fleet_progress import FleetProgress
from core.cli.help_groups import Group, Grouped
from core.cli.output import EXIT_CANCELLED, EXIT_FAILED, Json, Quiet, Wide, note, print_json, print_lines
from core.cli.sheets import print_parts, print_sheet
from core.cli.signals import Interrupted
from core.evidence.fleet.fleet_types import FleetRun
from core.show import documents
from core.show.sheets.fleet import hosts_table, run_sheet, runs_table
from core.spec.study import read_study
from core.spec.text_values import seconds
from core.store import Store
from core.wire import variables
from core.wire.errors import SpecError
from core.wire.units import visible

FLEET = "Fleet"

Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Address of the fleet's scheduler. Default: this machine is the only host, within this command.",
        metavar="HOST:PORT",
        envvar=variables.FLEET_SCHEDULER,
        show_envvar=True,
        show_default=False,
        rich_help_panel=FLEET,
    ),
]
Certs = Annotated[
    Path | None,
    typer.Option(
        help="Folder with this machine's certificate, as `fleet init` created it. Without one, only loopback "
        "addresses are used.",
        metavar="DIR",
        envvar=variables.FLEET_CERTS,
        show_envvar=True,
        show_default=False,
        rich_help_panel=FLEET,
    ),
]
On = Annotated[
    str,
    typer.Option(
        help="Hosts to ask: all, names, or labels that all must fit.",
        metavar="all|NAME,NAME|LABEL=VALUE,…",
        rich_help_panel=FLEET,
    ),
]
OneOfEachKind = Annotated[
    bool,
    typer.Option(
        "--one-of-each-kind",
        help="Ask one host of those with the same machine and libraries.",
        rich_help_panel=FLEET,
    ),
]
RunName = Annotated[
    str,
    typer.Option(
        "--run-name", help="Name of the run.", metavar="NAME", show_default=False, rich_help_panel=FLEET
    ),
]
Portability = Annotated[
    bool,
    typer.Option(
        "--portability",
        help="After the searches, compare all winners on every host: what one configuration for all costs.",
        rich_help_panel=FLEET,
    ),
]
Patience = Annotated[
    str,
    typer.Option(
        help="How long a host may be out of reach before its answer counts as lost.",
        metavar="SECONDS|30s|5m",
        rich_help_panel=FLEET,
    ),
]
Run = Annotated[str, typer.Argument(help="ID of the fleet run, or its first characters.", metavar="RUN")]
_PATIENCE = f"{fleet.PATIENCE_S:g}s"

app = typer.Typer(
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help=COMMANDS["fleet"].help,
)


# --- setting up ---------------------------------------------------------------------------------------------


@app.command("init", cls=Grouped)
def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the fleet's certificates.", metavar="DIR")],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Machine that gets a certificate, with its addresses. Repeatable; more machines may follow "
            "later.",
            metavar="NAME[/IP…]",
            show_default=False,
        ),
    ] = None,
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of the scheduler's machine. Repeatable.", metavar="IP|NAME", show_default=False
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Create the private certificate authority of a fleet, and a certificate for each machine.

    Copy DIR/hosts/NAME to each host, DIR/scheduler to the scheduler, and DIR/client to the machines that ask.
    Keep DIR/authority to yourself: it can admit machines to the fleet.
    """
    machines = [fleet.machine(one) for one in host or []]
    made = fleet.init(folder, machines, scheduler or [])
    if json_:
        print_json({"folder": str(folder), "created": [str(one) for one in made]})
    else:
        print_lines([f"Created {one}" for one in made] or [f"{folder} has all certificates already."])


@app.command("scheduler", cls=Grouped)
def scheduler(
    *,
    address: Annotated[
        str, typer.Option(help="Address of this machine to listen on.", metavar="HOST:PORT")
    ] = "127.0.0.1:8786",
    certs: Certs = None,
) -> None:
    """Run the scheduler of a fleet until Ctrl-C.

    It carries requests between clients and hosts, and keeps no result. Hosts and clients return to it after
    it was started again.
    """
    fleet.serve_scheduler(address, certs, _say)


@app.command("host", cls=Grouped)
def host(
    *,
    name: Annotated[str, typer.Option(help="Name of this host, unique in the fleet.", metavar="NAME")],
    scheduler: Scheduler = None,
    certs: Certs = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Label for `--on`. Repeatable.", metavar="NAME=VALUE", show_default=False),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            help="Price of this machine, for the cost per million inferences.",
            metavar="PRICE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make this machine a host of a fleet until Ctrl-C.

    The host answers questions one at a time, in the queue that all ORTune processes of this machine share.
    Ctrl-C and SIGTERM cancel a running question. A question outlives a killed host process: the next one
    serves its answer.
    """
    if scheduler is None:
        raise SpecError("A host needs the address of a scheduler.", hint="Give `--scheduler HOST:PORT`.")
    fleet.serve_host(name, scheduler, certs, labels=label or [], price_per_hour=price_per_hour, say=_say)


def _say(text: str) -> None:
    typer.echo(visible(text), err=True)


@app.command("hosts", cls=Grouped)
def hosts(
    *,
    scheduler: Scheduler = None,
    certs: Certs = None,
    wide: Wide = False,
    json_: Json = False,
) -> None:
    """List the hosts of a fleet: labels, machine, versions, and what they do now.

    A host with another ORTune, or without one, is listed with the reason, and is not asked.
    """
    found = fleet.hosts(scheduler, certs)
    if json_:
        print_json(documents.fleet_hosts(found))
    elif found:
        print_parts([hosts_table(found)])
    else:
        print_lines(["The fleet has no host yet. Start one: `ortune fleet host --name NAME`."])


# --- asking -------------------------------------------------------------------------------------------------


def _ask_command(name: str) -> Callable[..., None]:
    """Return the command `fleet NAME`, which takes all options of `NAME`, too."""

    def ask(
        context: typer.Context,
        *,
        on: On = "all",
        one_of_each_kind: OneOfEachKind = False,
        scheduler: Scheduler = None,
        certs: Certs = None,
        run_name: RunName = "",
        portability: Portability = False,
        patience: Patience = _PATIENCE,
        wide: Wide = False,
        json_: Json = False,
        quiet: Quiet = False,
    ) -> None:
        model, arguments = split(name, context.args)
        asked = [fleet.Asked(command=name, model=model, arguments=arguments)]
        if portability and name != "search":
            raise SpecError(
                "`--portability` compares the winners of searches.", hint="Use it with `fleet search`."
            )
        work = partial(
            fleet.ask,
            asked,
            scheduler=scheduler,
            certs=certs,
            on=on,
            one_of_each_kind=one_of_each_kind,
            name=run_name,
            portability=portability,
        )
        _follow(work, patience, json_=json_, quiet=quiet)

    ask.__doc__ = f"""{COMMANDS[name].help.rstrip(".")}, on every selected host.

    All options of `ortune {name}` hold here, too; those of the fleet come first. Options after `--` go to
    `{name}` even if the fleet has one of the same name. Each host compares with its own default.

    Exit codes: the highest one of the hosts, as `ortune {name}` defines it; 1 if an answer is lost.
    """
    return ask


for _name in ("search", "compare", "sweep", "scorecard", "verify", "load"):
    app.command(
        _name,
        cls=Grouped,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(_ask_command(_name))


@app.command("run", cls=Grouped)
def run(
    study: Annotated[Path, typer.Argument(help="Models and questions as YAML.", metavar="STUDY.yaml")],
    *,
    on: Annotated[
        str | None,
        typer.Option(
            help="Hosts to ask. Default: those of the study.",
            metavar="all|NAME,NAME|LABEL=VALUE,…",
            show_default=False,
            rich_help_panel=FLEET,
        ),
    ] = None,
    scheduler: Scheduler = None,
    certs: Certs = None,
    patience: Patience = _PATIENCE,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask every question of a study about every model of it, on all of its hosts."""
    found = read_study(study)
    asked = []
    for one in found.items:
        model, arguments = split(one.command, [one.model, *one.arguments])
        asked.append(fleet.Asked(command=one.command, model=model, arguments=arguments))
    work = partial(
        fleet.ask,
        asked,
        scheduler=scheduler,
        certs=certs,
        on=on or found.hosts,
        one_of_each_kind=found.one_of_each_kind,
        name=found.name,
        portability=found.portability,
    )
    _follow(work, patience, json_=json_, quiet=quiet)


@app.command("resume", cls=Grouped)
def resume(
    run: Run,
    *,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Measure failed, cancelled and lost answers again, as their next attempt."
        ),
    ] = False,
    scheduler: Scheduler = None,
    certs: Certs = None,
    patience: Patience = _PATIENCE,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a fleet run: collect answers that hosts have kept, and ask what is still open.

    A question that a host has answered, or still works on, is not measured again.
    """
    work = partial(fleet.resume, run, again=again, scheduler=scheduler, certs=certs)
    _follow(work, patience, json_=json_, quiet=quiet)


def _follow(work: Callable[..., FleetRun], patience: str, *, json_: bool, quiet: bool) -> None:
    """Do the work of a run, which also takes `patience_s`, the callbacks and the session, and report it."""
    patience_s, progress = seconds("--patience", patience), FleetProgress(sys.stderr, quiet=quiet)
    with Session(owner=f"fleet client {user_on_host()}") as session:
        try:
            found = work(
                patience_s=patience_s, on_change=progress.show, on_note=progress.line, session=session
            )
        except Interrupted as interrupted:
            interrupted.hint = (
                f"The answers so far are kept: `ortune fleet show {progress.run}`. "
                f"Ask again with `ortune fleet resume {progress.run} --again`."
                if progress.run
                else "Start it again."
            )
            raise
        finally:
            progress.clear()
        _report(session.store, found, json_=json_)


def _report(store: Store, run: FleetRun, *, json_: bool) -> None:
    if json_:
        print_json(documents.fleet(summary_of(run, store)))
    else:
        print_sheet(run_sheet(run, found=summary_of(run, store)))
    if run.state == "INCOMPLETE":
        note(f"Answers are missing. Collect them: `ortune fleet resume {run.id}`.")
    raise typer.Exit(exit_code_of(run))


def exit_code_of(run: FleetRun) -> int:
    """Return the exit code of a run: failed before undecided, as for several results of one machine."""
    codes = {one.exit_code or 0 for one in run.answers if one.exit_code is not None}
    states = {one.state for one in run.answers}
    if EXIT_FAILED in codes or "LOST" in states or any(code < 0 for code in codes):
        return EXIT_FAILED
    if "CANCELLED" in states:
        return EXIT_CANCELLED
    worst = max(codes, default=0)
    return worst or (EXIT_FAILED if "FAIL" in states else 0)


# --- runs ---------------------------------------------------------------------------------------------------


@app.command("runs", cls=Grouped)
def runs(*, wide: Wide = False, json_: Json = False) -> None:
    """List the fleet runs of this client, newest first."""
    found = fleet.runs()
    if json_:
        print_json(documents.fleet_runs(found))
    elif found:
        print_parts([runs_table(found)])
    else:
        print_lines(["No fleet runs yet. Start one: `ortune fleet compare MODEL --candidate X.yaml`."])


app.command("show", cls=Grouped)(fleet_answers.show)
app.command("report", cls=Grouped)(fleet_answers.report)
app.command("export", cls=Grouped)(fleet_answers.export)
app.command("pick", cls=Grouped)(fleet_answers.pick)


@app.command("cancel", cls=Grouped)
def cancel(
    run: Run,
    *,
    host: Annotated[
        str | None,
        typer.Option(help="Cancel on this host only.", metavar="NAME", show_default=False),
    ] = None,
    json_: Json = False,
) -> None:
    """Cancel a fleet run: end its open questions on the hosts, with all their processes.

    What was measured until then is kept: by the command that waits for the run, else by this one.
    """
    with Session(owner=f"fleet client {user_on_host()}") as session:
        found = fleet.cancel(run, host, session=session)
    if json_:
        print_json(documents.fleet(summary_of(found, Store())))
    else:
        print_lines([f"Fleet run {found.id} is cancelled{f' on {host}' if host else ''}."])


@app.command("logs", cls=Grouped)
def logs(
    run: Run,
    host: Annotated[str, typer.Argument(help="Name of the host.", metavar="HOST")],
) -> None:
    """Show the log of a host's last question in a fleet run."""
    text = fleet.logs(run, host)
    print_lines([*map(visible, text.splitlines())] or ["The log is empty."])  # written by the host


__all__: Sequence[str] = ["app", "exit_code_of"]
