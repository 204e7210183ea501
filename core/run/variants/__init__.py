"""Variants: models that steps made of other models. Making them, their families, and what races have shown.

A variant is an ordinary model of the library whose `details["variant"]` say how it was made and how far its
outputs are from those of the original at the root of its chain. Parent side: no model file is opened here.
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
