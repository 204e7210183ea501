"""The table of screening strategies by name; `race`, `grid` and `random` are functions of `plan`.

Each is a pure function from the state of a search to the next configurations. Optuna's sampler gets all
evaluations at each call, so it keeps no state between calls.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from core.run.search.failures import sound
from core.run.search.plan import PlanState, Strategy, at_random, designed, gain_of, in_order
from core.spec.space import Choice
from core.wire.errors import SpecError

ASKS_FOR_ONE = 20  # largest number of proposals drawn for one new configuration


def strategy_named(name: str) -> Strategy:
    """Return a strategy.

    Raises:
        SpecError: it needs a package that is not installed.
    """
    if name == "optuna-tpe" and importlib.util.find_spec("optuna") is None:
        raise SpecError(
            "The strategy `optuna-tpe` needs the package `optuna`, which is not installed.",
            hint="Install it (`pip install optuna`), or use the default strategy.",
        )
    return _STRATEGIES[name]


def by_optuna(known: PlanState, count: int) -> Sequence[Choice]:
    """Return proposals of Optuna's TPE sampler given all evaluations; each configuration once."""
    import optuna  # here: it takes a third of a second, and most searches do not need it

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = known.question.seed + len(known.tried)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    axes = known.space.axes
    kinds: dict[str, Any] = {
        axis.name: optuna.distributions.CategoricalDistribution(range(len(axis.values))) for axis in axes
    }
    for choice, one in known.tried.items():
        gain = gain_of(one, known.question)
        if gain is not None and not one.failed:
            names = dict(zip(kinds, choice, strict=True))
            study.add_trial(optuna.create_trial(params=names, distributions=kinds, value=gain[0]))
    open_ = [one for one in known.space.choices if one not in known.tried and one != known.default]
    left = set(sound(known, open_))
    found: list[Choice] = []
    for _ in range(count * ASKS_FOR_ONE):
        if len(found) == count or not left:
            break
        asked = study.ask(kinds)
        choice = _canonical(known, tuple(int(asked.params[axis.name]) for axis in axes))
        if choice in left:
            found.append(choice)
            left.remove(choice)
    return found


def _canonical(known: PlanState, asked: Choice) -> Choice:
    """The distinct configuration of a combination: settings without effect have the start's values."""
    if asked in known.space.known:
        return asked
    return known.space.canonical(asked)


_STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {"race": designed, "grid": in_order, "random": at_random, "optuna-tpe": by_optuna}
)
