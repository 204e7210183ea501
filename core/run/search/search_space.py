"""Builds the search space: settings with the values worth evaluating, and the variants of the model.

Existing variants are included. If the question requests it, others are created first, within its time budget.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core import wire
from core.process.job_worker import Progress, Run
from core.run.job import Service
from core.run.preparation import Resolved
from core.run.runtime_check import capabilities
from core.run.variants import creation_check, family, make_chain, steps_of, variant_of
from core.spec import ModelRef, TrialSpec, is_provider_option
from core.spec.axes import RUNTIME
from core.spec.question import Question
from core.spec.settings import Place, Value, short, trial_setting
from core.spec.space import (
    MODEL,
    STREAM_TYPE,
    STREAMS,
    Axis,
    Space,
    axes_from_user,
    check_any_varies,
    fit_axes,
    search_axes,
    space,
    unvaried_words,
    without,
)
from core.spec.steps import Step
from core.store import ModelRecord, Store
from core.wire import engines
from core.wire.errors import Cancelled, SpecError, TunerError, WorkerError, nearest
from core.wire.runtime import OWN, runtime

CPU = "CPUExecutionProvider"
MADE = ("simplify", "fuse", "fp16", "int8_dynamic")  # steps that need nothing but the model
CALIBRATED = "int8_static"


@dataclass(frozen=True, kw_only=True)
class Models:
    """Files and sizes (bytes) of the model axis by name; the size under "" is that of the start's model."""

    refs: Mapping[str, ModelRef] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    left_out: Sequence[str] = ()  # excluded variants with the reason, in words

    @property
    def axis(self) -> Axis | None:
        """Axis of the models; None: there is only one model."""
        return Axis(name=MODEL, values=(None, *self.refs)) if self.refs else None


def models_of(store: Store, record: ModelRecord, question: Question) -> Models:
    """Return the variants of a model that may be the answer.

    Excluded are variants that failed the output check when they were created, and those with other inputs.

    Raises:
        SpecError: the question names a variant that does not exist.
    """
    sizes = {"": float(record.info["size_bytes"])}
    members = [one for one in family(store, record) if one.content_sha256 != record.content_sha256]
    wanted = question.vary.get(MODEL)
    if wanted is not None:
        names = [one.name for one in members]
        for name in wanted:
            if name is not None and name not in names:
                raise SpecError(
                    f"`{str(name)[:60]}` is not a variant of `{record.name}`.{nearest(str(name), names)}",
                    hint="Create one first, or let the search create variants.",
                )
        members = [one for one in members if one.name in wanted]
    elif question.vary or question.variants == "none":
        members = []
    refs: dict[str, ModelRef] = {}
    left: list[str] = []
    for one in members:
        why = _why_not(one, record)
        if why:
            left.append(f"`{one.name}` is excluded: {why}")
            continue
        refs[one.name] = ModelRef(path=one.path, sha256=one.sha256)
        sizes[one.name] = float(one.info["size_bytes"])
    return Models(refs=refs, sizes=sizes, left_out=left)


def exclusion_words(models: Models, space: Space) -> list[str]:
    """Return in words which variants are excluded and which settings are not varied."""
    return [*models.left_out, *unvaried_words(space.unvaried)]


def _why_not(one: ModelRecord, record: ModelRecord) -> str:
    if [i["name"] for i in one.info["inputs"]] != [i["name"] for i in record.info["inputs"]]:
        return "its inputs differ"
    if one.info["fixed_batch"] != record.info["fixed_batch"]:
        return "its batch size differs"
    check = creation_check(one)
    if check is not None and check.breach:
        return f"outputs differ ({check.why})"
    return ""


def make_variants(store: Store, record: ModelRecord, base: TrialSpec, service: Service) -> list[str]:
    """Create the variants that need only the original, and static INT8 if the spec has a dataset.

    Existing variants are reused. A variant that cannot be created gives a note.

    Returns:
        Notes on variants that could not be created.

    Raises:
        Cancelled: by the user; complete variants are kept.
    """
    if variant_of(record) is not None or steps_of(record):
        return ["Variants can only be created from an original."]
    kinds = [*MADE, *([CALIBRATED] if base.dataset is not None else [])]
    notes = []
    for number, kind in enumerate(kinds):
        service.on_progress(Progress(stage="creates variants", done=number, total=len(kinds), text=kind))
        try:
            make_chain(
                store,
                record,
                [Step(kind, {})],
                run=service.run,
                dims=base.workload.dims,
                calibration=base.dataset if kind == CALIBRATED else None,
            )
        except Cancelled:
            raise
        except TunerError as error:
            notes.append(f"`{kind}` could not be created: {error.message}")
    return notes


