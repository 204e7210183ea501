"""The commands of `variants`: list variants by family, rename and delete them."""

from __future__ import annotations

from typing import Annotated

import typer

from core.api import variants
from core.api.session import Session
from core.cli import COMMANDS
from core.cli.help_groups import Group
from core.cli.output import Json, Wide, print_json, print_lines
from core.cli.sheets import print_parts
from core.store import Store
from core.store.library import remove_model, rename_model
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
    result = variants.variants(model, session=Session())
    if json_:
        print_json(result.to_dict())
    elif result.record:
        print_parts([result.table()])
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
    before = variants.variant_named(store, variant)
    after = rename_model(store, before.content_sha256, name)
    if json_:
        print_json({"variant": after.name, "was": before.name, "content_sha256": after.content_sha256})
    else:
        print_lines([visible(f"`{before.name}` is called `{after.name}` now.")])


def delete(variant: Name, *, json_: Json = False) -> None:
    """Delete a variant and its files; its results stay, and so do variants derived from it."""
    store = Store()
    record = variants.variant_named(store, variant)
    remove_model(store, record.content_sha256)
    if json_:
        print_json({"deleted": record.name, "content_sha256": record.content_sha256})
    else:
        print_lines([visible(f"`{record.name}` is deleted.")])


app.command()(rename)
app.command()(delete)
