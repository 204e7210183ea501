"""Effect of viewers on a comparison: `python benchmarks/viewers.py [--settings NAME] [--late]`.

A real dashboard; one visitor presses Run (digits_cnn against ONNX Runtime's default). `--settings` chooses
one thread against both, of which the second truly loses what a browser takes from the same CPUs, or basic
graph optimizations against all of them, whose two sides lose alike. While it runs, no window shows it (it is
empty), one does, or five: four follow the first by the link of a presenter, each in its own browser window on
this machine. The three cases take turns in random order. With `--late` the four open the page after the
comparison has begun, so that it runs while four browsers load a page. Reported: the ratio with viewers over
the ratio without, with its 95 % interval over the repeats, and the share of comparisons with the remark "busy
machine". Target: viewers change the ratio by 1 % at most. Exit code 1: they change it by more, the interval
considered; 3: too few repeats to tell.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

from benchmarks import experiment as lab  # noqa: E402
from benchmarks.intervals import share_text  # noqa: E402
from benchmarks.waiting import ONE_THREAD, asked, earlier_trial, opened  # noqa: E402
from core.evidence.statistics import t_quantile  # noqa: E402
from core.show.verdict import background_load_text  # noqa: E402
from core.store import STORE_NAME, Store  # noqa: E402
from tests.e2e.conftest import ARGUMENTS, _executable, named, presented  # noqa: E402
from tests.serving import serving  # noqa: E402

VIEWERS = (0, 1, 5)
SETTINGS = {"threads": ONE_THREAD, "level": ("--graph-optimization-level", "ORT_ENABLE_BASIC")}
MOST = 0.01  # of the ratio
PATIENCE_S = 120.0
POLL_S = 0.5
SETTLE_MS = 3000.0  # a page that was just drawn still fetches its plots


def one_comparison(
    browser: Browser, url: str, store: Store, trial: str, viewers: int, *, late: bool
) -> tuple[float, bool]:
    """Run once with so many viewers; ln(ratio), and whether it has the remark on other programs."""
    first = opened(browser, url, trial)
    pages = [first]
    if viewers > 1 and not late:
        pages += followers(browser, first, viewers - 1)
    before = first.url
    first.locator(".st-key-run button").first.click()
    first.wait_for_function("before => location.href !== before", **asked(before))
    [new] = named(first.url)["trial"]
    if not viewers:
        first.goto("about:blank")
    for _ in range(viewers - len(pages)):
        pages.append(window(browser))
        pages[-1].goto(f"{url}/?trial={new}", wait_until="commit")
    until = time.monotonic() + PATIENCE_S
    comparison = store.comparison(str(store.trial(new).comparison))  # which is written after its trials
    while comparison.state in ("WAITING", "RUNNING"):
        if time.monotonic() > until:
            raise SystemExit(f"The comparison took longer than {PATIENCE_S:g} s.")
        time.sleep(POLL_S)
        comparison = store.comparison(comparison.id)
    for page in pages:
        page.context.close()
    if comparison.state != "COMPLETE":
        raise SystemExit(f"The race ended as {comparison.state}.")
    [found] = [one for one in comparison.facts["contrasts"] if one["candidate"] == new]
    return math.log(found["ratio"]), bool(background_load_text(comparison.result))


def followers(browser: Browser, presenter: Page, many: int) -> list[Page]:
    """Return windows that show what the presenter's shows, drawn to their ends."""
    address = presented(presenter)
    pages = [window(browser) for _ in range(many)]
    for page in pages:
        page.goto(address)
        page.get_by_text("You follow a presenter").wait_for()
    presenter.wait_for_timeout(SETTLE_MS)
    return pages


def window(browser: Browser) -> Page:
    """Return a new window that shares nothing with the others."""
    return browser.new_context(viewport={"width": 1440, "height": 900}).new_page()


def main() -> int:
    """Run the cases in turns, and print how far apart the ratios are."""
    parser = lab.options(__doc__)
    parser.add_argument("--repeats", type=int, default=12, metavar="N")
    parser.add_argument("--settings", choices=SETTINGS, default="threads")
    parser.add_argument("--late", action="store_true", help="four of five open a running comparison")
    given = parser.parse_args()
    lab.head(lab.this_machine())
    ratios: dict[int, list[float]] = {count: [] for count in VIEWERS}
    busy = dict.fromkeys(VIEWERS, 0)
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        trial = earlier_trial("sample_models/digits_cnn.onnx", home, settings=SETTINGS[given.settings])
        store = Store(home / STORE_NAME)
        with serving(home) as (url, _):
            browser = playwright.chromium.launch(executable_path=_executable(), args=list(ARGUMENTS))
            for _ in range(given.repeats):
                for count in rng.sample(VIEWERS, len(VIEWERS)):
                    ratio, remark = one_comparison(browser, url, store, trial, count, late=given.late)
                    ratios[count].append(ratio)
                    busy[count] += remark
            browser.close()
    moved = sure = True
    for count in VIEWERS:
        share = f"busy-machine remark in {share_text(busy[count], given.repeats)}"
        if not count:
            ratio = math.exp(statistics.fmean(ratios[0]))
            lab.row("no viewers", "ratio of the comparison", f"{ratio:.3f}×; {share}", "")
            continue
        pairs = [one - other for one, other in zip(ratios[count], ratios[0], strict=True)]
        middle = statistics.fmean(pairs)
        half = t_quantile(0.975, len(pairs) - 1) * statistics.stdev(pairs) / math.sqrt(len(pairs))
        moved &= abs(middle) - half <= MOST
        sure &= abs(middle) + half <= MOST
        interval = f"[{math.expm1(middle - half):+.1%}, {math.expm1(middle + half):+.1%}]"
        lab.row(
            f"{count} viewers" if count > 1 else "one viewer",
            "ratio over that without viewers",
            f"{math.expm1(middle):+.1%} {interval}, n = {len(pairs)}; {share}",
            f"≤ {MOST:.0%}",
        )
    return 1 if not moved else 0 if sure else 3


if __name__ == "__main__":
    sys.exit(main())
