"""Configurations by reference: a YAML file, a trial, a model, a variant, a preset, another engine.

Reads files, the store and the library; starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from core.process import runtimes
from core.run.named_files import check_named_files, open_folders, with_full_paths
from core.run.named_files import named_files as named_files
from core.run.named_files import with_relative_paths as with_relative_paths
from core.run.signing.checking import check_text, refuse_wrong
from core.run.variants import variant_of
from core.run.verified_runtime import recorded_libraries
from core.show.sheets.signatures import signature_note
from core.spec import TrialSpec, old_key_note, spec_from_yaml
from core.spec.presets import PRESETS, preset
from core.spec.strict_yaml import MAX_CHARACTERS, load_strict
from core.store import Store
from core.store.library import MODEL_SUFFIXES, sample_models
from core.wire.access import expert_allowed
from core.wire.engines import REFS
from core.wire.errors import SpecError, StoreError, nearest
from core.wire.files import expand_home, open_regular

ENGINE_PREFIXES = tuple({ref.partition(":")[0] + ":" for ref in REFS})
KEEPS_MODEL = ("variant", "own")  # keys of a configuration that keeps its own model


def config_from(
    ref: str | None,
    store: Store,
    *,
    other_model: bool = False,
    other_runtime: bool = False,
    expert: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Return the configuration of `ref`: a YAML file, a model, a preset, a variant, an engine, a trial.

    A model and a variant run on ONNX Runtime's default and keep their model. The configuration of a variant
    has the key `variant` with the hash of its original, that of a model the key `own`.

    Args:
        ref: the reference; None: not given.
        store: holds trials and variants.
        other_model: the user names another model. Settings of a trial may apply to any model, while a
            YAML file stays bound to its hash.
        other_runtime: the user names another runtime, so that of a file may be missing here.
        expert: the user turns `expert` on, so a file may use it.
        note: called with what the reader of an old file should know.

    Raises:
        SpecError: no such file, preset or variant, or an invalid configuration.
        StoreError: the trial does not exist.
    """
    if ref is None:
        return {}
    if ref.startswith("preset:"):
        return preset_config(ref.removeprefix("preset:"))
    if ref in REFS or ref.startswith(ENGINE_PREFIXES):
        return {"engine": _engine(ref)}
    if ref.startswith("variant:"):
        return _variant_config(ref.removeprefix("variant:"), store)
    if ref.startswith("model:") or ref.lower().endswith(MODEL_SUFFIXES):
        return {"model": {"path": ref.removeprefix("model:")}, "own": True}
    path = expand_home(ref)
    if path.suffix.lower() in (".yaml", ".yml") or _is_file(path):
        return _file_config(path, other_runtime=other_runtime, expert=expert, note=note)
    trial = _spec_of_trial(ref, store)
    return {**trial, "model": {k: v for k, v in trial["model"].items() if k != "sha256" or not other_model}}


def _spec_of_trial(ref: str, store: Store) -> dict[str, Any]:
    try:
        return store.trial(ref).spec
    except StoreError as error:
        if not error.message.startswith("There is no trial"):  # damaged, or an ambiguous prefix
            raise
    raise _unknown_reference_error(ref, store)


def _unknown_reference_error(ref: str, store: Store) -> SpecError:
    """Return the error for an unknown reference; often the prefix of a name is missing."""
    names = {one.name: f"model:{one.name}" for one in sample_models() if one.exists}
    names |= {
        one.name: f"{'model' if variant_of(one) is None else 'variant'}:{one.name}" for one in store.models()
    }
    names |= {name: f"preset:{name}" for name in PRESETS} | {one: one for one in REFS}
    meant = names.get(ref)
    return SpecError(
        f"`{ref[:80]}` is no existing file, and no trial"
        f"{'.' if meant else ', model, variant or preset.'}{'' if meant else nearest(ref, names)}",
        hint=f"Write `{meant}`."
        if meant
        else "Give a YAML file, a MODEL.onnx, a trial of `history`, model:NAME, variant:NAME, "
        f"{', '.join(REFS)}, or preset:NAME with one of {', '.join(PRESETS)}.",
    )


def _is_file(path: Path) -> bool:
    """Whether a path is a file, even one that will be refused later; a trial ID is not."""
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # not a valid path
        return False


def _file_config(
    path: Path, *, other_runtime: bool, expert: bool, note: Callable[[str], None]
) -> dict[str, Any]:
    """Return the configuration of a YAML file; its files and libraries lie near it or in ORTune's folder.

    Options of the command line may name any path, because the user types them.
    """
    text = read_text(path)
    signature = check_text(text.encode())
    refuse_wrong(signature, path.name)
    if told := signature_note(signature, path.name):
        note(told)
    spec = with_full_paths(spec_from_yaml(text, expert=expert or expert_allowed()))
    if remark := old_key_note(text):
        note(f"{path.name}: {remark}")
    if not other_runtime:
        check_runtime(spec, text)
    check_named_files(spec.session, [Path.cwd().resolve(), path.resolve().parent, *open_folders()])
    return spec.to_dict()


def check_runtime(spec: TrialSpec, text: str) -> None:
    """Refuse the configuration of a YAML file whose runtime this machine lacks.

    Args:
        spec: of the file.
        text: of the file; its informative part has the versions for the command that creates the runtime.

    Raises:
        SpecError: there is no such runtime, or its content has another hash.
    """
    runtimes.pinned(spec.runtime, recorded_libraries(load_strict(text).get("environment")))


def keeps_model(config: Mapping[str, Any]) -> bool:
    """Whether a configuration keeps its own model."""
    return any(name in config for name in KEEPS_MODEL)


def _engine(ref: str) -> str:
    if ref not in REFS:
        raise SpecError(
            f"`{ref[:48]}` names no engine.{nearest(ref, REFS)}", hint=f"Use {' or '.join(REFS)}."
        )
    return REFS[ref]


def _variant_config(name: str, store: Store) -> dict[str, Any]:
    """Return the configuration of a variant on ONNX Runtime's default."""
    record = store.model(name)
    variant = None if record is None else variant_of(record)
    if record is None or variant is None:
        names = [one.name for one in store.models() if variant_of(one)]
        listed = ", ".join(names[:8]) if names else ""
        raise SpecError(
            f"`{name[:80]}` is no variant of a model.{nearest(name, names)}",
            hint=f"Choose among {listed}." if listed else "Create one with `transform` first.",
        )
    model = {"path": record.path, "sha256": record.sha256}
    return {"model": model, "variant": variant["root"]}


def preset_config(name: str) -> dict[str, Any]:
    """Return the configuration of the preset `name`."""
    session, workload = preset(name)
    return {"session": session.model_dump(mode="json", exclude_defaults=True), "workload": workload}


def read_text(path: Path, *, what: str = "configuration") -> str:
    """Return the text of a file that the user names, at most a few megabytes; raises `SpecError`."""
    try:
        with open_regular(path) as file:
            return file.read(4 * MAX_CHARACTERS + 1).decode("utf-8")
    except OSError as error:
        raise SpecError(
            f"The {what} `{path}` cannot be read: {error.strerror or error}.", hint="Check the path."
        ) from None
    except UnicodeDecodeError:
        other = "a YAML file that ORTune exported" if what == "configuration" else "a file of UTF-8 text"
        raise SpecError(f"The {what} `{path}` is not UTF-8 text.", hint=f"Choose {other}.") from None
