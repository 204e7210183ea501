"""Records the state of jobs, in memory and in the store.

Every trial's row ends as COMPLETE, FAIL or CANCELLED. Measurements are always kept: in the store, or as a
file next to it when the store cannot be written.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.process import scratch
from core.process.confinement import DRAFT
from core.process.identity import is_alive, start_of
from core.process.job_worker import Progress
from core.run.job import FINISHED, Ending, Outcome, Queued
from core.run.preparation import Resolved
from core.store import Store
from core.wire.errors import ErrorRecord, StoreError, TunerError, record_from_error

DAY_S = 86_400.0


class JobLog:
    """Records every change of a job; used under the scheduler's lock."""

    def __init__(self, store: Store, lock: threading.Condition) -> None:
        """Write into `store`; `lock` guards the jobs, and its waiters are notified when one has ended."""
        self._store = store
        self._lock = lock

    def begin(self, entry: Queued) -> None:
        """Record that the job runs now; what a full disk has kept from the store is written first."""
        self._store.write_held()
        with self._lock:
            entry.state, entry.started_at, entry.began = "RUNNING", time.time(), time.monotonic()
        self.set_progress(entry, Progress(stage="start", done=0, total=0))
        began: dict[str, Any] = {"state": "RUNNING", "started_at": entry.started_at}
        for trial_id in entry.trials:
            self._change_trial(entry, trial_id, **began)
        self._change_comparison(entry, **began)

    def record_turn(self, entry: Queued, progress: Progress) -> None:
        """Record that no job is ahead of this one; its work has not begun."""
        self.set_progress(entry, progress)

    def set_progress(self, entry: Queued, progress: Progress) -> None:
        """Record the progress of the job, in memory only."""
        with self._lock:
            if progress.stage != entry.progress.stage:
                entry.stage_began = time.monotonic()
            entry.progress = progress

    def resolved(self, entry: Queued, trial_id: str, resolved: Resolved) -> None:
        """Record the model of a trial, and of its comparison: the baseline's, else the first's."""
        name, sha256 = resolved.record.name, resolved.record.content_sha256
        spec = resolved.spec
        self._change_trial(
            entry, trial_id, spec=spec.to_dict(), key=spec.key(), model_sha256=sha256, model_name=name
        )
        comparison = entry.comparison
        if comparison is not None and (
            not comparison.model_sha256 or trial_id == _requested_baseline(comparison)
        ):
            self._change_comparison(entry, model_sha256=sha256, model_name=entry.job.model_name or name)

    def _change_trial(self, entry: Queued, trial_id: str, **changes: Any) -> None:
        trial = replace(entry.trials[trial_id], **changes)
        with self._lock:
            entry.trials[trial_id] = replace(trial, result=None)  # it is in the store; this saves memory
        if not self._store.update_trial(trial_id, **changes):
            self._store.delete_trials([trial_id])  # deleted while it ran: its files must not reappear

    def _change_comparison(self, entry: Queued, **changes: Any) -> None:
        if entry.comparison is None:
            return
        comparison = replace(entry.comparison, **changes)
        with self._lock:
            entry.comparison = replace(comparison, result=None)
        self._store.update_comparison(comparison.id, **changes)

    def end(self, entry: Queued, outcome: Outcome) -> Ending:
        """Record the end of all rows of a job that have not ended yet.

        Returns:
            The end of the job: `outcome.whole`, or the store's error, with its results rescued to a file.
        """
        idle = Ending(state=outcome.whole.state, error=outcome.whole.error)
        losses = [
            self._end_trial(entry, trial.id, outcome.trials.get(trial.id, idle))
            for trial in list(entry.trials.values())
            if trial.state not in FINISHED
        ]
        losses.append(self._end_study(entry, outcome.whole))
        if entry.comparison is None:
            whole = outcome.whole
        else:
            whole = idle  # its result is in the store
            if entry.comparison.state not in FINISHED:
                losses.append(self._end_comparison(entry, outcome))
                if not self._store.for_person("", sees_all=False).hidden(entry.ids):  # all see the noise
                    self._keep_self_tests(entry.comparison.id, outcome.whole.result or {})
        loss = next(filter(None, losses), None)
        return whole if loss is None else Ending(state="FAIL", error=loss, result=whole.result)

    def finish(self, entry: Queued, ending: Ending) -> None:
        """Record the end of a job in memory; call `end` first."""
        with self._lock:
            entry.state, entry.error = ending.state, _recorded(ending.error)
            entry.result = None if ending.result is None else dict(ending.result)
            entry.finished_at = entry.present()
            self._lock.notify_all()

    def _end_trial(self, entry: Queued, trial_id: str, ending: Ending) -> StoreError | None:
        changes = _changes(ending, entry.notes, entry.present())
        whole = replace(entry.trials[trial_id], **changes)
        try:
            self._change_trial(entry, trial_id, **changes)
        except StoreError as failure:
            loss = self._rescued(whole, failure)
            with self._lock:
                lost = replace(whole, result=None, state="FAIL", error=record_from_error(loss))
                entry.trials[trial_id] = lost
            return loss
        return None

    def _end_comparison(self, entry: Queued, outcome: Outcome) -> StoreError | None:
        assert entry.comparison is not None
        result = outcome.whole.result
        notes = entry.notes if result is None else []  # else the result has them
        changes = _changes(outcome.whole, entry.notes, entry.present()) | {
            "warnings": [*notes, *outcome.warnings]
        }
        whole = replace(entry.comparison, **changes)
        try:
            self._change_comparison(entry, **changes)
        except StoreError as failure:
            loss = self._rescued(whole, failure)
            with self._lock:
                entry.comparison = replace(whole, result=None, state="FAIL", error=record_from_error(loss))
            return loss
        return None

    def _end_study(self, entry: Queued, ending: Ending) -> StoreError | None:
        if entry.job.study is None:
            return None
        changes: dict[str, Any] = {
            "state": ending.state,
            "error": _recorded(ending.error),
            "finished_at": entry.present(),
            **({} if ending.result is None else {"answer": dict(ending.result)}),
        }
        try:
            self._store.update_study(entry.job.study.id, **changes)
        except StoreError as failure:
            with contextlib.suppress(StoreError):
                self._store.hold(replace(self._store.study(entry.job.study.id), **changes), failure.message)
            return failure
        return None

    def _keep_self_tests(self, comparison_id: str, result: Mapping[str, Any]) -> None:
        """Store the A/A test of a comparison; an error of the store does not fail the comparison."""
        with contextlib.suppress(StoreError):
            for test in result.get("self_tests", ()):
                data = {**test, "grade": result["grade"], "busy": result["busy"], "comparison": comparison_id}
                data.pop("log_ratios", None)  # the comparison has them
                self._store.put_self_test(result["fingerprint"], data)

    def _rescued(self, whole: Trial | Comparison, failure: StoreError) -> StoreError:
        """Keep a row that the store rejected, its result as a file; return the error that names the file."""
        path, error = None, failure
        if whole.result is not None:
            try:
                path = self._store.rescue(whole)
            except StoreError as second:
                error = StoreError(f"{failure.message} {second.message}", hint=failure.hint)
        self._store.hold(whole, failure.message, path)
        if path is None:
            return error
        move = "" if path.parent == self._store.folder else f", move the file into `{self._store.folder}`"
        return StoreError(
            f"{failure.message} The result was kept as `{path}`.",
            hint=f"Free disk space{move} and start ORTune again to restore the result.",
        )


