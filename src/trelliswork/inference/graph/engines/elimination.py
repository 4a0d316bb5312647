"""Elimination order of the variables of a factor graph, and the sizes of its tables."""

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import chain

from trelliswork.errors import ValueRangeError

_COUNTED = 32  # maximum number of neighbors for which missing pairs are counted; beyond, all pairs count as missing
_SMALL = 100_000  # entries up to which the min-fill order is good enough
_Clique = tuple[int, set[int]]  # a variable, and its neighbors when it is eliminated


def elimination_order(n_states: Sequence[int], scopes: Sequence[Sequence[int]], max_size: int) -> list[tuple[int, ...]]:
    """Order the variables by min-fill: next is the one whose neighbors lack the fewest connections.

    ``scopes`` are the variables of each factor. The result are the cliques, with at most ``max_size`` entries in all:
    neighbors of the eliminated variable at that time, in reverse order of their own elimination, and last the variable
    itself. A forest takes O(V log V). Ties go to the smaller table, then to the smaller number. On regular graphs such
    as grids min-fill may be far from the best order; if the tables are large, numerical order is tried too.
    """
    limit = max_size**3  # so large that the exact size does not matter
    cliques, total, largest = _eliminate(n_states, scopes, limit, by_fill=True)
    if total > _SMALL:
        other = _eliminate(n_states, scopes, min(limit, total), by_fill=False)
        if other[1] < total:
            cliques, total, largest = other
    if total > max_size:
        raise ValueRangeError(
            f"exact inference on this graph needs tables of at least {_written(total)} entries, the largest clique "
            f"alone has {_written(largest)}, but max_size is {max_size:,}. Raise max_size if there is memory (8 bytes "
            "per entry; on the command line --max-memory), fix more variables by evidence, or use an approximate "
            "engine such as 'bp'."
        )
    when = [0] * len(n_states)
    for i, (v, _) in enumerate(cliques):
        when[v] = i
    return [(*sorted(near, key=when.__getitem__, reverse=True), v) for v, near in cliques]


def _eliminate(
    n_states: Sequence[int], scopes: Sequence[Sequence[int]], limit: int, *, by_fill: bool
) -> tuple[list[_Clique], int, int]:
    """Eliminate by min-fill or by number; return the cliques, and the entries of all tables and of the largest.

    Stops at more than ``limit`` entries.
    """
    V = len(n_states)
    neighbors: list[set[int]] = [set() for _ in range(V)]
    for scope in scopes:
        for v in scope:
            neighbors[v].update(scope)
    for v in range(V):
        neighbors[v].discard(v)

    def size(v: int) -> int:
        return math.prod(n_states[u] for u in neighbors[v]) * n_states[v]

    def priority(v: int) -> tuple[int, int, int]:
        near = neighbors[v]
        n = len(near)
        if n < 2:
            return 0, n_states[v] * n, v
        if n > _COUNTED:
            return n * (n - 1), n, v
        return sum(len(near - neighbors[u]) for u in near) - n, size(v), v

    current = [priority(v) for v in range(V)] if by_fill else [(v, 0, v) for v in range(V)]
    heap = current.copy()
    heapify(heap)
    cliques: list[_Clique] = []
    total = largest = 0
    while heap:
        first = heappop(heap)
        v = first[2]
        if current[v] is not first:
            continue  # its priority has changed since
        current[v] = (-1, -1, v)
        near, entries = neighbors[v], size(v)
        total += entries
        largest = max(largest, entries)
        cliques.append((v, near))
        if total > limit:
            break
        for u in near:
            neighbors[u] |= near
            neighbors[u] -= {u, v}
        if by_fill:  # a new connection changes the missing pairs of the neighbors of its ends
            for u in set(chain(near, *(neighbors[u] for u in near))) if first[0] else near:
                current[u] = priority(u)
                heappush(heap, current[u])
    return cliques, total, largest


def _written(n: int) -> str:
    """Format a number of entries for error messages."""
    return f"{n:,}" if n < 10**15 else f"about 10^{math.log10(n):.0f}"
