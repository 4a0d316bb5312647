"""Distributions over discrete variables coupled by factors, with exact and approximate inference."""

import functools
import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from importlib import import_module
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute.checks import as_array, check_possible
from trelliswork.distributions.base import Best, Distribution, Kind
from trelliswork.distributions.factor_list import Group, doubles, from_arrays, from_list
from trelliswork.distributions.tensors import CPU, as_tensor, bool_mask, check_integers, expectation, forbidden, host
from trelliswork.errors import ConvergenceWarning, ValueRangeError
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

    ``argmax`` is the best assignment with engine ``exact`` and on forests; elsewhere it is the result of max-product,
    with the options of the graph if its engine is ``max_product``. ``topk`` needs exact maxima, up to V for each
    further assignment (Lawler, 1972). ``condition`` takes known states (V,) or (B, V), -1 where unknown, or a dict from
    variables to states in all graphs; the states that are ``allowed`` are (V, S) or (B, V, S), S the largest number of
    states.

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

    _nouns = GRAPHS
    _alike = "graphs with the same variables and factors"
    _dtype, _device = torch.float64, CPU

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
            groups,
            structured=[f for f in structured if not isinstance(f, Tables)],
            log_unary=None if log_unary is None else doubles("log_unary", log_unary).detach().numpy(),
            n_graphs=n_graphs,
        )
        self._given = groups
        self._groups = [group for group in groups if group.variables.shape[1] > 1 and len(group)]
        self._unary = _sum_unary(groups, log_unary, checked.n_graphs, checked.offsets)
        self._wiring, self._sizes = checked, (checked.n_graphs, checked.n_variables)

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

    def _with(self, unary: Tensor) -> Self:
        """Return the same graphs with other unary scores (B, N), for one graph with any B."""
        new = self._copy()
        new._unary, new._sizes = unary, (len(unary), self._sizes[1])
        new._wiring = replace(self._wiring, n_graphs=len(unary), log_unary=np.array(host(unary)))
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

    @property
    def _inputs(self) -> tuple[Tensor, ...]:
        return self._unary, *(group.tensor for group in self._groups)

    def _log_z(self) -> Tensor:
        """Return log Z (B,), or the engine's value (see ``kind``); its gradient is the beliefs."""
        unary, *tables = self._inputs
        return autograd.log_partition(self._wiring, self.infer(), unary, tables)

    def _sums(self) -> tuple[Tensor, Tensor]:
        """Return log Z and p(x_v = i), (B, V, S) with S the largest number of states."""
        result = self.infer()
        return torch.from_numpy(result.log_z), self._padded(torch.from_numpy(result.marginals))

    def _moments(self) -> tuple[Tensor, ...]:
        """Return log Z, the beliefs of flat states, and those of each group of factors: constants."""
        result = self.infer()
        beliefs = result.factor_marginals if self._groups else ()
        return tuple(map(torch.from_numpy, (result.log_z, result.marginals, *beliefs)))

    def _expected_score(self, moments: tuple[Tensor, ...]) -> Tensor:
        if self._wiring.structured:
            name = self._wiring.structured_name
            raise ValueRangeError(f"entropy and kl need the beliefs of each factor, which {name} does not provide.")
        scores = [self._unary, *(group.tensor[:, group.which] for group in self._groups)]
        expected = (expectation(p, x.detach()) for p, x in zip(moments[1:], scores, strict=True))
        return functools.reduce(operator.add, expected)

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
            if group.variables.shape[1] == 1 or not len(group):
                at = self._wiring.offsets[group.variables[:, 0], None] + np.arange(group.shape[0])
                beliefs = torch.from_numpy(result.marginals[:, at])
            else:
                beliefs = torch.from_numpy(next(large))
            if group.members is None:
                bulk.append(beliefs)
            else:
                listed.update({int(f): beliefs[:, n] for n, f in enumerate(group.members)})
        return [listed[f] for f in sorted(listed)] + bulk

    def _viterbi(self) -> tuple[Tensor, Tensor]:
        result = self._maximum()
        check_possible(result.log_z, "argmax", noun="assignment found for graph", parts=GRAPHS["parts"])
        assert result.assignment is not None
        return torch.from_numpy(result.assignment), torch.from_numpy(result.log_z)

    def _maximum(self) -> Result:
        """Return the result of a search for the best assignments: these, and their scores as ``log_z``."""
        if self.engine == "exact":
            found: Result = _module("exact").best(self._wiring, **self.options)
            return found
        return self.infer() if self.engine == "max_product" else self.using("max_product").infer()

    def _ranked(self, k: int) -> tuple[Tensor, Tensor]:
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
        values, scores = np.full((B, k, V), -1), np.full((B, k), -np.inf)
        for rank in range(k):
            parts = [heappop(heap) if heap else None for heap in heaps]
            for b, part in enumerate(parts):
                if part is not None:
                    values[b, rank], scores[b, rank] = part[2], -part[0]
            for v in range(V if rank < k - 1 else 0):
                masks = np.zeros((B, len(owner)), bool)
                for b, part in enumerate(parts):
                    if part is not None:
                        same = state == part[2][owner]
                        masks[b] = part[3] & np.where(owner < v, same, (owner > v) | ~same)
                if not masks.any():
                    continue
                found = self._masked(torch.from_numpy(masks))._maximum()
                assert found.assignment is not None
                for b in np.flatnonzero(found.log_z > -np.inf).tolist():
                    heappush(heaps[b], (-found.log_z[b], rank * V + v + 1, found.assignment[b], masks[b]))
        return torch.from_numpy(values), torch.from_numpy(scores)

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
            first = rows if len(group.tensor) > 1 else rows * 0
            scores = group.tensor[(first, torch.from_numpy(group.which), *of_factors.unbind(dim=2))]
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

    def _score(self, structure: Any) -> Tensor:
        return self.score(structure)

    def entropy(self) -> Tensor:
        """Return the entropy of the engine's beliefs in nats (B,), at least 0. Table factors only."""
        value = super().entropy()
        if self.engine in ("exact", "trw", "gibbs"):
            return value
        # Bethe's entropy: that of all factors, and of each variable as often as its factors count it too much.
        _, own, *beliefs = self._moments()
        degrees = np.zeros(self._wiring.n_variables, np.int64)
        for group in self._groups:
            np.add.at(degrees, group.variables, 1)
        entropies = [torch.special.entr(p).flatten(1).sum(dim=1) for p in beliefs]
        weights = torch.from_numpy(np.repeat(1 - degrees, self.n_states))
        return sum(entropies, (torch.special.entr(own) * weights).sum(dim=1)).clamp(min=0)

    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) in nats (B,) of two graphs with the same factors, whose engines are exact.

        It is inf where ``other`` forbids what ``self`` allows. Table factors only.
        """
        for graph in (self, other) if self._is_alike(other) else ():
            if graph.kind != "exact" or graph.engine == "max_product":
                raise ValueRangeError(f"kl needs exact results, which {graph} has not: use engine='exact'.")
        with torch.no_grad():
            return super().kl(other)

    def _is_alike(self, other: Any) -> bool:
        if not isinstance(other, FactorGraph) or self._sizes != other._sizes or len(self._groups) != len(other._groups):
            return False
        pairs = zip(self._groups, other._groups, strict=True)
        return np.array_equal(self.n_states, other.n_states) and all(
            np.array_equal(one.variables, two.variables) for one, two in pairs
        )

    def _forbidden_by(self, other: Self) -> "FactorGraph":
        tables = []
        for one, two in zip(self._groups, other._groups, strict=True):
            tables.append((one.variables, forbidden(one.tensor[:, one.which], two.tensor[:, two.which])))
        unary = forbidden(self._unary, other._unary)
        return FactorGraph(self.n_states, tables=tables, log_unary=unary, engine=self.engine, **self.options)

    def _agreeing(self, known: Any) -> Tensor:
        V, offsets = self._wiring.n_variables, self._wiring.offsets
        if isinstance(known, Mapping):
            states, known = known, np.full(V, -1)
            for v, state in states.items():
                if not 0 <= v < V:
                    raise ValueRangeError(f"known has variable {v}, but there are {V}, numbered from 0.")
                known[v] = state
        given = np.repeat(self._states(known, lowest=-1).numpy(), self.n_states, axis=1)
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], self.n_states)
        return torch.from_numpy((given < 0) | (given == place))

    def _permitted(self, allowed: Any) -> Tensor:
        S, given = int(self.n_states.max(initial=0)), as_tensor("allowed", allowed)
        given = given.expand(self.n_graphs, *given.shape[-2:]) if given.ndim == 2 or len(given) == 1 else given
        mask = bool_mask("allowed", given, "B V S", CPU, B=self.n_graphs, V=self._wiring.n_variables, S=S)
        return mask[:, torch.from_numpy(np.arange(S) < self.n_states[:, None])]

    def _masked(self, mask: Tensor) -> Self:
        return self._with(self._unary.masked_fill(~mask, -torch.inf))

    def _copies(self, B: int) -> Self:
        return self._with(self._unary.expand(B, -1))

    def _named(self, value: Tensor, labels: Any) -> list[Any]:
        raise ValueRangeError("the variables of a factor graph have no common names of states.")

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
        if group.variables.shape[1] == 1 and len(group):
            at = offsets[group.variables[:, 0], None] + np.arange(group.shape[0])
            scores = group.tensor[:, torch.from_numpy(group.which)].expand(n_graphs, -1, -1)
            total = total.index_add(1, torch.from_numpy(at).reshape(-1), scores.flatten(1))
    return total


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
