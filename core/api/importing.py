"""Results of other tools: `import_result` stores a profile or a summary, which ORTune only shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from core.api import arguments
from core.api.results import Result
from core.api.session import Session, default_session
from core.run.importing import import_evidence
from core.show import documents
from core.show.sheets import Sheet
from core.show.sheets import imported as sheets
from core.store import Store
from core.store.imported import Imported
from core.wire.profile import profile_from_dict


@arguments.checked()
def import_result(
    path: str | os.PathLike[str], wanted: Literal["profile", "summary"], *, session: Session | None = None
) -> Result[Imported]:
    """Store the content of a file, and return it; it is labelled as imported and never part of a verdict.

    Args:
        path: a profile of ONNX Runtime or a Chrome trace of it; or the output of onnxruntime_perf_test.
        wanted: the expected content: "profile", or "summary" of perf_test.
        session: see `tune`.

    Raises:
        SpecError: the file cannot be read, or holds the other kind of content.
        StoreError: it cannot be stored.
    """
    session = session or default_session()
    store = session.store
    one = import_evidence(store, Path(path), session.inspect, wanted=wanted)
    result = session.last = Result(
        kind="imported",
        id=one.id,
        read=lambda: one,
        document=lambda found: documents.imported(store, found),
        content=lambda found: imported_sheet(store, found),
    )
    return result


def imported_sheet(store: Store, one: Imported, *, top: int = 20) -> Sheet:
    """Return what a file holds; `top` limits the tables of a profile."""
    data = store.shelf.data(one.id)
    if one.kind == "summary":
        return sheets.summary(one.label, data, at=one.created_at)
    profile = profile_from_dict(data)
    return sheets.profiled(one.label, profile, top=top, format_=one.format, at=one.created_at)
