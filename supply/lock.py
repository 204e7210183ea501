"""Renew the lock files: `python -m supply.lock [--upgrade]`, after every change of a range.

There is one resolution for all systems and versions of Python, so that both files agree. Versions that
still fit stay; `--upgrade` takes the newest. An environment is covered if every package has a wheel for it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from supply import locked, requirements

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {  # system and processor: what uv calls the oldest system that all wheels run on
    ("linux", "x86_64"): "x86_64-manylinux_2_34",
    ("linux", "aarch64"): "aarch64-manylinux_2_34",
    ("darwin", "arm64"): "aarch64-apple-darwin",
}
OLDEST_MACOS = "14.0"


class ResolutionError(Exception):
    """What uv says when no versions fit."""


def _compile(wanted: str, output: Path, *options: str) -> None:
    command = [
        *("uv", "pip", "compile", "-", "-o", str(output), "--quiet", "--no-build"),
        *("--no-python-downloads", "--no-header", "--no-annotate", *options),
    ]
    environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": OLDEST_MACOS}
    done = subprocess.run(
        command, input=wanted, env=environment, cwd=output.parent, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ResolutionError(done.stderr.strip())


def _resolve(wanted: str, kept: str, *options: str) -> str:
    """Return the lock file of `wanted`: versions of `kept` that fit stay."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out.txt"
        output.write_text(kept)
        oldest = ("--universal", "--python-version", PYTHONS[0], "--generate-hashes")
        _compile(wanted, output, *oldest, *options)
        return output.read_text()


def _coverage(text: str) -> Iterator[str]:
    """Yield a line per platform: the versions of Python for which every package of `text` has a wheel."""
    for (system, processor), platform in PLATFORMS.items():
        versions, why = [], ""
        for version in PYTHONS:
            with tempfile.TemporaryDirectory() as folder:
                output = Path(folder) / "out.txt"
                try:
                    _compile(text, output, "--python-platform", platform, "--python-version", version)
                except ResolutionError as error:
                    why = str(error)
                else:
                    versions.append(version)
        if why:
            print(f"{system} {processor}: not every version of Python is covered.\n{why}", file=sys.stderr)
        if versions:
            yield f"{locked.COVERS}{system} {processor} {' '.join(versions)}"


def lock_files(kept: str, *options: str) -> Mapping[Path, str]:
    """Return the texts of both lock files.

    Args:
        kept: text of the present lock files: its versions are kept where they fit.
        options: further options of `uv pip compile`.

    Raises:
        ResolutionError: no versions fit the ranges.
    """
    everything = _resolve(requirements.as_text(requirements.tools()), kept, *options)
    names = {
        one.name
        for one in locked.packages(_resolve(requirements.as_text(requirements.running()), everything))
    }
    both = locked.packages(everything)
    running = "\n".join(one.text for one in both if one.name in names) + "\n"
    tools = "\n".join(one.text for one in both if one.name not in names) + "\n"
    made = "# Made by `make lock`: do not edit. "
    run_head = [
        made + "`make run` installs exactly these files; elsewhere it takes requirements.txt.",
        *_coverage(running),
    ]
    tools_head = [
        made + "`make setup` installs these besides; elsewhere it takes requirements-dev.txt.",
        *_coverage(running + tools),
        f"-r {locked.LOCK.name}",
    ]
    return {
        locked.LOCK: "\n".join([*run_head, running]),
        locked.TOOLS_LOCK: "\n".join([*tools_head, tools]),
    }


def main() -> int:
    """Write both lock files, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions within the ranges")
    upgrade = ("--upgrade",) if parser.parse_args().upgrade else ()
    kept = "".join(
        one.text + "\n"
        for path in (locked.LOCK, locked.TOOLS_LOCK)
        if path.exists()
        for one in locked.packages(path.read_text())
    )
    try:
        files = lock_files(kept, *upgrade)
    except ResolutionError as error:
        print(f"No versions fit the ranges, so the lock files are unchanged.\n{error}", file=sys.stderr)
        return 1
    for path, text in files.items():
        path.write_text(text)
        print(f"{path.name}: {len(locked.packages(text))} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
