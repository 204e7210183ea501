"""Process-wide services and session keys: everything that Streamlit keeps for the dashboard.

Services live in the process, so they outlast a page reload. The session holds plain values only: names,
numbers, text. Every page also needs two functions of this module: `report` shows an error, and `trial_link`
returns the address of a trial.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, cast

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from core import wire
from core.api.requests import (
    ComparisonHistory,
    Prediction,
    Size,
    check_overrides,
    default_sizes,
    feed_plan,
    past,
    predict,
)
from core.api.session import Job, MachineQueue, Scheduler, Session, Status, refuse_worker, user_on_host
from core.api.session import clean_up as settled
from core.evidence.comparison import Configuration, same_request, with_references
from core.evidence.measurement import Trial
from core.spec import ModelRef, TrialSpec, spec_from_dict
from core.store import ModelRecord, Store
from core.store.library import import_file, resolve_model, sample_models
from core.store.recorded import recording, words_of
from core.wire.errors import (
    ErrorRecord,
    ModelError,
    SpecError,
    StoreError,
    TunerError,
    record_from_error,
)
from core.wire.files import ROOT
from dashboard import configurations, fields, folders
from dashboard.folders import allowed_path
from dashboard.format import plain

DEFAULT_MODEL = "digits_cnn"
SETTLE_EVERY_S = 5.0  # between two searches for ended processes

# Keys of the session. Widgets of settings have keys of their own, see `fields`.
MODEL = "model"  # content SHA-256 of the current model
FALLBACK = "model.fallback"  # content SHA-256 of the model shown by default, not chosen
LOADED = "settings.loaded"  # somebody loaded or chose settings: a result no longer replaces them
LOADED_WITH_RESULT = "settings.by_itself"  # settings loaded with a result, not chosen
NOTICE = "notice"  # a line to show once after the next rerun
FOLLOWING = "following"  # token of the presentation that this session follows
ERROR = "error"  # an error of a callback, to show in the page
OWN = "own"  # the job that this session started last, and its page
SUBMITTED = "submitted"  # the last submission of this session, the id of its job, and its time
REPEATED_PRESS_S = (
    10.0  # Streamlit may deliver a press twice within this time; a later repetition is intended
)
TRIAL_PARAM = "trial"  # ?trial=<id>
MODEL_PARAM = "model"  # ?model=<content hash>: a model to show


# --- services of the process ------------------------------------------------------------------------------


@st.cache_resource(show_spinner=False)
def _store() -> Store:
    return Store()


def store() -> Store:
    """Return the store in ORTune's home folder; read-only for a session that follows a presenter."""
    return cast(Store, _ReadOnlyService(_store(), _WRITE_METHODS)) if is_following() else _store()


@st.cache_data(ttl=SETTLE_EVERY_S, show_spinner=False)
def clean_up() -> None:
    """Mark running records whose process is gone as interrupted; every few seconds."""
    settled(_store())


@st.cache_resource(show_spinner=False)
def queue() -> MachineQueue:
    """Return the queue of the whole machine."""
    return MachineQueue()


def session() -> Session:
    """Return the API's session of this server: its store and queue; it waits for no worker."""
    return Session(store(), scheduler=scheduler(), inspect=refuse_worker, admit=admit)


def scheduler() -> Scheduler:
    """Return the scheduler of this server; its jobs end with the server."""
    return cast(Scheduler, _ReadOnlyService(_scheduler(), _START_METHODS)) if is_following() else _scheduler()


class _ReadOnlyService:
    """A service for a session that follows a presenter: it refuses changes."""

    def __init__(self, service: object, refused: frozenset[str]) -> None:
        self._service, self._refused = service, refused

    def __getattr__(self, name: str) -> Any:
        if name in self._refused:
            return _refuse
        return getattr(self._service, name)


