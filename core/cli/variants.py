"""The commands of `variants`: list variants by family, rename and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from core.cli import COMMANDS
from core.cli.help_groups import Group
from core.cli.output import Json, Wide, print_json, print_lines
from core.cli.sheets import print_parts
from core.run.variants import family, variant_of, verdicts
from core.show import documents
from core.show.sheets.variants import Verdicts, listed
from core.store import ModelRecord, Store
from core.store.library import remove_model, rename_model, resolve_model
from core.wire.errors import SpecError, TunerError
from core.wire.units import visible

app = typer.Typer(
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    help=COMMANDS["variants"].help,
)

Name = Annotated[
    str, typer.Argument(help="Name or hash of a variant, with or without `variant:`.", metavar="VARIANT")
]


@app.command(name="list")
def list_variants(
    model: Annotated[
        str | None,
        typer.Argument(help="Only variants of this model: its path, name or hash.", show_default=False),
    ] = None,
    *,
    wide: Wide = False,
    json_: Json = False,
) -> None:
    """List variants below their originals, with size, error and speed-up."""
    store = Store()
    families = _families(store, model)
    if json_:
        print_json(documents.variants(families))
        return
    if families:
        print_parts([listed(families)])
    else:
        print_lines(["No variants yet. Create one: ortune transform digits_cnn --fp16"])


def rename(
    variant: Name,
    name: Annotated[str, typer.Argument(help="New name.", metavar="NAME")],
    *,
    json_: Json = False,
) -> None:
    """Rename a variant; its results keep the old name."""
    store = Store()
    before = _variant(store, variant)
    after = rename_model(store, before.content_sha256, name)
    if json_:
        print_json({"variant": after.name, "was": before.name, "content_sha256": after.content_sha256})
    else:
        print_lines([visible(f"`{before.name}` is called `{after.name}` now.")])


def delete(variant: Name, *, json_: Json = False) -> None:
    """Delete a variant and its files; its results stay, and so do variants derived from it."""
    store = Store()
    record = _variant(store, variant)
    remove_model(store, record.content_sha256)
    if json_:
        print_json({"deleted": record.name, "content_sha256": record.content_sha256})
    else:
        print_lines([visible(f"`{record.name}` is deleted.")])


app.command()(rename)
app.command()(delete)


def _variant(store: Store, ref: str) -> ModelRecord:
    name = ref.removeprefix("variant:")
    record = store.model(name)
    if record is None or variant_of(record) is None:
        what = "is no variant of a model" if record is None else "is an original, no variant"
        raise SpecError(f"`{name[:80]}` {what}.", hint="See `variants list`.")
    return record


def _families(store: Store, model: str | None) -> list[tuple[list[ModelRecord], Verdicts]]:
    """Return all families with a variant, or that of `model`, with the verdicts of comparisons."""
    if model is not None:
        record = resolve_model(store, model.removeprefix("variant:"))
        return _with_verdicts(store, [family(store, record)])
    roots: dict[str, list[ModelRecord]] = {}
    for one in store.models():
        if (variant := variant_of(one)) is not None and variant["root"] not in roots:
            roots[variant["root"]] = family(store, one)
    return _with_verdicts(store, list(roots.values()))


def _with_verdicts(
    store: Store, families: Sequence[list[ModelRecord]]
) -> list[tuple[list[ModelRecord], Verdicts]]:
    found = []
    for members in families:
        variant = next((facts for one in members if (facts := variant_of(one)) is not None), None)
        if variant is None:
            continue
        try:
            known: Verdicts = verdicts(store, variant["root"])
        except TunerError:  # the list must work despite a damaged comparison
            known = {}
        found.append((members, known))
    return found
