"""Files of results: `export` writes one, `verify` checks a recorded configuration on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from core.api import arguments
from core.api.asked_runtimes import one_runtime
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session, result_of
from core.evidence.measurement import Trial
from core.evidence.verification import MARGIN
from core.process.job_worker import Run
from core.run import job_types
from core.run.baseline import RecordedBaseline as RecordedBaseline
from core.run.baseline import read
from core.run.bundle import writing
from core.run.bundle.opening import check, is_bundle
from core.run.export_source import ExportSource, export_source_of
from core.run.export_source import source_of_settings as source_of_settings
from core.run.job import Job
from core.run.search import search_provenance
from core.run.signing import checking, keys
from core.run.signing.checking import SignatureRule
from core.run.signing.keys import SigningKey
from core.run.verify import Request, verification
from core.show.export import ExportFormat, caution, format_named
from core.show.export.bundle import bundle_texts
from core.show.sheets import Line, Sheet
from core.show.sheets.verifications import verification_sheet
from core.spec import spec_from_dict
from core.spec.effort import EFFORTS
from core.store import audit
from core.wire.errors import SpecError, unwritable
from core.wire.files import written_whole
from core.wire.units import size

PathLike = str | os.PathLike[str]
BUNDLE = "bundle"  # the format with model, inputs and outputs, which a job creates

# --- export -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An exported trial."""

    trial: Trial
    format: str
    output: Path | None  # the written file; None: nothing was written
    text: str  # of a format with the model: the part with the settings; empty for a bundle
    size_bytes: int | None = None  # of a bundle


