"""What each job's worker may read and write: the rules of its sandbox, from the job and its plan.

`PATHS` names every field of a plan that holds a path, and what a worker does with it. A worker writes into
folders that were made for it alone: an output is written into a draft folder beside its target, and the
parent moves it there after the reply. So no worker can change another file of the target's folder.
"""

from __future__ import annotations

import contextlib
import os
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from core import wire
from core.process import scratch, worker_output
from core.process.model_files import Locations, external_files
from core.spec.named_paths import CACHE_FOLDERS, READ_FOLDERS, WRITTEN_FILES, named_paths
from core.wire import access, image_list, sandbox, variables
from core.wire.engines import ENGINES
from core.wire.errors import SpecError, unwritable
from core.wire.files import expand_home, home, installer_cache

Role = Literal[
    "model",  # read, with its external data
    "read",  # a file or folder to read
    "data",  # a data file or a folder; the files of a list, see `_add_listed`
    "output",  # a file to write
    "folder",  # an existing folder of this job, to read and write
    "new folder",  # a folder to make in an existing folder of this job
    "inside",  # in another folder of the plan
    "libraries",  # native libraries, by their names in the operator's folder
    "program",  # an interpreter
    "packages",  # requirements, some of which are paths of wheels
]

PATHS: Mapping[str, Mapping[str, Role]] = {
    "InspectPlan": {"path": "model"},
    "ExternalDataPlan": {"path": "read"},
    "LoadCheckPlan": {"path": "model", "custom_op_libraries": "libraries"},
    "ImportPlan": {"path": "read"},
    "SessionPlan": {"custom_op_libraries": "libraries", "provider_libraries": "libraries"},
    "FeedPlan": {"path": "data"},
    "TorchSource": {"path": "read"},
    "ContestantPlan": {"model_path": "model"},
    "ProfilePlan": {"model_path": "model", "trace_path": "output", "graph_path": "output"},
    "ReadProfilePlan": {"trace_path": "read", "graph_path": "read"},
    "TrafficPlan": {"record": "inside"},  # made before its worker, see `Workers.start`
    "OutputsPlan": {"path": "inside"},  # see `Worker.ask`
    "ExportPlan": {"path": "read", "output": "output"},
    "DatasetPlan": {"path": "data"},
    "TransformPlan": {
        "path": "model",
        "output": "output",
        "reference": "model",
        "custom_op_libraries": "libraries",
    },
    "AccuracyPlan": {"model_path": "model", "scores_path": "output"},
    "NodeErrorsPlan": {"float_path": "model", "quantized_path": "model", "custom_op_libraries": "libraries"},
    "PassPlan": {"folder": "folder", "optimized": "inside"},
    "PassReply": {"profile": "read"},
    "RecordedPasses": {"optimized": "read"},
    "NamedModelPlan": {"model_path": "model", "folder": "folder"},
    "ExplainPlan": {"output": "output"},
    "SamplesPlan": {"folder": "folder"},
    "AnswersPlan": {"outputs": "read"},
    "InstallPlan": {"folder": "new folder", "python": "program", "packages": "packages"},
    "GraphPlan": {"model_path": "model", "output": "output"},
    "SaveGraphPlan": {"model_path": "model", "graph_path": "output"},
    "SavedGraph": {"path": "read"},
}

PLANS: Mapping[str, Any] = {
    # request -> the type of its arguments; others name no file
    wire.INSPECT: wire.InspectPlan,
    wire.EXTERNAL_DATA: wire.ExternalDataPlan,
    wire.LOAD_CHECK: wire.LoadCheckPlan,
    wire.PROFILE: wire.ProfilePlan,
    wire.EXPORT: wire.ExportPlan,
    wire.TRANSFORM: wire.TransformPlan,
    wire.ACCURACY: wire.AccuracyPlan,
    wire.NODE_ERRORS: wire.NodeErrorsPlan,
    wire.EXPLAIN: wire.ExplainPlan,
    wire.PROFILED_PASS: wire.PassPlan,
    wire.NAMED_MODEL: wire.NamedModelPlan,
    wire.SAMPLES: wire.SamplesPlan,
    wire.ANSWERS: wire.AnswersPlan,
    wire.READ_PROFILE: wire.ReadProfilePlan,
    wire.INSTALL: wire.InstallPlan,
    wire.IMPORT: wire.ImportPlan,
    wire.GRAPH: wire.GraphPlan,
    wire.SAVE_GRAPH: wire.SaveGraphPlan,
    wire.LOADGEN: wire.LoadGenPlan,
    wire.LOAD: wire.ContestantPlan,
    wire.PREPARE_TRAFFIC: wire.TrafficPlan,
    wire.SAVE_OUTPUTS: wire.OutputsPlan,
    wire.COMPARE_OUTPUTS: wire.OutputsPlan,
}

