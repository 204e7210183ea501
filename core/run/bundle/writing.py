"""Writes bundles: collects the files of a trial, records inputs and outputs, and writes the zip.

    contents(store, trial, run)    the files, and recorded inputs and outputs of the trial
    write(path, held, texts)       the zip: the same contents and texts give the same bytes

A bundle that cannot be written completely is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import stat
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import msgspec

from core import __version__, wire
from core.evidence.comparison import same_request
from core.evidence.measurement import Trial
from core.process import scratch
from core.process.job_worker import Run
from core.run.bundle import (
    FORMAT,
    INPUTS,
    MANIFEST,
    OUTPUTS,
    PIECE,
    WEIGHTS_HINT,
    BundledBaseline,
    BundledFile,
    BundledSample,
    Manifest,
    path_problem,
)
from core.run.plan import contestant_plan, feed_plan
from core.run.preparation import prepare_trial, resolve_trial
from core.run.signing.files import covered_sha256
from core.spec import TrialSpec, ort_default, spec_from_dict
from core.store import ModelRecord, Store
from core.wire import engines
from core.wire.errors import HOME_HINT, ModelError, SpecError, StoreError, unwritable
from core.wire.files import file_stem, open_regular, written_whole

MOST_SAMPLE_BYTES = 32 << 20  # of the inputs of one inference, and of its outputs

KEPT = {INPUTS: "sample-inputs.npz", OUTPUTS: "sample-outputs.npz"}  # path in the bundle -> trial's artifact
_FACTS, _WRITTEN = "sample.json", "bundles.json"
_MOST_WRITTEN = 1_000  # of a trial, whose digests are kept

# --- contents -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Contents of a bundle without its text files."""

    trial: Trial  # with the spec of the bundle, whose paths are relative to it
    record: ModelRecord
    model: str  # path of the model in the bundle
    sources: Mapping[str, Path]  # path in the bundle -> file on this machine
    sample: BundledSample | None
    no_sample: str
    baseline: BundledBaseline | None


def contents(store: Store, trial: Trial, *, run: Run) -> Contents:
    """Find the model of a trial, and record inputs and outputs of one inference if not done before.

    Args:
        store: holds the trial and keeps the sample.
        trial: complete.
        run: starts a worker.

    Raises:
        SpecError: the trial is not complete, or did not use ONNX Runtime.
        ModelError: its model is missing or has changed.
        TunerError: recording inputs and outputs failed.
    """
    spec = spec_from_dict(trial.spec)
    engines.require_export(spec.engine)
    if trial.state != "COMPLETE":
        raise SpecError(
            f"Trial {trial.id} is {trial.state}; a bundle needs a measured result.",
            hint="Choose a complete trial.",
        )
    resolved = resolve_trial(spec, store, run)
    record = resolved.record
    if trial.model_sha256 and record.content_sha256 != trial.model_sha256:
        raise ModelError(
            f"`{record.path}` has changed: its SHA-256 begins with `{record.content_sha256[:12]}` "
            f"instead of `{trial.model_sha256[:12]}`.",
            hint="Restore the measured model.",
        )
    sample, no_sample = _sample(store, trial, resolved.spec, run)
    sources = _model_files(record)
    model = next(iter(sources))
    if sample is not None:
        sources |= {name: store.artifact_path(trial.id, kept) for name, kept in KEPT.items()}
    bundled = _spec_in_bundle(resolved.spec, model, with_sample=sample is not None)
    return Contents(
        trial=_with_spec(trial, bundled),
        record=record,
        model=model,
        sources=sources,
        sample=sample,
        no_sample=no_sample,
        baseline=_baseline(store, trial, resolved.spec, model),
    )


def _with_spec(trial: Trial, spec: TrialSpec) -> Trial:
    return replace(trial, spec=spec.to_dict())


def _model_files(record: ModelRecord) -> dict[str, Path]:
    """Path in the bundle -> file of a model; the model file comes first, then its external data."""
    path = Path(record.path)
    found = {f"model/{file_stem(path.stem)}{path.suffix.lower()}": path}
    for one in record.info["external_data"]:
        name = f"model/{one['location']}"
        if why := path_problem(name):
            raise ModelError(
                f"The weights `{one['location'][:80]}` of `{path.name}` cannot be in a bundle: the path "
                f"{why}.",
                hint=WEIGHTS_HINT,
            )
        found[name] = path.parent / one["location"]
    return found


