"""Checks which files of the server a path from the browser, typed or imported, may name."""

from __future__ import annotations

import os
from pathlib import Path

from core.api.references import check_named_files, open_folders
from core.spec import TrialSpec
from core.wire.access import expert_allowed, is_inside
from core.wire.errors import ModelError, SpecError
from core.wire.files import ROOT
from core.wire.variables import ALLOW_EXPERT, OPEN_FOLDERS
from dashboard.server.people import Person


def restrict_workers() -> None:
    """Restrict workers of this process to the allowed folders when a data file names further files."""
    os.environ[OPEN_FOLDERS] = os.pathsep.join(map(str, open_folders()))


def allowed_path(typed: str, *, folder: bool = False) -> Path:
    """Return the file (or `folder`) that `typed` names; a relative path counts from ORTune's own folder.

    Raises:
        ModelError: empty, missing, or outside of the allowed folders, symbolic links followed.
    """
    path = _path_if_allowed(typed)
    try:
        if path is not None and (path.is_file() or (folder and path.is_dir())):
            return path
    except (OSError, ValueError):  # too long, or a zero byte
        pass
    raise ModelError(f"There is no file `{typed[:200]}`.", hint="Check the path, or upload the file.")


def _path_if_allowed(typed: str) -> Path | None:
    """Return the path in the allowed folders that `typed` names, existing or not; None: it is no path."""
    if not typed:
        raise ModelError("No path is given.", hint="Write the path of a file on the server.")
    roots = open_folders()
    try:
        path = (ROOT / Path(typed).expanduser()).resolve()
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, or a home that does not exist
        return None
    if not is_inside(path, roots):
        raise ModelError(
            f"`{typed[:200]}` is outside the folders that this server allows.",
            hint=f"Use a file under {' or '.join(f'`{root}`' for root in roots)}, or upload it.",
        )
    return path


def check_role(spec: TrialSpec, person: Person) -> None:
    """Refuse a finished spec that needs another role than that of this person.

    Raises:
        SpecError: it loads native libraries, and the person is no admin.
    """
    if spec.session.libraries and not person.may_act_as("admin"):
        raise SpecError(
            f"A configuration with native libraries needs the role admin. Your role is {person.role}.",
            hint="Remove the libraries, or ask an admin of this server.",
        )


def check_spec(spec: TrialSpec) -> None:
    """Refuse a finished spec that names what this server does not open to the browser; ignores its model.

    Raises:
        SpecError: `expert` where the operator does not allow it, or a setting that names a file elsewhere.
        ModelError: input files that are missing or lie elsewhere, or a dataset that lies elsewhere.
    """
    if spec.session.expert and not expert_allowed():
        raise SpecError(
            "`expert` is off on this server.",
            hint=f"Turn it off, or ask the server's operator to start it with {ALLOW_EXPERT}=1.",
        )
    check_named_files(spec.session, open_folders())
    if spec.workload.feeds != "random":
        allowed_path(spec.workload.feeds, folder=True)
    if spec.dataset is not None:
        _path_if_allowed(spec.dataset.path)  # a measurement does not read the dataset, so it may be missing
