"""Distributions over discrete variables coupled by factors, with exact and approximate inference."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from importlib import import_module
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import entr
from torch import Tensor

from trelliswork.compute.checks import as_array, check_count, check_possible
from trelliswork.distributions.base import Best, Distribution, Kind
from trelliswork.distributions.factor_list import Group, doubles, from_arrays, from_list
from trelliswork.distributions.tensors import CPU, as_tensor, bool_mask, check_integers, expectation
from trelliswork.errors import ConvergenceWarning, ShapeError, ValueRangeError
from trelliswork.inference.graph import Propagator, Result, Tables, autograd, wire
from trelliswork.inference.graph.potentials import GRAPHS

ENGINES = ("bp", "exact", "mean_field", "structured_mean_field", "trw", "gibbs", "max_product")


class FactorGraph(Distribution):
    r"""Assignments of discrete variables, scored by factors over subsets of them.

    .. math:: p(x) = \frac1Z \exp\Big(\sum_v u_v(x_v) + \sum_f \theta_f(x_f)\Big)

    Parameters
    ----------
    n_states : sequence of int (V,)
        States of each variable.
    factors : iterable of (variables, log_table)
        ``log_table[i, j, ..]`` is the score of state i of the first variable, j of the second, ..; for 1 to 4
        variables. -inf is impossible. With one more axis in front, one table for each of B graphs. A table object that
        is passed several times is shared.
    tables : iterable of (variables, log_tables) or (variables, log_tables, which)
        Many factors at once: ``variables`` (F, k); ``log_tables`` (s1, .., sk), the same for all, or (U, s1, .., sk),
        or (B, U, s1, .., sk); ``which`` (F,) is the table of each factor, required unless U is 1 or F.
    structured : iterable of Propagator
        Factors with their own dynamic program: ``ExactlyOne``, ``AtMostOne``, ``Cardinality``, ``LowRankFactor``,
        ``ProjectiveTreeFactor``, ``SpanningTreeFactor``; and chains of tables, ``ChainFactor``.
    log_unary : Tensor (N,) or (B, N), optional
        Scores of the states of all variables, concatenated; N = sum of ``n_states``.
    n_graphs : int, optional
        B, if no array has it.
    engine : str
        Engine for the queries: ``bp``, ``exact``, ``mean_field``, ``structured_mean_field``, ``trw`` or ``gibbs``.
        Belief propagation is exact on forests and an estimate elsewhere.
    **options
        Options of the engine's ``run``, such as ``damping`` and ``max_iter``.

    Notes
    -----
    Computes in float64 on the CPU. ``log_partition``, ``score`` and ``log_prob`` are differentiable in unary scores,
    tables and (with engine ``bp``) the parameters of structured factors, and the gradient of log Z is the beliefs.
    Construction takes time linear in the size of the input; use ``tables`` for more than a few thousand factors.

    Examples
    --------
    >>> import numpy as np
    >>> agree = np.log([[3.0, 1.0], [1.0, 3.0]])
    >>> graph = FactorGraph([2, 2, 2], [((0, 1), agree), ((1, 2), agree)])
    >>> round(graph.log_partition().exp().item())
    32
    >>> graph.condition(known={0: 1}).marginals()[0, 2].numpy().round(6).tolist()
    [0.375, 0.625]
    """

    def __init__(
        self,
        n_states: Sequence[int] | NDArray[np.integer],
        factors: Iterable[tuple[Any, Any]] = (),
        *,
        tables: Iterable[Sequence[Any]] = (),
        structured: Iterable[Propagator | Tables] = (),
        log_unary: Any = None,
        n_graphs: int | None = None,
        engine: str = "bp",
        **options: Any,
    ) -> None:
        sizes = as_array("n_states", n_states)
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu":
            raise ValueRangeError("n_states must be a list of positive integers, one for each variable.")
        structured = tuple(structured)
        chains = [(f.variables, f.log_tables, f.which) for f in structured if isinstance(f, Tables)]
        groups = from_list(factors, sizes) + [from_arrays(given) for given in [*tables, *chains]]
        self._set_engine(engine, options)
        # Unary factors are checked with the others, and summed into log_unary.
        checked = wire(
            sizes,
            [group.arrays() for group in groups],
            structured=[f for f in structured if not isinstance(f, Tables)],
            log_unary=None if log_unary is None else doubles("log_unary", log_unary).detach().numpy(),
            n_graphs=n_graphs,
        )
        self._given = groups
        self._groups = [group for group in groups if group.variables.shape[1] > 1 and len(group.variables)]
        self._unary = _sum_unary(groups, log_unary, checked.n_graphs, checked.offsets)
        self._wiring = checked

    def __repr__(self) -> str:
        wiring = self._wiring
        return (
            f"FactorGraph(B={wiring.n_graphs}, V={wiring.n_variables}, factors={wiring.n_factors}, "
            f"engine={self.engine!r})"
        )

    def _set_engine(self, engine: str, options: dict[str, Any]) -> None:
        if engine not in ENGINES:
            raise ValueRangeError(f"engine must be one of {', '.join(map(repr, ENGINES))}, got {engine!r}.")
        self.engine, self.options = engine, options
        self._results: dict[str, Result] = {}

    def _copy(self) -> Self:
        new = object.__new__(type(self))
        new.__dict__ = {**self.__dict__, "_results": {}}
        return new

    def using(self, engine: str, **options: Any) -> Self:
        """Return the same distribution with another engine."""
        new = self._copy()
        new._set_engine(engine, options)
        return new

    @property
    def n_states(self) -> NDArray[np.int64]:
        """Return the number of states of each variable (V,)."""
        return self._wiring.n_states

    @property
    def n_graphs(self) -> int:
        """Return B."""
        return self._wiring.n_graphs

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.n_graphs, self._wiring.n_variables

    @property
    def kind(self) -> Kind:  # type: ignore[override]  # of the engine
        """Return the kind of the engine's log Z: "exact", a "lower" or "upper" bound, or an "estimate"."""
        return self.infer().kind

    def infer(self, engine: str | None = None, **options: Any) -> Result:
        """Run an engine and return its result, as arrays with flat states (see `Result`).

        Without arguments it is the graph's own engine, which runs once. Warns where it did not converge.
        """
        if engine is not None or options:
            return self.using(engine or self.engine, **options).infer()
        if self.engine not in self._results:
            self._results[self.engine] = result = _module(self.engine).run(self._wiring, **self.options)
            if self.engine != "gibbs":  # sampling never converges
                _warn(self.engine, result)
        return self._results[self.engine]

    def log_partition(self) -> Tensor:
        """Return log Z (B,), or the engine's value (see ``kind``); -inf where nothing is possible.

        Its gradient is the beliefs.
        """
        tables = [group.log_tables for group in self._groups]
        return autograd.log_partition(self._wiring, self.infer(), self._unary, tables)

    def marginals(self) -> Tensor:
        """Return p(x_v = i), (B, V, S) with S the largest number of states; zero for impossible graphs."""
        return self._padded(torch.from_numpy(self.infer().marginals))

    def factor_marginals(self) -> list[Tensor]:
        """Return joint probabilities of the states of each factor's variables.

        First (B, s1, .., sk) for each of ``factors``, then (B, F, s1, .., sk) for each entry of ``tables`` and for the
        steps of each ``ChainFactor``.
        """
        result = self.infer()
        large = iter(result.factor_marginals if self._groups else ())
        listed: dict[int, Tensor] = {}
        bulk = []
        for group in self._given:
            if group.variables.shape[1] == 1 or not len(group.variables):
                at = self._wiring.offsets[group.variables[:, 0], None] + np.arange(group.log_tables.shape[2])
                beliefs = torch.from_numpy(result.marginals[:, at])
            else:
                beliefs = torch.from_numpy(next(large))
            if group.members is None:
                bulk.append(beliefs)
            else:
                listed.update({int(f): beliefs[:, n] for n, f in enumerate(group.members)})
        return [listed[f] for f in sorted(listed)] + bulk

    def argmax(self) -> Best:
        """Return an assignment (B, V): the best one where it can be computed, else a good one.

        It is the best one with engine ``exact`` and on forests; elsewhere it is the result of max-product, with the
        options of the graph if its engine is ``max_product``.
        """
        result = self._maximum()
        check_possible(result.log_z, "argmax", noun="assignment found for graph", parts=GRAPHS["parts"])
        assert result.assignment is not None
        return self._best(torch.from_numpy(result.assignment))

    def _maximum(self) -> Result:
        """Return the result of a search for the best assignments: these, and their scores as ``log_z``."""
        if self.engine == "exact":
            found: Result = _module("exact").best(self._wiring, **self.options)
            return found
        return self.infer() if self.engine == "max_product" else self.using("max_product").infer()

    def topk(self, k: int) -> Best:
        """Return the k best assignments (B, k, V), all different, best first; -1 if there are fewer.

        It needs exact maxima: engine ``exact``, or a forest. Each further assignment takes up to V of them (Lawler,
        1972).
        """
        check_count("k", k)
        first = self._maximum()
        if first.kind != "exact":
            raise ValueRangeError(f"topk needs exact maxima, which {self} has not: use engine='exact', or a forest.")
        check_possible(first.log_z, "nothing to decode", **GRAPHS)
        B, V = self._sizes
        owner = np.repeat(np.arange(V), self.n_states)
        state = np.arange(len(owner)) - self._wiring.offsets[owner]
        assert first.assignment is not None
        # Of each graph: the best assignment of each part of the space that is left, with the mask of the part.
        heaps = [[(-first.log_z[b], 0, first.assignment[b], np.ones(len(owner), bool))] for b in range(B)]
        values = np.full((B, k, V), -1)
        for rank in range(k):
            parts = [heappop(heap) if heap else None for heap in heaps]
            for b, part in enumerate(parts):
                if part is not None:
                    values[b, rank] = part[2]
            for v in range(V if rank < k - 1 else 0):
                masks = np.zeros((B, len(owner)), bool)
                for b, part in enumerate(parts):
                    if part is not None:
                        same = state == part[2][owner]
                        masks[b] = part[3] & np.where(owner < v, same, (owner > v) | ~same)
                if not masks.any():
                    continue
                new = self._copy()
                new._restrict(masks)
                found = new._maximum()
                assert found.assignment is not None
                for b in np.flatnonzero(found.log_z > -np.inf).tolist():
                    heappush(heaps[b], (-found.log_z[b], rank * V + v + 1, found.assignment[b], masks[b]))
        return self._best(torch.from_numpy(values), ranks=True)

    def mbr(self) -> Best:
        """Return the states (B, V) with the most expected hits under the marginals."""
        check_possible(self.infer().log_z, "nothing to decode", **GRAPHS)
        return self._best(self.marginals().argmax(dim=2))

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Return assignments (n, B, V): exact ones, or those of a Gibbs walk if the engine is ``gibbs``.

        Exact draws need a graph that is small enough for engine ``exact``.
        """
        if self.engine == "gibbs":
            seed = int(torch.randint(2**31, (1,), generator=generator))
            options = {name: value for name, value in self.options.items() if name in ("burn_in", "pairs")}
            return torch.from_numpy(_module("gibbs").sample(self._wiring, n, **options, seed=seed))
        uniforms = torch.rand((n, *self._sizes), dtype=torch.float64, generator=generator).numpy()
        options = self.options if self.engine == "exact" else {}
        return torch.from_numpy(_module("exact").sample(self._wiring, uniforms, **options))

    def score(self, assignment: Any) -> Tensor:
        """Return the sum of all log-potentials (B,) of states (V,) or (B, V), differentiable; -inf if impossible."""
        states = self._states(assignment, lowest=0)
        rows = torch.arange(self.n_graphs)[:, None]
        total = self._unary[rows, torch.from_numpy(self._wiring.offsets[:-1]) + states].sum(dim=1)
        for group in self._groups:
            of_factors = states[:, torch.from_numpy(group.variables)]  # (B, F, k)
            first = rows if len(group.log_tables) > 1 else rows * 0
            scores = group.log_tables[(first, torch.from_numpy(group.which), *of_factors.unbind(dim=2))]
            total = total + scores.sum(dim=1)
        for factor in self._wiring.structured:
            chosen = states.numpy()[:, factor.variables]
            scores = torch.from_numpy(factor.score(chosen))
            if autograd.learns(factor):
                places = np.cumsum(factor.n_states) - factor.n_states + chosen
                known = np.full((len(chosen), int(factor.n_states.sum())), -np.inf)
                np.put_along_axis(known, places, 0.0, axis=1)
                scores = scores + autograd.no_change(factor, known, scores.isfinite().numpy())
            total = total + scores
        return total

    def log_prob(self, value: Any) -> Tensor:
        """Return log p(x) (B,) of states (V,) or (B, V), or with the axes of ``sample``, with the engine's log Z."""
        check_possible(self.infer().log_z, "no probabilities", **GRAPHS)
        return self._of_each(self.score, value) - self.log_partition()

    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) in nats (B,) of two graphs with the same factors, whose engines are exact.

        It is inf where ``other`` forbids what ``self`` allows. Table factors only.
        """
        p, q = self._wiring, other._wiring
        scopes = [[group.variables for group in wiring.groups] for wiring in (p, q)]
        same = self._sizes == other._sizes and np.array_equal(p.n_states, q.n_states)
        if not (same and len(scopes[0]) == len(scopes[1]) and all(map(np.array_equal, *scopes))):
            raise ShapeError(f"kl needs two graphs with the same variables and factors, got {self} and {other}.")
        if p.structured or q.structured:
            raise ValueRangeError("kl needs the beliefs of each factor, which structured factors do not provide.")
        for graph in (self, other):
            check_possible(graph.infer().log_z, "no divergence", **GRAPHS)
            if graph.kind != "exact":
                raise ValueRangeError(f"kl needs exact results, which {graph} has not: use engine='exact'.")
        value = other.log_partition() - self.log_partition()
        result = self.infer()
        beliefs = [result.marginals, *(result.factor_marginals if self._groups else ())]
        own = [self._unary, *(group.log_tables[:, group.which] for group in self._groups)]
        theirs = [other._unary, *(group.log_tables[:, group.which] for group in other._groups)]
        forbidden = torch.zeros(len(value), dtype=torch.bool)
        for belief, mine, given in zip(beliefs, own, theirs, strict=True):
            weights = torch.from_numpy(belief)
            value = value + expectation(weights, mine) - expectation(weights, given)
            forbidden |= ((weights > 0) & torch.isneginf(given)).flatten(1).any(dim=1)
        return torch.where(forbidden, torch.inf, value.clamp(min=0))

    def entropy(self) -> Tensor:
        """Return the entropy of the engine's beliefs in nats (B,), at least 0. Table factors only."""
        if self._wiring.structured:
            name = self._wiring.structured_name
            raise ValueRangeError(f"entropy needs the beliefs of each factor, which {name} does not provide.")
        result = self.infer()
        check_possible(result.log_z, "no entropy", **GRAPHS)
        difference = self.engine in ("exact", "trw", "gibbs")  # of log Z and scores; the others have Bethe's entropy
        value = result.log_z - _expectation(result.marginals, self._wiring.log_unary)
        bethe, degrees = np.zeros(self.n_graphs), np.zeros(self._wiring.n_variables, np.int64)
        for beliefs, group in zip(result.factor_marginals if self._groups else (), self._wiring.groups, strict=True):
            value = value - _expectation(beliefs, group.dense())
            bethe = bethe + entr(beliefs).reshape(self.n_graphs, -1).sum(axis=1)
            np.add.at(degrees, group.variables, 1)
        bethe = bethe + (entr(result.marginals) * np.repeat(1 - degrees, self.n_states)).sum(axis=1)
        return torch.from_numpy(np.maximum(value if difference else bethe, 0))

    def condition(self, *, known: Any = None, allowed: Any = None) -> Self:
        """Return the distribution given evidence.

        Parameters
        ----------
        known : dict of int to int, or Tensor of int (V,) or (B, V), optional
            States of some variables, in all graphs, or the state of each variable, -1 where unknown.
        allowed : Tensor of bool (V, S) or (B, V, S), optional
            States that each variable may take, S the largest number of states; entries beyond a variable's states are
            ignored.
        """
        new = self._copy()
        offsets, V = self._wiring.offsets, self._wiring.n_variables
        if isinstance(known, Mapping):
            states, known = known, np.full(V, -1)
            for v, state in states.items():
                if not 0 <= v < V:
                    raise ValueRangeError(f"known has variable {v}, but there are {V}, numbered from 0.")
                known[v] = state
        if known is not None:
            given = self._states(known, lowest=-1).numpy()
            repeated = np.repeat(given, self.n_states, axis=1)
            place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], self.n_states)
            new._restrict((repeated < 0) | (repeated == place))
        if allowed is not None:
            new._restrict(self._mask(allowed))
        return new

    def _copies(self, B: int) -> Self:
        if self._wiring.structured:
            raise ValueRangeError("graphs with structured factors cannot be expanded: make them with n_graphs=B.")
        tables = [(group.variables, group.log_tables[0], group.which) for group in self._groups]
        unary, options = self._unary.expand(B, -1), self.options
        return type(self)(self.n_states, tables=tables, log_unary=unary, n_graphs=B, engine=self.engine, **options)

    def _named(self, value: Tensor, labels: Any) -> list[Any]:
        raise ValueRangeError("the variables of a factor graph have no common names of states.")

    def _restrict(self, possible: NDArray[np.bool_]) -> None:
        """Forbid flat states (B, N) that are not ``possible``."""
        self._unary = self._unary.masked_fill(~torch.from_numpy(possible), -torch.inf)
        self._wiring = self._wiring.with_unary(np.where(possible, self._wiring.log_unary, -np.inf))

    def _mask(self, allowed: Any) -> NDArray[np.bool_]:
        """Convert (V, S) or (B, V, S) to flat (B, N)."""
        S, given = int(self.n_states.max(initial=0)), as_tensor("allowed", allowed)
        given = given.expand(self.n_graphs, *given.shape[-2:]) if given.ndim == 2 or len(given) == 1 else given
        mask = bool_mask("allowed", given, "B V S", CPU, B=self.n_graphs, V=self._wiring.n_variables, S=S).numpy()
        return mask[:, np.arange(S) < self.n_states[:, None]]

    def _states(self, assignment: Any, lowest: int) -> Tensor:
        """Return checked states (B, V) of (V,) or (B, V)."""
        states, shape = as_tensor("states", assignment), self._sizes
        states = states.expand(shape) if states.shape in (shape[1:], (1, *shape[1:])) else states
        return check_integers("states", states, shape, lowest, torch.from_numpy(self.n_states - 1))

    def _padded(self, flat: Tensor) -> Tensor:
        """Convert (B, N) to (B, V, S)."""
        S = int(self.n_states.max(initial=0))
        inside = torch.from_numpy(np.arange(S) < self.n_states[:, None]).expand(len(flat), -1, -1)
        return flat.new_zeros(inside.shape).masked_scatter(inside, flat)