_ON_CPU = frozenset(
    f"{name}ExecutionProvider" for name in ("CPU", "Dnnl", "Xnnpack", "ACL")
)  # those that need no device; unknown ones may
DRAFT = ".draft-"  # of the folders that workers write outputs into, beside the targets


# --- a job --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Confined:
    """A request with the rules of its worker; `publish` moves what the worker has written to its place."""

    payload: dict[str, Any]
    drafts: dict[Path, Path]  # folder that the worker writes into -> target
    scratch: str  # its folder for temporary files
    processes: bool  # whether it may start processes

    @property
    def folders(self) -> list[str]:
        """The folders that were made for this worker alone."""
        return [self.scratch, *map(str, self.drafts)]

    def publish(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Move the outputs to their targets, and return the reply with the targets' paths.

        Raises:
            WorkerError: the worker left something else than files with the names of its outputs.
            SpecError: a target cannot be written.
        """
        for folder, target in self.drafts.items():
            # the target last: it never exists without the files that it needs
            for entry in sorted(os.scandir(folder), key=lambda one: one.name == target.name):
                worker_output.publish(entry, target)
        folders = {str(folder): str(target.parent) for folder, target in self.drafts.items()}
        return marked(worker_output.renamed(reply, folders))


@contextlib.contextmanager
def confined(job: str, payload: Mapping[str, Any], folder: str, locations: Locations) -> Iterator[Confined]:
    """Yield the request of a job with the rules of its worker.

    Args:
        job: the name of the job.
        payload: its plan.
        folder: the worker's folder for temporary files; empty: none.
        locations: names the external data of a model, see `model_files`.

    Raises:
        SpecError: the folder of an output cannot be written.
        Cancelled: as `locations` raises it.
    """
    with contextlib.ExitStack() as ends:
        found = _Found(ends, locations, folder)
        sent = _visited(payload, PLANS[job], found) if job in PLANS else dict(payload)
        _add_needs(job, payload, found)
        drafts = {draft: target for draft, target in found.drafts}
        if not sandbox.is_off():
            sent = {**sent, sandbox.KEY: found.rules()}
        yield Confined(sent, drafts, folder, found.processes)


def marked(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reply whose notes say so where the operator runs workers without a sandbox."""
    if not (sandbox.is_off() and isinstance(reply.get("notes"), list)):
        return dict(reply)
    return {**reply, "notes": [*reply["notes"], sandbox.NOTE]}


def confined_load(
    plan: Mapping[str, Any], folder: str, locations: Locations, writes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the plan of a contestant that loads a configuration, with the rules of its worker.

    Args:
        plan: a `wire.LoadPlan`.
        folder: its own folder for temporary files.
        locations: names the external data of a model, see `model_files`.
        writes: further files that it writes.

    Raises:
        SpecError: a setting names a folder that no worker may write.
        Cancelled: as `locations` raises it.
    """
    with contextlib.ExitStack() as ends:
        found = _Found(ends, locations, folder)
        sent = _visited(plan, PLANS[wire.LOAD], found)
        found.writes += writes
        return {**sent, sandbox.KEY: found.rules()}


def fork_server_rules() -> sandbox.Rules:
    """Return the rules of a fork server, whose contestants restrict their files themselves."""
    return sandbox.rules(restricts_files=False, processes=True, gpu=True)


# --- from a plan to rules -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """What a plan needs, so far."""

    ends: contextlib.ExitStack  # removes the draft folders
    locations: Locations
    folder: str  # of the worker, for temporary files
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    drafts: list[tuple[Path, Path]] = field(default_factory=list)
    network: bool = False
    processes: bool = False
    attributes: bool = False
    gpu: bool = False

    def add(self, role: Role, value: Any) -> Any:
        """Note a path; return the one that the worker gets."""
        if role == "output":
            return self._draft(Path(value)) if value else value
        for one in value if isinstance(value, list) else [value]:
            if one:
                _ROLES[role](self, one)
        return value

    def _draft(self, target: Path) -> str:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch.remove_abandoned(target.parent, DRAFT)
            folder = self.ends.enter_context(scratch.folder(target.parent.absolute(), DRAFT))
        except OSError as error:
            raise unwritable(target, error) from error
        self.drafts.append((folder, target))
        self.writes.append(str(folder))
        return str(folder / target.name)

    def rules(self) -> sandbox.Rules:
        """Return the rules of the worker."""
        return sandbox.rules(
            read=[os.path.abspath(one) for one in dict.fromkeys(self.reads)],  # noqa: PTH100 - links are kept
            write=[os.path.abspath(one) for one in dict.fromkeys(self.writes)],  # noqa: PTH100
            scratch=self.folder,
            network=self.network,
            processes=self.processes,
            attributes=self.attributes,
            gpu=self.gpu,
            file_bytes=worker_output.most_bytes([*self.writes, self.folder]),
        )


def _add_model(found: _Found, path: str) -> None:
    found.reads += [path, *external_files(Path(path), found.locations)]


def _add_data(found: _Found, path: str) -> None:
    found.reads += _contents(Path(path).absolute()) if Path(path).is_dir() else [path]


MOST_LISTED = 100_000  # files of a list that are opened one by one; a rule of the kernel takes memory


def _add_listed(path: Path, found: _Found) -> None:
    """The files that a list names in its own folder, links followed; of very long lists their folders."""
    folder = Path(os.path.realpath(path.parent))
    files, folders = set[str](), set[str]()
    with contextlib.suppress(SpecError):  # the worker tells what is wrong with the list
        for name in image_list.names(path):
            real = os.path.realpath(folder / name) if "\0" not in name else ""
            if not Path(real).is_relative_to(folder) or _is_hidden(Path(real), [folder]):
                continue
            if len(files) < MOST_LISTED:
                files.add(real)
            elif real not in files and len(folders) < MOST_LISTED:
                folders.add(os.path.dirname(real))  # noqa: PTH120 - one of a million
    found.reads += [*sorted(files), *(one for each in sorted(folders) for one in _contents(Path(each)))]


def _contents(folder: Path) -> list[str]:
    """A folder; where it holds the home folder or ORTune's own, its other contents that are not hidden."""
    own = home().resolve()
    private = [Path.home().resolve(), own]
    if not any(one.is_relative_to(folder.resolve()) for one in private):
        return [str(folder)]
    with contextlib.suppress(OSError):
        return [
            str(one)
            for one in folder.iterdir()
            if one.name[0] != "." and not any(p.is_relative_to(one.resolve()) for p in private)
            if folder.resolve() != own  # the store, logins and keys
        ]
    return []


def _add_library(found: _Found, name: str) -> None:
    with contextlib.suppress(SpecError):  # the worker refuses it in words
        found.reads.append(str(access.resolve_library(name)[0]))


def _add_program(found: _Found, path: str) -> None:
    """An interpreter, with the environment that it belongs to."""
    found.reads += [path, *_contents(Path(os.path.realpath(path)).parent.parent)]
    found.reads += _contents(Path(path).absolute().parent.parent)


def _add_package(found: _Found, package: str) -> None:
    if package.endswith(".whl"):
        found.reads.append(package)


def _add_new_folder(found: _Found, path: str) -> None:
    found.writes.append(str(Path(path).parent))


_ROLES: Mapping[Role, Callable[[_Found, str], None]] = {
    "model": _add_model,
    "read": lambda found, path: found.reads.append(path),
    "data": _add_data,
    "folder": lambda found, path: found.writes.append(path),
    "new folder": _add_new_folder,
    "inside": lambda found, path: None,
    "libraries": _add_library,
    "program": _add_program,
    "packages": _add_package,
}


def _visited(value: Any, plan: Any, found: _Found) -> Any:
    """Note every path of a plan; return the plan with the paths of the drafts."""
    if isinstance(value, list):
        return [_visited(one, plan, found) for one in value]
    if not isinstance(value, Mapping):
        return value
    sent = dict(value)
    for name, hint in _fields(plan).items():
        if name not in value:
            continue
        if role := PATHS.get(plan.__name__, {}).get(name):
            sent[name] = found.add(role, value[name])
        elif (nested := nested_plan(hint)) is not None:
            sent[name] = _visited(value[name], nested, found)
    if plan is wire.SessionPlan:
        sent.update(_add_session(value, found))
    elif plan is wire.ContestantPlan:
        _add_engine(value, found)
    elif plan is wire.DatasetPlan and value.get("kind") == "csv":
        _add_listed(Path(value["path"]), found)
    return sent


@cache
def _fields(plan: Any) -> dict[str, Any]:
    return typing.get_type_hints(plan)


def nested_plan(hint: Any) -> Any:
    """Return the typed dictionary in a hint such as `list[FeedPlan]`; None: it has none."""
    if typing.is_typeddict(hint):
        return hint
    if typing.get_origin(hint) in (list, dict, types.UnionType, typing.Union):
        return next((found for one in typing.get_args(hint) if (found := nested_plan(one))), None)
    return None


def _add_session(session: Mapping[str, Any], found: _Found) -> dict[str, Any]:
    """Note what the settings name; return those of them that the worker gets instead."""
    entries, providers = session["config_entries"], session["providers"]
    found.gpu |= any(one["name"] not in _ON_CPU for one in providers)
    options = ((one["name"], one["options"]) for one in providers)
    _add_settings(named_paths(entries, session["run_config_entries"], options), found)
    if sandbox.is_off():
        return {}
    return {
        "config_entries": _with_new_files_in_scratch(entries, found),
        "providers": [
            {**one, "options": _with_new_files_in_scratch(one["options"], found)} for one in providers
        ],
    }


def _add_settings(named: Iterable[tuple[str, str]], found: _Found) -> None:
    """The files and folders that settings make an engine read, and the caches that it writes."""
    for setting, text in named:
        path = expand_home(text).absolute()
        if setting in READ_FOLDERS:
            found.reads += _contents(path)
        elif setting in CACHE_FOLDERS or path.is_dir():
            _refuse_private_folder(setting, path)
            found.writes.append(_made(path))
        elif path.is_file() and not _is_private(path.resolve()):
            found.reads.append(str(path))


def _with_new_files_in_scratch(values: Mapping[str, str], found: _Found) -> dict[str, str]:
    """Settings whose new files the worker writes into its own folder: no other folder is opened for them."""
    return {
        name: str(Path(found.folder) / Path(text).name)
        if name in WRITTEN_FILES and found.folder and not os.path.lexists(expand_home(text))
        else text
        for name, text in values.items()
    }


def _refuse_private_folder(setting: str, path: Path) -> None:
    real, user = path.resolve(), Path.home().resolve()
    holds = any(one.is_relative_to(real) for one in (user, home().resolve(), Path.cwd(), _models()))
    if holds or real.parent == user or _is_private(real):
        raise SpecError(
            f"`{setting}` is `{path}`, but an engine may write no folder that is hidden, lies directly in "
            "the home folder, is part of ORTune's folder, or holds one of these or the current folder.",
            hint="Name a folder for this alone, such as `~/.cache/engines`.",
        )


def _is_private(real: Path) -> bool:
    """Whether a path belongs to ORTune's folder, outside its models, or is hidden."""
    own, models = home().resolve(), _models()
    in_models = real.is_relative_to(models) and not own.is_relative_to(models)
    if real.is_relative_to(own) and not in_models:
        return True
    return _is_hidden(real, [models, Path.cwd(), Path.home().resolve()])


def _models() -> Path:
    return expand_home(os.environ.get(variables.MODELS) or home() / "models").resolve()


def _is_hidden(real: Path, roots: Sequence[Path]) -> bool:
    """Whether a path is hidden in the first of the folders that holds it; `.cache` counts as open."""
    root = next((one for one in roots if real.is_relative_to(one)), None)
    return root is not None and any(one[0] == "." and one != ".cache" for one in real.relative_to(root).parts)


def _add_engine(plan: Mapping[str, Any], found: _Found) -> None:
    """Compilers run as processes; PyTorch and devices of OpenVINO need the nodes of GPUs."""
    openvino = plan.get("openvino", {})
    texts = {name: one for name, one in openvino.get("properties", {}).items() if isinstance(one, str)}
    _add_settings(named_paths(texts, {}, ()), found)
    found.processes |= ENGINES[plan["engine"]].compiles
    found.gpu |= plan.get("torch") is not None or openvino.get("device", "CPU") != "CPU"


# --- needs of jobs ------------------------------------------------------------------------------------------


def _add_needs(job: str, payload: Mapping[str, Any], found: _Found) -> None:
    if job in (wire.ENVIRONMENT, wire.CAPABILITIES):  # each provider is tried in a process of its own
        found.processes = found.gpu = True
    elif job == wire.EXPORT:
        _add_export(payload, found)
    elif job == wire.INSTALL:
        _add_installer(found)


def _add_export(payload: Mapping[str, Any], found: _Found) -> None:
    found.processes = payload.get("source") == "tensorflow"  # its converter is a program
    if payload.get("source") == "torchvision" and payload.get("pretrained"):
        found.network = True
        found.reads += filter(None, map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))
        torch = Path(os.environ.get("TORCH_HOME", "") or _cache_home() / "torch")
        found.writes.append(_made(torch / "hub" / "checkpoints"))  # beside it lies code of PyTorch Hub


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache")


def _made(cache: Path) -> str:
    with contextlib.suppress(OSError):  # the worker tells that it cannot be written
        cache.mkdir(parents=True, exist_ok=True)
    return str(cache)


def _add_installer(found: _Found) -> None:
    """The programs `pip` and `uv`, their settings, the files that their variables name, and own caches."""
    found.network = found.processes = found.attributes = True
    named = [text for name, text in os.environ.items() if name.startswith(("PIP_", "UV_", "NETRC", "SSL_"))]
    folders = [one for text in named for one in text.removeprefix("file://").split()]
    found.reads += [
        one for one in (*folders, *os.environ.get("PATH", "").split(os.pathsep)) if one[:1] == "/"
    ]
    found.reads += [str(Path.home() / one) for one in (".config/pip", ".config/uv", ".pip", ".netrc")]
    found.writes += [_made(installer_cache(one)) for one in ("pip", "uv")]
