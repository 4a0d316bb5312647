"""Dropout of features and the L2 penalty."""

import numpy as np
import pytest

from tests.estimators import made
from tests.models.parser.corpus import SMALL, treebank
from trelliswork import DependencyParser
from trelliswork.compute.threads import num_threads
from trelliswork.models.parser.first_order import NO_DROP, dropout
from trelliswork.models.parser.kernels.arcs import remaining

X, Y = treebank("train", 60)


def test_a_share_of_the_features_is_dropped_by_mini_batch():
    every = np.arange(20_000, dtype=np.uint32).reshape(20, 1000)
    kept = []
    for seed in (1, 1, 2):
        ids, counts, drop = every.copy(), np.full(20, 1000, np.int32), dropout(0.3, seed)
        remaining(ids, counts, drop)
        kept.append({int(i) for row, n in zip(ids, counts, strict=True) for i in row[:n]})
        assert 0.68 < len(kept[-1]) / every.size < 0.72
        assert drop.scale == pytest.approx(1 / 0.7)
    assert kept[0] == kept[1] != kept[2]
    assert 0.45 < len(kept[0] & kept[2]) / every.size < 0.53  # independent
    assert dropout(0.0, 1) is NO_DROP


def test_dropout_and_l2_give_the_same_parser_for_any_number_of_threads():
    weights = []
    for n in (1, 2):
        with num_threads(n):
            model = made(DependencyParser, 2, **SMALL, dropout=0.2, l2=0.01).fit(X, Y)
            weights.append([*model.weights_, model._learned.labels.weights])
    assert all((a == b).all() for a, b in zip(*weights, strict=True))
    plain = made(DependencyParser, 2, **SMALL, dropout=0.0, l2=0.0).fit(X, Y)
    assert all((a != b).any() for a, b in zip(weights[0], plain.weights_, strict=False))
