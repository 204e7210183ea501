"""The client's connection to a fleet: its hosts, and requests to one host with a time limit.

The connection may be lost at any time. A request then raises `HostGone`, and the next one connects again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from core import __version__
from core.evidence.fleet.fleet_types import HostRecord
from core.run.fleet import on_host
from core.run.fleet.addresses import Address, dask, security
from core.run.fleet.host import embedded
from core.wire.errors import SpecError, TunerError, WorkerError, error_from_record

CONNECT_S = 15.0
REQUEST_S = 30.0
FACTS_S = 120.0  # the first facts of a host start a worker there
IDENTITIES_S = 10.0  # how long the addresses of hosts are used without asking the scheduler
BENCH = "bench"  # resource of a host: one question at a time


class HostGone(Exception):
    """A host did not reply: it left the fleet, hangs, or the network is interrupted."""


class Fleet:
    """Requests to the hosts of one scheduler."""

    def __init__(self, where: Any, secured: Any = None) -> None:
        """Connect with `connect`.

        Args:
            where: address of the scheduler, or an embedded cluster.
            secured: Dask's `Security`; None: plain TCP.
        """
        self._where = where
        self._secured = secured
        self._client: Any = None
        self._connecting = asyncio.Lock()
        self._known: dict[str, dict[str, Any]] = {}  # identities, read again when they may be old
        self._known_at = -IDENTITIES_S
        self.is_embedded = not isinstance(where, str)

    async def identities(self, *, fresh: bool = True) -> dict[str, dict[str, Any]]:
        """Return what the scheduler knows of its workers, by the name of the host.

        Raises:
            HostGone: the scheduler does not reply.
        """
        if not fresh and time.monotonic() - self._known_at < IDENTITIES_S:
            return self._known
        client = await self._connected()
        try:
            found = await asyncio.wait_for(client.scheduler.identity(n_workers=-1), REQUEST_S)
        except Exception as error:
            await self._drop(client)
            raise HostGone(f"the scheduler does not reply: {_words(error)}") from error
        self._known = {str(one["name"]): {**one, "address": at} for at, one in found["workers"].items()}
        self._known_at = time.monotonic()
        return self._known

    async def request(
        self, host: str, function: Callable[..., Any], *arguments: Any, timeout_s: float = REQUEST_S
    ) -> Any:
        """Run a function of `on_host` on a host, and return its value.

        Raises:
            HostGone: no reply within `timeout_s`.
            TunerError: the error that the host reported.
        """
        try:
            identity = (await self.identities(fresh=False)).get(host)
            if identity is None:
                raise HostGone("it is not connected to the scheduler")
            client = await self._connected()
            at = identity["address"]
            run = client.run(function, *arguments, workers=[at], on_error="return")
            return _value(host, (await asyncio.wait_for(run, timeout_s)).get(at))
        except (HostGone, TunerError):
            self._known_at = -IDENTITIES_S
            raise
        except TimeoutError as error:
            self._known_at = -IDENTITIES_S
            raise HostGone(f"no reply within {timeout_s:g} s") from error
        except Exception as error:
            self._known_at = -IDENTITIES_S
            raise HostGone(_words(error)) from error

    def attend(self, identity: Mapping[str, Any], key: str) -> Any:
        """Submit the task that keeps a host busy while it answers; return its future, to be released."""
        if self.is_embedded or self._client is None:
            return None
        needed = {BENCH: 1} if BENCH in identity.get("resources", {}) else None
        with contextlib.suppress(Exception):  # the answer does not depend on the task
            return self._client.submit(
                on_host.attend,
                key,
                key=f"ortune-{key}",
                workers=[identity["address"]],
                allow_other_workers=False,
                resources=needed,
                retries=0,
                pure=False,
            )
        return None

    async def _connected(self) -> Any:
        async with self._connecting:
            if self._client is not None and self._client.status == "running":
                return self._client
            await self._drop(self._client)
            try:
                client = dask().Client(
                    self._where, security=self._secured, asynchronous=True, timeout=CONNECT_S, name="ortune"
                )
                await asyncio.wait_for(client, CONNECT_S + 5.0)
            except (OSError, TimeoutError, ValueError, RuntimeError) as error:
                raise HostGone(f"no scheduler replies at {self._where}: {_words(error)}") from error
            self._client = client
            return client

    async def _drop(self, client: Any) -> None:
        if client is not None and client is self._client:
            self._client = None
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(), 5.0)

    async def close(self) -> None:
        """Close the connection; questions on hosts go on."""
        await self._drop(self._client)


def _value(host: str, reply: Any) -> Any:
    """The value of a host's reply; an exception there means that its ORTune is missing or another one."""
    if isinstance(reply, ModuleNotFoundError):
        raise SpecError(
            f"The host `{host}` cannot import ORTune: {reply}.",
            hint="Install this version of ORTune with the extra `fleet` there, in the environment of Dask.",
        )
    if isinstance(reply, AttributeError | TypeError | ImportError):
        raise SpecError(
            f"The host `{host}` runs another version of ORTune: {_words(reply)}.",
            hint="Install this version of ORTune there, and start the host again.",
        )
    if isinstance(reply, BaseException):
        raise HostGone(_words(reply)) from reply
    if not isinstance(reply, dict) or not ({"value", "error"} & set(reply)):
        raise WorkerError(
            f"The host `{host}` sent an invalid reply.", hint="Install this version of ORTune there."
        )
    if "error" in reply:
        raise error_from_record(reply["error"])
    return reply["value"]


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


@asynccontextmanager
async def connect(where: Address | None, certs: Path | None) -> AsyncIterator[Fleet]:
    """Connect to the scheduler at an address; None: to a scheduler within this process, for this machine.

    Raises:
        SpecError: no scheduler replies there, or it refuses the certificate.
    """
    if where is None:
        async with embedded(socket.gethostname()) as cluster:
            fleet = Fleet(cluster)
            try:
                yield fleet
            finally:
                await fleet.close()
        return
    fleet = Fleet(str(where), security(certs))
    try:
        try:
            await fleet.identities()
        except HostGone as gone:
            raise SpecError(
                f"The fleet cannot be used: {gone}.",
                hint="Check the address, start `ortune fleet scheduler` there, and use certificates of one "
                "`ortune fleet init`.",
            ) from gone
        yield fleet
    finally:
        await fleet.close()


async def host_records(fleet: Fleet) -> list[HostRecord]:
    """Return all hosts by name, with their facts; one that may not be asked says why.

    Raises:
        HostGone: the scheduler does not reply.
    """
    names = sorted(await fleet.identities())
    return list(await asyncio.gather(*(_record(fleet, name) for name in names)))


async def _record(fleet: Fleet, name: str) -> HostRecord:
    try:
        facts = await fleet.request(name, on_host.facts, timeout_s=FACTS_S)
        found = msgspec.convert({**facts, "name": name}, HostRecord)
    except HostGone as gone:
        return HostRecord(name=name, refused=f"It does not reply: {gone}.")
    except (SpecError, WorkerError) as error:
        return HostRecord(name=name, refused=f"{error.message} {error.hint}".strip())
    except msgspec.ValidationError as error:
        return HostRecord(name=name, refused=f"Its facts cannot be read ({error}). {_same_code()}")
    if found.code != on_host.code_hash():
        version = f"ORTune {found.ortune}" if found.ortune != __version__ else "other code"
        return replace(found, refused=f"It runs {version}. {_same_code()}")
    return found


def _same_code() -> str:
    return f"Install ORTune {__version__} with this client's code there, and start the host again."
