"""Signatures of YAML files and bundles: keys, trusted names, and signing a file.

`verify` checks a signature and can require one; `export` signs what it writes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.api import arguments
from core.api.results import Result
from core.run.signing import SignatureCheck as SignatureCheck
from core.run.signing import checking, keys, trust
from core.run.signing.checking import SignatureRule as SignatureRule
from core.run.signing.checking import check_path as check_path
from core.run.signing.checking import check_text as check_text
from core.run.signing.checking import refuse_wrong as refuse_wrong
from core.run.signing.checking import sign_text as sign_text
from core.run.signing.keys import KeyPair as KeyPair
from core.run.signing.keys import SigningKey as SigningKey
from core.run.signing.keys import key_pairs as key_pairs
from core.run.signing.keys import open_key as open_key
from core.run.signing.keys import read_public as read_public
from core.run.signing.trust import TrustedKey as TrustedKey
from core.run.signing.trust import trust_path as trust_path
from core.run.signing.trust import trusted_keys as trusted_keys
from core.show.sheets import Sheet
from core.show.sheets.signatures import keys_sheet, signature_fact
from core.store import audit

PathLike = str | os.PathLike[str]


def create_key(name: str, path: Path | None = None, *, passphrase: str = "") -> KeyPair:
    """Create a key pair as `keys.create` does, and record it in the audit log."""
    made = keys.create(name, path, passphrase=passphrase)
    audit.record("create", f"signing key of {made.name}", key=made.fingerprint)
    return made


def trust_key(
    name: str, public_key: str, *, until: str = "", note: str = "", path: Path | None = None
) -> TrustedKey:
    """Trust a key as `trust.add` does, and record it in the audit log."""
    made = trust.add(name, public_key, until=until, note=note, path=path)
    until_words = f" until {made.until}" if made.until else ""
    audit.record("change", f"key of {made.name} trusted{until_words}", key=made.fingerprint)
    return made


def remove_trust(name: str, *, path: Path | None = None) -> TrustedKey:
    """Remove a trusted key as `trust.remove` does, and record it in the audit log."""
    removed = trust.remove(name, path=path)
    audit.record("change", f"key of {removed.name} no longer trusted", key=removed.fingerprint)
    return removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A signed file."""

    file: str
    signature: SignatureCheck


@arguments.checked()
def sign(path: PathLike, key: PathLike, output: PathLike | None = None) -> Result[Signed]:
    """Sign a YAML file or a bundle; an earlier signature is replaced.

    The signature covers every byte of the file. An encrypted key is unlocked with `ORTUNE_KEY_PASSPHRASE`.

    Args:
        path: of the file.
        key: name of a key of this machine, or the path of a private key.
        output: file to write. None: the file itself is replaced.

    Raises:
        SpecError: there is no such key, it cannot be read, or the file is neither YAML nor a bundle.
    """
    return sign_with(open_key(key), Path(path), None if output is None else Path(output))


def sign_with(key: SigningKey, path: Path, output: Path | None = None) -> Result[Signed]:
    """Sign as `sign` does, with an opened key."""
    target = output or path
    found = Signed(file=str(target), signature=checking.sign_file(path, key, output))
    return Result(
        kind="signature",
        id="",
        read=lambda: found,
        document=asdict,
        content=lambda one: Sheet(f"{one.file} · signed", [signature_fact(asdict(one.signature))]),
        says=lambda one: f"{one.file}: {one.signature.why}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys that a machine knows."""

    own: list[KeyPair]
    trusted: list[TrustedKey]
    trust_file: Path


def keys_known(trust_file: Path | None = None) -> Result[Keys]:
    """Return the key pairs of this machine, and its trusted keys.

    Raises:
        SpecError: the trust file is invalid, or other users can write it.
    """
    found = Keys(own=key_pairs(), trusted=trusted_keys(trust_file), trust_file=trust_path(trust_file))
    return Result(
        kind="keys",
        id="",
        read=lambda: found,
        document=_keys_document,
        content=lambda one: keys_sheet(one.own, one.trusted, str(one.trust_file)),
    )


def _keys_document(one: Keys) -> Mapping[str, Any]:
    return {
        "own": [own_key_document(pair) for pair in one.own],
        "trusted": [trusted_key_document(key) for key in one.trusted],
        "trust_file": str(one.trust_file),
    }


def own_key_document(pair: KeyPair) -> dict[str, Any]:
    """Return a key pair as plain data, without the private key."""
    return {**asdict(pair), "path": str(pair.path), "fingerprint": pair.fingerprint}


def trusted_key_document(key: TrustedKey) -> dict[str, Any]:
    """Return a row of the trust file as plain data."""
    return {**asdict(key), "fingerprint": key.fingerprint, "has_expired": key.has_expired(trust.today())}
