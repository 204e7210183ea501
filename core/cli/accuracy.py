"""The command `accuracy`: accuracy of models on labelled data, and the comparison of two models."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from core.api.references import config_from
from core.api.settings import spec_data
from core.cli.options import Again, Given, with_settings
from core.cli.output import (
    EXIT_FAILED,
    EXIT_UNDECIDED,
    Json,
    Quiet,
    Wide,
    combined_exit_code,
    print_error,
    print_json,
    print_lines,
)
from core.cli.sheets import print_sheet
from core.cli.signals import Interrupted
from core.cli.watch import Progress, scheduler, watch
from core.process.job_worker import Run, run_job
from core.run import job_types
from core.run.accuracy import DELTA, check_accuracy_before, compare, measure_accuracy, summary
from core.show import documents
from core.show.sheets import accuracies
from core.spec import TrialSpec, spec_from_dict
from core.spec.text_values import numbers, share, whole_number
from core.store import Accuracy, Store
from core.wire.errors import Cancelled, ErrorRecord, SpecError, TunerError, record_from_error


@with_settings
def accuracy(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Paths, library names, sample names or hashes of models; not needed if --config names one.",
            metavar="MODEL…",
            show_default=False,
        ),
    ] = None,
    *,
    data: Annotated[
        str | None,
        typer.Option(
            help="Labelled data: an .npz (MedMNIST's layout, images and labels, or labels and "
            "arrays named as the inputs), a folder of images for each class, or a CSV of "
            "path and label.",
            metavar="FILE|FOLDER",
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Kind of data. Default: derived from the path.", metavar="npz|folders|csv"),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Split to use. Default: test, or the only one.", metavar="train|val|test"),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            help="Number of samples to use; each class keeps its share. --seed chooses them.", metavar="N"
        ),
    ] = None,
    calibration_share: Annotated[
        str | None,
        typer.Option(
            help="Leave out the samples that `transform --calibration-share` with the same share "
            "calibrates on.",
            metavar="SHARE|N%",
            show_default=False,
        ),
    ] = None,
    resize: Annotated[
        str | None,
        typer.Option(
            help="Resize the shorter side of each image to this. Default: resize to the input's size.",
            metavar="PIXELS",
        ),
    ] = None,
    crop: Annotated[
        str | None, typer.Option(help="Then crop a centred square of this size.", metavar="PIXELS")
    ] = None,
    channels: Annotated[
        str | None,
        typer.Option(help="Colour channels. Default: as the input has them.", metavar="auto|rgb|bgr|gray"),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Value of a pixel of 255. Default: 1.", metavar="X")
    ] = None,
    mean: Annotated[
        str | None, typer.Option(help="Subtract this from each channel, after --scale.", metavar="M,M,…")
    ] = None,
    std: Annotated[
        str | None, typer.Option(help="Divide each channel by this, after --mean.", metavar="S,S,…")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(help="Output with the class scores. Needed if there are several.", metavar="NAME"),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            help="Number or name of the positive class, which --threshold applies to.", metavar="CLASS"
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            help="Probability from which a sample counts as positive. Default: 0.5.", metavar="P|N%"
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Model to compare with, sample by sample.", metavar="MODEL", show_default=False),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(help="Loss of accuracy that is acceptable. Default: 1 %.", metavar="SHARE|N%"),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="Configuration to start from: a YAML file, a trial ID or preset:NAME.",
            metavar="FILE|TRIAL|preset:NAME",
        ),
    ] = None,
    again: Again = False,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Measure the accuracy of models on labelled data.

    ORTune reports accuracy, top-5 accuracy, sensitivity, specificity and ROC AUC with 95 % intervals. With
    --against it compares two models on the same samples, and decides whether one is worse by more than
    --delta.

    Exit codes: 0 done, and not worse · 1 a worker failed, or a model is worse by more than --delta · 2 bad
    input · 3 undecided: more samples are needed · 130 Ctrl-C.
    """
    store = Store()
    asked = {
        "path": data,
        "kind": kind,
        "split": split,
        "limit": None if limit is None else whole_number("--limit", limit),
        "seed": whole_number("--seed", given["seed"]) if "seed" in given else None,
        "part": None if calibration_share is None else "rest",
        "calibration_share": (
            None if calibration_share is None else share("--calibration-share", calibration_share)
        ),
        "output": output,
        "positive_class": positive,
        "threshold": None if threshold is None else share("--threshold", threshold),
    }
    images = {
        "resize": None if resize is None else whole_number("--resize", resize),
        "crop": None if crop is None else whole_number("--crop", crop),
        "channels": channels,
        "scale": None if scale is None else numbers("--scale", scale)[0],
        "mean": None if mean is None else numbers("--mean", mean),
        "std": None if std is None else numbers("--std", std),
    }
    loss = DELTA if delta is None else share("--delta", delta)
    named: list[str | None] = [*models] if models else [None]
    named += [against] if against else []
    specs = _specs(store, named, config, given, (asked, images))
    _check_before(store, specs)
    found, errors = _measured(store, specs, Progress(sys.stderr, quiet=quiet), again=again)
    reference = found[-1] if against else None
    judged = found[:-1] if against else found
    compared = [compare(reference, one, loss) for one in judged if reference is not None and one is not None]
    if json_:
        print_json(documents.accuracies([one for one in found if one is not None], compared, errors))
    elif any(found):
        for one in {one.id: one for one in found if one is not None}.values():
            print_sheet(accuracies.accuracy_sheet(one, summary(one)))
            print_lines([""])
        for pair in compared:
            print_sheet(accuracies.compared(pair))
    for error in errors:
        print_error(error["message"], error["hint"])
    raise typer.Exit(_exit_code(compared, errors, positive=positive is not None))


