"""The command `transform`: creates a variant by steps in the order of their flags, each with output check.

Flags and options of the steps come from the table in `core.spec.steps`, so a new step needs no code here.
"""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from core.api.settings import inputs_of
from core.cli.help_groups import Grouped
from core.cli.options import Given, ModelHere, with_input_options
from core.cli.output import Json, Quiet, Wide, check_output_path, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, job_result, scheduler, watch
from core.process.job_worker import Run, refuse_worker
from core.run.job_types import task
from core.run.variants import check_request, make_chain, variant_of
from core.show import documents
from core.show.sheets.variants import transform_sheet
from core.spec.datasets import DatasetSpec, dataset_from_dict
from core.spec.steps import STEPS, Step, StepType, step_type
from core.spec.text_values import share
from core.store import ModelRecord, Store
from core.store.library import check_name, resolve_model
from core.wire.errors import ModelError, SpecError, WorkerError, unwritable
from core.wire.files import expand_home, written_whole

_ORDER = "ortune.steps"  # key in the context: kinds of the steps in the order of their flags
_FLAGS = {one.flag: one.kind for one in STEPS}


class InOrder(Grouped):
    """A command that records the order and the number of its step flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line, and store the kinds of the steps in the context."""
        own = args[: args.index("--")] if "--" in args else args
        ctx.meta[_ORDER] = [_FLAGS[one] for one in own if one in _FLAGS]
        return super().parse_args(ctx, args)


