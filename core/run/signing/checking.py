"""Signs texts and files, and checks signatures against the trust file.

A signature covers the bytes of the file (`files`) and its own other fields: signer, date, key, kind of file,
and the version of the format. Therefore none of them can be changed or moved to another file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from core.run.bundle import PIECE
from core.run.signing import SignatureCheck, files, keys, library, trust
from core.run.signing.files import BadSignature, Parted
from core.run.signing.keys import SigningKey
from core.store import audit
from core.wire.errors import SpecError, unwritable
from core.wire.files import open_regular, written_whole
from core.wire.units import visible

ALGORITHM = "Ed25519"
_DOMAIN = b"ORTune signature\n"  # so that a signature for another purpose is none of a file
_ZIP_START = b"PK\x03\x04"
_MOST_TEXT_BYTES = 1 << 20

SIGN_AGAIN = (
    "Get the file again from its source. If you changed it yourself, sign it again with `ortune sign`."
)
UNSIGNED = SignatureCheck(
    state="NONE",
    why="The file is not signed.",
    hint="Ask its author to sign it with `ortune sign`.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRule:
    """Which signature a file must have."""

    required: bool = False  # by a name of the trust file
    signers: Sequence[str] = ()  # only these names; empty: any
    trust_file: Path | None = None  # None: the usual one


ANY = SignatureRule()  # with or without a signature; a wrong one is refused


# --- signing ------------------------------------------------------------------------------------------------


def sign_text(text: str, key: SigningKey) -> str:
    """Return a YAML text with a signature at its end; an earlier signature is replaced.

    Raises:
        SpecError: the text has a part that reads as a damaged signature.
    """
    data = text.encode()
    try:
        covered = data[: files.part_text(data).covered_bytes].decode()
    except BadSignature:
        begin = data.find(files.TRACE)
        raise SpecError(
            f"The text cannot be signed: at byte {begin:,} it has a part of a damaged signature.",
            hint="Remove the lines of the old signature, then sign it again.",
        ) from None
    covered = covered if covered.endswith("\n") else f"{covered}\n"
    return files.signed_text(covered, _signed(key, files.part_text(covered.encode())))


def sign_file(path: Path, key: SigningKey, output: Path | None = None) -> SignatureCheck:
    """Sign a YAML file or a bundle; an earlier signature is replaced.

    Args:
        path: of the file.
        key: private key.
        output: file to write; None: `path` itself is replaced, completely or not at all.

    Raises:
        SpecError: the file cannot be read or written, or is neither YAML nor a zip.
    """
    target = output or path
    try:
        file = open_regular(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        with file, written_whole(target, durable=True) as part:
            bundle = file.read(len(_ZIP_START)) == _ZIP_START
            file.seek(0)
            with part.open("x+b") as written:
                if bundle:
                    shutil.copyfileobj(file, written, PIECE)
                    sign_bundle(written, key=key)
                else:
                    written.write(sign_text(_text(path, file), key).encode())
            part.chmod(os.fstat(file.fileno()).st_mode & 0o777)
    except OSError as error:
        raise unwritable(target, error) from None
    return SignatureCheck(
        state="TRUSTED",
        why=f"Signed by `{key.name}`.",
        signer=key.name,
        fingerprint=keys.fingerprint(key.public_key),
    )


def sign_bundle(file: BinaryIO, *, key: SigningKey) -> None:
    """Sign a bundle that is open for reading and writing.

    Raises:
        SpecError: it has a damaged signature.
        OSError: it cannot be read or written.
    """
    file.flush()
    try:
        parted = files.part_bundle(file, unsigned_too=True)
    except BadSignature as error:
        why = f"it has a signature that cannot be removed, because {error}"
        raise SpecError(f"The bundle cannot be signed: {why}.", hint="Export the bundle again.") from None
    if not parted.is_whole:
        raise SpecError(
            "The bundle cannot be signed: the end of the zip is missing.", hint="Export it again."
        )
    files.write_bundle_signature(file, parted.covered_bytes, _signed(key, parted))


def _text(path: Path, file: BinaryIO) -> str:
    try:
        return _limited(file).decode("utf-8")
    except UnicodeDecodeError:
        raise SpecError(
            f"`{path}` is neither a bundle nor text in UTF-8.", hint="Choose a YAML file or a bundle."
        ) from None


def _limited(file: BinaryIO) -> bytes:
    file.seek(0)
    data = file.read(_MOST_TEXT_BYTES + 1)
    if len(data) > _MOST_TEXT_BYTES:
        raise SpecError(
            f"The file is no bundle, and too long for a configuration: it has more than {_MOST_TEXT_BYTES:,} "
            "bytes.",
            hint="Choose a YAML file or a bundle.",
        )
    return data


def _signed(key: SigningKey, parted: Parted) -> Mapping[str, Any]:
    """Return the fields of a new signature; each use of a key is in the audit log."""
    audit.record(
        "sign",
        f"{parted.kind} with the key of {key.name}",
        key=keys.fingerprint(key.public_key),
        sha256=parted.sha256,
    )
    fields = {
        "algorithm": ALGORITHM,
        "at": keys.now_text(),
        "file_sha256": parted.sha256,
        "kind": parted.kind,
        "name": key.name,
        "public_key": key.public_key,
        "version": files.VERSION,
    }
    return {**fields, "signature": keys.encoded(key.sign(_message(fields)))}


def _message(fields: Mapping[str, Any]) -> bytes:
    covered = {name: value for name, value in fields.items() if name != "signature"}
    return _DOMAIN + files.json_text(covered).encode("ascii")


# --- checking -----------------------------------------------------------------------------------------------


def check_path(path: Path, *, trust_file: Path | None = None) -> SignatureCheck:
    """Check the signature of a YAML file or a bundle; a wrong one is a result, too.

    Raises:
        SpecError: the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            return check_open_file(file, trust_file=trust_file)
    except OSError as error:
        raise _unreadable(path, error) from None


