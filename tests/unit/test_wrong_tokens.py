"""How wrong tokens are slowed down, on a clock that the test moves."""

from __future__ import annotations

import pytest

from dashboard.server import wrong_tokens
from dashboard.server.wrong_tokens import (
    AT_ONCE,
    FORGET_S,
    MOST_DELAY_S,
    MOST_LINES,
    MOST_WAIT_S,
    WrongTokens,
)


class Clock:
    """Seconds that pass when the test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(clock: Clock) -> WrongTokens:
    return WrongTokens(clock)


def test_an_address_has_a_few_attempts_and_then_waits_longer_each_time(
    tokens: WrongTokens, clock: Clock
) -> None:
    assert [tokens.wait_s("10.0.0.1") for _ in range(AT_ONCE)] == [0.0] * AT_ONCE
    waits = []
    for _ in range(9):
        waits.append(tokens.wait_s("10.0.0.1"))
        clock.now += waits[-1]
        assert tokens.wait_s("10.0.0.1") == 0.0
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, MOST_WAIT_S]


def test_attempts_at_the_same_time_gain_nothing(tokens: WrongTokens) -> None:
    checked = [tokens.wait_s("10.0.0.1") for _ in range(1000)].count(0.0)
    assert checked == AT_ONCE


def test_a_refused_attempt_does_not_lengthen_the_wait(tokens: WrongTokens, clock: Clock) -> None:
    for _ in range(AT_ONCE):
        tokens.wait_s("10.0.0.1")
    assert tokens.wait_s("10.0.0.1") == 1.0
    clock.now += 0.75
    assert tokens.wait_s("10.0.0.1") == 0.25


def test_another_address_is_not_locked_out(tokens: WrongTokens) -> None:
    for number in range(1000):
        tokens.wait_s("10.0.0.1")
        tokens.wait_s(f"10.1.{number // 250}.{number % 250}")
        tokens.count_wrong()
    assert tokens.wait_s("10.0.0.2") == 0.0
    assert tokens.delay_s() == MOST_DELAY_S


def test_the_right_token_ends_the_wait_of_an_address_and_time_forgets_it(
    tokens: WrongTokens, clock: Clock
) -> None:
    for address in ("10.0.0.1", "10.0.0.2"):
        for _ in range(AT_ONCE):
            tokens.wait_s(address)
    tokens.forgive("10.0.0.1")
    assert tokens.wait_s("10.0.0.1") == 0.0
    assert tokens.wait_s("10.0.0.2") > 0
    clock.now += FORGET_S + 1
    assert [tokens.wait_s("10.0.0.2") for _ in range(AT_ONCE)] == [0.0] * AT_ONCE


def test_own_right_tokens_do_not_hide_guesses(tokens: WrongTokens, clock: Clock) -> None:
    guesses = waited = 0.0
    for _ in range(100):
        for right in (False, False, True):
            while wait := tokens.wait_s("10.0.0.1"):
                clock.now += wait
                waited += wait
            if right:
                tokens.forgive("10.0.0.1")
            else:
                guesses += 1
    assert waited >= guesses - AT_ONCE


def test_a_person_with_the_right_token_never_waits(tokens: WrongTokens) -> None:
    for _ in range(100):
        assert tokens.wait_s("10.0.0.1") == 0.0
        tokens.forgive("10.0.0.1")
    for _ in range(AT_ONCE - 1):
        assert tokens.wait_s("10.0.0.1") == 0.0  # mistyped
    for _ in range(100):
        assert tokens.wait_s("10.0.0.1") == 0.0
        tokens.forgive("10.0.0.1")


def test_the_right_token_halves_many_wrong_ones(tokens: WrongTokens, clock: Clock) -> None:
    for _ in range(12):
        clock.now += tokens.wait_s("10.0.0.1")
        clock.now += MOST_WAIT_S
    assert tokens.wait_s("10.0.0.1") == 0.0
    tokens.forgive("10.0.0.1")
    assert tokens.wait_s("10.0.0.1") == 0.0
    assert tokens.wait_s("10.0.0.1") == 16.0


def test_many_wrong_tokens_delay_every_answer_and_the_delay_ends(tokens: WrongTokens, clock: Clock) -> None:
    assert tokens.delay_s() == 0.0
    for _ in range(20):
        tokens.count_wrong()
    assert tokens.delay_s() == pytest.approx(1.0)
    clock.now += 20.0
    assert tokens.delay_s() == 0.0


def test_memory_is_bounded(tokens: WrongTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong_tokens, "MOST_ADDRESSES", 50)
    for number in range(500):
        tokens.wait_s(f"10.0.{number // 250}.{number % 250}")
    assert len(tokens._addresses) == 50


def test_a_flood_writes_few_lines_of_the_log_and_loses_no_count(tokens: WrongTokens, clock: Clock) -> None:
    lines = [tokens.to_log() for _ in range(1000)]
    assert lines == [1] * MOST_LINES + [0] * (1000 - MOST_LINES)
    clock.now += 61.0
    assert tokens.to_log() == 1000 - MOST_LINES + 1
    assert tokens.to_log() == 1


@pytest.mark.parametrize(
    ("address", "counts_as"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
        ("x" * 1000, "x" * 64),
        ("", ""),
    ],
)
def test_what_counts_as_one_address(address: str, counts_as: str) -> None:
    assert wrong_tokens.network(address) == counts_as


def test_retry_after_is_a_whole_second_or_more() -> None:
    assert [wrong_tokens.retry_after(wait) for wait in (0.01, 1.0, 1.2, 60.0)] == ["1", "1", "2", "60"]
