"""Creates the private certificate authority of a fleet, and one certificate for each of its machines.

`DIR/authority` signs; it stays where it was created. `DIR/scheduler`, `DIR/client` and `DIR/hosts/NAME` each
have the three files that one machine needs: `ca.pem`, `cert.pem` and `key.pem`. Keys have the mode 0600.
"""

from __future__ import annotations

import datetime
import importlib
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.run.fleet.addresses import CA, CERTIFICATE, KEY, missing_extra
from core.wire.errors import SpecError, unwritable
from core.wire.files import made_private

VALID_DAYS = 825
_EARLIER = datetime.timedelta(minutes=10)  # clocks of machines differ
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_AUTHORITY = "authority"
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a fleet: its name, and the addresses under which others know it."""

    name: str
    addresses: tuple[str, ...] = ()


def machine(text: str) -> Machine:
    """Read `NAME`, `NAME/IP` or `NAME/IP/DNS…`.

    Raises:
        SpecError: another form.
    """
    name, *addresses = text.strip().split("/")
    if not all(_NAME.fullmatch(one) or _is_ip(one) for one in (name, *addresses)) or _is_ip(name):
        raise SpecError(
            f"`--host` must be NAME or NAME/IP with letters, digits, `-` and `.`, but got `{text[:80]}`.",
            hint="Write for example `--host bench-07/10.0.0.7`.",
        )
    return Machine(name, tuple(addresses))


def init(folder: Path, hosts: Sequence[Machine] = (), scheduler: Sequence[str] = ()) -> list[Path]:
    """Create the authority of a fleet, or use the one that is there, and create missing certificates.

    Args:
        folder: of the fleet; created if missing.
        hosts: machines that get a certificate.
        scheduler: addresses of the machine of the scheduler.

    Returns:
        The folders of the new certificates, one for each machine.

    Raises:
        SpecError: a file cannot be written, or a machine has a certificate already.
    """
    made = []
    try:
        made_private(folder)
        authority = _authority(folder / _AUTHORITY)
        wanted = {
            "scheduler": Machine("scheduler", tuple(scheduler)),
            "client": Machine("client"),
            **{f"hosts/{one.name}": one for one in hosts},
        }
        for place, one in wanted.items():
            if (folder / place / CERTIFICATE).exists():
                if place.startswith("hosts/"):
                    raise SpecError(
                        f"`{folder / place}` has a certificate already.",
                        hint="Delete the folder to create another one.",
                    )
                continue
            _write(folder / place, *_signed(one, authority))
            made.append(folder / place)
    except OSError as error:
        raise unwritable(error.filename or folder, error) from error
    return made


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: Any
    key: Any
    pem: bytes


def _library() -> tuple[Any, Any, Any, Any]:
    """The modules of `cryptography` for certificates, curves, hashes and files."""
    try:
        base = "cryptography.hazmat.primitives"
        names = ("cryptography.x509", f"{base}.asymmetric.ec", f"{base}.hashes", f"{base}.serialization")
        x509, ec, hashes, files = (importlib.import_module(one) for one in names)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    return x509, ec, hashes, files


def _authority(folder: Path) -> _Authority:
    """The authority in a folder; a new one if there is none."""
    x509, ec, hashes, files = _library()
    if (folder / CERTIFICATE).exists():
        try:
            pem = (folder / CERTIFICATE).read_bytes()
            key = files.load_pem_private_key((folder / KEY).read_bytes(), password=None)
            return _Authority(x509.load_pem_x509_certificate(pem), key, pem)
        except (ValueError, FileNotFoundError) as error:
            raise SpecError(
                f"The authority in `{folder}` cannot be read: {error}.",
                hint="Create a fleet in another folder.",
            ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "ORTune fleet")])
    usage = x509.KeyUsage(**_usage(key_cert_sign=True, crl_sign=True))
    certificate = (
        _begun(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(files.Encoding.PEM)
    _write(folder, pem, key)
    return _Authority(certificate, key, pem)


def _signed(one: Machine, authority: _Authority) -> tuple[bytes, Any, bytes]:
    """A certificate of a machine, its key, and the certificate of the authority."""
    x509, ec, hashes, files = _library()
    key = ec.generate_private_key(ec.SECP256R1())
    oids = x509.oid.ExtendedKeyUsageOID
    named = [_alternative(x509, text) for text in dict.fromkeys((one.name, *one.addresses, *_LOCAL))]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, one.name)])
    certificate = (
        _begun(subject, authority.certificate.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**_usage(digital_signature=True)), critical=True)
        # every machine of a fleet both connects and listens
        .add_extension(x509.ExtendedKeyUsage([oids.CLIENT_AUTH, oids.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(named), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return certificate.public_bytes(files.Encoding.PEM), key, authority.pem


def _begun(subject: Any, issuer: Any, public_key: Any) -> Any:
    x509 = _library()[0]
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _usage(**chosen: bool) -> dict[str, bool]:
    names = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return dict.fromkeys(names, False) | chosen


def _alternative(x509: Any, text: str) -> Any:
    return x509.IPAddress(ipaddress.ip_address(text)) if _is_ip(text) else x509.DNSName(text)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _write(folder: Path, pem: bytes, key: Any, ca: bytes | None = None) -> None:
    """Write the files of a machine; the certificate last, because it says that they are complete."""
    files = _library()[3]
    made_private(folder)
    secret = key.private_bytes(files.Encoding.PEM, files.PrivateFormat.PKCS8, files.NoEncryption())
    for name, data in ((KEY, secret), (CA, ca), (CERTIFICATE, pem)):
        if data is not None:
            draft = folder / f".{name}.part"
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            draft.replace(folder / name)
