"""Distributions over the trees of a sentence under a grammar."""

from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import check_count, check_lengths, check_scores, check_shape
from trelliswork.distributions.base import Best, LogLinear
from trelliswork.distributions.span_tree import SpanTree, check_charts, compatible, named_spans, span_mask
from trelliswork.distributions.tensors import (
    as_tensor,
    bool_mask,
    choose_backend,
    draw_seeds,
    expectation,
    floats,
    forbidden,
    host,
)
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


class GrammarTree(LogLinear):
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
    backend : {"auto", "kernel", "torch"}
        ``auto`` uses matrix products on the CPU; ``torch`` uses torch operations on the tensors' device, in log space
        with much more memory (also used when expectations are differentiated).

    Notes
    -----
    Time O(n^2 N^3 + n^3 N^2 + n P N S), memory O(n^2 S + N S^2) per sentence, in float64. Trees are charts (B, n, n):
    entry [i, j] is the symbol of the span, or -1 if the tree has no such span.

    Examples
    --------
    >>> import torch
    >>> trees = GrammarTree(torch.zeros(1), torch.zeros(1, 2, 2), torch.zeros(1, 5, 1))
    >>> round(trees.log_partition().exp().item())  # one nonterminal, one preterminal: the fourth Catalan number
    14
    """

    _nouns = grammar.TREES

    def __init__(
        self,
        log_root: Any,
        log_rules: Any,
        log_terminals: Any,
        *,
        log_symbols: Any = None,
        lengths: Any = None,
        backend: str = "auto",
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
        self._dtype, self._device = dtype, device
        self.backend = choose_backend(backend, device)
        counts = check_lengths(host(lengths), B, n)
        self.lengths = torch.as_tensor(counts, device=device)
        valid = {"log_terminals": np.arange(n) < counts[:, None], "log_symbols": span_mask(counts, n)}
        for name, scores in tensors.items():
            inside = valid.get(name)
            check_scores(name, host(scores.detach()), inside)
            if inside is not None and not inside.all():
                mask = torch.as_tensor(inside, device=device)[..., None]
                tensors[name] = torch.where(mask, scores, 0)  # the padding may contain anything
        self._tensors = tensors
        if self.log_symbols is not None:
            check_shape("log_symbols", self.log_symbols.shape, "B n n S", B=B, n=n, S=S)

    log_root = property(lambda self: self._tensors["log_root"], doc="Scores (N,) of the symbol at the root.")
    log_rules = property(lambda self: self._tensors["log_rules"], doc="Scores (N, S, S) of rules.")
    log_terminals = property(lambda self: self._tensors["log_terminals"], doc="Scores (B, n, P) of preterminals.")
    log_symbols = property(lambda self: self._tensors.get("log_symbols"), doc="Scores (B, n, n, S) of spans, or None.")

    def __repr__(self) -> str:
        B, n, P = self.log_terminals.shape
        return f"GrammarTree(B={B}, n={n}, N={len(self.log_root)}, P={P}, backend={self.backend!r})"

    def marginals(self) -> Tensor:
        """Return p(symbol over span) (B, n, n, S); its sum over symbols is the probability of the span."""
        return self._moments().symbols

    def rule_counts(self) -> Tensor:
        """Return the expected number of uses of each rule (B, N, S, S)."""
        return self._moments().rules

    def expectations(self) -> GrammarExpectations:
        """Return log Z and all expectations, from one pass."""
        moments = self._moments()
        return moments._replace(log_z=moments.log_z.to(self._dtype))

    @property
    def _sizes(self) -> tuple[int, ...]:
        B, n, _ = self.log_terminals.shape
        return B, n, n

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

    def condition(self, *, known: Any = None, allowed: Any = None) -> "GrammarTree":
        """Return the distribution given evidence; the difference of the log partitions is its log probability.

        Parameters
        ----------
        known : Tensor of int (B, n, n), optional
            Known spans with their symbols; -1 for unknown. A known span forbids those that cross it.
        allowed : Tensor of bool (B, n, n) or (B, n, n, S), optional
            Spans, or symbols over spans, that a tree may have.
        """
        B, n, P = self.log_terminals.shape
        device, S = self.log_root.device, len(self.log_root) + P
        mask = torch.ones(B, n, n, S, dtype=torch.bool, device=device)
        if allowed is not None:
            pattern = "B n n S" if as_tensor("allowed", allowed).ndim == 4 else "B n n"
            given = bool_mask("allowed", allowed, pattern, device, B=B, n=n, S=S)
            mask &= given if given.ndim == 4 else given[..., None]
        if known is not None:
            mask &= compatible(self._check_charts(known), self.lengths, S)
        before = self.log_terminals.new_zeros(B, n, n, S) if self.log_symbols is None else self.log_symbols
        return self._like(log_symbols=before.masked_fill(~mask, -torch.inf))

    def _copies(self, B: int) -> "GrammarTree":
        names = ("log_terminals", "log_symbols", "lengths")
        given = {name: getattr(self, name) for name in names}
        return self._like(**{name: x.expand(B, *x.shape[1:]) for name, x in given.items() if x is not None})

    def _named(self, value: Tensor, labels: Any) -> list[Any]:
        return named_spans(value, labels)

    def _like(self, **changes: Any) -> "GrammarTree":
        return GrammarTree(**{name: changes.get(name, getattr(self, name)) for name in (*SCORES, "lengths", "backend")})

    def _inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        return self.log_root, self.log_rules, self.log_terminals, self.log_symbols

    def _grammar(self) -> Grammar:
        symbols = None if self.log_symbols is None else doubles(self.log_symbols)
        shared = doubles(self.log_root), doubles(self.log_rules)
        return Grammar(*shared, doubles(self.log_terminals), symbols, host(self.lengths))

    def _log_z(self) -> Tensor:
        module = torch_path if self.backend == "torch" else autograd
        return module.grammar_log_partition(*self._inputs(), self.lengths)

    def _torch_log_z(self, beta: Any = 1) -> Tensor:
        return torch_path.grammar_log_partition(*self._inputs(), self.lengths, beta)

    def _forbidden_by(self, other: Self) -> "GrammarTree":
        own, evidence = self._inputs(), (self.log_symbols, other.log_symbols)
        shape = (*self.log_terminals.shape[:2], self.log_terminals.shape[1], self.log_rules.shape[1])
        symbols = [own[0].new_zeros(shape) if scores is None else scores for scores in evidence]
        pairs = zip(SCORES, (*own[:3], symbols[0]), (*other._inputs()[:3], symbols[1]), strict=True)
        return self._like(**{name: forbidden(*scores) for name, *scores in pairs})

    def _moments(self) -> GrammarExpectations:
        needs_graph = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in self._inputs())
        if self.backend == "kernel" and not needs_graph:
            moments = grammar.expectations(self._grammar())
            single = np.float32 if self._dtype == torch.float32 else np.float64
            arrays = (x.astype(single, copy=False) for x in (moments.roots, moments.rules, moments.symbols))
            return GrammarExpectations(torch.from_numpy(moments.log_z), *map(torch.from_numpy, arrays))
        B, n, P = self.log_terminals.shape
        N = len(self.log_root)
        with torch.enable_grad():
            # With one copy per sentence, the gradient of each copy is its own expectations.
            root = self.log_root.double().expand(B, N).clone()
            each = self.log_rules.double().expand(B, *self.log_rules.shape).clone()
            before = self.log_symbols
            scores = root.new_zeros(B, n, n, N + P) if before is None else before.double().clone()
            leaves = [x if x.requires_grad else x.requires_grad_() for x in (root, each, scores)]
            log_z = torch_path.grammar_log_partition(root, each, self.log_terminals, scores, self.lengths)
            gradients = torch.autograd.grad(log_z.sum(), leaves, create_graph=needs_graph, materialize_grads=True)
        return GrammarExpectations(log_z if needs_graph else log_z.detach(), *(x.to(self._dtype) for x in gradients))

    def _expected_score(self, moments: GrammarExpectations, sizes: bool = False) -> Tensor:
        B, n, _ = self.log_terminals.shape
        N, at = len(self.log_root), range(n)
        score = expectation(moments.roots, self.log_root.expand(B, N), sizes)
        score = score + expectation(moments.rules, self.log_rules.expand(B, *self.log_rules.shape), sizes)
        score = score + expectation(moments.symbols[:, at, at, N:], self.log_terminals, sizes)
        return score if self.log_symbols is None else score + expectation(moments.symbols, self.log_symbols, sizes)

    def _double(self) -> "GrammarTree":
        if self._dtype == torch.float64:
            return self
        pairs = zip(SCORES, self._inputs(), strict=True)
        return self._like(**{name: scores.double() for name, scores in pairs if scores is not None})

    def _is_alike(self, other: Self) -> bool:
        same = type(self) is type(other) and self.log_rules.shape == other.log_rules.shape
        return same and self.log_terminals.shape == other.log_terminals.shape

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
