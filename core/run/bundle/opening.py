"""Opens untrusted bundles and YAML configurations; checks every rule before any part is used.

No path points outside the bundle's folder, no link is followed, sizes are limited, and the SHA-256 of every
file is the one in the bundle's manifest. Files are unpacked in pieces.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from core.process import scratch
from core.run.bundle import (
    CONFIG,
    FORMAT,
    INPUTS,
    MANIFEST,
    PIECE,
    BundledBaseline,
    BundledFile,
    BundledSample,
    Manifest,
    path_problem,
)
from core.run.named_files import check_named_files, open_folders
from core.run.preparation import another_model
from core.run.signing import SignatureCheck
from core.run.signing.checking import (
    ANY,
    UNSIGNED,
    SignatureRule,
    check_open_file,
    check_text,
    refuse_wrong,
    require,
)
from core.run.signing.files import MOST_BLOCK_BYTES, is_signed_end
from core.spec import TrialSpec, old_key_note, refuse_expert, spec_from_dict, spec_from_yaml
from core.spec.settings import check_range, trial_setting
from core.spec.strict_yaml import MAX_CHARACTERS, load_strict
from core.wire.access import expert_allowed
from core.wire.errors import TMPDIR_HINT, SpecError, TunerError
from core.wire.files import open_regular
from core.wire.units import size

MOST_FILES = 1_000
MOST_TEXT_BYTES = 4 * MAX_CHARACTERS
MOST_RATIO = 200  # compression ratio; bundles that this version writes are not compressed
ROOM_LEFT_BYTES = 64 << 20  # free disk space that must remain after unpacking

_END_BYTES = 22  # of the record that ends a zip without a comment; only a signature may be a comment

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedConfiguration:
    """An opened configuration with its recorded data, ready to be measured on this machine."""

    spec: TrialSpec  # the path of its model exists on this machine
    trial: str  # id on the machine where it was measured; empty: not known
    measured: Mapping[str, Any]  # untrusted and not validated
    environment: Any  # likewise
    folder: Path | None  # of the bundle; None: a YAML file alone
    sample: BundledSample | None  # its paths are files on this machine
    no_sample: str  # reason if there is no sample
    baseline: BundledBaseline | None
    name: str  # of the model
    files: Mapping[str, str]  # path in the bundle -> its SHA-256, which was checked
    note: str = ""  # on a key of an earlier version
    signature: SignatureCheck = UNSIGNED


@contextlib.contextmanager
def open_configuration(
    path: Path,
    *,
    expert: bool = False,
    within: Path | None = None,
    rule: SignatureRule = ANY,
) -> Iterator[OpenedConfiguration]:
    """Open a bundle or a YAML file; unpacked files are deleted at the end of the `with`.

    A YAML file in the folder of an unpacked bundle has the bundle's recorded inputs and outputs.

    Args:
        path: of the zip or of the YAML.
        expert: the user allows `expert`.
        within: folder to unpack in; None: the one for temporary files.
        rule: which signature it must have.

    Raises:
        SpecError: it cannot be read, is not a bundle, is from a newer version, breaks a rule of bundles, or
            its signature is wrong or not as the rule says.
    """
    if not is_bundle(path):
        yield _opened_yaml(path, expert=expert, rule=rule)
        return
    with contextlib.ExitStack() as stack:
        if within is not None:
            scratch.remove_abandoned(within)  # of processes that were killed
        try:
            folder = stack.enter_context(scratch.folder(within))
        except OSError as error:
            raise SpecError(
                f"The bundle cannot be unpacked: {error.strerror or error}.",
                hint=TMPDIR_HINT,
            ) from None
        manifest, signature = _unpacked(path, folder, rule)
        yield replace(_opened_folder(folder, manifest, expert=expert), signature=signature)


def check(path: Path, *, expert: bool = False, rule: SignatureRule = ANY) -> None:
    """Refuse invalid files before they are queued: check every rule and hash without unpacking.

    Args:
        path: see `open_configuration`.
        expert: see `open_configuration`.
        rule: see `open_configuration`.

    Raises:
        SpecError: see `open_configuration`; or the model of a YAML file has another SHA-256.
    """
    if not is_bundle(path):
        _check_model(_opened_yaml(path, expert=expert, rule=rule).spec)
        return
    with _archive(path, rule) as (archive, packed_bytes, _):
        manifest, entries = _manifest_and_entries(archive, packed_bytes, path.resolve().parent)
        for one in manifest["files"]:
            _check_hash(one, *_digest(_packed(archive, entries[one["path"]])))


def is_bundle(path: Path) -> bool:
    """Return whether a file has the signature or the suffix of a zip."""
    try:
        with open_regular(path) as file:
            return file.read(4) == b"PK\x03\x04" or path.suffix.lower() == ".zip"
    except OSError as error:
        raise SpecError(
            f"`{path}` cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from None


def _opened_yaml(path: Path, *, expert: bool, rule: SignatureRule) -> OpenedConfiguration:
    folder = path.resolve().parent
    manifest = None
    if path.name == CONFIG:
        with contextlib.suppress(OSError), open_regular(folder / MANIFEST) as file:
            manifest = _read_manifest(file.read(MOST_TEXT_BYTES + 1))
    try:
        with open_regular(path) as file:
            data = file.read(MOST_TEXT_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "Choose a YAML file or a bundle."
        raise SpecError(f"`{path}` cannot be read: {error}.", hint=hint) from None
    signature = check_text(data, trust_file=rule.trust_file)
    if manifest is not None:
        refuse_wrong(signature, path.name)
        require(_UNPACKED, rule, path.name)  # a signature of this file covers none of the others
        for one in manifest["files"]:
            _check_beside(folder, one)
        return _opened_folder(folder, manifest, expert=expert)
    why = "A YAML file has no recorded inputs and outputs; a bundle has them."
    require(signature, rule, path.name)
    return replace(_from_yaml(text, folder, None, no_sample=why, expert=expert), signature=signature)


_UNPACKED = replace(UNSIGNED, why="The files of an unpacked bundle have no signature; the zip has it.")


def _opened_folder(folder: Path, manifest: Manifest, *, expert: bool) -> OpenedConfiguration:
    try:
        text = (folder / CONFIG).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise _bundle_error(f"its `{CONFIG}` is not UTF-8 text") from None
    found = _from_yaml(text, folder, manifest, no_sample=manifest["no_sample"], expert=expert)
    return replace(found, signature=_UNPACKED)


def _from_yaml(
    text: str, folder: Path, manifest: Manifest | None, *, no_sample: str, expert: bool
) -> OpenedConfiguration:
    allowed = expert or expert_allowed()
    spec = spec_from_yaml(text, expert=allowed)
    around = [Path.cwd().resolve()] if manifest is None else []  # a bundle names nothing of this machine's
    check_named_files(spec.session, [*around, folder, *open_folders()])
    data = load_strict(text)
    measured = data.get("measured") if isinstance(data.get("measured"), dict) else {}
    sample, baseline = None, None
    if manifest is not None:
        spec = _placed(spec, manifest, folder)
        sample, baseline = manifest["sample"], manifest["baseline"]
        if sample is not None:
            inputs, outputs = str(folder / sample["inputs"]), str(folder / sample["outputs"])
            sample = {**sample, "inputs": inputs, "outputs": outputs}
        if baseline is not None and baseline["spec"] is not None:
            if not allowed:
                refuse_expert(baseline["spec"])
            other = _placed(spec_from_dict(baseline["spec"]), manifest, folder)
            check_named_files(other.session, [folder, *open_folders()])
            baseline = {**baseline, "spec": other.to_dict()}
    elif (near := folder / spec.model.path).is_file():
        spec = spec.model_copy(update={"model": spec.model.model_copy(update={"path": str(near)})})
    return OpenedConfiguration(
        spec=spec,
        trial=str(measured.get("trial") or "")[:64],
        measured=measured,
        environment=data.get("environment"),
        folder=folder if manifest is not None else None,
        sample=sample,
        no_sample=no_sample,
        baseline=baseline,
        name=manifest["model"]["name"] if manifest is not None else Path(spec.model.path).stem,
        files={} if manifest is None else {one["path"]: one["sha256"] for one in manifest["files"]},
        note=old_key_note(text),
    )


def _placed(spec: TrialSpec, manifest: Manifest, folder: Path) -> TrialSpec:
    """The spec with the bundle's model and recorded inputs; inputs from other files are refused."""
    model = manifest["model"]
    ref = spec.model.model_copy(update={"path": str(folder / model["path"]), "sha256": model["sha256"]})
    workload = spec.workload
    if workload.feeds == INPUTS:
        workload = workload.model_copy(update={"feeds": str(folder / INPUTS)})
    elif workload.feeds != "random":
        raise SpecError(
            f"The inputs of the bundle come from `{workload.feeds[:80]}`, which is not in it.",
            hint="Create it again.",
        )
    return spec.model_copy(update={"model": ref, "workload": workload})


