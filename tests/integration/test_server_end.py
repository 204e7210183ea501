"""A server that ends during a comparison: SIGTERM like Ctrl-C; and the state after a kill."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from core.process import scratch
from core.process.machine_queue import MachineQueue
from core.run.job_log import clean_up
from core.store import STORE_NAME, Store
from tests import tiny_models
from tests.waiting import WAIT_S, wait_until

ROOT = Path(__file__).parents[2]

# `python -m dashboard`, with a thread instead of a browser that starts a comparison as a page does.
SERVES = """
import json, sys, threading, time, urllib.request
from dashboard import __main__ as server
from core.process import interrupt
interrupt.exit_on_signals()
port, model = int(sys.argv[1]), sys.argv[2]

def ask():
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1).close()
            break
        except OSError:
            time.sleep(0.05)
    from core.run import job_types
    from core.spec import spec_from_dict
    from dashboard import state
    from dashboard.server import upload
    service, trial = None, ""
    if model:
        service = state.scheduler()
        asked = {"model": {"path": model}, "session": {"intra_op_num_threads": 1},
                 "protocol": {"effort": "publish", "budget_s": 600}}
        trial = service.submit(job_types.tune(spec_from_dict(asked)))
        while (service.status(trial).live or {}).get("rounds", 0) < 3:
            time.sleep(0.02)
    print(json.dumps({"trial": trial, "token": upload.TOKEN}), flush=True)

threading.Thread(target=ask, daemon=True).start()
server.serve("127.0.0.1", port, hosts=("127.0.0.1",))
"""


@dataclass
class Served:
    process: subprocess.Popen[str]
    port: int
    home: Path
    temporary: Path
    said: dict[str, str]

    def left(self) -> list[str]:
        return sorted(path.name for path in self.temporary.iterdir() if path.name.startswith("ortune"))

    def stop(self) -> None:
        """Stop the server at a moment between two writes, so that others can use its store and all stays."""
        wait_until(self._stops, "it always wrote")

    def _stops(self) -> bool:
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)
        made = [self.temporary / name for name in self.left()]
        if made and all(map(is_locked, made)) and is_free(self.home / STORE_NAME):
            return True
        self.process.send_signal(signal.SIGCONT)
        return False


def is_locked(folder: Path) -> bool:
    """Whether a process has locked its temporary folder; it makes it first."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_free(store: Path) -> bool:
    """Whether nobody writes to a store."""
    with contextlib.closing(sqlite3.connect(store, timeout=0, isolation_level=None)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        db.execute("ROLLBACK")
    return True


def is_closed(port: int) -> bool:
    """Whether a server accepts no connection any more."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    started: list[subprocess.Popen[str]] = []

    def start(model: Path | str = "") -> Served:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        home, temporary = tmp_path / "home", tmp_path / "tmp"
        temporary.mkdir()
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", SERVES, str(port), str(model)],
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "ORTUNE_HOME": str(home),
                    "ORTUNE_MODELS": str(tmp_path),
                    "ORTUNE_QUEUE": str(tmp_path / "queue"),
                    "TMPDIR": str(temporary),
                },
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        started.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                return Served(process, port, home, temporary, json.loads(line))
        raise AssertionError((tmp_path / "log").read_text())

    yield start
    for process in started:
        process.kill()
        process.communicate()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_signal_stores_the_comparison_and_leaves_nothing(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    one = serve(tiny_models.steady(tmp_path / "steady.onnx"))
    family = psutil.Process(one.process.pid).children(recursive=True)
    assert family
    assert any(name.startswith(scratch.PREFIX) for name in one.left())
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(WAIT_S) == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(family, timeout=WAIT_S)
    assert alive == []
    store = Store(one.home / STORE_NAME)
    trial = store.trial(one.said["trial"])
    assert trial.state == "CANCELLED"
    comparison = store.comparison(trial.comparison)
    assert comparison.state == "CANCELLED"
    assert comparison.result is not None
    assert comparison.result["rounds"] >= 3, "its rounds are kept"
    assert {entry.state for entry in store.trials_of(comparison.id)} == {"CANCELLED"}
    assert one.left() == []
    assert MachineQueue(tmp_path / "queue").entries() == []


@pytest.mark.parametrize("signals", [1, 2])
def test_who_still_sends_does_not_hold_the_server(serve: Callable[..., Served], signals: int) -> None:
    one = serve()
    head = (
        f"PUT /api/upload/{'0' * 32}/m.onnx HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\n"
        f"Origin: http://127.0.0.1:{one.port}\r\nX-ORTune-Token: {one.said['token']}\r\n"
        "Content-Length: 1000\r\n\r\nhalf of it"
    )
    with socket.create_connection(("127.0.0.1", one.port)) as connection:
        connection.sendall(head.encode())
        wait_until(lambda: list(one.home.rglob("*.part")))
        for _ in range(signals):
            one.process.send_signal(signal.SIGINT)
            wait_until(lambda: is_closed(one.port))
        assert one.process.wait(WAIT_S) == 128 + signal.SIGINT
    assert list(one.home.rglob("*.part")) == []


def test_what_a_killed_server_leaves_goes_at_the_next_start(
    serve: Callable[..., Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = serve(tiny_models.steady(tmp_path / "steady.onnx"))
    store = Store(one.home / STORE_NAME)
    monkeypatch.setattr("tempfile.tempdir", str(one.temporary))
    one.stop()  # else a launch of its comparison may end, whose folders go
    before = one.left()
    incoming = store.folder / "models" / f"{scratch.INCOMING}{'0' * 16}"
    incoming.mkdir(parents=True)
    clean_up(store)
    assert store.trial(one.said["trial"]).state == "RUNNING"
    assert one.left() == before, "a living process uses it"
    assert not incoming.exists()
    family = psutil.Process(one.process.pid).children(recursive=True)
    assert family, "contestants, of which all but one are frozen at any moment"
    one.process.kill()
    one.process.wait(WAIT_S)
    _, alive = psutil.wait_procs(family, timeout=WAIT_S)
    assert alive == []
    assert one.left() != []
    clean_up(store)
    assert store.trial(one.said["trial"]).state == "FAIL"
    assert one.left() == []
