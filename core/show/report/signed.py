"""The signature of a result's file and the chain of its digests, for its report. Reads files, opens no model.

A stored result has no signature: signatures are in the YAML files and bundles that hold it. A report states
that of a given file, or else that of the bundle which the store keeps with the result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from core.evidence.measurement import Trial
from core.evidence.verdict import Color
from core.run.bundle import STORED
from core.run.digest_chain import (
    DigestChain,
    Link,
    chain_of_file,
    chain_of_trial,
    state_of,
    stored_links,
)
from core.run.signing import SignatureCheck
from core.run.signing.checking import check_path
from core.show.format import when
from core.show.output_types import ReportedDigests, ReportedSignature
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureSection(Section):
    """The section, and the same as plain data."""

    signatures: list[ReportedSignature]
    digests: ReportedDigests


def section(
    about: About,
    store: Store,
    *,
    file: Path | None = None,
    name: str = "",
    trust_file: Path | None = None,
) -> SignatureSection:
    """Return who signed, whether the signature is valid and its key trusted, and the digests in short.

    Args:
        about: the result of the report.
        store: with its rows.
        file: YAML file or bundle that holds the result; None: the bundle in the store, if there is one.
        name: of the file, where `file` is a copy; empty: that of `file`.
        trust_file: None: the usual one.

    Raises:
        SpecError: the file cannot be read, or it holds another result.
    """
    trials = trials_of(about)
    if file is not None:
        name = name or file.name
        chain = chain_of_file(store, file, trust_file=trust_file)
        damaged = chain.trial is None and chain.state == "BROKEN"  # its section tells that
        if not damaged and chain.trial not in {one.id for one in trials}:
            held = f"holds the trial `{chain.trial[:12]}`, which" if chain.trial else "names no trial, so"
            raise SpecError(
                f"`{name}` {held} this report does not show{'' if chain.trial else ' it'}.",
                hint="Give a file that was exported from this result.",
            )
        return _of_chain(replace(chain, file=name))
    bundles = {one.id: store.artifact_path(one.id, STORED) for one in trials}
    bundles = {name: path for name, path in bundles.items() if path.is_file()}
    if isinstance(about, AboutTrial | AboutLoad):
        bundle = bundles.get(about.trial.id)
        return _of_chain(
            chain_of_trial(store, about.trial.id)
            if bundle is None
            else chain_of_file(store, bundle, trust_file=trust_file)
        )
    checks = {
        f"{STORED} of trial {name[:12]}": check_path(path, trust_file=trust_file)
        for name, path in bundles.items()
    }
    signed = [Fact(name, found.why, COLORS[found.state]) for name, found in checks.items()]
    links = {one.id: _links(store, one.id) for one in trials}
    return SignatureSection(
        title=TITLE,
        parts=[*(signed or [_UNSIGNED]), *_digests(links)],
        signatures=[_reported(name, found) for name, found in checks.items()] or [_reported(None, None)],
        digests=_reported_digests([link for some in links.values() for link in some]),
    )


_UNSIGNED = Fact("signature", "not signed: no signed file of this result is known here", "gray")


def _reported(file: str | None, found: SignatureCheck | None) -> ReportedSignature:
    if found is None:
        found = SignatureCheck(state="NONE", why=_UNSIGNED.text)
    return {
        "file": file,
        "state": "VALID" if found.fingerprint else _WITHOUT_KEY[found.state],
        "fingerprint": found.fingerprint or None,
        "trusted": _TRUSTED.get(found.state),
        "signer": found.signer or None,
        "signed_at": found.signed_at or None,
        "why": found.why,
    }


_TRUSTED = {"TRUSTED": True, "EXPIRED": False, "UNKNOWN_KEY": False}
_WITHOUT_KEY: Mapping[str, Literal["INVALID", "UNCHECKED", "NONE"]] = {
    **{"NONE": "NONE", "WRONG": "INVALID", "UNCHECKED": "UNCHECKED"},
}


def _reported_digests(links: Sequence[Link]) -> ReportedDigests:
    return {"state": state_of(links), "links": list(links)}


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


def _of_chain(chain: DigestChain) -> SignatureSection:
    signed = [_UNSIGNED] if chain.signature is None else signature_facts(chain.signature)
    parts: list[Part] = [
        *([Fact("file", chain.file)] if chain.file else []),
        *signed,
        Fact("digests", f"{WORDS[chain.state]}, checked {when(time.time())}", _CHAIN_COLORS[chain.state]),
        links_table(chain),
        *([Line(_COVERS)] if len(signed) > 1 else []),
    ]
    return SignatureSection(
        title=TITLE,
        parts=parts,
        signatures=[_reported(chain.file, chain.signature)],
        digests=_reported_digests(chain.links),
    )


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


def _links(store: Store, trial: str) -> list[Link]:
    """Return the links of the rows of a trial, with its ID in their names."""
    try:
        return [replace(one, name=f"{one.name} of {trial[:12]}") for one in stored_links(store, trial)]
    except StoreError as error:
        return [Link(name=f"result of {trial[:12]}", state="MISSING", why=error.message)]


def _digests(links: Mapping[str, Sequence[Link]]) -> list[Part]:
    """Return whether the rows of the trials are as they were written."""
    if not links:
        return []
    if other := [one.name for some in links.values() for one in some if one.state == "DIFFERS"]:
        return [Fact("digests", f"a digest differs: {', '.join(other)}", "red")]
    unknown = sum(any(map(_has_no_digest, some)) for some in links.values())
    said = f"results and raw measurements of {counted(len(links) - unknown, 'trial')} are as written"
    lost = f"; of {counted(unknown, 'trial')} there is no digest" if unknown else ""
    return [Fact("digests", said + lost, "gray" if unknown else "green")]


def _has_no_digest(link: Link) -> bool:
    """Whether a stored part has no recorded digest; pruned measurements are not stored."""
    return link.state == "MISSING" and (bool(link.now) or link.name.startswith("result"))
