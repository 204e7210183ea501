"""Every page with a result on it: accessible, readable, in its place, and working under the policy."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from core.evidence.targets import STATE_WORDS
from core.process.machine_queue import MachineQueue
from core.run.job import Status
from core.spec import TargetSpec, spec_from_dict
from core.store import Store
from dashboard import demo
from dashboard.pages import PAGES, page_name
from tests.e2e import reading
from tests.e2e.conftest import (
    JOB_MS,
    VIEWPORT,
    Open,
    Site,
    button,
    finished,
    keyed,
    opened,
    recorded,
    recorded_home,
    visit,
    visitors,
)
from tests.serving import serving
from tests.simulated_load import sample_point, sample_run
from tests.views import sample_results

TITLES = [one.title for one in PAGES.values()]
# Page -> how many plots its recorded result has at least; the others have none.
PLOTS = {"Tune": 1, "Search": 2, "Compare": 1, "Sweep": 2, "Profile": 1, "Explain": 2, "Graph": 1, "Load": 1}
ACTION = ", ".join(f".st-key-{key} button:visible" for key in ("bar-action", "search-run", "compare-run"))
# Pages without an action at the end of the bar; Models and Tune have theirs elsewhere.
WITHOUT_ACTION = ("Tune", "Fleet", "Graph", "Models", "History")


def told(home: Path, job: str, kind: str, **live: Any) -> None:
    """Turn a job into a playback that stays, for as long as the test takes, in the given state."""
    status = Status(id=job, kind=kind, state="RUNNING", what="a job", stage="rounds", done=9, total=32)
    rows = [
        {"at_s": at_s, "now": 100.0, "status": {**asdict(status), "elapsed_s": 12.0, "live": live}}
        for at_s in (0.0, 3600.0)
    ]
    (home / demo.PLAYBACK).mkdir(exist_ok=True)
    (home / demo.PLAYBACK / f"{job}.json").write_text(json.dumps(rows))


def under_way(site: Site) -> dict[str, tuple[str, str]]:
    """Page -> the address of a result that is measured again on it, by playback, and its button's key."""
    results = recorded(site.store)
    comparison = site.store.comparison(results.slower.comparison)
    for one, job in ((comparison, results.slower.id), (results.comparison, results.comparison.id)):
        contrasts = [
            {**each, "label": each["candidate"], "ratio_low": 0.9, "ratio": 1.0, "ratio_high": 1.1}
            for each in (one.result or {})["contrasts"]
        ]
        course = {
            each["candidate"]: [(1.0, each["ratio"], 0.5, 2.0), (2.0, *(each[name] for name in INTERVAL))]
            for each in contrasts
        }
        told(site.home, job, "measure", rounds=9, generation=3, predicted_rounds=32, contrasts=contrasts,
             course=course, p50_s={})  # fmt: skip
    answer = results.search.answer or {}
    points = [{"label": str(number), "ratio": 1.0 + number / 9, "memory": 8e6} for number in range(5)]
    told(site.home, results.search.id, "search", tried=5, distinct=8, doing="looks", spent_s=12.0,
         ends_at=130.0, budget_s=60.0, best=None, points=points, front=answer["front"],
         course=answer["course"])  # fmt: skip
    [load] = [one for one in site.store.trials(kind="load") if one.model_name == "digits_cnn"]
    run = sample_run(200)
    told(site.home, load.id, "load", load={
        "run": 2, "runs": 3, "configuration": 0, "label": "ORT default", "rate_per_s": 200.0,
        "elapsed_s": 16.0, "duration_s": 32.0, "queue": 3, "course": run["course"][:16],
        "p50_s": 0.0023, "p99_s": 0.0154, "points": [sample_point(run, 0)], "limits": ["p99<=20ms"],
        "stage": "traffic",
    })  # fmt: skip
    return {
        "Load": (f"/load?trial={load.id}", "load.run"),
        "Tune": (f"/?trial={results.slower.id}", "run"),
        "Compare": (f"/compare?comparison={results.comparison.id}", "compare.run"),
        "Search": (f"/search?study={results.search.id}", "search.run"),
    }


# Pages with a button that starts a job beside what is there already, where nothing plays back.
WAITING = ("Sweep", "Load", "Profile", "Explain", "Machine", "Scorecard", "Accuracy")


