"""Descriptions of inputs: type, shape and source of values. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from core import wire
from core.evidence.result_types import InputDescription
from core.wire.feeding import INTEGERS, STRING, channel_axis, random_range
from core.wire.units import clipped

_MOST = 40  # characters of a fixed value


def describe_inputs(
    feeds: Sequence[wire.FeedPlan],
    info: wire.ModelInfo | None,
    really: Sequence[wire.TensorInfo] = (),
) -> list[InputDescription]:
    """Return a description of each input of `feeds`.

    Args:
        feeds: plans for the same inputs.
        info: the model, which may give the reason for a range; None: no reasons.
        really: types and shapes of an actual run; empty: those of the plans.
    """
    reasons = {one["name"]: one.get("range_reason", "") for one in info["inputs"]} if info else {}
    seen = {one["name"]: one for one in really}
    found = []
    for number, one in enumerate(feeds[0]["inputs"]):
        ran = seen.get(one["name"])
        shapes = [list(plan["inputs"][number]["shape"]) for plan in feeds]
        found.append(
            InputDescription(
                name=one["name"],
                dtype=ran["dtype"] if ran else one["dtype"],
                shapes=[list(ran["shape"])]
                if ran
                else [s for i, s in enumerate(shapes) if s not in shapes[:i]],
                values=_values(one, feeds[0], reasons.get(one["name"], "")),
            )
        )
    return found


def input_text(one: InputDescription) -> str:
    """Return "ids int64 [1, 128]: random, 0 to 30521"."""
    shapes = " and ".join(
        f"[{', '.join('?' if size < 0 else str(size) for size in s)}]" for s in one["shapes"]
    )
    return f"{clipped(one['name'])} {one['dtype']} {shapes}: {one['values']}"


def _values(one: wire.InputPlan, plan: wire.FeedPlan, reason: str) -> str:
    if one["name"] in plan["values"]:
        text = json.dumps(plan["values"][one["name"]], ensure_ascii=False)
        told = text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"
        return f"fixed text, not random: {told}" if one["dtype"] == STRING else told
    if one.get("drawn"):
        return f"{random_text(one)} (requested)"
    if plan["source"] == "npz" or (plan["source"] == "images" and takes_images(one["dtype"], one["shape"])):
        return f"from {Path(plan['path'] or '').name}"
    return f"{random_text(one)} (it {reason})" if reason else random_text(one)


def takes_images(dtype: str, shape: Sequence[int]) -> bool:
    """Whether an input of that type and shape gets its values from images, where images are given."""
    return channel_axis(shape) is not None and (dtype == "uint8" or dtype.startswith("float"))


def random_text(one: wire.InputPlan | wire.InputInfo) -> str:
    """Return a text for the range of an input's random values, as the worker draws them."""
    dtype, low, high = one["dtype"], one.get("low"), one.get("high")
    if dtype == STRING:
        return "text that you provide"
    least, end = random_range(dtype, low, high)
    if dtype == "bool":
        return "random, true or false" if end - least > 1 else f"always {'true' if least else 'false'}"
    if dtype not in INTEGERS:
        return f"random, {least:g} to {end:g}"
    if low is None and high is None and (least, end) == INTEGERS[dtype]:
        return f"random, full range of {dtype}"
    most = int(end) - 1
    if low is None and high is None:
        return f"random, {least} to {most} (the model states no range)"
    return f"random, {least} to {most}" if most > least else f"always {least}"
