"""Install what ORTune requires into this interpreter's environment: `python -m supply.install [--tools]`.

It installs the locked versions and checks the hash of every file. Where the lock file does not cover the
environment, it installs from the ranges in requirements.txt, and says so. Standard library only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from supply import locked

_PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def commands(*, tools: bool, from_lock: bool) -> list[list[str]]:
    """Return the commands that install ORTune, or with `tools` what its development needs besides.

    Args:
        tools: the tools of development; ORTune itself is installed.
        from_lock: install locked versions and check hashes; else install from the ranges.
    """
    if from_lock:
        lock = locked.TOOLS_LOCK if tools else locked.LOCK
        # its build tool is locked, too: nothing unlocked is downloaded
        itself = [*_PIP, "--no-deps", "--no-build-isolation", "-e", str(locked.ROOT)]
        return [[*_PIP, "--require-hashes", "--no-deps", "-r", str(lock)], *([] if tools else [itself])]
    if tools:
        return [[*_PIP, "-r", str(locked.ROOT / "requirements-dev.txt")]]
    return [[*_PIP, "-r", str(locked.ROOT / "requirements.txt"), "-e", f"{locked.ROOT}[pytorch]"]]


def not_covered(lock: str, name: str, environment: tuple[str, str, str]) -> str:
    """Return why an environment does not install from the lock file, or an empty text.

    Args:
        lock: text of the lock file.
        name: its name.
        environment: system, processor and version of Python, as of `locked.here`.
    """
    if environment in locked.covered(lock):
        return ""
    system, processor, version = environment
    return (
        f"{name} does not cover Python {version} on {system} {processor}. "
        f"Installing from the ranges in {name.replace('.lock', '.txt')}; no hash is checked."
    )


def main() -> int:
    """Install, and return the exit code of pip."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tools", action="store_true", help="the tools of development, too")
    tools: bool = parser.parse_args().tools
    lock = locked.TOOLS_LOCK if tools else locked.LOCK
    reason = not_covered(lock.read_text(), lock.name, locked.here())
    print(reason or f"Installing the versions in {lock.name} and checking their hashes.", flush=True)
    for command in commands(tools=tools, from_lock=not reason):
        code = subprocess.run(command, check=False).returncode
        if code:
            print("Installation failed: pip says why above.", file=sys.stderr)
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
