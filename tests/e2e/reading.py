"""Checks of a rendered page: accessible, large enough, nothing covered or cut."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.e2e.conftest import PATIENCE_MS, finished

GRAVE = ("serious", "critical")
AXE = {"resultTypes": ["violations"], "preload": False}  # what is right is not described node by node
LEAST_PX, LEAST_CONTRAST = 12, 4.5

# Every text of a plot that is too small, or has too little contrast to what lies behind the plot.
UNREADABLE = """
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
      .filter(one => one.textContent.trim())
      .filter(one => !one.closest('.bartext, .heatmap-label'))  // these lie on colours of their own
      .map(one => {
        const style = getComputedStyle(one), fore = light(parts(style.fill))
        const [low, high] = [Math.min(fore, back), Math.max(fore, back)]
        const contrast = (high + 0.05) / (low + 0.05)
        return { text: one.textContent, px: parseFloat(style.fontSize), contrast }
      })
      .filter(one => one.px < LEAST_PX || one.contrast < LEAST_CONTRAST)
  })
}
""".replace("LEAST_PX", str(LEAST_PX)).replace("LEAST_CONTRAST", str(LEAST_CONTRAST))

# Texts of a plot that its edge cuts, that lie over each other, or that its toolbar covers, a line each. A
# text is what is inked of its box, turned as it is drawn.
MISPLACED = """
() => {
  const corners = one => {
    const box = one.getBBox(), at = one.getScreenCTM(), above = box.height * INKED
    const [left, right, top, bottom] = [box.x, box.x + box.width, box.y + above, box.y + box.height - above]
    return [[left, top], [right, top], [right, bottom], [left, bottom]]
      .map(([x, y]) => [at.a * x + at.c * y + at.e, at.b * x + at.d * y + at.f])
  }
  const sides = ([a, b, , d]) => [b, d].map(p => [p[0] - a[0], p[1] - a[1]])
    .map(([x, y]) => [x / (Math.hypot(x, y) || 1), y / (Math.hypot(x, y) || 1)])
  const span = (shape, [x, y]) => {
    const along = shape.map(p => p[0] * x + p[1] * y)
    return [Math.min(...along), Math.max(...along)]
  }
  const shared = (one, other) => Math.min(...[...sides(one), ...sides(other)].map(side => {
    const [low, high] = span(one, side), [from, to] = span(other, side)
    return Math.min(high, to) - Math.max(low, from)
  }))
  const shape = ({ left, right, top, bottom }) => [[left, top], [right, top], [right, bottom], [left, bottom]]
  return [...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => {
    const whole = plot.getBoundingClientRect(), found = []
    const bar = plot.querySelector('.modebar')?.getBoundingClientRect()
    const texts = [...plot.querySelectorAll('.main-svg text')]
      .filter(one => one.textContent.trim() && one.getBoundingClientRect().width)
      .map(one => ({ said: one.textContent, shape: corners(one), legend: one.closest('.legend') }))
    texts.forEach((one, index) => {
      const [left, right] = span(one.shape, [1, 0]), [top, bottom] = span(one.shape, [0, 1])
      const out = [whole.left - left, right - whole.right, whole.top - top, bottom - whole.bottom]
      if (Math.max(...out) > 1) found.push(`cut: ${one.said}`)
      if (one.legend && bar?.width && shared(one.shape, shape(bar)) > 1)
        found.push(`toolbar over ${one.said}`)
      for (const other of texts.slice(index + 1))
        if (shared(one.shape, other.shape) > 1) found.push(`${one.said} over ${other.said}`)
    })
    return found
  })
}
""".replace("INKED", "0.12")

# How far something reaches beyond the screen, in pixels; plots that are still as wide as the window was.
BEYOND = """
() => [document.documentElement, document.querySelector('.stMain')]
  .map(one => one.scrollWidth - one.clientWidth)
  .concat([...document.querySelectorAll('.js-plotly-plot .main-svg')]
    .map(plot => Math.floor(plot.getBoundingClientRect().right - innerWidth)))
  .filter(px => px > 0)
