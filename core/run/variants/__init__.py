"""Variants, models created from other models by transform steps: creation, families, comparisons.

A variant is an ordinary model of the library. Its `details["variant"]` describe its creation and the
differences of its outputs from those of the original. This package runs in the parent, so it opens no model.
"""

from __future__ import annotations

from core.run.variants.comparisons import race_of_family, verdicts
from core.run.variants.creation import (
    ASSUMED_DIM,
    CHECK_BATCHES,
    Made,
    assumed_sizes,
    check_feeds,
    check_request,
    data_digest,
    make_chain,
)
from core.run.variants.records import (
    Branch,
    family,
    judged,
    lineage,
    model_facts,
    original,
    precision_of_model,
    root_of,
    steps_of,
    tree,
    variant_of,
)
from core.store.library import descendants, use_of

__all__ = [
    "ASSUMED_DIM",
    "CHECK_BATCHES",
    "Branch",
    "Made",
    "assumed_sizes",
    "check_feeds",
    "check_request",
    "data_digest",
    "descendants",
    "family",
    "judged",
    "lineage",
    "make_chain",
    "model_facts",
    "original",
    "precision_of_model",
    "race_of_family",
    "root_of",
    "steps_of",
    "tree",
    "use_of",
    "variant_of",
    "verdicts",
]
