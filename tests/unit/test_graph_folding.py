"""Folding: what is drawn as one thing, and that it never gets too much."""

from __future__ import annotations

import random

from core.evidence import graph_folding
from core.evidence.graph_folding import (
    MAX_CHILDREN,
    MOST_DRAWN,
    all_blocks,
    fold,
    initially_open,
    levels,
    open_around,
    places,
)

CHAIN = [(0, 1), (1, 2), (2, 3)]
SCOPES = [("stem",), ("body", "a"), ("body", "a"), ("body", "b")]


def test_a_node_lies_below_everything_that_it_needs():
    assert levels(4, [(0, 1), (1, 2), (0, 2), (2, 3)]) == [0, 1, 2, 3]


def test_a_constant_stands_right_above_who_needs_it():
    assert levels(5, [*CHAIN, (4, 3)])[4] == 2


def test_a_circle_of_blocks_has_levels_too():
    found = levels(3, [(0, 1), (1, 2), (2, 0)])
    assert sorted(found) == [0, 1, 2]


def test_levels_of_a_deep_chain_need_no_recursion():
    assert levels(20_000, [(i, i + 1) for i in range(19_999)])[-1] == 19_999


def test_names_say_in_which_block_a_node_lies():
    assert places(SCOPES, CHAIN) == SCOPES


def test_only_the_outermost_blocks_show_when_nothing_is_open():
    folding = fold(SCOPES, CHAIN, {()})
    assert [(item.name, item.members, item.closed) for item in folding.items] == [
        ("stem", (0,), False),  # a block of one node is that node
        ("body", (1, 2, 3), True),
    ]
    assert folding.edges == {(0, 1): 1}
    assert folding.item_of == (0, 1, 1, 1)


def test_an_open_block_shows_what_is_in_it():
    folding = fold(SCOPES, CHAIN, {(), ("body",)})
    assert [item.members for item in folding.items] == [(0,), (1, 2), (3,)]
    assert folding.edges == {(0, 1): 1, (1, 2): 1}


def test_a_block_inside_of_a_closed_one_stays_hidden():
    folding = fold(SCOPES, CHAIN, {(), ("body", "a")})
    assert [item.members for item in folding.items] == [(0,), (1, 2, 3)]


def test_all_blocks_open_is_every_node():
    folding = fold(SCOPES, CHAIN, all_blocks(SCOPES))
    assert [item.members for item in folding.items] == [(0,), (1,), (2,), (3,)]
    assert set(folding.edges) == set(CHAIN)


def test_the_way_to_a_node_opens_the_blocks_around_it():
    opened = open_around(SCOPES, {()}, 3)
    assert fold(SCOPES, CHAIN, opened).item_of[3] != fold(SCOPES, CHAIN, opened).item_of[1]


def test_three_thousand_nodes_without_names_are_cut_into_stretches():
    edges = [(i, i + 1) for i in range(2_999)]
    found = places([()] * 3_000, edges)
    closed = fold(found, edges, {()})
    assert len(closed.items) == 30
    assert sum(len(item.members) for item in closed.items) == 3_000
    assert found[0] == ("part 1, levels 0 to 99",)
    assert len(closed.edges) == 29  # it stays a chain


def test_no_block_has_more_children_than_can_be_followed():
    draw = random.Random(0)
    scopes = [(f"m{draw.randrange(3)}", f"n{draw.randrange(900)}")[: draw.randrange(3)] for _ in range(5_000)]
    found = places(scopes, [])
    for block in all_blocks(found):
        inside = [one for one in found if one[: len(block)] == block]
        children = {one[: len(block) + 1] for one in inside if len(one) > len(block)}
        assert len(children) + sum(one == block for one in inside) <= MAX_CHILDREN


def test_what_opens_at_first_can_be_read():
    scopes = [(f"stage{i // 100}", f"block{i // 10}") for i in range(1_000)]
    opened = initially_open(scopes)
    assert graph_folding.count_drawn(scopes, opened) == 10  # one level deeper, there were 100
    assert graph_folding.count_drawn(scopes, initially_open(scopes, 100)) == 100


def test_a_block_that_would_be_too_much_cannot_be_opened():
    scopes = [("all",)] * (MOST_DRAWN + 1)
    assert not graph_folding.can_open(scopes, {()}, ("all",))
    assert graph_folding.can_open(scopes[:-1], {()}, ("all",))


def test_a_graph_without_nodes_folds_to_nothing():
    assert fold([], [], {()}).items == ()
    assert initially_open([]) == {()}
