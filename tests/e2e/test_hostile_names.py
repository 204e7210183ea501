"""HTML and Markdown in names of models, nodes, inputs, labels and notes stay text on pages and in reports."""

from __future__ import annotations

from pathlib import Path

from onnx import helper
from playwright.sync_api import Browser, Page, expect

from core.store import STORE_NAME, Store
from core.store.library import import_file
from dashboard.pages import PAGES
from tests import tiny_models
from tests.command_line import CommandLine
from tests.e2e.conftest import JOB_MS, PATIENCE_MS, Site, at_page, finished, visitors
from tests.serving import serving

LABEL = "`![p](evil.png)`` :material_skull:"  # leaves its code span, if that has a single backtick
NAME = f"<img src=x onerror=window.hacked=1> {LABEL} [l](evil:x) :streamlit:"  # a model's name has no slash
EVIL = f"{NAME}<script>window.hacked=1</script><svg onload=window.hacked=1> ![q](http://evil.example/q.png)"


def model_with_names(path: Path) -> Path:
    nodes = [
        helper.make_node("Relu", [f"in {EVIL}"], [f"between {EVIL}"], f"first {EVIL}"),
        helper.make_node("Mul", [f"between {EVIL}"] * 2, [f"out {EVIL}"], f"second {EVIL}"),
    ]
    inputs = [tiny_models.value(f"in {EVIL}", [4, 4])]
    return tiny_models.save(path, nodes, inputs, [tiny_models.value(f"out {EVIL}", [4, 4])])


def is_harmless(page: Page) -> None:
    """Nothing of the names became an element or ran."""
    page.wait_for_timeout(200)  # an image that fails to load runs its handler later
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src='x'], svg[onload], img[onerror]").count() == 0
    assert page.locator("img[src*='evil'], a[href*='evil'], img[alt='Streamlit logo']").count() == 0
    assert page.locator("[aria-label='skull icon']").count() == 0
    # the data of a report hold the names as text
    assert not page.evaluate("[...document.scripts].some(one => one.text.trim() === 'window.hacked=1')")


def test_names_with_html_run_nothing(browser: Browser, tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    model = model_with_names(tmp_path / "evil.onnx")
    store = Store(line.home / STORE_NAME)
    record = import_file(store, model, name=NAME, source="file")
    tuned = line.run_alone("tune", NAME, "--runs", "20", "--warmup-runs", "1", "--quiet", "--json")
    trial = tuned.document["trial"]
    assert trial is not None, tuned.err
    assert line.run("tag", trial, "--label", LABEL, "--note", EVIL).code == 0
    report = tmp_path / "report.html"
    assert line.run_alone("report", trial, "--output", str(report)).code == 0

    with serving(line.home) as (url, _), visitors(browser, Site(url, line.home)) as open_it:
        page = open_it(f"/models?model={record.content_sha256}")
        expect(page.get_by_text("window.hacked").first).to_be_attached()
        is_harmless(page)
        shown = {"tune": f"/?trial={trial}", "export": f"/export?trial={trial}"}
        for one in PAGES.values():
            page.goto(f"{url}{shown.get(one.name, f'/{one.name}?model={record.content_sha256}')}")
            at_page(page, one.title)
            is_harmless(page)
        page.goto(f"{url}/graph?model={record.content_sha256}")
        chart = page.locator('.st-key-graph-chart-model[data-stale="false"]')
        nodes = chart.locator(".scatterlayer .points path.point")
        expect(nodes).to_have_count(2, timeout=JOB_MS)
        nodes.first.hover(force=True)
        nodes.first.click(force=True)
        finished(page)
        expect(page.locator(".st-key-graph-details")).to_contain_text("onerror")
        is_harmless(page)

    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(report.as_uri())
    expect(page.get_by_text("window.hacked").first).to_be_attached()
    is_harmless(page)
    context.close()
