"""The command `transform`: creates a variant by steps in the order of their flags, each with output check.

Flags and options of the steps come from the table in `core.spec.steps`, so a new step needs no code here.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from core.api import variants
from core.cli.help_groups import Grouped
from core.cli.options import Given, ModelHere, with_input_options
from core.cli.output import Json, Quiet, Wide, check_output_path, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, started
from core.spec.steps import STEPS, Step, StepType, step_type
from core.spec.text_values import share
from core.wire.errors import SpecError

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
    given["dims"] = dims
    steps = chain(kinds, option or [], dims)
    part = None if calibration_share is None else share("--calibration-share", calibration_share)
    if output is not None:
        output.is_dir()  # refuses an invalid path before creating anything
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        result = variants.transform(
            model,
            steps,
            calibration=calibration,
            calibration_share=part,
            name=name,
            output=output,
            session=session,
            **given,
        )
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())


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