"""

# What counts as a picture, and as a control, on a screen.
PICTURES = (
    '.js-plotly-plot, [data-testid="stDataFrame"], [data-testid="stTable"], [data-testid="stEChartsChart"], '
    # a table in all but its tag; the code that Export is about
    '[data-ortune="picture"], .st-key-variants-tree, [data-testid="stCode"]'
)
FIELDS = "button, input:not([type=hidden]), textarea, select, a[href], [role=slider]"


def _with_selectors(script: str) -> str:
    names = f"const PICTURES = {json.dumps(PICTURES)}, FIELDS = {json.dumps(FIELDS)};"
    return f"() => {{ {names} return ({script.strip()})() }}"


# What the first screen is spent on: share of pictures and tables, top of the first one, words, controls.
FIRST_SCREEN = _with_selectors("""
() => {
  const seen = one => {
    let { left, right, top, bottom } = one.getBoundingClientRect()
    for (let at = one.parentElement; at; at = at.parentElement) {
      if (getComputedStyle(at).overflowY === 'visible') continue
      const box = at.getBoundingClientRect()
      left = Math.max(left, box.left), right = Math.min(right, box.right)
      top = Math.max(top, box.top), bottom = Math.min(bottom, box.bottom)
    }
    left = Math.max(left, 0), right = Math.min(right, innerWidth)
    top = Math.max(top, 0), bottom = Math.min(bottom, innerHeight)
    const drawn = one.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    if (!drawn || right - left <= 1 || bottom - top <= 1) return null
    return { top, area: (right - left) * (bottom - top) }
  }
  const UNSAID = 'style, script, [data-testid="stIconMaterial"], [role="img"]'
  const main = document.querySelector('[data-testid="stMain"]')
  const all = selector => [...main.querySelectorAll(selector)]
  const pictures = all(PICTURES).filter(one => !one.parentElement.closest(PICTURES)).map(seen).filter(Boolean)
  const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT)
  let words = 0
  while (texts.nextNode()) {
    const said = texts.currentNode.textContent.trim(), one = texts.currentNode.parentElement
    if (!said || one.closest(PICTURES) || one.closest(UNSAID)) continue
    if (seen(one)) words += said.split(/\\s+/).length
  }
  const controls = all(FIELDS).filter(one => !one.closest(PICTURES) && one.tabIndex >= 0 && seen(one)).length
  return {
    share: pictures.reduce((sum, one) => sum + one.area, 0) / (innerWidth * innerHeight),
    first: pictures.length ? Math.min(...pictures.map(one => one.top)) : null,
    words, controls,
  }
}
""")

# What a first screen has at least, and at most; the share and the place are those of pictures and tables.
LEAST_SHARE, LOWEST_PX, MOST_WORDS, MOST_CONTROLS = 0.35, 300, 130, 45

# Of a phone's screen: where the first picture begins, whether the sentence is above it, which controls
# besides the bar's are, and whether keys are named.
ABOVE_THE_PICTURE = _with_selectors("""
() => {
  const main = document.querySelector('[data-testid="stMain"]')
  const seen = one => one.getBoundingClientRect().height > 1
    && one.checkVisibility({ visibilityProperty: true, opacityProperty: true })
  const top = one => one.getBoundingClientRect().top
  const first = Math.min(...[...main.querySelectorAll(PICTURES)].filter(seen).map(top))
  const said = [...main.querySelectorAll('.st-key-verdict h2, .st-key-pane-result h3')].find(seen)
  const BESIDE = '.st-key-bar, h1, h2, h3, h4, [data-testid="stElementToolbar"]'  // a heading has its link
  return [...main.querySelectorAll(FIELDS)]
    .filter(one => seen(one) && one.tabIndex >= 0 && !one.closest(BESIDE) && top(one) < first)
    .map(one => one.closest('[class*=st-key-]')?.className ?? one.outerHTML)
    .concat(first <= LOWEST_PX ? [] : [`the first picture begins at ${first} px`])
    .concat(said && top(said) > first ? [`"${said.innerText}" is below the first picture`] : [])
    .concat(/\\bCtrl\\b/.test(main.innerText) ? ['keys are named'] : [])
}
""")

# Names that are read out, and visible texts of the page itself; code is what it says.
READ = """
() => {
  const names = [...document.querySelectorAll('[aria-label]')].map(one => one.getAttribute('aria-label'))
  const main = document.querySelector('[data-testid="stMain"]')
  const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT), said = []
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement
    if (!one.closest('style, script, code, pre, textarea') && one.checkVisibility()) {
      said.push(texts.currentNode.textContent)
    }
  }
  return { names, said }
}
"""

MOVING = """
() => document.getAnimations().filter(one => one.playState === 'running')
  .map(one => `${one.animationName ?? one.transitionProperty}: ${one.effect.target?.outerHTML.slice(0, 120)}`)
