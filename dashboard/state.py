"""Everything Streamlit keeps for us: the process-wide services, and every key of the session.

Services live in the process, so they outlast a page reload. The session holds plain values only: names,
numbers, text. Two more things stand here because every page needs them: how an error looks (`report`) and
how a trial is linked to (`trial_link`).
"""

from __future__ import annotations

import gc
import getpass
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast
from urllib.parse import urlsplit

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from core import wire
from core.evidence.comparison import Configuration, line_up, same_request
from core.evidence.measurement import Trial
from core.process.machine_queue import MachineQueue
from core.process.runner import no_worker
from core.run import job_types
from core.run import trial as trial_run
from core.run.job import Job, Status
from core.run.job_log import settle as settled
from core.run.plan import check_overrides, feed_plan
from core.run.prediction import Past, Prediction, past, predict
from core.run.scheduler import Scheduler
from core.run.search.choices import Models, space_of
from core.run.sizes import Size, proposed
from core.spec import ModelRef, TrialSpec, spec_from_dict
from core.spec.question import Question
from core.spec.settings import Place
from core.spec.space import Space
from core.store import ModelRecord, Store
from core.store.library import import_file, resolve_model, sample_models
from core.store.recorded import recording, words_of
from core.wire.errors import (
    ErrorRecord,
    ModelError,
    SpecError,
    StoreError,
    TunerError,
    error_from_record,
    record_from_error,
)
from core.wire.files import ROOT
from dashboard import configurations, demo, fields, folders, url_state
from dashboard.folders import allowed_path
from dashboard.format import plain

DEFAULT_MODEL = "digits_cnn"
SETTLED_S = 5.0  # between two looks for processes that are gone

# Keys of the session. Widgets of settings have keys of their own, see `fields`.
MODEL = "model"  # content SHA-256 of the current model
FALLBACK = "model.fallback"  # content SHA-256 of the model that nobody chose
TRIAL = "trial"  # id of the trial that Tune shows
TRIAL_OF = "trial.of"  # content SHA-256 of the model that was current when it was shown
LOADED = "settings.loaded"  # somebody had them loaded: no result brings its own unasked
BY_ITSELF = "settings.by_itself"  # those that came with a result that nobody asked for
NOTICE = "notice"  # a line to show once after the next rerun
APPLIED = "applied"  # id of the trial whose settings the widgets already got
OPENED = "opened"  # whether this session saw the result on which a demonstration opens
FOLLOWING = "following"  # token of the presentation that this session follows
ERROR = "error"  # an error of a callback, to show in the page
OWN = "own"  # the job that this session started last, and where it is shown
SUBMITTED = "submitted"  # what this session asked for last, the id of its job, and when
ECHO_S = 10.0  # a press may be handed over once more for so long; the same asked again later is meant
TRIAL_PARAM = "trial"  # ?trial=<id>
MODEL_PARAM = "model"  # ?model=<content hash>: a model to show


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJob:
    """A running export: what the model will be called, and the file it writes."""

    name: str
    output: str


# --- services of the process ------------------------------------------------------------------------------


@st.cache_resource(show_spinner=False)
def _store() -> Store:
    return Store()


def store() -> Store:
    """The store in ORTune's home folder; who follows a presenter can only read in it."""
    return cast(Store, _OnlyLooked(_store(), _WRITES)) if is_following() else _store()


@st.cache_data(ttl=SETTLED_S, show_spinner=False)
def settle() -> None:
    """Mark what still runs in the store as interrupted where its process is gone; every few seconds."""
    settled(_store())


@st.cache_resource(show_spinner=False)
def queue() -> MachineQueue:
    """The queue of the whole machine."""
    return MachineQueue()


def scheduler() -> Scheduler:
    """The scheduler of this server; its jobs die with the server."""
    return cast(Scheduler, _OnlyLooked(_scheduler(), _STARTS)) if is_following() else _scheduler()


class _OnlyLooked:
    """A service for a session that follows a presenter: what changes something is refused."""

    def __init__(self, service: object, refused: frozenset[str]) -> None:
        self._service, self._refused = service, refused

    def __getattr__(self, name: str) -> Any:
        if name in self._refused:
            return _refuse
        return getattr(self._service, name)


# All that a store writes, but what looking at a model leaves behind: its facts and its place in the library.
_WRITES = frozenset(
    {"create_comparison", "create_trial", "delete_finished", "delete_study", "delete_trials", "mark"}
    | {"pin_baseline", "prune", "put_accuracy", "put_peaks", "put_self_test", "put_study", "remove_model"}
    | {"update_comparison", "update_study", "update_trial"}
)
_STARTS = frozenset({"cancel", "perform", "submit"})


