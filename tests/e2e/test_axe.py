"""axe-core on every page in both themes: nothing serious, nothing critical."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.e2e.conftest import finished, run, visit

Open = Callable[..., Page]
GRAVE = ("serious", "critical")


def grave(page: Page) -> list[str]:
    """What axe-core finds on a page as it stands, a line each."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html'][:120]} {(node['any'] or [{'message': ''}])[0]['message'][:160]}"
        for one in found
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_grave_violation(open_browser: Open, scheme: str) -> None:
    page = open_browser(scheme=scheme)
    links = page.get_by_test_id("stSidebarNav").get_by_role("link")
    expect(page.locator('[data-testid="stSidebarNavItems"][role="presentation"]')).to_be_visible()
    run(page)
    found = {"Tune": grave(page)}
    names = [text.split("\n")[-1].strip() for text in links.all_inner_texts()]
    assert len(names) >= 13
    for name in names[1:]:
        visit(page, name)
        finished(page)
        found[name] = grave(page)
    assert {name: lines for name, lines in found.items() if lines} == {}
