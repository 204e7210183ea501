"""Servers with an open page that campaigns disturb, and what must hold afterwards."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from core.evidence.measurement import Trial
from core.store import STORE_NAME, Store
from tests.e2e.conftest import (
    PATIENCE_MS,
    button,
    finished,
    opened,
    result_shown,
    run_button,
    set_number,
    started,
)
from tests.serving import LOG, serving
from tests.waiting import wait_until

resource = pytest.importorskip("resource")

MOST_S = 600.0  # that anything here takes, by any clock
BUDGET_S = 20  # on a machine with much else to do a launch takes seconds
TEST_S = 1800.0  # of a test here, on a machine with much else to do


def check_whole(store: Store, queue: Path) -> None:
    """No row is damaged, no duration is impossible, and no ticket is left."""
    assert store.check().damaged == 0
    assert list(queue.glob("*.json")) == []
    for trial in store.trials(limit=1000):
        if trial.started_at is not None and trial.finished_at is not None:
            assert 0 <= trial.finished_at - trial.started_at < MOST_S, trial.id
    assert all(0 <= used < MOST_S for used in store.machine_time(0.0).values())


class Visit:
    """A server with recorded results, and a page of it."""

    def __init__(self, home: Path, url: str, server: subprocess.Popen[bytes], page: Page, log: Path) -> None:
        self.home, self.url, self.server, self.page, self.log = home, url, server, page, log
        self.store = Store(home / STORE_NAME)
        self.read_from = 0  # of the log
        self.reopen()

    def reopen(self) -> None:
        """Open the page anew, with a short budget."""
        self.page.goto(self.url)
        opened(self.page)
        set_number(self.page, "budget_s", BUDGET_S)

    def start(self) -> str:
        return started(self.page, run_button(self.page))

    def start_measuring(self) -> str:
        """Start a comparison, and wait until it has measured a block."""
        trial = self.start()
        wait_until(lambda: workers(self.server.pid), most_s=MOST_S)
        return trial

    def end(self, trial: str) -> Trial:
        """Wait until a trial has ended and the page shows it."""
        self.await_end(trial)
        result_shown(self.page)
        return self.store.trial(trial)

    def await_end(self, trial: str) -> Trial:
        """Wait until a trial has ended, on the page or not."""
        ended = ("COMPLETE", "FAIL", "CANCELLED")
        wait_until(lambda: self.store.trial(trial).state in ended, most_s=MOST_S)
        return self.store.trial(trial)

    def delete(self, trial: str) -> None:
        """Delete a trial on History."""
        self.page.goto(f"{self.url}/history?trial={trial}")
        opened(self.page)
        button(self.page, "history.delete").click()
        button(self.page, "history.confirm").click()
        expect(self.page.get_by_role("dialog")).to_have_count(0)
        finished(self.page)

    def check_measured(self) -> None:
        """A page that is opened now measures."""
        self.reopen()
        assert self.end(self.start()).state == "COMPLETE"
        check_whole(self.store, self.home / "queue")
        wait_until(lambda: not workers(self.server.pid), most_s=MOST_S)
        said = self.said()
        assert "Traceback" not in said, said[-3000:]

    def said(self) -> str:
        """What the server has said since `forget_said`."""
        return self.log.read_bytes()[self.read_from :].decode(errors="replace")

    def forget_said(self) -> None:
        self.read_from = self.log.stat().st_size

    def family(self) -> list[psutil.Process]:
        """The server and all processes that it has started."""
        server = psutil.Process(self.server.pid)
        return [server, *server.children(recursive=True)]

    def kill(self) -> None:
        """End the server as a crash does; its processes end with it."""
        family = self.family()
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        assert psutil.wait_procs(family, timeout=MOST_S)[1] == []

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
    return [one for one in psutil.Process(pid).children(recursive=True) if is_stopped(one)]


def is_stopped(process: psutil.Process) -> bool:
    """Whether a process is stopped; one that has ended meanwhile is not."""
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


Visiting = Callable[..., contextlib.AbstractContextManager[Visit]]


@pytest.fixture
def visiting(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Visiting:
    """Start a server and open its page; at the end neither processes nor temporary folders are left.

    A server that the test has killed may leave temporary folders: the next start removes them.
    """

    @contextlib.contextmanager
    def visit(
        home: Path, *, log: str = LOG, prefix: Sequence[str] = (), port: int = 0, **variables: str
    ) -> Iterator[Visit]:
        temporary = tmp_path / f"temporary-{log}"
        temporary.mkdir(exist_ok=True)
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_MS)
        with monkeypatch.context() as patch:
            for name, text in {"TMPDIR": str(temporary), **variables}.items():
                patch.setenv(name, text)
            stack = contextlib.ExitStack()
            url, server = stack.enter_context(serving(home, port=port, log=tmp_path / log, prefix=prefix))
        with stack:
            one = Visit(home, url, server, context.new_page(), tmp_path / log)
            yield one
            context.close()
            family = one.family() if server.poll() is None else []
        assert psutil.wait_procs(family, timeout=MOST_S)[1] == []
        if server.returncode != -signal.SIGKILL:
            assert [path.name for path in temporary.iterdir() if path.name.startswith("ortune")] == []

    return visit
