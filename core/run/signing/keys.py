"""Key pairs for signatures: creation, reading, and their texts.

A private key is a PEM file (PKCS #8) that only its owner may read. The file of the public key stands next to
it and has one line: name, then public key.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.run.signing import library
from core.wire.errors import SpecError, unwritable
from core.wire.files import expand_home, keys_folder, made_private, open_regular
from core.wire.variables import KEY_PASSPHRASE

PREFIX = "ed25519:"  # of the text of a public key
KEY_BYTES = 32
_PRIVATE, _PUBLIC = ".pem", ".pub"
_MOST_BYTES = 16 << 10  # of a key file
_NAME = re.compile(r"\w[\w .@+-]{0,59}")
_FOREIGN_MODE = stat.S_IRWXG | stat.S_IRWXO

AskPassphrase = Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A key pair on this machine; the private key stays in its file."""

    name: str  # of the signer
    public_key: str  # text
    path: Path  # of the private key
    encrypted: bool  # with a passphrase

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the public key."""
        return fingerprint(self.public_key)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SigningKey:
    """A private key in memory; its representation shows nothing of it."""

    name: str
    public_key: str
    private: Any

    def __repr__(self) -> str:
        """Return the name and the fingerprint."""
        return f"<signing key of {self.name}, {fingerprint(self.public_key)}>"

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`."""
        signature: bytes = self.private.sign(data)
        return signature


def check_name(name: str) -> str:
    """Return the name of a signer.

    Raises:
        SpecError: it is empty, too long, or has other characters.
    """
    if _NAME.fullmatch(name) and name == name.strip():
        return name
    raise SpecError(
        "The name of a signer has 1 to 60 letters, digits, spaces or `.@+-_`, and begins with a letter or "
        f"digit; got `{name[:80]}`.",
        hint="Use for example an e-mail address.",
    )


# --- texts of keys ------------------------------------------------------------------------------------------


def public_bytes(text: str) -> bytes:
    """Return the 32 bytes of a public key.

    Raises:
        SpecError: `text` is not the text of a public key.
    """
    data = b""
    with contextlib.suppress(ValueError):
        data = decoded(text.strip().removeprefix(PREFIX))
    if not text.strip().startswith(PREFIX) or len(data) != KEY_BYTES:
        raise SpecError(
            f"A public key is `{PREFIX}` and 44 characters of Base64, but got `{text[:80]}`.",
            hint="Copy it from `ortune keys list` of the signer, or give the `.pub` file.",
        )
    return data


def decoded(text: str) -> bytes:
    """Decode Base64 in the one form that `encoded` writes.

    Raises:
        ValueError: it is no Base64, or not in this form.
    """
    data = base64.b64decode(text, validate=True)
    if encoded(data) != text:
        raise ValueError("not in the form that is written")
    return data


def encoded(data: bytes) -> str:
    """Return bytes as Base64."""
    return base64.b64encode(data).decode("ascii")


def fingerprint(public_key: str) -> str:
    """Return the fingerprint of a public key: SHA-256 of its bytes, in Base64 as OpenSSH writes it."""
    return f"SHA256:{encoded(hashlib.sha256(public_bytes(public_key)).digest()).rstrip('=')}"


def read_public(text_or_path: str) -> str:
    """Return the text of a public key that is given itself or as the path of a `.pub` file.

    Raises:
        SpecError: it is neither.
    """
    if not text_or_path.startswith(PREFIX) and (path := expand_home(text_or_path)).suffix == _PUBLIC:
        text_or_path = _read(path).decode("utf-8", "replace").strip().rpartition(" ")[2]
    public_bytes(text_or_path)
    return text_or_path.strip()


# --- files of keys ------------------------------------------------------------------------------------------


def create(name: str, path: Path | None = None, *, passphrase: str = "") -> KeyPair:
    """Create a key pair; an existing file is never replaced.

    Args:
        name: of the signer.
        path: of the private key; None: in the folder of keys.
        passphrase: encrypts the private key; empty: it is not encrypted.

    Raises:
        SpecError: the name is invalid, a file exists already, or it cannot be written.
    """
    check_name(name)
    if path is None:
        path = keys_folder() / f"{name}{_PRIVATE}"
    public_path = path.with_name(f"{path.stem}{_PUBLIC}")
    for one in (path, public_path):
        if os.path.lexists(one):
            raise SpecError(
                f"`{one}` exists already, and ORTune never replaces a key.", hint="Choose another name."
            )
    files, ed25519 = library("serialization"), library("asymmetric.ed25519")
    private = ed25519.Ed25519PrivateKey.generate()
    cipher = files.BestAvailableEncryption(passphrase.encode()) if passphrase else files.NoEncryption()
    pem: bytes = private.private_bytes(files.Encoding.PEM, files.PrivateFormat.PKCS8, cipher)
    public = _public_text(private)
    try:
        made_private(path.parent)
        _write(path, pem, 0o600)
        _write(public_path, f"{name} {public}\n".encode(), 0o644)
    except OSError as error:
        raise unwritable(path, error) from None
    return KeyPair(name=name, public_key=public, path=path, encrypted=bool(passphrase))


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a new file; it has its mode before its content."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def key_pairs() -> list[KeyPair]:
    """Return the key pairs in the folder of keys by name; files that cannot be read are left out."""
    found = []
    for path in sorted(keys_folder().glob(f"*{_PRIVATE}")):
        with contextlib.suppress(SpecError):
            found.append(_pair(path))
    return found


