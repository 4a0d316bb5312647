"""Components of variables for structured mean field: the factors inside each form a forest."""

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.kernels.mean_field import Components
from trelliswork.inference.graph.kernels.records import Flat
from trelliswork.inference.graph.layout import fixed_variables
from trelliswork.inference.graph.potentials import Integers, Wiring, starts

_HARD = 1e3  # strength of a factor that forbids some states


def split(wiring: Wiring, flat: Flat, components: Iterable[Sequence[int]]) -> Components:
    """Lay out given components: each variable in exactly one, coupled in pairs by factors without cycles."""
    V = wiring.n_variables
    lists = [[int(v) for v in component] for component in components if len(component)]
    of = np.full(V, -1, np.int64)
    for d, component in enumerate(lists):
        for v in component:
            if not 0 <= v < V:
                raise ValueRangeError(f"components must contain variables from 0 to {V - 1}, got {v} in component {d}.")
            if of[v] >= 0:
                raise ValueRangeError(f"components must share no variable, got {v} in components {of[v]} and {d}.")
            of[v] = d
    if (of < 0).any():
        raise ValueRangeError(
            f"components must contain every variable, got none with {np.flatnonzero(of < 0)[0]}. "
            "A single variable is a component too."
        )
    return _lay_out(wiring, flat, lists, of, _couples(flat, of))


def singles(wiring: Wiring, flat: Flat) -> Components:
    """Lay out components of one variable each: naive mean field."""
    V = wiring.n_variables
    return _lay_out(wiring, flat, [[v] for v in range(V)], np.arange(V), {})


def _couples(flat: Flat, of: Integers) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """Return pairs of one component that factors touch: (factor, axis, axis) by (u, v), u < v."""
    factor = np.repeat(np.arange(len(flat.base)), np.diff(flat.ptr))
    order = np.lexsort((of[flat.variables], factor))
    same = (factor[order][1:] == factor[order][:-1]) & (of[flat.variables][order][1:] == of[flat.variables][order][:-1])
    couples: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for i in np.flatnonzero(same).tolist():
        one, two = sorted((int(order[i]), int(order[i + 1])))  # axes
        f = int(factor[one])
        u, v = int(flat.variables[one]), int(flat.variables[two])
        if i + 1 < len(same) and same[i + 1]:
            scope = flat.variables[flat.ptr[f] : flat.ptr[f + 1]].tolist()
            raise ValueRangeError(
                f"factor {f} over variables {scope} touches three or more of component {of[u]}, which couples them "
                "only in pairs. Put one of them into another component."
            )
        couples.setdefault((min(u, v), max(u, v)), []).append((f, one, two))
    return couples


def _lay_out(
    wiring: Wiring,
    flat: Flat,
    components: list[list[int]],
    of: Integers,
    couples: dict[tuple[int, int], list[tuple[int, int, int]]],
) -> Components:
    """Orient the edges of each component away from its first variables, and compute the offsets."""
    V = wiring.n_variables
    near: dict[int, list[int]] = {}
    for u, v in couples:
        near.setdefault(u, []).append(v)
        near.setdefault(v, []).append(u)
    parent = np.full(V, -1, np.int64)
    members: list[int] = []
    seen = [False] * V
    for d, component in enumerate(components):
        for root in component:
            if seen[root]:
                continue
            seen[root] = True
            queue = deque([root])
            while queue:
                v = queue.popleft()
                members.append(v)
                for u in near.get(v, ()):
                    if u == parent[v]:
                        continue
                    if seen[u]:
                        raise ValueRangeError(
                            f"the factors inside component {d} form a cycle through variables {u} and {v}: only "
                            "forests are supported. Put one variable of the cycle into another component."
                        )
                    seen[u], parent[u] = True, v
                    queue.append(u)
    states = wiring.n_states
    child = np.flatnonzero(parent >= 0)
    sizes = np.zeros(V, np.int64)
    sizes[child] = states[child] * states[parent[child]]
    edge = wiring.offsets[-1] + np.cumsum(sizes) - sizes
    rows = np.ones(V, np.int64)
    rows[child] = states[parent[child]]
    L = len(flat.variables)
    factor = np.repeat(np.arange(len(flat.base)), np.diff(flat.ptr))
    part = np.arange(L) - flat.ptr[factor]
    place = wiring.offsets[flat.variables]
    move = np.ones(L, np.int64)
    counted = np.ones(L, np.bool_)
    for (u, v), touched in couples.items():
        low = v if parent[v] == u else u  # the child
        for f, one, two in touched:
            part[two] = part[one]
            counted[two] = False
            place[one] = place[two] = edge[low]
            for axis in (one, two):
                move[axis] = 1 if flat.variables[axis] == low else states[low]
            assert part[one] == one - flat.ptr[f]
    own = np.flatnonzero(counted)
    touched_by = of[flat.variables[own]]
    order = np.argsort(touched_by, kind="stable")
    D = len(components)
    return Components(
        starts([len(component) for component in components]),
        np.array(members, np.int64),
        parent,
        edge,
        np.cumsum(rows) - rows,
        part,
        place,
        move,
        np.bincount(factor[own], minlength=len(flat.base)),
        starts(np.bincount(touched_by, minlength=D)),
        factor[own][order],
        part[own][order],
        np.array([wiring.offsets[-1] + sizes.sum(), rows.sum()], np.int64),
    )


