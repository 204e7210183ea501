"""Devices in OpenVINO's spelling: `CPU`, `GPU.1`, `AUTO`, `AUTO:-CPU`, `HETERO:GPU,CPU`. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

VIRTUAL = ("AUTO", "MULTI", "HETERO", "BATCH")  # each runs on devices that it chooses, or that follow it
_ONE = r"-?[A-Z]+(\.\d+)?(\(\d+\))?"
_DEVICE = re.compile(rf"({'|'.join(VIRTUAL)})(:{_ONE}(,{_ONE})*)?|[A-Z]+(\.\d+)?")


def is_device(text: str) -> bool:
    """Whether a text has the form of a device; it need not exist."""
    return len(text) <= 200 and _DEVICE.fullmatch(text) is not None


def missing_devices(device: str, there: Collection[str]) -> list[str]:
    """Return the devices that `device` names and that do not exist; a virtual one alone takes what there is.

    Args:
        device: as a configuration has it.
        there: devices that exist, such as `GPU` or, if there are several, `GPU.0`.
    """
    virtual, colon, listed = device.partition(":")
    if not colon and virtual in VIRTUAL:
        return []
    named = re.findall(r"-?[A-Z]+(?:\.\d+)?", listed if colon else virtual)  # `-GPU` leaves a device out
    wanted = [one for one in named if not one.startswith("-")]
    return [one for one in wanted if not any(f"{other}.".startswith(f"{one}.") for other in there)]
