"""What is fed, in words: every input with its type, its shape and where its values come from. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from core import wire
from core.evidence.documents import FedInput

_MOST = 40  # characters of a fixed value


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """One input that is fed."""

    name: str
    dtype: str
    shapes: list[list[int]]  # each that is fed; -1: a size that a file brings along
    values: str  # where they come from, for a person

    def to_dict(self) -> FedInput:
        """Plain JSON data."""
        return cast(FedInput, asdict(self))


def fed_from_dict(data: Mapping[str, Any]) -> Fed:
    """Read what `Fed.to_dict` wrote."""
    return Fed(name=data["name"], dtype=data["dtype"], shapes=list(data["shapes"]), values=data["values"])


def fed(
    feeds: Sequence[wire.FeedPlan],
    info: wire.ModelInfo | None,
    really: Sequence[wire.TensorInfo] = (),
) -> list[Fed]:
    """Return what `feeds` give to each input.

    Args:
        feeds: plans for the same inputs.
        info: the model, which may tell why a range is what it is; None: that is not said.
        really: types and shapes that a run saw; empty: those of the plans.
    """
    reasons = {one["name"]: one.get("range_reason", "") for one in info["inputs"]} if info else {}
    seen = {one["name"]: one for one in really}
    found = []
    for number, one in enumerate(feeds[0]["inputs"]):
        ran = seen.get(one["name"])
        shapes = [list(plan["inputs"][number]["shape"]) for plan in feeds]
        found.append(
            Fed(
                name=one["name"],
                dtype=ran["dtype"] if ran else one["dtype"],
                shapes=[list(ran["shape"])]
                if ran
                else [s for i, s in enumerate(shapes) if s not in shapes[:i]],
                values=_values(one, feeds[0], reasons.get(one["name"], "")),
            )
        )
    return found


def fed_words(one: Fed) -> str:
    """Return "ids int64 [1, 128]: random, 0 to 30521"."""
    shapes = " and ".join(f"[{', '.join('?' if size < 0 else str(size) for size in s)}]" for s in one.shapes)
    return f"{one.name} {one.dtype} {shapes}: {one.values}"


def _values(one: wire.InputPlan, plan: wire.FeedPlan, reason: str) -> str:
    if one["name"] in plan["values"]:
        text = json.dumps(plan["values"][one["name"]])
        return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"
    if one.get("drawn"):
        return f"{random_words(one)} (asked for)"
    if plan["source"] == "npz" or (plan["source"] == "images" and takes_images(one["dtype"], one["shape"])):
        return f"from {Path(plan['path'] or '').name}"
    return f"{random_words(one)} (it {reason})" if reason else random_words(one)


def takes_images(dtype: str, shape: Sequence[int]) -> bool:
    """Whether an input of that type and shape is fed from images, where there are some."""
    channels = len(shape) == 4 and (shape[1] in (1, 3, 4) or shape[3] in (1, 3, 4))
    return channels and (dtype == "uint8" or dtype.startswith("float"))


def random_words(one: wire.InputPlan | wire.InputInfo) -> str:
    """Return the range of an input's random values in words, as the worker draws them."""
    dtype, low, high = one["dtype"], one.get("low"), one.get("high")
    if dtype == "bool":
        least, most = int(low or 0), int(high or 2)
        return "random, true or false" if most - least > 1 else f"always {'true' if least else 'false'}"
    if "int" in dtype:
        if dtype in ("int8", "uint8") and low is None and high is None:
            return f"random, all of {dtype}"
        least = int(low) if low is not None else min(0, int(high or 2) - 1)
        most = int(high) - 1 if high is not None else least + 1
        if low is None and high is None:
            return f"random, {least} to {most} (the model tells no range)"
        return f"random, {least} to {most}" if most > least else f"always {least}"
    least_f = low if low is not None else min(0.0, (high if high is not None else 1.0) - 1.0)
    return f"random, {least_f:g} to {high if high is not None else least_f + 1.0:g}"
