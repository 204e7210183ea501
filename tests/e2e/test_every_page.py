"""Every page with a result on it: accessible, readable, in its place, and working under the policy."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, ViewportSize

from tests.e2e import reading
from tests.e2e.conftest import VIEWPORT, Open, visit

# Page -> how many plots its recorded result has at least.
PLOTS = {
    "Tune": 1,
    "Search": 2,
    "Compare": 1,
    "Curves": 2,
    "Profile": 1,
    "Why": 2,
    "Graph": 1,
    "Machine": 0,
    "Models": 0,
    "Variants": 0,
    "Accuracy": 0,
    "Scorecard": 0,
    "History": 0,
    "Export": 0,
}
ACTION = ", ".join(f".st-key-{key} button:visible" for key in ("bar-action", "search-run", "compare-run"))
HAVE_ACTION = (
    "Search",
    "Compare",
    "Curves",
    "Profile",
    "Why",
    "Machine",
    "Variants",
    "Accuracy",
    "Scorecard",
)


def pages(page: Page) -> list[str]:
    """Names of all pages, as the navigation has them."""
    links = page.get_by_test_id("stSidebarNav").get_by_role("link")
    return [text.split("\n")[-1].strip() for text in links.all_inner_texts()]


def go_to(page: Page, name: str) -> None:
    visit(page, name)
    if PLOTS[name]:
        reading.plots(page, PLOTS[name])


LOW: ViewportSize = {"width": 1280, "height": 720}
WITHOUT_PICTURES = ("Variants", "Accuracy", "Export")  # nothing is recorded of two; Export shows its code

# Widths of a small screen and of a phone; no scheme makes a page wider, so each is tried in one.
WIDTHS = {"light": 900, "dark": 400}


@pytest.mark.parametrize("scheme", list(WIDTHS))
def test_every_page_is_accessible_fits_and_its_plots_can_be_read(look: Open, scheme: str) -> None:
    """The browser's complaints of the policy are counted when the page is closed."""
    page, width = look(scheme=scheme), WIDTHS[scheme]
    assert pages(page) == list(PLOTS)
    wrong: dict[str, list[object]] = {}
    places = {}
    for name in PLOTS:
        page.set_viewport_size(VIEWPORT)
        go_to(page, name)
        wrong[name] = [*reading.bad_plots(page), *reading.marked_up(page), *reading.grave(page)]
        for high in (VIEWPORT, LOW):
            page.set_viewport_size(high)
            lines = reading.first_screen(page, pictures=name not in WITHOUT_PICTURES)
            wrong[f"{name}, {high['height']} px high"] = list(lines)
        if name in (*HAVE_ACTION, "Export"):
            box = page.locator(ACTION).first.bounding_box()
            assert box is not None
            places[name] = (round((box["x"] + box["width"]) / 4), round((box["y"] + box["height"] / 2) / 12))
        page.set_viewport_size({**VIEWPORT, "width": width})
        wrong[f"{name} at {width} px"] = reading.in_the_end(page, reading.BEYOND)
        if width == 900:  # on a phone a plot is scrolled
            wrong[f"plots of {name} at {width} px"] = reading.bad_plots(page)
    assert {name: lines for name, lines in wrong.items() if lines} == {}
    assert len(set(places.values())) == 1, places
