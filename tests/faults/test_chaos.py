"""Faults of the machine while a server or a comparison runs: clock, memory, descriptors.

After each fault a real measurement works, the store is whole, and no process, folder or ticket is left.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page

from core.evidence.measurement import Trial
from core.store import STORE_NAME, Store
from dashboard.server.gate import TOKEN_VARIABLE
from dashboard.server.login_sessions import COOKIE
from tests import tiny_models
from tests.command_line import is_comparing
from tests.e2e.conftest import (  # noqa: F401 - `browser` is a fixture
    PATIENCE_MS,
    browser,
    button,
    finished,
    opened,
    recorded_home,
    result_shown,
    run_button,
    set_number,
    started,
)
from tests.faults.conftest import Ground, check_told
from tests.faults.test_lack import LIMITED, SHORT
from tests.serving import LOG, SOCKET, ask, end, serving
from tests.stepped_clock import SteppedClock
from tests.waiting import wait_until

resource = pytest.importorskip("resource")

TOKEN = "a token that visitors share"
DAY_S = 86_400
STEPS = (
    3600,
    -3600,
    400 * DAY_S,
    -400 * DAY_S,
    0,
)  # seconds that the clock is ahead; the system's at the end
MOST_S = 600.0  # that anything here takes, by any clock
BUDGET_S = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_models.mlp(tmp_path / "mlp.onnx")
    return tmp_path


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(tmp_path)


def check_measured(ground: Ground, folder: Path) -> None:
    """A real measurement works, the store is whole, and nothing is left."""
    done = ground.run("tune", "mlp.onnx", *SHORT, cwd=folder)
    check_told(done, codes=(0, 3))
    store = Store(ground.home / STORE_NAME)
    assert store.trial(json.loads(done.out)["trial"]).state == "COMPLETE"
    check_whole(store, ground.queue)
    ground.check_store()
    assert ground.leavings() == []


def check_whole(store: Store, queue: Path) -> None:
    """No row is damaged, no duration is impossible, and no ticket is left."""
    assert store.check().damaged == 0
    assert list(queue.glob("*.json")) == []
    for trial in store.trials(limit=1000):
        if trial.started_at is not None and trial.finished_at is not None:
            assert 0 <= trial.finished_at - trial.started_at < MOST_S, trial.id
    assert all(0 <= used < MOST_S for used in store.machine_time(0.0).values())


# --- a running comparison -----------------------------------------------------------------------------------


def test_the_clock_steps_while_a_command_measures(ground: Ground, folder: Path, clock: SteppedClock) -> None:
    ground.environment |= clock.environment
    budget = ("--budget", f"{2 * len(STEPS)}s", "--effort", "publish", "--json")
    process = ground.start("tune", "mlp.onnx", *budget, cwd=folder)
    wait_until(lambda: is_comparing(process))
    for ahead_s in STEPS:
        clock.step(ahead_s)
        time.sleep(1)
    out, err = process.communicate(timeout=MOST_S)
    assert process.returncode in (0, 3), err
    assert "Traceback" not in err
    assert Store(ground.home / STORE_NAME).trial(json.loads(out)["trial"]).state == "COMPLETE"
    for ahead_s in (STEPS[0], STEPS[1], 0):  # between two commands
        clock.step(ahead_s)
        check_measured(ground, folder)


@pytest.mark.parametrize("most_mib", [100, 300, 600, 1000])
def test_a_worker_has_too_little_memory(ground: Ground, folder: Path, most_mib: int) -> None:
    limited = (sys.executable, "-c", LIMITED, "RLIMIT_AS", str(most_mib << 20))
    large = ("--batch-size", "500000", "--runs", "5", "--warmup-runs", "1", "--quiet")
    check_told(ground.run("tune", "mlp.onnx", *large, cwd=folder, prefix=limited))
    check_measured(ground, folder)


# --- a running server ---------------------------------------------------------------------------------------


class Visit:
    """A server with recorded results, and a page of it."""

    def __init__(self, home: Path, url: str, server: subprocess.Popen[bytes], page: Page) -> None:
        self.home, self.url, self.server, self.page = home, url, server, page
        self.store = Store(home / STORE_NAME)
        set_number(page, "budget_s", BUDGET_S)

    def start(self) -> str:
        return started(self.page, run_button(self.page))

    def end(self, trial: str) -> Trial:
        """Wait until a trial has ended and the page shows it."""
        wait_until(lambda: self.store.trial(trial).state not in ("WAITING", "RUNNING"))
        result_shown(self.page)
        return self.store.trial(trial)

    def check_measured(self) -> None:
        """A page that is opened now measures."""
        self.page.goto(self.url)
        opened(self.page)
        set_number(self.page, "budget_s", BUDGET_S)
        assert self.end(self.start()).state == "COMPLETE"
        check_whole(self.store, self.home / "queue")
        wait_until(lambda: not workers(self.server.pid))
        assert b"Traceback" not in (self.home / LOG).read_bytes()

    @contextlib.contextmanager
    def lacking(self, kind: int, most: int) -> Iterator[None]:
        """Refuse the server more of a resource for a while; its present use is kept."""
        limits = resource.prlimit(self.server.pid, kind)
        resource.prlimit(self.server.pid, kind, (most, limits[1]))
        try:
            yield
        finally:
            resource.prlimit(self.server.pid, kind, limits)


def workers(pid: int) -> list[psutil.Process]:
    """Workers of a server that have a model, without those that wait for the next one."""
    return [
        one for one in psutil.Process(pid).children(recursive=True) if one.status() == psutil.STATUS_STOPPED
    ]


Visiting = Callable[..., contextlib.AbstractContextManager[Visit]]


@pytest.fixture
def visiting(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Visiting:  # noqa: F811
    """Start a server and open its page; at the end neither processes nor temporary folders are left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(exist_ok=True)

    @contextlib.contextmanager
    def visit(home: Path, **variables: str) -> Iterator[Visit]:
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_MS)
        with monkeypatch.context() as patch:
            for name, text in {"TMPDIR": str(temporary), **variables}.items():
                patch.setenv(name, text)
            stack = contextlib.ExitStack()
            url, server = stack.enter_context(serving(home))
        with stack:
            page = context.new_page()
            page.goto(url)
            opened(page)
            yield Visit(home, url, server, page)
            context.close()
            family = psutil.Process(server.pid).children(recursive=True)
        assert psutil.wait_procs(family, timeout=MOST_S)[1] == []
        assert [one.name for one in temporary.iterdir() if one.name.startswith("ortune")] == []

    return visit