# All writes of a store except those of viewing a model: its facts and its place in the library.
_WRITE_METHODS = frozenset(
    {"create_comparison", "create_trial", "delete_finished", "delete_study", "delete_trials", "mark"}
    | {"pin_baseline", "prune", "put_accuracy", "put_peaks", "put_self_test", "put_study", "remove_model"}
    | {"update_comparison", "update_study", "update_trial"}
)
_START_METHODS = frozenset({"cancel", "perform", "submit"})


def _refuse(*_: object, **__: object) -> NoReturn:
    raise SpecError(closed() or "Nothing can be changed here.", hint='Press "Stop following" in the sidebar.')


def is_following() -> bool:
    """Whether this session follows a presenter; False in a thread without a session."""
    return get_script_run_ctx(suppress_warning=True) is not None and bool(st.session_state.get(FOLLOWING))


@st.cache_resource(show_spinner=False)
def _scheduler() -> Scheduler:
    folders.restrict_workers()
    service = Scheduler(_store(), owner=f"dashboard of {user_on_host()}", queue=queue(), admit=admit)
    _made.append(service)
    return service


_made: list[Scheduler] = []  # asking the cache at the end would create one


def close() -> None:
    """End the scheduler of this server with its jobs; called when the server ends."""
    while _made:
        _made.pop().close()


@st.cache_resource(show_spinner="Reading this machine…")
def environment() -> wire.Environment:
    """Return facts and providers of this machine, or of that of recorded results; found once by a worker."""
    found = recording(store().folder)
    return scheduler().environment() if found is None else found.environment


@st.cache_resource(show_spinner=False)
def recorded() -> str:
    """Say that the results of this server were recorded elsewhere; empty: they were not."""
    return words_of(store().folder)


def closed() -> str:
    """Return why this session may start nothing; empty: it may."""
    if recorded():
        return "This is a demonstration: nothing is measured. Start the dashboard without it to measure."
    if st.session_state.get(FOLLOWING):
        return "You are following a presenter. Stop following to make changes."
    return ""


def unless_closed(help: str | None = None, *, off: bool = False, busy: str = "") -> dict[str, Any]:
    """Return arguments of a control that measures or changes something: disabled and why, if refused.

    Args:
        help: of the enabled control.
        off: disabled for another reason, which `help` explains.
        busy: what it waits for; shown before any other reason; empty: nothing.
    """
    reason = busy or closed()
    return {"disabled": off or bool(reason), "help": reason or help}


def show_closed_reason() -> bool:
    """Say why this session may start nothing; return whether that is so."""
    if reason := closed():
        st.caption(f":material/block: {plain(reason)}")
    return bool(reason)


@st.cache_resource(show_spinner=False)
def freeze_imports() -> bool:
    """Exclude the imported libraries from garbage collection, once.

    Streamlit collects after every run; walking pandas and Plotly each time takes CPU time from a running
    measurement.
    """
    import plotly.graph_objects as _  # noqa: F401 - imported to be frozen

    gc.collect()
    gc.freeze()
    return True


# --- the current model ------------------------------------------------------------------------------------


def current_model() -> ModelRecord | None:
    """Return the chosen model, at first the sample `digits_cnn`; without any, show why and return None."""
    ref = st.session_state.get(MODEL)
    if ref and (record := store().model(ref)):
        return record
    errors = add_samples()
    library = store().models()
    record = next((one for one in library if one.name == DEFAULT_MODEL), library[0] if library else None)
    if record is not None:
        choose_model(record)
        st.session_state[FALLBACK] = record.content_sha256
        return record
    for error in errors:
        report(error)
    if not errors:
        report(ModelError("The library is empty.", hint="Add a model on the Models page."))
    return None


@st.cache_resource(show_spinner="Reading the sample models…", ttl=60)
def add_samples() -> list[ErrorRecord]:
    """Add the models that come with ORTune to the library; return the errors."""
    errors = []
    for sample in sample_models():
        if sample.exists:
            try:
                import_file(store(), Path(sample.path), name=sample.name, source="sample")
            except TunerError as error:
                errors.append(record_from_error(error))
    return errors


