"""Random small problems of every structure, compared with enumeration: see `differential`."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.distributions.backends import computed_by
from tests.inference.differential import Problem, Scores, Tally, on_threads
from tests.inference.factorial.cases import Case
from tests.inference.lowrank.cases import (
    Blocked,
    dense,
    enumerate_states,
    one_block,
    random_blocks,
    random_hmm,
    random_words,
)
from tests.oracle import fields
from tests.oracle.alignments import Aligned
from tests.oracle.chain import Enumerated as Labeled
from tests.oracle.chain import enumerate_batch
from tests.oracle.graphs import enumerate_graphs, random_graph
from tests.oracle.rules import BIO, BIOES, PLAIN, random_rule, satisfies
from tests.oracle.second_order import enumerate_second_order
from tests.oracle.segments import Segmented
from tests.oracle.trees import Enumerated, bracketings, derivations, trees
from trelliswork import GrammarTree, LinearChain, ProjectiveTree, SpanningTree, SpanTree
from trelliswork.distributions import Alignment, SemiMarkovChain
from trelliswork.errors import ImpossibleError
from trelliswork.inference import factorial
from trelliswork.inference.graph.engines import bp, exact, max_product, mean_field, structured_mean_field, trw
from trelliswork.inference.lifted import ChainCover, SparseTable, Star, sentences
from trelliswork.inference.lifted import exact as lifted_exact
from trelliswork.inference.lowrank import Blocks, Messages, Open, log_evidence, posteriors, score, viterbi
from trelliswork.inference.tree.second_order import infer, parts

COPIES = 9  # of a batch, so that threads have something to share
Build = Callable[..., Any]


def by_all_queries(tally: Tally, build: Build, want: list[Any], parts_of: Callable[[Any], np.ndarray], size: float):
    """Compare all queries of a distribution; ``build(dtype, copies=1, backend=..)`` makes it.

    ``want`` are enumerations of the sequences, with ``log_z``, ``scores`` and ``entropy``; ``parts_of`` takes the
    marginals of the distribution, whose values for all sequences are in the order of ``want``.
    """
    double, single, by_torch = build(torch.float64), build(torch.float32), build(torch.float64, backend="torch")
    log_z, marginals = double.log_partition(), double.marginals()
    wanted = np.array([w.log_z for w in want])
    tally.same("enumeration", "log Z", log_z, wanted, size)
    tally.same("enumeration", "marginals", marginals, parts_of(marginals), size)
    tally.same("torch", "log Z", by_torch.log_partition(), log_z, size)
    tally.same("torch", "marginals", by_torch.marginals(), marginals, size)
    tally.same("float32", "log Z", single.log_partition(), log_z, size)
    tally.same("float32", "marginals", single.marginals(), marginals, size)

    def copied() -> list[Any]:
        many = build(torch.float64, copies=COPIES)
        return [many.log_partition(), many.marginals()]

    on_threads(tally, "log Z and marginals", copied)
    if np.isneginf(wanted).any():
        for query in (double.argmax, double.entropy, double.sample):
            with pytest.raises(ImpossibleError):
                query()
        return
    k = 4
    ordered = [np.sort(w.scores)[::-1][:k] for w in want]
    best = np.array([np.pad(row, (0, k - len(row)), constant_values=-np.inf) for row in ordered])
    for name, d in (("enumeration", double), ("float32", single), ("torch", by_torch)):
        first, several = d.argmax(), d.topk(k)
        tally.same(name, "log p(best)", first.log_prob, best[:, 0] - wanted, size)
        tally.same(name, "log p of the best", several.log_prob, best - wanted[:, None], size)
        tally.same(name, "log p(best) of a given structure", d.log_prob(first.value), best[:, 0] - wanted, size)
        tally.same(name, "entropy", d.entropy(), [w.entropy() for w in want], size)
        tally.same(name, "KL to itself", d.kl(d), np.zeros(len(want)), size)
    for b, row in enumerate(double.topk(k).value.numpy()):
        possible = int(np.isfinite(best[b]).sum())
        tally.same("enumeration", "different structures", len({y.tobytes() for y in row[:possible]}), possible, 0)
    draws = double.sample(2, generator=torch.Generator().manual_seed(0))
    tally.same("enumeration", "possible samples", torch.isfinite(double.log_prob(draws)), np.ones((2, len(want))), 0)


def repeated(values: np.ndarray, copies: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([values] * copies)).to(dtype)


def chain(rng: np.random.Generator, tally: Tally) -> None:
    """Shared transitions, with scores of first and last labels."""
    scores = Scores(rng)
    B, T, S = int(rng.integers(1, 4)), scores.length(5), scores.length(4)
    unary, pairwise, start, end = scores(B, T, S), scores(S, S), scores(S), scores(S)
    lengths = rng.integers(1, T + 1, B)
    whole = unary.copy()
    whole[:, 0] += start
    whole[np.arange(B), lengths - 1] += end
    want = enumerate_batch(whole, pairwise, lengths)

    def build(dtype: torch.dtype, copies: int = 1, backend: str = "kernel") -> LinearChain:
        edges = {"log_start": torch.from_numpy(start).to(dtype), "log_end": torch.from_numpy(end).to(dtype)}
        scores = repeated(unary, copies, dtype), torch.from_numpy(pairwise).to(dtype)
        return computed_by(backend, LinearChain(*scores, lengths=np.tile(lengths, copies), **edges))

    size = scores.size * (2 * T + 1)
    by_all_queries(tally, build, want, lambda _: nodes(want, B, T, S), size)
    counts = [w.edges(S).sum(axis=0) for w in want]
    tally.same("enumeration", "transition counts", build(torch.float64).transition_counts(), counts, size)


def nodes(want: list[Any], B: int, T: int, S: int) -> np.ndarray:
    out = np.zeros((B, T, S))
    for b, w in enumerate(want):
        out[b, : w.labelings.shape[1]] = w.marginals(S)
    return out


def chain_with_edges(rng: np.random.Generator, tally: Tally) -> None:
    """Transitions that depend on sequence, position, or both."""
    scores = Scores(rng)
    B, T, S = int(rng.integers(1, 4)), scores.length(5), scores.length(4)
    by = rng.random(2) < 0.7
    unary, pairwise = scores(B, T, S), scores(B if by[0] else 1, T - 1 if by[1] else min(1, T - 1), S, S)
    lengths = rng.integers(1, T + 1, B)
    want = enumerate_batch(unary, pairwise, lengths)

    def build(dtype: torch.dtype, copies: int = 1, backend: str = "kernel") -> LinearChain:
        tables = repeated(pairwise, copies if by[0] else 1, dtype)
        if len(tables) == 1 and copies > 1 and by[0]:
            tables = tables.repeat(copies, 1, 1, 1)
        return computed_by(
            backend, LinearChain(repeated(unary, copies, dtype), tables, lengths=np.tile(lengths, copies))
        )

    size = scores.size * 2 * T
    by_all_queries(tally, build, want, lambda _: nodes(want, B, T, S), size)
    edges = np.zeros((B, T - 1, S, S))
    for b, w in enumerate(want):
        edges[b, : lengths[b] - 1] = w.edges(S)
    tally.same("enumeration", "edge marginals", build(torch.float64).edge_marginals(), edges, size)
    by_torch = build(torch.float64, backend="torch")
    tally.same("torch", "edge marginals", by_torch.edge_marginals(), edges, size)


def beam(rng: np.random.Generator, tally: Tally) -> None:
    """Within the labels that the beam keeps, everything is exact; it never exceeds the whole chain."""
    scores = Scores(rng)
    B, T, S = int(rng.integers(1, 4)), scores.length(5), scores.length(5)
    unary, pairwise, lengths = scores(B, T, S), scores(S, S), rng.integers(1, T + 1, B)
    size = scores.size * 2 * T
    rule = str(rng.choice(["kl=0", "kl=0.1,min=1", "size=1", "size=2", "threshold=1.0,min=1", "kl=0.3,min=2,refine"]))
    whole = LinearChain(unary, pairwise, lengths=lengths)
    exact_z = whole.log_partition().numpy()
    within = whole.within(rule)
    kept = within.log_unary.numpy()
    want = enumerate_batch(kept, pairwise, lengths)
    tally.same("enumeration", "log Z in the beam", within.log_partition(), [w.log_z for w in want], size)
    tally.same("enumeration", "marginals in the beam", within.marginals(), nodes(want, B, T, S), size)
    tally.at_most("log Z in the beam", within.log_partition(), exact_z, size)
    tally.same("enumeration", "possible in the beam", torch.isneginf(within.log_partition()), np.isneginf(exact_z), 0)
    if rule == "kl=0":
        tally.same("enumeration", "log Z without loss", within.log_partition(), exact_z, size)
    if np.isfinite(exact_z).all():
        best = within.argmax()
        score = whole.log_prob(best.value).numpy() + exact_z
        tally.at_most("best score", score, [w.scores.max() for w in enumerate_batch(unary, pairwise, lengths)], size)
    single = LinearChain(unary.astype(np.float32), pairwise.astype(np.float32), lengths=lengths).within("kl=0")
    tally.same("float32", "log Z without loss", single.log_partition(), exact_z, size)

    def copied() -> list[Any]:
        many = LinearChain(np.concatenate([unary] * COPIES), pairwise, lengths=np.tile(lengths, COPIES)).within(rule)
        return [many.log_partition(), many.marginals()]

    on_threads(tally, "log Z and marginals", copied)


def dependency_trees(cls: type[ProjectiveTree | SpanningTree]) -> Problem:
    """Return the problem of trees of one kind, with or without labels, with one root or several."""

    def problem(rng: np.random.Generator, tally: Tally) -> None:
        scores = Scores(rng)
        L = int(rng.choice([0, 0, 1, 2]))
        B, n = int(rng.integers(1, 4)), scores.length(3 if L else 4)
        single_root = bool(rng.random() < 0.5)
        log_arc = scores(B, n + 1, n + 1, max(L, 1))
        lengths = rng.integers(1, n + 1, B)
        want, arcs = [], np.zeros(log_arc.shape)
        for b, m in enumerate(lengths):
            heads, at = trees(int(m), cls.projective, single_root), np.arange(1, m + 1)
            names = np.array(list(itertools.product(range(max(L, 1)), repeat=int(m))))
            each = log_arc[b, heads[:, None], at, names[None]]  # (trees, labelings, words)
            want.append(Enumerated(np.zeros(0), each.sum(axis=2).ravel()))
            p = want[-1].probabilities.reshape(each.shape[:2])
            for d in range(m):
                np.add.at(arcs[b], (heads[:, None, d], d + 1, names[None, :, d]), p)

        def build(dtype: torch.dtype, copies: int = 1, backend: str = "kernel") -> Any:
            given = repeated(log_arc if L else log_arc[..., 0], copies, dtype)
            return computed_by(backend, cls(given, lengths=np.tile(lengths, copies), single_root=single_root))

        by_all_queries(tally, build, want, lambda _: arcs if L else arcs[..., 0], scores.size * n)

    return problem


def semimarkov(rng: np.random.Generator, tally: Tally) -> None:
    scores = Scores(rng)
    B, T, L, S = int(rng.integers(1, 4)), scores.length(5), scores.length(3), scores.length(2)
    log_segment, log_pairwise, lengths = scores(B, T, L, S), scores(S, S), rng.integers(1, T + 1, B)
    want = [Segmented(*one, log_pairwise=log_pairwise) for one in zip(log_segment, lengths, strict=True)]

    def build(dtype: torch.dtype, copies: int = 1, backend: str = "kernel") -> SemiMarkovChain:
        given = repeated(log_segment, copies, dtype), torch.from_numpy(log_pairwise).to(dtype)
        return computed_by(backend, SemiMarkovChain(*given, lengths=np.tile(lengths, copies)))

    size = scores.size * 2 * T
    by_all_queries(tally, build, want, lambda _: np.stack([w.marginals() for w in want]), size)
    of_pairs(tally, build, want, size)
    known = np.where(rng.random((B, T)) < 0.3, rng.integers(0, S, (B, T)), -1)
    inside = np.arange(T) < lengths[:, None]
    kept = [((w.structures == k) | (k < 0) | ~i).all(axis=1) for w, k, i in zip(want, known, inside, strict=True)]
    of_evidence(tally, build(torch.float64), want, known, kept, size)


def alignment(rng: np.random.Generator, tally: Tally) -> None:
    scores = Scores(rng)
    B, N, M = int(rng.integers(1, 4)), scores.length(4), scores.length(3)
    log_moves, log_pairwise = scores(B, N + 1, M + 1, 3), scores(3, 3)
    lengths = rng.integers(1, [N + 1, M + 1], (B, 2))
    want = [Aligned(*one, log_pairwise=log_pairwise) for one in zip(log_moves, lengths, strict=True)]

    def build(dtype: torch.dtype, copies: int = 1, backend: str = "kernel") -> Alignment:
        given = repeated(log_moves, copies, dtype), torch.from_numpy(log_pairwise).to(dtype)
        return computed_by(backend, Alignment(*given, lengths=np.tile(lengths, (copies, 1))))

    size = scores.size * 2 * (N + M)
    by_all_queries(tally, build, want, lambda _: np.stack([w.marginals() for w in want]), size)
    of_pairs(tally, build, want, size)
    known = np.where(rng.random((B, N)) < 0.3, rng.integers(0, M, (B, N)), -1)
    known[known >= lengths[:, 1:]] = -1
    inside = np.arange(N) < lengths[:, :1]
    kept = [((w.partners() == k) | (k < 0) | ~i).all(axis=1) for w, k, i in zip(want, known, inside, strict=True)]
    of_evidence(tally, build(torch.float64), want, known, kept, size)


def of_pairs(tally: Tally, build: Build, want: list[Any], size: float) -> None:
    """Compare expected pairs, divergences, and gradients of squared marginals."""
    counts = [w.transition_counts() for w in want]
    for name, backend in (("enumeration", "kernel"), ("torch", "torch")):
        found = build(torch.float64, backend=backend).transition_counts()
        tally.same(name, "transition counts", found, counts, size)
    curvatures = []
    for backend in ("kernel", "torch"):
        d = build(torch.float64, backend=backend)
        scores = d._scores.requires_grad_()
        d.marginals().square().sum().backward()
        curvatures.append(scores.grad)
    tally.same("torch", "gradient of squared marginals", *curvatures, size)


def of_evidence(tally: Tally, d: Any, want: list[Any], known: Any, kept: list[Any], size: float) -> None:
    """Compare the distribution given known parts, and its divergence from the whole, with the structures ``kept``."""
    given = d.condition(known=torch.from_numpy(known))
    log_z = []
    for w, k in zip(want, kept, strict=True):
        log_z.append(Enumerated(w.structures, np.where(k, w.scores, -np.inf)).log_z)
    tally.same("enumeration", "log Z given evidence", given.log_partition(), log_z, size)
    if np.isfinite(log_z).all():
        divergence = np.array([w.log_z for w in want]) - log_z
        tally.same("enumeration", "KL from the whole", given.kl(d), divergence, size)
        rest = [np.inf if ((w.scores > -np.inf) & ~k).any() else 0.0 for w, k in zip(want, kept, strict=True)]
        tally.same("enumeration", "KL to evidence", d.kl(given), rest, size)


def spans(rng: np.random.Generator, tally: Tally) -> None:
    scores = Scores(rng)
    L = int(rng.choice([0, 0, 1, 2]))
    B, n = int(rng.integers(1, 4)), scores.length(3 if L else 5)
    log_span, lengths = scores(B, n, n, max(L, 1)), rng.integers(1, n + 1, B)
    want, marginals = [], np.zeros(log_span.shape)
    for b, m in enumerate(lengths):
        all_trees = [np.array(t) for t in bracketings(0, int(m) - 1)]
        names = np.array(list(itertools.product(range(max(L, 1)), repeat=2 * int(m) - 1)))
        each = np.stack([log_span[b, t[:, 0], t[:, 1], names] for t in all_trees])  # (trees, labelings, spans)
        want.append(Enumerated(np.zeros(0), each.sum(axis=2).ravel()))
        p = want[-1].probabilities.reshape(each.shape[:2])
        for t, weights in zip(all_trees, p, strict=True):
            for s, (i, j) in enumerate(t):
                np.add.at(marginals[b, i, j], names[:, s], weights)

    def build(dtype: torch.dtype, copies: int = 1, backend: str = "kernel") -> SpanTree:
        given = repeated(log_span if L else log_span[..., 0], copies, dtype)
        return computed_by(backend, SpanTree(given, lengths=np.tile(lengths, copies)))

    size = scores.size * 2 * n
    by_all_queries(tally, build, want, lambda _: marginals if L else marginals[..., 0], size)


def grammar(rng: np.random.Generator, tally: Tally) -> None:
    scores = Scores(rng)
    N, P = scores.length(2), scores.length(2)
    B, n, S = int(rng.integers(1, 3)), int(rng.integers(1, 5)), N + P
    root, rules, terminals = scores(N), scores(N, S, S), scores(B, n, P)
    lengths = rng.integers(1, n + 1, B)
    want, marginals = [], np.zeros((B, n, n, S))
    for b, m in enumerate(lengths):
        values, found = [], []
        for symbol in range(N):
            for tree in derivations(0, int(m) - 1, symbol, N, S):
                total = root[symbol]
                for i, j, a, _, x, y in tree:
                    total += terminals[b, i, a - N] if i == j else rules[a, x, y]
                values.append(total)
                found.append(tree)
        want.append(Enumerated(np.zeros(0), np.array(values or [-np.inf])))
        for tree, p in zip(found, want[-1].probabilities, strict=False):
            for i, j, a, *_ in tree:
                marginals[b, i, j, a] += p

    def build(dtype: torch.dtype, copies: int = 1, backend: str = "kernel") -> GrammarTree:
        shared = torch.from_numpy(root).to(dtype), torch.from_numpy(rules).to(dtype)
        return computed_by(
            backend, GrammarTree(*shared, repeated(terminals, copies, dtype), lengths=np.tile(lengths, copies))
        )

    by_all_queries(tally, build, want, lambda _: marginals, scores.size * 2 * n)


def second_order(rng: np.random.Generator, tally: Tally) -> None:
    """The tree factor alone, or with all parts where only one word has a choice of heads: there BP is exact."""
    scores = Scores(rng)
    n, projective, single_root = int(rng.integers(1, 5)), bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    alone = bool(rng.random() < 0.5)
    if alone:
        keep = rng.random((n + 1, n + 1)) < 0.8
    else:
        keep = np.zeros((n + 1, n + 1), bool)
        every = trees(n, projective, single_root)
        keep[every[rng.integers(len(every))], np.arange(1, n + 1)] = True
        keep[:, rng.integers(1, n + 1)] |= rng.random(n + 1) < 0.7
    np.fill_diagonal(keep, False)
    keep[:, 0] = False
    heads, modifiers = np.nonzero(keep)
    p = parts([n], [0, len(heads)], heads, modifiers, siblings=not alone, grandparents=not alone)
    values = [scores(len(x)) for x in (p.heads, p.sibling_heads, p.grandparent_upper)]
    kind = {"projective": projective, "single_root": single_root}
    found = infer(p, *values, max_iter=60, tolerance=1e-13, **kind)
    want = enumerate_second_order(p, 0, *values, **kind)
    size = scores.size * 4 * n
    tally.same("enumeration", "log Z", found.log_partition, [want.log_z], size)
    for what, beliefs, on in (
        ("arcs", found.arcs, want.arcs),
        ("siblings", found.siblings, want.siblings),
        ("grandparents", found.grandparents, want.grandparents),
    ):
        tally.same("enumeration", what, beliefs, want.probabilities @ on, size)
    C = len(heads)
    many = parts(
        [n] * COPIES, np.arange(COPIES + 1) * C, np.tile(heads, COPIES), np.tile(modifiers, COPIES),
        siblings=not alone, grandparents=not alone,
    )  # fmt: skip
    on_threads(tally, "beliefs", lambda: infer(many, *(np.tile(v, COPIES) for v in values), **kind))


def factor_graph(rng: np.random.Generator, tally: Tally) -> None:
    """Belief propagation, max-product and torch on trees; bounds and elimination on any graph."""
    scores = Scores(rng)
    tree, pairs = bool(rng.random() < 0.6), bool(rng.random() < 0.6)
    V = scores.length(5)
    wiring = random_graph(
        rng, n_variables=V, n_factors=V, n_graphs=int(rng.integers(1, 3)), max_states=3, tree=tree or V == 1,
        max_arity=2 if pairs else 3, scores=lambda shape: scores(*shape),
    )  # fmt: skip
    want = enumerate_graphs(wiring)
    size = scores.size * (wiring.n_factors + V)
    log_z, beliefs = np.array([w.log_z for w in want]), np.stack([w.marginals() for w in want])
    joint = [np.stack([w.factor_marginals()[g] for w in want]) for g in range(len(wiring.groups))]
    found = {"exact": exact.run(wiring)}
    if tree or V == 1:
        found |= {f"bp, {schedule}": bp.run(wiring, schedule=schedule) for schedule in ("auto", "flooding", "residual")}
        best = max_product.run(wiring)
        tally.same("enumeration", "score of max-product", best.log_z, [w.best for w in want], size)
        if pairs:
            found["trw"] = trw.run(wiring)
    elif pairs:
        bound = trw.run(wiring)
        tally.at_most("log Z and its bound by trw", log_z, np.where(bound.converged, bound.log_z, np.inf), size)
    for name, result in found.items():
        tally.same("enumeration", f"log Z of {name}", result.log_z, log_z, size)
        tally.same("enumeration", f"marginals of {name}", result.marginals, beliefs, size)
        for one, other in zip(result.factor_marginals, joint, strict=True):
            tally.same("enumeration", f"factor marginals of {name}", one, other, size)
    for name, engine in (("mean field", mean_field), ("structured mean field", structured_mean_field)):
        if pairs or engine is mean_field:
            tally.at_most(f"the bound by {name}", engine.run(wiring).log_z, log_z, size)
    best = exact.best(wiring)
    tally.same("enumeration", "score of exact", best.log_z, [w.best for w in want], size)
    on_threads(tally, "exact", lambda: [r.log_z for r in [exact.run(wiring)]] + [exact.run(wiring).marginals])


def factorial_chain(rng: np.random.Generator, tally: Tally) -> None:
    scores = Scores(rng)
    n_labels = [scores.length(3) for _ in range(int(rng.integers(1, 4)))]
    B, T = int(rng.integers(1, 4)), scores.length(4 if np.prod(n_labels) <= 6 else 2)
    ties = [(d, e) for e in range(len(n_labels)) for d in range(e)]
    case = Case(
        [scores(B, T, S) for S in n_labels],
        [scores(S, S) for S in n_labels],
        {(d, e): scores(n_labels[d], n_labels[e]) for d, e in ties},
        rng.integers(1, T + 1, B),
    )
    size = scores.size * T * (2 * len(n_labels) + len(ties))
    want = case.enumerated()
    log_z = np.array([w.log_z for w in want])
    potentials = case.potentials()
    found = factorial.infer(potentials, "exact", counts=True)
    tally.same("enumeration", "log Z", found.value, log_z, size)
    for d, S in enumerate(n_labels):
        marginals = np.zeros((B, T, S))
        for b, w in enumerate(want):
            marginals[b, : case.lengths[b]] = w.marginals()[d]
        tally.same("enumeration", "marginals", found.marginals[d], marginals, size)
        tally.same("enumeration", "counts", found.counts[d], sum(w.counts()[d] for w in want), size)
    for d, e in ties:
        tally.same("enumeration", "pairs", found.between[d, e], sum(w.between(d, e) for w in want), size)
    single = factorial.infer(case.potentials(np.float32), "exact")
    tally.same("float32", "log Z", single.value, log_z, size)
    for one, other in zip(single.marginals, found.marginals, strict=True):
        tally.same("float32", "marginals", one, other, size)
    if all(np.isfinite(table).all() for table in case.log_between.values()):  # others are refused
        bound = factorial.infer(potentials, "structured_mean_field").value
        tally.at_most("the bound by mean field", bound, log_z, size)
    refused = scores.kind in ("huge", "mixed")  # of ties, by belief propagation
    if len(n_labels) == 1 or (len(n_labels) == 2 and T == 1 and not refused):
        tally.same("enumeration", "log Z of bp", factorial.infer(potentials, "bp").value, log_z, size)
    if np.isfinite(log_z).all():
        labels, best = factorial.decode(potentials, "exact")
        tally.same("enumeration", "best score", best, [w.best()[0] for w in want], size)
        tally.same("enumeration", "score of the best", factorial.score(potentials, labels), best, size)
    else:
        with pytest.raises(ImpossibleError):
            factorial.decode(potentials, "exact")
    many = case._replace(
        log_unary=[np.concatenate([u] * 70) for u in case.log_unary], lengths=np.tile(case.lengths, 70)
    ).potentials()

    def copied() -> list[Any]:
        result = factorial.infer(many, "exact", counts=True)
        return [result.value, *result.marginals, *result.counts]

    on_threads(tally, "beliefs", copied)


def lowrank(rng: np.random.Generator, tally: Tally) -> None:
    """Probabilities, some of them zero: passes over low rank, dense, blocks and in float32; queries."""
    C, k, W = int(rng.integers(1, 4)), int(rng.integers(1, 3)), 4
    seed, peaked = int(rng.integers(2**31)), float(rng.choice([0, 1, 5]))
    lengths = rng.integers(1, 5, int(rng.integers(1, 5)))
    words, offsets = random_words(W, lengths, seed=seed)
    if rng.random() < 0.5:
        start, transition, emission = random_hmm(C * k, int(rng.integers(1, 4)), W, seed=seed, peaked=peaked)
        blocks, start = np.zeros(W, np.int64), start[None]
        whole = start[0], dense(transition), emission
    else:
        model = random_blocks(C, k, W, seed=seed, features=bool(rng.random() < 0.5))
        start, transition, emission, blocks = model
        whole = one_block(model)
    if rng.random() < 0.5:
        drop, first = (
            torch.from_numpy(rng.random(emission.shape) < 0.3),
            torch.from_numpy(rng.random(start.shape) < 0.3),
        )
        emission[drop], start[first] = -torch.inf, -torch.inf
        if isinstance(transition, Blocks):
            whole = one_block(Blocked(start, transition, emission, blocks))
    with np.errstate(invalid="ignore"):
        want = [enumerate_states(whole[0], whole[1].dense()[0], whole[2], words[a:b])
                for a, b in itertools.pairwise(offsets)]  # fmt: skip
    size, log_z = 50.0, np.array([w[0] for w in want])
    given = start, transition, emission, words, offsets, blocks
    tally.same("enumeration", "score", score(*given), log_z, size)
    tally.same("enumeration", "dense", log_evidence(*whole, words, offsets), log_z, size)
    for n, (a, b) in enumerate(itertools.pairwise(offsets)):
        evidence = [Open(blocks[w : w + 1], emission[w : w + 1]) for w in words[a:b]]
        messages = Messages(start, transition, evidence)
        tally.same("enumeration", "log Z", messages.log_z, log_z[n], size)
        if np.isneginf(log_z[n]):
            with pytest.raises(ImpossibleError):
                viterbi(start, transition, evidence)
            continue
        tally.same("enumeration", "best score", viterbi(start, transition, evidence)[1], want[n][3], size)
        p = want[n][1].reshape(b - a, -1, start.shape[1])[np.arange(b - a), blocks[words[a:b]]]
        rows = [x * y for x, y in zip(messages.alpha, messages.backward(), strict=True)]
        tally.same("enumeration", "marginals", torch.cat(rows), p, size)
    narrow = replace(transition, **{x: y.float() for x, y in vars(transition).items() if isinstance(y, torch.Tensor)})
    tally.same("float32", "log Z", score(start.float(), narrow, emission.float(), *given[3:]), log_z, size)
    many = np.tile(words, 40), np.concatenate([[0], np.cumsum(np.tile(lengths, 40))])

    def passes() -> list[Any]:
        found = posteriors(*given[:3], *many, blocks)
        return [score(*given[:3], *many, blocks), *(p for _, p in found)]

    on_threads(tally, "marginals", passes)


def lifted(rng: np.random.Generator, tally: Tally) -> None:
    """Circles bounded by stars; sentences between pads, exact by transfer matrices and bounded by chains."""
    scores = Scores(rng, ("normal", "zeros", "ties", "large"))
    K, C = int(rng.integers(1, 3)), scores.length(3)
    log_unary, tables = scores(C), scores(K, C, C)
    given = [SparseTable(t) for t in tables]
    N = 2 * K + int(rng.integers(1, 3))
    size = scores.size * N * (K + 1)
    circle = fields.circle_log_z(log_unary, tables, N)
    star = Star(log_unary, given).tighten(max_passes=5)
    tally.at_most("circle and its bound by a star", circle, N * star.value, size)
    if C > 1:
        truth = [0.0, *(fields.sentence_log_z(log_unary, tables, n) for n in range(1, 4))]
        tally.same("enumeration", "sentences", lifted_exact.sentence_log_z(log_unary, given, 3), truth, size)
        cover = ChainCover(log_unary, given).tighten(max_iter=3)
        bound = sentences.cover_log_z(cover.weights, cover.unaries, given, 3)
        tally.at_most("sentences and their bound", truth, bound, size)


def chain_under_rules(rng: np.random.Generator, tally: Tally) -> None:
    """A random rule, of all kinds and combinations, that holds in each sequence of a chain; and evidence."""
    scores, labels = Scores(rng), [PLAIN, BIO, BIOES][int(rng.integers(3))]
    B, T, S, rule = int(rng.integers(1, 3)), scores.length(4), len(labels), random_rule(rng, labels)
    unary, pairwise = scores(B, T, S), scores(B, T - 1, S, S) if rng.random() < 0.3 else scores(S, S)
    lengths = rng.integers(1, T + 1, B)
    plain = enumerate_batch(unary, pairwise, lengths)
    good = [np.array([satisfies(rule, [labels[j] for j in row]) for row in w.labelings]) for w in plain]
    want = [Labeled(w.labelings, np.where(own, w.scores, -np.inf)) for w, own in zip(plain, good, strict=True)]

    def build(dtype: torch.dtype, copies: int = 1, backend: str = "kernel") -> Any:
        tables = repeated(pairwise, copies, dtype) if pairwise.ndim > 2 else torch.from_numpy(pairwise).to(dtype)
        free = LinearChain(repeated(unary, copies, dtype), tables, lengths=np.tile(lengths, copies))
        return computed_by(backend, free.condition(rules=rule, labels=labels))

    if any(w.log_z == -np.inf for w in want):
        with pytest.raises(ImpossibleError):
            build(torch.float64)
        return
    size = scores.size * 2 * T
    by_all_queries(tally, build, want, lambda _: nodes(want, B, T, S), size)
    ruled, at = build(torch.float64), int(rng.integers(lengths.min()))
    free = LinearChain(torch.from_numpy(unary), torch.from_numpy(pairwise), lengths=lengths)
    share = [w.log_z - every.log_z for w, every in zip(want, plain, strict=True)]
    tally.same("enumeration", "log P(rules)", ruled.log_partition() - free.log_partition(), share, size)
    known = np.full((B, T), -1)
    known[:, at] = [w.labelings[int(w.scores.argmax()), at] for w in want]
    rest = [np.where(w.labelings[:, at] == known[b, at], w.scores, -np.inf) for b, w in enumerate(want)]
    given = [Labeled(w.labelings, own).log_z for w, own in zip(want, rest, strict=True)]
    found = ruled.condition(known=torch.from_numpy(known)).log_partition()
    tally.same("enumeration", "log Z under rules with evidence", found, given, size)


STRUCTURES: dict[str, Problem] = {
    "chain": chain,
    "chain with edges": chain_with_edges,
    "chain under rules": chain_under_rules,
    "beam": beam,
    "projective tree": dependency_trees(ProjectiveTree),
    "spanning tree": dependency_trees(SpanningTree),
    "second order": second_order,
    "semimarkov": semimarkov,
    "alignment": alignment,
    "spans": spans,
    "grammar": grammar,
    "factor graph": factor_graph,
    "factorial": factorial_chain,
    "lowrank": lowrank,
    "lifted": lifted,
}