def evaluate(open_it: Open) -> None:
    """Evaluate the sample model on its data, unless the recorded evaluation is of a machine like this one."""
    page = open_it("/accuracy")
    if not keyed(page, "accuracy.cards").is_visible():
        button(page, "dataset.sample").click()
        button(page, "accuracy.run").click()
    expect(keyed(page, "accuracy.cards")).to_be_visible(timeout=JOB_MS)
    page.close()


def ask_for_more(store: Store) -> None:
    """Add to the recorded targets one that nothing was measured for."""
    judged = next(one for one in store.trials(limit=1000) if one.spec.get("targets"))
    record = next(one for one in store.models() if one.content_sha256 == judged.model_sha256)
    spec, more = spec_from_dict(judged.spec), TargetSpec(metric="throughput", at_least=1.0, batch_size=7)
    spec = spec.model_copy(update={"targets": (*spec.targets, more)})
    sample_results.put_measured(store, record, spec, fingerprint="another machine", created_at=time.time())


INTERVAL = ("ratio", "ratio_low", "ratio_high")


def pages(page: Page) -> list[str]:
    """Names of all pages, as the navigation has them."""
    links = page.get_by_test_id("stSidebarNav").get_by_role("link")
    return [text.split("\n")[-1].strip() for text in links.all_inner_texts()]


def go_to(page: Page, name: str) -> None:
    visit(page, name)
    if name in PLOTS:
        reading.plots(page, PLOTS[name])


LOW: ViewportSize = {"width": 1280, "height": 720}
# nothing is recorded of the sample model on this machine, and no fleet run
WITHOUT_PICTURES = ("Variants", "Accuracy", "Fleet")

PHONE: ViewportSize = {"width": 390, "height": 844}
# Widths of a small screen and of a phone; no scheme makes a page wider, so each is tested in one.
WIDTHS = {"light": 900, "dark": 400}


@pytest.mark.parametrize("scheme", list(WIDTHS))
def test_every_page_is_accessible_fits_and_its_plots_can_be_read(look: Open, scheme: str) -> None:
    """The browser's complaints of the policy are counted when the page is closed."""
    page, width = look(scheme=scheme), WIDTHS[scheme]
    assert pages(page) == TITLES
    wrong: dict[str, list[object]] = {}
    places = {}
    for name in TITLES:
        page.set_viewport_size(VIEWPORT)
        go_to(page, name)
        wrong[name] = [*reading.bad_plots(page), *reading.marked_up(page), *reading.grave(page)]
        for high in (VIEWPORT, LOW):
            page.set_viewport_size(high)
            lines = reading.first_screen(page, pictures=name not in WITHOUT_PICTURES)
            wrong[f"{name}, {high['height']} px high"] = list(lines)
        if name not in WITHOUT_ACTION:
            box = page.locator(ACTION).first.bounding_box()
            assert box is not None
            places[name] = (round((box["x"] + box["width"]) / 4), round((box["y"] + box["height"] / 2) / 12))
        page.set_viewport_size({**VIEWPORT, "width": width})
        wrong[f"{name} at {width} px"] = reading.in_the_end(page, reading.BEYOND)
        if width == 900:  # on a phone a plot is scrolled
            wrong[f"plots of {name} at {width} px"] = reading.bad_plots(page)
        if name not in WITHOUT_PICTURES and (width != 900 or name == "Tune"):
            page.set_viewport_size(PHONE)
            wrong[f"{name} on a phone"] = reading.first_on_a_phone(page)
    assert not any(wrong.values()), "\n".join(f"{name}: {one}" for name in wrong for one in wrong[name])
    assert len(set(places.values())) == 1, places


@pytest.fixture
def demonstration() -> Iterator[Path]:
    """The recording as it is, in which nothing is measured."""
    folder = demo.unpack()
    try:
        yield folder
    finally:
        demo.remove(folder)