def _refuse(*_: object, **__: object) -> NoReturn:
    raise SpecError(closed() or "Nothing can be changed here.", hint='Press "Stop following" in the sidebar.')


def is_following() -> bool:
    """Whether this session follows a presenter; a thread of the server follows nobody."""
    return get_script_run_ctx(suppress_warning=True) is not None and bool(st.session_state.get(FOLLOWING))


@st.cache_resource(show_spinner=False)
def _scheduler() -> Scheduler:
    folders.hold_workers()
    service = Scheduler(_store(), owner=_owner(), queue=queue(), admit=admit)
    _made.append(service)
    return service


_made: list[Scheduler] = []  # asking the cache at the end would make one


def close() -> None:
    """End what the scheduler of this server does; called when the server ends."""
    while _made:
        _made.pop().close()


@st.cache_resource(show_spinner=False)
def exports() -> dict[str, ExportJob]:
    """Exports of this server that are not in the library yet, by job id: a reload must not lose one."""
    return {}


@st.cache_resource(show_spinner="Reading this machine…")
def environment() -> wire.Environment:
    """The machine and what it can load, found once by a worker; of recorded results, the one they are of."""
    found = recording(store().folder)
    return scheduler().environment() if found is None else found.environment


@st.cache_resource(show_spinner=False)
def recorded() -> str:
    """That the results of this server were recorded elsewhere, in a sentence; empty: they are its own."""
    return words_of(store().folder)


def opening() -> str | None:
    """Id of the recorded result on which a demonstration opens, once a session; None: the page decides."""
    if not recorded() or st.session_state.get(OPENED):
        return None
    st.session_state[OPENED] = True
    return opening_id() if _nobody_chose() else None


def _nobody_chose() -> bool:
    return st.session_state.get(MODEL) == st.session_state.get(FALLBACK)


def take_recorded(page: str) -> None:
    """Let each page of a demonstration open on a model that it has something of, until somebody chooses one.

    Args:
        page: folder of the view of the page.
    """
    if not recorded() or not _nobody_chose():
        return
    add_samples()
    seen = _seen_on(page)
    if seen and st.session_state.get(MODEL) not in seen:
        st.session_state[MODEL] = st.session_state[FALLBACK] = seen[0]


@st.cache_resource(show_spinner=False)
def _seen_on(page: str) -> list[str]:
    return demo.seen_on(_store(), page)


@st.cache_resource(show_spinner=False)
def opening_id() -> str | None:
    """Id of the clearest gain among recorded results; None: there is none."""
    return demo.opening(_store())


def closed() -> str:
    """Why this session may start nothing; empty: it may."""
    if recorded():
        return "This is a demonstration: nothing is measured. Start ORTune without `--demo` to measure."
    if st.session_state.get(FOLLOWING):
        return "You are following a presenter. Stop following to make changes."
    return ""


def unless_closed(help: str | None = None, *, off: bool = False, busy: str = "") -> dict[str, Any]:
    """Return how a control is drawn that measures or changes something: off, with the reason, where none may.

    Args:
        help: of the control, where it is on.
        off: it is off for another reason, which `help` tells.
        busy: what it waits for, said before anything else; empty: nothing.
    """
    reason = busy or closed()
    return {"disabled": off or bool(reason), "help": reason or help}


def said_closed() -> bool:
    """Say why this session may start nothing, in the place of what would; return whether it is so."""
    if reason := closed():
        st.caption(f":material/block: {plain(reason)}")
    return bool(reason)


@st.cache_resource(show_spinner=False)
def freeze_imports() -> bool:
    """Take the imported libraries out of the garbage collector's sight, once.

    Streamlit collects after every run; walking pandas and Plotly each time costs CPU that a measurement
    running beside it would pay for.
    """
    import plotly.graph_objects as _  # noqa: F401 - imported to be frozen

    gc.collect()
    gc.freeze()
    return True


def _owner() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        user = f"user {os.getuid()}"
    return f"dashboard of {user} on {socket.gethostname()}"


# --- the current model ------------------------------------------------------------------------------------


def current_model() -> ModelRecord | None:
    """The chosen model, at first the sample `digits_cnn`; None, with the reason shown, without any."""
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
        report_record(error)
    if not errors:
        report(ModelError("The library is empty.", hint="Add a model on the Models page."))
    return None