def choose_model(record: ModelRecord) -> None:
    """Make `record` the current model, and add it to the library when it is not there."""
    if store().model(record.content_sha256) is None:
        store().put_model(record)
    st.session_state[MODEL] = record.content_sha256


# --- settings ---------------------------------------------------------------------------------------------


def values(record: ModelRecord) -> dict[str, Any]:
    """Return this session's widget values; defaults and proposed sizes where nothing was touched."""
    own = {
        str(k): v
        for k, v in st.session_state.items()
        if str(k).startswith(("knob.", *fields.OPTIONS, *fields.SIZES))
    }
    return {**fields.defaults(), **fields.dim_values(sizes(record)), **own}


def sizes(record: ModelRecord) -> dict[str, Size]:
    """Return the proposed size of each free dimension besides the batch; see `default_sizes`."""
    return default_sizes(fields.other_dims(record.info), record, store())


def seed(record: ModelRecord) -> None:
    """Set the widget of every setting before it is drawn; existing values stay."""
    for name, value in values(record).items():
        st.session_state.setdefault(name, value)


def current_spec() -> TrialSpec:
    """Return the spec of the present settings on the current model.

    Raises:
        SpecError: settings that exclude each other, or text that cannot be read.
        ModelError: there is no model.
    """
    record = current_model()
    if record is None:
        raise ModelError("No model is chosen.", hint="Choose one on the Models page.")
    spec = fields.spec_from_values(
        values(record), path=portable(record.path), sha256=record.sha256, info=record.info
    )
    feed_plan(spec.workload, record.info)  # report a missing size before a worker starts
    check_overrides(spec, record.info)
    return spec


def portable(path: str) -> str:
    """Return `path` relative to ORTune's folder when it lies in it: samples are then found on any machine."""
    return str(Path(path).relative_to(ROOT)) if Path(path).is_relative_to(ROOT) else path


def apply_spec(spec: TrialSpec, *, foreign: bool = False) -> None:
    """Load `spec` into the widgets, and its model. Call before any widget of a setting is drawn.

    Args:
        spec: to load.
        foreign: it comes from outside (a file), so its path may name allowed files only.

    Raises:
        ModelError: there is no such model, or another one at that path; no widget was changed.
    """
    record = find_model(spec.model, foreign=foreign)
    if foreign:
        folders.check_spec(spec)
    for stale in fields.stale_keys([str(k) for k in st.session_state], spec):
        del st.session_state[stale]
    st.session_state[LOADED] = True
    for name, value in fields.values_from_spec(spec).items():
        st.session_state[name] = value
    choose_model(record)


def admit(spec: TrialSpec) -> None:
    """Check a finished spec before it is submitted; every spec passes here.

    Raises:
        SpecError: a setting that this server does not accept from the browser.
        ModelError: a model that is not in the library, or inputs or a dataset outside of the allowed folders.
    """
    folders.check_spec(spec)
    path = spec.model.path
    if not any(store().model(one) for one in (path, str(ROOT / path))):
        allowed_path(path)


def find_model(ref: ModelRef, *, foreign: bool = False) -> ModelRecord:
    """Return the model that a spec names: by hash if it has one, else by path or name.

    Raises:
        ModelError: no model of the library has that hash or that name.
    """
    if ref.sha256 and (record := store().model(ref.sha256)):
        return record
    if foreign and store().model(ref.path) is None:
        allowed_path(ref.path)
    record = resolve_model(store(), ref.path)
    if ref.sha256 and ref.sha256 not in (record.sha256, record.content_sha256):
        raise ModelError(
            f"The settings belong to another model: they name `{ref.sha256[:12]}`, but `{ref.path}` is "
            f"`{record.sha256[:12]}`.",
            hint="Add the right model to the library, or remove `sha256` from the file to use this one.",
        )
    return record


