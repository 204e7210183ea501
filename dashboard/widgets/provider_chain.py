"""The chain of execution providers: the requested order, availability here, and the options of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from core import wire
from core.spec.settings import PROVIDER_OPTIONS, ProviderOption, trial_setting
from core.wire.errors import TunerError
from dashboard import fields, format, runtimes, state
from dashboard.widgets.setting import LINES, help_text, undo


def providers() -> None:
    """Draw the ordered chain, which providers load here, and the options of the chosen ones."""
    key = fields.key("providers")
    found = _facts()
    facts = {fact["name"]: fact for fact in found or []}
    chosen: list[str] = list(st.session_state.get(key) or [])
    options = list(dict.fromkeys([*(PROVIDER_OPTIONS if found is None else facts), *chosen]))
    with st.container(
        horizontal=True, wrap=False, vertical_alignment="bottom", gap="small", key="row.providers"
    ):
        st.multiselect(
            "Execution providers",
            options,
            key=key,
            format_func=format.provider,
            help=help_text(trial_setting("providers")) + "The first provider is preferred.",
            placeholder="ONNX Runtime's default (CPU)",
            persist_state="session",
        )
        undo("Execution providers", key)
    if found is not None:
        _availability(facts, chosen)
    for name in chosen:
        _provider_options(name)


def _facts() -> list[wire.ProviderFact] | None:
    """Return the providers of the chosen runtime; None: they are unknown, for a reason said elsewhere."""
    try:
        return state.providers(runtimes.pinned(runtimes.chosen(st.session_state.get(fields.RUNTIME))))
    except TunerError:
        return None


def _availability(facts: Mapping[str, wire.ProviderFact], chosen: Sequence[str]) -> None:
    """Say which providers load here, the chosen ones first."""
    for name in chosen:
        _provider_line(name, facts.get(name))
    if any(name not in facts or not facts[name]["loadable"] for name in chosen):
        provider_remedies("providers")
    _other_providers([fact for name, fact in facts.items() if name not in chosen], bool(chosen))


def provider_remedies(place: str) -> None:
    """Offer remedies for a provider that does not load.

    Args:
        place: makes the keys of the buttons unique where they appear twice.
    """
    with st.container(horizontal=True, gap="small", key=f"ways_out.{place}"):
        st.button(
            "Allow fallback",
            key=f"ways_out.{place}.fallback",
            icon=":material/alt_route:",
            on_click=state.put,
            args=(fields.key("allow_fallback"), True),
            disabled=bool(st.session_state.get(fields.key("allow_fallback"))),
            help="Uses what loads, at last the CPU, and marks the result as a fallback.",
        )
        st.button(
            "Use CPU",
            key=f"ways_out.{place}.cpu",
            icon=":material/memory:",
            on_click=state.reset,
            args=(fields.key("providers"),),
            help="Clears the chosen providers.",
        )


def _provider_line(name: str, fact: wire.ProviderFact | None) -> None:
    short = format.provider(name)
    if fact is None:
        st.caption(f":material/cancel: **{short}** is not in this build of ONNX Runtime.")
    elif fact["loadable"]:
        st.caption(f":material/check_circle: **{short}** can load here.")
    else:
        reason = f"{format.plain(fact['reason'])} {format.plain(fact['remedy'])}"
        st.caption(f":material/cancel: **{short}** cannot load here. {reason}")


def _other_providers(facts: list[wire.ProviderFact], some_chosen: bool) -> None:
    """Draw one line on the other providers of the build; the reasons on demand."""
    good = [format.provider(fact["name"]) for fact in facts if fact["loadable"]]
    bad = [fact for fact in facts if not fact["loadable"]]
    also = "also " if some_chosen else ""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if good:
            st.caption(f":material/check_circle: {', '.join(good)} can {also}load here", width="content")
        if bad:
            names = ", ".join(format.provider(fact["name"]) for fact in bad)
            with st.popover(f"{names}: why not?", icon=":material/cancel:", type="tertiary"):
                for fact in bad:
                    _provider_line(fact["name"], fact)


def _provider_options(name: str) -> None:
    table = PROVIDER_OPTIONS.get(name)
    if table == ():
        return  # its settings are attributes of the session
    with st.expander(f"{format.provider(name)} options", icon=":material/tune:", key=f"group.options.{name}"):
        if table is None:
            st.text_area(
                f"Options of {name}",
                key=fields.free_options_key(name),
                persist_state="session",
                height=90,
                placeholder=LINES,
                help="ORTune has no table for this provider.",
            )
            return
        for option in table:
            _provider_option(name, option)


def _provider_option(provider: str, option: ProviderOption) -> None:
    key = fields.option_key(provider, option.name)
    expert = " Needs `expert`: it runs native code or takes an address." if option.native_code else ""
    text = f"{option.help}{expert}\n\nDefault: `{option.default or 'empty'}`."
    if option.kind in ("bool", "choice"):
        values = [fields.ON, fields.OFF] if option.kind == "bool" else list(option.choices)
        st.session_state.setdefault(key, fields.DEFAULT)
        st.selectbox(
            option.name,
            [fields.DEFAULT, *values],
            key=key,
            help=text,
            persist_state="session",
            format_func=lambda v: f"default ({option.default})" if v == fields.DEFAULT else v,
        )
    else:
        st.text_input(
            option.name,
            key=key,
            help=text,
            persist_state="session",
            placeholder=f"default ({option.default or 'empty'})",
        )
