"""Services of the server, and the model and settings of a session: what Streamlit keeps for the dashboard.

Services live in the process, so they outlast a page reload. The session holds plain values only: names,
numbers, text. Jobs of a session are in `session_jobs`, its errors and notices in `messages`.
"""

from __future__ import annotations

import contextlib
import gc
from functools import partial
from pathlib import Path
from typing import Any, cast

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from core import wire
from core.api.requests import (
    Size,
    capabilities,
    check_overrides,
    check_runtime,
    default_sizes,
    feed_plan,
)
from core.api.session import MachineQueue, Run, Scheduler, Session, refuse_worker, run_job, user_on_host
from core.api.session import clean_up as settled
from core.evidence.measurement import Trial
from core.spec import ModelRef, TrialSpec, spec_from_dict
from core.store import Actor, Held, ModelRecord, Query, Store
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
from core.wire.runtime import OWN
from dashboard import fields, folders, guarded, messages, runtimes
from dashboard.fleet_client import FleetClient
from dashboard.folders import allowed_path
from dashboard.format import plain
from dashboard.server import people, quotas
from dashboard.server.people_file import Role
from dashboard.server.personal import PersonalScheduler

DEFAULT_MODEL = "digits_cnn"
SETTLE_EVERY_S = 5.0  # between two searches for ended processes

# Keys of the session. Widgets of settings have keys of their own, see `fields`.
MODEL = "model"  # content SHA-256 of the current model
FALLBACK = "model.fallback"  # content SHA-256 of the model shown by default, not chosen
LOADED = "settings.loaded"  # somebody loaded or chose settings: a result no longer replaces them
LOADED_WITH_RESULT = "settings.by_itself"  # settings loaded with a result, not chosen
FOLLOWING = people.FOLLOWING
TRIAL_PARAM = "trial"  # ?trial=<id>
MODEL_PARAM = "model"  # ?model=<content hash>: a model to show


# --- services of the process ------------------------------------------------------------------------------


@st.cache_resource(show_spinner=False)
def _store() -> Store:
    return Store()


def store() -> Store:
    """Return the store in ORTune's home folder, as the person of this session may use it."""
    found = store_of(people.person())
    return found if _is_unguarded() else guarded.store(found, _check_person)


def store_of(one: people.Person) -> Store:
    """Return the store as a person reads it; in any thread."""
    actor = actor_of(one)
    return _store() if actor is None else _store().for_person(actor.person, sees_all=actor.sees_all)


def present_actor() -> Actor | None:
    """Return who reads and writes in this session; None: there is no login, so nobody is told apart."""
    return actor_of(people.person())


def actor_of(one: people.Person) -> Actor | None:
    """Return a person as the store knows it; None: there is no login."""
    return None if one.id == people.LOCAL.id else Actor(one.id, sees_all=one.may_act_as("admin"))


@st.cache_resource(ttl=SETTLE_EVERY_S, show_spinner=False)
def clean_up() -> None:
    """Mark running records whose process is gone as interrupted; every few seconds."""
    settled(_store())


def not_stored() -> list[Held]:
    """Return what a full disk keeps out of the store, after storing what has space now."""
    with contextlib.suppress(StoreError):
        _store().write_held()
    return store().not_stored()


@st.cache_resource(show_spinner=False)
def queue() -> MachineQueue:
    """Return the queue of the whole machine."""
    return MachineQueue()


def session() -> Session:
    """Return the API's session of this server: its store and queue; it waits for no worker."""
    check = partial(admit, one=people.person())  # a job may call it, in a thread without a browser session
    return Session(store(), scheduler=scheduler(), inspect=refuse_worker, admit=check)


def scheduler() -> Scheduler:
    """Return the scheduler of this server; its jobs end with the server."""
    actor = present_actor()
    found = _scheduler() if actor is None else cast(Scheduler, scheduler_for(actor))
    return found if _is_unguarded() else guarded.scheduler(found, _check_person)


def scheduler_for(actor: Actor) -> PersonalScheduler:
    """Return the scheduler of this server as a person reads it; in any thread."""
    return PersonalScheduler(_scheduler(), actor)