@st.cache_resource(show_spinner="Reading the sample models…", ttl=60)
def add_samples() -> list[ErrorRecord]:
    """Put the models that come with ORTune into the library; return what went wrong."""
    errors = []
    for sample in sample_models():
        if sample.exists:
            try:
                import_file(store(), Path(sample.path), name=sample.name, source="sample")
            except TunerError as error:
                errors.append(record_from_error(error))
    return errors


def choose_model(record: ModelRecord) -> None:
    """Make `record` the current model, and keep it in the library when it was not there."""
    if store().model(record.content_sha256) is None:
        store().put_model(record)
    st.session_state[MODEL] = record.content_sha256


# --- settings ---------------------------------------------------------------------------------------------


def values(record: ModelRecord) -> dict[str, Any]:
    """The widgets' values of this session; defaults and proposed sizes where nothing was touched."""
    own = {str(k): v for k, v in st.session_state.items() if str(k).startswith(_PREFIXES)}
    return {**fields.defaults(), **fields.dim_values(sizes(record)), **own}


def sizes(record: ModelRecord) -> dict[str, Size]:
    """The size that each free dimension besides the batch has where nobody gives one; see `proposed`."""
    return proposed(fields.other_dims(record.info), record, store())


def seed(record: ModelRecord) -> None:
    """Give the widget of every setting its value before it is drawn; a value that is there stays."""
    for name, value in values(record).items():
        st.session_state.setdefault(name, value)


_PREFIXES = ("knob.", "option.", "options.", "dim.", "value.")


def current_spec() -> TrialSpec:
    """What the settings ask for, on the current model.

    Raises:
        SpecError: settings that cannot be used together, or text that cannot be read.
        ModelError: there is no model.
    """
    record = current_model()
    if record is None:
        raise ModelError("No model is chosen.", hint="Choose one on the Models page.")
    spec = fields.spec_from_values(
        values(record), path=portable(record.path), sha256=record.sha256, info=record.info
    )
    feed_plan(spec.workload, record.info)  # a missing size is said before a worker starts
    check_overrides(spec, record.info)
    return spec


def portable(path: str) -> str:
    """Return `path` relative to ORTune's folder when it lies in it: a sample is found on any machine."""
    return str(Path(path).relative_to(ROOT)) if Path(path).is_relative_to(ROOT) else path


def apply_spec(spec: TrialSpec, *, foreign: bool = False) -> None:
    """Load `spec` into the widgets, and its model. Call before any widget of a setting is drawn.

    Args:
        spec: what the widgets shall ask for.
        foreign: it came from outside (a file), so its path may not name just any file of this server.

    Raises:
        ModelError: there is no such model, or another one under that path; no widget was changed.
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
    """The one check of every finished spec before it is submitted, wherever its parts come from.

    Raises:
        SpecError: a setting that this server does not take from the browser.
        ModelError: a model that is not in the library, feeds or a dataset, outside of the open folders.
    """
    folders.check_spec(spec)
    path = spec.model.path
    if not any(store().model(one) for one in (path, str(ROOT / path))):
        allowed_path(path)


def check_before(spec: TrialSpec) -> None:
    """Refuse before it waits in the queue what cannot be measured, as far as it is known without a worker.

    Raises:
        SpecError: a dimension, a batch, feeds or an engine that this model does not have.
        ModelError: there is no such model.
        TunerError: what this server does not admit.
    """
    admit(spec)  # before anything tells what lies at a path
    trial_run.check_before(spec, store(), no_worker)


def race(asked: Sequence[Configuration], **options: Any) -> Job:
    """Return the checked job of a race, for `submit`; see `kinds.race` for the options.

    One that cannot run does not keep the others from racing; its result says why.

    Raises:
        TunerError: what keeps every candidate from running, or what this server does not admit.
    """
    for one in asked:
        admit(one.spec)
    trial_run.check_race_before(asked, store(), no_worker)
    return job_types.race(asked, **options)


def find_model(ref: ModelRef, *, foreign: bool = False) -> ModelRecord:
    """Return the model that a spec names: by hash when it has one, else by path or name.

    Raises:
        ModelError: no model of the library has that hash, or nothing that name.
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
    """Set one widget, or all of them, back to the default."""
    for widget, value in fields.defaults().items():
        if name is None or widget == name:
            st.session_state[widget] = value
    for widget in [str(k) for k in st.session_state if str(k).startswith(("option.", "options."))]:
        if name is None or name == fields.key("providers"):
            del st.session_state[widget]
    if name is None:
        for widget in [str(k) for k in st.session_state if str(k).startswith(("dim.", "value."))]:
            del st.session_state[widget]


