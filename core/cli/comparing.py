"""Common parts of the commands that compare: configurations of `CONFIG`, expected time, precision.

`tune`, `compare` and `sweep` all submit a comparison; they differ in configurations and output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.cli.options import Given, config_from, keeps_model, spec_data
from core.cli.watch import Progress
from core.evidence.comparison import Comparison, Configuration, several_models, with_references
from core.evidence.measurement import Trial
from core.evidence.result_types import ContrastRecord
from core.process.job_worker import refuse_worker, run_job
from core.run.prediction import Prediction, past, predict
from core.run.preparation import check_comparison, resolve_trial
from core.run.sizes import with_known_sizes
from core.run.variants import variant_of
from core.show.words import counted, sizes_words
from core.spec import OLD_EFFORT, TrialSpec, spec_from_dict
from core.spec.effort import EFFORTS
from core.spec.settings import trial_setting
from core.store import Store
from core.store.library import MODEL_SUFFIXES, resolve_model
from core.wire import engines
from core.wire.errors import ErrorRecord, SpecError, TunerError

_PROTOCOL_SETTINGS = (
    "effort",
    "budget_s",
    "margin",
    "runs",
)  # protocol settings, common to all configurations


def named(
    refs: Sequence[str],
    *,
    model: str | None,
    given: Given,
    store: Callable[[], Store],
    different_models: bool = False,
) -> list[TrialSpec]:
    """Return the configurations that `refs` name, all changed by `given`.

    A preset and an engine define neither model nor workload: they use those of the first reference that
    does. A variant and a model use only its workload. If all models are variants, the other configurations
    run their original. The protocol comes from `given` alone.

    Args:
        refs: references of the options.
        model: of the command line.
        given: its other options.
        store: opens the store.
        different_models: allow variants of several originals.

    Raises:
        SpecError: a reference or an option is invalid, there is no model, or the models are not one family.
        StoreError: the trial does not exist.
    """
    expert = bool(given.get("expert"))
    configs = [config_from(ref, store=store, other_model=model is not None, expert=expert) for ref in refs]
    workload_source = _find_workload_source(configs, model, store, different_models=different_models)
    return [
        spec_from_dict(spec_data(_without_precision(with_workload_of(one, workload_source)), model, given))
        for one in configs
    ]


def _find_workload_source(
    configs: Sequence[Mapping[str, Any]],
    model: str | None,
    store: Callable[[], Store],
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
        roots |= _original_of(store(), path)
    if len(roots) > 1 and not different_models:
        raise SpecError(
            "The models are not variants of one original, so their outputs may differ.",
            hint="Compare variants of one model, name that model as MODEL, or add `--different-models`.",
        )
    if path is not None:
        return workload_source
    record = store().model(next(iter(roots)))
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
    if not engines.can(config.get("engine", engines.DEFAULT), "bind"):
        workload.pop("use_io_binding", None)
    elif operators := workload_source.get("session", {}).get(
        "custom_op_libraries"
    ):  # belongs to the model, not to the tuned settings
        config = {**config, "session": {"custom_op_libraries": operators, **config.get("session", {})}}
    return {**config, "model": model, "workload": workload}


def _without_precision(config: Mapping[str, Any]) -> dict[str, Any]:
    protocol = {
        k: v for k, v in config.get("protocol", {}).items() if k not in (*_PROTOCOL_SETTINGS, OLD_EFFORT)
    }
    return {**config, "protocol": protocol}


def baseline_of(ref: str, candidate: TrialSpec, given: Given, store: Callable[[], Store]) -> Configuration:
    """Return the configuration of `--baseline` on the workload of the command line.

    Raises:
        SpecError: it is invalid, or does not fit that workload.
        StoreError: the trial does not exist.
    """
    named = config_from(ref, store=store, other_model=True, expert=bool(given.get("expert")))
    config = with_workload_of(named, candidate.to_dict())
    workload = {name: value for name, value in given.items() if _is_workload(name)}
    spec = spec_from_dict(spec_data(_without_precision(config), candidate.model.path, workload))
    return Configuration(spec=spec, label=ref, role="baseline")


def _is_workload(name: str) -> bool:
    return name != "provider_options" and trial_setting(name).target == "workload"


def labels(refs: Sequence[str], specs: Sequence[TrialSpec] = ()) -> list[str]:
    """Return a distinct label for each reference: as written, with a number if repeated.

    The label of a model file is its file name. If the references run several models, each label names its
    model.

    Args:
        refs: as written.
        specs: of the references.
    """
    several = several_models(specs)
    found: list[str] = []
    for number, ref in enumerate(refs):
        name = _short(ref)
        says_model = ref.startswith(("model:", "variant:")) or ref.lower().endswith(MODEL_SUFFIXES)
        if several and not says_model:
            name = f"{ref} ({Path(specs[number].model.path).stem})"
        again = sum(one == name or one.startswith(f"{name} (") for one in found)
        found.append(f"{name} ({again + 1})" if again else name)
    return found


def with_sizes(
    specs: Sequence[TrialSpec], store: Store, progress: Progress, *, varied: Collection[str] = ()
) -> tuple[list[TrialSpec], dict[str, Any]]:
    """Return `specs` with assumed sizes for dimensions without a given size, and print them.

    Returns:
        The configurations, and the document's part on the sources of assumed sizes; empty: all were given.
    """
    done, sizes = with_known_sizes(specs, store, run_job, varied=varied)
    if not sizes:
        return done, {}
    progress.line(f"sizes: {sizes_words(sizes)}")
    for note in sorted({one.note for one in sizes.values() if one.note}):
        progress.line(note)
    return done, {"sizes_from": {dim: one.source for dim, one in sizes.items()}}


def check_configurations(store: Store, asked: Sequence[Configuration], progress: Progress) -> None:
    """Refuse a comparison before it waits in the queue if no candidate can run; print which others cannot.

    Raises:
        TunerError: why the first candidate cannot run.
    """
    for one, why in check_comparison(asked, store, run_job):
        progress.line(f"{one.label} is left out: {why.message}")


def _short(ref: str) -> str:
    if ref.startswith("model:"):
        return ref.removeprefix("model:")
    return Path(ref).name if ref.lower().endswith(MODEL_SUFFIXES) else ref


# --- time and precision -------------------------------------------------------------------------------------


def announce(
    store: Store, asked: Sequence[Configuration], progress: Progress, *, family: int | None = None
) -> None:
    """Print the configurations and the expected time before the start."""
    configurations = with_references(asked)
    progress.line(
        f"{_labels_text(configurations)}: {_time_text(store, [one.spec for one in configurations], family)}"
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
        comparisons = store.comparisons(model_sha256=model, state="COMPLETE", limit=1)
        known = (
            past(store, model_sha256=model, fingerprint=comparisons[0].fingerprint) if comparisons else None
        )
    except TunerError:
        return None
    return None if known is None else predict(specs, known, family)


def report_precision(comparison: Comparison, progress: Progress) -> None:
    """Print the precision of the result and the time it took."""
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
    progress.line(f"{text}. {result['outcome_text']}")


def launches(number: int) -> str:
    """Return "1 launch", "5 launches"."""
    return f"{number} launch" if number == 1 else f"{number} launches"


def against_baseline(comparison: Comparison) -> list[ContrastRecord]:
    """Return the verdicts on the candidates: contrasts against the comparison's baseline."""
    candidates = {one.trial for one in comparison.contestants if one.role == "candidate"}
    return [
        one
        for one in comparison.facts.get("contrasts", ())
        if one["candidate"] in candidates and one["baseline"] == comparison.baseline
    ]


def has_undecided(comparison: Comparison) -> bool:
    """Whether the verdict on a candidate is undecided or missing."""
    verdicts = {one["candidate"]: one["verdict"] for one in against_baseline(comparison)}
    asked = [
        one.trial
        for one in comparison.contestants
        if one.role == "candidate" and one.trial != comparison.baseline
    ]
    return any(verdicts.get(trial, "UNDECIDED") == "UNDECIDED" for trial in asked)


def failures(comparison: Comparison, trials: Sequence[Trial]) -> list[ErrorRecord]:
    """Return the errors of the requested configurations: the candidates and the baseline.

    Configurations that were cancelled because others failed are omitted, if there is another error.
    """
    asked = {one.trial for one in comparison.contestants if one.role != "anchor"}
    errors = [trial.error for trial in trials if trial.id in asked and trial.error is not None]
    return [one for one in errors if one["type"] != "Cancelled"] or errors
