"""Steps of the clock, too little memory, and crashes: what is true stays true, and only who may is in.

After each fault a real measurement works, the store is whole, and no process, folder or ticket is left.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from core.process.machine_queue import MachineQueue
from core.store import STORE_NAME, Store, audit
from dashboard.server.gate import TOKEN_VARIABLE
from dashboard.server.login_sessions import COOKIE, DEFAULT_HOURS, LoginSessions
from dashboard.server.people_file import hash_of
from tests import tiny_models
from tests.command_line import is_comparing
from tests.e2e.conftest import recorded_home
from tests.faults.conftest import Ground, check_told
from tests.faults.test_lack import LIMITED, SHORT
from tests.faults.visits import MOST_S, TEST_S, Visiting, check_whole, workers
from tests.serving import SOCKET, ask, end, serving
from tests.stepped_clock import SteppedClock
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(TEST_S)

TOKEN = "a token that visitors share"
DAY_S = 86_400
STEPS = (
    3600,
    -3600,
    400 * DAY_S,
    -400 * DAY_S,
    0,
)  # seconds that the clock is ahead; the system's at the end
LASTING = (3600, 400 * DAY_S, -400 * DAY_S)  # to which the clock is set for good


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


# --- a running comparison -----------------------------------------------------------------------------------


def test_the_clock_steps_while_a_command_measures(ground: Ground, folder: Path, clock: SteppedClock) -> None:
    ground.environment |= clock.environment
    budget = ("--budget", f"{2 * len(STEPS)}s", "--effort", "publish", "--json")
    process = ground.start("tune", "mlp.onnx", *budget, cwd=folder)
    wait_until(lambda: is_comparing(process), most_s=MOST_S)
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


@pytest.mark.parametrize("ahead_s", LASTING)
def test_the_clock_is_set_for_good_while_a_command_measures(
    ground: Ground, folder: Path, clock: SteppedClock, ahead_s: int
) -> None:
    ground.environment |= clock.environment
    began = time.time()
    first = ground.start("tune", "mlp.onnx", "--budget", "60s", "--effort", "publish", "--json", cwd=folder)
    wait_until(lambda: is_comparing(first), most_s=MOST_S)
    clock.step(ahead_s)
    second = ground.start("tune", "mlp.onnx", *SHORT, cwd=folder)
    queue = MachineQueue(ground.queue)
    wait_until(lambda: len(queue.entries()) == 2, most_s=MOST_S)
    assert [(one.pid, one.running) for one in queue.entries()] == [(first.pid, True), (second.pid, False)]
    store = Store(ground.home / STORE_NAME)
    found = []
    for process in (first, second):
        out, err = process.communicate(timeout=MOST_S)
        assert process.returncode in (0, 3), err
        assert "Traceback" not in err
        found.append(store.trial(json.loads(out)["trial"]))
    took_s = time.time() - began
    for one, since in zip(found, (began, began + ahead_s), strict=True):
        assert one.state == "COMPLETE"
        assert one.started_at is not None
        assert one.finished_at is not None
        assert since - 1 <= one.started_at <= one.finished_at <= since + took_s + 1
    check_measured(ground, folder)
    lines = list(audit.entries(ground.home))
    assert [one.n for one in lines] == list(range(1, len(lines) + 1))
    assert audit.check(ground.home).problems == ()
    check_told(ground.run("history", "--json"), codes=(0,))
    clock.step(0)
    check_measured(ground, folder)


@pytest.mark.parametrize("most_mib", [100, 300, 600, 1000])
def test_a_worker_has_too_little_memory(ground: Ground, folder: Path, most_mib: int) -> None:
    limited = (sys.executable, "-c", LIMITED, "RLIMIT_AS", str(most_mib << 20))
    large = ("--batch-size", "500000", "--runs", "5", "--warmup-runs", "1", "--quiet")
    check_told(ground.run("tune", "mlp.onnx", *large, cwd=folder, prefix=limited))
    check_measured(ground, folder)


# --- a running server ---------------------------------------------------------------------------------------


def test_the_clock_of_a_server_steps(visiting: Visiting, clock: SteppedClock) -> None:
    with recorded_home() as home, visiting(home, **clock.environment) as visit:
        trial = visit.start()
        wait_until(lambda: workers(visit.server.pid), most_s=MOST_S)
        for ahead_s in STEPS:
            clock.step(ahead_s)
            time.sleep(1)
        assert visit.end(trial).state == "COMPLETE"
        for ahead_s in (0, STEPS[0], STEPS[1]):  # it stays behind
            clock.step(ahead_s)
            visit.check_measured()


# --- people -------------------------------------------------------------------------------------------------


def log_in(url: str, *, token: str = TOKEN, cookie: str = "") -> str:
    """Log in as the form of the login does; return the cookie."""
    sent = {"Origin": url, "Content_Type": "application/x-www-form-urlencoded", "Cookie": cookie}
    form = urlencode({"token": token, "next": "/"})
    answer = ask(url, "/_login", method="POST", body=form, **sent)
    assert answer.status == 303
    return str(answer.getheader("Set-Cookie")).partition(";")[0]


def is_in(url: str, cookie: str) -> bool:
    """Whether this cookie opens pages and their connection; fails where it opens only one of them."""
    asked = (("/", {}), ("/history", {}), ("/_stcore/stream", SOCKET))
    found = [ask(url, path, Origin=url, Cookie=cookie, **headers).status for path, headers in asked]
    assert found in ([200, 200, 101], [401, 401, 403]), found
    return found[0] == 200


STRANGERS = ("", f"{COOKIE}=", f"{COOKIE}={'0' * 43}", f"{COOKIE}={hash_of('x')}")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_after_a_crash_those_are_in_who_were_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    home = tmp_path / "home"
    home.mkdir()
    with serving(home) as (url, server):
        valid, replaced, logged_out = log_in(url), log_in(url), log_in(url)
        log_in(url, cookie=replaced)  # another login in that browser
        LoginSessions(home).end(hash_of(logged_out.partition("=")[2]))  # by another server with this home
        out = (*STRANGERS, replaced, logged_out)
        assert is_in(url, valid)
        assert [cookie for cookie in out if is_in(url, cookie)] == []
        server.send_signal(how)
        server.wait(60)
        end(server)
    with serving(home) as (url, _):
        assert is_in(url, valid)
        assert [cookie for cookie in out if is_in(url, cookie)] == []
    file = home / "login" / "sessions.json"
    whole = file.read_bytes()
    assert hash_of(valid.partition("=")[2]) in whole.decode()
    file.write_bytes(whole[:-2])  # cut off: all sessions are in it, but it is no JSON
    with serving(home) as (url, _):
        assert [cookie for cookie in (*out, valid) if is_in(url, cookie)] == []
        assert is_in(url, log_in(url))
    file.write_bytes(whole)
    monkeypatch.setenv(TOKEN_VARIABLE, f"{TOKEN}, another one")
    with serving(home) as (url, _):
        assert not is_in(url, valid)


def test_a_session_ends_by_the_clock_that_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SteppedClock
) -> None:
    for name, text in {TOKEN_VARIABLE: TOKEN, **clock.environment}.items():
        monkeypatch.setenv(name, text)
    home = tmp_path / "home"
    home.mkdir()
    with serving(home) as (url, _):
        cookie = log_in(url)
        for ahead_s, expected in (
            (0, True),
            ((DEFAULT_HOURS - 1) * 3600, True),
            ((DEFAULT_HOURS + 1) * 3600, False),
            (-400 * DAY_S, False),  # else it would last for 400 days and 12 hours
        ):
            clock.step(ahead_s)
            assert is_in(url, cookie) == expected, ahead_s
        behind = log_in(url)
        assert is_in(url, behind)
        clock.step(0)  # 400 days later
        assert not is_in(url, behind)
