"""People of a real OpenID provider: what each may do, and how their sessions end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from core.wire.variables import PEOPLE, TOKEN, USERS
from dashboard.server.login_sessions import COOKIE
from tests.e2e.conftest import PATIENCE_MS, Site, at_page, button, finished, keyed, run_button, visit
from tests.proxying import proxied
from tests.serving import ask, end, free_port, serving

MODULES = os.environ.get("ORTUNE_TEST_OPENID_PROVIDER", "")  # a folder `node_modules` with oidc-provider
SCRIPT = Path(__file__).with_name("openid_provider.mjs")
PEOPLE_FILE = """
[people]
"@example.org" = "viewer"

[claim]
name = "groups"
roles = { tuners = "engineer", operators = "admin" }
"""
CLAIMS = {
    "ann": {"email": "ann@example.org", "email_verified": True, "groups": ["staff", "tuners"]},
    "bob": {"email": "bob@example.org", "email_verified": True, "groups": ["staff"]},
    "cleo": {"email": "cleo@elsewhere.example", "groups": ["operators"]},
    "eve": {"email": "eve@elsewhere.example", "email_verified": True, "groups": ["staff"]},
    "mallory": {"email": "bob@example.org", "email_verified": False, "groups": []},
}
SECRETS = """
[auth]
redirect_uri = "{redirect}"
cookie_secret = "a secret of the tests with more than 32 characters"
client_id = "ortune"
client_secret = "a secret of the tests"
server_metadata_url = "{issuer}/.well-known/openid-configuration"
client_kwargs = {{ prompt = "login", scope = "openid email groups" }}
"""

pytestmark = [
    pytest.mark.skipif(
        not (MODULES and shutil.which("node")),
        reason="needs node and oidc-provider of npm: set ORTUNE_TEST_OPENID_PROVIDER to its `node_modules`",
    ),
    pytest.mark.skipif(
        not (find_spec("authlib") and find_spec("httpx")), reason="needs pip install 'streamlit[auth]'"
    ),
]


@dataclass(frozen=True)
class Company:
    """A dashboard and its provider."""

    browser: Browser
    site: Site
    serve: Callable[[], contextlib.AbstractContextManager[tuple[str, subprocess.Popen[bytes]]]]


@contextlib.contextmanager
def provider(issuer: str, redirect: str, log: Path) -> Iterator[None]:
    node = shutil.which("node")
    assert node is not None
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [node, str(SCRIPT), json.dumps(CLAIMS), issuer, redirect, MODULES],
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", log.read_text()
            yield
        finally:
            end(process)
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def company(
    browser: Browser, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Company]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with configured(url, tmp_path, monkeypatch):
        yield Company(browser, Site(url, home), lambda: serving(home, port=port))


@contextlib.contextmanager
def configured(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A provider, and the files of a server that browsers call by this address."""
    redirect, issuer = f"{url}/oauth2callback", f"http://127.0.0.1:{free_port()}"
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text(SECRETS.format(redirect=redirect, issuer=issuer))
    (tmp_path / "people.toml").write_text(PEOPLE_FILE)
    (tmp_path / "people.toml").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))  # Streamlit looks for its secrets there
    monkeypatch.setenv(PEOPLE, str(tmp_path / "people.toml"))
    monkeypatch.delenv(TOKEN, raising=False)
    monkeypatch.delenv(USERS, raising=False)
    with provider(issuer, redirect, tmp_path / "provider.log"):
        yield


@contextlib.contextmanager
def visitor(company: Company) -> Iterator[Page]:
    """A browser of its own, on the login page."""
    context = company.browser.new_context(ignore_https_errors=True)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(company.site.url)
    yield page
    context.close()


def log_in(page: Page, name: str) -> None:
    page.get_by_role("link", name="Log in").click()
    page.locator("input[name=login]").fill(name)
    page.locator("input[name=password]").fill("any")
    page.locator("button[type=submit]").click()


