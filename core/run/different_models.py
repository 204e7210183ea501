"""Output checks between different models of one comparison.

The output check compares every configuration with the original of its own model. A comparison of several
originals first compares their outputs on the same inputs. Models with different outputs are measured only
where the user allows it, and every verdict on them says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core import wire
from core.evidence.record import Entry, ProcessResult, RawComparison, Reference
from core.process import scratch
from core.process.contestant_workers import Workers
from core.process.job_worker import Progress
from core.run.launches.blocks import start_loaded
from core.run.launches.costs import compare_outputs, keep_outputs
from core.wire.errors import Cancelled, SpecError, TunerError
from core.wire.output_check import (
    OutputCheck,
    Pairs,
    check_outputs,
    loosest_precision,
    not_compared_words,
    output_difference_words,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The original of a configuration's model: the root of its chain of variants, or the model itself."""

    sha256: str  # of its content
    name: str
    precision: str
    reference: Reference | None  # how to run it; None: its file is gone


def compare_originals(
    origins: Sequence[Origin],
    against: Sequence[Origin],
    *,
    tolerance: float | None,
    cancel: threading.Event,
    on_progress: Callable[[Progress], None],
    timeout_s: float,
) -> dict[tuple[str, str], OutputCheck]:
    """Compare the outputs of `origins` with those of each of `against`, on the inputs of the latter.

    Args:
        origins: all of a comparison, each once.
        against: those of the baseline and the ORT default.
        tolerance: set by the user; None: that of the less precise of two models.
        cancel: set it to stop.
        on_progress: called for each step.
        timeout_s: for loading a model, and for a run.

    Returns:
        (other, against) -> the verdict; each pair once.

    Raises:
        Cancelled: `cancel` was set.
    """
    found: dict[tuple[str, str], OutputCheck] = {}
    for one in against:
        others = [
            other
            for other in origins
            if other.sha256 != one.sha256 and (one.sha256, other.sha256) not in found
        ]
        errors = _outputs_of(others, one, cancel, on_progress, timeout_s)
        for other, ran in zip(others, errors, strict=True):
            precision = loosest_precision(one.precision, other.precision)
            verdict = check_outputs(ran.output_error, precision, tolerance, unknown=ran.not_compared)
            found[other.sha256, one.sha256] = verdict
    return found


def _outputs_of(
    others: Sequence[Origin],
    against: Origin,
    cancel: threading.Event,
    on_progress: Callable[[Progress], None],
    timeout_s: float,
) -> list[ProcessResult]:
    """For each of `others`, the difference of its outputs from those of `against`, or why it is unknown."""
    record = RawComparison(ran=[ProcessResult() for _ in others])
    entries: dict[int, Entry] = {}
    for index, other in enumerate(others):
        reason, plan = _plan_on_inputs_of(other, against)
        if plan is None:
            record.ran[index].not_compared = not_compared_words(reason)
            continue
        label = f"the outputs of {other.name}"
        entries[index] = Entry(label=label, plan=plan, reference=against.reference)
    if not entries:
        return record.ran
    with Workers(cancel) as workers, scratch.folder() as folder:
        kept: dict[int, Path] = {}
        for done, (index, entry) in enumerate(entries.items()):
            on_progress(Progress(stage="outputs", done=done, total=len(entries), text=others[index].name))
            path = folder / f"outputs-{index}.npz"
            if _keep_outputs(workers, entry, record.ran[index], path, timeout_s):
                kept[index] = path
        every = [entries.get(index, next(iter(entries.values()))) for index in range(len(others))]
        compare_outputs(workers, every, kept, record, timeout_s, on_progress)
    return record.ran


def _keep_outputs(workers: Workers, entry: Entry, ran: ProcessResult, path: Path, timeout_s: float) -> bool:
    """Run one model and keep its outputs; a failure is recorded as the reason for no comparison."""
    try:
        worker, _ = start_loaded(workers, entry, timeout_s)
    except Cancelled:
        raise
    except TunerError as error:
        ran.not_compared = not_compared_words(error.message)
        return False
    try:
        return keep_outputs(worker, ran, path, timeout_s)
    finally:
        worker.kill()


def _plan_on_inputs_of(other: Origin, against: Origin) -> tuple[str, wire.ContestantPlan | None]:
    """The plan that runs `other` on the inputs of `against`, or the reason why it cannot take them."""
    for one in (other, against):
        if one.reference is None:
            return f"`{one.name}` no longer exists.", None
    assert other.reference is not None
    assert against.reference is not None
    plan, feeds = other.reference.plan, against.reference.plan["feeds"]
    dtypes = {one["name"]: one["dtype"] for one in plan["feeds"]["inputs"]}
    names = [one["name"] for one in feeds["inputs"]]
    if set(dtypes) != set(names):
        taken = ", ".join(f"`{name}`" for name in dtypes) or "no input"
        wanted = ", ".join(f"`{name}`" for name in names) or "no input"
        return f"`{other.name}` takes {taken}, `{against.name}` takes {wanted}.", None
    inputs: list[wire.InputPlan] = [{**one, "dtype": dtypes[one["name"]]} for one in feeds["inputs"]]
    return "", {**plan, "feeds": {**feeds, "inputs": inputs}}


def refuse(origins: Sequence[Origin], found: Pairs) -> None:
    """Refuse models whose outputs differ or could not be compared.

    Raises:
        SpecError: for the first such pair.
    """
    names = {one.sha256: one.name for one in origins}
    for (other, against), verdict in found.items():
        if verdict.breach is not False:
            raise SpecError(
                f"{output_difference_words(names[other], names[against], verdict)}.",
                hint="To compare them anyway, allow different models.",
            )
