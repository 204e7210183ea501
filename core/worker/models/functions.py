"""Expand model-local functions: their call order, and the number of nodes once bodies replace all calls.

Reads a model in memory; opens no file and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onnx import FunctionProto, ModelProto, NodeProto

from core.wire.errors import ModelError
from core.worker.models.graphs import domain_name, with_bodies

_Key = tuple[str, str, str]  # domain, name, overload


def expanded_nodes(model: ModelProto) -> int:
    """Return how many nodes the model has once every call of a local function is replaced by its body.

    Raises:
        ModelError: a function calls itself, directly or through others.
    """
    called = {_key_of(one): Counter(map(_key, with_bodies(one.node))) for one in model.functions}
    if not called:
        return sum(1 for _ in with_bodies(model.graph.node))
    sizes: dict[_Key, int] = {}
    for key in _callees_first(called):
        sizes[key] = sum(times * sizes.get(one, 1) for one, times in called[key].items())
    return sum(sizes.get(_key(node), 1) for node in with_bodies(model.graph.node))


def _callees_first(called: dict[_Key, Counter[_Key]]) -> Iterator[_Key]:
    """Yield every function after those that it calls."""
    done: set[_Key] = set()
    for first in called:
        path: dict[_Key, Iterator[_Key]] = {first: iter(called[first])}
        while path:
            current = next(reversed(path))
            callee = next(path[current], None)
            if callee is None:
                if current not in done:
                    done.add(current)
                    yield current
                del path[current]
            elif callee in path:
                raise ModelError(
                    f"The local function `{callee[1][:80]}` calls itself, which ONNX forbids.",
                    hint="Export the model again; what repeats is a Loop or a Scan.",
                )
            elif callee in called and callee not in done:
                path[callee] = iter(called[callee])


def _key(node: NodeProto) -> _Key:
    return domain_name(node.domain), node.op_type, node.overload


def _key_of(function: FunctionProto) -> _Key:
    return domain_name(function.domain), function.name, function.overload
