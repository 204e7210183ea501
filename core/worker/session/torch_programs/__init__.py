"""The PyTorch programs behind exported models: torchvision classifiers and `.pt2` files. Worker side.

`export` writes an `.onnx` file of one; `rebuild` makes the same program again from the export's record, so
that PyTorch can be compared with the file. Nothing here needs onnx or onnxruntime. A `.pt2` file can hold
pickled objects: loading one can run code of its author.
"""

from __future__ import annotations

import logging
import pickle
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about torch's own internals
    import torch
    from torch.utils import _pytree as pytree

    from core.worker.session.torch_programs.classifiers import build

from core import wire
from core.wire.errors import ModelError
from core.wire.files import sha256_of

# Exceptions of torch for a program that it cannot load, trace, compile or run: no common base.
TORCH_ERRORS = (
    RuntimeError,  # torch.onnx and the compilers raise subclasses of it
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    AssertionError,
    NotImplementedError,
    zipfile.BadZipFile,
    EOFError,
    pickle.UnpicklingError,
)
SAVE_PT2 = "Save it with `torch.export.save(torch.export.export(model, inputs), 'model.pt2')`."

_MAX_LINE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A PyTorch program, and the positions of the `.onnx` file's tensors in its arguments."""

    run: Any  # torch.nn.Module
    leaves: list[Any]  # the arguments, flat; every tensor is an input of the file, in its order
    layout: Any  # TreeSpec of (args, kwargs)
    notes: list[str]

    def arguments(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs with `tensors` in place of the sample's.

        Raises:
            ModelError: the program takes another number of tensors.
        """
        places = [index for index, one in enumerate(self.leaves) if isinstance(one, torch.Tensor)]
        if len(places) != len(tensors):
            raise ModelError(
                f"The PyTorch program takes {len(places)} tensors, but the exported model {len(tensors)}.",
                hint="Compare it with other settings of ONNX Runtime instead.",
            )
        fed = list(self.leaves)
        for index, tensor in zip(places, tensors, strict=True):
            fed[index] = tensor
        args, kwargs = pytree.tree_unflatten(fed, self.layout)
        return tuple(args), dict(kwargs)


def rebuild(source: wire.TorchSource) -> Program:
    """Rebuild the program that `source` describes, with the exported weights.

    Raises:
        SpecError: torchvision has no such classifier.
        ModelError: the `.pt2` is missing, has changed, or cannot be loaded; or the trained weights are no
            longer available.
    """
    return _classifier(source) if source["source"] == "torchvision" else _from_pt2(source)


def _classifier(source: wire.TorchSource) -> Program:
    built = build(
        source["name"],
        pretrained=source["weights"] == "pretrained",
        seed=source["seed"],
        image_size=source["image_size"],
        progress=_silent,
        biases=source["biases"],
    )
    if built.weights != source["weights"]:
        raise ModelError(
            f"`{source['name']}` was exported with trained weights, but {built.notes[-1]}.",
            hint="Connect the network, or export the model with random weights.",
        )
    leaves, layout = pytree.tree_flatten(((torch.empty(0),), {}))
    notes = ["Its creation, in time and memory, includes drawing the random weights of the export again."]
    random = built.weights == "random"
    return Program(run=built.module, leaves=leaves, layout=layout, notes=notes if random else [])


def _silent(stage: str, done: int, total: int, text: str = "") -> None:
    """A comparison shows its own progress."""


def _from_pt2(source: wire.TorchSource) -> Program:
    path = Path(source["path"])
    if path.is_file() and source["sha256"] != file_sha256(path):
        raise ModelError(
            f"`{path}` is not the file that was exported; it has changed since.",
            hint="Export it again.",
        )
    program = load_pt2(path)
    if program.example_inputs is not None:
        leaves, layout = pytree.tree_flatten(program.example_inputs)
    else:  # no sample tells tensors from constants: every argument must be an input
        layout = program.call_spec.in_spec
        leaves = [torch.empty(0)] * layout.num_leaves
    return Program(run=program.module(), leaves=leaves, layout=layout, notes=[])


def load_pt2(path: Path) -> torch.export.ExportedProgram:
    """Load a file written by `torch.export.save`.

    Raises:
        ModelError: there is no such file, or it has another format.
    """
    if not path.is_file():
        raise ModelError(f"There is no file `{path}`.", hint="Check the path of the `.pt2` file.")
    if path.suffix != ".pt2":  # torch accepts no other suffix either
        raise ModelError(f"`{path.name}` is not a `.pt2` file.", hint=SAVE_PT2)
    logging.getLogger("torch.export").setLevel(logging.ERROR)  # it logs a traceback, then raises
    try:
        return torch.export.load(path)
    except (*TORCH_ERRORS, OSError) as error:
        raise ModelError(
            f"`{path.name}` cannot be loaded as a `torch.export` program: {first_line(error)}", hint=SAVE_PT2
        ) from None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of the file at `path`.

    Raises:
        ModelError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return sha256_of(file)
    except OSError as error:
        raise ModelError(
            f"`{path}` cannot be read: {error.strerror or error}.", hint="Check the path of the file."
        ) from error


def first_line(error: Exception) -> str:
    """Return the first non-empty line of an error's text."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)[:_MAX_LINE]