def _unpacked(path: Path, folder: Path, rule: SignatureRule) -> tuple[Manifest, SignatureCheck]:
    """Unpack an untrusted zip into an empty folder and check the signature and the hash of every file.

    Raises:
        SpecError: it is damaged, or breaks a rule of bundles.
    """
    with _archive(path, rule, folder) as (archive, packed_bytes, signature):
        manifest, entries = _manifest_and_entries(archive, packed_bytes, folder)
        for one in manifest["files"]:
            _unpack(archive, entries[one["path"]], folder, one)
        return manifest, signature


def _manifest_and_entries(
    archive: zipfile.ZipFile, packed_bytes: int, folder: Path
) -> tuple[Manifest, dict[str, zipfile.ZipInfo]]:
    """Manifest and entries of a zip, after a check that they agree."""
    entries = _entries(archive, packed_bytes, folder)
    manifest = _read_manifest(archive.read(entries.pop(MANIFEST)))
    _check_listed(manifest, entries)
    return manifest, entries


@contextlib.contextmanager
def _archive(
    path: Path, rule: SignatureRule, folder: Path | None = None
) -> Iterator[tuple[zipfile.ZipFile, int, SignatureCheck]]:
    """Open a zip; return it, its size in bytes, and its signature.

    The signature is checked first. With `folder`, a signed zip is copied into it, and the copy is checked and
    read: another user who can write the original could change it after the check. Errors of the `with` body
    become a SpecError.

    Raises:
        SpecError: it is damaged, its signature is not as the rule says, or the disk is full.
    """
    try:
        with contextlib.ExitStack() as stack:
            file: BinaryIO = stack.enter_context(open_regular(path))
            found = check_open_file(file, trust_file=rule.trust_file)
            if folder is not None and found.state != "NONE":
                original, file = file, stack.enter_context(tempfile.TemporaryFile(dir=folder))
                shutil.copyfileobj(original, file, PIECE)
                found = check_open_file(file, trust_file=rule.trust_file)
            packed_bytes = os.fstat(file.fileno()).st_size
            signature = require(found, rule, path.name)
            _check_end(file, packed_bytes)
            with zipfile.ZipFile(file) as archive:
                yield archive, packed_bytes, signature
    except TunerError:
        raise
    except _DAMAGE as error:
        raise SpecError(
            f"`{path.name}` is damaged or not a zip file: {str(error)[:200] or type(error).__name__}.",
            hint="Copy or download the bundle again.",
        ) from None
    except OSError as error:
        raise SpecError(
            f"`{path.name}` cannot be unpacked: {error.strerror or error}.",
            hint=TMPDIR_HINT,
        ) from None


