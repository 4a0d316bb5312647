"""Probabilities of sub-trees and whole trees of a parser, against the enumeration of all trees."""

from itertools import product

import numpy as np
import pytest

import trelliswork as t
from tests.models.fitted import PAIRS, fitted

SENTENCE = PAIRS[0][:4]


def is_tree(heads) -> bool:
    for word in range(1, len(heads) + 1):
        seen, at = set(), word
        while at:
            if at in seen:
                return False
            seen.add(at)
            at = heads[at - 1]
    return True


def below(heads, word) -> frozenset:
    """The arcs of the sub-tree below a word."""
    arcs, size = {(word, None)}, 0
    while len(arcs) > size:
        size = len(arcs)
        inside = {w for w, _ in arcs}
        arcs |= {(w, h) for w, h in enumerate(heads, start=1) if h in inside}
    return frozenset(arcs)


def is_projective(heads) -> bool:
    arcs = [(min(w, h), max(w, h)) for w, h in enumerate(heads, start=1)]
    return not any(a < c < b < d for a, b in arcs for c, d in arcs)


@pytest.mark.parametrize("projective", [True, False])
def test_subtrees_against_all_trees(projective):
    parser = t.DependencyParser(1, projective=projective, hash_bits=12, max_iter=1)
    parser.fit(PAIRS[:10], [[h for h, _ in tree] for tree in _trees()[:10]])
    n = len(SENTENCE)
    every = [list(heads) for heads in product(range(n + 1), repeat=n) if is_tree(heads) and heads.count(0) == 1]
    trees = [heads for heads in every if is_projective(heads) or not projective]
    p = np.exp(parser.log_prob([SENTENCE] * len(trees), trees))
    assert p.sum() == pytest.approx(1, abs=1e-6)
    for tree in [trees[k] for k in np.argsort(-p)[:4]]:
        (found,) = parser._subtree_probabilities([SENTENCE], [tree])
        for word in range(1, n + 1):
            same = np.array([below(other, word) == below(tree, word) for other in trees])
            assert found[word - 1] == pytest.approx(p[same].sum(), abs=1e-6)


def test_the_subtree_of_the_root_is_the_tree():
    parser = fitted("DependencyParser")
    X = PAIRS[:3]
    heads = [[h for h, _ in tree] for tree in parser.predict(X)]
    below_root = parser._subtree_probabilities(X, heads)
    for row, tree, log_p in zip(below_root, heads, parser.log_prob(X, heads), strict=True):
        assert row[tree.index(0)] == pytest.approx(np.exp(log_p), rel=1e-5, abs=1e-9)
        assert all(0 <= p <= 1 for p in row)


def _trees():
    return [list(zip(s.heads, s.relations, strict=True)) for s in t.bundled.load("train")[:30]]
