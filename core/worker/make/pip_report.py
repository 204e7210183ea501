"""Read what pip would install: its installation report, format 1.

Standard library only. Read: `install[].metadata.name|version`, `download_info.url|archive_info`, `is_direct`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from core.wire.errors import WorkerError
from core.wire.files import open_regular, sha256_of


def read(path: Path) -> list[tuple[str, str, str]]:
    """Return name, version or URL, and SHA-256 of every package of the report at `path`.

    Raises:
        WorkerError: it is no such report.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return sorted(_packages(data))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkerError(
            f"The report of pip cannot be read: {error}.", hint="Use a newer pip, or install `uv`."
        ) from None


def _packages(data: Any) -> Iterator[tuple[str, str, str]]:
    for one in data["install"]:
        source = one["download_info"]
        where = source["url"] if one["is_direct"] else f"=={one['metadata']['version']}"
        yield one["metadata"]["name"].lower(), where, _sha256(source)


def _sha256(source: Any) -> str:
    """The hash of a package's file; that of a local file is computed, because pip may not tell it."""
    archive = source["archive_info"]
    named = dict([archive["hash"].split("=", 1)]) if "hash" in archive else {}
    if found := archive.get("hashes", named).get("sha256"):
        return str(found)
    url = urlsplit(source["url"])
    if url.scheme != "file":
        raise ValueError(f"no SHA-256 of {source['url'][:120]}")
    with open_regular(Path(unquote(url.path))) as file:
        return sha256_of(file)