def _specs(
    store: Store,
    models: Sequence[str | None],
    config: str | None,
    given: Given,
    data: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> list[TrialSpec]:
    """Return one spec per model, all on the data of the configuration, changed by the options."""
    expert = bool(given.get("expert"))
    base = config_from(config, store, other_model=models[0] is not None, expert=expert)
    dataset, images = ({k: v for k, v in part.items() if v is not None} for part in data)
    before = base.get("dataset", {})
    dataset = {**before, **dataset}
    if images or "preprocessing" in before:
        dataset["preprocessing"] = {**before.get("preprocessing", {}), **images}
    if "path" not in dataset:
        raise SpecError(
            "No labelled data are given.",
            hint="Give --data, for example --data sample_models/digits_test.npz.",
        )
    return [
        spec_from_dict(
            {
                **spec_data(base, None if one is None else one.removeprefix("variant:"), given),
                "dataset": dataset,
            }
        )
        for one in models
    ]


def _check_before(store: Store, specs: Sequence[TrialSpec]) -> None:
    """Refuse before the job waits in the queue if no model can be measured; one failure affects no other.

    Raises:
        TunerError: why the first model cannot be measured.
    """
    errors: list[TunerError] = []
    for spec in specs:
        try:
            check_accuracy_before(store, spec, run=run_job)
        except TunerError as error:
            errors.append(error)
    if len(errors) == len(specs):
        raise errors[0]


def _measured(
    store: Store, specs: Sequence[TrialSpec], progress: Progress, *, again: bool
) -> tuple[list[Accuracy | None], list[ErrorRecord]]:
    """Return the result of each spec (None: it failed) and the errors."""

    def task(run: Run) -> Mapping[str, Any]:
        return {"found": [_attempt(store, spec, run, again=again) for spec in specs]}

    try:
        with scheduler(store) as service:
            what = (
                f"accuracy of {specs[0].model.path}"
                if len(specs) == 1
                else f"accuracy of {len(specs)} models"
            )
            status = watch(
                service, service.submit(job_types.task(task, kind="accuracy", what=what)), progress
            )
    except Interrupted as interrupted:
        interrupted.document = documents.accuracies([], [], [])
        raise
    if status.result is None:
        return [None] * len(specs), [status.error] if status.error is not None else []
    found: list[Mapping[str, Any]] = status.result["found"]
    return (
        [store.accuracy(one["id"]) if "id" in one else None for one in found],
        [one["error"] for one in found if "error" in one],
    )


def _attempt(store: Store, spec: TrialSpec, run: Run, *, again: bool) -> dict[str, Any]:
    """Measure one model; its failure does not affect the others."""
    try:
        return {"id": measure_accuracy(store, spec, run=run, reuse=not again).id}
    except Cancelled:
        raise
    except TunerError as error:
        return {"error": record_from_error(error)}


def _exit_code(
    compared: Sequence[Mapping[str, Any]], errors: Sequence[ErrorRecord], *, positive: bool
) -> int:
    if errors:
        return combined_exit_code(errors)
    asked = ("accuracy", "sensitivity") if positive else ("accuracy",)
    verdicts = {one[name]["verdict"] for one in compared for name in asked if one[name] is not None}
    if "WORSE" in verdicts:
        return EXIT_FAILED
    return EXIT_UNDECIDED if "UNDECIDED" in verdicts else 0
