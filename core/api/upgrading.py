"""Checks an upgrade of ONNX Runtime: `upgrade` compares models in two runtimes."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.api import arguments
from core.api.asked_runtimes import one_runtime
from core.api.models import ModelLike, reference
from core.api.requests import Config, spec_of
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session
from core.api.settings import given_of
from core.evidence.upgrade import STUDY, UpgradeRecord, UpgradeRow, headline
from core.process.job_worker import refuse_worker
from core.run.job import Job, Status
from core.run.upgrade import KIND as KIND
from core.run.upgrade import AskedModel, AskedUpgrade, found_rows, job_of, new_record, put, put_end, upgrades
from core.show import documents
from core.show.sheets import upgrades as sheets
from core.spec import TrialSpec
from core.spec.axes import RUNTIME
from core.store import Store
from core.store.library import MODEL_SUFFIXES, resolve_model
from core.wire import engines
from core.wire.errors import ErrorRecord, SpecError, StoreError, WorkerError, error_from_record
from core.wire.files import expand_home
from core.wire.runtime import OWN, runtime

MAX_MODELS = 500

_ID = re.compile(r"[0-9a-f]{6,16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """An upgrade and what its comparisons show."""

    record: UpgradeRecord
    rows: Sequence[UpgradeRow]

    @property
    def errors(self) -> list[ErrorRecord]:
        """Errors of models, in their order."""
        return [row.error for row in self.rows if row.error is not None]


@arguments.checked(models=arguments.models)
def upgrade(
    models: ModelLike | Sequence[ModelLike],
    before: str,
    after: str,
    config: Config = None,
    *,
    reuse: bool = False,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Upgrade]:
    """Compare models in two runtimes: outputs, speed, memory, and what the versions have or lack.

    Args:
        models: one or several models, see `tune`; a folder stands for all `.onnx` and `.ort` files in it.
        before: name of the runtime in use; `own` is ORTune's.
        after: name of the runtime to change to.
        config: configuration of every model, see `tune`. None: ONNX Runtime's defaults.
        reuse: reuse results of earlier upgrades of this machine with the same models, settings and runtimes.
        wait_quiet_s: longest wait for an idle machine before each model, in seconds.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: see `tune`.

    Raises:
        SpecError: a runtime, a setting or its value is invalid.
        ModelError: there is no such model.
        TunerError: it was cancelled. Finished models are kept; `Session.last` has them.
    """
    session = session or default_session()
    asked = asked_upgrade(
        session,
        models,
        before,
        after,
        config,
        given=given_of(settings),
        reuse=reuse,
        wait_quiet_s=wait_quiet_s,
    )
    record = new_record(asked, time.time())
    job = job_of(asked, record)
    put(session.store, record, job.models)  # so that an interrupted run can be read
    count = len(asked.models)
    session.note(
        f"upgrade {record.id}: {count} model{'s' * (count != 1)}, {runtime(asked.before).name} → "
        f"{runtime(asked.after).name}; {record.family} simultaneous interval{'s' * (record.family != 1)}"
    )
    session.last = upgrade_result(session, record.id)
    status = session.run(job, on_progress=on_progress, cancel=cancel)
    note_end(session.store, status)
    if status.error is not None:
        raise error_from_record(status.error)
    return session.last


def upgrade_job(session: Session, asked: AskedUpgrade) -> Job:
    """Return the job of an upgrade for a queue; it has the ID of the upgrade."""
    record = new_record(asked, time.time())
    job = job_of(asked, record)
    put(session.store, record, job.models)
    return job


def asked_upgrade(
    session: Session,
    models: ModelLike | Sequence[ModelLike],
    before: str,
    after: str,
    config: Config = None,
    *,
    given: Mapping[str, Any],
    reuse: bool = False,
    wait_quiet_s: float = 0.0,
) -> AskedUpgrade:
    """Return the checked request of an upgrade; see `upgrade`.

    Raises:
        TunerError: a runtime, a model or a setting is invalid, or the session does not admit one.
    """
    if RUNTIME in given:
        raise SpecError(
            "An upgrade names its two runtimes itself, so `runtime` cannot be set.",
            hint="Name the old and the new runtime only.",
        )
    old, new = one_runtime(before), one_runtime(after)
    if old == new:
        raise SpecError(
            f"Both runtimes are `{runtime(old).name}`, so there is nothing to compare.",
            hint="Name two; `ortune runtimes list` shows them.",
        )
    asked = []
    for label, ref in _named(_models(models, session)):
        spec = spec_of(ref, config, given, session)
        if spec.engine != engines.DEFAULT:
            raise SpecError(
                f"An upgrade compares versions of ONNX Runtime, but the configuration runs `{spec.engine}`.",
                hint="Give a configuration of the engine `onnxruntime`.",
            )
        _check_exists(session, spec)
        if spec.runtime != OWN:
            session.note(f"the runtime of the configuration, {runtime(spec.runtime).name}, does not count")
        sides = [spec.model_copy(update={RUNTIME: one}) for one in (old, new)]
        asked.append(AskedModel(label=label, before=sides[0], after=sides[1]))
    return AskedUpgrade(
        models=asked,
        before=old,
        after=new,
        config="" if config is None else config if isinstance(config, str) else "configuration",
        reuse=reuse,
        wait_quiet_s=wait_quiet_s,
    )


def _models(models: ModelLike | Sequence[ModelLike], session: Session) -> list[str]:
    """Return the references of all models; a folder stands for the models in it.

    Raises:
        SpecError: a folder without a model, or too many models.
    """
    found: list[str] = []
    listed: list[Any] = [*models] if isinstance(models, list) else [models]
    for one in listed:
        ref = reference(one, session)
        folder = expand_home(ref)
        found += _inside(folder) if folder.is_dir() else [ref]
    found = list(dict.fromkeys(found))
    if not found:
        raise SpecError("No model is named.", hint="Name one or more models.")
    if len(found) > MAX_MODELS:
        raise SpecError(
            f"An upgrade takes at most {MAX_MODELS} models, but got {len(found)}.",
            hint="Check them in several runs.",
        )
    return found


def _inside(folder: Path) -> list[str]:
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in MODEL_SUFFIXES and path.is_file() and not path.name.startswith(".")
    ]
    if not paths:
        raise SpecError(
            f"The folder `{folder}` holds no model.",
            hint=f"Name a folder with {' or '.join(MODEL_SUFFIXES)} files.",
        )
    return [str(path) for path in paths]


def _named(refs: Sequence[str]) -> list[tuple[str, str]]:
    """Return each reference with a label: the name of the file, with as many folders as tell it apart."""
    parts = {ref: Path(ref).parts for ref in refs}
    labels = {}
    for ref in refs:
        count = 1
        while count < len(parts[ref]) and any(
            other != ref and parts[other][-count:] == parts[ref][-count:] for other in refs
        ):
            count += 1
        labels[ref] = str(Path(*parts[ref][-count:]))
    return [(label, ref) for ref, label in labels.items()]


def _check_exists(session: Session, spec: TrialSpec) -> None:
    """Refuse a model that does not exist; what else may fail is part of the result.

    Raises:
        ModelError: there is no such model.
    """
    session.admit(spec)  # before anything reveals what lies at a path
    with contextlib.suppress(WorkerError):  # it exists, and is not inspected yet
        resolve_model(session.store, spec.model.path, run=refuse_worker)


def note_end(store: Store, status: Status) -> None:
    """Keep how the job of an upgrade ended, also where it was cancelled while it waited.

    Raises:
        StoreError: it cannot be written.
    """
    put_end(store, status.id, status.state, status.error)


def stored_upgrades(store: Store) -> list[UpgradeRecord]:
    """Return all stored upgrades, newest first."""
    return sorted(upgrades(store, ""), key=lambda one: one.created_at, reverse=True)


# --- results ------------------------------------------------------------------------------------------------


def upgrade_result(session: Session, ref: str) -> Result[Upgrade]:
    """Return the result of an upgrade by its ID, also while it runs."""
    store = session.store

    def read() -> Upgrade:
        record = stored_upgrade(session, ref)
        return Upgrade(record=record, rows=found_rows(store, record))

    return Result(
        kind="upgrade",
        id=ref,
        read=read,
        document=lambda one: documents.upgrade(one.record, one.rows),
        content=lambda one: sheets.upgrade(one.record, one.rows),
        says=lambda one: headline(one.rows),
        rows=lambda one: sheets.models(one.rows),
        store=store,
        refs=[ref],
    )


def stored_upgrade(session: Session, ref: str) -> UpgradeRecord:
    """Return a stored upgrade by its ID.

    Raises:
        StoreError: there is none, or several begin with these characters.
    """
    beginning = ref.removeprefix(STUDY).strip().lower()
    found = upgrades(session.store, beginning) if _ID.fullmatch(beginning) else []
    if len(found) > 1:
        raise StoreError(
            f"More than one upgrade begins with `{ref}`.", hint="Give more characters of the ID."
        )
    if not found:
        raise StoreError(f"There is no upgrade `{ref[:80]}`.", hint="Start it again.")
    return found[0]
