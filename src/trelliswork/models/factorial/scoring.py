"""Potentials of the layers of a factorial CRF from attributes and weights, in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.padding import batches, pad
from trelliswork.features.attributes import Attributes
from trelliswork.inference.chain import queries
from trelliswork.inference.chain.product import Pairs
from trelliswork.inference.factorial import FactorialPotentials
from trelliswork.models.crf.layout import Allowed
from trelliswork.models.crf.problem import Tokens
from trelliswork.models.crf.weights import BATCH_TOKENS, ScoredTokens, check_overflow
from trelliswork.models.factorial.objective import FactorialLayout, FactorialWeights

if TYPE_CHECKING:
    from trelliswork.distributions.factor_graph import FactorGraph

Vector = NDArray[np.float64]


class FactorialScorer:
    """Sentences scored under one layout, with one or more weight vectors."""

    def __init__(self, attributes: Attributes, layout: FactorialLayout, allowed: Sequence[Allowed | None]) -> None:
        self._layout = replace(layout, layers=tuple(layer.for_data(attributes) for layer in layout.layers))
        tokens = Tokens.with_vectors(attributes)
        self._tokens = [ScoredTokens(tokens, layer) for layer in self._layout.layers]
        self._allowed, self.lengths = list(allowed), np.diff(attributes.offsets)

    def potentials(
        self, weights: Vector, ruled_out: Sequence[NDArray[np.bool_] | None] | None = None
    ) -> Iterator[FactorialPotentials]:
        """Yield the scores of batches of sentences, in order; labels ``ruled_out`` (n_tokens, S_d) have -inf."""
        w = FactorialWeights(weights, self._layout, self._allowed)
        offsets = self._tokens[0].offsets
        for first, last in batches(self.lengths, BATCH_TOKENS):
            lengths, unary = self.lengths[first:last], []
            for d, tokens in enumerate(self._tokens):
                scores = w.scores(d, tokens, first, last)
                check_overflow(scores)
                out = None if ruled_out is None else ruled_out[d]
                if out is not None:
                    scores[out[offsets[first] : offsets[last]]] = -np.inf
                unary.append(pad(scores, lengths))
            yield FactorialPotentials(tuple(unary), w.tables, lengths)


def as_factor_graph(potentials: FactorialPotentials, engine: str) -> "FactorGraph":
    """Return one sentence as a factor graph; its variables are the tokens of the first layer, then of the next.

    For each token of a layer with rules there is one more: its label, and the state of the automaton after it. These
    variables take the place of the layer's labels in its chain.
    """
    from trelliswork.distributions.factor_graph import FactorGraph

    T, tables, D = potentials.log_unary[0].shape[1], potentials.tables, len(potentials.log_unary)
    at, groups = np.arange(T), []
    n_states, unary = [np.repeat(tables.n_labels, T)], [u[0].reshape(-1) for u in potentials.log_unary]
    for d, matrix in enumerate(tables.log_pairwise):
        rows, between = d * T + at, matrix.astype(np.float64)
        if (ask := potentials.asked(d)) is not queries:
            automaton = ask.joint(range(len(ask.parts)))
            source, target = np.nonzero(matrix > -np.inf)
            pairs = Pairs.of(automaton, np.arange(len(matrix)), source, target)
            ends = automaton.final[pairs.automaton]
            between = np.full((len(ends), len(ends)), -np.inf)
            between[pairs.sources, pairs.targets] = matrix[source[pairs.entry], target[pairs.entry]]
            labels, rows = rows, T * (D + len(n_states) - 1) + at
            same = np.where(np.arange(len(matrix))[:, None] == pairs.state, 0, -np.inf)
            groups.append((np.stack([labels, rows], axis=1), same))
            possible = (pairs.first | (at > 0)[:, None]) & (ends | (at < T - 1)[:, None])
            n_states.append(np.full(T, len(ends)))
            unary.append(np.where(possible, 0, -np.inf).reshape(-1))
        if T > 1:
            groups.append((np.stack([rows[:-1], rows[1:]], axis=1), between))
    for (d, e), table in tables.log_between.items():
        groups.append((np.stack([d * T + at, e * T + at], axis=1), table.astype(np.float64)))
    log_unary = np.concatenate(unary, dtype=np.float64)
    return FactorGraph(np.concatenate(n_states), tables=groups, log_unary=log_unary, engine=engine)
