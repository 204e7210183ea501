"""Which settings name files: config entries and provider options that make ONNX Runtime read or write them.

Pure. `expert` passes names on that ORTune has no table for. Heuristics judge those: a key that mentions
files, or a value that looks like a path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from core.spec.settings import KNOWN_CONFIG_ENTRIES, PROVIDER_OPTIONS, SETTINGS

WRITTEN_FILES = (
    # new files that ONNX Runtime writes
    "session.node_partition_config_file",
    "session.collect_node_memory_stats_to_file",
    "ep.context_file_path",
    "trt_ep_context_file_path",
)
CACHE_FOLDERS = ("trt_engine_cache_path", "trt_timing_cache_path", "cache_dir", "CACHE_DIR")  # written
READ_FOLDERS = ("session.model_external_initializers_file_folder_path", "trt_onnx_model_folder_path")

_PATH_ENTRIES = (
    "session.node_partition_config_file",  # written where it is missing
    "session.resource_cuda_partitioning_settings",  # a limit, then a statistics file
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
_PLAIN = re.compile(r"-?[0-9.]*|true|false|yes|no|on|off", re.IGNORECASE)  # never a file, whatever the key


def named_paths(
    entries: Mapping[str, str],
    run_entries: Mapping[str, str],
    providers: Iterable[tuple[str, Mapping[str, str]]],
) -> Iterator[tuple[str, str]]:
    """Yield (setting, path) for every file, folder or library that the settings name.

    Args:
        entries: session config entries.
        run_entries: run config entries.
        providers: names of the execution providers, with their options.
    """
    for key, value in entries.items():
        yield from ((key, part) for part in _paths_of_entry(key, value))
    own = {setting.name for setting in SETTINGS if setting.target == "run_entry"}
    for key, value in run_entries.items():
        yield from ((key, part) for part in _paths_of_unknown(key, value) if key not in own)
    for provider, options in providers:
        for name, value in options.items():
            yield from ((name, part) for part in _paths_of_option(provider, name, value))


def _paths_of_entry(key: str, value: str) -> list[str]:
    if key in _PATH_ENTRIES:
        return _parts(value)
    if key in KNOWN_CONFIG_ENTRIES or key in _OWN_ENTRIES:
        return []
    return _paths_of_unknown(key, value)


_OWN_ENTRIES = {setting.name for setting in SETTINGS if setting.target == "config_entry"}


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
    """The paths of a list; a separator within a path only makes the check stricter."""
    parts = (part.strip() for part in re.split(rf"[;,{re.escape(os.pathsep)}]", value))
    return [part for part in parts if not _PLAIN.fullmatch(part)]
