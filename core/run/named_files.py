"""Files named by a configuration: list, check against allowed folders, write into exports.

Pure except for reading paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.spec import SessionSpec, TrialSpec
from core.spec.named_paths import named_paths
from core.store import home
from core.wire import variables
from core.wire.access import is_inside
from core.wire.errors import SpecError
from core.wire.files import ROOT, expand_home


def open_folders() -> list[Path]:
    """ORTune's own folders: its models, its home and its samples."""
    roots = [home(), ROOT / "sample_models"]
    if named := os.environ.get(variables.MODELS):
        roots.insert(0, expand_home(named))
    return [root.resolve() for root in roots]


def named_files(session: SessionSpec) -> Iterator[tuple[str, str]]:
    """Yield (setting, path) for every file, folder or library that the settings name."""
    return named_paths(
        session.session_config_entries,
        session.run_config_entries,
        ((one.name, one.options) for one in session.providers),
    )


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
