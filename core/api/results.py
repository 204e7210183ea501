"""Results of the Python API: one type for every kind of result.

A result reads the store at each access, so it is current even while its job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from core import FORMAT_VERSION
from core.show.html import fragment
from core.show.sheets import Sheet
from core.show.table import Table, frame_columns
from core.store import Store
from core.wire import sandbox
from core.wire.errors import SpecError
from core.wire.plain_data import plain
from core.wire.units import visible

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Result(Generic[R]):
    """A result with its record in the store (`record`) and its forms.

    It cannot be pickled; keep `to_dict()`, or `id` for `load_result`. Two results are equal only if they are
    the same object.
    """

    kind: str  # "trial", "comparison", "sweep", "search", "explanation", …
    id: str  # of the record; empty: it has none
    read: Callable[[], R]  # reads the record from the store
    document: Callable[[R], Mapping[str, Any]]
    content: Callable[[R], Sheet]
    says: Callable[[R], str] | None = None  # the verdict or the answer; None: the headline of the sheet
    rows: Callable[[R], Table] | None = None  # main table; None: the first of the sheet
    numbers: Callable[[R], Table] | None = None  # table of the frame; None: the main table
    store: Store | None = None  # that holds it and what its plots need; None: it is not stored
    refs: Sequence[str] = ()  # references of `report`; empty: it has no report

    @property
    def record(self) -> R:
        """The record as the store has it now."""
        return self.read()

    @property
    def verdict(self) -> str:
        """The verdict or the answer in one sentence, with its interval."""
        return self.sheet().headline if self.says is None else self.says(self.record)

    def to_dict(self) -> dict[str, Any]:
        """Return what the command prints with `--json`, as a dict."""
        head = {"format_version": FORMAT_VERSION, **sandbox.mark()}
        return dict(plain({**head, **self.document(self.record)}))

    def sheet(self) -> Sheet:
        """Return the data of which the command prints text: headline, facts, notes and tables."""
        return self.content(self.record)

    def table(self) -> Table:
        """Return the main table with its columns, as commands and pages show it.

        Raises:
            SpecError: this result has no table.
        """
        if self.rows is not None:
            return self.rows(self.record)
        for part in self.sheet().parts:
            if isinstance(part, Table):
                return part
        raise SpecError(f"A result of kind `{self.kind}` has no table.", hint="Use `to_dict()`.")

    def to_frame(self) -> pd.DataFrame:
        """Return the results as a pandas frame of numbers; the columns name their units, unknown is NaN.

        Raises:
            SpecError: this result has no table, or pandas is not installed.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise SpecError("A frame needs the package `pandas`.", hint="Install it.") from None
        table = self.table() if self.numbers is None else self.numbers(self.record)
        return pd.DataFrame(frame_columns(table))

    def plot(self) -> Any:
        """Return the first plot of this result's report, a Plotly figure.

        Raises:
            SpecError: this result has no plot, or Plotly is not installed.
        """
        if _plotter is None:
            raise SpecError("Plots need the package `ortune`.", hint="Use `import ortune`.")
        return _plotter(self)

    def __repr__(self) -> str:
        """Return kind, id and verdict on one line."""
        name = f"{self.kind} {self.id}".strip()
        return f"<{name}: {visible(self.verdict)}>"

    def _repr_html_(self) -> str:
        return fragment(self.sheet())


_plotter: Callable[[Result[Any]], Any] | None = None


def set_plotter(draw: Callable[[Result[Any]], Any]) -> None:
    """Let `Result.plot` call `draw`; `core` itself knows no Plotly."""
    global _plotter
    _plotter = draw