def _pair(path: Path) -> KeyPair:
    """A key pair from its files, without the private key."""
    name, _, public = (
        _read(path.with_name(f"{path.stem}{_PUBLIC}")).decode("utf-8", "replace").strip().rpartition(" ")
    )
    public_bytes(public)
    encrypted = b"ENCRYPTED" in _read(path).split(b"\n", 1)[0]
    return KeyPair(name=check_name(name), public_key=public, path=path, encrypted=encrypted)


def open_key(ref: str | os.PathLike[str], *, ask: AskPassphrase | None = None) -> SigningKey:
    """Return the private key of a name in the folder of keys, or of a file.

    Args:
        ref: name or path.
        ask: asks for the passphrase of an encrypted key if the variable has none; None: nobody can be asked.

    Raises:
        SpecError: there is no such key, others may read its file, or the passphrase is missing or wrong.
    """
    path = _key_path(os.fspath(ref))
    data = _read(path)
    _refuse_open_mode(path)
    pair = _pair(path)
    files = library("serialization")
    passphrase = _passphrase(path, ask) if pair.encrypted else None
    try:
        private = files.load_pem_private_key(data, password=passphrase)
    except (ValueError, TypeError):
        what = "the passphrase is wrong, or the file is damaged" if pair.encrypted else "it is damaged"
        hint = (
            f"Type the passphrase again, or check {KEY_PASSPHRASE}."
            if pair.encrypted
            else "Restore the file, or create another key."
        )
        raise SpecError(f"The private key `{path}` cannot be read: {what}.", hint=hint) from None
    if not isinstance(private, library("asymmetric.ed25519").Ed25519PrivateKey):
        raise SpecError(
            f"`{path}` is not an Ed25519 key.", hint="Create a key with `ortune keys create NAME`."
        )
    if _public_text(private) != pair.public_key:
        raise SpecError(
            f"`{path}` and its `{_PUBLIC}` file belong to different keys.", hint="Restore both files."
        )
    return SigningKey(name=pair.name, public_key=pair.public_key, private=private)


def _key_path(ref: str) -> Path:
    """The file of a private key; a name without a folder is looked up in the folder of keys first."""
    if _NAME.fullmatch(ref) and (own := keys_folder() / f"{ref}{_PRIVATE}").is_file():
        return own
    path = expand_home(ref)
    if path.suffix == _PUBLIC:
        raise SpecError(
            f"`{path}` is a public key, and signing needs the private one.", hint="Give the `.pem`."
        )
    if not path.is_file():
        known = ", ".join(f"`{one.name}`" for one in key_pairs()) or "none"
        raise SpecError(
            f"There is no key `{ref[:200]}`; keys of this machine: {known}.",
            hint="Give a name of `ortune keys list` or the path of a private key, or create one.",
        )
    return path


def _refuse_open_mode(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & _FOREIGN_MODE:
        raise SpecError(
            f"The private key `{path}` has mode {mode:04o}, so other users can reach it.",
            hint=f"Run `chmod 600 {path}`, and create a new key if another user may have read it.",
        )


def _passphrase(path: Path, ask: AskPassphrase | None) -> bytes:
    given = os.environ.get(KEY_PASSPHRASE) or (ask() if ask is not None else "")
    if not given:
        raise SpecError(
            f"The private key `{path}` is encrypted, and no passphrase is given.",
            hint=f"Type it on a terminal or on the page Export, or set {KEY_PASSPHRASE}.",
        )
    return given.encode()


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise SpecError(
            f"The key file `{path}` cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from None


def _public_text(private: Any) -> str:
    files = library("serialization")
    data = private.public_key().public_bytes(files.Encoding.Raw, files.PublicFormat.Raw)
    return f"{PREFIX}{encoded(data)}"


def now_text() -> str:
    """Return the current time in UTC, as a signature states it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