def _is_unguarded() -> bool:
    return not people.has_login() and not is_following()


def _check_person() -> None:
    if not people.person().may_act_as("engineer"):
        refuse_if_closed()


def is_following() -> bool:
    """Whether this session follows a presenter; False in a thread without a session."""
    return get_script_run_ctx(suppress_warning=True) is not None and bool(st.session_state.get(FOLLOWING))


@st.cache_resource(show_spinner=False)
def _scheduler() -> Scheduler:
    folders.restrict_workers()
    service = Scheduler(
        _store(),
        owner=f"dashboard of {user_on_host()}",
        queue=queue(),
        admit=admit,
        check_start=partial(quotas.check_start, _store()),
    )
    _made.append(service)
    return service


@st.cache_resource(show_spinner=False)
def fleet_client() -> FleetClient:
    """Return what asks fleets for this server; its runs end with the server."""
    service = FleetClient()
    _made.append(service)
    return service


_made: list[Scheduler | FleetClient] = []  # asking the cache at the end would create one


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


def closed(role: Role = "engineer") -> str:
    """Return why this session may not do what needs `role`; empty: it may."""
    if recorded():
        return "This is a demonstration: nothing is measured. Start the dashboard without it to measure."
    if st.session_state.get(FOLLOWING):
        return "You are following a presenter. Stop following to make changes."
    return people.refusal(role)


def refuse_if_closed(role: Role = "engineer") -> None:
    """Continue where this session may do what needs `role`, whatever a browser sends for a disabled button.

    Raises:
        SpecError: it may not.
    """
    if reason := closed(role):
        hint = 'Press "Stop following" in the sidebar.' if is_following() else people.HINT
        raise SpecError(reason, hint="" if recorded() else hint)


def unless_closed(
    help: str | None = None, *, off: bool = False, busy: str = "", role: Role = "engineer"
) -> dict[str, Any]:
    """Return arguments of a control that measures or changes something: disabled and why, if refused.

    Args:
        help: of the enabled control.
        off: disabled for another reason, which `help` explains.
        busy: what it waits for; shown before any other reason; empty: nothing.
        role: that it needs.
    """
    reason = busy or closed(role)
    return {"disabled": off or bool(reason), "help": reason or help}


def show_closed_reason() -> bool:
    """Say why this session may start nothing; return whether that is so."""
    if reason := closed():
        st.caption(f":material/block: {plain(reason)}")
    return bool(reason)


def providers(runtime: str = OWN) -> list[wire.ProviderFact]:
    """Return the providers of a runtime.

    Raises:
        SpecError: there is no such runtime, or it has no ONNX Runtime.
        WorkerError: they are not known yet and no worker may start now, or the worker crashed.
    """
    if runtime == OWN or recorded():
        return environment()["providers"]
    with st.spinner("Reading the runtime…"):
        return capabilities(runtime, _run_if_idle())["providers"]


def lacking(spec: TrialSpec, record: ModelRecord) -> str:
    """Return why the runtime of a spec cannot run it, as far as that is known; empty: it can.

    Args:
        spec: a configuration.
        record: its model.
    """
    if spec.runtime == OWN or recorded():
        return ""
    try:
        runtimes.pinned(spec.runtime)
        with st.spinner("Reading the runtime…"):
            check_runtime(spec, record.info, _run_if_idle())
    except TunerError as error:
        return f"{error.message} {error.hint}"
    return ""


def _run_if_idle() -> Run:
    """Return what starts a worker that reads facts; it refuses to while something is measured."""
    return refuse_worker if queue().entries() else run_job