def _spec_in_bundle(spec: TrialSpec, model: str, *, with_sample: bool) -> TrialSpec:
    """The spec in a bundle: with the path of the bundled model, and recorded inputs instead of a file."""
    ref = spec.model.model_copy(update={"path": model})
    workload = spec.workload
    if with_sample and workload.feeds != "random":
        fed = {"feeds": INPUTS, "feed_values": {}, "image_mean": (), "image_std": ()}
        workload = workload.model_copy(update=fed)
    return spec.model_copy(update={"model": ref, "workload": workload})


def _baseline(store: Store, trial: Trial, spec: TrialSpec, model: str) -> BundledBaseline | None:
    """Baseline of the trial's comparison; None: it was the ORT default or is not known any more."""
    try:
        comparison = store.comparison(trial.comparison)
        found = next(
            one for one in comparison.contestants if one.role == "baseline" and one.trial != trial.id
        )
        other = spec_from_dict(store.trial(found.trial).spec)
    except (StoreError, SpecError, StopIteration):
        return None
    if same_request(other, ort_default(spec)):
        return None
    same_model = other.model.sha256 is not None and other.model.sha256 == spec.model.sha256
    same = same_model and other.workload.feeds == "random" and engines.can(other.engine, "emit")
    told = _spec_in_bundle(other, model, with_sample=False).to_dict() if same else None
    return {"label": found.label, "spec": told}


# --- the sample ---------------------------------------------------------------------------------------------


def _sample(store: Store, trial: Trial, spec: TrialSpec, run: Run) -> tuple[BundledSample | None, str]:
    """Inputs and outputs of a trial, recorded at the first call; None and the reason if impossible."""
    kept = {name: store.artifact_path(trial.id, file) for name, file in KEPT.items()}
    facts = store.artifact_path(trial.id, _FACTS)
    reply = _kept_reply(facts)
    if reply is None or not (reply["refusal"] or all(path.is_file() for path in kept.values())):
        reply = _recorded(store, spec, run, kept)
        _keep_text(facts, json.dumps(reply))
    if reply["refusal"]:
        return None, reply["refusal"]
    guard: Mapping[str, Any] = trial.facts.get("guard") or {}
    return {
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "rows": reply["rows"],
        "precision": str(guard.get("precision") or "fp32"),
        "tolerance": spec.protocol.tolerance,
    }, ""


def _kept_reply(path: Path) -> wire.SamplesReply | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=wire.SamplesReply)
    except (OSError, msgspec.DecodeError):
        return None


def _recorded(store: Store, spec: TrialSpec, run: Run, kept: Mapping[str, Path]) -> wire.SamplesReply:
    resolved = resolve_trial(spec, store, run)
    prepared = prepare_trial(resolved, store, run)
    feeds = prepared.feeds
    free = spec.workload.feeds == "random" and prepared.info["batch_dim"]
    if free and _bytes_of(feeds) > MOST_SAMPLE_BYTES:
        with contextlib.suppress(SpecError):  # values for as many rows as the batch has
            one_row = spec.workload.model_copy(update={"batch_size": 1})
            feeds = feed_plan(one_row, prepared.info)
    plan = contestant_plan(spec, path=prepared.path, session=prepared.session, feeds=feeds, torch=None)
    try:
        with scratch.folder() as folder:
            asked: wire.SamplesPlan = {"plan": plan, "folder": str(folder), "most_bytes": MOST_SAMPLE_BYTES}
            reply = run(wire.SAMPLES, asked, timeout_s=float(spec.protocol.timeout_s), runtime=spec.runtime)
            if not reply["refusal"]:
                for name, path in kept.items():
                    _keep(folder / PurePosixPath(name).name, path)
    except OSError as error:
        raise _no_room(next(iter(kept.values())).parent, error) from error
    return reply


