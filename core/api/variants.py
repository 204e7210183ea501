"""Variants of models: `transform` creates one by steps, `variants` lists them by family."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.api import arguments
from core.api.models import ModelLike, reference
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session, result_of
from core.api.settings import inputs_of
from core.process.job_worker import Run, refuse_worker
from core.run import job_types
from core.run.job import Job
from core.run.variants import Branch as Branch
from core.run.variants import Made, check_request, family, make_chain, variant_of, verdicts
from core.run.variants import family_configurations as family_configurations
from core.run.variants import lineage as lineage
from core.run.variants import model_facts as model_facts
from core.run.variants import original as original
from core.run.variants import precision_of_model as precision_of_model
from core.run.variants import steps_of as steps_of
from core.run.variants import tree as tree
from core.show import documents, frames
from core.show.sheets import Sheet
from core.show.sheets.variants import Verdicts, listed, transform_sheet
from core.show.words import counted
from core.spec.datasets import DatasetSpec, dataset_from_dict
from core.spec.steps import STEPS, Step, chain_text, step_from_dict
from core.store import ModelRecord, Store, audit
from core.store.library import check_name, resolve_model
from core.wire.errors import ModelError, SpecError, TunerError, WorkerError, unwritable
from core.wire.files import expand_home, written_whole

StepLike = str | Mapping[str, Any] | Step  # kind, such as "fp16"; or its `kind` and `options`
Family = tuple[list[ModelRecord], Verdicts]  # a model with its variants, and how fast they are

# --- transform ----------------------------------------------------------------------------------------------


@arguments.checked()
def transform(
    model: ModelLike,
    steps: StepLike | Sequence[StepLike],
    *,
    calibration: str | os.PathLike[str] | None = None,
    calibration_share: float | None = None,
    name: str = "",
    output: str | os.PathLike[str] | None = None,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Made]:
    """Create a variant of a model by steps; each has its outputs compared with the original's.

    Args:
        model: see `tune`.
        steps: kinds of steps in their order, for example `["simplify", "fp16"]`, or mappings with `kind` and
            `options`.
        calibration: data of the steps that calibrate: an .npz, a folder of images, a CSV. None: random
            values.
        calibration_share: share of the samples to calibrate on, 0 to 1. None: all.
        name: of the variant in the library. Empty: derived from its steps.
        output: file or folder that also receives the files of the variant.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: of the inputs that compare the outputs (`batch_size`, `dims`, `feeds`, `image_mean`,
            `image_std`, `seed`), and `custom_op_libraries`. `dims` are also those of the step `fix_dims`.

    Raises:
        SpecError: the steps are no possible chain, or an option or a setting is invalid.
        ModelError: there is no such model, or a tool cannot process it.
        TunerError: a worker failed, or the job was cancelled; complete variants are kept.
    """
    session = session or default_session()
    workload, libraries = inputs_of(settings)
    chain = [_step(one, workload.dims) for one in _listed_steps(steps)]
    data = _calibration(calibration, chain, calibration_share)
    job = transform_job(
        session,
        reference(model, session),
        chain,
        dims=workload.dims,
        calibration=data,
        name=name,
        workload=workload,
        libraries=libraries,
    )
    found: Any = result_of(session.run(job, on_progress=on_progress, cancel=cancel))
    records = [record for one in found["records"] if (record := session.store.model(one)) is not None]
    written = None if output is None else copy_out(records[-1], Path(output))
    made = Made(records=records, reused=found["reused"], notes=tuple(found["notes"]))
    result = session.last = Result(
        kind="variant",
        id=made.result.content_sha256,
        read=lambda: made,
        document=lambda one: documents.transformed(
            one.records, reused=one.reused, written=written, notes=one.notes
        ),
        content=lambda one: transform_sheet(one.records, one.reused, written, one.notes),
        numbers=lambda one: frames.models(one.records),
    )
    return result


def transform_job(
    session: Session,
    model: str | ModelRecord,
    steps: Sequence[Step],
    *,
    name: str = "",
    **request: Any,
) -> Job:
    """Return the checked job that creates a variant; its result has the hashes of the models (`records`).

    Args:
        session: holds the library.
        model: the model that the first step changes, or its reference.
        steps: at least one.
        name: see `transform`.
        request: `dims`, `calibration`, `workload` and `libraries` of `make_chain`.

    Raises:
        SpecError: the steps are no possible chain, or the name is taken or invalid.
        ModelError: there is no such model.
    """
    store = session.store
    if not steps:
        raise SpecError(
            "No step is given.", hint=f"Give at least one of {', '.join(one.kind for one in STEPS)}."
        )
    if name:
        check_name(name)
    known = _inspected(session, model) if isinstance(model, str) else model
    if known is not None:
        check_request(store, known, steps, name=name, **request)

    def make(run: Run) -> Mapping[str, Any]:
        record = resolve_model(store, model, run=run) if isinstance(model, str) else model
        return make_chain(store, record, steps, run=run, name=name, **request).to_dict()

    of = Path(str(model)).stem if known is None else known.name
    return job_types.task(
        make,
        kind="transform",
        what=f"{chain_text(steps)} of {of}",
        libraries=request.get("libraries", ()),
    )


def _inspected(session: Session, ref: str) -> ModelRecord | None:
    """Return an inspected model before its job waits in the queue; None: it exists, but inspection failed.

    Raises:
        ModelError: the model does not exist.
    """
    try:
        return resolve_model(session.store, ref, run=refuse_worker)
    except WorkerError:
        pass  # not inspected yet
    try:
        return resolve_model(session.store, ref, run=session.inspect)
    except (ModelError, WorkerError):  # the job will report the error and store nothing
        return None


def _listed_steps(steps: Any) -> list[StepLike]:
    found = [steps] if isinstance(steps, Step) else arguments.listed("steps", steps)
    for one in found:
        if not isinstance(one, str | Mapping | Step):
            arguments.refuse("steps", "kinds of steps", one, 'Write for example ["simplify", "fp16"].')
    return found


def _step(one: StepLike, dims: Mapping[str, int]) -> Step:
    if isinstance(one, Step):
        return one
    data: dict[str, Any] = {"kind": one} if isinstance(one, str) else dict(one)
    if isinstance(data.get("kind"), str):
        data["kind"] = data["kind"].replace("-", "_")
    if data.get("kind") == "fix_dims":
        data["options"] = {"dims": dict(dims), **arguments.mapping("options", data.get("options", {}))}
    return step_from_dict(data)


def _calibration(
    path: str | os.PathLike[str] | None, steps: Sequence[Step], part: float | None
) -> DatasetSpec | None:
    if path is None:
        if part is not None:
            raise SpecError("`calibration_share` is given, but no data.", hint="Give `calibration` too.")
        return None
    if not any(one.type.needs_calibration for one in steps):
        kinds = " or ".join(f"`{one.kind}`" for one in STEPS if one.needs_calibration)
        raise SpecError(
            "`calibration` is given, but no step calibrates.", hint=f"Add the step {kinds}, or leave it out."
        )
    here = expand_home(os.fspath(path))
    try:
        there = here.exists()
    except (OSError, ValueError):  # not a valid path
        there = False
    chosen = {} if part is None else {"part": "calibration", "calibration_share": part}
    return dataset_from_dict({"path": str(here.absolute()) if there else os.fspath(path), **chosen})


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
    audit.record("export", f"variant `{record.name}`", file=target.name, ids=[record.content_sha256])
    return [str(new) for _, new in pairs]


# --- the library --------------------------------------------------------------------------------------------


@arguments.checked()
def variants(model: ModelLike | None = None, *, session: Session | None = None) -> Result[list[Family]]:
    """Return models with their variants, with size, error and speed-up.

    Args:
        model: only its family, see `tune`. None: all families with a variant.
        session: see `tune`.

    Raises:
        ModelError: there is no such model.
    """
    session = session or default_session()
    ref = reference(model, session)
    record = None
    if ref is not None:
        record = resolve_model(session.store, ref.removeprefix("variant:"), run=session.inspect)
    found = _families(session.store, record)
    return Result(
        kind="variants",
        id="" if record is None else record.content_sha256,
        read=lambda: found,
        document=documents.variants,
        content=lambda families: Sheet("", [listed(families)]),
        says=lambda families: counted(sum(len(members) for members, _ in families), "model"),
        numbers=lambda families: frames.models(
            [one for members, _ in families for one in members],
            {sha256: one for _, known in families for sha256, one in known.items()},
        ),
    )


def variant_named(store: Store, ref: str) -> ModelRecord:
    """Return the variant of a name or hash, with or without `variant:`.

    Raises:
        SpecError: there is none.
    """
    name = ref.removeprefix("variant:")
    record = store.model(name)
    if record is None or variant_of(record) is None:
        what = "is no variant of a model" if record is None else "is an original, no variant"
        raise SpecError(f"`{name[:80]}` {what}.", hint="See `variants list`.")
    return record


def _families(store: Store, model: ModelRecord | None) -> list[Family]:
    """Return all families with a variant, or that of `model`, with the verdicts of comparisons."""
    if model is not None:
        return _with_verdicts(store, [family(store, model)])
    roots: dict[str, list[ModelRecord]] = {}
    for one in store.models():
        if (variant := variant_of(one)) is not None and variant["root"] not in roots:
            roots[variant["root"]] = family(store, one)
    return _with_verdicts(store, list(roots.values()))


def _with_verdicts(store: Store, families: Sequence[list[ModelRecord]]) -> list[Family]:
    found: list[Family] = []
    for members in families:
        variant = next((facts for one in members if (facts := variant_of(one)) is not None), None)
        if variant is None:
            continue
        try:
            known: Verdicts = verdicts(store, variant["root"])
        except TunerError:  # the list must work despite a damaged comparison
            known = {}
        found.append((members, known))
    return found
