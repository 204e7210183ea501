"""How a trial and a comparison stand in a row: which columns are JSON, which parts of a result stand apart.

Pure: dictionaries and dataclasses, no SQL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Protocol

from core.comparison import Comparison, Contestant
from core.measurement import Trial

# parts of a result that grow with the number of runs
RAW_FIELDS = ("latencies_s", "warmup_latencies_s", "unprofiled_latencies_s", "blocks", "profile")

TRIAL_FIELDS = tuple(one.name for one in fields(Trial))
COMPARISON_FIELDS = tuple(one.name for one in fields(Comparison))
_JSON = {"spec", "error", "result", "contestants", "protocol", "warnings"}


class Row(Protocol):
    """What a row of SQLite offers."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the column `name`."""


def text(value: object) -> str:
    """Return `value` as compact JSON."""
    return json.dumps(value, separators=(",", ":"))


def fields_of(one: Trial | Comparison) -> dict[str, Any]:
    """Return every field as plain data, under its name."""
    if isinstance(one, Comparison):
        data = {name: getattr(one, name) for name in COMPARISON_FIELDS}
        return {**data, "contestants": [asdict(each) for each in one.contestants]}
    return {name: getattr(one, name) for name in TRIAL_FIELDS}


def columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as SQLite takes them."""
    assert set(values) <= {*TRIAL_FIELDS, *COMPARISON_FIELDS}, sorted(values)
    return {
        name: text(value) if name in _JSON and value is not None else value for name, value in values.items()
    }


def trial_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a trial as SQLite takes them; raw samples leave the result."""
    given = dict(values)
    if given.get("result") is not None:
        given["result"] = {name: part for name, part in given["result"].items() if name not in RAW_FIELDS}
    return columns(given)


def trial(row: Row, raw: Mapping[str, Any]) -> Trial:
    """Return the trial of a row, with its raw samples."""
    values = {name: _value(row, name) for name in TRIAL_FIELDS}
    if values["result"] is not None:
        values["result"] |= raw
    return Trial(**values)


def comparison(row: Row) -> Comparison:
    """Return the comparison of a row."""
    values = {name: _value(row, name) for name in COMPARISON_FIELDS}
    return Comparison(**{**values, "contestants": tuple(Contestant(**one) for one in values["contestants"])})


def _value(row: Row, name: str) -> Any:
    value = row[name]
    return json.loads(value) if name in _JSON and value is not None else value