def find(wiring: Wiring, flat: Flat) -> list[list[int]]:
    """Find components: chains and trees of strongly coupled variables.

    Two methods are tried, and the result with more coupling inside its components is used: join components along the
    strongest pairs first, as long as a forest remains; or follow paths from neighbor to neighbor, as in chains.
    Variables that evidence fixes in all graphs are components of their own, which costs nothing and cuts cycles.
    The strength of a factor is the standard deviation of its finite log-scores, plus a constant if some are -inf; a
    batch uses its first graph. Time O(F log F) for F factors of few variables.
    """
    fixed = set(np.flatnonzero(fixed_variables(wiring).all(axis=0)).tolist())
    strength = {pair: s for pair, s in _strengths(flat).items() if fixed.isdisjoint(pair)}
    candidates = [_joined(wiring.n_variables, strength), _paths(wiring.n_variables, strength)]

    def kept(components: list[list[int]]) -> float:
        of = {v: d for d, component in enumerate(components) for v in component}
        return sum(s for (u, v), s in strength.items() if of[u] == of[v])

    return max(candidates, key=kept)


def _strengths(flat: Flat) -> dict[tuple[int, int], float]:
    """Return the total strength of the factors over each pair of variables (u, v), u < v."""
    known: dict[int, float] = {}  # strength by table
    strength: dict[tuple[int, int], float] = {}
    ptr, variables = flat.ptr.tolist(), flat.variables.tolist()
    for f, (base, n) in enumerate(zip(flat.base.tolist(), flat.n_entries.tolist(), strict=True)):
        if base not in known:
            table = flat.tables[base : base + n]
            finite = table[table > -np.inf]
            known[base] = (float(finite.std()) if finite.size else 0.0) + _HARD * (finite.size < n)
        scope = sorted(variables[ptr[f] : ptr[f + 1]])
        for i, u in enumerate(scope):
            for v in scope[i + 1 :]:
                strength[u, v] = strength.get((u, v), 0.0) + known[base]
    return strength


def _joined(V: int, strength: dict[tuple[int, int], float]) -> list[list[int]]:
    """Join components along the strongest pairs first, where a single pair connects them."""
    of = list(range(V))
    groups: dict[int, list[int]] = {v: [v] for v in range(V)}
    links: dict[int, dict[int, int]] = {v: {} for v in range(V)}  # pairs between components
    for u, v in strength:
        links[u][v] = links[v][u] = 1
    for u, v in sorted(strength, key=lambda pair: (-strength[pair], pair)):
        one, two = of[u], of[v]
        if one == two or links[one][two] > 1:
            continue
        if len(links[one]) + len(groups[one]) < len(links[two]) + len(groups[two]):
            one, two = two, one
        for w in groups[two]:
            of[w] = one
        groups[one] += groups.pop(two)
        del links[one][two], links[two][one]
        for other, n in links.pop(two).items():
            links[one][other] = links[one].get(other, 0) + n
            links[other][one] = links[one][other]
            del links[other][two]
    return [sorted(group) for group in groups.values()]


def _paths(V: int, strength: dict[tuple[int, int], float]) -> list[list[int]]:
    """Follow paths from the lowest free variable to the lowest neighbor that touches only the end of the path."""
    near: list[list[int]] = [[] for _ in range(V)]
    for u, v in strength:
        near[u].append(v)
        near[v].append(u)
    of = [-1] * V
    paths: list[list[int]] = []
    for first in range(V):
        if of[first] >= 0:
            continue
        d, end = len(paths), first
        path = [first]
        of[first] = d
        while True:
            free = [u for u in sorted(near[end]) if of[u] < 0 and sum(of[w] == d for w in near[u]) == 1]
            if not free:
                break
            end = free[0]
            of[end] = d
            path.append(end)
        paths.append(path)
    return paths
