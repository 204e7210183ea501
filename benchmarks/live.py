"""Time from a moved slider to the first ratio: `python benchmarks/live.py [--models …]`.

A real dashboard with Live on and a real browser, on this machine. Twenty moves of each model, each to
settings that were not run yet in that session (threads, I/O binding, batch size), so that each starts a
process, on a machine of two CPUs. Measured in the page, from the key press to the first interval of the
ratio of these settings. Targets: the median within 1 s (digits_cnn, tiny_transformer) or 2.5 s
(MobileNetV3-Small). Exit code 1: one of them was not met.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from playwright.sync_api import Locator, Page, TimeoutError, sync_playwright  # noqa: E402

from benchmarks import experiment as lab  # noqa: E402
from benchmarks.harness import interval, mobilenet  # noqa: E402
from benchmarks.waiting import earlier_trial, opened  # noqa: E402
from tests.e2e.conftest import ARGUMENTS, _executable  # noqa: E402
from tests.serving import serving  # noqa: E402

MOST_S = {"digits_cnn": 1.0, "tiny_transformer": 1.0, "MobileNetV3-Small": 2.5}
REST_MS = 4000  # between two moves: the time to read the result
PATIENCE_MS = 20_000
SIZES = {"tiny_transformer": ["--dim", "sequence=128"]}
RIGHT, LEFT = ["ArrowRight"], ["ArrowLeft"]
IO_BINDING, BATCH = "use_io_binding", "batch_size"
ACTIONS = [  # between 1 and 8 threads; in between another setting, and its baseline, makes all of them new
    *(2 * RIGHT),
    IO_BINDING,
    *(3 * LEFT),
    BATCH,
    *(3 * RIGHT),
    IO_BINDING,
    *(3 * LEFT),
    BATCH,
    *(3 * RIGHT),
    IO_BINDING,
    *LEFT,
]

# Notes when the interval of the estimate is drawn anew: that of the settings before goes first.
WATCH = r"""() => {
    const forest = ".st-key-glimpse .ol-live[data-state=measuring] .ol-picture.ol-wide";
    const drawn = () => document.querySelector(forest);
    let gone = !drawn();
    window.back = 0;
    window.watch?.disconnect();
    window.watch = new MutationObserver(() => {
        gone ||= !drawn();
        if (gone && drawn()) window.back ||= performance.now();
    });
    window.watch.observe(document.body, { subtree: true, childList: true, attributes: true });
    return performance.now();
}"""


def moved_s(page: Page, press: Locator, key: str) -> float:
    """Press a key on a control; seconds to the first ratio of the settings that follow, inf: none came."""
    press.focus()
    began = page.evaluate(WATCH)
    press.press(key)
    try:
        page.wait_for_function("() => window.back > 0", polling=50, timeout=PATIENCE_MS)
    except TimeoutError:  # on a busy machine the launches may end without an interval
        return math.inf
    seconds = float(page.evaluate("() => window.back") - began) / 1e3
    page.wait_for_timeout(REST_MS)
    return seconds


def moves(page: Page) -> list[float]:
    """Seconds of twenty moves, after a first one that starts the baseline as well."""
    threads = page.locator(".st-key-slide-knob-intra_op_num_threads input")  # it begins at one
    page.locator(".st-key-tune-live label").first.click()
    page.wait_for_timeout(REST_MS)
    moved_s(page, threads, "ArrowRight")
    found = []
    others = {
        IO_BINDING: (page.locator(f".st-key-knob-{IO_BINDING} input").first, "Space"),
        BATCH: (page.locator(f".st-key-slide-knob-{BATCH} input"), "ArrowRight"),
    }
    for action in ACTIONS:
        control, key = others.get(action, (threads, action))
        if control.count():  # a model with a fixed batch size has no slider for it
            found.append(moved_s(page, control, key))
    return found


def main() -> int:
    """Measure every requested model."""
    parser = lab.options(__doc__)
    parser.add_argument("--models", nargs="+", default=list(MOST_S), choices=list(MOST_S))
    given = parser.parse_args()
    machine = lab.this_machine()
    met = True
    lab.head(machine)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        paths = {
            "digits_cnn": "sample_models/digits_cnn.onnx",
            "tiny_transformer": "sample_models/tiny_transformer.onnx",
        }
        if "MobileNetV3-Small" in given.models:
            paths["MobileNetV3-Small"] = str(mobilenet(home, None))
        trials = {name: earlier_trial(paths[name], home, *SIZES.get(name, [])) for name in given.models}
        with serving(home) as (url, _):
            browser = playwright.chromium.launch(executable_path=_executable(), args=list(ARGUMENTS))
            for name, trial in trials.items():
                page = opened(browser, url, trial)
                values = sorted(moves(page))
                page.close()
                low, median, high = interval(values)
                late = values[round(0.95 * (len(values) - 1))]
                met &= median <= MOST_S[name]
                lab.row(
                    f"{name}: first ratio after a slider rests",
                    "the page's own clock",
                    f"median {median:.2f} s [{low:.2f}, {high:.2f}], p95 {late:.2f} s, {len(values)} moves, "
                    f"{values.count(math.inf)} without a ratio",
                    f"≤ {MOST_S[name]:g} s",
                )
            browser.close()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
