"""What can be read and reached on the screen: text of plots, legends, labels, names, help texts."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Browser, Page, expect

from core.evidence.measurement import Trial
from core.evidence.verdict import Verdict
from core.store import STORE_NAME, Store
from core.store.recorded import MARK_FILE
from dashboard import demo
from tests.builders import busy_machine
from tests.e2e.conftest import PATIENCE_MS, finished, named, run, serving, visit

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


# --- how high a result is, and where Run stands -------------------------------------------------------------

HIGHEST_PX = 1400
AT = {"width": 1440, "height": 900}
REASON = (
    "Two copies of the same configuration came out at 1.081×, 95 % [1.031, 1.134] in the A/A test of this "
    "race: what differs by less cannot be told from noise here."
)
NOTES = [
    "The latency moved by -41% from the first third of the runs to the last: the machine changed meanwhile. "
    "What is compared within rounds does not suffer; the times themselves do.",
    "The p50 is only known to ±17%: as a time of its own it is rough. More generations (`--effort publish`), "
    "or a quieter machine, would narrow it.",
]
HEIGHT = """
() => {
  const pane = document.querySelector('.st-key-pane-result')
  return Math.max(
    pane.getBoundingClientRect().top + pane.scrollTop + pane.scrollHeight,
    document.scrollingElement.scrollHeight,
    document.querySelector('.stMain').scrollHeight,
  )
}
"""
SEEN = """
() => {
  const box = one => one && one.getBoundingClientRect()
  const bar = document.querySelector('.st-key-runbar')
  const run = box(bar.querySelector('.st-key-run button')), title = box(bar.querySelector('h1'))
  const beside = '.stMarkdownBadge, [data-testid="stCheckbox"], .st-key-bar-model, h1'
  const parts = [...bar.querySelectorAll(beside)].map(box)
  const under = one => one.right > run.left + 1 && one.top < run.bottom && one.bottom > run.top
  return {
    row: Math.abs((run.top + run.bottom) / 2 - (title.top + title.bottom) / 2),
    right: innerWidth - run.right,
    top: run.top,
    width: run.width,
    words: bar.querySelector('.st-key-run button').innerText.includes('Run'),
    covered: parts.some(one => one.width && under(one)),
    beyond: run.right > innerWidth,
  }
}
"""


@pytest.fixture(scope="module")
def recorded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Store]]:
    """A server over the recorded races as if they were its own, with its store."""
    home = demo.unpack()
    try:
        (home / MARK_FILE).unlink()
        with serving(home) as (url, _):
            yield url, Store(home / STORE_NAME)
    finally:
        demo.remove(home)


def states_of(store: Store) -> dict[str, Trial]:
    """One trial of each state of a result that occurs, the one with most to say."""
    found = [one for one in store.trials(limit=1000, kind="measure") if one.state == "COMPLETE"]

    def most(verdict: Verdict | None, sides: int) -> Trial:
        fit = [
            one
            for one in found
            if [c["verdict"] for c in contrasts(one)][:1] == ([verdict] if verdict else [])
        ]
        return max(fit, key=lambda one: (len(contrasts(one)) == sides, len(one.facts.get("notes") or [])))

    def contrasts(one: Trial) -> list[dict[str, Any]]:
        return list(one.facts.get("contrasts") or [])

    return {
        "decided": most(Verdict.FASTER, 1),
        "against a pinned baseline": most(Verdict.FASTER, 2),
        "slower": most(Verdict.SLOWER, 2),
        "the baseline itself": most(None, 0),
    }


def judge_anew(store: Store, trial: Trial, *, busy: Any = None, **contrast: Any) -> None:
    """Change what the race of a trial says."""
    race = store.comparison(trial.comparison)
    facts = copy.deepcopy(dict(race.facts))
    for one in facts["contrasts"]:
        one.update(contrast)
    store.update_comparison(race.id, result=facts | ({"busy": busy} if busy else {}))


def height(page: Page, url: str, trial: Trial) -> int:
    page.goto(f"{url}/?trial={trial.id}")
    expect(page.get_by_text(f"Trial {trial.id[:12]}")).to_be_visible()
    finished(page)
    expect(page.locator(".st-key-tune-timeline-plot .main-svg").first).to_be_attached()
    return int(settled(page, HEIGHT))


def test_a_result_is_no_higher_than_two_screens(browser: Browser, recorded_url: tuple[str, Store]) -> None:
    url, store = recorded_url
    page = browser.new_page(viewport=AT)  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE_MS)
    states = states_of(store)
    heights = {name: height(page, url, one) for name, one in states.items()}
    expect(page.locator(".st-key-verdict")).to_be_visible()

    open_question = {"verdict": "UNDECIDED", "ratio": 1.03, "ratio_low": 0.93, "ratio_high": 1.15}
    one_rival, busy = states["decided"], busy_machine()
    judge_anew(store, one_rival, busy=busy, **open_question)
    noted = {**one_rival.facts, "notes": [*NOTES, *(one_rival.facts["notes"] or [])], "busy": busy}
    store.update_trial(one_rival.id, result=noted)
    heights["undecided, busy"] = height(page, url, one_rival)
    expect(page.get_by_text("busy machine").first).to_be_visible()

    against = states["against a pinned baseline"]
    judge_anew(store, against, **open_question)
    heights["undecided against two"] = height(page, url, against)
    facts = {
        **against.facts,
        "notes": [*NOTES, *(against.facts["notes"] or [])],
    }
    store.update_trial(against.id, result=facts)
    other = next(
        one for one in states.values() if one.id != against.id and one.comparison != against.comparison
    )
    store.pin_baseline(against.model_sha256, other.id)
    heights["never raced against what is pinned"] = height(page, url, against)
    expect(page.get_by_text("never raced against this trial")).to_be_visible()
    store.pin_baseline(against.model_sha256, None)
    judge_anew(store, against, holds=False, holds_reason=REASON)
    heights["rejected"] = height(page, url, against)
    expect(page.get_by_text("Why it was rejected")).to_be_visible()
    page.close()
    assert {name: px for name, px in heights.items() if px > HIGHEST_PX} == {}
    assert min(heights.values()) > AT["height"]  # it was measured


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_run_stands_at_one_place_on_one_row_with_everything_that_the_bar_may_say(
    scheme: Any, browser: Browser, recorded_url: tuple[str, Store]
) -> None:
    url, store = recorded_url
    trial = next(one for one in store.trials(kind="measure") if one.model_name == "tiny_transformer")
    page = browser.new_page(viewport=AT, color_scheme=scheme)  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{url}/?trial={trial.id}")
    expect(page.get_by_text(f"Trial {trial.id[:12]}")).to_be_visible()
    finished(page)
    page.get_by_role("button", name="Mobile / edge").first.click()
    expect(page.get_by_text("Settings differ").first).to_be_attached()
    finished(page)
    tops = set()
    for width in (1000, 1100, 1280, 1440, 1500, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        seen = settled(page, SEEN)
        assert seen["words"], width
        assert not seen["beyond"], width
        assert not seen["covered"], width
        if width >= 1100:
            assert seen["row"] < 8, f"Run is not in the row of the title at {width} px"
            tops.add((round(seen["top"]), round(seen["right"])))
    assert len(tops) == 1
    page.close()


ACTIONS = {
    # page -> what its primary button is called, also where another test left it nothing to do
    "Search": "Search",
    "Compare": "Race",
    "Curves": "Measure|All points are measured",
    "Profile": "Profile",
    "Why": "Explain",
    "Machine": "Check noise",
    "Variants": "Make",
    "Accuracy": "Evaluate",
    "Scorecard": "Measure what is missing",
    "Export": "Download",
}


def test_the_primary_button_stands_at_the_same_place_on_every_page(open_browser: Open) -> None:
    page = open_browser()
    places = {}
    for name, words in ACTIONS.items():
        visit(page, name)
        finished(page)
        button = page.get_by_test_id("stMain").get_by_role("button", name=re.compile(words)).first
        expect(button).to_be_visible()
        box = button.bounding_box()
        assert box is not None
        places[name] = (round((box["x"] + box["width"]) / 4), round((box["y"] + box["height"] / 2) / 12))
    assert len(set(places.values())) == 1, places
