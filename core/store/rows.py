"""How a trial and a comparison stand in a row: which columns are JSON, which parts of a result stand apart.

Pure: dictionaries and dataclasses, no SQL. How raw parts become bytes is `samples.py`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Protocol

from core.comparison import Comparison, Contestant
from core.measurement import Trial
from core.store import samples

# parts of a result that grow with the number of runs
RAW_FIELDS = ("latencies_s", "warmup_latencies_s", "unprofiled_latencies_s", "blocks", "profile")
PRUNED = "samples_pruned_at"  # in a result: when its raw parts were dropped, in seconds since the epoch

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


def packed(result: Mapping[str, Any] | None) -> bytes | None:
    """Return the raw parts of a result as the table of samples takes them; None: it has none."""
    raw = {name: result[name] for name in RAW_FIELDS if name in result} if result else {}
    return samples.pack(raw) if raw else None


def raw_parts(data: bytes | str) -> dict[str, Any]:
    """Return the raw parts that stand in the table of samples: packed, or JSON text as before format 4.

    Raises:
        ValueError: they are damaged.
    """
    if isinstance(data, bytes):
        return samples.unpack(data)
    raw: dict[str, Any] = json.loads(data)
    return raw


def repacked(data: str) -> bytes:
    """Return raw parts that stand as JSON text in their packed form; raises like `raw_parts`."""
    return samples.pack(raw_parts(data))


def without_samples(result: str, at: float) -> str:
    """Return the result column of a trial whose raw parts are dropped: with the mark that says so."""
    return text({**json.loads(result), PRUNED: at})


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
