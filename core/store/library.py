"""Model library: resolves names to files, caches inspections, imports, renames and removes models.

A reference is a path, a name of the library, a sample's name or the first digits of a hash. This module opens
no model: a worker inspects it, and the result is cached until one of the model's files changes. Uploaded
files are in a folder named after their content hash, so duplicates are recognised whatever their name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from core import wire
from core.evidence.measurement import Trial
from core.process import scratch
from core.process.job_worker import Run, run_job
from core.store import MIN_PREFIX, ModelRecord, Stamps, Store, audit, home
from core.wire import variables
from core.wire.catalog import DEFAULT_OPSET, SAMPLE_EXPORTS
from core.wire.errors import HOME_HINT, ModelError, SpecError, StoreError, WorkerError, nearest
from core.wire.files import ROOT, IrregularFile, expand_home, refuse_irregular, sync

INSPECT_TIMEOUT_S = 600.0  # hashing some gigabytes of weights from a slow disk
INSPECTION = 1  # version of the reply of `inspect`; increase it when the reply changes, to clear the cache
MAX_FOLDER_MODELS = 1000  # limit for a folder that is a whole disk by mistake
MODEL_SUFFIXES = (".onnx", ".ort")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleModel:
    """A model included in ORTune, or created by the `export` job on first use."""

    name: str  # "digits_cnn", "resnet18"
    path: str  # of the existing or future file
    exists: bool
    plan: wire.ExportPlan | None  # plan to create it; None: a file included in ORTune


# --- inspecting ---------------------------------------------------------------------------------------------


def inspect_cached(
    store: Store, path: Path, *, run: Run = run_job, any_version: bool = False
) -> wire.ModelInfo:
    """Return the facts of the model file at `path`; a worker inspects it only if one of its files changed.

    Args:
        store: holds the cache.
        path: of the model.
        run: starts the worker.
        any_version: also inspect a model that is too new for ORTune's own ONNX Runtime.

    Raises:
        ModelError: the file is missing, or is no model that this ONNX Runtime can load.
        WorkerError: the worker crashed or hung.
    """
    path = path.absolute()
    before = _stamps(path, [])
    cached = store.cached_info(str(path))
    if cached is not None and cached[0] == _stamps(path, _locations(cached[1])):
        return cached[1]
    info = _inspect(path, run, any_version=any_version)
    after = _stamps(path, _locations(info))
    if after[str(path)] == before[str(path)]:  # else it changed meanwhile: inspect it again next time
        _cache(store, path, after, info)
    return info


def check_loads(path: Path, *, libraries: Sequence[str] = (), run: Run = run_job) -> str:
    """Load the model at `path` in a worker and return the result as a sentence.

    Args:
        path: of the model.
        libraries: custom operator libraries of the model, by their names in the operator's folder.
        run: starts a worker.

    Raises:
        ModelError: ONNX Runtime refuses it.
        SpecError: a library may not or cannot be loaded.
        WorkerError: the worker crashed, hung or ran out of memory.
    """
    asked = {"path": str(path.absolute()), "custom_op_libraries": list(libraries)}
    reply = run(wire.LOAD_CHECK, asked, timeout_s=INSPECT_TIMEOUT_S)
    brought = ", ".join(f"`{name}` ({digest})" for name, digest in reply["libraries"].items())
    with_them = f" with native code of {brought}" if brought else ""
    return f"ONNX Runtime {reply['version']} loads it on the CPU{with_them}; inference was not tested"


NOT_CHECKED = "not checked whether it runs"  # result of an inspection, which loads no model


def _cache(store: Store, path: Path, stamps: Stamps, info: wire.ModelInfo) -> None:
    with contextlib.suppress(StoreError):  # without a cache the next inspection is only slower
        store.put_info(str(path), stamps, info)


def _locations(info: wire.ModelInfo) -> list[str]:
    return [one["location"] for one in info["external_data"]]


def _stamps(path: Path, locations: Sequence[str]) -> Stamps:
    """Size, modification time and inode of the model and of its external data, to detect changed files."""
    stamps: Stamps = {"": [INSPECTION]}
    for file in (path, *(path.parent / location for location in locations)):
        try:
            facts = file.stat()
        except OSError as error:
            if file == path:
                raise _no_file(path, error) from error
            stamps[str(file)] = []  # the inspection reports the missing file
        else:
            stamps[str(file)] = [facts.st_size, facts.st_mtime_ns, facts.st_ino]
    return stamps


def _no_file(path: Path, error: OSError) -> ModelError:
    return ModelError(
        f"The model `{path}` cannot be read: {error.strerror or error}.",
        hint="Check the path, or choose a model of the library.",
    )


# --- resolving references -----------------------------------------------------------------------------------


def resolve_model(store: Store, ref: str, *, run: Run = run_job, any_version: bool = False) -> ModelRecord:
    """Find the model that `ref` names and return its current facts.

    Args:
        store: holds the library.
        ref: a path (also one relative to ORTune's own folder), a name of the library, a sample's name, or 6
            or more digits of a hash.
        run: starts the worker that inspects, called like `run_job`.
        any_version: also find a model that is too new for ORTune's own ONNX Runtime.

    Returns:
        The library's record if it has this content, else a record with source "file" that is not stored.

    Raises:
        ModelError: no model has that name; its file is missing, has another content or cannot be loaded.
    """
    if (path := _as_path(ref)) is not None:
        return _record_of_file(store, path, run, any_version=any_version)
    known = store.model(ref)
    if known is None:
        raise _unknown(store, ref)
    if not Path(known.path).is_file():
        raise ModelError(
            f"The file of model `{known.name}` is gone: `{known.path}`.",
            hint="Put it back, or remove the model from the library and add it again.",
        )
    record = _record_of_file(store, Path(known.path), run, any_version=any_version)
    by_hash = ref not in (known.name, known.path)
    if by_hash and record.content_sha256 != known.content_sha256:
        raise ModelError(
            f"`{known.path}` holds another model now: `{record.content_sha256[:12]}` instead of "
            f"`{known.content_sha256[:12]}`.",
            hint="Restore the file, or choose the model by its path.",
        )
    if record.content_sha256 != known.content_sha256:  # the file has changed: update the library
        record = replace(record, name=known.name, source=known.source, note=known.note)
        store.put_model(record)
    return record


def _as_path(ref: str) -> Path | None:
    samples = ROOT / "sample_models"
    for candidate in (expand_home(ref), ROOT / ref, samples / f"{ref}.onnx", _made_sample(ref)):
        with contextlib.suppress(OSError, ValueError):  # invalid path: too long, or with a zero byte
            if candidate.is_file():
                return candidate.absolute()
            _refuse_irregular(candidate)
    return None


def _refuse_irregular(path: Path) -> None:
    try:
        refuse_irregular(path)
    except IrregularFile as error:
        raise ModelError(f"`{path}` is no model: {error.strerror}.", hint="Name an `.onnx` file.") from None


def _made_sample(name: str) -> Path:
    return home() / "models" / "samples" / f"{PurePosixPath(name).name}.onnx"


def _record_of_file(store: Store, path: Path, run: Run, *, any_version: bool = False) -> ModelRecord:
    info = inspect_cached(store, path, run=run, any_version=any_version)
    known = _known(store, info)
    if known is not None:
        return replace(known, path=str(path), info=info)
    return ModelRecord(
        content_sha256=info["content_sha256"],
        sha256=info["sha256"],
        name=path.stem,
        path=str(path),
        source="file",
        info=info,
        created_at=time.time(),
    )


def _unknown(store: Store, ref: str) -> ModelError:
    names = [*(record.name for record in store.models()), *(sample.name for sample in sample_models())]
    if any(sample.name == ref for sample in sample_models()):
        return ModelError(
            f"The sample model `{ref}` has not been made yet.",
            hint=f"Run `ortune convert {ref}` first.",
        )
    looks_like_path = "/" in ref or ref.endswith(MODEL_SUFFIXES)
    what = "There is no model file" if looks_like_path else "No file and no model of the library is called"
    return ModelError(
        f"{what} `{ref}`.{nearest(ref, names)}",
        hint=f"Give a path, a name of the library, or {MIN_PREFIX} or more digits of a model's hash.",
    )


# --- samples and folders ------------------------------------------------------------------------------------


def sample_models(root: Path | None = None) -> list[SampleModel]:
    """List the models included in ORTune, then those that the `export` job can create.

    Args:
        root: folder of the samples; None: `sample_models/` beside `core/`.
    """
    folder = root or ROOT / "sample_models"
    files = [
        SampleModel(name=path.stem, path=str(path), exists=True, plan=None)
        for path in sorted(folder.glob("*.onnx"))
    ]
    return [*files, *(_to_make(name) for name in SAMPLE_EXPORTS)]


def _to_make(name: str) -> SampleModel:
    path = _made_sample(name)
    plan: wire.ExportPlan = {
        "source": "torchvision",
        "name": name,
        "path": "",
        "output": str(path),
        "opset": DEFAULT_OPSET,
        "dynamic_batch": True,
        "pretrained": True,
        "seed": 0,
        "image_size": None,
        "external_data": "auto",
    }
    return SampleModel(name=name, path=str(path), exists=path.is_file(), plan=plan)


def folder_models() -> list[Path]:
    """List the `.onnx` files of the server's model folder, $ORTUNE_MODELS; none if it is not set.

    Raises:
        ModelError: $ORTUNE_MODELS names no folder.
    """
    named = os.environ.get(variables.MODELS)
    if not named:
        return []
    root = expand_home(named).resolve()
    if not root.is_dir():
        raise ModelError(
            f"ORTUNE_MODELS names `{named}`, which is no folder.", hint="Set it to the folder of your models."
        )
    inside = (path for path in sorted(root.rglob("*.onnx")) if path.resolve().is_relative_to(root))
    return [
        path for path, _ in zip((p for p in inside if p.is_file()), range(MAX_FOLDER_MODELS), strict=False)
    ]


# --- importing models ---------------------------------------------------------------------------------------


def import_file(
    store: Store,
    path: Path,
    *,
    name: str,
    source: str,
    note: str = "",
    details: Mapping[str, Any] | None = None,
    run: Run = run_job,
) -> ModelRecord:
    """Add the model at `path` to the library without a copy (an export, a sample, a file of the server).

    A model of the same content in the library keeps its name; `note` and `details` are stored, unless another
    person added it.

    Raises:
        PrivateError: the model is private to another person.
    """
    info = inspect_cached(store, path, run=run)
    known = _known(store, info)
    if known is not None:
        unchanged = not (note or details) or store.is_of_another(known.content_sha256)
        if unchanged and Path(known.path).is_file():
            return known
        store.refuse_others([known.content_sha256], "replaced")
    given = {"name": name, "source": source, "note": note, "details": dict(details or {})}
    record = _record(store, info, path.absolute(), known, given)
    store.put_model(record)
    _imported(store, record)
    return record


def import_files(
    store: Store,
    files: Sequence[Path] | Mapping[str, Path],
    *,
    name: str,
    source: str = "upload",
    move: bool = False,
    run: Run = run_job,
) -> tuple[ModelRecord, bool]:
    """Import files into the data folder: one `.onnx` and the external data that it refers to.

    Args:
        store: holds the library; the files are written to `models/<content hash>/` in its folder.
        files: the files, or name in the model's folder -> file if the names differ.
        name: for the library; a number is appended if another model has it.
        source: "upload", "export" or "file".
        move: move the files instead of copying them, even if they are refused.
        run: starts the worker that inspects.

    Returns:
        The record, and whether it is new; False: the library has this content already.

    Raises:
        ModelError: not exactly one `.onnx`, a file that the model does not refer to, or no valid model.
        StoreError: the folder cannot be written, or the disk is full.
        PrivateError: the model is private to another person.
    """
    named = dict(files) if isinstance(files, Mapping) else {file.name: file for file in files}
    onnx = _check_names(named)
    with new_folder(store) as staging:
        _collect(named, staging, move=move)
        info = _inspect(staging / onnx, run)
        _refuse_unreferenced(named, onnx, info)
        return _add_folder(store, staging, onnx, info, {"name": name, "source": source}, run)


def import_folder(
    store: Store,
    folder: Path,
    model: str,
    *,
    name: str,
    source: str,
    details: Mapping[str, Any],
    run: Run = run_job,
) -> tuple[ModelRecord, bool]:
    """Import a folder that ORTune has written, with all its files.

    Args:
        store: holds the library.
        folder: from `new_folder`; moved to the library, or deleted with the `with` of `new_folder`.
        model: name of the model file in it.
        name: for the library; a number is appended if another model has it.
        source: for example "variant".
        details: facts of its creation.
        run: starts the worker that inspects.

    Returns:
        See `import_files`.

    Raises:
        ModelError: the file is no valid model.
        PrivateError: the model is private to another person.
    """
    info = _inspect(folder / model, run)
    given = {"name": name, "source": source, "details": dict(details)}
    return _add_folder(store, folder, model, info, given, run)


@contextlib.contextmanager
def new_folder(store: Store) -> Iterator[Path]:
    """Create a temporary folder on the disk of the library to build a new model in; deleted at the end.

    Raises:
        StoreError: the folder cannot be created, or the `with` body raised an OSError.
    """
    try:
        with scratch.folder(store.folder / "models", scratch.INCOMING) as folder:
            yield folder
    except OSError as error:
        raise StoreError(
            f"The model could not be imported: {error.strerror or error}.",
            hint=HOME_HINT,
        ) from error


def _inspect(path: Path, run: Run, *, any_version: bool = False) -> wire.ModelInfo:
    asked = {"path": str(path), **({"any_version": True} if any_version else {})}
    return run(wire.INSPECT, asked, timeout_s=INSPECT_TIMEOUT_S)


def _add_folder(
    store: Store,
    staging: Path,
    model: str,
    info: wire.ModelInfo,
    given: Mapping[str, Any],
    run: Run,
) -> tuple[ModelRecord, bool]:
    """Move the files in `staging` to their final folder, unless the library has this content already."""
    known = _known(store, info)
    if known is not None and _is_whole(store, known, run):
        return known, False
    if known is not None:
        store.refuse_others([known.content_sha256], "replaced")
    path = _settle(staging, store.folder / "models" / info["content_sha256"]) / model
    info["path"] = str(path)
    _cache(store, path, _stamps(path, _locations(info)), info)
    record = _record(store, info, path, known, given)
    store.put_model(record)
    _imported(store, record)
    return record, True


def _known(store: Store, info: wire.ModelInfo) -> ModelRecord | None:
    """Return the library's record of this content, whoever added it.

    Raises:
        PrivateError: the model is private to another person.
    """
    store.refuse_hidden([info["content_sha256"]])
    return store.model(info["content_sha256"])


def _imported(store: Store, record: ModelRecord) -> None:
    what = f"model `{record.name}`"
    audit.record("import", what, folder=store.folder, source=record.source, ids=[record.content_sha256])


def _is_whole(store: Store, record: ModelRecord, run: Run) -> bool:
    """Whether the files of a model still have its content."""
    with contextlib.suppress(ModelError, WorkerError):  # missing, or no model any more
        return inspect_cached(store, Path(record.path), run=run)["content_sha256"] == record.content_sha256
    return False


# --- removing models ----------------------------------------------------------------------------------------


def unfinished_trials_of(store: Store, content_sha256: str) -> list[str]:
    """Return a description of each waiting or running trial of a model."""
    record = store.model(content_sha256)
    return [
        f"{trial.kind} of `{trial.model_name}` ({trial.state.lower()}, {trial.id[:8]})"
        for state in ("RUNNING", "WAITING")
        for kind in ("measure", "profile", "reference", "load")
        for trial in store.trials(kind=kind, state=state)
        if _is_of(trial, content_sha256, record)
    ]


def _is_of(trial: Trial, content_sha256: str, record: ModelRecord | None) -> bool:
    """Whether a trial uses this model; for a waiting trial, only its spec may be known."""
    if trial.model_sha256:
        return trial.model_sha256 == content_sha256
    asked = trial.spec["model"]
    return record is not None and (
        asked.get("sha256") == record.sha256 or asked["path"] in (record.path, record.name)
    )


def descendants(store: Store, content_sha256: str) -> list[str]:
    """Return the names of the variants whose original is this model."""
    return [
        one.name
        for one in store.models()
        if one.details.get("variant", {}).get("root") == content_sha256 != one.content_sha256
    ]


def remove_model(store: Store, content_sha256: str) -> None:
    """Remove a model from the library; imported files are deleted, files at other places are kept.

    What is private to others counts, too, but is not named.

    Raises:
        ModelError: a waiting or running trial uses it, or it is the original of variants.
    """
    record = store.model(content_sha256)
    if record is None:
        return
    content_sha256 = record.content_sha256
    everything = store.for_person(store.actor.person, sees_all=True)
    if count := len(unfinished_trials_of(everything, content_sha256)):
        uses = unfinished_trials_of(store, content_sha256) or ["a private job of another person"]
        more = f" and {count - 1} more" if count > 1 else ""
        raise ModelError(
            f"`{record.name}` is in use: {uses[0]}{more}.",
            hint="Wait until that is done, or cancel it first.",
        )
    if count := len(descendants(everything, content_sha256)):
        variants = [f"`{one}`" for one in descendants(store, content_sha256)]
        hidden = count > len(variants)
        listed = ", ".join([*variants, *["private variants of another person"] * hidden])
        raise ModelError(
            f"`{record.name}` is the original of {listed}: without it ORTune cannot check their outputs.",
            hint=f"Remove these variants first.{' An admin sees those of others.' * hidden}",
        )
    store.remove_model(content_sha256)  # first: it may be the model of another person
    own = (store.folder / "models" / content_sha256).resolve()
    if Path(record.path).resolve().parent == own:
        shutil.rmtree(own, ignore_errors=True)
    audit.record("delete", f"model `{record.name}`", folder=store.folder, ids=[content_sha256])


def _check_names(named: Mapping[str, Path]) -> str:
    """Return the name of the only model file, after a check that all paths stay inside the folder."""
    for name in named:
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\\" in name or not pure.name or "\0" in name:
            raise ModelError(f"`{name}` is no file name inside a model's folder.", hint="Rename the file.")
    found = [name for name in named if name.lower().endswith(MODEL_SUFFIXES)]
    if len(found) != 1:
        raise ModelError(
            f"A model is one `.onnx` or `.ort` file and its external data, but got {len(found)} model files.",
            hint="Add one model at a time.",
        )
    return found[0]


def _collect(named: Mapping[str, Path], staging: Path, *, move: bool) -> None:
    for name, file in named.items():
        target = staging / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if move:
            shutil.move(file, target)
        else:
            shutil.copyfile(file, target)
        target.chmod(0o600)


def _refuse_unreferenced(named: Mapping[str, Path], onnx: str, info: wire.ModelInfo) -> None:
    folder = PurePosixPath(onnx).parent
    wanted = {onnx, *(str(folder / location) for location in _locations(info))}
    strangers = [name for name in named if str(PurePosixPath(name)) not in wanted]
    if strangers:
        raise ModelError(
            f"`{onnx}` does not refer to {', '.join(f'`{name}`' for name in strangers)}.",
            hint="Give the model's own external data only.",
        )


def _settle(staging: Path, target: Path) -> Path:
    """Move the files to their final folder; remains of a removed model there are deleted.

    They are on the disk before the model's row is, so that after a power failure no row names an empty file.
    """
    if target.exists():
        shutil.rmtree(target)
    for path in (*staging.rglob("*"), staging):
        sync(path)
    staging.rename(target)
    sync(target.parent)
    return target


def _record(
    store: Store, info: wire.ModelInfo, path: Path, known: ModelRecord | None, given: Mapping[str, Any]
) -> ModelRecord:
    """Return the record of a new model, or that of a `known` one whose files are at `path` now.

    Args:
        store: holds the library.
        info: from its inspection.
        path: of its file.
        known: the library's record of this content.
        given: name, source, note and details; a known model keeps its own, unless note or details are given.
    """
    if known is not None:
        if given.get("note") or given.get("details"):
            known = replace(known, **{**given, "name": known.name})
        return replace(known, sha256=info["sha256"], path=str(path), info=info)
    return ModelRecord(
        content_sha256=info["content_sha256"],
        sha256=info["sha256"],
        path=str(path),
        info=info,
        created_at=time.time(),
        **{**given, "name": _free_name(store, given["name"].strip() or path.stem)},
    )


MAX_NAME = 100


def check_name(name: str) -> str:
    """Return a user's name for a model, without spaces around it.

    Raises:
        SpecError: empty, too long, or no name: a path, a hidden file, control characters.
    """
    plain = name.strip()
    if not 1 <= len(plain) <= MAX_NAME:
        raise SpecError(
            f"A model's name has 1 to {MAX_NAME} characters, but got {len(plain)}.",
            hint="Choose another name.",
        )
    if plain.startswith((".", "-", "~")) or "/" in plain or "\\" in plain or not plain.isprintable():
        raise SpecError(
            f"`{plain}` is no name for a model: it must not look like a path, an option or a hidden file.",
            hint="Leave out `/`, `\\` and control characters, and begin with a letter or a digit.",
        )
    return plain


def model_named(store: Store, name: str) -> ModelRecord | None:
    """Return the model of the library with the name `name`; None: the name is free.

    Raises:
        SpecError: it is the name of a sample model that is not in the library yet.
    """
    found = next((record for record in store.models() if record.name == name), None)
    if found is None and any(sample.name == name for sample in sample_models()):
        raise SpecError(f"`{name}` is the name of a sample model.", hint="Choose another name.")
    return found


def rename_model(store: Store, content_sha256: str, name: str) -> ModelRecord:
    """Rename a model of the library and return its record; its results keep the old name.

    Raises:
        SpecError: an invalid name, or that of another model.
        ModelError: there is no such model.
    """
    wanted = check_name(name)
    record = store.model(content_sha256)
    if record is None:
        raise _unknown(store, content_sha256)
    holder = model_named(store, wanted)
    if holder is not None and holder.content_sha256 != record.content_sha256:
        raise name_taken(holder)
    what = f"name of the model `{record.name}`: `{wanted}`"
    record = replace(record, name=wanted)
    store.put_model(record)
    audit.record("change", what, folder=store.folder, ids=[record.content_sha256])
    return record


def name_taken(holder: ModelRecord) -> SpecError:
    """Return the error for a name that another model has."""
    return SpecError(
        f"`{holder.name}` is the name of another model, `{holder.content_sha256[:12]}`.",
        hint="Choose another name, or rename or remove that model first.",
    )


def _free_name(store: Store, wanted: str) -> str:
    taken = {record.name for record in store.models()}
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name
