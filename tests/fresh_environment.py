"""An environment with a few distributions that are installed here, what they require, and nothing else."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

RUNTIME = ("onnxruntime-gpu", "onnxruntime")  # one of them brings `import onnxruntime`


def onnxruntime_distribution() -> str:
    """The distribution that `import onnxruntime` comes from here."""
    installed = {canonicalize_name(one.name) for one in importlib.metadata.distributions()}
    return next(name for name in RUNTIME if name in installed)


def with_requirements(names: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """The distributions `names` and all that they require here, without extras, as their metadata say."""
    found: dict[str, importlib.metadata.Distribution] = {}
    pending = [canonicalize_name(name) for name in names]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        for text in found[name].requires or []:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                pending.append(canonicalize_name(wanted.name))
    return found


def fresh_environment(folder: Path, names: Iterable[str]) -> Path:
    """Make an environment without pip in `folder`, link the distributions into it, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for one in with_requirements(names).values():
        for top in {file.parts[0] for file in one.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(one.locate_file(top))).resolve())
    return folder / "bin" / "python"
