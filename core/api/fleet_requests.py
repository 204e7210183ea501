"""Command lines for hosts: which arguments name files of the client, and how these files reach a host.

A model travels with its external data by content hash. A YAML file and a trial of the client travel as the
text of a YAML file, whose model becomes the model of the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.api.references import config_from
from core.api.session import Session
from core.evidence.fleet.fleet_types import COMMANDS, AskedModel, Command, Phase, Question
from core.run.fleet.on_host import FILE, TEXT
from core.run.fleet.parcels import Parcel
from core.run.fleet.requests import PreparedQuestion, parcel_of_file, parcel_of_model
from core.run.named_files import with_full_paths
from core.spec import spec_from_dict, yaml_from_spec
from core.spec.strict_yaml import dump_yaml, load_strict
from core.store.library import MODEL_SUFFIXES, resolve_model
from core.wire.engines import REFS
from core.wire.errors import SpecError, nearest
from core.wire.files import expand_home

_CONFIG_OPTIONS = ("--config", "--candidate", "--baseline")
_FILE_OPTIONS = ("--trace", "--feed", "--data")
_YAML = (".yaml", ".yml")
# options that write files, name rows of one store, or are set by the fleet itself
_REFUSED = {
    **dict.fromkeys(("--json", "--format", "--wide", "--quiet", "-q"), "the fleet sets the output itself"),
    **dict.fromkeys(("-o", "--output", "--record", "--log"), "its file would stay on the host"),
    **dict.fromkeys(("--continue", "--resume"), "it continues a result of one machine"),
    **dict.fromkeys(("--import", "--against"), "it reads a result of one machine"),
    "--dry-run": "a host only answers what it measured",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question as a user asks it."""

    command: str  # one of `COMMANDS`
    model: str  # what stands first on the command line: a model; a bundle or YAML file for some commands
    arguments: Sequence[str] = ()  # the rest of the command line
    phase: Phase = "ask"
    hosts: Sequence[str] = ()  # names; empty: all hosts of the run
    candidates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> configuration
    baseline: Mapping[str, Any] | None = None  # configuration that the candidates are compared with


def prepared(asked: Asked, number: int, session: Session) -> PreparedQuestion:
    """Return a question with its files.

    Raises:
        SpecError: an option makes no sense for a fleet, or a reference is invalid.
        ModelError: a model cannot be read.
        StoreError: a trial does not exist.
    """
    files = _Files(session)
    command = _command(asked.command)
    first, model = files.first(command, asked.model)
    arguments = files.arguments(list(asked.arguments))
    if asked.baseline is not None:
        arguments += ["--baseline", files.text("ort-default.yaml", _whole(asked.baseline, asked.model))]
    for name, spec in asked.candidates.items():
        arguments += ["--candidate", files.text(f"{name}.yaml", _whole(spec, asked.model))]
    question = Question(
        number=number,
        command=command,
        model=model,
        arguments=list(asked.arguments),
        phase=asked.phase,
        hosts=list(asked.hosts),
    )
    return PreparedQuestion(
        question=question,
        command=[command, first, *arguments, "--json"],
        texts=files.texts,
        parcels=files.parcels,
        paths=files.paths,
    )


