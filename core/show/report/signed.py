"""The signature of a result's file and the chain of its digests, for its report. Reads files, opens no model.

A stored result has no signature: signatures are in the YAML files and bundles that hold it. A report states
that of a given file, or else that of the bundle which the store keeps with the result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.evidence.measurement import Trial
from core.evidence.verdict import Color
from core.run.bundle import STORED
from core.run.digest_chain import DigestChain, chain_of_file, chain_of_trial
from core.run.signing import SignatureCheck
from core.run.signing.checking import check_path
from core.show.format import when
from core.show.report import Section
from core.show.report.subjects import (
    About,
    AboutDifference,
    AboutFleet,
    AboutLoad,
    AboutSearch,
    AboutTrial,
)
from core.show.sheets import Fact, Line, Part
from core.show.sheets.provenance import WORDS, links_table
from core.show.sheets.signatures import COLORS, state_text
from core.show.words import counted
from core.store import Store
from core.wire.errors import SpecError, StoreError
from core.wire.plain_data import plain

TITLE = "Signature and digests"
_COVERS = "A signature covers its file, not this report."
_KEYS: Mapping[str, tuple[str, Color]] = {
    "TRUSTED": ("trusted by the trust file of this machine", "green"),
    "EXPIRED": ("no longer trusted by the trust file of this machine", "orange"),
    "UNKNOWN_KEY": ("not trusted: the trust file of this machine does not have it", "orange"),
}


def section(
    about: About, store: Store, *, file: Path | None = None, trust_file: Path | None = None
) -> Section:
    """Return who signed, whether the signature is valid and its key trusted, and the digests in short.

    Args:
        about: the result of the report.
        store: with its rows.
        file: YAML file or bundle that holds the result; None: the bundle in the store, if there is one.
        trust_file: None: the usual one.

    Raises:
        SpecError: the file cannot be read, or it holds another result.
    """
    trials = trials_of(about)
    if file is not None:
        chain = chain_of_file(store, file, trust_file=trust_file)
        if chain.trial is not None and chain.trial not in {one.id for one in trials}:
            raise SpecError(
                f"`{file.name}` holds the trial `{chain.trial[:12]}`, which this report does not show.",
                hint="Give a file that was exported from this result.",
            )
        return _of_chain(chain)
    bundles = {one.id: store.artifact_path(one.id, STORED) for one in trials}
    bundles = {name: path for name, path in bundles.items() if path.is_file()}
    if isinstance(about, AboutTrial | AboutLoad):
        bundle = bundles.get(about.trial.id)
        return _of_chain(
            chain_of_trial(store, about.trial.id)
            if bundle is None
            else chain_of_file(store, bundle, trust_file=trust_file)
        )
    signed = [
        Fact(f"{STORED} of trial {name[:12]}", found.why, COLORS[found.state])
        for name, path in bundles.items()
        for found in [check_path(path, trust_file=trust_file)]
    ]
    return Section(title=TITLE, parts=[*(signed or [_UNSIGNED]), *_digests(store, trials)])


_UNSIGNED = Fact("signature", "not signed: no signed file of this result is known here", "gray")


def trials_of(about: About) -> Sequence[Trial]:
    """Return the trials of a result, whose digests its report states."""
    match about:
        case AboutTrial() | AboutLoad():
            return [about.trial]
        case AboutSearch():
            return list(about.trials.values())
        case AboutDifference():
            return [about.pair.baseline, about.pair.candidate]
        case AboutFleet():
            return []
        case _:
            return about.trials


def _of_chain(chain: DigestChain) -> Section:
    signed = [_UNSIGNED] if chain.signature is None else signature_facts(chain.signature)
    parts: list[Part] = [
        *([Fact("file", chain.file)] if chain.file else []),
        *signed,
        Fact("digests", f"{WORDS[chain.state]}, checked {when(time.time())}", _CHAIN_COLORS[chain.state]),
        links_table(chain),
        *([Line(_COVERS)] if len(signed) > 1 else []),
    ]
    return Section(title=TITLE, parts=parts)


_CHAIN_COLORS: Mapping[str, Color] = {"INTACT": "green", "BROKEN": "red", "INCOMPLETE": "gray"}


def signature_facts(found: SignatureCheck) -> list[Fact]:
    """Return the state of a signature: whether it is valid, who signed, and whether the key is trusted."""
    if not found.fingerprint:  # nothing that shows a key
        told = state_text(plain(found)) if found.state == "NONE" else found.why
        return [Fact("signature", told, COLORS[found.state])]
    key, color = _KEYS.get(found.state, (found.why, "orange"))
    known = found.state in ("TRUSTED", "EXPIRED")
    return [
        Fact("signature", "valid: the file is as it was signed", "green"),
        Fact("signer", found.signer if known else f"states the name {found.signer}"),
        Fact("signed at", f"{found.signed_at}, as the signer states"),
        Fact("key", f"{found.fingerprint}, {key}", color),
    ]


def _digests(store: Store, trials: Sequence[Trial]) -> list[Part]:
    """Return whether the rows of the trials are as they were written."""
    other, unknown = [], 0
    for one in trials:
        try:
            found = store.digests(one.id)
        except StoreError:
            unknown += 1
            continue
        other += [f"{name} of {one.id[:12]}" for name, (was, now) in found.items() if was and was != now]
        unknown += any(not was for was, _ in found.values())
    if not trials:
        return []
    if other:
        return [Fact("digests", f"a digest differs: {', '.join(other)}", "red")]
    known = len(trials) - unknown
    said = f"results and raw measurements of {counted(known, 'trial')} are as written"
    lost = f"; of {counted(unknown, 'trial')} there is no digest" if unknown else ""
    return [Fact("digests", said + lost, "gray" if unknown else "green")]
