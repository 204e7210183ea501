"""Clicks and time of five common tasks: `python benchmarks/flows.py`.

A real dashboard and a real browser window on this machine, with an empty store. Reported are the clicks of
each flow, the time of the page alone (without measuring and making in between), and the total time. Typing a
value is not a click; moving a slider is an action, as a click is. The script checks the final page: a flow
that does not reach its goal fails.

(a) An uploaded model → its best settings under a latency limit → their YAML: at most 4 clicks.
(b) A slider moved → its effect → confirmed: 2 actions, with Live on.
(c) A batch curve with a latency limit → that batch on Tune: 3 clicks.
(d) The reason of a speed-up: 1 click from a result.
(e) INT8 of a model with calibration data, its outputs against the original's, its accuracy on labelled data
    and its speed: at most 5 clicks.

Exit code 1: a flow took more clicks than that.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from playwright.sync_api import Locator, Page, expect, sync_playwright  # noqa: E402

from benchmarks import experiment as lab  # noqa: E402
from core.spec import spec_from_yaml  # noqa: E402
from tests.e2e.conftest import (  # noqa: E402
    ARGUMENTS,
    VIEWPORT,
    _executable,
    at_page,
    button,
    finished,
    keyed,
    result_shown,
    saved,
    type_into,
    upload,
    visit,
)
from tests.serving import serving  # noqa: E402

DIGITS = Path("sample_models/digits_cnn.onnx")
JOB_MS = 300_000.0


class Hand:
    """Clicks, counted; and the time of the page alone, without jobs."""

    def __init__(self, page: Page, folder: Path) -> None:
        """Start at zero."""
        self.page, self.folder = page, folder
        self.clicks = 0
        self.waited_s = 0.0
        self.began = time.monotonic()

    def click(self, what: Locator) -> None:
        """Press something as soon as it can be pressed."""
        expect(what).to_be_enabled()
        what.click()
        self.clicks += 1

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """Time in here is spent on measuring or making, not on drawing."""
        began = time.monotonic()
        yield
        self.waited_s += time.monotonic() - began


def best_settings(hand: Hand) -> None:
    """(a): after the upload."""
    page = hand.page
    hand.click(button(page, "models.search"))
    at_page(page, "Search")
    limit = page.locator(".st-key-search-limits textarea")
    limit.fill("p99<=5ms")
    limit.press("Control+Enter")
    finished(page)
    hand.click(button(page, "search.run"))
    export = keyed(page, "bar.more").locator('a[href*="export"]')
    with hand.job():
        export.wait_for(timeout=JOB_MS)
    finished(page)
    hand.click(export)
    at_page(page, "Export")
    path = saved(page, button(page, "export.download"), hand.folder)
    hand.clicks += 1
    assert spec_from_yaml(path.read_text()).model.path


def a_slider(hand: Hand) -> None:
    """(b): with Live on."""
    page = hand.page
    slider = page.locator(".st-key-slide-knob-intra_op_num_threads input[type=range]")
    slider.focus()
    slider.press("ArrowRight")
    hand.clicks += 1
    with hand.job():
        page.locator(".st-key-glimpse .ol-picture.ol-wide").wait_for(timeout=JOB_MS)
    hand.click(button(page, "run"))
    with hand.job():
        page.locator(".st-key-live").wait_for()
        result_shown(page)
    expect(page.locator(".st-key-verdict h2")).to_be_visible()


def a_batch(hand: Hand) -> None:
    """(c)."""
    page = hand.page
    hand.click(button(page, "sweep.run"))
    with hand.job():
        page.locator(".st-key-sweep-live .ol-live").wait_for()
        page.locator(".st-key-sweep-latency .main-svg").first.wait_for(timeout=JOB_MS)
    finished(page)
    type_into(page, "sweep.line.number", "1")
    hand.clicks += 1  # into the field
    hand.click(button(page, "sweep.use"))
    at_page(page, "Tune")


def why(hand: Hand) -> None:
    """(d): from the shown result."""
    hand.click(hand.page.locator('.st-key-pane-result a[href*="explain"]').first)
    at_page(hand.page, "Explain")


def int8(hand: Hand) -> None:
    """(e)."""
    page = hand.page
    hand.click(button(page, "step.add"))
    hand.click(button(page, "step.add.int8_static"))
    page.keyboard.press("Escape")
    hand.click(button(page, "variants.calibration.sample"))
    finished(page)
    hand.click(button(page, "variants.make"))
    with hand.job():
        page.locator(".st-key-variants-detail").wait_for(timeout=JOB_MS)
    finished(page)
    hand.click(button(page, "variants.measure"))
    with hand.job():
        page.locator(".st-key-variants-live-accuracy").wait_for()
        page.locator(".st-key-variants-live-accuracy").wait_for(state="detached", timeout=JOB_MS)
    finished(page)
    expect(page.locator(".st-key-variants-speed .main-svg").first).to_be_visible()
    expect(page.locator('[class*="st-key-variants-accuracy-"]')).to_have_count(2)


def bring(page: Page) -> None:
    """Upload a model: the start of (a)."""
    visit(page, "Models")
    upload(page, DIGITS)
    expect(button(page, "models.search")).to_be_visible()


def live_on(page: Page) -> None:
    """Switch Live on: the start of (b)."""
    visit(page, "Tune")
    page.locator(".st-key-tune-live label").first.click()
    page.locator(".st-key-glimpse").wait_for()
    finished(page)


# Name -> description, start, flow, most clicks; (b) is first, because measured settings have no estimate
FLOWS: dict[str, tuple[str, Callable[[Page], None], Callable[[Hand], None], int]] = {
    "b": ("a slider → whether it helped → confirmed", live_on, a_slider, 2),
    "d": ("why is it faster", lambda page: visit(page, "Tune"), why, 1),
    "a": ("my model → best settings under a latency limit → YAML", bring, best_settings, 4),
    "c": ("a batch curve with a latency limit → that batch", lambda page: visit(page, "Sweep"), a_batch, 3),
    "e": (
        "INT8 of a model, its outputs, its accuracy and its speed",
        lambda page: visit(page, "Variants"),
        int8,
        5,
    ),
}


def main() -> int:
    """Click through each flow once."""
    lab.options(__doc__).parse_args()
    lab.head(lab.this_machine())
    met = True
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder) / "home"
        home.mkdir()
        with serving(home) as (url, _):
            browser = playwright.chromium.launch(executable_path=_executable(), args=list(ARGUMENTS))
            page = browser.new_page(viewport=VIEWPORT, accept_downloads=True)
            page.set_default_timeout(60_000)
            page.goto(url)
            at_page(page, "Tune")
            for name, (what, begin, flow, most) in FLOWS.items():
                begin(page)
                hand = Hand(page, Path(folder))
                flow(hand)
                whole = time.monotonic() - hand.began
                said = (
                    f"{hand.clicks} clicks, {whole - hand.waited_s:.1f} s and {hand.waited_s:.0f} s of work"
                )
                lab.row(f"({name}) {what}", "a person with a watch", said, f"≤ {most} clicks")
                met &= hand.clicks <= most
            browser.close()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