def _whole(spec: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return a configuration as the data of a YAML file."""
    named = {**spec, "model": {**spec.get("model", {}), "path": model}}
    found: dict[str, Any] = load_strict(yaml_from_spec(spec_from_dict(named)))
    return found


def _command(name: str) -> Command:
    for one in COMMANDS:
        if one == name:
            return one
    raise SpecError(
        f"A fleet cannot be asked `{name[:80]}`.{nearest(name, COMMANDS)}",
        hint=f"Ask one of {', '.join(COMMANDS)}.",
    )


class _Files:
    """Collects the files of one command line."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._model = ""  # placeholder of the question's model
        self.texts: dict[str, str] = {}
        self.parcels: dict[str, Parcel] = {}
        self.paths: dict[str, str] = {}

    def first(self, command: Command, ref: str) -> tuple[str, AskedModel]:
        """Return the first argument for hosts, and what it is."""
        if command == "verify" and expand_home(ref).suffix.lower() not in _YAML:
            path = expand_home(ref).absolute()
            placeholder = self._add(parcel_of_file(path), path)
            return placeholder, AskedModel(
                name=path.name, sha256=placeholder.removeprefix(FILE), path=str(path)
            )
        if command in ("verify", "scorecard"):
            spec = config_from(ref, self._session.store)
            if not (spec.get("model") or {}).get("path"):
                raise SpecError(f"`{ref[:80]}` names no model.", hint="Give a YAML file or a trial with one.")
            model = self._of_model(spec["model"]["path"])
            return self._config(ref), model
        model = self._of_model(ref)
        return self._model, model

    def arguments(self, given: list[str]) -> list[str]:
        """Return the other arguments for hosts.

        Raises:
            SpecError: an option makes no sense for a fleet.
        """
        found, left = [], list(given)
        while left:
            token = left.pop(0)
            name, equals, value = token.partition("=")
            if name in _REFUSED:
                raise SpecError(f"`{name}` has no place here: {_REFUSED[name]}.", hint="Leave it out.")
            if name not in (*_CONFIG_OPTIONS, *_FILE_OPTIONS) or not (equals or left):
                found.append(token)
                continue
            value = value if equals else left.pop(0)
            made = self._config(value) if name in _CONFIG_OPTIONS else self._named_file(value)
            found += [name, made]
        return found

    def _of_model(self, ref: str) -> AskedModel:
        record = resolve_model(self._session.store, ref, run=self._session.inspect)
        self._model = self._add(parcel_of_model(record), Path(record.path))
        return AskedModel(name=record.name, sha256=record.content_sha256, path=record.path)

    def _add(self, parcel: Parcel, path: Path) -> str:
        self.parcels[parcel["sha256"]] = parcel
        self.paths[parcel["sha256"]] = str(path)
        return f"{FILE}{parcel['sha256']}"

    def _config(self, ref: str) -> str:
        """Return a configuration for hosts: a preset as it is, a model as a file, all others as YAML."""
        if ref.startswith(("preset:", TEXT)) or ref in REFS:
            return ref
        if ref.startswith(("model:", "variant:")) or ref.lower().endswith(MODEL_SUFFIXES):
            record = resolve_model(
                self._session.store,
                ref.removeprefix("model:").removeprefix("variant:"),
                run=self._session.inspect,
            )
            return self._add(parcel_of_model(record), Path(record.path))
        path = expand_home(ref)
        if path.suffix.lower() in _YAML:
            config_from(ref, self._session.store)  # checks it
            data = load_strict(path.read_text(encoding="utf-8"))
            return self.text(path.name, data)
        spec = with_full_paths(spec_from_dict(config_from(ref, self._session.store)))
        return self.text(f"trial-{ref[:12]}.yaml", load_strict(yaml_from_spec(spec)))

    def text(self, name: str, data: Mapping[str, Any]) -> str:
        """Add a YAML file whose model is the question's, and return its placeholder."""
        number, stem = 1, Path(name).stem
        while name in self.texts:
            number += 1
            name = f"{stem}-{number}.yaml"
        self.texts[name] = dump_yaml({**data, "model": {**(data.get("model") or {}), "path": self._model}})
        return f"{TEXT}{name}"

    def _named_file(self, value: str) -> str:
        """Return the value of an option that may name a file: `PATH`, `NAME=@PATH` or something else."""
        name, at, text = value.partition("=@")
        path = expand_home(text if at else value)
        try:
            if path.is_file():
                return f"{name}=@{self._file(path)}" if at else self._file(path)
            if path.is_dir() and not at:
                return str(path.absolute())  # a folder of data does not travel: every host needs it there
        except (OSError, ValueError):  # not a path
            pass
        return value

    def _file(self, path: Path) -> str:
        return self._add(parcel_of_file(path.absolute()), path.absolute())
