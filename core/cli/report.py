"""The command `report`: writes a stored result as an HTML file, or as Markdown for a pull request.

This module writes the Markdown. A separate process, `dashboard.report`, writes the HTML file, because its
plots need Plotly, which `core` may not import.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from core.api.session import clean_up
from core.cli.keys import Trust
from core.cli.output import Json, check_output_path, print_json, write_text
from core.show import documents
from core.show.report import Price, Report
from core.show.report.compose import compose
from core.show.report.markdown import markdown
from core.show.report.signed import section
from core.show.report.subjects import find
from core.store import Store, audit
from core.store.recorded import words_of
from core.wire.errors import WRITABLE_HINT, SpecError, WorkerError
from core.wire.files import ROOT

LIMIT_S = 300.0  # time limit of writing an HTML file

ReportFormat = Annotated[
    Literal["html", "md"],
    typer.Option(
        "--format", help="html: one file with plots that opens offline. md: Markdown for a pull request."
    ),
]
ReportOutput = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="File to write. Default: report-ID.html in this folder; stdout for Markdown.",
        metavar="FILE",
        show_default=False,
    ),
]


def report(
    refs: Annotated[
        list[str],
        typer.Argument(
            help="ID of a trial, comparison or search, or name of a sweep or scorecard; or two "
            "trials that `explain` has explained, the baseline first.",
            metavar="TRIAL|COMPARISON|SEARCH|BASELINE CANDIDATE",
            show_default=False,
        ),
    ],
    *,
    format_: ReportFormat = "html",
    output: ReportOutput = None,
    price_per_hour: Annotated[
        str | None,
        typer.Option(
            help="Price of an hour of this machine. Adds the cost per million inferences of one "
            "session, with its 95 % interval.",
            metavar="AMOUNT",
            show_default=False,
        ),
    ] = None,
    currency: Annotated[str, typer.Option(help="Currency of --price-per-hour.", metavar="NAME")] = "USD",
    file: Annotated[
        Path | None,
        typer.Option(
            help="YAML file or bundle of this result, whose signature and digests the report states. "
            "Default: the bundle in the store, if there is one.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    trust: Trust = None,
    json_: Json = False,
) -> None:
    """Write a stored result as one self-contained HTML file, or as Markdown.

    It holds the verdict, plots, the machine, the method, warnings, the state of the signature and the YAML.
    The file loads nothing from the network.
    """
    price = None if price_per_hour is None else Price(per_hour=_amount(price_per_hour), currency=currency)
    if output is not None:
        check_output_path(output)
    store = Store()
    clean_up(store)
    about = find(store, refs)
    signature = section(about, store, file=file, trust_file=trust)
    said = compose(about, store, price=price, recorded=words_of(store.folder), signature=signature)
    text = ""
    if format_ == "md":
        text = markdown(said)
        if output is not None:
            write_text(output, text)
    else:
        output = output or Path(f"report-{_stem(said)}.html")
        check_output_path(output)
        _html(refs, output, price, file, trust)
    audit.record(
        "export", "report", folder=store.folder, file="" if output is None else output.name, ids=refs
    )
    if output is not None:
        typer.echo(f"Wrote {output}.", err=True)
    if json_:
        print_json(documents.report(said, signature, format_=format_, output=output, text=text))
    elif output is None:
        typer.echo(text, nl=False)


def write_report(refs: list[str], output: Path) -> None:
    """Write a stored result as a report: Markdown where the name ends in `.md`, else HTML.

    Raises:
        SpecError: the file cannot be written.
        WorkerError: the HTML could not be made.
    """
    if output.suffix.lower() == ".md":
        store = Store()
        write_text(output, markdown(compose(find(store, refs), store, recorded=words_of(store.folder))))
    else:
        _html(refs, output)
    audit.record("export", "report", file=output.name, ids=refs)
    typer.echo(f"Wrote {output}.", err=True)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if math.isnan(amount):
        raise SpecError(
            f"`--price-per-hour` takes a number, but got `{text[:40]}`.", hint="Write for example 0.34."
        )
    return amount


def _stem(said: Report) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", said.id).strip("-")[:40] or "result"


def _html(
    refs: list[str],
    output: Path,
    price: Price | None = None,
    file: Path | None = None,
    trust: Path | None = None,
) -> None:
    """Run `dashboard.report` to write the file; errors of the result itself were reported before."""
    priced = [] if price is None else ["--price-per-hour", repr(price.per_hour), "--currency", price.currency]
    paths = {"--output": output, "--file": file, "--trust": trust}
    named = [
        word for name, path in paths.items() if path is not None for word in (name, str(path.absolute()))
    ]
    command = [sys.executable, "-m", "dashboard.report", *priced, *named, "--"]
    path = os.pathsep.join(one for one in (str(ROOT), os.environ.get("PYTHONPATH")) if one)
    try:
        done = subprocess.run(
            [*command, *refs],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise WorkerError(
            f"The report was not written within {LIMIT_S:g} s.", hint="Try --format md."
        ) from None
    if done.returncode == 2:
        raise SpecError(done.stderr.strip()[-500:], hint=WRITABLE_HINT)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise WorkerError(f"The report could not be written: {last[:300]}", hint="Try --format md.")
