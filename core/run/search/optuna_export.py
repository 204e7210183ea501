"""Exports a search as an Optuna study, for `optuna-dashboard` and Optuna's own plots.

Optuna is imported inside of functions, because it is an extra and takes a third of a second to import.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.evidence.evaluations import Evaluation, confirmed_gains, reported_speedup
from core.evidence.result_types import SpeedUpNumbers
from core.run.search.stored import answer_of, evaluations_of, measured_default
from core.spec import TrialSpec, effective
from core.spec.question import Question, question_from_dict
from core.spec.settings import SETTINGS
from core.spec.space import MODEL, Axis
from core.store import StudyRecord
from core.wire.errors import SpecError

_NAMES = frozenset(one.name for one in SETTINGS)  # others, such as provider options, have no default
ITSELF = "the model itself"  # the default's value of the axis MODEL
NO_GAIN = "The objective was not measured."
_EXAMPLE = "Use for example `sqlite:///study.db`."


def study_name(record: StudyRecord) -> str:
    """Return the name of a search's Optuna study."""
    return f"{record.model_name} {record.id}"


def export(record: StudyRecord, url: str, *, axes: Sequence[Axis] = ()) -> int:
    """Write a search into an Optuna storage, one trial for each evaluated configuration.

    The parameters of a trial are all settings that varied, or that the start sets differently from the ORT
    default, with their effective values. Its value is the speed-up of the objective over the ORT default: a
    ratio, larger is better. A failed configuration is a failed trial.

    Args:
        record: the search.
        url: `sqlite:///FILE`; the file may be new or contain other Optuna studies.
        axes: the search space; without it, parameters have only the evaluated values.

    Returns:
        Number of written trials.

    Raises:
        SpecError: Optuna is not installed; no such storage; or it already contains this search.
    """
    if importlib.util.find_spec("optuna") is None:
        raise SpecError(
            "Writing an Optuna study needs the package `optuna`, which is not installed.",
            hint="Install it: `pip install '.[optuna]'`.",
        )
    import optuna

    question = question_from_dict(record.question)
    tried = evaluations_of(record)
    values = _values(measured_default(record), tried, axes)
    confirmed = confirmed_gains(record.answer)
    kinds: dict[str, Any] = {
        name: optuna.distributions.CategoricalDistribution(own) for name, own in values.items()
    }
    trials = [
        optuna.create_trial(distributions=kinds, **_trial(one, question, confirmed, values))
        for one in tried
        if one.looks
    ]
    name = study_name(record)
    with _storage(url) as storage:
        try:
            study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
        except optuna.exceptions.DuplicatedStudyError:
            raise SpecError(
                f"`{url}` already contains the study `{name}`.",
                hint="Choose another file, or delete that study.",
            ) from None
        for key, value in _facts(record, question).items():
            study.set_user_attr(key, value)
        study.add_trials(trials)
    return len(trials)


# --- trials -------------------------------------------------------------------------------------------------


def _values(default: TrialSpec, tried: Sequence[Evaluation], axes: Sequence[Axis]) -> dict[str, list[Any]]:
    """Return the values of every setting that varied or differs from the default, the default's first."""
    seen = [*((one.name, value) for one in axes for value in one.values)]
    seen += [pair for one in tried for pair in one.changes.items()]
    found: dict[str, list[Any]] = {}
    for name, value in seen:
        own = effective(default, name) if name in _NAMES else None
        values = found.setdefault(name, [_plain(own)])
        if value is not None and not any(_same(_plain(value), known) for known in values):
            values.append(_plain(value))
    if MODEL in found:
        found[MODEL] = [ITSELF if value is None else value for value in found[MODEL]]
    return found


def _plain(value: Any) -> Any:
    """The value of a categorical parameter."""
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else value


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _trial(
    one: Evaluation,
    question: Question,
    confirmed: Mapping[str, SpeedUpNumbers],
    values: Mapping[str, Sequence[Any]],
) -> dict[str, Any]:
    """The state, value, parameters and attributes of a trial."""
    gain = reported_speedup(one, question.objective, confirmed)
    failed = one.failed or ("" if gain is not None else NO_GAIN)
    params = {name: _plain(one.changes.get(name, own[0])) for name, own in values.items()}
    attributes: dict[str, Any] = {
        "stages": [look.stage for look in one.looks],
        "trial": one.looks[-1].trial,
        "values": {metric: v for look in one.looks for metric, v in look.values.items()},
    }
    if gain is not None:
        attributes |= {
            "interval": None if gain.low is None else (gain.low, gain.high),
            "launches": gain.launches,
        }
    if failed:
        return {"state": _state("FAIL"), "params": params, "user_attrs": attributes | {"error": failed}}
    assert gain is not None
    return {
        "state": _state("COMPLETE"),
        "value": gain.ratio,
        "params": params,
        "user_attrs": attributes,
    }


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]


def _facts(record: StudyRecord, question: Question) -> dict[str, Any]:
    answer = answer_of(record)
    winner = answer["winner"] if answer is not None else None
    return {
        "model": record.model_name,
        "model_sha256": record.model_sha256,
        "objective": dict(question.objective),
        "value": "speed-up of the objective over ONNX Runtime's default, as a ratio",
        "limits": question.limit_words,
        "outcome": record.state if answer is None else answer["outcome"],
        "winner": None if winner is None else winner["changes"],
    }


# --- storage ------------------------------------------------------------------------------------------------


@contextmanager
def _storage(url: str) -> Iterator[Any]:
    """Open an Optuna storage in a SQLite file and close it at the end of the `with`."""
    import optuna
    import sqlalchemy

    _check_file(url)
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = None
    try:
        storage = optuna.storages.RDBStorage(url)
        yield storage
    except SpecError:
        raise
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError, OSError) as error:
        words = str(error).strip().splitlines()
        raise SpecError(
            f"`{url}` cannot be written: {words[0] if words else type(error).__name__}",
            hint="Choose a new file.",
        ) from error
    finally:
        optuna.logging.set_verbosity(level)
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()


def _check_file(url: str) -> None:
    """Refuse a storage that Optuna could not open later, and files of other programs."""
    import sqlalchemy

    try:
        parts = sqlalchemy.engine.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise SpecError(f"`{url[:200]}` is not a storage URL.", hint=_EXAMPLE) from None
    if parts.drivername != "sqlite" or parts.database in (None, "", ":memory:"):
        raise SpecError(f"`{url[:200]}` is not a SQLite file.", hint=_EXAMPLE)
    path = Path(str(parts.database))
    if not path.parent.is_dir():
        raise SpecError(f"The folder `{path.parent}` does not exist.", hint="Create it first.")
    if path.is_dir():
        raise SpecError(f"`{path}` is a folder.", hint=_EXAMPLE)
    if path.exists() and path.stat().st_size and not _is_of_optuna(url):
        raise SpecError(f"`{path}` exists and contains no Optuna studies.", hint="Choose a new file.")


def _is_of_optuna(url: str) -> bool:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url)
    try:
        return sqlalchemy.inspect(engine).has_table("version_info")
    except sqlalchemy.exc.DatabaseError:
        return False
    finally:
        engine.dispose()
