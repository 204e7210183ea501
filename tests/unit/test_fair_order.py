"""The fair order of the queue: equal shares, no starvation, and nothing to gain by a false name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from core.process.fair_order import WINDOW_S, Turn, Waiting, in_order, starts_in_s

NOW = 1e9


def job(ticket: str, user: str = "1", person: str = "", **changes: object) -> Waiting:
    facts: dict[str, object] = {"ticket": ticket, "arrived": float(ticket.strip("abc")), "user": user}
    return Waiting(**(facts | {"person": person} | changes))  # type: ignore[arg-type]


def order(*waiting: Waiting, turns: tuple[Turn, ...] = ()) -> list[str]:
    return [one.ticket for one in in_order(waiting, turns, NOW)]


def test_jobs_of_one_person_come_in_the_order_of_their_arrival() -> None:
    assert order(job("3"), job("1"), job("2")) == ["1", "2", "3"]


def test_the_first_job_of_a_second_person_comes_before_the_second_of_the_first() -> None:
    first = [job(str(number), person="anna") for number in range(50)]
    assert order(*first, job("90", person="ben"))[:3] == ["0", "90", "1"]


def test_whoever_used_the_machine_least_is_next() -> None:
    turns = (Turn("1", "anna", NOW - 100, NOW - 40), Turn("1", "ben", NOW - 40, NOW - 10))
    assert order(job("1", person="anna"), job("2", person="ben"), turns=turns) == ["2", "1"]


def test_use_is_forgotten_after_the_window() -> None:
    turns = (Turn("1", "anna", NOW - WINDOW_S - 500, NOW - WINDOW_S - 10),)
    assert order(job("1", person="anna"), job("2", person="ben"), turns=turns) == ["1", "2"]


def test_a_user_with_many_names_has_the_share_of_one_user() -> None:
    false = [job(str(number), user="2", person=f"name {number}") for number in range(10)]
    true = [job(str(number), user="1") for number in range(20, 30)]
    served = order(*false, *true)
    assert [name in {one.ticket for one in true} for name in served[:20]] == [False, True] * 10


def test_a_turn_in_the_name_of_another_person_charges_the_user_who_took_it() -> None:
    turns = (Turn("2", "anna", NOW - 600, NOW),)  # user 2 names a person of user 1
    assert order(job("1", "2", "ben"), job("2", "1", "anna"), turns=turns) == [
        "2",
        "1",
    ]


def test_a_job_that_gives_way_comes_after_all_that_arrived_before() -> None:
    used = (Turn("1", "ben", NOW - 600, NOW),)  # ben would come last
    waiting = [job("5", person="anna", gives_way=True), job("1", person="ben"), job("6", person="carl")]
    assert order(*waiting, turns=used) == ["6", "1", "5"]


def test_a_start_is_known_only_with_all_durations_ahead() -> None:
    known, unknown = job("1", predicted_s=20.0), job("2")
    assert starts_in_s([known, known], 5.0) == 45.0
    assert starts_in_s([known, unknown], 5.0) is None
    assert starts_in_s([known], None) is None
    assert starts_in_s([], 0.0) == 0.0


# --- properties, in a simulated queue -----------------------------------------------------------------------


def simulate(
    arrivals: list[tuple[float, str, str, float]], before: Sequence[Turn] = ()
) -> list[tuple[Waiting, float, float]]:
    """Serve jobs (arrival, user, person, duration) one after the other; return each with start and end."""
    jobs = [
        Waiting(ticket=f"{number:04}", arrived=at, user=user, person=person, predicted_s=None)
        for number, (at, user, person, _) in enumerate(arrivals)
    ]
    duration = {one.ticket: arrivals[number][3] for number, one in enumerate(jobs)}
    now, turns, left = 0.0, list(before), list(jobs)
    served: list[tuple[Waiting, float, float]] = []
    while left:
        waiting = [one for one in left if one.arrived <= now]
        if not waiting:
            now = min(one.arrived for one in left)
            continue
        first = in_order(waiting, turns, now)[0]
        left.remove(first)
        end = now + duration[first.ticket]
        served.append((first, now, end))
        turns.append(Turn(first.user, first.person, now, end))
        now = end
    return served


people = st.tuples(st.sampled_from("12"), st.sampled_from(["anna", "ben", "carl"]))
jobs = st.lists(
    st.tuples(st.floats(0, 3000), people, st.floats(1, 300)).map(lambda one: (one[0], *one[1], one[2])),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(jobs)
def test_every_order_has_every_job_once_and_starts_with_the_same_job(arrivals) -> None:
    waiting = [
        Waiting(ticket=f"{number:04}", arrived=at, user=user, person=person)
        for number, (at, user, person, _) in enumerate(arrivals)
    ]
    turns = [Turn(user, person, at, at + seconds) for at, user, person, seconds in arrivals]
    found = in_order(waiting, turns, 4000.0)
    assert sorted(one.ticket for one in found) == [one.ticket for one in waiting]
    assert in_order(reversed(waiting), turns, 4000.0) == found
    lines: dict[tuple[str, str], list[Waiting]] = {}
    for one in found:
        lines.setdefault((one.user, one.person), []).append(one)
    for line in lines.values():  # of one person, first come is first served
        assert line == sorted(line, key=lambda one: (one.arrived, one.ticket))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("12"), st.floats(30, 300)), min_size=40, max_size=60))
def test_nobody_waits_without_end_behind_ever_new_persons(flood) -> None:
    """Her use is forgotten after the window, and that of her user after another: then she is the oldest."""
    before = [Turn("1", "anna", -WINDOW_S, 0.0)]
    late = [(0.001 + number, user, f"new {number}", seconds) for number, (user, seconds) in enumerate(flood)]
    served = simulate([(0.0, "1", "anna", 10.0), *late], before)
    (start,) = (began for one, began, _ in served if one.person == "anna")
    assert start <= 2 * (WINDOW_S + 300)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1, 120), min_size=5, max_size=60),
    st.lists(st.floats(1, 120), min_size=5, max_size=60),
    st.booleans(),
)
def test_two_who_always_wait_have_equal_shares_within_one_job(hers, his, are_users) -> None:
    """Whatever the lengths of their jobs, whether they are users of the machine or persons of one server."""
    persons = [("1", "anna"), ("2", "") if are_users else ("1", "ben")]
    arrivals = [
        (0.0, user, person, seconds)
        for (user, person), lengths in zip(persons, (hers, his), strict=True)
        for seconds in lengths
    ]
    used: Counter[tuple[str, str]] = Counter()
    left = Counter({persons[0]: len(hers), persons[1]: len(his)})
    for one, began, end in simulate(arrivals):
        who = (one.user, one.person)
        if end > WINDOW_S or not all(left.values()):
            break  # earlier use is forgotten, or one has no job left
        used[who] += end - began  # type: ignore[assignment]
        left[who] -= 1
        assert abs(used[persons[0]] - used[persons[1]]) <= max(*hers, *his) + 1e-6


def test_fifty_jobs_of_one_delay_the_other_by_one_at_most() -> None:
    arrivals = [(0.0, "1", "anna", 60.0)] * 50 + [(130.0, "1", "ben", 60.0)] * 3
    starts = [began for one, began, _ in simulate(arrivals) if one.person == "ben"]
    assert starts == [180.0, 240.0, 300.0]  # anna had three turns before