@arguments.checked()
def export(
    trial: arguments.Ref,
    format: str = "yaml",
    path: PathLike | None = None,
    *,
    accept_breach: str = "",
    whole: bool = False,
    sign: PathLike | None = None,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[Exported]:
    """Export a result as YAML, as code, for other tools, or as a bundle with its model.

    Args:
        trial: its ID, the first 6 or more characters, or its result.
        format: a name of `ortune export --list`, for example "yaml", "python" or "bundle".
        path: file to write. None: the result has the text; a bundle needs a file.
        accept_breach: reason why differing outputs are acceptable; the file repeats it.
        whole: YAML with all settings, the results, the machine and absolute paths.
        sign: key that signs a YAML file or a bundle: name of a key of this machine, or path of a private key.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.

    Raises:
        StoreError: there is no such trial.
        SpecError: there is no such format, it cannot express the trial or be signed, there is no such key,
            the file cannot be written, or the outputs differ and no reason is given.
        ModelError: the model that belongs into the file is missing or has changed.
        TunerError: recording inputs and outputs for a bundle failed or was cancelled.
    """
    key = None if sign is None else keys.open_key(sign)
    return export_with(
        key,
        trial,
        format,
        path,
        accept_breach=accept_breach,
        whole=whole,
        session=session or default_session(),
        on_progress=on_progress,
        cancel=cancel,
    )


def export_with(
    key: SigningKey | None,
    trial: Any,
    format: str,
    path: PathLike | None,
    *,
    accept_breach: str,
    whole: bool,
    session: Session,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[Exported]:
    """Export as `export` does, signed with an opened key."""
    chosen = None if format == BUNDLE else format_named(format)
    if key is not None and format not in (BUNDLE, "yaml"):
        raise SpecError(
            f"Only YAML files and bundles can be signed, but the format is `{format}`.",
            hint="Leave the key out, or use the format `yaml` or `bundle`.",
        )
    if whole and format != "yaml":
        raise SpecError("`whole` applies to YAML only.", hint="Leave it out, or use the format `yaml`.")
    one, output = session.store.trial(arguments.ident("trial", trial)), None if path is None else Path(path)
    if chosen is None:
        found = _bundle(session, one, output, accept_breach, key, on_progress, cancel)
    else:
        source = replace(export_source_of(session.store, one), whole=whole)
        text = chosen.text(source, accept_breach)
        text = text if key is None else checking.sign_text(text, key)
        if doubt := caution(one):
            session.note(doubt)
        if output is not None:
            _write(chosen, source, accept_breach, output, signed="" if key is None else text)
            session.note(f"Wrote {output}.")
        elif chosen.pack is not None:
            session.note(f"Nothing is written: {chosen.label} includes the model. Give a path to write it.")
        found = Exported(trial=one, format=format, output=output, text=text)
        file = "" if output is None else output.name
        audit.record("export", f"trial as {format}", folder=session.store.folder, file=file, ids=[one.id])
    result = session.last = Result(
        kind="export",
        id=one.id,
        read=lambda: found,
        document=_export_document,
        content=lambda it: Sheet(
            f"trial {it.trial.id} as {it.format}", [Line(str(it.output) if it.output else it.text)]
        ),
        says=_written,
    )
    return result


def _written(one: Exported) -> str:
    """Return where the export is, or how long its text is."""
    return f"written to {one.output}" if one.output else f"{one.format}, {len(one.text):,} characters"


def _export_document(one: Exported) -> Mapping[str, Any]:
    output = None if one.output is None else str(one.output)
    told = {"trial": one.trial.id, "format": one.format, "output": output, "text": one.text}
    return told if one.size_bytes is None else {**told, "size_bytes": one.size_bytes}


def _write(
    chosen: ExportFormat, source: ExportSource, accept_breach: str, output: Path, *, signed: str
) -> None:
    """Write to a temporary file, then replace the target; on failure the previous file stays.

    A `signed` text is written as it is.
    """
    try:
        with written_whole(output) as part, part.open("wb") as file:
            if signed:
                file.write(signed.encode())
            else:
                chosen.save(source, file, accept_breach)
    except OSError as error:
        raise unwritable(output, error) from None


def _bundle(
    session: Session,
    trial: Trial,
    output: Path | None,
    accept_breach: str,
    key: SigningKey | None,
    on_progress: OnProgress | None,
    cancel: threading.Event | None,
) -> Exported:
    if output is None:
        raise SpecError(
            "A bundle is a zip file, which ORTune does not write to stdout.",
            hint="Give the path of a file.",
        )
    job = bundle_job(session, trial, output, accept_breach, key)
    made: Any = result_of(session.run(job, on_progress=on_progress, cancel=cancel))
    if doubt := caution(trial):
        session.note(doubt)
    if made["no_sample"]:
        session.note(f"The bundle has no recorded inputs and outputs: {made['no_sample']}")
    session.note(f"Wrote {output} ({size(made['size_bytes'])}).")
    return Exported(trial=trial, format=BUNDLE, output=output, text="", size_bytes=made["size_bytes"])


def bundle_job(
    session: Session, trial: Trial, output: Path, accept_breach: str = "", key: SigningKey | None = None
) -> Job:
    """Return the job that writes the bundle of a trial; it records inputs and outputs if there are none.

    Its result has `path`, `size_bytes`, `signer` (null: not signed), and `no_sample`, the reason for a bundle
    without recorded inputs and outputs.
    """
    store = session.store

    def write(run: Run) -> Mapping[str, Any]:
        held = writing.contents(store, trial, run=run)
        found = search_provenance(store, trial)
        texts = bundle_texts(held, info=held.record.info, accepted_breach=accept_breach, found=found)
        sign = None if key is None else partial(checking.sign_bundle, key=key)
        written = writing.write(output, held, texts, store=store, sign=sign)
        return {
            "path": str(output),
            "size_bytes": written,
            "no_sample": held.no_sample,
            "signer": key and key.name,
        }

    libraries = spec_from_dict(trial.spec).session.libraries
    what = f"bundle of {trial.model_name} {trial.id[:8]}"
    return job_types.task(write, kind=BUNDLE, what=what, libraries=libraries)


# --- verify -------------------------------------------------------------------------------------------------


@arguments.checked(against=arguments.path)
def verify(
    path: PathLike,
    *,
    measure: bool = True,
    margin: float = MARGIN,
    effort: str | None = None,
    budget_s: int | str | None = None,
    record: PathLike | None = None,
    against: PathLike | None = None,
    fail_if_slower: float | None = None,
    expert: bool = False,
    require_signature: bool = False,
    signed_by: Sequence[str] = (),
    trust: PathLike | None = None,
    runtime: str | None = None,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[Mapping[str, Any]]:
    """Check that a recorded configuration runs here, with the same outputs and as fast.

    Args:
        path: of a bundle, or of a YAML file, which holds no recorded outputs.
        measure: also measure the speed-up, not only facts and outputs.
        margin: a speed-up within this share of the recorded one counts as reproduced.
        effort: of the measurement: quick, standard or publish. None: the recorded one.
        budget_s: longest time to measure, in seconds or as text such as "2m". None: that of the effort.
        record: file for the numbers of this machine, for `against`.
        against: file that `record` wrote on this machine.
        fail_if_slower: with `against`: share by which it may be slower. None: the margin.
        expert: let the file turn on `expert`; only for files that you trust.
        require_signature: refuse the file unless a key of the trust file signed it.
        signed_by: refuse the file unless one of these names of the trust file signed it.
        trust: path of the trust file. None: `ORTUNE_TRUST`, else the one in the data folder.
        runtime: environment to verify in; `own` is ORTune's. None: the one of the recorded name.
        wait_quiet_s: see `tune`.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.

    Raises:
        SpecError: the file is invalid or was changed, its signature is wrong or not as required, options
            contradict each other, or the baseline is of another machine.
        TunerError: a worker failed, or the job was cancelled.
    """
    session = session or default_session()
    if fail_if_slower is not None and against is None:
        raise SpecError("`fail_if_slower` needs a baseline.", hint="Give `against` too.")
    if effort is not None and effort not in EFFORTS:
        raise SpecError(f"There is no `effort` of the name `{effort}`.", hint=f"Use {', '.join(EFFORTS)}.")
    if not measure and (record is not None or against is not None):
        name = "record" if record is not None else "against"
        raise SpecError(f"`{name}` needs a measurement, but `measure` is off.", hint="Leave one of them out.")
    request = Request(
        path=Path(path),
        measure=measure,
        margin=margin,
        effort=effort,
        budget_s=None if budget_s is None else int(budget_s),
        record=None if record is None else Path(record),
        baseline=None if against is None else read(Path(against)),
        fail_if_slower=fail_if_slower,
        expert=expert,
        runtime=None if runtime is None else one_runtime(runtime),
        wait_quiet_s=wait_quiet_s,
        signature=SignatureRule(
            required=require_signature,
            signers=tuple(signed_by),
            trust_file=None if trust is None else Path(trust),
        ),
    )
    found = result_of(session.run(verify_job(request), on_progress=on_progress, cancel=cancel))
    result = session.last = Result(
        kind="verification",
        id=str(found["trial"] or ""),
        read=lambda: found,
        document=lambda one: one,
        content=verification_sheet,
    )
    return result


def verify_job(request: Request) -> Job:
    """Return the checked job that verifies a recorded configuration here.

    A YAML file that a server must admit first is checked by the job, because the check reads its model.

    Raises:
        SpecError: the file is invalid or was changed.
    """
    if request.admit is None or is_bundle(request.path):
        check(request.path, expert=request.expert, rule=request.signature)
    return verification(request)
