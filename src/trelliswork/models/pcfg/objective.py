"""Probabilistic grammars as arrays: parameters, dense or of low rank; sentences as batches; expected counts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from trelliswork.compute.checks import check_scores, check_shape
from trelliswork.compute.limits import check_cost, check_sentences
from trelliswork.compute.padding import pad, unpad
from trelliswork.errors import ValueRangeError
from trelliswork.inference.span import Grammar, grammar, lowrank
from trelliswork.inference.span.grammar import Expected
from trelliswork.inference.span.lowrank import LowRankGrammar, RankExpected
from trelliswork.learning import whole

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
CHUNK_BYTES = 1 << 26  # expected rules and symbols in memory at once


@dataclass(frozen=True, kw_only=True)
class GrammarParameters:
    r"""A PCFG: log probabilities; -inf is impossible.

    Dense, :math:`p(A \to x y)` is ``log_rules``; of low rank it is :math:`\sum_r U(A, r) V(r, x) W(r, y)`, where each
    row of U, V and W sums to 1: the symbol above draws r, and r the two symbols below, one independent of the other.

    Nonterminals come first among the S symbols, then P = S - N preterminals.
    """

    log_root: Doubles  # (N,)
    log_rules: Doubles | None = None  # (N, S, S), of a dense grammar
    log_up: Doubles | None = None  # (N, R): log U of a low-rank grammar
    log_left: Doubles | None = None  # (R, S): log V
    log_right: Doubles | None = None  # (R, S): log W
    log_emission: Doubles  # (P, V)

    @property
    def rank(self) -> int | None:
        """R, or None for a dense grammar."""
        return None if self.log_left is None else len(self.log_left)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """N, P, V."""
        return (len(self.log_root), *self.log_emission.shape)

    @property
    def factors(self) -> tuple[Doubles, Doubles, Doubles]:
        """log U, log V, log W of a low-rank grammar."""
        assert self.log_up is not None, "a dense grammar has no factors"
        assert self.log_left is not None
        assert self.log_right is not None
        return self.log_up, self.log_left, self.log_right

    def named(self) -> dict[str, Doubles]:
        """Return the arrays that are not None, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def check(self, n_words: int) -> None:
        """Raise an error if shapes do not match each other and the number of words, or if a value is nan or +inf."""
        named, shapes = self.named(), {"log_rules": "N S S", "log_up": "N R", "log_left": "R S", "log_right": "R S"}
        N, P, _ = self.sizes
        sizes = check_shape("log_root", self.log_root.shape, "N", S=N + P, P=P, V=n_words)
        check_shape("log_emission", self.log_emission.shape, "P V", **sizes)
        assert named.keys() & shapes.keys() in ({"log_rules"}, shapes.keys() - {"log_rules"})
        for name, array in named.items():
            if name in shapes:
                sizes = check_shape(name, array.shape, shapes[name], **sizes)
            check_scores(name, array)

    def scaled(self, factor: float) -> "GrammarParameters":
        """Return the grammar with all log probabilities multiplied by a factor; they are no probabilities any more.

        Of a low-rank grammar it is the joint distribution of trees and hidden ranks that is scaled.
        """
        if factor == 1:
            return self
        return GrammarParameters(**{name: array * factor for name, array in self.named().items()})

    def dense_rules(self) -> Doubles:
        """Return log rules (N, S, S), also of a low-rank grammar."""
        return lowrank.dense_rules(*self.factors) if self.log_rules is None else self.log_rules

    def grammar(self, ids: Integers, lengths: Integers) -> Grammar | LowRankGrammar:
        """Return the potentials of sentences with ids (B, n); ids beyond their ends are ignored."""
        log_terminals = np.ascontiguousarray(self.log_emission.T[ids])
        if self.log_rules is not None:
            return Grammar(self.log_root, self.log_rules, log_terminals, None, lengths)
        return LowRankGrammar(self.log_root, *self.factors, log_terminals, lengths)


def check_size(n_nonterminals: int, n_preterminals: int, n_words: int, rank: int | None) -> None:
    """Raise `LimitError` for a grammar whose parameters and their expected counts need too much memory."""
    N, S = n_nonterminals, n_nonterminals + n_preterminals
    rules = float(N * S * S) if rank is None else float(rank * (N + 2 * S + 6 * rank))
    what = f"a grammar of {N:,} nonterminals and {n_preterminals:,} preterminals"
    if rank is not None:
        what += f" with rank {rank:,}"
    check_cost(what, n_bytes=8 * 4 * (rules + n_preterminals * n_words))