def with_steps(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes `kinds: list[str]`, a flag for each step of the table."""
    own = inspect.signature(command, eval_str=True)
    kept = [one for name, one in own.parameters.items() if name != "kinds"]
    added = [_parameter(one) for one in STEPS]

    @wraps(command)
    def run(ctx: typer.Context, **values: Any) -> None:
        for one in STEPS:
            values.pop(one.kind)
        command(**values, kinds=ctx.meta[_ORDER])

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *kept, *added]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _parameter(step: StepType) -> inspect.Parameter:
    names = ", ".join(one.name for one in step.options)
    text = f"{step.help} Options: {names}." if names else step.help
    annotation = Annotated[
        bool, typer.Option(step.flag, help=text, show_default=False, rich_help_panel="Steps")
    ]
    return inspect.Parameter(step.kind, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)


@with_steps
@with_input_options
def transform(
    model: ModelHere,
    *,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            help="Size of a free dimension, for --fix-dims and for comparing outputs. Repeatable.",
            metavar="NAME=N",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="Option of a step, for example `int8-static.calibrate_method=Entropy`. Repeatable.",
            metavar="STEP.NAME=VALUE",
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            help="Data to calibrate --int8-static on: an .npz, a folder of images or a CSV. "
            "Default: random values, with a warning.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    calibration_share: Annotated[
        str | None,
        typer.Option(
            help="Calibrate on this share of the samples; each class keeps its share. `accuracy "
            "--calibration-share` with the same share uses the others.",
            metavar="SHARE|N%",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(help="Name of the variant in the library.", metavar="NAME", show_default=False)
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Also copy the files of the variant to this path.",
            metavar="OUT",
            show_default=False,
        ),
    ] = None,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    kinds: list[str],
    given: Given,
) -> None:
    """Create a variant of a model: steps in the order of their options.

    ORTune compares the outputs of each step with the original, and marks them if the error exceeds the
    tolerance of their precision. It reuses variants that exist already. The variants are stored in the
    library: compare one with `compare MODEL --candidate variant:NAME`.
    """
    if output is not None:
        check_output_path(output)
    dims = sizes(dim or [])
    steps = chain(kinds, option or [], dims)
    part = None if calibration_share is None else share("--calibration-share", calibration_share)
    data = _calibration(calibration, steps, part)
    workload, libraries = inputs_of({**given, "dims": dims})
    if output is not None:
        output.is_dir()  # refuses an invalid path before creating anything
    store = Store()
    request: dict[str, Any] = {
        "dims": dims,
        "calibration": data,
        "name": name,
        "workload": workload,
        "libraries": libraries,
    }
    _check_before(store, model, steps, **request)
    with scheduler(store) as service:

        def make(run: Run) -> dict[str, Any]:
            record = resolve_model(store, model, run=run)
            made = make_chain(store, record, steps, run=run, **request)
            return made.to_dict()

        job = task(make, kind="transform", what=f"transform {Path(model).stem}")
        status = watch(service, service.submit(job), Progress(sys.stderr, quiet=quiet))
    made = job_result(status, json_=json_)
    records = [record for one in made["records"] if (record := store.model(one)) is not None]
    written = None if output is None else copy_out(records[-1], output)
    if json_:
        print_json(
            documents.transformed(records, reused=made["reused"], written=written, notes=made["notes"])
        )
    else:
        print_sheet(transform_sheet(records, made["reused"], written, made["notes"]))


def _check_before(store: Store, model: str, steps: Sequence[Step], **request: Any) -> None:
    """Refuse steps that are known to be impossible before the job waits in the queue."""
    if request["name"]:
        check_name(request["name"])
    if (record := inspected_model(store, model)) is not None:
        check_request(store, record, steps, **request)


def inspected_model(store: Store, ref: str) -> ModelRecord | None:
    """Return an inspected model before its job waits in the queue; None: it exists, but inspection failed.

    Raises:
        ModelError: the model does not exist.
    """
    try:
        return resolve_model(store, ref, run=refuse_worker)
    except WorkerError:
        pass  # not inspected yet
    try:
        return resolve_model(store, ref)
    except (ModelError, WorkerError):  # the job will report the error and store nothing
        return None


def sizes(texts: Sequence[str]) -> dict[str, int]:
    """Read the sizes of `--dim`.

    Raises:
        SpecError: a text is not NAME=N, or a dimension occurs twice.
    """
    found: dict[str, int] = {}
    for text in texts:
        for name, number in step_type("fix_dims").option("dims").parse(text).items():
            if name in found:
                raise SpecError(f"`--dim {name}` is given twice.", hint="Give it once.")
            found[name] = number
    return found


def chain(kinds: Sequence[str], options: Sequence[str], dims: Mapping[str, int]) -> list[Step]:
    """Return the steps of the flags and `--option`.

    Args:
        kinds: of the steps, in order.
        options: texts STEP.NAME=VALUE; each applies to every step of its kind.
        dims: sizes for `fix_dims`, unless its own option is given.

    Raises:
        SpecError: there is no step, or an option is invalid, of no step, or of a step outside the chain.
    """
    if not kinds:
        raise SpecError("No step is given.", hint=f"Give at least one of {', '.join(_FLAGS)}.")
    given: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    for text in options:
        kind, name, value = _option(text)
        if kind not in given:
            raise SpecError(
                f"`--option {text[:80]}` is for a step that is not given.",
                hint=f"Add `{step_type(kind).flag}`, or remove the option.",
            )
        if name in given[kind]:
            raise SpecError(f"`--option {kind}.{name}` is given twice.", hint="Give it once.")
        given[kind][name] = value
    if "fix_dims" in given:
        given["fix_dims"].setdefault("dims", dict(dims))
    return [Step(kind, given[kind]) for kind in kinds]


def _option(text: str) -> tuple[str, str, Any]:
    """Split `int8-static.reduce_range=on` into kind, option and value."""
    address, equals, value = text.partition("=")
    kind, dot, name = address.strip().removeprefix("--").partition(".")
    if not (equals and dot and name):
        raise SpecError(
            f"`--option` takes STEP.NAME=VALUE, but got `{text[:80]}`.",
            hint="Write for example `int8-static.per_channel=on`.",
        )
    known = step_type(kind.replace("-", "_"))
    plain = name.replace("-", "_")
    return known.kind, plain, known.option(plain).parse(value)


def _calibration(path: str | None, steps: Sequence[Step], part: float | None) -> DatasetSpec | None:
    if path is None:
        if part is not None:
            raise SpecError("`--calibration-share` is given, but no data.", hint="Add `--calibration FILE`.")
        return None
    if not any(one.type.needs_calibration for one in steps):
        flags = " or ".join(one.flag for one in STEPS if one.needs_calibration)
        raise SpecError(
            "`--calibration` is given, but no step calibrates.",
            hint=f"Add {flags}, or remove the option.",
        )
    here = expand_home(path)
    try:
        there = here.exists()
    except (OSError, ValueError):  # not a valid path
        there = False
    chosen = {} if part is None else {"part": "calibration", "calibration_share": part}
    return dataset_from_dict({"path": str(here.absolute()) if there else path, **chosen})


def copy_out(record: ModelRecord, output: Path) -> list[str]:
    """Copy a variant with all its files, and return the written files, the model first.

    Args:
        record: the variant.
        output: a file, or an existing folder.

    Raises:
        SpecError: it cannot be written, or its suffix does not match the format of the variant.
    """
    source = Path(record.path)
    target = output / source.name if output.is_dir() else output
    if target.suffix.lower() != source.suffix.lower():
        raise SpecError(
            f"`{target.name}` must end in `{source.suffix}`, which tells ONNX Runtime the format.",
            hint=f"Name it `{target.stem}{source.suffix}`.",
        )
    beside = [one["location"] for one in record.info["external_data"]]
    beside += (variant_of(record) or {}).get("files", [])
    pairs = [(source, target)]
    pairs += [(source.parent / one, target.parent / one) for one in dict.fromkeys(beside)]
    try:
        for old, new in pairs:
            new.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(new) as part:
                shutil.copyfile(old, part)
    except OSError as error:
        raise unwritable(target, error) from None
    return [str(new) for _, new in pairs]
