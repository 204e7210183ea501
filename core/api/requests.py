"""Requests of a session: from references and settings to checked configurations, with notes for the user.

`tune`, `compare`, `sweep` and `search` share these steps: read the configurations, fill in sizes, check, and
tell the expected time and the achieved precision.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.api import arguments
from core.api.models import ModelLike, reference
from core.api.references import config_from, keeps_model
from core.api.results import Result
from core.api.session import Session
from core.api.settings import Given, spec_data
from core.evidence.comparison import (
    Comparison,
    Configuration,
    against_baseline,
    several_models,
    with_references,
)
from core.evidence.fleet.fleet_types import HOST_OWNER
from core.process.job_worker import refuse_worker
from core.run.plan import check_overrides as check_overrides
from core.run.plan import feed_plan as feed_plan
from core.run.plan import thread_warning as thread_warning
from core.run.plan import torch_source as torch_source
from core.run.plan import unsupported_input as unsupported_input
from core.run.prediction import COMPARISONS_READ as COMPARISONS_READ
from core.run.prediction import ComparisonHistory as ComparisonHistory
from core.run.prediction import Prediction, past, predict
from core.run.preparation import Resolved as Resolved
from core.run.preparation import check_before, check_comparison, resolve_trial
from core.run.runtime_check import capabilities as capabilities
from core.run.runtime_check import check_runtime as check_runtime
from core.run.sizes import Size as Size
from core.run.sizes import Source as Source
from core.run.sizes import default_sizes as default_sizes
from core.run.sizes import with_known_sizes
from core.run.variants import variant_of
from core.show.words import counted, sizes_words
from core.spec import OLD_EFFORT, TrialSpec, spec_from_dict
from core.spec.axes import RUNTIME
from core.spec.effort import EFFORTS
from core.spec.settings import trial_setting
from core.store import Store
from core.store.library import MODEL_SUFFIXES, resolve_model
from core.wire import engines
from core.wire.errors import SpecError, TunerError

_LOOKED_AT = 20  # newest comparisons, among which may be those of other machines

# common to all configurations of a comparison
_PROTOCOL_SETTINGS = ("effort", "budget_s", "margin", "runs")

# a reference, see `config_from`; the dict of a configuration; the result of a measurement or of a model
Config = str | os.PathLike[str] | Mapping[str, Any] | Result[Any] | None


def spec_of(model: ModelLike | None, config: Config, given: Given, session: Session) -> TrialSpec:
    """Return the configuration of a model, a starting configuration and settings.

    Raises:
        SpecError: a reference or a setting is invalid, or there is no model.
        StoreError: the trial does not exist.
    """
    return spec_from_dict(config_data(model, config, given, session))


def config_data(model: ModelLike | None, config: Config, given: Given, session: Session) -> dict[str, Any]:
    """Return the plain data of `spec_of`, for `spec_from_dict`."""
    start = _config(config, given, session, other_model=model is not None)
    return spec_data(start, reference(model, session), given)


def _config(ref: Config, given: Given, session: Session, *, other_model: bool) -> Mapping[str, Any]:
    read = None if ref is None else arguments.config("config", ref)
    if isinstance(read, Mapping):
        return read
    return config_from(
        read,
        session.store,
        other_model=other_model,
        other_runtime=bool(given.get(RUNTIME)),
        expert=bool(given.get("expert")),
        note=session.note,
    )


def named(
    refs: Sequence[Config],
    *,
    model: str | None,
    given: Given,
    session: Session,
    different_models: bool = False,
) -> list[TrialSpec]:
    """Return the configurations that `refs` name, all changed by `given`.

    A preset and an engine define neither model nor workload: they use those of the first reference that
    does. A variant and a model use only its workload. If all models are variants, the other configurations
    run their original. The protocol comes from `given` alone.

    Args:
        refs: references of the options, or the dicts of configurations.
        model: of the command line.
        given: its other options.
        session: holds trials and variants.
        different_models: allow variants of several originals.

    Raises:
        SpecError: a reference or an option is invalid, there is no model, or the models are not one family.
        StoreError: the trial does not exist.
    """
    configs = [_config(ref, given, session, other_model=model is not None) for ref in refs]
    workload_source = _find_workload_source(configs, model, session.store, different_models=different_models)
    return [
        spec_from_dict(spec_data(_without_precision(with_workload_of(one, workload_source)), model, given))
        for one in configs
    ]


def _find_workload_source(
    configs: Sequence[Mapping[str, Any]],
    model: str | None,
    store: Store,
    *,
    different_models: bool,
) -> Mapping[str, Any]:
    """Return the configuration whose model and workload the others use; `model` replaces its model."""
    free = next((one for one in configs if one.get("model") and not keeps_model(one)), None)
    workload_source = free or next((one for one in configs if "own" in one), {})
    roots = {one["variant"] for one in configs if "variant" in one}
    if not roots:
        return workload_source
    path = model or workload_source.get("model", {}).get("path")
    if path is not None:
        roots |= _original_of(store, path)
    if len(roots) > 1 and not different_models:
        raise SpecError(
            "The models are not variants of one original, so their outputs may differ.",
            hint="Compare variants of one model, name that model as MODEL, or turn on `different_models`.",
        )
    if path is not None:
        return workload_source
    record = store.model(next(iter(roots)))
    return {} if record is None else {"model": {"path": record.path, "sha256": record.sha256}}


def _original_of(store: Store, ref: str) -> set[str]:
    """Return the original of an inspected model; of other models nothing is known before they run."""
    try:
        record = resolve_model(store, ref, run=refuse_worker)
    except TunerError:
        return set()
    return {(variant_of(record) or {}).get("root", record.content_sha256)}


def with_workload_of(config: Mapping[str, Any], workload_source: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` on the model and the workload of `workload_source`, unless it names a model itself.

    A variant keeps its model, and so does a model that is used as a configuration.
    """
    own = config.get("model")
    if own and not keeps_model(config):
        return dict(config)
    taken = workload_source.get("model", {})
    model = own or {name: taken[name] for name in ("path", "sha256") if name in taken}
    workload = {**workload_source.get("workload", {}), **config.get("workload", {})}
    engine = config.get("engine", engines.DEFAULT)
    if not engines.can(engine, "bind"):
        workload.pop("use_io_binding", None)
    operators = workload_source.get("session", {}).get("custom_op_libraries")
    if operators and engines.can(engine, "settings"):  # belongs to the model, not to the tuned settings
        config = {**config, "session": {"custom_op_libraries": operators, **config.get("session", {})}}
    return {**config, "model": model, "workload": workload}