"""


def first_screen(page: Page, *, pictures: bool = True) -> list[str]:
    """Wasted space on the first screen, one line each.

    Args:
        page: scrolled to its top.
        pictures: it has something to show.
    """
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while (wrong := _misspent(settled(page, FIRST_SCREEN), pictures)) and time.monotonic() < deadline:
        page.wait_for_timeout(250)  # a plot gets its size in several steps
    return wrong


def _misspent(found: dict[str, Any], pictures: bool) -> list[str]:
    wrong = []
    if pictures and found["share"] < LEAST_SHARE:
        wrong.append(f"pictures and tables take {found['share']:.0%} of the first screen")
    if pictures and not (found["first"] or LOWEST_PX + 1) <= LOWEST_PX:
        wrong.append(f"the first picture begins at {found['first']} px")
    if found["words"] > MOST_WORDS:
        wrong.append(f"{found['words']} words on the first screen")
    if found["controls"] > MOST_CONTROLS:
        wrong.append(f"{found['controls']} controls on the first screen")
    return wrong


def first_on_a_phone(page: Page) -> list[str]:
    """What a phone's screen has before or instead of the sentence and its picture, one line each."""
    return in_the_end(page, ABOVE_THE_PICTURE.replace("LOWEST_PX", str(LOWEST_PX)))


def grave(page: Page) -> list[str]:
    """What axe-core finds on a page, a line each; not while it is drawn, when Streamlit shows *Stop*."""
    finished(page)
    found = Axe().run(page, options=AXE).response["violations"]
    return [
        f"{one['id']}: {node['html'][:120]} {(node['any'] or [{'message': ''}])[0]['message'][:160]}"
        for one in found
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]


def marked_up(page: Page) -> list[str]:
    """Names that are read out, and texts that are shown, with markup in them."""
    found: dict[str, list[str]] = page.evaluate(READ)
    assert all(found.values())
    texts = [*found["names"], *found["said"]]
    return [text for text in texts if re.search(r"[`\\]|:material/|:[a-z-]+\[|\*\*", text)]


def moving(page: Page) -> list[str]:
    """What goes on moving by itself, for who has not asked for less motion."""
    page.emulate_media(reduced_motion="no-preference")
    found = in_the_end(page, MOVING)
    page.emulate_media(reduced_motion="reduce")
    return found


def plots(page: Page, least: int) -> None:
    """Wait until at least so many plots are there."""
    if not least:
        return
    expect(page.locator(".js-plotly-plot:has(.main-svg)").nth(least - 1)).to_be_attached()


def bad_plots(page: Page) -> list[Any]:
    """Texts of plots that are too small, too pale, covered or cut."""
    return in_the_end(page, f"() => [...({UNREADABLE})(), ...({MISPLACED})()]")


def in_the_end(page: Page, script: str) -> list[Any]:
    """What a script complains of, however long one waits: a plot is drawn in several steps."""
    settled(page, "() => document.querySelectorAll('.js-plotly-plot text').length")
    found: list[Any] = page.evaluate(script)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while found and time.monotonic() < deadline:
        page.wait_for_timeout(250)
        found = page.evaluate(script)
    return found


def settled(page: Page, script: str) -> Any:
    """What a script answers once it answers the same twice."""
    before, found = object(), page.evaluate(script)  # equal to nothing: also a null is asked for twice
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while found != before:
        assert time.monotonic() < deadline, f"It never rests: {before}, then {found}"
        page.wait_for_timeout(150)
        before, found = found, page.evaluate(script)
    return found