@st.cache_resource(show_spinner=False)
def freeze_imports() -> bool:
    """Exclude the imported libraries from garbage collection, once.

    A full collection walks pandas and Plotly, too, which takes CPU time from a running measurement.
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
        messages.report(error)
    if not errors:
        messages.report(ModelError("The library is empty.", hint="Add a model on the Models page."))
    return None


@st.cache_resource(show_spinner="Reading the sample models…", ttl=60)
def add_samples() -> list[ErrorRecord]:
    """Add the models that come with ORTune to the library; return the errors."""
    errors = []
    for sample in sample_models():
        if sample.exists:
            try:
                import_file(_store(), Path(sample.path), name=sample.name, source="sample")
            except TunerError as error:
                errors.append(record_from_error(error))
    return errors


def choose_model(record: ModelRecord) -> None:
    """Make `record` the current model, and add it to the library when it is not there."""
    if _store().model(record.content_sha256) is None:
        _store().put_model(record)
    st.session_state[MODEL] = record.content_sha256


# --- settings ---------------------------------------------------------------------------------------------


def values(record: ModelRecord) -> dict[str, Any]:
    """Return this session's widget values; defaults and proposed sizes where nothing was touched."""
    own = {
        key: value
        for key, value in st.session_state.to_dict().items()
        if key.startswith(("knob.", *fields.OPTIONS, *fields.SIZES))
    }
    if fields.RUNTIME in own:
        own[fields.RUNTIME] = runtimes.chosen(own[fields.RUNTIME])
    # proposing sizes reads trials, so only where one is missing
    is_lacking = any(fields.dim_key(dim) not in own for dim in fields.other_dims(record.info))
    return {**fields.defaults(), **(fields.dim_values(sizes(record)) if is_lacking else {}), **own}


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
        SpecError: settings that exclude each other, text that cannot be read, or no such runtime.
        ModelError: there is no model.
    """
    record = current_model()
    if record is None:
        raise ModelError("No model is chosen.", hint="Choose one on the Models page.")
    spec = runtimes.pinned_spec(
        fields.spec_from_values(
            values(record), path=portable(record.path), sha256=record.sha256, info=record.info
        )
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
        folders.check_spec(spec, store())
    for stale in fields.stale_keys([str(k) for k in st.session_state], spec):
        del st.session_state[stale]
    st.session_state[LOADED] = True
    for name, value in fields.values_from_spec(spec).items():
        st.session_state[name] = value
    st.session_state[fields.RUNTIME] = runtimes.choice_of(spec.runtime)
    choose_model(record)


def admit(spec: TrialSpec, one: people.Person | None = None) -> None:
    """Check a finished spec before it is submitted; every spec passes here.

    Args:
        spec: a configuration.
        one: who asks; None: the person of this browser session.

    Raises:
        SpecError: a setting that this server does not accept from the browser, or from this person.
        ModelError: a model that is not in the library, or inputs or a dataset outside of the allowed folders.
        PrivateError: a file of a model that is private to another person.
    """
    one = one or people.person()
    folders.check_role(spec, one)
    seen = store_of(one)
    folders.check_spec(spec, seen)
    path = spec.model.path
    if not any(seen.model(ref) for ref in (path, str(ROOT / path))):
        allowed_path(path, seen)


def find_model(ref: ModelRef, *, foreign: bool = False) -> ModelRecord:
    """Return the model that a spec names: by hash if it has one, else by path or name.

    Raises:
        ModelError: no model of the library has that hash or that name.
    """
    if ref.sha256 and (record := store().model(ref.sha256)):
        return record
    if foreign and store().model(ref.path) is None:
        allowed_path(ref.path, store())
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


def measured(record: ModelRecord, *, limit: int = 100) -> list[Trial]:
    """Return the complete measurements of a model, newest first, without samples."""
    return store().trials(model_sha256=record.content_sha256, kind="measure", state="COMPLETE", limit=limit)


def measured_by(record: ModelRecord) -> Query:
    """Return the query of the same trials as `measured`, for `derived_rows.of_trials`."""
    return Query(model_sha256=record.content_sha256, kind="measure", states=("COMPLETE",), archived=True)


def trial_if_kept(trial_id: str) -> Trial | None:
    """Return a trial; None: it was deleted meanwhile, or it is damaged."""
    try:
        return store().trial(trial_id)
    except TunerError:
        return None


def trial_spec(trial: Trial) -> TrialSpec:
    """Return the spec of a stored trial; raises `SpecError` when this version cannot read it."""
    return spec_from_dict(trial.spec)


def put(key: str, value: Any) -> None:
    """Set a value of the session; a callback."""
    st.session_state[key] = value
