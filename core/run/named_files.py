"""Files named by a configuration: list, check against allowed folders, write into exports.

Pure except for reading paths. `expert` passes names on that ORTune has no table for. Heuristics judge those:
a key that mentions files, or a value that looks like a path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.spec import SessionSpec, TrialSpec
from core.spec.settings import KNOWN_CONFIG_ENTRIES, PROVIDER_OPTIONS, SETTINGS
from core.store import home
from core.wire import variables
from core.wire.access import is_inside
from core.wire.errors import SpecError
from core.wire.files import ROOT, expand_home

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


def open_folders() -> list[Path]:
    """ORTune's own folders: its models, its home and its samples."""
    roots = [home(), ROOT / "sample_models"]
    if named := os.environ.get(variables.MODELS):
        roots.insert(0, expand_home(named))
    return [root.resolve() for root in roots]


def named_files(session: SessionSpec) -> Iterator[tuple[str, str]]:
    """Yield (setting, path) for every file, folder or library that the settings name."""
    for key, value in session.session_config_entries.items():
        yield from ((key, part) for part in _paths_of_entry(key, value))
    own = {setting.name for setting in SETTINGS if setting.target == "run_entry"}
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


def check_named_files(session: SessionSpec, folders: Sequence[Path]) -> None:
    """Refuse settings that make ONNX Runtime touch a file outside of `folders`, whether it exists or not.

    Raises:
        SpecError: such a setting, also with `expert`; a relative path counts from the current folder.
    """
    for setting, text in named_files(session):
        if not is_inside(Path(text), folders):
            raise SpecError(
                f"`{setting}` is `{text[:200]}`, which is outside the allowed folders.",
                hint=f"Choose a file in {' or '.join(f'`{folder}`' for folder in folders)}.",
            )


# --- paths in exported files --------------------------------------------------------------------------------


def with_relative_paths(spec: TrialSpec, folders: Sequence[Path]) -> TrialSpec:
    """Return a spec without absolute paths of its model, inputs and dataset.

    A file in ORTune's folder or in one of `folders` gets a path relative to it, which `with_full_paths`
    reverses; a model is found by its hash, so its name is enough.
    """
    model = spec.model.model_copy(update={"path": _relative(spec.model.path, ())})
    found = spec.model_copy(update={"model": model})
    if Path(spec.workload.feeds).is_absolute():
        fed = {"feeds": _relative(spec.workload.feeds, folders)}
        found = found.model_copy(update={"workload": spec.workload.model_copy(update=fed)})
    if spec.dataset is not None:
        data = {"path": _relative(spec.dataset.path, folders)}
        found = found.model_copy(update={"dataset": spec.dataset.model_copy(update=data)})
    return found


def _relative(text: str, folders: Sequence[Path]) -> str:
    path = Path(text)
    if not path.is_absolute():
        return text
    for root in (ROOT, *folders):
        if path.is_relative_to(root):
            return str(path.relative_to(root))
    return path.name


def with_full_paths(spec: TrialSpec) -> TrialSpec:
    """Return a spec with full paths of inputs and dataset: the inverse of `with_relative_paths`."""
    workload, data = spec.workload, spec.dataset
    found = spec.model_copy(
        update={"workload": workload.model_copy(update={"feeds": _full_path(workload.feeds)})}
    )
    if data is None:
        return found
    return found.model_copy(update={"dataset": data.model_copy(update={"path": _full_path(data.path)})})


def _full_path(text: str) -> str:
    """The path in ORTune's folders, unless the text already names a file."""
    path = expand_home(text)
    try:
        if text == "random" or path.is_absolute() or path.exists() or (ROOT / path).exists():
            return text
        inside = ((root, (root / path).resolve()) for root in open_folders())
        return next((str(one) for root, one in inside if one.is_relative_to(root) and one.exists()), text)
    except (OSError, ValueError):  # the text is no valid path
        return text