# --- trials -----------------------------------------------------------------------------------------------


def linked_trial() -> str | None:
    """Id of the trial this page is about: the link's, else the one of this session."""
    linked = url_state.named(TRIAL_PARAM)
    if linked and linked != st.session_state.get(TRIAL):
        st.session_state[TRIAL], st.session_state[TRIAL_OF] = linked, None
    return st.session_state.get(TRIAL)


def show_trial(trial_id: str | None) -> None:
    """Make `trial_id` the trial that Tune shows, in the address as well."""
    if st.session_state.get(TRIAL) != trial_id:
        st.session_state[TRIAL_OF] = None
    st.session_state[TRIAL] = trial_id
    url_state.put(TRIAL_PARAM, trial_id)


def own_trial(trial_id: str) -> None:
    """Show a trial whose settings are the widgets' own, as one that this session just started."""
    st.session_state[APPLIED] = trial_id
    show_trial(trial_id)
    st.session_state[TRIAL_OF] = st.session_state.get(MODEL)


def submit(job: Job) -> str:
    """Queue what somebody of this session asked for; return the id by which it is followed.

    A page that is drawn anew while a button is pressed may hand the press over twice; the second one finds
    the job of the first still active, and starts nothing. This holds for jobs whose trials say all that is
    asked; of two others one cannot tell whether they ask the same.

    Raises:
        TunerError: as `Scheduler.submit`.
    """
    asked = (job.kind, job.what, [one.spec for one in job.trials])
    last, last_id, at = st.session_state.get(SUBMITTED, (None, "", 0.0))
    if job.trials and asked == last and time.monotonic() - at < ECHO_S and is_active(status(last_id)):
        return str(last_id)
    found = scheduler().submit(job)
    st.session_state[SUBMITTED] = asked, found, time.monotonic()
    return found


def follow(job_id: str, page: str, **query: str) -> None:
    """Make a job that this session just started the one that the sidebar follows.

    Args:
        job_id: of a trial, a race or another job.
        page: that shows it, as the file of its view is called.
        query: of the page's address.
    """
    st.session_state[OWN] = {"id": job_id, "page": f"views/{page}/page.py", "query": query}


def own_job() -> tuple[Status, str, dict[str, str]] | None:
    """Where the job stands that this session started last, the page that shows it, and its query."""
    own = st.session_state.get(OWN)
    found = status(own["id"]) if own else None
    return None if own is None or found is None else (found, own["page"], own["query"])


def is_busy(page: str = "") -> bool:
    """Whether the job that this session started last waits or runs; with `page`: and is shown there."""
    followed = own_job()
    return followed is not None and is_active(followed[0]) and followed[1].startswith(f"views/{page}")


def is_new_link(trial_id: str) -> bool:
    """True once for each trial that came by a link."""
    fresh = st.session_state.get(APPLIED) != trial_id
    st.session_state[APPLIED] = trial_id
    return fresh


def left_behind(key: str, record: ModelRecord) -> bool:
    """Whether another model was chosen since the result of a page was shown; `key` remembers the model."""
    before = st.session_state.get(key)
    if before is None:
        st.session_state[key] = before = record.content_sha256
    return bool(before != record.content_sha256)


def measured(record: ModelRecord, *, limit: int = 100) -> list[Trial]:
    """Complete measurements of a model, newest first, without samples."""
    return store().trials(model_sha256=record.content_sha256, kind="measure", state="COMPLETE", limit=limit)


def trial_link(trial_id: str, page: str = "") -> str:
    """Address of a page (Tune by default) that opens `trial_id` in any browser."""
    here = urlsplit(st.context.url or "")
    base = f"{here.scheme}://{here.netloc}" if here.netloc else ""
    prefix = st.get_option("server.baseUrlPath").strip("/")
    path = "/".join(part for part in (prefix, page) if part)
    return f"{base}/{path}?{TRIAL_PARAM}={trial_id}"


def pinned(spec: TrialSpec) -> Configuration | None:
    """What `spec` races against beside ONNX Runtime's default: the pinned baseline; None without one.

    A baseline that asks for the same thing as `spec` is none: the default tells more.

    Raises:
        SpecError: this version cannot read the pinned trial.
    """
    record = current_model()
    trial_id = store().baseline(record.content_sha256) if record is not None else None
    if trial_id is None:
        return None
    try:
        found = trial_spec(store().trial(trial_id))
    except StoreError:  # deleted since
        return None
    if same_request(found, spec):
        return None
    name = configurations.labels([spec, found], baseline=1)[1]
    return Configuration(spec=found, label=f"pinned baseline: {name}", role="baseline")


