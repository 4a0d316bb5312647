"""Scores for tagging, straight from attributes: bit for bit those of the layout for training."""

import numpy as np
import pytest

from trelliswork.features.attributes import Attributes
from trelliswork.models.crf.layout import FeatureLayout
from trelliswork.models.crf.problem import Tokens
from trelliswork.models.crf.weights import ChainWeights, ScoredTokens, Scorer


@pytest.mark.parametrize("with_values", [False, True])
@pytest.mark.parametrize("n_labels", [1, 2, 7, 8, 17, 40])
def test_scores_equal_those_of_training(n_labels, with_values):
    rng = np.random.default_rng(n_labels)
    n_tokens, n_attributes = 60, 50
    sizes = rng.integers(0, 12, n_tokens)
    token_ptr = np.concatenate([[0], np.cumsum(sizes)])
    ids = rng.integers(0, n_attributes, token_ptr[-1]).astype(np.int32)
    values = rng.normal(size=len(ids)).astype(np.float32) if with_values else None
    offsets = np.array([0, 20, 21, 60])
    features = np.flatnonzero(rng.random((n_attributes, n_labels)) < rng.choice([0.0, 0.1, 0.9], (n_attributes, 1)))
    attributes, labels = (features // n_labels).astype(np.int32), (features % n_labels).astype(np.int16)
    layout = FeatureLayout(n_labels, n_attributes, np.arange(n_labels**2), attributes, labels)
    weights = ChainWeights(rng.normal(size=layout.n_features), layout)
    expected = ScoredTokens(Tokens(offsets, token_ptr, ids, values), layout).scores(weights, 0, n_tokens)
    scorer = Scorer.of(Attributes(offsets, token_ptr, ids, values, n_attributes), layout)
    assert np.array_equal(scorer._unary(weights, 0, n_tokens), expected)