def _check_end(file: BinaryIO, packed_bytes: int) -> None:
    """Refuse a zip without its end record: in a truncated one, `zipfile` could find a zip inside it."""
    file.seek(max(0, packed_bytes - _END_BYTES - MOST_BLOCK_BYTES))
    tail = file.read()
    if tail[-_END_BYTES:][:4] != b"PK\x05\x06" and not is_signed_end(tail):
        raise zipfile.BadZipFile("its end is missing")
    file.seek(0)


def _entries(archive: zipfile.ZipFile, packed_bytes: int, folder: Path) -> dict[str, zipfile.ZipInfo]:
    """Entries of a zip, after a check of all rules that need no unpacking."""
    infos = archive.infolist()
    if len(infos) > MOST_FILES:
        raise _bundle_error(f"it contains {len(infos):,} files; the limit is {MOST_FILES:,}")
    found: dict[str, zipfile.ZipInfo] = {}
    for one in infos:
        if why := path_problem(one.filename) or _no_file(one):
            raise _bundle_error(f"`{one.filename[:80]!s}` {why}")
        if one.filename.lower() in found:
            raise _bundle_error(f"`{one.filename[:80]}` occurs twice")
        found[one.filename.lower()] = one
    total = sum(one.file_size for one in infos)
    if total > MOST_RATIO * max(packed_bytes, 1):
        raise _bundle_error(f"{size(packed_bytes)} would unpack to {size(total)}, like a zip bomb")
    free = shutil.disk_usage(folder).free
    if total + ROOM_LEFT_BYTES > free:
        raise SpecError(
            f"The bundle needs {size(total)} unpacked, but {size(free)} are free in `{folder.parent}`.",
            hint=TMPDIR_HINT,
        )
    if MANIFEST not in found or found[MANIFEST].filename != MANIFEST:
        raise _bundle_error(f"it has no `{MANIFEST}`")
    for name in (MANIFEST, CONFIG):
        if name in found and found[name].file_size > MOST_TEXT_BYTES:
            raise _bundle_error(f"its `{name}` has {size(found[name].file_size)}")
    return {one.filename: one for one in infos}


