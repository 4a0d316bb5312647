"""Probabilities of edges in spanning trees: the weights of tree-reweighted belief propagation."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from trelliswork.inference.graph.potentials import Doubles, Integers

_DENSE = 1000  # maximum number of variables of a connected part for the matrix-tree theorem
_TREES = 10  # minimum number of sampled spanning trees


def uniform_weights(n_variables: int, ends: Integers, seed: int = 0) -> Doubles:
    """Return the fraction of all spanning trees (forests, if there are several parts) with each edge (E,).

    By the matrix-tree theorem this is the effective resistance of the edge if each edge is a unit resistor. Parts of
    more than 1,000 variables use trees drawn as in `sampled_weights`, since O(n^3) would be slow.
    """
    weights = np.ones(len(ends))
    n_parts, part = _parts(n_variables, ends)
    sizes = np.bincount(part, minlength=n_parts)
    edge_part = part[ends[:, 0]] if len(ends) else np.zeros(0, np.int64)
    n_edges = np.bincount(edge_part, minlength=n_parts)
    loopy = n_edges >= sizes  # a tree has one edge fewer than variables, and each has weight 1
    small = loopy & (sizes <= _DENSE)
    for p in np.flatnonzero(small).tolist():
        here = np.flatnonzero(edge_part == p)
        names, local = np.unique(ends[here], return_inverse=True)
        local = local.reshape(-1, 2)
        n = len(names)
        laplacian = np.full((n, n), 1 / n)  # J/n makes it invertible and does not change resistances
        np.add.at(laplacian, (local, local), 1)
        laplacian[local[:, 0], local[:, 1]] -= 1
        laplacian[local[:, 1], local[:, 0]] -= 1
        inverse = np.linalg.inv(laplacian)
        u, v = local.T
        weights[here] = inverse[u, u] + inverse[v, v] - 2 * inverse[u, v]
    large = np.flatnonzero((loopy & ~small)[edge_part])
    if large.size:
        weights[large] = sampled_weights(n_variables, ends[large], seed)
    return np.clip(weights, np.finfo(float).tiny, 1)


def sampled_weights(n_variables: int, ends: Integers, seed: int = 0) -> Doubles:
    """Return the average of random spanning forests (E,) that cover all edges; rarely used edges come first."""
    rng = np.random.default_rng(seed)
    used = np.zeros(len(ends))
    n = 0
    while len(ends) and (n < _TREES or not used.all()):
        used += spanning_forest(n_variables, ends, -used - rng.random(len(ends)))
        n += 1
    return used / max(n, 1)


def spanning_forest(n_variables: int, ends: Integers, values: Doubles) -> NDArray[np.bool_]:
    """Return the edges (E,) of a spanning forest with the largest sum of ``values`` (E,); time O(E log E)."""
    costs = values.max(initial=0) - values + 1  # positive: zeros would not be edges
    graph = csr_array(coo_array((costs, (ends[:, 0], ends[:, 1])), shape=(n_variables, n_variables)))
    tree = coo_array(minimum_spanning_tree(graph))
    keys = ends[:, 0] * n_variables + ends[:, 1]
    return np.isin(keys, tree.row.astype(np.int64) * n_variables + tree.col)


def _parts(n_variables: int, ends: Integers) -> tuple[int, Integers]:
    """Return the number of connected parts, and the part of each variable."""
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n_variables, n_variables))
    n_parts, part = connected_components(graph, directed=False)
    return int(n_parts), part.astype(np.int64)