def reset(name: str | None = None) -> None:
    """Reset one widget, or all of them, to the default."""
    for widget, value in fields.defaults().items():
        if name is None or widget == name:
            st.session_state[widget] = value
    for widget in [str(k) for k in st.session_state if str(k).startswith(fields.OPTIONS)]:
        if name is None or name == fields.key("providers"):
            del st.session_state[widget]
    if name is None:
        for widget in [str(k) for k in st.session_state if str(k).startswith(fields.SIZES)]:
            del st.session_state[widget]


# --- trials -----------------------------------------------------------------------------------------------


def submit(job: Job) -> str:
    """Queue a job of this session; return its id.

    Streamlit may deliver one press twice when a page is redrawn meanwhile; the second one finds the first job
    still active and starts nothing. This applies to jobs that their trials describe completely; other jobs
    cannot be told apart.

    Raises:
        TunerError: see `Scheduler.submit`.
    """
    asked = (job.kind, job.what, [one.spec for one in job.trials])
    last, last_id, at = st.session_state.get(SUBMITTED, (None, "", 0.0))
    if (
        job.trials
        and asked == last
        and time.monotonic() - at < REPEATED_PRESS_S
        and is_active(status(last_id))
    ):
        return str(last_id)
    found = scheduler().submit(job)
    st.session_state[SUBMITTED] = asked, found, time.monotonic()
    return found


def follow(job_id: str, page: str, **query: str) -> None:
    """Let the sidebar follow a job that this session just started.

    Args:
        job_id: of a trial, a comparison or another job.
        page: name of the page that shows it.
        query: of the page's address.
    """
    st.session_state[OWN] = {"id": job_id, "page": page, "query": query}


def own_job() -> tuple[Status, str, dict[str, str]] | None:
    """Return the status of the job that this session started last, its page and the page's query."""
    own = st.session_state.get(OWN)
    found = status(own["id"]) if own else None
    return None if own is None or found is None else (found, own["page"], own["query"])


def is_busy(page: str = "") -> bool:
    """Whether the job that this session started last waits or runs; with `page`: on that page."""
    followed = own_job()
    return followed is not None and is_active(followed[0]) and page in ("", followed[1])


def measured(record: ModelRecord, *, limit: int = 100) -> list[Trial]:
    """Return the complete measurements of a model, newest first, without samples."""
    return store().trials(model_sha256=record.content_sha256, kind="measure", state="COMPLETE", limit=limit)


def trial_if_kept(trial_id: str) -> Trial | None:
    """Return a trial; None: it was deleted meanwhile, or it is damaged."""
    try:
        return store().trial(trial_id)
    except TunerError:
        return None


def pinned(spec: TrialSpec) -> Configuration | None:
    """Return the pinned baseline to compare `spec` with besides ONNX Runtime's default; None without one.

    A baseline equal to `spec` is left out: the default says more.

    Raises:
        SpecError: this version cannot read the pinned trial.
    """
    record = current_model()
    trial_id = store().baseline(record.content_sha256) if record is not None else None
    if trial_id is None:
        return None
    try:
        found = trial_spec(store().trial(trial_id))
    except StoreError:  # deleted meanwhile
        return None
    if same_request(found, spec):
        return None
    name = configurations.labels([spec, found], baseline=1)[1]
    return Configuration(spec=found, label=f"pinned baseline: {name}", role="baseline")


def predicted(spec: TrialSpec) -> Prediction | None:
    """Predict how long a run of `spec` takes; None: this model has no comparison on this machine yet."""
    record = current_model()
    if record is None:
        return None
    newest = store().comparisons(model_sha256=record.content_sha256, state="COMPLETE", limit=1)
    known = _past_durations(
        record.content_sha256, environment()["fingerprint"], newest[0].id if newest else ""
    )
    if known is None:
        return None
    baseline = pinned(spec)
    asked = [Configuration(spec=spec, label=""), *([baseline] if baseline is not None else [])]
    return predict([one.spec for one in with_references(asked)], known)