def _no_file(one: zipfile.ZipInfo) -> str:
    kind = stat.S_IFMT(one.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "is a symbolic link"
    if one.is_dir() or kind not in (0, stat.S_IFREG):
        return "is not a regular file"
    if one.flag_bits & 1:
        return "is encrypted"
    if one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "uses an unsupported compression"
    return ""


def _read_manifest(data: bytes) -> Manifest:
    try:
        loose = msgspec.json.decode(data)  # unlike `json` it accepts neither NaN nor lone surrogates
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise _bundle_error(f"its `{MANIFEST}` is not JSON") from None
    version = loose.get("bundle") if isinstance(loose, dict) else None
    if type(version) is not int or version < 1:
        raise _bundle_error(f"its `{MANIFEST}` has no format version")
    if version > FORMAT:
        raise SpecError(
            f"The bundle was created by a newer version ({str(loose.get('tool_version'))[:20]}): its "
            "format is "
            f"{version}, and this version reads up to {FORMAT}.",
            hint="Update ORTune here, or create the bundle with this version.",
        )
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise _bundle_error(f"its `{MANIFEST}` is invalid: {error}") from None
    listed = [one["path"] for one in found["files"]]
    sample = found["sample"]
    needed = [CONFIG, found["model"]["path"], *([sample["inputs"], sample["outputs"]] if sample else [])]
    for name in needed:
        if name not in listed:
            raise _bundle_error(f"it needs `{name[:80]}`, which it does not list")
    for name in listed:
        if why := path_problem(name):
            raise _bundle_error(f"`{name[:80]}` {why}")
    if sample is not None:
        _check_sample(sample)
    return found


def _check_sample(sample: BundledSample) -> None:
    try:
        check_range(trial_setting("batch_size"), sample["rows"])
        if (tolerance := sample["tolerance"]) is not None:
            check_range(trial_setting("tolerance"), tolerance)
    except SpecError as error:
        raise _bundle_error(f"its recorded inputs or outputs are invalid: {error.message}") from None


def _check_listed(manifest: Manifest, entries: Mapping[str, zipfile.ZipInfo]) -> None:
    listed = {one["path"] for one in manifest["files"]}
    if missing := sorted(listed - set(entries)):
        raise _bundle_error(f"`{missing[0][:80]}` is missing")
    if other := sorted(set(entries) - listed):
        raise _bundle_error(f"it contains `{other[0][:80]}`, which its `{MANIFEST}` does not list")


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, one: BundledFile) -> None:
    target = folder / entry.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        _check_hash(one, *_digest(_packed(archive, entry), file))


def _packed(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield a file of a zip in pieces; refuse it if it is larger than its entry says."""
    total = 0
    with archive.open(entry) as member:
        while piece := member.read(PIECE):
            total += len(piece)
            if total > entry.file_size:
                raise _bundle_error(f"`{entry.filename[:80]}` is larger than stated")
            yield piece


def _digest(pieces: Iterable[bytes], copy: BinaryIO | None = None) -> tuple[str, int]:
    """SHA-256 and size in bytes of a file, which is also written to `copy` if given."""
    digest, total = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        total += len(piece)
        if copy is not None:
            copy.write(piece)
    return digest.hexdigest(), total


def _check_beside(folder: Path, one: BundledFile) -> None:
    """Check the hash of a file of an unpacked bundle."""
    path = folder / one["path"]
    try:
        if path.is_symlink():
            raise _bundle_error(f"`{one['path'][:80]}` is a symbolic link")
        with open_regular(path) as file:
            found = _digest(iter(lambda: file.read(PIECE), b""))
    except OSError as error:
        raise _bundle_error(f"`{one['path'][:80]}` cannot be read: {error.strerror or error}") from None
    _check_hash(one, *found)


def _check_model(spec: TrialSpec) -> None:
    """Refuse a model file with another SHA-256 than in the YAML file; names of the library are not checked.

    Raises:
        SpecError: the file has another SHA-256.
    """
    path, wanted = Path(spec.model.path), spec.model.sha256
    if wanted is None or not path.is_file():
        return
    with contextlib.suppress(OSError), open_regular(path) as file:
        found, _ = _digest(iter(lambda: file.read(PIECE), b""))
        if found != wanted:
            raise another_model(path, found, wanted)


def _check_hash(one: BundledFile, found: str, total: int) -> None:
    if (found, total) != (one["sha256"], one["size_bytes"]):
        raise SpecError(
            f"`{one['path'][:80]}` is not the file that was bundled: its SHA-256 begins with `{found[:12]}`, "
            f"but the bundle says `{one['sha256'][:12]}`.",
            hint="Copy or download the bundle again. If the error remains, the bundle was changed after "
            "it was created.",
        )


def _bundle_error(why: str) -> SpecError:
    return SpecError(f"The bundle cannot be opened: {why}.", hint="Export a trial as a bundle again.")
