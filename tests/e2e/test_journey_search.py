"""From a question to the downloaded YAML of its answer: searched, watched, reloaded, loaded into Tune."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from core.show.sheets import searches
from core.spec import spec_from_yaml
from core.store import Store
from tests.e2e.conftest import finished, number, started, visit
from tests.e2e.test_layout import covered, drawn, hard_to_read

Open = Callable[..., Page]
ANSWERED_MS = 90_000
STEPS_TO_15_S = 3  # of the slider, down from 60 s
LOADS = ("FOUND", "UNDECIDED", "REJECTED", "NO_DIFFERENCE")  # outcomes with something to take along


def study_of(page: Page) -> str:
    expect(page).to_have_url(re.compile("study="))
    return parse_qs(urlsplit(page.url).query)["study"][0]


def ask(page: Page) -> str:
    """Start a search of 15 s and return its id."""
    time = page.locator(".st-key-search-budget_s input").first
    time.focus()
    for _ in range(STEPS_TO_15_S):
        time.press("ArrowLeft")
    expect(page.locator(".st-key-search-budget_s")).to_contain_text("15 s")
    finished(page)
    started(page, page.locator(".st-key-search-run button").first)
    return study_of(page)


def test_from_the_question_to_the_yaml(open_browser: Open, home: Path, tmp_path: Path) -> None:
    page = open_browser()
    visit(page, "Search")
    expect(page.get_by_text("Nothing searched yet")).to_be_visible()
    expect(page.get_by_text("combinations are really different")).to_be_visible()
    study = ask(page)

    box = page.locator(".st-key-search-live")
    expect(box).to_contain_text("Best so far")
    expect(box).to_contain_text(re.compile(r"[\d,]+ tried · [\d,]+ of [\d,]+ not tried"))
    expect(box.locator("canvas")).to_have_count(2)
    page.reload()  # what runs is found again
    expect(page.locator(".st-key-search-live").or_(page.locator(".st-key-search-answer"))).to_be_visible()
    answer = page.locator(".st-key-search-answer")
    expect(answer).to_be_visible(timeout=ANSWERED_MS)

    record = Store(home / "ortune.db").study(study)
    assert record.answer is not None
    expect(answer).to_contain_text(searches.sentence(record.answer))
    expect(page.get_by_role("heading", name="Everything that was tried")).to_be_visible()
    assert hard_to_read(drawn(page, 4)) == []
    assert covered(page) == []
    assert record.answer["outcome"] in LOADS
    page.locator(".st-key-search-load button").first.click()
    expect(page.get_by_role("heading", name="Tune", level=1)).to_be_visible()
    winner = record.answer["winner"]
    if winner is None:  # nothing beats the default, which is loaded
        expect(page.get_by_text("All settings at their defaults")).to_be_visible()
        return
    threads = winner["spec"].get("session", {}).get("intra_op_num_threads")
    expect(number(page, "intra_op_num_threads")).to_have_value("" if threads is None else str(threads))
    expect(page).to_have_url(re.compile(f"trial={winner['trial']}"))

    page.get_by_role("link", name="Export YAML").click()
    expect(page.get_by_role("heading", name="Export", level=1)).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(r"Download .*\.yaml")).first.click()
    target = tmp_path / download.value.suggested_filename
    download.value.save_as(target)
    session = spec_from_yaml(target.read_text()).to_dict().get("session", {})
    assert session == winner["spec"].get("session", {})


def test_a_cancelled_search_is_resumed_and_a_second_browser_sees_it(open_browser: Open, home: Path) -> None:
    page = open_browser("/search")
    study = ask(page)
    expect(page.locator(".st-key-search-live")).to_contain_text("Best so far")
    other = open_browser("/search", scheme="dark")  # without a link
    expect(other.locator(".st-key-search-live")).to_be_visible()
    assert study_of(other) == study
    page.locator(".st-key-search-cancel button").first.click()
    for one in (page, other):
        expect(one.get_by_text("The search was cancelled.")).to_be_visible()
    assert Store(home / "ortune.db").study(study).tried
    page.locator(".st-key-search-resume button").first.click()
    expect(page.locator(".st-key-search-live").or_(page.locator(".st-key-search-answer"))).to_be_visible()
    expect(page.locator(".st-key-search-answer")).to_be_visible(timeout=ANSWERED_MS)
    assert study_of(page) == study
    assert Store(home / "ortune.db").study(study).state == "COMPLETE"
