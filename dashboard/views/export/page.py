"""Export page: a trial in the format chosen from the table; also loads a YAML file into the settings."""

from __future__ import annotations

import time
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.api import variants
from core.api.exporting import ExportSource, export_source_of, source_of_settings
from core.api.references import with_full_paths
from core.evidence.measurement import Trial
from core.evidence.streams import p50_words
from core.show import export, setting_chips, verdict
from core.show.words import counted
from core.spec import TrialSpec
from core.wire.errors import PrivateError, SpecError, TunerError
from core.wire.files import file_stem
from core.wire.output_check import OUTPUTS_DIFFER, WARNING, breach
from core.wire.units import size
from dashboard import format, messages, state, url_state
from dashboard.shown_result import TUNE, ShownResult
from dashboard.views.export import bundling, digests, signatures, verifying
from dashboard.widgets import page_frame, results, yaml_source

SHOWN = ShownResult("export.shown", (state.TRIAL_PARAM,))
CURRENT = "current"
SOURCE = "export.source"
PASTED = "export.pasted"
FILE = "export.file"
ACCEPTED = "export.accepted"
FORMAT = "export.format"
TABS, VERIFY, DIGESTS = "export.tabs", "Verify", "Digests"  # key of the tabs, and the other tabs
TAB_PARAM = "tab"  # in the URL of a link to the tab Digests
WHOLE = "export.whole"  # whether the YAML file includes defaults
PLACE = "load"  # where errors of loading are shown
CODE_PX = 600
MOST_BYTES = 64 << 20  # of a model; a download passes through the server's memory


def page() -> None:
    bar = page_frame.bar("Export", "Export a configuration as files or code, or load one from a file.")
    with bar.more:
        _load_tab()
    messages.show_kept_error()
    _loaded()
    if verifying.JOB_PARAM in st.query_params:
        st.session_state.setdefault(TABS, VERIFY)
    if url_state.named(TAB_PARAM) == DIGESTS.lower():
        st.session_state[TABS] = DIGESTS
        url_state.put(TAB_PARAM, None)
    out, verify, chain = st.tabs(["Download", VERIFY, DIGESTS], key=TABS, on_change="rerun")
    if out.open:
        with out:
            _export_tab(bar)
    if verify.open:
        with verify:
            verifying.draw(bar.action)
    if chain.open:
        with chain:
            digests.draw()


# --- export -----------------------------------------------------------------------------------------------


def _export_tab(bar: page_frame.Bar) -> None:
    trials = {t.id: t for t in state.store().trials(kind="measure", state="COMPLETE", limit=200)}
    _preselect(trials)
    chosen = bar.choice.selectbox(
        "What to export",
        [CURRENT, *trials],
        key=SOURCE,
        format_func=lambda one: _label(trials.get(one)),
        persist_state="session",
        help="A trial includes its numbers and its machine; the current settings do not.",
    )
    if chosen == CURRENT or chosen in trials:
        SHOWN.show(None if chosen == CURRENT else chosen)
    try:
        if chosen == CURRENT or chosen not in trials:
            _current(bar.action)
        else:
            _trial(state.store().trial(chosen), bar.action)
    except TunerError as error:
        messages.report(error)


def _preselect(trials: dict[str, Trial]) -> None:
    """Select the trial of the link, or else the trial that Tune shows."""
    if linked := SHOWN.take_link():
        known = next((one for one in trials if one.startswith(linked)), None)
        if known is not None:
            st.session_state[SOURCE] = known
        elif (private := _private(linked)) is not None:
            messages.report(private)
        else:
            words = f"`{linked[:40]}` is not a finished measurement here."
            messages.report(SpecError(words, hint="Choose one from the list."))
    if SOURCE not in st.session_state or st.session_state[SOURCE] not in (CURRENT, *trials):
        st.session_state[SOURCE] = TUNE.id if TUNE.id in trials else _newest(trials)


def _private(linked: str) -> PrivateError | None:
    """Return the error of a link to a private result of another person; None: it is something else."""
    try:
        state.store().trial_id(linked)
    except PrivateError as error:
        return error
    except TunerError:
        pass
    return None


def _newest(trials: dict[str, Trial]) -> str:
    """Return the newest measurement of the current model, or else the settings alone."""
    record = state.current_model()
    own = record.content_sha256 if record is not None else ""
    return next((one.id for one in trials.values() if one.model_sha256 == own), CURRENT)


def _label(trial: Trial | None) -> str:
    if trial is None:
        return "The current settings, not measured"
    p50 = trial.p50_s
    p50_text = f"{p50_words(trial.result)} {format.ms(p50)}{verdict.background_load_mark(trial.result)}"
    parts = [
        trial.model_name,
        setting_chips.words(trial),
        p50_text,
        format.when(trial.created_at),
        trial.id[:8],
    ]
    if breach(trial.result):
        parts.append(f"{WARNING} {OUTPUTS_DIFFER}")
    if doubt := export.caution(trial):
        parts.append(f"{WARNING} {format.short(doubt, 40)}")
    return " · ".join(parts)


def _current(action: DeltaGenerator) -> None:
    spec = state.current_spec()
    st.caption(":material/info: Not measured yet: the file holds the settings alone.")
    record = state.current_model()
    trial = _unmeasured(spec, record.name if record else "model")
    facts = variants.model_facts(record) if record else None
    _file(source_of_settings(state.store(), trial, record, facts), action)


def _unmeasured(spec: TrialSpec, name: str) -> Trial:
    return Trial(
        id="not-measured",
        kind="measure",
        state="WAITING",
        spec=spec.to_dict(),
        model_name=name,
        model_sha256="",
        key=spec.key(),
        created_at=time.time(),
    )


