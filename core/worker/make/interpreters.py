"""Python interpreters and their environments: what they are, and what is installed in them.

Standard library only. An interpreter is asked by a process of its own, without the user's packages.
"""

from __future__ import annotations

import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, TypedDict

from core.wire.errors import SpecError, nearest

OLDEST = (3, 10)
ASK_S = 60.0  # an interpreter on a slow network disk needs seconds
CHOOSE = "Choose a CPython of version 3.10 or newer, for example /usr/bin/python3."
_ASK = """
import json, os, platform, struct, sys, sysconfig
try:
    from importlib import metadata
    found = {(one.metadata["Name"] or "").lower(): one.version for one in metadata.distributions()}
except ImportError:
    found = {}
print("\\n" + json.dumps({
    "python": sys.executable, "version": list(sys.version_info[:3]), "bits": 8 * struct.calcsize("P"),
    "machine": platform.machine(), "implementation": platform.python_implementation(),
    "libraries": sorted({sysconfig.get_path(one) for one in ("purelib", "platlib")}), "versions": found,
}))
"""


class Interpreter(TypedDict):
    """Facts of an interpreter and its environment."""

    python: str  # path of the program, links kept
    version: list[int]
    bits: int
    machine: str
    implementation: str
    libraries: list[str]  # folders of installed packages
    versions: dict[str, str]  # distribution in lower case -> version


def foreign_environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """Return the variables for a program of another environment: nothing of this one's Python."""
    own = ("PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX", "ORTUNE_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(own)}
    return {**kept, "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", **(more or {})}


def ask(python: str) -> Interpreter:
    """Return the facts of the interpreter `python`.

    Raises:
        SpecError: it is none, is too old, or is made for another processor.
    """
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_S,
            env=foreign_environment(),
            check=False,
        )
        found: Interpreter = json.loads(done.stdout.splitlines()[-1])
        _check(python, found)
    except subprocess.TimeoutExpired:
        raise SpecError(f"`{python}` did not answer within {ASK_S:.0f} s.", hint=CHOOSE) from None
    except OSError as error:
        raise _unusable(python, error) from None
    except SpecError:  # a ValueError, too
        raise
    except (ValueError, IndexError, TypeError, KeyError):  # another program's words
        raise SpecError(f"`{python}` is no Python interpreter of version 3.", hint=CHOOSE) from None
    return found


def _unusable(python: str, error: OSError) -> SpecError:
    """The error for a program that cannot be started."""
    if isinstance(error, FileNotFoundError) and not os.path.lexists(python):
        beside = [str(one) for one in Path(python).parent.glob("python3*")]
        return SpecError(f"There is no interpreter `{python}`.{nearest(python, beside)}", hint=CHOOSE)
    if Path(python).is_dir():
        return SpecError(
            f"`{python}` is a folder, no interpreter.", hint="Name the program in it, such as bin/python."
        )
    return SpecError(f"`{python}` cannot be started: {error.strerror or error}.", hint=CHOOSE)


def _check(python: str, found: Interpreter) -> None:
    version = ".".join(map(str, found["version"]))
    if tuple(found["version"]) < OLDEST:
        raise SpecError(f"A runtime needs Python 3.10 or newer, but `{python}` is {version}.", hint=CHOOSE)
    if found["implementation"] != "CPython":
        raise SpecError(
            f"A runtime needs CPython, but `{python}` is {found['implementation']} {version}.", hint=CHOOSE
        )
    own = (platform.machine(), 8 * struct.calcsize("P"))
    if (found["machine"], found["bits"]) != own:
        raise SpecError(
            f"`{python}` is made for {found['machine']} with {found['bits']} bits, but ORTune runs on "
            f"{own[0]} with {own[1]} bits.",
            hint="Choose an interpreter for the same processor.",
        )


def own_base() -> str:
    """Return the interpreter that this environment was made with."""
    return getattr(sys, "_base_executable", sys.executable) or sys.executable


def size_of(folders: list[str]) -> int:
    """Return the bytes of all files below `folders`; what cannot be read counts as nothing."""
    total, waiting = 0, list(folders)
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for one in entries:
                    if one.is_dir(follow_symlinks=False):
                        waiting.append(one.path)
                    else:
                        total += _size(one)
        except OSError:
            continue
    return total


def _size(one: Any) -> int:
    try:
        return int(one.stat(follow_symlinks=False).st_size)
    except OSError:
        return 0
