"""Look up the locked versions in a database of known vulnerabilities: `python -m supply.audit`.

pip-audit sends each name and version to OSV. Exit code 1: a version has a known vulnerability. If OSV cannot
be reached, nothing is audited: the command says so, and its exit code is 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supply import locked

TIMEOUT_S = 15
UNREACHABLE = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ProxyError")  # of requests


class AuditError(Exception):
    """pip-audit failed for another reason than an unreachable database; its text."""


def lists(packages: Sequence[locked.Package]) -> list[str]:
    """Return texts of name and version that hold every locked version, none of them a name twice."""
    found: list[dict[str, str]] = []
    for one in packages:
        free = next((names for names in found if one.name not in names), None)
        if free is None:
            found.append(free := {})
        free[one.name] = one.version
    return ["".join(f"{name}=={version}\n" for name, version in names.items()) for names in found]


def audit(packages: Sequence[locked.Package], database: str = "") -> dict[str, list[str]] | None:
    """Return the vulnerable packages as `name version`, each with the names of its vulnerabilities.

    Args:
        packages: what is looked up.
        database: address of a server that answers as OSV; empty: OSV itself.

    Returns:
        None if the database could not be reached for all of them and what it answered names no vulnerability.

    Raises:
        AuditError: pip-audit failed for another reason.
    """
    found: dict[str, list[str]] = {}
    answers = [_audit_list(text, database) for text in lists(packages)]  # none has two versions of a package
    for one in answers:
        found |= one or {}
    return None if None in answers and not found else found


def _audit_list(text: str, database: str) -> dict[str, list[str]] | None:
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder) / "wanted.txt", Path(folder) / "report.json"
        wanted.write_text(text)
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(wanted), "-s", "osv"]
        command += ["--osv-url", database] if database else []
        command += ["--disable-pip", "--no-deps", "--format", "json", "--output", str(report)]
        command += ["--timeout", str(TIMEOUT_S), "--progress-spinner", "off", "--cache-dir", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if report.exists():
            return _vulnerable(json.loads(report.read_text()), done.returncode)
    if any(name in done.stderr for name in UNREACHABLE):
        return None
    raise AuditError(done.stderr.strip())


def _vulnerable(report: dict[str, Any], code: int) -> dict[str, list[str]]:
    skipped = [one["name"] for one in report["dependencies"] if "vulns" not in one]
    found = {
        f"{one['name']} {one['version']}": [_named(vulnerability) for vulnerability in one["vulns"]]
        for one in report["dependencies"]
        if one.get("vulns")
    }
    if skipped or bool(found) != bool(code):
        raise AuditError(
            f"pip-audit ended with code {code} and has not audited {', '.join(skipped) or 'all'}."
        )
    return found


def _named(vulnerability: dict[str, Any]) -> str:
    fixed = ", ".join(vulnerability["fix_versions"])
    return f"{vulnerability['id']} ({f'fixed in {fixed}' if fixed else 'no version without it'})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit both lock files, print what was found, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--database", default="", metavar="URL", help="a server that answers as OSV does")
    database: str = parser.parse_args(arguments).database
    packages = [one for path in (locked.LOCK, locked.TOOLS_LOCK) for one in locked.packages(path.read_text())]
    try:
        found = audit(packages, database)
    except AuditError as error:
        print(f"The audit failed, so nothing is known about vulnerabilities.\n{error}", file=sys.stderr)
        return 2
    if found is None:
        print(f"Database of vulnerabilities not reachable: {len(packages)} packages not audited.")
        return 0
    for package, vulnerabilities in sorted(found.items()):
        print(f"{package}: {', '.join(vulnerabilities)}")
    if found:
        print("Change the range, or run `make lock UPGRADE=--upgrade`.")
        return 1
    print(f"No known vulnerability in {len(packages)} packages.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
