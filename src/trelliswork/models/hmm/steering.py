r"""Words of an HMM under rules: how probable it is that a sentence satisfies them, and sentences and words that will.

A rule is an automaton over words. With :math:`h_q(k)` the probability that the rest of a sentence is accepted after
state k, when the automaton is in q,

.. math:: h_q(k) = e_k [q \in F] + \sum_{k'} a_{kk'} \sum_w b_{k'w} \, h_{\delta(q, w)}(k')

are linear equations, solved for one strongly connected part of the automaton after the other. Words that a rule does
not name are one symbol. Sampling and prediction weight each step by h.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve

from trelliswork.errors import ImpossibleError
from trelliswork.inference.chain.automata import Automaton
from trelliswork.models.hmm.decoding import StateChain, choose
from trelliswork.rules import Rule

Doubles = NDArray[np.float64]
OTHER = "\0"  # any word that a rule does not name
MOST_WORDS = 100_000  # of a sentence


@dataclass(frozen=True)
class Steering:
    """An HMM whose sentences satisfy a rule about words."""

    rule: Rule
    chain: StateChain
    emission: Doubles  # (S, V)
    words: Sequence[str]

    @cached_property
    def _automaton(self) -> tuple[Automaton, NDArray[np.int64]]:
        """The automaton over named words and all others (Q, C), and the symbol (V,) of each word."""
        places = {word: n for n, word in enumerate(self.words)}
        named = [word for word in self.rule.names if word in places]
        if len(named) < len(self.rule.names):
            self.rule.automaton(self.words, "word")  # an error that names the word
        symbol = np.full(len(self.words), len(named))
        symbol[[places[word] for word in named]] = np.arange(len(named))
        automaton = self.rule.automaton([*named, OTHER], "word")
        if automaton.is_empty:
            raise ImpossibleError(f"{self.rule!r}: no sentence satisfies this rule.")
        return automaton, symbol

    @cached_property
    def _by_symbol(self) -> Doubles:
        """(K, C): probability of each symbol in each state of the chain."""
        automaton, symbol = self._automaton
        sums = np.zeros((len(self.emission), automaton.step.shape[1]))
        np.add.at(sums.T, symbol, self.emission.T)
        return sums[self.chain.contexts.label]

    @cached_property
    def ahead(self) -> Doubles:
        """(Q, K): the probability that the rest of a sentence is accepted."""
        automaton, contexts = self._automaton[0], self.chain.contexts
        Q, K = len(automaton.final), len(contexts.start)
        h = np.zeros((Q, K))
        edges = sparse.coo_matrix((np.ones(automaton.step.size), (np.repeat(np.arange(Q), automaton.step.shape[1]),
                                                                 automaton.step.reshape(-1))), (Q, Q))  # fmt: skip
        _, part = connected_components(edges.tocsr(), connection="strong")
        done = np.zeros(Q, bool)
        while not done.all():
            for k in np.unique(part[~done]):
                own = np.flatnonzero(part == k)
                outside = automaton.step[own][part[automaton.step[own]] != k]
                if done[outside].all():
                    h[own] = self._solved(own, h)
                    done[own] = True
        return h

    def _solved(self, own: NDArray[np.int64], h: Doubles) -> Doubles:
        """Return h of states of the automaton that lead to each other, given that of all they lead to."""
        automaton, contexts = self._automaton[0], self.chain.contexts
        number = {int(q): n for n, q in enumerate(own)}
        K, right = len(contexts.start), []
        blocks: dict[tuple[int, int], Any] = {}
        for q in own.tolist():
            weight = np.zeros(K)
            for c, following in enumerate(automaton.step[q].tolist()):
                if following in number:
                    key = number[q], number[following]
                    blocks[key] = blocks.get(key, 0) + self._by_symbol[:, c]
                else:
                    weight += self._by_symbol[:, c] * h[following]
            right.append(contexts.end * automaton.final[q] + contexts.follow @ weight)
        if not blocks:
            return np.array(right)
        rows = [[contexts.follow.multiply(blocks[a, b]) if (a, b) in blocks else None for b in range(len(own))]
                for a in range(len(own))]  # fmt: skip
        for a in range(len(own)):  # so that every row and column has a block
            rows[a][a] = sparse.csr_matrix((K, K)) if rows[a][a] is None else rows[a][a]
        system = sparse.identity(len(own) * K, format="csc") - sparse.bmat(rows, format="csc")
        solved: Doubles = spsolve(system, np.concatenate(right)).reshape(len(own), K)
        return np.maximum(solved, 0.0)

    def log_evidence(self) -> float:
        """Return the log-probability that a random sentence satisfies the rule."""
        with np.errstate(divide="ignore"):
            return float(np.log(self._next(*self.chain.contexts.after(-1)[:2], 0).sum()))

    def _next(self, ahead: NDArray[np.integer], p: Doubles, q: int) -> Doubles:
        """Return the joint probability (n, C) of the next state, one of n, its symbol, and that a sentence is accepted.

        ``p`` (n,) are the probabilities of the states.
        """
        weights: Doubles = p[:, None] * self._by_symbol[ahead] * self.ahead[self._automaton[0].step[q]][:, ahead].T
        return weights

    def draw(self, rng: np.random.Generator) -> tuple[list[int], list[int]]:
        """Return the words and states of a random sentence that satisfies the rule."""
        (automaton, symbol), contexts = self._automaton, self.chain.contexts
        words: list[int] = []
        states: list[int] = []
        q, now = 0, -1
        while len(words) < MOST_WORDS:
            ahead, p, end = contexts.after(now)
            weights = self._next(ahead, p, q)
            end *= bool(automaton.final[q])
            if not weights.sum() + end > 0:
                raise self._impossible()
            chosen = choose(rng, np.cumsum(np.append(weights, end)))
            if chosen == weights.size:
                break
            at, c = divmod(chosen, weights.shape[1])
            now = int(ahead[at])
            states.append(int(contexts.label[now]))
            words.append(choose(rng, np.cumsum(self.emission[states[-1]] * (symbol == c))))
            q = int(automaton.step[q, c])
        return words, states

    def following(self, rows: Doubles, words: Sequence[int]) -> tuple[Doubles, float]:
        """Return p(next word) (V,) and p(end) after some words, given that the sentence will satisfy the rule."""
        (automaton, symbol), contexts, q = self._automaton, self.chain.contexts, 0
        for word in words:
            q = int(automaton.step[q, symbol[word]])
        now = self.chain.now(rows)
        ahead = contexts.start if now is None else contexts.follow.T @ now
        end = 0.0 if now is None else float(now @ contexts.end) * bool(automaton.final[q])
        p = np.zeros(len(symbol))
        for c in range(automaton.step.shape[1]):
            weight = np.bincount(contexts.label, ahead * self.ahead[automaton.step[q, c]], len(self.emission))
            own = symbol == c
            p[own] = weight @ self.emission[:, own]
        total = p.sum() + end
        if not total > 0:
            raise self._impossible()
        return p / total, end / total

    def _impossible(self) -> ImpossibleError:
        return ImpossibleError(f"{self.rule!r}: no sentence of the model, as far as it goes, can satisfy this rule.")
