"""The job that exports a model to ONNX; it refuses invalid requests before a framework is loaded."""

from __future__ import annotations

from pathlib import Path

from core import wire
from core.run import job_types
from core.run.job import Job
from core.wire.catalog import EXPORT_OPSETS, KERAS_SUFFIXES, TORCHVISION_CLASSIFIERS
from core.wire.errors import SpecError, nearest

TIMEOUT_S = 3600.0  # includes a download over a slow connection


def export(plan: wire.ExportPlan) -> Job:
    """Return the job that exports the model of `plan`.

    Raises:
        SpecError: see `check`.
    """
    check(plan)
    return job_types.worker(wire.EXPORT, plan, what=what(plan), timeout_s=TIMEOUT_S)


def what(plan: wire.ExportPlan) -> str:
    """Return the line of text of the job of a plan."""
    return f"export of {plan['name'] or Path(plan['path']).stem}"


def check(plan: wire.ExportPlan) -> None:
    """Refuse a plan that cannot succeed.

    Raises:
        SpecError: there is no such model, or it cannot be written as the plan asks.
    """
    if plan["opset"] not in EXPORT_OPSETS:
        raise SpecError(
            f"`opset` must be {EXPORT_OPSETS[0]} to {EXPORT_OPSETS[-1]}, but got {plan['opset']}.",
            hint="Use 20 unless the target needs another opset.",
        )
    _check_output(Path(plan["output"]))
    _check_source(plan)


def _check_output(output: Path) -> None:
    if output.suffix.lower() != ".onnx":
        raise SpecError(
            f"The output must be an `.onnx` file, but got `{output.name}`.",
            hint="End the output's name in `.onnx`.",
        )
    if output.is_dir():
        raise SpecError(f"The output `{output}` is a folder.", hint="Give a file name in it.")


def _check_source(plan: wire.ExportPlan) -> None:
    if plan["source"] == "torchvision":
        if plan["name"] not in TORCHVISION_CLASSIFIERS:
            raise SpecError(
                f"`{plan['name']}` is not a torchvision classifier, .pt2 file, Keras file or SavedModel "
                "folder."
                f"{nearest(plan['name'], TORCHVISION_CLASSIFIERS)}",
                hint="Give a name such as resnet18, or a file saved with torch.export.",
            )
        return
    source = Path(plan["path"])
    if not source.exists():
        raise SpecError(f"There is no model `{source}`.", hint="Check the path.")
    saved = (source / "saved_model.pb").is_file()
    if plan["source"] == "tensorflow" and not saved and source.suffix.lower() not in KERAS_SUFFIXES:
        raise SpecError(
            f"`{source.name}` is not a `.keras` or `.h5` file or a SavedModel folder.",
            hint="Save the model with `model.save('m.keras')` or `tf.saved_model.save`.",
        )