def test_the_clock_of_a_server_steps(visiting: Visiting, clock: SteppedClock) -> None:
    with recorded_home() as home, visiting(home, **clock.environment) as visit:
        trial = visit.start()
        wait_until(lambda: workers(visit.server.pid))
        for ahead_s in STEPS:
            clock.step(ahead_s)
            time.sleep(1)
        assert visit.end(trial).state == "COMPLETE"
        for ahead_s in (STEPS[0], STEPS[1], 0):
            clock.step(ahead_s)
            visit.check_measured()


def test_a_server_is_refused_memory(visiting: Visiting) -> None:
    with recorded_home() as home, visiting(home) as visit:
        with visit.lacking(resource.RLIMIT_AS, psutil.Process(visit.server.pid).memory_info().vms):
            with contextlib.suppress(OSError):
                ask(visit.url)
            button(visit.page, "run").click()
            time.sleep(5)
        log = (home / LOG).read_text()
        if visit.server.poll() is None:
            (home / LOG).write_text("")
            visit.check_measured()
        assert "Segmentation" not in log


def test_a_server_is_out_of_descriptors(visiting: Visiting) -> None:
    with recorded_home() as home, visiting(home) as visit:
        most = psutil.Process(visit.server.pid).num_fds() + 2  # a worker needs more
        with visit.lacking(resource.RLIMIT_NOFILE, most):
            button(visit.page, "run").click()
            time.sleep(5)
        visit.check_measured()


# --- people -------------------------------------------------------------------------------------------------


def test_nobody_is_in_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    home = tmp_path / "home"
    home.mkdir()
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        with serving(home) as (url, server):
            for cookie in ("", f"{COOKIE}=", f"{COOKIE}={'0' * 43}"):
                for path, headers in (("/", {}), ("/_stcore/stream", SOCKET), ("/history", {})):
                    said = ask(url, path, Origin=url, Cookie=cookie, **headers).status
                    assert said in (401, 403), (how, path, said)
            server.send_signal(how)
            server.wait(60)
            end(server)
        (home / "login").mkdir(exist_ok=True)
        (home / "login" / "sessions.json").write_text('{"schema": 1, "sessions": [' + "9" * 50)  # cut off
