"""Find settings that the installed ONNX Runtime does not know: it accepts unknown config entries silently.

An attribute exists or not. A config entry or an optimizer is known if its name is a literal of the
installed libraries. `spec.settings.config_entries` was made the same way; the check finds entries that a
version has dropped or does not have yet.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnxruntime as ort

from core import wire
from core.worker.session import ENUMS


def unknown_settings(plan: wire.SettingsPlan) -> wire.SettingsReply:
    """Return the names in `plan` that this ONNX Runtime does not know."""
    files = libraries()
    unknown = [name for name in plan["attributes"] if not hasattr(ort.SessionOptions, name)]
    unknown += [
        f"{name} {member}"
        for name, members in plan["enums"].items()
        for member in members
        if not hasattr(ENUMS[name], member)
    ]
    if files:
        unknown += missing_literals(plan["keys"], files)
        parts = {name: _longest_part(name) for name in plan["optimizers"]}
        lacking = set(missing_literals(list(parts.values()), files))
        unknown += [name for name, part in parts.items() if part in lacking]
    return {"version": str(ort.__version__), "searched": len(files), "unknown": unknown}


def _longest_part(name: str) -> str:
    """Return the longest part of a name, a literal: `Level1_RuleBasedTransformer` is composed at run time."""
    return max(name.split("_"), key=len)


def libraries() -> list[Path]:
    """Return ONNX Runtime's own shared libraries, including those of providers."""
    folder = Path(ort.__file__).parent / "capi"
    suffixes = (".so", ".pyd", ".dll", ".dylib")
    return sorted(
        one for one in folder.glob("*onnxruntime*") if any(part in suffixes for part in one.suffixes)
    )


def missing_literals(names: Sequence[str], files: Sequence[Path]) -> list[str]:
    """Return the `names` that occur in none of `files`."""
    left = list(names)
    for file in files:
        if not left:
            break
        with _mapped(file) as data:
            left = [name for name in left if data is None or data.find(name.encode()) < 0]
    return left


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap | None]:
    """Map the file's bytes without reading all of it; None if that fails."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    except (OSError, ValueError):  # unreadable or empty
        yield None
