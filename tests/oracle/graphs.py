"""Factor graphs by enumeration of all assignments: the ground truth of the tests."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from trelliswork.inference.graph import Tables, Wiring, wire
from trelliswork.inference.graph.reference import Factor, Graph


@dataclass
class EnumeratedGraph:
    """All assignments of one graph with their scores, in lexicographic order."""

    wiring: Wiring
    assignments: np.ndarray  # (n, V)
    scores: np.ndarray  # (n,)

    @property
    def log_z(self) -> float:
        top = self.scores.max()
        return -np.inf if top == -np.inf else float(top + np.log(np.exp(self.scores - top).sum()))

    @property
    def probabilities(self) -> np.ndarray:
        return np.zeros_like(self.scores) if self.log_z == -np.inf else np.exp(self.scores - self.log_z)

    @property
    def best(self) -> float:
        return float(self.scores.max())

    def entropy(self) -> float:
        p = self.probabilities
        return float(-(p[p > 0] * np.log(p[p > 0])).sum())

    def joint(self, variables) -> np.ndarray:
        """Return joint probabilities of the states of some variables, one axis each."""
        variables = np.asarray(variables)
        shape = self.wiring.n_states[variables]
        out = np.zeros(shape)
        np.add.at(out, tuple(self.assignments[:, variables].T), self.probabilities)
        return out

    def marginals(self) -> np.ndarray:
        """Return marginals as a flat array (N,), as in `Wiring`."""
        return np.concatenate([self.joint([v]) for v in range(self.wiring.n_variables)])

    def factor_marginals(self) -> list[np.ndarray]:
        """Return one array (F, s1, .., sk) per group."""
        return [np.stack([self.joint(v) for v in group.variables]) for group in self.wiring.groups]


def enumerate_graphs(wiring: Wiring) -> list[EnumeratedGraph]:
    """Enumerate each graph of the batch; scores follow the definition, one factor after the other."""
    assignments = np.array(list(product(*(range(s) for s in wiring.n_states))), dtype=np.int64)
    graphs = []
    for b in range(wiring.n_graphs):
        scores = np.zeros(len(assignments))
        for v in range(wiring.n_variables):
            scores = scores + wiring.log_unary[b, wiring.offsets[v] + assignments[:, v]]
        for group in wiring.groups:
            tables = group.log_tables[b if len(group.log_tables) > 1 else 0]
            for variables, which in zip(group.variables, group.which, strict=True):
                scores = scores + tables[which][tuple(assignments[:, variables].T)]
        for factor in wiring.structured:
            table = factor.table()[b if factor.n_graphs > 1 else 0]
            scores = scores + table[tuple(assignments[:, factor.variables].T)]
        graphs.append(EnumeratedGraph(wiring, assignments, scores))
    return graphs


def random_scores(rng: np.random.Generator, shape, scale: float = 1.0, zeros: float = 0.0) -> np.ndarray:
    """Return normal log-potentials, a fraction ``zeros`` of them -inf."""
    scores = rng.normal(0, scale, shape)
    scores[rng.random(shape) < zeros] = -np.inf
    return scores


def random_graph(
    rng: np.random.Generator,
    *,
    n_variables: int = 5,
    n_factors: int = 6,
    n_graphs: int = 1,
    max_states: int = 3,
    max_arity: int = 3,
    scale: float = 1.0,
    zeros: float = 0.0,
    tree: bool = False,
    shared_by_graphs: bool | None = None,
    structured=(),
    n_states=None,
    scores=None,
) -> Wiring:
    """Return a random graph; factors have their own tables or sometimes share the table of the previous one.

    With ``tree`` each factor connects one earlier variable with new ones: ``n_factors`` is ignored, and the graph is
    connected and has no cycles. ``scores(shape)`` draws log-potentials instead of `random_scores`.
    """

    def draw(shape, zeros: float) -> np.ndarray:
        return random_scores(rng, shape, scale, zeros) if scores is None else scores(shape)

    sizes = rng.integers(1, max_states + 1, n_variables) if n_states is None else np.asarray(n_states)
    V = len(sizes)
    scopes = []
    if tree:
        order, done = rng.permutation(V), 1
        while done < V:
            k = int(min(rng.integers(2, max_arity + 1), V - done + 1))
            scope = np.concatenate([[order[rng.integers(done)]], order[done : done + k - 1]])
            scopes.append(rng.permutation(scope))
            done += k - 1
    else:
        for _ in range(n_factors):
            k = int(min(rng.integers(2, max_arity + 1), V))
            scopes.append(rng.permutation(V)[:k])
    groups: dict[tuple[int, ...], list[np.ndarray]] = {}
    for scope in scopes:
        if len(scope) > 1:
            groups.setdefault(tuple(int(s) for s in sizes[scope]), []).append(scope)
    tables = []
    for shape, members in groups.items():
        F = len(members)
        which = np.sort(rng.integers(0, F, F))
        shared = bool(rng.integers(2)) if shared_by_graphs is None else shared_by_graphs
        B = 1 if shared else n_graphs
        tables.append(Tables(np.array(members), which, draw((B, F, *shape), zeros)))
    unary = draw((n_graphs, int(sizes.sum())), zeros / 2)
    return wire(sizes, tables, log_unary=unary, n_graphs=n_graphs, structured=structured)


def graph_of(wiring: Wiring, b: int = 0) -> Graph:
    """Return graph b of a batch; structured factors become tables."""
    factors: list[Factor] = []
    for group in wiring.groups:
        tables = group.dense()[b if len(group.log_tables) > 1 else 0]
        factors += [(tuple(scope), table) for scope, table in zip(group.variables.tolist(), tables, strict=True)]
    for factor in wiring.structured:
        factors.append((tuple(factor.variables.tolist()), factor.table()[b if factor.n_graphs > 1 else 0]))
    return Graph(np.split(wiring.log_unary[b], wiring.offsets[1:-1]), factors)
