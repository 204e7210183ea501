"""Write the generated reference pages, or check that they match the code.

`python docs/generate.py` writes `docs/reference/*.md`. With `--check` it writes nothing, names each page that
differs, and exits with code 1 if there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # this checkout, whatever else is installed

from docs.generator import pages  # noqa: E402 - after the path

FOLDER = ROOT / "docs" / "reference"


def differing(expected: Mapping[str, str], folder: Path = FOLDER) -> list[str]:
    """Return the names of pages that differ, are missing, or are in the folder without being generated."""
    present = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    return sorted(name for name in {*expected, *present} if expected.get(name) != present.get(name))


def write(expected: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Write every page, and remove pages that are no longer generated."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.md"):
        if path.name not in expected:
            path.unlink()
    for name, text in expected.items():
        (folder / name).write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Run the script and return its exit code."""
    if list(arguments) not in ([], ["--check"]):
        print("Usage: python docs/generate.py [--check]", file=sys.stderr)
        return 2
    expected = pages()
    changed = differing(expected)
    if not arguments:
        write(expected)
        print(f"{len(expected)} pages, {len(changed)} changed")
        return 0
    for name in changed:
        print(f"docs/reference/{name} differs from the code. Run `python docs/generate.py`.", file=sys.stderr)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
