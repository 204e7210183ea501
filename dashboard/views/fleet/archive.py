"""The YAML files of a fleet run in one archive. Pure."""

from __future__ import annotations

import io
import zipfile

from core.evidence.fleet.summary import Summary
from core.show.fleet_files import files


def content(summary: Summary) -> bytes:
    """Return the YAML files of a run in one archive, with the reasons for missing ones."""
    packed = io.BytesIO()
    made = files(summary)
    missing = [f"{one.name}: {one.missing}" for one in made if one.missing]
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in made:
            if not one.missing:
                archive.writestr(one.name, one.text)
        if missing:
            archive.writestr("missing.txt", "\n".join(missing) + "\n")
    return packed.getvalue()
