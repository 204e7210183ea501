"""Signatures of YAML files and bundles, with Ed25519 keys.

    keys        key pairs: a private key in a file of mode 0600, and the text of its public key
    trust       the trust file: names and their public keys
    files       where a signature stands in a file, and which bytes it covers
    checking    signs a file or a text, and checks a signature

A signature covers every byte of the file before it. It shows that the holder of the private key signed these
bytes. It does not show that the numbers in them are right, and its date is what the signer states.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

from core.wire.errors import SpecError

State = Literal["TRUSTED", "EXPIRED", "UNKNOWN_KEY", "WRONG", "UNCHECKED", "NONE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureCheck:
    """Result of the check of a file's signature."""

    # UNCHECKED: it could not be checked; NONE: the file has no signature
    state: State
    why: str
    hint: str = ""
    signer: str = ""  # name in the trust file; for an unknown key the name that the signer states
    fingerprint: str = ""  # of the public key
    signed_at: str = ""  # as the signer states, in UTC


def library(name: str) -> Any:
    """Return a module of `cryptography.hazmat.primitives`.

    Raises:
        SpecError: the package is not installed.
    """
    try:
        return importlib.import_module(f"cryptography.hazmat.primitives.{name}")
    except ModuleNotFoundError as error:
        raise SpecError(
            f"Signatures need the package `{error.name}`, which is not installed.",
            hint="Install it with `pip install '.[signing]'` in ORTune's folder.",
        ) from error
