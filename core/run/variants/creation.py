"""Creates variants: each step is one `transform` job of a worker; existing results are reused.

This module has no queue and no thread; callers of `make_chain` pass a `run` that has them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.input_description import describe_inputs
from core.evidence.result_types import InputDescription
from core.process.job_worker import Run, refuse_worker
from core.run.plan import (
    batch_addresses,
    check_dims,
    check_feeds_file,
    dims_from_data,
    feed_plan,
    pinned_libraries,
)
from core.run.variants.records import original, precision_of_model, root_of, steps_of, variant_of
from core.spec import WorkloadSpec
from core.spec.datasets import DatasetSpec, dataset_plan
from core.spec.sizes import image_side, image_sides_in_metadata, image_stride, round_up_to_multiple
from core.spec.steps import Step, check_chain, is_bound
from core.store import ModelRecord, Store
from core.store.library import (
    check_name,
    import_file,
    import_folder,
    inspect_cached,
    model_named,
    name_taken,
    new_folder,
    rename_model,
)
from core.wire.errors import ModelError, SpecError, WorkerError
from core.wire.files import file_stem

CHECK_BATCHES = (1, 2, 4)  # batch sizes of the inputs of the output check, one seed each
ASSUMED_DIM = 8  # assumed size of other free dimensions without a given size, except image sides
ASSUMED_SIDES = (32, 64, 224, ASSUMED_DIM)  # assumed image sides, in the order of attempts
ASSUMED_LENGTHS = (ASSUMED_DIM, 32, 64)  # assumed sizes of a model without image inputs, likewise
TRANSFORM_TIMEOUT_S = 7200.0  # a calibration of a large model on many rows

_ORIGINAL_GONE = "The original no longer exists, so outputs were compared with those of this step's input."

# distributions whose version changes what a step writes
_TOOLS = ("onnx", "onnxslim", "onnxruntime", "onnxruntime-gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Result of `make_chain`: a record for each step; the last one is the final model."""

    records: list[ModelRecord]
    reused: int  # number of records that existed before
    notes: tuple[str, ...] = ()  # remarks on names

    @property
    def result(self) -> ModelRecord:
        """The model at the end of the chain."""
        return self.records[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data with the content hashes of the records."""
        return {
            "records": [one.content_sha256 for one in self.records],
            "reused": self.reused,
            "notes": list(self.notes),
        }


def make_chain(  # noqa: PLR0913 - one parameter for each field of the form
    store: Store,
    record: ModelRecord,
    steps: Sequence[Step],
    *,
    run: Run,
    dims: Mapping[str, int],
    calibration: DatasetSpec | None,
    name: str = "",
    workload: WorkloadSpec | None = None,
    libraries: Sequence[str] = (),
) -> Made:
    """Apply `steps` one after another, each to the result of the step before.

    Args:
        store: holds the library; the new models are added to it.
        record: the model to start from, an original or a variant.
        steps: at least one.
        run: starts a worker, called like `run_job`.
        dims: sizes of free dimensions for the inputs of the output check. Defaults: batch sizes 1, 2 and 4,
            other dimensions 8.
        calibration: data of steps that calibrate; None: they get random values.
        name: of the result, also if it exists already; empty: derived from the original's name and the steps.
        workload: other properties of the inputs of the output check, see `output_check_inputs`.
        libraries: custom operator libraries of the model, by their names in the operator's folder.

    Raises:
        SpecError: `check_request` refuses the request, or there is no data at the path of `calibration`.
        ModelError: a tool cannot process the model, or its result is not valid and is deleted.
        WorkerError: a worker crashed, hung or ran out of memory.
        Cancelled: variants that were complete by then are kept.
    """
    check_request(
        store,
        record,
        steps,
        dims=dims,
        calibration=calibration,
        name=name,
        workload=workload,
        libraries=libraries,
    )
    name, libraries = name.strip(), pinned_libraries(libraries)
    notes: tuple[str, ...] = ()
    if store.model(record.content_sha256) is None:  # the variants will be checked against it
        wanted = record.name
        record = import_file(store, Path(record.path), name=wanted, source="file", run=run)
        if record.name != wanted:
            notes = (
                f"Another model is named `{wanted}`, so the original is `{record.name}` in the library.",
            )
    made: list[ModelRecord] = []
    reused = 0
    for number, step in enumerate(steps, 1):
        task = _Task(
            store=store,
            source=record,
            step=step,
            run=run,
            dims=dims,
            calibration=calibration if step.type.needs_calibration else None,
            name=name if number == len(steps) else "",
            workload=workload,
            libraries=libraries,
        )
        record, known = task.perform()
        made.append(record)
        reused += known
    made[-1], renamed = _called(store, made[-1], name)
    return Made(records=made, reused=reused, notes=(*notes, *renamed))


def check_request(  # noqa: PLR0913 - as `make_chain`
    store: Store,
    record: ModelRecord,
    steps: Sequence[Step],
    *,
    dims: Mapping[str, int],
    calibration: DatasetSpec | None,
    name: str,
    workload: WorkloadSpec | None = None,
    libraries: Sequence[str] = (),
) -> None:
    """Refuse requests that `make_chain` cannot fulfil, without starting a worker.

    Raises:
        SpecError: an invalid chain, unknown dimensions or inputs, an invalid name, the name of another model,
            or a library that may not be loaded.
    """
    check_chain(steps, record.info, done=steps_of(record), libraries=libraries)
    libraries = pinned_libraries(libraries)
    check_dims(dims, record.info, record.name)
    if calibration is not None:
        dataset_plan(calibration)
    if workload is not None:
        check_feeds_file(workload)
    task = _Task(store=store, run=refuse_worker, dims=dims, workload=workload, source=record, step=steps[0])
    task.feeds()
    if not name.strip():
        return
    holder = model_named(store, check_name(name))
    if holder is None:
        return
    known = _known_result(
        store, record, steps, dims=dims, calibration=calibration, workload=workload, libraries=libraries
    )
    if known is None or known.content_sha256 != holder.content_sha256:
        raise name_taken(holder)


def _known_result(
    store: Store,
    record: ModelRecord,
    steps: Sequence[Step],
    *,
    dims: Mapping[str, int],
    calibration: DatasetSpec | None,
    workload: WorkloadSpec | None,
    libraries: Sequence[str],
) -> ModelRecord | None:
    """Existing result of the chain in the library; None: there is none."""
    found: ModelRecord | None = record
    for step in steps:
        if found is None:
            return None
        data = calibration if step.type.needs_calibration else None
        task = _Task(
            store=store,
            run=refuse_worker,
            dims=dims,
            workload=workload,
            source=found,
            step=step,
            calibration=data,
            libraries=libraries,
        )
        found = next(task.known(), None)
    return found


def _called(store: Store, record: ModelRecord, name: str) -> tuple[ModelRecord, tuple[str, ...]]:
    """Rename a result that existed under another name; return the record and a note."""
    if not name or record.name == name:
        return record, ()
    if variant_of(record) is None:
        return record, (f"The steps change nothing; the result is still `{record.name}`.",)
    if store.is_of_another(record.content_sha256):
        return record, (f"It existed as `{record.name}`, and another person of this server named it.",)
    if model_named(store, name) is not None:
        return record, (f"Another model is named `{name}` now, so this one is `{record.name}`.",)
    renamed = rename_model(store, record.content_sha256, name)
    return renamed, (f"It existed as `{record.name}` and is renamed to `{name}`.",)


def output_check_inputs(
    info: wire.ModelInfo,
    dims: Mapping[str, int],
    workload: WorkloadSpec | None = None,
    *,
    assumed: Mapping[str, int] | None = None,
) -> tuple[list[wire.FeedPlan], str]:
    """Return the inputs of the output check, and a note if sizes were assumed.

    Random inputs have several seeds. A file is used once, with the given batch size, else its first row.

    Args:
        info: of the model.
        dims: sizes of its free dimensions; others have those of `assumed`, the batch `CHECK_BATCHES`.
        workload: batch size, source and values of the inputs, and the first seed; None: random inputs.
        assumed: sizes of dimensions without a given size; None: the first of `assumed_sizes`.

    Raises:
        SpecError: a dimension that contradicts the batch size, or an input too large for any machine.
    """
    asked = workload or WorkloadSpec()
    rows = set(batch_addresses(info).values())
    given = {dim: size for dim, size in {**asked.dims, **dims}.items() if dim in info["free_dims"]}
    assumed = assumed_sizes(info, dims, workload)[0] if assumed is None else assumed
    batches: list[int | None] = list(CHECK_BATCHES)
    if asked.batch_size is not None or any(
        isinstance(one, list | tuple) for one in asked.feed_values.values()
    ):
        batches = [asked.batch_size] * len(CHECK_BATCHES)
    elif not rows or rows & given.keys():
        batches = [None] * len(CHECK_BATCHES)  # fixed, or given
        given = {**{dim: next(iter(given[one] for one in rows & given.keys())) for dim in rows}, **given}
    if asked.feeds != "random":
        batches = [asked.batch_size]  # the same rows with every seed
    feeds = [
        feed_plan(
            asked.model_copy(
                update={"batch_size": batch, "dims": {**assumed, **given}, "seed": asked.seed + number}
            ),
            info,
        )
        for number, batch in enumerate(batches)
    ]
    sizes = [f"{dim} {size}" for dim, size in assumed.items()]
    if batches == list(CHECK_BATCHES):
        sizes.insert(0, f"batch {', '.join(map(str, CHECK_BATCHES))}")
    return feeds, f"Outputs were compared at assumed sizes: {'; '.join(sizes)}." if sizes else ""


def assumed_sizes(
    info: wire.ModelInfo, dims: Mapping[str, int], workload: WorkloadSpec | None = None
) -> list[dict[str, int]]:
    """Return candidate sizes for the dimensions without a given size, in the order of attempts.

    A model may accept only some sizes: one that halves its images five times needs multiples of 32. Sizes
    from the file's metadata come first.

    Args:
        info: of the model.
        dims: sizes of its free dimensions.
        workload: other properties of the inputs.
    """
    asked = workload or WorkloadSpec()
    given = {*dims, *asked.dims, *batch_addresses(info).values(), *dims_from_data(asked, info)}
    left = [dim for dim in info["free_dims"] if dim not in given]
    named, stride = image_sides_in_metadata(info), image_stride(info)
    sides = {dim for dim in left if image_side(dim, info)}
    if not sides:
        return [dict.fromkeys(left, size) for size in (ASSUMED_LENGTHS if left else (0,))]
    others = dict.fromkeys(left, ASSUMED_DIM)
    tried = [
        {**others, **{dim: round_up_to_multiple(side, stride) for dim in sides}} for side in ASSUMED_SIDES
    ]
    if named:
        tried.insert(0, {**others, **{dim: named[dim] for dim in sides}})
    return [one for number, one in enumerate(tried) if one not in tried[:number]]


@dataclass(frozen=True, kw_only=True)
class _Task:
    """One step on one model."""

    store: Store
    source: ModelRecord
    step: Step
    run: Run
    dims: Mapping[str, int]
    workload: WorkloadSpec | None
    calibration: DatasetSpec | None = None
    name: str = ""
    libraries: Sequence[str] = ()  # with their hashes

    def tried(self) -> list[tuple[list[wire.FeedPlan], str]]:
        """Candidate inputs; the check uses the first that the model accepts, see `output_check_inputs`."""
        fixed = self.step.options["dims"] if self.step.kind == "fix_dims" else {}
        info, dims = self.source.info, {**self.dims, **fixed}
        return [
            output_check_inputs(info, dims, self.workload, assumed=one)
            for one in assumed_sizes(info, dims, self.workload)
        ]

    def feeds(self) -> list[wire.FeedPlan]:
        """The first candidate inputs; they identify all, because the others follow from them."""
        return self.tried()[0][0]

    def known(self) -> Iterator[ModelRecord]:
        """Yield existing results of this step, without a check that their files are unchanged."""
        data = None if self.calibration is None else dataset_plan(self.calibration)
        key = self._key(self.feeds(), data)
        return (one for one in self.store.models() if (variant_of(one) or {}).get("key") == key)

    def perform(self) -> tuple[ModelRecord, bool]:
        """Return the variant, and whether it existed already."""
        tried = self.tried()
        data = None if self.calibration is None else dataset_plan(self.calibration)
        key = self._key(tried[0][0], data)
        if (known := self._existing_variant(key)) is not None:
            return known, True
        return self._make(key, tried, data), False

    def _key(self, feeds: Sequence[wire.FeedPlan], data: wire.DatasetPlan | None) -> str:
        """Hash of all that determines the written file: content, step, inputs, and versions of the tools."""
        facts: dict[str, Any] = {
            "content": self.source.content_sha256,
            "step": self.step.to_dict(),
            "feeds": feeds if feeds[0]["path"] is None else [feeds, data_digest(Path(feeds[0]["path"]))],
            "calibration": None if data is None else [data, data_digest(Path(data["path"]))],
            "tools": {tool: found for tool in _TOOLS if (found := _version(tool))},
            "machine": platform.node() if is_bound(self.step) else "",
        }
        if self.libraries:
            facts["libraries"] = list(self.libraries)
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def _existing_variant(self, key: str) -> ModelRecord | None:
        for record in self.store.models():
            if (variant_of(record) or {}).get("key") == key and self._is_whole(record):
                return record
        return None

    def _is_whole(self, record: ModelRecord) -> bool:
        """Whether its files still have the content that the library stores."""
        try:
            found = inspect_cached(self.store, Path(record.path), run=self.run)
        except (ModelError, WorkerError):
            return False
        return found["content_sha256"] == record.content_sha256

    def _make(
        self,
        key: str,
        tried: Sequence[tuple[list[wire.FeedPlan], str]],
        data: wire.DatasetPlan | None,
    ) -> ModelRecord:
        reference = root_of(self.store, self.source)
        name = self.name or f"{reference.name}-{_slug([*steps_of(self.source), self.step])}"
        with new_folder(self.store) as folder:
            target = folder / f"{file_stem(name)}{'.ort' if self.step.kind == 'ort_format' else '.onnx'}"
            plan: wire.TransformPlan = {
                "path": self.source.path,
                "output": str(target),
                "step": self.step.kind,
                "options": dict(self.step.options),
                "reference": reference.path,
                "feeds": tried[0][0],
                "calibration": data,
            }
            if len(tried) > 1:
                plan["other_feeds"] = [feeds for feeds, _ in tried[1:]]
            if self.libraries:
                plan["custom_op_libraries"] = list(self.libraries)
            reply = self._run(plan, tried[0][1])
            feeds, note = tried[reply.get("feeds_number", 0)]
            if original(self.store, self.source) is None:
                note = f"{_ORIGINAL_GONE} {note}".strip()
            details = {"variant": self._details(key, reply, note, describe_inputs(feeds, self.source.info))}
            record, new = import_folder(
                self.store,
                folder,
                target.name,
                name=name,
                source="variant",
                details=details,
                run=self.run,
            )
        return record if new else self._with_variant_details(record, details)

    def _run(self, plan: wire.TransformPlan, note: str) -> wire.TransformReply:
        try:
            return self.run(wire.TRANSFORM, plan, timeout_s=TRANSFORM_TIMEOUT_S)
        except (ModelError, SpecError) as error:
            if not note:
                raise
            hint = f"If the model needs other sizes, set them. {error.hint} {note}"
            raise type(error)(error.message, hint=hint.strip()) from error

    def _with_variant_details(self, record: ModelRecord, details: dict[str, Any]) -> ModelRecord:
        """Add the variant details to an existing own model, unless it is an ancestor in its own chain."""
        content = record.content_sha256
        if variant_of(record) or content in self._ancestors() or self.store.is_of_another(content):
            return record
        record = replace(record, details={**record.details, **details})
        self.store.put_model(record)
        return record

    def _ancestors(self) -> set[str]:
        before = variant_of(self.source) or {}
        return {self.source.content_sha256, before.get("root", ""), before.get("parent", "")}

    def _details(
        self, key: str, reply: wire.TransformReply, note: str, shown: list[InputDescription]
    ) -> dict[str, Any]:
        source, before = self.source, variant_of(self.source) or {}
        steps = [*steps_of(source), self.step]
        own = None if self.calibration is None else self.calibration.to_dict()
        brought = {"libraries": found} if (found := reply.get("libraries")) else {}
        return {
            **brought,
            "key": key,
            "root": before.get("root", source.content_sha256),
            "root_name": before.get("root_name", source.name),
            "parent": source.content_sha256,
            "parent_name": source.name,
            "steps": [one.to_dict() for one in steps],
            "precision": self.step.type.precision or precision_of_model(source),
            "made_at": time.time(),
            "calibration": own or before.get("calibration"),
            "calibrated_rows": reply.get("calibrated") or before.get("calibrated_rows", ""),
            "tool": reply["tool"],
            "tool_version": reply["tool_version"],
            "onnxruntime": _version("onnxruntime") or _version("onnxruntime-gpu"),
            "seconds": reply["seconds"],
            "nodes_before": reply["nodes_before"],
            "nodes_after": reply["nodes_after"],
            "size_before_bytes": reply["size_before_bytes"],
            "size_bytes": reply["size_bytes"],
            "error": dict(reply["error"]),
            "error_seeds": reply["error_seeds"],
            "checks": [dict(one) for one in reply["checks"]],
            "notes": [*reply["notes"], *([note] if note else [])],
            "hardware_bound": reply["hardware_bound"] or before.get("hardware_bound", ""),
            "facts": dict(reply["facts"]),
            "fed": shown,
            "files": [Path(one).name for one in reply["files"]],
        }


def _slug(steps: Sequence[Step]) -> str:
    return "+".join(one.kind for one in steps)


def _version(distribution: str) -> str:
    with suppress(PackageNotFoundError):
        return version(distribution)
    return ""


def data_digest(path: Path) -> str:
    """Return a hash of the data at `path`: of a file's content; of names, sizes and times in a folder.

    Raises:
        SpecError: the data cannot be read.
    """
    digest = hashlib.sha256()
    try:
        if path.is_file():
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        for one in sorted(path.rglob("*")):
            facts = one.stat()
            digest.update(f"{one.relative_to(path)}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
    except OSError as error:
        raise SpecError(
            f"The data in `{path}` cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from error
    return digest.hexdigest()
