"""The order of the machine's queue: fair between the users of the machine and between their persons.

The next job is that of the user of the operating system who used the machine least in the last half hour; of
the persons who work under this user (those who are logged in to one dashboard), that of the one who used it
least; of that person's jobs, the oldest. Two levels, because a process can name any person, but only files of
its own user. Nobody waits without end: use is forgotten after half an hour, so that whoever waits that long
comes before all later jobs. Pure functions; seconds since the epoch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WINDOW_S = 1800.0  # use that counts; a newcomer is preferred for half of it at most
ASSUMED_S = 60.0  # of a job without a prediction, for the order of later jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A waiting job."""

    ticket: str
    arrived: float
    user: str  # of the operating system; a process cannot forge it
    person: str = ""  # as that user's process calls who started the job
    predicted_s: float | None = None  # duration; None: unknown
    gives_way: bool = False  # goes after all jobs that arrived before, whoever started them


@dataclass(frozen=True, slots=True)
class Turn:
    """Use of the machine by one job."""

    user: str
    person: str
    began: float
    ended: float


def in_order(waiting: Iterable[Waiting], turns: Iterable[Turn], now: float) -> list[Waiting]:
    """Return waiting jobs in the order of their turns, if no other job arrives.

    Args:
        waiting: in any order.
        turns: recent ones and the present one, until its predicted end.
        now: the present time.
    """
    used: Counter[tuple[str, ...]] = Counter()
    for turn in turns:
        seconds = max(0.0, turn.ended - max(turn.began, now - WINDOW_S))
        used.update({(turn.user,): seconds, (turn.user, turn.person): seconds})
    by_age = sorted(waiting, key=lambda one: (one.arrived, one.ticket))
    lines: dict[tuple[str, str], deque[Waiting]] = {}
    for one in by_age:
        lines.setdefault((one.user, one.person), deque()).append(one)
    ordered: list[Waiting] = []
    served: set[str] = set()
    oldest = 0  # index of the oldest job that is not in `ordered`
    while lines:
        while by_age[oldest].ticket in served:
            oldest += 1
        line = _next(lines, used, by_age[oldest])
        one = lines[line].popleft()
        if not lines[line]:
            del lines[line]
        seconds = ASSUMED_S if one.predicted_s is None else one.predicted_s
        used.update({(one.user,): seconds, line: seconds})
        ordered.append(one)
        served.add(one.ticket)
    return ordered


def _next(
    lines: dict[tuple[str, str], deque[Waiting]], used: Counter[tuple[str, ...]], oldest: Waiting
) -> tuple[str, str]:
    """The user and person whose job is next."""
    since: dict[str, float] = {}
    for (user, _), line in lines.items():
        since[user] = min(since.get(user, line[0].arrived), line[0].arrived)

    def rank(line: tuple[str, str]) -> tuple[float, float, str, float, float, str]:
        user, head = line[0], lines[line][0]
        return used[(user,)], since[user], user, used[line], head.arrived, head.ticket

    free = [line for line, jobs in lines.items() if not jobs[0].gives_way or jobs[0] is oldest]
    return min(free, key=rank)


def starts_in_s(ahead: Sequence[Waiting], running_left_s: float | None) -> float | None:
    """Return the seconds until a job starts, from the durations ahead of it; None: one is unknown."""
    known = [running_left_s, *(one.predicted_s for one in ahead)]
    return None if None in known else sum(one for one in known if one is not None)