def check_lengths(lengths: Sequence[int], n_nonterminals: int, n_preterminals: int, rank: int | None) -> None:
    """Raise `LimitError` for sentences whose charts take too much time or memory.

    The factors were measured on long sentences, with a margin for those that are computed in log space.
    """
    n, N, S, R = np.array(lengths, np.float64), n_nonterminals, n_nonterminals + n_preterminals, rank
    if R is None:
        operations = n**3 * (1.2 * N**2 + 40) + 1.2 * n**2 * N**3 + 3 * n * n_preterminals * N * S
        spans = n**2 * (N**2 / 2 + 2 * N + 3 * S)
    else:
        operations = 4 * n**3 * R + n**2 * R * (6 * R + 4 * S)
        spans = n**2 * (7 * R + 2 * S)
    check_sentences(np.array(lengths, np.int64), operations, 8 * spans)


@dataclass(frozen=True)
class TextBatch:
    """Sentences of similar length: ids (B, n), lengths (B,), and their positions in the text (B,)."""

    ids: Integers
    lengths: Integers
    places: Integers

    @property
    def n_tokens(self) -> int:
        """Number of words, without padding."""
        return int(self.lengths.sum())

    @classmethod
    def select(cls, sentences: Sequence[Sequence[int]], places: Integers) -> "TextBatch":
        """Return the sentences at some places."""
        lengths = np.array([len(sentences[p]) for p in places], np.int64)
        words = np.fromiter(chain.from_iterable(sentences[p] for p in places), np.int64)
        return cls(pad(words, lengths), lengths, places)


def text_batches(sentences: Sequence[Sequence[int]], size: int = 64) -> list[TextBatch]:
    """Return sentences of at least two words, sorted by length, in batches of ``size``."""
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 1]
    return [TextBatch.select(sentences, order[first : first + size]) for first in range(0, len(order), size)]


def expected_counts(parameters: GrammarParameters, batches: Sequence[TextBatch]) -> tuple[dict[str, Doubles], float]:
    """Return the expected counts of the whole text (the E-step), of which this process may have a part.

    They have the names of ``GrammarParameters.named`` without ``log_``; the log evidence comes with them.
    Time per sentence: dense O(n^2 N^3 + n^3 N^2 + n P N S), low rank O(n^3 R + n^2 R^2 + n P R).
    """
    sums = {name.removeprefix("log_"): np.zeros_like(array) for name, array in parameters.named().items()}
    total = 0.0
    for batch, expected in _expectations(parameters, batches):
        if isinstance(expected, RankExpected):
            sums["root"] += expected.roots
            sums["up"] += expected.ups
            sums["left"] += expected.lefts
            sums["right"] += expected.rights
        else:
            sums["root"] += expected.roots.sum(axis=0)
            sums["rules"] += expected.rules.sum(axis=0)
        if np.isneginf(expected.log_z).any():
            place = int(batch.places[int(np.argmin(expected.log_z))])
            raise ValueRangeError(
                f"sentence {place} is impossible under the grammar: raise the priors, or start without zeros."
            )
        sums["emission"] += emission_counts(batch, expected.terminals, parameters.sizes[2])
        total += float(expected.log_z.sum())
    *counts, log_evidence = whole.summed(*sums.values(), np.array([total]))
    return dict(zip(sums, counts, strict=True)), float(log_evidence[0])


def emission_counts(batch: TextBatch, terminals: Doubles, n_words: int) -> Doubles:
    """Return counts (P, V) from p(preterminal) (B, n, P) at the words of a batch."""
    rows, words = unpad(terminals, batch.lengths), unpad(batch.ids, batch.lengths)  # (tokens, P), (tokens,)
    at = csr_matrix((np.ones(len(rows)), (words, np.arange(len(rows)))), shape=(n_words, len(rows)))
    return np.ascontiguousarray((at @ rows).T)


def log_evidence(parameters: GrammarParameters, batches: Sequence[TextBatch], n_sentences: int) -> Doubles:
    """Return log p of each sentence (n_sentences,); -inf for sentences of one word."""
    log_p = np.full(n_sentences, -np.inf)
    for batch, expected in _expectations(parameters, batches):
        log_p[batch.places] = expected.log_z
    return log_p