@st.cache_resource(show_spinner=False, max_entries=20)
def _past_durations(model_sha256: str, fingerprint: str, newest: str) -> ComparisonHistory | None:
    """Read past durations; cached until `newest`, the id of the last comparison, changes."""
    return past(store(), model_sha256=model_sha256, fingerprint=fingerprint)


def trial_spec(trial: Trial) -> TrialSpec:
    """Return the spec of a stored trial; raises `SpecError` when this version cannot read it."""
    return spec_from_dict(trial.spec)


def status(trial_id: str) -> Status | None:
    """Return the status of a trial or job of this server."""
    return scheduler().status(trial_id)


def is_active(current: Status | None) -> TypeGuard[Status]:
    """Whether a trial or job waits or runs."""
    return current is not None and current.state in ("WAITING", "RUNNING")


# --- messages ---------------------------------------------------------------------------------------------

TITLES: Mapping[str, str] = {
    "SpecError": "These settings cannot be used",
    "ModelError": "The model cannot be used",
    "ProviderError": "An execution provider is not available",
    "WorkerError": "The worker process failed",
    "StoreError": "The result store has a problem",
    "MissingError": "This result does not exist here",
    "BudgetError": "The budget is too small for a number",
    "Cancelled": "Cancelled",
}


def report(error: TunerError | ErrorRecord, title: str = "") -> None:
    """Show an expected failure, as it was raised or as it is stored: its cause and its remedy.

    Args:
        error: the failure.
        title: the failed action; empty: named after the kind of error.
    """
    record = record_from_error(error) if isinstance(error, TunerError) else error
    hint = f"\n\n**What to do:** {plain(record['hint'])}" if record["hint"] else ""
    heading = title or TITLES.get(record["type"], "That did not work")
    st.error(plain(record["message"]) + hint, title=heading, icon=":material/error:")


def report_unexpected(error: Exception) -> bool:
    """Show an unexpected error of a page or callback; Streamlit has logged it, and draws nothing itself."""
    if isinstance(error, TunerError):
        report(error)
    else:
        st.error(
            f"{plain(type(error).__name__)}: {plain(' '.join(str(error).split())[:300])}\n\n"
            "**What to do:** reload the page. If it comes back, report it with the log of the server.",
            title="ORTune failed unexpectedly",
            icon=":material/bug_report:",
        )
    return True


def keep_error(error: TunerError | ErrorRecord, place: str = "") -> None:
    """Keep an error of a callback, which cannot draw, for `show_kept_error`.

    Args:
        error: the failure.
        place: name of the action that shows it; empty: the page's general place.
    """
    record = record_from_error(error) if isinstance(error, TunerError) else error
    st.session_state[ERROR] = {"error": record, "place": place}


def show_kept_error(place: str = "", title: str = "") -> None:
    """Show the error kept for `place`, once; `title` as in `report`."""
    kept = st.session_state.get(ERROR)
    if kept is None or kept["place"] != place:
        return
    del st.session_state[ERROR]
    report(kept["error"], title)


def put(key: str, value: Any) -> None:
    """Set a value of the session; a callback."""
    st.session_state[key] = value


def notify(text: str) -> None:
    """Show `text` once, after the next rerun."""
    st.session_state[NOTICE] = text


def notify_added(record: ModelRecord, new: bool) -> None:
    """Say that a model was added, or that the library has its content already."""
    known = f"Already in the library as {record.name}: same content, by SHA-256. Nothing was added."
    notify(f"Added {record.name}." if new else known)


def show_notice() -> None:
    """Show the text of `notify`, if any."""
    if text := st.session_state.pop(NOTICE, None):
        st.toast(text, icon=":material/check_circle:")
