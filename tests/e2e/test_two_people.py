"""Two people, a viewer and an admin of one server: private models, the shared queue, roles from a file.

The test itself holds the machine, so that all jobs wait and nothing is measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from core.process.machine_queue import MachineQueue
from core.store import STORE_NAME, Store
from core.store.library import import_files
from core.wire.variables import PEOPLE, TOKEN, USERS
from dashboard.server.people_file import hash_of
from tests import tiny_models
from tests.e2e.conftest import (
    PATIENCE_MS,
    Site,
    at_page,
    button,
    held,
    keyed,
    recorded,
    run_button,
    started,
    until,
    visit,
)
from tests.serving import serving
from tests.views import sample_results

NAME = "zzsecretnet"
ROLES = {"ann": "engineer", "ben": "engineer", "vic": "viewer", "root": "admin"}
TOKENS = {name: f"the long token of {name} in the tests" for name in ROLES}

LogIn = Callable[[str], Page]


@pytest.fixture
def team(browser: Browser, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server with the recorded results, which are shared, and people by tokens."""
    people = tmp_path / "people.toml"
    people.write_text(
        "".join(
            f'[tokens.{name}]\nrole = "{role}"\nsha256 = "{hash_of(TOKENS[name])}"\n'
            for name, role in ROLES.items()
        )
    )
    people.chmod(0o600)
    monkeypatch.setenv(PEOPLE, str(people))
    for name in (TOKEN, USERS):
        monkeypatch.delenv(name, raising=False)
    with serving(home) as (url, server):
        yield Site(url, home, server)


@pytest.fixture
def log_in(browser: Browser, team: Site) -> Iterator[LogIn]:
    """Log in as a person, in a browser of its own; return its page."""
    with contextlib.ExitStack() as opened:

        def enter(name: str) -> Page:
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            opened.callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.goto(team.url)
            page.locator("input[name=token]").fill(TOKENS[name])
            page.get_by_role("button", name="Log in").click()
            at_page(page, "Tune")
            return page

        yield enter


def open_result(page: Page, site: Site, trial: str) -> None:
    page.goto(f"{site.url}/?trial={trial}")
    at_page(page, "Tune")


def seen(page: Page) -> str:
    """All that a page shows or holds, and its address."""
    return f"{page.url}\n{page.content()}"


def hers(site: Site, folder: Path) -> tuple[Store, str]:
    """A model of Ann with a result: her store, and the id of the result."""
    store = Store(site.home / STORE_NAME).for_person("token:ann", sees_all=False)
    model, _ = import_files(store, [tiny_models.mlp(folder / f"{NAME}.onnx")], name=NAME)
    fingerprint = store.trial(recorded(store).slower.id).fingerprint
    return store, sample_results.put_run(store, model, fingerprint=fingerprint).id


def test_what_one_makes_private_the_other_does_not_see(team: Site, log_in: LogIn, tmp_path: Path) -> None:
    _, secret = hers(team, tmp_path)
    ann, ben = log_in("ann"), log_in("ben")
    open_result(ben, team, secret)
    assert NAME in seen(ben)  # it is shared until she makes it private
    open_result(ann, team, secret)
    visit(ann, "Models")
    share = button(ann, "models.share")
    expect(share).to_contain_text("Make private")
    share.click()
    expect(share).to_contain_text("Share")
    for page in ("History", "Models", "Compare"):
        visit(ben, page)
        assert NAME not in seen(ben), page
    ben.goto(f"{team.url}/?trial={secret}")  # the link that he had
    expect(ben.get_by_test_id("stAlert").filter(has_text="private")).to_be_visible()
    assert NAME not in seen(ben)


def test_people_wait_in_one_queue_and_only_an_admin_cancels_the_job_of_another(
    team: Site, log_in: LogIn, tmp_path: Path
) -> None:
    store, secret = hers(team, tmp_path)
    store.share([store.trial(secret).model_sha256], private=True)
    queue = MachineQueue(team.home / "queue")
    with held(team.home):
        ann, ben = log_in("ann"), log_in("ben")
        open_result(ann, team, secret)
        job = started(ann, run_button(ann))
        says(ann, "live", "night run uses the machine", "is next", "starts in about")
        started(ben, run_button(ben))
        says(ben, "live", "night run uses the machine", "number 2", "start unknown")
        says(ben, "queue.others", "a private job", "another person", "Waiting, place 1")
        assert NAME not in seen(ben)
        assert [one.what for one in queue.entries()][1] == "a private job"

        vic = log_in("vic")  # a viewer measures nothing
        expect(run_button(vic)).to_be_disabled()
        run_button(vic).hover(force=True)
        expect(vic.get_by_test_id("stTooltipContent")).to_contain_text("Your role is viewer")
        assert NAME not in seen(vic)

        root = log_in("root")
        says(root, "queue.others", f"measure {NAME}", "token:ann")
        open_result(root, team, job)
        button(root, "cancel").click()
        until(root, lambda: team.store.trial(job).state == "CANCELLED")
        says(ben, "live", "is next", "starts in about")
        button(ben, "cancel").click()
        until(ben, lambda: len(queue.entries()) == 1)


def says(page: Page, key: str, *words: str) -> None:
    for one in words:
        expect(keyed(page, key)).to_contain_text(one, ignore_case=True)