def check_open_file(file: BinaryIO, *, trust_file: Path | None = None) -> SignatureCheck:
    """Check the signature of an open file, and set its position to the start."""
    file.seek(0)
    try:
        if file.read(len(_ZIP_START)) == _ZIP_START:
            parted = files.part_bundle(file)
        else:
            parted = files.part_text(_limited(file))
    except BadSignature as error:
        return wrong(str(error))
    finally:
        file.seek(0)
    return _checked(parted, trust_file)


def check_text(data: bytes, *, trust_file: Path | None = None) -> SignatureCheck:
    """Check the signature of the bytes of a YAML file."""
    try:
        return _checked(files.part_text(data), trust_file)
    except BadSignature as error:
        return wrong(str(error))


def wrong(reason: str) -> SignatureCheck:
    """Return the result for a wrong signature."""
    return SignatureCheck(state="WRONG", why=f"The signature is wrong: {reason}.", hint=SIGN_AGAIN)


def refuse_wrong(found: SignatureCheck, name: str) -> None:
    """Refuse a file whose signature is wrong; nothing of such a file is used.

    Raises:
        SpecError: the signature is wrong.
    """
    if found.state == "WRONG":
        raise SpecError(f"`{name}`: {found.why}", hint=found.hint)


def require(found: SignatureCheck, rule: SignatureRule, name: str) -> SignatureCheck:
    """Return `found` if it meets the rule; a wrong signature is always refused.

    Args:
        found: result of the check.
        rule: which signature is required.
        name: of the file.

    Raises:
        SpecError: the signature is wrong, or not the required one.
    """
    refuse_wrong(found, name)
    if not (rule.required or rule.signers):
        return found
    if found.state != "TRUSTED":
        raise SpecError(f"`{name}` does not have the required signature. {found.why}", hint=found.hint)
    if rule.signers and found.signer not in rule.signers:
        asked = " or ".join(f"`{one}`" for one in rule.signers)
        raise SpecError(
            f"`{name}` is signed by `{found.signer}`, but the signature of {asked} is required.",
            hint="Ask for a file that this signer has signed.",
        )
    return found


def _checked(parted: Parted, trust_file: Path | None) -> SignatureCheck:
    fields = parted.signature
    if fields is None:
        return UNSIGNED
    try:
        if reason := _broken(fields, parted):
            return wrong(reason)
    except SpecError as error:  # the package is missing
        return SignatureCheck(
            state="UNCHECKED",
            why=f"The file has a signature that was not checked. {error.message}",
            hint=error.hint,
        )
    return _named(fields, trust_file)


def _broken(fields: Mapping[str, Any], parted: Parted) -> str:
    """Why a signature does not fit its file; empty: it fits."""
    if fields["algorithm"] != ALGORITHM:
        return f"its algorithm is `{visible(fields['algorithm'])[:40]}`, and ORTune knows {ALGORITHM} only"
    if fields["kind"] != parted.kind:
        return f"it was made for a file of kind `{visible(fields['kind'])[:20]}`, and this is `{parted.kind}`"
    ed25519 = library("asymmetric.ed25519")
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(keys.public_bytes(fields["public_key"]))
        signature = keys.decoded(fields["signature"])
    except (ValueError, SpecError):
        return "its key or its signature is damaged"
    try:
        key.verify(signature, _message(fields))
    except Exception as error:  # `InvalidSignature`; anything else is no valid signature either
        return (
            "it does not belong to its key" if type(error).__name__ == "InvalidSignature" else "it is damaged"
        )
    if fields["file_sha256"] != parted.sha256:
        return (
            "the file was changed after it was signed, or the signature is of another file; its SHA-256 "
            f"begins with `{parted.sha256[:12]}`, but `{visible(fields['file_sha256'])[:12]}` was signed"
        )
    return ""


def _named(fields: Mapping[str, Any], trust_file: Path | None) -> SignatureCheck:
    """The result for a valid signature: who signed, by the trust file."""
    public, at = fields["public_key"], visible(fields["at"])[:40]
    mark = keys.fingerprint(public)
    stated = visible(fields["name"])[:60]
    result = partial(SignatureCheck, fingerprint=mark, signed_at=at)
    try:
        known = next((one for one in trust.trusted_keys(trust_file) if one.public_key == public), None)
    except SpecError as error:
        return result(
            state="UNCHECKED",
            why=f"The signer is not known: {error.message}",
            hint=error.hint,
            signer=stated,
        )
    if known is None:
        return result(
            state="UNKNOWN_KEY",
            why=f"Signed by an unknown key, {mark}, whose owner states the name `{stated}`.",
            hint=f"If the owner confirms this fingerprint, run `ortune keys trust NAME {public}`.",
            signer=stated,
        )
    if known.has_expired(trust.today()):
        return result(
            state="EXPIRED",
            why=f"Signed by `{known.name}`, whose key was trusted until {known.until}.",
            hint="Ask for a file signed with a current key, or set a later day with `ortune keys trust`.",
            signer=known.name,
        )
    return result(
        state="TRUSTED",
        why=f"Signed by `{known.name}` ({mark}), at {at} as the signer states.",
        signer=known.name,
    )


def _unreadable(path: Path, error: OSError) -> SpecError:
    return SpecError(f"`{path}` cannot be read: {error.strerror or error}.", hint="Check the path.")
