"""What can be read and reached on the screen: text of plots, legends, labels, names, help texts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from playwright.sync_api import Page, expect

from tests.e2e.conftest import PATIENCE_MS, finished, named, run

Open = Callable[..., Page]
EXPLAINED_MS = 180_000
LEAST_PX, LEAST_CONTRAST = 12, 4.5

# Every text of every plot with its size and its contrast to what lies behind the plot.
TEXTS = """
() => {
  const parts = css => (css.match(/[\\d.]+/g) || []).map(Number)
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const color = parts(getComputedStyle(at).backgroundColor)
      if (color.length === 3 || color[3] === 1) return color
    }
    return [255, 255, 255]
  }
  return [...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => {
    const back = light(behind(plot))
    return [...plot.querySelectorAll('text')]
      .filter(one => one.textContent.trim() && !one.closest('.bartext'))
      .map(one => {
        const style = getComputedStyle(one), fore = light(parts(style.fill))
        const [low, high] = [Math.min(fore, back), Math.max(fore, back)]
        const contrast = (high + 0.05) / (low + 0.05)
        return { text: one.textContent, px: parseFloat(style.fontSize), contrast }
      })
  })
}
"""

# Where the toolbar of a plot lies over its legend, and texts that reach beyond their plot.
COVERED = """
() => [...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => {
  const bar = plot.querySelector('.modebar')?.getBoundingClientRect()
  const whole = plot.getBoundingClientRect(), found = []
  for (const legend of plot.querySelectorAll('.legend .traces, .legend .groups')) {
    const box = legend.getBoundingClientRect()
    if (bar && box.width && box.left < bar.right && box.right > bar.left && box.top < bar.bottom &&
        box.bottom > bar.top) found.push('toolbar over ' + legend.textContent)
  }
  for (const one of plot.querySelectorAll('text')) {
    const box = one.getBoundingClientRect()
    if (box.width && (box.left < whole.left - 1 || box.right > whole.right + 1))
      found.push('cut: ' + one.textContent)
  }
  return found
})
"""

# Whether a plot is still as wide as the window was.
BEYOND = """
() => [...document.querySelectorAll('.js-plotly-plot .main-svg')]
  .some(plot => plot.getBoundingClientRect().right > innerWidth)
"""

NAMES = """
() => [...document.querySelectorAll('[aria-label]')].map(one => one.getAttribute('aria-label'))
"""

# Fields that the help text on the screen lies over; null: there is none.
UNDER_HELP = """
() => {
  const help = document.querySelector('[data-testid="stTooltipContent"]')?.getBoundingClientRect()
  if (!help) return null
  const fields = ':is(input, textarea, button, [role=combobox])'
  return [...document.querySelectorAll('[data-testid="stMain"] ' + fields)]
    .filter(one => {
      const box = one.getBoundingClientRect()
      return box.width && help.left < box.right && help.right > box.left && help.top < box.bottom &&
        help.bottom > box.top
    }).map(one => one.getAttribute('aria-label') || one.textContent)
}
"""


def drawn(page: Page, least: int) -> list[dict[str, Any]]:
    """Texts of all plots, once at least `least` plots are there."""
    expect(page.locator(".js-plotly-plot .main-svg").nth(2 * least)).to_be_attached()
    found: list[dict[str, Any]] = settled(page, TEXTS)
    assert len(found) > 5
    return found


def settled(page: Page, script: str) -> Any:
    """What a script answers once two answers are the same: a plot is drawn in several steps."""
    found, before = page.evaluate(script), None
    while found != before:
        page.wait_for_timeout(300)
        found, before = page.evaluate(script), found
    return found


def covered(page: Page) -> list[str]:
    """What is covered or cut in the end."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while (found := page.evaluate(COVERED)) and time.monotonic() < deadline:
        page.wait_for_timeout(200)
    return list(found)


def hard_to_read(texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in texts if one["px"] < LEAST_PX or one["contrast"] < LEAST_CONTRAST]


def test_plots_can_be_read_and_no_toolbar_covers_a_legend(open_browser: Open) -> None:
    page = open_browser()
    page.get_by_role("button", name="Mobile / edge").first.click()
    expect(page.get_by_text("4 changed from default")).to_be_visible()
    run(page)
    dark = open_browser(f"/?trial={named(page.url)['trial'][0]}", scheme="dark")
    for one in (page, dark):
        assert hard_to_read(drawn(one, 2)) == []
        assert covered(one) == []
    page.get_by_role("link", name="Why?").first.click()
    page.locator(".st-key-why\\.run button, .st-key-why-run button").first.click()
    sentence = page.locator(".st-key-why\\.sentence, .st-key-why-sentence")
    expect(sentence).to_be_visible(timeout=EXPLAINED_MS)
    assert hard_to_read(drawn(page, 2)) == []
    for width in (1440, 900):
        page.set_viewport_size({"width": width, "height": 900})
        while page.evaluate(BEYOND):  # until the plots have followed
            page.wait_for_timeout(200)
        assert covered(page) == [], f"at {width} px"


def test_names_that_are_read_out_hold_no_markup(open_browser: Open) -> None:
    page = open_browser()
    page.get_by_role("button", name="Mobile / edge").first.click()
    expect(page.get_by_text("4 changed from default")).to_be_visible()
    names: list[str] = page.evaluate(NAMES)
    for path in ("scorecard", "variants", "curves", "models"):
        page.goto(urljoin(page.url, f"/{path}"))
        expect(page.get_by_test_id("stHeading").first).to_be_visible()
        finished(page)
        names += page.evaluate(NAMES)
    assert len(names) > 30
    assert [name for name in names if re.search(r"[`\\]|:material/|:[a-z-]+\[|\*\*", name)] == []


def test_a_help_text_that_tab_opens_lies_over_no_field(open_browser: Open) -> None:
    page = open_browser()
    page.locator('[data-testid="stMain"] input').first.focus()
    seen = 0
    for _ in range(25):
        page.keyboard.press("Tab")
        page.wait_for_timeout(300)
        covered = page.evaluate(UNDER_HELP)
        seen += covered is not None
        assert not covered, f"the help text of {page.evaluate('document.activeElement.outerHTML')[:200]}"
    assert seen > 3  # the help is still there for who uses the keyboard


def test_a_refused_upload_is_said_under_it_and_its_tab_stays_open(open_browser: Open, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no model")
    page = open_browser("/models")
    tab = page.get_by_role("tab", name="Upload")
    tab.click()
    chooser = page.locator('[class*="st-key-models-upload"] input[type=file], .drop input[type=file]').first
    chooser.set_input_files(str(broken))
    said = page.get_by_text("The model was not added")
    expect(said).to_be_visible()
    expect(said).to_be_in_viewport()
    expect(tab).to_have_attribute("aria-selected", "true")
    here, there = page.locator(".drop").first.bounding_box(), said.bounding_box()
    assert here is not None
    assert there is not None
    assert 0 < there["y"] - here["y"] < 250