def at_login(page: Page) -> None:
    expect(page.get_by_role("link", name="Log in")).to_be_visible()


def account(page: Page, *said: str) -> None:
    """Open the line with the person, which says all this."""
    line = keyed(page, "account").locator("button").first
    for one in said:
        expect(line).to_contain_text(one)
    line.click()


def test_three_people_may_do_what_their_claims_say(company: Company) -> None:
    with company.serve(), visitor(company) as ann, visitor(company) as bob, visitor(company) as cleo:
        for page, name in ((ann, "ann"), (bob, "bob"), (cleo, "cleo")):
            log_in(page, name)
            at_page(page, "Tune")
        expect(run_button(ann)).to_be_enabled()
        expect(run_button(bob)).to_be_disabled()
        expect(run_button(cleo)).to_be_enabled()
        account(ann, "ann@example.org", "engineer")
        account(bob, "bob@example.org", "viewer")
        account(cleo, "cleo@elsewhere.example", "admin")


@pytest.mark.parametrize("name", ["eve", "mallory"])
def test_who_is_not_listed_or_not_verified_gets_no_access(company: Company, name: str) -> None:
    with company.serve(), visitor(company) as page:
        log_in(page, name)
        expect(page.get_by_role("alert")).to_be_visible()
        page.goto(f"{company.site.url}/history")
        at_login(page)


def test_log_out_everywhere_ends_every_browser_of_one_person_for_good(company: Company) -> None:
    with visitor_pages(company) as (first, second, other):
        with company.serve():
            for page, name in ((first, "ann"), (second, "ann"), (other, "bob")):
                page.goto(company.site.url)
                log_in(page, name)
                at_page(page, "Tune")
            kept = [f"{one['name']}={one['value']}" for one in second.context.cookies()]
            account(first)
            button(first, "log_out_everywhere").click()
            signed_out(first)
            signed_out(second)
            at_login(first)
            at_login(second)
            visit(other, "History")
        with company.serve():  # what was logged out stays logged out
            assert ask(company.site.url, Cookie="; ".join(kept)).status == 401
            other.goto(company.site.url)
            at_page(other, "Tune")


def test_log_out_ends_this_browser_alone(company: Company) -> None:
    with company.serve(), visitor(company) as first, visitor(company) as second:
        for page in (first, second):
            log_in(page, "ann")
            at_page(page, "Tune")
        account(first)
        button(first, "log_out").click()
        signed_out(first)
        at_login(first)
        visit(second, "History")
        finished(second)


def test_behind_a_proxy_with_tls_the_provider_leads_back_below_the_base_path(
    browser: Browser, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, base = free_port(), "/ortune"
    with proxied(tmp_path, {base: port}) as proxy, configured(f"{proxy}{base}", tmp_path, monkeypatch):
        site = Site(f"{proxy}{base}/history", home)
        company = Company(browser, site, lambda: serving(home, port=port, base=base))
        with company.serve(), visitor(company) as page:
            log_in(page, "ann")
            at_page(page, "Tune")
            named = {one["name"]: one for one in page.context.cookies()}  # of the provider as well
            assert {one["path"] for name, one in named.items() if name.startswith("_streamlit")} == {base}
            assert (named[COOKIE]["path"], named[COOKIE]["secure"]) == (base, True)
            account(page, "ann@example.org")
            button(page, "log_out").click()
            signed_out(page)
            at_login(page)
            assert page.url.startswith(f"{proxy}{base}/")


def signed_out(page: Page) -> None:
    """Confirm at the provider that its own session ends, too."""
    page.get_by_role("button", name="Yes").click()


@contextlib.contextmanager
def visitor_pages(company: Company) -> Iterator[list[Page]]:
    """Three browsers without a page yet."""
    contexts = [company.browser.new_context() for _ in range(3)]
    for one in contexts:
        one.set_default_timeout(PATIENCE_MS)
    yield [one.new_page() for one in contexts]
    for one in contexts:
        one.close()
