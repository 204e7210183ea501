"""Read lock files. Standard library only: `make run` reads them before anything is installed."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"  # what `make run` installs
TOOLS_LOCK = ROOT / "requirements-dev.lock"  # what `make setup` installs besides
COVERS = "# covers: "

_BLOCK = re.compile(
    r"^(?P<name>[a-z0-9._-]+)(?:\[[^]]*\])?==(?P<version>[^ ;\\]+)(?: *; *(?P<marker>[^\\]+?))? *\\?$"
)
_HASH = re.compile(r"^    --hash=sha256:(?P<hash>[0-9a-f]{64})(?: \\)?$")


class LockError(Exception):
    """A line of a lock file that names no version or no hash."""


@dataclass(frozen=True)
class Package:
    """One locked version.

    Attributes:
        name: normalized name of the distribution.
        version: its only version.
        marker: the environments that need it; empty: all.
        hashes: SHA-256 of each of its files.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines of the lock file."""
        first = f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")
        return " \\\n".join([first, *(f"    --hash=sha256:{one}" for one in self.hashes)])


def packages(text: str) -> list[Package]:
    """Return the packages of a lock file, in its order.

    Raises:
        LockError: a line is no version with hashes.
    """
    found: list[Package] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#") or line == f"-r {LOCK.name}":
            continue
        block, digest = _BLOCK.match(line), _HASH.match(line)
        if block:
            found.append(Package(block["name"], block["version"], block["marker"] or "", ()))
        elif digest and found:
            last = found.pop()
            found.append(Package(last.name, last.version, last.marker, (*last.hashes, digest["hash"])))
        else:
            raise LockError(f"Line {number} of the lock file is no version with hashes: `{line[:120]}`.")
    without = [one.name for one in found if not one.hashes]
    if without:
        raise LockError(f"The lock file has no hash for {', '.join(without)}.")
    return found


def covered(text: str) -> set[tuple[str, str, str]]:
    """Return the environments whose wheels `make lock` has found: system, processor, version of Python."""
    return set(_covered(text))


def _covered(text: str) -> Iterator[tuple[str, str, str]]:
    for line in text.splitlines():
        if line.startswith(COVERS):
            system, processor, *versions = line.removeprefix(COVERS).split()
            for version in versions:
                yield system, processor, version


def here() -> tuple[str, str, str]:
    """Return the environment of this interpreter, as `covered` writes it."""
    return sys.platform, platform.machine(), f"{sys.version_info.major}.{sys.version_info.minor}"
