"""Signs exported files with a key of this machine; the passphrase of a key is used once and never kept."""

from __future__ import annotations

import streamlit as st

from core.api import signing
from core.api.signing import SigningKey
from core.wire.errors import SpecError, TunerError
from dashboard import format, messages, state

FORM = "export.sign"  # of the YAML file
SIGNED = "export.signed"  # session key: the last signed text, and what it was before
NO_SIGNATURE = "no signature"


def signed(text: str) -> str:
    """Draw the form that signs a YAML text; return the signed text once that was done, and "" before."""
    if not signing.key_pairs():
        st.caption("To sign the file, create a key on this machine with `ortune keys create NAME`.")
        return ""
    with st.form(FORM):
        fields(FORM, optional=False)
        st.form_submit_button(
            "Sign file",
            key=f"{FORM}.start",
            icon=":material/draw:",
            on_click=_sign,
            args=(text,),
            **state.unless_closed("Adds a signature to the end of the file. It covers every byte before."),
        )
    messages.show_kept_error(FORM, "The file was not signed")
    before, found, name = st.session_state.get(SIGNED, ("", "", ""))
    if before != text:
        return ""
    words = f"Signed with the key of {name}. The download has the signature; the text on this page has none."
    st.success(format.plain(words), icon=":material/check_circle:")
    return str(found)


def fields(place: str, *, optional: bool) -> None:
    """Draw the choice of a key and its passphrase.

    Args:
        place: begins the keys of the fields.
        optional: whether no key is a choice, too.
    """
    pairs = signing.key_pairs()
    st.selectbox(
        "Signing key",
        [NO_SIGNATURE] * optional + [one.name for one in pairs],
        key=f"{place}.key",
        help="A key in the data folder of this server. `ortune keys list` shows its fingerprint.",
    )
    if any(one.encrypted for one in pairs):
        st.text_input(
            "Passphrase",
            key=f"{place}.passphrase",
            type="password",
            autocomplete="off",
            help="Only for a key that has one. ORTune uses it once and does not keep it.",
        )


def opened(place: str) -> SigningKey | None:
    """Return the key that `fields` chose, and forget its passphrase; None: no signature. A callback's part.

    Raises:
        SpecError: the key is gone, or its passphrase is missing or wrong.
    """
    passphrase = str(st.session_state.get(f"{place}.passphrase") or "")
    if passphrase:
        st.session_state[f"{place}.passphrase"] = ""
    chosen = st.session_state.get(f"{place}.key", NO_SIGNATURE)
    if chosen == NO_SIGNATURE:
        return None
    pair = next((one for one in signing.key_pairs() if one.name == chosen), None)
    if pair is None:
        raise SpecError(f"There is no key `{chosen}` on this machine any more.", hint="Choose another key.")
    return signing.open_key(pair.path, ask=lambda: passphrase)


def _sign(text: str) -> None:
    try:
        key = opened(FORM)  # first, so that the passphrase is forgotten in any case
        state.refuse_if_closed()
        if key is not None:
            st.session_state[SIGNED] = (text, signing.sign_text(text, key), key.name)
    except TunerError as error:
        messages.keep_error(error, FORM)
