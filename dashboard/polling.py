"""How often a page asks where its job stands. No Streamlit, no clock.

Every look draws a part of the page anew, which costs browser and server a tenth of a second of a core. Where
they share the machine with a race, rarer looks disturb fewer blocks; but the first ratio shows at once, to
whoever started the race. All others of one server share one rate of looks: four cost what one costs.
"""

from __future__ import annotations

from core.run.job import WAITING_QUIET, Status

POLL_S = 1.0  # of a job that is no race
FIRST_S = 0.5  # of a race that has not shown a ratio yet: only text is drawn
RACE_S = 2.0
MOST_SHARING = 4  # beyond that a page would look as if it stood still
PATIENT_S = 20.0  # of a run; what has shown nothing by then is slow, and can wait for rarer looks


def race_s(status: Status | None, sharing: int = 1) -> float:
    """Return after how many seconds to look at a race again.

    Args:
        status: where it stands; None: another process measures it.
        sharing: how many sessions share the rate of looks of one.
    """
    if sharing > 1:
        return RACE_S * min(sharing, MOST_SHARING)
    if status is None or has_ratio(status) or status.elapsed_s > PATIENT_S:
        return RACE_S
    behind = status.state == "WAITING" and (bool(status.holder) or status.stage == WAITING_QUIET)
    return RACE_S if behind else FIRST_S


def has_ratio(status: Status) -> bool:
    """Whether a race has shown a ratio yet."""
    return any(one.get("ratio") for one in (status.live or {}).get("contrasts") or [])