def predicted(spec: TrialSpec) -> Prediction | None:
    """How long a run of `spec` will take; None where this model has not raced on this machine yet."""
    record = current_model()
    if record is None:
        return None
    newest = store().comparisons(model_sha256=record.content_sha256, state="COMPLETE", limit=1)
    known = _past(record.content_sha256, environment()["fingerprint"], newest[0].id if newest else "")
    if known is None:
        return None
    baseline = pinned(spec)
    asked = [Configuration(spec=spec, label=""), *([baseline] if baseline is not None else [])]
    return predict([one.spec for one in line_up(asked)], known)


@st.cache_resource(show_spinner=False, max_entries=20)
def _past(model_sha256: str, fingerprint: str, newest: str) -> Past | None:
    """Kept until `newest`, the id of the last race, is another."""
    return past(store(), model_sha256=model_sha256, fingerprint=fingerprint)


def search_space(spec: TrialSpec, question: Question, place: Place, models: Models) -> Space:
    """What a search could try; counted once for each start and each choice of what may change.

    Raises:
        SpecError: nothing is left to vary, or too many configurations differ.
    """
    told_apart = spec.key(), question.without, tuple(models.refs)
    return _space(told_apart, place, spec, question, models)


@st.cache_resource(show_spinner="Counting configurations…", max_entries=20)
def _space(
    told_apart: tuple[object, ...], place: Place, _spec: TrialSpec, _question: Question, _models: Models
) -> Space:
    """Hundreds of thousands of combinations take a second."""
    return space_of(_spec, _question, place, _models)


def trial_spec(trial: Trial) -> TrialSpec:
    """The spec of a stored trial; raises `SpecError` when this version cannot read it."""
    return spec_from_dict(trial.spec)


def status(trial_id: str) -> Status | None:
    """Where a submitted trial or job of this server stands."""
    return scheduler().status(trial_id)


def is_active(current: Status | None) -> bool:
    """True while a trial or job waits or runs."""
    return current is not None and current.state in ("WAITING", "RUNNING")


def is_dark() -> bool:
    """True while the page has its dark theme."""
    return st.context.theme.type == "dark"


# --- messages ---------------------------------------------------------------------------------------------

_TITLES: Mapping[str, str] = {
    "SpecError": "These settings cannot be used",
    "ModelError": "The model cannot be used",
    "ProviderError": "An execution provider is not available",
    "WorkerError": "The worker process failed",
    "StoreError": "The result store has a problem",
    "MissingError": "This result does not exist here",
    "BudgetError": "The budget is too small for a number",
    "Cancelled": "Cancelled",
}


def report(error: TunerError, title: str = "") -> None:
    """Show an expected failure: what broke, and what to do.

    Args:
        error: what broke.
        title: what came to nothing; empty: after the kind of error.
    """
    hint = f"\n\n**What to do:** {plain(error.hint)}" if error.hint else ""
    heading = title or _TITLES.get(type(error).__name__, "That did not work")
    st.error(plain(error.message) + hint, title=heading, icon=":material/error:")


def report_record(record: ErrorRecord, title: str = "") -> None:
    """Show the stored error of a failed trial; `title` as of `report`."""
    report(error_from_record(record), title)


def report_unexpected(error: Exception) -> bool:
    """Show whatever a page or a callback raised; Streamlit has logged it, and draws nothing of its own."""
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


def keep_error(error: TunerError, place: str = "") -> None:
    """Keep an error of a callback, where nothing can be drawn, for `show_kept_error`.

    Args:
        error: what went wrong.
        place: beside which action it is shown; empty: where the page shows what has no place.
    """
    st.session_state[ERROR] = {**record_from_error(error), "place": place}


def show_kept_error(place: str = "", title: str = "") -> None:
    """Show what `keep_error` left for `place`, once; `title` as of `report`."""
    kept = st.session_state.get(ERROR)
    if kept is None or kept["place"] != place:
        return
    del st.session_state[ERROR]
    report_record({"type": kept["type"], "message": kept["message"], "hint": kept["hint"]}, title)


def notify(text: str) -> None:
    """Show `text` once, after the rerun that follows."""
    st.session_state[NOTICE] = text


def show_notice() -> None:
    """Show what `notify` left, if anything."""
    if text := st.session_state.pop(NOTICE, None):
        st.toast(text, icon=":material/check_circle:")
