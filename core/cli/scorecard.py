"""The command `scorecard`: measures a configuration as its targets require, and judges each target."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from core.api.references import config_from
from core.api.requests import with_sizes
from core.api.session import Session
from core.api.settings import spec_data
from core.cli.options import Given, WaitQuiet, wait_quiet_s, with_settings
from core.cli.output import EXIT_FAILED, EXIT_UNDECIDED, Json, Quiet, Wide, print_error, print_json
from core.cli.sheets import print_sheet
from core.cli.signals import Interrupted
from core.cli.watch import Progress, scheduler, watch
from core.evidence.targets import State
from core.process.job_worker import run_job
from core.run.preparation import resolve_trial
from core.run.scorecard import Row, Subject, needed, rows, start
from core.show import documents
from core.show.sheets import scorecards
from core.spec import TrialSpec, spec_from_dict
from core.spec.datasets import dataset_plan
from core.store import Store
from core.wire.errors import ErrorRecord, SpecError
from core.wire.units import visible

EXITS: Mapping[State, int] = {"MET": 0, "MISSED": EXIT_FAILED, "UNKNOWN": EXIT_UNDECIDED}


@with_settings
def scorecard(
    config: Annotated[
        str,
        typer.Argument(
            help="YAML file with targets, or ID of a trial that has targets.",
            metavar="X.yaml|TRIAL",
            show_default=False,
        ),
    ],
    *,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Reuse earlier measurements of this machine.")
    ] = False,
    wait_quiet: WaitQuiet = None,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Check a configuration against its targets, and show which are met.

    ORTune compares the configuration with ONNX Runtime's default at each batch size that a target names, and
    measures the accuracy on labelled data where a target needs it. A target is met when the whole 95 %
    interval lies within the limit, missed when it lies outside, and unknown in between. Options change the
    configuration.

    Exit codes: 0 all targets are met · 1 a target is missed, or a worker failed · 2 bad input · 3 no target
    is missed, but one is not yet known · 130 Ctrl-C.
    """
    patience_s = wait_quiet_s(wait_quiet)
    store = Store()
    named = config_from(config, store, expert=bool(given.get("expert")))
    spec = spec_from_dict(spec_data(named, None, given))
    _check_answerable(spec, config)
    progress = Progress(sys.stderr, quiet=quiet)
    [spec], told = with_sizes([spec], Session(store, on_note=progress.line))
    resolved = resolve_trial(spec, store, run_job)
    subject = Subject(label=resolved.record.name, spec=resolved.spec, record=resolved.record)
    row, errors = _measured(store, subject, reuse=reuse, wait_quiet_s=patience_s, progress=progress)
    if json_:
        print_json(documents.scorecard(row, errors) | told)
    else:
        print_sheet(scorecards.scorecard(row))
    for error in errors:
        print_error(error["message"], error["hint"])
    raise typer.Exit(EXITS[row.state])


def _check_answerable(spec: TrialSpec, config: str) -> None:
    """Refuse, before measuring, targets that no measurement can decide.

    Raises:
        SpecError: no targets, or an accuracy target without labelled data.
    """
    if not spec.targets:
        raise SpecError(
            f"`{config[:80]}` has no targets to check.",
            hint="Add targets under `targets:`, for example `- {metric: latency_p99, at_most: 3 ms}`.",
        )
    if accuracy := next((one for one in spec.targets if one.about.source == "accuracy"), None):
        if spec.dataset is None:
            raise SpecError(
                f"The target on {accuracy.what} needs labelled data, but the configuration names none.",
                hint="Add `dataset: {path: …}`.",
            )
        dataset_plan(spec.dataset)


def _measured(
    store: Store, subject: Subject, *, reuse: bool, wait_quiet_s: float, progress: Progress
) -> tuple[Row, list[ErrorRecord]]:
    """Measure what is missing and return the judged card, with the errors of the measurements."""
    errors: list[ErrorRecord] = []
    since = 0.0 if reuse else time.time()

    def judged(fingerprint: str) -> Row:
        targets = subject.spec.targets
        return rows(store, [subject], targets, fingerprint=fingerprint, since=since)[0]

    fingerprint = ""
    try:
        with scheduler(store, wait_quiet_s=wait_quiet_s) as service:
            fingerprint = service.environment()["fingerprint"]
            work = needed([judged(fingerprint)])
            jobs = start(service, work)
            if jobs:
                progress.line(
                    _announcement(subject, sorted(work.comparisons), accuracy=bool(work.accuracies))
                )
            for job in jobs:
                status = watch(service, job, progress)
                if status.error is not None:
                    errors.append(status.error)
    except Interrupted as interrupted:
        interrupted.document = documents.scorecard(judged(fingerprint), errors)
        raise
    return judged(fingerprint), errors


def _announcement(subject: Subject, sizes: Sequence[int], *, accuracy: bool) -> str:
    parts = [f"a comparison at batch {size:,}" for size in sizes] + ["an accuracy measurement"] * accuracy
    return f"{visible(subject.label)} needs {', '.join(parts)}"
