"""The chain of digests from a model to an exported file: `provenance` checks it."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from core.api.results import Result
from core.api.session import Session, default_session
from core.run.digest_chain import DigestChain as DigestChain
from core.run.digest_chain import chain_of_file, chain_of_trial
from core.show.sheets.provenance import provenance_sheet


def provenance(
    ref: str | os.PathLike[str],
    *,
    trust: str | os.PathLike[str] | None = None,
    session: Session | None = None,
) -> Result[DigestChain]:
    """Check the digests of a result: model, variant, result, measurements, and the file it was exported to.

    Args:
        ref: ID of a trial, or the path of a YAML file or bundle.
        trust: path of the trust file. None: `ORTUNE_TRUST`, else the one in the data folder.
        session: see `tune`.

    Raises:
        StoreError: there is no such trial.
        SpecError: the file cannot be read.
    """
    store = (session or default_session()).store
    path = Path(ref)
    if path.is_file():
        found = chain_of_file(store, path, trust_file=None if trust is None else Path(trust))
    else:
        found = chain_of_trial(store, os.fspath(ref))
    return Result(
        kind="provenance", id=found.trial or "", read=lambda: found, document=asdict, content=provenance_sheet
    )
