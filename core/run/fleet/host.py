"""The processes of a fleet: its scheduler, and one host on each machine, until a signal ends them.

A host returns to its scheduler after an interruption. When it is stopped by a signal, it ends its questions;
when it is killed, they finish, and the next host process of this machine serves their answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.process.machine_queue import MachineQueue
from core.run.fleet import on_host
from core.run.fleet.addresses import HTTP, Address, dask, security
from core.store import Store
from core.wire.errors import SpecError, error_from_record

CONNECT_S = 10.0
START_S = 30.0
RETRY_S = 2.0  # between two attempts to reach the scheduler
END_S = 30.0  # for the questions of a stopped host
LINGER_S = 5.0  # a stopped host still serves the answers of its questions
Say = Callable[[str], None]

_WORKER = {
    **{"nthreads": 2, "memory_limit": 0, "resources": {"bench": 1}, "heartbeat_interval": "2s"},
    **{"dashboard": False, "dashboard_address": HTTP, "silence_logs": logging.ERROR},
}


async def serve_scheduler(where: Address, certs: Path | None, say: Say, stop: asyncio.Event) -> None:
    """Run the scheduler of a fleet until `stop` is set.

    Raises:
        SpecError: the address cannot be used, or the certificate is invalid.
    """
    package, secured = dask(), security(certs)
    try:
        scheduler = await package.Scheduler(
            host=f"{'tls' if where.encrypted else 'tcp'}://{where.host}",
            port=where.port,
            security=secured,
            dashboard=False,
            dashboard_address=HTTP,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise SpecError(
            f"The scheduler cannot listen on `{where}`: {_words(error)}.",
            hint="Choose an address of this machine and a free port.",
        ) from error
    try:
        say(f"Scheduler: {scheduler.address}")
        await stop.wait()
    finally:
        await scheduler.close()


async def serve_host(
    name: str, where: Address, certs: Path | None, about: on_host.Description, say: Say, stop: asyncio.Event
) -> None:
    """Run this machine as a host of a fleet until `stop` is set.

    Raises:
        SpecError: the certificate is invalid.
        StoreError: the store or the machine's queue cannot be used.
        WorkerError: no worker can be started here.
    """
    package, secured = dask(), security(certs)
    _check_here()
    on_host.DESCRIPTION.update(about)
    found = await on_host.facts()
    if "error" in found:
        raise error_from_record(found["error"])
    on_host.running()  # ends what a killed process left
    on_host.forget_old()
    reached = True
    while not stop.is_set():
        try:
            async with _worker(package, name, where, secured) as worker:
                say(f"Host {name}: connected to {where}")
                reached = True
                await _first(stop.wait(), worker.finished())
                ended = await asyncio.to_thread(on_host.end_all, END_S) if stop.is_set() else []
                if ended:
                    await asyncio.sleep(LINGER_S)
        except (OSError, TimeoutError, ValueError, RuntimeError) as error:
            if reached:
                say(f"Host {name}: {_why(error, name, where)}. Trying again.")
            reached = False
        if not stop.is_set():
            await _first(stop.wait(), asyncio.sleep(RETRY_S))
    await asyncio.to_thread(on_host.end_all, END_S)


def _check_here() -> None:
    """Refuse a machine that cannot measure, before it joins."""
    Store()
    MachineQueue().entries()


@asynccontextmanager
async def _worker(package: Any, name: str, where: Address, secured: Any) -> AsyncIterator[Any]:
    # an attempt of the worker itself would hide why it fails, for example an unknown certificate
    arguments = {} if secured is None else secured.get_connection_args("worker")
    comm = await package.comm.connect(str(where), timeout=CONNECT_S, **arguments)
    await comm.close()
    listen = f"{'tls' if where.encrypted else 'tcp'}://{_own_address(where)}"
    worker = package.Worker(str(where), name=name, security=secured, host=listen, **_WORKER)
    await asyncio.wait_for(worker, timeout=START_S)
    try:
        yield worker
    finally:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            await asyncio.wait_for(worker.close(), timeout=5.0)


def _own_address(where: Address) -> str:
    """The address of this machine on the way to the scheduler: the host listens on no other one.

    Raises:
        OSError: there is no such way.
    """
    family, kind, _, _, at = socket.getaddrinfo(where.host.strip("[]"), where.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(at)  # sends nothing
        found = str(probe.getsockname()[0])
    return f"[{found}]" if ":" in found else found


async def _first(*waits: Any) -> None:
    """Return when the first of several waits has ended; cancel the others."""
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _why(error: BaseException, name: str, where: Address) -> str:
    text = _words(error)
    if "name taken" in text:
        return f"the fleet has another host `{name}`, or has not noticed yet that it ended"
    return f"no connection to {where}: {text}"


def _words(error: BaseException) -> str:
    """The text of an error, or of the first error that led to it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:300] or type(error).__name__


def until_signal(serve: Callable[[asyncio.Event], Any]) -> None:
    """Run `serve` with an event that SIGINT and SIGTERM set."""

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await serve(stop)

    asyncio.run(run())


@asynccontextmanager
async def embedded(name: str, about: Mapping[str, Any] | None = None) -> AsyncIterator[Any]:
    """Run a scheduler and this machine as its only host, within this process."""
    package = dask()
    on_host.DESCRIPTION.update(about or {})  # type: ignore[typeddict-item]
    workers = {name: {"cls": package.Worker, "options": {**_WORKER, "name": name}}}
    scheduler = {"cls": package.Scheduler, "options": {"protocol": "inproc://", "dashboard": False}}
    scheduler["options"]["dashboard_address"] = HTTP
    async with package.SpecCluster(
        workers=workers, scheduler=scheduler, asynchronous=True, silence_logs=logging.CRITICAL
    ) as cluster:
        yield cluster
