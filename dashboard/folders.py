"""Checks which files of the server a path from the browser, typed or imported, may name."""

from __future__ import annotations

import os
from pathlib import Path

from core.api.references import check_named_files, named_files, open_folders
from core.spec import TrialSpec
from core.store import Store, home
from core.wire.access import expert_allowed, is_inside
from core.wire.errors import ModelError, PrivateError, SpecError
from core.wire.files import ROOT
from core.wire.variables import ALLOW_EXPERT, OPEN_FOLDERS
from dashboard.server import people
from dashboard.server.people import Person

# Folders of ORTune's home that visitors who log in may name: kept uploads, the library, and the bundle that a
# verification has unpacked. The rest holds logins, the audit log and results.
_OF_VISITORS = ("datasets", "feeds", "pt2", "models", "cache/bundles")


def _folders() -> list[Path]:
    """The folders that visitors of this server may name, resolved.

    A models folder around the home would open all of the home, so with a login it does not count.
    """
    if not people.has_login():
        return open_folders()
    own = home().resolve()
    others = [root for root in open_folders() if not own.is_relative_to(root)]
    return [*others, *(own / name for name in _OF_VISITORS)]


def restrict_workers() -> None:
    """Restrict workers of this process to the allowed folders when a data file names further files."""
    os.environ[OPEN_FOLDERS] = os.pathsep.join(map(str, _folders()))


def allowed_path(typed: str, store: Store, *, folder: bool = False) -> Path:
    """Return the file (or `folder`) that `typed` names; a relative path counts from ORTune's own folder.

    Args:
        typed: the path.
        store: of the person who names it.
        folder: it may also be a folder.

    Raises:
        ModelError: empty, missing, or outside of the allowed folders, symbolic links followed.
        PrivateError: it belongs to a model that is private to another person.
    """
    path = _path_if_allowed(typed, store)
    try:
        if path is not None and (path.is_file() or (folder and path.is_dir())):
            return path
    except (OSError, ValueError):  # too long, or a zero byte
        pass
    raise ModelError(f"There is no file `{typed[:200]}`.", hint="Check the path, or upload the file.")


def _path_if_allowed(typed: str, store: Store) -> Path | None:
    """Return the path in the allowed folders that `typed` names, existing or not; None: it is no path."""
    if not typed:
        raise ModelError("No path is given.", hint="Write the path of a file on the server.")
    roots = _folders()
    try:
        path = (ROOT / Path(typed).expanduser()).resolve()
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, or a home that does not exist
        return None
    if not is_inside(path, roots):
        raise ModelError(
            f"`{typed[:200]}` is outside the folders that this server allows.",
            hint=f"Use a file under {' or '.join(f'`{root}`' for root in roots)}, or upload it.",
        )
    _refuse_private(path, store)
    return path


def _refuse_private(path: Path, store: Store) -> None:
    """Refuse a path, symbolic links followed, that is or holds a file of another person's private model."""
    if store.actor.sees_all:
        return
    library, path = (home() / "models").resolve(), path.resolve()
    inside = path.relative_to(library).parts if path.is_relative_to(library) else ()
    store.refuse_hidden([str(path), *inside[:1]])  # each model has a folder named by its content hash
    if path == library:
        raise PrivateError(
            f"`{path}` holds the models of all persons.",
            hint="Name the folder of one model, or a file in it.",
        )


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


def check_spec(spec: TrialSpec, store: Store) -> None:
    """Refuse a finished spec that names what this server does not open to the browser; ignores its model.

    Args:
        spec: a configuration.
        store: of the person who asks for it.

    Raises:
        SpecError: `expert` where the operator does not allow it, or a setting that names a file elsewhere.
        ModelError: input files that are missing or lie elsewhere, or a dataset that lies elsewhere.
        PrivateError: it names a file of a model that is private to another person.
    """
    if spec.session.expert and not expert_allowed():
        raise SpecError(
            "`expert` is off on this server.",
            hint=f"Turn it off, or ask the server's operator to start it with {ALLOW_EXPERT}=1.",
        )
    check_named_files(spec.session, _folders())
    for _, text in named_files(spec.session):
        _refuse_private(Path(text), store)
    if spec.workload.feeds != "random":
        allowed_path(spec.workload.feeds, store, folder=True)
    if spec.dataset is not None:
        _path_if_allowed(
            spec.dataset.path, store
        )  # a measurement does not read the dataset, so it may be missing
