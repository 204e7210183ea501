"""Write the generated pages, or check that they match their sources.

`python docs/generate.py` writes `docs/reference/*.md` from the code, and `docs/project/*.md` from the
documents at the root of the repository. With `--check` it writes nothing, names each page that
differs, and exits with code 1 if there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
PROJECT = ROOT / "docs" / "project"


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
    sys.path.insert(0, str(ROOT))  # this checkout, whatever else is installed
    from docs.generator import pages, project

    changed = []
    for folder, expected in ((FOLDER, pages()), (PROJECT, project.pages(ROOT))):
        changed += [f"{folder.relative_to(ROOT)}/{name}" for name in differing(expected, folder)]
        if not arguments:
            write(expected, folder)
    if not arguments:
        print(f"{len(changed)} pages changed")
        return 0
    for name in changed:
        print(f"{name} differs from its source. Run `python docs/generate.py`.", file=sys.stderr)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
