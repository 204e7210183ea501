"""A graph folded into blocks, so that a model of thousands of nodes can be looked at: pure.

    places(scopes, edges)     in which blocks each node lies, outermost first
    opened_for(places, most)  which blocks to open at first, so that not too much is drawn
    fold(places, edges, opened)   what is drawn then: nodes of open blocks, and closed blocks

A block is what the model's author named: the modules around a node. Where a block has more children than
anybody can follow, because names say nothing, it is cut into stretches of levels: nodes that lie equally far
from the inputs are on one level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

Block = tuple[str, ...]  # names of the blocks around it, outermost first, and its own
Edge = tuple[int, int]  # from node to node, by their indices

WIDE = 400  # children of one block; above, it is cut
STRETCH = 100  # children of a cut-off part, or more where there would be too many parts
MOST_PARTS = 200
MOST_DRAWN = 3_000  # items at once: a browser stays fluid
AT_FIRST = 60  # items that can be read at a glance


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is drawn as one thing: a node, or a closed block."""

    block: Block  # of a closed block its own; of a node the one that it lies in
    members: tuple[int, ...]  # indices of nodes, ascending; one: a node
    closed: bool

    @property
    def name(self) -> str:
        """What to call a closed block."""
        return "/".join(self.block) or "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """What is drawn, and how it hangs together."""

    items: tuple[Item, ...]
    edges: Mapping[Edge, int]  # from item to item -> how many edges of nodes lie in it
    item_of: tuple[int, ...]  # of each node


def levels(count: int, edges: Iterable[Edge]) -> list[int]:
    """Return on which level each of `count` nodes lies: below everything that it needs.

    A node that needs no other, such as a constant, stands right above the first that needs it. Edges that
    close a circle, as between folded blocks, do not count.
    """
    after: dict[int, list[int]] = defaultdict(list)
    waits_for = [0] * count
    for source, target in set(edges):
        after[source].append(target)
        waits_for[target] += 1
    sources = [index for index in range(count) if not waits_for[index]]
    found = _longest_ways(count, after, waits_for, list(sources))
    for index in sources:
        found[index] = max(0, min((found[one] for one in after[index]), default=1) - 1)
    return found


def _longest_ways(
    count: int, after: Mapping[int, Sequence[int]], waits_for: list[int], ready: list[int]
) -> list[int]:
    """The longest way to each node, in edges, from those that are `ready`; uses these two lists up."""
    found = [0] * count
    done = [False] * count
    left = iter(range(count))  # where everything waits for a circle, the first one begins
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
    """Return in which block each node lies: its scope, with parts put in where a block would be too wide.

    Args:
        scopes: of each node the modules around it, outermost first; empty: it has none.
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
        if len(children) <= WIDE:
            waiting += [(child, of) for child, of in children.items() if not isinstance(child, int)]
            continue
        size = max(STRETCH, -(-len(children) // MOST_PARTS))
        ordered = sorted(children.values(), key=lambda of: (min(depth[index] for index in of), of[0]))
        for start in range(0, len(ordered), size):
            part = [index for of in ordered[start : start + size] for index in of]
            name = _stretch(part, depth, start // size)
            for index in part:
                found[index] = (*block, name, *found[index][len(block) :])
            waiting.append(((*block, name), part))
    return found


def _stretch(part: Sequence[int], depth: Sequence[int], number: int) -> str:
    low, high = min(depth[index] for index in part), max(depth[index] for index in part)
    told = f"level {low:,}" if low == high else f"levels {low:,} to {high:,}"
    return f"part {number + 1}, {told}"


def opened_for(found: Sequence[Block], most: int = AT_FIRST) -> set[Block]:
    """Return the blocks to open, level by level, so that at most `most` items are drawn.

    Args:
        found: the block of each node.
        most: items. The outermost blocks are drawn in any case.
    """
    opened: set[Block] = {()}
    for deeper in range(1, 1 + max((len(block) for block in found), default=0)):
        wider = opened | {block[:deeper] for block in found if len(block) >= deeper}
        if drawn(found, wider) > most:
            break
        opened = wider
    return opened


def all_blocks(found: Iterable[Block]) -> set[Block]:
    """Return every block that holds a node, the whole of the graph among them."""
    return {block[:end] for block in found for end in range(len(block) + 1)} | {()}


def _closed(block: Block, opened: Collection[Block]) -> Block | None:
    """Return the outermost closed block around a node of `block`; None: all are open."""
    return next((part for end in range(len(block) + 1) if (part := block[:end]) not in opened), None)


def drawn(found: Sequence[Block], opened: Collection[Block]) -> int:
    """Return how many items are drawn when `opened` are open."""
    closed = [_closed(block, opened) for block in found]
    return sum(one is None for one in closed) + len({one for one in closed if one is not None})


def can_open(found: Sequence[Block], opened: Collection[Block], block: Block) -> bool:
    """Whether no more than `MOST_DRAWN` items are drawn when `block` is opened, too."""
    return drawn(found, {*opened, block}) <= MOST_DRAWN


def fold(found: Sequence[Block], edges: Iterable[Edge], opened: Collection[Block]) -> Folding:
    """Return what is drawn when the blocks `opened` are open. A block of one node is drawn as that node.

    Args:
        found: the block of each node.
        edges: between nodes.
        opened: open blocks; one inside of a closed block stays hidden.
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


def way_to(found: Sequence[Block], opened: Collection[Block], node: int) -> set[Block]:
    """Return `opened` and every block around `node`, so that it is drawn itself."""
    block = found[node]
    return {*opened, *(block[:end] for end in range(len(block) + 1))}