def blank_emissions(parameters: GrammarParameters, ids: Integers, blanks: Sequence[int]) -> list[Doubles]:
    """Return p(word) (V,) at each blank of a sentence with word ids (n,), whose ids at blanks are ignored."""
    log_terminals = np.ascontiguousarray(parameters.log_emission.T[ids])[None]
    log_terminals[0, list(blanks)] = 0.0  # some word
    expected = _expected(replace(parameters.grammar(ids[None], np.array([len(ids)])), log_terminals=log_terminals))
    if np.isneginf(expected.log_z[0]):
        raise ValueRangeError("the sentence is impossible under the grammar, whatever fills its blanks.")
    emission = np.exp(parameters.log_emission)
    return [expected.terminals[0, t] @ emission for t in blanks]


def span_posteriors(
    parameters: GrammarParameters, batches: Sequence[TextBatch]
) -> Iterator[tuple[TextBatch, Doubles, Doubles]]:
    """Yield each batch with log Z (B,) and p(symbol over span) (B, n, n, S)."""
    for batch, expected in _expectations(parameters, batches, symbols=True):
        assert expected.symbols is not None
        yield batch, expected.log_z, expected.symbols


def _expectations(
    parameters: GrammarParameters, batches: Sequence[TextBatch], *, symbols: bool = False
) -> Iterator[tuple[TextBatch, Expected | RankExpected]]:
    """Yield batches with their expectations; ``symbols`` requests p(symbol over span) of a low-rank grammar too."""
    for batch in _chunks(parameters, batches):
        yield batch, _expected(parameters.grammar(batch.ids, batch.lengths), symbols)


def _expected(given: Grammar | LowRankGrammar, symbols: bool = False) -> Expected | RankExpected:
    if isinstance(given, LowRankGrammar):
        return lowrank.expectations(given, symbols=symbols)
    return grammar.expectations(given)


def _chunks(parameters: GrammarParameters, batches: Sequence[TextBatch]) -> Iterator[TextBatch]:
    """Yield batches, split where the expected rules and symbols of all sentences would take too much memory."""
    N, P, _ = parameters.sizes
    rules = 0 if parameters.log_rules is None else parameters.log_rules.size
    for batch in batches:
        symbols = batch.ids.shape[1] ** 2 * (N + P + 3 * (parameters.rank or 0))
        most = max(1, CHUNK_BYTES // (8 * (rules + symbols)))
        for first in range(0, len(batch.ids), most):
            part = slice(first, first + most)
            lengths = batch.lengths[part]
            yield TextBatch(batch.ids[part, : lengths.max()], lengths, batch.places[part])


def random_grammar(
    n_nonterminals: int,
    n_preterminals: int,
    n_words: int,
    rank: int | None,
    *,
    seed: int | np.random.SeedSequence,
    right_bias: float = 0.0,
    identity: bool = False,
) -> GrammarParameters:
    """Return random parameters near uniform: each distribution is exp(N(0, 1)), normalized.

    Left children of two words or more start with exp(-right_bias) of their weight: trees lean to the right. With
    ``identity`` the preterminals are the words themselves.
    """
    rng = np.random.default_rng(seed)
    N, S = n_nonterminals, n_nonterminals + n_preterminals

    def draw(*shape: int) -> Doubles:
        return np.exp(rng.normal(size=shape))

    root = normalize(draw(N))
    emission = normalize(np.eye(n_preterminals) if identity else draw(n_preterminals, n_words))
    lean = np.where(np.arange(S) < N, np.exp(-right_bias), 1.0)
    if rank is None:
        rules = normalize(draw(N, S, S) * lean[:, None], 2)
        return GrammarParameters(log_root=root, log_rules=rules, log_emission=emission)
    up, left, right = normalize(draw(N, rank)), normalize(draw(rank, S) * lean), normalize(draw(rank, S))
    return GrammarParameters(log_root=root, log_up=up, log_left=left, log_right=right, log_emission=emission)


def normalize(counts: Doubles, events: int = 1, otherwise: Doubles | None = None) -> Doubles:
    """Return log probabilities of counts over the last ``events`` axes; ``otherwise`` where all counts are zero."""
    axes = tuple(range(-events, 0))
    totals = counts.sum(axis=axes, keepdims=True)
    with np.errstate(divide="ignore"):
        log_p = np.log(counts / np.where(totals > 0, totals, 1))
    return log_p if otherwise is None else np.where(totals > 0, log_p, otherwise)
