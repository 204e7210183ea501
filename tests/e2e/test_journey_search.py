"""From a question to the YAML of its answer: searched, watched by two, cancelled, resumed, and taken away."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from core.spec import spec_from_yaml
from tests.e2e.conftest import (
    JOB_MS,
    Open,
    Site,
    at_page,
    button,
    field,
    finished,
    keyed,
    named,
    number,
    recorded,
    saved,
    started,
)


def ask(page: Page) -> str:
    """Start a search of 20 s and return its id."""
    time = field(page, "search.budget_s")
    time.focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        time.press(key)
    expect(time).to_have_value("2")
    keyed(page, "search.extend").locator("label").first.click()  # however slow the machine is: never refused
    expect(field(page, "search.extend")).to_be_checked()
    finished(page)
    return started(page, button(page, "search.run"))


def test_a_search_is_cancelled_seen_by_another_resumed_and_answered(open_browser: Open, site: Site) -> None:
    page = open_browser("/search")
    expect(number(page, "batch_size")).to_be_in_viewport()  # on the first screen
    study = ask(page)
    expect(page.locator(".st-key-search-live [data-ortune=picture]")).to_have_count(2, timeout=JOB_MS)
    button(page, "search.cancel").click()
    expect(button(page, "search.resume")).to_be_visible()
    assert site.store.study(study).state == "CANCELLED"

    other = open_browser("/search", scheme="dark")  # without a link
    button(other, "search.resume").click()
    expect(button(other, "search.resume")).to_have_count(0)
    page.reload()
    for one in (page, other):
        expect(one.locator(".st-key-search-answer")).to_be_visible(timeout=JOB_MS)
        finished(one)
        assert named(one.url)["study"] == [study]
    after = site.store.study(study)
    assert after.state == "COMPLETE"
    assert after.tried


def test_an_answer_goes_into_tune_and_leaves_as_yaml(look: Open, shared: Site, tmp_path: Path) -> None:
    search = recorded(shared.store).search
    assert search.answer is not None
    winner = search.answer["winner"]
    page = look(f"/search?study={search.id}")
    button(page, "search.load").click()
    at_page(page, "Tune")
    page.wait_for_url(lambda url: named(url)["trial"] == [winner["trial"]], wait_until="commit")
    expect(number(page, "batch_size")).to_have_value(str(winner["spec"]["workload"]["batch_size"]))

    page.locator('.st-key-pane-result a[href*="export"]').first.click()
    at_page(page, "Export")
    written = saved(page, button(page, "export.download"), tmp_path)
    assert spec_from_yaml(written.read_text()).to_dict()["session"] == winner["spec"]["session"]
    page.locator(".st-key-export-format").get_by_role("combobox").click()
    page.get_by_role("option").filter(has_text=".py").first.click()
    expect(button(page, "export.download")).to_contain_text(".py")
    script = saved(page, button(page, "export.download"), tmp_path)
    compile(script.read_text(), script.name, "exec")
