"""The base type of every setting of a session, a provider or a step. Data only.

Widgets, the command line and help texts need these fields only; a table that needs more subclasses `Setting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["bool", "int", "float", "choice", "text", "names", "dims", "list", "mapping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. Its values are plain JSON data: "names" a list of texts, "dims" name -> size.

    `default` holds while the setting is not set; None: ORTune decides while it measures.
    """

    name: str
    label: str = ""  # on screens; empty: its name
    kind: Kind
    default: Any
    help: str
    choices: tuple[Any, ...] = ()  # of "choice"; of "names" the usual ones, others are allowed
    low: float | None = None  # of "int" whole numbers
    high: float | None = None
    unit: str = ""
    advanced: bool = False
