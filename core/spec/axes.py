"""The axes of a sweep: parsing, validation and default values for a model and a machine.

Pure functions; `sweep` turns axes into points.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence

from core import wire
from core.spec import ModelRef, belongs
from core.spec.question import find_setting, parse_value
from core.spec.settings import (
    MAX_BATCH,
    MAX_THREADS,
    SETTINGS,
    Place,
    TrialSetting,
    Value,
    check_range,
    value_words,
)
from core.spec.space import MODEL, Axis
from core.wire.engines import DEFAULT, ENGINES
from core.wire.errors import SpecError, range_rule

BATCH = "batch_size"
THREADS = "intra_op_num_threads"
RUNTIME = "runtime"  # the values of a sweep are names, those of a search have hashes
MAX_AXES = 2  # a third would need a series of charts; a search handles more
MAX_POINTS = 256  # a typing error must not queue thousands of measurements
STUDY_PREFIX = "curve"
PERCENTILE_NAMES = ("p50_s", "p90_s", "p95_s", "p99_s")
DEFAULT_BATCHES = (1, 2, 4, 8, 16, 32)
_LISTABLE = ("bool", "int", "choice")  # types of settings whose values can be listed
_EXCLUDED = ("expert", "allow_fallback", "seed")  # permissions and random numbers: no axis for a chart
_ORDERED = ("graph_optimization_level",)  # choices whose values have an order

Values = Mapping[str, Value | None]  # name of an axis -> the value at a point
Models = Mapping[str, ModelRef]  # the values of the axis MODEL


def is_ordered(axis: Axis) -> bool:
    """Return whether the values of an axis have an order, so that a line may connect them."""
    row = row_of(axis.name)
    return axis.name != MODEL and (row is None or row.kind in ("int", "bool") or row.name in _ORDERED)


# --- reading --------------------------------------------------------------------------------------------

_NUMBERS_HINT = "Write whole numbers with commas, such as 1,2,4,8."


def row_of(name: str) -> TrialSetting | None:
    """Return the setting of that name; None: it is a dimension, or MODEL."""
    return next((one for one in SETTINGS if one.name == name), None)


def parse_values(text: str, *, name: str) -> tuple[Value | None, ...]:
    """Read "1,2,4,8" or "ORT_ENABLE_ALL,ORT_DISABLE_ALL" in the order given, each value once.

    Raises:
        SpecError: no value, one that the setting does not take, or a number out of its range.
    """
    row = row_of(name)
    split = r"[,;]+" if name == MODEL else r"[\s,;]+"
    parts = [part.strip() for part in re.split(split, text.strip()) if part.strip()]
    if row is not None and row.kind != "int":
        _check_varies(row)
        return axis(name, [parse_value(row, part) for part in parts]).values
    if name == MODEL:
        return axis(name, parts).values
    if not parts:
        raise SpecError(f"No values for `{name}`.", hint=_NUMBERS_HINT)
    for part in parts:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", part):
            raise SpecError(
                f"`{name}` takes whole numbers, but got `{part[:40]}`.",
                hint=_NUMBERS_HINT,
            )
    return axis(name, [int(part) for part in parts]).values


def parse_vary(text: str) -> Axis:
    """Read `NAME=A,B,C`; NAME is a setting by its name or its option's, a free dimension, or `model`.

    Raises:
        SpecError: no name or no values, or a value that the setting does not take.
    """
    name, equals, values = text.rpartition("=")
    if not equals or not name.strip() or not values.strip():
        raise SpecError(
            f"`{text[:60]}` has no {'values' if name or not equals else 'name'}.",
            hint="Write `NAME=A,B,…`, such as `intra_op_num_threads=1,2`.",
        )
    name = name.strip()
    with contextlib.suppress(SpecError):  # a dimension or unknown: checked against the model later
        name = find_setting(name).name
    return Axis(name=name, values=parse_values(values, name=name))


def axis(name: str, values: Iterable[Value | None]) -> Axis:
    """Return the axis `name` over `values`, each once, in the order given.

    Raises:
        SpecError: no values, too many, or one out of the setting's range.
    """
    kept = tuple(dict.fromkeys(values))
    if not kept:
        raise SpecError(f"No values for `{name}`.", hint="Give at least one.")
    for value in kept:
        _check_value(name, value)
    check_count(len(kept))
    return Axis(name=name, values=kept)


def _check_value(name: str, value: Value | None) -> None:
    row = row_of(name)
    if row is not None:
        _check_varies(row)
        if row.kind == "int" and isinstance(value, int):
            check_range(row, value)
    elif isinstance(value, int) and not 0 <= value <= MAX_BATCH:
        raise SpecError(
            f"{range_rule(f'`{name}`', 0, MAX_BATCH)}; got {value:,}.",
            hint="Choose a size in that range.",
        )


def varies(row: TrialSetting) -> bool:
    """Return whether a setting can be an axis: it changes the run, and its values can be listed."""
    several = row.kind in _LISTABLE and (row.low is None or row.low != row.high)
    listed = several or row.name in ("providers", RUNTIME)
    return listed and row.target != "protocol" and row.name not in _EXCLUDED


def _check_varies(row: TrialSetting) -> None:
    if not varies(row):
        why = "is a measurement setting" if row.target == "protocol" else "has no values to list"
        raise SpecError(f"`{row.name}` {why}, so it cannot vary.", hint="Set it once, as an option.")


def check_count(count: int) -> None:
    """Raise `SpecError` for more than MAX_POINTS points."""
    if count > MAX_POINTS:
        raise SpecError(
            f"A sweep has at most {MAX_POINTS} points, but this one has {count}.",
            hint="Remove values, or sweep one setting at a time.",
        )


# --- choices ------------------------------------------------------------------------------------------------


def axis_names(info: wire.ModelInfo, engine: str = DEFAULT) -> list[str]:
    """The axes that are swept most often on this model with an engine, most usual first."""
    batch = [BATCH] if info["batch_dim"] is not None else []
    threads = list(filter(None, [ENGINES[engine].threads]))
    return [*batch, *threads, *(dim for dim in info["free_dims"] if dim != info["batch_dim"])]


def offered(info: wire.ModelInfo, place: Place, models: Models, engine: str = DEFAULT) -> list[str]:
    """All axes with several useful values here: the usual ones, variants, the engine's other settings."""
    usual = axis_names(info, engine)
    several = [MODEL] if len(models) > 1 else []
    varying = [row for row in SETTINGS if varies(row) and belongs(row.name, engine)]
    others = [row.name for row in varying if row.kind == "int" or len(choices(row.name, place, models)) > 1]
    return list(dict.fromkeys([*usual, *several, *(name for name in others if name != BATCH)]))


