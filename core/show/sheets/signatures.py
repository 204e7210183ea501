"""Texts of signatures: the state of a file's signature, and the tables of keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.evidence.verdict import Color
from core.run.signing import SignatureCheck
from core.run.signing.keys import KeyPair
from core.run.signing.trust import TrustedKey
from core.show.sheets import Fact, Line, Note, Part, Sheet
from core.show.table import Column, Table
from core.wire.units import DASH

_STATES: Mapping[str, str] = {
    "EXPIRED": "signed, but the key is no longer trusted",
    "UNKNOWN_KEY": "signed by an unknown key",
    "WRONG": "signature is wrong",
    "UNCHECKED": "signature not checked",
    "NONE": "not signed",
}
COLORS: Mapping[str, Color] = {
    **{"TRUSTED": "green", "WRONG": "red", "NONE": "gray"},
    **{"EXPIRED": "orange", "UNKNOWN_KEY": "orange", "UNCHECKED": "orange"},
}


def state_text(signature: Mapping[str, Any]) -> str:
    """Return the state of a signature in words: "signed by Ann", "not signed"."""
    state = str(signature["state"])
    return f"signed by {signature['signer']}" if state == "TRUSTED" else _STATES.get(state, state)


def signature_fact(signature: Mapping[str, Any]) -> Fact:
    """Return the state of a signature with its reason."""
    told = state_text(signature) if signature["state"] == "NONE" else str(signature["why"])
    return Fact("signature", told, COLORS.get(str(signature["state"]), "gray"))


def signature_note(found: SignatureCheck, name: str) -> str:
    """Return a remark on the signature of a file that is read; empty: it is not signed."""
    if found.state == "NONE":
        return ""
    hint = f" {found.hint}" if found.hint else ""
    return f"{name}: {found.why}{hint}"


def keys_sheet(own: Sequence[KeyPair], trusted: Sequence[TrustedKey], trust_file: str) -> Sheet:
    """Return the key pairs of this machine and the names of its trust file."""
    parts: list[Part] = []
    for one in own:
        parts += [
            Line(f"{one.name} signs on this machine:", apart=bool(parts)),
            Fact("fingerprint", one.fingerprint),
            Fact("public key", one.public_key),
            Fact("private key", f"{one.path} ({'with a passphrase' if one.encrypted else 'no passphrase'})"),
        ]
    parts.append(Line(f"Trusted keys ({trust_file}):", apart=bool(parts)))
    if trusted:
        told = [(one.name, one.fingerprint, one.until or "no end", one.note or DASH) for one in trusted]
        parts.append(_table(("name", "fingerprint", "trusted until", "note"), told))
    else:
        parts.append(Note("None. Trust one with `ortune keys trust NAME PUBLIC_KEY`."))
    return Sheet(f"{len(own)} own, {len(trusted)} trusted", parts)


def _table(names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(columns=[Column(names[0], tells=True), *map(Column, names[1:])], rows=list(rows))
