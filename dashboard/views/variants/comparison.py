"""Measurements of a family: the original and its variants, on ORT's default settings."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.api import variants
from core.api.measuring import compare_job
from core.evidence.verdict import is_rejected
from core.spec import ModelRef, ProtocolSpec, SessionSpec, TrialSpec
from core.spec.datasets import DatasetSpec
from core.store import ModelRecord
from core.wire.errors import SpecError, TunerError
from dashboard import configurations, format, messages, session_jobs, state
from dashboard.charts import compare_charts
from dashboard.views.accuracy import evaluations
from dashboard.views.variants import create as variant_maker
from dashboard.widgets import controls, job_box, page_frame, plots
from dashboard.widgets.protocol import QUICK, effort, wait_for_quiet, wait_quiet_s

CHOSEN, PRECISION = "variants.racers", "variants.precision"
OFFERED = "variants.racers.offered"  # the variants offered last time
MEASURING = "variants.measuring"  # what is measured -> its job, of those that this session started here
FOREST_PX = 330  # with the table above it, a third of a screen
MOST = configurations.MOST - 1  # besides the original


def draw(root: ModelRecord, made: Sequence[ModelRecord], data: DatasetSpec | None) -> None:
    """Draw the button that measures the variants here, and the choices of a comparison that opens Compare.

    Args:
        root: the original.
        made: its variants.
        data: labelled data of this session; None: none are chosen.
    """
    names = {one.content_sha256: one.name for one in made}
    if st.session_state.get(OFFERED) != sorted(names) or CHOSEN not in st.session_state:
        st.session_state[OFFERED] = sorted(names)
        st.session_state[CHOSEN] = list(names)[-MOST:]  # the newest, if too many
    st.button(
        "Measure",
        key="variants.measure",
        icon=":material/speed:",
        on_click=_measure,
        args=(root, made, data),
        **state.unless_closed(
            "Speed of the variants against the original, and accuracy on the labelled data."
            if data is not None
            else "Choose labelled data on the Accuracy page first.",
            off=data is None,
            busy="Wait for the measurement, or cancel it." if st.session_state.get(MEASURING) else "",
        ),
    )
    with st.popover("Compare variants", icon=":material/flag_check:", key="variants.race"):
        st.multiselect(
            f"Against {format.label(root.name)}",
            list(names),
            key=CHOSEN,
            format_func=lambda sha: names.get(sha, sha[:12]),
            max_selections=MOST,
            help=f"At most {MOST} variants, on ONNX Runtime's default settings. Use Compare for "
            "other settings.",
        )
        precision = effort(PRECISION)
        wait_for_quiet()
        if st.button(
            "Start comparison",
            key="variants.race.start",
            type="primary",
            icon=":material/play_arrow:",
            **state.unless_closed(),
        ):
            _start(root, made, precision)


def forest(root: ModelRecord, made: Sequence[ModelRecord], verdicts: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the ratios of the variants to the original; nothing where none was compared.

    Args:
        root: the original.
        made: its variants.
        verdicts: as of `variants.verdicts`.
    """
    names = {one.content_sha256: one.name for one in (root, *made)}
    found = [{**verdicts[sha], "candidate": sha} for sha in names if sha in verdicts]
    if not found:
        return
    info = compare_charts.forest_info(
        found,
        names,
        baseline=root.content_sha256,
        margin=compare_charts.margin_of(state.store().comparison(found[0]["comparison"])),
        muted=[one["candidate"] for one in found if is_rejected(one)],
    )
    plots.draw(
        compare_charts.forest(info, least=FOREST_PX),
        "Speed against the original",
        key="variants.speed",
        alt=f"Ratio of each variant against {root.name} with its 95 % interval.",
    )


def running() -> None:
    """Draw the measurements that this session has started here; report why one has failed."""
    jobs = st.session_state.get(MEASURING, {})
    for name, job in list(jobs.items()):
        status = session_jobs.status(job)
        if session_jobs.is_active(status):
            job_box.draw(status, "variants", what=f"the {name}", help="Finished parts are kept.", of=name)
            continue
        del jobs[name]
        if status is not None:
            for error in filter(None, [status.error, *(status.result or {}).get("errors", [])]):
                messages.report(error)


def _measure(root: ModelRecord, made: Sequence[ModelRecord], data: DatasetSpec) -> None:
    """Queue a comparison of the chosen variants, and their evaluation; call in a callback."""
    try:
        models = [root, *_chosen(made)]
        jobs = {"speed": _compare(models, st.session_state.get(PRECISION) or QUICK)}
        st.session_state[MEASURING] = jobs
        jobs["accuracy"] = evaluations.submit([evaluations.on_default(one, data).spec for one in models])
    except TunerError as error:
        messages.keep_error(error)
        return
    session_jobs.follow(jobs["accuracy"], "variants")


def _chosen(made: Sequence[ModelRecord]) -> list[ModelRecord]:
    """Return the chosen variants.

    Raises:
        SpecError: there are none.
    """
    chosen = [one for one in made if one.content_sha256 in st.session_state[CHOSEN]]
    if not chosen:
        raise SpecError("No variant is chosen.", hint="Choose at least one.")
    return chosen


def _compare(models: Sequence[ModelRecord], precision: str) -> str:
    """Queue a comparison of the original, which is first, and variants; return its id."""
    root = models[0]
    base = TrialSpec(
        model=ModelRef(path=state.portable(root.path), sha256=root.sha256),
        session=SessionSpec(custom_op_libraries=controls.named_operators()),
        workload=variant_maker.workload(root),
        protocol=ProtocolSpec(effort=precision),  # type: ignore[arg-type] # a key of EFFORTS
    )
    return session_jobs.submit(
        compare_job(
            state.session(),
            variants.family_configurations(models, base),
            study=f"family #{secrets.token_hex(4)}",
            model_name=root.name,
            wait_quiet_s=wait_quiet_s(),
        )
    )


def _start(root: ModelRecord, made: Sequence[ModelRecord], precision: str) -> None:
    try:
        comparison = _compare([root, *_chosen(made)], precision)
    except TunerError as error:
        messages.report(error)
        return
    session_jobs.follow(comparison, "compare", comparison=comparison)
    page_frame.switch_to("compare", comparison=comparison)
