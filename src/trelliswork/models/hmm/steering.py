r"""Random sentences of HMMs, and rules about words: how probable they are, and sentences and words that satisfy them.

A rule is an automaton over words. With :math:`h_q(k)` the probability that the rest of a sentence is accepted after
state k, when the automaton is in q, and :math:`b_k(\text{end})` that of the end of the sentence,

.. math:: h_q(k) = \sum_{k'} a_{kk'} \Big(b_{k'}(\text{end}) [q \in F] + \sum_w b_{k'}(w) \, h_{\delta(q, w)}(k')\Big)

are linear equations, solved for one strongly connected part of the automaton after the other; where the automaton has
no loops, that is one backward pass. Words that a rule does not name are one symbol. Sampling and prediction weight each
step by h.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, gmres

from trelliswork.compute.checks import check_count
from trelliswork.errors import ImpossibleError
from trelliswork.inference.chain.automata import Automaton
from trelliswork.models.hmm.decoding import StateChain, choose
from trelliswork.models.tasks import NextWord
from trelliswork.rules import Rule, parse

Doubles = NDArray[np.float64]
OTHER = "\0"  # any word that a rule does not name
MOST_WORDS = 100_000  # of a sentence
MOST_STEPS = 10_000  # from the solution of a linear solver to a fixed point


class Speaker:
    """An HMM that speaks: K states that emit V words, or the end of the sentence, which is word V."""

    words: Sequence[str]  # (V,)
    start: Doubles  # (K,) p(first state)

    @abstractmethod
    def ahead(self, values: Doubles) -> Doubles:
        """Return the expected values (K, n) of the next state."""

    @abstractmethod
    def after(self, states: Doubles) -> Doubles:
        """Return p(next state) (K,) from p(state)."""

    @abstractmethod
    def emitted(self, which: NDArray[np.bool_]) -> Doubles:
        """Return the probability (K,) that a state emits one of some words (V + 1,)."""

    @abstractmethod
    def spoken(self, states: Doubles) -> Doubles:
        """Return p(word) (V + 1,) from p(state) (K,)."""

    @abstractmethod
    def spoken_by(self, state: int) -> Doubles:
        """Return p(word | state) (V + 1,)."""

    @abstractmethod
    def follow(self, rng: np.random.Generator, state: int) -> int:
        """Return a random next state."""

    def draw(self, rng: np.random.Generator, max_length: int) -> tuple[list[int], list[int]]:
        """Return the words and states of a random sentence, cut at ``max_length``."""
        words, path, state = list[int](), list[int](), choose(rng, np.cumsum(self.start))
        while len(words) < max_length:
            word = choose(rng, np.cumsum(self.spoken_by(state)))
            if word == len(self.words):
                break
            words.append(word)
            path.append(state)
            state = self.follow(rng, state)
        return words, path


@dataclass(frozen=True)
class StateSpeaker(Speaker):
    """An HMM of any order; its last state emits the end of the sentence."""

    chain: StateChain
    emission: Doubles  # (S, V)
    words: Sequence[str]

    @cached_property
    def start(self) -> Doubles:  # type: ignore[override]  # computed
        """(K,): p(first state)."""
        return np.append(self.chain.contexts.start, 0.0)

    def ahead(self, values: Doubles) -> Doubles:
        """Return the expected values (K, n) of the next state."""
        contexts = self.chain.contexts
        inner = contexts.follow @ values[:-1] + contexts.end[:, None] * values[-1]
        return np.concatenate([inner, np.zeros((1, values.shape[1]))])

    def after(self, states: Doubles) -> Doubles:
        """Return p(next state) (K,) from p(state)."""
        contexts = self.chain.contexts
        return np.append(contexts.follow.T @ states[:-1], contexts.end @ states[:-1])

    def emitted(self, which: NDArray[np.bool_]) -> Doubles:
        """Return the probability (K,) that a state emits one of some words (V + 1,)."""
        return np.append((self.emission @ which[:-1])[self.chain.contexts.label], which[-1])

    def spoken(self, states: Doubles) -> Doubles:
        """Return p(word) (V + 1,) from p(state) (K,)."""
        labels = np.bincount(self.chain.contexts.label, states[:-1], len(self.emission))
        return np.append(labels @ self.emission, states[-1])

    def spoken_by(self, state: int) -> Doubles:
        """Return p(word | state) (V + 1,)."""
        label = self.chain.contexts.label
        if state == len(label):
            return np.append(np.zeros(len(self.words)), 1.0)
        return np.append(self.emission[label[state]], 0.0)

    def follow(self, rng: np.random.Generator, state: int) -> int:
        """Return a random next state."""
        contexts = self.chain.contexts
        row = slice(*contexts.follow.indptr[state : state + 2].tolist())
        chosen = choose(rng, np.cumsum(np.append(contexts.follow.data[row], contexts.end[state])))
        after = contexts.follow.indices[row]
        return int(after[chosen]) if chosen < len(after) else len(contexts.label)


@dataclass(frozen=True)
class Steering:
    """An HMM whose sentences satisfy a rule about words."""

    rule: Rule
    speaker: Speaker

    @cached_property
    def _automaton(self) -> tuple[Automaton, NDArray[np.int64]]:
        """The automaton over named words and all others (Q, C), and the symbol (V + 1,) of each word; C for the end."""
        words = self.speaker.words
        places = {word: n for n, word in enumerate(words)}
        named = [word for word in self.rule.names if word in places]
        if len(named) < len(self.rule.names):
            self.rule.automaton(words, "word")  # an error that names the word
        symbol = np.full(len(words) + 1, len(named))
        symbol[[places[word] for word in named]] = np.arange(len(named))
        symbol[-1] += 1
        automaton = self.rule.automaton([*named, OTHER], "word")
        if automaton.is_empty:
            raise ImpossibleError(f"{self.rule!r}: no sentence satisfies this rule.")
        return automaton, symbol

    @cached_property
    def _by_symbol(self) -> Doubles:
        """(K, C + 1): probability of each symbol in each state, the last one that of the end."""
        symbol = self._automaton[1]
        return np.stack([self.speaker.emitted(symbol == c) for c in range(symbol[-1] + 1)], axis=1)

    @cached_property
    def _rest(self) -> Doubles:
        """(Q, K): the probability that the rest of a sentence is accepted."""
        step = self._automaton[0].step
        Q, C = step.shape
        h = np.zeros((Q, len(self.speaker.start)))
        edges = sparse.coo_matrix((np.ones(Q * C), (np.repeat(np.arange(Q), C), step.reshape(-1))), (Q, Q))
        _, part = connected_components(edges.tocsr(), connection="strong")
        done = np.zeros(Q, bool)
        while not done.all():
            for k in np.unique(part[~done]):
                own = np.flatnonzero(part == k)
                if done[step[own][part[step[own]] != k]].all():
                    h[own] = self._solved(own, h)
                    done[own] = True
        return h

    def _solved(self, own: NDArray[np.int64], h: Doubles) -> Doubles:
        """Return h of states of the automaton that lead to each other, given that of all they lead to."""
        (automaton, _), ahead = self._automaton, self.speaker.ahead
        number = {q: n for n, q in enumerate(own.tolist())}
        outside = self._by_symbol[:, -1:] * automaton.final[own]
        inside: dict[tuple[int, int], Doubles] = {}
        for q, n in number.items():
            for c, following in enumerate(automaton.step[q].tolist()):
                p = self._by_symbol[:, c]
                if following in number:
                    pair = n, number[following]
                    inside[pair] = inside[pair] + p if pair in inside else p
                else:
                    outside[:, n] += p * h[following]
        right = ahead(outside)
        if not inside or not right.any():
            return right.T

        def again(values: Doubles) -> Doubles:
            total = np.zeros_like(values)
            for (n, following), p in inside.items():
                total[:, n] += p * values[:, following]
            return ahead(total)

        def residual(values: Doubles) -> Doubles:
            return values - again(values.reshape(right.shape)).reshape(-1)

        system = LinearOperator((right.size, right.size), matvec=residual, dtype=np.float64)
        found, _ = gmres(system, right.reshape(-1), rtol=1e-13, restart=min(right.size, 50), maxiter=20)
        values = np.maximum(found.reshape(right.shape), 0.0)
        for _ in range(MOST_STEPS):  # no step takes a probability farther from its value
            better = right + again(values)
            if np.abs(better - values).max() <= 1e-15 * values.max():
                break
            values = better
        return better.T

    def _joint(self, q: int) -> Doubles:
        """Return the probability (K, C + 1) of each symbol in each state, and that the sentence will be accepted."""
        automaton = self._automaton[0]
        rest = np.concatenate(
            [self._rest[automaton.step[q]], np.full((1, len(self.speaker.start)), automaton.final[q])]
        )
        return self._by_symbol * rest.T

    def log_evidence(self) -> float:
        """Return the log-probability that a random sentence satisfies the rule."""
        with np.errstate(divide="ignore"):
            return min(float(np.log((self.speaker.start @ self._joint(0)).sum())), 0.0)

    def draw(self, rng: np.random.Generator) -> tuple[list[int], list[int]]:
        """Return the words and states of a random sentence that satisfies the rule."""
        (automaton, symbol), states = self._automaton, self.speaker.start
        words: list[int] = []
        path: list[int] = []
        q = 0
        while len(words) < MOST_WORDS:
            weights = states[:, None] * self._joint(q)
            if not weights.any():
                raise self._impossible()
            now, c = divmod(choose(rng, np.cumsum(weights)), weights.shape[1])
            if c == symbol[-1]:
                break
            states = np.zeros(len(states))
            states[now] = 1.0
            path.append(now)
            words.append(choose(rng, np.cumsum(self.speaker.spoken_by(now) * (symbol == c))))
            q, states = int(automaton.step[q, c]), self.speaker.after(states)
        return words, path

    def following(self, now: Doubles | None, words: Sequence[int]) -> Doubles:
        """Return p(next word) (V + 1,) after some words, given that the sentence will satisfy the rule.

        ``now`` (K,) is p(state) after the words, ``None`` before the first; a word that is not listed has number -2.
        """
        (automaton, symbol), q = self._automaton, 0
        for word in words:
            q = int(automaton.step[q, symbol[word] if word >= 0 else symbol[-1] - 1])
        states = self.speaker.start if now is None else self.speaker.after(now)
        p = self.speaker.spoken(states) * automaton.final[q]
        for c, following in enumerate(automaton.step[q]):
            p[symbol == c] = self.speaker.spoken(states * self._rest[following])[symbol == c]
        if not p.any():
            raise self._impossible()
        return p / p.sum()

    def _impossible(self) -> ImpossibleError:
        return ImpossibleError(f"{self.rule!r}: no sentence of the model, as far as it goes, can satisfy this rule.")


class Speaking(NextWord):
    """A language model with hidden states: random sentences, and answers under rules about words."""

    _steering: Steering | None = None  # of the last rules about words

    @property
    @abstractmethod
    def _speaker(self) -> Speaker:
        """The model as one that speaks, the same object as long as it says the same."""

    @abstractmethod
    def _named(self, words: list[int], states: list[int]) -> tuple[list[Any], list[str]]:
        """Return the words and the names of states of a speaker."""

    def log_evidence(self, rules: Rule | str) -> float:
        """Return the log-probability that a random sentence satisfies rules about words, see `trelliswork.rules`.

        Examples
        --------
        >>> from trelliswork import HMM
        >>> hmm = HMM(unknown="symbol").fit([["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]])
        >>> round(hmm.log_evidence('Pattern(".* dog runs")'), 2)
        -1.04
        """
        return self._steered(rules).log_evidence()

    def sample(
        self, n: int = 1, *, seed: int | None = None, max_length: int = 200, rules: Rule | str | None = None
    ) -> list[list[Any]]:
        """Return n random sentences, cut at ``max_length``; with ``rules`` whole ones that satisfy these."""
        return [words for words, _ in self.sample_with_states(n, seed=seed, max_length=max_length, rules=rules)]

    def sample_with_states(
        self, n: int = 1, *, seed: int | None = None, max_length: int = 200, rules: Rule | str | None = None
    ) -> list[tuple[list[Any], list[str]]]:
        """Return the words and states of n random sentences; ``rules`` as for ``sample``."""
        self._check_fitted()
        check_count("n", n)
        check_count("max_length", max_length)
        rng = np.random.default_rng(seed)
        if rules is None:
            return [self._named(*self._speaker.draw(rng, max_length)) for _ in range(n)]
        steered = self._steered(rules)
        return [self._named(*steered.draw(rng)) for _ in range(n)]

    def _steered(self, rules: Rule | str) -> Steering:
        """Return the model under rules about words; the last one is kept."""
        self._check_fitted()
        speaker, kept, rule = self._speaker, self._steering, parse(rules) if isinstance(rules, str) else rules
        if kept is None or kept.speaker is not speaker or kept.rule != rule:
            self._steering = kept = Steering(rule, speaker)
        return kept
