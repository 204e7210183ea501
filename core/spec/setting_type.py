"""What a setting is: of a session, a provider, a step. Data alone.

A setting is drawn, read from a command line and told in help by this row alone; what the rows of a table have
beside it stands with that table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["bool", "int", "float", "choice", "text", "names", "dims", "list", "mapping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. Its values are plain JSON data: "names" a list of texts, "dims" name -> size.

    `default` is what happens when nothing is asked; None: it is decided while measuring.
    """

    name: str
    label: str = ""  # on screens; empty: its name
    kind: Kind
    default: Any
    help: str
    choices: tuple[Any, ...] = ()  # of "choice"; of "names" what is usual, others are allowed too
    low: float | None = None  # of "int" whole numbers
    high: float | None = None
    unit: str = ""
    advanced: bool = False