def choices(name: str, place: Place, models: Models) -> tuple[Value | None, ...]:
    """Return the values of an axis that is chosen from a list, default first; empty for numbers."""
    if name == MODEL:
        return tuple(models)
    row = row_of(name)
    if row is None or row.kind == "int":
        return ()
    if row.kind == "choice":
        return row.choices
    return row.search_values(row, place) or ((row.default, not row.default) if row.kind == "bool" else ())


def default_values(name: str, *, usable_threads: int, current: int | None = None) -> tuple[int, ...]:
    """Return the default values of a numeric axis.

    Batch: powers of two to 32. Threads: every number to 8, then doubling, at most `usable_threads` (limited
    by affinity mask and container quota). Streams: doubling to `usable_threads`. Another setting: the values
    of a search. A dimension: powers of two around `current`.
    """
    if name == BATCH:
        return DEFAULT_BATCHES
    row = row_of(name)
    if row is not None and name not in {one.threads for one in ENGINES.values()}:
        place = Place(threads=usable_threads, streams=True)
        tried = row.search_values(row, place) or row.slider_stops(row, place)
        first = int(row.default or 1)
        return tuple(one for one in tried if isinstance(one, int))[:8] or (first, 2 * first, 4 * first)
    if row is not None:
        top = max(1, min(usable_threads, MAX_THREADS))
        if top <= 8:
            return tuple(range(1, top + 1))
        doubling = [2**k for k in range(top.bit_length()) if 2**k < top]
        return (*doubling, top)
    center = max(1, current or 64)
    return tuple(sorted({max(1, center // 4), max(1, center // 2), center, center * 2, center * 4}))


# --- text ---------------------------------------------------------------------------------------------


def point_name(values: Values) -> str:
    """Return the name of a point, such as `batch 8, threads 2`."""
    parts = []
    for name, value in values.items():
        text = value_words(value).replace("ExecutionProvider", "")
        row = row_of(name)
        tells_itself = name == MODEL or (row is not None and row.kind not in ("int", "bool"))
        parts.append(text if tells_itself else f"{name if row is None else row.short} {text}")
    return ", ".join(parts)


# --- the name under which a sweep is stored ----------------------------------------------------------

_BETWEEN = " × "


def study_name(axes: Sequence[Axis], token: str) -> str:
    """Return the study name of a sweep, readable for people and for `axes_of_study`."""
    parts = [
        f"{_escaped(one.name, '%×')}={','.join(_escaped(value_words(v), '%×,=#;') for v in one.values)}"
        for one in axes
    ]
    return f"{STUDY_PREFIX} {_BETWEEN.join(parts)} #{token}"


def axes_of_study(study: str) -> tuple[Axis, ...]:
    """Return the axes in a name from `study_name`; empty for another kind of study."""
    match = re.fullmatch(rf"{STUDY_PREFIX} (.+) #\w+", study)
    if match is None:
        return ()
    found = []
    for part in match[1].split(_BETWEEN):
        name, _, texts = part.rpartition("=")
        name = _unescaped(name)
        row = row_of(name)
        values = [_unescaped(text) for text in texts.split(",")]
        try:
            if name == MODEL:
                found.append(Axis(name=name, values=tuple(values)))
            elif row is not None and row.kind != "int":
                found.append(Axis(name=name, values=tuple(parse_value(row, text) for text in values)))
            else:
                found.append(Axis(name=name, values=tuple(int(text) for text in values)))
        except (SpecError, ValueError):
            return ()
    return tuple(found) if all(one.name for one in found) else ()


def _escaped(text: str, characters: str) -> str:
    return re.sub(f"[{characters}]", lambda one: f"%{ord(one[0]):02X}", text)


def _unescaped(text: str) -> str:
    return re.sub(r"%([0-9A-F]{2})", lambda one: chr(int(one[1], 16)), text)
