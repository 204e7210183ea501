"""Many simulated hosts in one process.

`python -m benchmarks.fleet_hosts FIRST COUNT SCHEDULER CERTS DOCUMENT S`: COUNT hosts, numbered from FIRST.
Each is a real Dask worker that serves the requests of a client as any host does. Only the answer is made up:
instead of a process that measures, a timer writes DOCUMENT as the answer after S seconds. All hosts of this
process share one ORTune folder; their answers have keys of their own. `benchmarks/fleet.py` starts it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from core.run.fleet import folders, on_host
from core.run.fleet.addresses import address
from core.run.fleet.folders import DOCUMENT, STATE
from core.run.fleet.host import serve_host, until_signal
from core.wire.files import open_regular, sha256_of

THREADS = 64  # a real host has a process of its own; requests to many must not wait for one thread


def made_up(document: Path, seconds: float) -> Callable[[Path], None]:
    """Return what stands in for the start of a question's process."""
    with open_regular(document) as file:
        sealed = {DOCUMENT: {"bytes": document.stat().st_size, "sha256": sha256_of(file)}}

    def spawn(folder: Path) -> None:
        state: dict[str, Any] = {
            **{"key": folder.name, "state": "RUNNING", "started_at": time.time(), "pid": os.getpid()},
            **{"started": psutil.Process().create_time(), "command": 0},
        }

        def end() -> None:
            shutil.copyfile(document, folder / DOCUMENT)
            ended = {"state": "COMPLETE", "finished_at": time.time(), "exit_code": 0, "error": None}
            folders.write_json(folder / STATE, {**state, **ended, "rows": {}, "files": sealed})

        folders.write_json(folder / STATE, state)
        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()

    return spawn


async def serve(first: int, count: int, scheduler: str, certs: Path, stop: asyncio.Event) -> None:
    """Connect the hosts, and serve until `stop` is set."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    where, about = address(scheduler, certs), on_host.Description(labels={}, price_per_hour=None)
    names = [f"simulated-{number:03}" for number in range(first, first + count)]
    await asyncio.gather(*(serve_host(one, where, certs, about, _say, stop) for one in names))


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """Serve until a signal."""
    first, count, scheduler, certs, document, seconds = sys.argv[1:]
    on_host._spawn = made_up(Path(document), float(seconds))  # type: ignore[assignment]
    until_signal(lambda stop: serve(int(first), int(count), scheduler, Path(certs), stop))


if __name__ == "__main__":
    main()
