"""Slows down who enters wrong tokens, per address and in all; no thread, no I/O.

An address has a few attempts at once. After each further wrong token it must wait, twice as long every time;
an earlier attempt is refused unchecked, so attempts at the same time gain nothing. Many wrong tokens of all
addresses together delay every answer a little, the right one's too: the delay tells nothing about the token,
and no address waits for what others do. What is kept is bounded.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

AT_ONCE = 3  # wrong tokens of one address before it must wait: mistyped ones
FIRST_WAIT_S = 1.0
MOST_WAIT_S = 60.0
FORGET_S = 900.0  # without a wrong token of that address
MOST_ADDRESSES = 4096

CALM = 10.0  # wrong tokens of all addresses that delay nothing
CALM_PER_S = 0.5  # how many of them are forgotten per second
STEP_S = 0.1  # delay of all answers for each one beyond
MOST_DELAY_S = 5.0
MOST_LINES = 20  # of the audit log within `LINES_S`: a flood must not push out its other lines
LINES_S = 60.0


@dataclass(slots=True)
class _Address:
    wrong: int
    free_at: float
    last: float


class WrongTokens:
    """What is known of recent wrong tokens; used by the server's event loop alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any; `clock` counts seconds."""
        self._clock = clock
        self._addresses: OrderedDict[str, _Address] = OrderedDict()  # the longest unchanged first
        self._level, self._at = 0.0, clock()  # leaks `CALM_PER_S`
        self._lines, self._lines_from, self._unwritten = 0, clock(), 0

    def wait_s(self, address: str) -> float:
        """Return how long an attempt of this address must wait; 0: it may be checked now.

        An attempt that may be checked counts as wrong until `forgive`, so that no other one is checked
        meanwhile beyond those that an address has.
        """
        now, key = self._clock(), network(address)
        one = self._addresses.get(key)
        if one is not None and now - one.last > FORGET_S:
            one = None
        if one is not None and one.free_at > now:
            return one.free_at - now
        wrong = 1 if one is None else one.wrong + 1
        wait = 0.0 if wrong < AT_ONCE else min(FIRST_WAIT_S * 2.0 ** min(wrong - AT_ONCE, 30), MOST_WAIT_S)
        self._addresses[key] = _Address(wrong, now + wait, now)
        self._addresses.move_to_end(key)
        while len(self._addresses) > MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        return 0.0

    def forgive(self, address: str) -> None:
        """End the wait of an address that has given a right token, and halve its wrong ones.

        It keeps those that it has at once, or a person with a token could guess others between own logins.
        """
        if (one := self._addresses.get(network(address))) is not None:
            wrong = one.wrong - 1  # this attempt was none
            one.wrong, one.free_at = max(min(wrong, AT_ONCE - 1), wrong // 2), self._clock()

    def count_wrong(self) -> None:
        """Count a wrong token towards those of all addresses."""
        self._level = self._leaked() + 1.0

    def delay_s(self) -> float:
        """Return the delay of every answer, right or wrong."""
        return min(max(self._leaked() - CALM, 0.0) * STEP_S, MOST_DELAY_S)

    def to_log(self) -> int:
        """Return how many wrong tokens the next line of the audit log stands for; 0: write no line now."""
        now = self._clock()
        if now - self._lines_from > LINES_S:
            self._lines, self._lines_from = 0, now
        if self._lines >= MOST_LINES:
            self._unwritten += 1
            return 0
        self._lines += 1
        stands_for, self._unwritten = 1 + self._unwritten, 0
        return stands_for

    def _leaked(self) -> float:
        now = self._clock()
        self._level = max(0.0, self._level - (now - self._at) * CALM_PER_S)
        self._at = now
        return self._level


def retry_after(wait_s: float) -> str:
    """Return the value of the header `Retry-After`: whole seconds, at least 1."""
    return str(max(1, math.ceil(wait_s)))


def network(address: str) -> str:
    """Return what counts as one address: of IPv6 the first 64 bits, which one subscriber owns."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
