"""Writes the bundle of `export`: records a sample if there is none, then packs everything into one zip."""

from __future__ import annotations

from pathlib import Path

import typer

from core.cli.output import check_output_path, print_json
from core.evidence.measurement import Trial
from core.process.job_worker import run_job
from core.run.bundle import writing
from core.run.search import search_provenance
from core.show.export import caution
from core.show.export.bundle import bundle_texts
from core.store import Store
from core.wire.errors import SpecError
from core.wire.units import size


def export_bundle(
    store: Store, trial: Trial, output: Path | None, accepted_breach: str, *, json_: bool
) -> None:
    """Write the bundle of a trial to `output`.

    Raises:
        SpecError: no file was given, or it cannot be written.
        TunerError: as of `writing.contents`.
    """
    if output is None:
        raise SpecError(
            "A bundle is a zip file, which ORTune does not write to stdout.", hint="Add `-o NAME.zip`."
        )
    check_output_path(output)
    held = writing.contents(store, trial, run=run_job)
    texts = bundle_texts(
        held, info=held.record.info, accepted_breach=accepted_breach, found=search_provenance(store, trial)
    )
    written = writing.write(output, held, texts)
    if doubt := caution(trial):
        typer.echo(doubt, err=True)
    if held.no_sample:
        typer.echo(f"The bundle has no recorded inputs and outputs: {held.no_sample}", err=True)
    typer.echo(f"Wrote {output} ({size(written)}).", err=True)
    if json_:
        told = {"trial": trial.id, "format": "bundle", "output": str(output), "text": ""}
        print_json({**told, "size_bytes": written})
