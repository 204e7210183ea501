"""The command `glossary`."""

from __future__ import annotations

from typing import Annotated

import typer

from core.cli.sheets import print_parts
from core.show.glossary import TERMS, meaning
from core.show.table import Table, texts


def glossary(
    word: Annotated[list[str] | None, typer.Argument(help="Only this term, for example `round`.")] = None,
) -> None:
    """Explain the terms that ORTune uses."""
    asked = " ".join(word or [])
    rows = [(asked, meaning(asked))] if asked else list(TERMS.items())
    print_parts([Table(columns=texts("word", "meaning", left=2), rows=rows, solid=("word",))])
