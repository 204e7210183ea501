"""Settings that make ONNX Runtime read, write or load a file: which they are, and where such a file may lie.

Pure but for looking at paths. `expert` passes names on that ORTune has no table for, so those are judged by
how they look: a key that speaks of files, or a value that looks like a path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.spec import SessionSpec
from core.spec.knobs import KNOBS, KNOWN_CONFIG_ENTRIES, PROVIDER_OPTIONS
from core.store import home
from core.wire.doors import is_inside
from core.wire.errors import SpecError
from core.wire.files import ROOT, expanded

_PATH_ENTRIES = (
    "session.node_partition_config_file",  # written where it is missing
    "session.resource_cuda_partitioning_settings",  # a limit, then a file of statistics
    "ep.context_file_path",  # written
)
_PATH_OPTIONS = (
    "trt_engine_cache_path",
    "trt_onnx_model_folder_path",
    "trt_timing_cache_path",
    "trt_ep_context_file_path",
    "trt_extra_plugin_lib_paths",
    "trt_engine_decryption_lib_path",
)
_FILE_NAMES = ("trt_int8_calibration_table_name", "trt_engine_cache_prefix")  # within a folder set elsewhere
_FILE_WORDS = re.compile(r"path|file|folder|dir|lib|plugin|cache|config|table", re.IGNORECASE)
_PATH_MARKS = re.compile(r"[/\\]|^~|^\.\.?$")
_PLAIN = re.compile(r"-?[0-9.]*|true|false|yes|no|on|off", re.IGNORECASE)  # no file, whatever the key says


def open_folders() -> list[Path]:
    """Folders that belong to ORTune: that of the models it offers, its home and its samples."""
    roots = [home(), ROOT / "sample_models"]
    if named := os.environ.get("ORTUNE_MODELS"):
        roots.insert(0, expanded(named))
    return [root.resolve() for root in roots]


def named_files(session: SessionSpec) -> Iterator[tuple[str, str]]:
    """Yield (setting, path) for every file, folder or library that the settings name."""
    for key, value in session.session_config_entries.items():
        yield from ((key, part) for part in _paths_of_entry(key, value))
    own = {setting.name for setting in KNOBS if setting.target == "run_entry"}
    for key, value in session.run_config_entries.items():
        yield from ((key, part) for part in _paths_of_unknown(key, value) if key not in own)
    for provider in session.providers:
        for name, value in provider.options.items():
            yield from ((name, part) for part in _paths_of_option(provider.name, name, value))


def _paths_of_entry(key: str, value: str) -> list[str]:
    if key in _PATH_ENTRIES:
        return _parts(value)
    if key in KNOWN_CONFIG_ENTRIES or key in _OWN_ENTRIES:
        return []
    return _paths_of_unknown(key, value)


_OWN_ENTRIES = {setting.name for setting in KNOBS if setting.target == "config_entry"}


def _paths_of_option(provider: str, name: str, value: str) -> list[str]:
    if name in _PATH_OPTIONS:
        return _parts(value)
    if name in _FILE_NAMES:
        return [value] if _PATH_MARKS.search(value) else []
    if any(name == option.name for option in PROVIDER_OPTIONS.get(provider, ())):
        return []
    return _paths_of_unknown(name, value)


def _paths_of_unknown(key: str, value: str) -> list[str]:
    if _FILE_WORDS.search(key):
        return _parts(value)
    return _parts(value) if any(_PATH_MARKS.search(part) for part in _parts(value)) else []


def _parts(value: str) -> list[str]:
    """The paths of a list; a separator inside a path would only make the check stricter."""
    parts = (part.strip() for part in re.split(rf"[;,{re.escape(os.pathsep)}]", value))
    return [part for part in parts if not _PLAIN.fullmatch(part)]


def check_named_files(session: SessionSpec, folders: Sequence[Path]) -> None:
    """Refuse settings that make ONNX Runtime touch a file outside of `folders`, whether it exists or not.

    Raises:
        SpecError: such a setting, also with `expert`; a relative path counts from the current folder.
    """
    for setting, text in named_files(session):
        if not is_inside(Path(text), folders):
            raise SpecError(
                f"`{setting}` names `{text[:200]}`, which is outside of the folders that are open.",
                hint=f"Name a file under {' or '.join(f'`{folder}`' for folder in folders)}.",
            )
