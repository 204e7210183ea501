"""Who may connect to a fleet, and where: addresses, certificates of a process, and Dask with its options.

Dask sends Python objects, so everyone who may connect can run code. Beyond this machine only mutual TLS is
used: both sides need a certificate of the fleet's own authority.
"""

from __future__ import annotations

import importlib
import ipaddress
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.wire.errors import SpecError

PORT = 8786
HTTP = "127.0.0.1:0"  # of the status pages that Dask serves even without routes; they have no encryption
CA, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"  # in the folder that `--certs` names
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z]+)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:/@\s]+)(?::(?P<port>\d{1,5}))?"
)

# Dask's defaults repeat lost tasks elsewhere, move work between hosts and use a tenth of a core when idle
OPTIONS = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "10s",
    "distributed.worker.memory.spill": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.log-length": 10,
    "distributed.admin.tick.interval": "2s",
    "distributed.admin.tick.limit": "60s",
    "distributed.comm.timeouts.connect": "10s",
    "distributed.comm.timeouts.tcp": "30s",
    "distributed.comm.retry.count": 0,
}


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a scheduler."""

    host: str
    port: int
    encrypted: bool

    def __str__(self) -> str:
        """The address as Dask takes it."""
        return f"{'tls' if self.encrypted else 'tcp'}://{self.host}:{self.port}"


def address(text: str, certs: Path | None, *, option: str = "--scheduler", port: int = PORT) -> Address:
    """Read `HOST`, `HOST:PORT`, `tls://HOST:PORT` or `tcp://127.0.0.1:PORT`.

    Args:
        text: the address.
        certs: folder of the own certificate; None: there is none.
        option: that the text comes from, for the message.
        port: where the text has none.

    Raises:
        SpecError: another form, or the connection would leave this machine without mutual TLS.
    """
    match = _ADDRESS.fullmatch(text.strip())
    number = int(match["port"] or port) if match else 0
    scheme = (match["scheme"] if match else "") or ("tcp" if certs is None else "tls")
    if match is None or scheme not in ("tcp", "tls") or not 0 <= number <= 65_535:
        raise SpecError(
            f"`{option}` must be HOST:PORT, tls://HOST:PORT or tcp://127.0.0.1:PORT, but got `{text[:120]}`.",
            hint=f"Write for example `10.0.0.5:{PORT}`.",
        )
    if scheme == "tls" and certs is None:
        raise SpecError(
            f"`{text[:120]}` needs a certificate of the fleet.",
            hint="Give its folder: `--certs DIR`. `ortune fleet init DIR` creates certificates.",
        )
    if scheme == "tcp" and not is_loopback(match["host"]):
        raise SpecError(
            f"`{text[:120]}` is not on this machine, and plain TCP is used on loopback addresses only: "
            "everyone who can connect to a fleet can run code on its hosts.",
            hint="Create certificates with `ortune fleet init DIR`, and give `--certs DIR`.",
        )
    return Address(match["host"], number, scheme == "tls")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its spelling; a name is not looked up."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def security(certs: Path | None) -> Any:
    """Return Dask's `Security` for the certificate in a folder; None: plain TCP.

    Raises:
        SpecError: the folder has no certificate, or its files do not belong together.
    """
    if certs is None:
        return None
    missing = [name for name in (CA, CERTIFICATE, KEY) if not (certs / name).is_file()]
    if missing:
        raise SpecError(
            f"`{certs}` has no {' and no '.join(f'`{one}`' for one in missing)}.",
            hint="Give the folder of one machine, for example `DIR/hosts/NAME` of `ortune fleet init DIR`.",
        )
    named = {f"tls_{role}_cert": str(certs / CERTIFICATE) for role in ("client", "scheduler", "worker")}
    named |= {f"tls_{role}_key": str(certs / KEY) for role in ("client", "scheduler", "worker")}
    found = dask().Security(require_encryption=True, tls_ca_file=str(certs / CA), **named)
    try:
        found.get_connection_args("client")
    except (OSError, ValueError) as error:  # `ssl.SSLError` is an OSError
        raise SpecError(
            f"The certificate in `{certs}` cannot be used: {getattr(error, 'reason', None) or error}.",
            hint="Create the machine's certificate again with `ortune fleet init DIR --host NAME`.",
        ) from error
    return found


def dask() -> Any:
    """Return the package `distributed`, with the options of a fleet in this process.

    Raises:
        SpecError: it is not installed.
    """
    try:
        package = importlib.import_module("distributed")
        config = importlib.import_module("dask.config")
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    config.set(OPTIONS)
    for name in ("distributed", "tornado", "asyncio"):  # it sets levels of its own when it is imported
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return package


def missing_extra(error: ModuleNotFoundError) -> SpecError:
    """Return the error for a package of the extra `fleet` that is not installed."""
    return SpecError(
        f"A fleet needs the package `{error.name}`, which is not installed.",
        hint="Install it with `pip install '.[fleet]'` in ORTune's folder.",
    )