def _bytes_of(feeds: wire.FeedPlan) -> int:
    total = 0
    for one in feeds["inputs"]:
        elements = 1
        for length in one["shape"]:
            elements *= max(1, length)
        total += elements * (8 if "64" in one["dtype"] else 4)
    return total


def _keep(source: Path, target: Path) -> None:
    with written_whole(target) as part:
        shutil.copyfile(source, part)


def _keep_text(path: Path, text: str) -> None:
    try:
        with written_whole(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _no_room(path, error) from error


def _no_room(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"The recorded inputs and outputs cannot be written to `{path}`: {error.strerror or error}.",
        hint=HOME_HINT,
    )


# --- writing ------------------------------------------------------------------------------------------------


def write(
    path: Path,
    held: Contents,
    texts: Mapping[str, str],
    *,
    store: Store,
    sign: Callable[[BinaryIO], None] | None = None,
) -> int:
    """Write a bundle and return its size in bytes; the same contents and texts give the same bytes.

    The store keeps its SHA-256, so that `provenance` knows the bundle again.

    Args:
        path: of the zip; an existing file is replaced.
        held: the model and the recorded inputs and outputs.
        texts: path in the bundle -> text.
        store: of the trial.
        sign: adds a signature to the written file.

    Raises:
        SpecError: the file cannot be written; no partial file remains.
        ModelError: the model's file is missing or has changed since it was measured.
    """
    try:
        with written_whole(path, durable=True) as part, part.open("x+b") as file:
            _write(file, held, texts)
            if sign is not None:
                sign(file)
        written = covered_sha256(path)
        size_bytes = path.stat().st_size
    except OSError as error:
        raise unwritable(path, error) from None
    known = written_bundles(store, held.trial.id)
    if written not in known:
        _keep_text(
            store.artifact_path(held.trial.id, _WRITTEN), json.dumps([*known, written][-_MOST_WRITTEN:])
        )
    return size_bytes


def written_bundles(store: Store, trial_id: str) -> Sequence[str]:
    """Return the SHA-256 of the bundles that were written of a trial, without their signatures."""
    for path in store.artifacts(trial_id, _WRITTEN):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(path.read_bytes(), type=list[str])
    return []


def _write(file: BinaryIO, held: Contents, texts: Mapping[str, str]) -> None:
    known = {held.model: held.record.sha256}
    known |= {f"model/{one['location']}": one["sha256"] for one in held.record.info["external_data"]}
    files: list[BundledFile] = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(texts.items()):
            files.append(_add(archive, name, text.encode()))
        for name, source in sorted(held.sources.items()):
            one = _copy(archive, name, source)
            if one["sha256"] != known.get(name, one["sha256"]):
                raise ModelError(
                    f"`{source}` has changed since it was measured.", hint="Restore the measured file."
                )
            files.append(one)
        _add(archive, MANIFEST, json.dumps(_manifest(held, files), indent=1).encode())


def _manifest(held: Contents, files: list[BundledFile]) -> Manifest:
    return {
        "bundle": FORMAT,
        "tool_version": __version__,
        "trial": held.trial.id,
        "model": {
            "path": held.model,
            "name": held.record.name,
            "sha256": held.record.sha256,
            "content_sha256": held.record.content_sha256,
        },
        "sample": held.sample,
        "no_sample": held.no_sample,
        "baseline": held.baseline,
        "files": files,
    }


def _entry(name: str) -> zipfile.ZipInfo:
    """Zip entry with a fixed time, no owner and no compression, so that only the content determines bytes."""
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
    return entry


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> BundledFile:
    archive.writestr(_entry(name), data)
    return {"path": name, "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}


def _copy(archive: zipfile.ZipFile, name: str, source: Path) -> BundledFile:
    digest, total = hashlib.sha256(), 0
    try:
        opened_source = open_regular(source)
    except OSError as error:
        raise ModelError(
            f"`{source}` cannot be read: {error.strerror or error}.", hint="Restore the file."
        ) from None
    with opened_source as file, archive.open(_entry(name), "w", force_zip64=True) as member:
        while piece := file.read(PIECE):
            digest.update(piece)
            member.write(piece)
            total += len(piece)
    return {"path": name, "sha256": digest.hexdigest(), "size_bytes": total}
