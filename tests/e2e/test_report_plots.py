"""The plots of every kind of report, opened from its file: each text complete, separate, and as stored.

Pixels differ with the fonts of a machine. The test compares the texts of each plot and measures their
positions. After an intended change, or for another recording, `ORTUNE_STORE_PLOTS=1` writes the stored texts
anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from core.show.report.subjects import find
from core.store import Store
from dashboard.report.page import html_of
from tests.e2e import reading
from tests.recorded import recorded_store, reported

STORED = Path(__file__).with_name("report_plots.json")
STORE_AGAIN = "ORTUNE_STORE_PLOTS"
WIDTHS = (1440, 400)  # of a screen, and of a phone, where a plot is scrolled: the least width
DRAWN = """
() => {
  const plots = [...document.querySelectorAll('.plot')]
  return plots.every(one => one.querySelector('.main-svg')?.clientWidth === one.clientWidth)
}
"""
# Heading, titles of the axes, entries of the legend, and ticks that are given by name or one by one.
TEXTS = """
() => [...document.querySelectorAll('.plot')].map(plot => {
  const texts = where => [...plot.querySelectorAll(`${where} text, text${where}`)]
    .map(one => one.dataset.unformatted || one.textContent)
  const given = name => {
    const axis = plot._fullLayout[name]
    return axis?.visible && (axis.type === 'category' || axis.tickmode === 'array')
  }
  const names = { xaxis: 'x', yaxis: 'y', yaxis2: 'y2' }
  return {
    heading: plot.closest('figure').querySelector('h2').textContent,
    titles: Object.values(names).flatMap(name => texts(`.${name}title`)),
    legend: texts('.legend'),
    ticks: Object.fromEntries(Object.keys(names).filter(given)
      .map(name => [name, texts(`.${names[name]}tick`).sort()])),
  }
})
"""


def test_every_text_of_a_reports_plots_is_whole_by_itself_and_as_it_was_stored(
    browser: Browser, tmp_path: Path
) -> None:
    with recorded_store() as store:
        files = {kind: written(store, refs, tmp_path / kind) for kind, refs in reported(store).items()}
    context = browser.new_context(offline=True)
    page = context.new_page()
    wrong: dict[str, list[Any]] = {}
    texts = {}
    for kind, file in files.items():
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        page.goto(file.as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            wrong[f"{kind} at {width} px"] = misplaced(page)
            if width == WIDTHS[0]:
                texts[kind] = page.evaluate(TEXTS)
        wrong[f"{kind}, light"] = reading.in_the_end(page, reading.UNREADABLE)
        page.emulate_media(color_scheme="dark")
        wrong[f"{kind}, dark"] = reading.in_the_end(page, reading.UNREADABLE)
    context.close()
    if os.environ.get(STORE_AGAIN):
        STORED.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert {name: found for name, found in wrong.items() if found} == {}
    assert texts == json.loads(STORED.read_text(encoding="utf-8"))


def written(store: Store, refs: list[str], stem: Path) -> Path:
    file = stem.with_suffix(".html")
    file.write_text(html_of(find(store, refs), store), encoding="utf-8")
    return file


def misplaced(page: Page) -> list[str]:
    """Texts that are cut, or lie over each other, once the plots are as wide as the window has them."""
    page.wait_for_function(DRAWN)
    return reading.in_the_end(page, reading.MISPLACED)
