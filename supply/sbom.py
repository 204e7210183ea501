"""Write the bill of materials of what ORTune requires: `python -m supply.sbom FILE`, CycloneDX 1.6 as JSON.

It describes this environment: the locked versions, as installed, with the hashes of their files, their
licences, and what each requires. The same environment gives the same file: it holds no time and no random
number. Addresses are package URLs, so the file names no server.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import uuid
from email.message import Message
from pathlib import Path
from typing import Any, cast

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name

import core
from supply import licences, locked, requirements


class NotAsLocked(Exception):
    """The environment has another version than the lock file; what to do."""


def document() -> dict[str, Any]:
    """Return the bill of materials.

    Raises:
        NotAsLocked: a distribution is missing, or has another version.
    """
    try:
        distributions = licences.required(requirements.running())
    except importlib.metadata.PackageNotFoundError as error:
        raise NotAsLocked(f"{error.name} is not installed. Install ORTune with `make run`.") from None
    files = {(one.name, one.version): one.hashes for one in locked.packages(locked.LOCK.read_text())}
    components = []
    for name, distribution in sorted(distributions.items()):
        hashes = files.get((name, distribution.version))
        if not hashes:
            raise NotAsLocked(f"{name} {distribution.version} is not locked. Install ORTune with `make run`.")
        components.append(_component(name, distribution, hashes))
    itself = _itself()
    needs = {canonicalize_name(one.name) for one in requirements.running()} & set(distributions)
    by_name = {name: _purl(name, one.version) for name, one in distributions.items()}
    content = {
        "metadata": {"component": itself},
        "components": components,
        "dependencies": [
            {"ref": itself["bom-ref"], "dependsOn": sorted(by_name[one] for one in needs)},
            *(
                {"ref": by_name[name], "dependsOn": _needed(one, by_name)}
                for name, one in sorted(distributions.items())
            ),
        ],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        **content,
    }


def _itself() -> dict[str, Any]:
    purl = _purl("ortune", core.__version__)
    licence = [{"expression": "Apache-2.0"}]
    return {
        "type": "application",
        "bom-ref": purl,
        "name": "ortune",
        "version": core.__version__,
        "licenses": licence,
        "purl": purl,
    }


def _component(
    name: str, distribution: importlib.metadata.Distribution, hashes: tuple[str, ...]
) -> dict[str, Any]:
    purl = _purl(name, distribution.version)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": distribution.version,
        "licenses": _licences(name, cast(Message, distribution.metadata)),
        "purl": purl,
        "externalReferences": [
            {
                "type": "distribution",
                "url": purl,
                "comment": "SHA-256 of each file of this version: one per platform",
                "hashes": [{"alg": "SHA-256", "content": one} for one in hashes],
            }
        ],
    }


def _licences(name: str, about: Message) -> list[dict[str, Any]]:
    try:
        statements = licences.stated(about)
    except licences.UnknownLicence:
        return [{"license": {"name": licences.BY_NAME.get(name, "not stated")}}]
    if len(statements) == 1:
        try:
            return [{"expression": str(canonicalize_license_expression(statements[0]))}]
        except InvalidLicenseExpression:
            pass
    return [{"license": {"name": statement}} for statement in statements]


def _needed(distribution: importlib.metadata.Distribution, by_name: dict[str, str]) -> list[str]:
    found = licences.direct(distribution)
    return sorted(by_name[name] for name in found if name in by_name)


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version.replace('+', '%2B')}"


def main() -> int:
    """Write the file, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, metavar="FILE")
    path: Path = parser.parse_args().file
    try:
        made = document()
        path.write_text(json.dumps(made, indent=1) + "\n")
    except (NotAsLocked, OSError) as error:
        print(f"No bill of materials was written: {error}", file=sys.stderr)
        return 1
    print(f"{path}: {len(made['components'])} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
