"""Jobs of a session: predicted before they start, submitted, and followed by the sidebar."""

from __future__ import annotations

import time
from typing import TypeGuard

import streamlit as st

from core.api.requests import COMPARISONS_READ, ComparisonHistory, Prediction, past, predict
from core.api.session import Job, Status
from core.evidence.comparison import DEFAULT_LABEL, Configuration, same_request, with_references
from core.spec import TrialSpec, ort_default
from core.wire.errors import StoreError
from core.wire.runtime import OWN as RUNTIME_OWN
from dashboard import configurations, state
from dashboard.server import people

# keys of the session
OWN = "own"  # the job that this session started last, and its page
SUBMITTED = "submitted"  # the last submission of this session, the id of its job, and its time
REPEATED_PRESS_S = 10.0  # Streamlit may deliver a press twice within it; a later repetition is intended


# --- before the start -------------------------------------------------------------------------------------


def pinned(spec: TrialSpec) -> Configuration | None:
    """Return the pinned baseline to compare `spec` with besides ONNX Runtime's default; None without one.

    A baseline equal to `spec` is left out: the default says more. So is one with native libraries, which
    this person may not load.

    Raises:
        SpecError: this version cannot read the pinned trial.
    """
    record = state.current_model()
    trial_id = state.store().baseline(record.content_sha256) if record is not None else None
    if trial_id is None:
        return None
    try:
        found = state.trial_spec(state.store().trial(trial_id))
    except StoreError:  # deleted meanwhile
        return None
    if same_request(found, spec) or (found.session.libraries and not people.person().may_act_as("admin")):
        return None
    name = configurations.labels([spec, found], baseline=1)[1]
    return Configuration(spec=found, label=f"pinned baseline: {name}", role="baseline")


def baseline(spec: TrialSpec) -> Configuration | None:
    """Return the baseline of a run of `spec`; None: ONNX Runtime's default.

    ONNX Runtime's default in another runtime is compared with that in ORTune's own. Raises as `pinned` does.
    """
    found = pinned(spec)
    if found is not None or spec.runtime == RUNTIME_OWN or not same_request(spec, ort_default(spec)):
        return found
    own = spec.model_copy(update={"runtime": RUNTIME_OWN})
    return Configuration(spec=own, label=f"{DEFAULT_LABEL} ({RUNTIME_OWN})", role="baseline")


def predicted(spec: TrialSpec) -> Prediction | None:
    """Predict how long a run of `spec` takes; None: this model has no comparison on this machine yet."""
    record = state.current_model()
    if record is None:
        return None
    known = past_comparisons(record.content_sha256)
    if known is None:
        return None
    other = baseline(spec)
    asked = [Configuration(spec=spec, label=""), *([other] if other is not None else [])]
    return predict([one.spec for one in with_references(asked)], known)


def past_comparisons(model_sha256: str) -> ComparisonHistory | None:
    """Return facts from earlier comparisons of a model on this machine, for `predict`; None: too few.

    They are read again when the comparisons that this person sees have changed.
    """
    visible = state.store().comparison_checksums(
        model_sha256=model_sha256, state="COMPLETE", limit=COMPARISONS_READ
    )
    return _past(model_sha256, state.environment()["fingerprint"], tuple(visible))


@st.cache_resource(show_spinner=False, max_entries=20)
def _past(
    model_sha256: str, fingerprint: str, visible: tuple[tuple[str, str], ...]
) -> ComparisonHistory | None:
    return past(state.store(), model_sha256=model_sha256, fingerprint=fingerprint)


# --- started jobs -----------------------------------------------------------------------------------------


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
    found = state.scheduler().submit(job)
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


def status(trial_id: str) -> Status | None:
    """Return the status of a trial or job of this server."""
    return state.scheduler().status(trial_id)


def is_active(current: Status | None) -> TypeGuard[Status]:
    """Whether a trial or job waits or runs."""
    return current is not None and current.state in ("WAITING", "RUNNING")