def reopen(page: Page, address: str, scheme: str) -> None:
    """Open an address as a new session in the same tab, which costs half of what a new tab costs."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size(VIEWPORT)
    page.goto(address)
    opened(page)


def look_at(page: Page, name: str, wrong: dict[str, list[str]], *, pictures: bool) -> None:
    """Note what the first screen of a page is not spent on as it should be, on two sizes of screen."""
    for high in (VIEWPORT, LOW):
        page.set_viewport_size(high)
        wrong[f"{name}, {high['height']} px high"] = reading.first_screen(page, pictures=pictures)


def test_the_demonstration_shows_its_answers_first_also_while_it_plays_back(
    browser: Browser, demonstration: Path
) -> None:
    wrong: dict[str, list[str]] = {}
    with serving(demonstration) as (url, _):
        site = Site(url, demonstration)
        with visitors(browser, site) as open_it:
            page = open_it()
            for scheme, name in itertools.product(WIDTHS, TITLES):
                if name == "Fleet" or (scheme == "dark" and name not in WITHOUT_PICTURES):
                    continue  # no fleet run is recorded; the others are seen with other results in both
                reopen(page, f"{url}/{page_name(name)}", scheme)
                reading.plots(page, max(PLOTS.get(name, 0), name in WITHOUT_PICTURES))
                look_at(page, f"{name} as recorded, {scheme}", wrong, pictures=True)
                if name == "Scorecard":
                    judged = keyed(page, "scorecard.result")
                    expect(judged.get_by_text(STATE_WORDS["MET"], exact=True).first).to_be_visible()
                    expect(judged.get_by_text(STATE_WORDS["MISSED"], exact=True)).to_have_count(0)
            for scheme, (name, (path, key)) in itertools.product(WIDTHS, under_way(site).items()):
                reopen(page, url + path, scheme)
                button(page, key).click()
                expect(page.locator('.ol-picture[role="img"]')).to_have_count(3 if name == "Load" else 2)
                look_at(page, f"{name} while it is measured, {scheme}", wrong, pictures=True)
                wrong[f"{name} while it is measured, {scheme}, moving"] = reading.moving(page)
                button(page, key).click()
                expect(page.locator(".st-key-pane-result .ol-live")).to_have_count(0)  # the result again
                wrong[f"{name} at rest, {scheme}, moving"] = reading.moving(page)
    assert not any(wrong.values()), "\n".join(f"{name}: {one}" for name in wrong for one in wrong[name])


def test_what_is_measured_is_seen_first_and_an_empty_page_is_short(browser: Browser, tmp_path: Path) -> None:
    wrong: dict[str, list[str]] = {}
    with (
        recorded_home() as home,
        serving(home) as (url, _),
        visitors(browser, Site(url, home)) as open_it,
        contextlib.ExitStack() as queue,
    ):
        evaluate(open_it)
        ask_for_more(Site(url, home).store)
        queue.enter_context(MachineQueue(home / "queue").turn("a test", "nothing"))  # so long the jobs wait
        page = open_it()
        for scheme, name in itertools.product(WIDTHS, WAITING):
            key = f"{page_name(name)}.run"
            reopen(page, f"{url}/{page_name(name)}", scheme)
            if name == "Accuracy":
                expect(keyed(page, "accuracy.cards")).to_be_visible()
            button(page, key).click()
            expect(page.locator(".ol-live").first).to_be_visible()
            finished(page)
            if name in PLOTS:
                reading.plots(page, PLOTS[name])
            look_at(page, f"{name} while it waits, {scheme}", wrong, pictures=True)
            button(page, key.replace(".run", ".cancel")).click()
            expect(button(page, key)).to_be_enabled()
    with serving(tmp_path) as (url, _), visitors(browser, Site(url, tmp_path)) as open_it:
        page = open_it()
        for scheme in WIDTHS:
            reopen(page, url, scheme)
            for name in TITLES:
                page.set_viewport_size(VIEWPORT)
                visit(page, name)
                look_at(page, f"{name}, empty, {scheme}", wrong, pictures=False)
                if name in ("Tune", "Search"):
                    wrong[f"{name}, empty, {scheme}"] = [*reading.marked_up(page), *reading.grave(page)]
                    page.set_viewport_size(PHONE)
                    wrong[f"{name}, empty, {scheme}, on a phone"] = reading.in_the_end(page, reading.BEYOND)
    assert not any(wrong.values()), "\n".join(f"{name}: {one}" for name in wrong for one in wrong[name])
