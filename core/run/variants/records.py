"""Reads how a model was created from its record, and the families of originals and variants. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from core.evidence.result_types import ModelFacts
from core.spec.steps import QUANTIZED_OPERATORS, Precision, Step, chain_text, step_from_dict
from core.store import ModelRecord, Store
from core.wire.output_check import OutputCheck, check_outputs, random_operators


def variant_of(record: ModelRecord) -> dict[str, Any] | None:
    """Return how a variant was created; None: the model is no variant."""
    found = record.details.get("variant")
    return found if isinstance(found, dict) else None


def steps_of(record: ModelRecord) -> list[Step]:
    """Return the whole chain from the original; empty: it is an original.

    Raises:
        SpecError: the chain was written by a version that knew other steps.
    """
    return [step_from_dict(one) for one in (variant_of(record) or {}).get("steps", [])]


def original(store: Store, record: ModelRecord) -> ModelRecord | None:
    """Return the original of a variant, or the record itself if it is no variant; None: it is missing."""
    variant = variant_of(record)
    if variant is None:
        return record
    found = store.model(variant["root"])
    return found if found is not None and Path(found.path).is_file() else None


def root_of(store: Store, record: ModelRecord) -> ModelRecord:
    """Return the original that outputs are checked against; the model itself if the original is missing."""
    return original(store, record) or record


def precision_of_model(record: ModelRecord) -> Precision:
    """Return the precision of a model: as stored for a variant, else from its operators and inputs."""
    variant = variant_of(record)
    if variant is not None:
        return cast(Precision, variant["precision"])
    operators = record.info["op_counts"]
    if "MatMulNBits" in operators:
        return "int4"
    if not QUANTIZED_OPERATORS.isdisjoint(operators):
        return "int8"
    floats = {one["dtype"] for one in record.info["inputs"] if "float" in one["dtype"]}
    return "fp16" if floats and floats <= {"float16", "bfloat16"} else "fp32"


def creation_check(record: ModelRecord) -> OutputCheck | None:
    """Return the output check of a variant with the errors found at its creation; None: it is no variant.

    The rule is the same as for the results of comparisons.
    """
    variant = variant_of(record)
    if variant is None:
        return None
    random = random_operators(record.info)
    return check_outputs(variant["error"], precision_of_model(record), random=random)


def model_facts(record: ModelRecord) -> ModelFacts:
    """Return the facts of a model that a result contains.

    Raises:
        SpecError: the chain was written by a version that knew other steps.
    """
    steps = steps_of(record)
    return {
        "name": record.name,
        "sha256": record.content_sha256,
        "precision": precision_of_model(record),
        "variant_of": str((variant_of(record) or {}).get("root_name", "")),
        "steps": chain_text(steps) if steps else "",
    }


def lineage(record: ModelRecord) -> str:
    """Return the origin of a variant in one line; empty: it is an original."""
    variant = variant_of(record)
    return "" if variant is None else f"variant of `{variant['root_name']}`: {chain_text(steps_of(record))}"


# --- families -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A model in the tree of its family, in the order in which the tree is drawn."""

    record: ModelRecord
    lasts: tuple[bool, ...]  # for each level below the root, whether its ancestor there is the last child
    parent_known: bool  # False: the variant that it was created from was deleted

    @property
    def depth(self) -> int:
        """Number of ancestors in the tree; 0: a root."""
        return len(self.lasts)

    @property
    def prefix(self) -> str:
        """Box-drawing characters before the model's name, for monospaced text."""
        if not self.lasts:
            return ""
        *above, own = self.lasts
        return "".join("   " if last else "│  " for last in above) + ("└─ " if own else "├─ ")


def family(store: Store, record: ModelRecord) -> list[ModelRecord]:
    """Return the original of a model and all its variants, the original first, then by age."""
    root = (variant_of(record) or {}).get("root", record.content_sha256)
    members = [
        one for one in store.models() if root in (one.content_sha256, (variant_of(one) or {}).get("root"))
    ]
    if all(one.content_sha256 != record.content_sha256 for one in members):  # a file that the library lacks
        members.append(record)
    return sorted(members, key=lambda one: (one.content_sha256 != root, one.created_at, one.name))


def tree(records: Sequence[ModelRecord]) -> list[Branch]:
    """Return `records` as a tree; the parent of a variant is the model that it was created from.

    A variant without its parent in `records` is a child of its original, or a root if that is missing, too.
    """
    by_content = {one.content_sha256: one for one in records}
    children: dict[str, list[ModelRecord]] = {}
    for one in sorted(by_content.values(), key=lambda one: (one.created_at, one.name)):
        children.setdefault(_above(one, by_content), []).append(one)
    return list(_branches("", (), children, by_content))


def _above(record: ModelRecord, known: Mapping[str, ModelRecord]) -> str:
    """Content hash of the parent in the tree; empty: a root."""
    variant = variant_of(record) or {}
    above = (variant.get("parent", ""), variant.get("root", ""))
    return next((one for one in above if one in known and one != record.content_sha256), "")


def _branches(
    above: str,
    lasts: tuple[bool, ...],
    children: Mapping[str, Sequence[ModelRecord]],
    known: Mapping[str, ModelRecord],
) -> Iterator[Branch]:
    own = children.get(above, ())
    for number, record in enumerate(own, 1):
        variant = variant_of(record)
        line = (*lasts, number == len(own)) if above else ()
        yield Branch(
            record=record, lasts=line, parent_known=variant is None or variant.get("parent") in known
        )
        yield from _branches(record.content_sha256, line, children, known)
