"""Ways to choose a tree: most probable, most expected correct heads, most expected correct labeled arcs."""

from itertools import product

import numpy as np
import pytest

from tests.estimators import made
from tests.models.parser.corpus import HEADS, SMALL, TAGGED, heads_of, treebank
from tests.oracle.trees import is_projective, is_tree
from trelliswork import DependencyParser
from trelliswork.errors import ValueRangeError

X, Y = treebank("test", 150)


def gains(parser, sentence):
    """Return the expected gain of each arc (n+1, n+1): belief times the probability of its best label."""
    parsing = parser._parsing([sentence], None)
    (beliefs,) = parsing.beliefs()
    first, n = parsing.heads()[0], len(sentence)
    table = np.zeros((n + 1, n + 1))
    for m, h in product(range(1, n + 1), range(n + 1)):
        if h != m and beliefs.arcs[0, h, m] >= 1e-3:
            moved = np.array([h if k == m else head for k, head in enumerate(first, start=1)])
            p = parsing.labels.probabilities(parsing.tokens, moved, parsing.columns.offsets)[m - 1].max()
            table[h, m] = beliefs.arcs[0, h, m] * p
    return table


def test_expected_las_is_maximal_among_all_trees(parser):
    short = [sentence for sentence in X if 3 <= len(sentence) <= 5][:4]
    assert len(short) == 4
    for sentence, tree in zip(short, heads_of(parser.predict(short, decoding="mbr-las")), strict=True):
        table, n = gains(parser, sentence), len(sentence)
        trees = [t for t in product(range(n + 1), repeat=n) if t.count(0) == 1 and is_tree(t) and is_projective(t)]
        values = [sum(table[h, m] for m, h in enumerate(t, start=1)) for t in trees]
        assert values[trees.index(tuple(tree))] == pytest.approx(max(values), abs=1e-6)


def test_decodings_differ_and_each_wins_by_its_own_measure(parser):
    trees = {decode: parser.predict(X, decoding=decode) for decode in ("mbr", "viterbi", "mbr-las")}
    assert trees["mbr"] == parser.predict(X)
    assert trees["mbr-las"] != trees["mbr"] != trees["viterbi"]
    assert [row[0][0] for row in parser.predict_topk(X, 1)] == trees["viterbi"]
    tables = parser.predict_marginals(X)
    expected = {
        decode: sum(p[h] for tree, row in zip(found, tables, strict=True) for (h, _), p in zip(tree, row, strict=True))
        for decode, found in trees.items()
    }
    assert expected["mbr"] > max(expected["viterbi"], expected["mbr-las"])


def test_bad_decodings(parser):
    with pytest.raises(ValueRangeError, match="decoding must be one of viterbi, mbr, mbr-las, got 'best'"):
        parser.predict(X[:1], decoding="best")
    unlabeled = made(DependencyParser, 1, **SMALL).fit(TAGGED, HEADS)
    with pytest.raises(ValueRangeError, match="needs labels"):
        unlabeled.predict(TAGGED, decoding="mbr-las")
