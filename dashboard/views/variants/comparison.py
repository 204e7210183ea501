"""Comparison of a family: the original and its variants with ORT's default settings."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.evidence.verdict import is_rejected
from core.run import variants
from core.spec import ModelRef, ProtocolSpec, SessionSpec, TrialSpec
from core.store import ModelRecord
from core.wire.errors import SpecError, TunerError
from dashboard import configurations, state
from dashboard.charts import compare_charts
from dashboard.views.variants import create as variant_maker
from dashboard.widgets import controls, plots
from dashboard.widgets.protocol import effort, wait_for_quiet, wait_quiet_s

CHOSEN, PRECISION = "variants.racers", "variants.precision"
OFFERED = "variants.racers.offered"  # the variants offered last time
FOREST_PX = 330  # with the table above it, a third of a screen
MOST = configurations.MOST - 1  # besides the original


def draw(root: ModelRecord, made: Sequence[ModelRecord]) -> None:
    """Draw the choice of variants and the button that compares them and opens Compare.

    Args:
        root: the original.
        made: its variants.
    """
    names = {one.content_sha256: one.name for one in made}
    if st.session_state.get(OFFERED) != sorted(names) or CHOSEN not in st.session_state:
        st.session_state[OFFERED] = sorted(names)
        st.session_state[CHOSEN] = list(names)[-MOST:]  # the newest, if too many
    with st.popover("Compare variants", icon=":material/flag_check:", key="variants.race"):
        st.multiselect(
            f"Against {root.name}",
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
            _start(root, [one for one in made if one.content_sha256 in st.session_state[CHOSEN]], precision)


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


def _start(root: ModelRecord, chosen: Sequence[ModelRecord], precision: str) -> None:
    try:
        if not chosen:
            raise SpecError("No variant is chosen.", hint="Choose at least one.")
        base = TrialSpec(
            model=ModelRef(path=state.portable(root.path), sha256=root.sha256),
            session=SessionSpec(custom_op_libraries=controls.named_operators()),
            workload=variant_maker.workload(root),
            protocol=ProtocolSpec(effort=precision),  # type: ignore[arg-type] # a key of PRECISIONS
        )
        job = state.comparison_job(
            variants.family_configurations([root, *chosen], base),
            study=f"family #{secrets.token_hex(4)}",
            model_name=root.name,
            wait_quiet_s=wait_quiet_s(),
        )
        comparison = state.submit(job)
    except TunerError as error:
        state.report(error)
        return
    state.follow(comparison, "compare", comparison=comparison)
    st.switch_page("views/compare/page.py", query_params={"comparison": comparison})
