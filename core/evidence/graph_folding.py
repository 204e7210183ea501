"""Folding of a graph into nested blocks, so that models of thousands of nodes can be displayed. Pure.

    places(scopes, edges)         the blocks of each node, outermost first
    opened_for(places, most)      the blocks to open at first, so that not too many items are drawn
    fold(places, edges, opened)   the items to draw: nodes of open blocks, and closed blocks

A block is a module named by the model's author. A block with too many children is split into ranges of
levels; a level holds the nodes with the same distance from the inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

Block = tuple[str, ...]  # names of the blocks around it, outermost first, and its own
Edge = tuple[int, int]  # from node to node, by their indices

MAX_CHILDREN = 400  # maximum number of children of one block; a larger block is split
PART_SIZE = 100  # children of one part of a split block; more where there would be over MOST_PARTS parts
MOST_PARTS = 200
MOST_DRAWN = 3_000  # maximum number of items at once, so that a browser stays responsive
MAX_FIRST_ITEMS = 60  # maximum number of items in the first view


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item to draw: a node, or a closed block."""

    block: Block  # the closed block itself, or the block that contains the node
    members: tuple[int, ...]  # indices of its nodes, ascending
    closed: bool

    @property
    def name(self) -> str:
        """Display name of a closed block."""
        return "/".join(self.block) or "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """The items to draw, and the edges between them."""

    items: tuple[Item, ...]
    edges: Mapping[Edge, int]  # from item to item -> number of node edges
    item_of: tuple[int, ...]  # of each node


def levels(count: int, edges: Iterable[Edge]) -> list[int]:
    """Return the level of each of `count` nodes: one below the lowest of its predecessors.

    A node without predecessors, such as a constant, is one level above its first successor. Edges that close
    a cycle, as between folded blocks, do not count.
    """
    after: dict[int, list[int]] = defaultdict(list)
    waits_for = [0] * count
    for source, target in set(edges):
        after[source].append(target)
        waits_for[target] += 1
    sources = [index for index in range(count) if not waits_for[index]]
    found = _longest_paths(count, after, waits_for, list(sources))
    for index in sources:
        found[index] = max(0, min((found[one] for one in after[index]), default=1) - 1)
    return found


def _longest_paths(
    count: int, after: Mapping[int, Sequence[int]], waits_for: list[int], ready: list[int]
) -> list[int]:
    """Return the longest path to each node, in edges, from those in `ready`; consumes both lists."""
    found = [0] * count
    done = [False] * count
    left = iter(range(count))  # where all remaining nodes wait for a cycle, the first one starts
    while True:
        while ready:
            index = ready.pop()
            done[index] = True
            for target in after.get(index, ()):
                if not done[target]:
                    found[target] = max(found[target], found[index] + 1)
                    waits_for[target] -= 1
                    if not waits_for[target]:
                        ready.append(target)
        stuck = next((index for index in left if not done[index]), None)
        if stuck is None:
            return found
        ready.append(stuck)


def places(scopes: Sequence[Sequence[str]], edges: Sequence[Edge]) -> list[Block]:
    """Return the block of each node: its scope, with a block that is too wide split into parts.

    Args:
        scopes: for each node its modules, outermost first; empty: none.
        edges: between nodes.
    """
    found = [tuple(scope) for scope in scopes]
    depth = levels(len(found), edges)
    waiting: list[tuple[Block, list[int]]] = [((), list(range(len(found))))]
    while waiting:
        block, inside = waiting.pop()
        children: dict[Block | int, list[int]] = defaultdict(list)
        for index in inside:
            deeper = len(found[index]) > len(block)
            children[found[index][: len(block) + 1] if deeper else index].append(index)
        if len(children) <= MAX_CHILDREN:
            waiting += [(child, of) for child, of in children.items() if not isinstance(child, int)]
            continue
        size = max(PART_SIZE, -(-len(children) // MOST_PARTS))
        ordered = sorted(children.values(), key=lambda of: (min(depth[index] for index in of), of[0]))
        for start in range(0, len(ordered), size):
            part = [index for of in ordered[start : start + size] for index in of]
            name = _part_name(part, depth, start // size)
            for index in part:
                found[index] = (*block, name, *found[index][len(block) :])
            waiting.append(((*block, name), part))
    return found


def _part_name(part: Sequence[int], depth: Sequence[int], number: int) -> str:
    low, high = min(depth[index] for index in part), max(depth[index] for index in part)
    told = f"level {low:,}" if low == high else f"levels {low:,} to {high:,}"
    return f"part {number + 1}, {told}"


def initially_open(found: Sequence[Block], most: int = MAX_FIRST_ITEMS) -> set[Block]:
    """Return the blocks to open, level by level, so that at most `most` items are drawn.

    Args:
        found: the block of each node.
        most: maximum number of items. The outermost blocks are drawn in any case.
    """
    opened: set[Block] = {()}
    for deeper in range(1, 1 + max((len(block) for block in found), default=0)):
        wider = opened | {block[:deeper] for block in found if len(block) >= deeper}
        if count_drawn(found, wider) > most:
            break
        opened = wider
    return opened


def all_blocks(found: Iterable[Block]) -> set[Block]:
    """Return every block that contains a node, including the whole graph."""
    return {block[:end] for block in found for end in range(len(block) + 1)} | {()}


def _closed(block: Block, opened: Collection[Block]) -> Block | None:
    """Return the outermost closed block around a node of `block`; None: all are open."""
    return next((part for end in range(len(block) + 1) if (part := block[:end]) not in opened), None)


def count_drawn(found: Sequence[Block], opened: Collection[Block]) -> int:
    """Return the number of items drawn when the blocks `opened` are open."""
    closed = [_closed(block, opened) for block in found]
    return sum(one is None for one in closed) + len({one for one in closed if one is not None})


def can_open(found: Sequence[Block], opened: Collection[Block], block: Block) -> bool:
    """Whether at most `MOST_DRAWN` items are drawn if `block` is opened too."""
    return count_drawn(found, {*opened, block}) <= MOST_DRAWN


def fold(found: Sequence[Block], edges: Iterable[Edge], opened: Collection[Block]) -> Folding:
    """Return the items to draw when the blocks `opened` are open. A block of one node is drawn as a node.

    Args:
        found: the block of each node.
        edges: between nodes.
        opened: open blocks; an open block inside a closed one stays hidden.
    """
    groups: dict[Block | int, list[int]] = defaultdict(list)
    for index, block in enumerate(found):
        closed = _closed(block, opened)
        groups[index if closed is None else closed].append(index)
    items: list[Item] = []
    item_of = [0] * len(found)
    for key, members in groups.items():
        closed_block = not isinstance(key, int) and len(members) > 1
        block = key if closed_block and not isinstance(key, int) else found[members[0]]
        for index in members:
            item_of[index] = len(items)
        items.append(Item(block=block, members=tuple(members), closed=closed_block))
    counted: dict[Edge, int] = defaultdict(int)
    for source, target in edges:
        if item_of[source] != item_of[target]:
            counted[item_of[source], item_of[target]] += 1
    return Folding(items=tuple(items), edges=dict(counted), item_of=tuple(item_of))


def open_around(found: Sequence[Block], opened: Collection[Block], node: int) -> set[Block]:
    """Return `opened` plus every block around `node`, so that the node itself is drawn."""
    block = found[node]
    return {*opened, *(block[:end] for end in range(len(block) + 1))}