def _without_precision(config: Mapping[str, Any]) -> dict[str, Any]:
    protocol = {
        k: v for k, v in config.get("protocol", {}).items() if k not in (*_PROTOCOL_SETTINGS, OLD_EFFORT)
    }
    return {**config, "protocol": protocol}


def baseline_of(ref: Config, candidate: TrialSpec, given: Given, session: Session) -> Configuration:
    """Return the second configuration of `tune`, on the workload of the first.

    Raises:
        SpecError: it is invalid, or does not fit that workload.
        StoreError: the trial does not exist.
    """
    named = _config(ref, given, session, other_model=True)
    config = with_workload_of(named, candidate.to_dict())
    workload = {name: value for name, value in given.items() if _is_workload(name)}
    spec = spec_from_dict(spec_data(_without_precision(config), candidate.model.path, workload))
    return Configuration(spec=spec, label=ref if isinstance(ref, str) else "baseline", role="baseline")


def _is_workload(name: str) -> bool:
    return name != "provider_options" and trial_setting(name).target == "workload"


def labels(refs: Sequence[Config], specs: Sequence[TrialSpec] = ()) -> list[str]:
    """Return a distinct label for each reference: as written, with a number if repeated.

    The label of a model file is its file name, that of a dict `configuration`. If the references run several
    models, each label names its
    model.

    Args:
        refs: as written.
        specs: of the references.
    """
    several = several_models(specs)
    found: list[str] = []
    for number, ref in enumerate(one if isinstance(one, str) else "configuration" for one in refs):
        name = _short(ref)
        says_model = ref.startswith(("model:", "variant:")) or ref.lower().endswith(MODEL_SUFFIXES)
        if several and not says_model:
            name = f"{ref} ({Path(specs[number].model.path).stem})"
        again = sum(one == name or one.startswith(f"{name} (") for one in found)
        found.append(f"{name} ({again + 1})" if again else name)
    return found


