"""Draw the pictures of the explanations anew: `docs/drawings/*.mmd` to SVG files beside them.

    python docs/drawings.py MERMAID.js

MERMAID.js is `dist/mermaid.min.js` of the npm package `mermaid`. The pages show the SVG files: neither the
site nor its readers need that library, and nothing is loaded from another server.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent / "drawings"
OPTIONS = {
    "startOnLoad": False,
    "theme": "neutral",
    "htmlLabels": False,
    "flowchart": {"htmlLabels": False, "useMaxWidth": False},
}


def main() -> None:
    """Draw every source of the folder."""
    parser = argparse.ArgumentParser(description="Draw docs/drawings/*.mmd as SVG files.")
    parser.add_argument("mermaid", type=Path)
    parser.add_argument("--browser", type=Path, help="a Chromium; default: the one that Playwright has")
    asked = parser.parse_args()
    with sync_playwright() as playwright:
        path = str(asked.browser) if asked.browser else None
        page = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]).new_page()
        page.set_content("<body></body>")
        page.add_script_tag(path=asked.mermaid)
        page.evaluate("options => mermaid.initialize(options)", OPTIONS)
        for source in sorted(FOLDER.glob("*.mmd")):
            draw = "async ([name, text]) => (await mermaid.render(name, text)).svg"
            svg = page.evaluate(draw, [source.stem.replace("-", ""), source.read_text(encoding="utf-8")])
            white = svg.replace("<style>", '<rect width="100%" height="100%" fill="#fff"/><style>', 1)
            source.with_suffix(".svg").write_text(white + "\n", encoding="utf-8")
            print(source.with_suffix(".svg"))


if __name__ == "__main__":
    main()
