"""The command `accuracy`: accuracy of models on labelled data, and the comparison of two models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from core.api import judging
from core.api.judging import DELTA, Accuracies, summary
from core.api.results import Result
from core.api.session import Session
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
from core.cli.watch import Progress, started
from core.show.sheets import accuracies
from core.spec.text_values import numbers, share, whole_number
from core.wire.errors import ErrorRecord, TunerError


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
    dataset: dict[str, Any] = {
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
    chosen = {name: value for name, value in images.items() if value is not None}
    dataset |= {"preprocessing": chosen} if chosen else {}
    loss = DELTA if delta is None else share("--delta", delta)
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        run = partial(judging.accuracy, models, dataset, config, against=against, delta=loss, again=again)
        result = _finished(session, partial(run, session=session, **given))
    found = result.record
    if json_:
        print_json(result.to_dict())
    elif found.measured:
        for one in {one.id: one for one in found.measured}.values():
            print_sheet(accuracies.accuracy_sheet(one, summary(one)))
            print_lines([""])
        for pair in found.compared:
            print_sheet(accuracies.compared(pair))
    for error in found.errors:
        print_error(error["message"], error["hint"])
    raise typer.Exit(_exit_code(found.compared, found.errors, positive=positive is not None))


def _finished(session: Session, run: Callable[[], Result[Accuracies]]) -> Result[Accuracies]:
    """Return the result of `run`, also one in which every model failed."""
    try:
        return run()
    except TunerError:
        if session.last is None or not session.last.record.errors:
            raise
        return session.last


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
