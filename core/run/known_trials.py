"""What the store knows of the configurations of a sweep: its own results, and earlier ones to reuse.

The store holds the trials of a sweep under its name, so another page or process can read its progress.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from core.evidence.comparison import Comparison, Configuration
from core.evidence.measurement import Trial
from core.process.engine_packages import is_same_version
from core.spec import TrialSpec
from core.store import Store
from core.wire.errors import StoreError
from core.wire.runtime import OWN

Earlier = Callable[[TrialSpec], Trial | None]  # finds an earlier measurement of the same request


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrial:
    """A measured configuration, as the store lists it: without raw latencies."""

    trial: Trial
    comparison: Comparison | None  # that measured it; None: deleted since
    reused: bool  # measured before this sweep


Known = Mapping[str, KnownTrial]  # by `TrialSpec.key`, in the order of the configurations


def known_trials(
    store: Store, asked: Sequence[Configuration], *, study: str, earlier: Earlier | None = None
) -> Known:
    """Return the known ones of the configurations, including running ones.

    Args:
        store: holds the trials.
        asked: the configurations.
        study: name of the sweep; empty: it has no trials yet.
        earlier: finds a measurement to reuse for a configuration without a trial, or with a cancelled one.
    """
    own: dict[str, Trial] = {}
    for one in store.trials(study=study) if study else ():
        own.setdefault(one.key, one)  # the newest

    @cache
    def comparison(comparison_id: str) -> Comparison | None:
        try:
            return store.comparison(comparison_id)
        except StoreError:
            return None

    known: dict[str, KnownTrial] = {}
    for key, spec in {one.spec.key(): one.spec for one in asked}.items():
        trial = own.get(key)
        before = earlier(spec) if earlier and (trial is None or trial.state == "CANCELLED") else None
        if found := before or trial:
            measured = comparison(found.comparison)
            known[key] = KnownTrial(trial=found, comparison=measured, reused=before is not None)
    return known


def is_current(spec: TrialSpec, trial: Trial) -> bool:
    """Whether the engine of a trial still has the version that measured it; `spec` is its request.

    The fingerprint of a machine holds the packages of ONNX Runtime alone; a hash pins a runtime.
    """
    return spec.runtime != OWN or is_same_version(spec.engine, trial.facts.get("libraries") or {})


def missing(asked: Sequence[Configuration], known: Known) -> list[Configuration]:
    """Return the configurations that a comparison must measure."""
    return [one for one in asked if one.spec.key() not in known]
