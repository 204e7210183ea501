"""The job `export`: convert a model of PyTorch or TensorFlow to a checked `.onnx` file. Worker side.

`from_pytorch` and `from_tensorflow` open the model, write the draft and run the original; this module does
what both share. The file is written to its own folder next to the target. It is moved only after it is valid,
loads in ONNX Runtime and was compared with the original; a failed export leaves no file.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, Literal, Protocol

from core.wire import Difference, ExportPlan, ExportReply, ModelInfo, Progress
from core.worker.models import inspect_model
from core.worker.models.checking import draft_folder, move_into_place, open_checked

_STAGES = 5
_FOLDER_PREFIX = ".export-"


class Original(Protocol):
    """A model of another framework that is to be converted."""

    @property
    def framework(self) -> str:
        """Its name, for messages."""

    @property
    def opset(self) -> int:
        """The opset that it is converted to."""

    @property
    def weights(self) -> Literal["pretrained", "random", "file"]:
        """Where its weights come from."""

    @property
    def notes(self) -> list[str]:
        """Notes for the reader of the results."""

    def write(self, draft: Path) -> None:
        """Convert the model, and write it to `draft`.

        Raises:
            ModelError: the framework's exporter refuses it.
        """

    def compare(self, session: Any, info: ModelInfo) -> tuple[list[Difference], list[str]]:
        """Run both on the same inputs; return the differences, and notes on what could not be compared.

        Args:
            session: ONNX Runtime's session of the exported model.
            info: facts from `inspect` on the exported model.
        """


def export(plan: ExportPlan, progress: Progress) -> ExportReply:
    """Export, check, compare with the original, and move the file to the plan's target.

    Raises:
        SpecError: the plan asks for something that does not exist or cannot be done, or a package is missing.
        ModelError: the model cannot be loaded or converted, or the result is not valid or cannot be written.
    """
    started = time.perf_counter()
    output = Path(plan["output"])
    with warnings.catch_warnings(), draft_folder(output, _FOLDER_PREFIX) as folder:
        warnings.simplefilter("ignore")  # about the exporters' internals
        progress("model", 0, _STAGES, plan["name"] or Path(plan["path"]).name)
        original = _opened(plan, folder, progress)
        progress("export", 1, _STAGES, f"opset {original.opset}")
        draft = folder / output.name
        original.write(draft)
        progress("check", 2, _STAGES)
        session = open_checked(draft, "the exported model")
        info = inspect_model(str(draft))
        progress("compare", 3, _STAGES, f"ONNX Runtime against {original.framework}")
        differences, notes = original.compare(session, info)
        progress("write", 4, _STAGES, output.name)
        move_into_place(draft, output, [one["location"] for one in info["external_data"]])
    progress("write", _STAGES, _STAGES, output.name)
    return {
        "path": str(output),
        "sha256": info["sha256"],
        "size_bytes": info["size_bytes"],
        "nodes": info["nodes"],
        "op_counts": info["op_counts"],
        "parameters": info["parameters"],
        "opset": info["opset"].get("", original.opset),
        "ir_version": info["ir_version"],
        "differences": differences,
        "weights": original.weights,
        "notes": [*original.notes, *notes],
        "seconds": time.perf_counter() - started,
        "pt2": str(Path(plan["path"]).absolute()) if plan["source"] == "pt2" else "",
    }


def _opened(plan: ExportPlan, folder: Path, progress: Progress) -> Original:
    """Open the model with its framework; the two are never in the same process."""
    if plan["source"] == "tensorflow":
        from core.worker.make.export.from_tensorflow import opened

        return opened(plan, folder)
    from core.worker.make.export.from_pytorch import classifier, pt2

    return classifier(plan, progress) if plan["source"] == "torchvision" else pt2(plan)
