"""Take the pictures of README and of the tutorial: recorded results in light and dark, and a film of Live.

The pictures come from the demonstration. The film measures, so it needs an idle machine; nothing is cut out
or sped up. `--pictures` leaves it out.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PORT = 8599
SCREEN: ViewportSize = {"width": 1440, "height": 900}
PLOT = ".js-plotly-plot .main-svg"
# address of a page -> what shows that its recorded result is there; "" is Tune
PAGES = {
    "": ".st-key-numbers",
    "variants": PLOT,
    "search": PLOT,
    "explain": PLOT,
    "export": "[data-testid=stCode]",
}
FRAME_S = 0.2
FILM_PX = 900  # wide
MOST_BYTES = 1 << 20
BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def main() -> None:
    """Serve, drive, shoot; leave nothing behind but the pictures."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=BROWSER_FLAGS,
        )
        with _served("--demo"):
            for scheme, suffix in (("light", ""), ("dark", "-dark")):
                page = browser.new_page(viewport=SCREEN, color_scheme=scheme)  # type: ignore[arg-type]
                for view, result in PAGES.items():
                    _open(page, view, result)
                    page.screenshot(path=ROOT / "docs" / f"{view or 'tune'}{suffix}.png")
                page.close()
        if "--pictures" not in sys.argv[1:]:
            with _served():
                page = browser.new_page(viewport=SCREEN, color_scheme="light")
                page.goto(f"http://127.0.0.1:{PORT}")
                expect(page.locator(".st-key-run button").first).to_be_enabled(timeout=60_000)
                _film(page)
        browser.close()


@contextlib.contextmanager
def _served(*more: str) -> Iterator[None]:
    """A dashboard with a home of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ORTUNE_HOME": folder, "ORTUNE_QUEUE": f"{folder}/queue"}
        command = [sys.executable, "-m", "dashboard", "--port", str(PORT), *more]
        server = subprocess.Popen(command, cwd=ROOT, env=environment)
        try:
            _wait_until_up()
            yield
        finally:
            server.terminate()
            server.wait()


def _wait_until_up() -> None:
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/_stcore/health") as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("The dashboard did not come up.")


def _open(page: Page, view: str, result: str) -> None:
    page.goto(f"http://127.0.0.1:{PORT}/{view}")
    expect(page.locator(result).first).to_be_visible(timeout=60_000)
    page.wait_for_timeout(3000)  # charts draw after their data arrived


def _film(page: Page) -> None:
    """Film Live while the slider of batch sizes goes up, each step as long as it takes to be answered."""
    page.set_viewport_size({"width": 1200, "height": 760})
    page.locator(".st-key-tune-live label").first.click()
    page.wait_for_timeout(4000)
    slider = page.locator(".st-key-slide-knob-batch_size input")
    slider.focus()
    slider.press("Home")
    page.wait_for_timeout(4000)
    frames: list[tuple[float, bytes]] = []
    for _ in range(4):
        slider.focus()
        slider.press("ArrowRight")
        until = time.monotonic() + 3.5
        while time.monotonic() < until:
            frames.append((time.monotonic(), page.screenshot(caret="initial")))
            time.sleep(FRAME_S)
    stills = [one for i, one in enumerate(frames) if i == 0 or one[1] != frames[i - 1][1]]
    ends = [at for at, _ in stills[1:]] + [stills[-1][0] + 2.0]
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for _, data in stills]
    size = (FILM_PX, round(FILM_PX * pictures[0].height / pictures[0].width))
    first, *rest = (one.resize(size, Image.Resampling.LANCZOS) for one in pictures)
    path = ROOT / "docs" / "live.webp"
    first.save(
        path,
        save_all=True,
        append_images=rest,
        duration=[round(1000 * (end - at)) for end, (at, _) in zip(ends, stills, strict=True)],
        loop=0,
        quality=70,
        method=6,
    )
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"The film takes {path.stat().st_size} bytes; README allows {MOST_BYTES}.")


if __name__ == "__main__":
    main()
