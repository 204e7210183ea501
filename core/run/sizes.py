"""Default sizes of free dimensions: from the model's last run, else from the model itself.

The batch is not included: it is 1 unless given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from core.process.job_worker import Run
from core.run.plan import missing_dims
from core.run.preparation import inspect_model
from core.run.variants import variant_of
from core.spec import TrialSpec
from core.spec.sizes import (
    guessed_size,
    ignored_sizes_note,
    image_side,
    size_of_sum,
    sizes_from_input_names,
    sizes_in_metadata,
)
from core.store import ModelRecord, Store
from core.wire.errors import TunerError

# "others": as in another configuration of the same comparison; "sum": the dimension is a sum of known ones;
# "names": what inputs of these names usually take
Source = Literal["others", "sum", "last run", "file", "names", "guess"]

_LOOKED_AT = 10  # newest trials of a model: one with inputs from a file names no sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a free dimension, and its source."""

    size: int
    source: Source
    why: str = field(default="", compare=False)  # entry of the file, or input
    note: str = field(default="", compare=False)  # ignored information of the file


def default_sizes(
    dims: Iterable[str], record: ModelRecord, store: Store, *, given: Mapping[str, int] | None = None
) -> dict[str, Size]:
    """Return a size for each of `dims`: from the model's last run, else from the model, else a guess.

    A dimension such as `past + 1` is computed from its terms where these are known. A variant without a run
    uses the last run of its original.

    Args:
        dims: free dimensions.
        record: the model.
        store: holds the trials.
        given: sizes from the user.
    """
    left = sorted(dims, key=lambda dim: "+" in dim)  # a sum after its terms
    if not left:
        return {}
    known = dict(given or {})
    last, told, note = (
        _last_run(left, record, store),
        _sizes_from_model(record),
        ignored_sizes_note(record.info),
    )
    found: dict[str, Size] = {}
    for dim in left:
        if (total := size_of_sum(dim, known)) is not None:
            found[dim] = Size(size=total, source="sum")
        elif dim in last:
            found[dim] = Size(size=last[dim], source="last run")
        else:
            found[dim] = told.get(dim) or Size(size=guessed_size(dim, record.info), source="guess")
            if image_side(dim, record.info):
                found[dim] = replace(found[dim], note=note)
        if found[dim].source != "guess":
            known[dim] = found[dim].size
    return found


def _sizes_from_model(record: ModelRecord) -> dict[str, Size]:
    """Sizes from the file's metadata and from the names of inputs."""
    by_names = sizes_from_input_names(record.info).items()
    by_file = sizes_in_metadata(record.info).items()
    return {dim: Size(size=one.size, source="names", why=one.why) for dim, one in by_names} | {
        dim: Size(size=one.size, source="file", why=one.why) for dim, one in by_file
    }


def _last_run(dims: Collection[str], record: ModelRecord, store: Store) -> Mapping[str, int]:
    for sha256 in (record.content_sha256, (variant_of(record) or {}).get("root")):
        trials = store.trials(model_sha256=sha256, state="COMPLETE", limit=_LOOKED_AT) if sha256 else []
        for trial in trials:
            sizes: Mapping[str, int] = trial.spec.get("workload", {}).get("dims", {})
            if any(dim in sizes for dim in dims):
                return sizes
    return {}


def with_known_sizes(
    specs: Sequence[TrialSpec], store: Store, run: Run, *, varied: Collection[str] = ()
) -> tuple[list[TrialSpec], dict[str, Size]]:
    """Return `specs` with missing sizes filled in as far as known, and the filled-in sizes.

    All get the same size, so that their inputs are equal. A model that cannot be inspected is left alone: the
    later check says why. A guess is not filled in.

    Args:
        specs: configurations of one comparison.
        store: holds the library and the trials.
        run: starts a worker where a model was not inspected yet.
        varied: dimensions whose sizes are set later.
    """
    shared = {
        dim: Size(size=size, source="others") for spec in specs for dim, size in spec.workload.dims.items()
    }
    done, filled = [], dict[str, Size]()
    for spec in specs:
        own = _missing_sizes(spec, store, run, shared, varied)
        filled |= own
        shared |= own
        done.append(_with_dims(spec, own) if own else spec)
    return done, filled


def _with_dims(spec: TrialSpec, sizes: Mapping[str, Size]) -> TrialSpec:
    dims = {**spec.workload.dims, **{dim: one.size for dim, one in sizes.items()}}
    return spec.model_copy(update={"workload": spec.workload.model_copy(update={"dims": dims})})


def _missing_sizes(
    spec: TrialSpec, store: Store, run: Run, shared: Mapping[str, Size], varied: Collection[str]
) -> dict[str, Size]:
    """Known sizes for the missing ones of `spec`; those of the other configurations take precedence."""
    try:
        found = inspect_model(spec, store, run)
    except TunerError:
        return {}
    if found is None:
        return {}
    fixed = {*varied, *spec.session.free_dimension_overrides}  # an override fixes the size of the input
    missing = [dim for dim in missing_dims(spec.workload, found.record.info) if dim not in fixed]
    own = {dim: shared[dim] for dim in missing if dim in shared}
    known = {**spec.workload.dims, **{dim: one.size for dim, one in own.items()}}
    rest = default_sizes([dim for dim in missing if dim not in own], found.record, store, given=known)
    return own | {dim: one for dim, one in rest.items() if one.source != "guess"}
