"""Comparisons of a family: their configurations, and the verdicts on each variant versus its original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core import wire
from core.evidence.comparison import Comparison, Configuration, same_request
from core.evidence.verdict import is_rejected
from core.run.variants.records import family, steps_of, variant_of
from core.spec import ModelRef, TrialSpec, WorkloadSpec, ort_default, spec_from_dict
from core.store import ModelRecord, Store
from core.wire.errors import SpecError, TunerError

COMPARISONS_READ = 30  # newest comparisons of each model of a family that are read


def family_configurations(records: Sequence[ModelRecord], base: TrialSpec) -> list[Configuration]:
    """Return the configurations of a comparison: the original first, then each variant, on the ORT default.

    All have the workload and the protocol of `base`. If a variant has a fixed dimension, all models get that
    size, because other sizes would be different work.

    Args:
        records: of one family; the original comes first whatever its place.
        base: workload, protocol and operator libraries; its model and other settings are ignored.

    Raises:
        SpecError: no records, or sizes that contradict each other or those of `base`.
    """
    if not records:
        raise SpecError("There is no model to compare.", hint="Choose at least one variant.")
    session = ort_default(base).session
    ordered = sorted(records, key=lambda one: variant_of(one) is not None)
    sizes = _common_sizes(ordered, base.workload)
    return [
        Configuration(
            spec=TrialSpec(
                model=ModelRef(path=one.path, sha256=one.sha256),
                session=session,
                workload=_fitted(base.workload, one.info, sizes),
                protocol=base.protocol,
            ),
            label=one.name if variant_of(one) else f"{one.name} (original)",
        )
        for one in ordered
    ]


def _common_sizes(records: Sequence[ModelRecord], workload: WorkloadSpec) -> dict[str, int]:
    """Dimensions that variants have fixed; they must agree with each other and with the workload."""
    sizes: dict[str, int] = {}
    for record in records:
        for step in steps_of(record):
            for dim, size in step.options.get("dims", {}).items():
                wanted = sizes.get(dim, workload.dims.get(dim, size))
                if wanted != size:
                    raise SpecError(
                        f"`{record.name}` has `{dim}` fixed at {size}, but the others use {wanted}.",
                        hint=f"Remove it, or set `{dim}` to {size}.",
                    )
                sizes[dim] = size
    return sizes


def _fitted(workload: WorkloadSpec, info: wire.ModelInfo, sizes: Mapping[str, int]) -> WorkloadSpec:
    """The workload with `sizes` for the free dimensions of this model."""
    dims = {dim: size for dim, size in {**workload.dims, **sizes}.items() if dim in info["free_dims"]}
    batch, dim = workload.batch_size, info["batch_dim"]
    rows = sizes.get(dim or "")
    if dim is None:
        rows, what = info["fixed_batch"], "A model has its batch"
    else:
        what = f"A variant has `{dim}`"
    if batch is not None and batch != rows and (dim is None or rows is not None):
        raise SpecError(
            f"{what} fixed at {rows}, but `batch_size` is {batch}.",
            hint=f"Use {rows}, or remove that variant.",
        )
    return workload.model_copy(update={"dims": dims})


def verdicts(store: Store, root_sha: str) -> dict[str, dict[str, Any]]:
    """Return the verdict on each variant versus the original, both on the ORT default.

    Returns:
        Content hash -> {ratio, ratio_low, ratio_high, verdict, grade, launches, busy, comparison, trial},
        from the newest comparison that was not graded F, else from the newest one; variants without a
        comparison are missing.
    """
    root = store.model(root_sha)
    if root is None:
        return {}
    comparisons: dict[str, Comparison] = {}
    for one in family(store, root):
        for comparison in store.comparisons(
            model_sha256=one.content_sha256, state="COMPLETE", limit=COMPARISONS_READ
        ):
            comparisons[comparison.id] = comparison
    found: dict[str, dict[str, Any]] = {}
    for comparison in sorted(comparisons.values(), key=lambda one: one.created_at, reverse=True):
        for content, verdict in _verdicts_of(store, comparison, root_sha).items():
            if content not in found or (is_rejected(found[content]) and not is_rejected(verdict)):
                found[content] = verdict
    return found


def _verdicts_of(store: Store, comparison: Comparison, root_sha: str) -> dict[str, dict[str, Any]]:
    contrasts = comparison.facts.get("contrasts") or []
    if not contrasts:
        return {}
    defaults = {
        trial.id: trial.model_sha256 for trial in store.trials_of(comparison.id) if _is_default(trial.spec)
    }
    return {
        content: {
            **{name: one[name] for name in ("ratio", "ratio_low", "ratio_high", "verdict", "grade")},
            "generations": one.get("generations"),
            "busy": comparison.facts.get("busy"),
            "comparison": comparison.id,
            "trial": one["candidate"],
        }
        for one in contrasts
        if defaults.get(one["baseline"]) == root_sha
        and (content := defaults.get(one["candidate"], root_sha)) != root_sha
    }


def _is_default(spec: Mapping[str, Any]) -> bool:
    """Whether a stored spec is the ORT default; False for specs that this version cannot read."""
    try:
        found = spec_from_dict(spec)
    except TunerError:
        return False
    return same_request(found, ort_default(found))