def _changes(ending: Ending, notes: Sequence[str], at: float) -> dict[str, Any]:
    """The changed fields of an ended trial or comparison at a time; `notes` precede those of the result."""
    changes: dict[str, Any] = {
        "state": ending.state,
        "error": _recorded(ending.error),
        "finished_at": at,
    }
    if ending.result is not None:
        noted = {"notes": [*notes, *ending.result.get("notes", ())]} if notes else {}
        changes |= {"result": {**ending.result, **noted}, "fingerprint": ending.result["fingerprint"]}
    return changes


def _requested_baseline(comparison: Comparison) -> str | None:
    """Trial of the requested baseline; None where only the added ORT default is the reference."""
    return next((one.trial for one in comparison.contestants if one.role == "baseline"), None)


def _recorded(error: TunerError | None) -> ErrorRecord | None:
    return None if error is None else record_from_error(error)


def clean_up(store: Store) -> None:
    """Clean up after processes that were killed or had a full disk: results, trials, temporary folders.

    A store that cannot be written can still be read; then everything stays until a later start.
    """
    for put_right in (store.import_rescued, partial(store.interrupt_orphans, is_owner_alive)):
        with contextlib.suppress(StoreError):
            put_right()
    scratch.remove_abandoned()
    scratch.remove_abandoned(store.folder / "models", scratch.INCOMING)


_UNFINISHED = re.compile(r"\..+\.([0-9a-f]{8}|[0-9]+)\.part(-journal|-wal|-shm)?|rescued-.+\.part")
_FOREIGN = ("keys", "models", "runtimes", "uploads")  # folders whose files have other names, or a cleaner


def remove_remains(home: Path) -> None:
    """Remove what killed processes left in the data folder: folders of outputs, and files of an earlier day.

    It reads all folders, so a server does it once, when it starts.
    """
    now = time.time()
    for folder, below, names in os.walk(home):  # ignores folders that cannot be read; follows no links
        place = Path(folder)
        if place == home:
            below[:] = [name for name in below if name not in _FOREIGN]
        if place.parent == home / "artifacts":
            scratch.remove_abandoned(place, DRAFT)
            below.clear()  # a worker made it: it may be deep
        for path in (place / name for name in names if _UNFINISHED.fullmatch(name)):
            with contextlib.suppress(OSError):
                if now - path.lstat().st_mtime > DAY_S:
                    path.unlink()


def this_process() -> str:
    """Return the text by which a stored job names the process that runs it."""
    return f"{socket.gethostname()}/{os.getpid()}/{start_of()}"


def is_owner_alive(process: str, created_at: float) -> bool:
    """Whether the process that owns a stored job is alive; `process` as of `this_process`.

    A process of another host or container is not visible here: it counts as alive for a day.
    """
    try:
        host, pid, started = process.rsplit("/", 2)
        if host != socket.gethostname():
            return time.time() - created_at < DAY_S
        return is_alive(int(pid), float(started))
    except ValueError:
        return False
