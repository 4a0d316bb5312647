"""Distributions over the trees of a sentence under a grammar."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import check_count, check_lengths, check_shape
from trelliswork.distributions.base import Best, Distribution
from trelliswork.distributions.span_tree import SpanTree, check_charts, compatible, named_spans, span_mask
from trelliswork.distributions.tensors import ARRAYS, CPU, clean, draw_seeds, expectation, floats, gradients, host
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.span import Grammar, autograd, brackets, grammar, torch_path
from trelliswork.inference.tensors import doubles

SCORES = ("log_root", "log_rules", "log_terminals", "log_symbols")


class GrammarExpectations(NamedTuple):
    """log Z (B,), p(root symbol) (B, N), expected rules (B, N, S, S), p(symbol over span) (B, n, n, S)."""

    log_z: Tensor
    roots: Tensor
    rules: Tensor
    symbols: Tensor


class GrammarTree(Distribution):
    r"""Trees of a dense grammar in Chomsky normal form, weighted or probabilistic (a PCFG).

    .. math:: p(y) \propto \exp\Big(r(A_0) + \sum_{A \to x y \,\in\, y} w(A, x, y) + \sum_i t_i(x_i)\Big)

    Parameters
    ----------
    log_root : Tensor (N,)
        Scores of the nonterminals as the symbol of the whole sentence.
    log_rules : Tensor (N, S, S)
        ``log_rules[a, x, y]`` is the score of a -> x y. Symbols 0..N-1 are nonterminals, N..S-1 preterminals; -inf
        forbids a rule.
    log_terminals : Tensor (B, n, P)
        Scores of the P = S - N preterminals at each position.
    log_symbols : Tensor (B, n, n, S), optional
        Evidence: scores of symbols over spans i..j, both included.
    lengths : Tensor of int (B,), optional
        Length of each sentence, 1 to n; all n by default. A sentence of one position has no tree: nonterminals cover
        two or more.

    Notes
    -----
    Time O(n^2 N^3 + n^3 N^2 + n P N S), memory O(n^2 S + N S^2) per sentence, in float64. Trees are charts (B, n, n):
    entry [i, j] is the symbol of the span, or -1 if the tree has no such span. ``condition`` takes known spans with
    their symbols, a chart with -1 for unknown; a known span forbids those that cross it. Spans (B, n, n) or symbols
    over spans (B, n, n, S) may be ``allowed``. Differentiating expectations takes much more memory.

    Examples
    --------
    >>> import torch
    >>> trees = GrammarTree(torch.zeros(1), torch.zeros(1, 2, 2), torch.zeros(1, 5, 1))
    >>> round(trees.log_partition().exp().item())  # one nonterminal, one preterminal: the fourth Catalan number
    14
    """

    _nouns = grammar.TREES
    _axes = "B n n L"
    _n_own = 2

    def __init__(
        self,
        log_root: Any,
        log_rules: Any,
        log_terminals: Any,
        *,
        log_symbols: Any = None,
        lengths: Any = None,
    ) -> None:
        given = zip(SCORES, (log_root, log_rules, log_terminals, log_symbols), strict=True)
        tensors = {name: floats(name, values) for name, values in given if values is not None or name != "log_symbols"}
        dtype = torch.float64 if any(x.dtype == torch.float64 for x in tensors.values()) else torch.float32
        tensors = {name: x.to(dtype) for name, x in tensors.items()}
        devices = {x.device for x in tensors.values()}
        if len(devices) > 1:
            raise ValueRangeError(
                f"all scores must be on one device, got {sorted(map(str, devices))}: move some of them."
            )
        sizes = check_shape("log_root", tensors["log_root"].shape, "N")
        sizes = check_shape("log_rules", tensors["log_rules"].shape, "N S S", **sizes)
        N, S = sizes["N"], sizes["S"]
        sizes = check_shape("log_terminals", tensors["log_terminals"].shape, "B n P", P=S - N, N=N, S=S)
        if 0 in (sizes["B"], sizes["n"], N) or S <= N:
            raise ShapeError(f"a grammar needs sentences, nonterminals and preterminals, got sizes {sizes}.")
        B, n, device = sizes["B"], sizes["n"], tensors["log_root"].device
        self._dtype, self._device, self._by_torch = dtype, device, device != CPU
        self._sizes = B, n, n
        counts = check_lengths(host(lengths), B, n)
        self.lengths = torch.as_tensor(counts, device=device)
        masks = {"log_terminals": lambda: np.arange(n) < counts[:, None], "log_symbols": lambda: span_mask(counts, n)}
        self._tensors = {name: clean(name, scores, masks.get(name, lambda: None)) for name, scores in tensors.items()}
        if self.log_symbols is not None:
            check_shape("log_symbols", self.log_symbols.shape, "B n n S", B=B, n=n, S=S)

    log_root = property(lambda self: self._tensors["log_root"], doc="Scores (N,) of the symbol at the root.")
    log_rules = property(lambda self: self._tensors["log_rules"], doc="Scores (N, S, S) of rules.")
    log_terminals = property(lambda self: self._tensors["log_terminals"], doc="Scores (B, n, P) of preterminals.")
    log_symbols = property(lambda self: self._tensors.get("log_symbols"), doc="Scores (B, n, n, S) of spans, or None.")

    def __repr__(self) -> str:
        B, n, P = self.log_terminals.shape
        return f"GrammarTree(B={B}, n={n}, N={len(self.log_root)}, P={P})"

    def marginals(self) -> Tensor:
        """Return p(symbol over span) (B, n, n, S); its sum over symbols is the probability of the span."""
        return self._moments().symbols

    def expectations(self) -> GrammarExpectations:
        """Return log Z and all expectations, from one pass."""
        moments = self._moments()
        return moments._replace(log_z=moments.log_z.to(self._dtype))

    def _ranked(self, k: int) -> tuple[Tensor, Tensor]:
        check_count("k", k)
        return self._with_scores(*grammar.topk(self._grammar(), k))

    def mbr(self, *, labeled: bool = False) -> Best:
        """Return the binary tree with the most expected hits.

        Hits are spans, or with ``labeled`` spans with their symbols. The chart has the most probable symbol of each
        span; as a tree of the grammar it may be impossible.
        """
        with torch.no_grad():
            symbols = self._moments().symbols
        best = symbols.max(dim=3)
        tree = SpanTree(best.values if labeled else symbols.sum(dim=3), lengths=self.lengths).mode
        return self._best(torch.where(tree >= 0, best.indices, -1))

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        return self._tensor(grammar.sample(self._grammar(), draw_seeds(n, self.lengths, generator)))

    def _agreeing(self, known: Any) -> Tensor:
        return compatible(self._check_charts(known), self.lengths, self.log_rules.shape[1])

    def _named(self, value: Tensor, labels: Any) -> list[Any]:
        return named_spans(value, labels)

    @property
    def _inputs(self) -> tuple[Tensor, ...]:
        """Evidence, zeros if there is none, and the scores of the sentences and of the grammar."""
        symbols = self.log_symbols
        if symbols is None:
            B, n, P = self.log_terminals.shape
            symbols = self.log_terminals.new_zeros(1, 1, 1, 1).expand(B, n, n, len(self.log_root) + P)
        return symbols, self.log_terminals, self.log_root, self.log_rules

    def _make(self, *scores: Tensor, **options: Any) -> Any:
        symbols, terminals, *shared = scores
        return super()._make(*shared, terminals, log_symbols=symbols, **options)

    def _grammar(self) -> Grammar:
        symbols = None if self.log_symbols is None else doubles(self.log_symbols)
        shared = doubles(self.log_root), doubles(self.log_rules)
        return Grammar(*shared, doubles(self.log_terminals), symbols, host(self.lengths))

    def _log_z(self) -> Tensor:
        module = torch_path if self._by_torch else autograd
        scores = self.log_root, self.log_rules, self.log_terminals, self.log_symbols
        return module.grammar_log_partition(*scores, self.lengths)

    def _moments(self) -> GrammarExpectations:
        if not self._by_torch and not self._needs_graph:
            moments = grammar.expectations(self._grammar())
            arrays = (
                x.astype(ARRAYS[self._dtype], copy=False) for x in (moments.roots, moments.rules, moments.symbols)
            )
            return GrammarExpectations(torch.from_numpy(moments.log_z), *map(torch.from_numpy, arrays))
        B, (symbols, terminals, root, rules) = len(self.lengths), (x.double() for x in self._inputs)
        log_z, *found = gradients(  # with one copy per sentence, the gradient of each copy is its own expectations
            lambda root, rules, symbols: torch_path.grammar_log_partition(
                root, rules, terminals, symbols, self.lengths
            ),
            (root.expand(B, -1), rules.expand(B, *rules.shape), symbols),
            self._needs_graph,
        )
        return GrammarExpectations(log_z, *(x.to(self._dtype) for x in found))

    def _expected_score(self, moments: GrammarExpectations) -> Tensor:
        B, n, _ = self.log_terminals.shape
        N, at = len(self.log_root), range(n)
        score = expectation(moments.roots, self.log_root.expand(B, N))
        score = score + expectation(moments.rules, self.log_rules.expand(B, *self.log_rules.shape))
        score = score + expectation(moments.symbols[:, at, at, N:], self.log_terminals)
        return score if self.log_symbols is None else score + expectation(moments.symbols, self.log_symbols)

    def _score(self, structure: Any) -> Tensor:
        """Return the score (B,) of charts (B, n, n); -inf if they are not a tree of this grammar."""
        charts = self._check_charts(structure)
        counts, chart, n = host(self.lengths), host(charts), charts.shape[1]
        splits, good = brackets.read(chart, counts)
        N = len(self.log_root)
        inside = (chart >= 0) & span_mask(counts, n)
        single = np.eye(n, dtype=bool)
        good &= ~(inside & ((chart >= N) != single)).any(axis=(1, 2))
        b, i, j = np.nonzero(inside & ~single & good[:, None, None])
        r = splits[b, i, j]
        rules = self.log_rules[tuple(torch.as_tensor(x) for x in (chart[b, i, j], chart[b, i, r], chart[b, r + 1, j]))]
        score = self.log_root[charts[range(len(counts)), 0, self.lengths - 1].clamp(0, N - 1)].double()
        score = score.index_add(0, torch.as_tensor(b, device=score.device), rules.double())
        leaves = charts.diagonal(0, 1, 2)
        terminal = self.log_terminals.gather(2, (leaves - N).clamp(min=0)[..., None])[..., 0].double()
        score = score + terminal.masked_fill(~self._inside(n), 0).sum(dim=1)
        if self.log_symbols is not None:
            symbol = self.log_symbols.gather(3, charts.clamp(min=0)[..., None])[..., 0].double()
            score = score + symbol.masked_fill(~self._tensor(inside), 0).sum(dim=(1, 2))
        return torch.where(self._tensor(good), score, -torch.inf)

    def _check_charts(self, charts: Any) -> Tensor:
        return check_charts(charts, self.lengths, self.log_terminals.shape[1], self.log_rules.shape[1])
