"""Models that need native code or text: chosen, raced and told in the browser, with a folder that is open."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, TimeoutError, expect

from core.store import Store
from core.wire.doors import LIBRARIES_VARIABLE
from tests import libraries
from tests.e2e.conftest import finished, named, run, serving, visit
from tests.libraries import needs_compiler

pytestmark = pytest.mark.e2e
Open = Callable[..., Page]
NAME = "libtwice.so"
ATTEMPTS, SOON_MS = 10, 5_000.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server of this file keeps everything."""
    return tmp_path_factory.mktemp("ortune")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's folder; empty where there is no compiler."""
    folder = tmp_path_factory.mktemp("libraries")
    if libraries.COMPILER is not None:
        libraries.compiled(folder, NAME, "custom_op.cpp")
    return folder


@pytest.fixture(scope="module")
def app_url(home: Path, door: Path) -> Iterator[str]:
    """A server whose operator opened the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LIBRARIES_VARIABLE, str(door))
        with serving(home) as (url, _):
            yield url


def take_up(page: Page, model: Path) -> None:
    """Upload a model; its card stands on Models then."""
    visit(page, "Models")
    page.get_by_role("tab", name="Upload").click()
    page.locator(".st-key-models-upload input[type=file]").set_input_files(model)
    expect(page.get_by_role("heading", name=model.stem, level=3)).to_be_visible()
    finished(page)


def use_in_tune(page: Page) -> None:
    page.get_by_role("button", name="Use in Tune").first.click()
    expect(page.get_by_role("heading", name="Tune", level=1)).to_be_visible()
    finished(page)


def choose_library(page: Page) -> None:
    """Choose the library in the field that Tune, Models and Variants share."""
    field = page.locator(".st-key-knob-custom_op_libraries")
    for _ in range(ATTEMPTS):  # the list closes when the page is drawn anew beneath the pointer
        finished(page)
        if NAME in field.inner_text():
            break
        with contextlib.suppress(TimeoutError):
            field.get_by_role("combobox").click(timeout=SOON_MS)
            page.get_by_role("option", name=NAME).click(timeout=SOON_MS)
    page.keyboard.press("Escape")
    expect(field).to_contain_text(NAME)
    finished(page)


@needs_compiler
def test_a_library_is_chosen_raced_and_shown(
    open_browser: Open, home: Path, door: Path, tmp_path: Path
) -> None:
    digest = hashlib.sha256((door / NAME).read_bytes()).hexdigest()
    page = open_browser()
    take_up(page, libraries.between_products(tmp_path / "own_operator.onnx"))
    page.get_by_role("button", name="Check that it loads").click()
    expect(page.get_by_text(re.compile("custom operator Twice|custom operator `Twice`"))).to_be_visible()
    use_in_tune(page)
    page.locator(".st-key-group-advanced summary").click()
    choose_library(page)
    run(page)
    trial = Store(home / "ortune.db").trial(named(page.url)["trial"][0])
    assert trial.state == "COMPLETE"
    assert trial.spec["session"]["custom_op_libraries"] == [f"{NAME}@sha256:{digest}"]
    told = page.get_by_text(re.compile(f"Native code of .*{re.escape(NAME)}.* ran in it.*{digest}"))
    expect(told.first).to_be_visible()

    visit(page, "Models")
    expect(page.locator(".st-key-knob-custom_op_libraries")).to_contain_text(NAME)
    page.get_by_role("button", name="Check that it loads").click()
    expect(
        page.get_by_text(re.compile(f"loads it on the CPU with native code of .*{digest}"))
    ).to_be_visible()


def test_text_is_typed_and_said_to_be_fixed(open_browser: Open, home: Path, tmp_path: Path) -> None:
    page = open_browser()
    take_up(page, libraries.identity_text(tmp_path / "some_words.onnx", ["batch"]))
    use_in_tune(page)
    expect(page.locator(".st-key-run button").first).to_be_disabled()
    field = page.get_by_role("textbox", name=re.compile(r"^x \(text"))
    field.fill("a line of text")
    field.press("Control+Enter")
    expect(page.locator(".st-key-run button").first).to_be_enabled()
    run(page)
    page.get_by_role("tab", name="What really ran").click()
    expect(page.get_by_text('fixed text, not random: "a line of text"').first).to_be_visible()
    trial = Store(home / "ortune.db").trial(named(page.url)["trial"][0])
    assert trial.spec["workload"]["feed_values"] == {"x": "a line of text"}