def _module(engine: str) -> Any:
    """Import an engine on first use."""
    return import_module(f"trelliswork.inference.graph.engines.{engine}")


def _sum_unary(groups: list[Group], log_unary: Any, n_graphs: int, offsets: NDArray[np.int64]) -> Tensor:
    """Return scores of states (B, N) with the factors over one variable added; differentiable."""
    total = torch.zeros(1, int(offsets[-1]), dtype=torch.float64) if log_unary is None else doubles("", log_unary)
    total = (total[None] if total.ndim == 1 else total).expand(n_graphs, -1)
    for group in groups:
        if group.variables.shape[1] == 1 and len(group.variables):
            at = offsets[group.variables[:, 0], None] + np.arange(group.log_tables.shape[2])
            scores = group.log_tables[:, torch.from_numpy(group.which)].expand(n_graphs, -1, -1)
            total = total.index_add(1, torch.from_numpy(at).reshape(-1), scores.flatten(1))
    return total


def _expectation(probabilities: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of p * score (B,), where 0 * -inf is 0."""
    safe = np.where(scores == -np.inf, 0, scores)
    return (probabilities * safe).sum(axis=tuple(range(1, probabilities.ndim)))


def _warn(engine: str, result: Result) -> None:
    bad = np.flatnonzero(~result.converged)
    if bad.size:
        worst = float(result.residual[bad].max())
        warnings.warn(
            f"{engine} did not converge on {bad.size} of {len(result.converged)} graphs: residual {worst:.2g} after "
            f"{int(result.n_iter[bad].max())} iterations. Raise max_iter or tolerance, or add damping.",
            ConvergenceWarning,
            stacklevel=3,
        )
