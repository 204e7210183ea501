"""The processes of a fleet: its scheduler, and one host on each machine, until a signal ends them.

A host returns to its scheduler after an interruption. When it is stopped by a signal, it ends its questions;
when it is killed, they finish, and the next host process of this machine serves their answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.process.machine_queue import MachineQueue
from core.run.fleet import on_host
from core.run.fleet.addresses import HTTP, Address, dask, security
from core.store import Store
from core.wire.errors import SpecError

RETRY_S = 2.0  # between two attempts to reach the scheduler
END_S = 30.0  # for the questions of a stopped host
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
        SpecError: the certificate is invalid, or another host has this name.
        StoreError: the store or the machine's queue cannot be used.
        WorkerError: no worker can be started here.
    """
    package, secured = dask(), security(certs)
    _check_here()
    on_host.DESCRIPTION.update(about)
    found = (await on_host.facts())["value"]
    del found
    on_host.running()  # ends what a killed process left
    reached = True
    while not stop.is_set():
        try:
            async with _worker(package, name, where, secured) as worker:
                say(f"Host {name}: connected to {where}")
                reached = True
                await _first(stop.wait(), worker.finished())
        except (OSError, TimeoutError, ValueError, RuntimeError) as error:
            if "name" in str(error) and "taken" in str(error):
                raise SpecError(
                    f"The fleet has another host `{name}`.", hint="Give this one another `--name`."
                ) from error
            if reached:
                say(f"Host {name}: no connection to {where}: {_words(error)}. Trying again.")
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
    worker = await asyncio.wait_for(
        package.Worker(str(where), name=name, security=secured, **_WORKER), timeout=30.0
    )
    try:
        yield worker
    finally:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            await asyncio.wait_for(worker.close(), timeout=5.0)


async def _first(*waits: Any) -> None:
    """Return when the first of several waits has ended; cancel the others."""
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _words(error: BaseException) -> str:
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
