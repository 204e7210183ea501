"""Models: references to them, `inspect` and `convert`.

A model is a path, a name, bytes or an `onnx.ModelProto`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, overload

from core import wire
from core.api import arguments
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session, result_of
from core.process.job_worker import Run
from core.run import converting, job_types
from core.run.converting import export as convert_job
from core.run.job import Job
from core.run.plan import batch_addresses, unsupported_input
from core.run.sizes import Size, default_sizes
from core.show import documents
from core.show.sheets import Fact, Sheet, models_and_machines, variants
from core.show.words import counted
from core.spec.sizes import options
from core.store import ModelRecord, Store
from core.store.library import (
    NOT_CHECKED,
    check_loads,
    import_file,
    import_files,
    import_folder,
    new_folder,
    resolve_model,
    sample_models,
)
from core.wire.catalog import DEFAULT_OPSET, KERAS_SUFFIXES, RANDOM_WEIGHTS_NOTE, SAMPLE_EXPORTS
from core.wire.errors import SpecError
from core.wire.files import made_private

FROM_MEMORY = "model"  # name of a model that came as bytes; the library adds a number


class Serializable(Protocol):
    """What `onnx.ModelProto` offers; ORTune itself never loads onnx in the calling process."""

    def SerializeToString(self) -> bytes:  # the name of protobuf
        """Return the bytes of the ONNX file."""
        ...


ModelLike = str | os.PathLike[str] | bytes | Serializable | Result[Any]


@overload
def reference(model: None, session: Session) -> None: ...


@overload
def reference(model: ModelLike, session: Session) -> str: ...


def reference(model: ModelLike | None, session: Session) -> str | None:
    """Return the reference of a model; one from memory is added to the library, once for its content.

    Args:
        model: path, library name, sample name or hash; the bytes of an ONNX file; an `onnx.ModelProto`; or
            the result of a model or a variant.
        session: holds the library.

    Raises:
        ModelError: the bytes are no ONNX model.
    """
    if model is None:
        return None
    read = arguments.model("model", model)
    if isinstance(read, str):
        return read
    content = read if isinstance(read, bytes) else read.SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{FROM_MEMORY}.onnx"
        path.write_bytes(content)
        return import_files(session.store, [path], name=FROM_MEMORY, move=True, run=session.inspect)[0].path


# --- inspect ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedModel:
    """A model of the library, with what it needs to run."""

    model: ModelRecord
    loads: str | None  # how ONNX Runtime loads it; None: not loaded
    not_fed: str  # why ORTune cannot run it; empty: it can
    suggested: str  # options with a size for every free dimension
    sizes: Mapping[str, Size]  # of the free dimensions except the batch, with their sources


@arguments.checked()
def inspect(
    model: ModelLike,
    *,
    load: bool = False,
    custom_op_libraries: Sequence[str] = (),
    session: Session | None = None,
) -> Result[InspectedModel]:
    """Return inputs, outputs, dimensions and operators of a model.

    Args:
        model: see `tune`.
        load: also load it with ONNX Runtime on the CPU, in a worker.
        custom_op_libraries: that bring operators of the model, by their names in the operator's folder.
        session: see `tune`.

    Raises:
        ModelError: there is no such model, or it cannot be read or loaded.
        SpecError: libraries are given, but nothing is loaded.
    """
    if custom_op_libraries and not load:
        raise SpecError(
            f"The custom operator library `{custom_op_libraries[0][:80]}` is given, but nothing is loaded.",
            hint="Turn on `load`, or leave the library out.",
        )
    session = session or default_session()
    record = resolve_model(session.store, reference(model, session), run=session.inspect)
    suggested, sizes = _suggestion(record, session.store)
    loads = None
    if load:
        loads = check_loads(Path(record.path), libraries=custom_op_libraries, run=session.inspect)
    found = InspectedModel(
        model=record, loads=loads, not_fed=unsupported_input(record.info), suggested=suggested, sizes=sizes
    )
    result = session.last = Result(
        kind="model",
        id=record.content_sha256,
        read=lambda: found,
        document=_model_document,
        content=_model_sheet,
        says=lambda one: f"{one.model.name}, {counted(one.model.info['nodes'], 'node')}",
    )
    return result


def _suggestion(record: ModelRecord, store: Store) -> tuple[str, dict[str, Size]]:
    """Return options with a size for every free dimension, and the sources of all sizes but the batch."""
    info = record.info
    rows = set(batch_addresses(info).values())
    sizes = default_sizes([dim for dim in info["free_dims"] if dim not in rows], record, store)
    batch = "--batch-size 1" if info["batch_dim"] is not None else ""
    return f"{batch} {options({dim: one.size for dim, one in sizes.items()})}".strip(), sizes


def _model_document(found: InspectedModel) -> Mapping[str, Any]:
    return documents.model(
        found.model, loads=found.loads, not_fed=found.not_fed, suggested=found.suggested, sizes=found.sizes
    )


def _model_sheet(found: InspectedModel) -> Sheet:
    facts = []
    if found.loads or not found.not_fed:
        facts.append(Fact("runs", found.loads or f"{NOT_CHECKED} (--load checks it)"))
    if found.not_fed:
        facts.append(Fact("not fed", f"ORTune cannot run it. {found.not_fed}", "orange"))
    more = [*facts, *variants.creation_facts(found.model)]
    return models_and_machines.model(found.model.name, found.model.info, more)


# --- convert ------------------------------------------------------------------------------------------------


@arguments.checked(source=arguments.path)
def convert(
    source: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    opset: int = DEFAULT_OPSET,
    dynamic_batch: bool = True,
    pretrained: bool = True,
    seed: int = 0,
    image_size: int | None = None,
    external_data: Literal["auto", "always", "never"] = "auto",
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[wire.ExportReply]:
    """Convert a PyTorch or TensorFlow model to ONNX, compare the outputs, and add it to the library.

    Args:
        source: name of a torchvision classifier, a .pt2 or .keras file, or a SavedModel folder.
        output: the .onnx file to write. None: named after the source, in the working folder.
        opset: of ONNX.
        dynamic_batch: keep the batch dimension free.
        pretrained: download trained weights if possible; else use seeded random weights.
        seed: of random weights, and of the inputs that compare the outputs.
        image_size: side of the images in pixels. None: as the weights were trained.
        external_data: store the weights in a separate file.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.

    Raises:
        SpecError: there is no such model, or it cannot be written as requested.
        TunerError: the conversion failed or was cancelled.
    """
    source = os.fspath(source)
    kind = source_kind(source)
    plan: wire.ExportPlan = {
        "source": kind,
        "name": source if kind == "torchvision" else "",
        "path": "" if kind == "torchvision" else source,
        "output": str(output or _default_output(source)),
        "opset": opset,
        "dynamic_batch": dynamic_batch,
        "pretrained": pretrained,
        "seed": seed,
        "image_size": image_size,
        "external_data": external_data,
    }
    job = convert_job(plan)
    session = session or default_session()
    reply: Any = result_of(session.run(job, on_progress=on_progress, cancel=cancel))
    record = import_file(
        session.store,
        Path(reply["path"]),
        name=Path(reply["path"]).stem,
        source="export",
        note=RANDOM_WEIGHTS_NOTE if reply["weights"] == "random" else "",
        details=dict(reply),
        run=session.inspect,
    )
    result: Result[wire.ExportReply]
    result = session.last = Result(
        kind="conversion",
        id=record.content_sha256,
        read=lambda: reply,
        document=lambda one: {**documents.COMPLETE, **one},
        content=models_and_machines.conversion_sheet,
    )
    return result


def library_job(session: Session, plan: wire.ExportPlan, name: str) -> Job:
    """Return the job that converts a model and adds it to the library.

    Its result has `model`, the content hash, and `new`: whether the library did not have this content.

    Args:
        session: holds the library.
        plan: a relative `output` names the file within the library.
        name: for the library.

    Raises:
        SpecError: as `convert`.
    """
    converting.check(plan)
    store = session.store

    def work(run: Run) -> Mapping[str, Any]:
        with new_folder(store) as folder:
            output = folder / plan["output"]
            made_private(output.parent)
            asked = {**plan, "output": str(output)}
            reply = run(wire.EXPORT, asked, timeout_s=converting.TIMEOUT_S)
            if output.parent == folder:
                record, new = import_folder(
                    store, folder, output.name, name=name, source="export", details={}, run=run
                )
            else:
                record, new = import_file(store, output, name=name, source="export", run=run), True
        note = RANDOM_WEIGHTS_NOTE if reply["weights"] == "random" else ""
        if not store.is_of_another(record.content_sha256):
            store.put_model(replace(record, note=note, details={**reply, "path": record.path}))
        return {"model": record.content_sha256, "new": new}

    return job_types.task(work, kind=wire.EXPORT, what=converting.what(plan))


def source_kind(source: str) -> Literal["torchvision", "pt2", "tensorflow"]:
    """Return the kind of `wire.ExportPlan` of a source; a source that is not a file is a name."""
    lower = source.lower()
    if lower.endswith(".pt2"):
        return "pt2"
    saved_model = (Path(source) / "saved_model.pb").is_file()
    return "tensorflow" if saved_model or lower.endswith(KERAS_SUFFIXES) else "torchvision"


def _default_output(source: str) -> Path:
    """Return the library's folder for a sample model, else the working folder."""
    if source in SAMPLE_EXPORTS:
        path = next(Path(one.path) for one in sample_models() if one.name == source and one.plan is not None)
        made_private(path.parent)
        return path
    return Path(f"{Path(source).stem}.onnx")
