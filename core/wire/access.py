"""Access rules: allowed folders and operator switches.

The operator may allow one folder of native libraries (`ORTUNE_ALLOW_LIBRARIES`) with custom operators and
execution providers. A configuration gives a file name, never a path; only workers load the libraries.

Parent and workers use this module. The parent checks settings and paths against the allowed folders; a worker
checks paths inside data (the lines of a CSV, links in a folder) against the folders in its environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.wire.errors import SpecError, nearest
from core.wire.files import keys_folder, open_regular, sha256_of
from core.wire.variables import ALLOW_EXPERT, ALLOW_LIBRARIES, ALLOW_RUNTIMES, OPEN_FOLDERS


def expert_allowed() -> bool:
    """Whether the operator allows `expert` for every request: $ORTUNE_ALLOW_EXPERT is 1, true, yes or on."""
    return _is_on(ALLOW_EXPERT)


def runtimes_allowed() -> bool:
    """Whether the operator lets visitors of the dashboard add and remove runtimes."""
    return _is_on(ALLOW_RUNTIMES)


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true", "yes", "on")


def folders_of_this_process() -> list[Path] | None:
    """Return the folders that data may be read from, resolved; None: no restriction is set."""
    text = os.environ.get(OPEN_FOLDERS, "")
    return [Path(one).resolve() for one in text.split(os.pathsep) if one] if text else None


def is_inside(path: Path, folders: Iterable[Path]) -> bool:
    """True when `path`, symbolic links followed, lies in one of `folders`, which must be resolved.

    The folder of private keys belongs to none.
    """
    try:
        real = path.resolve()
        if real.is_relative_to(keys_folder().resolve()):
            return False
    except (OSError, RuntimeError, ValueError):  # a loop of links, a zero byte
        return False
    return any(real.is_relative_to(folder) for folder in folders)


def check_files(files: Sequence[Path], *, within: Path | None = None) -> None:
    """Refuse files outside the allowed folders, if this process is restricted to folders.

    Args:
        files: found in a folder, or named inside a file.
        within: they must lie in this folder; None: in one of the allowed ones.

    Raises:
        SpecError: a file lies outside, symbolic links followed.
    """
    folders = folders_of_this_process()
    if folders is None:
        return
    allowed = folders if within is None else [within.resolve()]
    outside = next((file for file in files if not is_inside(file, allowed)), None)
    if outside is not None:
        where = "the folders that this server allows" if within is None else f"`{within}`"
        raise SpecError(
            f"The data lead to `{outside}`, which is outside of {where}.",
            hint="Put the files themselves there, without links to other places.",
        )


# --- libraries of native code -------------------------------------------------------------------------------

_NAMED = re.compile(r"(?P<name>[^@\0]{1,255}?)(?:@sha256:(?P<sha256>[0-9a-f]{64}))?")
_FIRST_BYTES = (
    b"\x7fELF",  # Linux
    *(b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe"),  # macOS
    b"MZ",  # Windows
)
_SUFFIXES = (".so", ".dylib", ".dll")


@dataclass(frozen=True, slots=True)
class Library:
    """A native library of a configuration: a file in the operator's folder, and its hash once known."""

    name: str  # relative to the folder
    sha256: str = ""  # empty: any content

    def __str__(self) -> str:
        """Its text in a configuration."""
        return f"{self.name}@sha256:{self.sha256}" if self.sha256 else self.name


def library_note(name: str, sha256: str) -> str:
    """Return the note in a result that a library ran."""
    return f"The library `{name}` ran native code that is not part of ONNX Runtime (SHA-256 {sha256})."


def library(text: str) -> Library:
    """Read `libops.so`, or `libops.so@sha256:…` with all 64 digits.

    Raises:
        SpecError: the text has another form.
    """
    match = _NAMED.fullmatch(text.strip())
    if match is None or not match["name"].strip():
        raise SpecError(
            f"A library must be a name, or a name with `@sha256:` and 64 digits in lower case, but got "
            f"`{text[:120]}`.",
            hint="Write for example `libmyops.so`.",
        )
    path = Path(match["name"])
    if path.is_absolute() or ".." in path.parts or "\\" in match["name"]:
        raise SpecError(
            f"A library must be named relative to the allowed folder, but got `{match['name'][:120]}`.",
            hint=f"Put the file into the folder in {ALLOW_LIBRARIES}, and write its name alone.",
        )
    return Library(match["name"], match["sha256"] or "")


def libraries_folder() -> Path | None:
    """The folder that libraries may be loaded from, resolved; None: the operator allows none."""
    text = os.environ.get(ALLOW_LIBRARIES, "").strip()
    return Path(text).expanduser().resolve() if text else None


def available_libraries() -> list[str]:
    """Names of the files in the folder that look like libraries; empty: none are allowed."""
    folder = libraries_folder()
    if folder is None:
        return []
    try:
        files = sorted(file for file in folder.rglob("*") if _looks_like_library(file))[:_MOST_OFFERED]
    except OSError:
        return []
    return [file.relative_to(folder).as_posix() for file in files if is_inside(file, [folder])]


_MOST_OFFERED = 200


def _looks_like_library(file: Path) -> bool:
    return bool(set(file.suffixes) & set(_SUFFIXES)) and file.is_file()


def resolve_library(text: str) -> tuple[Path, Library]:
    """Return the file of a library, links followed, and its name with the hash of the content.

    Raises:
        SpecError: libraries are not allowed; the file is missing, lies outside the folder or is no library;
            or its hash is not the recorded one.
    """
    asked, folder = library(text), libraries_folder()
    if folder is None:
        raise SpecError(
            f"`{asked.name}` is a native library, but no folder of native libraries is allowed here.",
            hint=f"Put the library into a folder, and start ORTune with {ALLOW_LIBRARIES}=FOLDER.",
        )
    path = folder / asked.name
    if not is_inside(path, [folder]):
        raise SpecError(
            f"`{asked.name}` leads out of `{folder}`, the folder in {ALLOW_LIBRARIES}.",
            hint="Put the library itself there, without links to other places.",
        )
    real = path.resolve()
    sha256 = _hash_of(real, asked.name, folder)
    if asked.sha256 and asked.sha256 != sha256:
        raise SpecError(
            f"`{asked.name}` is another library: its SHA-256 begins with `{sha256[:12]}`, but the "
            f"configuration asks for `{asked.sha256[:12]}`.",
            hint="Use the library of the measurement, or remove `@sha256:…` from its name.",
        )
    return real, Library(asked.name, sha256)


def _hash_of(path: Path, name: str, folder: Path) -> str:
    try:
        with open_regular(path) as file:
            first = file.read(max(map(len, _FIRST_BYTES)))
            file.seek(0)
            digest = sha256_of(file)
    except FileNotFoundError:
        raise SpecError(
            f"There is no library `{name}` in `{folder}`.{nearest(name, available_libraries())}",
            hint=f"Put it there, or start ORTune with its folder in {ALLOW_LIBRARIES}.",
        ) from None
    except OSError as error:
        raise SpecError(
            f"The library `{name}` cannot be read: {error.strerror or error}.", hint="Check the file."
        ) from None
    if not first.startswith(_FIRST_BYTES):
        raise SpecError(
            f"`{name}` is no shared library: it has no header of one.",
            hint="Choose a shared library: `.so`, `.dylib` or `.dll`.",
        )
    return digest
