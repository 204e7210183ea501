"""Wheels of a few lines, built without tools: packages for environments that need no network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ONNXRUNTIME = """
__version__ = "1.30.0"
def get_build_info(): return "a tiny build"
def get_available_providers(): return ["CPUExecutionProvider"]
"""


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str], needs: Sequence[str] = ()) -> Path:
    """Write a wheel of pure Python with these files and requirements, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {one}" for one in needs),
    ]
    content = {
        **files,
        f"{about}/METADATA": "\n".join([*lines, ""]),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    listed = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in content.items()]
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in content.items():
            archive.writestr(inside, text)
        archive.writestr(f"{about}/RECORD", "\n".join([*listed, f"{about}/RECORD,,", ""]))
    return path


def index(folder: Path) -> Path:
    """Write numpy and two versions of ONNX Runtime that do no more than load, and return their folder."""
    for version in ("1.26.4", "2.4.0"):
        wheel(folder, "numpy", version, {"numpy/__init__.py": f"__version__ = '{version}'\n"})
    for version in ("1.18.0", "1.30.0"):
        wheel(folder, "onnxruntime", version, {"onnxruntime/__init__.py": ONNXRUNTIME}, ["numpy>=1.21"])
    wheel(folder, "onnxruntime-ep-tiny", "1.0", {"ort_ep_tiny/__init__.py": ""})
    return folder


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
