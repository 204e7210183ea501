"""The documents at the root of the repository, as pages of the site, with the site's links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

NAMES: Mapping[str, str] = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
_LINK = re.compile(r"\]\((?P<path>[^)#:]+)(?P<anchor>#[^)]*)?\)")


def pages(root: Path) -> dict[str, str]:
    """Return the pages of `docs/project/` by name, read from the documents at `root`."""
    return {page: moved((root / name).read_text(encoding="utf-8")) for name, page in NAMES.items()}


def moved(text: str) -> str:
    """Return a document of the root with its links as they are two folders below."""

    def link(match: re.Match[str]) -> str:
        path, anchor = match["path"], match["anchor"] or ""
        if path in NAMES:
            return f"]({NAMES[path]}{anchor})"
        return f"](../{path.removeprefix('docs/')}{anchor})" if path.startswith("docs/") else match[0]

    return _LINK.sub(link, text)