def with_sizes(
    specs: Sequence[TrialSpec], session: Session, *, varied: Collection[str] = ()
) -> tuple[list[TrialSpec], dict[str, Any]]:
    """Return `specs` with assumed sizes for dimensions without a given size, and note them.

    Returns:
        The configurations, and the document's part on the sources of assumed sizes; empty: all were given.
    """
    done, sizes = with_known_sizes(specs, session.store, session.inspect, varied=varied)
    if not sizes:
        return done, {}
    session.note(f"sizes: {sizes_words(sizes)}")
    for note in sorted({one.note for one in sizes.values() if one.note}):
        session.note(note)
    return done, {"sizes_from": {dim: one.source for dim, one in sizes.items()}}


def check_spec(session: Session, spec: TrialSpec) -> None:
    """Refuse a configuration before it waits in the queue, as far as that is known.

    Raises:
        TunerError: it cannot run, or the session does not admit it.
    """
    session.admit(spec)  # before anything reveals what lies at a path
    check_before(spec, session.store, session.inspect)


def check(session: Session, asked: Sequence[Configuration]) -> None:
    """Refuse a comparison before it waits in the queue if no candidate can run; note which others cannot.

    Raises:
        TunerError: the baseline or all candidates cannot run, or the session does not admit one.
    """
    for one in asked:
        session.admit(one.spec)  # before anything reveals what lies at a path
    for one, why in check_comparison(asked, session.store, session.inspect):
        session.note(f"{one.label} is left out: {why.message}")


def _short(ref: str) -> str:
    if ref.startswith("model:"):
        return ref.removeprefix("model:")
    return Path(ref).name if ref.lower().endswith(MODEL_SUFFIXES) else ref


# --- time and precision -------------------------------------------------------------------------------------


def announce(session: Session, asked: Sequence[Configuration], *, family: int | None = None) -> None:
    """Note the configurations and the expected time before the start."""
    configurations = with_references(asked)
    session.note(
        f"{_labels_text(configurations)}: "
        f"{_time_text(session.store, [one.spec for one in configurations], family)}"
    )


def _labels_text(configurations: Sequence[Configuration]) -> str:
    names = [one.label for one in configurations]
    if len(names) > 4:
        return f"comparing {len(names)} configurations"
    return f"comparing {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else f"measuring {names[0]}"


def _time_text(store: Store, specs: Sequence[TrialSpec], family: int | None) -> str:
    protocol = specs[0].protocol
    if protocol.runs is not None:
        asked = f"{counted(protocol.runs, 'inference')} each"
    else:
        precision = EFFORTS[protocol.effort]
        budget_s = precision.budget_s if protocol.budget_s is None else protocol.budget_s
        asked = f"effort {precision.name} (±{100 * precision.target:g} %), at most {budget_s} s"
    found = _prediction(store, specs, family)
    if found is None:
        return f"{asked}; duration unknown, because this model was not measured here yet"
    late = f"; {found.late}" if found.late else ""
    return f"{asked}; about {found.seconds:.0f} s, {counted(found.rounds, 'round')}{late}"


def _prediction(store: Store, specs: Sequence[TrialSpec], family: int | None) -> Prediction | None:
    """Predict from earlier comparisons of this model; a prediction must start no worker."""
    try:
        model = resolve_trial(specs[0], store, refuse_worker).record.content_sha256
        found = store.comparisons(model_sha256=model, state="COMPLETE", limit=_LOOKED_AT)
        comparisons = [one for one in found if not one.owner.startswith(HOST_OWNER)]
        known = (
            past(store, model_sha256=model, fingerprint=comparisons[0].fingerprint) if comparisons else None
        )
    except TunerError:
        return None
    return None if known is None else predict(specs, known, family)


def report_precision(session: Session, comparison: Comparison) -> None:
    """Note the precision of the result and the time it took."""
    result = comparison.facts
    widths = [one["half_width"] for one in against_baseline(comparison) if one["half_width"] is not None]
    if not result:
        return
    text = f"{launches(len(result['generations']))}, {counted(result['rounds'], 'round')}"
    text += f", {result['wall_s']:.1f} s"
    if widths:
        text += f", ±{100 * max(widths):.2g} %"
        text += (
            "" if comparison.protocol.get("runs") else f" (goal ±{100 * comparison.protocol['target']:g} %)"
        )
    session.note(f"{text}. {result['outcome_text']}")


def launches(number: int) -> str:
    """Return "1 launch", "5 launches"."""
    return f"{number} launch" if number == 1 else f"{number} launches"
