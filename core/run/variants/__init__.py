"""Variants, models created from other models by transform steps: creation, families, comparisons.

A variant is an ordinary model of the library. Its `details["variant"]` describe its creation and the
differences of its outputs from those of the original. This package runs in the parent, so it opens no model.
"""

from __future__ import annotations

from core.run.variants.comparisons import family_configurations, verdicts
from core.run.variants.creation import (
    ASSUMED_DIM,
    CHECK_BATCHES,
    Made,
    assumed_sizes,
    check_request,
    data_digest,
    make_chain,
    output_check_inputs,
)
from core.run.variants.records import (
    Branch,
    creation_check,
    family,
    lineage,
    model_facts,
    original,
    precision_of_model,
    root_of,
    steps_of,
    tree,
    variant_of,
)
from core.store.library import descendants, unfinished_trials_of

__all__ = [
    "ASSUMED_DIM",
    "CHECK_BATCHES",
    "Branch",
    "Made",
    "assumed_sizes",
    "check_request",
    "creation_check",
    "data_digest",
    "descendants",
    "family",
    "family_configurations",
    "lineage",
    "make_chain",
    "model_facts",
    "original",
    "output_check_inputs",
    "precision_of_model",
    "root_of",
    "steps_of",
    "tree",
    "unfinished_trials_of",
    "variant_of",
    "verdicts",
]