def _trial(trial: Trial, action: DeltaGenerator) -> None:
    if trial.facts.get("fallback"):
        st.badge(
            "fallback: measured on another provider than requested",
            icon=":material/warning:",
            color="orange",
        )
    if doubt := export.caution(trial):
        st.warning(format.plain(doubt), icon=":material/warning:", title="Review before deploying")
    results.other_processes_note(trial.result)
    accepted = _acceptance_reason(trial)
    if accepted is None:
        return
    form = _file(export_source_of(state.store(), trial), action, accepted)
    with form:
        bundling.draw(trial, accepted, f"{file_stem(trial.model_name)}-{trial.id[:8]}")


def _acceptance_reason(trial: Trial) -> str | None:
    """Return the reason for exporting deviating outputs; "": they do not deviate, None: no reason given."""
    why = breach(trial.result)
    if not why:
        return ""
    st.warning(
        f"{format.plain(verdict.sentence(why))} To export it, say why these outputs are "
        "acceptable; the text is stored as `accepted_breach`.",
        title="Outputs differ",
        icon=":material/warning:",
    )
    words = st.text_input(
        "Why are these outputs acceptable?",
        key=f"{ACCEPTED}.{trial.id}",  # a reason applies to one trial only
        placeholder="for example: accuracy on our validation set is 0.3 points lower, which we accept",
        help="Written to the header of the exported files.",
    )
    return words.strip() or None


def _file(known: ExportSource, action: DeltaGenerator, accepted: str = "") -> DeltaGenerator:
    """Draw the choice of the format and the text of the file; return the place under the choice."""
    left, right = st.columns([1, 2], gap="medium")
    with left:
        chosen = _format()
        if chosen.name == "yaml":
            whole = st.toggle(
                "All settings",
                key=WHOLE,
                persist_state="session",
                help="Includes defaults, all measurements, the machine, and absolute paths of this server.",
            )
            known = replace(known, whole=whole)
        purpose = chosen.purpose[0].upper() + chosen.purpose[1:]
        st.caption(f"{format.plain(purpose)}. Cannot express: {format.plain(chosen.cannot)}.")
        try:
            text = chosen.text(known, accepted)
            _not_carried(text)
            signed = signatures.signed(text) if chosen.name == "yaml" else ""
            with action:
                _download(chosen, known, accepted, signed)
        except TunerError as error:
            messages.report(error)
            return left
    with right, st.container(key="export.code"):
        st.code(text, language=chosen.language, height=CODE_PX)
    return left


def _format() -> export.ExportFormat:
    names = {one.name: one for one in export.FORMATS}
    chosen = st.selectbox(
        "Format",
        list(names),
        key=FORMAT,
        format_func=lambda name: f"{names[name].label} ({names[name].ending})",
        persist_state="session",
        help="Each file lists the settings that it cannot express.",
    )
    return names[chosen]


def _not_carried(text: str) -> None:
    """Report the settings that the file cannot contain."""
    if lost := export.not_carried(text):
        lines = "\n".join(f"- {format.plain(line)}" for line in lost)
        st.info(lines, icon=":material/info:", title=f"Not exported: {counted(len(lost), 'setting')}")


def _download(chosen: export.ExportFormat, known: ExportSource, accepted: str, signed: str) -> None:
    name = chosen.file_name(known)
    bytes_ = known.info["size_bytes"] if chosen.pack is not None and known.info is not None else 0
    if bytes_ > MOST_BYTES:
        command = f"ortune export {known.trial.id[:8]} --format {chosen.name} -o {name}"
        st.caption(f"The model ({size(bytes_)}) is part of this file; write it by the command line:")
        st.code(command, language="bash")
        return
    words = "Saves the model and the files below."
    if chosen.pack is None:
        words = f"Saves the text below{' and its signature' if signed else ''}."
    st.download_button(
        f"Download {name}",
        signed.encode() if signed else chosen.content(known, accepted),
        file_name=name,
        mime="application/zip" if name.endswith(".zip") else "application/octet-stream",
        key="export.download",
        on_click="ignore",
        icon=":material/download:",
        type="primary",
        help=words,
    )


# --- load -------------------------------------------------------------------------------------------------


def _load_tab() -> None:
    with st.popover(
        "Load",
        icon=":material/upload_file:",
        key="export.bring",
    ):
        yaml_source.fields(FILE, PASTED, begins="schema: 1\nmodel: …")
        st.button(
            "Load into the settings",
            key="export.load",
            icon=":material/upload_file:",
            on_click=load,
            help="Replaces the settings of this browser tab; nothing is measured.",
        )
        messages.show_kept_error(PLACE, "Nothing was loaded")


def _loaded() -> None:
    if st.session_state.get(LOADED):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.success(
                f"Loaded. {format.plain(st.session_state.pop(LOADED))}",
                icon=":material/check_circle:",
                title="Settings replaced",
            )
            page_frame.link("tune", "Open Tune")


LOADED = "export.loaded"


def load() -> None:
    """Load the chosen or pasted YAML into the widgets."""
    try:
        spec = with_full_paths(yaml_source.read(FILE, PASTED, to="load")[1])
        state.apply_spec(spec, foreign=True)
    except TunerError as error:
        messages.keep_error(error, PLACE)
        return
    TUNE.show(None)
    changed = [text for text, _ in setting_chips.chips(spec)]
    st.session_state[LOADED] = (
        f"Changed from default: {', '.join(changed)}." if changed else "All settings at their defaults."
    )


page()