# --- the space ----------------------------------------------------------------------------------------------


def place_of(machine: wire.Environment | None, resolved: Resolved, question: Question) -> Place:
    """Return the facts of the machine and the model that a space needs; no machine: one thread, the CPU."""
    loadable = [one["name"] for one in machine["providers"] if one["loadable"]] if machine is not None else []
    chains = [(name, CPU) for name in loadable if name != CPU]
    batch = resolved.record.info["batch_dim"] is not None
    return Place(
        threads=machine["cpu"]["usable"] if machine is not None else 1,
        providers=((CPU,), *chains),
        streams=question.streams,
        any_batch=question.per_row and batch and resolved.spec.workload.feeds == "random",
        memory="peak_rss" in question.metrics,
        runtimes=question.runtimes,
        devices=tuple(machine.get("openvino_devices", ())) if machine is not None else (),
    )


def axes_of(base: TrialSpec, question: Question, place: Place, models: Models) -> list[Axis]:
    """Return the axes before the user's fixed and excluded settings are removed.

    Raises:
        SpecError: an unknown setting or value.
    """
    vary = {name: values for name, values in question.vary.items() if name != MODEL}
    if vary and question.runtimes:
        vary.setdefault(RUNTIME, list(question.runtimes))
    _check_streams(base, question, vary)
    found = axes_from_user(base, vary) if question.vary else search_axes(base, place)
    return [*found, *([models.axis] if models.axis is not None else [])]


def _check_streams(base: TrialSpec, question: Question, vary: Mapping[str, Sequence[object]]) -> None:
    """Refuse several streams where the objective is a latency.

    Raises:
        SpecError: the start has several streams, or the user varies them.
    """
    if question.streams or (base.workload.streams == 1 and not {STREAMS, STREAM_TYPE} & vary.keys()):
        return
    raise SpecError(
        f"`{STREAMS}` may be above 1 only where the objective is throughput, but it is {question.words}.",
        hint=f"Choose the objective `throughput`, or set `{STREAMS}` to 1 and do not vary it.",
    )


def unknown_to(spec: TrialSpec, run: Run) -> Sequence[str]:
    """Return settings and values (`NAME VALUE`) that the runtime of a spec does not know.

    Raises:
        SpecError: there is no such runtime, or it cannot load ONNX Runtime.
    """
    if spec.runtime == OWN or spec.engine != engines.DEFAULT:
        return ()
    try:
        return capabilities(spec.runtime, run)["unknown"]
    except WorkerError:  # the search shows it
        return ()


def known_axes(axes: Sequence[Axis], unknown: Collection[str]) -> list[Axis]:
    """Return axes without the settings and values that a runtime does not know; the start's values stay."""
    return [Axis(name=one.name, values=tuple(_known_values(one, unknown))) for one in axes]


def _known_values(one: Axis, unknown: Collection[str]) -> list[Value | None]:
    is_setting = one.name != MODEL and not is_provider_option(one.name)
    field = trial_setting(one.name).field if is_setting else one.name
    first, *others = one.values
    return [first, *(value for value in others if not {field, f"{field} {value}"} & {*unknown})]


def unknown_words(spec: TrialSpec, axes: Sequence[Axis], unknown: Collection[str]) -> list[str]:
    """Return the note on settings that do not vary because the runtime does not know them; empty: none."""
    kept = known_axes(axes, unknown)
    gone = [short(one.name) for one, left in zip(axes, kept, strict=True) if one.values != left.values]
    if not gone:
        return []
    name = runtime(spec.runtime).name
    return [f"The runtime `{name}` does not know all values of these settings: {', '.join(gone)}."]


def space_of(
    base: TrialSpec, question: Question, place: Place, models: Models, *, unknown: Collection[str] = ()
) -> Space:
    """Return the space of a question.

    Args:
        base: the start.
        question: what is asked.
        place: the machine and the model.
        models: the variants of the model.
        unknown: see `unknown_to`; they do not vary.

    Raises:
        SpecError: nothing is left to vary, an unknown value, or too many configurations.
    """
    axes = [one for one in axes_of(base, question, place, models) if one.name not in question.fix]
    axes = without(known_axes(axes, unknown), question.without)
    check_any_varies(axes)
    unvaried: tuple[str, ...] = ()
    if not question.vary:
        axes, unvaried = fit_axes(base, axes, threads=place.threads)
    found = replace(space(base, axes, models=models.refs, threads=place.threads), unvaried=unvaried)
    if len(found.choices) < 2:
        raise SpecError(
            f"All combinations are the same configuration: {next(iter(found.left_out), 'nothing differs')}.",
            hint="Vary a setting that has an effect here.",
        )
    return found
