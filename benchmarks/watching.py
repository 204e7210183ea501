"""CPU cost of viewing: `python benchmarks/watching.py [--seconds 20]`.

A real dashboard and real browser windows, on this machine, which should be idle otherwise. Counted is the CPU
time of the server's process and of the browser's processes, as a share of one core, over windows of so many
seconds: Tune at rest; a comparison that runs with no window, one window and five windows open; and Live
switched on, its slider untouched. Processes that measure do not count. During the comparison, the server's
share is the increase over that without a window.

Targets: ≤ 1 % at rest, ≤ 4 % with one window, ≤ 2 % with Live untouched, and five windows ≤ 3 % more on the
server than one. Exit code 1: one of them was not met; 3: the comparison ended before the windows did.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import psutil  # noqa: E402
from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

from benchmarks import experiment as lab  # noqa: E402
from benchmarks import models  # noqa: E402
from benchmarks.waiting import asked, earlier_trial, opened  # noqa: E402
from tests.e2e.conftest import ARGUMENTS, _executable, named, set_number  # noqa: E402
from tests.serving import serving  # noqa: E402

AT_REST, WATCHED, LIVE, FIVE = 1.0, 4.0, 2.0, 3.0  # percent of a core
SETTLE_S = 6.0  # a page that was just drawn still fetches its plots
QUIET, LOOKS = (
    2.0,
    20,
)  # percent of a core below which a page has been drawn to its end; seconds to wait for it
REST_S = 40.0  # Chromium's own work after a page was opened, which draws nothing
FIRST_S = 180.0  # until there is a first interval, at the latest
ESTIMATES_S = REST_S  # Live shows its first estimates meanwhile
VIEWERS = 5
CHANGED = ("--dynamic-block-base", "4")
# A model of 100 ms needs minutes: identical configurations that differ by no more are never separated.
LONG = (*CHANGED, "--effort", "publish", "--margin", "0.1%", "--budget", "30")


def seconds_of(processes: Iterable[psutil.Process]) -> float:
    """CPU time of processes so far; ended ones count nothing."""
    total = 0.0
    for one in processes:
        try:
            times = one.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def browsers() -> list[psutil.Process]:
    """The processes of the browser that this script has started."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "chrom" in one.name():
                found.append(one)
    return found


def shares(server: psutil.Process, window_s: float) -> tuple[float, float]:
    """Percent of a core that the server and the browser take over a window."""
    seen = browsers()
    began = time.monotonic()
    before = seconds_of([server]), seconds_of(seen)
    time.sleep(window_s)
    took = time.monotonic() - began
    return 100 * (seconds_of([server]) - before[0]) / took, 100 * (seconds_of(seen) - before[1]) / took


def settle(server: psutil.Process, most: float = QUIET) -> None:
    """Wait until what was just opened is drawn to its end, or at most so many seconds."""
    time.sleep(SETTLE_S)
    for _ in range(LOOKS):
        if shares(server, 1.0)[1] <= most:
            return


def begun(page: Page, budget_s: float) -> str:
    """Press Run for a comparison that goes on for so long; the id of its trial."""
    set_number(page, "budget_s", round(budget_s))
    before = page.url
    page.locator(".st-key-run button").first.click()
    page.wait_for_function("before => location.href !== before", **asked(before))
    page.locator(".st-key-live .ol-picture").first.wait_for(
        timeout=1e3 * FIRST_S
    )  # from here on it only measures
    return str(named(page.url)["trial"][0])


def watched(
    browser: Browser, url: str, server: psutil.Process, first: Page, window_s: float
) -> dict[str, float]:
    """A comparison shown in no, one and five windows; `first` shows an earlier one of it."""
    trial = begun(first, budget_s=FIRST_S + 4 * window_s + 3 * LOOKS + 12 * SETTLE_S)
    first.goto("about:blank")
    time.sleep(SETTLE_S)
    alone, _ = shares(server, window_s)
    first.goto(f"{url}/?trial={trial}")
    first.locator(".st-key-live .ol-picture").first.wait_for()
    settle(server, WATCHED)
    one, drawing = shares(server, window_s)
    pages = [opened(browser, url, trial) for _ in range(VIEWERS - 1)]
    settle(server, VIEWERS * WATCHED)
    five, _ = shares(server, window_s)
    if not first.locator(".st-key-live .ol-picture").count():
        raise SystemExit(3)
    for page in pages:
        page.close()
    first.locator(".st-key-cancel button").first.click()
    return {"alone": alone, "watched": one - alone + drawing, "drawing": drawing, "five": five - one}


def live_untouched(page: Page, server: psutil.Process, window_s: float) -> tuple[float, float]:
    """Shares with Live on, after its first estimates."""
    page.locator(".st-key-tune-live label").first.click()
    page.locator(".st-key-glimpse").wait_for()
    time.sleep(ESTIMATES_S)
    return shares(server, window_s)


def told(what: str, server: float, browser: float | None, goal: float) -> bool:
    """Print a row; return whether its target is met."""
    whole = server + (browser or 0.0)
    beside = "" if browser is None else f" (server {server:.1f} %, browser {browser:.1f} %)"
    lab.row(what, "a machine that does nothing else", f"{whole:.1f} % of a core{beside}", f"≤ {goal:g} %")
    return whole <= goal


def main() -> int:
    """Measure each of them once."""
    parser = lab.options(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each window")
    given = parser.parse_args()
    lab.head(lab.this_machine())
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        trial = earlier_trial("sample_models/digits_cnn.onnx", home, settings=CHANGED)
        slow = earlier_trial(str(models.sized("100", home)), home, settings=LONG)
        with serving(home) as (url, process):
            server = psutil.Process(process.pid)
            browser = playwright.chromium.launch(executable_path=_executable(), args=list(ARGUMENTS))
            page = opened(browser, url, trial)
            settle(server)
            time.sleep(REST_S)
            met = [told("Tune at rest", *shares(server, given.seconds), AT_REST)]
            page.goto(f"{url}/?trial={slow}")
            page.wait_for_timeout(2000)
            found = watched(browser, url, server, page, given.seconds)
            base = f"the comparison itself takes {found['alone']:.1f} % on the server"
            met.append(
                told(
                    f"a comparison that is watched; {base}",
                    found["watched"] - found["drawing"],
                    found["drawing"],
                    WATCHED,
                )
            )
            met.append(told("five windows instead of one, server only", found["five"], None, FIVE))
            page.goto(f"{url}/?trial={trial}")
            settle(server)
            met.append(told("Live on and untouched", *live_untouched(page, server, given.seconds), LIVE))
            browser.close()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
